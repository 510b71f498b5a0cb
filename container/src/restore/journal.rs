//! The journal of a restore: a document of the history that tells the next command how to finish.
//!
//! It is written, durably, before anything is made, and again when all is made and checked. What
//! was done after that, the engine itself shows.

use std::fmt;

use bollard::models::RestartPolicy;
use serde::{Deserialize, Serialize};

use super::RestoreError;
use crate::{ContainerError, ContainerHistory, Document, Guarded, SnapshotStorage, StorageLock};
use nono_engine::path_text::Shown;
use nono_engine::snapshot::RestorationMode;

const VERSION: u32 = 1;

/// A restore that is under way, or was interrupted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) version: u32,
    pub(super) snapshot: u64,
    pub(super) mode: RestorationMode,
    pub(super) step: Step,
    /// The name of the container with the restored state, at the end.
    pub(super) name: String,
    /// The name of the new container until it takes the place of the original.
    pub(super) working_name: String,
    /// The engine's id of the new container, once all is made and checked.
    pub(super) new_id: Option<String>,
    /// Volumes that the restore makes.
    pub(super) volumes: Vec<String>,
    pub(super) start: bool,
    /// Whether the new container is started beside others that are at work in its mounts.
    #[serde(default)]
    pub(super) share_mounts: bool,
    /// The container whose place or whose volumes it is about.
    pub(super) original: Option<Original>,
    /// The facts of a restore in place.
    pub(super) in_place: Option<InPlace>,
}

/// How far a restore came for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// Volumes and the container are being made: no process uses them yet.
    Making,
    /// All is made and checked: it can be finished as well as taken back.
    Ready,
}

/// The replaced container, as it was.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Original {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) kept_as: String,
    pub(super) was_running: bool,
    pub(super) was_paused: bool,
    pub(super) restart_policy: Option<RestartPolicy>,
}

/// The volumes that get another state in place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InPlace {
    pub(super) container: String,
    /// Name, name of the contents in the snapshot, and path in the container.
    pub(super) volumes: Vec<(String, String, String)>,
    /// Device and inode of the directory of each: what was proved stays so, and an engine on a full
    /// disk proves nothing.
    #[serde(default)]
    pub(super) directories: Vec<(u64, u64)>,
    pub(super) safety_snapshot: u64,
}

impl InPlace {
    /// The names of the volumes.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.volumes.iter().map(|(name, _, _)| &**name)
    }
}

/// A restore that was interrupted. Its text is a sentence with the commands that end it.
#[derive(Debug, Clone, Serialize)]
pub struct Interrupted {
    /// The id of the session.
    pub session_id: String,
    /// The snapshot.
    pub snapshot: u64,
    /// The way.
    pub mode: RestorationMode,
    /// The name of the container.
    pub name: String,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session_id, snapshot, name, .. } = self;
        let name = Shown::bytes(name.as_bytes());
        write!(
            f,
            "a restore of container {name} from {session_id}/{snapshot} was interrupted: finish it \
             with `nono container resume {session_id}`, or take it back with `nono container \
             resume {session_id} --abort`"
        )
    }
}

/// The restore of a session that was interrupted, or is under way.
///
/// # Errors
/// When the journal cannot be read.
pub fn interrupted(history: &ContainerHistory<'_>) -> Result<Option<Interrupted>, RestoreError> {
    Ok(read(history)?.map(|journal| Interrupted {
        session_id: history.id(),
        snapshot: journal.snapshot,
        mode: journal.mode,
        name: journal.name,
    }))
}

/// The restores of a storage that were interrupted and wait for
/// [`resume()`](super::resume()). A restore that is under way is none of them. In the place of one
/// whose journal cannot be read stands the error.
///
/// # Errors
/// When the sessions cannot be listed.
pub fn unfinished(
    storage: &dyn SnapshotStorage,
) -> Result<Vec<Result<Interrupted, RestoreError>>, RestoreError> {
    let mut found = Vec::new();
    for history in ContainerHistory::all(storage)? {
        let waiting = match interrupted(&history) {
            Ok(None) => continue,
            waiting => waiting.and_then(|waiting| match lock(&history) {
                Err(RestoreError::Busy { .. }) => Ok(None),
                Err(error) => Err(error),
                // It may have come to its end meanwhile.
                Ok(_lock) => Ok(waiting.and(interrupted(&history)?)),
            }),
        };
        found.extend(waiting.transpose());
    }
    Ok(found)
}

/// The volumes among these, of a container, that a restore in place is at work on or has left half
/// done, each with the id of the history of the restore. Where the journal of the container's own
/// history cannot be read, all of them may be.
///
/// # Errors
/// When the histories cannot be listed.
pub(crate) fn half_restored(
    storage: &dyn SnapshotStorage,
    container_id: &str,
    volumes: &[&str],
) -> Result<Vec<(String, String)>, ContainerError> {
    let mut found = Vec::new();
    if volumes.is_empty() {
        return Ok(found);
    }
    for facts in storage.histories()? {
        let is_half = |volume: &str| match read_of(storage, &facts.id) {
            Ok(None) => false,
            Ok(Some(journal)) => {
                journal.in_place.iter().flat_map(InPlace::names).any(|name| name == volume)
            }
            Err(_) => facts.container.container_id == container_id,
        };
        let halves = volumes.iter().filter(|volume| is_half(volume));
        found.extend(halves.map(|volume| ((*volume).to_owned(), facts.id.clone())));
    }
    Ok(found)
}

/// Takes the lock of restores of a history.
pub(super) fn lock(history: &ContainerHistory<'_>) -> Result<StorageLock, RestoreError> {
    let id = history.id();
    let locked = history.storage().try_lock(Guarded::Restores(&id))?;
    locked.ok_or(RestoreError::Busy { session: id })
}

pub(super) fn refuse_interrupted(history: &ContainerHistory<'_>) -> Result<(), RestoreError> {
    match read(history)? {
        None => Ok(()),
        Some(journal) => {
            Err(RestoreError::Interrupted { session: history.id(), name: journal.name })
        }
    }
}

pub(super) fn read(history: &ContainerHistory<'_>) -> Result<Option<Journal>, RestoreError> {
    read_of(history.storage(), &history.id())
}

fn read_of(storage: &dyn SnapshotStorage, history: &str) -> Result<Option<Journal>, RestoreError> {
    let Some(bytes) = storage.read(Document::Restore(history))? else { return Ok(None) };
    let bad = |reason: String| RestoreError::BadJournal { session: history.to_owned(), reason };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
    if journal.version > VERSION {
        return Err(bad(format!("it has version {}", journal.version)));
    }
    Ok(Some(journal))
}

/// Writes the journal, durably.
pub(super) fn write(history: &ContainerHistory<'_>, journal: &Journal) -> Result<(), RestoreError> {
    let journal = Journal { version: VERSION, ..journal.clone() };
    let bytes = serde_json::to_vec_pretty(&journal).map_err(|error| RestoreError::BadJournal {
        session: history.id(),
        reason: error.to_string(),
    })?;
    Ok(history.storage().write(Document::Restore(&history.id()), Some(&bytes))?)
}

/// Removes the journal: the restore is complete, or taken back.
pub(super) fn remove(history: &ContainerHistory<'_>) -> Result<(), RestoreError> {
    Ok(history.storage().write(Document::Restore(&history.id()), None)?)
}
