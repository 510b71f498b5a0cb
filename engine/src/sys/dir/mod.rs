//! A directory by its descriptor.
//!
//! All methods take one name (never a path) unless they say *beneath*, never follow a symlink, and
//! put the full path into their errors.
//!
//! Here is what looks and changes nothing; the rest is in modules of its own.

mod changing;
mod file_system;
mod moving;
mod opening;
mod removing;
mod replacing;

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::AtFlags;

use super::error::{IoContext, Result};
use super::inode::Inode;
use super::stat::{FileKind, Stat};
use super::xattr::{self, XattrPairs};
use crate::path_text::to_path;

pub(crate) use file_system::{MountId, is_local_file_system, is_virtual_file_system};

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Only for messages: the directory may have been moved since.
    path: PathBuf,
}

/// A name found in a directory, with its kind where the file system tells it for free.
#[derive(Debug, Clone)]
pub struct ListedName {
    /// One path component.
    pub name: Box<[u8]>,
    /// The kind, if known.
    pub kind: Option<FileKind>,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Dir {
    /// Where the directory was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in here, for messages.
    pub fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path.join(to_path(name))
    }

    /// Attributes of a name.
    ///
    /// # Errors
    /// ENOENT, EACCES.
    pub fn stat(&self, name: &[u8]) -> Result<Stat> {
        let raw = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(std::io::Error::from);
        // The path is built only for an error: this is the hottest call of a capture.
        match raw {
            Ok(raw) => Ok(Stat::from_raw(&raw)),
            Err(error) => Err(error).at("look at", &self.path_of(name)),
        }
    }

    /// Attributes of a name, or `None` when there is nothing of that name.
    ///
    /// # Errors
    /// EACCES.
    pub fn try_stat(&self, name: &[u8]) -> Result<Option<Stat>> {
        match self.stat(name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Attributes of the directory itself.
    ///
    /// # Errors
    /// Hardly any.
    pub fn stat_self(&self) -> Result<Stat> {
        Ok(Stat::from_raw(&rustix::fs::fstat(&self.fd).at("look at", &self.path)?))
    }

    /// Attributes of an open file of this directory.
    ///
    /// # Errors
    /// Hardly any.
    pub fn stat_file(&self, file: &File, name: &[u8]) -> Result<Stat> {
        Ok(Stat::from_raw(&rustix::fs::fstat(file).at("look at", &self.path_of(name))?))
    }

    /// All names but `.` and `..`, in no order.
    ///
    /// # Errors
    /// EIO, or EACCES on some network file systems.
    pub fn names(&self) -> Result<Vec<ListedName>> {
        let mut names = Vec::new();
        #[cfg(target_os = "linux")]
        {
            // The descriptor may have been read to its end before.
            rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::Start(0)).at("list", &self.path)?;
            let mut buffer = Vec::with_capacity(32 * 1024);
            let mut entries = rustix::fs::RawDir::new(&self.fd, buffer.spare_capacity_mut());
            while let Some(entry) = entries.next() {
                let entry = entry.at("list", &self.path)?;
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    let kind = FileKind::from_raw(entry.file_type());
                    names.push(ListedName { name: name.into(), kind });
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        for entry in rustix::fs::Dir::read_from(&self.fd).at("list", &self.path)? {
            let entry = entry.at("list", &self.path)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                let kind = FileKind::from_raw(entry.file_type());
                names.push(ListedName { name: name.into(), kind });
            }
        }
        Ok(names)
    }

    /// The target of a symlink, as bytes: at least one.
    ///
    /// # Errors
    /// EINVAL when it is none, EIO when none is given.
    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new());
        // No target is empty (POSIX); a broken file system may give it all the same.
        let target = target.and_then(|target| match target.is_empty() {
            true => Err(rustix::io::Errno::IO),
            false => Ok(target.into_bytes()),
        });
        target.at("read the link", &self.path_of(name))
    }

    /// Extended attributes of the directory itself.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn xattrs_self(&self) -> Result<XattrPairs> {
        xattr::of_fd(&self.fd, &self.path)
    }

    /// Extended attributes of an open file of this directory.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn xattrs_file(&self, file: &File, name: &[u8]) -> Result<XattrPairs> {
        xattr::of_fd(file, &self.path_of(name))
    }

    /// Extended attributes of a name, which may be a symlink or a special file.
    ///
    /// # Errors
    /// EIO, ENOENT.
    pub(crate) fn xattrs(&self, name: &[u8]) -> Result<XattrPairs> {
        xattr::of_path(&self.proc_path(name), &self.path_of(name))
    }

    /// Holds on to the inode that a name has now, symlinks included.
    ///
    /// # Errors
    /// ENOENT.
    pub fn inode(&self, name: &[u8]) -> Result<Inode> {
        Inode::open(self, name)
    }

    /// A path to a name that goes through this descriptor, for the calls that only take paths.
    fn proc_path(&self, name: &[u8]) -> PathBuf {
        #[cfg(target_os = "linux")]
        {
            let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            Path::new(&own).join(to_path(name))
        }
        #[cfg(not(target_os = "linux"))]
        self.path_of(name)
    }
}
