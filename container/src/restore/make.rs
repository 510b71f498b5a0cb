//! Making a container and its volumes: created, filled, read back, and not started before.

use bollard::models::{ContainerInspectResponse, NetworkConnectRequest, VolumeCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptions, RemoveContainerOptions, RemoveVolumeOptions, StartContainerOptions,
};

use super::contents::Contents;
use super::create::{self, Request};
use super::journal::{self, Journal, Step};
use super::plan::{self, ContainerPlan};
use super::{Job, NotStarted, RestoreError, RestoreOptions, RestoreReport, compare, sharing};
use super::{fill_archive, fill_directory, reach, replace};
use crate::volumes::OWNER_OPTION;
use crate::{ContainerError, ContainerRecord, Docker, LABEL_RESTORED_FROM, Patience};
use nono_engine::snapshot::RestorationMode;
use nono_engine::sys;

/// A container that was made and not started.
pub(super) struct Made {
    pub(super) id: String,
    pub(super) not_made: Vec<String>,
}

/// Makes a container beside the original.
pub(super) fn beside(
    job: Job<'_>,
    mut plan: ContainerPlan,
    options: &RestoreOptions,
) -> Result<RestoreReport, RestoreError> {
    let mut journal = Journal {
        version: 0,
        snapshot: job.number,
        mode: RestorationMode::New,
        step: Step::Making,
        name: plan.name.clone(),
        working_name: plan.name.clone(),
        new_id: None,
        volumes: plan.new_volumes(),
        start: plan.will_start,
        share_mounts: options.share_mounts,
        original: None,
        in_place: None,
    };
    journal::write(job.history, &journal)?;
    let made = make(job, &plan, &plan.name).and_then(|made| {
        journal.step = Step::Ready;
        journal.new_id = Some(made.id.clone());
        journal::write(job.history, &journal)?;
        if plan.will_start {
            plan.not_started = start_beside(job, &journal, &made.id)?;
            plan.will_start = plan.not_started.is_none();
        }
        job.note(RestorationMode::New, &made.id, &plan.name)?;
        sys::before_request("container-restore-end")?;
        Ok(made)
    });
    let made = match made {
        Ok(made) => made,
        Err(cause) => return Err(taken_back(job, &journal, cause)),
    };
    journal::remove(job.history)?;
    Ok(RestoreReport {
        dry_run: false,
        published: published(job.docker, &made.id)?,
        container_id: Some(made.id),
        is_started: plan.will_start,
        not_made: made.not_made,
        ..RestoreReport::dry_run(plan)
    })
}

/// The error after what was made is gone again.
pub(super) fn taken_back(job: Job<'_>, journal: &Journal, cause: RestoreError) -> RestoreError {
    match remove_new(job, journal).and_then(|()| journal::remove(job.history)) {
        Ok(()) => cause.taken_back(),
        Err(failure) => RestoreError::HalfDone {
            cause: cause.into(),
            failure: failure.into(),
            session: job.history.id(),
        },
    }
}

/// Makes the volumes and the container of a plan.
pub(super) fn make(job: Job<'_>, plan: &ContainerPlan, name: &str) -> Result<Made, RestoreError> {
    let record = job.history.record(job.number)?;
    let mut not_made = Vec::new();
    let mut through_engine = Vec::new();
    for volume in plan.new_volumes() {
        let contents = plan.filled().find(|(filled, _)| filled.name == volume);
        create_volume(job, &volume, contents.map(|(_, tree)| tree))?;
    }
    sys::before_request("container-restore-fill")?;
    for (volume, tree) in plan.filled() {
        let contents = Contents::read(job.history, job.number, tree)?;
        match reach::directory(job.docker, &volume.name) {
            Ok(dir) => {
                let names = (&*volume.name, name);
                let filled = fill_directory::fill(&contents, &dir, job.progress);
                not_made.extend(filled.map_err(|e| e.of_volume("fill", names, Some(&dir)))?);
                let compared = compare::directory(&contents, &volume.name, &dir, job.progress);
                compared.map_err(|e| e.of_volume("check", names, None))?;
            }
            Err(_) => through_engine.push((volume, contents)),
        }
    }
    sys::before_request("container-restore-create")?;
    let is_sealed = record.host_config.readonly_rootfs == Some(true);
    let has_read_only = through_engine.iter().any(|(volume, _)| is_sealed || volume.is_read_only);
    let mut id = create(job, &record, plan, name, !has_read_only)?;
    for (volume, contents) in &through_engine {
        let path = &volume.destination;
        let filled = fill_archive::fill(contents, job.docker, &id, path, job.progress);
        not_made.extend(filled.map_err(|e| e.of_volume("fill", (&volume.name, name), None))?);
    }
    sys::before_request("container-restore-check")?;
    for (volume, contents) in &through_engine {
        let path = &volume.destination;
        compare::archive(contents, &volume.name, job.docker, &id, path, job.progress)?;
    }
    if has_read_only {
        // The engine writes to nothing read-only, so that container was writable.
        remove_container(job.docker, &id)?;
        id = create(job, &record, plan, name, true)?;
    }
    Ok(Made { id, not_made })
}

fn create_volume(job: Job<'_>, name: &str, tree: Option<&str>) -> Result<(), RestoreError> {
    sys::before_request("container-restore-volume")?;
    let labels = [(LABEL_RESTORED_FROM.to_owned(), job.snapshot())];
    let mut options = None;
    if let Some(tree) = tree.filter(|_| job.docker.is_podman()) {
        let (root, _) = job.history.volume(job.number, tree)?;
        // At the first start Podman gives the root of a volume the owner that it has in the image,
        // unless the volume was made with an owner.
        let owner = format!("uid={},gid={}", root.uid, root.gid);
        options = Some([(OWNER_OPTION.to_owned(), owner)].into_iter().collect());
    }
    let request = VolumeCreateRequest {
        driver_opts: options,
        name: Some(name.to_owned()),
        labels: Some(labels.into_iter().collect()),
        ..Default::default()
    };
    let request = job.docker.client().create_volume(request);
    let operation = format_args!("create volume {name}");
    let made = job.docker.call(operation, Patience::Quick, request)?;
    // The engine gives an existing volume of that name, too.
    if made.labels.get(LABEL_RESTORED_FROM) != Some(&job.snapshot()) {
        let reason = format!("a volume {name} was made by another program meanwhile");
        return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
    }
    Ok(())
}

fn create(
    job: Job<'_>,
    record: &ContainerRecord,
    plan: &ContainerPlan,
    name: &str,
    read_only: bool,
) -> Result<String, RestoreError> {
    let Request { body, more_networks } = create::request(record, plan, read_only);
    let options = CreateContainerOptions { name: Some(name.to_owned()), ..Default::default() };
    let request = job.docker.client().create_container(Some(options), body);
    let made =
        job.docker.call(format_args!("create container {name}"), Patience::Quick, request)?;
    for (network, endpoint) in more_networks {
        let request =
            NetworkConnectRequest { container: made.id.clone(), endpoint_config: Some(endpoint) };
        let request = job.docker.client().connect_network(&network, request);
        let operation = format_args!("connect container {name} with network {network}");
        job.docker.call(operation, Patience::Quick, request)?;
    }
    Ok(made.id)
}

/// Starts a container, unless it runs.
pub(super) fn start(docker: &Docker, id: &str) -> Result<(), RestoreError> {
    sys::before_request("container-restore-start")?;
    let request = docker.client().start_container(id, None::<StartContainerOptions>);
    match docker.call(format_args!("start container {id}"), Patience::Long, request) {
        // It runs already.
        Err(ContainerError::Refused { status: 304, .. }) => Ok(()),
        answer => Ok(answer?),
    }
}

/// Starts a copy, unless a container came meanwhile with which it would share files.
pub(super) fn start_beside(
    job: Job<'_>,
    journal: &Journal,
    id: &str,
) -> Result<Option<NotStarted>, RestoreError> {
    if !journal.share_mounts {
        let mut mounts = sharing::shared(job.docker, &job.history.record(job.number)?)?;
        // It may have been started already, and is no other container then.
        mounts.retain_mut(|mount| {
            mount.containers.retain(|name| *name != journal.name);
            !mount.containers.is_empty()
        });
        if !mounts.is_empty() {
            match replace::set_restart_policy(job.docker, id, replace::no_restart()) {
                // Such an engine starts no container again that was never started.
                Err(RestoreError::NoPolicyChange) => {}
                done => done?,
            }
            return Ok(Some(NotStarted::Shared { mounts }));
        }
    }
    start(job.docker, id).map(|()| None)
}

/// The container that a restore made, if it is there.
fn made_by(
    job: Job<'_>,
    journal: &Journal,
) -> Result<Option<ContainerInspectResponse>, RestoreError> {
    let name = journal.new_id.as_deref().unwrap_or(&journal.working_name);
    let found = match job.docker.inspect(name) {
        Err(ContainerError::NoSuchContainer { .. }) => return Ok(None),
        found => found?,
    };
    let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
    let origin = labels.and_then(|labels| labels.get(LABEL_RESTORED_FROM));
    Ok((origin == Some(&job.snapshot())).then_some(found))
}

/// Whether the container that a restore made was ever started: it may have worked since.
pub(super) fn has_worked(job: Job<'_>, journal: &Journal) -> Result<bool, RestoreError> {
    Ok(made_by(job, journal)?.is_some_and(|found| plan::has_run(&found)))
}

/// Puts the container that a restore made out of the way, and keeps it with its volumes: stopped,
/// under its first name. Returns that name, if it is there. Can be repeated.
pub(super) fn put_aside(job: Job<'_>, journal: &Journal) -> Result<Option<String>, RestoreError> {
    let Some(found) = made_by(job, journal)? else { return Ok(None) };
    let id = found.id.as_deref().unwrap_or(&journal.working_name);
    let no_restart = replace::no_restart();
    match replace::set_restart_policy(job.docker, id, no_restart) {
        // It stays stopped, then, until the engine is started again.
        Err(RestoreError::NoPolicyChange) => {}
        done => done?,
    }
    replace::stop(job.docker, id)?;
    replace::rename(job.docker, id, &journal.working_name)?;
    Ok(Some(journal.working_name.clone()))
}

/// Removes what a restore made, and nothing else.
pub(super) fn remove_new(job: Job<'_>, journal: &Journal) -> Result<(), RestoreError> {
    if let Some(found) = made_by(job, journal)? {
        remove_container(job.docker, found.id.as_deref().unwrap_or(&journal.working_name))?;
    }
    for volume in &journal.volumes {
        remove_volume(job, volume)?;
    }
    Ok(())
}

fn remove_container(docker: &Docker, id: &str) -> Result<(), RestoreError> {
    let options = RemoveContainerOptions { force: true, ..Default::default() };
    let request = docker.client().remove_container(id, Some(options));
    match docker.call(format_args!("remove container {id}"), Patience::Long, request) {
        Err(error) if error.is_not_found() => Ok(()),
        answer => Ok(answer?),
    }
}

fn remove_volume(job: Job<'_>, name: &str) -> Result<(), RestoreError> {
    let request = job.docker.client().inspect_volume(name);
    let operation = format_args!("look at volume {name}");
    let found = match job.docker.call(operation, Patience::Quick, request) {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => answer?,
    };
    if found.labels.get(LABEL_RESTORED_FROM) != Some(&job.snapshot()) {
        return Ok(());
    }
    let request = job.docker.client().remove_volume(name, None::<RemoveVolumeOptions>);
    match job.docker.call(format_args!("remove volume {name}"), Patience::Long, request) {
        Err(error) if error.is_not_found() => Ok(()),
        answer => Ok(answer?),
    }
}

/// The ports of a container, and the places where they are reached.
pub(super) fn published(docker: &Docker, id: &str) -> Result<Vec<(String, String)>, RestoreError> {
    let settings = docker.inspect(id)?.network_settings;
    let ports = settings.and_then(|settings| settings.ports).unwrap_or_default();
    let mut published = Vec::new();
    for (port, places) in ports {
        for place in places.iter().flatten() {
            let ip = place.host_ip.as_deref().unwrap_or_default();
            let number = place.host_port.as_deref().unwrap_or_default();
            published.push((port.clone(), format!("{ip}:{number}")));
        }
    }
    published.sort();
    Ok(published)
}
