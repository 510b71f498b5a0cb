//! Finding single paths in a snapshot.

use std::collections::HashMap;

use super::EntryState;
use crate::byte_path;
use crate::object::{ContentHash, Node, RootTree, Tree};
use crate::store::{ObjectSource, StoreError, read_tree};

/// Decoded trees that are kept at hand; paths come sorted, so a few are enough.
const KEPT_TREES: usize = 256;

/// Looks up paths in one snapshot.
pub struct Lookup<'a> {
    source: &'a dyn ObjectSource,
    root: &'a RootTree,
    trees: HashMap<ContentHash, Tree>,
}

impl<'a> Lookup<'a> {
    /// Paths of the snapshot with this root.
    pub fn new(source: &'a dyn ObjectSource, root: &'a RootTree) -> Self {
        Self { source, root, trees: HashMap::new() }
    }

    /// The state of an absolute path, or `None` when the snapshot does not hold it.
    pub fn find(&mut self, path: &[u8]) -> Result<Option<EntryState>, StoreError> {
        let inside =
            self.root.entries.iter().find_map(|entry| {
                byte_path::relative_to(path, &entry.path).map(|rest| (entry, rest))
            });
        let Some((entry, rest)) = inside else { return Ok(None) };
        let mut state =
            EntryState { attributes: entry.attributes.clone(), node: entry.node.clone() };
        for name in byte_path::components(rest) {
            let Node::Directory { tree } = state.node else { return Ok(None) };
            let Some(found) = self.tree(tree)?.get(name) else { return Ok(None) };
            state = EntryState { attributes: found.attributes.clone(), node: found.node.clone() };
        }
        Ok(Some(state))
    }

    fn tree(&mut self, hash: ContentHash) -> Result<&Tree, StoreError> {
        if self.trees.len() >= KEPT_TREES && !self.trees.contains_key(&hash) {
            self.trees.clear();
        }
        match self.trees.entry(hash) {
            std::collections::hash_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                Ok(place.insert(read_tree(self.source, &hash)?))
            }
        }
    }
}
