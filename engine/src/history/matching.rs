//! A search through the trees of snapshots for paths that are wanted.
//!
//! A directory whose tree is the same in several snapshots is read once. The paths found in it
//! are known to be in all of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, Node, RootEntry, TreeEntry};
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// Decides what is wanted.
pub(super) trait Wanted {
    /// Whether something that is wanted may lie in a directory.
    fn may_be_in(&self, directory: &[u8]) -> bool {
        let _ = directory;
        true
    }

    /// Whether a path is wanted that lies in this tracked path.
    fn is_match(&self, path: &[u8], root: &[u8], state: &EntryState) -> bool;
}

/// Something that is wanted in one snapshot or in several: a path, and its state there.
type Match = (Vec<u8>, Arc<EntryState>);

/// A directory of a snapshot: its path, its tree, and the tracked path that it lies in.
type DirKey = (Vec<u8>, ContentHash, Vec<u8>);

/// A search through snapshots, one after the other.
pub(super) struct Matching<'a, W> {
    wanted: W,
    source: &'a dyn ObjectSource,
    /// Everything that was found, each state of each path once.
    matches: Vec<Match>,
    /// The matches in a directory, and in all that is below it.
    seen: HashMap<DirKey, Arc<[usize]>>,
    /// The matches of whole snapshots.
    roots: HashMap<ContentHash, Arc<[usize]>>,
}

/// A directory that is being looked through.
struct Level {
    key: DirKey,
    rest: std::vec::IntoIter<TreeEntry>,
    found: Vec<usize>,
}

impl<'a, W: Wanted> Matching<'a, W> {
    pub(super) fn new(wanted: W, source: &'a dyn ObjectSource) -> Self {
        let (seen, roots) = (HashMap::new(), HashMap::new());
        Self { wanted, source, matches: Vec::new(), seen, roots }
    }

    /// A match by its number.
    pub(super) fn found(&self, number: usize) -> (&[u8], &Arc<EntryState>) {
        let (path, state) = &self.matches[number];
        (path, state)
    }

    /// All matches so far, in the order of their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (&[u8], &Arc<EntryState>)> {
        self.matches.iter().map(|(path, state)| (path.as_slice(), state))
    }

    /// The numbers of the matches in a snapshot.
    pub(super) fn snapshot(
        &mut self,
        merkle_root: &ContentHash,
    ) -> Result<Arc<[usize]>, StoreError> {
        if let Some(known) = self.roots.get(merkle_root) {
            return Ok(Arc::clone(known));
        }
        let mut found = Vec::new();
        for RootEntry { path, attributes, node } in
            read_root_tree(self.source, merkle_root)?.entries
        {
            let state = EntryState { attributes, node };
            self.judge(&path, &path, &state, &mut found);
            if let Node::Directory { tree } = state.node
                && self.wanted.may_be_in(&path)
            {
                let key = (path.to_vec(), tree, path.into_vec());
                found.extend_from_slice(&self.directory(key)?);
            }
        }
        let found: Arc<[usize]> = found.into();
        self.roots.insert(*merkle_root, Arc::clone(&found));
        Ok(found)
    }

    fn judge(&mut self, path: &[u8], root: &[u8], state: &EntryState, found: &mut Vec<usize>) {
        if self.wanted.is_match(path, root, state) {
            found.push(self.matches.len());
            self.matches.push((path.to_vec(), Arc::new(state.clone())));
        }
    }

    /// Looks through a directory. Not by the program's stack: a tree may be deeper.
    fn directory(&mut self, key: DirKey) -> Result<Arc<[usize]>, StoreError> {
        if let Some(known) = self.seen.get(&key) {
            return Ok(Arc::clone(known));
        }
        let mut levels = vec![self.enter(key)?];
        loop {
            let Some(level) = levels.last_mut() else { return Ok(Arc::from([])) };
            let Some(TreeEntry { name, attributes, node }) = level.rest.next() else {
                let Some(Level { key, found, .. }) = levels.pop() else { return Ok(Arc::from([])) };
                let found: Arc<[usize]> = found.into();
                self.seen.insert(key, Arc::clone(&found));
                match levels.last_mut() {
                    Some(above) => above.found.extend_from_slice(&found),
                    None => return Ok(found),
                }
                continue;
            };
            let (path, root) = (byte_path::join(&level.key.0, &name), level.key.2.clone());
            let state = EntryState { attributes, node };
            let mut found = Vec::new();
            self.judge(&path, &root, &state, &mut found);
            level.found.append(&mut found);
            if let Node::Directory { tree } = state.node
                && self.wanted.may_be_in(&path)
            {
                let key = (path, tree, root);
                match self.seen.get(&key) {
                    Some(known) => level.found.extend_from_slice(known),
                    None => {
                        let below = self.enter(key)?;
                        levels.push(below);
                    }
                }
            }
        }
    }

    fn enter(&self, key: DirKey) -> Result<Level, StoreError> {
        let rest = read_tree(self.source, &key.1)?.into_entries().into_iter();
        Ok(Level { key, rest, found: Vec::new() })
    }
}
