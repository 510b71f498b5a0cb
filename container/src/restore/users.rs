//! Containers that use a volume now: they would see its files vanish, and write between them.

use std::collections::HashMap;

use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptions;

use super::{Job, RestoreError};
use crate::describe::{is_mount_of, of_volumes, real_path};
use crate::{ContainerError, Docker, Patience};

/// The containers that hold ports and volumes now: those that run or are paused. The engine is not
/// asked for others, because Podman has states of its own for them.
pub(super) fn active_containers(docker: &Docker) -> Result<Vec<ContainerSummary>, ContainerError> {
    let mut found: Vec<ContainerSummary> = Vec::new();
    let paused = HashMap::from([("status".to_owned(), vec!["paused".to_owned()])]);
    // Docker lists paused ones among the running, Podman does not.
    for filters in [None, Some(paused)] {
        let options = ListContainersOptions { filters, ..Default::default() };
        let request = docker.client().list_containers(Some(options));
        found.extend(docker.call("list the containers", Patience::Quick, request)?);
    }
    Ok(found)
}

/// All containers, whatever they do now.
pub(super) fn all_containers(docker: &Docker) -> Result<Vec<ContainerSummary>, ContainerError> {
    let options = ListContainersOptions { all: true, ..Default::default() };
    let request = docker.client().list_containers(Some(options));
    docker.call("list the containers", Patience::Quick, request)
}

/// Refuses to work on volumes that a container uses now, by name or by a path of the machine.
///
/// # Errors
/// [`RestoreError::InUse`], or a failure of the engine.
pub(super) fn refuse<'v>(
    job: Job<'_>,
    volumes: impl IntoIterator<Item = &'v str>,
) -> Result<(), RestoreError> {
    let active = active_containers(job.docker)?;
    for volume in volumes {
        let request = job.docker.client().inspect_volume(volume);
        let operation = format_args!("look at volume {volume}");
        let found = job.docker.call(operation, Patience::Quick, request)?;
        let place = real_path(&found.mountpoint);
        let of_volume = of_volumes(job.docker, &[volume.to_owned()])?;
        for container in active.iter().chain(&of_volume) {
            let is_active = container.state.is_some_and(|state| {
                matches!(&*state.to_string(), "running" | "paused" | "restarting" | "stopping")
            });
            let mut mounts = container.mounts.iter().flatten();
            if is_active && mounts.any(|mount| is_mount_of(mount, volume, Some(&place))) {
                let name = container.names.iter().flatten().next();
                let name = name.map_or("?", |name| name.trim_start_matches('/'));
                return Err(RestoreError::InUse {
                    snapshot: job.snapshot(),
                    container: name.to_owned(),
                    volume: volume.to_owned(),
                });
            }
        }
    }
    Ok(())
}
