//! The lines of a text that certainly are lines of another.
//!
//! A repeated line has several places at which a diff can find it again: a removed copy of a block
//! may be any of the copies. One diff takes one of these places, and a merge by it may change the
//! wrong copy. So a line only counts if it has one place, by several diffs and however the lines
//! that they found are laid onto the texts.

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::histogram;

/// A text as numbers of its lines; equal lines have equal numbers.
pub(super) type Lines = [u32];

/// Pairs of equal lines of two texts, both ascending.
pub(super) type Pairs = Vec<(usize, usize)>;

/// A way to find lines of a text again in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alignment {
    /// A common subsequence that is as long as possible.
    Longest,
    /// Another one of these, where there are several: the texts are exchanged, so a line is added
    /// where the first one removes another line, and the other way round.
    LongestExchanged,
    /// Lines first that are rare in the base.
    Rarest,
}

impl Alignment {
    /// All of them. The first one is the fastest on texts that are unlike each other.
    pub(super) const ALL: [Self; 3] = [Self::Longest, Self::LongestExchanged, Self::Rarest];

    fn pairs(self, base: &Lines, side: &Lines) -> Pairs {
        match self {
            Self::Longest => equal_lines(Algorithm::Myers, base, side),
            Self::LongestExchanged => {
                let pairs = equal_lines(Algorithm::Myers, side, base);
                pairs.into_iter().map(|(to, at)| (at, to)).collect()
            }
            Self::Rarest => histogram::pairs(base, side),
        }
    }

    /// The same from the ends of the texts on.
    fn pairs_from_end(self, base: &Lines, side: &Lines) -> Pairs {
        let reversed = |lines: &Lines| lines.iter().rev().copied().collect::<Vec<_>>();
        let pairs = self.pairs(&reversed(base), &reversed(side));
        let (last, last_of_side) = (base.len().wrapping_sub(1), side.len().wrapping_sub(1));
        pairs.into_iter().rev().map(|(at, to)| (last - at, last_of_side - to)).collect()
    }
}

/// The place in another text of each line of the base, for those that have one place.
pub(super) struct Anchors(Vec<Option<usize>>);

impl Anchors {
    /// The anchors by one alignment, taken from both ends.
    pub(super) fn new(alignment: Alignment, base: &Lines, side: &Lines) -> Self {
        let mut anchors = Self::fixed(base, side, &alignment.pairs(base, side));
        anchors.retain(&Self::fixed(base, side, &alignment.pairs_from_end(base, side)));
        anchors
    }

    /// Keeps what other anchors say as well.
    pub(super) fn retain(&mut self, others: &Self) {
        for (place, other) in self.0.iter_mut().zip(&others.0) {
            if place != other {
                *place = None;
            }
        }
    }

    /// The place of a line of the base.
    pub(super) fn get(&self, at: usize) -> Option<usize> {
        self.0[at]
    }

    /// The pairs of common lines that stay the same pairs wherever in both texts the sequence of
    /// these lines is found.
    fn fixed(base: &Lines, side: &Lines, pairs: &Pairs) -> Self {
        let common: Vec<u32> = pairs.iter().map(|&(at, _)| base[at]).collect();
        let mut anchors = vec![None; base.len()];
        let in_both = only_places(base, &common).zip(only_places(side, &common));
        for (at, to) in in_both {
            if let (Some(at), Some(to)) = (at, to) {
                anchors[at] = Some(to);
            }
        }
        Self(anchors)
    }
}

/// For each line of a subsequence, its place in the text, if it has only one: from the start and
/// from the end, the sequence is found at the same place.
fn only_places(text: &Lines, common: &Lines) -> impl Iterator<Item = Option<usize>> {
    let first = found(text, 0..text.len(), common.iter());
    let last = found(text, (0..text.len()).rev(), common.iter().rev());
    let in_order = first.into_iter().zip(last.into_iter().rev());
    in_order.map(|(first, last)| (first == last).then_some(first))
}

/// The first places of lines, in the order of these places.
fn found<'a>(
    text: &Lines,
    places: impl Iterator<Item = usize>,
    lines: impl Iterator<Item = &'a u32>,
) -> Vec<usize> {
    let mut lines = lines.peekable();
    places.filter(|&at| lines.next_if(|line| **line == text[at]).is_some()).collect()
}

/// The equal lines of two texts by an algorithm.
pub(super) fn equal_lines(algorithm: Algorithm, base: &Lines, side: &Lines) -> Pairs {
    let mut pairs = Pairs::new();
    for op in capture_diff_slices(algorithm, base, side) {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            pairs.extend((0..len).map(|nth| (old_index + nth, new_index + nth)));
        }
    }
    pairs
}
