//! The result of a verification.

use std::ffi::OsString;
use std::path::PathBuf;

use nono_engine::object;
use nono_engine::verify;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::values::ContentHash;

/// The result of :meth:`SnapshotManager.verify`; true when everything is sound.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct VerifyReport(pub(crate) verify::VerifyReport);

#[pymethods]
impl VerifyReport {
    /// The session.
    #[getter]
    fn session_id(&self) -> &str {
        &self.0.session_id
    }

    /// Whether there is no problem at all.
    #[getter]
    fn ok(&self) -> bool {
        self.0.ok
    }

    /// Commits to what the session's manifest says and to all its snapshots; ``None`` where the
    /// manifest cannot be read.
    #[getter]
    fn session_root(&self) -> Option<ContentHash> {
        self.0.session_root.map(ContentHash)
    }

    /// Its snapshots, by number.
    #[getter]
    fn snapshots(&self) -> Vec<SnapshotCheck> {
        self.0.snapshots.iter().cloned().map(SnapshotCheck).collect()
    }

    /// Different objects that were read.
    #[getter]
    fn objects_checked(&self) -> u64 {
        self.0.objects_checked
    }

    /// Bytes of those objects.
    #[getter]
    fn bytes_checked(&self) -> u64 {
        self.0.bytes_checked
    }

    /// Everything that is wrong.
    #[getter]
    fn problems(&self) -> Vec<Problem> {
        self.0.problems.iter().map(Problem::new).collect()
    }

    fn __bool__(&self) -> bool {
        self.0.ok
    }

    fn __repr__(&self) -> String {
        let ok = if self.0.ok { "True" } else { "False" };
        let (snapshots, problems) = (self.0.snapshots.len(), self.0.problems.len());
        format!(
            "VerifyReport(ok={ok}, snapshots={snapshots}, objects_checked={}, problems={problems})",
            self.0.objects_checked
        )
    }
}

/// One snapshot of a :class:`VerifyReport`.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct SnapshotCheck(verify::SnapshotCheck);

#[pymethods]
impl SnapshotCheck {
    /// Its number.
    #[getter]
    fn number(&self) -> u64 {
        self.0.number
    }

    /// Its Merkle root, if it is known.
    #[getter]
    fn merkle_root(&self) -> Option<ContentHash> {
        self.0.merkle_root.map(ContentHash)
    }

    /// Whether its manifest and every object below its Merkle root are sound.
    #[getter]
    fn ok(&self) -> bool {
        self.0.ok
    }

    fn __repr__(&self) -> String {
        let ok = if self.0.ok { "True" } else { "False" };
        format!("SnapshotCheck(number={}, ok={ok})", self.0.number)
    }
}

/// One thing that is wrong with a session; ``str`` says it in a sentence.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct Problem {
    words: String,
    kind: String,
    snapshot: Option<u64>,
    object: Option<object::ContentHash>,
    path: Option<PathBuf>,
}

impl Problem {
    fn new(problem: &verify::Problem) -> Self {
        use verify::Problem as P;
        let (object, path) = match problem {
            P::MissingObject { object, path, .. }
            | P::CorruptObject { object, path, .. }
            | P::CorruptTree { object, path, .. } => (Some(*object), path.clone()),
            _ => (None, None),
        };
        // The names of the kinds are part of the JSON that `nono verify` prints.
        let json = serde_json::to_value(problem).unwrap_or_default();
        let kind = json.get("kind").and_then(|kind| kind.as_str()).unwrap_or("unknown").to_owned();
        let (words, snapshot) = (problem.to_string(), problem.snapshot());
        Self { words, kind, snapshot, object, path }
    }
}

#[pymethods]
impl Problem {
    /// ``"missing_object"``, ``"corrupt_object"``, ``"corrupt_tree"``, ``"corrupt_manifest"``,
    /// ``"corrupt_pack"`` or ``"merkle_mismatch"``.
    #[getter]
    fn kind(&self) -> &str {
        &self.kind
    }

    /// The snapshot it is about, if it is about one.
    #[getter]
    fn snapshot(&self) -> Option<u64> {
        self.snapshot
    }

    /// The object that is missing or damaged, if it is one.
    #[getter]
    fn object(&self) -> Option<ContentHash> {
        self.object.map(ContentHash)
    }

    /// A path in that snapshot that needs the object.
    #[getter]
    fn path(&self) -> Option<OsString> {
        self.path.clone().map(PathBuf::into_os_string)
    }

    fn __str__(&self) -> &str {
        &self.words
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Problem({})", PyString::new(py, &self.words).repr()?))
    }
}
