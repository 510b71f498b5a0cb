//! The text that is looked for, as ripgrep understands it.

use std::ops::Range;

use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

use crate::history::HistoryError;

/// How a pattern is understood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Letters match whatever their case is.
    pub ignore_case: bool,
    /// A match begins and ends at the limits of words.
    pub words: bool,
    /// The pattern is text, and no regular expression.
    pub fixed: bool,
}

/// A pattern that lines can match.
#[derive(Debug, Clone)]
pub struct TextPattern(RegexMatcher);

impl TextPattern {
    /// Compiles a regular expression in the syntax of the crate `regex`.
    ///
    /// # Errors
    /// [`HistoryError::Pattern`]: the syntax is wrong, the compiled form is too large, or the
    /// pattern can only match a line break.
    pub fn new(pattern: &str, options: TextOptions) -> Result<Self, HistoryError> {
        let mut builder = RegexMatcherBuilder::new();
        builder
            .case_insensitive(options.ignore_case)
            .word(options.words)
            .fixed_strings(options.fixed)
            .multi_line(true)
            .unicode(true)
            .line_terminator(Some(b'\n'));
        let wrong = |error: grep_regex::Error| HistoryError::Pattern {
            pattern: pattern.to_owned(),
            reason: error.to_string(),
        };
        Ok(Self(builder.build(pattern).map_err(wrong)?))
    }

    pub(super) fn matcher(&self) -> &RegexMatcher {
        &self.0
    }

    /// The places in a line that match. Empty matches are none.
    pub fn matches_in(&self, line: &[u8]) -> Vec<Range<usize>> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut found = Vec::new();
        // A matcher of regular expressions never fails.
        let _ = self.0.find_iter(line, |one| {
            if !one.is_empty() {
                found.push(one.start()..one.end());
            }
            true
        });
        found
    }
}
