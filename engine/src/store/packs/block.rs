//! The blocks of a pack: many records each, compressed together.
//!
//! ```text
//! block     "nblk", length of its records, stored length                            12 bytes
//!           the records, compressed if the stored length is less
//! ```
//!
//! Places in a pack are counted as if all records lay one after the other, uncompressed: a table
//! in the index tells which block a place is in. A block tells its lengths itself, so that one is
//! found without the index.

use super::format::{HEADER_BYTES, MAX_PACKED_BYTES, RECORD_BYTES};
use crate::object::ContentHash;
use crate::store::compression::{Compression, decompress, decompressed};

pub(super) const MAGIC: &[u8; 4] = b"nblk";
pub(super) const BLOCK_HEADER_BYTES: usize = 12;
/// Length of a block in the table.
pub(super) const TABLE_ENTRY_BYTES: usize = 40;
/// A block ends with the record that makes it so long. With half of it packs are a sixteenth
/// larger; with twice of it a look-up takes twice as long.
pub(super) const BLOCK_BYTES: usize = 128 * 1024;
/// No block has longer records, in bytes.
pub(super) const MAX_BLOCK_BYTES: u32 = 512 * 1024;

const _: () =
    assert!(BLOCK_BYTES + RECORD_BYTES + MAX_PACKED_BYTES as usize <= MAX_BLOCK_BYTES as usize);

/// A block as the table of the index has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    /// Length of its records in bytes.
    pub(super) plain: u32,
    /// Length of them in the file, without the header.
    pub(super) stored: u32,
    /// SHA-256 of the block in the file, with its header.
    pub(super) checksum: ContentHash,
}

impl Listed {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.plain.to_le_bytes());
        out.extend_from_slice(&self.stored.to_le_bytes());
        out.extend_from_slice(self.checksum.as_bytes());
    }

    pub(super) fn decode(bytes: &[u8; TABLE_ENTRY_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, checksum @ ..] = *bytes;
        let (plain, stored) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        Self { plain, stored, checksum: ContentHash::from_bytes(checksum) }
    }

    /// The bytes in front of it in the file.
    pub(super) fn header(&self) -> [u8; BLOCK_HEADER_BYTES] {
        header(self.plain, self.stored)
    }
}

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// The place of its first record.
    pub(super) plain_at: u64,
    pub(super) plain: u32,
    /// The place of its header in the file.
    pub(super) file_at: u64,
    pub(super) stored: u32,
}

impl Block {
    /// The place after its last record.
    pub(super) fn plain_end(&self) -> u64 {
        self.plain_at + u64::from(self.plain)
    }

    /// The place after it in the file.
    pub(super) fn file_end(&self) -> u64 {
        self.file_at + BLOCK_HEADER_BYTES as u64 + u64::from(self.stored)
    }

    /// Where the blocks of a table are: each after the one before. `None` when one has lengths that
    /// no block has.
    pub(super) fn places(table: impl Iterator<Item = Listed>) -> Option<Box<[Self]>> {
        let (mut plain_at, mut file_at) = (0, HEADER_BYTES as u64);
        table
            .map(|Listed { plain, stored, .. }| {
                let block = Self { plain_at, plain, file_at, stored };
                (plain_at, file_at) = (block.plain_end(), block.file_end());
                are_lengths(plain, stored).then_some(block)
            })
            .collect()
    }
}

fn header(plain: u32, stored: u32) -> [u8; BLOCK_HEADER_BYTES] {
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[..4].copy_from_slice(MAGIC);
    header[4..8].copy_from_slice(&plain.to_le_bytes());
    header[8..].copy_from_slice(&stored.to_le_bytes());
    header
}

fn are_lengths(plain: u32, stored: u32) -> bool {
    (1..=MAX_BLOCK_BYTES).contains(&plain) && (1..=plain).contains(&stored)
}

/// The lengths of the records and of what is stored of them that a header tells, if it is one.
pub(super) fn lengths(header: &[u8]) -> Option<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = *header.strip_prefix(MAGIC)?.first_chunk()?;
    let (plain, stored) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    are_lengths(plain, stored).then_some((plain as usize, stored as usize))
}

/// Appends a block with these records to what is to be written.
pub(super) fn encode(plain: &[u8], compression: Compression, out: &mut Vec<u8>) -> Listed {
    let start = out.len();
    out.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
    let body = out.len();
    if !compression.compress(plain, out) {
        out.extend_from_slice(plain);
    }
    let (plain, stored) = (plain.len() as u32, (out.len() - body) as u32);
    out[start..body].copy_from_slice(&header(plain, stored));
    Listed { plain, stored, checksum: ContentHash::of(&out[start..]) }
}

/// Fills `plain` with the records of a block that is stored like that; `false` if they cannot be
/// told.
pub(super) fn decode(stored: &[u8], plain: &mut [u8]) -> bool {
    if stored.len() == plain.len() {
        plain.copy_from_slice(stored);
        return true;
    }
    decompress(stored, plain)
}

/// As [`decode`], into this buffer in place of what is in it, or into new memory where it is short.
pub(super) fn decoded(stored: &[u8], plain: u32, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
    let len = plain as usize;
    if buffer.capacity() < len {
        buffer = Vec::with_capacity(len);
    }
    if stored.len() != len {
        return decompressed(stored, len, buffer);
    }
    buffer.clear();
    buffer.extend_from_slice(stored);
    Some(buffer)
}
