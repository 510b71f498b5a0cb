//! Why work on a container failed.

use std::path::PathBuf;
use std::time::Duration;

use nono_engine::path_text::Shown;
use nono_engine::snapshot::{ManifestError, SnapshotError};
use nono_engine::store::StoreError;
use nono_engine::sys;

/// Why work on a container failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContainerError {
    /// No daemon was found.
    #[error("no container engine was found: there is no socket at {}", tried.join(", "))]
    NoDaemon {
        /// The places that were looked at.
        tried: Vec<String>,
    },
    /// The place of the daemon cannot be used.
    #[error("cannot connect to {endpoint}: {reason}")]
    BadEndpoint {
        /// The place.
        endpoint: String,
        /// The reason.
        reason: String,
    },
    /// The daemon does not answer, or the connection broke.
    #[error("cannot {operation}: the container engine at {endpoint} cannot be reached: {reason}")]
    Unreachable {
        /// The operation.
        operation: String,
        /// The place of the daemon.
        endpoint: String,
        /// The reason.
        reason: String,
    },
    /// The daemon did not answer in time.
    #[error(
        "cannot {operation}: the container engine at {endpoint} gave no answer within {} s",
        limit.as_secs()
    )]
    TimedOut {
        /// The operation.
        operation: String,
        /// The place of the daemon.
        endpoint: String,
        /// The limit.
        limit: Duration,
    },
    /// The daemon refused.
    #[error("cannot {operation}: the container engine answers {status}: {message}")]
    Refused {
        /// The operation.
        operation: String,
        /// The HTTP status.
        status: u16,
        /// The words of the daemon.
        message: String,
    },
    /// The image of a container has as many layers as the engine allows.
    #[error(
        "cannot make an image of container {container}: its own image has the largest number of \
         layers. `--no-image` takes the snapshot without it. A container whose image comes from \
         `docker export {container} | docker import - IMAGE` has one layer, and none of the \
         settings of the image"
    )]
    TooManyLayers {
        /// The engine's id of the container.
        container: String,
    },
    /// An answer of the daemon has not the form that the API describes.
    #[error(
        "cannot {operation}: the container engine gave an answer that nono cannot use: {reason}"
    )]
    InvalidAnswer {
        /// The operation.
        operation: String,
        /// The defect.
        reason: String,
    },
    /// The daemon knows no such container.
    #[error("there is no container {name}")]
    NoSuchContainer {
        /// The name or id.
        name: String,
    },
    /// A container in this state cannot be captured.
    #[error("container {name} is {state}, so no snapshot of it can be taken now")]
    WrongState {
        /// The name of the container.
        name: String,
        /// Its state.
        state: String,
    },
    /// No session of a container matches.
    #[error("there is no container snapshot {id}")]
    NoSuchHistory {
        /// The text that was asked for.
        id: String,
    },
    /// Several histories are of a container with this name.
    #[error(
        "{} histories are of a container {name}: {}. Name one by its id",
        ids.len(),
        ids.join(", ")
    )]
    AmbiguousName {
        /// The name.
        name: String,
        /// The ids of the histories, oldest first.
        ids: Vec<String>,
    },
    /// The id of a store is not what nono wrote.
    #[error(
        "the id of the store in {} is damaged: no image of a snapshot is made or removed",
        Shown::path(path)
    )]
    BadStorageId {
        /// Where it is.
        path: PathBuf,
    },
    /// A text is no name of a container.
    #[error(
        "{name:?} is no name of a container: a letter or digit, then letters, digits, `_`, `.` \
         and `-`"
    )]
    BadName {
        /// The text.
        name: String,
    },
    /// A session is not one of a container.
    #[error("session {id} is no history of a container")]
    NotAContainer {
        /// The id of the session.
        id: String,
    },
    /// The record of a snapshot cannot be used.
    #[error("the record of snapshot {session}/{number} is damaged: {reason}")]
    BadRecord {
        /// The id of the session.
        session: String,
        /// The number of the snapshot.
        number: u64,
        /// The defect.
        reason: String,
    },
    /// A snapshot has no such part.
    #[error("snapshot {session}/{number} has no {part}")]
    NoSuchPart {
        /// The id of the session.
        session: String,
        /// The number of the snapshot.
        number: u64,
        /// The missing part.
        part: String,
    },
    /// The journal of a pause cannot be used.
    #[error(
        "the journal of the pause of container {container} is damaged: {reason}; unpause the \
         container, and remove the file {container}.paused from `.containers` in the store"
    )]
    BadPauseJournal {
        /// The engine's id of the container.
        container: String,
        /// The defect.
        reason: String,
    },
    /// Volumes were captured from their directories, and these cannot be read now.
    #[error(
        "the volumes of {name} were captured from their directories before, and {} cannot be read \
         as a volume of this engine now: {reason}",
        Shown::path(path)
    )]
    OtherSource {
        /// The name of the container.
        name: String,
        /// The directory of the volume.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The engine shows a volume of a stopped container as an empty directory.
    #[error(
        "volume {volume} has options of its own, and Podman mounts it only while a container runs: \
         start container {name} for its snapshot"
    )]
    NotMounted {
        /// The name of the container.
        name: String,
        /// The name of the volume.
        volume: String,
    },
    /// A tar stream of the daemon is not well-formed.
    #[error("the archive of {path} in container {name} is damaged: {reason}")]
    BadArchive {
        /// The name of the container.
        name: String,
        /// The path in the container.
        path: String,
        /// The defect.
        reason: String,
    },
    /// Snapshots stay.
    #[error("nothing is removed from {session}: {reason}")]
    NotRemoved {
        /// The id of the session.
        session: String,
        /// The reason.
        reason: String,
    },
    /// A snapshot was begun, and is not there.
    #[error("{cause}; {}", state_after(name, *image_may_stay, *is_paused))]
    NotTaken {
        /// The reason.
        cause: Box<Self>,
        /// The name of the container.
        name: String,
        /// Whether an image may be left without its snapshot.
        image_may_stay: bool,
        /// Whether the container may be paused; a watcher lets it go on then.
        is_paused: bool,
    },
    /// The caller asked to stop.
    #[error("stopped; nothing was recorded")]
    Cancelled,
    /// The snapshots cannot be used.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

impl ContainerError {
    /// Whether the daemon says that the thing is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. } | Self::NoSuchContainer { .. })
    }

    /// Whether a snapshot was there and was removed.
    pub fn is_removal(&self) -> bool {
        matches!(self, Self::Manifest(ManifestError::Removed { .. }))
    }

    /// Whether the daemon says that the thing is in another state, or is in use.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { status: 304 | 409, .. })
    }
}

fn state_after(name: &str, image_may_stay: bool, is_paused: bool) -> String {
    let name = Shown::bytes(name.as_bytes());
    let mut state = format!("no snapshot of {name} was recorded");
    if image_may_stay {
        state.push_str(", an image of it may be left until `nono container cleanup`");
    }
    if is_paused {
        state.push_str(", and it may be paused: a process of nono waits to let it go on");
    }
    state
}
