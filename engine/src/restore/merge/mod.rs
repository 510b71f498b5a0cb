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

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use foldhash::fast::RandomState;

use align::{Alignment, Anchors, Lines};
pub(super) use states::{Chosen, Merged, Merger, is_same};

/// Longer texts are not merged.
const MAX_BYTES: usize = 8 << 20;

/// A part of a text that both changes touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The number of its first line in the present text, from 1.
    pub line: usize,
    /// Its lines as the session left them.
    pub was: Vec<u8>,
    /// Its lines as they are now.
    pub ours: Vec<u8>,
    /// Its lines before the session.
    pub theirs: Vec<u8>,
}

/// The fate of a hunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HunkChoice {
    /// The lines stay as they are now.
    Ours,
    /// The lines are as before the session.
    Theirs,
    /// The lines of now, and behind them those of before the session.
    Both,
}

/// `ours` with what leads from `base` to `theirs`. `None`: the two changes touch each other or may
/// do so, or one of the three is no text.
fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let mut numbers = Numbers::default();
    let texts = numbers.of_texts([base, ours, theirs])?;
    // Fewer anchors make no conflict go, so the first ones may be the end.
    let parts = parts(&texts, true);
    let is_settled = parts.iter().all(|part| matches!(part, Part::Settled(_)));
    let bytes = || parts.iter().flat_map(|it| it.bytes(&texts, &numbers, HunkChoice::Ours));
    is_settled.then(|| bytes().collect())
}

/// The hunks that both changes touch, from top to bottom. `None`: one of the three is no text.
pub fn touching_hunks(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<Hunk>> {
    let mut numbers = Numbers::default();
    let texts = numbers.of_texts([base, ours, theirs])?;
    let hunks = parts(&texts, false).into_iter().filter_map(|part| {
        let Part::Touching(ranges) = part else { return None };
        let line = ranges[1].start + 1;
        let mut of = texts.iter().zip(ranges).map(|(text, range)| numbers.text(&text[range]));
        Some(Hunk { line, was: of.next()?, ours: of.next()?, theirs: of.next()? })
    });
    Some(hunks.collect())
}

/// `ours` with what leads from `base` to `theirs`, and in each touching hunk as it was chosen.
/// `None`: one of the three is no text, or there are other hunks than choices.
pub fn merge_chosen([base, ours, theirs]: [&[u8]; 3], choices: &[HunkChoice]) -> Option<Vec<u8>> {
    let mut numbers = Numbers::default();
    let texts = numbers.of_texts([base, ours, theirs])?;
    let mut choices = choices.iter().copied();
    let mut merged = Vec::new();
    for part in parts(&texts, false) {
        let choice = match part {
            Part::Settled(_) => HunkChoice::Ours,
            Part::Touching(_) => choices.next()?,
        };
        merged.extend(part.bytes(&texts, &numbers, choice));
    }
    choices.next().is_none().then_some(merged)
}

/// Whether a text is a merge of the three with any choices.
fn is_chosen(texts: [&[u8]; 3], merged: &[u8]) -> bool {
    let mut numbers = Numbers::default();
    let Some(texts) = numbers.of_texts(texts) else { return false };
    // Where in the merged text the parts so far may end.
    let mut ends = BTreeSet::from([0]);
    for part in parts(&texts, false) {
        let choices: &[HunkChoice] = match part {
            Part::Settled(_) => &[HunkChoice::Ours],
            Part::Touching(_) => &[HunkChoice::Ours, HunkChoice::Theirs, HunkChoice::Both],
        };
        let forms: Vec<Vec<u8>> =
            choices.iter().map(|choice| part.bytes(&texts, &numbers, *choice)).collect();
        let next = |at: &usize| {
            let rest = &merged[*at..];
            let fitting = forms.iter().filter(|bytes| rest.starts_with(bytes));
            fitting.map(|bytes| at + bytes.len()).collect::<Vec<_>>()
        };
        ends = ends.iter().flat_map(next).collect();
    }
    ends.contains(&merged.len())
}

/// A part of a merge.
enum Part {
    /// The lines of the merged text.
    Settled(Vec<u32>),
    /// The lines of the base, ours and theirs, of which each differs from the others.
    Touching([Range<usize>; 3]),
}

impl Part {
    /// Its bytes in the merged text.
    fn bytes(
        &self,
        [_, ours, theirs]: &[Vec<u32>; 3],
        numbers: &Numbers<'_>,
        choice: HunkChoice,
    ) -> Vec<u8> {
        let [our, their] = match self {
            Self::Settled(lines) => return numbers.text(lines),
            Self::Touching([_, our, their]) => [&ours[our.clone()], &theirs[their.clone()]],
        };
        match choice {
            HunkChoice::Ours => numbers.text(our),
            HunkChoice::Theirs => numbers.text(their),
            HunkChoice::Both => {
                let mut bytes = numbers.text(our);
                // The last line of a text may have no end.
                if !their.is_empty() && bytes.last().is_some_and(|last| *last != b'\n') {
                    bytes.push(b'\n');
                }
                bytes.extend(numbers.text(their));
                bytes
            }
        }
    }
}

/// The parts of a merge, from top to bottom. `ends_at_touching`: parts behind the first alignment
/// that has touching ones are of no interest.
fn parts(texts: &[Vec<u32>; 3], ends_at_touching: bool) -> Vec<Part> {
    let [base, ours, theirs] = texts;
    let [first, others @ ..] = Alignment::ALL;
    let mut in_ours = Anchors::new(first, base, ours);
    let mut in_theirs = Anchors::new(first, base, theirs);
    let mut parts = between_anchors([base, ours, theirs], &in_ours, &in_theirs);
    for alignment in others {
        if ends_at_touching && parts.iter().any(|part| matches!(part, Part::Touching(_))) {
            break;
        }
        in_ours.retain(&Anchors::new(alignment, base, ours));
        in_theirs.retain(&Anchors::new(alignment, base, theirs));
        parts = between_anchors([base, ours, theirs], &in_ours, &in_theirs);
    }
    parts
}

/// Merges the parts between the lines of the base that have a place in both other versions.
fn between_anchors(
    [base, ours, theirs]: [&Lines; 3],
    in_ours: &Anchors,
    in_theirs: &Anchors,
) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut settled = Vec::with_capacity(ours.len());
    let mut starts = [0; 3];
    let anchors = (0..base.len()).filter_map(|at| Some([at, in_ours.get(at)?, in_theirs.get(at)?]));
    let ends = [base.len(), ours.len(), theirs.len()];
    for places in anchors.chain([ends]) {
        let ranges: [Range<usize>; 3] = std::array::from_fn(|side| starts[side]..places[side]);
        let was = &base[ranges[0].clone()];
        let (our, their) = (&ours[ranges[1].clone()], &theirs[ranges[2].clone()]);
        if our == was {
            settled.extend_from_slice(their);
        } else if their == was || our == their {
            settled.extend_from_slice(our);
        } else {
            parts.push(Part::Settled(std::mem::take(&mut settled)));
            parts.push(Part::Touching(ranges));
        }
        settled.extend(base.get(places[0]));
        starts = places.map(|place| place + 1);
    }
    parts.push(Part::Settled(settled));
    parts
}

/// The lines of texts, each with its number.
#[derive(Default)]
struct Numbers<'a> {
    known: HashMap<&'a [u8], u32, RandomState>,
    lines: Vec<&'a [u8]>,
}

impl<'a> Numbers<'a> {
    /// The numbers of the lines of three texts. `None`: one of them is none, or is too long.
    fn of_texts(&mut self, texts: [&'a [u8]; 3]) -> Option<[Vec<u32>; 3]> {
        let is_text = |bytes: &&[u8]| bytes.len() <= MAX_BYTES && !bytes.contains(&0);
        texts.iter().all(is_text).then(|| texts.map(|text| self.of_lines(text)))
    }

    /// The text of these lines.
    fn text(&self, lines: &Lines) -> Vec<u8> {
        lines.iter().flat_map(|&line| self.line(line)).copied().collect()
    }

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
