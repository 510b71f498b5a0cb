//! The errors of remotes.

use std::path::PathBuf;

use crate::ArchiveError;
use nono_engine::path_text::Shown;
use nono_engine::sys;
use nono_engine::verify::VerifyError;

use super::AddressError;

/// Why something failed at a remote.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A text is no address of a remote.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The settings of a place are not usable, such as missing credentials.
    #[error("cannot use {place}: {reason}")]
    Setup {
        /// The address.
        place: String,
        /// The reason, without credentials.
        reason: String,
    },
    /// The directory of a remote does not exist.
    #[error("the directory {place} does not exist")]
    NoDirectory {
        /// The directory.
        place: String,
    },
    /// The place answered with an error, or did not answer, also after several attempts.
    #[error("cannot {operation} {} at {place}: {reason}", Shown::bytes(object.as_bytes()))]
    Failed {
        /// The verb, such as `read` or `store`.
        operation: &'static str,
        /// The name of the archive, or what else was concerned.
        object: String,
        /// The address.
        place: String,
        /// The reason, without credentials.
        reason: String,
    },
    /// The place does not have the archive.
    #[error("{} is not at {place}", Shown::bytes(object.as_bytes()))]
    Missing {
        /// The name of the archive.
        object: String,
        /// The address.
        place: String,
    },
    /// A local file or directory could not be used.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The source of the bytes failed: nothing was stored.
    #[error("the archive is not complete: {0}")]
    Source(std::io::Error),
    /// A snapshot cannot be had.
    #[error("{snapshot} cannot be had from {place}: {}", Shown::bytes(reason.as_bytes()))]
    Unavailable {
        /// The snapshot, as `SESSION/NUMBER`.
        snapshot: String,
        /// The address.
        place: String,
        /// The missing part.
        reason: String,
    },
    /// Another store went on with the session.
    #[error(
        "session {session} goes on differently at {place}: its snapshot {number} there is not the \
         one here, and nothing is replaced, here or there; {advice}"
    )]
    Diverged {
        /// The session.
        session: String,
        /// The newest snapshot that both have, and that differs.
        number: u64,
        /// The address.
        place: String,
        /// The commands that keep both histories.
        advice: String,
    },
    /// The name of an archive is taken by what is none.
    #[error(
        "{} at {place} is no archive that can be used ({}): remove it, then push again",
        Shown::bytes(archive.as_bytes()),
        Shown::bytes(reason.as_bytes())
    )]
    Unusable {
        /// The name.
        archive: String,
        /// The address.
        place: String,
        /// The defect.
        reason: String,
    },
    /// The key of a place with a passphrase does not open.
    #[error("{key} at {place}, the key of its archives, cannot be used: {reason}")]
    Key {
        /// The name.
        key: &'static str,
        /// The address.
        place: String,
        /// The reason.
        reason: String,
    },
    /// An archive could not be written or read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A session that is here cannot be used, so nothing can be added to it.
    #[error("{reason}; move {} away, then pull again", Shown::path(session))]
    UnusableHere {
        /// Its directory.
        session: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The session here cannot be verified.
    #[error(transparent)]
    Verify(VerifyError),
    /// The caller asked to stop.
    #[error("stopped")]
    Cancelled,
}

impl From<VerifyError> for RemoteError {
    fn from(error: VerifyError) -> Self {
        match error {
            VerifyError::Cancelled => Self::Cancelled,
            error => Self::Verify(error),
        }
    }
}

impl RemoteError {
    /// Whether the caller asked to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Archive(ArchiveError::Cancelled))
    }
}
