//! The process that holds the mounts of a fork: `nono __fork-hold`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use nono_mount::{Mount, MountOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use super::{forks_of, refusal};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::background;
use crate::cli::error::CliError;
use crate::cli::mount_guard;
use crate::sandbox::layers::{self, Lower as LowerDir};
use crate::sandbox::{self, separate};
use nono_engine::browse::{Scope, StoreTree};
use nono_engine::fork::{Fork, HOLDER_PID, Lower, UnflushedUse};
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir, FileLock};

/// The name of the hidden command.
pub(in crate::cli) const NAME: &str = "__fork-hold";
/// The lock of a process that looks for the holder, or starts it.
const START: &str = "start";
/// The lock of the holder.
const HOLDER: &str = "holder";
const MAX_PID_BYTES: u64 = 16;
/// A holder that was killed has ended within this time.
const END_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub(in crate::cli) struct HoldArgs {
    /// The session of the fork, or nothing to try whether there can be one in the store
    fork: Option<String>,
    /// Try whether there can be a fork that is a copy
    #[arg(long, conflicts_with = "fork")]
    copy: bool,
}

/// The first column of the overlays of a fork in the table of mounts.
fn source_of(fork: &Fork) -> String {
    format!("nono-fork:{}", fork.document().session)
}

/// A part of the table of mounts of each process in a fork, and of no other.
pub(in crate::cli) fn mark_of(fork: &Fork) -> String {
    match fork.is_copy() {
        // The directory that is mounted.
        true => format!("/forks/{}/layers/", fork.document().session),
        false => source_of(fork),
    }
}

pub(in crate::cli) fn run(args: &HoldArgs, store: &StoreArgs) -> Outcome {
    let held = match &args.fork {
        Some(name) => forks_of(store).and_then(|forks| hold(&forks.of_session(name)?).map(Some)),
        None if args.copy => separate(false).map_err(refusal::of_namespaces).map(|()| None),
        None => refusal::try_here(store).map(|()| None),
    };
    match held {
        Ok(held) => {
            background::announce_ready(&());
            held.map_or(Ok(0), Held::wait)
        }
        Err(error) => {
            background::announce_failure(&error);
            Ok(error.exit_code())
        }
    }
}

/// The mounts of a fork, which go with this process.
struct Held {
    fork: Fork,
    /// The recorded state; a copy needs none.
    mount: Option<Mount>,
    unflushed: UnflushedUse,
    alone: FileLock,
}

fn hold(fork: &Fork) -> Result<Held, CliError> {
    let name = fork.name();
    let alone = FileLock::try_exclusive(&fork.path().join(HOLDER))?
        .ok_or_else(|| CliError::failed(format!("fork {name} is held by another process")))?;
    if let Some(path) = fork.recorded_paths().find(|path| !sys::leads_to_dir(path)) {
        let path = Shown::path(path);
        return Err(CliError::failed(format!(
            "fork {name} is shown at {path}, which is not there"
        ))
        .with_hint(format!("make the directory: mkdir -p {path}")));
    }
    separate(false).map_err(refusal::of_namespaces)?;
    layers::prepare()?;
    if fork.is_copy() {
        background::detach()?;
        let unflushed = fork.begin_unflushed()?;
        for (number, layer) in fork.document().layers.iter().enumerate() {
            layers::show(&fork.upper_path(number), &layer.path)?;
        }
        note_holder(fork)?;
        return Ok(Held { fork: fork.clone(), mount: None, unflushed, alone });
    }
    // Before an overlay hides them.
    let document = fork.document();
    let numbered = || document.layers.iter().enumerate();
    let live = numbered().filter(|(_, layer)| layer.lower == Lower::Live);
    let live: Vec<_> = live
        .filter_map(|(number, layer)| {
            Some((number, &layer.path, LowerDir::open(&layer.path).ok()?))
        })
        .collect();
    let tree =
        StoreTree::new(&[fork.root().to_owned()], &Scope::Session(document.session.clone()))?;
    // Layers lie over the state with which the fork began.
    let tree = tree.with_git_indexes(0)?;
    let options = MountOptions { fs_name: source_of(fork), ..MountOptions::default() };
    let mut mount = Mount::new(tree, &fork.base_path(), options)
        .map_err(crate::cli::commands::mount::explain)?;
    background::detach()?;
    mount_guard::start(&mut mount);
    let unflushed = fork.begin_unflushed()?;
    let source = source_of(fork);
    let lay = |number: usize, lower: &LowerDir, path: &Path| {
        let (upper, work) = (fork.upper_path(number), fork.work_path(number));
        layers::lay(&source, lower, &upper, &work, path).map_err(refusal::of_layer)
    };
    for (number, layer) in numbered().filter(|(_, layer)| layer.lower == Lower::Recorded) {
        let inside = layer.path.strip_prefix("/").unwrap_or(&layer.path);
        let lower = LowerDir::open(&fork.base_path().join("0").join(inside))?;
        lay(number, &lower, &layer.path)?;
    }
    for (number, path, lower) in live {
        // The recorded state may have nothing above it.
        if make_place(path)? {
            lay(number, &lower, path)?;
        }
    }
    note_holder(fork)?;
    Ok(Held { fork: fork.clone(), mount: Some(mount), unflushed, alone })
}

/// Notes the number of this process: it holds the mounts now.
fn note_holder(fork: &Fork) -> Result<(), CliError> {
    let pid = getpid().as_raw_nonzero().to_string();
    let directory = Dir::open(fork.path())?;
    Ok(directory.replace_file(HOLDER_PID.as_bytes(), pid.as_bytes(), 0o600, false)?)
}

/// Makes the place of a layer in the fork; `false` where the directory above it is not there.
fn make_place(path: &Path) -> Result<bool, CliError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let parent = match Dir::open_no_symlinks(parent) {
        Ok(parent) => parent,
        Err(_) => return Ok(false),
    };
    let before = parent.stat_self()?.mtime;
    match parent.make_dir(name.as_bytes(), 0o755) {
        // The place is no change of the fork.
        Ok(()) => drop(parent.inode(b".")?.set_mtime(before)?),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        Err(_) => {}
    }
    Ok(sys::leads_to_dir(path))
}

impl Held {
    /// Waits until no process uses the fork, and flushes its layers.
    fn wait(self) -> Outcome {
        let Self { fork, mount, unflushed, alone } = self;
        let unused = fork.wait_until_unused()?;
        // The kernel takes the mount away with the namespace. To unmount it here would wait for
        // users that are about to end.
        std::mem::forget(mount);
        for layer in fork.document().layers.iter().rev() {
            // Where there was no place for it, nothing is mounted.
            let _ = layers::lift(&layer.path);
        }
        // A flush may take long, and the next command begins meanwhile with mounts of its own.
        drop((alone, unused));
        unflushed.flush()?;
        let _no_start = FileLock::exclusive(&fork.path().join(START))?;
        unflushed.end()?;
        Ok(0)
    }
}

/// Starts the holder of a fork, unless there is one. The caller uses the fork.
///
/// # Errors
/// Why there are no mounts, with what helps.
pub(super) fn start(fork: &Fork) -> Result<(), CliError> {
    let _starting = FileLock::exclusive(&fork.path().join(START))?;
    if holder_of(fork.path())?.is_some() {
        return Ok(());
    }
    let arguments = ["--root".into(), fork.root().into(), NAME.into()];
    let session = fork.document().session.clone().into();
    background::start_with(arguments.into_iter().chain([session]), background::log_path())
}

/// The holder of the fork in this directory, if one is alive. Under the lock of the starter, so
/// that the number is of the present one.
fn holder_of(directory: &Path) -> Result<Option<OwnedFd>, CliError> {
    let is_held =
        || -> sys::Result<bool> { Ok(FileLock::try_shared(&directory.join(HOLDER))?.is_none()) };
    if !is_held()? {
        return Ok(None);
    }
    let bytes = match Dir::open(directory)?.read(HOLDER_PID.as_bytes(), MAX_PID_BYTES) {
        Err(error) if error.is_gone() => return Ok(None),
        bytes => bytes?,
    };
    let pid = std::str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    let Some(pid) = pid.and_then(Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) if is_ending(pid) => {
            let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&END_TIMEOUT));
            Ok(None)
        }
        // It lives as long as its lock is held, so the descriptor is not of a later process.
        Ok(process) => Ok(is_held()?.then_some(process)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(io::Error::from(errno).into()),
    }
}

/// Whether a process is being taken down. Its threads may hold the lock a little longer.
fn is_ending(pid: Pid) -> bool {
    let root = format!("/proc/{}/root", pid.as_raw_nonzero());
    rustix::fs::readlink(root, Vec::new()).is_err_and(|errno| errno == Errno::NOENT)
}

/// Gives this process the mounts of the fork in a directory, which its holder holds.
///
/// # Errors
/// The holder is gone, or the kernel refuses.
pub(in crate::cli) fn join(directory: &Path, own_processes: bool) -> Result<(), CliError> {
    let starting = FileLock::exclusive(&directory.join(START))?;
    let holder = holder_of(directory)?;
    let Some(holder) = holder else {
        return Err(CliError::failed("the process that held the mounts of the fork has ended"));
    };
    drop(starting);
    Ok(sandbox::join(holder.as_fd(), own_processes)?)
}
