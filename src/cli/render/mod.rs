//! Turning differences and reports into text, for a terminal or for another program.
//!
//! Everything here writes to a writer that it is given, or returns a string; nothing prints, asks
//! for the time or looks at the terminal. The contents of files are read from the store, checked,
//! one file at a time and never more than [`DiffOptions::max_file_bytes`] of each state.
//!
//! A patch goes to other programs, so it must be byte for byte what they expect: give the writers
//! [`Palette::plain`] and the bare output then. A wrapper that strips escape sequences would also
//! strip those that belong to a file.

mod binary;
pub mod columns;
mod entries;
mod full;
mod lines;
pub mod markdown;
mod marked;
mod measure;
mod palette;
mod patch;
mod project;
mod quote;
mod renames;
mod side_by_side;
mod stat;
mod summary;
#[cfg(test)]
mod test_support;
mod titled;
mod word_diff;
mod words;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nono_engine::store::{ObjectSource, StoreError};

pub use full::write_full;
pub use marked::{LineKind, MarkedLine, marked_lines, renamed_lines, shown, without_hunks};
#[cfg(feature = "archive")]
pub use measure::size_and_rate;
pub use measure::{absolute_time, byte_size, relative_time, size_delta};
pub use palette::Palette;
pub use patch::{push_escaped, write_patch, write_patch_counting};
pub use project::project_name;
pub use quote::quoted_name;
pub use side_by_side::write_side_by_side;
pub use stat::write_stat;
pub use summary::{
    Counted, GIT_CHANGED, change_line, change_mark, change_word, counted_changes, session_changes,
    summary_line, summary_with_git, touched_part, tree_line,
};
pub use word_diff::write_word_diff;

/// Why differences could not be written out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// Contents could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output could not be written; a pipe that was closed, for one.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

/// The facts that all views of differences need.
#[derive(Clone, Copy)]
pub struct DiffOptions<'a> {
    /// Where the contents are.
    pub store: &'a dyn ObjectSource,
    /// The tracked paths. With one, names are relative to it; else they are whole paths without
    /// the leading slash.
    pub roots: &'a [PathBuf],
    /// A file that is longer in either state is named, not compared.
    pub max_file_bytes: u64,
    /// Unchanged lines around changed ones.
    pub context_lines: usize,
    /// How long to look for a small difference between two states of one file. After that the rest
    /// is shown as replaced, which is correct but long.
    pub timeout: Duration,
    /// Styles; plain unless the caller knows that colours are wanted.
    pub palette: Palette,
    /// Whether control characters and invalid UTF-8 in contents are escaped, as a terminal needs
    /// it. A patch that is to be applied must not be escaped.
    pub escape: bool,
    /// Whether a patch has the contents of binary files, as `git apply` takes them. Otherwise it
    /// names these files.
    pub binary: bool,
    /// The similarity in percent from which a file that is gone and a new one are one renamed file;
    /// `None`: no file is.
    pub renames: Option<u64>,
}

impl<'a> DiffOptions<'a> {
    /// Plain and unescaped, three lines of context, 5 MiB, two seconds.
    pub fn new(store: &'a dyn ObjectSource, roots: &'a [PathBuf]) -> Self {
        Self {
            store,
            roots,
            max_file_bytes: 5 << 20,
            context_lines: 3,
            timeout: Duration::from_secs(2),
            palette: Palette::plain(),
            escape: false,
            binary: false,
            renames: None,
        }
    }
}

impl std::fmt::Debug for DiffOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiffOptions")
            .field("roots", &self.roots)
            .field("max_file_bytes", &self.max_file_bytes)
            .field("context_lines", &self.context_lines)
            .field("timeout", &self.timeout)
            .field("escape", &self.escape)
            .finish_non_exhaustive()
    }
}
