//! The way out of a restore that was interrupted.

use serde::Serialize;

use super::health::HealthCheck;
use super::journal::{self, Step};
use super::{Health, Job, RestoreError, in_place, make, replace};
use crate::container::{ContainerHistory, Docker};
use crate::progress::Progress;
use crate::snapshot::RestorationMode;

/// The direction out of an interrupted restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The snapshot's state, where everything for it was made; else the state before.
    Finish,
    /// The state before the restore.
    TakeBack,
}

/// The outcome of [`resume`].
#[derive(Debug, Clone, Serialize)]
pub struct ResumeReport {
    /// The id of the session.
    pub session_id: String,
    /// The snapshot.
    pub snapshot: u64,
    /// The way of the restore.
    pub mode: RestorationMode,
    /// The name of the container.
    pub name: String,
    /// Whether the state of the snapshot is there; else everything is as before the restore.
    pub is_finished: bool,
    /// The proof of a replacement.
    pub health: Option<Health>,
}

/// Finishes the interrupted restore of a history, or takes it back. `None`: there is none.
///
/// # Errors
/// [`RestoreError`]; it can be tried again then.
pub fn resume(
    docker: &Docker,
    history: &ContainerHistory<'_>,
    direction: Direction,
    check: &HealthCheck,
    progress: &dyn Progress,
) -> Result<Option<ResumeReport>, RestoreError> {
    let unlocked = Job { docker, history, number: 0, progress };
    let _container = unlocked.lock_container()?;
    let _restoring = journal::lock(history)?;
    let Some(journal) = journal::read(history)? else { return Ok(None) };
    let _objects = history.storage().hold_objects(&history.id())?;
    let job = Job { docker, history, number: journal.snapshot, progress };
    let mut report = ResumeReport {
        session_id: history.id(),
        snapshot: journal.snapshot,
        mode: journal.mode,
        name: journal.name.clone(),
        is_finished: false,
        health: None,
    };
    let is_forward = direction == Direction::Finish && journal.step == Step::Ready;
    match (journal.mode, is_forward) {
        (RestorationMode::VolumesOnly, true) => {
            in_place::forward(job, &journal)?;
            report.is_finished = true;
        }
        (RestorationMode::VolumesOnly, false) => in_place::back(job, &journal)?,
        (RestorationMode::Replace, true) => {
            let health = replace::forward(job, &journal, check)?;
            report.is_finished = health.is_healthy;
            if !health.is_healthy {
                replace::back(job, &journal)?;
            }
            report.health = Some(health);
        }
        (RestorationMode::Replace, false) => replace::back(job, &journal)?,
        (RestorationMode::New, true) => {
            if let (Some(id), true) = (&journal.new_id, journal.start) {
                make::start(docker, id)?;
            }
            if let Some(id) = &journal.new_id {
                job.note(journal.mode, id, &journal.name)?;
            }
            journal::remove(history)?;
            report.is_finished = true;
        }
        (RestorationMode::New, false) => {
            make::remove_new(job, &journal)?;
            journal::remove(history)?;
        }
    }
    Ok(Some(report))
}
