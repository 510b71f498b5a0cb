//! Reading the document as a stream.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserializer, de};

use super::{
    DeltaEntry, DeltaEntryType, DeltaManifest, DeltaStats, HashLines, LineSum, parse_prefixed,
};
use crate::{ArchiveError, MAX_CHAIN_DEPTH};
use nono_engine::object::ContentHash;

/// A reader of the document, and the receivers of its lines.
pub(crate) struct Reader<'a> {
    /// Gets the path and the hash of each file of the state, in the order of the lines.
    pub(crate) line: &'a mut dyn FnMut(&str, &ContentHash) -> Result<(), ArchiveError>,
    /// Gets each entry, complete, in the order of the document.
    pub(crate) entry: &'a mut dyn FnMut(DeltaEntry) -> Result<(), ArchiveError>,
}

impl Reader<'_> {
    /// Reads the document. What the lines say of the whole is checked at its end.
    pub(crate) fn read(&mut self, document: impl Read) -> Result<DeltaManifest, ArchiveError> {
        let mut refused = None;
        let mut json = serde_json::Deserializer::from_reader(document);
        let whole = Whole { reader: self, refused: &mut refused };
        let read = whole.deserialize(&mut json).and_then(|read| json.end().map(|()| read));
        match (refused, read) {
            (Some(error), _) => Err(error),
            (None, Ok(read)) => Ok(read),
            (None, Err(error)) => Err(ArchiveError::corrupt(error.to_string())),
        }
    }
}

/// Counts of the entries that came.
#[derive(Default)]
struct Entries {
    added: u64,
    modified: u64,
    removed: u64,
}

/// The declarations of the document about the whole state.
struct Declared {
    lines: HashLines,
    count: u64,
    root_hash: ContentHash,
}

/// Checks what the parts do not say by themselves.
fn validate(
    read: &DeltaManifest,
    declared: &Declared,
    entries: &Entries,
) -> Result<(), &'static str> {
    let DeltaManifest { parent_id, chain_depth, stats, .. } = read;
    if declared.lines.count != declared.count || stats.total_files != declared.count {
        return Err("it declares another number of files than it lists");
    }
    if declared.lines.root_hash != declared.root_hash {
        return Err("its rootHash is not that of the files that it lists");
    }
    match parent_id {
        None if *chain_depth != 0 => return Err("a full archive with a chain"),
        None if stats.added != stats.total_files || stats.modified + stats.removed != 0 => {
            return Err("a full archive that adds not all files");
        }
        Some(_) if *chain_depth == 0 => return Err("a delta without a chain"),
        _ if *chain_depth > MAX_CHAIN_DEPTH => return Err("a chain of too many deltas"),
        _ => {}
    }
    let Entries { added, modified, removed } = entries;
    if [*added, *modified, *removed] != [stats.added, stats.modified, stats.removed] {
        return Err("its stats do not count its entries");
    }
    match stats.unchanged.checked_add(added + modified) == Some(declared.count) {
        true => Ok(()),
        false => Err("its stats do not add up"),
    }
}

struct Whole<'r, 'a> {
    reader: &'r mut Reader<'a>,
    refused: &'r mut Option<ArchiveError>,
}

impl<'de> DeserializeSeed<'de> for Whole<'_, '_> {
    type Value = DeltaManifest;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<DeltaManifest, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_, '_> {
    type Value = DeltaManifest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a delta manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<DeltaManifest, A::Error> {
        let Self { reader, refused } = self;
        let (mut parent, mut base, mut depth, mut stats) = (None, None, None, None);
        let (mut declared, mut entries) = (None, None);
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "parentId" => once(&mut parent, "parentId", map.next_value()?)?,
                "baseId" => once(&mut base, "baseId", map.next_value()?)?,
                "chainDepth" => once(&mut depth, "chainDepth", map.next_value()?)?,
                "stats" => once(&mut stats, "stats", map.next_value::<DeltaStats>()?)?,
                "resultHashes" => {
                    let state = State { line: &mut *reader.line, refused: &mut *refused };
                    once(&mut declared, "resultHashes", map.next_value_seed(state)?)?;
                }
                "entries" => {
                    let list = List { entry: &mut *reader.entry, refused: &mut *refused };
                    once(&mut entries, "entries", map.next_value_seed(list)?)?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let declared = needed(declared, "resultHashes")?;
        let read = DeltaManifest {
            parent_id: needed(parent, "parentId")?,
            base_id: needed(base, "baseId")?,
            chain_depth: needed(depth, "chainDepth")?,
            result_hashes: declared.lines,
            stats: needed(stats, "stats")?,
        };
        validate(&read, &declared, &needed(entries, "entries")?).map_err(de::Error::custom)?;
        Ok(read)
    }
}

fn once<T, E: de::Error>(place: &mut Option<T>, key: &'static str, value: T) -> Result<(), E> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(E::duplicate_field(key)),
    }
}

fn needed<T, E: de::Error>(value: Option<T>, key: &'static str) -> Result<T, E> {
    value.ok_or_else(|| E::missing_field(key))
}

/// Keeps an error for [`Reader::read`], and ends the reading.
fn refuse<E: de::Error>(refused: &mut Option<ArchiveError>, error: ArchiveError) -> E {
    *refused = Some(error);
    E::custom("refused")
}

/// `resultHashes`.
struct State<'r> {
    line: &'r mut dyn FnMut(&str, &ContentHash) -> Result<(), ArchiveError>,
    refused: &'r mut Option<ArchiveError>,
}

impl<'de> DeserializeSeed<'de> for State<'_> {
    type Value = Declared;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Declared, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for State<'_> {
    type Value = Declared;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the hashes of a state")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Declared, A::Error> {
        let (mut lines, mut count, mut root_hash) = (None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "files" => {
                    let files = Files { line: &mut *self.line, refused: &mut *self.refused };
                    once(&mut lines, "files", map.next_value_seed(files)?)?;
                }
                "count" => once(&mut count, "count", map.next_value()?)?,
                "rootHash" => {
                    let hash = parse_prefixed(&map.next_value::<String>()?);
                    once(&mut root_hash, "rootHash", hash.map_err(de::Error::custom)?)?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Declared {
            lines: needed(lines, "files")?,
            count: needed(count, "count")?,
            root_hash: needed(root_hash, "rootHash")?,
        })
    }
}

/// Path → hash of every file.
struct Files<'r> {
    line: &'r mut dyn FnMut(&str, &ContentHash) -> Result<(), ArchiveError>,
    refused: &'r mut Option<ArchiveError>,
}

impl<'de> DeserializeSeed<'de> for Files<'_> {
    type Value = HashLines;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<HashLines, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Files<'_> {
    type Value = HashLines;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("paths and their hashes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HashLines, A::Error> {
        let mut sum = LineSum::default();
        let (mut last, mut line) = (String::new(), String::new());
        while let Some((path, hash)) = map.next_entry::<String, String>()? {
            let parsed = parse_prefixed(&hash).map_err(de::Error::custom)?;
            line.clear();
            line.extend([&*path, ":", &*hash]);
            if line <= last {
                return Err(de::Error::custom("a file out of order or twice"));
            }
            sum.add(&path, &hash);
            (self.line)(&path, &parsed).map_err(|error| refuse(self.refused, error))?;
            std::mem::swap(&mut line, &mut last);
        }
        Ok(sum.finish())
    }
}

/// `entries`.
struct List<'r> {
    entry: &'r mut dyn FnMut(DeltaEntry) -> Result<(), ArchiveError>,
    refused: &'r mut Option<ArchiveError>,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Entries;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Entries, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("entries")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
        let mut entries = Entries::default();
        while let Some(entry) = list.next_element::<DeltaEntry>()? {
            let has_contents = entry.hash.is_some() && entry.size.is_some();
            let has_nothing = entry.hash.is_none() && entry.size.is_none();
            let (count, is_complete) = match entry.entry_type {
                DeltaEntryType::Added => (&mut entries.added, has_contents),
                DeltaEntryType::Modified => (&mut entries.modified, has_contents),
                DeltaEntryType::Removed => (&mut entries.removed, has_nothing),
            };
            if !is_complete {
                let reason = format!("the entry of {:?} is not complete", entry.path);
                return Err(de::Error::custom(reason));
            }
            *count += 1;
            (self.entry)(entry).map_err(|error| refuse(self.refused, error))?;
        }
        Ok(entries)
    }
}
