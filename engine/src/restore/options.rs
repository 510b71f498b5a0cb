//! The choices that a restore is asked with.

use super::conflicts::AllConflicts;
use super::{ChosenText, KeepBefore, OnConflict, RunsAtWork, Selection};
use crate::snapshot::RestoreCommand;
#[cfg(doc)]
use crate::snapshot::SnapshotManager;

/// The selection of a restore, and its treatment of later changes.
#[derive(Debug, Clone, Default)]
pub struct RestoreOptions {
    /// The treatment of paths that were changed after a completed session.
    pub on_conflict: OnConflict,
    /// Which paths are meant.
    pub selection: Selection,
    /// The part of the state before to keep.
    pub keep_before: KeepBefore,
    /// Whether this takes back the restore before which the snapshot was taken; `selection` is then
    /// as [`SnapshotManager::changed_by_restore`] gives it. The kind of a job decides it.
    pub takes_back: bool,
    /// Leave git directories as they are: commits, branches and the index stay.
    pub keep_commits: bool,
    /// Whether what the session did is meant, and not the state of the snapshot: a path that was
    /// changed later and not by the session stays, and is no conflict. The session of an agent is
    /// what the agent did: the user's own edits between the calls stay. Of an open session of
    /// snapshots or of an agent, what is newer than the last of them is a later change. The kind of
    /// a job decides it.
    pub is_undo: bool,
    /// Whether an undo merges files with later changes also where conflicts are overwritten: the
    /// answer in `on_conflict` is then about those that cannot be merged. Otherwise it is about
    /// whole files.
    pub always_merges: bool,
    /// Contents that a person chose for files that cannot be merged, for an undo that merges.
    pub chosen: Vec<ChosenText>,
    /// Whether paths that cannot be changed stay, instead of everything.
    pub skip_blocked: bool,
    /// Whether files of a session that an archive brought get setuid, setgid and capabilities.
    pub with_privileges: bool,
    /// The treatment of runs that are at work on the paths. A plan does not look at them.
    pub runs_at_work: RunsAtWork,
}

/// The decision that a restore carries out. A [job](crate::job) makes it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decision {
    /// The command, for the record of the restore.
    pub(crate) command: RestoreCommand,
    /// The number of restores that the session had then. With another one under the lock, another
    /// command decided meanwhile, and nothing is done.
    pub(crate) restore_count: Option<u64>,
}

/// Whether nothing is done because of conflicts.
pub(super) fn is_refused(options: &RestoreOptions, conflicts: &AllConflicts) -> bool {
    options.on_conflict == OnConflict::Refuse && !conflicts.is_empty()
}
