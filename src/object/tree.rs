//! A directory as an object.
//!
//! A tree is a pure function of what is in the directory: entries sorted by name bytes, each with
//! everything that a restore needs. The directory's own attributes stand in *its* entry in the
//! parent. Equal directories are therefore equal bytes, and share one object in every snapshot.
//! `docs/format.md` has the encoding byte by byte.

use super::codec::{DecodeError, Reader, Writer};
use super::hash::ContentHash;
pub use crate::sys::{Device, FileTime};

const MAGIC: &[u8; 8] = b"nonotree";
/// Newest version of tree, root and link objects that this program reads, and the one it writes.
pub const FORMAT_VERSION: u8 = 1;
/// Longest name of one entry in bytes (NAME_MAX of Linux).
pub const MAX_NAME_BYTES: usize = 255;
/// Longest target of a symlink, and longest tracked path, in bytes (PATH_MAX of Linux).
pub const MAX_PATH_BYTES: usize = 4096;
/// Largest number of permission bits: rwx for three, setuid, setgid, sticky.
pub const MODE_MASK: u16 = 0o7777;

/// What every kind of entry has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last modification of the contents.
    pub mtime: FileTime,
    /// Extended attributes, ACLs included.
    pub xattrs: Xattrs,
}

/// Extended attributes, sorted by name, no name twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Xattrs(Vec<XattrPair>);

/// Name and value of an extended attribute.
pub type XattrPair = (Box<[u8]>, Box<[u8]>);

impl Xattrs {
    /// Sorts the pairs; of two with the same name the first one stays.
    pub fn new(mut pairs: Vec<XattrPair>) -> Self {
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|a, b| a.0 == b.0);
        Self(pairs)
    }

    /// Whether there are none, as on nearly every file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The value of one name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|pair| pair.0 == name).map(|pair| pair.1)
    }
}

/// The kind of an entry, with what only that kind has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Node {
    /// A regular file.
    File {
        /// Length in bytes.
        size: u64,
        /// Name of the object that is the contents.
        hash: ContentHash,
    },
    /// A directory.
    Directory {
        /// Name of the tree object.
        tree: ContentHash,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points: any bytes but NUL, never resolved.
        target: Box<[u8]>,
    },
    /// A named pipe.
    Fifo,
    /// A Unix socket: recorded, and not made by a restore.
    Socket,
    /// A character device: recorded, never opened.
    CharDevice(Device),
    /// A block device: recorded, never opened.
    BlockDevice(Device),
}

impl Node {
    /// Whether two nodes are of one kind, whatever they contain.
    pub fn same_kind(&self, other: &Node) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The kind in a word, for messages.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Node::File { .. } => "file",
            Node::Directory { .. } => "directory",
            Node::Symlink { .. } => "symlink",
            Node::Fifo => "fifo",
            Node::Socket => "socket",
            Node::CharDevice(_) => "character device",
            Node::BlockDevice(_) => "block device",
        }
    }
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeEntry {
    /// One path component.
    pub name: Box<[u8]>,
    /// Permissions, owner, times, xattrs.
    pub attributes: Attributes,
    /// Kind and contents.
    pub node: Node,
}

/// The entries of one directory, sorted by name bytes, no name twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    entries: Vec<TreeEntry>,
}

impl Tree {
    /// Sorts the entries; of two with one name the first stays, so that what is encoded can always be
    /// decoded.
    pub fn new(mut entries: Vec<TreeEntry>) -> Self {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        Self { entries }
    }

    /// The entries in order.
    pub fn entries(&self) -> &[TreeEntry] {
        &self.entries
    }

    /// The entries, owned.
    pub fn into_entries(self) -> Vec<TreeEntry> {
        self.entries
    }

    /// Finds an entry by name.
    pub fn get(&self, name: &[u8]) -> Option<&TreeEntry> {
        let at = self.entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok()?;
        Some(&self.entries[at])
    }

    /// The canonical bytes, whose SHA-256 names the tree.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(MAGIC, FORMAT_VERSION);
        writer.varint(self.entries.len() as u64);
        for entry in &self.entries {
            writer.bytes(&entry.name);
            write_entry(&mut writer, &entry.attributes, &entry.node);
        }
        writer.finish()
    }

    /// Reads a tree.
    ///
    /// # Errors
    /// Anything that [`encode`](Self::encode) would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut entries = Vec::new();
        Self::visit(bytes, |name, attributes, node| {
            entries.push(TreeEntry { name: name.into(), attributes, node });
        })?;
        Ok(Self { entries })
    }

    /// Reads a tree without keeping it: tells of its entries in order. What was told before an error
    /// is part of no tree.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn visit(
        bytes: &[u8],
        mut see: impl FnMut(&[u8], Attributes, Node),
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes, MAGIC, "tree", FORMAT_VERSION)?;
        let count = reader.count(MIN_ENTRY_BYTES)?;
        let mut last: &[u8] = b"";
        for _ in 0..count {
            let name = reader.bytes()?;
            if !is_name(name) {
                return Err(reader.invalid("not a name of one path component"));
            }
            // The empty name comes before all others, and is none.
            if last >= name {
                return Err(reader.invalid("name out of order or twice"));
            }
            let (attributes, node) = read_entry(&mut reader)?;
            see(name, attributes, node);
            last = name;
        }
        reader.finish()
    }
}

/// Appends the canonical bytes of one entry without its name: equal exactly for equal entries.
pub fn encode_entry(attributes: &Attributes, node: &Node, out: &mut Vec<u8>) {
    let mut writer = Writer::append_to(std::mem::take(out));
    write_entry(&mut writer, attributes, node);
    *out = writer.finish();
}

/// Whether bytes are one path component that may stand in a tree.
pub fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= MAX_NAME_BYTES
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Name length and byte, kind, flags, mode, uid, gid, seconds, nanoseconds.
const MIN_ENTRY_BYTES: usize = 2 + 1 + 1 + 2 + 1 + 1 + 1 + 4;
const HAS_XATTRS: u8 = 1;

pub(crate) fn write_entry(writer: &mut Writer, attributes: &Attributes, node: &Node) {
    writer.u8(match node {
        Node::File { .. } => 1,
        Node::Directory { .. } => 2,
        Node::Symlink { .. } => 3,
        Node::Fifo => 4,
        Node::Socket => 5,
        Node::CharDevice(_) => 6,
        Node::BlockDevice(_) => 7,
    });
    writer.u8(if attributes.xattrs.is_empty() { 0 } else { HAS_XATTRS });
    writer.u16(attributes.mode);
    writer.varint(u64::from(attributes.uid));
    writer.varint(u64::from(attributes.gid));
    writer.signed(attributes.mtime.seconds);
    writer.u32(attributes.mtime.nanoseconds);
    match node {
        Node::File { size, hash } => {
            writer.varint(*size);
            writer.raw(hash.as_bytes());
        }
        Node::Directory { tree } => writer.raw(tree.as_bytes()),
        Node::Symlink { target } => writer.bytes(target),
        Node::Fifo | Node::Socket => {}
        Node::CharDevice(device) | Node::BlockDevice(device) => {
            writer.varint(u64::from(device.major));
            writer.varint(u64::from(device.minor));
        }
    }
    if !attributes.xattrs.is_empty() {
        writer.varint(attributes.xattrs.0.len() as u64);
        for (name, value) in attributes.xattrs.iter() {
            writer.bytes(name);
            writer.bytes(value);
        }
    }
}

pub(crate) fn read_entry(reader: &mut Reader<'_>) -> Result<(Attributes, Node), DecodeError> {
    let kind = reader.u8()?;
    let flags = reader.u8()?;
    if flags & !HAS_XATTRS != 0 {
        return Err(reader.invalid("unknown flag"));
    }
    let mode = reader.u16()?;
    if mode & !MODE_MASK != 0 {
        return Err(reader.invalid("mode beyond 12 bits"));
    }
    let uid = reader.varint_u32()?;
    let gid = reader.varint_u32()?;
    let mtime = FileTime { seconds: reader.signed()?, nanoseconds: reader.u32()? };
    if mtime.nanoseconds >= 1_000_000_000 {
        return Err(reader.invalid("nanoseconds beyond a second"));
    }
    let node = match kind {
        1 => Node::File { size: reader.varint()?, hash: reader.hash()? },
        2 => Node::Directory { tree: reader.hash()? },
        3 => {
            let target = reader.bytes()?;
            if target.is_empty() || target.len() > MAX_PATH_BYTES || target.contains(&0) {
                return Err(reader.invalid("not a symlink target"));
            }
            Node::Symlink { target: target.into() }
        }
        4 => Node::Fifo,
        5 => Node::Socket,
        6 => Node::CharDevice(read_device(reader)?),
        7 => Node::BlockDevice(read_device(reader)?),
        _ => return Err(reader.invalid("unknown kind of entry")),
    };
    let xattrs = if flags & HAS_XATTRS == 0 { Xattrs::default() } else { read_xattrs(reader)? };
    Ok((Attributes { mode, uid, gid, mtime, xattrs }, node))
}

fn read_device(reader: &mut Reader<'_>) -> Result<Device, DecodeError> {
    Ok(Device { major: reader.varint_u32()?, minor: reader.varint_u32()? })
}

fn read_xattrs(reader: &mut Reader<'_>) -> Result<Xattrs, DecodeError> {
    let count = reader.count(3)?;
    if count == 0 {
        return Err(reader.invalid("empty list of xattrs"));
    }
    let mut pairs: Vec<XattrPair> = Vec::with_capacity(count);
    for _ in 0..count {
        let name = reader.bytes()?;
        if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(&0) {
            return Err(reader.invalid("not a name of an xattr"));
        }
        if pairs.last().is_some_and(|last| *last.0 >= *name) {
            return Err(reader.invalid("xattr out of order or twice"));
        }
        pairs.push((name.into(), reader.bytes()?.into()));
    }
    Ok(Xattrs(pairs))
}
