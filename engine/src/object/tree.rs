//! A directory as an object.
//!
//! A tree is a pure function of what is in the directory: entries sorted by name bytes, each with
//! everything that a restore needs. The directory's own attributes stand in *its* entry in the
//! parent. Equal directories are therefore equal bytes, and share one object in every snapshot.
//! An entry omits the fields that it shares with the entry before: the list of a directory is
//! written anew whenever anything in it changes, however long it is.
//! `docs/format.md` has the encoding byte by byte.

use super::codec::{DecodeError, Reader, Writer};
use super::hash::ContentHash;
use super::midstates::{Midstates, MidstatesLink};
pub use crate::sys::{Device, FileTime};

const MAGIC: &[u8; 8] = b"nonotree";
/// Version of trees, root trees and lists of hard links.
pub const FORMAT_VERSION: u8 = 1;
/// Longest name of one entry in bytes (NAME_MAX of Linux).
pub const MAX_NAME_BYTES: usize = 255;
/// Longest target of a symlink, and longest tracked path, in bytes (PATH_MAX of Linux).
pub const MAX_PATH_BYTES: usize = 4096;
/// Largest number of permission bits: rwx for three, setuid, setgid, sticky.
pub const MODE_MASK: u16 = 0o7777;

/// The fields that every kind of entry has.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
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
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
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
        /// The midstates with which a long file is verified piece by piece.
        midstates: MidstatesLink,
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
    /// A regular file without midstates.
    pub fn file(size: u64, hash: ContentHash) -> Self {
        Self::File { size, hash, midstates: MidstatesLink::NONE }
    }

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

/// Whether these may be the bytes of a [`Tree`]: they begin like one.
pub(crate) fn is_tree(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

impl Tree {
    /// Sorts the entries; of two with one name the first stays, so that what is encoded can always
    /// be decoded.
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
        let (mut last, nothing): (&[u8], _) = (b"", Attributes::default());
        let mut before = &nothing;
        for TreeEntry { name, attributes, node } in &self.entries {
            let shared = shared_len(last, name);
            writer.varint(shared as u64);
            writer.bytes(&name[shared..]);
            write_after(&mut writer, before, attributes, node);
            (last, before) = (name, attributes);
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

    /// Reads a tree without keeping it: tells of its entries in order. After an error, the entries
    /// told so far are part of no tree.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn visit(
        bytes: &[u8],
        mut see: impl FnMut(&[u8], Attributes, Node),
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes, MAGIC, "tree", FORMAT_VERSION)?;
        let count = reader.count(MIN_LISTED_BYTES)?;
        let (mut name, mut before) = (Vec::with_capacity(MAX_NAME_BYTES), Attributes::default());
        for _ in 0..count {
            let shared = reader.varint()?;
            let rest = reader.bytes()?;
            let shared = usize::try_from(shared).ok().filter(|shared| *shared <= name.len());
            let shared = shared.ok_or_else(|| reader.invalid("more of a name than there is"))?;
            // The shared part of the names is as long as it can be, so this is their order.
            if rest <= &name[shared..] || rest.first() == name.get(shared) {
                return Err(reader.invalid("name out of order or twice"));
            }
            name.truncate(shared);
            name.extend_from_slice(rest);
            if !is_name(&name) {
                return Err(reader.invalid("not a name of one path component"));
            }
            let (attributes, node) = read_after(&mut reader, &before)?;
            let Attributes { mode, uid, gid, mtime, .. } = attributes;
            before = Attributes { mode, uid, gid, mtime, xattrs: Xattrs::default() };
            see(&name, attributes, node);
        }
        reader.finish()
    }
}

/// Number of bytes with which both begin.
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Appends the canonical bytes of one entry without its name and without midstates: equal exactly
/// for equal entries.
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

const HAS_XATTRS: u8 = 1;

pub(crate) fn write_entry(writer: &mut Writer, attributes: &Attributes, node: &Node) {
    writer.u8(kind_of(node));
    writer.u8(if attributes.xattrs.is_empty() { 0 } else { HAS_XATTRS });
    writer.u16(attributes.mode);
    writer.varint(u64::from(attributes.uid));
    writer.varint(u64::from(attributes.gid));
    writer.signed(attributes.mtime.seconds);
    writer.u32(attributes.mtime.nanoseconds);
    write_node(writer, node);
    if !attributes.xattrs.is_empty() {
        write_xattrs(writer, &attributes.xattrs);
    }
}

pub(crate) fn read_entry(reader: &mut Reader<'_>) -> Result<(Attributes, Node), DecodeError> {
    let kind = reader.u8()?;
    let flags = reader.u8()?;
    if flags & !HAS_XATTRS != 0 {
        return Err(reader.invalid("unknown flag"));
    }
    let mode = read_mode(reader)?;
    let (uid, gid) = (read_owner(reader)?, read_owner(reader)?);
    let seconds = reader.signed()?;
    let mtime = FileTime { seconds, nanoseconds: read_nanoseconds(reader)? };
    let node = read_node(reader, kind)?;
    let xattrs = if flags & HAS_XATTRS == 0 { Xattrs::default() } else { read_xattrs(reader)? };
    Ok((Attributes { mode, uid, gid, mtime, xattrs }, node))
}

/// A user or a group. The last number stands for "no change" in `chown(2)`, and no file has it.
fn read_owner(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.varint_u32()? {
        u32::MAX => Err(reader.invalid("an owner that no file has")),
        owner => Ok(owner),
    }
}

/// Shared length, length and byte of the rest of the name, head.
const MIN_LISTED_BYTES: usize = 1 + 1 + 1 + 1;
/// In the head of an entry in a tree, beside the kind: the fields that are as in the entry before,
/// or that are not there.
const KIND: u8 = 0b111;
/// A kind that only the entries of a tree have.
const FILE_WITH_MIDSTATES: u8 = 0;
const SAME_MODE: u8 = 1 << 3;
const SAME_OWNER: u8 = 1 << 4;
const SAME_MTIME: u8 = 1 << 5;
const WHOLE_SECONDS: u8 = 1 << 6;
const XATTRS_FOLLOW: u8 = 1 << 7;

/// Writes an entry that comes after another one.
fn write_after(writer: &mut Writer, before: &Attributes, attributes: &Attributes, node: &Node) {
    let Attributes { mode, uid, gid, mtime, xattrs } = attributes;
    let is_same_mode = *mode == before.mode;
    let is_same_owner = (*uid, *gid) == (before.uid, before.gid);
    let is_same_mtime = *mtime == before.mtime;
    let is_whole = !is_same_mtime && mtime.nanoseconds == 0;
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    let midstates = midstates_of(node);
    let kind = if midstates.is_some() { FILE_WITH_MIDSTATES } else { kind_of(node) };
    writer.u8(kind
        | flag(is_same_mode, SAME_MODE)
        | flag(is_same_owner, SAME_OWNER)
        | flag(is_same_mtime, SAME_MTIME)
        | flag(is_whole, WHOLE_SECONDS)
        | flag(!xattrs.is_empty(), XATTRS_FOLLOW));
    if !is_same_mode {
        writer.u16(*mode);
    }
    if !is_same_owner {
        writer.varint(u64::from(*uid));
        writer.varint(u64::from(*gid));
    }
    if !is_same_mtime {
        // Times of neighbours are near each other.
        writer.signed(mtime.seconds.wrapping_sub(before.mtime.seconds));
    }
    if !is_same_mtime && !is_whole {
        writer.u32(mtime.nanoseconds);
    }
    write_node(writer, node);
    if let Some(midstates) = midstates {
        writer.raw(midstates.as_bytes());
    }
    if !xattrs.is_empty() {
        write_xattrs(writer, xattrs);
    }
}

fn read_after(
    reader: &mut Reader<'_>,
    before: &Attributes,
) -> Result<(Attributes, Node), DecodeError> {
    let head = reader.u8()?;
    let has = |flag| head & flag != 0;
    let mode = if has(SAME_MODE) { before.mode } else { read_mode(reader)? };
    let (uid, gid) = match has(SAME_OWNER) {
        true => (before.uid, before.gid),
        false => (read_owner(reader)?, read_owner(reader)?),
    };
    let mtime = match (has(SAME_MTIME), has(WHOLE_SECONDS)) {
        (true, true) => return Err(reader.invalid("a time that is there and is not")),
        (true, false) => before.mtime,
        (false, is_whole) => FileTime {
            seconds: before.mtime.seconds.wrapping_add(reader.signed()?),
            nanoseconds: if is_whole { 0 } else { read_nanoseconds(reader)? },
        },
    };
    let is_repeated = (!has(SAME_MODE) && mode == before.mode)
        || (!has(SAME_OWNER) && (uid, gid) == (before.uid, before.gid))
        || (!has(SAME_MTIME) && mtime == before.mtime)
        || (!has(SAME_MTIME) && !has(WHOLE_SECONDS) && mtime.nanoseconds == 0);
    if is_repeated {
        return Err(reader.invalid("an attribute that is repeated"));
    }
    let node = match head & KIND {
        FILE_WITH_MIDSTATES => read_file_with_midstates(reader)?,
        kind => read_node(reader, kind)?,
    };
    let xattrs = if has(XATTRS_FOLLOW) { read_xattrs(reader)? } else { Xattrs::default() };
    Ok((Attributes { mode, uid, gid, mtime, xattrs }, node))
}

/// The midstates that a tree names: only of a file that is long enough.
pub(super) fn midstates_of(node: &Node) -> Option<ContentHash> {
    match node {
        Node::File { size, midstates, .. } => {
            midstates.name().filter(|_| Midstates::are_kept_of(*size))
        }
        _ => None,
    }
}

fn read_file_with_midstates(reader: &mut Reader<'_>) -> Result<Node, DecodeError> {
    let (size, hash) = (reader.varint()?, reader.hash()?);
    if !Midstates::are_kept_of(size) {
        return Err(reader.invalid("midstates of a short file"));
    }
    Ok(Node::File { size, hash, midstates: MidstatesLink::to(reader.hash()?) })
}

fn kind_of(node: &Node) -> u8 {
    match node {
        Node::File { .. } => 1,
        Node::Directory { .. } => 2,
        Node::Symlink { .. } => 3,
        Node::Fifo => 4,
        Node::Socket => 5,
        Node::CharDevice(_) => 6,
        Node::BlockDevice(_) => 7,
    }
}

fn write_node(writer: &mut Writer, node: &Node) {
    match node {
        Node::File { size, hash, .. } => {
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
}

fn read_node(reader: &mut Reader<'_>, kind: u8) -> Result<Node, DecodeError> {
    Ok(match kind {
        1 => Node::file(reader.varint()?, reader.hash()?),
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
    })
}

fn read_mode(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let mode = reader.u16()?;
    if mode & !MODE_MASK != 0 {
        return Err(reader.invalid("mode beyond 12 bits"));
    }
    Ok(mode)
}

fn read_nanoseconds(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let nanoseconds = reader.u32()?;
    if nanoseconds >= 1_000_000_000 {
        return Err(reader.invalid("nanoseconds beyond a second"));
    }
    Ok(nanoseconds)
}

fn write_xattrs(writer: &mut Writer, xattrs: &Xattrs) {
    writer.varint(xattrs.0.len() as u64);
    for (name, value) in xattrs.iter() {
        writer.bytes(name);
        writer.bytes(value);
    }
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
