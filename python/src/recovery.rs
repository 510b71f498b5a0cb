//! The way out of an interrupted restore.

use std::collections::BTreeMap;
use std::ffi::OsString;

use nono_engine::restore::{self, RecoveryOutcome};
use pyo3::prelude::*;

use crate::restoring::{lost, skipped};
use crate::values::{Change, changes, texts};

/// The result of :meth:`SnapshotManager.recover_restore`.
#[pyclass(frozen, module = "nono_py")]
pub(crate) struct RecoveryReport(pub(crate) restore::RecoveryReport);

impl RecoveryReport {
    fn word(&self) -> &'static str {
        match self.0.outcome {
            RecoveryOutcome::Finished => "finished",
            RecoveryOutcome::TakenBack => "taken_back",
            RecoveryOutcome::NotBegun => "not_begun",
        }
    }
}

#[pymethods]
impl RecoveryReport {
    /// The session.
    #[getter]
    fn session_id(&self) -> &str {
        &self.0.session_id
    }

    /// The snapshot that was being restored.
    #[getter]
    fn snapshot(&self) -> u64 {
        self.0.snapshot
    }

    /// ``"finished"``, ``"taken_back"``, or ``"not_begun"``: no path had changed yet.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.word()
    }

    /// The changes of the whole restore; empty unless it was finished.
    #[getter]
    fn changes(&self) -> Vec<Change> {
        changes(self.0.changes.clone())
    }

    /// Paths that the whole restore gave their time back, and nothing else.
    #[getter]
    fn touched(&self) -> Vec<OsString> {
        texts(&self.0.touched)
    }

    /// The paths that differ from the snapshot, with the reasons.
    #[getter]
    fn skipped(&self) -> BTreeMap<OsString, String> {
        skipped(&self.0.skipped)
    }

    /// Left-out paths of the snapshot that cannot come back: ``"gone"`` or ``"changed"``; empty
    /// unless it is finished.
    #[getter]
    fn lost(&self) -> BTreeMap<OsString, String> {
        lost(&self.0.lost)
    }

    /// Whether every path is in the state that was asked for.
    #[getter]
    fn is_complete(&self) -> bool {
        self.0.is_complete()
    }

    /// The snapshot that holds the state before the restore, unless none was taken.
    #[getter]
    fn safety_snapshot(&self) -> Option<u64> {
        self.0.safety_snapshot
    }

    fn __repr__(&self) -> String {
        let restore::RecoveryReport { snapshot, changes, skipped, safety_snapshot, .. } = &self.0;
        format!(
            "RecoveryReport(outcome='{}', snapshot={snapshot}, changes={}, skipped={}, \
             safety_snapshot={})",
            self.word(),
            changes.len(),
            skipped.len(),
            safety_snapshot.map_or("None".to_owned(), |number| number.to_string()),
        )
    }
}
