//! Whether the trees of a snapshot are what its archive and its manifest say of them.

use std::collections::{HashMap, HashSet};

use super::ArchiveError;
use super::delta::{HASH_PREFIX, LineSum};
use super::read::ArchiveHead;
use super::write::{Walk, asking};
use nono_engine::manifest::{SnapshotManifest, Totals};
use nono_engine::object::{ContentHash, Node};
use nono_engine::path_text::{Shown, encode};
use nono_engine::progress::Progress;
use nono_engine::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// A state of more entries is refused: a few trees can name more than any program can visit.
const MAX_ENTRIES: u64 = 1 << 28;

/// Compares a state with what its archive and its manifest say of it.
///
/// # Errors
/// [`ArchiveError::Corrupt`] with the difference, [`ArchiveError::TooLarge`],
/// [`ArchiveError::Cancelled`], or a tree that cannot be read.
pub(super) fn check(
    store: &dyn ObjectSource,
    head: &ArchiveHead,
    manifest: &SnapshotManifest,
    progress: &dyn Progress,
) -> Result<(), ArchiveError> {
    let (held, empty) = count(store, &head.merkle_root)?;
    // First, because a few trees can name more paths than any program can visit.
    if held.files != head.stats.total_files {
        return Err(ArchiveError::corrupt(format!(
            "{} declares {} files and has {}",
            head.id, head.stats.total_files, held.files
        )));
    }
    // Directories are no files, and a few trees can name more of them than a program can visit.
    if held.entries > MAX_ENTRIES {
        let reason = format!("{} has {} entries", head.id, held.entries);
        return Err(ArchiveError::TooLarge { reason });
    }
    let Totals { file_count, entry_count, total_bytes, .. } = manifest.totals;
    if held != (Count { files: file_count, entries: entry_count, bytes: total_bytes }) {
        let id = &head.id;
        return Err(ArchiveError::corrupt(format!("the totals of {id} are not its trees'")));
    }
    let is_tracked = |path: &[u8]| {
        manifest.roots.iter().any(|root| root.path.as_os_str().as_encoded_bytes() == path)
    };
    let entries = read_root_tree(store, &head.merkle_root)?.entries;
    if let Some(entry) = entries.iter().find(|entry| !is_tracked(&entry.path)) {
        let (id, path) = (&head.id, Shown::bytes(&entry.path));
        return Err(ArchiveError::corrupt(format!("{id} holds {path}, which it does not track")));
    }
    let mut sum = LineSum::default();
    for found in asking(Walk::of_lines(store, &head.merkle_root, empty)?, progress) {
        let (path, state) = found?;
        if let Node::File { hash, .. } = state.node {
            sum.add(&encode(&path), &format!("{HASH_PREFIX}{hash}"));
        }
    }
    match sum.finish().root_hash == head.root_hash {
        true => Ok(()),
        false => Err(ArchiveError::corrupt(format!(
            "the files of {} are not those of its Merkle root",
            head.id
        ))),
    }
}

/// The entries below a directory, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    files: u64,
    entries: u64,
    bytes: u64,
}

impl Count {
    fn and(self, other: Self) -> Self {
        Self {
            files: self.files.saturating_add(other.files),
            entries: self.entries.saturating_add(other.entries),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Counts the entries below a root, and the trees without any file. Visits each tree once, however
/// often it is named.
fn count(
    store: &dyn ObjectSource,
    root: &ContentHash,
) -> Result<(Count, HashSet<ContentHash>), StoreError> {
    let mut counts: HashMap<ContentHash, Count> = HashMap::new();
    let children = |nodes: Vec<Node>| {
        let mut own = Count::default();
        let mut trees = Vec::new();
        for node in nodes {
            own.entries += 1;
            match node {
                Node::File { size, .. } => {
                    own = own.and(Count { files: 1, entries: 0, bytes: size });
                }
                Node::Directory { tree } => trees.push(tree),
                _ => {}
            }
        }
        (own, trees)
    };
    let entries = read_root_tree(store, root)?.entries;
    let (own, tops) = children(entries.into_iter().map(|entry| entry.node).collect());
    let mut pending = tops.clone();
    while let Some(hash) = pending.last().copied() {
        if counts.contains_key(&hash) {
            pending.pop();
            continue;
        }
        let entries = read_tree(store, &hash)?.into_entries();
        let (own, trees) = children(entries.into_iter().map(|entry| entry.node).collect());
        let before = pending.len();
        pending.extend(trees.iter().filter(|tree| !counts.contains_key(*tree)));
        if pending.len() == before {
            counts.insert(hash, trees.iter().map(|tree| counts[tree]).fold(own, Count::and));
            pending.pop();
        }
    }
    let all = tops.iter().map(|tree| counts[tree]).fold(own, Count::and);
    let empty = counts.into_iter().filter(|(_, held)| held.files == 0).map(|(hash, _)| hash);
    Ok((all, empty.collect()))
}
