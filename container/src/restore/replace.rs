//! A new container in the place of the original.
//!
//! The new container is made, filled and checked under a name of its own, while the original runs.
//! Then, each step by the engine's ids and repeatable:
//!
//! 1. the original gets no restart policy and another name, and is stopped;
//! 2. the new container gets its name, is started, and has to prove that it works.
//!
//! If it does not, it is removed, and the original gets back its name, its restart policy and its
//! state. After a crash the new container may have worked for a user: then it is kept, too. The
//! restart policy matters: an original with `always` would come back with the engine and take the
//! ports.

use bollard::models::{
    ContainerInspectResponse, ContainerUpdateBody, RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::{RenameContainerOptions, StopContainerOptions};
use jiff::Zoned;

use super::health::{self, Health, HealthCheck};
use super::journal::{self, Journal, Original, Step};
use super::kept;
use super::make::{self, make};
use super::plan::{ContainerPlan, name_of, state_of};
use super::{Job, RestoreError, RestoreOptions, RestoreReport, names};
use crate::{ContainerError, Docker, Patience};
use nono_engine::snapshot::RestorationMode;
use nono_engine::sys;

/// Replaces the original.
pub(super) fn replace(
    job: Job<'_>,
    plan: ContainerPlan,
    options: &RestoreOptions,
) -> Result<RestoreReport, RestoreError> {
    let mut journal = begun(job, &plan)?;
    journal::write(job.history, &journal)?;
    let made = make(job, &plan, &journal.working_name).and_then(|made| {
        journal.step = Step::Ready;
        journal.new_id = Some(made.id.clone());
        journal::write(job.history, &journal)?;
        Ok(made)
    });
    let made = match made {
        Ok(made) => made,
        Err(cause) => return Err(make::taken_back(job, &journal, cause)),
    };
    let health = match forward(job, &journal, &options.health) {
        Ok(health) => health,
        Err(cause) => {
            return Err(match back(job, &journal, false) {
                Ok(_) => cause.taken_back(),
                Err(failure) => RestoreError::HalfDone {
                    cause: cause.into(),
                    failure: failure.into(),
                    session: job.history.id(),
                },
            });
        }
    };
    let mut report = RestoreReport {
        dry_run: false,
        not_made: made.not_made,
        health: Some(health.clone()),
        ..RestoreReport::dry_run(plan)
    };
    if !health.is_healthy {
        back(job, &journal, false)?;
        return Ok(report);
    }
    report.published = make::published(job.docker, &made.id)?;
    report.kept_as = journal.original.as_ref().map(|original| original.kept_as.clone());
    report.is_started = true;
    report.container_id = Some(made.id);
    Ok(report)
}

fn begun(job: Job<'_>, plan: &ContainerPlan) -> Result<Journal, RestoreError> {
    let found = job.docker.inspect(&plan.original_id)?;
    let state = state_of(&found);
    let now = Zoned::now();
    let free = |purpose: &str| -> Result<String, RestoreError> {
        let mut attempt = 1;
        loop {
            let name = names::container(&plan.name, purpose, &now, attempt);
            match job.docker.inspect(&name) {
                Err(ContainerError::NoSuchContainer { .. }) => return Ok(name),
                answer => drop(answer?),
            }
            attempt += 1;
        }
    };
    Ok(Journal {
        version: 0,
        snapshot: job.number,
        mode: RestorationMode::Replace,
        step: Step::Making,
        name: plan.name.clone(),
        working_name: free("restored")?,
        new_id: None,
        volumes: plan.new_volumes(),
        start: true,
        share_mounts: false,
        original: Some(Original {
            id: plan.original_id.clone(),
            name: plan.name.clone(),
            kept_as: free("before")?,
            was_running: state == "running" || state == "paused",
            was_paused: state == "paused",
            restart_policy: found.host_config.and_then(|host| host.restart_policy),
        }),
        in_place: None,
    })
}

/// Puts the new container in the place of the original, as far as that was not done. When it works,
/// the replacement is complete, and the journal is gone.
pub(super) fn forward(
    job: Job<'_>,
    journal: &Journal,
    check: &HealthCheck,
) -> Result<Health, RestoreError> {
    let (Some(new), Some(original)) = (&journal.new_id, &journal.original) else {
        return Err(unusable(job));
    };
    let docker = job.docker;
    let is_there = original_of(job, original)?.is_some();
    // A user may have removed it since an interruption: the new one has its place then.
    if is_there {
        sys::before_request("container-replace-policy")?;
        set_restart_policy(docker, &original.id, no_restart())?;
        sys::before_request("container-replace-park")?;
        rename(docker, &original.id, &original.kept_as)?;
        sys::before_request("container-replace-stop")?;
        stop(docker, &original.id)?;
    }
    sys::before_request("container-replace-name")?;
    rename(docker, new, &journal.name)?;
    sys::before_request("container-replace-start")?;
    let found = docker.inspect(new)?;
    // A start by hand begins the count anew.
    let restarts = match state_of(&found).as_str() {
        "running" => found.restart_count.unwrap_or(0),
        _ => 0,
    };
    make::start(docker, new)?;
    sys::before_request("container-replace-health")?;
    let health = health::wait(docker, new, check, restarts, job.progress)?;
    if !health.is_healthy {
        return Ok(health);
    }
    sys::before_request("container-replace-note")?;
    if is_there {
        kept::put_aside(job, &original.id, &original.kept_as, new)?;
    }
    let noted = job.history.reopened()?;
    let is_noted = |id: &str| noted.container().restorations.iter().any(|r| r.container_id == id);
    if !is_noted(new) {
        job.note(RestorationMode::Replace, new, &journal.name)?;
    }
    journal::remove(job.history)?;
    sys::before_request("container-replace-end")?;
    Ok(health)
}

/// Brings the original back as it was. The new container and its volumes are removed; one that has
/// worked for a user is kept, and its name is returned.
pub(super) fn back(
    job: Job<'_>,
    journal: &Journal,
    has_worked: bool,
) -> Result<Option<String>, RestoreError> {
    let Some(original) = &journal.original else { return Err(unusable(job)) };
    let docker = job.docker;
    let Some(found) = original_of(job, original)? else {
        // Nothing goes for a state that cannot come back.
        return Err(RestoreError::OriginalGone {
            name: original.name.clone(),
            session: job.history.id(),
        });
    };
    sys::before_request("container-back-remove")?;
    // Its name, its ports and its addresses are needed.
    let kept = match has_worked {
        true => make::put_aside(job, journal)?,
        false => make::remove_new(job, journal).map(|()| None)?,
    };
    if let (Some(name), Some(new)) = (&kept, &journal.new_id) {
        kept::put_aside(job, new, name, &original.id)?;
    }
    let may_end = matches!(&*state_of(&found), "running" | "stopping");
    if name_of(&found) == Some(&original.kept_as) && may_end {
        // An earlier request to stop it may be under way: it would end after its start.
        stop(docker, &original.id)?;
    }
    sys::before_request("container-back-name")?;
    rename(docker, &original.id, &original.name)?;
    sys::before_request("container-back-policy")?;
    let policy = original.restart_policy.clone().unwrap_or_else(no_restart);
    set_restart_policy(docker, &original.id, policy)?;
    if original.was_running {
        sys::before_request("container-back-start")?;
        make::start(docker, &original.id)?;
    }
    if original.was_paused && state_of(&docker.inspect(&original.id)?) != "paused" {
        docker.pause(&original.id)?;
    }
    journal::remove(job.history)?;
    Ok(kept)
}

fn original_of(
    job: Job<'_>,
    original: &Original,
) -> Result<Option<ContainerInspectResponse>, RestoreError> {
    match job.docker.inspect(&original.id) {
        Err(ContainerError::NoSuchContainer { .. }) => Ok(None),
        found => Ok(Some(found?)),
    }
}

fn unusable(job: Job<'_>) -> RestoreError {
    RestoreError::BadJournal {
        session: job.history.id(),
        reason: "it does not name both containers".to_owned(),
    }
}

pub(super) fn no_restart() -> RestartPolicy {
    RestartPolicy { name: Some(RestartPolicyNameEnum::NO), ..Default::default() }
}

/// Gives a container another restart policy, unless it has it. Podman before version 5 has no such
/// request.
pub(super) fn set_restart_policy(
    docker: &Docker,
    id: &str,
    policy: RestartPolicy,
) -> Result<(), RestoreError> {
    let present = docker.inspect(id)?.host_config.and_then(|host| host.restart_policy);
    if is_same(&present.unwrap_or_else(no_restart), &policy) {
        return Ok(());
    }
    let body = ContainerUpdateBody { restart_policy: Some(policy), ..Default::default() };
    let request = docker.client().update_container(id, body);
    let operation = format_args!("change the restart policy of container {id}");
    match docker.call(operation, Patience::Quick, request) {
        // The container itself was just there.
        Err(error) if error.is_not_found() => Err(RestoreError::NoPolicyChange),
        answer => Ok(answer?),
    }
}

/// Engines write "no restart" in several ways.
fn is_same(one: &RestartPolicy, other: &RestartPolicy) -> bool {
    let name = |policy: &RestartPolicy| match policy.name {
        None | Some(RestartPolicyNameEnum::EMPTY) => RestartPolicyNameEnum::NO,
        Some(name) => name,
    };
    let retries = |policy: &RestartPolicy| policy.maximum_retry_count.unwrap_or(0);
    name(one) == name(other) && retries(one) == retries(other)
}

/// Names a container, unless it has the name.
pub(super) fn rename(docker: &Docker, id: &str, name: &str) -> Result<(), RestoreError> {
    let found = docker.inspect(id)?;
    if name_of(&found) == Some(name) {
        return Ok(());
    }
    let options = RenameContainerOptions { name: name.to_owned() };
    let request = docker.client().rename_container(id, options);
    let operation = format_args!("rename container {id} to {name}");
    Ok(docker.call(operation, Patience::Quick, request)?)
}

/// Stops a container, unless it is stopped. A paused one goes on first: it could not stop.
pub(super) fn stop(docker: &Docker, id: &str) -> Result<(), RestoreError> {
    docker.unpause(id)?;
    let request = docker.client().stop_container(id, None::<StopContainerOptions>);
    match docker.call(format_args!("stop container {id}"), Patience::Long, request) {
        Err(ContainerError::Refused { status: 304, .. }) => Ok(()),
        answer => Ok(answer?),
    }
}
