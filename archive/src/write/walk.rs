//! Everything in a snapshot, one path after the other.

use std::collections::HashSet;
use std::vec;

use crate::ArchiveError;
use nono_engine::byte_path;
use nono_engine::diff::EntryState;
use nono_engine::object::{ContentHash, Node, TreeEntry};
use nono_engine::path_text::encode;
use nono_engine::progress::Progress;
use nono_engine::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// A few trees can name more paths than a walk can visit, so each walk is [`asking`] whether to go
/// on.
///
/// A walk through the trees of a snapshot: a directory stands before what is in it. Holds the lists
/// of the open directories alone.
pub(crate) struct Walk<'a> {
    store: &'a dyn ObjectSource,
    order: Order,
    /// Directories that are not entered.
    skip: HashSet<ContentHash>,
    /// Path of each open directory, and what is left in it.
    levels: Vec<(Vec<u8>, vec::IntoIter<TreeEntry>)>,
    /// The directory that comes next.
    below: Option<(Vec<u8>, ContentHash)>,
}

/// The items of a walk, until the work is to stop.
pub(crate) fn asking<T, E>(
    items: impl Iterator<Item = Result<T, E>>,
    progress: &dyn Progress,
) -> impl Iterator<Item = Result<T, ArchiveError>>
where
    ArchiveError: From<E>,
{
    items.map(move |item| match progress.is_cancelled() {
        true => Err(ArchiveError::Cancelled),
        false => Ok(item?),
    })
}

/// The order of a walk.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// The order of [`byte_path::order`]: a directory stands right before what is in it.
    Paths,
    /// Files stand in the order of the lines `path:sha256:HEX`.
    Lines,
}

impl<'a> Walk<'a> {
    /// In the order of paths, as members of an archive are.
    pub(crate) fn of_paths(
        store: &'a dyn ObjectSource,
        root: &ContentHash,
    ) -> Result<Self, StoreError> {
        Self::new(store, root, HashSet::new(), Order::Paths)
    }

    /// In the order of the lines of the files. Some directories are not entered.
    pub(crate) fn of_lines(
        store: &'a dyn ObjectSource,
        root: &ContentHash,
        skip: HashSet<ContentHash>,
    ) -> Result<Self, StoreError> {
        Self::new(store, root, skip, Order::Lines)
    }

    fn new(
        store: &'a dyn ObjectSource,
        root: &ContentHash,
        skip: HashSet<ContentHash>,
        order: Order,
    ) -> Result<Self, StoreError> {
        let root = read_root_tree(store, root)?;
        let entries = root.entries.into_iter().map(|entry| TreeEntry {
            // Without the first slash, as all paths of an archive.
            name: entry.path[1..].into(),
            attributes: entry.attributes,
            node: entry.node,
        });
        let entries = order.sort(entries.collect());
        Ok(Self { store, order, skip, levels: vec![(Vec::new(), entries)], below: None })
    }
}

impl Order {
    fn sort(self, mut entries: Vec<TreeEntry>) -> vec::IntoIter<TreeEntry> {
        match self {
            // Trees are sorted so; tracked paths are whole paths.
            Self::Paths => entries.sort_by(|a, b| byte_path::order(&a.name, &b.name)),
            // A name is followed by `/`, or by `:sha256:HEX`.
            Self::Lines => entries.sort_by_cached_key(|entry| {
                let mut key = encode(&entry.name).into_owned();
                match &entry.node {
                    Node::File { hash, .. } => key.push_str(&format!(":sha256:{hash}")),
                    Node::Directory { .. } => key.push('/'),
                    _ => key.push(':'),
                }
                key
            }),
        }
        entries.into_iter()
    }
}

impl Iterator for Walk<'_> {
    /// The path without its first slash, and the state.
    type Item = Result<(Vec<u8>, EntryState), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((path, tree)) = self.below.take()
            && !self.skip.contains(&tree)
        {
            match read_tree(self.store, &tree) {
                Ok(tree) => self.levels.push((path, self.order.sort(tree.into_entries()))),
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
            let path = byte_path::join(base, &name);
            if let Node::Directory { tree } = &node {
                self.below = Some((path.clone(), *tree));
            }
            return Some(Ok((path, EntryState { attributes, node })));
        }
    }
}
