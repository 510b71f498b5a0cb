//! A volume of a snapshot as a list of entries: what a volume is filled with and compared with.

use std::collections::HashMap;

use super::super::{ContainerHistory, VOLUMES_PATH};
use super::RestoreError;
use nono_engine::byte_path;
use nono_engine::diff::{self, EntryState};
use nono_engine::object::Node;
use nono_engine::progress::Progress;
use nono_engine::store::{FileSource, read_tree};

/// A volume of a snapshot.
pub(super) struct Contents<'a> {
    pub(super) store: &'a dyn FileSource,
    /// The name of the volume below `/volumes`.
    pub(super) tree: String,
    root: EntryState,
    /// The number of its group for each path with several names.
    links: HashMap<Vec<u8>, usize>,
}

/// One entry of a volume; the root has an empty path.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: Vec<u8>,
    pub(super) state: EntryState,
    /// The path that comes earlier in the walk and is the same inode.
    pub(super) link_to: Option<Vec<u8>>,
}

/// Whether it is a socket or a device: only a directory can get it back, and not every user makes
/// one.
pub(super) fn is_special(node: &Node) -> bool {
    matches!(node, Node::Socket | Node::CharDevice(_) | Node::BlockDevice(_))
}

impl<'a> Contents<'a> {
    pub(super) fn read(
        history: &'a ContainerHistory<'_>,
        number: u64,
        tree: &str,
    ) -> Result<Self, RestoreError> {
        let (attributes, hash) = history.volume(number, tree)?;
        let root = history.manifest(number)?.merkle_root;
        let store = history.objects();
        let prefix = format!("{VOLUMES_PATH}/{tree}/");
        let mut links = HashMap::new();
        for (group, paths) in diff::links_of(store, &root)?.groups().iter().enumerate() {
            for path in paths {
                if let Some(path) = path.strip_prefix(prefix.as_bytes()) {
                    links.insert(path.to_vec(), group);
                }
            }
        }
        let root = EntryState { attributes, node: Node::Directory { tree: hash } };
        Ok(Self { store, tree: tree.to_owned(), root, links })
    }

    /// Visits every entry: a directory before its entries, and names in their order.
    pub(super) fn walk(
        &self,
        progress: &dyn Progress,
        mut visit: impl FnMut(Entry) -> Result<(), RestoreError>,
    ) -> Result<(), RestoreError> {
        let mut first_names: HashMap<usize, Vec<u8>> = HashMap::new();
        // Not recursive: a tree may be deeper than a stack.
        let mut pending = vec![(Vec::new(), self.root.clone())];
        while let Some((path, state)) = pending.pop() {
            if progress.is_cancelled() {
                return Err(RestoreError::Cancelled);
            }
            if let Node::Directory { tree } = &state.node {
                for entry in read_tree(self.store, tree)?.into_entries().into_iter().rev() {
                    let state = EntryState { attributes: entry.attributes, node: entry.node };
                    pending.push((byte_path::join(&path, &entry.name), state));
                }
            }
            let link_to = self.links.get(&path).and_then(|group| {
                let first = first_names.get(group).cloned();
                if first.is_none() {
                    first_names.insert(*group, path.clone());
                }
                first
            });
            visit(Entry { path, state, link_to })?;
        }
        Ok(())
    }
}
