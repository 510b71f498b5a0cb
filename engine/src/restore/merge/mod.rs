//! Merging three versions of a text by lines, where that is beyond doubt.
//!
//! A line of the base is an anchor where its place in both other versions is sure (`align`).
//! Between two anchors one version may differ from the base, or both in the same way. All else is
//! a conflict. So changes of neighbouring lines are one, and so are changes next to a repeated
//! block of which a copy came or went: a wrong copy must not go.
//!
//! Where `git merge-file` or `diff3` merge without a conflict, the text is theirs or there is none.

mod align;
mod histogram;
mod states;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use foldhash::fast::RandomState;

use align::{Alignment, Anchors, Lines};
pub(super) use states::{Merged, Merger, is_same};

/// Longer texts are not merged.
const MAX_BYTES: usize = 8 << 20;

/// `ours` with what leads from `base` to `theirs`. `None`: the two changes touch each other or may
/// do so, or one of the three is no text.
fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let is_text = |bytes: &[u8]| bytes.len() <= MAX_BYTES && !bytes.contains(&0);
    if ![base, ours, theirs].into_iter().all(is_text) {
        return None;
    }
    let mut numbers = Numbers::default();
    let [base, ours, theirs] = [base, ours, theirs].map(|text| numbers.of_lines(text));
    let [first, others @ ..] = Alignment::ALL;
    let mut in_ours = Anchors::new(first, &base, &ours);
    let mut in_theirs = Anchors::new(first, &base, &theirs);
    let mut merged = between_anchors([&base, &ours, &theirs], &in_ours, &in_theirs)?;
    // Fewer anchors make no conflict go, so the first one is the end.
    for alignment in others {
        in_ours.retain(&Anchors::new(alignment, &base, &ours));
        in_theirs.retain(&Anchors::new(alignment, &base, &theirs));
        merged = between_anchors([&base, &ours, &theirs], &in_ours, &in_theirs)?;
    }
    Some(merged.iter().flat_map(|&line| numbers.line(line)).copied().collect())
}

/// Merges the parts between the lines of the base that have a place in both other versions.
fn between_anchors(
    [base, ours, theirs]: [&Lines; 3],
    in_ours: &Anchors,
    in_theirs: &Anchors,
) -> Option<Vec<u32>> {
    let mut merged = Vec::with_capacity(ours.len());
    let mut starts = [0; 3];
    let anchors = (0..base.len()).filter_map(|at| Some([at, in_ours.get(at)?, in_theirs.get(at)?]));
    let ends = [base.len(), ours.len(), theirs.len()];
    for places in anchors.chain([ends]) {
        let was = &base[starts[0]..places[0]];
        let (our, their) = (&ours[starts[1]..places[1]], &theirs[starts[2]..places[2]]);
        let part = if our == was {
            their
        } else if their == was || our == their {
            our
        } else {
            return None;
        };
        merged.extend_from_slice(part);
        merged.extend(base.get(places[0]));
        starts = places.map(|place| place + 1);
    }
    Some(merged)
}

/// The lines of texts, each with its number.
#[derive(Default)]
struct Numbers<'a> {
    known: HashMap<&'a [u8], u32, RandomState>,
    lines: Vec<&'a [u8]>,
}

impl<'a> Numbers<'a> {
    /// The numbers of the lines of a text. A line has its end with it.
    fn of_lines(&mut self, text: &'a [u8]) -> Vec<u32> {
        let lines = text.split_inclusive(|&byte| byte == b'\n');
        let number = |line| {
            *self.known.entry(line).or_insert_with(|| {
                self.lines.push(line);
                u32::try_from(self.lines.len() - 1).expect("fewer lines than bytes")
            })
        };
        lines.map(number).collect()
    }

    fn line(&self, number: u32) -> &'a [u8] {
        self.lines[number as usize]
    }
}
