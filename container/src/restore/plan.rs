//! The plan of a restore. Making one asks the engine and changes nothing. What a restore would
//! refuse before its first change, the plan refuses.

use std::collections::BTreeMap;

use bollard::models::{ContainerInspectResponse, PortMap};
use bollard::query_parameters::InspectNetworkOptions;
use jiff::Zoned;
use serde::Serialize;

use super::contents::Contents;
pub use super::ports::PlannedPort;
use super::{
    Job, NotStarted, RestoreError, RestoreOptions, Way, journal, kept, names, ports, reach,
    sharing, survey, users,
};
use crate::{
    ContainerError, ContainerHistory, ContainerRecord, Docker, INCONSISTENT, MountKind,
    MountRecord, Patience,
};
use nono_engine::snapshot::{RestorationMode, VolumeSource};

/// Attempts to find a name that is free.
const ATTEMPTS: u32 = 1000;

/// The plan of a restore.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContainerPlan {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// Whether the container stood still during the snapshot.
    pub is_consistent: bool,
    /// The way.
    pub mode: RestorationMode,
    /// The engine's id of the recorded container, or of the one that a restore put in its place.
    pub original_id: String,
    /// The name of that container now, or in the snapshot if it is gone.
    pub original_name: String,
    /// The state of that container now; `None` if it is gone.
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
    /// Why a new container beside the original is not started.
    pub not_started: Option<NotStarted>,
    /// Warnings for the user, in sentences.
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
    journal::refuse_interrupted(job.history)?;
    let record = job.history.record(job.number)?;
    let refused = |reason: String| RestoreError::Refused { snapshot: job.snapshot(), reason };
    let original_id = match options.way {
        Way::New => record.container_id.clone(),
        _ => kept::holder(job)?,
    };
    let original = match job.docker.inspect(&original_id) {
        Ok(found) => Some(found),
        Err(ContainerError::NoSuchContainer { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let original_name = original.as_ref().and_then(name_of).unwrap_or(&record.name);
    let state = original.as_ref().map(state_of);
    let mut plan = ContainerPlan {
        session_id: job.history.id(),
        snapshot: job.number,
        is_consistent: record.is_consistent,
        mode: options.way.mode(),
        original_id,
        original_name: original_name.to_owned(),
        original_state: state.clone(),
        name: original_name.to_owned(),
        image: String::new(),
        volumes: Vec::new(),
        ports: Vec::new(),
        port_bindings: PortMap::new(),
        will_start: options.start,
        not_started: None,
        warnings: Vec::new(),
    };
    if !record.is_consistent {
        plan.warnings.push(format!("snapshot {} is {INCONSISTENT}", job.snapshot()));
    }
    if let Way::VolumesOnly(wanted) = &options.way {
        plan.will_start = false;
        let state =
            state.ok_or_else(|| refused(format!("its container {} is gone", record.name)))?;
        if !matches!(&*state, "exited" | "created") {
            let reason = format!("container {original_name} is {state}: stop it first");
            return Err(refused(reason));
        }
        plan.volumes = chosen_volumes(&record, wanted).map_err(refused)?;
        if let Some(original) =
            original.as_ref().filter(|_| plan.original_id != record.container_id)
        {
            for volume in &mut plan.volumes {
                place_in(original, volume).map_err(refused)?;
            }
        }
        check_in_place(job, &plan)?;
        if record.volume_source == Some(VolumeSource::Archive) {
            plan.warnings.push(
                "the snapshot came through the engine: extended attributes, ACLs, sockets and \
                 times below a second of the present files are in the snapshot before alone"
                    .to_owned(),
            );
        }
        return Ok(plan);
    }
    let containers = users::active_containers(job.docker)?;
    if options.way == Way::Replace {
        let Some(original) = &original else {
            let reason =
                format!("its container {} is gone: restore it without --replace", record.name);
            return Err(refused(reason));
        };
        refuse_unreplaceable(original, original_name).map_err(refused)?;
        plan.will_start = true;
    } else {
        plan.not_started = sharing::obstacle(job, &record, options)?;
        plan.will_start = plan.not_started.is_none();
        plan.name = new_name(job.docker, &record.name, options.name.as_deref()).map_err(refused)?;
    }
    let lacks;
    (plan.image, lacks) = image(job, &record)?;
    plan.warnings.extend(lacks);
    plan.volumes = new_volumes(job, &record, &options.way)?;
    warn(&record, &mut plan);
    refuse_missing_networks(job, &record)?;
    let replaced = (options.way == Way::Replace).then_some(&*plan.original_id);
    let held = ports::held(&containers, |id| Some(id) == replaced);
    let bindings = record.host_config.port_bindings.clone().unwrap_or_default();
    (plan.port_bindings, plan.ports) = ports::planned(&bindings, &held);
    Ok(plan)
}

pub(super) fn state_of(found: &ContainerInspectResponse) -> String {
    let status = found.state.as_ref().and_then(|state| state.status);
    status.map(|status| status.to_string()).unwrap_or_default()
}

/// Whether a container was ever started.
pub(super) fn has_run(found: &ContainerInspectResponse) -> bool {
    // The engine's word for never.
    const NEVER: &str = "0001-01-01T00:00:00Z";
    let started = found.state.as_ref().and_then(|state| state.started_at.as_deref());
    started.is_some_and(|started| !started.is_empty() && started != NEVER)
}

/// The name of a container, without a slash.
pub(super) fn name_of(found: &ContainerInspectResponse) -> Option<&str> {
    found.name.as_deref().map(|name| name.trim_start_matches('/'))
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
        // An uncaptured mount stays with a container that takes the place of the original.
        let is_new = mount.tree.is_some() || *way != Way::Replace;
        let name = match named.get(original) {
            Some(name) => name.clone(),
            None if is_new => {
                let is_taken = |name: &str| named.values().any(|taken| taken == name);
                free_volume(job, &record.name, original, mount, is_taken)?
            }
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
    is_taken: impl Fn(&str) -> bool,
) -> Result<String, RestoreError> {
    let session = job.history.id();
    let place = mount.tree.as_deref().unwrap_or(&mount.destination);
    for attempt in 1..ATTEMPTS {
        let name = names::volume(container, original, place, (&session, job.number), attempt);
        if is_taken(&name) {
            continue;
        }
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

/// Gives a volume the place that it has in the container that follows the recorded one: the volume
/// of this name, or else the one at this path.
fn place_in(found: &ContainerInspectResponse, volume: &mut PlannedVolume) -> Result<(), String> {
    let mounts: Vec<_> = found
        .mounts
        .iter()
        .flatten()
        .filter_map(|mount| {
            Some((mount.name.as_deref()?, mount.destination.as_deref()?, mount.rw != Some(true)))
        })
        .collect();
    let by_name = mounts.iter().find(|(name, ..)| *name == volume.original);
    let by_path = || mounts.iter().find(|(_, path, _)| *path == volume.destination);
    let Some((name, path, is_read_only)) = by_name.or_else(by_path) else {
        let container = name_of(found).unwrap_or_default();
        return Err(format!(
            "container {container}, which has its place, has neither the volume {} nor one at {}",
            volume.original, volume.destination
        ));
    };
    (*name).clone_into(&mut volume.name);
    (*path).clone_into(&mut volume.destination);
    volume.is_read_only = *is_read_only;
    Ok(())
}

/// Refuses what a restore in place would refuse.
fn check_in_place(job: Job<'_>, plan: &ContainerPlan) -> Result<(), RestoreError> {
    users::refuse(job, plan.volumes.iter().map(|volume| &*volume.name))?;
    for history in ContainerHistory::all(job.history.storage())? {
        // A damaged journal is told by every command.
        let Ok(Some(other)) = journal::read(&history) else { continue };
        let names = other.in_place.iter().flat_map(|in_place| in_place.names());
        let is_meant = |name: &&str| plan.volumes.iter().any(|volume| volume.name == *name);
        if let Some(volume) = names.into_iter().find(is_meant) {
            let session = history.id();
            let reason = format!(
                "a restore of volume {volume} for container {} is not at its end: type `nono \
                 container resume {session}` first",
                other.name
            );
            return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
        }
    }
    for (volume, tree) in plan.filled() {
        let (name, container) = (&volume.name, &plan.original_id);
        let dir = reach::seen_directory(job.docker, name, container, &volume.destination);
        let dir = dir.map_err(|reason| RestoreError::Refused {
            snapshot: job.snapshot(),
            reason: format!(
                "the directory of volume {name} is out of reach: {reason}; restore into a new \
                 container instead (without --volumes-only)"
            ),
        })?;
        let contents = Contents::read(job.history, job.number, tree)?;
        survey::refuse(job, name, &dir, &contents)?;
    }
    Ok(())
}
