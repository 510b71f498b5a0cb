//! `SnapshotManager`: one session, its snapshots, and the way back.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nono_engine::browse::Scope;
use nono_engine::repair::{RepairOptions, repair_session};
use nono_engine::restore::{CopyOptions, OnConflict, Recovery, RestoreOptions};
use nono_engine::snapshot::{self, Budget, ManifestError};
use nono_engine::verify::{VerifyOptions, verify_session};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::args::{Count, PathArg, Threads};
use crate::call::{call_telling, quick};
use crate::error::Failure;
use crate::exclusion::{self, ExclusionConfig};
use crate::manifest::SnapshotManifest;
use crate::metadata::SessionMetadata;
use crate::mount::{Mount, store_root};
use crate::progress::Counter;
use crate::recovery::RecoveryReport;
use crate::repairing::RepairReport;
use crate::report::VerifyReport;
use crate::restoring::{Asked, RestoreReport, job};
use crate::values::{Change, ContentHash, changes, texts};

/// Records states of directories and files in a session, and brings them back.
///
/// ``session_dir`` is made when it is missing; a session that is there is resumed. In the root
/// directory of a store (``~/.nono/rollbacks``) the session is one of those that ``nono rollback
/// list`` shows; :func:`new_session_dir` makes a fresh directory there. A limit of 0 is none.
///
/// Managers, threads and processes may share a session: each call holds the session's lock. Long
/// calls let other threads run and end with ``KeyboardInterrupt`` at Ctrl-C; a snapshot or restore
/// that was stopped is either complete or did not happen. From its first change on, a restore runs
/// to its end; a note on the exception says so (from Python 3.11 on).
///
/// ``threads`` is how many threads work; 0 is one for each core. ``progress`` of a call is a
/// function that is told how far the call is, as a :class:`Progress`: at most twenty times a
/// second, and at the end, always in the thread that made the call. If it returns ``False``, the
/// work stops, and the call raises a :class:`NonoError`; if it raises, the work stops, and the call
/// raises the same.
///
/// As a context manager it notes the end of the session when the block is left. It can be used
/// after that as well.
#[pyclass(frozen, subclass, module = "nono_py")]
pub(crate) struct SnapshotManager {
    engine: snapshot::SnapshotManager,
    threads: usize,
    entered: Mutex<Option<Timestamp>>,
}

impl SnapshotManager {
    fn wrap(engine: snapshot::SnapshotManager, threads: usize) -> Self {
        Self { engine: engine.with_threads(threads), threads, entered: Mutex::new(None) }
    }

    fn place(&self) -> &Path {
        self.engine.session().path()
    }

    /// Does work that may take long, with an engine that stops when it is interrupted.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        work: impl FnOnce(&snapshot::SnapshotManager) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        self.call_telling(py, operation, None, work)
    }

    /// As [`call`](Self::call), and tells a function how far the work is.
    fn call_telling<T: Send>(
        &self,
        py: Python<'_>,
        operation: &'static str,
        progress: Option<Py<PyAny>>,
        work: impl FnOnce(&snapshot::SnapshotManager) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        call_telling(py, operation, self.place(), progress, |counter| {
            work(&self.engine.clone().with_progress(counter))
        })
    }

    fn plan(
        &self,
        py: Python<'_>,
        operation: &'static str,
        number: u64,
        options: RestoreOptions,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<RestoreReport> {
        let planned = self.call_telling(py, operation, progress, |engine| {
            Ok(job(engine, number, options)?.plan()?.report.restore)
        })?;
        Ok(RestoreReport::of(planned))
    }

    fn manifest(&self, manifest: snapshot::SnapshotManifest) -> SnapshotManifest {
        SnapshotManifest::new(self.engine.clone(), manifest)
    }
}

#[pymethods]
impl SnapshotManager {
    #[new]
    #[pyo3(
        signature = (
            session_dir, tracked_paths, exclusion = None, max_entries = Count(300_000),
            max_bytes = Count(2 << 30), threads = Threads(0)
        ),
        text_signature = "(session_dir, tracked_paths, exclusion=None, max_entries=300000, \
                          max_bytes=2147483648, threads=0)"
    )]
    fn new(
        py: Python<'_>,
        session_dir: PathArg,
        tracked_paths: Vec<PathArg>,
        exclusion: Option<PyRef<'_, ExclusionConfig>>,
        max_entries: Count,
        max_bytes: Count,
        threads: Threads,
    ) -> PyResult<Self> {
        let paths: Vec<PathBuf> = tracked_paths.into_iter().map(|path| path.0).collect();
        let exclusion = exclusion.map_or_else(exclusion::default, |exclusion| exclusion.0.clone());
        let budget = Budget { max_entries: max_entries.0, max_bytes: max_bytes.0 };
        quick(py, "SnapshotManager", &session_dir.0, || {
            let engine = snapshot::SnapshotManager::new(&session_dir.0, &paths, exclusion, budget)?;
            Ok(Self::wrap(engine, threads.0))
        })
    }

    /// Resumes a session with the tracked paths and filters of its last snapshot.
    #[staticmethod]
    #[pyo3(
        signature = (session_dir, threads = Threads(0)),
        text_signature = "(session_dir, threads=0)"
    )]
    fn open(py: Python<'_>, session_dir: PathArg, threads: Threads) -> PyResult<Self> {
        quick(py, "open", &session_dir.0, || {
            // The program may go to another directory.
            let place = std::path::absolute(&session_dir.0).unwrap_or(session_dir.0.clone());
            Ok(Self::wrap(snapshot::SnapshotManager::open(&place)?, threads.0))
        })
    }

    /// The session's directory.
    #[getter]
    fn session_dir(&self) -> &OsStr {
        self.place().as_os_str()
    }

    /// The session's id: the name of its directory.
    #[getter]
    fn session_id(&self) -> String {
        self.engine.session().id()
    }

    /// The captured paths: absolute, with symlinks in parents resolved.
    #[getter]
    fn tracked_paths(&self) -> Vec<OsString> {
        self.engine.roots().iter().map(|root| root.path.clone().into_os_string()).collect()
    }

    /// Captures the first state. When it returns, the snapshot is on the disk to stay.
    #[pyo3(signature = (progress = None))]
    fn create_baseline(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<SnapshotManifest> {
        let manifest = self.call_telling(py, "create_baseline", progress, |engine| {
            Ok(engine.create_baseline()?)
        })?;
        Ok(self.manifest(manifest))
    }

    /// Captures the current state; gives the snapshot and what changed since the one before.
    /// A file whose time alone moved is no change: see :meth:`touched`.
    #[pyo3(signature = (progress = None))]
    fn create_incremental(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(SnapshotManifest, Vec<Change>)> {
        let (manifest, found) =
            self.call_telling(py, "create_incremental", progress, |engine| {
                Ok(engine.create_incremental()?)
            })?;
        Ok((self.manifest(manifest), changes(found)))
    }

    /// Captures the current state under a name: the baseline of a session that has none yet, else a
    /// further snapshot.
    #[pyo3(signature = (label, progress = None))]
    fn checkpoint(
        &self,
        py: Python<'_>,
        label: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<SnapshotManifest> {
        let (manifest, _) =
            self.call_telling(py, "checkpoint", progress, |engine| Ok(engine.checkpoint(label)?))?;
        Ok(self.manifest(manifest))
    }

    /// Brings the tracked paths back to a snapshot; gives what changed on the disk. The state
    /// before is kept as a further snapshot.
    ///
    /// Later changes of a completed session are a :class:`NonoError`, and nothing is changed. A
    /// skipped path is an :class:`IncompleteRestore`; all else is restored. :meth:`restore` reports
    /// both instead.
    fn restore_to(&self, py: Python<'_>, snapshot_number: Count) -> PyResult<Vec<Change>> {
        let number = snapshot_number.0;
        let done = self.call(py, "restore_to", |engine| {
            Ok(job(engine, number, RestoreOptions::default())?.run()?.restore.into_changes()?)
        })?;
        Ok(changes(done))
    }

    /// Brings a snapshot back, or a part of it, and reports the restored and the skipped paths:
    /// look at the report, which is true when the whole request is done. The state before is kept
    /// as a further snapshot, unless ``safety_snapshot`` is false; overwritten bytes are then kept
    /// nowhere.
    ///
    /// ``paths`` are the files and directories that are meant, ``exclude`` what is not: absolute,
    /// below each of the tracked paths, or globs (``*.py``, ``src/**/*.c``). ``only`` restores what
    /// was ``"created"``, ``"modified"`` or ``"deleted"`` since the snapshot. ``on_conflict`` says
    /// what becomes of paths that were changed after a completed session: ``"refuse"`` does nothing
    /// at all if there is one, ``"overwrite"`` undoes that as well, ``"keep_newer"`` leaves them.
    /// With ``dry_run`` nothing is written.
    ///
    /// ``to`` is a directory that gets a copy, instead of the tracked paths; it is made if it is
    /// missing. Existing paths stay and are in ``skipped``, unless ``on_conflict`` is
    /// ``"overwrite"``. A copy of a part is made by ``paths`` and ``exclude``.
    ///
    /// The writer of an archive chooses the modes and attributes of its files. So the files of a
    /// snapshot that an archive or a remote brought get setuid, setgid and file capabilities only
    /// with ``with_privileges``; otherwise these files are in ``skipped``.
    #[pyo3(
        signature = (
            snapshot, paths = None, exclude = None, only = None,
            on_conflict = "refuse".to_owned(), to = None, progress = None, dry_run = false,
            safety_snapshot = true, with_privileges = false
        ),
        text_signature = "($self, snapshot, paths=None, exclude=None, only=None, \
                          on_conflict='refuse', to=None, progress=None, dry_run=False, \
                          safety_snapshot=True, with_privileges=False)"
    )]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword")]
    fn restore(
        &self,
        py: Python<'_>,
        snapshot: Count,
        paths: Option<Vec<PathArg>>,
        exclude: Option<Vec<PathArg>>,
        only: Option<Vec<String>>,
        on_conflict: String,
        to: Option<PathArg>,
        progress: Option<Py<PyAny>>,
        dry_run: bool,
        safety_snapshot: bool,
        with_privileges: bool,
    ) -> PyResult<RestoreReport> {
        let has_only = only.is_some();
        let asked = Asked { paths, exclude, only, on_conflict, safety_snapshot, with_privileges };
        let options = asked.options()?;
        let number = snapshot.0;
        let Some(to) = to else {
            if dry_run {
                return self.plan(py, "restore", number, options, progress);
            }
            let report = self.call_telling(py, "restore", progress, |engine| {
                Ok(job(engine, number, options)?.run()?.restore)
            })?;
            return Ok(RestoreReport::of(report));
        };
        if dry_run || has_only || options.on_conflict == OnConflict::KeepNewer {
            let text = "a copy to another directory has no dry_run, no only and no keep_newer";
            return Err(PyValueError::new_err(text));
        }
        let overwrite = options.on_conflict == OnConflict::Overwrite;
        let copied = self.call_telling(py, "restore", progress, |engine| {
            let to = std::path::absolute(&to.0).unwrap_or(to.0);
            let selection = options.selection.clone();
            let copy =
                CopyOptions { selection, overwrite, with_privileges, ..CopyOptions::default() };
            Ok(engine.copy_out(number, &to, &copy)?)
        })?;
        Ok(RestoreReport::of_copy(copied, &options))
    }

    /// The effect that :meth:`restore` would have. Writes nothing. With refused conflicts, the
    /// changes are those that would be made without them.
    #[pyo3(
        signature = (
            snapshot, paths = None, exclude = None, only = None,
            on_conflict = "refuse".to_owned(), progress = None, with_privileges = false
        ),
        text_signature = "($self, snapshot, paths=None, exclude=None, only=None, \
                          on_conflict='refuse', progress=None, with_privileges=False)"
    )]
    #[allow(clippy::too_many_arguments, reason = "each is a keyword")]
    fn plan_restore(
        &self,
        py: Python<'_>,
        snapshot: Count,
        paths: Option<Vec<PathArg>>,
        exclude: Option<Vec<PathArg>>,
        only: Option<Vec<String>>,
        on_conflict: String,
        progress: Option<Py<PyAny>>,
        with_privileges: bool,
    ) -> PyResult<RestoreReport> {
        let safety_snapshot = true;
        let asked = Asked { paths, exclude, only, on_conflict, safety_snapshot, with_privileges };
        self.plan(py, "plan_restore", snapshot.0, asked.options()?, progress)
    }

    /// Whether a restore of this session was interrupted: its process was killed, or the machine
    /// stopped. Then nothing else is done with the session before :meth:`recover_restore`.
    fn has_interrupted_restore(&self, py: Python<'_>) -> PyResult<bool> {
        quick(py, "has_interrupted_restore", self.place(), || {
            Ok(self.engine.session().has_interrupted_restore()?)
        })
    }

    /// Finishes an interrupted restore, or with ``abort`` brings back the state before it.
    /// ``None``: there is none. When it fails or is interrupted itself, it can be called again,
    /// either way.
    #[pyo3(signature = (abort = false, progress = None))]
    fn recover_restore(
        &self,
        py: Python<'_>,
        abort: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<RecoveryReport>> {
        let way = if abort { Recovery::TakeBack } else { Recovery::Finish };
        let report = self.call_telling(py, "recover_restore", progress, |engine| {
            Ok(engine.recover_restore(way)?)
        })?;
        Ok(report.map(RecoveryReport))
    }

    /// The changes that :meth:`restore_to` would make. Changes nothing.
    fn compute_restore_diff(
        &self,
        py: Python<'_>,
        snapshot_number: Count,
    ) -> PyResult<Vec<Change>> {
        let number = snapshot_number.0;
        let found = self.call(py, "compute_restore_diff", |engine| {
            let plan = job(engine, number, RestoreOptions::default())?.plan()?;
            Ok(plan.report.restore.changes)
        })?;
        Ok(changes(found))
    }

    /// The changes from snapshot ``a`` to snapshot ``b``.
    fn diff(&self, py: Python<'_>, a: Count, b: Count) -> PyResult<Vec<Change>> {
        let found = self.call(py, "diff", |engine| {
            let (old, new) = (engine.load_manifest(a.0)?, engine.load_manifest(b.0)?);
            Ok(engine.changes_between(&old, &new)?)
        })?;
        Ok(changes(found))
    }

    /// Paths whose time alone is another in snapshot ``b`` than in snapshot ``a``. They are no
    /// changes; a restore gives them their time back all the same. Directories are not told.
    fn touched(&self, py: Python<'_>, a: Count, b: Count) -> PyResult<Vec<OsString>> {
        let found = self.call(py, "touched", |engine| {
            let (old, new) = (engine.load_manifest(a.0)?, engine.load_manifest(b.0)?);
            Ok(engine.compare(&old, &new)?.touched)
        })?;
        Ok(texts(&found))
    }

    /// The contents of a file as it was in a snapshot, checked against their hash.
    ///
    /// The path is absolute, or meant from the current directory; it need not exist any more.
    fn read<'py>(
        &self,
        py: Python<'py>,
        snapshot: Count,
        path: PathArg,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.call(py, "read", |engine| Ok(engine.read(snapshot.0, &path.0)?))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Reads every manifest and every byte of the session, and says what is wrong.
    ///
    /// ``expected_root`` is a Merkle root that was noted elsewhere: that no snapshot has it is a
    /// problem too. It may also be a session root.
    #[pyo3(signature = (expected_root = None, progress = None))]
    fn verify(
        &self,
        py: Python<'_>,
        expected_root: Option<PyRef<'_, ContentHash>>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<VerifyReport> {
        let expected_root = expected_root.map(|root| root.0);
        let (engine, threads) = (&self.engine, self.threads);
        let report = call_telling(py, "verify", self.place(), progress, |counter| {
            let progress: &Counter = &counter;
            let options = VerifyOptions { threads, progress, expected_root };
            Ok(verify_session(engine.session(), engine.store(), &options)?)
        })?;
        Ok(VerifyReport(report))
    }

    /// Mends what can be mended of a damaged session, and says what is lost for good. Damaged
    /// objects are moved into quarantine, and never deleted.
    ///
    /// Good copies are looked for in the session's own files, and in ``other_stores``: root
    /// directories of stores, sessions, or directories of objects.
    #[pyo3(
        signature = (other_stores = vec![], progress = None),
        text_signature = "($self, other_stores=[], progress=None)"
    )]
    fn repair(
        &self,
        py: Python<'_>,
        other_stores: Vec<PathArg>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<RepairReport> {
        let other_stores: Vec<PathBuf> = other_stores.into_iter().map(|path| path.0).collect();
        let (engine, threads) = (&self.engine, self.threads);
        let done = call_telling(py, "repair", self.place(), progress, |counter| {
            let progress: &Counter = &counter;
            let verify = VerifyOptions { threads, progress, expected_root: None };
            let options = RepairOptions { verify, other_stores: &other_stores };
            Ok(repair_session(engine.session(), engine.store(), &options)?)
        })?;
        let (repair, verified) = done;
        Ok(RepairReport { repair, verified })
    }

    /// Shows the session's snapshots as read-only folders: ``<number>/<absolute path>``.
    ///
    /// Use it in a ``with`` block: the mount ends with the block, with the last reference to what
    /// is returned, or with the process.
    fn mount(&self, py: Python<'_>, directory: PathArg) -> PyResult<Mount> {
        let root = self.place().parent().unwrap_or(Path::new("/"));
        Mount::new(py, root, &Scope::Session(self.session_id()), &directory.0)
    }

    /// The manifest of one snapshot.
    fn load_manifest(&self, py: Python<'_>, number: Count) -> PyResult<SnapshotManifest> {
        let manifest = quick(py, "load_manifest", self.place(), || {
            Ok(self.engine.load_manifest(number.0)?)
        })?;
        Ok(self.manifest(manifest))
    }

    /// Number of snapshots on the disk.
    fn snapshot_count(&self, py: Python<'_>) -> PyResult<u64> {
        quick(py, "snapshot_count", self.place(), || Ok(self.engine.snapshot_count()?))
    }

    /// Writes the session's manifest. Its list of snapshots stays as it is on the disk, whatever
    /// ``meta`` says.
    fn save_session_metadata(
        &self,
        py: Python<'_>,
        meta: PyRef<'_, SessionMetadata>,
    ) -> PyResult<()> {
        let metadata = meta.0.clone();
        self.call(py, "save_session_metadata", |engine| {
            Ok(engine.save_session_metadata(&metadata).map(drop)?)
        })
    }

    /// Reads the manifest of a session.
    #[staticmethod]
    fn load_session_metadata(py: Python<'_>, session_dir: PathArg) -> PyResult<SessionMetadata> {
        let place = session_dir.0;
        let metadata = quick(py, "load_session_metadata", &place, || {
            Ok(snapshot::SnapshotManager::load_session_metadata(&place)?)
        })?;
        Ok(SessionMetadata(metadata))
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        *this.get().entered.lock() = Some(Timestamp::now());
        this
    }

    #[pyo3(
        signature = (exc_type, _exc_value, _traceback, /),
        text_signature = "($self, exc_type, exc_value, traceback, /)"
    )]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        _exc_value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let entered = self.entered.lock().take();
        let ended = self.call(py, "__exit__", |engine| end_session(engine, entered));
        // The failure of the block is the one that the caller has to know.
        if !exc_type.is_none() { Ok(()) } else { ended }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let place = self.place().as_os_str().into_pyobject(py)?.repr()?;
        let paths = self.tracked_paths().into_pyobject(py)?.repr()?;
        Ok(format!("SnapshotManager({place}, {paths})"))
    }
}

/// Notes the end of a session that was not ended since `entered`.
fn end_session(
    engine: &snapshot::SnapshotManager,
    entered: Option<Timestamp>,
) -> Result<(), Failure> {
    let mut metadata = match engine.session().metadata() {
        Ok(metadata) => metadata,
        // No snapshot was taken, so there is no session.
        Err(ManifestError::Missing { .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if metadata.ended.is_some_and(|ended| Some(ended) >= entered) {
        return Ok(());
    }
    metadata.ended = Some(Timestamp::now());
    Ok(engine.save_session_metadata(&metadata).map(drop)?)
}

/// Makes a fresh directory for a session in a store, named ``YYYYMMDD-HHMMSS-PID``, and the store
/// when it is missing; gives the directory.
///
/// ``root`` is the store's root directory; by default ``$NONO_ROOT``, or ``~/.nono/rollbacks``.
#[pyfunction]
#[pyo3(signature = (root = None))]
pub(crate) fn new_session_dir(py: Python<'_>, root: Option<PathArg>) -> PyResult<OsString> {
    let root = store_root(py, root)?;
    quick(py, "new_session_dir", &root, || {
        Ok(nono_engine::session::new_session_dir(&root)?.into_os_string())
    })
}
