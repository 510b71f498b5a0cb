//! Projects that were moved or renamed: the sessions name a path that is gone.
//!
//! A file that moves with its directory keeps device, inode, length, mtime and ctime. The stat
//! cache of the tracked path remembers these, and a program cannot set a ctime. So one equal file,
//! at the same place below the directory, proves that the directory is the one that was recorded. A
//! copy, and a move to another file system, prove nothing, and nothing is said of them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Serialize;

use super::catalog::Catalog;
use super::summary::SessionSummary;
use crate::byte_path;
use crate::layout;
use crate::path_text::serde_path;
use crate::stat_cache::{StatKey, known_files};
use crate::sys::Dir;

/// Maximum number of missing tracked paths that are looked at, the newest first.
const MAX_PATHS: usize = 16;

/// Maximum number of files of each path that are compared.
const MAX_FILES: usize = 512;

/// A project that is at another place than its sessions say.
#[derive(Debug, Clone, Serialize)]
pub struct Moved {
    /// The tracked path, which is gone.
    #[serde(with = "serde_path")]
    pub from: PathBuf,
    /// The place of the same files now.
    #[serde(with = "serde_path")]
    pub to: PathBuf,
}

impl Catalog {
    /// The newest of these sessions whose project is now `directory` or a directory above it, if
    /// there is one. What cannot be read proves nothing.
    pub fn moved_here<'a>(
        &self,
        directory: &Path,
        sessions: &'a [SessionSummary],
        now: Timestamp,
    ) -> Option<(&'a SessionSummary, Moved)> {
        let mut sessions: Vec<_> =
            sessions.iter().filter(|s| !s.origin.is_apart() && !s.received).collect();
        sessions.sort_by_cached_key(|session| {
            std::cmp::Reverse((session.may_have_changed(), session.recency(now)))
        });
        let index = Dir::open(&self.root().join(layout::INDEX)).ok()?;
        let mut looked_at: Vec<&Path> = Vec::new();
        for session in sessions {
            for from in &session.tracked_paths {
                let is_known = looked_at.contains(&from.as_path());
                if is_known || !is_gone(from) || looked_at.len() == MAX_PATHS {
                    continue;
                }
                looked_at.push(from);
                let files = known_files(&index, from, MAX_FILES);
                let is_same = |to: &&Path| files.iter().any(|file| is_there(to, file));
                if let Some(to) = directory.ancestors().find(is_same) {
                    return Some((session, Moved { from: from.clone(), to: to.to_owned() }));
                }
            }
        }
        None
    }
}

fn is_gone(path: &Path) -> bool {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
    match Dir::open(above).and_then(|dir| dir.try_stat(name.as_bytes())) {
        Ok(found) => found.is_none(),
        Err(error) => error.is_gone(),
    }
}

/// Whether a file is below a directory as it was recorded.
fn is_there(directory: &Path, (relative, key): &(Vec<u8>, StatKey)) -> bool {
    let (above, name) = byte_path::split(relative);
    let found = Dir::open(directory)
        .and_then(|dir| dir.open_beneath(above))
        .and_then(|dir| dir.try_stat(name));
    found.is_ok_and(|stat| stat.is_some_and(|stat| StatKey::of(&stat) == *key))
}
