//! The way out of a restore that was interrupted.

use std::path::PathBuf;

use serde::Serialize;

use super::health::HealthCheck;
use super::journal::{self, Journal, Step};
use super::{
    Health, Job, NotStarted, RestoreError, SafetySnapshot, in_place, kept_containers, make, replace,
};
use crate::{ContainerHistory, Docker, Document};
use nono_engine::progress::Progress;
use nono_engine::snapshot::RestorationMode;

/// The direction out of an interrupted restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The snapshot's state, where everything for it was made; else the state before.
    Finish,
    /// The state before the restore.
    TakeBack,
    /// All stays as it is now, and the restore is forgotten. A document that cannot be read, the
    /// journal or the list of kept containers, is set aside.
    GiveUp,
}

/// The outcome of [`resume`].
#[derive(Debug, Clone, Serialize)]
pub struct ResumeReport {
    /// The id of the session.
    pub session_id: String,
    /// The snapshot; `None` where a damaged journal does not tell.
    pub snapshot: Option<u64>,
    /// The way of the restore; `None` as there.
    pub mode: Option<RestorationMode>,
    /// The name of the container.
    pub name: String,
    /// Whether the state of the snapshot is there; else everything is as before the restore.
    pub is_finished: bool,
    /// The proof of a replacement.
    pub health: Option<Health>,
    /// The new container of a restore that was taken back, if it had worked: stopped, and kept with
    /// its volumes under this name.
    pub kept_as: Option<String>,
    /// The snapshot of the volumes as the interrupted restore, and whoever came then, left them.
    pub safety_snapshot: Option<String>,
    /// Entries that were not made: sockets and devices, as `VOLUME: PATH`.
    pub not_made: Vec<String>,
    /// Why the new container of a finished restore is not started, though it was wanted.
    pub not_started: Option<NotStarted>,
    /// Whether the restore was only forgotten.
    pub is_given_up: bool,
    /// Where damaged documents lie now that were set aside.
    pub set_aside: Vec<PathBuf>,
}

impl ResumeReport {
    /// The report of a restore for which nothing was done yet.
    fn new(history: &ContainerHistory<'_>, journal: Option<&Journal>) -> Self {
        let name = journal.map_or(&history.container().name, |journal| &journal.name);
        Self {
            session_id: history.id(),
            snapshot: journal.map(|journal| journal.snapshot),
            mode: journal.map(|journal| journal.mode),
            name: name.clone(),
            is_finished: false,
            health: None,
            kept_as: None,
            safety_snapshot: None,
            not_made: Vec::new(),
            not_started: None,
            is_given_up: false,
            set_aside: Vec::new(),
        }
    }
}

/// Finishes the interrupted restore of a history, or takes it back. `None`: there is none. Whatever
/// may have been written since the interruption is kept, or recorded by `safety` before it goes.
///
/// # Errors
/// [`RestoreError`]; it can be tried again then.
pub fn resume(
    docker: &Docker,
    history: &ContainerHistory<'_>,
    direction: Direction,
    check: &HealthCheck,
    safety: &SafetySnapshot<'_>,
    progress: &dyn Progress,
) -> Result<Option<ResumeReport>, RestoreError> {
    let unlocked = Job { docker, history, number: 0, progress };
    let _container = unlocked.lock_container()?;
    let _restoring = journal::lock(history)?;
    if direction == Direction::GiveUp {
        return give_up(history);
    }
    let Some(journal) = journal::read(history)? else { return Ok(None) };
    let _objects = history.storage().hold_objects(&history.id())?;
    let job = Job { docker, history, number: journal.snapshot, progress };
    let _replaced = match &journal.original {
        Some(original) => job.lock_other(&original.id)?,
        None => None,
    };
    let mut report = ResumeReport::new(history, Some(&journal));
    let is_forward = direction == Direction::Finish && journal.step == Step::Ready;
    match (journal.mode, is_forward) {
        (RestorationMode::VolumesOnly, is_forward) => {
            let (found, not_made) = in_place::resume(job, &journal, is_forward, safety)?;
            report.not_made = not_made;
            report.safety_snapshot = Some(format!("{}/{}", found.session_id, found.number));
            report.is_finished = is_forward;
        }
        (RestorationMode::Replace, true) => {
            let has_worked = make::has_worked(job, &journal)?;
            let health = replace::forward(job, &journal, check)?;
            report.is_finished = health.is_healthy;
            if !health.is_healthy {
                report.kept_as = replace::back(job, &journal, has_worked)?;
            }
            report.health = Some(health);
        }
        (RestorationMode::Replace, false) => {
            let has_worked = make::has_worked(job, &journal)?;
            report.kept_as = replace::back(job, &journal, has_worked)?;
        }
        (RestorationMode::New, true) => {
            if let (Some(id), true) = (&journal.new_id, journal.start) {
                report.not_started = make::start_beside(job, &journal, id)?;
            }
            if let Some(id) = &journal.new_id {
                job.note(journal.mode, id, &journal.name)?;
            }
            journal::remove(history)?;
            report.is_finished = true;
        }
        (RestorationMode::New, false) => {
            match make::has_worked(job, &journal)? {
                true => report.kept_as = make::put_aside(job, &journal)?,
                false => make::remove_new(job, &journal)?,
            }
            journal::remove(history)?;
        }
    }
    Ok(Some(report))
}

/// Forgets the restore of a history, under its locks. `None`: there is none, and no damage.
fn give_up(history: &ContainerHistory<'_>) -> Result<Option<ResumeReport>, RestoreError> {
    let (storage, id) = (history.storage(), history.id());
    let read = journal::read(history);
    let mut report = ResumeReport::new(history, read.as_ref().ok().and_then(Option::as_ref));
    match read {
        Ok(None) => {}
        Ok(Some(_)) => {
            journal::remove(history)?;
            report.is_given_up = true;
        }
        Err(RestoreError::BadJournal { .. }) => {
            report.set_aside.extend(storage.set_aside(Document::Restore(&id))?);
            report.is_given_up = true;
        }
        Err(error) => return Err(error),
    }
    match kept_containers(history) {
        Err(RestoreError::BadKeptList { .. }) => {
            report.set_aside.extend(storage.set_aside(Document::Kept(&id))?);
        }
        kept => drop(kept?),
    }
    Ok(Some(report).filter(|report| report.is_given_up || !report.set_aside.is_empty()))
}
