//! The line diff of two texts, on bytes.
//!
//! Lines end at `\n` only, as for git and `patch`: a lone `\r` is part of its line. Each line is
//! interned to a number first, so that comparing two lines costs nothing and hostile input (long
//! lines that differ in the last byte) cannot make it slow.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

/// Two texts in lines, and how the second comes from the first.
pub(super) struct LineDiff<'a> {
    old: Vec<&'a [u8]>,
    new: Vec<&'a [u8]>,
    ops: Vec<DiffOp>,
}

/// A run of lines that is the same on both sides, or in which the old lines were replaced by the
/// new ones; either may be none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) is_same: bool,
    /// Indices from 0.
    pub(super) old: Range<usize>,
    /// Indices from 0.
    pub(super) new: Range<usize>,
}

impl From<&DiffOp> for Block {
    fn from(op: &DiffOp) -> Self {
        let (tag, old, new) = op.as_tag_tuple();
        Self { is_same: tag == DiffTag::Equal, old, new }
    }
}

impl<'a> LineDiff<'a> {
    /// Compares two texts, for about `timeout` at most.
    pub(super) fn new(old: &'a [u8], new: &'a [u8], timeout: Duration) -> Self {
        let old: Vec<_> = old.split_inclusive(|byte| *byte == b'\n').collect();
        let new: Vec<_> = new.split_inclusive(|byte| *byte == b'\n').collect();
        let mut numbers = HashMap::with_capacity(old.len());
        let mut number = |line: &&'a [u8]| {
            let next = numbers.len();
            *numbers.entry(*line).or_insert(next)
        };
        let old_numbers: Vec<usize> = old.iter().map(&mut number).collect();
        let new_numbers: Vec<usize> = new.iter().map(&mut number).collect();
        let deadline = Instant::now().checked_add(timeout);
        let ops =
            capture_diff_slices_deadline(Algorithm::Myers, &old_numbers, &new_numbers, deadline);
        Self { old, new, ops }
    }

    /// Lines of the old text, each with its end.
    pub(super) fn old(&self) -> &[&'a [u8]] {
        &self.old
    }

    /// Lines of the new text, each with its end.
    pub(super) fn new_lines(&self) -> &[&'a [u8]] {
        &self.new
    }

    /// Everything from top to bottom.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.ops.iter().map(Block::from)
    }

    /// The changed places, each with up to `context` unchanged lines around it.
    pub(super) fn hunks(&self, context: usize) -> Vec<Vec<Block>> {
        // Twice the context is computed, which must not overflow.
        group_diff_ops(self.ops.clone(), context.min(usize::MAX / 4))
            .iter()
            .map(|group| group.iter().map(Block::from).collect())
            .collect()
    }
}

/// The ranges of lines that a hunk covers.
pub(super) fn extent(hunk: &[Block]) -> (Range<usize>, Range<usize>) {
    match (hunk.first(), hunk.last()) {
        (Some(first), Some(last)) => (first.old.start..last.old.end, first.new.start..last.new.end),
        _ => (0..0, 0..0),
    }
}

/// `12,7`, the way a hunk says which lines it covers.
pub(super) fn hunk_range(range: &Range<usize>) -> String {
    match range.len() {
        // Nothing has no first line: the line before it is named.
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        count => format!("{},{count}", range.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_secs(60);

    fn rebuilt(diff: &LineDiff<'_>, blocks: impl Iterator<Item = Block>) -> (Vec<u8>, Vec<u8>) {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let mut at = (0, 0);
        for block in blocks {
            assert_eq!((block.old.start, block.new.start), at);
            at = (block.old.end, block.new.end);
            if block.is_same {
                assert_eq!(diff.old[block.old.clone()], diff.new[block.new.clone()]);
            }
            old.extend(diff.old[block.old].concat());
            new.extend(diff.new[block.new].concat());
        }
        (old, new)
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        const PIECES: [&[u8]; 5] = [b"a\n", b"b\n", b"\n", b"c\r\n", b"d"];
        let piece = proptest::sample::select(&PIECES[..]);
        proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn the_blocks_make_up_both_texts(old in text(), new in text(), hurried in any::<bool>()) {
            let diff = LineDiff::new(&old, &new, if hurried { Duration::ZERO } else { LONG });
            prop_assert_eq!(rebuilt(&diff, diff.blocks()), (old.clone(), new.clone()));
            if old != new {
                let hunks = diff.hunks(usize::MAX);
                prop_assert_eq!(hunks.len(), 1);
                let rebuilt = rebuilt(&diff, hunks.into_iter().flatten());
                prop_assert_eq!(rebuilt, (old.clone(), new.clone()));
            }
        }
    }

    #[test]
    fn a_line_without_its_newline_is_another_line() {
        let diff = LineDiff::new(b"a\nb", b"a\nb\n", LONG);
        let blocks: Vec<_> = diff.blocks().collect();
        assert_eq!(blocks[1], Block { is_same: false, old: 1..2, new: 1..2 });
    }

    #[test]
    fn a_carriage_return_ends_no_line() {
        assert_eq!(LineDiff::new(b"a\rb\r\nc", b"", LONG).old(), [&b"a\rb\r\n"[..], b"c"]);
    }

    #[test]
    fn a_deadline_bounds_hostile_input() {
        let make = |seed: u64| {
            let mut state = seed;
            let mut text = Vec::new();
            for _ in 0..400_000 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                text.extend_from_slice(&[b'a' + ((state >> 60) as u8 % 8), b'\n']);
            }
            text
        };
        let (old, new) = (make(1), make(2));
        let start = Instant::now();
        let diff = LineDiff::new(&old, &new, Duration::from_millis(200));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(rebuilt(&diff, diff.blocks()), (old.clone(), new.clone()));
    }

    #[test]
    fn empty_ranges_name_the_line_before() {
        assert_eq!(hunk_range(&(0..0)), "0,0");
        assert_eq!(hunk_range(&(4..4)), "4,0");
        assert_eq!(hunk_range(&(4..5)), "5");
        assert_eq!(hunk_range(&(4..7)), "5,3");
    }
}
