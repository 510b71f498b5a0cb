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
mod options;
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
mod report;
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

use crate::diff::{Change, Comparison};
use crate::path_text::Shown;
use crate::snapshot::{
    CacheUse, LoadedManifest, ManifestError, RestoreRecord, SessionOrigin, SnapshotError,
    SnapshotManager, SnapshotManifest,
};
use crate::store::{OverlayStore, read_root_tree};

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
pub(crate) use options::Decision;
pub use options::RestoreOptions;
use options::is_refused;
use plan::RestorePlan;
pub use plan::Skipped;
use planned::Planned;
pub use prepare::KeepBefore;
use prepare::Prepared;
pub use recover::{Recovery, RecoveryOutcome, RecoveryReport};
pub use report::{JobReport, RestoreReport, StepConflict};
pub use selection::Selection;
pub use state_merge::{Merge, MergeConflict, MergeReport, MergedState, PastMerge};
pub use text_undo::TextPart;
pub use three_way::{ConflictSide, Decided, DecidedBy};
pub use {attributes::apply as apply_attributes, make::make, staging::SURELY_COPIED_BYTES};

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
        self.restore(number)?.into_changes()
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
        self.restore_decided(number, options, Decision::default())
    }

    /// As [`restore_with`](Self::restore_with), for a decision of a person.
    pub(crate) fn restore_decided(
        &self,
        number: u64,
        options: &RestoreOptions,
        decision: Decision,
    ) -> Result<RestoreReport, RestoreError> {
        let _mark = self.begin_restore(number, options)?;
        if self.session().has_restore_journal()? {
            // With nothing to decide there is no obstacle. For every other defect of the journal,
            // the lock says that there is one.
            let _ = self.clear_staging();
        }
        let _session_lock = self.lock_session()?;
        self.check_restore_count(decision.restore_count)?;
        // Nothing may be collected between the plan and the last byte.
        let _store_lock = self.lock_store()?;
        self.refuse_container(number)?;
        self.restore_in_parts(number, options, decision)
    }

    /// Plans from the disk, and carries a part of the plan out. Under the locks.
    fn restore_part(
        &self,
        number: u64,
        options: &RestoreOptions,
        decision: Decision,
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
            command: decision.command,
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
    pub(crate) fn refuse_restored_since(&self, restore_count: u64) -> Result<(), RestoreError> {
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
