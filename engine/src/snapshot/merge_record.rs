//! The facts that the session of a merge keeps of the merge.
//!
//! They are written before the first path changes, and completed when the last one has. So a killed
//! merge claims nothing that it did not write. The next merge of the same fork reads from the
//! merges that still stand which changes of the fork are in the project already.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::path_text::serde_paths;

/// A merge of a fork, in the manifest of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeRecord {
    /// The session of the fork.
    pub fork: String,
    /// The number of the merged snapshot in that session.
    pub theirs: u64,
    /// Whether the paths have the merged state, which is then the last ordinary snapshot.
    #[serde(default)]
    pub is_done: bool,
    /// Whether branches for the commits of the fork are still to be made.
    #[serde(default)]
    pub awaits_branches: bool,
    /// The changes of the fork that are decided.
    #[serde(default)]
    pub taken: TakenChanges,
}

impl MergeRecord {
    /// A merge that begins.
    pub fn new(fork: String, theirs: u64) -> Self {
        let taken = TakenChanges::default();
        Self { fork, theirs, is_done: false, awaits_branches: false, taken }
    }

    /// It is not known how far the merge came. Each change of the fork counts as not merged.
    pub(crate) fn give_up(&mut self) {
        self.taken = TakenChanges::default();
        self.end();
    }

    /// The merge has done all that it was to do.
    pub(crate) fn end(&mut self) {
        (self.is_done, self.awaits_branches) = (true, false);
    }
}

/// The changed paths of a fork about which a merge decided: they are in the project, or the project
/// keeps its own side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakenChanges {
    /// These alone.
    Only(#[serde(with = "serde_paths")] Vec<PathBuf>),
    /// All but these.
    AllBut(#[serde(with = "serde_paths")] Vec<PathBuf>),
}

impl Default for TakenChanges {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl TakenChanges {
    /// Paths that turn out not to be decided.
    pub(crate) fn leave(&mut self, left: impl IntoIterator<Item = PathBuf>) {
        let left: HashSet<PathBuf> = left.into_iter().collect();
        if left.is_empty() {
            return;
        }
        match self {
            Self::Only(paths) => paths.retain(|path| !left.contains(path)),
            Self::AllBut(paths) => {
                paths.extend(left);
                paths.sort();
                paths.dedup();
            }
        }
    }

    /// For questions about many paths.
    pub(crate) fn lookup(&self) -> TakenLookup<'_> {
        let (paths, is_all_but) = match self {
            Self::Only(paths) => (paths, false),
            Self::AllBut(paths) => (paths, true),
        };
        let paths = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
        TakenLookup { paths, is_all_but }
    }
}

/// Answers whether paths are decided.
pub(crate) struct TakenLookup<'a> {
    paths: HashSet<&'a [u8]>,
    is_all_but: bool,
}

impl TakenLookup<'_> {
    /// Whether a changed path is decided.
    pub(crate) fn has(&self, path: &[u8]) -> bool {
        self.paths.contains(path) != self.is_all_but
    }
}
