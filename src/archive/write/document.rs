//! `meta/delta-manifest.json` as a stream: written twice, first to learn its length.

use std::io::{self, Write};

use super::walk::Walk;
use crate::archive::ArchiveError;
use crate::archive::delta::{
    DeltaEntry, DeltaEntryType, DeltaStats, HASH_PREFIX, HashLines, LineSum,
};
use crate::archive::name::ArchiveId;
use crate::diff::{Difference, EntryState, differences};
use crate::object::{ContentHash, Node};
use crate::path_text::encode;
use crate::store::{ObjectSource, StoreError};

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
    pub(super) sum: HashLines,
}

/// Adds the files of a snapshot up: their lines, and their bytes.
pub(super) fn add_up(
    store: &dyn ObjectSource,
    root: &ContentHash,
) -> Result<(HashLines, u64), StoreError> {
    let (mut sum, mut bytes) = (LineSum::default(), 0u64);
    for found in Walk::of_lines(store, root, Default::default())? {
        let (path, state) = found?;
        if let Node::File { hash, size, .. } = state.node {
            sum.add(&encode(&path), &format!("{HASH_PREFIX}{hash}"));
            bytes = bytes.saturating_add(size);
        }
    }
    Ok((sum.finish(), bytes))
}

impl Document<'_> {
    /// Its length in bytes.
    pub(super) fn size(&self) -> Result<u64, ArchiveError> {
        let mut counter = Counter(0);
        self.write(&mut counter)?;
        Ok(counter.0)
    }

    pub(super) fn write(&self, out: &mut impl Write) -> Result<(), ArchiveError> {
        let json = |value: &dyn erased::Json| value.text();
        let failed = ArchiveError::Write;
        let HashLines { count, root_hash } = self.sum;
        write!(
            out,
            "{{\n\"parentId\": {},\n\"baseId\": {},\n\"chainDepth\": {},\n\"stats\": {},\n",
            json(&self.parent),
            json(self.base),
            self.chain_depth,
            self.stats.in_document(),
        )
        .map_err(failed)?;
        write!(
            out,
            "\"resultHashes\": {{ \"count\": {count}, \"rootHash\": \"{HASH_PREFIX}{root_hash}\", \"files\": {{"
        )
        .map_err(failed)?;
        let mut before = "\n";
        for found in Walk::of_lines(self.store, &self.merkle_root, Default::default())? {
            let (path, state) = found?;
            if let Node::File { hash, .. } = state.node {
                let path = encode(&path);
                write!(out, "{before}{}: \"{HASH_PREFIX}{hash}\"", json(&&*path))
                    .map_err(failed)?;
                before = ",\n";
            }
        }
        out.write_all(b"\n} },\n\"entries\": [").map_err(failed)?;
        let mut before = "\n";
        self.each_entry(|entry| {
            write!(out, "{before}{}", json(&entry))?;
            before = ",\n";
            Ok(())
        })?;
        out.write_all(b"\n]\n}\n").map_err(failed)
    }

    fn each_entry(
        &self,
        mut see: impl FnMut(DeltaEntry) -> io::Result<()>,
    ) -> Result<(), ArchiveError> {
        let Some(parent_root) = &self.parent_root else {
            for found in Walk::of_paths(self.store, &self.merkle_root)? {
                let (path, state) = found?;
                if let Some(file) = file_of(&state) {
                    see(entry(&path, DeltaEntryType::Added, Some(file)))
                        .map_err(ArchiveError::Write)?;
                }
            }
            return Ok(());
        };
        for found in differences(self.store, parent_root, &self.merkle_root)? {
            if let Some(entry) = entry_of(&found?) {
                see(entry).map_err(ArchiveError::Write)?;
            }
        }
        Ok(())
    }
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

/// Counts what is written.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// JSON of any value, as one line.
mod erased {
    pub(super) trait Json {
        fn text(&self) -> String;
    }

    impl<T: serde::Serialize> Json for T {
        fn text(&self) -> String {
            // Strings and numbers alone: this cannot fail.
            serde_json::to_string(self).unwrap_or_default()
        }
    }
}
