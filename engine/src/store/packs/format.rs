//! How the bytes of a pack are laid out. `docs/format.md` has the same in words.
//!
//! ```text
//! header    "nonopack", version                                                     16 bytes
//! blocks    see `block.rs`; in them, one after the other,
//!           records: for each object its hash, its kind and length, its bytes       36 bytes + length
//! index     fan-out: for each value of the first bits of a hash, how many entries
//!           are not above it; then the entries, sorted: hash, place,
//!           kind and length                                                         4 × 2^bits, 44 each
//!           for each block: length of its records, stored length, SHA-256           40 each
//! trailer   place of the index, number of entries, number of blocks, bits,
//!           version, "nonopack", SHA-256 of index and trailer up to here            64 bytes
//! ```
//!
//! Numbers are little-endian. The highest bit of a length is the [`Kind`]. The index is for
//! finding; the blocks alone tell as much, so that objects can be taken out of a pack that has lost
//! its end.

use super::block::{Listed, TABLE_ENTRY_BYTES};
use crate::object::{ContentHash, Hasher};
use crate::store::chunks::Head;

/// Longest object in a pack, in bytes. A longer one has a file of its own where blocks can be
/// shared, and is a list of chunks elsewhere.
pub const MAX_PACKED_BYTES: u64 = 128 * 1024;

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const RECORD_BYTES: usize = HASH_BYTES + 4;
pub(super) const ENTRY_BYTES: usize = HASH_BYTES + 12;
pub(super) const TRAILER_BYTES: usize = 64;
const HASH_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"nonopack";
const VERSION: u32 = 1;
/// Entries that share a place in the fan-out, about: one short read finds an object.
const ENTRIES_PER_SLOT: u64 = 16;
const MAX_FAN_OUT_BITS: u32 = 20;
/// A pack never has more objects, so reading its index takes no more than 45 MiB.
const MAX_OBJECTS: u32 = 1 << 20;
/// The same of blocks, which take 24 MiB in memory then.
const MAX_BLOCKS: u32 = 1 << 20;

/// The meaning of the bytes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The object.
    Whole,
    /// The head of a list of the chunks that make up a long object: see `chunks`.
    ChunkList,
}

impl Kind {
    /// The bit of a length that says so.
    const CHUNK_LIST: u32 = 1 << 31;

    fn with_len(self, len: u32) -> u32 {
        match self {
            Self::Whole => len,
            Self::ChunkList => len | Self::CHUNK_LIST,
        }
    }

    fn and_len(number: u32) -> (Self, u32) {
        let kind = if number & Self::CHUNK_LIST == 0 { Self::Whole } else { Self::ChunkList };
        (kind, number & !Self::CHUNK_LIST)
    }

    /// Whether the bytes of a record are the ones that were written under a name. Those of a list
    /// prove themselves; the name is proved by the bytes of all its chunks.
    pub(super) fn is_intact(self, hash: &ContentHash, bytes: &[u8]) -> bool {
        match self {
            Self::Whole => ContentHash::of(bytes) == *hash,
            Self::ChunkList => Head::is_intact(bytes),
        }
    }
}

/// Where an object lies in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The place of its first byte, counted as if all records lay one after the other.
    pub(super) offset: u64,
    /// In bytes.
    pub(super) len: u32,
    pub(super) kind: Kind,
}

/// An object in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub(crate) hash: ContentHash,
    pub(super) span: Span,
}

impl Span {
    /// Length in bytes: of a list of chunks, that of its head.
    pub(crate) fn len(self) -> u64 {
        self.len.into()
    }

    pub(crate) fn kind(self) -> Kind {
        self.kind
    }

    /// The place of its record.
    pub(super) fn record_at(self) -> u64 {
        self.offset.saturating_sub(RECORD_BYTES as u64)
    }
}

impl Entry {
    /// Length in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.span.len.into()
    }

    /// Bytes of its record.
    pub(crate) fn record_bytes(&self) -> u64 {
        RECORD_BYTES as u64 + self.size()
    }

    /// The record header in front of the object's bytes.
    pub(super) fn record_header(hash: &ContentHash, kind: Kind, len: u32) -> [u8; RECORD_BYTES] {
        let mut header = [0; RECORD_BYTES];
        header[..HASH_BYTES].copy_from_slice(hash.as_bytes());
        header[HASH_BYTES..].copy_from_slice(&kind.with_len(len).to_le_bytes());
        header
    }

    /// Reads what stands in front of an object; `None` if that cannot be one in a pack.
    pub(super) fn from_record(header: &[u8; RECORD_BYTES], offset: u64) -> Option<Self> {
        let (kind, len) = Kind::and_len(u32_at(header, HASH_BYTES));
        let span = Span { offset: offset + RECORD_BYTES as u64, len, kind };
        (u64::from(len) <= MAX_PACKED_BYTES).then(|| Self { hash: hash_at(header), span })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.hash.as_bytes());
        out.extend_from_slice(&self.span.offset.to_le_bytes());
        out.extend_from_slice(&self.span.kind.with_len(self.span.len).to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let (kind, len) = Kind::and_len(u32_at(bytes, HASH_BYTES + 8));
        let span = Span { offset: u64_at(bytes, HASH_BYTES), len, kind };
        Self { hash: hash_at(bytes), span }
    }

    /// Whether the object can lie there in a pack with so many bytes of records.
    pub(super) fn is_within(&self, records_bytes: u64) -> bool {
        let first = RECORD_BYTES as u64;
        let end = self.span.offset.checked_add(self.size());
        self.size() <= MAX_PACKED_BYTES
            && self.span.offset >= first
            && end.is_some_and(|end| end <= records_bytes)
    }
}

/// The first bytes of every pack.
pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// Whether these are the first and the last bytes of a pack that a newer program made. Both say so,
/// in every version; only one of them is damage.
pub(super) fn is_newer(header: &[u8; HEADER_BYTES], trailer: &[u8; TRAILER_BYTES]) -> bool {
    let version = u32_at(header, 8);
    &header[..8] == MAGIC
        && &trailer[24..32] == MAGIC
        && version > VERSION
        && u32_at(trailer, 20) == version
}

/// Index and trailer of a pack whose blocks end at `index_at`.
pub(super) fn encode_index(
    mut entries: Vec<Entry>,
    blocks: impl ExactSizeIterator<Item = Listed>,
    index_at: u64,
) -> Vec<u8> {
    entries.sort_unstable_by_key(|entry| entry.hash);
    let (count, block_count) = (entries.len() as u64, blocks.len());
    let bits = (count / ENTRIES_PER_SLOT).checked_ilog2().unwrap_or(0).min(MAX_FAN_OUT_BITS);
    let slots = 1 << bits;
    let tables = entries.len() * ENTRY_BYTES + block_count * TABLE_ENTRY_BYTES;
    let mut bytes = Vec::with_capacity(slots * 4 + tables + TRAILER_BYTES);
    let mut upto = 0_usize;
    for slot in 0..slots as u32 {
        while entries.get(upto).is_some_and(|entry| slot_of(&entry.hash, bits) <= slot) {
            upto += 1;
        }
        bytes.extend_from_slice(&(upto as u32).to_le_bytes());
    }
    entries.iter().for_each(|entry| entry.encode(&mut bytes));
    blocks.for_each(|block| block.encode(&mut bytes));
    bytes.extend_from_slice(&index_at.to_le_bytes());
    bytes.extend_from_slice(&(count as u32).to_le_bytes());
    bytes.extend_from_slice(&(block_count as u32).to_le_bytes());
    bytes.extend_from_slice(&bits.to_le_bytes());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    let checksum = ContentHash::of(&bytes);
    bytes.extend_from_slice(checksum.as_bytes());
    bytes
}

/// Place in the fan-out.
pub(super) fn slot_of(hash: &ContentHash, bits: u32) -> u32 {
    let [a, b, c, d, ..] = *hash.as_bytes();
    // No bits are a shift by all of them, which integers do not have.
    u32::from_be_bytes([a, b, c, d]).checked_shr(32 - bits).unwrap_or(0)
}

/// The end of a pack.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trailer {
    pub(super) index_at: u64,
    pub(super) count: u32,
    pub(super) blocks: u32,
    pub(super) bits: u32,
    pub(super) checksum: ContentHash,
}

impl Trailer {
    /// # Errors
    /// Why these cannot be the last bytes of a pack of so many bytes.
    pub(super) fn decode(
        bytes: &[u8; TRAILER_BYTES],
        pack_bytes: u64,
    ) -> Result<Self, &'static str> {
        if &bytes[24..32] != MAGIC || u32_at(bytes, 20) != VERSION {
            return Err("it was cut short");
        }
        let (index_at, count, blocks) = (u64_at(bytes, 0), u32_at(bytes, 8), u32_at(bytes, 12));
        let bits = u32_at(bytes, 16);
        let invalid = "its end contradicts its length";
        if bits > MAX_FAN_OUT_BITS || count > MAX_OBJECTS || blocks > MAX_BLOCKS {
            return Err(invalid);
        }
        let trailer = Self { index_at, count, blocks, bits, checksum: hash_at(&bytes[32..]) };
        let end = index_at.checked_add(trailer.index_bytes() + TRAILER_BYTES as u64);
        if end == Some(pack_bytes) { Ok(trailer) } else { Err(invalid) }
    }

    /// Length of the index without the trailer.
    pub(super) fn index_bytes(&self) -> u64 {
        let blocks = u64::from(self.blocks) * TABLE_ENTRY_BYTES as u64;
        self.fan_out_bytes() + self.entries_bytes() + blocks
    }

    /// Where the table of blocks is.
    pub(super) fn blocks_at(&self) -> u64 {
        self.index_at + self.fan_out_bytes() + self.entries_bytes()
    }

    pub(super) fn entries_bytes(&self) -> u64 {
        u64::from(self.count) * ENTRY_BYTES as u64
    }

    pub(super) fn fan_out_bytes(&self) -> u64 {
        4 << self.bits
    }

    /// Where the entry of this number is.
    pub(super) fn entry_at(&self, number: u32) -> u64 {
        self.index_at + self.fan_out_bytes() + u64::from(number) * ENTRY_BYTES as u64
    }

    /// The fan-out.
    ///
    /// # Errors
    /// When its numbers go down, or do not end with the number of entries.
    pub(super) fn fan_out(&self, bytes: &[u8]) -> Result<Box<[u32]>, &'static str> {
        let ends: Box<[u32]> = bytes.chunks_exact(4).map(|end| u32_at(end, 0)).collect();
        if ends.is_sorted() && ends.last() == Some(&self.count) {
            Ok(ends)
        } else {
            Err("its fan-out contradicts itself")
        }
    }

    /// Whether the checksum is that of an index which was hashed, without the trailer.
    pub(super) fn fits(&self, mut hasher: Hasher) -> bool {
        hasher.update(&self.index_at.to_le_bytes());
        hasher.update(&self.count.to_le_bytes());
        hasher.update(&self.blocks.to_le_bytes());
        hasher.update(&self.bits.to_le_bytes());
        hasher.update(&VERSION.to_le_bytes());
        hasher.update(MAGIC);
        hasher.finish() == self.checksum
    }
}

fn hash_at(bytes: &[u8]) -> ContentHash {
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&bytes[..HASH_BYTES]);
    ContentHash::from_bytes(hash)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}
