//! Tracked paths of git: the entries of the index of a directory's repository.
//!
//! git does not ignore a tracked path, so such a path is recorded whatever a rule says. An index is
//! read when a rule is about to leave something out, and not before. The recorded command can write
//! the index. A false index has more recorded or, as if there were none, leaves the rules alone.
//! Paths of an earlier snapshot stay in without it.
//!
//! The decoder is our own. The crate `gix-index` decodes extensions that nono does not want, one of
//! them by recursion, takes offsets out of the file as indexes of slices, and joins threads that
//! may panic.

mod decode;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::git_dir::DOT_GIT;
use crate::byte_path;
use crate::object::ContentHash;
use crate::path_text::{Shown, to_path};
use crate::sys::{self, Dir, FileKind};

/// A larger index is not read.
pub(crate) const MAX_INDEX_BYTES: u64 = 1 << 28;
/// A longer `.git` file is none.
const MAX_LINK_BYTES: u64 = 1 << 14;

/// The repository in which a directory lies; it may turn out that there is none.
#[derive(Debug, Clone)]
pub struct Repository(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    top: Top,
    loaded: OnceLock<Loaded>,
}

#[derive(Debug)]
enum Top {
    /// Somewhere above the tracked path that is this one.
    Above(PathBuf),
    /// The directory with this path below the tracked path, and where it was found.
    At { relative: Box<[u8]>, path: PathBuf },
}

#[derive(Debug, Default)]
struct Loaded {
    /// The tracked path relative to the top of a repository above it, with a slash behind.
    prefix: Vec<u8>,
    paths: Paths,
    shared: Paths,
}

/// The part of a path that git tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracks {
    /// Nothing.
    Nothing,
    /// The path itself: a file, or a directory that is a repository of its own.
    Itself,
    /// Something below it.
    Below,
}

impl Repository {
    /// The repository above a tracked path, if there is one.
    pub fn above(tracked_path: &Path) -> Self {
        Self::new(Top::Above(tracked_path.to_owned()))
    }

    /// The repository whose top is this open directory, which lies at `relative` below the tracked
    /// path.
    pub(crate) fn at(dir: &Dir, relative: &[u8]) -> Self {
        Self::new(Top::At { relative: relative.into(), path: dir.path().to_owned() })
    }

    fn new(top: Top) -> Self {
        Self(Arc::new(Inner { top, loaded: OnceLock::new() }))
    }

    /// The part of a path (relative to the tracked path) that git tracks.
    pub fn tracks(&self, relative: &[u8]) -> Tracks {
        let loaded = self.0.loaded.get_or_init(|| Loaded::of(&self.0.top));
        let inside = match &self.0.top {
            Top::Above(_) => [&loaded.prefix, relative].concat(),
            Top::At { relative: top, .. } if top.is_empty() => relative.to_vec(),
            Top::At { relative: top, .. } => match byte_path::relative_to(relative, top) {
                Some(inside) if !inside.is_empty() => inside.to_vec(),
                _ => return Tracks::Nothing,
            },
        };
        match (loaded.paths.look_up(&inside), loaded.shared.look_up(&inside)) {
            (Tracks::Nothing, found) => found,
            (found, _) => found,
        }
    }
}

impl Loaded {
    fn of(top: &Top) -> Self {
        let (path, prefix) = match top {
            Top::At { path, .. } => (path.as_path(), Vec::new()),
            Top::Above(tracked) => {
                let has_git = |dir: &&Path| {
                    let dir = Dir::open(dir);
                    dir.is_ok_and(|dir| dir.try_stat(DOT_GIT).is_ok_and(|stat| stat.is_some()))
                };
                let Some(path) = tracked.ancestors().skip(1).find(has_git) else {
                    return Self::default();
                };
                let inside = tracked.strip_prefix(path).unwrap_or(tracked);
                (path, [inside.as_os_str().as_bytes(), b"/"].concat())
            }
        };
        match read(path) {
            Ok((paths, shared)) => Self { prefix, paths, shared },
            Err(reason) => {
                let path = Shown::path(path);
                tracing::warn!("the git index of {path} does not count: {reason}");
                Self::default()
            }
        }
    }
}

/// The paths of the index of a repository, and those of the shared index that it adds to. (Which of
/// the shared ones it takes back does not matter: more is recorded then.)
fn read(top: &Path) -> Result<(Paths, Paths), String> {
    let said = |error: sys::Error| error.to_string();
    let top_dir = Dir::open(top).map_err(said)?;
    let git = match top_dir.try_stat(DOT_GIT).map_err(said)? {
        Some(stat) if stat.kind == FileKind::Directory => top_dir.open_dir(DOT_GIT),
        Some(stat) if stat.kind == FileKind::File => {
            let link = top_dir.read(DOT_GIT, MAX_LINK_BYTES).map_err(said)?;
            let path = link.strip_prefix(b"gitdir:").ok_or("its .git file says nothing")?;
            Dir::open(&top.join(to_path(path.trim_ascii())))
        }
        _ => return Ok(Default::default()),
    };
    let git = git.map_err(said)?;
    let index = match git.read(b"index", MAX_INDEX_BYTES) {
        Ok(bytes) => decode::decode(&bytes)?,
        Err(error) if error.is_gone() && git.try_stat(b"index").is_ok_and(|at| at.is_none()) => {
            return Ok(Default::default());
        }
        Err(error) => return Err(error.to_string()),
    };
    let Some(name) = index.shared else { return Ok((index.paths, Paths::default())) };
    let name = format!("sharedindex.{name}");
    let shared = git.read(name.as_bytes(), MAX_INDEX_BYTES).map_err(said)?;
    Ok((index.paths, decode::decode(&shared)?.paths))
}

/// The staged state of an index, in one hash without times and inodes; `None` if that cannot be
/// told.
pub(crate) fn staged(index: &[u8]) -> Option<ContentHash> {
    decode::staged(index)
}

/// A staged file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StagedEntry {
    /// As git has it: the kind, and whether it can be executed.
    pub(crate) mode: u32,
    /// The name of its object, in hexadecimal.
    pub(crate) object: Box<str>,
}

/// Staged files by path and stage: 0, or 1 to 3 for the sides of a conflict.
pub(crate) type StagedEntries = BTreeMap<(Vec<u8>, u8), StagedEntry>;

/// The staged files of an index; `None` if they cannot be told.
pub(crate) fn staged_entries(index: &[u8]) -> Option<StagedEntries> {
    decode::staged_entries(index)
}

/// The entries of an index, where they are in it.
#[cfg(feature = "mount")]
#[derive(Debug)]
pub(crate) struct Places {
    /// Where each begins, and its path.
    pub(crate) entries: Vec<(usize, Box<[u8]>)>,
    /// Length of the names of objects, and of the checksum at the end.
    pub(crate) hash_bytes: usize,
}

/// The places of the entries of an index; `None` if they cannot be told.
#[cfg(feature = "mount")]
pub(crate) fn places(index: &[u8]) -> Option<Places> {
    decode::places(index)
}

/// Paths in the order of their bytes.
#[derive(Debug, Default)]
struct Paths {
    /// One after the other.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Paths {
    fn push(&mut self, path: &[u8]) -> Result<(), &'static str> {
        if path.is_empty() {
            // An entry of a split index whose path the shared one has.
            return Ok(());
        }
        if self.ends.last().is_some_and(|_| self.at(self.ends.len() - 1) > path) {
            return Err("its paths are not in order");
        }
        self.bytes.extend_from_slice(path);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    fn at(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    /// Index of the first path that is not less.
    fn first_from(&self, path: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at(middle) < path { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn look_up(&self, path: &[u8]) -> Tracks {
        let starts_with = |prefix: &[u8]| {
            let index = self.first_from(prefix);
            index < self.ends.len() && self.at(index).starts_with(prefix)
        };
        let index = self.first_from(path);
        if index < self.ends.len() && self.at(index) == path {
            return Tracks::Itself;
        }
        if starts_with(&[path, b"/"].concat()) { Tracks::Below } else { Tracks::Nothing }
    }
}

/// Reads an index and finds every path that it tracks, for whoever tries any bytes.
#[cfg(feature = "fuzzing")]
pub(crate) fn finds_what_it_tracks(bytes: &[u8]) -> Option<bool> {
    let paths = decode::decode(bytes).ok()?.paths;
    Some((0..paths.ends.len()).all(|at| paths.look_up(paths.at(at)) == Tracks::Itself))
}

#[cfg(test)]
mod tests;
