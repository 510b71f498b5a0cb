//! `meta/delta-manifest.json`: what an archive adds to its parent, and the whole state after it.
//!
//! The hashes of the whole state may be millions of lines. They are added up while they are read,
//! and not kept.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::name::ArchiveId;
use crate::object::{ContentHash, Hasher};

/// In front of every hash.
pub(super) const HASH_PREFIX: &str = "sha256:";

/// The document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeltaManifest {
    /// The snapshot to which this is the difference; `None` in a full archive.
    pub parent_id: Option<ArchiveId>,
    /// The snapshot of the full archive at the end of the chain; its own in a full archive.
    pub base_id: ArchiveId,
    /// The number of deltas down to the full archive; 0 in a full one.
    pub chain_depth: u32,
    /// The whole state.
    pub result_hashes: ResultHashes,
    /// The files in this archive, and those that are gone; in the order of the archive.
    pub entries: Vec<DeltaEntry>,
    /// Counts.
    pub stats: DeltaStats,
}

/// The files of a state, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResultHashes {
    /// Path → hash of each file.
    pub files: HashLines,
    /// The number of files, as it is declared.
    pub count: u64,
    /// SHA-256 of the sorted lines `path:sha256:HEX`, as it is declared.
    #[serde(with = "prefixed")]
    pub root_hash: ContentHash,
}

/// The sum of lines `path:sha256:HEX` that were read one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashLines {
    /// The number of lines.
    pub count: u64,
    /// SHA-256 of the lines, joined by `\n`.
    pub root_hash: ContentHash,
}

/// One file that an archive adds, replaces or takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeltaEntry {
    /// The absolute path without its first slash, in the text form of [`crate::path_text`].
    pub path: String,
    /// What happens to it.
    #[serde(rename = "type")]
    pub entry_type: DeltaEntryType,
    /// Hash of the contents; `None` of a removed file.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "prefixed_option")]
    pub hash: Option<ContentHash>,
    /// Length in bytes; `None` of a removed file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// What happens to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeltaEntryType {
    /// It is new; the contents are in the archive.
    Added,
    /// Its contents are others; they are in the archive.
    Modified,
    /// It is gone.
    Removed,
}

/// Numbers of files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

impl DeltaManifest {
    /// Checks what the types do not say.
    pub(super) fn validate(&self) -> Result<(), String> {
        let Self { parent_id, base_id, chain_depth, result_hashes, entries, stats } = self;
        let ResultHashes { files, count, root_hash } = result_hashes;
        if files.count != *count || stats.total_files != *count {
            return Err(format!("it declares {count} files and lists {}", files.count));
        }
        if files.root_hash != *root_hash {
            return Err("its rootHash is not that of the files that it lists".to_owned());
        }
        match parent_id {
            None if *chain_depth != 0 => return Err("a full archive with a chain".to_owned()),
            Some(_) if *chain_depth == 0 => return Err("a delta without a chain".to_owned()),
            Some(parent) if parent.session() != base_id.session() => {
                return Err("its parent and its base are of two sessions".to_owned());
            }
            _ if *chain_depth > super::MAX_CHAIN_DEPTH => {
                return Err(format!("a chain of {chain_depth} deltas"));
            }
            _ => {}
        }
        let of = |wanted| entries.iter().filter(|it| it.entry_type == wanted).count() as u64;
        let counts =
            [DeltaEntryType::Added, DeltaEntryType::Modified, DeltaEntryType::Removed].map(of);
        if counts != [stats.added, stats.modified, stats.removed] {
            return Err("its stats do not count its entries".to_owned());
        }
        if stats.unchanged.checked_add(stats.added + stats.modified) != Some(*count) {
            return Err("its stats do not add up".to_owned());
        }
        for entry in entries {
            let has_contents = entry.hash.is_some() && entry.size.is_some();
            if has_contents == (entry.entry_type == DeltaEntryType::Removed) {
                return Err(format!("the entry of {:?} is not complete", entry.path));
            }
        }
        Ok(())
    }
}

/// Adds lines up, in their order.
#[derive(Default)]
pub(super) struct LineSum {
    hasher: Hasher,
    count: u64,
}

impl LineSum {
    /// Adds the line of a file.
    pub(super) fn add(&mut self, path: &str, hash: &str) {
        if self.count > 0 {
            self.hasher.update(b"\n");
        }
        self.hasher.update(path.as_bytes());
        self.hasher.update(b":");
        self.hasher.update(hash.as_bytes());
        self.count += 1;
    }

    pub(super) fn finish(self) -> HashLines {
        HashLines { count: self.count, root_hash: self.hasher.finish() }
    }
}

impl<'de> Deserialize<'de> for HashLines {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lines;
        impl<'de> Visitor<'de> for Lines {
            type Value = HashLines;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("paths and their hashes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HashLines, A::Error> {
                let mut sum = LineSum::default();
                let mut last = String::new();
                while let Some((path, hash)) = map.next_entry::<String, String>()? {
                    parse_prefixed(&hash).map_err(de::Error::custom)?;
                    let line = format!("{path}:{hash}");
                    if line <= last {
                        return Err(de::Error::custom("a file out of order or twice"));
                    }
                    sum.add(&path, &hash);
                    last = line;
                }
                Ok(sum.finish())
            }
        }
        deserializer.deserialize_map(Lines)
    }
}

fn parse_prefixed(text: &str) -> Result<ContentHash, String> {
    let hash = text.strip_prefix(HASH_PREFIX).and_then(|hex| hex.parse::<ContentHash>().ok());
    let hash = hash.filter(|hash| text[HASH_PREFIX.len()..] == hash.hex());
    hash.ok_or_else(|| "not a hash as in sha256:HEX".to_owned())
}

/// Serde for a hash with its prefix.
mod prefixed {
    use super::*;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ContentHash, D::Error> {
        parse_prefixed(&String::deserialize(from)?).map_err(de::Error::custom)
    }
}

/// Serde for a hash with its prefix, or none.
mod prefixed_option {
    use super::*;

    #[allow(clippy::ref_option, reason = "serde asks for it")]
    pub(super) fn serialize<S: serde::Serializer>(
        hash: &Option<ContentHash>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => to.collect_str(&format_args!("{HASH_PREFIX}{hash}")),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<ContentHash>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| parse_prefixed(&text).map_err(de::Error::custom)).transpose()
    }
}
