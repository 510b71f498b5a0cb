//! The way back: plan, stage, commit.
//!
//! Always true, from the first day: nothing is deleted or overwritten whose bytes are not in the
//! store (a safety snapshot comes first); the filter is the one of the capture, and what a snapshot
//! did not capture is left alone; no path changes before every byte was staged and checked; no
//! symlink is followed and no path outside the tracked paths is touched; a failure takes back what
//! was done. Planning changes nothing.

mod attributes;
mod commit;
mod places;
mod plan;
mod staging;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

use crate::diff::{self, Change};
use crate::path_text::{Shown, to_path};
use crate::snapshot::{
    LoadedManifest, ManifestError, SnapshotError, SnapshotManager, SnapshotManifest,
};
use crate::store::{OverlayStore, StoreError};
use crate::sys;

use commit::Commit;
use places::Places;
pub use plan::{RestorePlan, Skipped};
use staging::{Staging, stage};

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
    /// A path is in no tracked path, or on a file system that cannot be reached from there.
    #[error("cannot restore {}: it is outside the tracked paths", Shown::path(path))]
    Outside {
        /// The path.
        path: PathBuf,
    },
    /// A file system call failed.
    #[error("{0}; nothing was changed")]
    Io(#[from] sys::Error),
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

    fn outside(path: &[u8]) -> Self {
        Self::Outside { path: to_path(path).to_owned() }
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Snapshot(error.into())
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
        let current = self.capture_current(&overlay, &target.manifest, &latest.manifest, true)?;
        let left_out = &current.not_captured;
        Ok(plan::plan(&overlay, &current.merkle_root, left_out, &target.manifest)?)
    }

    /// Brings the tracked paths back to a snapshot. See the module for what always holds.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub fn restore(&self, number: u64) -> Result<RestoreReport, RestoreError> {
        let _session_lock = self.lock_session()?;
        // Nothing may be collected between the plan and the last byte.
        let _store_lock = self.lock_store()?;
        let (target, latest) = self.restore_target(number)?;
        let target = &target.manifest;
        let current = self.capture_current(self.store(), target, &latest.manifest, false)?;
        let started = current.started;
        let mut plan =
            plan::plan(self.store(), &current.merkle_root, &current.not_captured, target)?;
        plan.link(&diff::links_of(self.store(), &target.merkle_root)?);
        let mut report = RestoreReport {
            session_id: self.session().id(),
            snapshot: number,
            dry_run: false,
            changes: std::mem::take(&mut plan.changes),
            conflicts: Vec::new(),
            skipped: std::mem::take(&mut plan.skipped),
            safety_snapshot: None,
        };
        if plan.is_empty() {
            return Ok(report);
        }
        let safety = self.publish_safety(current, &latest, &target.roots)?;
        report.safety_snapshot = Some(safety.number);
        report.skipped.extend(self.carry_out(&plan, target, started)?);
        report.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(report)
    }

    /// The manifest to restore and the last one, after checking that the chain is unbroken: a
    /// manifest that was tampered with must not say what is overwritten.
    fn restore_target(
        &self,
        number: u64,
    ) -> Result<(LoadedManifest, LoadedManifest), RestoreError> {
        let mut chain = self.session().chain()?;
        let Some(latest) = chain.last().cloned() else {
            let session = self.session().path().to_owned();
            return Err(SnapshotError::NoBaseline { session }.into());
        };
        if number >= chain.len() as u64 {
            return Err(SnapshotError::NoSuchSnapshot {
                session: self.session().path().to_owned(),
                number,
                last: Some(latest.manifest.number),
            }
            .into());
        }
        Ok((chain.swap_remove(number as usize), latest))
    }

    fn carry_out(
        &self,
        plan: &RestorePlan,
        target: &SnapshotManifest,
        started: sys::FileTime,
    ) -> Result<Vec<Skipped>, RestoreError> {
        let mut places = Places::new(&target.roots);
        let mut staging = Staging::new();
        let staged =
            stage(self.store(), plan, &mut places, &mut staging, self.progress(), self.threads());
        let done = staged.and_then(|(puts, mut skipped)| {
            skipped.extend(Commit::new(&mut places, &mut staging, started).run(plan, &puts)?);
            staging.sync()?;
            Ok(skipped)
        });
        if !matches!(done, Err(RestoreError::HalfDone { .. })) {
            // Everything is in place, or everything was taken back: what is left is not needed.
            staging.remove(plan, done.is_ok())?;
        }
        done
    }
}

/// The path with a slash: what everything below it starts with.
fn below(path: &[u8]) -> Vec<u8> {
    [path, b"/"].concat()
}
