//! The engine's front door: one session, its snapshots, and (in `restore`) the way back.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::budget::Budget;
use super::capture::{CacheLocation, Capture, CaptureError, CaptureRequest, capture};
use super::manifest::{MANIFEST_VERSION, NotCapturedSet, SnapshotKind, SnapshotManifest};
use super::metadata::SessionMetadata;
use super::roots::{TrackedPathError, TrackedRoot, resolve_roots};
use super::session_dir::{LoadedManifest, ManifestError, OBJECTS_NAME, SessionDir};
use crate::diff::{self, Change, ChangeSummary};
use crate::path_text::Shown;
use crate::progress::{NoProgress, Progress};
use crate::store::{LocalStore, ObjectStore, StoreError};
use crate::sys::{self, Dir};
use crate::walk::ExclusionConfig;

/// Why a snapshot operation failed. Nothing of it is half-done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A path cannot be tracked.
    #[error(transparent)]
    TrackedPath(#[from] TrackedPathError),
    /// The state could not be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An incremental snapshot was asked for before there was a baseline.
    #[error("session {} has no baseline: call create_baseline() first", Shown::path(session))]
    NoBaseline {
        /// The session's directory.
        session: PathBuf,
    },
    /// A baseline was asked for twice.
    #[error("session {} already has a baseline: call create_incremental()", Shown::path(session))]
    BaselineExists {
        /// The session's directory.
        session: PathBuf,
    },
    /// The snapshot was taken and recorded, but what changed cannot be told, because the one before it
    /// is damaged.
    #[error(
        "snapshot {number} was recorded, but what changed since the one before cannot be said: {source}"
    )]
    ChangesUnknown {
        /// Number of the new snapshot.
        number: u64,
        /// What is wrong with the one before.
        source: StoreError,
    },
    /// There is no snapshot of this number.
    #[error("session {} has no snapshot {number}{}", Shown::path(session), last.map_or(String::new(), |last| format!(" (its last is {last})")))]
    NoSuchSnapshot {
        /// The session's directory.
        session: PathBuf,
        /// The number asked for.
        number: u64,
        /// The last that there is.
        last: Option<u64>,
    },
    /// A restore of the session was interrupted: what is on the disk is neither one state nor the
    /// other.
    #[error(
        "a restore of session {} was interrupted, and has to be finished or taken back first",
        Shown::path(session)
    )]
    RestoreInterrupted {
        /// The session's directory.
        session: PathBuf,
    },
    /// A file system call failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

/// Records states of tracked paths in one session and brings them back.
///
/// Several managers, in any number of processes, may use one session: each operation holds the
/// session's lock. All methods leave the session as it was when they fail.
pub struct SnapshotManager {
    session: SessionDir,
    store: LocalStore,
    index: Option<Dir>,
    roots: Vec<TrackedRoot>,
    budget: Budget,
    progress: Arc<dyn Progress + Send>,
    threads: usize,
}

/// What a capture before a restore does with the stat cache.
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
    /// Makes a session in `session_dir`, or resumes the one that is there. The directory gets its
    /// own `objects` unless it has one (or a link to a shared one) already.
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
        Self::assemble(SessionDir::create(&place)?, roots, budget)
    }

    /// Resumes a session with the tracked paths and filters of its last snapshot.
    ///
    /// # Errors
    /// When there is no such session, or it has no snapshot.
    pub fn open(session_dir: &Path) -> Result<Self, SnapshotError> {
        let session = SessionDir::open(session_dir)?;
        let roots = latest_roots(&session)?
            .ok_or_else(|| SnapshotError::NoBaseline { session: session_dir.to_owned() })?;
        let store = LocalStore::open(&session.path().join(OBJECTS_NAME))?;
        Ok(Self::with_store(session, store, roots, Budget::default()))
    }

    fn assemble(
        session: SessionDir,
        roots: Vec<TrackedRoot>,
        budget: Budget,
    ) -> Result<Self, SnapshotError> {
        let store = LocalStore::create(&session.path().join(OBJECTS_NAME))?;
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
            let index = objects.with_file_name("index");
            sys::create_private_dir(&index)?;
            Dir::open(&index)
        });
        let index = index.inspect_err(|error| tracing::info!("no stat cache: {error}")).ok();
        let progress = Arc::new(NoProgress);
        Self { session, store, index, roots, budget, progress, threads: 0 }
    }

    /// Sets the limits of the snapshots that follow.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
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

    /// What is tracked, with filters.
    pub fn roots(&self) -> &[TrackedRoot] {
        &self.roots
    }

    /// Captures the first state. When it returns, the snapshot is durable.
    ///
    /// # Errors
    /// [`SnapshotError::BaselineExists`], [`CaptureError::OverBudget`], or a store that cannot be
    /// written. Nothing is recorded then.
    pub fn create_baseline(&self) -> Result<SnapshotManifest, SnapshotError> {
        let _lock = self.session.lock()?;
        self.refuse_interrupted_restore()?;
        if !self.session.snapshot_numbers()?.is_empty() {
            return Err(SnapshotError::BaselineExists { session: self.session.path().to_owned() });
        }
        Ok(self.take(None)?.0)
    }

    /// Captures the current state and says what changed since the snapshot before.
    ///
    /// # Errors
    /// [`SnapshotError::NoBaseline`], or a store that cannot be written.
    pub fn create_incremental(&self) -> Result<(SnapshotManifest, Vec<Change>), SnapshotError> {
        let _lock = self.session.lock()?;
        self.refuse_interrupted_restore()?;
        let parent = self.latest()?;
        self.take(Some(&parent))
    }

    /// Number of snapshots on the disk.
    ///
    /// # Errors
    /// When the session cannot be read.
    pub fn snapshot_count(&self) -> Result<u64, SnapshotError> {
        Ok(self.session.snapshot_numbers()?.len() as u64)
    }

    /// The manifest of one snapshot.
    ///
    /// # Errors
    /// [`SnapshotError::NoSuchSnapshot`], or a manifest that cannot be used.
    pub fn load_manifest(&self, number: u64) -> Result<SnapshotManifest, SnapshotError> {
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

    /// Writes the session's manifest. What it says of the snapshots is kept as it is on the disk,
    /// whatever `metadata` says.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there.
    pub fn save_session_metadata(&self, metadata: &SessionMetadata) -> Result<(), SnapshotError> {
        let _lock = self.session.lock()?;
        let mut metadata = metadata.clone();
        match self.session.metadata() {
            Ok(current) => {
                metadata.changes = current.changes;
                metadata.bytes_written = current.bytes_written;
                metadata.merkle_roots = current.merkle_roots;
                metadata.manifest_hashes = current.manifest_hashes;
            }
            Err(ManifestError::Missing { .. }) => {
                metadata.merkle_roots.clear();
                metadata.manifest_hashes.clear();
            }
            Err(error) => return Err(error.into()),
        }
        self.list_snapshots(&mut metadata)?;
        Ok(self.session.save_metadata(&metadata)?)
    }

    /// Adds the snapshots that the session does not list yet. Those that it lists are not looked at
    /// again: a manifest that was edited since must not be vouched for.
    fn list_snapshots(&self, metadata: &mut SessionMetadata) -> Result<(), SnapshotError> {
        let listed = metadata.manifest_hashes.len() as u64;
        for number in self.session.snapshot_numbers()?.into_iter().filter(|n| *n >= listed) {
            let loaded = self.session.manifest(number)?;
            metadata.merkle_roots.push(loaded.manifest.merkle_root);
            metadata.manifest_hashes.push(loaded.hash);
        }
        metadata.snapshot_count = metadata.manifest_hashes.len() as u64;
        Ok(())
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
    pub(crate) fn latest(&self) -> Result<LoadedManifest, SnapshotError> {
        let numbers = self.session.snapshot_numbers()?;
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

    /// Under the session's lock, so that the journal is nobody's who is still at work.
    pub(crate) fn refuse_interrupted_restore(&self) -> Result<(), SnapshotError> {
        if self.session.has_restore_journal()? {
            return Err(SnapshotError::RestoreInterrupted {
                session: self.session.path().to_owned(),
            });
        }
        Ok(())
    }

    /// Takes a snapshot under the session's lock.
    fn take(
        &self,
        parent: Option<&LoadedManifest>,
    ) -> Result<(SnapshotManifest, Vec<Change>), SnapshotError> {
        let known = parent.map(|parent| parent.manifest.merkle_root).into_iter().collect();
        // Held until the manifest is published: the collector sees all of the snapshot or nothing.
        let _store_lock = self.store.lock_shared()?;
        let cache = self.cache_location(true)?;
        let capture = capture(&CaptureRequest {
            store: &self.store,
            roots: &self.roots,
            budget: self.budget,
            is_baseline: parent.is_none(),
            known,
            cache,
            progress: &*self.progress,
            threads: self.threads,
        })?;
        let published = self.publish(capture, parent, SnapshotKind::Ordinary, &self.roots)?;
        self.record(&published)?;
        let changes = match parent {
            None => Vec::new(),
            Some(parent) => self
                .changes_between(&parent.manifest, &published.manifest)
                .map_err(|error| unknown_changes(published.manifest.number, error))?,
        };
        Ok((published.manifest, changes))
    }

    /// Captures the current state before a restore to `target`, whatever its size.
    pub(crate) fn capture_current(
        &self,
        store: &dyn ObjectStore,
        target: &SnapshotManifest,
        latest: &SnapshotManifest,
        cache: CacheUse,
    ) -> Result<Capture, SnapshotError> {
        Ok(capture(&CaptureRequest {
            store,
            roots: &target.roots,
            budget: Budget::UNLIMITED,
            is_baseline: false,
            known: vec![target.merkle_root, latest.merkle_root],
            cache: match cache {
                CacheUse::Nothing => None,
                CacheUse::Read => self.cache_location(false)?,
                CacheUse::ReadAndWrite => self.cache_location(true)?,
            },
            progress: &*self.progress,
            threads: self.threads,
        })?)
    }

    /// Makes the state before a restore a snapshot.
    pub(crate) fn publish_safety(
        &self,
        capture: Capture,
        latest: &LoadedManifest,
        roots: &[TrackedRoot],
    ) -> Result<SnapshotManifest, SnapshotError> {
        let kind = SnapshotKind::Safety;
        let published = self.publish(capture, Some(latest), kind, roots)?;
        self.record(&published)?;
        Ok(published.manifest)
    }

    fn cache_location(&self, is_written: bool) -> Result<Option<CacheLocation<'_>>, SnapshotError> {
        let Some(index) = &self.index else { return Ok(None) };
        let generation = if is_written {
            // Without a generation there is no cache, and all is read: slower, and right.
            let generation = self.store.ensure_generation();
            generation.inspect_err(|error| tracing::warn!("no stat cache: {error}")).ok()
        } else {
            self.store.generation()?
        };
        Ok(generation.map(|generation| CacheLocation { index, generation, is_written }))
    }

    /// Makes everything captured durable, then lets the manifest appear.
    fn publish(
        &self,
        capture: Capture,
        parent: Option<&LoadedManifest>,
        kind: SnapshotKind,
        roots: &[TrackedRoot],
    ) -> Result<LoadedManifest, SnapshotError> {
        self.store.sync()?;
        let manifest = SnapshotManifest {
            format_version: MANIFEST_VERSION,
            number: parent.map_or(0, |parent| parent.manifest.number + 1),
            timestamp: capture.timestamp,
            parent: parent.map(|parent| parent.manifest.number),
            parent_hash: parent.map(|parent| parent.hash),
            merkle_root: capture.merkle_root,
            kind,
            roots: roots.to_vec(),
            totals: capture.totals,
            not_captured: capture.not_captured,
            unstable: capture.unstable,
        };
        let hash = self.session.publish(&manifest)?;
        for cache in capture.caches {
            if let Err(error) = cache.commit() {
                tracing::warn!("stat cache not saved: {error}");
            }
        }
        Ok(LoadedManifest { manifest, hash })
    }

    /// What changed between two snapshots, paths that one of them did not capture left out.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub fn changes_between(
        &self,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Result<Vec<Change>, SnapshotError> {
        let differences = diff::compare(&self.store, &old.merkle_root, &new.merkle_root)?;
        Ok(diff::changes(&differences, &NotCapturedSet::new(old), &NotCapturedSet::new(new)))
    }

    /// Names a published snapshot in the session's manifest.
    fn record(&self, loaded: &LoadedManifest) -> Result<(), SnapshotError> {
        let mut metadata = match self.session.metadata() {
            Ok(metadata) => metadata,
            Err(ManifestError::Missing { .. }) => SessionMetadata::new(
                self.session.id(),
                Vec::new(),
                self.roots.iter().map(|root| root.path.clone()).collect(),
            ),
            Err(error) => return Err(error.into()),
        };
        let number = loaded.manifest.number;
        self.list_snapshots(&mut metadata)?;
        metadata.bytes_written += loaded.manifest.totals.bytes_written;
        if number > 0 && loaded.manifest.kind == SnapshotKind::Ordinary {
            let baseline = self.load_manifest(0);
            match baseline.and_then(|old| self.changes_between(&old, &loaded.manifest)) {
                Ok(changes) => metadata.changes = ChangeSummary::of(&changes),
                // The snapshot counts more than the number of its changes.
                Err(error) => tracing::warn!("changes since the baseline not counted: {error}"),
            }
        }
        Ok(self.session.save_metadata(&metadata)?)
    }
}

fn unknown_changes(number: u64, error: SnapshotError) -> SnapshotError {
    match error {
        SnapshotError::Store(source) => SnapshotError::ChangesUnknown { number, source },
        other => other,
    }
}

/// What the last snapshot tracked that somebody asked for. (One from before a restore has the roots
/// and filters of what was restored.)
fn latest_roots(session: &SessionDir) -> Result<Option<Vec<TrackedRoot>>, ManifestError> {
    for number in session.snapshot_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            return Ok(Some(manifest.roots));
        }
    }
    Ok(None)
}

/// The places that must not be tracked: the session and the store its objects are in.
fn store_paths(session_dir: &Path) -> Vec<PathBuf> {
    let real = sys::real_or_future_path(session_dir);
    let objects = sys::real_path(&real.join(OBJECTS_NAME)).ok();
    let store = objects.and_then(|objects| Some(objects.parent()?.to_owned()));
    [Some(real), store].into_iter().flatten().collect()
}

/// Paths of a session that is resumed: one that is tracked already may be gone or replaced by now.
fn resume_roots(
    known: &[TrackedRoot],
    tracked_paths: &[PathBuf],
    exclusion: &ExclusionConfig,
    store_paths: &[PathBuf],
) -> Result<Vec<TrackedRoot>, SnapshotError> {
    let current_dir = sys::current_dir()?;
    let mut roots = Vec::new();
    let mut others = Vec::new();
    for path in tracked_paths {
        let plain =
            sys::canonical_parent(path).unwrap_or_else(|_| sys::plain_absolute(path, &current_dir));
        match known.iter().find(|root| root.path == plain) {
            Some(root) => {
                roots.push(TrackedRoot { path: root.path.clone(), exclusion: exclusion.clone() });
            }
            None => others.push(path.clone()),
        }
    }
    if roots.is_empty() || !others.is_empty() {
        return Ok(resolve_roots(tracked_paths, exclusion, store_paths)?);
    }
    roots.sort_by(|a, b| a.path.as_os_str().as_bytes().cmp(b.path.as_os_str().as_bytes()));
    roots.dedup();
    Ok(roots)
}
