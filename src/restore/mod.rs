//! The way back: plan, stage, commit.
//!
//! Always true, from the first day: nothing is deleted or overwritten whose bytes are not in the
//! store (a safety snapshot comes first); the filter is the one of the capture, and what a snapshot
//! did not capture is left alone; no path changes before every byte was staged and checked; no
//! symlink is followed and no path outside the tracked paths is touched; a failure takes back what
//! was done, and after a crash the journal tells the next one how to. Planning changes nothing.

mod areas;
mod attributes;
mod commit;
mod journal;
mod places;
mod plan;
mod recover;
mod rollback;
mod secure;
mod staging;
mod steps;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

use crate::diff::{self, Change};
use crate::object::ContentHash;
use crate::path_text::{Shown, to_path};
use crate::snapshot::{
    CacheUse, Capture, LoadedManifest, ManifestError, SnapshotError, SnapshotKind, SnapshotManager,
    SnapshotManifest,
};
use crate::store::{ObjectSource, OverlayStore, StoreError};
use crate::sys;

use areas::Areas;
use commit::Commit;
use journal::{Journal, JournalError, Work};
use places::Places;
pub use plan::{RestorePlan, Skipped};
pub use recover::{Recovery, RecoveryOutcome, RecoveryReport};
use rollback::take_back;
use staging::{Layout, stage};
use steps::Disk;

/// Why a restore did not happen. Unless it is [`RestoreError::HalfDone`], nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The session or its snapshots cannot be used, or the current state could not be captured.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The contents of a file are missing from the store or damaged there.
    #[error("cannot restore {}: {source}; nothing was changed", Shown::path(path))]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: StoreError,
    },
    /// The path was changed after the safety snapshot was taken.
    #[error(
        "{} was changed by somebody while it was being restored; everything was put back as it was",
        Shown::path(path)
    )]
    ChangedMeanwhile {
        /// The path.
        path: PathBuf,
    },
    /// The path was changed after the restore was interrupted.
    #[error(
        "{} was changed after the restore was interrupted: move it away and resume again, or take \
         the restore back",
        Shown::path(path)
    )]
    ChangedSince {
        /// The path.
        path: PathBuf,
    },
    /// The new contents do not fit on the disk.
    #[error(
        "not enough space in {}: {needed} bytes are needed, {free} are free; nothing was changed",
        Shown::path(path)
    )]
    NoSpace {
        /// A directory on the file system that is too full.
        path: PathBuf,
        /// Bytes that are needed there.
        needed: u64,
        /// Bytes that are free there.
        free: u64,
    },
    /// The journal of an interrupted restore cannot be read.
    #[error("the journal of a restore, {}, cannot be used: {reason}", Shown::path(path))]
    DamagedJournal {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The journal names a safety snapshot that the session does not have.
    #[error("the journal in {} does not belong to this session", Shown::path(session))]
    ForeignJournal {
        /// The session's directory.
        session: PathBuf,
    },
    /// An interrupted restore could not be taken back completely.
    #[error("not everything could be put back: {}. What was replaced is in {}, and in the safety snapshot", rollback.join("; "), shown_list(staging))]
    NotTakenBack {
        /// What could not be put back.
        rollback: Vec<String>,
        /// Where the replaced files are.
        staging: Vec<PathBuf>,
    },
    /// A path is in no tracked path, or on a file system that cannot be reached from there.
    #[error("cannot restore {}: it is outside the tracked paths", Shown::path(path))]
    Outside {
        /// The path.
        path: PathBuf,
    },
    /// A file system call failed.
    #[error("{0}; nothing was changed")]
    Io(#[from] sys::Error),
    /// The directory that held a tracked path is gone, and is outside of what a restore touches.
    #[error(
        "cannot restore {}: the directory that held it is gone; nothing was changed",
        Shown::path(path)
    )]
    ParentMissing {
        /// The tracked path.
        path: PathBuf,
    },
    /// Files that would be replaced kept changing.
    #[error("files that would be replaced keep changing; nothing was changed")]
    NeverStill,
    /// Somebody asked to stop.
    #[error("stopped; nothing was changed")]
    Cancelled,
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}; nothing was changed")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// A step failed, and so did taking back the steps before it.
    #[error("{cause}; and not everything could be put back: {}. What was replaced is in {}, and in the safety snapshot", rollback.join("; "), shown_list(staging))]
    HalfDone {
        /// The step that failed.
        cause: Box<RestoreError>,
        /// What could not be put back.
        rollback: Vec<String>,
        /// Where the replaced files are.
        staging: Vec<PathBuf>,
    },
}

fn shown_list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| Shown::path(path).to_string()).collect::<Vec<_>>().join(", ")
}

impl RestoreError {
    fn changed(path: &[u8]) -> Self {
        Self::ChangedMeanwhile { path: to_path(path).to_owned() }
    }

    fn changed_since(path: &[u8]) -> Self {
        Self::ChangedSince { path: to_path(path).to_owned() }
    }

    fn from_place(error: sys::Error, path: &[u8]) -> Self {
        if error.is_gone() {
            Self::ParentMissing { path: to_path(path).to_owned() }
        } else {
            error.into()
        }
    }

    fn outside(path: &[u8]) -> Self {
        Self::Outside { path: to_path(path).to_owned() }
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Snapshot(error.into())
    }
}

impl From<JournalError> for RestoreError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Io(error) => Self::Io(error),
            JournalError::Undecodable { path, source } => {
                Self::DamagedJournal { path, reason: source.to_string() }
            }
        }
    }
}

impl From<ManifestError> for RestoreError {
    fn from(error: ManifestError) -> Self {
        Self::Snapshot(error.into())
    }
}

/// What a restore did, or would do.
#[derive(Debug, Clone, Serialize)]
pub struct RestoreReport {
    /// The session.
    pub session_id: String,
    /// The snapshot whose state was asked for.
    pub snapshot: u64,
    /// Whether nothing was done on purpose.
    pub dry_run: bool,
    /// What changed on the disk, sorted by path.
    pub changes: Vec<Change>,
    /// Paths with later edits that were in the way.
    pub conflicts: Vec<Skipped>,
    /// What is not as it was in the snapshot, and why.
    pub skipped: Vec<Skipped>,
    /// The snapshot that holds the state before the restore; `None` when nothing was to be done.
    pub safety_snapshot: Option<u64>,
}

impl RestoreReport {
    /// Whether the state on disk is now the state that was asked for.
    pub fn is_complete(&self) -> bool {
        self.skipped.is_empty() && self.conflicts.is_empty()
    }
}

impl SnapshotManager {
    /// Brings the tracked paths back to a snapshot and returns what changed. The state before is
    /// kept as a further snapshot of the session.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub fn restore_to(&self, number: u64) -> Result<Vec<Change>, RestoreError> {
        Ok(self.restore(number)?.changes)
    }

    /// What [`restore_to`](Self::restore_to) would change. Writes nothing, neither to the tracked
    /// paths nor to the store.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn compute_restore_diff(&self, number: u64) -> Result<Vec<Change>, RestoreError> {
        Ok(self.plan_restore(number)?.changes)
    }

    /// Plans a restore. Writes nothing, neither to the tracked paths nor to the store.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn plan_restore(&self, number: u64) -> Result<RestorePlan, RestoreError> {
        let (target, latest) = self.restore_target(number)?;
        let overlay = OverlayStore::new(self.store());
        let current =
            self.capture_current(&overlay, &target.manifest, &latest.manifest, CacheUse::Read)?;
        let mut plan =
            plan::plan(&overlay, &current.merkle_root, &current.not_captured, &target.manifest)?;
        self.complete_plan(&overlay, &mut plan, &current.merkle_root, &target.manifest)?;
        Ok(plan)
    }

    /// What the plan needs to know from the disk.
    fn complete_plan(
        &self,
        source: &dyn ObjectSource,
        plan: &mut RestorePlan,
        current_root: &ContentHash,
        target: &SnapshotManifest,
    ) -> Result<(), RestoreError> {
        let mut places = Places::new(&target.roots);
        if let Some(path) = plan.first_path() {
            // Making directories above a tracked path is not for a restore to decide.
            places.find(path).map_err(|error| RestoreError::from_place(error, path))?;
        }
        plan.detach_foreign_links(&diff::links_of(source, current_root)?, &mut places)?;
        plan.link(&diff::links_of(source, &target.merkle_root)?);
        Ok(())
    }

    /// Brings the tracked paths back to a snapshot. See the module for what always holds.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub fn restore(&self, number: u64) -> Result<RestoreReport, RestoreError> {
        let _session_lock = self.session().lock()?;
        self.refuse_interrupted_restore()?;
        // Nothing may be collected between the plan and the last byte.
        let _store_lock = self.store().lock_shared()?;
        let (target, latest) = self.restore_target(number)?;
        let target = &target.manifest;
        let (current, mut plan) = self.plan_from_disk(target, &latest.manifest)?;
        let started = current.started;
        let mut report = RestoreReport {
            session_id: self.session().id(),
            snapshot: number,
            dry_run: false,
            changes: std::mem::take(&mut plan.changes),
            conflicts: Vec::new(),
            skipped: Vec::new(),
            safety_snapshot: None,
        };
        if plan.is_empty() {
            report.skipped = plan.skipped;
            return Ok(report);
        }
        let last = &latest.manifest;
        // A restore that failed and is tried again needs no second record of the same state.
        let is_recorded =
            last.kind == SnapshotKind::Safety && last.merkle_root == current.merkle_root;
        let safety = if is_recorded {
            last.number
        } else {
            self.publish_safety(current, &latest, &target.roots)?.number
        };
        report.safety_snapshot = Some(safety);
        report.skipped = self.carry_out(&plan, target, safety, started)?;
        report.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(report)
    }

    /// Captures the current state into the store and plans from it. Every byte that the plan replaces
    /// or removes is then in the store; if the cached capture missed one, all is read afresh.
    fn plan_from_disk(
        &self,
        target: &SnapshotManifest,
        latest: &SnapshotManifest,
    ) -> Result<(Capture, RestorePlan), RestoreError> {
        for cache in [CacheUse::ReadAndWrite, CacheUse::Nothing] {
            let current = self.capture_current(self.store(), target, latest, cache)?;
            let (root, left_out) = (&current.merkle_root, &current.not_captured);
            let mut plan = plan::plan(self.store(), root, left_out, target)?;
            self.complete_plan(self.store(), &mut plan, root, target)?;
            let mut places = Places::new(&target.roots);
            if secure::is_everything_stored(self.store(), &plan, &mut places)? {
                return Ok((current, plan));
            }
        }
        Err(RestoreError::NeverStill)
    }

    /// The manifest to restore and the last one, after checking that they are the ones that the session
    /// and their neighbours name: a manifest that was tampered with must not say what is overwritten.
    fn restore_target(
        &self,
        number: u64,
    ) -> Result<(LoadedManifest, LoadedManifest), RestoreError> {
        let latest = self.latest()?;
        let last = latest.manifest.number;
        if number > last {
            return Err(SnapshotError::NoSuchSnapshot {
                session: self.session().path().to_owned(),
                number,
                last: Some(last),
            }
            .into());
        }
        let listed = self.session().metadata()?.manifest_hashes;
        Ok((self.session().listed_manifest(number, &listed)?, latest))
    }

    /// Stages, commits and clears up. Returns what was left as it is.
    fn carry_out(
        &self,
        plan: &RestorePlan,
        target: &SnapshotManifest,
        safety: u64,
        started: sys::FileTime,
    ) -> Result<Vec<Skipped>, RestoreError> {
        let roots = &target.roots;
        let mut places = Places::new(roots);
        let layout = Layout::new(plan, &mut places)?;
        let mut journal =
            Journal { snapshot: target.number, safety, areas: layout.areas.clone(), work: None };
        journal.save(self.session())?;
        let mut areas = Areas::open(&journal.areas, roots)?;
        let staged = areas.make().map_err(RestoreError::from).and_then(|()| {
            let (progress, threads) = (self.progress(), self.threads());
            let mut work = stage(self.store(), plan, &layout, &areas, started, progress, threads)?;
            work.skipped.extend(plan.skipped.iter().cloned());
            // What is put in place must be on the disk before the name that it replaces goes.
            areas.sync()?;
            journal.work = Some(work);
            journal.save(self.session())?;
            Ok(())
        });
        let work = match (staged, journal.work.take()) {
            (Ok(()), Some(work)) => work,
            (staged, _) => {
                self.settle(journal, None, roots)?;
                return staged.map(|()| Vec::new());
            }
        };
        match commit(&mut places, &areas, &work) {
            Ok(skipped) => {
                if let Err(error) = self.settle(journal, Some(&work), roots) {
                    // Everything is in place; only what is not needed any more is left.
                    tracing::warn!("staging directories are left: {error}");
                }
                Ok([work.skipped, skipped].concat())
            }
            // The journal stays: whoever removes what was in the way can try again.
            Err(error @ RestoreError::HalfDone { .. }) => Err(error),
            Err(error) => {
                self.settle(journal, None, roots)?;
                Err(error)
            }
        }
    }
}

/// Takes all steps and makes them durable, or takes back those that were taken.
fn commit(
    places: &mut Places<'_>,
    areas: &Areas,
    work: &Work,
) -> Result<Vec<Skipped>, RestoreError> {
    let mut disk = Disk::new(places, areas, work.started);
    let done = Commit::new(&mut disk, false).run(work).and_then(|skipped| {
        areas.sync()?;
        Ok(skipped)
    });
    done.map_err(|cause| match take_back(&mut disk, work) {
        Ok(()) => cause,
        Err(rollback) => {
            RestoreError::HalfDone { cause: Box::new(cause), rollback, staging: areas.paths() }
        }
    })
}

/// The path with a slash: what everything below it starts with.
fn below(path: &[u8]) -> Vec<u8> {
    [path, b"/"].concat()
}
