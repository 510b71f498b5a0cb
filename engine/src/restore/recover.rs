//! After a crash: finishing a restore, or taking it back.
//!
//! Both start from the journal, read from the disk how far the commit came, and can themselves be
//! interrupted anywhere: calling either of them again, or the other one, goes on from there.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use super::RestoreError;
use super::areas::Areas;
use super::commit::{Commit, Left};
use super::journal::{End, Facts, Journal};
use super::outcome::different;
use super::places::Places;
use super::plan::{Skipped, sort};
use super::rollback::{Incomplete, take_back};
use super::steps::Disk;
use crate::diff::{self, Change, Lost};
use crate::path_text::serde_paths;
use crate::snapshot::{RestoreRecord, SnapshotKind, SnapshotManager, SnapshotManifest};

/// Which way out of an interrupted restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// Do the rest.
    Finish,
    /// Bring back the state before the restore.
    TakeBack,
}

/// The state in which an interrupted restore ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryOutcome {
    /// The state of the snapshot is on the disk.
    Finished,
    /// The state before the restore is on the disk, brought back by this or an earlier attempt.
    TakenBack,
    /// The state before the restore is on the disk: it had not changed any path yet.
    NotBegun,
}

/// The result of a recovery from an interrupted restore.
#[derive(Debug, Clone, Serialize)]
pub struct RecoveryReport {
    /// The session.
    pub session_id: String,
    /// The snapshot that was being restored; of a merge, the one of the state before.
    pub snapshot: u64,
    /// Whether it was the merge of another state, and no restore.
    pub is_merge: bool,
    /// The way it ended.
    pub outcome: RecoveryOutcome,
    /// The way that was asked for.
    pub asked: Recovery,
    /// Whether no path was half-way: it was finished, taken back or not begun before, and only
    /// staging directories were left.
    pub was_over: bool,
    /// The changes of the whole restore, steps before the interruption included; empty unless they
    /// were finished now.
    pub changes: Vec<Change>,
    /// Paths that the whole restore gave their time back, and nothing else; empty unless it was
    /// finished.
    #[serde(with = "serde_paths")]
    pub touched: Vec<PathBuf>,
    /// The paths that differ from the requested state (the snapshot, or the state before), and why.
    pub skipped: Vec<Skipped>,
    /// Left-out paths of the snapshot that are gone or different; empty unless it is finished.
    pub lost: Vec<Lost>,
    /// The snapshot that holds the state before the restore, unless none was taken.
    pub safety_snapshot: Option<u64>,
}

impl RecoveryReport {
    /// Whether the way that was asked for led to its state.
    pub fn is_as_asked(&self) -> bool {
        let is_finished = self.outcome == RecoveryOutcome::Finished;
        is_finished == (self.asked == Recovery::Finish)
    }

    /// Whether every path is in the state that was asked for.
    pub fn is_complete(&self) -> bool {
        self.is_as_asked()
            && self.skipped.is_empty()
            && self.lost.iter().all(|lost| lost.is_rebuildable)
    }
}

/// A recovery that is stopped is not one of which nothing was changed.
fn stopped(error: RestoreError) -> RestoreError {
    match error {
        RestoreError::Cancelled => RestoreError::RecoveryStopped,
        other => other,
    }
}

impl SnapshotManager {
    /// Finishes or takes back a restore of this session that was interrupted. `None`: there is
    /// none.
    ///
    /// # Errors
    /// [`RestoreError`]; the journal is then still there, and either way can be tried again, also
    /// after a stop ([`RestoreError::RecoveryStopped`]). Leftovers that could not be cleared away
    /// are in the report.
    pub fn recover_restore(&self, way: Recovery) -> Result<Option<RecoveryReport>, RestoreError> {
        let _session_lock = self.lock_interrupted_session()?;
        // The journal's objects must not be collected meanwhile.
        let _store_lock = self.lock_store()?;
        let Some(mut journal) = Journal::load(self.session())? else { return Ok(None) };
        let Some(work) = journal.work.take() else {
            return self.clear_without_steps(journal, way).map(Some);
        };
        let safety = self.safety_of(&journal)?;
        let mut report = self.recovery_report(&journal, way);
        let areas = Areas::open(&journal.areas, &safety.roots)?;
        let mut places = Places::new(&safety.roots);
        let links = diff::links_of(self.store(), &safety.merkle_root)?;
        let mut disk = Disk::new(&mut places, &areas, work.started, &links, self.progress());
        let mut left = match way {
            Recovery::Finish => {
                let commit = Commit::new(&mut disk, true);
                let left = commit.run(&work, self.progress()).map_err(stopped)?;
                areas.sync()?;
                report.outcome = RecoveryOutcome::Finished;
                report.skipped.clone_from(&work.skipped);
                report.lost.clone_from(&journal.facts.lost);
                left
            }
            Recovery::TakeBack => {
                let denied = take_back(&mut disk, &work);
                report.skipped = denied.map_err(|incomplete| match incomplete {
                    Incomplete::Failed(rollback) => {
                        let (staging, safety) = (areas.paths(), report.safety_snapshot);
                        RestoreError::NotTakenBack { rollback, staging, safety }
                    }
                    Incomplete::Stopped => RestoreError::RecoveryStopped,
                })?;
                areas.sync()?;
                report.outcome = RecoveryOutcome::TakenBack;
                Left::default()
            }
        };
        report.skipped.append(&mut left.skipped);
        let different = different(&mut disk, &work, way, &report.skipped);
        left.add_undone(different.map_err(|error| stopped(error.into()))?);
        report.skipped.append(&mut left.skipped);
        let is_finished = way == Recovery::Finish;
        // Before the journal has no steps any more, as in the restore itself.
        if is_finished {
            let Facts { is_partial, command, undoes_steps, has_merged, is_own_work, .. } =
                journal.facts;
            journal.facts.left_some |= !report.skipped.is_empty()
                && self
                    .load_manifest(report.snapshot)
                    .map_or(true, |target| self.has_any_of(&report.skipped, &target));
            let left_some = journal.facts.left_some;
            journal.facts.skipped.clone_from(&report.skipped);
            let (snapshot, safety_snapshot) = (report.snapshot, report.safety_snapshot);
            let at = Timestamp::now();
            let record = RestoreRecord {
                at,
                snapshot,
                command,
                safety_snapshot,
                is_partial,
                undoes_steps,
                left_some,
                has_merged,
                // A journal does not say it: `redo` asks about the text then.
                left_text: None,
            };
            match is_own_work {
                true => self.note_landed(&report.skipped),
                false => self.note_finished(record, work.started),
            }
        } else if journal.facts.is_own_work {
            self.note_not_landed();
        } else {
            self.note_taken_back(work.started);
        }
        let not_cleared = match self.settle(journal, is_finished.then_some(&work), &safety.roots) {
            Ok(denied) => denied,
            // The changes are made, and reported.
            Err(error) => self.left_of_restore(&areas, &error),
        };
        report.skipped.extend(not_cleared);
        sort(&mut report.skipped);
        if is_finished {
            let mut done = work.into_comparison(self.store());
            left.retain_made(&mut done);
            (report.changes, report.touched) = (done.changes, done.touched);
        }
        Ok(Some(report))
    }

    /// A report of nothing yet.
    fn recovery_report(&self, journal: &Journal, way: Recovery) -> RecoveryReport {
        RecoveryReport {
            session_id: self.session().id(),
            snapshot: journal.snapshot,
            is_merge: journal.facts.is_own_work,
            outcome: RecoveryOutcome::NotBegun,
            asked: way,
            was_over: false,
            changes: Vec::new(),
            touched: Vec::new(),
            skipped: Vec::new(),
            lost: Vec::new(),
            safety_snapshot: journal.safety,
        }
    }

    /// Ends a restore of which no path is half-way: whatever was asked for, its state stays.
    pub(super) fn clear_without_steps(
        &self,
        journal: Journal,
        way: Recovery,
    ) -> Result<RecoveryReport, RestoreError> {
        let roots = self.safety_of(&journal)?.roots;
        let mut report = self.recovery_report(&journal, way);
        report.was_over = true;
        let not_cleared = self.clear_up(&journal, &roots)?;
        match journal.end {
            None => {}
            Some(End::TakenBack) => report.outcome = RecoveryOutcome::TakenBack,
            Some(End::Finished) => {
                report.outcome = RecoveryOutcome::Finished;
                (report.skipped, report.lost) = (journal.facts.skipped, journal.facts.lost);
            }
        }
        report.skipped.extend(not_cleared);
        sort(&mut report.skipped);
        Ok(report)
    }

    /// The snapshot that a journal counts on: that of the state before or, where none was taken,
    /// the one that is brought back, which has the same tracked paths. The journal says which
    /// paths; which of them may be touched, this checked manifest does.
    pub(super) fn safety_of(&self, journal: &Journal) -> Result<SnapshotManifest, RestoreError> {
        let mut chain = self.session().chain()?;
        let number = journal.safety.unwrap_or(journal.snapshot);
        let known = usize::try_from(number).ok().filter(|number| *number < chain.len());
        let found = known.map(|number| chain.swap_remove(number).manifest);
        let is_meant = |found: &SnapshotManifest| {
            journal.safety.is_none()
                || journal.facts.is_own_work
                || found.kind == SnapshotKind::Safety
        };
        found.filter(is_meant).ok_or_else(|| RestoreError::ForeignJournal {
            session: self.session().path().to_owned(),
        })
    }
}
