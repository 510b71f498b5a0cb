//! Every way back, as a job: planned, asked about, carried out.
//!
//! ```text
//! session + kind + options ──→ RestoreJob ── plan() ──→ Plan ── yes ──→ carry_out(&plan)
//!                                   └───────── no person is asked ────→ run()
//! ```
//!
//! A front end shows a plan, asks and prints. The job does what no front end may forget:
//!
//! - It notes the number of restores of the session. After another restore it does nothing.
//! - It refuses paths that an interrupted restore of any session left between two states.
//! - It keeps runs from beginning on its paths, and refuses beside a run that is at work.
//! - Its kind decides which later changes are conflicts, whose changes stay, and the record.
//! - It names in each conflict the sessions that are behind it.
//!
//! A plan writes nothing. A job that is carried out looks at the disk again, under the locks: a
//! change that came after the plan is a conflict, and nothing that was not planned is overwritten
//! unseen.

mod guards;
mod kind;

use std::path::PathBuf;
use std::sync::Arc;

pub use guards::refuse_half_way;
pub use kind::JobKind;

use crate::progress::Progress;
use crate::restore::{Decision, JobReport, RestoreError, RestoreOptions};
use crate::session::{Catalog, CatalogError, SessionSummary, changed_since, running_on};
use crate::snapshot::{SessionDir, SnapshotError, SnapshotManager};

/// A way back of one session, which a person or a program asked for. See the [module](self).
#[derive(Debug, Clone)]
pub struct RestoreJob {
    manager: SnapshotManager,
    /// The store of the session; none around a session by itself, or in the mounts of a fork.
    catalog: Option<Catalog>,
    kind: JobKind,
    options: RestoreOptions,
    restore_count: u64,
}

/// The effect that a job would have, when it was looked at.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The changes, and the reason for each path that stays.
    pub report: JobReport,
    restore_count: u64,
}

impl RestoreJob {
    /// A job of the session of `manager`, decided on now.
    ///
    /// # Errors
    /// When the session cannot be read. [`RestoreError::ChangedNothing`] for the redo of a restore
    /// that changed nothing.
    pub fn new(manager: SnapshotManager, kind: JobKind) -> Result<Self, RestoreError> {
        let metadata = manager.session().metadata().map_err(SnapshotError::from)?;
        let restore_count = metadata.restores.len() as u64;
        let store = manager.session().path().parent().filter(|root| Catalog::is_store(root));
        // No other session works in what another source shows.
        let store = store.filter(|_| !manager.has_source());
        let catalog = store.map(|root| Catalog::new(root.to_owned(), []));
        let options = RestoreOptions::default();
        let mut job = Self { manager, catalog, kind, options, restore_count };
        job.select_redone()?;
        job.apply_kind();
        Ok(job)
    }

    /// The same, in a catalog that also knows sessions of other directories.
    #[must_use]
    pub fn in_catalog(mut self, catalog: &Catalog) -> Self {
        if self.catalog.is_some() {
            self.catalog = Some(catalog.clone());
        }
        self
    }

    /// The same, decided on when the session had this number of restores.
    #[must_use]
    pub fn decided_at(mut self, restore_count: u64) -> Self {
        self.restore_count = restore_count;
        self
    }

    /// Changes what is chosen. The kind keeps its say: see [`JobKind`].
    pub fn choose(&mut self, change: impl FnOnce(&mut RestoreOptions)) {
        change(&mut self.options);
        self.apply_kind();
    }

    /// Gives the job another kind. The choices stay, and so does the moment of the decision.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn set_kind(&mut self, kind: JobKind) -> Result<(), RestoreError> {
        self.kind = kind;
        self.select_redone()?;
        self.apply_kind();
        Ok(())
    }

    /// Tells `progress` about the work that follows, and asks it whether to stop.
    pub fn tell(&mut self, progress: Arc<dyn Progress + Send>) {
        self.manager = self.manager.clone().with_progress(progress);
    }

    /// The manager of the session.
    pub fn manager(&self) -> &SnapshotManager {
        &self.manager
    }

    /// The session.
    pub fn session(&self) -> &SessionDir {
        self.manager.session()
    }

    /// The kind.
    pub fn kind(&self) -> &JobKind {
        &self.kind
    }

    /// The choices.
    pub fn options(&self) -> &RestoreOptions {
        &self.options
    }

    /// The number of the snapshot whose tracked paths are meant.
    pub fn snapshot(&self) -> u64 {
        self.kind.snapshot()
    }

    /// The tracked paths: the project.
    pub fn tracked_paths(&self) -> Vec<PathBuf> {
        let recorded = self.session().manifest(self.snapshot());
        let roots =
            recorded.map_or_else(|_| self.manager.roots().to_vec(), |loaded| loaded.manifest.roots);
        roots.into_iter().map(|root| root.path).collect()
    }

    /// The runs that are at work on the paths that may change.
    ///
    /// # Errors
    /// When the sessions cannot be listed.
    pub fn runs_at_work(&self) -> Result<Vec<SessionSummary>, CatalogError> {
        let Some(catalog) = &self.catalog else { return Ok(Vec::new()) };
        running_on(catalog, &self.options.selection.contained_in(&self.tracked_paths()), None)
    }

    /// Says what the job would do. Writes nothing. With conflicts that are refused, the changes are
    /// those that would be made without them.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn plan(&self) -> Result<Plan, RestoreError> {
        self.refuse_half_way()?;
        let mut report = match &self.kind {
            JobKind::Steps(numbers) => self.manager.plan_step_undo(numbers, &self.options)?,
            JobKind::Text(part) => self.manager.plan_text_undo(part, &self.options)?,
            JobKind::Restore(_) | JobKind::Undo(_) | JobKind::GoBack(_) | JobKind::Redo(_) => {
                JobReport::of(self.manager.plan_restore(self.snapshot(), &self.options)?)
            }
        };
        self.name_sessions(&mut report);
        Ok(Plan { report, restore_count: self.restore_count })
    }

    /// Does what was planned. The state before is kept as a further snapshot of the session. With
    /// conflicts that are refused nothing is changed, and the report lists them.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`] and [`RestoreError::OnlyRemoved`],
    /// nothing has changed then. [`RestoreError::RestoredMeanwhile`] after another restore.
    pub fn carry_out(&self, plan: &Plan) -> Result<JobReport, RestoreError> {
        self.carry_out_since(Some(plan.restore_count))
    }

    /// The same without a plan, where no person is asked. A state comes back also after another
    /// restore, because it is the same state.
    ///
    /// # Errors
    /// As [`carry_out`](Self::carry_out).
    pub fn run(&self) -> Result<JobReport, RestoreError> {
        let is_state = matches!(self.kind, JobKind::Restore(_) | JobKind::GoBack(_));
        self.carry_out_since(Some(self.restore_count).filter(|_| !is_state))
    }

    /// Waits for a restore of the session that is at work, and refuses if there was one since the
    /// decision: for a plan of which nothing is left, which is no reason to go on then.
    ///
    /// # Errors
    /// [`RestoreError::RestoredMeanwhile`].
    pub fn refuse_restored_since(&self) -> Result<(), RestoreError> {
        self.manager.refuse_restored_since(self.restore_count)
    }

    /// The user's own edits in the session of an agent that a plan takes along, sorted. A git
    /// directory stands for a repository whose branches the user moved.
    ///
    /// # Errors
    /// When a manifest or a tree is missing or damaged.
    pub fn own_edits(&self, plan: &Plan) -> Result<Vec<PathBuf>, RestoreError> {
        let edits = self.manager.own_edits_after(self.snapshot())?;
        // A change in a git directory is one of the directory.
        let is_git_dir = |path: &&PathBuf| path.ends_with(".git");
        let mut going: Vec<PathBuf> = Vec::new();
        for change in &plan.report.restore.changes {
            let git_dir = edits.iter().filter(is_git_dir).find(|it| change.path.starts_with(it));
            going.extend(edits.get(&change.path).or(git_dir).cloned());
        }
        going.sort();
        going.dedup();
        Ok(going)
    }

    fn carry_out_since(&self, restore_count: Option<u64>) -> Result<JobReport, RestoreError> {
        self.refuse_half_way()?;
        self.make_directories_above()?;
        let decision = Decision { command: self.kind.command(), restore_count };
        let (manager, options) = (&self.manager, &self.options);
        let mut report = match &self.kind {
            JobKind::Steps(numbers) => manager.undo_steps(numbers, options, decision)?,
            JobKind::Text(part) => manager.undo_text(part, options, decision)?,
            JobKind::Restore(_) | JobKind::Undo(_) | JobKind::GoBack(_) | JobKind::Redo(_) => {
                JobReport::of(manager.restore_decided(self.snapshot(), options, decision)?)
            }
        };
        self.name_sessions(&mut report);
        Ok(report)
    }

    /// Adds to each conflict which other sessions are behind it.
    fn name_sessions(&self, report: &mut JobReport) {
        let Some(catalog) = &self.catalog else { return };
        let conflicts = &mut report.restore.conflicts;
        let paths = conflicts.iter().map(|conflict| conflict.path.as_path());
        let mut named = changed_since(catalog, self.session(), paths).unwrap_or_default();
        for conflict in conflicts {
            conflict.sessions = named.remove(&conflict.path).unwrap_or_default();
        }
    }

    /// A redo is about the paths that the restore changed.
    fn select_redone(&mut self) -> Result<(), RestoreError> {
        let JobKind::Redo(snapshot) = self.kind else { return Ok(()) };
        let Some(selection) = self.manager.changed_by_restore(snapshot)? else {
            return Err(RestoreError::ChangedNothing { session: self.session().id(), snapshot });
        };
        self.options.selection = selection;
        Ok(())
    }

    fn apply_kind(&mut self) {
        self.options.is_undo = matches!(self.kind, JobKind::Undo(_));
        self.options.takes_back = matches!(self.kind, JobKind::Redo(_));
    }
}
