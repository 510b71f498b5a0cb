//! `meta/delta-manifest.json` as a stream: written twice, first to learn its length.

use std::io::{self, Write};

use super::walk::Walk;
use crate::archive::ArchiveError;
use crate::archive::delta::{
    DeltaEntry, DeltaEntryType, DeltaStats, HASH_PREFIX, HashLines, LineSum,
};
use crate::archive::name::ArchiveId;
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
    /// The entries of a delta. `None`: every file is added.
    pub(super) entries: Option<&'a [DeltaEntry]>,
    pub(super) sum: HashLines,
}

/// Adds the files of a snapshot up: their lines, and their bytes.
pub(super) fn add_up(
    store: &dyn ObjectSource,
    root: &ContentHash,
) -> Result<(HashLines, u64), StoreError> {
    let (mut sum, mut bytes) = (LineSum::default(), 0u64);
    for found in Walk::new(store, root, Default::default())? {
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
            json(&self.stats),
        )
        .map_err(failed)?;
        write!(
            out,
            "\"resultHashes\": {{ \"count\": {count}, \"rootHash\": \"{HASH_PREFIX}{root_hash}\", \"files\": {{"
        )
        .map_err(failed)?;
        let mut before = "\n";
        self.each_file(|path, hash, _| {
            write!(out, "{before}{}: \"{HASH_PREFIX}{hash}\"", json(&&*encode(path)))?;
            before = ",\n";
            Ok(())
        })?;
        out.write_all(b"\n} },\n\"entries\": [").map_err(failed)?;
        let mut before = "\n";
        match self.entries {
            Some(entries) => {
                for entry in entries {
                    write!(out, "{before}{}", json(entry)).map_err(failed)?;
                    before = ",\n";
                }
            }
            None => self.each_file(|path, hash, size| {
                let entry = DeltaEntry {
                    path: encode(path).into_owned(),
                    entry_type: DeltaEntryType::Added,
                    hash: Some(*hash),
                    size: Some(size),
                };
                write!(out, "{before}{}", json(&entry))?;
                before = ",\n";
                Ok(())
            })?,
        }
        out.write_all(b"\n]\n}\n").map_err(failed)
    }

    fn each_file(
        &self,
        mut see: impl FnMut(&[u8], &ContentHash, u64) -> io::Result<()>,
    ) -> Result<(), ArchiveError> {
        for found in Walk::new(self.store, &self.merkle_root, Default::default())? {
            let (path, state) = found?;
            if let Node::File { hash, size, .. } = state.node {
                see(&path, &hash, size).map_err(ArchiveError::Write)?;
            }
        }
        Ok(())
    }
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
