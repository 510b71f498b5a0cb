//! Where contents are cut: at places that depend on the bytes around them only, so that an
//! insertion moves no cut behind it.

use std::sync::OnceLock;

use fastcdc::v2020::FastCDC;

use crate::store::packs::MAX_PACKED_BYTES;

/// How long chunks are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lengths {
    /// The shortest one, but for the last one of an object.
    pub(super) shortest: usize,
    /// One in the long run.
    average: usize,
    /// The longest one.
    pub(super) longest: usize,
}

/// Chunks of contents. The longest is what a pack takes.
pub(super) const OF_CONTENTS: Lengths =
    Lengths { shortest: 32 * 1024, average: 64 * 1024, longest: MAX_PACKED_BYTES as usize };

/// Chunks of lists of names: a hundred entries. In a directory of 40,000 names some files change,
/// here and there, and each takes its chunk with it.
pub(super) const OF_LISTS: Lengths =
    Lengths { shortest: 2 * 1024, average: 4 * 1024, longest: 16 * 1024 };

impl Lengths {
    /// Length of the first chunk of contents that begin so. With fewer bytes than the longest one
    /// has, the contents have to end there.
    pub(super) fn first(self, bytes: &[u8]) -> usize {
        let Self { shortest, average, longest } = self;
        let (_, end) = FastCDC::new(bytes, shortest, average, longest).cut(0, bytes.len());
        // A cut of nothing would go on for ever.
        end.clamp(bytes.len().min(1), bytes.len())
    }
}

/// Length of the first chunk of contents that are zeros.
pub(super) fn first_of_zeros() -> usize {
    static LENGTH: OnceLock<usize> = OnceLock::new();
    *LENGTH.get_or_init(|| OF_CONTENTS.first(&[0; OF_CONTENTS.longest]))
}
