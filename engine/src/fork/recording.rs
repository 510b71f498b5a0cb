//! States of a fork as snapshots of its session.
//!
//! A manager of that session reads the layers in place of the tracked paths, also for the state
//! before an undo in the fork.

use std::sync::Arc;

use parking_lot::Mutex;

use super::ForkError;
use super::layer::NotTaken;
use super::store::Fork;
use crate::manifest::SnapshotManifest;
use crate::progress::Progress;
use crate::snapshot::{
    Capture, CaptureMeans, SnapshotError, SnapshotManager, SnapshotRequest, StateSource,
};
use crate::store::StoreError;
use crate::sys;

/// The state of a fork, recorded.
#[derive(Debug)]
pub struct ForkSnapshot {
    /// The snapshot in the session of the fork.
    pub manifest: SnapshotManifest,
    /// Entries of the layers that are no part of it.
    pub not_taken: Vec<NotTaken>,
    /// Whether it was recorded now; else the last snapshot is this state.
    pub is_new: bool,
}

/// A fork, as what is recorded.
struct ForkSource {
    fork: Fork,
    /// The refused entries of the last capture.
    not_taken: Mutex<Vec<NotTaken>>,
}

impl ForkSource {
    fn of(fork: &Fork) -> Self {
        Self { fork: fork.clone(), not_taken: Mutex::default() }
    }
}

impl StateSource for ForkSource {
    fn capture(&self, means: CaptureMeans<'_>) -> Result<Capture, SnapshotError> {
        let layered = self.fork.layered(means).map_err(|error| match error {
            ForkError::Snapshot(error) => error,
            ForkError::Store(error) => error.into(),
            ForkError::Io(error) => StoreError::from(error).into(),
            other => {
                let (path, source) = (self.fork.path().to_owned(), std::io::Error::other(other));
                StoreError::from(sys::Error { operation: "read the fork in", path, source }).into()
            }
        })?;
        *self.not_taken.lock() = layered.not_taken;
        Ok(Capture {
            started: layered.started,
            timestamp: layered.timestamp,
            merkle_root: layered.merkle_root,
            ignore_files: None,
            totals: layered.totals,
            not_captured: layered.not_captured,
            unstable: layered.unstable,
            caches: layered.caches,
        })
    }
}

impl Fork {
    /// The manager that records states of the fork in its session, as others record those of a
    /// directory. The fork must be [in use](Self::enter) as long as it lives.
    ///
    /// # Errors
    /// The session cannot be opened.
    pub fn manager(&self) -> Result<SnapshotManager, ForkError> {
        self.recorder(&Arc::new(ForkSource::of(self)))
    }

    fn recorder(&self, source: &Arc<ForkSource>) -> Result<SnapshotManager, ForkError> {
        let manager = SnapshotManager::open(self.session()?.path())?;
        Ok(manager.with_source(Arc::clone(source) as Arc<dyn StateSource>))
    }

    /// Records the present state of the fork as a snapshot of its session, unless nothing changed
    /// since the last one and no name is given.
    ///
    /// # Errors
    /// As for [`state`](Self::state), or a store that cannot be written.
    pub fn snapshot(
        &self,
        label: Option<String>,
        progress: Arc<dyn Progress + Send>,
        threads: usize,
    ) -> Result<ForkSnapshot, ForkError> {
        let _used = self.enter()?;
        let source = Arc::new(ForkSource::of(self));
        let manager = self.recorder(&source)?.with_progress(progress).with_threads(threads);
        let if_changed = label.is_none();
        let taken =
            manager.record_state(SnapshotRequest { label, if_changed, ..Default::default() })?;
        let not_taken = std::mem::take(&mut *source.not_taken.lock());
        Ok(ForkSnapshot { manifest: taken.manifest().clone(), not_taken, is_new: taken.is_new() })
    }
}
