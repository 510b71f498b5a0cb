//! Why a container was not restored.

use std::path::PathBuf;

use crate::ContainerError;
use nono_engine::path_text::Shown;
use nono_engine::restore::RestoreError as FileError;
use nono_engine::snapshot::ManifestError;
use nono_engine::store::StoreError;
use nono_engine::sys::{self, Dir};

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
    #[error("the directory of volume {volume} is out of reach: {reason}")]
    OutOfReach {
        /// The name of the volume.
        volume: String,
        /// The reason.
        reason: String,
    },
    /// A container uses a volume that is about to be cleared.
    #[error(
        "cannot restore {snapshot}: container {container} is using volume {volume} now: stop it \
         first, and try again"
    )]
    InUse {
        /// `SESSION/N`.
        snapshot: String,
        /// The name of the container.
        container: String,
        /// The name of the volume.
        volume: String,
    },
    /// Work on a volume failed.
    #[error("cannot {step} volume {volume} of container {container}: {cause}")]
    Volume {
        /// The step: `fill`.
        step: &'static str,
        /// The name of the volume.
        volume: String,
        /// The name of the container.
        container: String,
        /// The reason.
        cause: Box<RestoreError>,
    },
    /// The disk of a volume is full.
    #[error(
        "cannot fill volume {volume} of container {container}: the disk of {} is full",
        Shown::path(place)
    )]
    Full {
        /// The name of the volume.
        volume: String,
        /// The name of the container.
        container: String,
        /// The directory of the volume.
        place: PathBuf,
    },
    /// A failure after which everything was taken back.
    #[error("{cause}; all is as it was before")]
    TakenBack {
        /// The failure.
        cause: Box<RestoreError>,
    },
    /// A failure after which volumes stay between two states, because a container uses them.
    #[error(
        "{cause}. The volumes are between two states, and {safety} holds the state before: then \
         type `nono container resume {session}`, or `nono container resume {session} --abort`"
    )]
    Between {
        /// The failure.
        cause: Box<RestoreError>,
        /// The safety snapshot, `SESSION/N`.
        safety: String,
        /// The id of the session.
        session: String,
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
    #[error(
        "the journal of the interrupted restore of {session} is damaged: {reason}; `nono container \
         resume {session} --give-up` sets it aside, and leaves containers and volumes as they are"
    )]
    BadJournal {
        /// The id of the session.
        session: String,
        /// The defect.
        reason: String,
    },
    /// The list of kept containers cannot be used.
    #[error(
        "the list of the containers that restores of {session} put aside is damaged: {reason}; \
         `nono container resume {session} --give-up` sets it aside, and leaves the containers"
    )]
    BadKeptList {
        /// The id of the session.
        session: String,
        /// The defect.
        reason: String,
    },
    /// The begun work could not be taken back.
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
    /// There is nothing to go back to.
    #[error(
        "the original container of {name} is gone, so nothing is taken back: `nono container \
         resume {session}` lets the new one have its place, and `nono container resume {session} \
         --give-up` forgets the restore and leaves all as it is"
    )]
    OriginalGone {
        /// Its name.
        name: String,
        /// The id of the session.
        session: String,
    },
    /// A kept container stays.
    #[error("container {name} stays: {reason}")]
    NotRemoved {
        /// Its name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The engine keeps the restart policy of the original.
    #[error(
        "this engine cannot change a restart policy, so the stopped original would start again \
         with it: restore into a new container instead (without --replace)"
    )]
    NoPolicyChange,
    /// The caller asked to stop.
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

impl RestoreError {
    /// The error of a restore that was taken back.
    pub(super) fn taken_back(self) -> Self {
        match self {
            // Its text says that nothing was restored.
            Self::Cancelled => self,
            cause => Self::TakenBack { cause: cause.into() },
        }
    }

    /// Names the volume and the step; `place` is the directory that is filled.
    pub(super) fn of_volume(
        self,
        step: &'static str,
        (volume, container): (&str, &str),
        place: Option<&Dir>,
    ) -> Self {
        let (volume, container) = (volume.to_owned(), container.to_owned());
        match (self, place) {
            // These name it, or are no failure.
            (error @ (Self::Cancelled | Self::Different { .. }), _) => error,
            // Reading the store needs no room: it is the disk of the volume.
            (error, Some(place)) if is_disk_full(&error) => {
                Self::Full { volume, container, place: place.path().to_owned() }
            }
            (cause, _) => Self::Volume { step, volume, container, cause: cause.into() },
        }
    }
}

/// Whether a call failed because a disk is full.
fn is_disk_full(error: &RestoreError) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| matches!(io.kind(), QuotaExceeded | StorageFull)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The maker of a tar stream panicked.
pub(super) fn stream_broke(path: &str) -> RestoreError {
    let source = std::io::Error::other("the stream broke");
    sys::Error { operation: "fill", path: path.into(), source }.into()
}
