//! The name of contents that are too long for one chain of SHA-256.
//!
//! SHA-256 is a chain, so a hole of terabytes costs the hours that as many zeros cost. Contents of
//! more than [`LONGEST_CHAIN_BYTES`] are named by the list of their pieces instead: runs of equal
//! pieces, each with the SHA-256 of a piece and how often it comes, and the length. The list
//! depends on the bytes alone, and a hole adds one run to it.
//!
//! The list is hashed with SHA-256 from the initial value of SHA-224 on (FIPS 180-4, 5.3.2), and
//! all 256 bits are the name. Shorter contents are hashed from another value. So bytes that look
//! like a list never have the name of the contents that it lists.

use std::sync::OnceLock;

use super::hash::{ContentHash, Hasher};
use super::midstates::Midstates;
use super::sha256::{State, Stream};

/// Longer contents are named by their list of pieces: to hash more zeros takes more than ten
/// seconds.
pub const LONGEST_CHAIN_BYTES: u64 = 16 << 30;

const PIECE_BYTES: u64 = Midstates::PIECE_BYTES;

/// FIPS 180-4, 5.3.2.
const INITIAL_OF_LISTS: State = [
    0xc105_9ed8,
    0x367c_d507,
    0x3070_dd17,
    0xf70e_5939,
    0xffc0_0b31,
    0x6858_1511,
    0x64f9_8fa7,
    0xbefa_4fa4,
];

/// Hashes a stream as a list of pieces.
#[derive(Default)]
pub(super) struct PieceList {
    /// The bytes of the last piece, which is not whole.
    piece: Hasher,
    /// The runs before the last one.
    list: Vec<u8>,
    /// The last run: a piece and how often it came.
    run: Option<(ContentHash, u64)>,
    bytes: u64,
}

impl PieceList {
    /// Number of bytes that were added.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let to_end = PIECE_BYTES - self.bytes % PIECE_BYTES;
            let (step, rest) = bytes.split_at(bytes.len().min(to_end as usize));
            self.piece.update(step);
            self.bytes += step.len() as u64;
            bytes = rest;
            if self.bytes.is_multiple_of(PIECE_BYTES) {
                self.end_piece();
            }
        }
    }

    /// Adds zeros, at the cost of two pieces at most.
    pub(super) fn update_zeros(&mut self, count: u64) {
        static ZEROS: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];
        let to_end = self.bytes.next_multiple_of(PIECE_BYTES) - self.bytes;
        let first = count.min(to_end);
        self.update(&ZEROS[..first as usize]);
        let (whole, last) = ((count - first) / PIECE_BYTES, (count - first) % PIECE_BYTES);
        if whole > 0 {
            static HASH: OnceLock<ContentHash> = OnceLock::new();
            self.add(*HASH.get_or_init(|| ContentHash::of(&ZEROS)), whole);
            self.bytes += whole * PIECE_BYTES;
        }
        self.update(&ZEROS[..last as usize]);
    }

    fn end_piece(&mut self) {
        let piece = std::mem::take(&mut self.piece).finish();
        self.add(piece, 1);
    }

    fn add(&mut self, piece: ContentHash, count: u64) {
        match &mut self.run {
            Some((last, times)) if *last == piece => *times += count,
            _ => {
                self.end_run();
                self.run = Some((piece, count));
            }
        }
    }

    fn end_run(&mut self) {
        if let Some((piece, times)) = self.run.take() {
            self.list.extend_from_slice(piece.as_bytes());
            self.list.extend_from_slice(&times.to_le_bytes());
        }
    }

    pub(super) fn finish(mut self) -> ContentHash {
        if !self.bytes.is_multiple_of(PIECE_BYTES) {
            self.end_piece();
        }
        self.end_run();
        self.list.extend_from_slice(&self.bytes.to_le_bytes());
        let mut stream = Stream::ending(INITIAL_OF_LISTS, 0, &self.list);
        stream.advance();
        stream.hash()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(parts: &[(bool, usize)], holes: bool) -> ContentHash {
        let mut list = PieceList::default();
        for (is_data, len) in parts {
            match is_data {
                false if holes => list.update_zeros(*len as u64),
                is_data => list.update(&vec![u8::from(*is_data) * 7; *len]),
            }
        }
        assert_eq!(list.bytes(), parts.iter().map(|(_, len)| *len as u64).sum::<u64>());
        list.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]
        #[test]
        fn a_hole_has_the_name_of_the_zeros_that_it_reads_as(
            parts in proptest::collection::vec(
                (
                    any::<bool>(),
                    prop_oneof![
                        0..9_usize,
                        (1_usize << 20) - 3..(1 << 20) + 3,
                        0..3_usize << 20
                    ]
                ),
                0..6,
            ),
        ) {
            prop_assert_eq!(listed(&parts, true), listed(&parts, false));
        }
    }

    #[test]
    fn every_byte_and_the_length_are_in_the_name() {
        const TIB: u64 = 1 << 40;
        let with = |at: u64, byte: u8, end: u64| {
            let mut list = PieceList::default();
            list.update_zeros(at);
            list.update(&[byte]);
            list.update_zeros(end - at - 1);
            list.finish()
        };
        let some = with(5 * TIB, 1, 8 * TIB);
        assert_eq!(some, with(5 * TIB, 1, 8 * TIB));
        for other in [
            with(5 * TIB, 2, 8 * TIB),
            with(5 * TIB + 1, 1, 8 * TIB),
            with(5 * TIB, 1, 8 * TIB + 1),
            with(5 * TIB + PIECE_BYTES, 1, 8 * TIB),
        ] {
            assert_ne!(some, other);
        }
    }

    #[test]
    fn the_bytes_of_a_list_do_not_have_its_name() {
        let mut list = PieceList::default();
        list.update(b"piece");
        let bytes =
            [ContentHash::of(b"piece").as_bytes(), &1_u64.to_le_bytes()[..], &5_u64.to_le_bytes()]
                .concat();
        assert_ne!(list.finish(), ContentHash::of(&bytes));
    }
}
