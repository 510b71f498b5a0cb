//! Making sessions, and recording what a command does from its start to its end.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use jiff::Timestamp;

use crate::diff::{Change, Comparison};
use crate::gc::pack_long_files;
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::{Shown, encode};

use crate::progress::Progress;
use crate::restore::{runs_on, wait_for_restores};
use crate::snapshot::{
    AgentSession, Budget, CaptureError, ManifestError, MergeRecord, PendingBaseline, SessionDir,
    SessionMetadata, SessionOrigin, Settled, SnapshotError, SnapshotManager, SnapshotManifest,
    TrackedPathError, resolve_roots, settle,
};
use crate::store::{Compression, LocalStore};
use crate::sys::{self, Dir, FileLock};
use crate::walk::ExclusionConfig;

/// Why a command could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The tracked paths, the store or the session cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The session could not be made.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The file system of the store has no symlinks.
    #[error("there can be no store in {}: its file system has no symlinks", Shown::path(root))]
    NoSymlinks {
        /// The root directory of the store.
        root: PathBuf,
        /// The kernel's answer.
        source: sys::Error,
    },
    /// The baseline could not be made durable, so there is no snapshot.
    #[error(
        "the state before is {}: {source}",
        if *is_lost { "lost" } else { "not safely on the disk" }
    )]
    BaselineNotDurable {
        /// Whether that is known for good. Else the next look at the session tries again.
        is_lost: bool,
        /// The first failure.
        source: SnapshotError,
    },
}

impl From<ManifestError> for RecordError {
    fn from(error: ManifestError) -> Self {
        Self::Snapshot(error.into())
    }
}

/// The subject of a recording, and its place.
#[derive(Debug, Clone)]
pub struct RecordRequest {
    /// The store's root directory.
    pub root: PathBuf,
    /// The command, or nothing for a session without one.
    pub command: Vec<OsString>,
    /// The paths to capture.
    pub tracked_paths: Vec<PathBuf>,
    /// The exclusions.
    pub exclusion: ExclusionConfig,
    /// How much one snapshot may hold.
    pub budget: Budget,
    /// How objects are compressed.
    pub compression: Compression,
    /// Worker threads; 0 is one for each core.
    pub threads: usize,
    /// The maker of the session.
    pub origin: SessionOrigin,
    /// The name: of the session for a run, else of its first snapshot.
    pub label: Option<String>,
}

/// A session that has ended.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its last snapshot.
    pub last: SnapshotManifest,
    /// The changes since the baseline.
    pub changes: Vec<Change>,
    /// Paths whose time alone moved since the baseline.
    pub touched: Vec<PathBuf>,
    /// Commits to the whole session. Noted elsewhere, it proves what was run and what came of it.
    pub session_root: ContentHash,
}

/// Work on a baseline beside the command: it becomes durable, then small.
#[derive(Debug)]
struct Background {
    thread: JoinHandle<Result<(), SnapshotError>>,
    stop: Arc<Stop>,
}

/// Ends the second part of the work; the first always runs to its end.
#[derive(Debug, Default)]
struct Stop(AtomicBool);

impl Progress for Stop {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

impl Background {
    fn start(
        root: PathBuf,
        compression: Compression,
        work: impl FnOnce() -> Result<(), SnapshotError> + Send + 'static,
    ) -> io::Result<Self> {
        let stop = Arc::new(Stop::default());
        let asked = Arc::clone(&stop);
        let thread = sys::spawn("publish", move || {
            sys::lower_priority();
            work()?;
            // The next one does it.
            if let Err(error) = pack_long_files(&root, compression, &*asked) {
                tracing::warn!("long files are not packed: {error}");
            }
            Ok(())
        })?;
        Ok(Self { thread, stop })
    }

    /// Waits until the baseline is durable.
    fn finish(self) -> Result<(), SnapshotError> {
        self.stop.0.store(true, Relaxed);
        // A panic there goes on here.
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// A session that is being recorded. Dropped without [`finish`](Self::finish), it is interrupted:
/// its baseline stays, and it can be restored.
#[derive(Debug)]
pub struct Recording {
    /// The session's manifest as it was made: the command may have changed the one on the disk.
    begun: SessionMetadata,
    manager: SnapshotManager,
    baseline: SnapshotManifest,
    flush: Option<Background>,
    _running: Option<FileLock>,
}

impl Recording {
    /// Makes a session and captures its baseline, which is durable when this returns. If that
    /// fails, there is no session.
    ///
    /// # Errors
    /// A path that cannot be tracked, a tree over budget, a store that cannot be written.
    pub fn start(
        request: &RecordRequest,
        progress: Arc<dyn Progress + Send>,
    ) -> Result<Self, RecordError> {
        Self::record(
            request,
            |_| {},
            progress,
            |manager| {
                let named = match (&request.label, request.origin) {
                    (Some(label), SessionOrigin::Snapshot | SessionOrigin::AgentState) => {
                        manager.checkpoint(label)?.0
                    }
                    _ => manager.create_baseline()?,
                };
                Ok((named, None))
            },
        )
    }

    /// As [`start`](Self::start), for an agent session: the manifest names it.
    ///
    /// # Errors
    /// As there.
    pub fn start_agent(
        request: &RecordRequest,
        agent: AgentSession,
        progress: Arc<dyn Progress + Send>,
    ) -> Result<Self, RecordError> {
        let facts = |metadata: &mut SessionMetadata| metadata.agent = Some(agent);
        Self::record(request, facts, progress, |manager| Ok((manager.create_baseline()?, None)))
    }

    /// As [`start`](Self::start), for the merge of a fork: the manifest says so from the first.
    ///
    /// # Errors
    /// As there.
    pub fn start_merge(
        request: &RecordRequest,
        merge: MergeRecord,
        progress: Arc<dyn Progress + Send>,
    ) -> Result<Self, RecordError> {
        let facts = |metadata: &mut SessionMetadata| metadata.merge = Some(merge);
        Self::record(request, facts, progress, |manager| Ok((manager.create_baseline()?, None)))
    }

    /// As [`start`](Self::start), but returns as soon as the baseline is in the store. It becomes a
    /// snapshot, and durable, in the background; until then it is announced, as
    /// [`SnapshotManager::begin_baseline`] says. Where no thread can be started for that, it is
    /// both when this returns.
    ///
    /// # Errors
    /// As [`start`](Self::start). [`finish`](Self::finish) reports later failures.
    pub fn begin(
        request: &RecordRequest,
        progress: Arc<dyn Progress + Send>,
    ) -> Result<Self, RecordError> {
        Self::record(
            request,
            |_| {},
            progress,
            |manager| {
                let pending = manager.begin_baseline()?;
                let baseline = pending.manifest().clone();
                let (hand_over, handed_over) = mpsc::sync_channel::<PendingBaseline>(1);
                let publish =
                    move || handed_over.into_iter().try_for_each(PendingBaseline::publish);
                let flush = Background::start(request.root.clone(), request.compression, publish)
                    .inspect_err(|error| tracing::debug!("the command waits for the disk: {error}"))
                    .ok();
                // Without a thread, it is not taken.
                match hand_over.send(pending) {
                    Ok(()) => Ok((baseline, flush)),
                    Err(mpsc::SendError(pending)) => pending.publish().map(|()| (baseline, None)),
                }
            },
        )
    }

    fn record(
        request: &RecordRequest,
        facts: impl FnOnce(&mut SessionMetadata),
        progress: Arc<dyn Progress + Send>,
        take: impl FnOnce(
            &SnapshotManager,
        ) -> Result<(SnapshotManifest, Option<Background>), SnapshotError>,
    ) -> Result<Self, RecordError> {
        let root = sys::plain_absolute(&request.root, &sys::current_dir()?);
        // Refuse before anything is made.
        let real_root = sys::real_or_future_path(&root);
        let roots = resolve_roots(&request.tracked_paths, &request.exclusion, &[real_root])
            .map_err(SnapshotError::from)?;
        let command = request.command.iter().map(|arg| encode(arg.as_bytes()).into_owned());
        let tracked: Vec<_> = roots.into_iter().map(|root| root.path).collect();
        let mut metadata = SessionMetadata::new(String::new(), command.collect(), tracked.clone());
        metadata.origin = request.origin;
        facts(&mut metadata);
        if request.origin == SessionOrigin::Run {
            metadata.label.clone_from(&request.label);
        }
        let (session, running) = create_session(&root, metadata.clone())?;
        metadata.session_id = session.id();
        if let Err(error) = note_beside(&root, &session, &mut metadata) {
            discard(&root, &session)?;
            return Err(SnapshotError::from(error).into());
        }
        let asked = Arc::clone(&progress);
        let started = SnapshotManager::new(
            session.path(),
            &request.tracked_paths,
            request.exclusion.clone(),
            request.budget,
        )
        .map(|manager| manager.with_progress(progress).with_threads(request.threads))
        .map(|manager| manager.with_compression(request.compression))
        .and_then(|manager| {
            // The tracked paths of the session and of the manager: from here on no symlink is
            // followed.
            let found: Vec<_> = manager.roots().iter().map(|root| root.path.clone()).collect();
            // One more is wrong too: a path inside another is no root as long as it lies there.
            let differs = |path: &&PathBuf| !tracked.contains(path) || !found.contains(path);
            if let Some(path) = tracked.iter().chain(&found).find(differs) {
                return Err(TrackedPathError::Replaced { path: path.clone() }.into());
            }
            // The session is listed as running by now, so no further restore begins.
            let is_run = request.origin == SessionOrigin::Run;
            if is_run && !wait_for_restores(&root, &tracked, &*asked)? {
                return Err(CaptureError::Cancelled.into());
            }
            let (baseline, flush) = take(&manager)?;
            Ok((baseline, flush, manager))
        });
        match started {
            Ok((baseline, flush, manager)) => {
                Ok(Self { begun: metadata, manager, baseline, flush, _running: running })
            }
            Err(error) => {
                // Nothing was recorded, so nothing is left to be listed.
                discard(&root, &session)?;
                Err(error.into())
            }
        }
    }

    /// Tells `progress` about the work that follows, and asks it whether to stop.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress + Send>) -> Self {
        self.manager = self.manager.with_progress(progress);
        self
    }

    /// The session's engine.
    pub fn manager(&self) -> &SnapshotManager {
        &self.manager
    }

    /// The first snapshot.
    pub fn baseline(&self) -> &SnapshotManifest {
        &self.baseline
    }

    /// The session's id.
    pub fn session_id(&self) -> String {
        self.manager.session().id()
    }

    /// Removes the session, as if nothing had been recorded. Objects that only it needs are left to
    /// the collector.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn withdraw(mut self) -> Result<(), RecordError> {
        if let Some(flush) = self.flush.take() {
            flush.finish()?;
        }
        let session = self.manager.session();
        let root = session.path().parent().map_or_else(PathBuf::new, Path::to_path_buf);
        discard(&root, session)
    }

    /// After the baseline could not be made durable: whether it is by now. The kernel says once
    /// that it lost something, and not what.
    fn look_again(&self, source: SnapshotError) -> Result<(), RecordError> {
        match settle(self.manager.session(), true) {
            // Only what follows the publication failed, if nothing is left to be done.
            Ok(Settled::Published | Settled::Nothing) => {
                tracing::warn!("{source}; but the state before is on the disk: it was read back");
                Ok(())
            }
            Ok(settled) => {
                Err(RecordError::BaselineNotDurable { is_lost: settled == Settled::Lost, source })
            }
            Err(error) => {
                tracing::warn!("{error}");
                Err(RecordError::BaselineNotDurable { is_lost: false, source })
            }
        }
    }

    /// Ends the session of a merge, whose last state is recorded already.
    ///
    /// # Errors
    /// When the session cannot be written.
    pub fn end_merge(self) -> Result<(), RecordError> {
        Ok(end_merge(&self.manager)?)
    }

    /// Captures the last state and ends the session.
    ///
    /// # Errors
    /// When the state cannot be captured; the session then stays interrupted.
    pub fn finish(mut self, exit_code: Option<i32>) -> Result<Recorded, RecordError> {
        if let Some(flush) = self.flush.take() {
            flush.finish().or_else(|error| self.look_again(error))?;
        }
        let (manifest, comparison) = match self.manager.create_incremental_compared() {
            Ok((manifest, comparison)) => (manifest, Some(comparison)),
            // It is recorded all the same, so the session has ended.
            Err(SnapshotError::ChangesUnknown { number, .. }) => {
                (self.manager.load_manifest(number)?, None)
            }
            Err(error) => return Err(error.into()),
        };
        let mut metadata = self.manager.session().metadata()?;
        let SessionMetadata {
            session_id,
            started,
            command,
            beside,
            label,
            tracked_paths,
            origin,
            ..
        } = self.begun;
        metadata = SessionMetadata {
            session_id,
            started,
            command,
            beside,
            label,
            tracked_paths,
            origin,
            ..metadata
        };
        metadata.ended = Some(Timestamp::now());
        metadata.exit_code = exit_code;
        let session_root = self.manager.save_session_metadata(&metadata)?.session_root();
        // All changes since the baseline, checkpoints in between included.
        let comparison = match comparison {
            Some(comparison) if manifest.parent == Some(self.baseline.number) => comparison,
            _ => self.manager.compare(&self.baseline, &manifest)?,
        };
        let Comparison { changes, touched } = comparison;
        Ok(Recorded { last: manifest, changes, touched, session_root })
    }
}

/// Ends the session of a merge, also for a process that was killed.
///
/// # Errors
/// When the session cannot be written.
pub fn end_merge(manager: &SnapshotManager) -> Result<(), SnapshotError> {
    let mut metadata = manager.session().metadata()?;
    metadata.ended = Some(Timestamp::now());
    metadata.exit_code = Some(0);
    manager.save_session_metadata(&metadata)?;
    Ok(())
}

/// Notes in a new session which runs are at work on its paths. It is listed by now: of two that
/// begin at once, one at least sees the other.
fn note_beside(
    root: &Path,
    session: &SessionDir,
    metadata: &mut SessionMetadata,
) -> Result<(), ManifestError> {
    let mut running = runs_on(root, &metadata.tracked_paths)?;
    running.retain(|other| other.id() != session.id());
    if running.is_empty() {
        return Ok(());
    }
    metadata.beside = running.iter().map(SessionDir::id).collect();
    session.save_metadata(metadata)
}

/// Makes an empty session below `root`, with a fresh id and a link to the shared objects. It
/// appears complete, with its manifest; one of a run is marked as running before others can see
/// it.
///
/// # Errors
/// When the store cannot be written.
pub fn create_session(
    root: &Path,
    mut metadata: SessionMetadata,
) -> Result<(SessionDir, Option<FileLock>), RecordError> {
    sys::create_private_dir(root)?;
    LocalStore::create(&root.join(layout::OBJECTS)).map_err(SnapshotError::from)?;
    let dir = Dir::open(root)?;
    let hidden = layout::new_name()?;
    let mut second = metadata.started;
    loop {
        metadata.session_id = new_session_id(second);
        let made = (|| {
            let new = SessionDir::create(&root.join(&hidden))?;
            let own = dir.open_dir(hidden.as_bytes())?;
            if own.try_stat(layout::OBJECTS.as_bytes())?.is_none() {
                let made = own.make_symlink(layout::OBJECTS.as_bytes(), layout::SHARED_OBJECTS);
                made.map_err(|error| match error.is_unsupported() {
                    true => RecordError::NoSymlinks { root: root.to_owned(), source: error },
                    false => error.into(),
                })?;
            }
            // Last, because it flushes the names that were made before.
            new.save_metadata(&metadata)?;
            // The lock is the file's and not the name's: it goes along with the rename.
            let running = match metadata.origin {
                SessionOrigin::Run => Some(new.lock_running()?),
                _ => None,
            };
            dir.rename_new(hidden.as_bytes(), &dir, metadata.session_id.as_bytes())?;
            dir.sync()?;
            Ok::<_, RecordError>(running)
        })();
        match made {
            Ok(running) => {
                return Ok((SessionDir::open(&root.join(&metadata.session_id))?, running));
            }
            // This process made another session within the same second.
            Err(RecordError::Io(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                second += jiff::SignedDuration::from_secs(1);
            }
            Err(error) => {
                let _ = dir.remove_dir_all(hidden.as_bytes());
                return Err(error);
            }
        }
    }
}

/// Makes a directory for a session below `root`, with a fresh id and nothing in it, and the store
/// around it. It is a session as soon as a [`SnapshotManager`] has taken a baseline in it.
///
/// # Errors
/// When the store cannot be written.
pub fn new_session_dir(root: &Path) -> Result<PathBuf, RecordError> {
    let root = sys::plain_absolute(root, &sys::current_dir()?);
    LocalStore::create(&root.join(layout::OBJECTS)).map_err(SnapshotError::from)?;
    let dir = Dir::open(&root)?;
    let mut second = Timestamp::now();
    loop {
        let id = new_session_id(second);
        match dir.make_dir(id.as_bytes(), 0o700) {
            Ok(()) => return Ok(root.join(id)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                second += jiff::SignedDuration::from_secs(1);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// `YYYYMMDD-HHMMSS-PID` in UTC: ids sort by time, also after a change of the clock's zone.
pub(crate) fn new_session_id(time: Timestamp) -> String {
    format!("{}-{}", time.strftime("%Y%m%d-%H%M%S"), std::process::id())
}

/// Removes a session that holds no snapshot. It vanishes at once, and its pieces after that.
fn discard(root: &Path, session: &SessionDir) -> Result<(), RecordError> {
    let dir = Dir::open(root)?;
    let hidden = format!("{}{}", layout::REMOVED_PREFIX, session.id());
    dir.rename_new(session.id().as_bytes(), &dir, hidden.as_bytes())?;
    dir.remove_dir_all(hidden.as_bytes())?;
    Ok(())
}
