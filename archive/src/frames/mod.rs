//! Frames of the compression, and the index that finds an object in them.
//!
//! An archive is a row of `zstd` frames, each of which stands alone. Behind the last one stands the
//! index, in a frame that decompressors skip. So `zstd -d` gives the same tar file as without it,
//! and a reader of ranges needs the end of an archive, and then one frame.
//!
//! ```text
//! content of the skipped frame, numbers in little endian but for those of blocks:
//!   for each frame      length compressed (4), length decompressed (4)
//!   for each object     first 8 bytes of its hash, number of the block of its header (5)
//!   footer              frames (4), objects (8), length of the content (4),
//!                       first 8 bytes of the SHA-256 of all before them, "nonoidx1"
//! ```
//!
//! - Objects are sorted, so that a reader guesses where one stands.
//! - An object of `meta/` or of `files/` begins behind its last header block, which tells its
//!   length. A block never lies in two frames.
//! - The index is no proof. A reader checks the hash of what it finds. Its sum tells of a bit that
//!   changed, as the sums of the other frames do.

mod index;
mod notes;
mod stream;

pub(crate) use self::index::{Footer, FrameTable, Span};
pub(crate) use self::notes::{Notes, write_index};
pub(crate) use self::stream::Frames;

/// Longest frame, decompressed. With a fourth of it, an archive of sources takes 16 % more.
pub(crate) const MAX_FRAME_BYTES: usize = 4 << 20;
/// Longest frame of what compression makes little shorter: a reader gets whole frames.
pub(crate) const DENSE_FRAME_BYTES: usize = 1 << 20;
/// Longest frame of trees: a reader wants few of many.
pub(crate) const OBJECT_FRAME_BYTES: usize = 64 << 10;
/// Length of a block of a tar file.
pub(crate) const BLOCK_BYTES: u64 = 512;
/// Begins a frame that decompressors skip.
const SKIPPED_MAGIC: [u8; 4] = [0x57, 0x2a, 0x4d, 0x18];
/// Bytes in front of the content of a skipped frame.
const SKIPPED_HEADER_BYTES: u64 = 8;
/// Ends the index.
const MAGIC: &[u8; 8] = b"nonoidx1";
/// Bytes of the hash in a record.
const KEY_BYTES: usize = 8;
/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = KEY_BYTES + 5;
/// Bytes of a frame in the table.
const FRAME_BYTES: usize = 8;
/// Bytes of the sum of the index.
const SUM_BYTES: usize = 8;
/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 32;
/// Most frames of an archive: 1 TiB of files.
const MAX_FRAMES: u32 = 1 << 20;
