//! Failures of archives.

use std::io;
use std::path::PathBuf;

use super::name::ArchiveId;
use nono_engine::path_text::Shown;
use nono_engine::snapshot::{ManifestError, SnapshotError};
use nono_engine::store::StoreError;
use nono_engine::sys;

/// Why an archive was not written, or not read. Nothing of it is half-done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The archive could not be written.
    #[error("cannot write the archive: {0}")]
    Write(#[source] io::Error),
    /// The archive could not be read.
    #[error("cannot read the archive: {0}")]
    Read(#[source] io::Error),
    /// Bytes are no archive of nono, were cut off or changed.
    #[error("the archive is damaged, or is none of nono's: {reason}")]
    Corrupt {
        /// The defect.
        reason: String,
    },
    /// It is encrypted, and there is no key.
    #[error("the archive is encrypted: --identity FILE or --passphrase-file FILE opens it")]
    Encrypted,
    /// None of the keys opens it.
    #[error("none of the given identities or passphrases opens the archive")]
    WrongKey,
    /// An archive asks for more than is allowed.
    #[error("the archive is refused: {reason}")]
    TooLarge {
        /// The limit.
        reason: String,
    },
    /// An archive of the chain is still missing.
    #[error("{id} is not complete: the archive of {missing} is needed, too")]
    Incomplete {
        /// The snapshot.
        id: ArchiveId,
        /// The snapshot whose archive is needed.
        missing: ArchiveId,
    },
    /// An archive does not follow the one before in its chain.
    #[error("the archives are no chain: {reason}")]
    NoChain {
        /// The difference.
        reason: String,
    },
    /// The session here has another history.
    #[error("a session {session} is here already, and is another one: {reason}")]
    Diverged {
        /// The id.
        session: String,
        /// The difference.
        reason: String,
    },
    /// An archive goes on from another history than that of the session here.
    #[error(
        "the histories of session {session} here and in the archives differ: {reason}; nothing was \
         changed, and `--root DIR` takes the other one into a store of its own"
    )]
    OtherHistory {
        /// The id.
        session: String,
        /// The number of the snapshot in the archive.
        number: u64,
        /// The difference.
        reason: String,
    },
    /// Two archives of one session are of two histories.
    #[error("the histories of session {session} in the archives differ: {reason}")]
    TwoHistories {
        /// The id.
        session: String,
        /// The number of the snapshot in the archive that was read first.
        number: u64,
        /// The difference.
        reason: String,
    },
    /// A delta was asked for to a snapshot that is not here.
    #[error("snapshot {parent} is not in this store, so there is no delta to it: use --full")]
    NoParent {
        /// The snapshot.
        parent: ArchiveId,
    },
    /// A delta was asked for to its own snapshot, or to a younger one.
    #[error("a delta of {id} needs an older snapshot than {parent} as its parent")]
    ParentNotOlder {
        /// The snapshot.
        id: ArchiveId,
        /// The one in the archive that was named.
        parent: ArchiveId,
    },
    /// The session's id cannot be part of a name.
    #[error(transparent)]
    Name(#[from] super::name::NameError),
    /// A session could not be read or made.
    #[error(transparent)]
    Snapshot(SnapshotError),
    /// The store could not be used.
    #[error(transparent)]
    Store(StoreError),
    /// The contents of a file could not be read from the store.
    #[error("cannot read the contents of {}: {source}", Shown::path(path))]
    Contents {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: StoreError,
    },
    /// A file system call failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The caller asked to stop.
    #[error("stopped")]
    Cancelled,
}

impl ArchiveError {
    pub(super) fn corrupt(reason: impl Into<String>) -> Self {
        Self::Corrupt { reason: reason.into() }
    }

    /// Whether the caller asked to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled)
    }
}

impl From<StoreError> for ArchiveError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled,
            error => Self::Store(error),
        }
    }
}

impl From<SnapshotError> for ArchiveError {
    fn from(error: SnapshotError) -> Self {
        Self::Snapshot(error)
    }
}

impl From<ManifestError> for ArchiveError {
    fn from(error: ManifestError) -> Self {
        Self::Snapshot(error.into())
    }
}
