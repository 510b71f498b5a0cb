//! The way back of a container: plan, fill, check, start.
//!
//! - A restore makes a *new* container beside the original, which stays untouched. Volumes come
//!   back as new volumes. It is not started where it would write among files of containers at work.
//! - With [`Way::Replace`] the new container takes the name of the original. The original is
//!   stopped and kept under another name; it goes back if the new one does not become healthy.
//! - With [`Way::VolumesOnly`] volumes of the stopped original get the state of the snapshot in
//!   their own directories, after a safety snapshot.
//!
//! Always true: planning changes nothing. A container starts only after its volumes were read back
//! and compared with the snapshot, in everything that the source of the reading carries. A failure
//! takes back what was made. Nothing is cleared or removed that a program may have written and that
//! is in no snapshot: what is not known is recorded first ([`SafetySnapshot`]), or kept. Before the
//! first change a journal exists beside the history (`journal.rs`); after a crash [`resume()`]
//! finishes the work or takes it back, and until then no other restore of the session begins. Every
//! step goes by the engine's ids, so a step that was done already is done once.

mod compare;
mod contents;
mod create;
mod error;
mod fill_archive;
mod fill_directory;
mod health;
mod in_place;
mod journal;
mod kept;
mod make;
mod names;
mod plan;
mod ports;
mod reach;
mod recorded;
mod replace;
mod resume;
mod sharing;
mod survey;
#[cfg(test)]
mod tests;
mod users;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{ContainerHistory, Docker, StorageLock};
use nono_engine::progress::Progress;
use nono_engine::snapshot::{Restoration, RestorationMode};

pub use error::RestoreError;
pub use health::{Health, HealthCheck};
pub(super) use journal::half_restored;
pub use journal::{Interrupted, interrupted, unfinished};
pub use kept::{
    CleanupReport, KeptContainer, KeptOutcome, KeptReport, clean_all, clean_kept, kept_containers,
};
pub use plan::{ContainerPlan, PlannedPort, PlannedVolume, plan};
pub use resume::{Direction, ResumeReport, resume};
pub use sharing::{NotStarted, SharedMount};

/// Takes a snapshot of a container, by the engine's id, before something of it goes. It is called
/// under the lock of the container.
pub type SafetySnapshot<'a> = dyn Fn(&str, Extent) -> Result<Safety, RestoreError> + 'a;

/// The parts of a container that a safety snapshot has to hold. The container stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Its volumes: nothing else is about to go.
    Volumes,
    /// All of it: an image, its volumes, its changed files.
    Whole,
}

/// A safety snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Safety {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub number: u64,
}

/// The way of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A new container beside the original.
    New,
    /// A new container in the place of the original.
    Replace,
    /// These volumes of the stopped original, by name or by path in the container.
    VolumesOnly(Vec<String>),
}

impl Way {
    fn mode(&self) -> RestorationMode {
        match self {
            Self::New => RestorationMode::New,
            Self::Replace => RestorationMode::Replace,
            Self::VolumesOnly(_) => RestorationMode::VolumesOnly,
        }
    }
}

/// The wishes for a restore.
#[derive(Debug, Clone)]
pub struct RestoreOptions {
    /// The way.
    pub way: Way,
    /// The name of a new container; a unique one with the time without it.
    pub name: Option<String>,
    /// Whether the new container is started, unless [`NotStarted`] says why not. A replacement
    /// always is.
    pub start: bool,
    /// Whether a new container is started beside others that are at work in its bind mounts.
    pub share_mounts: bool,
    /// The proof that a replacement works.
    pub health: HealthCheck,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            way: Way::New,
            name: None,
            start: true,
            share_mounts: false,
            health: HealthCheck::default(),
        }
    }
}

/// The result of a restore.
#[derive(Debug, Clone, Serialize)]
pub struct RestoreReport {
    /// The plan that was carried out, or that would be.
    #[serde(flatten)]
    pub plan: ContainerPlan,
    /// Whether nothing was done on purpose.
    pub dry_run: bool,
    /// The container that has the state now: the engine's id. `None` for a dry run, and when the
    /// original came back.
    pub container_id: Option<String>,
    /// Whether it runs.
    pub is_started: bool,
    /// The published ports of the new container: the port, and the places where it is reached.
    pub published: Vec<(String, String)>,
    /// The outcome of the health check of a replacement.
    pub health: Option<Health>,
    /// The original container of a replacement: stopped, and kept under this name.
    pub kept_as: Option<String>,
    /// The snapshot that holds the volumes before a restore in place.
    pub safety_snapshot: Option<u64>,
    /// Entries that no restore makes: sockets and devices, as `VOLUME: PATH`.
    pub not_made: Vec<String>,
}

impl RestoreReport {
    /// The report of a plan that is not carried out.
    pub fn dry_run(plan: ContainerPlan) -> Self {
        Self {
            plan,
            dry_run: true,
            container_id: None,
            is_started: false,
            published: Vec::new(),
            health: None,
            kept_as: None,
            safety_snapshot: None,
            not_made: Vec::new(),
        }
    }

    /// Whether the state of the snapshot is there now.
    pub fn is_complete(&self) -> bool {
        self.dry_run || self.health.as_ref().is_none_or(|health| health.is_healthy)
    }
}

/// The subject of a restore, and its means.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The engine.
    pub docker: &'a Docker,
    /// The history.
    pub history: &'a ContainerHistory<'a>,
    /// The snapshot.
    pub number: u64,
    /// Told about the work, and asked whether to stop.
    pub progress: &'a dyn Progress,
}

impl std::fmt::Debug for Job<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("session", &self.history.id())
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Restores a snapshot of a container. `safety` takes a snapshot of the original before its volumes
/// change.
///
/// # Errors
/// [`RestoreError`]. Unless it is [`RestoreError::HalfDone`], everything is as before then.
pub fn restore(
    job: Job<'_>,
    options: &RestoreOptions,
    safety: &SafetySnapshot<'_>,
) -> Result<RestoreReport, RestoreError> {
    // The container itself changes: no snapshot may be taken of it meanwhile.
    let _container = match options.way {
        Way::New => None,
        _ => Some(job.lock_container()?),
    };
    let _restoring = journal::lock(job.history)?;
    let _replaced = match options.way {
        Way::New => None,
        _ => job.lock_other(&kept::holder(job)?)?,
    };
    // Nothing may be collected between the plan and the last byte.
    let _objects = job.history.storage().hold_objects(&job.history.id())?;
    let plan = plan(job, options)?;
    match &options.way {
        Way::New => make::beside(job, plan, options),
        Way::Replace => replace::replace(job, plan, options),
        Way::VolumesOnly(_) => in_place::restore(job, plan, safety),
    }
}

impl Job<'_> {
    /// `SESSION/N`.
    fn snapshot(&self) -> String {
        format!("{}/{}", self.history.id(), self.number)
    }

    fn lock_container(&self) -> Result<StorageLock, RestoreError> {
        let id = &self.history.container().container_id;
        Ok(super::lock(self.history.storage(), id, self.progress)?)
    }

    /// Locks a container, unless it is that of the history, whose lock is held.
    fn lock_other(&self, id: &str) -> Result<Option<StorageLock>, RestoreError> {
        if id == self.history.container().container_id {
            return Ok(None);
        }
        Ok(Some(super::lock(self.history.storage(), id, self.progress)?))
    }

    /// Notes that the restore is complete.
    fn note(&self, mode: RestorationMode, id: &str, name: &str) -> Result<(), RestoreError> {
        let done = Restoration {
            at: Timestamp::now(),
            snapshot: self.number,
            mode,
            container_id: id.to_owned(),
            name: name.to_owned(),
        };
        Ok(self.history.note_restoration(done)?)
    }
}

/// The longest wait between two looks at a container.
const LOOK_EVERY: Duration = Duration::from_millis(100);
