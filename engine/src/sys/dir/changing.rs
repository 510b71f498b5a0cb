//! Changing names: making, linking, moving and removing them, one call each.

use std::fs::File;

use rustix::fs::{AtFlags, Mode, OFlags};
#[cfg(not(target_os = "linux"))]
use rustix::io::Errno;

use super::Dir;
use crate::sys::error::{IoContext, Result};
use crate::sys::fail_point::{self, Operation, Place};
use crate::sys::frozen;
use crate::sys::stat::{Device, FileKind};

impl Dir {
    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub fn make_dir(&self, name: &[u8], mode: u16) -> Result<()> {
        fail_point::around(Operation::MakeDir(Place(self, name)), || {
            rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode.into()))
        })
        .at("make the directory", &self.path_of(name))
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<()> {
        fail_point::around(Operation::Create(Place(self, name)), || {
            rustix::fs::symlinkat(target, &self.fd, name)
        })
        .at("make the symlink", &self.path_of(name))
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub(crate) fn make_fifo(&self, name: &[u8], mode: u16) -> Result<()> {
        #[cfg(target_os = "linux")]
        let made = fail_point::around(Operation::Create(Place(self, name)), || {
            let mode = Mode::from_raw_mode(mode.into());
            rustix::fs::mknodat(&self.fd, name, rustix::fs::FileType::Fifo, mode, 0)
        });
        #[cfg(not(target_os = "linux"))]
        let made: rustix::io::Result<()> = Err(Errno::NOTSUP).inspect_err(|_| {
            let _ = mode;
        });
        made.at("make the named pipe", &self.path_of(name))
    }

    /// Makes a socket without a listener, or the node of a device.
    ///
    /// # Errors
    /// EEXIST, ENOSPC; EPERM without the right to make devices.
    pub fn make_node(&self, name: &[u8], kind: FileKind, device: Device) -> Result<()> {
        #[cfg(target_os = "linux")]
        let made = fail_point::around(Operation::Create(Place(self, name)), || {
            let kind = match kind {
                FileKind::Socket => rustix::fs::FileType::Socket,
                FileKind::CharDevice => rustix::fs::FileType::CharacterDevice,
                FileKind::BlockDevice => rustix::fs::FileType::BlockDevice,
                _ => return Err(rustix::io::Errno::INVAL),
            };
            let device = rustix::fs::makedev(device.major, device.minor);
            rustix::fs::mknodat(&self.fd, name, kind, Mode::from_raw_mode(0o600), device)
        });
        #[cfg(not(target_os = "linux"))]
        let made: rustix::io::Result<()> = Err(Errno::PERM).inspect_err(|_| {
            let _ = (kind, device);
        });
        made.at("make the node", &self.path_of(name))
    }

    /// Makes a file that must not exist yet, open for reading and writing.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub fn create_file(&self, name: &[u8], mode: u16) -> Result<File> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = fail_point::around(Operation::Create(Place(self, name)), || {
            rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode.into()))
        });
        Ok(fd.at("make the file", &self.path_of(name))?.into())
    }

    /// Gives a file of this directory a second name in `target`.
    ///
    /// # Errors
    /// EEXIST, EXDEV, EMLINK.
    pub fn link(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        fail_point::around(Operation::Link(Place(target, new_name)), || {
            rustix::fs::linkat(&self.fd, name, &target.fd, new_name, AtFlags::empty())
        })
        .at("link", &target.path_of(new_name))
    }

    /// Moves a name; the file with the new name is replaced.
    ///
    /// # Errors
    /// EXDEV, ENOENT, EACCES.
    pub(crate) fn rename(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        fail_point::around(Operation::Rename(Place(self, name), Place(target, new_name)), || {
            rustix::fs::renameat(&self.fd, name, &target.fd, new_name)
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name), (target, new_name)]))
        .at("rename", &target.path_of(new_name))
    }

    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EACCES.
    pub fn remove_file(&self, name: &[u8]) -> Result<()> {
        fail_point::around(Operation::Remove(Place(self, name)), || {
            rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name)]))
        .at("remove", &self.path_of(name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY, ENOENT, EACCES.
    pub fn remove_dir(&self, name: &[u8]) -> Result<()> {
        fail_point::around(Operation::RemoveDir(Place(self, name)), || {
            rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name)]))
        .at("remove the directory", &self.path_of(name))
    }
}
