//! Moving a name to one that is free, and exchanging two names, on any file system.
//!
//! NFS, sshfs and most FUSE file systems refuse the flags of `renameat2` (EINVAL). There it is done
//! in parts that replace nothing:
//!
//! - A file gets its new name as a second one and loses the old one: `linkat` fails where the name
//!   is taken.
//! - Without links, and on FUSE, an empty file without any right takes the name, and the rename
//!   replaces that one. On FUSE a second name is another node: its open files lose their path, and
//!   the kernel tells two names for a while.
//! - A directory takes the place of an empty one without any right. The rename fails if that is not
//!   empty any more.
//! - An exchange moves what is to go to a third name first, so the path is missing for a moment.
//!
//! A crash can leave two names, or the placeholder. The same move goes on from there, and
//! [`undo_half_move`](Dir::undo_half_move) takes it back.

use std::io::ErrorKind;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::Dir;
use super::file_system::FUSE_SUPER_MAGIC;
use crate::sys::error::{Error, IoContext, Result};
use crate::sys::fail_point::{self, Operation, Place};
use crate::sys::stat::{FileKind, Stat};
use crate::sys::{frozen, random_bytes};

/// Behind the name of a staged file: the one that it is exchanged with, on its way.
const ASIDE: &[u8] = b".aside";
/// In front of a name on which the flags of a rename are tried.
const TRIED: &[u8] = b".nono-tried-";

impl Dir {
    /// Moves a name to one that must be free.
    ///
    /// # Errors
    /// EEXIST when it is taken; EXDEV, ENOENT, EACCES.
    pub fn rename_new(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        match self.rename_with(name, target, new_name, RenameFlags::NOREPLACE) {
            Err(error) if has_no_flags(&error) => self.move_in_parts(name, target, new_name),
            // The kernel looks for the name before the file system looks at the flag.
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && self.is_half_moved(name, target, new_name)?
                    && self.refuses_flags()? =>
            {
                self.move_in_parts(name, target, new_name)
            }
            moved => moved,
        }
    }

    /// As [`rename_new`](Self::rename_new), to a directory in which no one else makes names.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn rename_to_own(&self, name: &[u8], own: &Dir, new_name: &[u8]) -> Result<()> {
        match self.rename_with(name, own, new_name, RenameFlags::NOREPLACE) {
            Err(error) if has_no_flags(&error) => match own.try_stat(new_name)? {
                Some(_) => Err(Errno::EXIST).at("rename", &own.path_of(new_name)),
                None => self.rename(name, own, new_name),
            },
            moved => moved,
        }
    }

    /// Exchanges a name of this directory, in which no one else makes names, with one of another.
    ///
    /// # Errors
    /// ENOENT when one is missing; EXDEV, EACCES; EEXIST where it is done in parts, and something
    /// new takes the name meanwhile. [`settle_exchange`](Self::settle_exchange) goes on from there.
    pub(crate) fn exchange(&self, name: &[u8], target: &Dir, other: &[u8]) -> Result<()> {
        match self.rename_with(name, target, other, RenameFlags::EXCHANGE) {
            Err(error) if has_no_flags(&error) => {
                let aside = [name, ASIDE].concat();
                target.rename_to_own(other, self, &aside)?;
                self.rename_new(name, target, other)?;
                self.rename(&aside, self, name)
            }
            exchanged => exchanged,
        }
    }

    /// Ends an exchange that was interrupted: all of it was done, or nothing. `ino` is the inode of
    /// the staged file. `false`: something new took the name, and both files are here.
    ///
    /// # Errors
    /// The first call that fails.
    pub(crate) fn settle_exchange(
        &self,
        name: &[u8],
        target: &Dir,
        other: &[u8],
        ino: u64,
    ) -> Result<bool> {
        let aside = [name, ASIDE].concat();
        if self.try_stat(&aside)?.is_none() {
            return Ok(true);
        }
        if self.try_stat(name)?.is_some() {
            self.undo_half_move(name, target, other)?;
            match target.try_stat(other)? {
                None => self.rename_new(&aside, target, other)?,
                Some(there) if there.ino == ino => self.rename(&aside, self, name)?,
                Some(_) => return Ok(false),
            }
        } else {
            self.rename(&aside, self, name)?;
        }
        Ok(true)
    }

    /// Takes back what an interrupted [`rename_new`](Self::rename_new) left at the new name while
    /// the old one is still there: a second name of the same inode, or a placeholder.
    ///
    /// # Errors
    /// The first call that fails.
    pub(crate) fn undo_half_move(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        if !self.is_half_moved(name, target, new_name)? || !self.refuses_flags()? {
            return Ok(());
        }
        match target.stat(new_name)?.kind {
            FileKind::Directory => target.remove_dir(new_name),
            _ => target.remove_file(new_name),
        }
    }

    /// Whether both names are there, the new one as a move in parts leaves it.
    fn is_half_moved(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<bool> {
        let found = (self.try_stat(name)?, target.try_stat(new_name)?);
        let (Some(old), Some(new)) = found else { return Ok(false) };
        let is_directory = old.kind == FileKind::Directory;
        let is_second_name = is_same(&old, &new) && !is_directory;
        let may_be_held = is_directory == (new.kind == FileKind::Directory);
        Ok(is_second_name || may_be_held && is_placeholder(&new))
    }

    /// Whether the flags of a rename are unknown in this directory, tried with a name of its own.
    fn refuses_flags(&self) -> Result<bool> {
        let tried = [TRIED, hex::encode(random_bytes()?).as_bytes()].concat();
        let moved = [&tried, ASIDE].concat();
        self.make_dir(&tried, 0o700)?;
        match self.rename_with(&tried, self, &moved, RenameFlags::NOREPLACE) {
            Ok(()) => self.remove_dir(&moved).map(|()| false),
            Err(error) => {
                self.remove_dir(&tried)?;
                if has_no_flags(&error) { Ok(true) } else { Err(error) }
            }
        }
    }

    /// Whether both names are the same inode.
    ///
    /// # Errors
    /// When one cannot be looked at.
    pub(crate) fn has_second_name(&self, name: &[u8], target: &Dir, other: &[u8]) -> Result<bool> {
        let found = (self.try_stat(name)?, target.try_stat(other)?);
        Ok(matches!(found, (Some(one), Some(other)) if is_same(&one, &other)))
    }

    fn move_in_parts(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        let stat = self.stat(name)?;
        if stat.kind == FileKind::Directory {
            return self.replace_placeholder(name, target, new_name, |target| {
                target.make_dir(new_name, 0)
            });
        }
        let linked = if target.file_system_type()? == FUSE_SUPER_MAGIC {
            Err(Errno::OPNOTSUPP).at("link", &target.path_of(new_name))
        } else {
            self.link(name, target, new_name)
        };
        match linked {
            Ok(()) if is_same(&stat, &target.stat(new_name)?) => return self.remove_file(name),
            Ok(()) => target.remove_file(new_name)?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let there = target.try_stat(new_name)?;
                if there.as_ref().is_some_and(|there| is_same(&stat, there)) {
                    return self.remove_file(name);
                }
                if !there.as_ref().is_some_and(is_placeholder) {
                    return Err(error);
                }
            }
            // Links are refused here; if it is something else, the rename says so.
            Err(_) => {}
        }
        self.replace_placeholder(name, target, new_name, |target| {
            target.create_file(new_name, 0).map(drop)
        })
    }

    fn replace_placeholder(
        &self,
        name: &[u8],
        target: &Dir,
        new_name: &[u8],
        hold: impl FnOnce(&Dir) -> Result<()>,
    ) -> Result<()> {
        match hold(target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !target.try_stat(new_name)?.as_ref().is_some_and(is_placeholder) {
                    return Err(error);
                }
            }
            held => held?,
        }
        self.rename(name, target, new_name).map_err(|error| {
            // The first error tells more.
            let _ = self.undo_half_move(name, target, new_name);
            match error.kind() {
                ErrorKind::DirectoryNotEmpty => Error { source: Errno::EXIST.into(), ..error },
                _ => error,
            }
        })
    }

    fn rename_with(
        &self,
        name: &[u8],
        target: &Dir,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (Place(self, name), Place(target, new_name));
        let operation = if flags.contains(RenameFlags::EXCHANGE) {
            Operation::Exchange(from, to)
        } else {
            Operation::Rename(from, to)
        };
        fail_point::around(operation, || {
            rustix::fs::renameat_with(&self.fd, name, &target.fd, new_name, flags)
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name), (target, new_name)]))
        .at("rename", &target.path_of(new_name))
    }
}

/// Whether a call failed because the file system, or the kernel, does not know its flag.
fn has_no_flags(error: &Error) -> bool {
    let unknown = [Errno::INVAL, Errno::NOSYS, Errno::NOTSUP, Errno::OPNOTSUPP];
    error.errno().is_some_and(|errno| unknown.contains(&errno))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.dev, one.ino) == (other.dev, other.ino)
}

/// Whether this is what holds a name until something is moved there.
fn is_placeholder(stat: &Stat) -> bool {
    let may_be_one = stat.kind == FileKind::Directory || stat.kind == FileKind::File;
    may_be_one && stat.mode == 0 && (stat.kind == FileKind::Directory || stat.size == 0)
}
