//! Errors as Python sees them.

use std::path::{Path, PathBuf};

use nono_container::ContainerError;
use nono_container::restore::RestoreError as ContainerRestoreError;
use nono_engine::browse::BrowseError;
use nono_engine::path_text::Shown;
use nono_engine::repair::RepairError;
use nono_engine::restore::{self, RestoreError};
use nono_engine::session::RecordError;
use nono_engine::snapshot::{CaptureError, ManifestError, SnapshotError, TrackedPathError};
use nono_engine::store::StoreError;
use nono_engine::sys;
use nono_engine::verify::VerifyError;
use nono_mount::MountError;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::restoring::RestoreReport;

create_exception!(
    nono_py,
    NonoError,
    PyRuntimeError,
    "The engine could not do what was asked.\n\n\
     ``operation`` is the method that failed, ``path`` what it is about; both are in the message."
);

create_exception!(
    nono_py,
    IncompleteRestore,
    NonoError,
    "A restore was done, and some paths are not as they were in the snapshot.\n\n\
     ``report`` is the :class:`RestoreReport`: what was done, and what was skipped and why."
);

/// Gives the attributes of [`NonoError`] a value for those that Python code makes itself.
pub(crate) fn describe_type(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<NonoError>();
    class.setattr("operation", "")?;
    class.setattr("path", py.None())?;
    py.get_type::<IncompleteRestore>().setattr("report", py.None())
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    words: String,
    /// Its subject, if that is not the session.
    path: Option<PathBuf>,
    /// Whether the caller gave an argument that can never be right.
    is_wrong_argument: bool,
    /// The work that was done all the same.
    report: Option<Box<restore::RestoreReport>>,
}

impl Failure {
    pub(crate) fn internal(words: impl Into<String>) -> Self {
        Self { words: words.into(), path: None, is_wrong_argument: false, report: None }
    }

    pub(crate) fn wrong_argument(words: impl Into<String>) -> Self {
        Self { is_wrong_argument: true, ..Self::internal(words) }
    }

    fn new(error: &impl std::error::Error, path: Option<&Path>) -> Self {
        let words = match error.source() {
            // Some errors leave what the system said to their source.
            Some(source) if !error.to_string().contains(&source.to_string()) => {
                format!("{error}: {source}")
            }
            _ => error.to_string(),
        };
        let path = path.map(Path::to_owned);
        Self { words, path, is_wrong_argument: false, report: None }
    }

    /// The exception. `place` is what it is about when the error does not say.
    pub(crate) fn raise(self, py: Python<'_>, operation: &'static str, place: &Path) -> PyErr {
        if self.is_wrong_argument {
            return PyValueError::new_err(self.words);
        }
        let path = self.path.as_deref().unwrap_or(place);
        let shown = Shown::path(path).to_string();
        let text = if self.words.contains(&shown) {
            format!("{operation}: {}", self.words)
        } else {
            format!("{operation} {shown}: {}", self.words)
        };
        let error = match &self.report {
            Some(_) => IncompleteRestore::new_err(text),
            None => NonoError::new_err(text),
        };
        let value = error.value(py);
        let described = value
            .setattr("operation", operation)
            .and_then(|()| value.setattr("path", path.as_os_str()))
            .and_then(|()| match self.report {
                Some(report) => value.setattr("report", RestoreReport::of(*report)),
                None => Ok(()),
            });
        match described {
            Ok(()) => error,
            Err(other) => other,
        }
    }
}

impl From<sys::Error> for Failure {
    fn from(error: sys::Error) -> Self {
        Self::new(&error, Some(&error.path))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let path = match &error {
            StoreError::Missing { path, .. } | StoreError::Corrupt { path, .. } => Some(&**path),
            StoreError::Io(error) => Some(&*error.path),
            _ => None,
        };
        Self::new(&error, path)
    }
}

impl From<ManifestError> for Failure {
    fn from(error: ManifestError) -> Self {
        let path = match &error {
            ManifestError::Missing { path }
            | ManifestError::Corrupt { path, .. }
            | ManifestError::Newer { path, .. } => Some(&**path),
            ManifestError::Io(error) => Some(&*error.path),
            _ => None,
        };
        Self::new(&error, path)
    }
}

impl From<TrackedPathError> for Failure {
    fn from(error: TrackedPathError) -> Self {
        let path = match &error {
            TrackedPathError::Unreachable { path, .. }
            | TrackedPathError::Symlink { path, .. }
            | TrackedPathError::Special { path }
            | TrackedPathError::ContainsStore { path, .. }
            | TrackedPathError::InStore { path, .. }
            | TrackedPathError::Replaced { path }
            | TrackedPathError::NotPlain { path } => Some(&**path),
            _ => None,
        };
        let is_wrong_argument = matches!(
            error,
            TrackedPathError::NotPlain { .. }
                | TrackedPathError::Nothing
                | TrackedPathError::Pattern(_)
        );
        Self { is_wrong_argument, ..Self::new(&error, path) }
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::TrackedPath(error) => error.into(),
            SnapshotError::Manifest(error) => error.into(),
            SnapshotError::Store(error) | SnapshotError::Capture(CaptureError::Store(error)) => {
                error.into()
            }
            SnapshotError::Io(error) => error.into(),
            SnapshotError::NoSuchFile { ref path, .. } => Self::new(&error, Some(path)),
            other => Self::new(&other, None),
        }
    }
}

impl From<RestoreError> for Failure {
    fn from(error: RestoreError) -> Self {
        match &error {
            RestoreError::Content { path, .. }
            | RestoreError::ChangedMeanwhile { path }
            | RestoreError::ChangedSince { path }
            | RestoreError::NoSpace { path, .. }
            | RestoreError::DamagedJournal { path, .. }
            | RestoreError::ParentMissing { path }
            | RestoreError::Outside { path } => Self::new(&error, Some(path)),
            RestoreError::Io(source) => Self::new(&error, Some(&source.path)),
            RestoreError::Pattern { .. } => {
                Self { is_wrong_argument: true, ..Self::new(&error, None) }
            }
            RestoreError::Incomplete { .. } => {
                let failure = Self::new(&error, None);
                match error {
                    RestoreError::Incomplete { report } => Self { report: Some(report), ..failure },
                    _ => failure,
                }
            }
            RestoreError::Snapshot(_) => match error {
                RestoreError::Snapshot(error) => error.into(),
                other => Self::new(&other, None),
            },
            _ => Self::new(&error, None),
        }
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Snapshot(error) => error.into(),
            RecordError::Io(error) => error.into(),
            other => Self::new(&other, None),
        }
    }
}

impl From<VerifyError> for Failure {
    fn from(error: VerifyError) -> Self {
        match &error {
            VerifyError::Session { session, .. } => Self::new(&error, Some(session)),
            _ => Self::new(&error, None),
        }
    }
}

impl From<RepairError> for Failure {
    fn from(error: RepairError) -> Self {
        match error {
            RepairError::Verify(error) => error.into(),
            RepairError::Manifest(error) => error.into(),
            RepairError::Store(error) => error.into(),
            RepairError::Io(error) => error.into(),
            other => Self::new(&other, None),
        }
    }
}

impl From<ContainerError> for Failure {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Snapshot(error) => error.into(),
            ContainerError::Store(error) => error.into(),
            ContainerError::Manifest(error) => error.into(),
            ContainerError::Io(error) => error.into(),
            ContainerError::OtherSource { ref path, .. } => Self::new(&error, Some(path)),
            other => Self::new(&other, None),
        }
    }
}

impl From<ContainerRestoreError> for Failure {
    fn from(error: ContainerRestoreError) -> Self {
        match error {
            ContainerRestoreError::Container(error) => error.into(),
            ContainerRestoreError::File(error) => error.into(),
            other => Self::new(&other, None),
        }
    }
}

impl From<BrowseError> for Failure {
    fn from(error: BrowseError) -> Self {
        match &error {
            BrowseError::OverlapsStore { place, .. } => Self::new(&error, Some(place)),
            BrowseError::Unreadable { root, .. } => Self::new(&error, Some(root)),
            _ => Self::new(&error, None),
        }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        Self::new(&error, None)
    }
}
