//! Reading everything that a snapshot reaches, from the disk and not from memory.
//!
//! A readable byte may be in memory alone: the kernel may still hold pages that it failed to write.
//! So each object's cached pages are dropped first. The kernel drops only the pages that it has
//! written or given up.

use std::collections::HashSet;
use std::sync::Once;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use crate::object::{ContentHash, Node};
use crate::store::{
    LocalStore, ObjectFile, ObjectSource, StoreError, Transfer, read_links, read_root_tree,
    read_tree,
};

/// Number of trees that are read before the files in them.
const TREES_AT_ONCE: usize = 1024;
/// Longer work is said.
const SILENT: Duration = Duration::from_millis(500);

/// Reads every object that a root reaches, each once, after the store was flushed. `say` is called
/// when that takes longer than a moment.
///
/// # Errors
/// The error of the first object that is missing or damaged, or cannot be read.
pub(super) fn read_back(
    store: &LocalStore,
    root: &ContentHash,
    say: impl Fn() + Sync,
) -> Result<(), StoreError> {
    let (started, said) = (Instant::now(), Once::new());
    store.drop_cached_packs()?;
    let on_disk = OnDisk(store);
    let root = read_root_tree(&on_disk, root)?;
    read_links(&on_disk, root.links.as_ref())?;
    let mut seen = HashSet::new();
    let (mut trees, mut files) = (Vec::new(), Vec::new());
    let mut meet =
        |node: Node, trees: &mut Vec<ContentHash>, files: &mut Vec<ContentHash>| match node {
            Node::Directory { tree } if seen.insert(tree) => trees.push(tree),
            Node::File { hash, midstates, .. } => {
                files.extend(
                    [Some(hash), midstates.name()]
                        .into_iter()
                        .flatten()
                        .filter(|of| seen.insert(*of)),
                );
            }
            _ => {}
        };
    for entry in root.entries {
        meet(entry.node, &mut trees, &mut files);
    }
    while !(trees.is_empty() && files.is_empty()) {
        let batch = trees.split_off(trees.len().saturating_sub(TREES_AT_ONCE));
        let lists: Vec<_> =
            batch.par_iter().map(|tree| read_tree(&on_disk, tree)).collect::<Result<_, _>>()?;
        for entry in lists.into_iter().flat_map(|list| list.into_entries()) {
            meet(entry.node, &mut trees, &mut files);
        }
        files.par_drain(..).try_for_each_init(Vec::new, |scratch, hash| {
            if started.elapsed() >= SILENT {
                said.call_once(&say);
            }
            on_disk.open(&hash)?.verify(&mut Transfer::unwatched(scratch))
        })?;
    }
    Ok(())
}

/// A store whose objects are read from the disk.
struct OnDisk<'a>(&'a LocalStore);

impl OnDisk<'_> {
    fn open(&self, hash: &ContentHash) -> Result<ObjectFile, StoreError> {
        let object = self.0.open_object(hash)?;
        object.drop_cached_pages();
        Ok(object)
    }
}

impl ObjectSource for OnDisk<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        self.open(hash)?.read_checked(max_bytes, &mut bytes)?;
        Ok(bytes)
    }
}
