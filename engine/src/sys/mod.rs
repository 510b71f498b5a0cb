//! The only module that touches the file system.
//!
//! Everything goes through a directory descriptor ([`Dir`]) and one name, never through a long path
//! that another user could swap a link into; longer relative paths are resolved with `openat2` and
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`. Every error says which operation failed on which path.
//! All raw calls come from `rustix`, so there is no `unsafe` here either. Public is what the types
//! of other modules are made of, and what the packages around the engine need: an error, a
//! directory, the clock.

#![allow(clippy::disallowed_methods, reason = "this is the module the others are sent to")]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "some of it is for Linux alone")
)]
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    allow(dead_code, unused_imports, reason = "some of it is for the walls of commands alone")
)]

mod clock;
mod dir;
mod dir_watch;
mod early_flush;
mod error;
mod fail_point;
mod file;
mod frozen;
mod inode;
mod inode_flags;
mod lock;
mod notify;
#[cfg(feature = "fail-points")]
mod operation_log;
mod path;
mod priority;
mod stat;
mod thread;
mod writers;
mod xattr;

pub(crate) use clock::Moment;
pub use dir::Dir;
pub(crate) use dir::{ListedName, MountId, is_local_file_system, is_virtual_file_system};
pub use dir_watch::{DirWatch, Waited};
pub(crate) use early_flush::EarlyFlush;
pub use error::IoContext;
pub use error::{Error, Result};
pub use fail_point::before_request;
pub(crate) use file::open_kernel_file;
pub use file::{
    TempFile, allocated_ranges, drop_cached_pages, open_log, open_named, open_nowhere,
    open_to_write, read_full_at, read_kernel_file, reflink, stat_open_file, try_open_device,
    will_read_in_order, write_kernel_file,
};
pub(crate) use frozen::Refused;
pub use inode::Inode;
pub use inode_flags::NAME as INODE_FLAGS;
pub use lock::FileLock;
pub(crate) use notify::{Fate, Notice, Notifier};
pub use path::{
    NoProgram, canonical_parent, create_private_dir, create_private_file, create_public_dir,
    current_dir, current_or_former_dir, find_program, identity, is_executable, kind_of,
    leads_to_dir, links_on_the_way, mount_point, open_temporary_dir, plain_absolute,
    real_or_future_path, real_path, stat_of, temporary_dir, why_no_program,
};
pub use priority::lower_priority;
pub use stat::{Device, FileKind, FileSystemSpace, FileTime, Stat, coarse_now};
pub use thread::{spawn, spawn_scoped};
pub(crate) use writers::Writers;

/// Effective user id of this process.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The owner of files that no user of this system has, as of a mapping that lacks him.
const OVERFLOW_UID: u32 = 65534;

/// Refuses root to write in a directory of another user, who could not read the files.
///
/// # Errors
/// It belongs to another user and this process is root's. A directory that cannot be looked at is
/// refused to no one.
pub fn refuse_to_write_as_root(dir: &std::path::Path) -> Result<()> {
    refuse_root_in(dir, "a store of root's: --root DIR")
}

/// Refuses root to write a file, or a directory, among those of another user: settings of programs
/// in a home directory, for one. The nearest directory that is there decides.
///
/// # Errors
/// As [`refuse_to_write_as_root`].
pub fn refuse_to_write_for_others(path: &std::path::Path) -> Result<()> {
    let above = path.ancestors().skip(1).find(|dir| kind_of(dir).is_ok_and(|kind| kind.is_some()));
    above.map_or(Ok(()), |dir| refuse_root_in(dir, "a HOME of root's"))
}

fn refuse_root_in(dir: &std::path::Path, way: &str) -> Result<()> {
    if effective_uid() != 0 {
        return Ok(());
    }
    // A user who cannot look there cannot write there either, and the write says so.
    let Ok(stat) = Dir::open(dir).and_then(|dir| dir.stat_self()) else { return Ok(()) };
    let owner = stat.uid;
    if owner == 0 || owner == OVERFLOW_UID {
        return Ok(());
    }
    let source = std::io::Error::other(format!(
        "it belongs to user {owner}, who could not read root's files; run this as that user \
         (sudo -u '#{owner}'), or with {way}"
    ));
    Err(Error { operation: "write as root in", path: dir.to_owned(), source })
}

/// Whether a process with this number is alive, whoever its user is. One that ended may have left
/// its number to another.
pub(crate) fn process_is_alive(number: i32) -> bool {
    rustix::process::Pid::from_raw(number).is_some_and(|process| {
        rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
    })
}

/// The groups in which this process is: the files of its user may have these.
pub(crate) fn groups() -> Vec<u32> {
    let more = rustix::process::getgroups().unwrap_or_default();
    more.into_iter().map(|group| group.as_raw()).chain([effective_gid()]).collect()
}

/// Effective group id of this process.
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The signals that this process ignores, as whoever started it may want it (`nohup`): bit 0 is
/// number 1.
pub fn ignored_signals() -> u64 {
    // Where there is no such file, the answer is the usual one.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Makes this process the leader of a session of its own, without a terminal: closing the terminal
/// it was started from does not end it.
///
/// # Errors
/// When it leads a group of processes already.
pub fn start_process_session() -> Result<()> {
    rustix::process::setsid().at("start a session for", std::path::Path::new("this process"))?;
    Ok(())
}

/// Lets this process open as many files as it may. Soft limits are low for the sake of programs
/// that use `select`, which this one does not.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Most commands do not need an unsupported call, and the others say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// 16 bytes that cannot be guessed or repeated.
///
/// # Errors
/// When the kernel has no randomness to give, which it always has after boot.
pub fn random_bytes() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).at("get random bytes from", std::path::Path::new("the kernel"))?;
    Ok(bytes)
}
