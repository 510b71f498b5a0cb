//! Why a container was not restored.

use crate::container::ContainerError;
use crate::restore::RestoreError as FileError;
use crate::snapshot::ManifestError;
use crate::store::StoreError;
use crate::sys;

/// Why a container was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The plan cannot be carried out.
    #[error("cannot restore {snapshot}: {reason}")]
    Refused {
        /// `SESSION/N`.
        snapshot: String,
        /// The obstacle, in a sentence.
        reason: String,
    },
    /// The volume read back is not the one of the snapshot.
    #[error("the restored volume {volume} differs from the snapshot: {difference}")]
    Different {
        /// The name of the volume.
        volume: String,
        /// The first difference.
        difference: String,
    },
    /// The directory of a volume cannot be reached.
    #[error(
        "the directory of volume {volume} is out of reach: {reason}; restore into a new container \
         instead (without --volumes-only)"
    )]
    OutOfReach {
        /// The name of the volume.
        volume: String,
        /// The reason.
        reason: String,
    },
    /// Another restore was interrupted.
    #[error(
        "a restore of container {name} was interrupted: finish it with `nono container resume \
         {session}`, or take it back with `nono container resume {session} --abort`"
    )]
    Interrupted {
        /// The id of the session.
        session: String,
        /// The name of the container.
        name: String,
    },
    /// Another restore is under way.
    #[error("another restore of container session {session} is under way")]
    Busy {
        /// The id of the session.
        session: String,
    },
    /// The journal cannot be used.
    #[error("the journal of the interrupted restore of {session} is damaged: {reason}")]
    BadJournal {
        /// The id of the session.
        session: String,
        /// The defect.
        reason: String,
    },
    /// What was begun could not be taken back.
    #[error(
        "{cause}; taking it back failed, too: {failure}. Take it back later with `nono container \
         resume {session} --abort`"
    )]
    HalfDone {
        /// The first failure.
        cause: Box<RestoreError>,
        /// The failure of the way back.
        failure: Box<RestoreError>,
        /// The id of the session.
        session: String,
    },
    /// The engine keeps the restart policy of the original.
    #[error(
        "this engine cannot change a restart policy, so the stopped original would start again \
         with it: restore into a new container instead (without --replace)"
    )]
    NoPolicyChange,
    /// Somebody asked to stop.
    #[error("stopped; nothing was restored")]
    Cancelled,
    /// The engine or the history failed.
    #[error(transparent)]
    Container(#[from] ContainerError),
    /// A file could not be made.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<sys::Error> for RestoreError {
    fn from(error: sys::Error) -> Self {
        ContainerError::from(error).into()
    }
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled,
            error => ContainerError::from(error).into(),
        }
    }
}

impl From<ManifestError> for RestoreError {
    fn from(error: ManifestError) -> Self {
        ContainerError::from(error).into()
    }
}

/// The maker of a tar stream panicked.
pub(super) fn stream_broke(path: &str) -> RestoreError {
    let source = std::io::Error::other("the stream broke");
    sys::Error { operation: "fill", path: path.into(), source }.into()
}
