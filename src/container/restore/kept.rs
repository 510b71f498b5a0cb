//! Originals of replacements: stopped, and kept until somebody removes them.

use bollard::query_parameters::RemoveContainerOptions;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{RestoreError, plan};
use crate::container::{ContainerError, ContainerHistory, Docker, Document, Patience};

/// The original of a replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptContainer {
    /// The engine's id.
    pub id: String,
    /// Its name since the replacement.
    pub name: String,
    /// The engine's id of the container that took its place.
    pub replaced_by: String,
    /// When that was complete.
    pub at: Timestamp,
}

/// The kept originals of a history, oldest first. Some may be gone from the engine.
///
/// # Errors
/// When the list cannot be read.
pub fn kept_containers(history: &ContainerHistory<'_>) -> Result<Vec<KeptContainer>, RestoreError> {
    let id = history.id();
    let Some(bytes) = history.storage().read(Document::Kept(&id))? else { return Ok(Vec::new()) };
    serde_json::from_slice(&bytes).map_err(|error| RestoreError::BadJournal {
        session: id.clone(),
        reason: format!("its list of kept containers: {error}"),
    })
}

/// Removes a kept original from the engine, with its anonymous volumes, and from the list. A
/// container that runs again is somebody's: it stays and leaves the list. Returns whether it was
/// removed.
///
/// # Errors
/// When the engine refuses; the list is then as it was.
pub fn remove_kept(
    docker: &Docker,
    history: &ContainerHistory<'_>,
    kept: &KeptContainer,
) -> Result<bool, RestoreError> {
    let is_removed = match docker.inspect(&kept.id) {
        Err(ContainerError::NoSuchContainer { .. }) => false,
        Err(error) => return Err(error.into()),
        Ok(found) if !matches!(&*plan::state_of(&found), "exited" | "created" | "dead") => false,
        Ok(_) => {
            let options = RemoveContainerOptions { v: true, ..Default::default() };
            let request = docker.client().remove_container(&kept.id, Some(options));
            let operation = format_args!("remove container {}", kept.name);
            docker.call(operation, Patience::Long, request)?;
            true
        }
    };
    let mut list = kept_containers(history)?;
    list.retain(|other| other.id != kept.id);
    write(history, &list)?;
    Ok(is_removed)
}

/// Adds an original to the list, once.
pub(super) fn add(history: &ContainerHistory<'_>, kept: KeptContainer) -> Result<(), RestoreError> {
    let mut list = kept_containers(history)?;
    list.retain(|other| other.id != kept.id);
    list.push(kept);
    write(history, &list)
}

fn write(history: &ContainerHistory<'_>, list: &[KeptContainer]) -> Result<(), RestoreError> {
    let bytes = serde_json::to_vec_pretty(list).map_err(|error| RestoreError::BadJournal {
        session: history.id(),
        reason: error.to_string(),
    })?;
    Ok(history.storage().write(Document::Kept(&history.id()), Some(&bytes))?)
}
