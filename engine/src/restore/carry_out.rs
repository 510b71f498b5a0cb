//! Carrying out a plan: everything new is staged, the steps are noted, and then they are taken.
//!
//! Until all that is staged and the journal with the steps are on the disk, no path changes. From
//! then on the journal leads to one of the two states.

use jiff::Timestamp;

use super::RestoreError;
use super::areas::Areas;
use super::clear_up::{warn_of, with_what_is_left};
use super::commit::{Commit, Left};
use super::journal::{Facts, Journal, Work};
use super::places::Places;
use super::plan::RestorePlan;
use super::prepare::Before;
use super::rollback::{Incomplete, take_back};
use super::staging::{Layout, stage};
use super::steps::Disk;
use crate::diff::{Comparison, Lost};
use crate::progress::{Amount, NoProgress, Progress, Stage};
use crate::snapshot::{RestoreRecord, SnapshotManager, SnapshotManifest};
use crate::sys;

impl SnapshotManager {
    /// Stages, commits, adds `record` to the session and clears up; without a record, it
    /// is the session of a merge, which restores nothing. Returns what the steps changed, and what was
    /// left as it is. `lost` is for the report of whoever ends it after a crash.
    pub(super) fn carry_out(
        &self,
        plan: RestorePlan,
        target: &SnapshotManifest,
        before: &Before,
        mut record: Option<RestoreRecord>,
        lost: &[Lost],
    ) -> Result<(Comparison, Left), RestoreError> {
        let roots = &target.roots;
        let mut places = Places::new(roots);
        let layout = Layout::new(&plan, &mut places)?;
        let mut journal = Journal {
            snapshot: target.number,
            safety: before.safety,
            areas: layout.areas.clone(),
            work: None,
            end: None,
            facts: Facts { lost: lost.to_vec(), ..Facts::of(record.as_ref()) },
        };
        self.with_room(|| journal.save(self.session()))?;
        let mut areas = Areas::open(&journal.areas, roots)?;
        let dirs = areas.parents();
        let made = areas.make().map_err(RestoreError::from);
        let made = made.map_err(|error| error.of_project(&dirs, || plan.removed_contents()));
        let staged = made.and_then(|()| {
            let (progress, threads) = (self.progress(), self.threads());
            let started = before.started;
            let work = stage(self.store(), plan, &layout, &areas, started, progress, threads)?;
            self.progress().begin(Stage::Flush, None);
            // A staged file must be on the disk before the name that it replaces goes.
            let synced = areas.sync().map_err(RestoreError::from);
            synced.map_err(|error| error.of_project(&dirs, Vec::new))?;
            if self.progress().is_cancelled() {
                return Err(RestoreError::Cancelled);
            }
            self.with_room(|| journal.save_with(&work, self.session()))?;
            Ok(work)
        });
        let mut work = match staged {
            Ok(work) => work,
            Err(cause) => {
                // Nothing is written where that is not needed: the disk may be full.
                let cleared = if self.is_journal_without_steps() {
                    self.clear_up(&journal, roots)
                } else {
                    self.settle(journal, None, roots)
                };
                return Err(with_what_is_left(cause, cleared, &areas));
            }
        };
        drop(layout);
        let steps = Amount { entries: work.steps.len() as u64, bytes: 0 };
        self.progress().begin(Stage::Commit, Some(steps));
        match commit(&mut places, &areas, &work, before, self.progress()) {
            Ok(mut left) => {
                journal.facts.left_some |= self.has_any_of(&left.skipped, target)
                    || self.has_any_of(&work.skipped, target);
                left.skipped.append(&mut work.skipped);
                journal.facts.skipped.clone_from(&left.skipped);
                // As long as the journal has steps, a crash is the user's to decide; after that a
                // restore without a record would count as never done.
                match record.take() {
                    Some(mut record) => {
                        record.at = Timestamp::now();
                        record.left_some = journal.facts.left_some;
                        self.note(record);
                    }
                    None => self.note_landed(&left.skipped),
                }
                match self.settle(journal, Some(&work), roots) {
                    Ok(denied) => left.skipped.extend(denied),
                    // Everything is in place; only what is not needed any more is left.
                    Err(error) => left.skipped.extend(self.left_of_restore(&areas, &error)),
                }
                Ok((work.into_comparison(self.store()), left))
            }
            // The journal stays: after the obstacle is removed, the user can try again.
            Err(error @ RestoreError::HalfDone { .. }) => Err(error),
            Err(error) => {
                let cleared = self.settle(journal, None, roots);
                let error = error.of_project(&dirs, Vec::new);
                Err(with_what_is_left(error, cleared, &areas))
            }
        }
    }
}

impl SnapshotManager {
    /// Writes to the store, and makes room for that as long as its disk is full.
    fn with_room<T>(&self, write: impl Fn() -> sys::Result<T>) -> sys::Result<T> {
        loop {
            match write() {
                Err(error) if error.is_disk_full() && self.make_room() => {}
                written => return written,
            }
        }
    }
}

/// Takes all steps and makes them durable, or takes back those that were taken.
///
/// Nothing stops it: the rest is renames. A rollback would have to read every placed file again,
/// because a user may have edited it by now; that takes longer than the rest of the way.
fn commit(
    places: &mut Places<'_>,
    areas: &Areas,
    work: &Work,
    before: &Before,
    progress: &dyn Progress,
) -> Result<Left, RestoreError> {
    let mut disk = Disk::new(places, areas, work.started, &before.links, &NoProgress);
    let done = Commit::new(&mut disk, false).run(work, progress).and_then(|left| {
        areas.sync()?;
        Ok(left)
    });
    done.map_err(|cause| match take_back(&mut disk, work) {
        // It cannot be stopped.
        Ok(denied) => {
            warn_of(&denied);
            cause
        }
        Err(Incomplete::Stopped) => cause,
        Err(Incomplete::Failed(rollback)) => {
            let (cause, staging) = (Box::new(cause), areas.paths());
            RestoreError::HalfDone { cause, rollback, staging, safety: before.safety }
        }
    })
}
