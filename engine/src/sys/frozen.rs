//! Files that no user, not even root, may change: immutable and append-only ones (`chattr`), and
//! those on which another file system is mounted.
//!
//! The kernel answers EPERM there, as it does to whoever is not the owner, which would send people
//! looking for rights that they have.

use std::io;

use rustix::fd::AsFd;
use rustix::fs::AtFlags;
#[cfg(target_os = "linux")]
use rustix::fs::{StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::dir::Dir;
use super::error::{IoContext, Result};

/// Why a user may not change the names in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The file system is read-only.
    ReadOnly,
    /// The rights on it do not allow that.
    NoRight,
}

/// The answer of a call that changes names, with the real cause if one of the names, or its
/// directory, is frozen.
pub(super) fn explain(errno: Errno, names: &[(&Dir, &[u8])]) -> io::Error {
    if errno == Errno::PERM {
        for (dir, name) in names {
            let own = cause_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .map(|cause| format!("it is {cause}"));
            let its = || cause(dir).map(|cause| format!("its directory is {cause}"));
            if let Some(cause) = own.or_else(its) {
                return io::Error::new(io::ErrorKind::PermissionDenied, cause);
            }
        }
    }
    errno.into()
}

/// The reason why no user can change an inode that is open, if that is so.
#[cfg(target_os = "linux")]
pub(super) fn cause(fd: impl AsFd) -> Option<&'static str> {
    cause_at(fd, b"", AtFlags::EMPTY_PATH)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn cause(_: impl AsFd) -> Option<&'static str> {
    None
}

#[cfg(target_os = "linux")]
fn cause_at(fd: impl AsFd, name: &[u8], flags: AtFlags) -> Option<&'static str> {
    let found = rustix::fs::statx(fd, name, flags, StatxFlags::empty()).ok()?;
    if found.stx_attributes.contains(StatxAttributes::IMMUTABLE) {
        Some("immutable (chattr -i changes that)")
    } else if found.stx_attributes.contains(StatxAttributes::APPEND) {
        Some("append-only (chattr -a changes that)")
    } else {
        None
    }
}

impl Dir {
    /// The reason, if no user can change a name in this directory: in words after "it is".
    pub(crate) fn obstacle_of_self(&self) -> Option<&'static str> {
        cause(self)
    }

    /// Whether this user may not change names in this directory, and why.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn refused_to_change(&self) -> Result<Option<Refused>> {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        match rustix::fs::accessat(self, ".", access, AtFlags::EACCESS) {
            Ok(()) => Ok(None),
            Err(Errno::ROFS) => Ok(Some(Refused::ReadOnly)),
            Err(Errno::ACCESS | Errno::PERM) => Ok(Some(Refused::NoRight)),
            Err(errno) => Err(errno).at("look at the rights on", self.path()),
        }
    }

    /// The reason why no user can remove this name, or a name in it: in words after "it is".
    pub fn obstacle(&self, name: &[u8]) -> Option<&'static str> {
        #[cfg(target_os = "linux")]
        {
            let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
            let found = rustix::fs::statx(self, name, flags, StatxFlags::empty()).ok()?;
            if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
                return Some("a place where another file system is mounted (umount changes that)");
            }
        }
        cause_at(self, name, AtFlags::SYMLINK_NOFOLLOW)
    }
}

#[cfg(not(target_os = "linux"))]
fn cause_at(_: impl AsFd, _: &[u8], _: AtFlags) -> Option<&'static str> {
    None
}
