//! The result of a repair.

use std::ffi::OsString;
use std::path::Path;

use nono_engine::repair::{self, Source};
use nono_engine::verify;
use pyo3::prelude::*;

use crate::report::VerifyReport;
use crate::values::{ContentHash, texts};

/// The result of :meth:`SnapshotManager.repair`; true when the session is sound now.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct RepairReport {
    pub(crate) repair: repair::RepairReport,
    pub(crate) verified: verify::VerifyReport,
}

#[pymethods]
impl RepairReport {
    /// Whether the session is sound now.
    #[getter]
    fn ok(&self) -> bool {
        self.verified.ok
    }

    /// The objects that are whole again.
    #[getter]
    fn repaired(&self) -> Vec<Repaired> {
        self.repair.repaired.iter().cloned().map(Repaired).collect()
    }

    /// Where damaged files were moved.
    #[getter]
    fn quarantined(&self) -> Vec<OsString> {
        texts(&self.repair.quarantined)
    }

    /// The objects that are not whole, because there is no good copy.
    #[getter]
    fn lost(&self) -> Vec<Lost> {
        self.repair.lost.iter().cloned().map(Lost).collect()
    }

    /// The result of a verification after the repair.
    #[getter]
    fn verified(&self) -> VerifyReport {
        VerifyReport(self.verified.clone())
    }

    fn __bool__(&self) -> bool {
        self.verified.ok
    }

    fn __repr__(&self) -> String {
        let ok = if self.verified.ok { "True" } else { "False" };
        let repair::RepairReport { repaired, quarantined, lost } = &self.repair;
        let (repaired, quarantined, lost) = (repaired.len(), quarantined.len(), lost.len());
        format!(
            "RepairReport(ok={ok}, repaired={repaired}, quarantined={quarantined}, lost={lost})"
        )
    }
}

/// Something that was damaged and is whole again.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct Repaired(repair::Repaired);

impl Repaired {
    fn copy(&self) -> (&'static str, Option<&Path>) {
        match &self.0.from {
            Source::File { path } => ("file", Some(path)),
            Source::Store { path } => ("store", Some(path)),
            Source::Recaptured => ("recaptured", None),
            Source::Snapshots => ("snapshots", None),
        }
    }
}

#[pymethods]
impl Repaired {
    /// The object; ``None`` for a manifest.
    #[getter]
    fn object(&self) -> Option<ContentHash> {
        self.0.object.map(ContentHash)
    }

    /// Where it is.
    #[getter]
    fn on_disk(&self) -> OsString {
        self.0.on_disk.clone().into_os_string()
    }

    /// Where the good copy was: ``"file"`` (one that still has the contents), ``"store"`` (another
    /// store), ``"recaptured"`` (the tracked paths, captured once more) or ``"snapshots"`` (a
    /// session's manifest that was made again from them).
    #[getter]
    fn source(&self) -> &'static str {
        self.copy().0
    }

    /// The file or object that was copied, if it was one.
    #[getter]
    fn source_path(&self) -> Option<OsString> {
        self.copy().1.map(|path| path.as_os_str().to_owned())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.0.on_disk.as_os_str().into_pyobject(py)?.repr()?;
        Ok(format!("Repaired(on_disk={path}, source='{}')", self.source()))
    }
}

/// Something that cannot be had back, or not now.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct Lost(repair::Lost);

#[pymethods]
impl Lost {
    /// The description, in words.
    #[getter]
    fn what(&self) -> &str {
        &self.0.what
    }

    /// The object; ``None`` for a manifest.
    #[getter]
    fn object(&self) -> Option<ContentHash> {
        self.0.object.map(ContentHash)
    }

    /// Why it is lost.
    #[getter]
    fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Whether it may be there and merely cannot be read now.
    #[getter]
    fn is_unreadable(&self) -> bool {
        self.0.is_unreadable
    }

    /// Numbers of the snapshots that need it.
    #[getter]
    fn snapshots(&self) -> Vec<u64> {
        self.0.snapshots.iter().copied().collect()
    }

    /// The paths that it stands for in them.
    #[getter]
    fn paths(&self) -> Vec<OsString> {
        texts(&self.0.paths)
    }

    /// Whether there are more paths than these.
    #[getter]
    fn has_more_paths(&self) -> bool {
        self.0.has_more_paths
    }

    fn __str__(&self) -> String {
        format!("{}: {}", self.0.what, self.0.reason)
    }

    fn __repr__(&self) -> String {
        format!("Lost({:?})", self.__str__())
    }
}
