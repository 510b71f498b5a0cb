//! Where contents are cut: at places that depend on the bytes around them only, so that an
//! insertion moves no cut behind it.

use std::sync::OnceLock;

use fastcdc::v2020::FastCDC;

use crate::store::packs::MAX_PACKED_BYTES;

/// Bytes of the shortest chunk, but for the last one of an object.
pub(super) const SHORTEST: usize = 32 * 1024;
/// Bytes of a chunk in the long run.
const AVERAGE: usize = 64 * 1024;
/// Bytes of the longest chunk: what a pack takes.
pub(super) const LONGEST: usize = MAX_PACKED_BYTES as usize;

/// Length of the first chunk of contents that begin so. With fewer than [`LONGEST`] bytes the
/// contents have to end there.
pub(super) fn first(bytes: &[u8]) -> usize {
    let (_, end) = FastCDC::new(bytes, SHORTEST, AVERAGE, LONGEST).cut(0, bytes.len());
    // A cut of nothing would go on for ever.
    end.clamp(bytes.len().min(1), bytes.len())
}

/// Length of the first chunk of many zeros.
pub(super) fn first_of_zeros() -> usize {
    static LENGTH: OnceLock<usize> = OnceLock::new();
    *LENGTH.get_or_init(|| first(&[0; LONGEST]))
}
