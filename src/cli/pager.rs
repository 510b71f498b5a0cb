//! The pager: which one it is, how it is started, and output that it shows.
//!
//! As with git: `NONO_PAGER`, else `PAGER`, else `less`; empty or `cat` is none. A missing pager is
//! no reason to say anything: the output goes to the terminal. A user who closes the pager early
//! has seen enough, which is no failure.
//!
//! Ctrl-C is for the pager, as long as there is one; this program then writes nothing more and
//! waits for it, because two programs must not have the terminal at once.

use std::io::{self, BufWriter, PipeWriter, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGQUIT, SIGTSTP};

use super::error::CliError;
use super::signals::Taken;
use super::supervise;

/// The pager unless the user wishes for another one.
const USUAL_PAGER: &str = "less";
/// Quits if all fits on the screen, lets colours through, leaves the text on the screen.
const LESS: &str = "FRX";

/// The pager that the user wants, unless that is none.
pub(super) fn chosen() -> Option<String> {
    let named = |name| std::env::var(name).ok();
    let pager = named("NONO_PAGER").or_else(|| named("PAGER"));
    let pager = pager.unwrap_or_else(|| USUAL_PAGER.to_owned());
    (!matches!(pager.trim(), "" | "cat")).then_some(pager)
}

/// How it is started. A shell reads what only a shell understands. It is no use otherwise: on
/// Ctrl-Z it would stop before the pager has put the terminal in order.
pub(super) fn command(pager: &str) -> Command {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " -_./+,:".contains(c);
    let mut words = pager.split_whitespace();
    match words.next().filter(|_| pager.chars().all(is_plain)) {
        Some(program) => {
            let mut plain = Command::new(program);
            plain.args(words);
            plain
        }
        None => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(pager);
            shell
        }
    }
}

/// A pager that is running.
#[derive(Debug)]
pub(super) struct Pager {
    name: String,
    child: Child,
    input: PipeWriter,
    interrupted: Arc<AtomicBool>,
    _taken: Taken,
}

impl Pager {
    /// Starts the pager, if one is wanted and there.
    pub(super) fn start() -> Option<Self> {
        let name = chosen()?;
        let (output, input) = io::pipe().ok()?;
        let mut command = command(&name);
        command.stdin(Stdio::from(output));
        for (variable, usual) in [("LESS", LESS), ("LV", "-c")] {
            if std::env::var_os(variable).is_none() {
                command.env(variable, usual);
            }
        }
        // Before it starts: Ctrl-C must not end this program while the pager has the terminal.
        let interrupted = Arc::default();
        let taken = Taken::raising(&[SIGINT, SIGQUIT], &interrupted).ok()?;
        let child = command.spawn().ok()?;
        Some(Self { name, child, input, interrupted, _taken: taken })
    }

    /// Its input.
    pub(super) fn input(&self) -> io::Result<Box<dyn Write>> {
        let (pipe, interrupted) = (self.input.try_clone()?, Arc::clone(&self.interrupted));
        Ok(Box::new(BufWriter::new(Input { pipe, interrupted })))
    }

    /// Waits until it is closed.
    ///
    /// # Errors
    /// When a shell could not find it.
    pub(super) fn close(self) -> Result<(), CliError> {
        let Self { name, child, input, interrupted: _, _taken } = self;
        drop(input);
        // When the pager stops, so does this program, and not before.
        let _stopping = Taken::raising(&[SIGTSTP], &Arc::default()).ok();
        match supervise::wait_in_foreground(&child) {
            Ok(127) => Err(CliError::failed(format!("cannot run the pager {name:?}"))
                .with_hint("NONO_PAGER chooses another one, --no-pager does without")),
            _ => Ok(()),
        }
    }
}

/// One end of the pipe, which is closed for us after Ctrl-C.
struct Input {
    pipe: PipeWriter,
    interrupted: Arc<AtomicBool>,
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupted.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.pipe.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}
