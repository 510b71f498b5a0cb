//! The engine's front door: one session, its snapshots, and (in `restore`) the way back.

mod elsewhere;
mod error;
mod listing;
mod live;
mod request;
mod resume;
mod take;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::elsewhere::{Built, capture_whole, whole_roots};
pub use self::error::SnapshotError;
pub use self::live::LiveState;
pub use self::request::{SnapshotRequest, Taken};
use self::resume::{latest_roots, resume_roots};
pub(crate) use self::take::captured;
use super::budget::Budget;
use super::capture::{CaptureError, InodeId};
use super::manifests::{LoadedManifest, ManifestError};
use super::metadata::SessionMetadata;
use super::roots::resolve_roots;
use super::session_dir::SessionDir;
use super::session_objects::{link_to_store, own_places, store_paths};
use crate::diff::{self, Change, ChangeSummary, Comparison};
use crate::layout;
use crate::manifest::{NotCapturedSet, SnapshotManifest, Step, TrackedRoot};
use crate::progress::{NoProgress, Progress, wait_for};
use crate::snapshot::capture::{CacheLocation, Capture};
use crate::store::{Compression, LocalStore, ObjectStore, StoreLock};
use crate::sys::{self, Dir, FileLock};
use crate::walk::ExclusionConfig;

/// Records states of tracked paths in one session and brings them back.
///
/// Several managers, in any number of processes, may use one session: each operation holds the
/// session's lock. All methods leave the session as it was when they fail. A clone costs nothing
/// and uses the same session; it can have a progress and limits of its own.
#[derive(Clone)]
pub struct SnapshotManager {
    session: SessionDir,
    store: Arc<LocalStore>,
    index: Option<Arc<Dir>>,
    roots: Arc<[TrackedRoot]>,
    budget: Budget,
    progress: Arc<dyn Progress + Send>,
    threads: usize,
    source: Option<Arc<dyn StateSource>>,
}

/// A state that is not the one at the tracked paths: that of a fork.
pub(crate) trait StateSource: Send + Sync {
    /// Captures it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn capture(&self, means: CaptureMeans<'_>) -> Result<Capture, SnapshotError>;
}

/// The means with which a [`StateSource`] captures.
pub(crate) struct CaptureMeans<'a> {
    /// The first snapshot of the session.
    pub(crate) baseline: &'a SnapshotManifest,
    pub(crate) store: &'a dyn ObjectStore,
    pub(crate) cache: Option<CacheLocation<'a>>,
    pub(crate) progress: &'a dyn Progress,
    pub(crate) threads: usize,
}

/// The use of the stat cache in a capture before a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CacheUse {
    /// Every file is read.
    Nothing,
    /// For a plan, which writes nothing.
    Read,
    /// For a safety snapshot.
    ReadAndWrite,
}

impl std::fmt::Debug for SnapshotManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapshotManager")
            .field("session", &self.session.path())
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}

impl SnapshotManager {
    /// Makes a session in `session_dir`, or resumes the one that is there. In the root directory of
    /// a store a new session gets a link to the objects that its sessions share, so that it is one
    /// of them; elsewhere it gets objects of its own.
    ///
    /// # Errors
    /// When a path cannot be tracked, a pattern is invalid, or the directory cannot be written.
    pub fn new(
        session_dir: &Path,
        tracked_paths: &[PathBuf],
        exclusion: ExclusionConfig,
        budget: Budget,
    ) -> Result<Self, SnapshotError> {
        // The paths are checked before anything is made, so that a refusal leaves nothing behind.
        let place = sys::plain_absolute(session_dir, &sys::current_dir()?);
        let known = match SessionDir::open(&place) {
            Ok(session) => latest_roots(&session)?,
            Err(_) => None,
        };
        let store_paths = store_paths(&place);
        let roots = match known {
            Some(known) => resume_roots(&known, tracked_paths, &exclusion, &store_paths)?,
            None => resolve_roots(tracked_paths, &exclusion, &store_paths)?,
        };
        let session = SessionDir::create(&place)?;
        link_to_store(session.path())?;
        Self::assemble(session, roots, budget)
    }

    /// Resumes a session with the tracked paths and filters of its last snapshot.
    ///
    /// # Errors
    /// When there is no such session, or it has no snapshot.
    pub fn open(session_dir: &Path) -> Result<Self, SnapshotError> {
        let session = SessionDir::open(session_dir)?;
        let roots = latest_roots(&session)?
            .ok_or_else(|| SnapshotError::NoBaseline { session: session_dir.to_owned() })?;
        let store = LocalStore::open(&session.objects_path())?;
        Ok(Self::for_session(session, store, roots))
    }

    /// For a session that is there, and tracks this.
    pub(super) fn for_session(
        session: SessionDir,
        store: LocalStore,
        roots: Vec<TrackedRoot>,
    ) -> Self {
        Self::with_store(session, store, roots, Budget::default())
    }

    /// Directories that no snapshot of this session may hold.
    fn own_places(&self) -> Vec<InodeId> {
        own_places(self.session.path())
    }

    pub(super) fn assemble(
        session: SessionDir,
        roots: Vec<TrackedRoot>,
        budget: Budget,
    ) -> Result<Self, SnapshotError> {
        let store = LocalStore::create(&session.objects_path())?;
        Ok(Self::with_store(session, store, roots, budget))
    }

    fn with_store(
        session: SessionDir,
        store: LocalStore,
        roots: Vec<TrackedRoot>,
        budget: Budget,
    ) -> Self {
        // Caches lie beside the objects they vouch for. Without them everything works, slower: on a
        // store that can only be read, for one.
        let index = sys::real_path(store.path()).and_then(|objects| {
            let index = objects.with_file_name(layout::INDEX);
            sys::create_private_dir(&index)?;
            Dir::open(&index)
        });
        let index = index.inspect_err(|error| tracing::info!("no stat cache: {error}")).ok();
        Self {
            session,
            store: Arc::new(store),
            index: index.map(Arc::new),
            roots: roots.into(),
            budget,
            progress: Arc::new(NoProgress),
            threads: 0,
            source: None,
        }
    }

    /// Whether states come from another source than the tracked paths.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Records the states of a source in place of those at the tracked paths.
    #[must_use]
    pub(crate) fn with_source(mut self, source: Arc<dyn StateSource>) -> Self {
        self.source = Some(source);
        self
    }

    /// Sets the limits of the snapshots that follow.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Sets how the objects that follow are compressed.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        self.store.set_compression(compression);
        self
    }

    /// Tells `progress` about the work that follows, and asks it whether to stop.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress + Send>) -> Self {
        self.progress = progress;
        self
    }

    /// Uses so many threads; 0 is one for each core.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The session's directory.
    pub fn session(&self) -> &SessionDir {
        &self.session
    }

    /// The session's objects.
    pub fn store(&self) -> &LocalStore {
        &self.store
    }

    pub(crate) fn progress(&self) -> &dyn Progress {
        &*self.progress
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The tracked paths, with filters.
    pub fn roots(&self) -> &[TrackedRoot] {
        &self.roots
    }

    /// Captures the first state. When it returns, the snapshot is durable.
    ///
    /// # Errors
    /// [`SnapshotError::BaselineExists`], [`CaptureError::OverBudget`], or a store that cannot be
    /// written. Nothing is recorded then.
    pub fn create_baseline(&self) -> Result<SnapshotManifest, SnapshotError> {
        let _lock = self.lock_session()?;
        self.refuse_second_baseline()?;
        Ok(self.take(None, SnapshotRequest::default())?.0)
    }

    fn refuse_second_baseline(&self) -> Result<(), SnapshotError> {
        if self.session.manifest_numbers()?.is_empty() {
            return Ok(());
        }
        Err(SnapshotError::BaselineExists { session: self.session.path().to_owned() })
    }

    /// Captures the current state and says what changed since the snapshot before.
    ///
    /// # Errors
    /// [`SnapshotError::NoBaseline`], or a store that cannot be written.
    pub fn create_incremental(&self) -> Result<(SnapshotManifest, Vec<Change>), SnapshotError> {
        let (manifest, comparison) = self.create_incremental_compared()?;
        Ok((manifest, comparison.changes))
    }

    /// As [`create_incremental`](Self::create_incremental), and says what was merely touched, too.
    ///
    /// # Errors
    /// As there.
    pub fn create_incremental_compared(
        &self,
    ) -> Result<(SnapshotManifest, Comparison), SnapshotError> {
        let _lock = self.lock_session()?;
        let parent = self.latest()?;
        self.take(Some(&parent), SnapshotRequest::default())
    }

    /// Captures the current state under a name that says what it is: the baseline of a session that
    /// has none yet, else a further snapshot, with what changed since the one before.
    ///
    /// # Errors
    /// [`CaptureError::OverBudget`] of a baseline, or a store that cannot be written.
    pub fn checkpoint(
        &self,
        label: &str,
    ) -> Result<(SnapshotManifest, Vec<Change>), SnapshotError> {
        let (manifest, comparison) = self.checkpoint_compared(label)?;
        Ok((manifest, comparison.changes))
    }

    /// As [`checkpoint`](Self::checkpoint), and says what was merely touched, too.
    ///
    /// # Errors
    /// As there.
    pub fn checkpoint_compared(
        &self,
        label: &str,
    ) -> Result<(SnapshotManifest, Comparison), SnapshotError> {
        let request =
            SnapshotRequest { label: Some(label.to_owned()), ..SnapshotRequest::default() };
        match self.record_state(request)? {
            Taken::Snapshot(manifest, comparison) => Ok((*manifest, comparison)),
            // Only for who asks for it.
            Taken::Unchanged(manifest) => Ok((*manifest, Comparison::default())),
        }
    }

    /// Takes a step, unless nothing changed. `settle` may change it when the state is captured:
    /// only then it is known whether another call had begun.
    ///
    /// # Errors
    /// As [`record_state`](Self::record_state).
    pub fn record_step(
        &self,
        step: Step,
        settle: &dyn Fn(&mut Step),
    ) -> Result<Taken, SnapshotError> {
        let _lock = self.lock_session()?;
        let request =
            SnapshotRequest { step: Some(step), if_changed: true, ..SnapshotRequest::default() };
        self.take_if_changed(self.latest()?, request, settle)
    }

    /// Takes a snapshot of the state that an undo of steps left, under the session's lock. Without
    /// it, the session would take that state for a later change by hand.
    pub(crate) fn record_undone(&self, step: Step) -> Result<(), SnapshotError> {
        let request = SnapshotRequest { step: Some(step), ..SnapshotRequest::default() };
        self.take(Some(&self.latest()?), request).map(drop)
    }

    /// Captures the current state as a request says: the baseline of a session that has none yet,
    /// else a further snapshot, or none where nothing changed.
    ///
    /// # Errors
    /// [`CaptureError::OverBudget`] of a baseline, or a store that cannot be written.
    pub fn record_state(&self, request: SnapshotRequest) -> Result<Taken, SnapshotError> {
        let _lock = self.lock_session()?;
        let parent = match self.latest() {
            Ok(parent) => Some(parent),
            Err(SnapshotError::NoBaseline { .. }) => None,
            Err(error) => return Err(error),
        };
        match parent {
            Some(parent) if request.if_changed => self.take_if_changed(parent, request, &|_| {}),
            parent => {
                let (manifest, comparison) = self.take(parent.as_ref(), request)?;
                Ok(Taken::Snapshot(Box::new(manifest), comparison))
            }
        }
    }

    /// Waits until no other process writes here, unless it is cancelled. A session whose restore
    /// was interrupted is not written: its disk is in neither state.
    pub fn lock_session(&self) -> Result<FileLock, SnapshotError> {
        let lock = self.lock_interrupted_session()?;
        self.refuse_interrupted_restore()?;
        Ok(lock)
    }

    /// As [`lock_session`](Self::lock_session), for whoever ends an interrupted restore.
    pub(crate) fn lock_interrupted_session(&self) -> Result<FileLock, SnapshotError> {
        self.session.refuse_to_write_as_root()?;
        self.wait_for(|| Ok(self.session.try_lock()?))
    }

    /// Waits until no collector is at work, unless it is cancelled.
    pub fn lock_store(&self) -> Result<StoreLock, SnapshotError> {
        self.wait_for(|| Ok(self.store.try_lock_shared()?))
    }

    /// As [`lock_store`](Self::lock_store), for whoever only reads: a store that cannot be written
    /// is read without the lock.
    pub(crate) fn lock_store_for_reading(&self) -> Result<Option<StoreLock>, SnapshotError> {
        let lock = self.wait_for(|| Ok(self.store.try_lock_for_reading()?))?;
        Ok(lock.lock())
    }

    fn wait_for<T>(
        &self,
        attempt: impl Fn() -> Result<Option<T>, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        let got = wait_for(&*self.progress, attempt)?;
        got.ok_or_else(|| CaptureError::Cancelled.into())
    }

    /// Number of snapshots that the session holds.
    ///
    /// # Errors
    /// When the session cannot be read.
    pub fn snapshot_count(&self) -> Result<u64, SnapshotError> {
        Ok(self.session.snapshot_numbers()?.len() as u64)
    }

    /// The manifest of one snapshot.
    ///
    /// # Errors
    /// [`SnapshotError::NoSuchSnapshot`], [`ManifestError::Removed`], or a manifest that cannot be
    /// used.
    pub fn load_manifest(&self, number: u64) -> Result<SnapshotManifest, SnapshotError> {
        self.session.refuse_removed(number)?;
        match self.session.manifest(number) {
            Ok(loaded) => Ok(loaded.manifest),
            Err(ManifestError::Missing { .. }) => Err(SnapshotError::NoSuchSnapshot {
                session: self.session.path().to_owned(),
                number,
                last: self.session.snapshot_numbers()?.last().copied(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the session's manifest, and returns its present contents. Its list of snapshots stays
    /// as it is on the disk, whatever `metadata` says.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there.
    pub fn save_session_metadata(
        &self,
        metadata: &SessionMetadata,
    ) -> Result<SessionMetadata, SnapshotError> {
        let _lock = self.lock_session()?;
        let mut metadata = metadata.clone();
        match self.session.metadata() {
            Ok(current) => {
                metadata.changes = current.changes;
                metadata.bytes_written = current.bytes_written;
                metadata.merkle_roots = current.merkle_roots;
                metadata.manifest_hashes = current.manifest_hashes;
                metadata.labels = current.labels;
                metadata.safety_snapshots = current.safety_snapshots;
                metadata.steps = current.steps;
                metadata.restores = current.restores;
                metadata.removed = current.removed;
                metadata.altered = current.altered;
                metadata.pinned = current.pinned;
                metadata.received = current.received;
                metadata.received_snapshots = current.received_snapshots;
                metadata.track(current.tracked_paths);
            }
            Err(ManifestError::Missing { .. }) => {
                metadata.merkle_roots.clear();
                metadata.manifest_hashes.clear();
                metadata.labels.clear();
                metadata.safety_snapshots.clear();
                metadata.steps.clear();
                metadata.restores.clear();
                metadata.removed.clear();
                metadata.bytes_written = 0;
                metadata.changes = Some(ChangeSummary::default());
                metadata.altered = None;
            }
            Err(error) => return Err(error.into()),
        }
        self.list_snapshots(&mut metadata, None)?;
        self.session.save_metadata(&metadata)?;
        Ok(metadata)
    }

    /// Reads the manifest of a session.
    ///
    /// # Errors
    /// When there is none or it cannot be used.
    pub fn load_session_metadata(session_dir: &Path) -> Result<SessionMetadata, SnapshotError> {
        Ok(SessionDir::open(session_dir)?.metadata()?)
    }

    /// The last snapshot, which the next one names as its parent: it has to be the one that the
    /// session lists, and none may be missing before it.
    pub fn latest(&self) -> Result<LoadedManifest, SnapshotError> {
        let numbers = self.session.manifest_numbers()?;
        let listed = match self.session.metadata() {
            Ok(metadata) => metadata.manifest_hashes,
            Err(ManifestError::Missing { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        let count = listed.len().max(numbers.len()) as u64;
        if count == 0 {
            return Err(SnapshotError::NoBaseline { session: self.session.path().to_owned() });
        }
        if let Some(missing) = (0..count).find(|number| numbers.binary_search(number).is_err()) {
            let path = self.session.manifest_path(missing);
            return Err(ManifestError::Missing { path }.into());
        }
        Ok(self.session.listed_manifest(count - 1, &listed)?)
    }

    /// Under the session's lock, so that no process is still at work on the journal.
    pub(crate) fn refuse_interrupted_restore(&self) -> Result<(), SnapshotError> {
        if self.session.has_restore_journal()? {
            return Err(SnapshotError::RestoreInterrupted {
                session: self.session.path().to_owned(),
            });
        }
        Ok(())
    }

    /// The changes between two snapshots, without paths that one of them did not capture.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub fn changes_between(
        &self,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Result<Vec<Change>, SnapshotError> {
        Ok(self.compare(old, new)?.changes)
    }

    /// As [`changes_between`](Self::changes_between), and says what was merely touched, too.
    ///
    /// # Errors
    /// As there.
    pub fn compare(
        &self,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Result<Comparison, SnapshotError> {
        let differences = diff::compare(&*self.store, &old.merkle_root, &new.merkle_root)?;
        Ok(Comparison::of(&differences, &NotCapturedSet::new(old), &NotCapturedSet::new(new)))
    }
}
