//! The terminal of the timeline: taken when it opens, given back when it is dropped.
//!
//! Keys, the mouse and signals arrive at one place, [`Screen::next_input`]. A terminal that is gone
//! ends the timeline before a key is read from it. The screen is drawn on stderr, so that the
//! output of a command may go elsewhere.

use std::collections::VecDeque;
use std::io::{self, Stderr, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::{MoveTo, Show};
use crossterm::event::{self, Event, KeyEvent, KeyEventKind, MouseEvent};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, getsid, kill_current_process_group};
use rustix::termios::{QueueSelector, tcflush};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::low_level::pipe;

use crate::cli::signals::Taken;

/// There is something to read already when this is waited.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Asks for presses and the wheel of the mouse. Not for moves, which nothing looks at.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
/// The opposite.
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l";

/// The event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// The size may be another one.
    Redraw,
    /// Somebody asks for the terminal for a while.
    Suspend,
    /// The terminal is gone, or a signal asks for an end.
    End,
}

/// A terminal in raw mode that shows its second screen.
#[derive(Debug)]
pub(super) struct Screen {
    /// Never dropped: it would print that it cannot show the cursor, and panic where there is
    /// nothing to print to any more. [`leave`](Self::leave) shows it.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stderr>>>,
    /// `None` while others have the terminal with their own signals.
    signals: Option<Signals>,
    typed: VecDeque<Input>,
    /// Whether the second screen is shown.
    is_taken: bool,
}

impl Screen {
    /// Takes the terminal, and forgets what was typed until now.
    pub(super) fn open() -> io::Result<Self> {
        let signals = Signals::new()?;
        let terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(io::stderr()))?);
        // From here on, dropping it gives the terminal back.
        let (signals, typed) = (Some(signals), VecDeque::new());
        let mut screen = Self { terminal, signals, typed, is_taken: false };
        screen.enter()?;
        screen.forget_keys()?;
        Ok(screen)
    }

    pub(super) fn draw(&mut self, render: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(render)?;
        Ok(())
    }

    /// The next draw writes everything.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // `Terminal::clear` would ask the terminal where the cursor is, on stdout.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }

    /// Columns, as far as anybody knows.
    pub(super) fn width(&self) -> u16 {
        self.terminal.size().map_or(0, |size| size.width)
    }

    /// Whether a key was pressed that nobody has seen yet.
    pub(super) fn has_keys(&self) -> bool {
        if self.typed.is_empty() {
            let stdin = io::stdin();
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
            // Interrupted: the signal is looked at soon.
            let _ = poll(&mut ready, Some(&at_once));
            return ready[0].revents().contains(PollFlags::IN);
        }
        true
    }

    /// Waits for a key or a signal.
    pub(super) fn next_input(&mut self) -> io::Result<Input> {
        loop {
            if let Some(typed) = self.typed.pop_front() {
                return Ok(typed);
            }
            let Some(signals) = &self.signals else { return Ok(Input::End) };
            let stdin = io::stdin();
            let mut ready =
                [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&signals.woken, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let (input, signal) = (ready[0].revents(), ready[1].revents());
            if input.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return Ok(Input::End);
            }
            if !signal.is_empty() {
                match signals.take()? {
                    Some(Input::Redraw) => {
                        // After SIGCONT, the shell has set its own modes.
                        self.enter()?;
                        return Ok(Input::Redraw);
                    }
                    Some(input) => return Ok(input),
                    None => {}
                }
            }
            if input.contains(PollFlags::IN) {
                self.read_keys()?;
            }
        }
    }

    /// Stops this process with all of its group, as Ctrl-Z does where a terminal acts on it.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        // Without a shell that waits for us, nobody would wake us again.
        if getsid(getppid()).ok() != getsid(None).ok() {
            return Ok(());
        }
        self.leave();
        kill_current_process_group(Signal::STOP)?;
        self.enter()
    }

    /// Does something with the terminal as it was before.
    pub(super) fn outside<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.leave();
        let done = work();
        // Ctrl-C in a pager is the pager's.
        if let Some(signals) = &self.signals {
            signals.forget_interrupts();
        }
        self.enter()?;
        self.forget_keys()?;
        Ok(done)
    }

    /// The same for a command of this program: Ctrl-C at its question ends the program.
    pub(super) fn aside<T>(&mut self, work: impl FnOnce() -> T) -> io::Result<T> {
        self.leave();
        self.signals = None;
        let done = work();
        self.signals = Some(Signals::new()?);
        self.enter()?;
        self.forget_keys()?;
        Ok(done)
    }

    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        self.is_taken = true;
        execute!(io::stderr(), EnterAlternateScreen)?;
        io::stderr().write_all(MOUSE_ON)?;
        self.clear()
    }

    /// Keys typed at an earlier text are no answer to this question.
    fn forget_keys(&mut self) -> io::Result<()> {
        self.typed.clear();
        Ok(tcflush(io::stdin(), QueueSelector::IFlush)?)
    }

    /// Gives the terminal back. It may be gone, then there is nothing to give back.
    fn leave(&mut self) {
        if std::mem::take(&mut self.is_taken) {
            let _ = io::stderr().write_all(MOUSE_OFF);
            // Where the window grew meanwhile, tmux keeps rows that do not fit on the other
            // screen, unless they are empty and below the cursor.
            let _ = execute!(io::stderr(), Clear(ClearType::All), MoveTo(0, 0));
            let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        }
        let _ = disable_raw_mode();
    }

    fn read_keys(&mut self) -> io::Result<()> {
        while event::poll(AT_ONCE)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    self.typed.push_back(Input::Key(key));
                }
                Event::Mouse(mouse) => self.typed.push_back(Input::Mouse(mouse)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Signals that arrived, and a socket that is readable when there are any.
#[derive(Debug)]
struct Signals {
    woken: UnixStream,
    end: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    suspend: Arc<AtomicBool>,
    redraw: Arc<AtomicBool>,
    _taken: Vec<Taken>,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let flags: [Arc<AtomicBool>; 4] = Default::default();
        let [end, interrupt, suspend, redraw] = &flags;
        let taken = [
            (&[SIGHUP, SIGTERM][..], end),
            (&[SIGINT, SIGQUIT], interrupt),
            (&[SIGTSTP], suspend),
            (&[SIGCONT, SIGWINCH], redraw),
        ]
        .map(|(signals, raised)| {
            // In this order: the woken thread finds the flag.
            Taken::with(signals, |signal| {
                let flag = signal_hook::flag::register(signal, Arc::clone(raised))?;
                Ok([flag, pipe::register(signal, wake.try_clone()?)?])
            })
        });
        let taken = taken.into_iter().collect::<io::Result<_>>()?;
        let [end, interrupt, suspend, redraw] = flags;
        Ok(Self { woken, end, interrupt, suspend, redraw, _taken: taken })
    }

    /// The most urgent one.
    fn take(&self) -> io::Result<Option<Input>> {
        let mut drained = [0; 64];
        loop {
            match io::Read::read(&mut &self.woken, &mut drained) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let take = |flag: &AtomicBool| flag.swap(false, Ordering::SeqCst);
        let (redraw, suspend) = (take(&self.redraw), take(&self.suspend));
        Ok(match take(&self.end) || take(&self.interrupt) {
            true => Some(Input::End),
            false if suspend => Some(Input::Suspend),
            false if redraw => Some(Input::Redraw),
            false => None,
        })
    }

    fn forget_interrupts(&self) {
        self.interrupt.store(false, Ordering::SeqCst);
        self.suspend.store(false, Ordering::SeqCst);
    }
}
