//! Containers that a restore put aside: stopped, and kept until `cleanup` removes them.
//!
//! Always true: a container goes only as long as it stands as the restore left it, and beside the
//! one that took its place; and only after a snapshot of all of it. One that a user renamed or
//! started is that user's: it leaves the list and stays.

use std::collections::HashSet;

use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::RemoveContainerOptions;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::plan::{name_of, state_of};
use super::{Extent, Job, RestoreError, SafetySnapshot, recorded};
use crate::{
    ContainerError, ContainerHistory, ContainerPolicy, Docker, Document, Patience, RemovalReport,
    SnapshotStorage, cleanup,
};
use nono_engine::progress::Progress;
use nono_engine::snapshot::RestorationMode;

/// A container that a restore put aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptContainer {
    /// The engine's id.
    pub id: String,
    /// Its name since then.
    pub name: String,
    /// The engine's id of the container that has its place.
    pub replaced_by: String,
    /// When it was put aside.
    pub at: Timestamp,
    /// The engine's word for its last start, which every later start changes.
    #[serde(default)]
    pub started_at: String,
}

/// The outcome of a cleanup for a kept container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptOutcome {
    /// It goes.
    Removed,
    /// It stays, because it is not old enough.
    Young,
    /// It stays, and leaves the list: a user has it.
    InUse,
    /// A user removed it before.
    Gone,
    /// It stays, because it could not be recorded or removed.
    Failed,
}

/// A kept container after a cleanup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptReport {
    /// Its name.
    pub name: String,
    /// The engine's id.
    pub container_id: String,
    /// Its fate.
    pub outcome: KeptOutcome,
    /// The reason, in words.
    pub reason: String,
    /// The snapshot of it before it went, `SESSION/N`.
    pub snapshot: Option<String>,
}

/// The kept containers of a history, oldest first. Some may be gone from the engine.
///
/// # Errors
/// When the list cannot be read.
pub fn kept_containers(history: &ContainerHistory<'_>) -> Result<Vec<KeptContainer>, RestoreError> {
    let id = history.id();
    let Some(bytes) = history.storage().read(Document::Kept(&id))? else { return Ok(Vec::new()) };
    serde_json::from_slice(&bytes).map_err(|error| RestoreError::BadKeptList {
        session: id.clone(),
        reason: error.to_string(),
    })
}

/// Removes the kept containers of a history that are older than `max_age`, each with its anonymous
/// volumes and after a snapshot of all of it. Without a limit all stay. With `dry_run` nothing is
/// changed, and the outcomes are those that would be.
///
/// # Errors
/// When the list cannot be read or written, or the engine does not answer. A container that cannot
/// be recorded or removed is in the report.
pub fn clean_kept(
    docker: &Docker,
    history: &ContainerHistory<'_>,
    max_age: Option<SignedDuration>,
    safety: &SafetySnapshot<'_>,
    progress: &dyn Progress,
    dry_run: bool,
) -> Result<Vec<KeptReport>, RestoreError> {
    let mut reports = Vec::new();
    for kept in kept_containers(history)? {
        let _lock = match dry_run {
            true => None,
            false => Some(crate::lock(history.storage(), &kept.id, progress)?),
        };
        let (mut outcome, mut reason) = judge(docker, &kept, max_age)?;
        let mut snapshot = None;
        if outcome == KeptOutcome::Removed && !dry_run {
            match record_and_remove(docker, history, &kept, max_age, safety) {
                Ok(taken) => snapshot = Some(taken),
                Err(RestoreError::Cancelled) => return Err(RestoreError::Cancelled),
                Err(error) => {
                    outcome = KeptOutcome::Failed;
                    reason = error.to_string();
                }
            }
        }
        if !matches!(outcome, KeptOutcome::Young | KeptOutcome::Failed) && !dry_run {
            forget(history, &kept.id)?;
        }
        let KeptContainer { name, id: container_id, .. } = kept;
        reports.push(KeptReport { name, container_id, outcome, reason, snapshot });
    }
    Ok(reports)
}

/// The whole of a cleanup.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CleanupReport {
    /// Snapshots, histories and images.
    #[serde(flatten)]
    pub removal: RemovalReport,
    /// The names of the kept containers that are gone.
    pub kept_containers_removed: Vec<String>,
    /// All kept containers that the cleanup looked at.
    pub kept_containers: Vec<KeptReport>,
}

/// As [`cleanup`], and then as [`clean_kept`] for every history: no
/// limit removes the snapshot of a container that goes in the same breath.
///
/// # Errors
/// As there. A list that cannot be read is a problem in the report.
pub fn clean_all(
    storage: &dyn SnapshotStorage,
    policy: &ContainerPolicy,
    docker: &Docker,
    safety: &SafetySnapshot<'_>,
    progress: &dyn Progress,
    dry_run: bool,
) -> Result<CleanupReport, RestoreError> {
    let removal = cleanup(storage, policy, Some(docker), dry_run, progress)?;
    let mut report = CleanupReport { removal, ..CleanupReport::default() };
    for history in ContainerHistory::all(storage)? {
        match clean_kept(docker, &history, policy.max_age, safety, progress, dry_run) {
            Ok(of_history) => report.kept_containers.extend(of_history),
            Err(error @ RestoreError::BadKeptList { .. }) => {
                report.removal.problems.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    let removed = report.kept_containers.iter().filter(|it| it.outcome == KeptOutcome::Removed);
    report.kept_containers_removed = removed.map(|it| it.name.clone()).collect();
    Ok(report)
}

/// The outcome of a cleanup for a container now, and the reason.
fn judge(
    docker: &Docker,
    kept: &KeptContainer,
    max_age: Option<SignedDuration>,
) -> Result<(KeptOutcome, String), RestoreError> {
    let in_use = |reason: &str| Ok((KeptOutcome::InUse, reason.to_owned()));
    let found = match docker.inspect(&kept.id) {
        Err(ContainerError::NoSuchContainer { .. }) => {
            return Ok((KeptOutcome::Gone, "it was removed by other means".to_owned()));
        }
        found => found?,
    };
    if name_of(&found) != Some(&kept.name) {
        return in_use("it was renamed");
    }
    if !matches!(&*state_of(&found), "exited" | "created" | "dead") {
        return in_use("it is at work");
    }
    if started_at(&found) != kept.started_at {
        return in_use("it was started again");
    }
    match docker.inspect(&kept.replaced_by) {
        Err(ContainerError::NoSuchContainer { .. }) => {
            return in_use("the container that took its place is gone");
        }
        found => drop(found?),
    }
    let age = Timestamp::now().duration_since(kept.at);
    if max_age.is_none_or(|max_age| age <= max_age) {
        return Ok((KeptOutcome::Young, "it is not older than max_age_days".to_owned()));
    }
    Ok((KeptOutcome::Removed, "a restore put another in its place".to_owned()))
}

/// Takes a snapshot of a container, and removes it. Returns the snapshot.
fn record_and_remove(
    docker: &Docker,
    history: &ContainerHistory<'_>,
    kept: &KeptContainer,
    max_age: Option<SignedDuration>,
    safety: &SafetySnapshot<'_>,
) -> Result<String, RestoreError> {
    let taken = safety(&kept.id, Extent::Whole)?;
    let in_session = ContainerHistory::open(history.storage(), &taken.session_id)?;
    let record = in_session.record(taken.number)?;
    let trees: Vec<&str> = record.volumes().filter_map(|mount| mount.tree.as_deref()).collect();
    recorded::whole(&in_session, taken.number, &trees)?;
    let snapshot = format!("{}/{}", taken.session_id, taken.number);
    // A user may have started it meanwhile.
    let (outcome, reason) = judge(docker, kept, max_age)?;
    if outcome != KeptOutcome::Removed {
        return Err(RestoreError::NotRemoved { name: kept.name.clone(), reason });
    }
    let options = RemoveContainerOptions { v: true, ..Default::default() };
    let request = docker.client().remove_container(&kept.id, Some(options));
    docker.call(format_args!("remove container {}", kept.name), Patience::Long, request)?;
    Ok(snapshot)
}

/// The engine's word for the last start of a container.
pub(super) fn started_at(found: &ContainerInspectResponse) -> String {
    let state = found.state.as_ref();
    state.and_then(|state| state.started_at.clone()).unwrap_or_default()
}

/// Puts a container that is stopped, and has its name for that, on the list.
pub(super) fn put_aside(
    job: Job<'_>,
    id: &str,
    name: &str,
    replaced_by: &str,
) -> Result<(), RestoreError> {
    let kept = KeptContainer {
        id: id.to_owned(),
        name: name.to_owned(),
        replaced_by: replaced_by.to_owned(),
        at: Timestamp::now(),
        started_at: started_at(&job.docker.inspect(id)?),
    };
    add(job.history, kept)
}

/// The list's entry of a container that still has the name that a restore gave it to put it aside.
pub(super) fn parked(job: Job<'_>, id: &str) -> Result<Option<KeptContainer>, RestoreError> {
    // A container may have been replaced by a restore of any history.
    for history in ContainerHistory::all(job.history.storage())? {
        let Some(kept) = kept_containers(&history)?.into_iter().find(|kept| kept.id == id) else {
            continue;
        };
        let found = match job.docker.inspect(id) {
            Err(ContainerError::NoSuchContainer { .. }) => return Ok(None),
            found => found?,
        };
        // Else a user gave it a name of its own again.
        if name_of(&found) == Some(&kept.name) {
            return Ok(Some(kept));
        }
    }
    Ok(None)
}

/// The container that has the place of the recorded one now: itself, or the last one that a
/// restore put there. Where these are gone, it is the one with which the history goes on, or that
/// has the name.
///
/// # Errors
/// [`RestoreError::Refused`] where a restore put it aside, and its successor is gone.
pub(super) fn holder(job: Job<'_>) -> Result<String, RestoreError> {
    let record = job.history.record(job.number)?;
    let recorded = record.container_id;
    let is_there = |id: &str| match job.docker.inspect(id) {
        Err(ContainerError::NoSuchContainer { .. }) => Ok(false),
        found => found.map(|_| true),
    };
    let mut id = recorded;
    let mut seen = HashSet::new();
    while seen.insert(id.clone()) {
        let next = match parked(job, &id)? {
            Some(kept) if !is_there(&kept.replaced_by)? => {
                let reason = format!(
                    "its container was replaced by a restore and is kept as {}, and the one that \
                     took its place is gone: restore it into a new container",
                    kept.name
                );
                return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
            }
            Some(kept) => Some(kept.replaced_by),
            None if is_there(&id)? => None,
            // It was kept, and then removed.
            None => {
                let history = job.history.reopened()?;
                let mut done = history.container().restorations.iter().rev();
                let last = done.find(|done| done.mode == RestorationMode::Replace);
                last.map(|last| last.container_id.clone())
            }
        };
        match next {
            Some(next) if !seen.contains(&next) => id = next,
            _ => break,
        }
    }
    let followed = &job.history.container().container_id;
    for successor in [&id, followed, &record.name] {
        match job.docker.inspect(successor) {
            Err(ContainerError::NoSuchContainer { .. }) => {}
            found => return Ok(found?.id.unwrap_or_else(|| successor.clone())),
        }
    }
    Ok(id)
}

/// Adds a container to the list, once.
pub(super) fn add(history: &ContainerHistory<'_>, kept: KeptContainer) -> Result<(), RestoreError> {
    let mut list = kept_containers(history)?;
    list.retain(|other| other.id != kept.id);
    list.push(kept);
    write(history, &list)
}

fn forget(history: &ContainerHistory<'_>, id: &str) -> Result<(), RestoreError> {
    let mut list = kept_containers(history)?;
    list.retain(|other| other.id != id);
    write(history, &list)
}

fn write(history: &ContainerHistory<'_>, list: &[KeptContainer]) -> Result<(), RestoreError> {
    let bytes = serde_json::to_vec_pretty(list).map_err(|error| RestoreError::BadKeptList {
        session: history.id(),
        reason: error.to_string(),
    })?;
    Ok(history.storage().write(Document::Kept(&history.id()), Some(&bytes))?)
}
