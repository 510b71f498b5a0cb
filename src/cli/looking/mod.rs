//! The model of a look at the past: two states of a session with what changed between them. The
//! timeline and the page of `nono ui` show the same values, each in its own way.
//!
//! Nothing here draws, asks or writes. Texts of [`MarkedLine`](crate::cli::render::MarkedLine) are
//! harmless for a terminal, and hostile for a page as long as they are not escaped.

mod renames;
mod states;
#[cfg(feature = "syntax")]
mod syntax;
mod tree;

use std::ops::Range;

use super::error::CliError;
use super::past::compared;
use super::repositories::{Repositories, Told};
use nono_engine::diff::{self, Comparison, Difference};
use nono_engine::snapshot::{NotCapturedSet, SessionDir, SnapshotManifest};
use nono_engine::store::ObjectSource;

pub(crate) use renames::{Renames, renames};
pub(crate) use states::States;
#[cfg(feature = "syntax")]
pub(crate) use syntax::colours_of;
pub(crate) use tree::{Node, Row, tree_of};

/// The kind of a piece of code, which each screen gives a colour of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "syntax"), expect(dead_code, reason = "nothing else finds them"))]
pub(crate) enum Token {
    Comment,
    /// A string.
    Text,
    /// A number, an escape, the name of a type.
    Constant,
    Keyword,
    /// The name of a function, a tag or a heading.
    Name,
}

/// The coloured parts of a line, as bytes of its text, in order.
pub(crate) type Colours = Vec<(Range<usize>, Token)>;

/// Two states of a session, and where their contents are.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The session.
    pub(crate) session: &'a SessionDir,
    /// Where the contents are.
    pub(crate) store: &'a dyn ObjectSource,
    /// The state before.
    pub(crate) old: &'a SnapshotManifest,
    /// The state after.
    pub(crate) new: &'a SnapshotManifest,
}

/// The changes between two states, ready to be shown.
pub(crate) struct Looked<'a> {
    pub(crate) states: States<'a>,
    /// The changes. A git repository is one of them, as it comes back as a whole.
    pub(crate) comparison: Comparison,
    pub(crate) renames: Renames,
    /// Commits and branches that came or went, a line each; hostile.
    pub(crate) commits: Vec<String>,
}

impl<'a> Subject<'a> {
    /// Compares both states.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub(crate) fn compare(&self) -> Result<Comparison, CliError> {
        let (old, new) = (self.old, self.new);
        let found: Vec<Difference> = diff::compare(self.store, &old.merkle_root, &new.merkle_root)?;
        let (old, new) = (NotCapturedSet::new(old), NotCapturedSet::new(new));
        Ok(Comparison::of(&found, &old, &new))
    }

    /// Makes a comparison of both states ready.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub(crate) fn look(&self, comparison: Comparison) -> Result<Looked<'a>, CliError> {
        let Subject { session, store, old, new } = *self;
        let repositories = Repositories::of(store, old, new, &comparison.changes)?;
        let comparison = repositories.collapsed(comparison);
        let states = States::new(session, store, old, new)?;
        let renames = renames(&comparison.changes, &states);
        let commits = repositories.said(Told::Done);
        Ok(Looked { states, comparison, renames, commits })
    }
}

/// The states before the first and after the last of some steps, or those of the whole session.
///
/// # Errors
/// When a manifest is missing or damaged.
pub(crate) fn states_around(
    session: &SessionDir,
    steps: Option<(u64, u64)>,
) -> Result<(SnapshotManifest, SnapshotManifest), CliError> {
    let Some((first, last)) = steps else { return compared(session, None) };
    let (old, _) = compared(session, Some(first))?;
    let (_, new) = compared(session, Some(last))?;
    Ok((old, new))
}
