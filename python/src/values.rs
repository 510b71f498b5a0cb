//! Small values that never change: hashes, states of files, changes.

use std::ffi::{OsStr, OsString};
use std::hash::{Hash, Hasher};
use std::path::PathBuf;

use nono_engine::diff::{self, ChangeType};
use nono_engine::{object, snapshot};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The SHA-256 of some bytes, which is also the name under which they are stored.
#[pyclass(frozen, eq, hash, module = "nono_py")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ContentHash(pub(crate) object::ContentHash);

#[pymethods]
impl ContentHash {
    #[new]
    #[pyo3(text_signature = "(hex)")]
    fn new(hex: &str) -> PyResult<Self> {
        let parsed = hex.parse().map(Self);
        parsed.map_err(|error: object::ParseHashError| PyValueError::new_err(error.to_string()))
    }

    /// 64 lower-case hexadecimal digits.
    fn hex(&self) -> String {
        self.0.hex()
    }

    fn __str__(&self) -> String {
        self.0.hex()
    }

    fn __repr__(&self) -> String {
        format!("ContentHash('{}')", self.0)
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.hex(),)
    }
}

/// One file of a snapshot.
#[pyclass(frozen, eq, hash, module = "nono_py")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState(pub(crate) snapshot::FileState);

impl Hash for FileState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let snapshot::FileState { hash, size, mtime, permissions } = self.0;
        (hash, size, mtime, permissions).hash(state);
    }
}

#[pymethods]
impl FileState {
    /// The SHA-256 of the contents.
    #[getter]
    fn hash(&self) -> ContentHash {
        ContentHash(self.0.hash)
    }

    /// Length in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size
    }

    /// When the contents last changed, in seconds since 1970.
    #[getter]
    fn mtime(&self) -> i64 {
        self.0.mtime
    }

    /// The permission bits, as in ``stat.S_IMODE``.
    #[getter]
    fn permissions(&self) -> u32 {
        self.0.permissions
    }

    fn __repr__(&self) -> String {
        let snapshot::FileState { hash, size, mtime, permissions } = self.0;
        format!(
            "FileState(hash='{hash}', size={size}, mtime={mtime}, permissions=0o{permissions:o})"
        )
    }
}

/// One path that changed.
#[pyclass(frozen, eq, hash, module = "nono_py")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Change {
    path: PathBuf,
    change_type: ChangeType,
    size_delta: Option<i64>,
    is_directory: bool,
}

impl From<diff::Change> for Change {
    fn from(change: diff::Change) -> Self {
        let diff::Change { path, change_type, size_delta, is_directory } = change;
        Self { path, change_type, size_delta, is_directory }
    }
}

/// A kind of change, as it is called in Python.
pub(crate) fn change_word(change_type: ChangeType) -> &'static str {
    match change_type {
        ChangeType::Created => "created",
        ChangeType::Modified => "modified",
        ChangeType::Deleted => "deleted",
        ChangeType::PermissionsChanged => "permissions_changed",
    }
}

/// Paths for Python.
pub(crate) fn texts(paths: &[PathBuf]) -> Vec<OsString> {
    paths.iter().map(|path| path.clone().into_os_string()).collect()
}

/// A list of changes for Python.
pub(crate) fn changes(changes: Vec<diff::Change>) -> Vec<Change> {
    changes.into_iter().map(Change::from).collect()
}

#[pymethods]
impl Change {
    /// The absolute path.
    #[getter]
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// ``"created"``, ``"modified"``, ``"deleted"`` or ``"permissions_changed"``.
    #[getter]
    fn change_type(&self) -> &'static str {
        change_word(self.change_type)
    }

    /// By how many bytes a file grew; ``None`` where there are no contents.
    #[getter]
    fn size_delta(&self) -> Option<i64> {
        self.size_delta
    }

    /// Whether it is a directory or, if it was deleted, was one.
    #[getter]
    fn is_directory(&self) -> bool {
        self.is_directory
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path.as_os_str().into_pyobject(py)?.repr()?;
        let delta = self.size_delta.map_or("None".to_owned(), |delta| delta.to_string());
        let change_type = self.change_type();
        Ok(format!("Change(path={path}, change_type='{change_type}', size_delta={delta})"))
    }
}
