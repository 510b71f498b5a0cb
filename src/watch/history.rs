//! The session of a watcher: found again, begun, and its steps.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use nono_engine::progress::Progress;
use nono_engine::session::{
    Catalog, RecordError, RecordRequest, Recording, at_work, recorded_by_others,
};
use nono_engine::snapshot::{
    SessionMetadata, SessionOrigin, SnapshotError, SnapshotManager, SnapshotManifest, Step,
    StepKind, Taken,
};

/// The maker of the steps, as they name it.
const MAKER: &str = "watch";
/// A session is followed by another one after this time, or with so many snapshots: a longer list
/// would be written again for each step.
const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);
const MAX_SNAPSHOTS: u64 = 2000;

/// The session that a watcher writes.
pub struct WatchHistory {
    request: RecordRequest,
    progress: Arc<dyn Progress + Send>,
    manager: SnapshotManager,
    started: Timestamp,
    /// Changes before this moment are recorded.
    seen: Timestamp,
}

impl std::fmt::Debug for WatchHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchHistory").field("manager", &self.manager).finish_non_exhaustive()
    }
}

impl WatchHistory {
    /// Goes on with the session of an earlier watcher of these paths, or begins one with the present
    /// state. Gives the last snapshot along.
    ///
    /// # Errors
    /// As [`Recording::start`].
    pub fn begin(
        request: RecordRequest,
        progress: Arc<dyn Progress + Send>,
    ) -> Result<(Self, SnapshotManifest), RecordError> {
        match Self::find(&request, &progress)? {
            Some((manager, metadata)) => {
                let number = metadata.snapshot_count.saturating_sub(1);
                let last = manager.load_manifest(number)?;
                let started = metadata.started;
                if metadata.ended.is_some() {
                    let metadata = SessionMetadata { ended: None, ..metadata };
                    manager.save_session_metadata(&metadata)?;
                }
                let seen = last.timestamp;
                Ok((Self { request, progress, manager, started, seen }, last))
            }
            None => {
                let seen = Timestamp::now();
                let recording = Recording::start(&request, Arc::clone(&progress))?;
                let (manager, last) = (recording.manager().clone(), recording.baseline().clone());
                let started = seen;
                Ok((Self { request, progress, manager, started, seen }, last))
            }
        }
    }

    fn find(
        request: &RecordRequest,
        progress: &Arc<dyn Progress + Send>,
    ) -> Result<Option<(SnapshotManager, SessionMetadata)>, RecordError> {
        let catalog = Catalog::new(request.root.clone(), []);
        let listed = catalog.sessions().unwrap_or_default();
        for session in listed.into_iter().rev() {
            // A session that cannot be read is another one's.
            let Ok(metadata) = session.metadata() else { continue };
            let is_it = metadata.origin == SessionOrigin::Watch
                && !metadata.received
                && metadata.snapshot_count > 0
                && metadata.tracked_paths == request.tracked_paths;
            if !is_it || !is_young(metadata.started, metadata.snapshot_count) {
                continue;
            }
            let RecordRequest { tracked_paths, exclusion, budget, .. } = request;
            let manager =
                SnapshotManager::new(session.path(), tracked_paths, exclusion.clone(), *budget);
            // With other filters it is another session.
            let Ok(manager) = manager else { continue };
            let manager = manager
                .with_compression(request.compression)
                .with_threads(request.threads)
                .with_progress(Arc::clone(progress));
            return Ok(Some((manager, metadata)));
        }
        Ok(None)
    }

    /// The id of the session.
    pub fn session_id(&self) -> String {
        self.manager.session().id()
    }

    /// The engine of the session.
    pub fn manager(&self) -> &SnapshotManager {
        &self.manager
    }

    /// Takes a step, if anything changed. Its title names the programs that wrote, as far as they
    /// are known. A session that is long enough, or that is gone, is followed by another one.
    ///
    /// # Errors
    /// When nothing can be recorded; the next attempt looks at everything again.
    pub fn record(&mut self, programs: &BTreeSet<String>) -> Result<Taken, RecordError> {
        let began = Timestamp::now();
        let metadata = self.manager.session().metadata();
        let goes_on = metadata.as_ref().is_ok_and(|it| is_young(self.started, it.snapshot_count));
        if !goes_on {
            if metadata.is_ok() {
                self.end()?;
            }
            let recording = Recording::start(&self.request, Arc::clone(&self.progress))?;
            self.manager = recording.manager().clone();
            (self.started, self.seen) = (began, began);
            let baseline = recording.baseline().clone();
            return Ok(Taken::Snapshot(Box::new(baseline), Default::default()));
        }
        let (root, id) = (self.request.root.clone(), self.session_id());
        let (paths, seen): (Vec<PathBuf>, _) = (self.request.tracked_paths.clone(), self.seen);
        let title = programs.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let agent = MAKER.to_owned();
        let step = Step { kind: StepKind::Watched, agent, title, ..Step::default() };
        let settle = |step: &mut Step| {
            // In doubt nothing is called the user's.
            if recorded_by_others(&root, &paths, &id, seen).unwrap_or(true) {
                step.kind = StepKind::Elsewhere;
                step.title.clear();
            }
            step.overlapped = !matches!(at_work(&root, &paths), Ok(None));
        };
        let taken = self.manager.record_step(step, &settle)?;
        self.seen = began;
        Ok(taken)
    }

    /// Ends the session; the next watcher goes on with it.
    ///
    /// # Errors
    /// When the manifest of the session cannot be written.
    pub fn end(&self) -> Result<(), SnapshotError> {
        let metadata = self.manager.session().metadata()?;
        let metadata = SessionMetadata { ended: Some(Timestamp::now()), ..metadata };
        self.manager.save_session_metadata(&metadata).map(drop)
    }
}

fn is_young(started: Timestamp, snapshots: u64) -> bool {
    let now = Timestamp::now();
    // One from the future began before the clock was put back.
    started <= now && now < started + MAX_AGE && snapshots < MAX_SNAPSHOTS
}
