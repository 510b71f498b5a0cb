//! Where SHA-256 stands after each piece of a long file.
//!
//! SHA-256 is a chain: the state after one piece and the bytes of the next give the state after
//! that (FIPS 180-4, 6.2.2). With the states a reader can verify any piece by itself, so that the
//! first byte of a file of many gigabytes does not wait for the hash of the last one. They cost
//! nothing while a file is hashed anyway. A tree names the object with the states beside the
//! contents, so they are trusted as much as the hash of the contents is; the last piece has to give
//! that hash itself.

use sha2::block_api::compress256;

use super::codec::{DecodeError, Reader, Writer};
use super::hash::ContentHash;
use super::piece_list::{LONGEST_CHAIN_BYTES, PieceList};
use super::sha256::{BLOCK_BYTES, INITIAL, Padding, STATE_BYTES, State, Stream, to_bytes, words};

const MAGIC: &[u8; 8] = b"nonomids";
const VERSION: u8 = 1;

/// The states of the hash of one file after each of its pieces but the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Midstates(Box<[[u8; STATE_BYTES]]>);

/// Where a tree names the [`Midstates`] of a file, if it does: a short file has none. The hash of
/// the contents says all that they could, so two links are always equal.
// Behind a pointer, because millions of entries have room for one and few have one.
#[derive(Clone, Debug, Default)]
pub struct MidstatesLink(Option<Box<ContentHash>>);

impl PartialEq for MidstatesLink {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for MidstatesLink {}

impl MidstatesLink {
    /// None are named.
    pub const NONE: Self = Self(None);

    /// To the object of this name.
    pub fn to(name: ContentHash) -> Self {
        Self(Some(Box::new(name)))
    }

    /// The name of the object.
    pub fn name(&self) -> Option<ContentHash> {
        self.0.as_deref().copied()
    }
}

const _: () = assert!(size_of::<MidstatesLink>() == size_of::<usize>());

impl Midstates {
    /// Length of a piece in bytes. The last one can be shorter.
    pub const PIECE_BYTES: u64 = 1 << 20;

    /// Whether they are kept of files of this length: those of more than one piece, up to the
    /// length from which on a list of pieces names the contents.
    pub fn are_kept_of(file_bytes: u64) -> bool {
        (Self::PIECE_BYTES + 1..=LONGEST_CHAIN_BYTES).contains(&file_bytes)
    }

    /// Length in bytes of the object with the states of a file of this length.
    pub fn encoded_bytes(file_bytes: u64) -> u64 {
        (MAGIC.len() + 1) as u64 + Self::count(file_bytes) * STATE_BYTES as u64
    }

    fn count(file_bytes: u64) -> u64 {
        file_bytes.saturating_sub(1) / Self::PIECE_BYTES
    }

    /// The canonical bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(MAGIC, VERSION);
        writer.raw(self.0.as_flattened());
        writer.finish()
    }

    /// Reads the states of a file of `file_bytes`.
    ///
    /// # Errors
    /// Anything that [`encode`](Self::encode) would not have written for such a file.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, MAGIC, "list of midstates", VERSION)?;
        if !Self::are_kept_of(file_bytes) || bytes.len() as u64 != Self::encoded_bytes(file_bytes) {
            return Err(reader.invalid("not as many states as the file has pieces"));
        }
        let states = reader.raw(bytes.len() - MAGIC.len() - 1)?;
        Ok(Self(states.as_chunks().0.into()))
    }

    /// Number of pieces of the file.
    pub fn pieces(&self) -> u64 {
        self.0.len() as u64 + 1
    }

    /// Whether these are the bytes of the piece with this number, counted from 0, of the contents
    /// `hash`. The answer for the last piece depends on all before it: `hash` is only reached
    /// through the listed states.
    pub fn verifies(&self, piece: u64, bytes: &[u8], hash: &ContentHash) -> bool {
        let Some((mut stream, after)) = self.stream(piece, bytes, hash) else { return false };
        stream.advance();
        stream.state() == after
    }

    /// The same of two pieces, each with its bytes, hashed at once.
    pub fn verifies_two(&self, pieces: [(u64, &[u8]); 2], hash: &ContentHash) -> [bool; 2] {
        let mut streams = pieces.map(|(piece, bytes)| self.stream(piece, bytes, hash));
        if let [Some((first, _)), Some((second, _))] = &mut streams {
            first.advance_with(second);
        }
        streams.map(|stream| {
            stream.is_some_and(|(mut stream, after)| {
                stream.advance();
                stream.state() == after
            })
        })
    }

    /// The blocks of a piece, and the state that they have to lead to. `None`: there is no piece of
    /// this number and length.
    fn stream<'a>(
        &self,
        piece: u64,
        bytes: &'a [u8],
        hash: &ContentHash,
    ) -> Option<(Stream<'a>, [u8; STATE_BYTES])> {
        let number = usize::try_from(piece).ok()?;
        let begin = match number.checked_sub(1) {
            None => INITIAL,
            Some(before) => words(self.0.get(before)?),
        };
        match self.0.get(number) {
            Some(after) => {
                let is_whole = bytes.len() as u64 == Self::PIECE_BYTES;
                is_whole.then(|| (Stream::middle(begin, bytes.as_chunks().0), *after))
            }
            None => {
                let is_possible = (1..=Self::PIECE_BYTES).contains(&(bytes.len() as u64));
                let before = piece * Self::PIECE_BYTES;
                is_possible.then(|| (Stream::ending(begin, before, bytes), *hash.as_bytes()))
            }
        }
    }
}

/// Gives contents their name, and notes the state after each piece where these are kept.
pub struct PieceHasher(Way);

enum Way {
    Chain { chain: Chain, states: Vec<[u8; STATE_BYTES]> },
    List(PieceList),
}

impl std::fmt::Debug for PieceHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = match &self.0 {
            Way::Chain { chain, .. } => chain.bytes,
            Way::List(list) => list.bytes(),
        };
        f.debug_struct("PieceHasher").field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl PieceHasher {
    /// A hasher of contents of this length that has seen nothing. The hash of contents of another
    /// length is only their name where both lengths are hashed in the [same
    /// way](Self::counts_holes).
    pub fn new(contents_bytes: u64) -> Self {
        Self(match Self::counts_holes(contents_bytes) {
            true => Way::List(PieceList::default()),
            false => Way::Chain { chain: Chain::new(), states: Vec::new() },
        })
    }

    /// Whether contents of this length are named by the list of their pieces, so that a hole of any
    /// length costs nothing.
    pub fn counts_holes(contents_bytes: u64) -> bool {
        contents_bytes > LONGEST_CHAIN_BYTES
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Way::Chain { chain, states } => {
                chain.update(bytes, |state| states.push(to_bytes(state)));
            }
            Way::List(list) => list.update(bytes),
        }
    }

    /// Adds `count` zero bytes: a hole in a sparse file.
    pub fn update_zeros(&mut self, mut count: u64) {
        static ZEROS: [u8; 65536] = [0; 65536];
        if let Way::List(list) = &mut self.0 {
            return list.update_zeros(count);
        }
        while count > 0 {
            let step = count.min(ZEROS.len() as u64) as usize;
            self.update(&ZEROS[..step]);
            count -= step as u64;
        }
    }

    /// The name of everything added, and the states on the way where they are kept.
    pub fn finish(self) -> (ContentHash, Option<Midstates>) {
        let (chain, mut states) = match self.0 {
            Way::Chain { chain, states } => (chain, states),
            Way::List(list) => return (list.finish(), None),
        };
        let bytes = chain.bytes;
        // After the last piece stands the hash.
        states.truncate(usize::try_from(Midstates::count(bytes)).unwrap_or(usize::MAX));
        let states = Midstates::are_kept_of(bytes).then(|| Midstates(states.into()));
        (chain.finish(), states)
    }
}

/// SHA-256 of a stream that comes in parts of any length, with a state that can be taken out.
struct Chain {
    state: State,
    /// Number of bytes that were added.
    bytes: u64,
    /// The rest of the last piece that does not fill a block.
    partial: [u8; BLOCK_BYTES],
}

impl Chain {
    fn new() -> Self {
        Self { state: INITIAL, bytes: 0, partial: [0; BLOCK_BYTES] }
    }

    /// `at_end` is told the state at the end of each piece.
    fn update(&mut self, mut bytes: &[u8], mut at_end: impl FnMut(&State)) {
        while !bytes.is_empty() {
            let filled = (self.bytes % BLOCK_BYTES as u64) as usize;
            let step = if filled > 0 || bytes.len() < BLOCK_BYTES {
                let step = bytes.len().min(BLOCK_BYTES - filled);
                self.partial[filled..filled + step].copy_from_slice(&bytes[..step]);
                if filled + step == BLOCK_BYTES {
                    compress256(&mut self.state, &[self.partial]);
                }
                step
            } else {
                let to_end = Midstates::PIECE_BYTES - self.bytes % Midstates::PIECE_BYTES;
                let most = usize::try_from(to_end).unwrap_or(usize::MAX);
                let (blocks, _) = bytes[..bytes.len().min(most)].as_chunks();
                compress256(&mut self.state, blocks);
                size_of_val(blocks)
            };
            self.bytes += step as u64;
            bytes = &bytes[step..];
            if self.bytes.is_multiple_of(Midstates::PIECE_BYTES) {
                at_end(&self.state);
            }
        }
    }

    fn finish(mut self) -> ContentHash {
        let filled = (self.bytes % BLOCK_BYTES as u64) as usize;
        let padding = Padding::new(&self.partial[..filled], self.bytes);
        compress256(&mut self.state, padding.left());
        ContentHash::from_bytes(to_bytes(&self.state))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIECE: usize = Midstates::PIECE_BYTES as usize;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 7 * 31 % 251) as u8).collect()
    }

    fn hashed(bytes: &[u8]) -> (ContentHash, Option<Midstates>) {
        let mut hasher = PieceHasher::new(bytes.len() as u64);
        hasher.update(bytes);
        hasher.finish()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn in_whatever_parts_bytes_come_the_hash_is_theirs(
            len in prop_oneof![
                0..300_usize,
                PIECE - 130..PIECE + 130,
                3 * PIECE - 130..3 * PIECE + 130
            ],
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        ) {
            let bytes = pattern(len);
            let cuts = cuts.iter().map(|cut| cut.index(len + 1));
            let mut cuts: Vec<_> = cuts.chain([0, len]).collect();
            cuts.sort_unstable();
            let mut hasher = PieceHasher::new(len as u64);
            for pair in cuts.windows(2) {
                hasher.update(&bytes[pair[0]..pair[1]]);
            }
            let (hash, states) = hasher.finish();
            prop_assert_eq!(hash, ContentHash::of(&bytes));
            prop_assert_eq!(&states, &hashed(&bytes).1);
            prop_assert_eq!(states.is_some(), len > PIECE);
        }
    }

    #[test]
    fn zeros_are_hashed_as_bytes() {
        let mut hasher = PieceHasher::new((5 << 20) + 1);
        hasher.update(b"x");
        hasher.update_zeros(5 << 20);
        let bytes = [b"x".as_slice(), &vec![0; 5 << 20]].concat();
        assert_eq!(hasher.finish(), hashed(&bytes));
    }

    #[test]
    fn each_piece_is_verified_by_itself() {
        for len in [PIECE + 1, 2 * PIECE, 2 * PIECE + 64, 3 * PIECE - 1] {
            let bytes = pattern(len);
            let (hash, states) = hashed(&bytes);
            let states = states.unwrap();
            assert_eq!(states.pieces(), len.div_ceil(PIECE) as u64);
            for (number, piece) in bytes.chunks(PIECE).enumerate() {
                let number = number as u64;
                assert!(states.verifies(number, piece, &hash));
                let mut other = piece.to_vec();
                *other.last_mut().unwrap() ^= 1;
                assert!(!states.verifies(number, &other, &hash));
                assert!(!states.verifies(number, &piece[..piece.len() - 1], &hash));
                assert!(!states.verifies(number + 1, piece, &hash));
                for (second, other) in bytes.chunks(PIECE).enumerate() {
                    let second = second as u64;
                    let two = |first, second| states.verifies_two([first, second], &hash);
                    assert_eq!(two((number, piece), (second, other)), [true, true]);
                    let wrong = [b"x", &other[1..]].concat();
                    assert_eq!(two((number, piece), (second, &wrong)), [true, false]);
                    assert_eq!(two((second, &wrong), (number, piece)), [false, true]);
                    assert_eq!(two((number, piece), (second, &other[1..])), [true, false]);
                }
            }
            let last = bytes.chunks(PIECE).last().unwrap();
            let other = ContentHash::of(b"other");
            assert!(!states.verifies(states.pieces() - 1, last, &other));
            assert!(!states.verifies(states.pieces(), b"", &hash));
            assert!(!states.verifies(u64::MAX, last, &hash));
        }
    }

    #[test]
    fn nothing_else_than_what_was_encoded_is_decoded() {
        let len = 5 * PIECE + 3;
        let (_, states) = hashed(&pattern(len));
        let states = states.unwrap();
        let bytes = states.encode();
        assert_eq!(bytes.len() as u64, Midstates::encoded_bytes(len as u64));
        assert_eq!(Midstates::decode(&bytes, len as u64), Ok(states));
        for wrong in [0, 1, 4 * PIECE, 5 * PIECE, 6 * PIECE + 1, usize::MAX] {
            assert!(Midstates::decode(&bytes, wrong as u64).is_err(), "{wrong}");
        }
        assert!(Midstates::decode(&bytes[..bytes.len() - 1], len as u64).is_err());
        assert!(Midstates::decode(&[&*bytes, b"x"].concat(), len as u64).is_err());
    }
}
