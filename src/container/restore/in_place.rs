//! Volumes of the stopped original, in their own directories.
//!
//! Never merged: each directory is cleared and filled. The state before is in a safety snapshot, so
//! both directions can be repeated after a crash.
//!
//! Always true: a volume is cleared only after a look at it and at its users, in that moment. The
//! state that goes is known: recorded since nobody could write it, or our own filling. After a crash
//! nobody knows, so the present state is recorded first.

use super::contents::Contents;
use super::journal::{self, InPlace, Journal, Step};
use super::plan::ContainerPlan;
use super::{Extent, Job, RestoreError, RestoreReport, SafetySnapshot};
use super::{compare, fill_directory, reach, recorded, survey, users};
use crate::container::ContainerHistory;
use crate::path_text::Shown;
use crate::progress::NoProgress;
use crate::snapshot::RestorationMode;
use crate::sys::{self, Dir};

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
    for dir in opened(job, &in_place)? {
        let stat = dir.stat_self()?;
        in_place.directories.push((stat.dev, stat.ino));
    }
    in_place.safety_snapshot = record(job, &in_place, safety)?;
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

/// Ends an interrupted restore. Returns the snapshot of the state that was there.
pub(super) fn resume(
    job: Job<'_>,
    journal: &Journal,
    is_forward: bool,
    safety: &SafetySnapshot<'_>,
) -> Result<u64, RestoreError> {
    let in_place = part(job, journal)?;
    for dir in check(job, job.history, job.number, in_place)? {
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
    match is_forward {
        true => drop(forward(job, journal, &mut false)?),
        false => back(job, journal)?,
    }
    Ok(found)
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
fn back(job: Job<'_>, journal: &Journal) -> Result<(), RestoreError> {
    let in_place = part(job, journal)?;
    let history = job.history.reopened()?;
    // Nobody stops the way back.
    let job = Job { progress: &NoProgress, ..job };
    put(job, &history, in_place.safety_snapshot, in_place, &mut false)?;
    journal::remove(job.history)
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
    // Somebody wrote there, and is gone.
    if matches!(cause, RestoreError::Different { .. })
        && let Err(failure) = record(job, in_place, safety)
    {
        return half_done(cause, failure);
    }
    match back(job, journal) {
        Ok(()) => cause.taken_back(),
        Err(failure) => half_done(cause, failure),
    }
}

/// Takes a snapshot of the volumes as they are, whole; its number.
fn record(
    job: Job<'_>,
    in_place: &InPlace,
    safety: &SafetySnapshot<'_>,
) -> Result<u64, RestoreError> {
    let taken = safety(&in_place.container, Extent::Volumes)?;
    let history = job.history.reopened()?;
    let trees: Vec<&str> = in_place.volumes.iter().map(|(_, tree, _)| &**tree).collect();
    recorded::whole_from_directories(&history, taken.number, &trees)?;
    for tree in trees {
        Contents::read(&history, taken.number, tree)?;
    }
    Ok(taken.number)
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
fn check(
    job: Job<'_>,
    history: &ContainerHistory<'_>,
    number: u64,
    in_place: &InPlace,
) -> Result<Vec<Dir>, RestoreError> {
    users::refuse(job, in_place.names())?;
    let dirs = opened(job, in_place)?;
    for (dir, (volume, tree, _)) in dirs.iter().zip(&in_place.volumes) {
        survey::refuse(job, volume, dir, &Contents::read(history, number, tree)?)?;
    }
    Ok(dirs)
}

fn put(
    job: Job<'_>,
    history: &ContainerHistory<'_>,
    number: u64,
    in_place: &InPlace,
    is_changed: &mut bool,
) -> Result<Vec<String>, RestoreError> {
    let mut not_made = Vec::new();
    let dirs = check(job, history, number, in_place)?;
    let record = history.record(number)?;
    for (dir, (volume, tree, _)) in dirs.iter().zip(&in_place.volumes) {
        let contents = Contents::read(history, number, tree)?;
        let names = (&**volume, &*record.name);
        sys::before_request("container-volume-clear")?;
        users::refuse(job, [&**volume])?;
        *is_changed = true;
        fill_directory::clear(dir).map_err(|e| e.of_volume("clear", names, None))?;
        sys::before_request("container-volume-fill")?;
        let filled = fill_directory::fill(&contents, dir, job.progress);
        not_made.extend(filled.map_err(|e| e.of_volume("fill", names, Some(dir)))?);
        sys::before_request("container-volume-check")?;
        let compared = compare::directory(&contents, volume, dir, job.progress);
        compared.map_err(|e| e.of_volume("check", names, None))?;
    }
    Ok(not_made)
}
