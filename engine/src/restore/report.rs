//! The reports of restores and of plans.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::three_way::is_in_git;
use super::{Conflict, KeepBefore, OnConflict, OverwrittenEdit, RestoreError, Skipped};
use crate::diff::{Change, ChangeSummary, Lost};
use crate::git::RepositoryChange;
use crate::path_text::{serde_path, serde_paths};

/// The result of a restore, or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// The session.
    pub session_id: String,
    /// The snapshot whose state was asked for.
    pub snapshot: u64,
    /// Whether nothing was done on purpose.
    pub dry_run: bool,
    /// The changes on the disk, sorted by path.
    pub changes: Vec<Change>,
    /// Paths, in that order, that got their time back and were otherwise as they were.
    #[serde(with = "serde_paths")]
    pub touched: Vec<PathBuf>,
    /// The number of directories that only got their time back. Every created or removed entry
    /// gives its directory another time, so they are not listed.
    pub directory_times: u64,
    /// Paths with later changes that the restore would undo, too.
    pub conflicts: Vec<Conflict>,
    /// Paths that were changed later, or by the user between the calls of an agent, and not by the
    /// session that is undone: they stay.
    #[serde(default, with = "serde_paths")]
    pub spared: Vec<PathBuf>,
    /// Files of an undo with later changes that stay: they were merged by lines, or only attributes
    /// of them change.
    #[serde(default, with = "serde_paths")]
    pub merged: Vec<PathBuf>,
    /// Edits by the user between an agent's calls that the agent overwrote, sorted by path. An undo
    /// does not bring them back.
    #[serde(default)]
    pub overwritten: Vec<OverwrittenEdit>,
    /// Git directories among the changes, and what HEAD and the refs of each did.
    pub repositories: Vec<RepositoryChange>,
    /// The treatment of them.
    pub on_conflict: OnConflict,
    /// The paths that differ from the snapshot, and why.
    pub skipped: Vec<Skipped>,
    /// Paths that cannot be changed, and why; only in a dry run. A restore does nothing then,
    /// unless [`RestoreOptions::skip_blocked`](super::RestoreOptions::skip_blocked) leaves them.
    #[serde(default)]
    pub blocked: Vec<Skipped>,
    /// New paths without a record, which stay: directories with the mark of a program that rebuilds
    /// them. They do not make a restore incomplete.
    #[serde(with = "serde_paths")]
    pub rebuildable: Vec<PathBuf>,
    /// Left-out paths of the snapshot that are gone or different now. Except for rebuildable
    /// directories, they make a restore incomplete.
    pub lost: Vec<Lost>,
    /// Changed files that kept changing while the snapshot read them: each has the state that was
    /// read, which may be one that it never had.
    #[serde(with = "serde_paths")]
    pub unstable: Vec<PathBuf>,
    /// The snapshot that holds the state before the restore; `None` when nothing was to be done,
    /// the disk of the store was full, or none was wanted.
    pub safety_snapshot: Option<u64>,
    /// The part of the state before that had to be kept.
    pub keep_before: KeepBefore,
    /// Whether the disk of the store was too full for the safety snapshot that was wanted. Only
    /// what snapshots hold was overwritten or removed then.
    pub is_store_full: bool,
    /// Paths that were skipped for that reason.
    #[serde(with = "serde_paths")]
    pub not_kept: Vec<PathBuf>,
}

impl RestoreReport {
    /// The changes, counted.
    pub fn summary(&self) -> ChangeSummary {
        ChangeSummary::of(&self.changes).with_touched(self.touched.len())
    }

    /// Whether the state on disk is now the state that was asked for.
    pub fn is_complete(&self) -> bool {
        self.skipped.is_empty()
            && self.blocked.is_empty()
            && self.lost_for_good().next().is_none()
            && !self.is_refused()
    }

    /// The left-out paths that are not as they were, without the rebuildable ones.
    pub fn lost_for_good(&self) -> impl Iterator<Item = &Lost> {
        self.lost.iter().filter(|lost| !lost.is_rebuildable)
    }

    /// Whether nothing was done because of conflicts.
    pub fn is_refused(&self) -> bool {
        !self.conflicts.is_empty() && self.on_conflict == OnConflict::Refuse
    }

    /// The changes of a restore of the whole state.
    ///
    /// # Errors
    /// [`RestoreError::Conflicts`] where nothing was done because of them, and
    /// [`RestoreError::Incomplete`] where something was skipped.
    pub fn into_changes(self) -> Result<Vec<Change>, RestoreError> {
        if self.is_refused() {
            return Err(RestoreError::Conflicts { conflicts: self.conflicts });
        }
        if !self.is_complete() {
            return Err(RestoreError::Incomplete { report: Box::new(self) });
        }
        Ok(self.changes)
    }
}

/// A path that stays as it is in an undo of steps or of a part of a text, because what came later
/// cannot be told from what is taken back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepConflict {
    /// The path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// The step, or the snapshot that has the text.
    pub step: u64,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// The work that a [job](crate::job) did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobReport {
    /// The steps that are taken back; none where a state or a session is meant.
    pub steps: Vec<u64>,
    /// The paths of these steps, or of the text, that stay as they are.
    pub step_conflicts: Vec<StepConflict>,
    /// The restore by which it was done.
    #[serde(flatten)]
    pub restore: RestoreReport,
}

impl JobReport {
    /// The work of a restore that is about no steps.
    pub(crate) fn of(restore: RestoreReport) -> Self {
        Self { steps: Vec::new(), step_conflicts: Vec::new(), restore }
    }

    /// Whether all that was meant is done.
    pub fn is_complete(&self) -> bool {
        self.step_conflicts.is_empty() && self.restore.is_complete()
    }

    /// Whether nothing of the steps is left: nothing to do, and nothing that stays.
    pub fn is_nothing(&self) -> bool {
        self.is_nothing_but_commits() && self.step_conflicts.is_empty()
    }

    /// Whether nothing of the steps is left but commits and branches, which no undo of steps takes
    /// back.
    pub fn is_nothing_but_commits(&self) -> bool {
        let RestoreReport { changes, touched, skipped, .. } = &self.restore;
        let nothing_to_do = changes.is_empty() && touched.is_empty();
        let is_of_git = |it: &StepConflict| is_in_git(it.path.as_os_str().as_encoded_bytes());
        nothing_to_do && skipped.is_empty() && self.step_conflicts.iter().all(is_of_git)
    }
}
