//! The paths that take the most space, over all snapshots that name them.
//!
//! Directory for directory, the lists of all snapshots are read, each once. So all versions of a
//! path are known at once, and nothing is kept of a path but its place among the largest. What lies
//! in memory are the distinct contents of one directory, and the names of the directories that are
//! still to be read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::path::PathBuf;

use foldhash::fast::RandomState;

use super::holdings::Bytes;
use super::{CleanupError, CleanupOptions};
use crate::byte_path;
use crate::object::{ContentHash, Node};
use crate::path_text::to_path;
use crate::store::{LocalStore, MAX_PACKED_BYTES, StoreError, read_root_tree, visit_tree};

/// A file, and what all of its versions take together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargePath {
    /// The absolute path.
    pub path: PathBuf,
    /// The objects that hold its contents, each counted once.
    pub bytes: Bytes,
    /// Number of its distinct contents.
    pub versions: usize,
}

/// The largest paths that were seen, as many as there is room for.
pub(super) struct Largest {
    room: usize,
    /// The smallest of them comes out first.
    found: BinaryHeap<Reverse<Ranked>>,
}

/// A path, in the order of the space that it takes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ranked {
    stored: u64,
    path: Vec<u8>,
    plain: u64,
    versions: usize,
}

impl Largest {
    /// With room for so many.
    pub(super) fn new(room: usize) -> Self {
        Self { room, found: BinaryHeap::new() }
    }

    /// Whether any are wanted.
    pub(super) fn has_room(&self) -> bool {
        self.room > 0
    }

    fn add(&mut self, path: impl FnOnce() -> Vec<u8>, bytes: Bytes, versions: usize) {
        let least = self.found.peek().map_or(0, |Reverse(least)| least.stored);
        let is_full = self.found.len() == self.room;
        let Bytes { stored, plain } = bytes;
        if stored == 0 || (is_full && stored <= least) {
            return;
        }
        self.found.push(Reverse(Ranked { stored, path: path(), plain, versions }));
        if self.found.len() > self.room {
            self.found.pop();
        }
    }

    /// The largest first.
    pub(super) fn into_paths(self) -> Vec<LargePath> {
        let sorted = self.found.into_sorted_vec().into_iter();
        let path = |Reverse(Ranked { stored, path, plain, versions })| {
            let path = to_path(&path).to_owned();
            LargePath { path, bytes: Bytes { stored, plain }, versions }
        };
        sorted.map(path).collect()
    }
}

/// The contents of some snapshots at one path. The same may be there several times.
#[derive(Default)]
struct Versions {
    /// Contents of files, with their lengths.
    files: Vec<(ContentHash, u64)>,
    /// Objects that belong to such contents.
    beside: Vec<ContentHash>,
    /// Lists of directories.
    trees: Vec<ContentHash>,
}

impl Versions {
    /// Adds a version. Most come after an equal one.
    fn add(&mut self, node: &Node) {
        match node {
            Node::File { hash, size, midstates } => {
                add(&mut self.files, (*hash, *size));
                midstates.name().into_iter().for_each(|name| add(&mut self.beside, name));
            }
            Node::Directory { tree } => add(&mut self.trees, *tree),
            _ => {}
        }
    }

    fn absorb(&mut self, other: Self) {
        self.files.extend(other.files);
        self.beside.extend(other.beside);
        self.trees.extend(other.trees);
    }
}

/// Adds a value, unless it is the last one. Takes at most twice the space of the distinct ones.
fn add<T: Ord>(values: &mut Vec<T>, value: T) {
    if values.last() == Some(&value) {
        return;
    }
    if values.len() == values.capacity() {
        compact(values);
        // So that the next time is as far away as there are values.
        values.reserve(values.len());
    }
    values.push(value);
}

/// Keeps each once.
fn compact<T: Ord>(values: &mut Vec<T>) {
    values.sort_unstable();
    values.dedup();
}

/// Looks for the largest paths of snapshots in one store, whose roots are given.
///
/// # Errors
/// When a list cannot be read; [`CleanupError::Cancelled`].
pub(super) fn search(
    store: &LocalStore,
    roots: impl Iterator<Item = ContentHash>,
    bytes_of: &dyn Fn(&ContentHash) -> Option<Bytes>,
    options: &CleanupOptions<'_>,
    largest: &mut Largest,
) -> Result<(), CleanupError> {
    let mut tracked: BTreeMap<Vec<u8>, Versions> = BTreeMap::new();
    for root in roots {
        for entry in read_root_tree(store, &root)?.entries {
            tracked.entry(entry.path.into()).or_default().add(&entry.node);
        }
    }
    let mut search =
        Search { store, bytes_of, tracked, pending: Vec::new(), objects: Vec::new(), largest };
    let mut buffer = Vec::new();
    while let Some((path, versions)) = search.tracked.pop_first() {
        search.see(&path, b"", versions)?;
        while let Some((path, trees)) = search.pending.pop() {
            if options.progress.is_cancelled() {
                return Err(CleanupError::Cancelled);
            }
            let mut below: HashMap<Box<[u8]>, Versions, RandomState> = HashMap::default();
            for tree in &trees {
                visit_tree(store, tree, &mut buffer, |name, _, node| match below.get_mut(name) {
                    Some(versions) => versions.add(&node),
                    None => below.entry(name.into()).or_default().add(&node),
                })?;
                options.progress.advance(1, 0);
            }
            for (name, versions) in below {
                search.see(&path, &name, versions)?;
            }
        }
    }
    Ok(())
}

struct Search<'a> {
    store: &'a LocalStore,
    bytes_of: &'a dyn Fn(&ContentHash) -> Option<Bytes>,
    /// Tracked paths that no list has named yet.
    tracked: BTreeMap<Vec<u8>, Versions>,
    /// Directories, each with its distinct lists.
    pending: Vec<(Vec<u8>, Vec<ContentHash>)>,
    objects: Vec<ContentHash>,
    largest: &'a mut Largest,
}

impl Search<'_> {
    /// Takes all that snapshots have at a path: `name` below `dir`, or `dir` itself.
    fn see(&mut self, dir: &[u8], name: &[u8], mut versions: Versions) -> Result<(), StoreError> {
        let path = || if name.is_empty() { dir.to_vec() } else { byte_path::join(dir, name) };
        if !self.tracked.is_empty() {
            // Another session tracks what lies within what this one does.
            self.tracked.remove(&path()).into_iter().for_each(|more| versions.absorb(more));
        }
        let Versions { mut files, beside, mut trees } = versions;
        compact(&mut files);
        self.objects.clear();
        self.objects.extend(beside);
        for (hash, size) in &files {
            self.objects.push(*hash);
            if *size > MAX_PACKED_BYTES {
                self.objects.extend(self.store.chunks_of(hash)?);
            }
        }
        compact(&mut self.objects);
        let bytes = self.objects.iter().filter_map(self.bytes_of).sum();
        self.largest.add(path, bytes, files.len());
        if !trees.is_empty() {
            compact(&mut trees);
            self.pending.push((path(), trees));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_largest_are_kept_and_a_path_of_no_bytes_is_none_of_them() {
        let mut largest = Largest::new(3);
        for (name, stored) in [("a", 1), ("b", 5), ("c", 0), ("d", 3), ("e", 2), ("f", 4)] {
            largest.add(|| name.into(), Bytes { stored, plain: stored }, 1);
        }
        let paths: Vec<_> = largest.into_paths().into_iter().map(|it| it.path).collect();
        assert_eq!(paths, ["b", "f", "d"].map(PathBuf::from));
    }

    #[test]
    fn many_versions_that_come_back_are_kept_once() {
        let mut versions = Versions::default();
        for at in 0..10_000_u32 {
            let content = (at % 3).to_le_bytes();
            versions.add(&Node::file(1, ContentHash::of(&content)));
        }
        assert!(versions.files.len() < 16, "{}", versions.files.len());
    }
}
