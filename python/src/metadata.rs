//! `SessionMetadata`: the facts of a session.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use jiff::Timestamp;
use nono_engine::path_text::{decode, encode};
use nono_engine::snapshot;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::args::{Count, PathArg};
use crate::manifest::iso;
use crate::values::ContentHash;

/// The field of a session's manifest with the text that `ended` was set to: the engine keeps the
/// moment, and not how it was written.
const ENDED_TEXT: &str = "ended_text";

/// A session: its command, its paths, and the Merkle roots of its snapshots.
///
/// A new one begins now. :meth:`SnapshotManager.save_session_metadata` writes it; its facts about
/// the snapshots (``snapshot_count``, ``merkle_roots``) are then as they are on the disk.
#[pyclass(eq, module = "nono_py")]
#[derive(PartialEq)]
pub(crate) struct SessionMetadata(pub(crate) snapshot::SessionMetadata);

#[pymethods]
impl SessionMetadata {
    #[new]
    fn new(session_id: String, command: Vec<OsString>, tracked_paths: Vec<PathArg>) -> Self {
        let command = command.iter().map(|arg| encode(arg.as_bytes()).into_owned()).collect();
        let tracked_paths = tracked_paths.into_iter().map(|path| path.0).collect();
        Self(snapshot::SessionMetadata::new(session_id, command, tracked_paths))
    }

    /// The name of the session's directory, ``YYYYMMDD-HHMMSS-PID``.
    #[getter]
    fn session_id(&self) -> &str {
        &self.0.session_id
    }

    /// When the session began, in ISO 8601 (UTC).
    #[getter]
    fn started(&self) -> String {
        iso(self.0.started)
    }

    /// The program and its arguments.
    #[getter]
    fn command(&self) -> Vec<OsString> {
        self.0.command.iter().map(|text| OsString::from_vec(decode(text))).collect()
    }

    /// The captured paths.
    #[getter]
    fn tracked_paths(&self) -> Vec<OsString> {
        self.0.tracked_paths.iter().map(|path| path.clone().into_os_string()).collect()
    }

    /// When the session ended, in ISO 8601; ``None`` as long as it has not. Set it to text with an
    /// offset, which comes back as it was set, or to a ``datetime`` that knows its time zone, which
    /// comes back in UTC.
    #[getter]
    fn ended(&self) -> Option<String> {
        let ended = self.0.ended?;
        let given = self.0.extra.get(ENDED_TEXT).and_then(|text| text.as_str());
        // Another program may have set another end since.
        let given = given.filter(|text| text.parse::<Timestamp>().is_ok_and(|it| it == ended));
        Some(given.map_or_else(|| iso(ended), str::to_owned))
    }

    #[setter]
    fn set_ended(&mut self, ended: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let timestamp = ended.map(timestamp).transpose()?;
        let text = ended.and_then(|ended| ended.extract::<String>().ok());
        self.0.ended = timestamp;
        self.0.extra.remove(ENDED_TEXT);
        if let (Some(timestamp), Some(text)) = (timestamp, text)
            && text != iso(timestamp)
        {
            self.0.extra.insert(ENDED_TEXT.to_owned(), text.into());
        }
        Ok(())
    }

    /// Number of snapshots.
    #[getter]
    fn snapshot_count(&self) -> u64 {
        self.0.snapshot_count
    }

    #[setter]
    fn set_snapshot_count(&mut self, count: Count) {
        self.0.snapshot_count = count.0;
    }

    /// Exit code of the command; 128+n for a signal n; ``None`` before its end.
    #[getter]
    fn exit_code(&self) -> Option<i32> {
        self.0.exit_code
    }

    #[setter]
    fn set_exit_code(&mut self, code: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let number = |code: &Bound<'_, PyAny>| {
            let code = code.extract::<i64>()?;
            i32::try_from(code)
                .map_err(|_| PyValueError::new_err(format!("{code} is no exit code")))
        };
        self.0.exit_code = code.map(number).transpose()?;
        Ok(())
    }

    /// Merkle roots of the snapshots, in order.
    #[getter]
    fn merkle_roots(&self) -> Vec<ContentHash> {
        self.0.merkle_roots.iter().copied().map(ContentHash).collect()
    }

    /// Commits to the session as it is described here, and to all its snapshots. Noted elsewhere,
    /// it proves them: ``nono verify ID --expect-root HEX``.
    #[getter]
    fn session_root(&self) -> ContentHash {
        ContentHash(self.0.session_root())
    }

    /// Adds the Merkle root of a further snapshot.
    fn add_merkle_root(&mut self, root: PyRef<'_, ContentHash>) {
        self.0.merkle_roots.push(root.0);
    }

    /// A supervisor's notes of network accesses.
    #[getter]
    fn network_events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = serde_json::to_string(&self.0.network_events).map_err(wrong_json)?;
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Replaces the network events. They are kept as JSON.
    fn set_network_events(&mut self, events: Vec<Bound<'_, PyDict>>) -> PyResult<()> {
        let Some(first) = events.first() else {
            self.0.network_events.clear();
            return Ok(());
        };
        let py = first.py();
        let options = PyDict::new(py);
        options.set_item("allow_nan", false)?;
        let text = py.import("json")?.call_method("dumps", (events,), Some(&options))?;
        let text = text.extract::<String>()?;
        self.0.network_events = serde_json::from_str(&text).map_err(wrong_json)?;
        Ok(())
    }

    /// Always ``None``: nono records files and no digest of the program. The property is there for
    /// scripts that were written for the other package of this name.
    #[getter]
    fn executable_identity(&self) -> Option<Py<PyAny>> {
        None
    }

    /// Always 0: nono keeps no log of audit events. The property is there for scripts that were
    /// written for the other package of this name.
    #[getter]
    fn audit_event_count(&self) -> u64 {
        0
    }

    /// Always ``None``: nono keeps no log of audit events whose integrity it could tell.
    /// :attr:`session_root` proves the snapshots instead.
    #[getter]
    fn audit_integrity(&self) -> Option<Py<PyAny>> {
        None
    }

    /// Always ``None``: nono signs nothing. :attr:`session_root`, noted elsewhere, is the proof.
    #[getter]
    fn audit_attestation(&self) -> Option<Py<PyAny>> {
        None
    }

    /// The session as the JSON document that its manifest is.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string_pretty(&self.0).map_err(wrong_json)
    }

    /// Reads what :meth:`to_json` wrote.
    #[staticmethod]
    fn from_json(json: &str) -> PyResult<Self> {
        let metadata: snapshot::SessionMetadata = serde_json::from_str(json).map_err(wrong_json)?;
        let (found, known) = (metadata.format_version, snapshot::MANIFEST_VERSION);
        if found > known {
            let text =
                format!("the session has format version {found}; this nono_py knows {known}");
            return Err(PyValueError::new_err(text));
        }
        Ok(Self(metadata))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let id = PyString::new(py, &self.0.session_id).repr()?;
        let ended = self.ended().map_or("None".to_owned(), |ended| format!("'{ended}'"));
        Ok(format!(
            "SessionMetadata(session_id={id}, started='{}', ended={ended}, snapshot_count={})",
            self.started(),
            self.0.snapshot_count
        ))
    }
}

fn wrong_json(error: serde_json::Error) -> PyErr {
    PyValueError::new_err(format!("not the JSON of a session: {error}"))
}

/// A time as text in ISO 8601, or as a `datetime`.
fn timestamp(value: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    let text = if value.is_instance_of::<PyString>() {
        value.clone()
    } else if value.is_instance(&value.py().import("datetime")?.getattr("datetime")?)? {
        value.call_method0("isoformat")?
    } else {
        let name = value.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!("a time is a str or a datetime, not {name}")));
    };
    let text = text.extract::<String>()?;
    text.parse().map_err(|error| {
        let hint = "a time needs a date, a time and an offset, as in 2026-02-14T14:30:22+00:00";
        PyValueError::new_err(format!("{text:?}: {error} ({hint})"))
    })
}
