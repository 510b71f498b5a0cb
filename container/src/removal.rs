//! Removing snapshots of containers, with their images.
//!
//! The snapshot goes first and its image then, so a crash leaves an image without a snapshot, which
//! `validate` finds and `cleanup` clears. A snapshot leaves its manifest as a tombstone, the newest
//! one too, so no number is given twice; when the last snapshots go, the session goes.

use jiff::Timestamp;
use serde::Serialize;

use super::docker::Docker;
use super::error::ContainerError;
use super::history::ContainerHistory;
use super::image::{self, ImageRemoval, OwnImage};
use super::pause;
use super::record::{ContainerRecord, Trigger};
use super::restore::kept_containers;
use super::retention::{
    ContainerPolicy, ExpiredSnapshot, SnapshotExpiry, SnapshotFacts, SnapshotWorth,
};
use super::storage::{Guarded, SnapshotStorage};
use nono_engine::progress::Progress;
use nono_engine::snapshot::RemovalReason;

/// A snapshot that was removed.
#[derive(Debug, Clone, Serialize)]
pub struct RemovedState {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// Its message.
    pub message: Option<String>,
    /// The limit that it was over; `None`: the user named it.
    pub reason: Option<SnapshotExpiry>,
    /// Its image.
    pub image: Option<String>,
    /// The outcome for the image; `None` without an image, or without an engine to ask.
    pub image_removal: Option<ImageRemoval>,
}

/// The outcome of a removal.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RemovalReport {
    /// The snapshots that are gone.
    pub removed: Vec<RemovedState>,
    /// Sessions that are gone: with their last snapshots, or because they had none.
    pub sessions_removed: Vec<String>,
    /// Images of ours without a snapshot that are gone.
    pub stray_images_removed: Vec<String>,
    /// Containers that a restore put aside, of histories that are gone. They stay: no cleanup knows
    /// them any more.
    pub kept_containers_left: Vec<String>,
    /// Problems that keep a snapshot, in sentences.
    pub problems: Vec<String>,
    /// Whether nothing was removed, because the caller asked for the list alone.
    pub dry_run: bool,
}

/// The bytes of snapshots of containers.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerStats {
    /// Containers that have a history.
    pub container_count: u64,
    /// Their snapshots.
    pub snapshot_count: u64,
    /// Bytes that the snapshots added to the store when they were taken.
    pub store_bytes: u64,
    /// Bytes of the layers of their images.
    pub image_bytes: u64,
    /// By session.
    pub sessions: Vec<SessionStats>,
}

/// The bytes of the history of one container.
#[derive(Debug, Clone, Serialize)]
pub struct SessionStats {
    /// The id of the session.
    pub session_id: String,
    /// The name of the container.
    pub container: String,
    /// Its snapshots.
    pub snapshot_count: u64,
    /// The first of them that is held.
    pub oldest: Option<Timestamp>,
    /// The last of them.
    pub newest: Option<Timestamp>,
    /// Bytes that the snapshots added to the store when they were taken.
    pub store_bytes: u64,
    /// Bytes of the layers of their images.
    pub image_bytes: u64,
}

/// The facts of one session, for the policy.
fn facts_of(history: &ContainerHistory<'_>) -> Result<Vec<SnapshotFacts>, ContainerError> {
    let mut facts = Vec::new();
    let numbers = history.numbers()?;
    // The list of kept containers lies with the history, so the history stays as long.
    let keeps = kept_containers(history).map_or(true, |kept| !kept.is_empty());
    let newest = numbers.last().copied().filter(|_| keeps);
    let restored = history.container().restorations.last().map(|done| done.snapshot);
    for number in numbers {
        let manifest = history.manifest(number)?;
        // A damaged record has no image that could be counted.
        let record = history.record(number).ok();
        let worth = match &record {
            _ if restored == Some(number) => SnapshotWorth::Kept,
            Some(record) => worth_of(record),
            None => SnapshotWorth::Unnamed,
        };
        let image = record.and_then(|record| record.image.committed);
        facts.push(SnapshotFacts {
            session_id: history.id(),
            number,
            taken: manifest.timestamp,
            bytes: manifest.totals.bytes_written + image.map_or(0, |image| image.size_bytes),
            is_pinned: history.is_pinned() || newest == Some(number),
            worth,
        });
    }
    Ok(facts)
}

/// The worth of a snapshot, by its record alone.
fn worth_of(record: &ContainerRecord) -> SnapshotWorth {
    match record.trigger {
        // Its message is nono's own.
        Trigger::BeforeRestore => SnapshotWorth::Safety,
        _ if record.message.is_some() => SnapshotWorth::Kept,
        Trigger::Manual => SnapshotWorth::Unnamed,
        Trigger::RunStart | Trigger::RunEnd | Trigger::BeforeAction | Trigger::AfterAction => {
            SnapshotWorth::Automatic
        }
    }
}

/// Sizes of all histories.
///
/// # Errors
/// When a session cannot be read.
pub fn container_stats(storage: &dyn SnapshotStorage) -> Result<ContainerStats, ContainerError> {
    let mut sessions = Vec::new();
    for history in ContainerHistory::all(storage)? {
        let (mut store_bytes, mut image_bytes) = (0, 0);
        let mut times = Vec::new();
        for number in history.numbers()? {
            let manifest = history.manifest(number)?;
            times.push(manifest.timestamp);
            store_bytes += manifest.totals.bytes_written;
            let image = history.record(number).ok().and_then(|record| record.image.committed);
            image_bytes += image.map_or(0, |image| image.size_bytes);
        }
        if times.is_empty() {
            // A snapshot was cut off.
            continue;
        }
        sessions.push(SessionStats {
            session_id: history.id(),
            container: history.container().name.clone(),
            snapshot_count: times.len() as u64,
            oldest: times.iter().min().copied(),
            newest: times.iter().max().copied(),
            store_bytes,
            image_bytes,
        });
    }
    let sum = |of: fn(&SessionStats) -> u64| sessions.iter().map(of).sum();
    Ok(ContainerStats {
        container_count: sessions.len() as u64,
        snapshot_count: sum(|session| session.snapshot_count),
        store_bytes: sum(|session| session.store_bytes),
        image_bytes: sum(|session| session.image_bytes),
        sessions,
    })
}

fn all_facts(storage: &dyn SnapshotStorage) -> Result<Vec<SnapshotFacts>, ContainerError> {
    let mut facts = Vec::new();
    for history in ContainerHistory::all(storage)? {
        facts.extend(facts_of(&history)?);
    }
    Ok(facts)
}

/// The snapshots that a policy lets go now.
///
/// # Errors
/// When a session cannot be read.
pub fn expired(
    storage: &dyn SnapshotStorage,
    policy: &ContainerPolicy,
    now: Timestamp,
) -> Result<Vec<ExpiredSnapshot>, ContainerError> {
    let facts = all_facts(storage)?;
    Ok(policy.expired(&facts, now))
}

/// Removes snapshots of one session: all of it where `numbers` are all that it holds. `docker`: the
/// engine that has the images; without it they stay.
///
/// # Errors
/// When the session is at work or cannot be written. Nothing was removed then.
pub fn remove(
    history: &ContainerHistory<'_>,
    numbers: &[(u64, Option<SnapshotExpiry>)],
    docker: Option<&Docker>,
    progress: &dyn Progress,
    report: &mut RemovalReport,
) -> Result<(), ContainerError> {
    let storage = history.storage();
    let _lock = pause::lock(storage, &history.container().container_id, progress)?;
    let held = history.numbers()?;
    let records: Vec<Option<ContainerRecord>> =
        numbers.iter().map(|(number, _)| history.record(*number).ok()).collect();
    let goes = |number: &u64| numbers.iter().any(|(gone, _)| gone == number);
    if held.iter().all(goes) {
        let left = kept_containers(history).unwrap_or_default().into_iter().filter(|kept| {
            // Without an answer it may be there.
            let found = docker.map(|docker| docker.inspect(&kept.id));
            !matches!(found, Some(Err(ContainerError::NoSuchContainer { .. })))
        });
        let left: Vec<String> = left.map(|kept| kept.name).collect();
        if let Some(reason) = storage.remove(&history.id())? {
            return Err(ContainerError::NotRemoved { session: history.id(), reason });
        }
        report.sessions_removed.push(history.id());
        report.kept_containers_left.extend(left);
    } else {
        let by_request = numbers.iter().any(|(_, reason)| reason.is_none());
        let reason = if by_request { RemovalReason::Asked } else { RemovalReason::Retention };
        let numbers: Vec<u64> = numbers.iter().map(|(number, _)| *number).collect();
        storage.remove_snapshots(&history.id(), &numbers, reason)?;
    }
    let store = storage.id()?;
    for ((number, reason), record) in numbers.iter().zip(records) {
        let (message, image) =
            record.map_or((None, None), |record| (record.message, record.image.committed));
        let mut image_removal = None;
        if let (Some(image), Some(docker)) = (&image, docker) {
            match image::remove_own(docker, &store, &image.id, &history.id(), *number) {
                Ok(outcome) => image_removal = Some(outcome),
                Err(error) => report.problems.push(error.to_string()),
            }
        }
        report.removed.push(RemovedState {
            session_id: history.id(),
            snapshot: *number,
            message,
            reason: *reason,
            image: image.map(|image| image.reference),
            image_removal,
        });
    }
    Ok(())
}

/// Removes what a policy lets go, sessions that have no snapshot, and images of ours without a
/// snapshot. With `dry_run` nothing is changed.
///
/// # Errors
/// When the sessions cannot be read. What stays is in the report.
pub fn cleanup(
    storage: &dyn SnapshotStorage,
    policy: &ContainerPolicy,
    docker: Option<&Docker>,
    dry_run: bool,
    progress: &dyn Progress,
) -> Result<RemovalReport, ContainerError> {
    let mut report = RemovalReport { dry_run, ..RemovalReport::default() };
    let facts = all_facts(storage)?;
    let expired = policy.expired(&facts, Timestamp::now());
    report.problems.extend(too_large(policy, &facts, &expired));
    report.problems.extend(storage.damaged()?.iter().map(ToString::to_string));
    for history in ContainerHistory::all(storage)? {
        if history.numbers()?.is_empty() {
            if let Err(error) = remove_empty(&history, &mut report) {
                report.problems.push(error.to_string());
            }
            continue;
        }
        let of_session = expired.iter().filter(|expired| expired.session_id == history.id());
        let numbers: Vec<_> =
            of_session.map(|expired| (expired.number, Some(expired.reason))).collect();
        if numbers.is_empty() {
            continue;
        }
        if dry_run {
            for (snapshot, reason) in numbers {
                let (message, image) = history
                    .record(snapshot)
                    .map_or((None, None), |record| (record.message, record.image.committed));
                let image = image.map(|image| image.reference);
                let session_id = history.id();
                report.removed.push(RemovedState {
                    session_id,
                    snapshot,
                    message,
                    reason,
                    image,
                    image_removal: None,
                });
            }
            continue;
        }
        if let Err(error) = remove(&history, &numbers, docker, progress, &mut report) {
            report.problems.push(error.to_string());
        }
    }
    if let Some(docker) = docker {
        for image in stray_images(storage, docker)? {
            if !dry_run {
                match image::remove_own(
                    docker,
                    &image.store,
                    &image.id,
                    &image.session,
                    image.snapshot,
                ) {
                    Ok(ImageRemoval::Removed | ImageRemoval::Missing) => {}
                    Ok(outcome) => {
                        report.problems.push(format!("image {} stays: {outcome:?}", image.id));
                        continue;
                    }
                    Err(error) => {
                        report.problems.push(error.to_string());
                        continue;
                    }
                }
            }
            report.stray_images_removed.push(image.id);
        }
    }
    Ok(report)
}

/// The sentence that no removal reaches the limit of space.
fn too_large(
    policy: &ContainerPolicy,
    facts: &[SnapshotFacts],
    expired: &[ExpiredSnapshot],
) -> Option<String> {
    let goes = |facts: &&SnapshotFacts| {
        expired
            .iter()
            .any(|gone| (&gone.session_id, gone.number) == (&facts.session_id, facts.number))
    };
    let left: u64 = facts.iter().filter(|facts| !goes(facts)).map(|facts| facts.bytes).sum();
    let max = policy.max_bytes.filter(|max| left > *max)?;
    Some(format!(
        "snapshots of containers take {left} bytes, over the limit of {max} (max_storage_gb): the \
         newest, pinned ones and names that outlive them stay, and no other is worth removing"
    ))
}

/// Removes a session without a snapshot: one that was cut off before its first was taken. A session
/// whose first snapshot is being taken stays, and so does a pinned one.
fn remove_empty(
    history: &ContainerHistory<'_>,
    report: &mut RemovalReport,
) -> Result<(), ContainerError> {
    let storage = history.storage();
    let container = Guarded::Container(&history.container().container_id);
    let Some(_lock) = storage.try_lock(container)? else { return Ok(()) };
    // Its first snapshot may have appeared before the lock.
    if !history.numbers()?.is_empty() || history.is_pinned() {
        return Ok(());
    }
    if report.dry_run {
        report.sessions_removed.push(history.id());
        return Ok(());
    }
    // One that is at work or pinned by now stays for good reason.
    if storage.remove(&history.id())?.is_none() {
        report.sessions_removed.push(history.id());
    }
    Ok(())
}

/// Images of this storage whose snapshot was removed or never appeared.
///
/// # Errors
/// As [`own_images`](super::own_images).
pub fn stray_images(
    storage: &dyn SnapshotStorage,
    docker: &Docker,
) -> Result<Vec<OwnImage>, ContainerError> {
    let mut strays = Vec::new();
    if !storage.is_there()? {
        return Ok(strays);
    }
    let histories = ContainerHistory::all(storage)?;
    let damaged = storage.damaged()?;
    let store = storage.id()?;
    for image in image::own_images(docker)? {
        // A history that cannot be read may have all its snapshots.
        if image.store != store || damaged.iter().any(|damaged| damaged.id == image.session) {
            continue;
        }
        let history = histories.iter().find(|history| history.id() == image.session);
        let is_known = match history {
            None => false,
            Some(history) => history.numbers()?.contains(&image.snapshot),
        };
        // One that is being made has its lock held.
        let is_busy = match history {
            Some(history) => {
                let container = Guarded::Container(&history.container().container_id);
                storage.try_lock(container)?.is_none()
            }
            None => false,
        };
        if !is_known && !is_busy {
            strays.push(image);
        }
    }
    Ok(strays)
}
