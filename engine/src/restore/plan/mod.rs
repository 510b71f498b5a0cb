//! The plan of a restore, as a value: made from two states, changing nothing.

mod links;
mod planner;
mod unrecorded;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::packed::PackedPaths;
use super::three_way::is_in_git;
use crate::byte_path;
use crate::diff::{Comparison, EntryState, Lost, Told};
use crate::object::{Attributes, Node};
use crate::path_text::{serde_path, to_path};

pub(super) use planner::plan;

/// A path that a restore leaves as it is although the snapshot says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// Each once, by their paths.
pub(super) fn sort(skipped: &mut Vec<Skipped>) {
    skipped.sort_by(|a, b| (&a.path, &a.reason).cmp(&(&b.path, &b.reason)));
    skipped.dedup();
}

/// The differences afterwards, sorted by path; directories before their contents. Packed, because
/// they are read twice at most, and there may be millions.
pub(super) type PlannedChanges = PackedPaths<Told>;

impl PlannedChanges {
    /// The paths alone.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.iter().map(|(path, _)| PathBuf::from(OsString::from_vec(path))).collect()
    }

    /// As they are told.
    pub(super) fn comparison(&self) -> Comparison {
        let mut comparison = Comparison::default();
        for (path, told) in self.iter() {
            comparison.push(PathBuf::from(OsString::from_vec(path)), *told);
        }
        comparison
    }
}

/// The steps of a restore, in the order in which they are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct RestorePlan {
    pub(super) changes: PlannedChanges,
    /// The paths that stay as they are, and why.
    pub(super) skipped: Vec<Skipped>,
    /// The paths that stay as they are and are rebuildable.
    pub(super) rebuildable: Vec<PathBuf>,
    /// Left-out paths that are not as they were.
    pub(super) lost: Vec<Lost>,
    /// Paths that stay with everything that is or was in them.
    pub(super) kept: HashSet<Vec<u8>>,
    /// Bytes of file contents that are written.
    pub(super) bytes_to_write: u64,
    /// Contents of files that no snapshot has: they are in the store before anything is staged.
    pub(super) merged: Vec<Vec<u8>>,
    pub(super) actions: Actions,
}

impl RestorePlan {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// Directories that get their time back, and are otherwise as they were.
    pub(super) fn directory_times(&self) -> u64 {
        let is_time_alone = |attribute: &&Attribute| {
            let (now, then) = (attribute.current.as_deref(), &attribute.target.attributes);
            now.map(|now| &now.attributes).is_some_and(|now| {
                now != then && *then == Attributes { mtime: then.mtime, ..now.clone() }
            })
        };
        self.actions.directory_attributes.iter().filter(is_time_alone).count() as u64
    }

    /// Directories that are there and get other attributes, be it only a time.
    pub(super) fn set_directories(&self) -> impl Iterator<Item = &[u8]> {
        let attributes = self.actions.directory_attributes.iter();
        let is_set = |it: &&Attribute| {
            it.current.as_ref().is_some_and(|now| now.attributes != it.target.attributes)
        };
        attributes.filter(is_set).map(|attribute| attribute.path.as_slice())
    }

    /// The directories that it changes, and those in which it changes something. Some come again.
    pub(super) fn directories(&self) -> impl Iterator<Item = &[u8]> {
        fn above(path: &[u8]) -> &[u8] {
            byte_path::split(path).0
        }
        let actions = &self.actions;
        let removed = actions.removals.iter().map(|removal| match removal.current.node {
            Node::Directory { .. } => removal.path.as_slice(),
            _ => above(&removal.path),
        });
        // There may be a hundred thousand, and neighbours are in the same directory.
        let put = actions.puts.chunk_by(Put::is_beside).filter_map(|beside| beside.first());
        let put = put.map(|put| above(&put.path));
        let made = actions.directories.iter().map(Vec::as_slice);
        let set = actions.attributes.iter().map(|attribute| above(&attribute.path));
        let also_set = actions.directory_attributes.iter().map(|attribute| &*attribute.path);
        let skipped = self.skipped.iter().map(|skipped| skipped.path.as_os_str().as_bytes());
        removed.chain(put).chain(made).chain(set).chain(also_set).chain(skipped)
    }

    /// Removed paths, the most bytes first, each with all that is in it. Nothing of git directories
    /// is among them: they change as a whole.
    pub(super) fn removed_contents(&self) -> Vec<PathBuf> {
        let removals = &self.actions.removals;
        let gone = self.actions.gone();
        let mut bytes: HashMap<&[u8], u64> = HashMap::new();
        for removal in removals.iter().filter(|it| gone.contains(it.path.as_slice())) {
            let outermost = byte_path::ancestors(&removal.path).find(|above| gone.contains(above));
            *bytes.entry(outermost.unwrap_or(&removal.path)).or_default() +=
                removal.current.bytes();
        }
        let mut found: Vec<_> = bytes
            .into_iter()
            .filter(|(path, bytes)| *bytes > 0 && !is_in_git(path))
            .map(|(path, bytes)| (Reverse(bytes), to_path(path).to_owned()))
            .collect();
        found.sort();
        found.into_iter().map(|(_, path)| path).collect()
    }

    /// The topmost path that changes.
    pub(super) fn first_path(&self) -> Option<&[u8]> {
        let actions = &self.actions;
        let removed = actions.removals.iter().map(|removal| &removal.path);
        let put = actions.puts.iter().map(|put| &put.path);
        let made = actions.directories.iter();
        removed.chain(put).chain(made).map(Vec::as_slice).min_by_key(|path| byte_path::depth(path))
    }
}

/// The plan in the form in which it is carried out.
#[derive(Debug, Clone, Default)]
pub(super) struct Actions {
    /// Entries that go, deepest first; directories are empty when their turn comes.
    pub(super) removals: Vec<Removal>,
    /// Directories that are made, parents first.
    pub(super) directories: Vec<Vec<u8>>,
    /// Everything else that gets a new inode, sorted by path.
    pub(super) puts: Vec<Put>,
    /// Entries that keep their inode and get other attributes.
    pub(super) attributes: Vec<Attribute>,
    /// Attributes of directories, deepest first: set when all else is done.
    pub(super) directory_attributes: Vec<Attribute>,
}

impl Actions {
    fn is_empty(&self) -> bool {
        self.removals.is_empty()
            && self.directories.is_empty()
            && self.puts.is_empty()
            && self.attributes.is_empty()
            && self.directory_attributes.is_empty()
    }

    /// As [`has_put`](Self::has_put) needs them.
    pub(super) fn sort_puts(&mut self) {
        // They come in long sorted runs; an unstable sort would make nothing of that.
        self.puts.sort_by(|a, b| a.path.cmp(&b.path));
    }

    /// The deepest first: a mode may bar the way to what is below.
    pub(super) fn sort_directories(&mut self) {
        // Stable, so that the order does not depend on how many there are of one depth.
        self.directory_attributes.sort_by_key(|it| Reverse(byte_path::depth(&it.path)));
    }

    /// The paths that are removed and do not come again as something else.
    pub(super) fn gone(&self) -> HashSet<&[u8]> {
        let made: HashSet<&[u8]> = self.directories.iter().map(Vec::as_slice).collect();
        let removed = self.removals.iter().map(|removal| removal.path.as_slice());
        removed.filter(|path| !made.contains(path) && !self.has_put(path)).collect()
    }

    fn has_put(&self, path: &[u8]) -> bool {
        self.puts.binary_search_by(|put| put.path.as_slice().cmp(path)).is_ok()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Removal {
    pub(super) path: Vec<u8>,
    pub(super) current: Arc<EntryState>,
}

#[derive(Debug, Clone)]
pub(super) struct Put {
    pub(super) path: Vec<u8>,
    /// The present node, if it is no directory. A directory there is removed first.
    pub(super) current: Option<Arc<EntryState>>,
    pub(super) target: Arc<EntryState>,
    /// Index of the put whose inode this one shares, if it is a further name of it.
    pub(super) link_to: Option<usize>,
    /// Whether what is there now is linked to other names.
    pub(super) is_relinked: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) path: Vec<u8>,
    /// `None` for a directory that the restore makes.
    pub(super) current: Option<Arc<EntryState>>,
    pub(super) target: Arc<EntryState>,
}

impl Put {
    /// Whether both are in one directory, and so on one mount.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        byte_path::split(&self.path).0 == byte_path::split(&other.path).0
    }

    /// Bytes of its contents.
    pub(super) fn bytes(&self) -> u64 {
        self.target.bytes()
    }
}
