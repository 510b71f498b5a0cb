//! Staging directories on the disk: made, opened, and cleared away.
//!
//! They are found by what the journal says, which is not trusted: a staging directory lies inside a
//! tracked path or right beside it, has a name that no user gave, and is reached through no
//! symlink.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use super::attributes;
use super::journal::AreaRecord;
use super::places::Places;
use super::plan::Skipped;
use super::staging::skipped;
use crate::byte_path;
use crate::path_text::to_path;
use crate::snapshot::{OpenPath, TrackedRoot};
use crate::sys::{self, Dir, FileKind, IoContext};

/// All staging directories of one restore, one for each file system that it touches.
pub(super) struct Areas {
    opened: Vec<Opened>,
}

struct Opened {
    record: AreaRecord,
    /// None when the directory that holds it is gone.
    parent: Option<Dir>,
    dir: Option<Rc<Dir>>,
}

impl Areas {
    /// Opens what is there of the staging directories.
    pub(super) fn open(records: &[AreaRecord], roots: &[TrackedRoot]) -> sys::Result<Self> {
        let mut opened = Vec::with_capacity(records.len());
        for record in records {
            let parent = match open_parent(record, roots) {
                Ok(parent) => Some(parent),
                Err(error) if error.is_gone() => None,
                Err(error) => return Err(error),
            };
            let dir = match parent.as_ref().map(|parent| parent.open_dir(&record.name)) {
                Some(Ok(dir)) => Some(Rc::new(dir)),
                Some(Err(error)) if !error.is_gone() => return Err(error),
                _ => None,
            };
            opened.push(Opened { record: record.clone(), parent, dir });
        }
        Ok(Self { opened })
    }

    /// Makes all staging directories.
    pub(super) fn make(&mut self) -> sys::Result<()> {
        for area in &mut self.opened {
            let name = &area.record.name;
            let parent = area.parent.as_ref().ok_or(rustix::io::Errno::NOENT);
            let parent = parent.at("make the directory", to_path(name))?;
            parent.make_dir(name, 0o700)?;
            // A staged file must not inherit a default ACL; it gets its own.
            parent.inode(name)?.remove_xattr(b"system.posix_acl_default").or_else(|error| {
                if error.kind() == ErrorKind::Unsupported { Ok(()) } else { Err(error) }
            })?;
            area.dir = Some(Rc::new(parent.open_dir(name)?));
        }
        Ok(())
    }

    /// One staging directory.
    pub(super) fn dir(&self, area: usize) -> sys::Result<Rc<Dir>> {
        let area = &self.opened[area];
        let missing = || area.path();
        area.dir.clone().ok_or(rustix::io::Errno::NOENT).at("open", &missing())
    }

    /// All of them.
    pub(super) fn dirs(&self) -> sys::Result<Vec<Rc<Dir>>> {
        (0..self.opened.len()).map(|area| self.dir(area)).collect()
    }

    /// Flushes the file systems that they are on.
    pub(super) fn sync(&self) -> sys::Result<()> {
        let parents = self.opened.iter().filter_map(|area| area.parent.as_ref());
        parents.into_iter().try_for_each(Dir::sync_file_system)
    }

    /// Where they are, for a message.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.opened.iter().map(Opened::path).collect()
    }

    /// The directories that hold them.
    pub(super) fn parents(&self) -> Vec<PathBuf> {
        self.opened.iter().map(|area| to_path(&area.record.parent).to_owned()).collect()
    }

    /// Where they still are.
    pub(super) fn left(&self) -> Vec<PathBuf> {
        let is_there = |area: &&Opened| {
            let parent = area.parent.as_ref();
            parent.is_some_and(|parent| matches!(parent.try_stat(&area.record.name), Ok(Some(_))))
        };
        self.opened.iter().filter(is_there).map(Opened::path).collect()
    }

    /// Removes the staging directories with what is left in them, and gives the directories that
    /// held them the times that the journal says. Returns those that did not get it, being another
    /// user's.
    ///
    /// # Errors
    /// The first, after all were tried.
    pub(super) fn clear(&self) -> sys::Result<Vec<Skipped>> {
        let (mut denied, mut cleared) = (Vec::new(), Ok(()));
        for area in &self.opened {
            match area.clear() {
                Ok(also) => denied.extend(also),
                Err(error) => cleared = cleared.and(Err(error)),
            }
        }
        cleared.map(|()| denied)
    }
}

impl Opened {
    fn clear(&self) -> sys::Result<Vec<Skipped>> {
        let mut denied = Vec::new();
        let Some(parent) = &self.parent else { return Ok(denied) };
        let name = &self.record.name;
        match parent.try_stat(name)? {
            Some(stat) if stat.kind == FileKind::Directory => parent.remove_dir_all(name)?,
            // Gone already, or not what we made.
            _ => {}
        }
        // Nothing was made on a disk that is full or read-only, and nothing is to be put back.
        if parent.stat_self()?.mtime != self.record.mtime {
            let inode = parent.inode(b".")?;
            match inode.set_mtime(self.record.mtime) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    denied = skipped(&self.record.parent, vec![attributes::time_denied(&inode)]);
                }
                // One that the file system does not keep is named with the directory's attributes.
                set => drop(set?),
            }
        }
        // The journal goes next: without it no record would name a staging directory that a
        // power failure brings back. A disk that cannot be written brings nothing back.
        match parent.sync() {
            Err(error) if error.kind() != ErrorKind::ReadOnlyFilesystem => Err(error),
            _ => Ok(denied),
        }
    }

    fn path(&self) -> PathBuf {
        to_path(&self.record.parent).join(to_path(&self.record.name))
    }
}

/// The directory of a staging directory, if it is one that a restore of these tracked paths uses.
fn open_parent(record: &AreaRecord, roots: &[TrackedRoot]) -> sys::Result<Dir> {
    let path = to_path(&record.parent);
    if roots.iter().any(|root| root.path.parent() == Some(path)) {
        return Dir::open_no_symlinks(path);
    }
    for root in roots {
        let base = root.path.as_os_str().as_bytes();
        if let Some(inside) = byte_path::relative_to(&record.parent, base) {
            let place = OpenPath::new(&root.path)?;
            let top = place.parent.open_dir(place.name())?;
            return if inside.is_empty() { Ok(top) } else { top.open_beneath(inside) };
        }
    }
    Places::outside(&record.parent)
}
