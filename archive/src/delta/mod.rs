//! `meta/delta-manifest.json`: what an archive adds to its parent, and the whole state after it.
//!
//! The hashes of the whole state and the entries may be millions of lines. Each is handed on while
//! the document is read, and none is kept.

mod reader;

use serde::{Deserialize, Deserializer, Serialize, de};

pub(crate) use self::reader::Reader;

use crate::name::ArchiveId;
use nono_engine::object::{ContentHash, Hasher};

/// In front of every hash.
pub(crate) const HASH_PREFIX: &str = "sha256:";

/// The document, but for its long lists: those go to a [`Reader`] line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeltaManifest {
    /// The snapshot to which this is the difference; `None` in a full archive.
    pub(crate) parent_id: Option<ArchiveId>,
    /// The snapshot of the full archive at the end of the chain; its own in a full archive.
    pub(crate) base_id: ArchiveId,
    /// The number of deltas down to the full archive; 0 in a full one.
    pub(crate) chain_depth: u32,
    /// The whole state, added up.
    pub(crate) result_hashes: HashLines,
    /// Counts.
    pub(crate) stats: DeltaStats,
}

/// The sum of lines `path:sha256:HEX` that were read one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashLines {
    /// The number of lines.
    pub(crate) count: u64,
    /// SHA-256 of the lines, joined by `\n`.
    pub(crate) root_hash: ContentHash,
}

/// One file that an archive adds, replaces or takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeltaEntry {
    /// The absolute path without its first slash, in the text form of [`nono_engine::path_text`].
    pub(crate) path: String,
    /// The change of it.
    #[serde(rename = "type")]
    pub(crate) entry_type: DeltaEntryType,
    /// Hash of the contents; `None` of a removed file.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "prefixed_option")]
    pub(crate) hash: Option<ContentHash>,
    /// Length in bytes; `None` of a removed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
}

/// The change of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeltaEntryType {
    /// It is new; the contents are in the archive.
    Added,
    /// Its contents are others; they are in the archive.
    Modified,
    /// It is gone.
    Removed,
}

/// Numbers of files. Reports have the names of these fields, the document has them in camel case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "camelCase"))]
pub struct DeltaStats {
    /// New files.
    pub added: u64,
    /// Files with other contents.
    pub modified: u64,
    /// Files that are gone.
    pub removed: u64,
    /// Files whose contents are the same.
    pub unchanged: u64,
    /// Files of the whole state.
    pub total_files: u64,
    /// Bytes of the unchanged files.
    pub bytes_saved: u64,
}

impl DeltaStats {
    /// As they stand in the document.
    pub(crate) fn in_document(&self) -> String {
        let Self { added, modified, removed, unchanged, total_files, bytes_saved } = self;
        format!(
            "{{ \"added\": {added}, \"modified\": {modified}, \"removed\": {removed}, \
             \"unchanged\": {unchanged}, \"totalFiles\": {total_files}, \
             \"bytesSaved\": {bytes_saved} }}"
        )
    }
}

/// Adds lines up, in their order.
#[derive(Default)]
pub(crate) struct LineSum {
    hasher: Hasher,
    count: u64,
}

impl LineSum {
    /// Adds the line of a file.
    pub(crate) fn add(&mut self, path: &str, hash: &str) {
        if self.count > 0 {
            self.hasher.update(b"\n");
        }
        self.hasher.update(path.as_bytes());
        self.hasher.update(b":");
        self.hasher.update(hash.as_bytes());
        self.count += 1;
    }

    pub(crate) fn finish(self) -> HashLines {
        HashLines { count: self.count, root_hash: self.hasher.finish() }
    }
}

/// Adds entries up, in their order.
#[derive(Default)]
pub(crate) struct EntrySum {
    hasher: Hasher,
    buffer: Vec<u8>,
}

impl EntrySum {
    pub(crate) fn add(&mut self, entry: &DeltaEntry) {
        self.buffer.clear();
        // Strings and numbers alone: this cannot fail.
        let _ = serde_json::to_writer(&mut self.buffer, entry);
        self.buffer.push(b'\n');
        self.hasher.update(&self.buffer);
    }

    pub(crate) fn finish(self) -> ContentHash {
        self.hasher.finish()
    }
}

pub(crate) fn parse_prefixed(text: &str) -> Result<ContentHash, String> {
    let hash = text.strip_prefix(HASH_PREFIX).and_then(|hex| hex.parse::<ContentHash>().ok());
    let hash = hash.filter(|hash| text[HASH_PREFIX.len()..] == hash.hex());
    hash.ok_or_else(|| "not a hash as in sha256:HEX".to_owned())
}

/// Serde for a hash with its prefix, or none.
mod prefixed_option {
    use super::*;

    #[allow(clippy::ref_option, reason = "serde asks for it")]
    pub(crate) fn serialize<S: serde::Serializer>(
        hash: &Option<ContentHash>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => to.collect_str(&format_args!("{HASH_PREFIX}{hash}")),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ContentHash>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| parse_prefixed(&text).map_err(de::Error::custom)).transpose()
    }
}
