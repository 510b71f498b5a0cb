//! The keeper: a process between the supervisor and the command, which ends the command when the
//! supervisor dies.
//!
//! ```text
//! supervisor ── nono __keep ──────────────┐ makes the namespaces, starts the keeper, and ends
//!     │                                   │
//!     └──── keeper: nono __keep --inside ─┘ furnishes them; init of the process namespace
//!               └── the command (through nono __sandbox-exec, where it has walls)
//! ```
//!
//! Where there is no process namespace, the keeper adopts the command's orphans (it is their *child
//! subreaper*). The supervisor and the keeper meet at a socket in a directory that the command
//! cannot reach, so no descriptor leads from one world into the other. They speak lines of JSON:
//! [`Event`]s one way, [`Order`]s the other. Always true:
//!
//! - The supervisor's end of the conversation closes however it dies. The keeper then ends all that
//!   it keeps, unless it was told to let it go on.
//! - The keeper outlives the command as long as processes of it are left, and holds the lock of the
//!   run's temporary directory meanwhile.
//! - The keeper holds none of the command's streams open.

mod inside;

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};
use serde::{Deserialize, Serialize};

use crate::sandbox::{Policy, View};
use nono_engine::path_text::{serde_optional_path, serde_path, serde_paths};

pub(super) use inside::{KeepArgs, run};

/// Name of the hidden command.
pub(super) const NAME: &str = "__keep";
/// This program, whatever became of the file it was started from.
pub(super) const THIS_PROGRAM: &str = "/proc/self/exe";
/// Maximum wait for the keeper to be there. It starts two programs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two looks whether a process is left that can become the keeper.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The keeper's task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Directories that are in use as long as something of the command lives; both lock them.
    #[serde(with = "serde_paths")]
    pub(super) in_use: Vec<PathBuf>,
    /// The directory of the fork in which the command works, if it does. Its mounts are entered,
    /// and the fork is in use as long as something of the command lives.
    #[serde(default, with = "serde_optional_path")]
    pub(super) fork: Option<PathBuf>,
    /// The second wall, if there is one.
    pub(super) namespaces: Option<Namespaces>,
    /// The first wall. Without one the command has all rights.
    pub(super) policy: Option<Policy>,
    /// The file to execute.
    #[serde(with = "serde_path")]
    pub(super) program: PathBuf,
    /// Whether the command goes on when the supervisor dies.
    pub(super) outlives_supervisor: bool,
}

/// Which namespaces the command gets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Namespaces {
    /// Its view of the file system.
    pub(super) view: View,
    /// Whether it sees its own processes alone.
    pub(super) own_processes: bool,
}

/// The keeper's messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    /// The namespaces are there, and the command is about to be started.
    Ready,
    /// There are no namespaces; nothing was started.
    Refused(String),
    /// The command did not start; the number of the error.
    NotStarted(i32),
    /// The command was stopped.
    Stopped,
    /// The command ended, with this status of wait(2).
    Ended(i32),
}

/// The supervisor's orders. The first order of all begins the work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    /// Start the command.
    Begin(Box<Plan>),
    /// Send this signal to the command.
    Signal(i32),
}

/// Why there is no command.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The namespaces are refused, for this reason.
    Refused(String),
    /// A signal came before there was a command: Ctrl-C, as a rule.
    Killed(i32),
    /// Anything else.
    Failed(io::Error),
}

impl From<io::Error> for NotStarted {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for NotStarted {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno.into())
    }
}

/// How a command goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It was stopped.
    Stopped,
    /// It ended, with this status of wait(2).
    Ended(i32),
    /// Its keeper was killed, and took it along or left it behind.
    Lost,
}

/// A keeper at work. Dropped, it ends what it keeps, unless the command has ended.
#[derive(Debug)]
pub(super) struct Keeper {
    events: BufReader<UnixStream>,
    orders: UnixStream,
    pid: Option<Pid>,
    has_namespaces: bool,
}

impl Keeper {
    /// Starts the keeper, and through it the command. `command` is this program with the
    /// environment of the command; the two meet at a socket of the path `meeting`.
    ///
    /// # Errors
    /// As [`NotStarted`] says.
    pub(super) fn start(
        mut command: Command,
        meeting: &Path,
        plan: Plan,
        given: &[OsString],
    ) -> Result<Self, NotStarted> {
        // The keeper becomes our child when the one that started it ends.
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let has_namespaces = plan.namespaces.is_some() || plan.fork.is_some();
        let listener = UnixListener::bind(meeting)?;
        listener.set_nonblocking(true)?;
        command.arg0("nono").args([NAME, "--meeting"]).arg(meeting);
        if let Some(Namespaces { own_processes: true, .. }) = &plan.namespaces {
            command.arg("--own-processes");
        }
        match &plan.fork {
            Some(fork) => drop(command.arg("--fork").arg(fork)),
            None if plan.namespaces.is_none() => drop(command.arg("--inside")),
            None => {}
        }
        command.arg("--").args(given);
        // Points at which a test lets this process fail.
        #[cfg(feature = "fail-points")]
        command.env_remove("NONO_FAIL_POINT").env_remove("NONO_OPERATION_LOG");
        let first = command.spawn()?;
        let stream = meet(&listener, &first);
        let _ = rustix::fs::unlink(meeting);
        let stream = stream?;
        #[cfg(target_os = "linux")]
        let pid = rustix::net::sockopt::socket_peercred(&stream).ok().map(|peer| peer.pid);
        #[cfg(not(target_os = "linux"))]
        let pid = i32::try_from(first.id()).ok().and_then(Pid::from_raw);
        let mut keeper = Self {
            events: BufReader::new(stream.try_clone()?),
            orders: stream,
            pid,
            has_namespaces,
        };
        // One that has nothing to keep tells so without listening.
        let _ = send(&keeper.orders, &Order::Begin(Box::new(plan)));
        match keeper.next_event()? {
            Some(Event::Ready) => Ok(keeper),
            Some(Event::Refused(reason)) => Err(NotStarted::Refused(reason)),
            other => Err(unexpected(other.as_ref())),
        }
    }

    /// Its process id, as this process sees it.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// Whether what it keeps has a mount namespace of its own.
    pub(super) fn has_namespaces(&self) -> bool {
        self.has_namespaces
    }

    /// Where orders are given, also beside [`next`](Self::next).
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn orders(&self) -> io::Result<Orders> {
        Ok(Orders(self.orders.try_clone()?))
    }

    /// Waits for what comes next.
    ///
    /// # Errors
    /// The command did not start.
    pub(super) fn next(&mut self) -> Result<Progress, NotStarted> {
        match self.next_event()? {
            Some(Event::Stopped) => Ok(Progress::Stopped),
            Some(Event::Ended(status)) => Ok(Progress::Ended(status)),
            Some(Event::NotStarted(errno)) => Err(io::Error::from_raw_os_error(errno).into()),
            None => Ok(Progress::Lost),
            other => Err(unexpected(other.as_ref())),
        }
    }

    /// `None` at the end of the conversation.
    fn next_event(&mut self) -> io::Result<Option<Event>> {
        let mut line = String::new();
        match self.events.read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(serde_json::from_str(&line)?)),
            // It was killed with orders unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Gives orders to a keeper.
#[derive(Debug)]
pub(super) struct Orders(UnixStream);

impl Orders {
    /// Sends a signal to the command, unless it has ended.
    pub(super) fn signal(&self, number: i32) {
        // A keeper that is gone has no command.
        let _ = send(&self.0, &Order::Signal(number));
    }
}

fn unexpected(event: Option<&Event>) -> NotStarted {
    io::Error::other(match event {
        Some(event) => format!("the keeper of the command said {event:?}"),
        None => "the keeper of the command ended before it was ready".to_owned(),
    })
    .into()
}

/// One line, in one write: two threads may tell.
fn send(stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    (&*stream).write_all(&line)
}

/// Waits for the keeper, as long as a process is left that may become it.
fn meet(listener: &UnixListener, first: &Child) -> Result<UnixStream, NotStarted> {
    let started = Instant::now();
    let first = i32::try_from(first.id()).ok().and_then(Pid::from_raw);
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        match poll(&mut ready, Some(&STEP)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(errno) => return Err(errno.into()),
        }
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(signal) = status.terminating_signal() {
                    return Err(NotStarted::Killed(signal));
                }
                if Some(pid) == first && status.exit_status() != Some(0) {
                    let why = format!("the keeper of the command ended ({status:?})");
                    return Err(io::Error::other(why).into());
                }
            }
            // Its child is ours when it ends.
            Err(Errno::CHILD) => {
                return Err(io::Error::other("the keeper of the command was killed").into());
            }
            Ok(None) | Err(_) => {}
        }
        if started.elapsed() >= TIMEOUT {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
    }
}
