//! The difference of the change at the cursor, shown beside the list.
//!
//! Only its beginning is made, and only when no key waits: so many lines, of files of at most 1
//! MiB, in a fraction of a second. The pager (`d`) shows all of it.

use std::io::{self, Write};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::pager::Differ;
use crate::cli::render::{Palette, RenderError};
use nono_engine::diff::Change;

/// On narrower screens the list needs all columns.
pub(super) const LEAST_WIDTH: u16 = 100;
/// So many lines are made: more than a screen has.
const MOST_LINES: usize = 300;
/// So much of them: a line may be long.
const MOST_BYTES: usize = 64 << 10;
/// Files that are longer in either state are named.
const MOST_FILE_BYTES: u64 = 1 << 20;
/// So long a small difference of one file is looked for.
const PATIENCE: Duration = Duration::from_millis(100);
/// After so long no further changes are looked at.
const MOST_TIME: Duration = Duration::from_millis(250);
/// So many changes are looked at between two looks at the time.
const CHUNK: usize = 10;
/// So many changes are looked at: most of a directory may have nothing to show.
const MOST_CHANGES: usize = 50;

/// The text beside the list: lines of a patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// The change that it is about, by index.
    index: Option<usize>,
    lines: Vec<String>,
}

impl Beside {
    /// Whether it is about this change.
    pub(super) fn is_of(&self, index: Option<usize>) -> bool {
        self.index == index
    }

    /// The lines, harmless for a terminal.
    pub(super) fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The view of these lines; for tests.
    #[cfg(test)]
    pub(super) fn of_lines(index: usize, lines: &[&str]) -> Self {
        Self { index: Some(index), lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    /// Makes the beginning of the difference of a change with what goes with it.
    pub(super) fn make(differ: &Differ<'_>, changes: &[Change], range: Range<usize>) -> Self {
        let index = Some(range.start);
        let mut out = Beginning::default();
        let mut options = *differ.options();
        options.max_file_bytes = MOST_FILE_BYTES;
        options.timeout = PATIENCE;
        options.palette = Palette::plain();
        let shown = &changes[range.start..range.end.min(range.start + MOST_CHANGES)];
        let began = Instant::now();
        for chunk in shown.chunks(CHUNK) {
            if let Err(RenderError::Store(error)) = differ.write_with(&mut out, chunk, &options) {
                let _ = writeln!(out, "{error}");
            }
            if out.is_full() || began.elapsed() > MOST_TIME {
                break;
            }
        }
        Self { index, lines: out.lines() }
    }
}

/// Takes what fits, and then refuses more, so that nothing more is made.
#[derive(Debug, Default)]
struct Beginning {
    bytes: Vec<u8>,
    line_count: usize,
}

impl Beginning {
    fn is_full(&self) -> bool {
        self.line_count >= MOST_LINES || self.bytes.len() >= MOST_BYTES
    }

    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.bytes);
        // A tab is a jump, which cells of a screen do not know.
        text.lines().take(MOST_LINES).map(|line| line.replace('\t', "    ")).collect()
    }
}

impl Write for Beginning {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_full() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.line_count += bytes.iter().filter(|byte| **byte == b'\n').count();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_is_bounded_by_lines_and_by_bytes() {
        let mut out = Beginning::default();
        let written = (0..10_000).take_while(|n| writeln!(out, "line {n}").is_ok()).count();
        assert_eq!(written, MOST_LINES);
        assert_eq!(out.lines().len(), MOST_LINES);
        let mut out = Beginning::default();
        let long = "x".repeat(1000);
        let written = (0..10_000).take_while(|_| out.write_all(long.as_bytes()).is_ok()).count();
        assert_eq!(written, MOST_BYTES.div_ceil(1000));
    }

    #[test]
    fn a_tab_becomes_spaces() {
        let mut out = Beginning::default();
        writeln!(out, "+\tx").unwrap();
        assert_eq!(out.lines(), ["+    x"]);
    }
}
