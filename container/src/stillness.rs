//! Whether a container and its volumes stood still while they were captured.
//!
//! A look before the capture finds who is at work then, and a look after it who came meanwhile.

use std::fmt;

use super::describe::{Described, other_writers};
use super::docker::Docker;
use super::error::ContainerError;
use super::record::ContainerState;
use super::restore::half_restored;
use super::storage::SnapshotStorage;

/// Why the files of a snapshot may be from different moments. Its text is a warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Movement {
    /// The container ran, at least for a moment.
    Ran,
    /// This other container ran, and can write to a volume.
    Writer(String),
    /// A restore of a volume in place has not come to its end.
    HalfRestored {
        /// The name of the volume.
        volume: String,
        /// The id of the session of the restore.
        session: String,
    },
}

impl fmt::Display for Movement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran => f.write_str(
                "the container was running meanwhile: its files may be from different moments",
            ),
            Self::Writer(name) => write!(
                f,
                "container {name} was running with a volume of this one: files of the volume may \
                 be from different moments"
            ),
            Self::HalfRestored { volume, session } => write!(
                f,
                "volume {volume} is between two states, because a restore of it was interrupted: \
                 end it with `nono container resume {session}`"
            ),
        }
    }
}

/// Other containers that may change the volumes of a container now.
fn others(
    docker: &Docker,
    storage: &dyn SnapshotStorage,
    described: &Described,
) -> Result<Vec<Movement>, ContainerError> {
    let volumes: Vec<&str> =
        described.mounts.iter().filter_map(|mount| mount.volume.as_deref()).collect();
    let halves = half_restored(storage, &described.id, &volumes)?;
    let halves =
        halves.into_iter().map(|(volume, session)| Movement::HalfRestored { volume, session });
    let writers = other_writers(docker, described)?;
    Ok(writers.into_iter().map(Movement::Writer).chain(halves).collect())
}

/// A look at the surroundings of a capture.
#[derive(Debug)]
pub(super) struct Stillness<'a> {
    docker: &'a Docker,
    storage: &'a dyn SnapshotStorage,
    described: &'a Described,
    moved: Vec<Movement>,
}

impl<'a> Stillness<'a> {
    /// Looks before the capture.
    ///
    /// # Errors
    /// When the engine or the storage does not answer.
    pub(super) fn begin(
        docker: &'a Docker,
        storage: &'a dyn SnapshotStorage,
        described: &'a Described,
    ) -> Result<Self, ContainerError> {
        let moved = others(docker, storage, described)?;
        Ok(Self { docker, storage, described, moved })
    }

    /// Looks after the capture, and before a paused container goes on.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(super) fn end(self) -> Result<Vec<Movement>, ContainerError> {
        let mut moved = self.moved;
        for movement in others(self.docker, self.storage, self.described)? {
            if !moved.contains(&movement) {
                moved.push(movement);
            }
        }
        Ok(moved)
    }
}

/// Whether a container that nono did not pause is in another state than before, or was started
/// since. One of which nothing can be found out may be.
pub(super) fn has_run(docker: &Docker, described: &Described) -> bool {
    let facts = |inspected: &bollard::models::ContainerInspectResponse| {
        let state = inspected.state.clone().unwrap_or_default();
        (state.status, state.started_at)
    };
    let now = docker.inspect(&described.id);
    described.state == ContainerState::Running
        || now.map_or(true, |now| facts(&now) != facts(&described.inspected))
}
