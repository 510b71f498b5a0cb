//! The way back: plan, stage, commit.
//!
//! Always true, from the first day: nothing is deleted or overwritten whose bytes are not in the
//! store (a safety snapshot comes first), unless the user gives it up by name; the filter is the
//! one of the capture, and what a snapshot did not capture is left alone; no path changes before
//! every byte was staged and checked; no symlink is followed and no path outside the tracked paths
//! is touched; a failure takes back what was done, and after a crash the journal tells the next one
//! how to. Planning changes nothing.

mod areas;
mod attributes;
mod blocked;
mod carry_out;
mod check_selection;
mod clear_up;
mod commit;
mod conflicts;
mod copy_out;
mod copy_plan;
mod discard;
mod error;
mod extent;
mod folding;
mod full_disk;
mod journal;
mod make;
mod makers;
mod mark;
mod merge;
mod merge_session;
mod merged;
mod narrow;
mod others;
mod outcome;
mod own_edits;
mod owners;
mod packed;
mod places;
mod plan;
mod planned;
mod prepare;
mod privileges;
mod recover;
mod remote_refs;
mod repositories;
mod rollback;
mod secure;
mod selection;
mod shared_tables;
mod staging;
mod state_merge;
mod step_undo;
mod steps;
mod take_back;
#[cfg(test)]
mod tests;
mod text_undo;
mod three_way;
mod user_edits;

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::diff::{Change, ChangeSummary, Comparison, Lost};
use crate::git::RepositoryChange;
use crate::path_text::{Shown, serde_paths};
use crate::snapshot::{
    CacheUse, LoadedManifest, ManifestError, RestoreCommand, RestoreRecord, SessionOrigin,
    SnapshotError, SnapshotManager, SnapshotManifest,
};
use crate::store::{OverlayStore, read_root_tree};

use conflicts::AllConflicts;
pub use conflicts::{Conflict, OnConflict, OverwrittenEdit, RepositoryConflict, UserEdit};
pub use copy_out::{CopyOptions, CopyReport, Owner, OwnersLeft};
pub use copy_plan::{InPlace, PlannedCopy};
pub use discard::DiscardReport;
pub use error::RestoreError;
use full_disk::Part;
#[cfg(feature = "fuzzing")]
pub(crate) use journal::Journal;
pub(crate) use makers::{changed_by_session, count_by_maker};
pub use mark::{RestoreMark, RunsAtWork};
pub(crate) use mark::{runs_on, wait_for_restores};
pub use merge::{Hunk, HunkChoice, merge_chosen, touching_hunks};
pub use merged::ChosenText;
use plan::RestorePlan;
pub use plan::Skipped;
use planned::Planned;
pub use prepare::KeepBefore;
use prepare::Prepared;
pub use recover::{Recovery, RecoveryOutcome, RecoveryReport};
pub use selection::Selection;
pub use state_merge::{Merge, MergeConflict, MergeReport, MergedState, PastMerge};
pub use step_undo::{StepConflict, StepUndoOptions, StepUndoReport};
pub use text_undo::{TextPart, TextUndoReport};
pub use three_way::{ConflictSide, Decided, DecidedBy};
pub use {attributes::apply as apply_attributes, make::make, staging::SURELY_COPIED_BYTES};

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
    /// unless [`RestoreOptions::skip_blocked`] leaves them.
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
}

/// The selection of a restore, and its treatment of later changes.
#[derive(Debug, Clone, Default)]
pub struct RestoreOptions {
    /// The treatment of paths that were changed after a completed session.
    pub on_conflict: OnConflict,
    /// Which paths are meant.
    pub selection: Selection,
    /// The command, for the record of the restore.
    pub command: RestoreCommand,
    /// The part of the state before to keep.
    pub keep_before: KeepBefore,
    /// Whether this takes back the restore before which the snapshot was taken; `selection` is then
    /// as [`SnapshotManager::changed_by_restore`] gives it.
    pub takes_back: bool,
    /// Leave git directories as they are: commits, branches and the index stay.
    pub keep_commits: bool,
    /// Whether what the session did is meant, and not the state of the snapshot: a path that was
    /// changed later and not by the session stays, and is no conflict. The session of an agent is
    /// what the agent did: the user's own edits between the calls stay. Of an open session of
    /// snapshots or of an agent, what is newer than the last of them is a later change.
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
    /// The number of restores that the session had when this one was decided on. With another one
    /// under the lock, another command decided meanwhile, and nothing is done.
    pub restore_count: Option<u64>,
}

/// Whether nothing is done because of conflicts.
fn is_refused(options: &RestoreOptions, conflicts: &AllConflicts) -> bool {
    options.on_conflict == OnConflict::Refuse && !conflicts.is_empty()
}

impl SnapshotManager {
    /// Brings the tracked paths back to a snapshot and returns what changed. The state before is
    /// kept as a further snapshot of the session. Anything short of the whole state is an error;
    /// [`restore`](Self::restore) reports it instead.
    ///
    /// # Errors
    /// [`RestoreError::Incomplete`] when something was skipped: the rest is restored, and the
    /// report is in the error. But for that and [`RestoreError::HalfDone`], nothing has changed
    /// after an error.
    pub fn restore_to(&self, number: u64) -> Result<Vec<Change>, RestoreError> {
        let report = self.restore(number)?;
        if report.is_refused() {
            return Err(RestoreError::Conflicts { conflicts: report.conflicts });
        }
        if !report.is_complete() {
            return Err(RestoreError::Incomplete { report: Box::new(report) });
        }
        Ok(report.changes)
    }

    /// Whether a restore of this snapshot finds what it begins with: the session, its list, the
    /// manifests and the root tree. No contents are read, nothing is locked, nothing is written.
    ///
    /// # Errors
    /// The missing object or manifest.
    pub fn check_restorable(&self, number: u64) -> Result<(), RestoreError> {
        self.refuse_interrupted_restore()?;
        self.states(number).map(drop)
    }

    /// The changes that [`restore_to`](Self::restore_to) would make. Writes nothing, neither to the
    /// tracked paths nor to the store.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn compute_restore_diff(&self, number: u64) -> Result<Vec<Change>, RestoreError> {
        Ok(self.plan_restore(number, &RestoreOptions::default())?.changes)
    }

    /// Says what a restore would do. Writes nothing, neither to the tracked paths nor to the store.
    /// With conflicts that are refused, the changes are those that would be made without them.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn plan_restore(
        &self,
        number: u64,
        options: &RestoreOptions,
    ) -> Result<RestoreReport, RestoreError> {
        self.refuse_container(number)?;
        let states = self.states(number)?;
        let overlay = OverlayStore::new(self.store());
        let (target, latest) = (&states.target.manifest, &states.latest);
        let current = self.capture_current(&overlay, target, latest, CacheUse::Read)?;
        let (root, left_out) = (&current.merkle_root, &current.not_captured);
        let Planned { plan, conflicts, spared, merged, overwritten, repositories, blocked, .. } =
            self.planned(&overlay, &states, root, left_out, options, &HashSet::new())?;
        let directory_times = plan.directory_times();
        // The actions go at once: they take more than all the rest.
        let RestorePlan { changes, mut skipped, rebuildable, lost, .. } = plan;
        plan::sort(&mut skipped);
        let Comparison { changes, touched } = changes.comparison();
        Ok(RestoreReport {
            unstable: unstable_among(&changes, target),
            merged: among(&merged, &changes),
            changes,
            touched,
            directory_times,
            conflicts: conflicts.told(),
            spared,
            overwritten,
            repositories,
            skipped,
            blocked,
            rebuildable,
            lost,
            ..self.report(target.number, options, true)
        })
    }

    /// Brings the tracked paths back to a snapshot, all of them. See
    /// [`restore_with`](Self::restore_with).
    ///
    /// # Errors
    /// As there.
    pub fn restore(&self, number: u64) -> Result<RestoreReport, RestoreError> {
        self.restore_with(number, &RestoreOptions::default())
    }

    /// Brings the selected paths back to a snapshot. See the module for what always holds. With
    /// conflicts that are refused nothing is changed, and the report lists them. No run begins on
    /// these paths meanwhile.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub fn restore_with(
        &self,
        number: u64,
        options: &RestoreOptions,
    ) -> Result<RestoreReport, RestoreError> {
        let _mark = self.begin_restore(number, options)?;
        if self.session().has_restore_journal()? {
            // With nothing to decide there is no obstacle. For every other defect of the journal,
            // the lock says that there is one.
            let _ = self.clear_staging();
        }
        let _session_lock = self.lock_session()?;
        self.check_restore_count(options.restore_count)?;
        // Nothing may be collected between the plan and the last byte.
        let _store_lock = self.lock_store()?;
        self.refuse_container(number)?;
        self.restore_in_parts(number, options)
    }

    /// Plans from the disk, and carries a part of the plan out. Under the locks.
    fn restore_part(
        &self,
        number: u64,
        options: &RestoreOptions,
        part: Part,
    ) -> Result<RestoreReport, RestoreError> {
        let states = self.states(number)?;
        let Prepared { mut planned, before, is_store_full } = self.prepare(&states, options)?;
        if let Part::Removals { free } = part {
            planned.plan.keep_removals(free);
        }
        let is_first_part = matches!(part, Part::Removals { .. });
        let safety_snapshot = match part {
            Part::Rest { safety: Some(safety) } => Some(safety),
            _ => before.safety,
        };
        if !planned.blocked.is_empty() && !is_refused(options, &planned.conflicts) {
            return Err(RestoreError::Blocked { blocked: planned.blocked });
        }
        let mut record = RestoreRecord {
            at: Timestamp::now(),
            snapshot: number,
            command: options.command,
            safety_snapshot: None,
            is_partial: !options.is_whole() || is_first_part,
            undoes_steps: false,
            left_some: false,
            has_merged: !planned.merged.is_empty(),
            left_text: None,
        };
        let mut report = RestoreReport { is_store_full, ..self.report(number, options, false) };
        report.rebuildable = std::mem::take(&mut planned.plan.rebuildable);
        report.lost = std::mem::take(&mut planned.plan.lost);
        let skipped;
        (skipped, report.not_kept) = planned.left();
        report.conflicts = planned.conflicts.told();
        report.spared = std::mem::take(&mut planned.spared);
        report.overwritten = std::mem::take(&mut planned.overwritten);
        report.repositories = std::mem::take(&mut planned.repositories);
        let plan = &planned.plan;
        // The times of some directories alone are not worth a write to a full disk.
        let is_done = plan.is_empty() || is_store_full && plan.changes.is_empty();
        if is_refused(options, &planned.conflicts) || is_done {
            if options.takes_back && !is_first_part && !is_refused(options, &planned.conflicts) {
                // It was done by other means; else it would be the last undo for ever.
                self.note(record);
            }
            report.skipped = skipped;
            plan::sort(&mut report.skipped);
            return Ok(report);
        }
        report.safety_snapshot = safety_snapshot;
        report.directory_times = plan.directory_times();
        // The journal has it too, for whoever finishes the restore after a crash.
        planned.plan.skipped = skipped;
        record.safety_snapshot = safety_snapshot;
        record.left_some = report.has_kept_newer();
        let target = &states.target.manifest;
        self.store_merged(&mut planned.plan)?;
        let (mut done, left) =
            self.carry_out(planned.plan, target, &before, Some(record), &report.lost)?;
        left.retain_made(&mut done);
        (report.changes, report.touched) = (done.changes, done.touched);
        report.unstable = unstable_among(&report.changes, target);
        report.merged = among(&planned.merged, &report.changes);
        report.skipped = left.skipped;
        plan::sort(&mut report.skipped);
        Ok(report)
    }

    /// Waits for a restore of the session that is at work, and refuses if there was one since.
    ///
    /// # Errors
    /// [`RestoreError::RestoredMeanwhile`].
    pub fn refuse_restored_since(&self, restore_count: u64) -> Result<(), RestoreError> {
        let _lock = self.lock_session()?;
        self.check_restore_count(Some(restore_count))
    }

    /// Under the session's lock.
    fn check_restore_count(&self, known: Option<u64>) -> Result<(), RestoreError> {
        let Some(known) = known else { return Ok(()) };
        if self.session().metadata()?.restores.len() as u64 != known {
            return Err(RestoreError::RestoredMeanwhile { session: self.session().id() });
        }
        Ok(())
    }

    /// A report of nothing yet.
    fn report(&self, number: u64, options: &RestoreOptions, dry_run: bool) -> RestoreReport {
        RestoreReport {
            session_id: self.session().id(),
            snapshot: number,
            dry_run,
            changes: Vec::new(),
            touched: Vec::new(),
            directory_times: 0,
            conflicts: Vec::new(),
            spared: Vec::new(),
            merged: Vec::new(),
            overwritten: Vec::new(),
            repositories: Vec::new(),
            on_conflict: options.on_conflict,
            skipped: Vec::new(),
            blocked: Vec::new(),
            rebuildable: Vec::new(),
            lost: Vec::new(),
            unstable: Vec::new(),
            safety_snapshot: None,
            keep_before: options.keep_before,
            is_store_full: false,
            not_kept: Vec::new(),
        }
    }

    /// Refuses the history of a container: its paths are virtual. A copy can be written elsewhere.
    fn refuse_container(&self, number: u64) -> Result<(), RestoreError> {
        if self.session().metadata()?.origin == SessionOrigin::Container {
            let session = self.session().id();
            return Err(SnapshotError::OfContainer { session, number }.into());
        }
        Ok(())
    }

    /// The manifest to restore and the last one, after checking that they are the ones that the
    /// session and their neighbours name: a manifest that was tampered with must not say what is
    /// overwritten. Damage of others does not matter.
    fn states(&self, number: u64) -> Result<States, RestoreError> {
        let latest = self.latest()?;
        let last = latest.manifest.number;
        if number > last {
            let session = self.session().path().to_owned();
            return Err(SnapshotError::NoSuchSnapshot { session, number, last: Some(last) }.into());
        }
        self.session().refuse_removed(number)?;
        let metadata = self.session().metadata()?;
        let listed = &metadata.manifest_hashes;
        let target = self.session().listed_manifest(number, listed)?;
        self.check_roots(&target.manifest)?;
        let chain = (0..=last)
            // A snapshot that an archive added is the work of another machine.
            .filter(|it| *it == number || !metadata.was_added(*it))
            .filter_map(|number| self.session().listed_manifest(number, listed).ok())
            .collect();
        Ok(States { target, latest, chain })
    }

    /// Refuses a snapshot whose root tree holds what its manifest does not track.
    fn check_roots(&self, target: &SnapshotManifest) -> Result<(), RestoreError> {
        let root = read_root_tree(self.store(), &target.merkle_root)?;
        let is_tracked = |path: &[u8]| {
            target.roots.iter().any(|tracked| tracked.path.as_os_str().as_bytes() == path)
        };
        match root.entries.iter().find(|entry| !is_tracked(&entry.path)) {
            None => Ok(()),
            Some(entry) => {
                let path = self.session().manifest_path(target.number);
                let shown = Shown::bytes(&entry.path);
                let reason = format!("its root tree holds {shown}, which it does not track");
                Err(ManifestError::Corrupt { path, reason }.into())
            }
        }
    }
}

/// The files of a restore that kept changing while the snapshot read them.
fn unstable_among(changes: &[Change], target: &SnapshotManifest) -> Vec<PathBuf> {
    among(&target.unstable, changes)
}

/// The paths of a list that change.
fn among(paths: &[PathBuf], changes: &[Change]) -> Vec<PathBuf> {
    // There may be millions of changes, and hardly any of these paths.
    let paths_meant: HashSet<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let changed = changes.iter().map(|change| change.path.as_path());
    let changed: HashSet<&Path> = changed.filter(|path| paths_meant.contains(path)).collect();
    paths.iter().filter(|path| changed.contains(path.as_path())).cloned().collect()
}

/// The manifests that a restore needs.
struct States {
    target: LoadedManifest,
    latest: LoadedManifest,
    /// All that can be read.
    chain: Vec<LoadedManifest>,
}
