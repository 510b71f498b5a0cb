//! The top of a snapshot: its tracked paths and its hard links.
//!
//! The hash of the encoded [`RootTree`] is the snapshot's Merkle root. Hard-link groups stand in an
//! object of their own, so that links are committed to without making a subtree depend on what
//! another subtree holds.

use super::codec::{DecodeError, Reader, Writer};
use super::hash::ContentHash;
use super::midstates::{Midstates, MidstatesLink};
use super::tree::{
    Attributes, FORMAT_VERSION, MAX_PATH_BYTES, Node, is_name, midstates_of, read_entry,
    write_entry,
};

const ROOT_MAGIC: &[u8; 8] = b"nonoroot";
const LINK_MAGIC: &[u8; 8] = b"nonolink";
/// Length and two bytes of a path, the smallest entry (kind, flags, mode, uid, gid, time), and
/// whether midstates follow.
const MIN_ROOT_ENTRY_BYTES: usize = 3 + 11 + 1;

/// One tracked path in the state in which it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootEntry {
    /// The absolute tracked path, without `.`, `..`, doubled or trailing slashes.
    pub path: Box<[u8]>,
    /// Attributes of the tracked path itself.
    pub attributes: Attributes,
    /// Its node: a directory or a file, or whatever a command put in its place.
    pub node: Node,
}

/// All tracked paths of a snapshot. A tracked path that was gone has no entry.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RootTree {
    /// Sorted by path bytes, no path twice.
    pub entries: Vec<RootEntry>,
    /// Name of the object that lists the hard-link groups, if there are any.
    pub links: Option<ContentHash>,
}

impl RootTree {
    /// The canonical bytes, whose SHA-256 is the Merkle root.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(ROOT_MAGIC, FORMAT_VERSION);
        writer.varint(self.entries.len() as u64);
        for entry in &self.entries {
            writer.bytes(&entry.path);
            write_entry(&mut writer, &entry.attributes, &entry.node);
            write_link(&mut writer, midstates_of(&entry.node));
        }
        write_link(&mut writer, self.links);
        writer.finish()
    }

    /// Reads a root tree.
    ///
    /// # Errors
    /// Anything that [`encode`](Self::encode) would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, ROOT_MAGIC, "root tree", FORMAT_VERSION)?;
        let count = reader.count(MIN_ROOT_ENTRY_BYTES)?;
        let mut entries: Vec<RootEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let path = reader.bytes()?;
            if !is_tracked_path(path) {
                return Err(reader.invalid("not an absolute, plain path"));
            }
            if entries.last().is_some_and(|last| *last.path >= *path) {
                return Err(reader.invalid("tracked path out of order or twice"));
            }
            let (attributes, mut node) = read_entry(&mut reader)?;
            if let Some(link) = read_link(&mut reader)? {
                match &mut node {
                    Node::File { size, midstates, .. } if Midstates::are_kept_of(*size) => {
                        *midstates = MidstatesLink::to(link);
                    }
                    _ => return Err(reader.invalid("midstates of what is no long file")),
                }
            }
            entries.push(RootEntry { path: path.into(), attributes, node });
        }
        let links = read_link(&mut reader)?;
        reader.finish()?;
        Ok(Self { entries, links })
    }

    /// Finds a tracked path.
    pub fn get(&self, path: &[u8]) -> Option<&RootEntry> {
        self.entries.iter().find(|entry| *entry.path == *path)
    }
}

fn write_link(writer: &mut Writer, link: Option<ContentHash>) {
    writer.u8(u8::from(link.is_some()));
    if let Some(hash) = link {
        writer.raw(hash.as_bytes());
    }
}

fn read_link(reader: &mut Reader<'_>) -> Result<Option<ContentHash>, DecodeError> {
    match reader.u8()? {
        0 => Ok(None),
        1 => Ok(Some(reader.hash()?)),
        _ => Err(reader.invalid("neither with nor without a link")),
    }
}

/// Whether bytes are an absolute path in its one plain form.
pub fn is_tracked_path(path: &[u8]) -> bool {
    path.len() <= MAX_PATH_BYTES && is_plain_absolute(path)
}

/// As [`is_tracked_path`], but of any length: a path deep below a tracked path.
fn is_plain_absolute(path: &[u8]) -> bool {
    path.strip_prefix(b"/").is_some_and(|rest| rest.split(|byte| *byte == b'/').all(is_name))
}

/// The hard-link groups of a snapshot: absolute paths that share one inode.
///
/// Groups have two or more paths, sorted; groups are sorted by their first path; no path is in two.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkGroups {
    groups: Vec<Vec<Box<[u8]>>>,
}

impl LinkGroups {
    /// Brings groups into their canonical order; groups of one are dropped.
    pub fn new(mut groups: Vec<Vec<Box<[u8]>>>) -> Self {
        groups.retain(|group| group.len() > 1);
        for group in &mut groups {
            group.sort_unstable();
        }
        groups.sort_unstable();
        Self { groups }
    }

    /// The groups in order.
    pub fn groups(&self) -> &[Vec<Box<[u8]>>] {
        &self.groups
    }

    /// Whether nothing is linked, as in most snapshots.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(LINK_MAGIC, FORMAT_VERSION);
        writer.varint(self.groups.len() as u64);
        for group in &self.groups {
            writer.varint(group.len() as u64);
            for path in group {
                writer.bytes(path);
            }
        }
        writer.finish()
    }

    /// Reads link groups.
    ///
    /// # Errors
    /// Anything that [`encode`](Self::encode) would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, LINK_MAGIC, "list of hard links", FORMAT_VERSION)?;
        let count = reader.count(7)?;
        let mut groups: Vec<Vec<Box<[u8]>>> = Vec::with_capacity(count);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..count {
            let len = reader.count(3)?;
            if len < 2 {
                return Err(reader.invalid("link group of fewer than two"));
            }
            let mut group: Vec<Box<[u8]>> = Vec::with_capacity(len);
            for _ in 0..len {
                let path = reader.bytes()?;
                if !is_plain_absolute(path) {
                    return Err(reader.invalid("not an absolute, plain path"));
                }
                if group.last().is_some_and(|last| **last >= *path) || !seen.insert(path) {
                    return Err(reader.invalid("linked path out of order or twice"));
                }
                group.push(path.into());
            }
            if groups.last().is_some_and(|last| last[0] >= group[0]) {
                return Err(reader.invalid("link groups out of order"));
            }
            groups.push(group);
        }
        reader.finish()?;
        Ok(Self { groups })
    }
}
