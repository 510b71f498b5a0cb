//! Why a part of the past cannot be seen.

use crate::snapshot::{ManifestError, SnapshotError};
use crate::store::StoreError;
use crate::sys;

/// Why a session, or a state of it, cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// An object is missing or damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tracked paths cannot be looked at.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A path on the disk cannot be looked at.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// A glob makes no sense.
    #[error("{glob:?} is no glob: {reason}")]
    Glob {
        /// The glob as given.
        glob: String,
        /// The defect.
        reason: String,
    },
}

/// A session of which a part could not be looked at.
#[derive(Debug)]
pub struct Damaged {
    /// The session.
    pub session_id: String,
    /// Why.
    pub error: HistoryError,
}
