//! Volumes of the stopped original, in their own directories.
//!
//! Never merged: each directory is cleared and filled. The state before is in a safety snapshot, so
//! both directions can be repeated after a crash.
//!
//! Always true: a volume is cleared only after a look at it and at its users, in that moment. The
//! state that goes is known: recorded since the last user left, or our own filling. After a crash
//! it is unknown, so the present state is recorded first.

use super::contents::Contents;
use super::journal::{self, InPlace, Journal, Step};
use super::plan::ContainerPlan;
use super::{Extent, Job, RestoreError, RestoreReport, Safety, SafetySnapshot};
use super::{compare, fill_directory, reach, recorded, survey, users};
use crate::{ContainerError, ContainerHistory, StorageLock};
use nono_engine::path_text::Shown;
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::RestorationMode;
use nono_engine::sys::{self, Dir, FileLock};

pub(super) fn restore(
    job: Job<'_>,
    plan: ContainerPlan,
    safety: &SafetySnapshot<'_>,
) -> Result<RestoreReport, RestoreError> {
    let mut in_place = InPlace {
        container: plan.original_id.clone(),
        volumes: Vec::new(),
        directories: Vec::new(),
        safety_snapshot: 0,
    };
    for (volume, tree) in plan.filled() {
        let names = (volume.name.clone(), tree.to_owned(), volume.destination.clone());
        in_place.volumes.push(names);
    }
    // Refused before anything changes.
    let dirs = opened(job, &in_place)?;
    let _volumes = locked(job, &dirs)?;
    for dir in &dirs {
        let stat = dir.stat_self()?;
        in_place.directories.push((stat.dev, stat.ino));
    }
    let taken = record(job, &in_place, safety)?;
    if taken.session_id != job.history.id() {
        // The way back looks in this one.
        return Err(RestoreError::BadJournal {
            session: taken.session_id,
            reason: "it took the snapshot of a container of another history".to_owned(),
        });
    }
    in_place.safety_snapshot = taken.number;
    let journal = Journal {
        version: 0,
        snapshot: job.number,
        mode: RestorationMode::VolumesOnly,
        step: Step::Ready,
        name: plan.name.clone(),
        working_name: plan.name.clone(),
        new_id: None,
        volumes: Vec::new(),
        start: false,
        share_mounts: false,
        original: None,
        in_place: Some(in_place.clone()),
    };
    journal::write(job.history, &journal)?;
    let mut is_changed = false;
    let not_made = match forward(job, &journal, &mut is_changed) {
        Ok(not_made) => not_made,
        Err(cause) => return Err(way_back(job, &journal, &in_place, cause, is_changed, safety)),
    };
    Ok(RestoreReport {
        dry_run: false,
        container_id: Some(plan.original_id.clone()),
        safety_snapshot: Some(in_place.safety_snapshot),
        not_made,
        ..RestoreReport::dry_run(plan)
    })
}

/// Ends an interrupted restore. Returns the snapshot of the state that was there, and the entries
/// that are not made.
pub(super) fn resume(
    job: Job<'_>,
    journal: &Journal,
    is_forward: bool,
    safety: &SafetySnapshot<'_>,
) -> Result<(Safety, Vec<String>), RestoreError> {
    let (in_place, _witness) = witnessed(job, part(job, journal)?)?;
    let in_place = &in_place;
    users::refuse(job, in_place.names())?;
    let _volumes = locked(job, &opened(job, in_place)?)?;
    let history = job.history.reopened()?;
    let number = if is_forward { job.number } else { in_place.safety_snapshot };
    for (dir, _) in check(job, &history, number, in_place)? {
        let space = dir.space()?;
        // The engine needs one to show the container.
        if space.inodes > 0 && space.free_inodes == 0 {
            let place = Shown::path(dir.path());
            let reason = format!(
                "no inode is free on the file system of {place}: remove a file there, and try again"
            );
            return Err(RestoreError::Refused { snapshot: job.snapshot(), reason });
        }
    }
    let found = record(job, in_place, safety)?;
    let journal = Journal { in_place: Some(in_place.clone()), ..journal.clone() };
    let not_made = match is_forward {
        true => forward(job, &journal, &mut false)?,
        false => back(job, &journal)?,
    };
    Ok((found, not_made))
}

/// Gives the volumes the state of the snapshot; then the restore is complete. `is_changed`: whether
/// a volume may be another than before.
fn forward(
    job: Job<'_>,
    journal: &Journal,
    is_changed: &mut bool,
) -> Result<Vec<String>, RestoreError> {
    let in_place = part(job, journal)?;
    let not_made = put(job, job.history, job.number, in_place, is_changed)?;
    job.note(RestorationMode::VolumesOnly, &in_place.container, &journal.name)?;
    journal::remove(job.history)?;
    Ok(not_made)
}

/// Gives the volumes their state before, out of the safety snapshot.
fn back(job: Job<'_>, journal: &Journal) -> Result<Vec<String>, RestoreError> {
    let in_place = part(job, journal)?;
    let history = job.history.reopened()?;
    // The way back cannot be stopped.
    let job = Job { progress: &NoProgress, ..job };
    let not_made = put(job, &history, in_place.safety_snapshot, in_place, &mut false)?;
    journal::remove(job.history)?;
    Ok(not_made)
}

/// The error of a restore that failed, after the way back.
fn way_back(
    job: Job<'_>,
    journal: &Journal,
    in_place: &InPlace,
    cause: RestoreError,
    is_changed: bool,
    safety: &SafetySnapshot<'_>,
) -> RestoreError {
    let session = job.history.id();
    let half_done = |cause: RestoreError, failure: RestoreError| RestoreError::HalfDone {
        cause: cause.into(),
        failure: failure.into(),
        session: session.clone(),
    };
    if !is_changed {
        return match journal::remove(job.history) {
            Ok(()) => cause.taken_back(),
            Err(failure) => half_done(cause, failure),
        };
    }
    // A user that came meanwhile is the cause of whatever was seen.
    if let Err(in_use @ RestoreError::InUse { .. }) = users::refuse(job, in_place.names()) {
        let safety = format!("{session}/{}", in_place.safety_snapshot);
        return RestoreError::Between { cause: in_use.into(), safety, session };
    }
    // A program wrote there, and is gone.
    if matches!(cause, RestoreError::Different { .. })
        && let Err(failure) = record(job, in_place, safety)
    {
        return half_done(cause, failure);
    }
    match back(job, journal) {
        Ok(_) => cause.taken_back(),
        Err(failure) => half_done(cause, failure),
    }
}

/// Takes a snapshot of the volumes as they are, whole.
fn record(
    job: Job<'_>,
    in_place: &InPlace,
    safety: &SafetySnapshot<'_>,
) -> Result<Safety, RestoreError> {
    let taken = safety(&in_place.container, Extent::Volumes)?;
    // Another history where another container has the volumes now.
    let history = ContainerHistory::open(job.history.storage(), &taken.session_id)?;
    let record = history.record(taken.number)?;
    let mut trees = Vec::new();
    for volume in in_place.names() {
        let mut mounts = record.mounts.iter();
        let mount = mounts.find(|mount| mount.volume.as_deref() == Some(volume));
        let tree = mount.and_then(|mount| mount.tree.as_deref());
        let tree = tree.ok_or_else(|| RestoreError::Refused {
            snapshot: job.snapshot(),
            reason: format!("volume {volume} is not in the snapshot before it is cleared"),
        })?;
        Contents::read(&history, taken.number, tree)?;
        trees.push(tree);
    }
    recorded::whole_from_directories(&history, taken.number, &trees)?;
    Ok(taken)
}

/// The volumes of an interrupted restore with a container that shows them: the one that it was
/// about, or, where that is gone, another that has them all. Its lock is held.
fn witnessed(
    job: Job<'_>,
    in_place: &InPlace,
) -> Result<(InPlace, Option<StorageLock>), RestoreError> {
    match job.docker.inspect(&in_place.container) {
        Err(ContainerError::NoSuchContainer { .. }) => {}
        found => {
            found?;
            return Ok((in_place.clone(), None));
        }
    }
    for container in users::all_containers(job.docker)? {
        let place_of = |volume: &str| {
            let mut mounts = container.mounts.iter().flatten();
            let mount = mounts.find(|mount| mount.name.as_deref() == Some(volume))?;
            mount.destination.clone()
        };
        let seen = in_place
            .volumes
            .iter()
            .map(|(volume, tree, _)| Some((volume.clone(), tree.clone(), place_of(volume)?)));
        let (Some(volumes), Some(id)) = (seen.collect(), &container.id) else { continue };
        let seen = InPlace { container: id.clone(), volumes, ..in_place.clone() };
        return Ok((seen, job.lock_other(id)?));
    }
    let volumes = in_place.volumes.iter();
    let options = volumes.map(|(volume, _, place)| format!("--volume {volume}:{place} "));
    let reason = format!(
        "its container is gone, and no other has its volumes: make one with `docker create \
         {}IMAGE`, and try again",
        options.collect::<String>()
    );
    Err(RestoreError::Refused { snapshot: job.snapshot(), reason })
}

/// Keeps other restores from these directories: of any container, and from any store.
fn locked(job: Job<'_>, dirs: &[Dir]) -> Result<Vec<FileLock>, RestoreError> {
    let mut locks = Vec::new();
    for dir in dirs {
        locks.push(FileLock::try_exclusive_of(dir)?.ok_or_else(|| RestoreError::Refused {
            snapshot: job.snapshot(),
            reason: format!("another restore is at work in {}", Shown::path(dir.path())),
        })?);
    }
    Ok(locks)
}

fn part<'j>(job: Job<'_>, journal: &'j Journal) -> Result<&'j InPlace, RestoreError> {
    journal.in_place.as_ref().ok_or_else(|| RestoreError::BadJournal {
        session: job.history.id(),
        reason: "it names no volumes".to_owned(),
    })
}

fn opened(job: Job<'_>, in_place: &InPlace) -> Result<Vec<Dir>, RestoreError> {
    let mut dirs = Vec::new();
    for (at, (volume, _, destination)) in in_place.volumes.iter().enumerate() {
        let out_of_reach = |reason| RestoreError::OutOfReach { volume: volume.clone(), reason };
        let dir = reach::directory(job.docker, volume).map_err(out_of_reach)?;
        let stat = dir.stat_self()?;
        let is_proved = in_place.directories.get(at) == Some(&(stat.dev, stat.ino));
        dirs.push(match is_proved {
            true => dir,
            false => reach::proved_directory(job.docker, volume, &in_place.container, destination)
                .map_err(out_of_reach)?,
        });
    }
    Ok(dirs)
}

/// Refuses volumes that cannot get the state of a snapshot now. Changes nothing of them.
fn check<'h>(
    job: Job<'_>,
    history: &'h ContainerHistory<'_>,
    number: u64,
    in_place: &InPlace,
) -> Result<Vec<(Dir, Contents<'h>)>, RestoreError> {
    users::refuse(job, in_place.names())?;
    let mut checked = Vec::new();
    let record = history.record(number)?;
    for (dir, (volume, tree, _)) in opened(job, in_place)?.into_iter().zip(&in_place.volumes) {
        // The volume may be that of a container which followed the recorded one.
        let own = record.mounts.iter().find(|mount| mount.volume.as_deref() == Some(volume));
        let tree = own.and_then(|mount| mount.tree.as_deref()).unwrap_or(tree);
        let contents = Contents::read(history, number, tree)?;
        survey::refuse(job, volume, &dir, &contents)?;
        checked.push((dir, contents));
    }
    Ok(checked)
}

fn put(
    job: Job<'_>,
    history: &ContainerHistory<'_>,
    number: u64,
    in_place: &InPlace,
    is_changed: &mut bool,
) -> Result<Vec<String>, RestoreError> {
    let mut not_made = Vec::new();
    let checked = check(job, history, number, in_place)?;
    let record = history.record(number)?;
    for ((dir, contents), volume) in checked.iter().zip(in_place.names()) {
        let names = (volume, &*record.name);
        sys::before_request("container-volume-clear")?;
        users::refuse(job, [volume])?;
        *is_changed = true;
        fill_directory::clear(dir).map_err(|e| e.of_volume("clear", names, None))?;
        sys::before_request("container-volume-fill")?;
        let filled = fill_directory::fill(contents, dir, job.progress);
        not_made.extend(filled.map_err(|e| e.of_volume("fill", names, Some(dir)))?);
        sys::before_request("container-volume-check")?;
        let compared = compare::directory(contents, volume, dir, job.progress);
        compared.map_err(|e| e.of_volume("check", names, None))?;
    }
    Ok(not_made)
}
