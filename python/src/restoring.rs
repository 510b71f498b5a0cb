//! Restores: the request, and the result.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use nono_engine::diff::{ChangeType, Lost};
use nono_engine::job::{JobKind, RestoreJob};
use nono_engine::restore::{
    self, CopyReport, KeepBefore, OnConflict, RestoreError, RestoreOptions, Selection, Skipped,
};
use nono_engine::snapshot::SnapshotManager;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::args::PathArg;
use crate::values::{Change, change_word, changes, texts};

/// The selection of a snapshot's paths, and the treatment of later changes, in Python's words.
pub(crate) struct Asked {
    pub(crate) paths: Option<Vec<PathArg>>,
    pub(crate) exclude: Option<Vec<PathArg>>,
    pub(crate) only: Option<Vec<String>>,
    pub(crate) on_conflict: String,
    pub(crate) safety_snapshot: bool,
    pub(crate) with_privileges: bool,
}

impl Asked {
    pub(crate) fn options(self) -> PyResult<RestoreOptions> {
        let list = |paths: Option<Vec<PathArg>>| -> Vec<PathBuf> {
            paths.unwrap_or_default().into_iter().map(|path| path.0).collect()
        };
        // An empty list would mean everything.
        let is_empty = |list: Option<usize>| list == Some(0);
        if is_empty(self.paths.as_ref().map(Vec::len)) || is_empty(self.only.as_ref().map(Vec::len))
        {
            let text = "an empty list means nothing; leave the argument out to mean everything";
            return Err(PyValueError::new_err(text));
        }
        let kind = |word: String| match &*word {
            "created" => Ok(ChangeType::Created),
            "modified" => Ok(ChangeType::Modified),
            "deleted" => Ok(ChangeType::Deleted),
            _ => {
                let text = format!("only is of 'created', 'modified' and 'deleted', not {word:?}");
                Err(PyValueError::new_err(text))
            }
        };
        let only = self.only.unwrap_or_default().into_iter().map(kind).collect::<PyResult<_>>()?;
        let on_conflict = match &*self.on_conflict {
            "refuse" => OnConflict::Refuse,
            "overwrite" => OnConflict::Overwrite,
            "keep_newer" => OnConflict::KeepNewer,
            word => {
                let text =
                    format!("on_conflict is 'refuse', 'overwrite' or 'keep_newer', not {word:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let selection = Selection {
            paths: list(self.paths),
            exclude: list(self.exclude),
            only,
            ..Selection::default()
        };
        let keep_before =
            if self.safety_snapshot { KeepBefore::Snapshot } else { KeepBefore::Nothing };
        let with_privileges = self.with_privileges;
        Ok(RestoreOptions {
            on_conflict,
            selection,
            keep_before,
            with_privileges,
            ..RestoreOptions::default()
        })
    }
}

/// The restore of a snapshot.
pub(crate) fn job(
    engine: &SnapshotManager,
    number: u64,
    options: RestoreOptions,
) -> Result<RestoreJob, RestoreError> {
    let mut job = RestoreJob::new(engine.clone(), JobKind::Restore(number))?;
    job.choose(|chosen| *chosen = options);
    Ok(job)
}

/// The left-out paths that cannot come back, with the end of each; no rebuildable ones.
pub(crate) fn lost(lost: &[Lost]) -> BTreeMap<OsString, String> {
    let told = |lost: &Lost| (lost.path.clone().into_os_string(), lost.what.to_string());
    lost.iter().filter(|lost| !lost.is_rebuildable).map(told).collect()
}

/// The paths that stay as they are, with the reasons.
pub(crate) fn skipped(skipped: &[Skipped]) -> BTreeMap<OsString, String> {
    let mut by_path = BTreeMap::new();
    for Skipped { path, reason } in skipped {
        let reasons: &mut String = by_path.entry(path.clone().into_os_string()).or_default();
        if !reasons.is_empty() {
            reasons.push_str("; ");
        }
        reasons.push_str(reason);
    }
    by_path
}

/// A path that was changed after a completed session: a restore would undo that as well.
#[pyclass(frozen, eq, hash, module = "nono_py")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Conflict {
    path: PathBuf,
    change_type: ChangeType,
    user_step: Option<u64>,
    beside: Vec<String>,
}

#[pymethods]
impl Conflict {
    /// The absolute path.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone().into_os_string()
    }

    /// Its change since: ``"created"``, ``"modified"``, ``"deleted"`` or ``"permissions_changed"``.
    #[getter]
    fn change_type(&self) -> &'static str {
        change_word(self.change_type)
    }

    /// For an undo of an agent's session: number of the last step in which the user edited the
    /// path, or may have.
    #[getter]
    fn user_step(&self) -> Option<u64> {
        self.user_step
    }

    /// For an undo: ids of the sessions that were at work on the path at the same time, and may
    /// have changed it.
    #[getter]
    fn beside(&self) -> Vec<String> {
        self.beside.clone()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path.as_os_str().into_pyobject(py)?.repr()?;
        Ok(format!("Conflict(path={path}, change_type='{}')", self.change_type()))
    }
}

/// The result of a restore, or of a dry run; true when the requested state is the state on disk, or
/// would be.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct RestoreReport {
    report: restore::RestoreReport,
    /// The place of a copy.
    copied: Option<CopyReport>,
}

impl RestoreReport {
    pub(crate) fn of(report: restore::RestoreReport) -> Self {
        Self { report, copied: None }
    }

    pub(crate) fn of_copy(copied: CopyReport, options: &RestoreOptions) -> Self {
        let report = restore::RestoreReport {
            session_id: copied.session_id.clone(),
            snapshot: copied.snapshot,
            dry_run: false,
            changes: Vec::new(),
            touched: Vec::new(),
            directory_times: 0,
            conflicts: Vec::new(),
            spared: Vec::new(),
            merged: Vec::new(),
            overwritten: Vec::new(),
            on_conflict: options.on_conflict,
            blocked: Vec::new(),
            skipped: copied.skipped.clone(),
            rebuildable: Vec::new(),
            repositories: Vec::new(),
            lost: Vec::new(),
            unstable: copied.unstable.clone(),
            safety_snapshot: None,
            keep_before: options.keep_before,
            is_store_full: false,
            not_kept: Vec::new(),
        };
        Self { report, copied: Some(copied) }
    }
}

#[pymethods]
impl RestoreReport {
    /// The session.
    #[getter]
    fn session_id(&self) -> &str {
        &self.report.session_id
    }

    /// The snapshot whose state was asked for.
    #[getter]
    fn snapshot(&self) -> u64 {
        self.report.snapshot
    }

    /// Whether nothing was done on purpose.
    #[getter]
    fn dry_run(&self) -> bool {
        self.report.dry_run
    }

    /// Whether nothing was skipped and nothing was refused.
    #[getter]
    fn ok(&self) -> bool {
        self.report.is_complete()
    }

    /// Whether nothing was done because of conflicts.
    #[getter]
    fn refused(&self) -> bool {
        self.report.is_refused()
    }

    /// The changes on the disk, sorted by path. Empty for a copy.
    #[getter]
    fn changes(&self) -> Vec<Change> {
        changes(self.report.changes.clone())
    }

    /// Paths that got their time back and were otherwise as they were.
    #[getter]
    fn touched(&self) -> Vec<OsString> {
        texts(&self.report.touched)
    }

    /// How many directories got their time back and were otherwise as they were.
    #[getter]
    fn directory_times(&self) -> u64 {
        self.report.directory_times
    }

    /// Paths with later changes that the restore would undo, too.
    #[getter]
    fn conflicts(&self) -> Vec<Conflict> {
        let conflicts = self.report.conflicts.iter();
        let conflict = |it: &restore::Conflict| Conflict {
            path: it.path.clone(),
            change_type: it.change_type,
            user_step: it.user_edit.map(|edit| edit.step),
            beside: it.beside.clone(),
        };
        conflicts.map(conflict).collect()
    }

    /// The treatment of them: ``"refuse"``, ``"overwrite"`` or ``"keep_newer"``.
    #[getter]
    fn on_conflict(&self) -> &'static str {
        match self.report.on_conflict {
            OnConflict::Refuse => "refuse",
            OnConflict::Overwrite => "overwrite",
            OnConflict::KeepNewer => "keep_newer",
        }
    }

    /// The paths that differ from the snapshot, with the reasons.
    #[getter]
    fn skipped(&self) -> BTreeMap<OsString, String> {
        skipped(&self.report.skipped)
    }

    /// New paths without a record, which stay: directories with the mark of a program that rebuilds
    /// them.
    #[getter]
    fn rebuildable(&self) -> Vec<OsString> {
        texts(&self.report.rebuildable)
    }

    /// Left-out paths of the snapshot that cannot come back: ``"gone"`` or ``"changed"``.
    /// Rebuildable directories are not in it.
    #[getter]
    fn lost(&self) -> BTreeMap<OsString, String> {
        lost(&self.report.lost)
    }

    /// Files that kept changing while the snapshot read them: each has the state that was read,
    /// which may be one that it never had.
    #[getter]
    fn unstable(&self) -> Vec<OsString> {
        texts(&self.report.unstable)
    }

    /// The snapshot that holds the state before; ``None`` when nothing was to be done, the disk of
    /// the store was full, or none was wanted.
    #[getter]
    fn safety_snapshot(&self) -> Option<u64> {
        self.report.safety_snapshot
    }

    /// Paths that were skipped because the disk of the store was too full to keep what is there.
    #[getter]
    fn not_kept(&self) -> Vec<OsString> {
        texts(&self.report.not_kept)
    }

    /// Where the copy is; ``None`` for a restore in place.
    #[getter]
    fn to(&self) -> Option<OsString> {
        self.copied.as_ref().map(|copied| copied.to.clone().into_os_string())
    }

    /// Files, links and pipes that were copied.
    #[getter]
    fn written_count(&self) -> u64 {
        self.copied.as_ref().map_or(0, |copied| copied.written_count)
    }

    /// Bytes of their contents.
    #[getter]
    fn written_bytes(&self) -> u64 {
        self.copied.as_ref().map_or(0, |copied| copied.written_bytes)
    }

    /// The report as JSON, as ``nono restore --json`` prints it.
    fn to_json(&self) -> PyResult<String> {
        let json = match &self.copied {
            Some(copied) => serde_json::to_string(copied),
            None => serde_json::to_string(&self.report),
        };
        json.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The constructor for :func:`pickle.loads`.
    #[staticmethod]
    fn _from_pickled(report: &str, copied: Option<&str>) -> PyResult<Self> {
        let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        let report = serde_json::from_str(report).map_err(wrong)?;
        let copied = copied.map(serde_json::from_str).transpose().map_err(wrong)?;
        Ok(Self { report, copied })
    }

    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let wrong = |error: serde_json::Error| PyValueError::new_err(error.to_string());
        let report = serde_json::to_string(&self.report).map_err(wrong)?;
        let copied = self.copied.as_ref().map(serde_json::to_string).transpose().map_err(wrong)?;
        let make = py.get_type::<Self>().getattr("_from_pickled")?;
        Ok((make, (report, copied).into_pyobject(py)?))
    }

    fn __bool__(&self) -> bool {
        self.ok()
    }

    fn __repr__(&self) -> String {
        let word = |is: bool| if is { "True" } else { "False" };
        format!(
            "RestoreReport(ok={}, snapshot={}, dry_run={}, changes={}, touched={}, conflicts={}, \
             skipped={}, safety_snapshot={})",
            word(self.ok()),
            self.report.snapshot,
            word(self.report.dry_run),
            self.report.changes.len(),
            self.report.touched.len(),
            self.report.conflicts.len(),
            self.report.skipped.len(),
            self.report.safety_snapshot.map_or("None".to_owned(), |number| number.to_string()),
        )
    }
}
