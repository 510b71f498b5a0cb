//! Whether a copy may run: not where it would write among the files of a container that is at work.
//!
//! Volumes of a copy are new ones. Bind mounts, and mounts of other kinds, are those of the
//! original: two servers would work on the same files. Mounts of `--volumes-from` count the same.

use std::path::{Path, PathBuf};

use bollard::models::MountPoint;
use serde::Serialize;

use super::{Job, RestoreError, RestoreOptions, users};
use crate::describe::{name_of_listed, real_path};
use crate::{ContainerRecord, ContainerState, Docker, MountKind, MountRecord, Patience};

/// Why a new container is not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NotStarted {
    /// The caller did not want it.
    Unwanted,
    /// The recorded container did not run.
    Idle {
        /// Its state then.
        state: ContainerState,
    },
    /// It would write where other containers are at work. Its restart policy is `no`.
    Shared {
        /// The mounts that it would share.
        mounts: Vec<SharedMount>,
    },
}

/// A mount that a new container would share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedMount {
    /// The path in the container.
    pub destination: String,
    /// The path of the engine's machine, or the name of a volume.
    pub source: String,
    /// The containers that are at work there.
    pub containers: Vec<String>,
}

/// Why a new container beside the original is not started now; `None` if it is.
///
/// # Errors
/// A failure of the engine.
pub(super) fn obstacle(
    job: Job<'_>,
    record: &ContainerRecord,
    options: &RestoreOptions,
) -> Result<Option<NotStarted>, RestoreError> {
    if !options.start {
        return Ok(Some(NotStarted::Unwanted));
    }
    let mounts = if options.share_mounts { Vec::new() } else { shared(job.docker, record)? };
    Ok(match record.state {
        _ if !mounts.is_empty() => Some(NotStarted::Shared { mounts }),
        state @ (ContainerState::Exited | ContainerState::Created) => {
            Some(NotStarted::Idle { state })
        }
        ContainerState::Running | ContainerState::Paused => None,
    })
}

/// The mounts of a copy that containers at work have, too.
///
/// # Errors
/// A failure of the engine.
pub(super) fn shared(
    docker: &Docker,
    record: &ContainerRecord,
) -> Result<Vec<SharedMount>, RestoreError> {
    let is_kept = |mount: &&MountRecord| {
        let is_copied = mount.kind.is_volume() || mount.kind == MountKind::Tmpfs;
        !is_copied && !mount.read_only
    };
    let kept: Vec<&MountRecord> = record.mounts.iter().filter(is_kept).collect();
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    let mut used: Vec<(String, Used)> = Vec::new();
    for container in users::active_containers(docker)? {
        for mount in container.mounts.iter().flatten() {
            used.push((name_of_listed(&container), Used::of(docker, mount)?));
        }
    }
    let mut shared = Vec::new();
    for mount in kept {
        let source = mount.source.as_deref().or(mount.volume.as_deref()).unwrap_or_default();
        let place = real_path(source);
        let meets = |used: &&(String, Used)| used.1.meets(source, &place);
        let mut containers: Vec<String> =
            used.iter().filter(meets).map(|(name, _)| name.clone()).collect();
        containers.sort();
        containers.dedup();
        if !containers.is_empty() {
            let (destination, source) = (mount.destination.clone(), source.to_owned());
            shared.push(SharedMount { destination, source, containers });
        }
    }
    Ok(shared)
}

/// The files of a mount of a container at work.
#[derive(Debug)]
struct Used {
    name: Option<String>,
    places: Vec<PathBuf>,
    is_writable: bool,
}

impl Used {
    fn of(docker: &Docker, mount: &MountPoint) -> Result<Self, RestoreError> {
        let is_volume = mount.typ.as_deref() == Some("volume");
        let name = mount.name.clone().filter(|name| !name.is_empty());
        let mut places: Vec<PathBuf> =
            mount.source.iter().map(|source| real_path(source)).collect();
        if let Some(volume) = name.as_deref().filter(|_| is_volume) {
            let request = docker.client().inspect_volume(volume);
            let operation = format_args!("look at volume {volume}");
            match docker.call(operation, Patience::Quick, request) {
                // The directory that a driver shows under the path of the volume.
                Ok(found) => places.extend(found.options.get("device").map(|it| real_path(it))),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        places.retain(|place| place.is_absolute());
        Ok(Self { name, places, is_writable: mount.rw.unwrap_or(true) })
    }

    /// Whether a mount of this source shows files of this one. One that only reads far above, or
    /// shows the whole machine, is at work nowhere in particular.
    fn meets(&self, source: &str, place: &Path) -> bool {
        if self.name.as_deref() == Some(source) {
            return true;
        }
        let is_above = |other: &PathBuf| self.is_writable && other.parent().is_some();
        place.is_absolute()
            && self.places.iter().any(|other| {
                other.starts_with(place) || (is_above(other) && place.starts_with(other))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_meet_where_one_writes_among_the_files_of_the_other() {
        let used = |place: &str, is_writable| Used {
            name: Some("named".to_owned()),
            places: vec![place.into()],
            is_writable,
        };
        for (source, other, is_writable, expected) in [
            ("/srv/data", "/srv/data", true, true),
            ("/srv/data", "/srv/data", false, true),
            ("/srv/data", "/srv/data/sub", false, true),
            ("/srv/data/sub", "/srv/data", true, true),
            ("/srv/data/sub", "/srv/data", false, false),
            ("/srv/data", "/srv/database", true, false),
            ("/srv/data", "/", true, false),
            ("named", "/elsewhere", true, true),
            ("other", "/elsewhere", true, false),
        ] {
            let found = used(other, is_writable).meets(source, Path::new(source));
            assert_eq!(found, expected, "{source} {other} {is_writable}");
        }
    }
}
