//! Failures of a session's snapshots.

use std::path::PathBuf;

use crate::path_text::Shown;
use crate::snapshot::capture::CaptureError;
use crate::snapshot::manifests::ManifestError;
use crate::snapshot::roots::TrackedPathError;
use crate::store::StoreError;
use crate::sys;

/// Why a snapshot operation failed. Nothing of it is half-done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// A path cannot be tracked.
    #[error(transparent)]
    TrackedPath(#[from] TrackedPathError),
    /// The state could not be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(StoreError),
    /// An incremental snapshot was asked for before there was a baseline.
    #[error("session {} has no baseline: call create_baseline() first", Shown::path(session))]
    NoBaseline {
        /// The session's directory.
        session: PathBuf,
    },
    /// A baseline was asked for twice.
    #[error("session {} already has a baseline: call create_incremental()", Shown::path(session))]
    BaselineExists {
        /// The session's directory.
        session: PathBuf,
    },
    /// The snapshot was taken and recorded, but what changed cannot be told, because the one before
    /// it is damaged.
    #[error(
        "snapshot {number} was recorded, but what changed since the one before cannot be said: \
         {source}"
    )]
    ChangesUnknown {
        /// Number of the new snapshot.
        number: u64,
        /// The defect of the one before.
        source: StoreError,
    },
    /// The snapshot is of a container: its paths are none of this machine.
    #[error(
        "session {session} is the history of a container, whose paths are not those of this \
         machine: use `nono container restore {session}/{number}`"
    )]
    OfContainer {
        /// The id of the session.
        session: String,
        /// The number asked for.
        number: u64,
    },
    /// There is no snapshot of this number.
    #[error(
        "session {} has no snapshot {number}{}",
        Shown::path(session),
        last.map_or(String::new(), |last| format!(" (its last is {last})"))
    )]
    NoSuchSnapshot {
        /// The session's directory.
        session: PathBuf,
        /// The number asked for.
        number: u64,
        /// The last that there is.
        last: Option<u64>,
    },
    /// A restore of the session was interrupted: the state on the disk is neither one nor the
    /// other.
    #[error(
        "a restore of session {} was interrupted, and has to be finished or taken back first",
        Shown::path(session)
    )]
    RestoreInterrupted {
        /// The session's directory.
        session: PathBuf,
    },
    /// A snapshot has no file of this path.
    #[error(
        "snapshot {number} of session {} has no file {}: {reason}",
        Shown::path(session),
        Shown::path(path)
    )]
    NoSuchFile {
        /// The session's directory.
        session: PathBuf,
        /// The snapshot.
        number: u64,
        /// The path asked for.
        path: PathBuf,
        /// The node that is there instead, or why that is unknown.
        reason: String,
    },
    /// A file system call failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

impl From<StoreError> for SnapshotError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Capture(CaptureError::Cancelled),
            error => Self::Store(error),
        }
    }
}
