//! The terminals of a command: the one that it was started in, and those that it makes.
//!
//! A terminal is a file in `/dev/pts`, where everything of this user runs. Whoever opens the file
//! reads the keys that are typed there, and writes to its screen. So `/dev/pts` is a file system of
//! the command's own in the second wall: the kernel gives the terminals that the command makes
//! there, and no other one has a name. The terminal that the command was started in stays open in
//! its streams. Programs that look for its name (ttyname(3)) find it at `/dev/console`, as in many
//! containers.
//!
//! Landlock alone cannot tell terminals apart that are not there yet, so the first wall grants
//! `/dev/pts` as it is.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::mount::{MountFlags, mount};
use rustix::termios::{isatty, ttyname};

use super::namespaces::{attach, copy_of};
use crate::sandbox::{NamespaceError, TERMINALS};
use nono_engine::sys;

/// The name of the first terminal, in `/dev` like all that ttyname(3) finds.
const CONSOLE: &str = "/dev/console";
/// New terminals are the user's, and the group may write messages to them, as everywhere.
const OPTIONS: &std::ffi::CStr = c"newinstance,ptmxmode=0666,mode=0620";

/// The terminals among the standard streams of this process.
pub(super) fn streams() -> impl Iterator<Item = BorrowedFd<'static>> {
    let streams = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    streams.into_iter().filter(|stream| isatty(stream))
}

/// The first of them, copied where it still has its name; `None` where there is none.
///
/// # Errors
/// The kernel makes no copy.
pub(super) fn first() -> Result<Option<OwnedFd>, NamespaceError> {
    let name = streams().find_map(|stream| ttyname(stream, Vec::new()).ok());
    let path = name.map(|name| PathBuf::from(OsStr::from_bytes(name.as_bytes())));
    path.filter(|path| path.starts_with(TERMINALS)).map(|path| copy_of(&path)).transpose()
}

/// Puts a new file system in the place of `/dev/pts`, and gives the first terminal its name.
///
/// # Errors
/// The system does not let us.
pub(super) fn replace(first: Option<&OwnedFd>) -> Result<(), NamespaceError> {
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", TERMINALS, "devpts", flags, Some(OPTIONS))
        .map_err(|errno| NamespaceError::at("mount", Path::new(TERMINALS), errno))?;
    let console = Path::new(CONSOLE);
    match (first, sys::kind_of(console)) {
        (Some(first), Ok(Some(_))) => attach(first, console),
        // A machine may have no such file, and the terminal then has no name.
        _ => Ok(()),
    }
}
