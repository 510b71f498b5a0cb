//! Everything in a snapshot, one path after the other, in the order of the lines of its files.

use std::collections::HashSet;
use std::vec;

use crate::diff::EntryState;
use crate::object::{ContentHash, Node, TreeEntry};
use crate::path_text::encode;
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// A walk through the trees of a snapshot: a directory stands before what is in it, and files stand
/// in the order of the lines `path:sha256:HEX`. Holds the lists of the open directories alone.
pub(in crate::archive) struct Walk<'a> {
    store: &'a dyn ObjectSource,
    /// Directories that are not entered.
    skip: HashSet<ContentHash>,
    /// Path of each open directory, and what is left in it.
    levels: Vec<(Vec<u8>, vec::IntoIter<TreeEntry>)>,
    /// The directory that comes next.
    below: Option<(Vec<u8>, ContentHash)>,
}

impl<'a> Walk<'a> {
    pub(in crate::archive) fn new(
        store: &'a dyn ObjectSource,
        root: &ContentHash,
        skip: HashSet<ContentHash>,
    ) -> Result<Self, StoreError> {
        let root = read_root_tree(store, root)?;
        let entries = root.entries.into_iter().map(|entry| TreeEntry {
            // Without the first slash, as all paths of an archive.
            name: entry.path[1..].into(),
            attributes: entry.attributes,
            node: entry.node,
        });
        let entries = sorted(entries.collect());
        Ok(Self { store, skip, levels: vec![(Vec::new(), entries)], below: None })
    }
}

/// Sorted as the lines of the files are: a name is followed by `/`, or by `:sha256:HEX`.
fn sorted(mut entries: Vec<TreeEntry>) -> vec::IntoIter<TreeEntry> {
    entries.sort_by_cached_key(|entry| {
        let mut key = encode(&entry.name).into_owned();
        match &entry.node {
            Node::File { hash, .. } => key.push_str(&format!(":sha256:{hash}")),
            Node::Directory { .. } => key.push('/'),
            _ => key.push(':'),
        }
        key
    });
    entries.into_iter()
}

impl Iterator for Walk<'_> {
    /// The path without its first slash, and the state.
    type Item = Result<(Vec<u8>, EntryState), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((path, tree)) = self.below.take()
            && !self.skip.contains(&tree)
        {
            match read_tree(self.store, &tree) {
                Ok(tree) => self.levels.push((path, sorted(tree.into_entries()))),
                Err(error) => {
                    self.levels.clear();
                    return Some(Err(error));
                }
            }
        }
        loop {
            let (base, entries) = self.levels.last_mut()?;
            let Some(TreeEntry { name, attributes, node }) = entries.next() else {
                self.levels.pop();
                continue;
            };
            let path = crate::byte_path::join(base, &name);
            if let Node::Directory { tree } = &node {
                self.below = Some((path.clone(), *tree));
            }
            return Some(Ok((path, EntryState { attributes, node })));
        }
    }
}
