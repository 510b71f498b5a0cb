//! The plan of a restore. Making one asks the engine and changes nothing.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{ContainerInspectResponse, ContainerSummary, PortMap};
use bollard::query_parameters::{InspectNetworkOptions, ListContainersOptions};
use jiff::Zoned;
use serde::Serialize;

pub use super::ports::PlannedPort;
use super::{Job, RestoreError, RestoreOptions, Way, names, ports};
use crate::container::{ContainerError, ContainerRecord, Docker, MountKind, MountRecord, Patience};
use crate::snapshot::RestorationMode;

/// Attempts to find a name that is free.
const ATTEMPTS: u32 = 1000;

/// The plan of a restore.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContainerPlan {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// The way.
    pub mode: RestorationMode,
    /// The engine's id of the recorded container.
    pub original_id: String,
    /// The name of the recorded container now, or in the snapshot if it is gone.
    pub original_name: String,
    /// The state of the recorded container now; `None` if it is gone.
    pub original_state: Option<String>,
    /// The name of the container with the restored state.
    pub name: String,
    /// The image of a new container: the engine's id.
    pub image: String,
    /// The volumes of the container, by destination.
    pub volumes: Vec<PlannedVolume>,
    /// The published ports of a new container.
    pub ports: Vec<PlannedPort>,
    /// The same in the words of the engine.
    #[serde(skip)]
    pub port_bindings: PortMap,
    /// Whether the container is started.
    pub will_start: bool,
    /// What a user should know, in sentences.
    pub warnings: Vec<String>,
}

/// A volume of the container with the restored state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlannedVolume {
    /// The name of the volume that the container will have.
    pub name: String,
    /// The name of the recorded volume.
    pub original: String,
    /// The name of its contents in the snapshot; `None` where none were captured.
    pub tree: Option<String>,
    /// The path in the container.
    pub destination: String,
    /// Whether the container cannot write there.
    pub is_read_only: bool,
    /// Whether the restore makes the volume.
    pub is_new: bool,
}

impl ContainerPlan {
    /// The volumes that are filled, each once.
    pub(super) fn filled(&self) -> impl Iterator<Item = (&PlannedVolume, &str)> {
        let is_first = |(at, volume): &(usize, &PlannedVolume)| {
            !self.volumes[..*at].iter().any(|other| other.name == volume.name)
        };
        let volumes = self.volumes.iter().enumerate().filter(is_first);
        volumes.filter_map(|(_, volume)| Some((volume, volume.tree.as_deref()?)))
    }

    /// The names of the volumes that are made, each once.
    pub(super) fn new_volumes(&self) -> Vec<String> {
        let new = self.volumes.iter().filter(|volume| volume.is_new);
        let mut names: Vec<_> = new.map(|volume| volume.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Plans a restore.
///
/// # Errors
/// [`RestoreError::Refused`] with the obstacle, or a failure of the engine or of the session.
pub fn plan(job: Job<'_>, options: &RestoreOptions) -> Result<ContainerPlan, RestoreError> {
    let record = job.history.record(job.number)?;
    let refused = |reason: String| RestoreError::Refused { snapshot: job.snapshot(), reason };
    let original = match job.docker.inspect(&record.container_id) {
        Ok(found) => Some(found),
        Err(ContainerError::NoSuchContainer { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let original_name = original.as_ref().and_then(|found| found.name.as_deref());
    let original_name = original_name.map_or(&*record.name, |name| name.trim_start_matches('/'));
    let state = original.as_ref().map(state_of);
    let mut plan = ContainerPlan {
        session_id: job.history.id(),
        snapshot: job.number,
        mode: options.way.mode(),
        original_id: record.container_id.clone(),
        original_name: original_name.to_owned(),
        original_state: state.clone(),
        name: original_name.to_owned(),
        image: String::new(),
        volumes: Vec::new(),
        ports: Vec::new(),
        port_bindings: PortMap::new(),
        will_start: options.start,
        warnings: Vec::new(),
    };
    if let Way::VolumesOnly(wanted) = &options.way {
        plan.will_start = false;
        let state =
            state.ok_or_else(|| refused(format!("its container {} is gone", record.name)))?;
        if !matches!(&*state, "exited" | "created") {
            let reason = format!("container {original_name} is {state}: stop it first");
            return Err(refused(reason));
        }
        plan.volumes = chosen_volumes(&record, wanted).map_err(refused)?;
        refuse_used(job, &plan)?;
        return Ok(plan);
    }
    let containers = active_containers(job.docker)?;
    if options.way == Way::Replace {
        let Some(original) = &original else {
            let reason =
                format!("its container {} is gone: restore it without --replace", record.name);
            return Err(refused(reason));
        };
        refuse_unreplaceable(original, original_name).map_err(refused)?;
        plan.will_start = true;
    } else {
        plan.name = new_name(job.docker, &record.name, options.name.as_deref()).map_err(refused)?;
    }
    (plan.image, plan.warnings) = image(job, &record)?;
    plan.volumes = new_volumes(job, &record, &options.way)?;
    warn(&record, &mut plan);
    refuse_missing_networks(job, &record)?;
    let replaced = (options.way == Way::Replace).then_some(&*record.container_id);
    let held = ports::held(&containers, |id| Some(id) == replaced);
    let bindings = record.host_config.port_bindings.clone().unwrap_or_default();
    (plan.port_bindings, plan.ports) = ports::planned(&bindings, &held);
    Ok(plan)
}

pub(super) fn state_of(found: &ContainerInspectResponse) -> String {
    let status = found.state.as_ref().and_then(|state| state.status);
    status.map(|status| status.to_string()).unwrap_or_default()
}

/// The containers that hold ports and volumes now: those that run or are paused. The engine is not
/// asked for others, because Podman has states of its own for them.
fn active_containers(docker: &Docker) -> Result<Vec<ContainerSummary>, ContainerError> {
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

fn refuse_unreplaceable(found: &ContainerInspectResponse, name: &str) -> Result<(), String> {
    let state = state_of(found);
    if !matches!(&*state, "running" | "paused" | "exited" | "created") {
        return Err(format!("container {name} is {state} now"));
    }
    let removes_itself = found.host_config.as_ref().and_then(|host| host.auto_remove);
    if removes_itself == Some(true) {
        return Err(format!(
            "container {name} removes itself when it stops (--rm), so it could not come back: \
             restore without --replace"
        ));
    }
    Ok(())
}

fn new_name(docker: &Docker, old: &str, wanted: Option<&str>) -> Result<String, String> {
    let is_free = |name: &str| match docker.inspect(name) {
        Ok(_) => Ok(false),
        Err(ContainerError::NoSuchContainer { .. }) => Ok(true),
        Err(error) => Err(error.to_string()),
    };
    if let Some(name) = wanted {
        let name = name.trim_start_matches('/');
        return match is_free(name)? {
            true => Ok(name.to_owned()),
            false => Err(format!("there is a container {name} already")),
        };
    }
    let now = Zoned::now();
    for attempt in 1..ATTEMPTS {
        let name = names::container(old, "restored", &now, attempt);
        if is_free(&name)? {
            return Ok(name);
        }
    }
    Err("no name is free".to_owned())
}

/// The image of a new container, and what it lacks.
fn image(job: Job<'_>, record: &ContainerRecord) -> Result<(String, Vec<String>), RestoreError> {
    let exists = |reference: &str| -> Result<Option<String>, ContainerError> {
        let request = job.docker.client().inspect_image(reference);
        let operation = format_args!("look at image {reference}");
        match job.docker.call(operation, Patience::Quick, request) {
            Ok(found) => Ok(Some(found.id.unwrap_or_else(|| reference.to_owned()))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    };
    let reference = &record.image.reference;
    if let Some(committed) = &record.image.committed {
        if let Some(id) = exists(&committed.id)? {
            return Ok((id, Vec::new()));
        }
        let reason = format!("its image {} is gone from the engine", committed.reference);
        return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
    }
    let warning = format!(
        "the snapshot has no image of its own: files outside of volumes are those of {reference}"
    );
    for name in [&record.image.id, reference] {
        if let Some(id) = exists(name)? {
            return Ok((id, vec![warning]));
        }
    }
    let reason = format!("the engine does not have its image {reference}: pull it first");
    Err(RestoreError::Refused { snapshot: job.snapshot(), reason })
}

fn new_volumes(
    job: Job<'_>,
    record: &ContainerRecord,
    way: &Way,
) -> Result<Vec<PlannedVolume>, RestoreError> {
    let mut named: BTreeMap<&str, String> = BTreeMap::new();
    let mut planned = Vec::new();
    for mount in record.mounts.iter().filter(|mount| mount.kind.is_volume()) {
        let Some(original) = mount.volume.as_deref() else { continue };
        // What was not captured stays with a container that takes the place of the original.
        let is_new = mount.tree.is_some() || *way != Way::Replace;
        let name = match named.get(original) {
            Some(name) => name.clone(),
            None if is_new => free_volume(job, &record.name, original, mount)?,
            None => original.to_owned(),
        };
        named.insert(original, name.clone());
        planned.push(PlannedVolume {
            name,
            original: original.to_owned(),
            tree: mount.tree.clone(),
            destination: mount.destination.clone(),
            is_read_only: mount.read_only,
            is_new,
        });
    }
    Ok(planned)
}

fn free_volume(
    job: Job<'_>,
    container: &str,
    original: &str,
    mount: &MountRecord,
) -> Result<String, RestoreError> {
    let session = job.history.id();
    let place = mount.tree.as_deref().unwrap_or(&mount.destination);
    for attempt in 1..ATTEMPTS {
        let name = names::volume(container, original, place, (&session, job.number), attempt);
        let request = job.docker.client().inspect_volume(&name);
        match job.docker.call(format_args!("look for volume {name}"), Patience::Quick, request) {
            Err(error) if error.is_not_found() => return Ok(name),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
    }
    let reason = format!("no name for a copy of volume {original} is free");
    Err(RestoreError::Refused { snapshot: job.snapshot(), reason })
}

fn warn(record: &ContainerRecord, plan: &mut ContainerPlan) {
    for mount in record.mounts.iter().filter(|mount| mount.kind == MountKind::Bind) {
        plan.warnings.push(format!(
            "{} is the directory or file {} of the machine, with its present contents",
            mount.destination,
            mount.source.as_deref().unwrap_or_default()
        ));
    }
    for volume in plan.volumes.iter().filter(|volume| volume.tree.is_none()) {
        plan.warnings.push(if volume.is_new {
            format!(
                "volume {} was not captured: {} begins empty",
                volume.original, volume.destination
            )
        } else {
            format!("volume {} was not captured: it keeps its present contents", volume.original)
        });
    }
}

fn refuse_missing_networks(job: Job<'_>, record: &ContainerRecord) -> Result<(), RestoreError> {
    for network in &record.networks {
        let request =
            job.docker.client().inspect_network(&network.name, None::<InspectNetworkOptions>);
        let operation = format_args!("look at network {}", network.name);
        match job.docker.call(operation, Patience::Quick, request) {
            Err(error) if error.is_not_found() => {
                let reason = format!("the network {} is gone: create it first", network.name);
                return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
            }
            answer => drop(answer?),
        }
    }
    Ok(())
}

/// The volumes that a restore in place is about.
fn chosen_volumes(
    record: &ContainerRecord,
    wanted: &[String],
) -> Result<Vec<PlannedVolume>, String> {
    let mut chosen: Vec<PlannedVolume> = Vec::new();
    for name in wanted {
        let is_meant = |mount: &&MountRecord| {
            mount.volume.as_ref() == Some(name)
                || mount.tree.as_ref() == Some(name)
                || mount.destination == *name
        };
        let mounts = record.mounts.iter().filter(|mount| mount.kind.is_volume());
        let Some(mount) = mounts.clone().find(is_meant) else {
            let known: Vec<_> = mounts.filter_map(|mount| mount.volume.as_deref()).collect();
            return Err(format!("it has no volume {name} (it has: {})", known.join(", ")));
        };
        let (Some(volume), Some(tree)) = (&mount.volume, &mount.tree) else {
            return Err(format!("the contents of volume {name} were not captured"));
        };
        if chosen.iter().any(|other| other.name == *volume) {
            continue;
        }
        chosen.push(PlannedVolume {
            name: volume.clone(),
            original: volume.clone(),
            tree: Some(tree.clone()),
            destination: mount.destination.clone(),
            is_read_only: mount.read_only,
            is_new: false,
        });
    }
    Ok(chosen)
}

/// A running container would see its files vanish, and write between them.
fn refuse_used(job: Job<'_>, plan: &ContainerPlan) -> Result<(), RestoreError> {
    for container in active_containers(job.docker)? {
        let is_active = container.state.is_some_and(|state| {
            matches!(&*state.to_string(), "running" | "paused" | "restarting")
        });
        let uses = |volume: &&PlannedVolume| {
            let mut mounts = container.mounts.iter().flatten();
            mounts.any(|mount| mount.name.as_deref() == Some(&volume.name))
        };
        if let Some(volume) = plan.volumes.iter().find(uses).filter(|_| is_active) {
            let name = container.names.iter().flatten().next();
            let name = name.map_or("?", |name| name.trim_start_matches('/'));
            let reason =
                format!("container {name} is using volume {} now: stop it first", volume.name);
            return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
        }
    }
    Ok(())
}
