//! How something was that is not in a snapshot: enough to tell later that it is gone, or another.
//!
//! Nothing is read for it. An unreadable path has an inode all the same. Little is noted of a
//! rebuildable directory, because it differs after every build. Recorded entries of a left-out
//! directory (force-included or tracked by git) count for nothing here: their changes are told as
//! changes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

use super::step::is_false;
use crate::byte_path;
use crate::sys::{self, Dir, FileKind, FileTime, Stat};

/// A directory with more entries is not looked at to its end.
const MAX_ENTRIES: u64 = 250_000;

/// The notes about a left-out path. Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LeftOutState {
    /// A file or a symlink.
    File {
        /// Length in bytes.
        size: u64,
        /// Inode number.
        inode: u64,
        /// Last modification.
        mtime_ns: i64,
        /// Last change of the inode; of one with several names it says nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ctime_ns: Option<i64>,
    },
    /// A directory.
    Directory {
        /// Entries below it.
        entries: u64,
        /// Last modification among it and all that is below.
        newest_mtime_ns: i64,
        /// Last change of an inode among them.
        newest_ctime_ns: i64,
        /// It has more entries than are looked at, so all this is about a part of it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_partial: bool,
    },
    /// A directory that a program makes again.
    Rebuildable {
        /// Its maker's mark; without one git's rules prove it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mark: Option<String>,
        /// Inode number.
        inode: u64,
        /// Last modification of the directory itself.
        mtime_ns: i64,
    },
    /// Something that could not be read: what its inode says.
    Unreadable {
        /// Whether it is a directory.
        #[serde(default, skip_serializing_if = "is_false")]
        is_directory: bool,
        /// Permission bits.
        mode: u16,
        /// Length in bytes.
        size: u64,
        /// Inode number.
        inode: u64,
        /// Last modification.
        mtime_ns: i64,
        /// Last change of the inode; of a file with several names it says nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ctime_ns: Option<i64>,
    },
}

fn nanoseconds(time: FileTime) -> i64 {
    time.seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nanoseconds))
}

/// When the inode changed, unless another name of it may be why.
fn own_change(stat: &Stat) -> Option<i64> {
    let is_one = stat.kind == FileKind::Directory || stat.nlink <= 1;
    is_one.then(|| nanoseconds(stat.ctime))
}

impl LeftOutState {
    /// The notes about an entry that is no directory and not rebuildable.
    pub(crate) fn of_file(stat: &Stat) -> Option<Self> {
        matches!(stat.kind, FileKind::File | FileKind::Symlink).then(|| Self::File {
            size: stat.size,
            inode: stat.ino,
            mtime_ns: nanoseconds(stat.mtime),
            ctime_ns: own_change(stat),
        })
    }

    /// The notes about a rebuildable directory.
    pub(crate) fn of_rebuildable(stat: &Stat, mark: Option<&str>) -> Self {
        Self::Rebuildable {
            mark: mark.map(str::to_owned),
            inode: stat.ino,
            mtime_ns: nanoseconds(stat.mtime),
        }
    }

    /// The notes about something that could not be read.
    pub(crate) fn of_unreadable(stat: &Stat) -> Self {
        Self::Unreadable {
            is_directory: stat.kind == FileKind::Directory,
            mode: stat.mode,
            size: stat.size,
            inode: stat.ino,
            mtime_ns: nanoseconds(stat.mtime),
            ctime_ns: own_change(stat),
        }
    }

    /// Whether these are the notes about something that could not be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }

    /// Whether it was a directory.
    pub(crate) fn is_directory(&self) -> bool {
        match self {
            Self::File { .. } => false,
            Self::Directory { .. } | Self::Rebuildable { .. } => true,
            Self::Unreadable { is_directory, .. } => *is_directory,
        }
    }

    /// Whether it is a directory that a program makes again.
    pub fn is_rebuildable(&self) -> bool {
        matches!(self, Self::Rebuildable { .. })
    }

    /// Whether the node of `now` may be another. A directory with too many entries may always be
    /// one.
    pub(crate) fn differs(&self, now: &Self) -> bool {
        match (self, now) {
            (
                Self::Directory { is_partial: true, .. },
                Self::Directory { is_partial: true, .. },
            ) => false,
            (
                Self::File { size, inode, mtime_ns, ctime_ns },
                Self::File { size: size_now, inode: inode_now, mtime_ns: mtime, ctime_ns: ctime },
            ) => {
                let is_touched = ctime_ns.zip(*ctime).is_some_and(|(then, now)| then != now);
                (size, inode, mtime_ns) != (size_now, inode_now, mtime) || is_touched
            }
            (
                Self::Unreadable { ctime_ns: Some(_), .. },
                Self::Unreadable { ctime_ns: Some(_), .. },
            ) => self != now,
            (Self::Unreadable { .. }, Self::Unreadable { .. }) => {
                self.without_ctime() != now.without_ctime()
            }
            (Self::Rebuildable { .. }, Self::File { .. }) => true,
            // Its own time is all that was noted.
            (
                Self::Rebuildable { inode, mtime_ns, .. },
                Self::Rebuildable { inode: inode_now, mtime_ns: mtime, .. },
            ) => (inode, mtime_ns) != (inode_now, mtime),
            (Self::Rebuildable { .. }, Self::Directory { .. }) => true,
            (then, now) => then != now,
        }
    }

    fn without_ctime(&self) -> Self {
        let mut state = self.clone();
        if let Self::File { ctime_ns, .. } | Self::Unreadable { ctime_ns, .. } = &mut state {
            *ctime_ns = None;
        }
        state
    }

    /// How what lies at an absolute path is now, noted as this was. `None`: nothing is there, or
    /// something that cannot be made again.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn now(&self, path: &Path) -> sys::Result<Option<Self>> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        let parent = match Dir::open_no_symlinks(parent) {
            Ok(parent) => parent,
            // It is another place then.
            Err(error) if error.is_gone() || error.is_symlink_in_path() => return Ok(None),
            Err(error) => return Err(error),
        };
        let name = name.as_bytes();
        let Some(stat) = parent.try_stat(name)? else { return Ok(None) };
        if self.is_unreadable() {
            return Ok(Some(Self::of_unreadable(&stat)));
        }
        if stat.kind != FileKind::Directory {
            return Ok(Self::of_file(&stat));
        }
        if let Self::Rebuildable { mark, .. } = self {
            return Ok(Some(Self::of_rebuildable(&stat, mark.as_deref())));
        }
        let tally = LeftOutTally::of(&stat, true);
        let top = parent.open_dir(name)?;
        let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
        while let Some(relative) = pending.pop() {
            for (name, stat) in tally.look(&top, &relative) {
                if stat.kind == FileKind::Directory {
                    pending.push(inside(&relative, &name));
                }
            }
        }
        Ok(Some(tally.state()))
    }
}

fn inside(relative: &[u8], name: &[u8]) -> Vec<u8> {
    if relative.is_empty() { name.to_vec() } else { byte_path::join(relative, name) }
}

/// The counts of a left-out directory, kept by any number of threads.
#[derive(Debug)]
pub(crate) struct LeftOutTally {
    dev: u64,
    entries: AtomicU64,
    mtime: AtomicI64,
    ctime: AtomicI64,
}

impl LeftOutTally {
    /// Begins with the directory itself, which counts if it is not recorded for something that is
    /// in it.
    pub(crate) fn of(stat: &Stat, counts_itself: bool) -> Self {
        let of = |time| AtomicI64::new(if counts_itself { nanoseconds(time) } else { i64::MIN });
        Self {
            dev: stat.dev,
            entries: AtomicU64::new(0),
            mtime: of(stat.mtime),
            ctime: of(stat.ctime),
        }
    }

    /// Counts an entry.
    pub(crate) fn add(&self, stat: &Stat) {
        self.entries.fetch_add(1, Relaxed);
        self.mtime.fetch_max(nanoseconds(stat.mtime), Relaxed);
        if let Some(ctime) = own_change(stat) {
            self.ctime.fetch_max(ctime, Relaxed);
        }
    }

    /// Counts what is right in the directory at `relative` below `top`, and returns it. Nothing of
    /// another file system, nothing where no more is counted.
    pub(crate) fn look(&self, top: &Dir, relative: &[u8]) -> Vec<(Box<[u8]>, Stat)> {
        if self.is_full() {
            return Vec::new();
        }
        let listed = top.open_beneath(relative).and_then(|dir| Ok((dir.names()?, dir)));
        // Gone since, or not to be looked at, as it was before.
        let Ok((names, dir)) = listed else { return Vec::new() };
        let mut found = Vec::new();
        for listed in names {
            let Ok(stat) = dir.stat(&listed.name) else { continue };
            self.add(&stat);
            if stat.kind != FileKind::Directory || stat.dev == self.dev {
                found.push((listed.name, stat));
            }
        }
        found
    }

    fn is_full(&self) -> bool {
        self.entries.load(Relaxed) > MAX_ENTRIES
    }

    /// The counts.
    pub(crate) fn state(&self) -> LeftOutState {
        LeftOutState::Directory {
            entries: self.entries.load(Relaxed),
            newest_mtime_ns: self.mtime.load(Relaxed),
            newest_ctime_ns: self.ctime.load(Relaxed),
            is_partial: self.is_full(),
        }
    }
}
