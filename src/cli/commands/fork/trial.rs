//! A command tried in a throw-away fork of a recorded state.
//!
//! A process of its own enters the fork and runs the command. It is this program with the same
//! arguments, and a mark in the environment that names the fork. So several tries can go on at
//! once, each with signals and a current directory of its own. The process leaves the exit code of
//! the command in the directory of the fork. Without that file, nothing was tried.
//!
//! A fork of a killed process stays. The next trials remove it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Handle;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::{CommandArgs, Entered, forks_of, probe};
use crate::cli::signals::{self, Taken};
use nono_engine::fork::{Fork, Forks, begin_recorded};
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::SnapshotManifest;
use nono_engine::sys::{self, Dir};

/// Names the fork in the environment of a process that tries a command.
const MARK: &str = "NONO_TRIAL";
/// The file with the exit code, in the directory of the fork.
const RESULT: &str = "trial";
const MAX_RESULT_BYTES: u64 = 8;
/// The beginning of the names of throw-away forks; hexadecimal digits follow.
pub(super) const PREFIX: &str = "trial-";
const NAME_BYTES: usize = 6;

/// In a process that tries a command: runs it. `None` in every other process.
pub(in crate::cli) fn run_marked(
    command: &CommandArgs,
    store: &StoreArgs,
    context: &Context,
) -> Option<Outcome> {
    let name = std::env::var_os(MARK)?.into_string().ok()?;
    Some((|| {
        let fork = forks_of(store)?.find(&name)?;
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
        remove_abandoned(&forks)?;
        let running = Arc::new(Running::default());
        let mut queue = signals::queue().map_err(signals::refused)?;
        let taken = Taken::queued(&[SIGINT, SIGTERM, SIGHUP], &queue).map_err(signals::refused)?;
        let signals = queue.handle();
        let asked = Arc::clone(&running);
        let waiting = sys::spawn("trials", move || {
            for _ in queue.forever() {
                asked.is_stopped.store(true, SeqCst);
                for process in asked.processes.lock().iter() {
                    // One that has ended needs no signal.
                    let _ = pidfd_send_signal(process.as_fd(), Signal::TERM);
                }
            }
        });
        waiting.map_err(signals::refused)?;
        Ok(Self { forks, root, running, signals, _taken: taken })
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
        let session = begin_recorded(&self.root, state, &NoProgress)?;
        let name = format!("{PREFIX}{}", hex::encode(&sys::random_bytes()?[..NAME_BYTES]));
        let fork = self.forks.make(&name, &session, "a state that is tried")?;
        let tried = self.try_in(&fork, output);
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
        command.args(std::env::args_os().skip(1)).env(MARK, fork.name());
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

/// Removes the forks of killed processes.
fn remove_abandoned(forks: &Forks) -> Result<(), CliError> {
    for fork in forks.list()?.into_iter().filter_map(Result::ok) {
        let digits = fork.name().strip_prefix(PREFIX).unwrap_or_default();
        let is_ours =
            digits.len() == 2 * NAME_BYTES && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_ours && let Err(error) = fork.discard() {
            tracing::debug!("fork {} stays: {error}", fork.name());
        }
    }
    Ok(())
}

/// The words that let a shell run a command line.
pub(in crate::cli) fn shell_command(line: &OsString) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), line.clone()]
}
