//! Long objects as lists of chunks.
//!
//! Where blocks cannot be shared, a long file of which a little changed would be stored whole once
//! more. So its contents are cut where they say so themselves ([`cut`]), and each chunk is an
//! object: small, packed, compressed, and stored once however many files have it. The name of the
//! object stays the SHA-256 of all its bytes. A pack has under this name a record of the kind
//! [`ChunkList`](super::packs::Kind::ChunkList), which is the head of the list:
//!
//! ```text
//! head    length of the contents; the highest bit: they have holes                8 bytes
//!         parts: hash of an object with runs, length of the contents they make   40 each
//!         SHA-256 of the head up to here                                         32 bytes
//! part    runs: hash of a chunk, its length, how often it comes                  40 each
//! ```
//!
//! Numbers are little-endian. A hole is cut as the zeros that it reads as, and takes one run.
//!
//! Trees know nothing of this: a Merkle root says what the contents are, on every file system the
//! same. So the midstates that a tree names serve also here, to verify a piece while it is read.
//! A file of its own with the same name is read before a list: a repair puts one there.

mod aside;
mod cut;
mod file;
mod import;
mod pack_own;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests;

use super::StoreError;
use super::packs::MAX_PACKED_BYTES;
use crate::object::ContentHash;

pub(super) use file::{Choice, ChunkedFile};
pub(super) use import::{Chunked, LONGEST_BYTES, LONGEST_LIST_BYTES, import, import_list};

const HASH_BYTES: usize = 32;
const SIZE_BYTES: usize = 8;
const PART_BYTES: usize = HASH_BYTES + 8;
const RUN_BYTES: usize = HASH_BYTES + 8;
/// Parts and heads are in packs, so they are bounded as what is there.
const MAX_PARTS: usize = (MAX_PACKED_BYTES as usize - SIZE_BYTES - HASH_BYTES) / PART_BYTES;
const MAX_RUNS: usize = MAX_PACKED_BYTES as usize / RUN_BYTES;

/// The bit of a length that says so.
const SPARSE: u64 = 1 << 63;

const NO_LIST: &str = "it is no list of chunks";
const OTHER_LENGTH: &str = "a part of its list of chunks makes another length than is said";

/// The record that a pack has under the name of a long object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Length of the object in bytes.
    pub(super) size: u64,
    /// Whether zeros are holes.
    sparse: bool,
    parts: Vec<Part>,
}

/// An object with runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    hash: ContentHash,
    /// Bytes of contents that its runs make.
    size: u64,
}

/// A chunk that comes some times in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    hash: ContentHash,
    /// Length of the chunk in bytes.
    len: u32,
    times: u32,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let size = if self.sparse { self.size | SPARSE } else { self.size };
        let mut bytes = size.to_le_bytes().to_vec();
        for part in &self.parts {
            bytes.extend_from_slice(part.hash.as_bytes());
            bytes.extend_from_slice(&part.size.to_le_bytes());
        }
        let checksum = ContentHash::of(&bytes);
        bytes.extend_from_slice(checksum.as_bytes());
        bytes
    }

    /// Whether the bytes are those of a head that was written.
    pub(super) fn is_intact(bytes: &[u8]) -> bool {
        Self::decode(bytes).is_some()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(HASH_BYTES)?)?;
        let (size, parts) = body.split_first_chunk::<SIZE_BYTES>()?;
        let (parts, rest) = parts.as_chunks::<PART_BYTES>();
        if !rest.is_empty() || ContentHash::of(body).as_bytes() != checksum {
            return None;
        }
        let parts: Vec<_> = parts.iter().map(Part::decode).collect();
        let number = u64::from_le_bytes(*size);
        let (size, sparse) = (number & !SPARSE, number & SPARSE != 0);
        let sum = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.size));
        (sum == Some(size)).then_some(Self { size, sparse, parts })
    }
}

impl Part {
    fn decode(bytes: &[u8; PART_BYTES]) -> Self {
        let (hash, number) = hash_and_number(bytes);
        Self { hash, size: number }
    }

    /// The runs in the bytes of this part.
    fn runs(&self, bytes: &[u8]) -> Result<Vec<Run>, &'static str> {
        let (runs, rest) = bytes.as_chunks::<RUN_BYTES>();
        let runs: Vec<_> = runs.iter().map(Run::decode).collect();
        let is_possible =
            |run: &Run| (1..=MAX_PACKED_BYTES).contains(&u64::from(run.len)) && run.times > 0;
        if !rest.is_empty() || !runs.iter().all(is_possible) {
            return Err(NO_LIST);
        }
        let sum = runs.iter().try_fold(0_u64, |sum, run| sum.checked_add(run.size()));
        if sum == Some(self.size) { Ok(runs) } else { Err(OTHER_LENGTH) }
    }
}

impl Run {
    /// Bytes of contents that it makes.
    fn size(&self) -> u64 {
        u64::from(self.len) * u64::from(self.times)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.hash.as_bytes());
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.times.to_le_bytes());
    }

    fn decode(bytes: &[u8; RUN_BYTES]) -> Self {
        let (hash, number) = hash_and_number(bytes);
        Self { hash, len: number as u32, times: (number >> 32) as u32 }
    }
}

fn hash_and_number(bytes: &[u8; HASH_BYTES + 8]) -> (ContentHash, u64) {
    let (mut hash, mut number) = ([0; HASH_BYTES], [0; 8]);
    hash.copy_from_slice(&bytes[..HASH_BYTES]);
    number.copy_from_slice(&bytes[HASH_BYTES..]);
    (ContentHash::from_bytes(hash), u64::from_le_bytes(number))
}

/// Why a list of chunks gives no contents.
#[derive(Debug)]
enum Unlisted {
    /// The list contradicts itself.
    Wrong(&'static str),
    Store(StoreError),
}

impl From<StoreError> for Unlisted {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Unlisted {
    fn at(self, hash: &ContentHash, path: &std::path::Path) -> StoreError {
        match self {
            Self::Wrong(reason) => StoreError::Corrupt {
                hash: *hash,
                path: path.to_owned(),
                reason: reason.to_owned(),
            },
            Self::Store(error) => error,
        }
    }
}

/// All runs of a list. `read` gives the bytes of an object, checked.
fn runs_of(
    head: &Head,
    mut read: impl FnMut(&ContentHash) -> Result<Vec<u8>, StoreError>,
) -> Result<Vec<Run>, Unlisted> {
    let mut runs = Vec::new();
    for part in &head.parts {
        runs.extend(part.runs(&read(&part.hash)?).map_err(Unlisted::Wrong)?);
    }
    Ok(runs)
}

/// The contents of at most `max_bytes` that a list makes, unchecked but for the chunks.
pub(super) fn assemble(
    hash: &ContentHash,
    head: &[u8],
    max_bytes: u64,
    path: &std::path::Path,
    mut read: impl FnMut(&ContentHash) -> Result<Vec<u8>, StoreError>,
) -> Result<Vec<u8>, StoreError> {
    let wrong = |reason| Unlisted::Wrong(reason).at(hash, path);
    let head = Head::decode(head).ok_or_else(|| wrong(NO_LIST))?;
    if head.size > max_bytes {
        return Err(wrong("it is longer than such an object may be"));
    }
    let runs = runs_of(&head, &mut read).map_err(|error| error.at(hash, path))?;
    let mut bytes = Vec::with_capacity(head.size as usize);
    for run in runs {
        let chunk = read(&run.hash)?;
        if chunk.len() as u64 != u64::from(run.len) {
            return Err(wrong(OTHER_LENGTH));
        }
        (0..run.times).for_each(|_| bytes.extend_from_slice(&chunk));
    }
    Ok(bytes)
}
