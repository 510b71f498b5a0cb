//! The histogram diff of git (`xdiff/xhistogram.c`), which came from JGit.
//!
//! The longest run of common lines that has the rarest line of the base comes first, and the parts
//! before and after it are compared in the same way. It takes the same runs as git, because a merge
//! must not differ from git's; the histogram of `similar` takes others.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use similar::Algorithm;

use super::align::{Lines, Pairs, equal_lines};

/// Lines that occur more often begin no run, as in git.
const MAX_OCCURRENCES: usize = 64;

/// The common lines of two texts.
pub(super) fn pairs(base: &Lines, side: &Lines) -> Pairs {
    let mut pairs = Pairs::new();
    let mut left = vec![(0..base.len(), 0..side.len())];
    while let Some((in_base, in_side)) = left.pop() {
        let (part, other) = (&base[in_base.clone()], &side[in_side.clone()]);
        match Part::new(part).rarest_run(other) {
            Common::Nothing => {}
            Common::TooOften => {
                let found = equal_lines(Algorithm::Myers, part, other);
                pairs.extend(found.iter().map(|(a, b)| (in_base.start + a, in_side.start + b)));
            }
            Common::Run(run) => {
                let (a, b) = (in_base.start + run.base, in_side.start + run.side);
                pairs.extend((0..run.length).map(|nth| (a + nth, b + nth)));
                left.push((in_base.start..a, in_side.start..b));
                left.push((a + run.length..in_base.end, b + run.length..in_side.end));
            }
        }
    }
    pairs.sort_unstable();
    pairs
}

enum Common {
    Nothing,
    /// Only lines that occur too often.
    TooOften,
    Run(Run),
}

/// Equal lines in a row.
struct Run {
    base: usize,
    side: usize,
    length: usize,
}

/// A line in a part of the base.
struct Occurrences {
    first: usize,
    count: usize,
}

/// A part of the base.
struct Part<'a> {
    lines: &'a Lines,
    occurrences: HashMap<u32, Occurrences, RandomState>,
    /// For each line, the next place with an equal one.
    next: Vec<Option<usize>>,
}

impl<'a> Part<'a> {
    fn new(lines: &'a Lines) -> Self {
        let mut occurrences: HashMap<u32, Occurrences, RandomState> = HashMap::default();
        let mut next = vec![None; lines.len()];
        for (at, line) in lines.iter().enumerate().rev() {
            let known = occurrences.entry(*line).or_insert(Occurrences { first: at, count: 0 });
            next[at] = (known.count > 0).then_some(known.first);
            *known = Occurrences { first: at, count: known.count + 1 };
        }
        Self { lines, occurrences, next }
    }

    fn count(&self, at: usize) -> usize {
        self.occurrences[&self.lines[at]].count
    }

    fn rarest_run(&self, side: &Lines) -> Common {
        let mut rarest = MAX_OCCURRENCES + 1;
        let mut found: Option<Run> = None;
        let mut has_common = false;
        let mut at = 0;
        while let Some(line) = side.get(at) {
            let mut following = at + 1;
            if let Some(&Occurrences { first, count }) = self.occurrences.get(line) {
                has_common = true;
                let mut candidate = (count <= rarest).then_some(first);
                while let Some(start) = candidate {
                    let run = self.run_around(start, side, at);
                    let base_end = run.base + run.length;
                    following = following.max(run.side + run.length);
                    let count = (run.base..base_end).map(|at| self.count(at)).min().unwrap_or(0);
                    let longest = found.as_ref().map_or(1, |found| found.length);
                    if longest < run.length || count < rarest {
                        (rarest, found) = (count, Some(run));
                    }
                    candidate = self.next[start];
                    while let Some(inside) = candidate.filter(|&next| next < base_end) {
                        candidate = self.next[inside];
                    }
                }
            }
            at = following;
        }
        match found {
            _ if has_common && rarest > MAX_OCCURRENCES => Common::TooOften,
            Some(run) => Common::Run(run),
            None => Common::Nothing,
        }
    }

    /// The equal lines before and after two equal ones.
    fn run_around(&self, at: usize, side: &Lines, to: usize) -> Run {
        let is_equal = |(a, b): &(&u32, &u32)| a == b;
        let before = self.lines[..at].iter().rev().zip(side[..to].iter().rev());
        let before = before.take_while(is_equal).count();
        let after = self.lines[at..].iter().zip(&side[to..]).take_while(is_equal).count();
        Run { base: at - before, side: to - before, length: before + after }
    }
}
