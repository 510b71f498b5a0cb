//! From the engine's description of a container to the parts of its record.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use bollard::models::{ContainerInspectResponse, ContainerSummary, MountPoint};
use bollard::query_parameters::ListContainersOptions;

use super::docker::{Docker, Patience};
use super::error::ContainerError;
use super::record::{
    ContainerState, ImageRecord, MountKind, MountRecord, NetworkRecord, tree_name,
};
use nono_engine::sys;

/// A container that can be captured.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: ContainerState,
    pub(super) image: ImageRecord,
    pub(super) networks: Vec<NetworkRecord>,
    pub(super) mounts: Vec<MountRecord>,
    pub(super) inspected: ContainerInspectResponse,
}

/// The id of a container that can be captured, by its name or id.
///
/// # Errors
/// As [`describe`].
pub(super) fn capturable(docker: &Docker, name: &str) -> Result<String, ContainerError> {
    let inspected = docker.inspect(name)?;
    let (id, name) = names_of(&inspected, name)?;
    state_of(&inspected, &name).map(|_| id)
}

/// The id and the name of a container that was asked for by `asked`.
fn names_of(
    inspected: &ContainerInspectResponse,
    asked: &str,
) -> Result<(String, String), ContainerError> {
    let id = inspected.id.clone().ok_or_else(|| ContainerError::InvalidAnswer {
        operation: format!("look at container {asked}"),
        reason: "it has no id".to_owned(),
    })?;
    let plain = inspected.name.as_deref().unwrap_or_default().trim_start_matches('/');
    let name = if plain.is_empty() { &id } else { plain }.to_owned();
    Ok((id, name))
}

/// Describes a container by its name or id.
///
/// # Errors
/// [`ContainerError::WrongState`], and as [`Docker::inspect`].
pub(super) fn describe(docker: &Docker, name: &str) -> Result<Described, ContainerError> {
    let inspected = docker.inspect(name)?;
    let (id, name) = names_of(&inspected, name)?;
    let state = state_of(&inspected, &name)?;
    let image = image_of(docker, &inspected);
    let settings = inspected.network_settings.as_ref();
    let networks = settings.and_then(|settings| settings.networks.clone()).unwrap_or_default();
    let mut networks: Vec<_> =
        networks.into_iter().map(|(name, endpoint)| NetworkRecord { name, endpoint }).collect();
    networks.sort_by(|a, b| a.name.cmp(&b.name));
    let mut mounts: Vec<_> = inspected.mounts.iter().flatten().map(mount_of).collect();
    add_tmpfs(&inspected, &mut mounts);
    mounts.sort_by(|a, b| a.destination.cmp(&b.destination));
    name_trees(&mut mounts);
    Ok(Described { id, name, state, image, networks, mounts, inspected })
}

/// Dead, restarting and vanishing containers have no state that holds still.
fn state_of(
    inspected: &ContainerInspectResponse,
    name: &str,
) -> Result<ContainerState, ContainerError> {
    let state = inspected.state.as_ref();
    let status = state.and_then(|state| state.status).map(|status| status.to_string());
    let is = |flag: fn(&bollard::models::ContainerState) -> Option<bool>| {
        state.and_then(flag).unwrap_or(false)
    };
    let wrong = |state: &str| {
        Err(ContainerError::WrongState { name: name.to_owned(), state: state.to_owned() })
    };
    if is(|state| state.dead) {
        return wrong("dead");
    }
    if is(|state| state.restarting) {
        return wrong("restarting");
    }
    match status.as_deref() {
        Some("created" | "initialized" | "configured") => Ok(ContainerState::Created),
        Some("running") => Ok(ContainerState::Running),
        Some("paused") => Ok(ContainerState::Paused),
        Some("exited" | "stopped") => Ok(ContainerState::Exited),
        Some(other) => wrong(other),
        None => wrong("in no known state"),
    }
}

fn image_of(docker: &Docker, inspected: &ContainerInspectResponse) -> ImageRecord {
    let id = inspected.image.clone().unwrap_or_default();
    let config = inspected.config.as_ref();
    let reference = config.and_then(|config| config.image.clone()).unwrap_or_else(|| id.clone());
    // An image that was removed from under its container has no digests any more.
    let request = docker.client().inspect_image(&id);
    let found = docker.call("look at the image", Patience::Quick, request);
    let digests = found.ok().and_then(|image| image.repo_digests).unwrap_or_default();
    ImageRecord { reference, id, digests, committed: None }
}

/// The engine names volumes without a name by 64 random digits.
fn is_random(name: &str) -> bool {
    name.len() == 64
        && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// A path in a container as Docker's list of mounts has it: the request may have had `/data/` or
/// `/x/../data`. Podman keeps it as it was asked for.
pub(super) fn clean_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn mount_of(mount: &MountPoint) -> MountRecord {
    let volume = mount.name.clone().filter(|name| !name.is_empty());
    let kind = match mount.typ.as_deref() {
        Some("volume") if volume.as_deref().is_some_and(is_random) => MountKind::Anonymous,
        Some("volume") => MountKind::Volume,
        Some("bind") => MountKind::Bind,
        Some("tmpfs") => MountKind::Tmpfs,
        _ => MountKind::Other,
    };
    MountRecord {
        kind,
        volume: volume.filter(|_| kind.is_volume()),
        source: mount.source.clone().filter(|source| !source.is_empty()),
        destination: clean_path(mount.destination.as_deref().unwrap_or_default()),
        driver: mount.driver.clone().filter(|driver| !driver.is_empty()),
        read_only: !mount.rw.unwrap_or(true),
        tree: None,
    }
}

/// The mounts of `--tmpfs` are not in the engine's list.
fn add_tmpfs(inspected: &ContainerInspectResponse, mounts: &mut Vec<MountRecord>) {
    let host = inspected.host_config.as_ref();
    let tmpfs = host.and_then(|host| host.tmpfs.as_ref()).into_iter().flatten();
    let known: HashSet<String> = mounts.iter().map(|mount| mount.destination.clone()).collect();
    mounts.extend(tmpfs.filter(|(destination, _)| !known.contains(*destination)).map(
        |(destination, _)| MountRecord {
            kind: MountKind::Tmpfs,
            volume: None,
            source: None,
            destination: destination.clone(),
            driver: None,
            read_only: false,
            tree: None,
        },
    ));
}

fn name_trees(mounts: &mut [MountRecord]) {
    // One that is mounted at several places has one tree.
    let mut known: HashMap<String, String> = HashMap::new();
    for mount in mounts.iter_mut().filter(|mount| mount.kind.is_volume()) {
        if let Some(volume) = &mount.volume {
            let tree = known
                .entry(volume.clone())
                .or_insert_with(|| tree_name(mount.kind, volume, &mount.destination));
            mount.tree = Some(tree.clone());
        }
    }
}

/// The containers that run with one of these volumes, or are being stopped and may take their time.
/// Podman lists the latter among all containers alone, so some are in other states.
pub(super) fn of_volumes(
    docker: &Docker,
    volumes: &[String],
) -> Result<Vec<ContainerSummary>, ContainerError> {
    let filters = Some(HashMap::from([("volume".to_owned(), volumes.to_vec())]));
    let options = ListContainersOptions { all: docker.is_podman(), filters, ..Default::default() };
    let request = docker.client().list_containers(Some(options));
    docker.call("list the containers", Patience::Quick, request)
}

/// The name of a container in a list, without a slash; its id if it has none.
pub(super) fn name_of_listed(container: &ContainerSummary) -> String {
    let name = container.names.iter().flatten().next().or(container.id.as_ref());
    name.map_or_else(String::new, |name| name.trim_start_matches('/').to_owned())
}

/// Whether a mount shows the volume, or a part of it. One that shows a directory far above, such as
/// the whole machine, is no use of the volume. `place`: the directory of the volume.
pub(super) fn is_mount_of(mount: &MountPoint, volume: &str, place: Option<&Path>) -> bool {
    let source = mount.source.as_deref().filter(|source| source.starts_with('/'));
    mount.name.as_deref() == Some(volume)
        || source.zip(place).is_some_and(|(source, place)| real_path(source).starts_with(place))
}

/// The path without symlinks, where it is on this machine.
pub(super) fn real_path(path: &str) -> PathBuf {
    sys::real_path(Path::new(path)).unwrap_or_else(|_| path.into())
}

/// Names of the other containers that run with a volume of this one, and can write there: none of
/// them stands still while this one does.
pub(super) fn other_writers(
    docker: &Docker,
    described: &Described,
) -> Result<Vec<String>, ContainerError> {
    let own = described.mounts.iter().filter_map(|mount| {
        let place = mount.source.as_deref().map(real_path).filter(|place| place.is_absolute());
        Some((mount.volume.as_deref()?, place))
    });
    let own: Vec<(&str, Option<PathBuf>)> = own.collect();
    if own.is_empty() {
        return Ok(Vec::new());
    }
    // All containers: the engine finds no bind mount by the name of a volume.
    let options = ListContainersOptions { all: docker.is_podman(), ..Default::default() };
    let request = docker.client().list_containers(Some(options));
    let listed = docker.call("list the containers", Patience::Quick, request)?;
    let writes = |container: &ContainerSummary| {
        let state = container.state.map(|state| state.to_string());
        let is_running = matches!(state.as_deref(), Some("running" | "stopping"));
        let mut mounts = container.mounts.iter().flatten();
        let is_shared = mounts.any(|mount| {
            mount.rw.unwrap_or(true)
                && own.iter().any(|(volume, place)| is_mount_of(mount, volume, place.as_deref()))
        });
        is_running && is_shared && container.id.as_deref() != Some(&*described.id)
    };
    let mut names: Vec<String> = listed.iter().filter(|c| writes(c)).map(name_of_listed).collect();
    names.sort();
    Ok(names)
}

/// The gaps of a snapshot of the container, and what a restore elsewhere would miss.
pub(super) fn gaps(described: &Described) -> (Vec<String>, Vec<String>) {
    let (mut not_captured, mut warnings) = (Vec::new(), Vec::new());
    if matches!(described.state, ContainerState::Running | ContainerState::Paused) {
        not_captured.push("the memory of running processes".to_owned());
        not_captured.push("open connections and sockets".to_owned());
    }
    for mount in &described.mounts {
        let destination = &mount.destination;
        match mount.kind {
            MountKind::Tmpfs => not_captured.push(format!("the files in memory at {destination}")),
            MountKind::Bind => {
                let source = mount.source.as_deref().unwrap_or("an unknown path");
                not_captured.push(format!("the contents of the bind mount {destination}"));
                warnings.push(format!(
                    "{destination} is the path {source} of this machine: it is not portable, and \
                     its contents are not in the snapshot"
                ));
            }
            MountKind::Other => {
                not_captured.push(format!("the contents of the mount {destination}"));
            }
            MountKind::Volume | MountKind::Anonymous => {}
        }
    }
    if described.mounts.iter().any(|mount| mount.kind.is_volume()) {
        not_captured.push("the flags i and a of the files in volumes (chattr)".to_owned());
    }
    (not_captured, warnings)
}

#[cfg(test)]
mod tests {
    use bollard::models::{ContainerState as State, ContainerStateStatusEnum as Status};

    use super::*;

    #[test]
    fn a_container_without_a_state_that_holds_still_is_refused() {
        let found = |state| ContainerInspectResponse { state, ..Default::default() };
        let plain = |status| State { status: Some(status), ..State::default() };
        for (state, word) in [
            (Some(State { dead: Some(true), ..plain(Status::EXITED) }), "dead"),
            (Some(State { restarting: Some(true), ..plain(Status::RUNNING) }), "restarting"),
            (Some(plain(Status::REMOVING)), "removing"),
            (None, "in no known state"),
        ] {
            let refused = state_of(&found(state), "web").unwrap_err().to_string();
            assert!(refused.starts_with(&format!("container web is {word}, so")), "{refused}");
        }
        assert_eq!(
            state_of(&found(Some(plain(Status::PAUSED))), "web").unwrap(),
            ContainerState::Paused
        );
    }
}
