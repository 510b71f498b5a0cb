//! The attributes of one inode, which is known by its name or by an open file.
//!
//! The kernel sets a mode or an extended attribute by name only where it follows symlinks; not to follow
//! one takes a descriptor and a way through `/proc`. Whoever has the file open needs neither.

use std::fs::File;

use rustix::fs::{Gid, Mode, Uid};

use super::dir::{Dir, time_of_modification};
use super::error::{IoContext, Result};
use super::fail_point::{self, Operation};
use super::stat::{FileTime, Stat};
use super::xattr::{self, XattrPairs};

/// An inode whose attributes are looked at and set.
#[derive(Clone, Copy)]
pub(crate) struct Inode<'a> {
    dir: &'a Dir,
    name: &'a [u8],
    file: Option<&'a File>,
}

impl<'a> Inode<'a> {
    /// What has this name, no symlink followed.
    pub(crate) fn named(dir: &'a Dir, name: &'a [u8]) -> Self {
        Self { dir, name, file: None }
    }

    /// A regular file that is open for writing. The name is for messages.
    pub(crate) fn open(dir: &'a Dir, name: &'a [u8], file: &'a File) -> Self {
        Self { dir, name, file: Some(file) }
    }

    pub(crate) fn stat(&self) -> Result<Stat> {
        match self.file {
            Some(file) => self.dir.stat_file(file, self.name),
            None => self.dir.stat(self.name),
        }
    }

    pub(crate) fn set_mode(&self, mode: u16) -> Result<()> {
        let Some(file) = self.file else { return self.dir.set_mode(self.name, mode) };
        let mode = Mode::from_raw_mode(mode.into());
        fail_point::around(Operation::Attributes, || rustix::fs::fchmod(file, mode))
            .at("set the mode of", &self.dir.path_of(self.name))
    }

    pub(crate) fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let Some(file) = self.file else { return self.dir.set_owner(self.name, uid, gid) };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        fail_point::around(Operation::Attributes, || rustix::fs::fchown(file, Some(uid), Some(gid)))
            .at("set the owner of", &self.dir.path_of(self.name))
    }

    pub(crate) fn set_mtime(&self, mtime: FileTime) -> Result<()> {
        let Some(file) = self.file else { return self.dir.set_mtime(self.name, mtime) };
        let times = time_of_modification(mtime);
        fail_point::around(Operation::Attributes, || rustix::fs::futimens(file, &times))
            .at("set the time of", &self.dir.path_of(self.name))
    }

    pub(crate) fn xattrs(&self) -> Result<XattrPairs> {
        match self.file {
            Some(file) => self.dir.xattrs_file(file, self.name),
            None => self.dir.xattrs(self.name),
        }
    }

    pub(crate) fn set_xattr(&self, attribute: &[u8], value: &[u8]) -> Result<()> {
        match self.file {
            Some(file) => xattr::set_fd(file, attribute, value, &self.dir.path_of(self.name)),
            None => self.dir.set_xattr(self.name, attribute, value),
        }
    }

    pub(crate) fn remove_xattr(&self, attribute: &[u8]) -> Result<()> {
        match self.file {
            Some(file) => xattr::remove_fd(file, attribute, &self.dir.path_of(self.name)),
            None => self.dir.remove_xattr(self.name, attribute),
        }
    }
}
