//! The commands of a profile around the first and the last snapshot of a run: a server that flushes
//! its tables or holds its writes.
//!
//! They come from the configuration of the user and run outside of the walls. Always true:
//! `after_snapshot` runs whenever `before_snapshot` was tried, also after a failure, so that what
//! the first one holds is let go. A command that takes longer than the limit is killed with all
//! that it started in its process group.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::context::Context;
use super::error::CliError;
use crate::config::{HookFailure, SnapshotHooks};
use nono_engine::path_text::Shown;

/// The hooks of a run.
#[derive(Debug, Clone)]
pub(super) struct Hooks<'a> {
    pub(super) hooks: &'a SnapshotHooks,
    /// Where the commands work: the first recorded directory.
    pub(super) directory: Option<PathBuf>,
}

impl Hooks<'_> {
    /// Takes a snapshot between the two commands. `may_stop`: whether a failure of the first one
    /// may keep it from being taken.
    pub(super) fn around<T>(
        &self,
        may_stop: bool,
        context: &Context,
        snapshot: impl FnOnce() -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let before = self.run("before_snapshot", &self.hooks.before_snapshot);
        let taken = match before {
            Err(error) if may_stop && self.hooks.on_failure == HookFailure::Stop => Err(error),
            before => {
                if let Err(error) = before {
                    context.warn(error);
                }
                snapshot()
            }
        };
        if let Err(error) = self.run("after_snapshot", &self.hooks.after_snapshot) {
            context.warn(error);
        }
        taken
    }

    fn run(&self, name: &str, words: &[String]) -> Result<(), CliError> {
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let shown = Shown::bytes(program.as_bytes());
        let failed = |what: String| CliError::failed(format!("{name} ({shown}) {what}"));
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut child =
            command.spawn().map_err(|error| failed(format!("cannot be started: {error}")))?;
        let limit = Duration::from_secs(self.hooks.timeout_seconds);
        let status = wait(&mut child, limit);
        match status.map_err(|error| failed(format!("cannot be waited for: {error}")))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(failed(format!("failed: {status}"))),
            None => Err(failed(format!("took longer than {} s", self.hooks.timeout_seconds))),
        }
    }
}

/// Waits for a process, and kills its group after the limit: then there is no status.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    if has_ended(child, limit)? {
        return child.wait().map(Some);
    }
    // The process is not waited for yet, so its number is no other one's.
    let group = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    child.wait().map(|_| None)
}

/// Whether a process ends before the limit.
#[cfg(target_os = "linux")]
fn has_ended(child: &Child, limit: Duration) -> std::io::Result<bool> {
    use std::time::Instant;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(std::io::Error::other)?;
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Whether a process ends before the limit: elsewhere, it is not waited for.
#[cfg(not(target_os = "linux"))]
fn has_ended(_: &Child, _: Duration) -> std::io::Result<bool> {
    Err(std::io::ErrorKind::Unsupported.into())
}
