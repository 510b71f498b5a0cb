//! The fate of changes that the present state does not just take: conflicts, open and decided.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::path_text::serde_path;

/// A path that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::restore) struct Conflict {
    pub(in crate::restore) path: PathBuf,
    /// Number of the change.
    pub(in crate::restore) change: u64,
    /// Why, as a sentence for a person.
    pub(in crate::restore) reason: String,
}

/// The side or the choice that decided about a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The side here was chosen.
    Ours,
    /// The other side was chosen.
    Theirs,
    /// A person chose the contents of the text.
    Choice,
}

/// A conflict about which a side or a choice decided.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Decided {
    /// The path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// The conflict, as a sentence for a person.
    pub reason: String,
    /// The side or the choice.
    pub by: DecidedBy,
}

/// The fate of changes, besides the edits.
pub(super) struct Outcome {
    /// Files that were merged.
    pub(super) merged: Vec<PathBuf>,
    /// Paths that stay as they are.
    pub(super) conflicts: Vec<Conflict>,
    /// Changes that are not made, and not decided.
    pub(super) left: BTreeSet<Vec<u8>>,
    pub(super) decided: Vec<Decided>,
}
