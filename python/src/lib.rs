//! The engine of nono as a Python package: `nono_py._nono`.
//!
//! Invariants:
//! - Work is done on a thread of its own while the interpreter is free, and is asked to stop when a
//!   signal handler raises (Ctrl-C): see `call`.
//! - No panic crosses into Python: it becomes a `NonoError`.
//! - A failure of the engine is a `NonoError` with the operation and the path, a wrong argument a
//!   `ValueError`, a wrong type a `TypeError`: see `error`.
//! - Paths are bytes on the way in and out (`os.fsencode`, `os.fsdecode`).
//!
//! The Python side (`nono_py/__init__.py`) only names things again; the types are described in
//! `nono_py/_nono.pyi`, which `stubtest` compares with what is here.

mod args;
mod call;
mod containers;
mod error;
mod exclusion;
mod manager;
mod manifest;
mod metadata;
mod mount;
mod progress;
mod recovery;
mod repairing;
mod report;
mod restoring;
mod values;

use pyo3::prelude::*;

/// The compiled part of nono_py.
#[pymodule]
mod _nono {
    #[pymodule_export]
    use crate::containers::{ContainerEngine, Stop, watch_paused};
    #[pymodule_export]
    use crate::error::{IncompleteRestore, NonoError};
    #[pymodule_export]
    use crate::exclusion::ExclusionConfig;
    #[pymodule_export]
    use crate::manager::{SnapshotManager, new_session_dir};
    #[pymodule_export]
    use crate::manifest::SnapshotManifest;
    #[pymodule_export]
    use crate::metadata::SessionMetadata;
    #[pymodule_export]
    use crate::mount::{Mount, mount, unmount_all};
    #[pymodule_export]
    use crate::progress::Progress;
    #[pymodule_export]
    use crate::recovery::RecoveryReport;
    #[pymodule_export]
    use crate::repairing::{Lost, RepairReport, Repaired};
    #[pymodule_export]
    use crate::report::{Problem, SnapshotCheck, VerifyReport};
    #[pymodule_export]
    use crate::restoring::{Conflict, RestoreReport};
    #[pymodule_export]
    use crate::values::{Change, ContentHash, FileState};

    #[cfg(debug_assertions)]
    #[pymodule_export]
    use crate::call::panic_for_tests;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::call::keep_panics_quiet();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::error::describe_type(module.py())
    }
}
