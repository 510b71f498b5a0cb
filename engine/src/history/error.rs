//! Why a part of the past cannot be seen.

use std::io;
use std::path::PathBuf;

use crate::object::ContentHash;
use crate::path_text::Shown;
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
    /// A pattern of text makes no sense.
    #[error("{pattern:?} is no pattern: {reason}")]
    Pattern {
        /// The pattern as given.
        pattern: String,
        /// The defect.
        reason: String,
    },
    /// An object cannot be searched.
    #[error("cannot search object {hash}: {source}")]
    Search {
        /// The object.
        hash: ContentHash,
        /// The failed read, or a line that is too long.
        source: io::Error,
    },
    /// A path has no lines of text.
    #[error("{} has no lines to tell apart: {reason}", Shown::path(path))]
    NoText {
        /// The path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// No threads can be started.
    #[error("cannot start threads: {reason}")]
    Threads {
        /// The answer of the system.
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
