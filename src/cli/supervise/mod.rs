//! Running the command: its input, output and terminal are ours, untouched.
//!
//! The command stays in our process group, so the terminal treats us as one: Ctrl-C and Ctrl-Z
//! reach it directly. We only follow what its [keeper](super::keeper) tells. When it stops, we
//! stop, so that the shell takes the terminal back; `fg` wakes both. When it ends, we end, after
//! the last state is recorded. Its orphans stay below the keeper, so we see whether a process still
//! writes.

mod quiet;

use std::ffi::c_int;
use std::io::{self, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::mpsc;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, waitpid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle, Signals};

use super::keeper::{Keeper, NotStarted, Orders, Progress};
use super::signals::{Taken, queue};
use nono_engine::sys;

pub(super) use quiet::{Leftover, QUIET_TIMEOUT, wait_for_quiet};

/// Exit code of a command whose keeper was killed: the code of a shell for SIGKILL.
const LOST: u8 = 137;

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// Its exit code, 128+n for a signal n.
    pub(super) code: u8,
    /// Whether a signal asked us to end (SIGTERM, SIGHUP), so that no question is answered.
    pub(super) was_told_to_end: bool,
    /// The keeper, which lives on as long as what the command left running.
    pub(super) keeper: Option<Pid>,
    /// Whether the command had a mount namespace of its own.
    pub(super) has_second_wall: bool,
}

/// The signals of a command: taken before it starts, given back when its last state is recorded,
/// which none of them ends.
#[derive(Debug)]
pub(super) struct CommandSignals {
    _taken: Taken,
    queue: Signals,
}

impl CommandSignals {
    /// Takes them. Signals that arrive from now on are for the command.
    pub(super) fn take() -> io::Result<Self> {
        let queue = queue()?;
        let all = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];
        Ok(Self { _taken: Taken::queued(&all, &queue)?, queue })
    }
}

/// Runs a command to its end, once `start` has started it. [`wait_for_quiet`] then tells what it
/// left running.
///
/// Signals that are sent to us alone are passed on; none of them ends us.
pub(super) fn supervise(
    start: impl FnOnce() -> Result<Keeper, NotStarted>,
    signals: &mut CommandSignals,
) -> Result<Ended, NotStarted> {
    let terminal = Terminal::of_stdin();
    let is_terminal = terminal.is_some();
    let queue = &mut signals.queue;
    // Before and after, Ctrl-Z stops this process alone.
    let _suspension = Taken::queued(&[SIGTSTP], queue)?;
    let (hand_over, handed_over) = mpsc::sync_channel(1);
    let ended = std::thread::scope(move |scope| {
        // Before the command, which is not run where no thread could pass signals on.
        let forwarder = sys::spawn_scoped(scope, "signals", move || {
            // Nothing comes when the command does not start.
            handed_over.recv().is_ok_and(|(queue, orders)| forward(queue, &orders, is_terminal))
        })?;
        let mut keeper = start()?;
        let orders = keeper.orders()?;
        // These came before the command was there to get them from the terminal.
        let came_before =
            queue.pending().fold(false, |told, signal| told | pass_on(signal, &orders));
        let closed = Closed(queue.handle());
        // The receiver waits.
        let _ = hand_over.send((queue, keeper.orders()?));
        let status = follow(&mut keeper, &orders, is_terminal);
        drop(closed);
        // A panic in it would not be the command's.
        let came_later = forwarder.join().unwrap_or(false);
        let (code, was_killed) = status?;
        let was_told_to_end = came_before | came_later;
        Ok::<_, NotStarted>((
            Ended {
                code,
                was_told_to_end,
                keeper: keeper.pid(),
                has_second_wall: keeper.has_namespaces(),
            },
            was_killed,
        ))
    })?;
    let (ended, was_killed) = ended;
    if let Some(terminal) = terminal {
        terminal.take_back(was_killed);
    }
    Ok(ended)
}

/// Passes on what comes out of the queue until that is closed; says whether we were asked to end.
fn forward(queue: &mut Signals, orders: &Orders, is_terminal: bool) -> bool {
    queue.forever().fold(false, |told, signal| {
        // The terminal has sent its signals to the command as well.
        let is_shared = is_terminal && matches!(signal, SIGINT | SIGQUIT | SIGTSTP);
        told | (!is_shared && pass_on(signal, orders))
    })
}

/// Sends a signal to the command; says whether it asks us to end.
fn pass_on(signal: c_int, orders: &Orders) -> bool {
    orders.signal(signal);
    matches!(signal, SIGTERM | SIGHUP)
}

/// Closes a queue when dropped, also by a panic: a scope waits for whoever waits for signals.
struct Closed(Handle);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits until a program of our own ends that has the terminal now, such as a pager, and returns
/// its exit code. Ctrl-Z stops both of us.
pub(super) fn wait_in_foreground(child: &Child) -> io::Result<u8> {
    Ok(exit_code(wait(pid_of(child)?)?))
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Follows the command to its end: its exit code, and whether a signal ended it.
fn follow(
    keeper: &mut Keeper,
    orders: &Orders,
    is_terminal: bool,
) -> Result<(u8, bool), NotStarted> {
    loop {
        match keeper.next()? {
            Progress::Ended(status) => {
                let status = ExitStatus::from_raw(status);
                return Ok((exit_code(status), status.signal().is_some()));
            }
            Progress::Lost => return Ok((LOST, true)),
            // Without a terminal there is no shell that would wake us.
            Progress::Stopped if is_terminal => {
                kill_process(getpid(), Signal::STOP)?;
                // A sender that woke only us means the command.
                orders.signal(SIGCONT);
            }
            Progress::Stopped => {}
        }
    }
}

/// Waits until a program of our own ends that has the terminal now.
fn wait(child: Pid) -> io::Result<ExitStatus> {
    loop {
        match waitpid(Some(child), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if !status.stopped() => {
                return Ok(ExitStatus::from_raw(status.as_raw()));
            }
            Ok(Some(_)) => {
                kill_process(getpid(), Signal::STOP)?;
                // A sender that woke only us means the program.
                let _ = kill_process(child, Signal::CONT);
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The terminal, as it was before the command had it.
struct Terminal {
    modes: Termios,
    is_ours: bool,
}

impl Terminal {
    fn of_stdin() -> Option<Self> {
        let stdin = io::stdin();
        let modes = stdin.is_terminal().then(|| tcgetattr(&stdin).ok()).flatten()?;
        Some(Self { modes, is_ours: is_ours(&stdin) })
    }

    /// Takes the terminal back from a group of processes that did not give it back: a shell in a
    /// process namespace does not know the group that had it before. After a command that was
    /// killed, and could not clean up behind itself, the modes come back as well.
    fn take_back(&self, restore_modes: bool) {
        let stdin = io::stdin();
        if self.is_ours && !is_ours(&stdin) {
            // To take it from the background stops us, unless the signal for that is blocked.
            let mut blocked = SigSet::empty();
            blocked.add(nix::sys::signal::SIGTTOU);
            if let Ok(before) = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
                let _ = tcsetpgrp(&stdin, getpgrp());
                let _ = before.thread_set_mask();
            }
        }
        // In the background, this would stop us.
        if restore_modes && is_ours(&stdin) {
            let _ = tcsetattr(&stdin, OptionalActions::Now, &self.modes);
        }
    }
}

fn is_ours(terminal: &io::Stdin) -> bool {
    tcgetpgrp(terminal).is_ok_and(|foreground| foreground == getpgrp())
}
