//! SHA-256 in parts (FIPS 180-4): from any state on, and of two things at once.
//!
//! Processors that have instructions for it hash one block after the other, each instruction
//! waiting for the one before, and are idle most of the time. But they look further ahead than one
//! block: when blocks of two streams come in turn, they work on both (AMD Zen 4: 1.8 GB/s become
//! 2.4; a third stream adds nothing). Without such instructions it takes as long as one after the
//! other.

use std::slice::from_ref;

use sha2::block_api::compress256;

use super::hash::ContentHash;

pub(super) const BLOCK_BYTES: usize = 64;
/// Bytes of a state: eight words, in the order and form of a SHA-256.
pub(super) const STATE_BYTES: usize = 32;
/// FIPS 180-4, 5.3.3.
pub(super) const INITIAL: State = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

pub(super) type State = [u32; 8];
pub(super) type Block = [u8; BLOCK_BYTES];

/// Hashes contents, two at a time, and tells the hash of each with its number in the order in which
/// they came. They are told in whatever order they are done.
pub fn hash_each<'a>(
    contents: impl IntoIterator<Item = &'a [u8]>,
    mut each: impl FnMut(usize, ContentHash),
) {
    let start = |bytes| Stream::ending(INITIAL, 0, bytes);
    let mut left = contents.into_iter().map(start).enumerate();
    let (mut first, mut second) = (left.next(), left.next());
    while let (Some((_, one)), Some((_, other))) = (&mut first, &mut second) {
        one.advance_with(other);
        for slot in [&mut first, &mut second] {
            if let Some((number, stream)) = slot.take_if(|(_, stream)| stream.is_at_end()) {
                each(number, stream.hash());
                *slot = left.next();
            }
        }
    }
    if let Some((number, mut stream)) = first.or(second) {
        stream.advance();
        each(number, stream.hash());
    }
}

/// The blocks that are left to hash of a message.
pub(super) struct Stream<'a> {
    state: State,
    blocks: &'a [Block],
    /// The blocks after these.
    padding: Padding,
}

impl<'a> Stream<'a> {
    /// The end of a message of which so many bytes, whole blocks, led to the state.
    pub(super) fn ending(state: State, bytes_before: u64, bytes: &'a [u8]) -> Self {
        let (blocks, partial) = bytes.as_chunks();
        let padding = Padding::new(partial, bytes_before + bytes.len() as u64);
        Self { state, blocks, padding }
    }

    /// Blocks from the middle of a message.
    pub(super) fn middle(state: State, blocks: &'a [Block]) -> Self {
        Self { state, blocks, padding: Padding::NONE }
    }

    fn is_at_end(&self) -> bool {
        self.blocks.is_empty() && self.padding.left().is_empty()
    }

    /// Hashes all that is left.
    pub(super) fn advance(&mut self) {
        compress256(&mut self.state, self.blocks);
        compress256(&mut self.state, self.padding.left());
        self.blocks = &[];
        self.padding = Padding::NONE;
    }

    /// Hashes what is left of this and of another one, until one of them is at its end.
    pub(super) fn advance_with(&mut self, other: &mut Self) {
        while !self.is_at_end() && !other.is_at_end() {
            let (mine, theirs) = (self.next_blocks(), other.next_blocks());
            let both = mine.len().min(theirs.len());
            let (mut state, mut other_state) = (self.state, other.state);
            for (block, other_block) in mine.iter().zip(theirs) {
                compress256(&mut state, from_ref(block));
                compress256(&mut other_state, from_ref(other_block));
            }
            (self.state, other.state) = (state, other_state);
            self.skip(both);
            other.skip(both);
        }
    }

    fn next_blocks(&self) -> &[Block] {
        if self.blocks.is_empty() { self.padding.left() } else { self.blocks }
    }

    fn skip(&mut self, blocks: usize) {
        match self.blocks {
            [] => self.padding.done += blocks,
            left => self.blocks = &left[blocks..],
        }
    }

    /// Where it stands.
    pub(super) fn state(&self) -> [u8; STATE_BYTES] {
        to_bytes(&self.state)
    }

    /// The hash of a message that is at its end.
    pub(super) fn hash(&self) -> ContentHash {
        ContentHash::from_bytes(self.state())
    }
}

/// The last blocks of a message (FIPS 180-4, 5.1.1): the rest that does not fill a block, a bit,
/// zeros, and the number of bits.
pub(super) struct Padding {
    blocks: [Block; 2],
    done: usize,
    end: usize,
}

impl Padding {
    const NONE: Self = Self { blocks: [[0; BLOCK_BYTES]; 2], done: 0, end: 0 };

    /// `partial` is shorter than a block and the end of a message of so many bytes.
    pub(super) fn new(partial: &[u8], message_bytes: u64) -> Self {
        let filled = partial.len();
        let end = if filled < BLOCK_BYTES - size_of::<u64>() { 1 } else { 2 };
        let mut blocks = [[0; BLOCK_BYTES]; 2];
        blocks[0][..filled].copy_from_slice(partial);
        blocks[0][filled] = 0x80;
        let bits = message_bytes.wrapping_mul(8).to_be_bytes();
        blocks[end - 1][BLOCK_BYTES - bits.len()..].copy_from_slice(&bits);
        Self { blocks, done: 0, end }
    }

    pub(super) fn left(&self) -> &[Block] {
        &self.blocks[self.done..self.end]
    }
}

/// The words of a state.
pub(super) fn words(bytes: &[u8; STATE_BYTES]) -> State {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|at| u32::from_be_bytes(words[at]))
}

pub(super) fn to_bytes(state: &State) -> [u8; STATE_BYTES] {
    let mut bytes = [0; STATE_BYTES];
    for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn of_any_number_each_gets_its_own_hash(
            contents in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..300),
                0..9
            ),
        ) {
            let mut hashes = vec![None; contents.len()];
            hash_each(contents.iter().map(|bytes| &**bytes), |number, hash| {
                assert!(hashes[number].replace(hash).is_none());
            });
            let expected = contents.iter().map(|bytes| Some(ContentHash::of(bytes)));
            prop_assert_eq!(hashes, expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn all_lengths_around_a_block_are_padded_right() {
        let bytes = [7; 3 * BLOCK_BYTES];
        for len in 0..bytes.len() {
            let mut stream = Stream::ending(INITIAL, 0, &bytes[..len]);
            stream.advance();
            assert_eq!(stream.hash(), ContentHash::of(&bytes[..len]), "{len}");
        }
    }

    #[test]
    fn a_stream_goes_on_from_where_another_one_stands() {
        let bytes: Vec<u8> = (0..10 * BLOCK_BYTES as u32 + 5).map(|at| (at / 3) as u8).collect();
        let (begin, end) = bytes.split_at(4 * BLOCK_BYTES);
        let mut first = Stream::middle(INITIAL, begin.as_chunks().0);
        first.advance();
        let mut last = Stream::ending(words(&first.state()), begin.len() as u64, end);
        let mut other = Stream::ending(INITIAL, 0, &bytes);
        last.advance_with(&mut other);
        assert!(last.is_at_end() && !other.is_at_end());
        other.advance();
        assert_eq!((last.hash(), other.hash()), (ContentHash::of(&bytes), ContentHash::of(&bytes)));
    }
}
