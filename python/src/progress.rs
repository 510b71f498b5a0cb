//! Telling a Python function how far the work is, and letting it stop the work.
//!
//! The engine's threads only count. The thread that made the call looks at the counts and calls the
//! function: it holds no lock of the engine, and no thread of the engine ever waits for Python.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use nono_engine::progress::{self, Amount, Stage};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBool;

/// How far a call is, as its ``progress`` function is told.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    stage: Option<Stage>,
    done: Amount,
    expected: Option<Amount>,
}

#[pymethods]
impl Progress {
    /// The present work: ``"capture"``, ``"flush"``, ``"compare"``, ``"stage"``, ``"commit"``,
    /// ``"copy"``, ``"read_lists"``, ``"read_contents"``, ``"list_objects"``, ``"upload"``,
    /// ``"download"``, ``"remove"``, ``"wait"``, or ``""`` before anything has begun.
    #[getter]
    fn stage(&self) -> &'static str {
        match self.stage {
            Some(Stage::Capture) => "capture",
            Some(Stage::Flush) => "flush",
            Some(Stage::Compare) => "compare",
            Some(Stage::Stage) => "stage",
            Some(Stage::Commit) => "commit",
            Some(Stage::Copy) => "copy",
            Some(Stage::ReadLists) => "read_lists",
            Some(Stage::ReadContents) => "read_contents",
            Some(Stage::ListObjects) => "list_objects",
            Some(Stage::Upload) => "upload",
            Some(Stage::Download) => "download",
            Some(Stage::Remove) => "remove",
            Some(Stage::Wait) => "wait",
            _ => "",
        }
    }

    /// Files, directories, links or objects that are done in this stage.
    #[getter]
    fn entries(&self) -> u64 {
        self.done.entries
    }

    /// Bytes of their contents.
    #[getter]
    fn bytes(&self) -> u64 {
        self.done.bytes
    }

    /// About how many entries the stage has, where that is known.
    #[getter]
    fn expected_entries(&self) -> Option<u64> {
        self.expected.map(|expected| expected.entries)
    }

    /// About how many bytes the stage has, where that is known.
    #[getter]
    fn expected_bytes(&self) -> Option<u64> {
        self.expected.map(|expected| expected.bytes)
    }

    fn __repr__(&self) -> String {
        let (stage, Amount { entries, bytes }) = (self.stage(), self.done);
        format!("Progress(stage='{stage}', entries={entries}, bytes={bytes})")
    }
}

/// Counts the work of one call, and tells it to stop.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    is_stopped: AtomicBool,
    entries: AtomicU64,
    bytes: AtomicU64,
    part: Mutex<Part>,
}

/// One stage, and what was counted before it began.
#[derive(Debug, Default, Clone, Copy)]
struct Part {
    stage: Option<Stage>,
    expected: Option<Amount>,
    before: Amount,
}

impl Counter {
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    fn counted(&self) -> Amount {
        Amount { entries: self.entries.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    fn now(&self) -> Progress {
        let Part { stage, expected, before } = *self.part.lock();
        let all = self.counted();
        let done = Amount {
            entries: all.entries.saturating_sub(before.entries),
            bytes: all.bytes.saturating_sub(before.bytes),
        };
        Progress { stage, done, expected }
    }
}

impl progress::Progress for Counter {
    fn advance(&self, entries: u64, bytes: u64) {
        self.entries.fetch_add(entries, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        *self.part.lock() = Part { stage: Some(stage), expected, before: self.counted() };
    }

    fn is_cancelled(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }
}

/// The answer of a `progress` function.
pub(crate) enum Wish {
    GoOn,
    Stop,
}

/// A `progress` function, and what it was told last.
pub(crate) struct Listener {
    function: Option<Py<PyAny>>,
    told: Option<Progress>,
}

impl Listener {
    pub(crate) fn new(function: Option<Py<PyAny>>) -> Self {
        Self { function, told: None }
    }

    /// Tells what is new, if anything is.
    pub(crate) fn tell(&mut self, py: Python<'_>, counter: &Counter) -> PyResult<Wish> {
        let Some(function) = &self.function else { return Ok(Wish::GoOn) };
        let now = counter.now();
        if self.told == Some(now) {
            return Ok(Wish::GoOn);
        }
        self.told = Some(now);
        let answer = function.call1(py, (now,))?;
        let is_false = answer.bind(py).cast::<PyBool>().is_ok_and(|answer| !answer.is_true());
        Ok(if is_false { Wish::Stop } else { Wish::GoOn })
    }
}
