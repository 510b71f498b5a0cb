//! A command tried in a throw-away fork of a recorded state.
//!
//! A process of its own enters the fork and runs the command. It is this program with the same
//! arguments, and a mark in the environment that names the fork. So several tries can go on at
//! once, each with signals and a current directory of its own. The process leaves the exit code of
//! the command in the directory of the fork. Without that file, nothing was tried.
//!
//! Nothing of a try outlives it. A signal ends the command, and the fork goes; a second signal
//! does not wait for the command. The process of a try dies with the one that started it, and the
//! keeper of the command with that. The next command that looks at forks then finds a throw-away
//! fork that no process locks, and removes it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;

use super::list::commands_in;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::{CommandArgs, Entered, forks_of, probe};
use crate::cli::signals::{self, Taken};
use nono_engine::fork::{Birth, Fork, Forks, NewFork, begin_recorded};
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::SnapshotManifest;
use nono_engine::sys::{self, Dir};

/// Names the session of the fork, and the process that started this one, in the environment of a
/// process that tries a command.
const MARK: &str = "NONO_TRIAL";
/// The file with the exit code, in the directory of the fork.
const RESULT: &str = "trial";
const MAX_RESULT_BYTES: u64 = 8;
/// The beginning of the names of throw-away forks; hexadecimal digits follow.
pub(super) const PREFIX: &str = "trial-";
const NAME_BYTES: usize = 6;
/// Maximum time from the kill of a process to its end.
const PATIENCE: Duration = Duration::from_secs(10);

/// In a process that tries a command: runs it. `None` in every other process.
pub(in crate::cli) fn run_marked(
    command: &CommandArgs,
    store: &StoreArgs,
    context: &Context,
) -> Option<Outcome> {
    let mark = std::env::var_os(MARK)?.into_string().ok()?;
    let (session, starter) = mark.split_once(' ')?;
    Some((|| {
        // The command then ends with this process.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(std::io::Error::from)?;
        if getppid().map(|pid| pid.as_raw_nonzero().to_string()).as_deref() != Some(starter) {
            return Err(CliError::stopped("the process that tries the command has ended"));
        }
        let fork = forks_of(store)?.of_session(session)?;
        let ended = Entered::new(&fork)?.run(command, store, context)?;
        let code = ended.code.to_string();
        Dir::open(fork.path())?.replace_file(RESULT.as_bytes(), code.as_bytes(), 0o600, false)?;
        Ok(ended.code)
    })())
}

/// The place of the output of a tried command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Output {
    /// The standard error of this process: its standard output is for the report.
    Shown,
    /// None.
    Dropped,
}

/// Tries of a command, which end when a stop is asked for.
#[derive(Debug)]
pub(in crate::cli) struct Trials {
    forks: Forks,
    root: PathBuf,
    running: Arc<Running>,
    signals: Handle,
    _taken: Taken,
}

#[derive(Debug, Default)]
struct Running {
    processes: Mutex<Vec<Arc<OwnedFd>>>,
    is_stopped: AtomicBool,
}

impl Trials {
    /// Tries in a store. Where forks cannot be, this says so.
    pub(in crate::cli) fn new(store: &StoreArgs) -> Result<Self, CliError> {
        let forks = forks_of(store)?;
        let root = sys::real_or_future_path(store.catalog()?.root());
        probe(&root)?;
        let running = Arc::new(Running::default());
        let mut queue = signals::queue().map_err(signals::refused)?;
        let taken = Taken::queued(&[SIGINT, SIGTERM, SIGHUP], &queue).map_err(signals::refused)?;
        let signals = queue.handle();
        let asked = Arc::clone(&running);
        let waiting = sys::spawn("trials", move || {
            for _ in queue.forever() {
                let is_second = asked.is_stopped.swap(true, SeqCst);
                let signal = if is_second { Signal::KILL } else { Signal::TERM };
                for process in asked.processes.lock().iter() {
                    // One that has ended needs no signal.
                    let _ = pidfd_send_signal(process.as_fd(), signal);
                }
            }
        });
        waiting.map_err(signals::refused)?;
        Ok(Self { forks, root, running, signals, _taken: taken })
    }

    /// A trace of this process among the forks, for the sessions that it makes for a while: when it
    /// is killed, they are withdrawn.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(in crate::cli) fn trace(&self) -> Result<Birth, CliError> {
        Ok(self.forks.expect()?)
    }

    /// Whether a stop was asked for.
    pub(in crate::cli) fn is_stopped(&self) -> bool {
        self.running.is_stopped.load(SeqCst)
    }

    /// Runs the command of this process's arguments in a fork of a state, and removes the fork.
    /// Returns the exit code of the command.
    ///
    /// # Errors
    /// The command was not tried, or a stop was asked for.
    pub(in crate::cli) fn run(
        &self,
        state: &SnapshotManifest,
        output: Output,
    ) -> Result<u8, CliError> {
        if self.is_stopped() {
            return Err(CliError::stopped("stopped"));
        }
        let birth = self.forks.expect()?;
        let session = begin_recorded(&self.root, state, &NoProgress)?;
        let name = format!("{PREFIX}{}", hex::encode(&sys::random_bytes()?[..NAME_BYTES]));
        let (name, from) = (&*name, "a state that is tried");
        let (fork, in_use) = birth.make(NewFork {
            name,
            session: &session,
            from,
            throw_away: true,
            copied: false,
        })?;
        let tried = self.try_in(&fork, output);
        end_rest(&fork);
        drop(in_use);
        let removed = fork.discard();
        if self.is_stopped() {
            return Err(CliError::stopped("stopped"));
        }
        let code = tried?;
        removed?;
        Ok(code)
    }

    fn try_in(&self, fork: &Fork, output: Output) -> Result<u8, CliError> {
        let program = std::env::current_exe()
            .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
        let mut command = Command::new(program);
        let mark = format!("{} {}", fork.document().session, getpid().as_raw_nonzero());
        command.args(std::env::args_os().skip(1)).env(MARK, mark);
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        let failed = |error| CliError::failed(format!("cannot start this program again: {error}"));
        match output {
            Output::Shown => {
                let shown = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
                command.stdout(Stdio::from(File::from(shown)));
            }
            Output::Dropped => {
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            }
        }
        self.wait(command.spawn().map_err(failed)?)?;
        let result = match Dir::open(fork.path())?.read(RESULT.as_bytes(), MAX_RESULT_BYTES) {
            Ok(result) => result,
            Err(error) if error.is_gone() => {
                return Err(CliError::failed("the command could not be tried"));
            }
            Err(error) => return Err(error.into()),
        };
        let code = std::str::from_utf8(&result).ok().and_then(|text| text.parse().ok());
        code.ok_or_else(|| CliError::failed("the command could not be tried"))
    }

    /// Waits for a process, which ends when a stop is asked for.
    fn wait(&self, mut child: Child) -> Result<(), CliError> {
        let failed = |error| CliError::failed(format!("cannot wait for the command: {error}"));
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).map_err(std::io::Error::from);
        let process = Arc::new(process.map_err(failed)?);
        self.running.processes.lock().push(Arc::clone(&process));
        if self.is_stopped() {
            let _ = pidfd_send_signal(process.as_fd(), Signal::TERM);
        }
        let ended = child.wait();
        self.running.processes.lock().retain(|other| !Arc::ptr_eq(other, &process));
        ended.map(drop).map_err(failed)
    }
}

impl Drop for Trials {
    fn drop(&mut self) {
        // The thread ends.
        self.signals.close();
    }
}

/// Ends what a tried command left running: its work is of no use in a throw-away fork.
fn end_rest(fork: &Fork) {
    let began = Instant::now();
    loop {
        let left = commands_in(fork);
        if left.is_empty() || began.elapsed() >= PATIENCE {
            return;
        }
        // All are killed before the first one is waited for.
        let processes = left.into_iter().filter_map(Pid::from_raw);
        let open = |pid| pidfd_open(pid, PidfdFlags::empty()).ok();
        let processes: Vec<OwnedFd> = processes.filter_map(open).collect();
        for process in &processes {
            // One that has ended needs no signal.
            let _ = pidfd_send_signal(process.as_fd(), Signal::KILL);
        }
        for process in &processes {
            let patience = PATIENCE.saturating_sub(began.elapsed());
            let Ok(patience) = Timespec::try_from(patience) else { return };
            // One that cannot be waited for is looked for again.
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience));
        }
    }
}

/// The words that let a shell run a command line.
pub(in crate::cli) fn shell_command(line: &OsString) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), line.clone()]
}
