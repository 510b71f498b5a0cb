//! The difference beside the list: lines with a kind, made as far as they are looked at.
//!
//! The beginning is made when no key waits: so many lines, of files of at most 1 MiB, in a fraction
//! of a second. Scrolling near the end makes more. The pager (`d`) shows all of it.

use std::collections::HashSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::cli::looking::{Colours, Renames, States, Token};
use crate::cli::render::{DiffOptions, LineKind, MarkedLine};
use nono_engine::diff::Change;

/// Lines of a beginning: more than a screen has.
const FIRST_LINES: usize = 300;
/// Maximum number of lines, also when scrolling.
const MAX_LINES: usize = 100_000;
/// Bytes of a beginning: a line may be long.
const FIRST_BYTES: usize = 64 << 10;
/// Files that are longer in either state are named.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Limit of the search for a small difference of one file.
const PATIENCE: Duration = Duration::from_millis(100);
/// Limit of the time for a beginning.
const MAX_TIME: Duration = Duration::from_millis(250);
/// Changes between two looks at the time.
const CHUNK: usize = 10;
/// Changes of a beginning: most of a directory may have nothing to show.
const FIRST_CHANGES: usize = 50;

/// How much is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    lines: usize,
    bytes: usize,
    changes: usize,
    time: Duration,
}

impl Limit {
    /// The beginning.
    pub(super) const FIRST: Self =
        Self { lines: FIRST_LINES, bytes: FIRST_BYTES, changes: FIRST_CHANGES, time: MAX_TIME };

    /// Four times as much; `None` where that is too much.
    fn more(self) -> Option<Self> {
        (self.lines < MAX_LINES).then_some(Self {
            lines: self.lines * 4,
            bytes: self.bytes * 4,
            changes: self.changes * 4,
            time: self.time * 2,
        })
    }
}

/// The lines, and what they are about.
#[derive(Debug, Clone)]
pub(super) struct Difference {
    /// The row of the list.
    of: Option<usize>,
    lines: Vec<MarkedLine>,
    /// The colours of each line, if its code was coloured.
    colours: Option<Vec<Colours>>,
    limit: Limit,
    is_cut: bool,
}

impl Default for Difference {
    fn default() -> Self {
        let (lines, limit) = (Vec::new(), Limit::FIRST);
        Self { of: None, lines, colours: None, limit, is_cut: false }
    }
}

impl Difference {
    /// Lines that are known already.
    pub(super) fn of_lines(of: usize, lines: Vec<MarkedLine>) -> Self {
        Self { of: Some(of), lines, ..Self::default() }
    }

    /// Whether it is about this row.
    pub(super) fn is_of(&self, row: Option<usize>) -> bool {
        self.of == row
    }

    /// The lines so far.
    pub(super) fn lines(&self) -> &[MarkedLine] {
        &self.lines
    }

    /// Whether the code of the lines has its colours, as far as they can be known.
    pub(super) fn is_coloured(&self) -> bool {
        self.colours.is_some() || self.lines.is_empty() || cfg!(not(feature = "syntax"))
    }

    /// Finds the colours of the code.
    pub(super) fn colour(&mut self) {
        #[cfg(feature = "syntax")]
        {
            self.colours = Some(crate::cli::looking::colours_of(&self.lines));
        }
    }

    /// The colours of a line.
    pub(super) fn colours(&self, line: usize) -> &[(Range<usize>, Token)] {
        self.colours.as_ref().and_then(|colours| colours.get(line)).map_or(&[], Vec::as_slice)
    }

    /// Where hunks begin, and files without any.
    pub(super) fn hunks(&self) -> Vec<usize> {
        let is_begin = |at: &usize| self.lines[*at].kind == LineKind::Hunk;
        (0..self.lines.len()).filter(is_begin).collect()
    }

    /// The line above a hunk, by its number from 0.
    pub(super) fn hunk_header(&self, hunk: usize) -> Option<&str> {
        let at = *self.hunks().get(hunk)?;
        Some(&self.lines[at].text)
    }

    /// How a hunk is found again: as the lines were made.
    pub(super) fn options<'o>(states: &'o States<'_>) -> DiffOptions<'o> {
        let mut options = states.options();
        options.max_file_bytes = MAX_FILE_BYTES;
        options.timeout = PATIENCE;
        options
    }

    /// The limit for more lines, if there are any.
    pub(super) fn limit_for_more(&self) -> Option<Limit> {
        self.limit.more().filter(|_| self.is_cut)
    }

    /// Makes the lines of some changes. `heading` stands above them.
    pub(super) fn make(
        of: usize,
        states: &States<'_>,
        changes: &[Change],
        range: Range<usize>,
        renames: &Renames,
        heading: Vec<MarkedLine>,
        limit: Limit,
    ) -> Self {
        let options = Self::options(states);
        let began = Instant::now();
        let mut beginning = Beginning { lines: heading, bytes: 0, limit };
        let moved: HashSet<usize> = renames.values().copied().collect();
        let mut is_cut = false;
        for (count, index) in range.enumerate() {
            if beginning.is_full()
                || count >= limit.changes
                || count % CHUNK == 0 && began.elapsed() > limit.time
            {
                is_cut = true;
                break;
            }
            let mut take = |line| beginning.take(line);
            let shown = match renames.get(&index) {
                Some(gone) => states.renamed(&changes[*gone], &changes[index], &options, &mut take),
                // It stands where it is now.
                None if moved.contains(&index) => Ok(()),
                None => states.lines(&changes[index..=index], &options, &mut take),
            };
            if let Err(error) = shown {
                beginning.take(MarkedLine::remark(LineKind::Remark, error.to_string()));
            }
        }
        is_cut |= beginning.is_full();
        let lines = beginning.lines;
        Self { of: Some(of), lines, colours: None, limit, is_cut }
    }
}

/// Takes what fits, and then refuses more, so that nothing more is made.
struct Beginning {
    lines: Vec<MarkedLine>,
    bytes: usize,
    limit: Limit,
}

impl Beginning {
    fn is_full(&self) -> bool {
        self.lines.len() >= self.limit.lines || self.bytes >= self.limit.bytes
    }

    /// Whether more fits.
    fn take(&mut self, line: MarkedLine) -> bool {
        if !self.is_full() {
            self.bytes += line.text.len();
            self.lines.push(line);
        }
        !self.is_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(text: &str) -> usize {
        let mut beginning = Beginning { lines: Vec::new(), bytes: 0, limit: Limit::FIRST };
        let line = || MarkedLine::remark(LineKind::Same, text.to_owned());
        while beginning.take(line()) {}
        assert!(!beginning.take(line()));
        beginning.lines.len()
    }

    #[test]
    fn a_beginning_is_bounded_by_lines_and_by_bytes() {
        assert_eq!(taken("x"), FIRST_LINES);
        assert_eq!(taken(&"x".repeat(1000)), FIRST_BYTES.div_ceil(1000));
    }

    #[test]
    fn more_has_an_end() {
        let (mut limit, mut steps) = (Some(Limit::FIRST), 0);
        while let Some(known) = limit {
            (limit, steps) = (known.more(), steps + 1);
        }
        assert_eq!(steps, 6);
    }
}
