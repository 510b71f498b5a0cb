//! `SnapshotManifest`: one state of the tracked paths.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::Offset;
use nono_engine::snapshot;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::call::call;
use crate::values::{ContentHash, FileState};

/// A snapshot: when it was taken, and the hash that commits to every byte of it.
#[pyclass(frozen, module = "nono_py")]
pub(crate) struct SnapshotManifest {
    engine: snapshot::SnapshotManager,
    pub(crate) manifest: snapshot::SnapshotManifest,
    files: PyOnceLock<Py<PyDict>>,
}

impl SnapshotManifest {
    pub(crate) fn new(
        engine: snapshot::SnapshotManager,
        manifest: snapshot::SnapshotManifest,
    ) -> Self {
        Self { engine, manifest, files: PyOnceLock::new() }
    }
}

/// ISO 8601 that every Python's ``datetime.fromisoformat`` reads: microseconds, offset in digits.
pub(crate) fn iso(timestamp: Timestamp) -> String {
    static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));
    PRINTER.timestamp_with_offset_to_string(&timestamp, Offset::UTC)
}

#[pymethods]
impl SnapshotManifest {
    /// Number in the session; 0 is the baseline.
    #[getter]
    fn number(&self) -> u64 {
        self.manifest.number
    }

    /// When the capture began, in ISO 8601 (UTC).
    #[getter]
    fn timestamp(&self) -> String {
        iso(self.manifest.timestamp)
    }

    /// Number of the snapshot before; ``None`` for the baseline.
    #[getter]
    fn parent(&self) -> Option<u64> {
        self.manifest.parent
    }

    /// The hash that commits to every name, attribute and byte.
    #[getter]
    fn merkle_root(&self) -> ContentHash {
        ContentHash(self.manifest.merkle_root)
    }

    /// The name from :meth:`SnapshotManager.checkpoint`.
    #[getter]
    fn label(&self) -> Option<&str> {
        self.manifest.label.as_deref()
    }

    /// Number of regular files.
    #[getter]
    fn file_count(&self) -> u64 {
        self.manifest.totals.file_count
    }

    /// Bytes of the contents of all files.
    #[getter]
    fn total_bytes(&self) -> u64 {
        self.manifest.totals.total_bytes
    }

    /// The left-out paths, with the reasons. A restore leaves them alone.
    #[getter]
    fn not_captured<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let left_out = PyDict::new(py);
        for item in &self.manifest.not_captured {
            left_out.set_item(item.path.as_os_str(), item.reason.to_string())?;
        }
        Ok(left_out)
    }

    /// Every regular file by its absolute path. Made when it is first read.
    #[getter]
    fn files(&self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        if let Some(files) = self.files.get(py) {
            return Ok(files.clone_ref(py));
        }
        let (engine, manifest) = (&self.engine, &self.manifest);
        let found = call(py, "files", engine.session().path(), |_| {
            Ok(manifest.files(engine.store())?.into_iter().collect::<Vec<(PathBuf, _)>>())
        })?;
        let files = PyDict::new(py);
        for (path, state) in found {
            files.set_item(path.into_os_string(), FileState(state))?;
        }
        Ok(self.files.get_or_init(py, || files.unbind()).clone_ref(py))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>();
        other.is_ok_and(|other| other.get().manifest == self.manifest)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.manifest.number, self.manifest.merkle_root, self.manifest.parent_hash)
            .hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let root = &self.manifest.merkle_root.hex()[..12];
        let label = match &self.manifest.label {
            Some(label) => format!(", label={label:?}"),
            None => String::new(),
        };
        format!(
            "SnapshotManifest(number={}, timestamp='{}', merkle_root='{root}…', \
             file_count={}{label})",
            self.manifest.number,
            self.timestamp(),
            self.manifest.totals.file_count,
        )
    }
}
