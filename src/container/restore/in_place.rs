//! Volumes of the stopped original, in their own directories.
//!
//! Never merged: each directory is cleared and filled. The state before is in a safety snapshot, so
//! both directions can be repeated after a crash.

use super::contents::Contents;
use super::journal::{self, InPlace, Journal, Step};
use super::plan::ContainerPlan;
use super::{Job, RestoreError, RestoreReport, compare, fill_directory, reach};
use crate::container::ContainerHistory;
use crate::progress::NoProgress;
use crate::snapshot::RestorationMode;
use crate::sys::{self, Dir};

/// Takes a snapshot of a container before its volumes change: given its id, returns the number in
/// the same session.
pub type SafetySnapshot<'a> = dyn Fn(&str) -> Result<u64, RestoreError> + 'a;

pub(super) fn restore(
    job: Job<'_>,
    plan: ContainerPlan,
    safety: &SafetySnapshot<'_>,
) -> Result<RestoreReport, RestoreError> {
    let mut in_place =
        InPlace { container: plan.original_id.clone(), volumes: Vec::new(), safety_snapshot: 0 };
    for (volume, tree) in plan.filled() {
        let names = (volume.name.clone(), tree.to_owned(), volume.destination.clone());
        in_place.volumes.push(names);
    }
    // Refused before anything changes.
    opened(job, &in_place)?;
    in_place.safety_snapshot = safety(&plan.original_id)?;
    let history = job.history.reopened()?;
    for (_, tree, _) in &in_place.volumes {
        Contents::read(&history, in_place.safety_snapshot, tree)?;
    }
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
    let not_made = match forward(job, &journal) {
        Ok(not_made) => not_made,
        Err(cause) => {
            return Err(match back(job, &journal) {
                Ok(()) => cause,
                Err(failure) => RestoreError::HalfDone {
                    cause: cause.into(),
                    failure: failure.into(),
                    session: job.history.id(),
                },
            });
        }
    };
    Ok(RestoreReport {
        dry_run: false,
        container_id: Some(plan.original_id.clone()),
        safety_snapshot: Some(in_place.safety_snapshot),
        not_made,
        ..RestoreReport::dry_run(plan)
    })
}

/// Gives the volumes the state of the snapshot; then the restore is complete.
pub(super) fn forward(job: Job<'_>, journal: &Journal) -> Result<Vec<String>, RestoreError> {
    let in_place = part(job, journal)?;
    let not_made = put(job, job.history, job.number, in_place)?;
    job.note(RestorationMode::VolumesOnly, &in_place.container, &journal.name)?;
    journal::remove(job.history)?;
    Ok(not_made)
}

/// Gives the volumes their state before, out of the safety snapshot.
pub(super) fn back(job: Job<'_>, journal: &Journal) -> Result<(), RestoreError> {
    let in_place = part(job, journal)?;
    let history = job.history.reopened()?;
    // Nobody stops the way back.
    let job = Job { progress: &NoProgress, ..job };
    put(job, &history, in_place.safety_snapshot, in_place)?;
    journal::remove(job.history)
}

fn part<'j>(job: Job<'_>, journal: &'j Journal) -> Result<&'j InPlace, RestoreError> {
    journal.in_place.as_ref().ok_or_else(|| RestoreError::BadJournal {
        session: job.history.id(),
        reason: "it names no volumes".to_owned(),
    })
}

fn opened(job: Job<'_>, in_place: &InPlace) -> Result<Vec<Dir>, RestoreError> {
    let open = |(volume, _, destination): &(String, String, String)| {
        reach::proved_directory(job.docker, volume, &in_place.container, destination)
            .map_err(|reason| RestoreError::OutOfReach { volume: volume.clone(), reason })
    };
    in_place.volumes.iter().map(open).collect()
}

fn put(
    job: Job<'_>,
    history: &ContainerHistory<'_>,
    number: u64,
    in_place: &InPlace,
) -> Result<Vec<String>, RestoreError> {
    let mut not_made = Vec::new();
    let dirs = opened(job, in_place)?;
    for (dir, (volume, tree, _)) in dirs.iter().zip(&in_place.volumes) {
        let contents = Contents::read(history, number, tree)?;
        sys::before_request("container-volume-clear")?;
        fill_directory::clear(dir)?;
        sys::before_request("container-volume-fill")?;
        not_made.extend(fill_directory::fill(&contents, dir, job.progress)?);
        sys::before_request("container-volume-check")?;
        compare::directory(&contents, volume, dir, job.progress)?;
    }
    Ok(not_made)
}
