//! `meta/delta-manifest.json` as a stream. A tar file says the length of a member before it, so the
//! lines are counted where their files are counted anyway.

use std::io::Write;

use serde::Serialize;

use super::walk::{Walk, asking};
use crate::ArchiveError;
use crate::delta::{DeltaEntry, DeltaEntryType, DeltaStats, HASH_PREFIX, HashLines, LineSum};
use crate::name::ArchiveId;
use nono_engine::diff::{Difference, EntryState, differences};
use nono_engine::object::{ContentHash, Node};
use nono_engine::path_text::encode;
use nono_engine::progress::Progress;
use nono_engine::store::ObjectSource;

/// The facts of the document.
pub(super) struct Document<'a> {
    pub(super) store: &'a dyn ObjectSource,
    pub(super) merkle_root: ContentHash,
    pub(super) parent: Option<&'a ArchiveId>,
    pub(super) base: &'a ArchiveId,
    pub(super) chain_depth: u32,
    pub(super) stats: DeltaStats,
    /// The Merkle root of the parent. `None`: every file is added.
    pub(super) parent_root: Option<ContentHash>,
    pub(super) state: &'a State,
    pub(super) entries: Lines,
    pub(super) progress: &'a dyn Progress,
}

/// Lines of a list of the document.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lines {
    count: u64,
    /// Without what stands between them.
    bytes: u64,
}

impl Lines {
    fn add(&mut self, line: &[u8]) {
        self.count += 1;
        self.bytes += line.len() as u64;
    }

    /// The line of an entry, for who only counts them.
    pub(super) fn add_entry(&mut self, entry: &DeltaEntry, buffer: &mut Vec<u8>) {
        entry_line(entry, buffer);
        self.add(buffer);
    }

    /// Length of a list of these lines.
    fn list_bytes(self) -> u64 {
        self.bytes + self.count * FIRST.len() as u64 + self.count.saturating_sub(1)
    }
}

/// Stands before the first line of a list.
const FIRST: &str = "\n";
/// Stands before each other line.
const NEXT: &str = ",\n";

/// All files of a snapshot, added up.
#[derive(Debug)]
pub(super) struct State {
    pub(super) sum: HashLines,
    /// Bytes of the contents.
    pub(super) bytes: u64,
    lines: Lines,
    /// The entries, were every file an added one.
    pub(super) added: Lines,
}

impl State {
    pub(super) fn of(
        store: &dyn ObjectSource,
        root: &ContentHash,
        progress: &dyn Progress,
    ) -> Result<Self, ArchiveError> {
        let (mut sum, mut bytes) = (LineSum::default(), 0u64);
        let (mut lines, mut added) = (Lines::default(), Lines::default());
        let mut buffer = Vec::new();
        let walk = Walk::of_lines(store, root, Default::default())?;
        for found in asking(walk, progress) {
            let (path, state) = found?;
            let Some(file) = file_of(&state) else { continue };
            sum.add(&encode(&path), &format!("{HASH_PREFIX}{}", file.0));
            bytes = bytes.saturating_add(file.1);
            hash_line(&path, &file.0, &mut buffer);
            lines.add(&buffer);
            added.add_entry(&entry(&path, DeltaEntryType::Added, Some(file)), &mut buffer);
        }
        Ok(Self { sum: sum.finish(), bytes, lines, added })
    }
}

impl Document<'_> {
    /// Its length in bytes.
    pub(super) fn size(&self) -> u64 {
        let parts = [self.head(), BETWEEN.to_owned(), END.to_owned()];
        let lists = self.state.lines.list_bytes() + self.entries.list_bytes();
        lists + parts.iter().map(|part| part.len() as u64).sum::<u64>()
    }

    fn head(&self) -> String {
        let HashLines { count, root_hash } = self.state.sum;
        format!(
            "{{\n\"parentId\": {},\n\"baseId\": {},\n\"chainDepth\": {},\n\"stats\": {},\n\
             \"resultHashes\": {{ \"count\": {count}, \"rootHash\": \"{HASH_PREFIX}{root_hash}\", \
             \"files\": {{",
            json(&self.parent),
            json(self.base),
            self.chain_depth,
            self.stats.in_document(),
        )
    }

    pub(super) fn write(&self, out: &mut impl Write) -> Result<(), ArchiveError> {
        let failed = ArchiveError::Write;
        out.write_all(self.head().as_bytes()).map_err(failed)?;
        let (mut before, mut buffer) = (FIRST, Vec::new());
        let walk = Walk::of_lines(self.store, &self.merkle_root, Default::default())?;
        for found in asking(walk, self.progress) {
            let (path, state) = found?;
            if let Some((hash, _)) = file_of(&state) {
                hash_line(&path, &hash, &mut buffer);
                out.write_all(before.as_bytes()).map_err(failed)?;
                out.write_all(&buffer).map_err(failed)?;
                before = NEXT;
            }
        }
        out.write_all(BETWEEN.as_bytes()).map_err(failed)?;
        let mut before = FIRST;
        let (parent, root) = (self.parent_root.as_ref(), &self.merkle_root);
        each_entry(self.store, parent, root, self.progress, |entry| {
            entry_line(&entry, &mut buffer);
            out.write_all(before.as_bytes()).map_err(failed)?;
            before = NEXT;
            out.write_all(&buffer).map_err(failed)
        })?;
        out.write_all(END.as_bytes()).map_err(failed)
    }
}

/// Tells of every entry that the document of a snapshot has, in their order.
pub(crate) fn each_entry(
    store: &dyn ObjectSource,
    parent_root: Option<&ContentHash>,
    root: &ContentHash,
    progress: &dyn Progress,
    mut see: impl FnMut(DeltaEntry) -> Result<(), ArchiveError>,
) -> Result<(), ArchiveError> {
    let Some(parent_root) = parent_root else {
        for found in asking(Walk::of_paths(store, root)?, progress) {
            let (path, state) = found?;
            if let Some(file) = file_of(&state) {
                see(entry(&path, DeltaEntryType::Added, Some(file)))?;
            }
        }
        return Ok(());
    };
    for found in asking(differences(store, parent_root, root)?, progress) {
        if let Some(entry) = entry_of(&found?) {
            see(entry)?;
        }
    }
    Ok(())
}

/// The hash and the length of a file.
fn file_of(state: &EntryState) -> Option<(ContentHash, u64)> {
    match state.node {
        Node::File { hash, size, .. } => Some((hash, size)),
        _ => None,
    }
}

/// The entry of a difference, unless it is none between files.
pub(super) fn entry_of(found: &Difference) -> Option<DeltaEntry> {
    let (old, new) =
        (found.old.as_deref().and_then(file_of), found.new.as_deref().and_then(file_of));
    let entry_type = match (old, new) {
        (Some((old, _)), Some((new, _))) if old == new => return None,
        (None, None) => return None,
        (Some(_), Some(_)) => DeltaEntryType::Modified,
        (None, Some(_)) => DeltaEntryType::Added,
        (Some(_), None) => DeltaEntryType::Removed,
    };
    Some(entry(&found.path[1..], entry_type, new))
}

fn entry(path: &[u8], entry_type: DeltaEntryType, file: Option<(ContentHash, u64)>) -> DeltaEntry {
    let path = encode(path).into_owned();
    DeltaEntry { path, entry_type, hash: file.map(|it| it.0), size: file.map(|it| it.1) }
}

/// Stands between the two lists.
const BETWEEN: &str = "\n} },\n\"entries\": [";
const END: &str = "\n]\n}\n";

/// The line of a file in `resultHashes`.
fn hash_line(path: &[u8], hash: &ContentHash, line: &mut Vec<u8>) {
    line.clear();
    write_json(&*encode(path), line);
    // Writing to memory cannot fail.
    let _ = write!(line, ": \"{HASH_PREFIX}{hash}\"");
}

fn entry_line(entry: &DeltaEntry, line: &mut Vec<u8>) {
    line.clear();
    write_json(entry, line);
}

fn write_json(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) {
    // Strings and numbers alone: this cannot fail.
    let _ = serde_json::to_writer(out, value);
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nono_engine::object::{Attributes, RootEntry, RootTree, Tree, TreeEntry};
    use nono_engine::store::{MemoryStore, ObjectStore};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Says stop when it was asked so often.
    struct After(u64, AtomicU64);

    impl Progress for After {
        fn advance(&self, _entries: u64, _bytes: u64) {}

        fn is_cancelled(&self) -> bool {
            self.1.fetch_add(1, Ordering::Relaxed) >= self.0
        }
    }

    #[test]
    fn a_walk_of_more_directories_than_anybody_can_visit_can_be_stopped() {
        let store = MemoryStore::default();
        let mut below = store.write(&Tree::new(Vec::new()).encode()).unwrap().hash;
        for _ in 0..60 {
            let entry = |name: &str| TreeEntry {
                name: name.as_bytes().into(),
                attributes: Attributes::default(),
                node: Node::Directory { tree: below },
            };
            below = store.write(&Tree::new(vec![entry("a"), entry("b")]).encode()).unwrap().hash;
        }
        let top = RootEntry {
            path: b"/top"[..].into(),
            attributes: Attributes::default(),
            node: Node::Directory { tree: below },
        };
        let root = RootTree { entries: vec![top], links: None };
        let root = store.write(&root.encode()).unwrap().hash;
        let stopping = After(1000, AtomicU64::new(0));
        let stopped = State::of(&store, &root, &stopping);
        assert!(matches!(stopped, Err(ArchiveError::Cancelled)), "{stopped:?}");
        assert_eq!(stopping.1.into_inner(), 1001);
    }
}
