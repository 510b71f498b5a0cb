//! The recorder of the actions: finds or begins the session of an agent session, and takes its
//! steps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::event::{Event, EventKind};
use super::outside::is_outside;
use super::place::project_of;
use super::spool::Kept;
use super::state::{Action, AgentState};
use nono_engine::path_text::Shown;
use nono_engine::progress::NoProgress;
use nono_engine::session::{Catalog, CatalogError, RecordError, RecordRequest, Recording};
use nono_engine::snapshot::{
    AgentSession, ManifestError, OutsideFate, SessionDir, SnapshotError, SnapshotManager, Step,
};
use nono_engine::sys;

/// Why a step is not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordStepError {
    /// The directory is no project, or holds more than one. By design, and no failure.
    #[error(
        "nothing is recorded in {place}: a home directory, those above it, and directories of the \
         system (/dev, /proc, /sys) are not recorded"
    )]
    NoProject {
        /// Where the agent works, as it is shown.
        place: String,
    },
    /// The directory in which the agent says that it works cannot be found.
    #[error("the directory of the agent is not recorded: {0}")]
    Unreachable(#[source] sys::Error),
    /// The session could not be begun.
    #[error("{project} is not recorded: {source}")]
    Begin {
        /// The project, as it is shown.
        project: String,
        /// Why not.
        source: Box<RecordError>,
    },
    /// A step could not be taken.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The sessions could not be looked at.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A session's manifest could not be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

impl RecordStepError {
    /// Whether nothing went wrong: the place is one that is never recorded.
    pub fn is_by_design(&self) -> bool {
        matches!(self, Self::NoProject { .. })
    }
}

/// Records agent sessions in a store.
#[derive(Debug)]
pub struct Recorder {
    /// How a session is begun; its tracked paths are those of the agent.
    pub request: RecordRequest,
}

/// Finds the paths elsewhere that belong to a project and are recorded with it: the git directory
/// of a linked worktree or of a submodule. A failure there is the finder's to tell.
pub type FindElsewhere<'a> = &'a dyn Fn(&Path) -> Vec<PathBuf>;

/// The session of an agent session.
struct Opened {
    manager: SnapshotManager,
    /// Whether its baseline is the present state.
    is_fresh: bool,
}

impl Recorder {
    /// Handles an event. `settle` may change a step when its state is captured. `elsewhere` is
    /// asked when a session begins.
    ///
    /// # Errors
    /// Why a step is not recorded. The state goes on all the same.
    pub fn handle(
        &self,
        kept: &mut Kept,
        event: &Event,
        settle: &dyn Fn(&mut Step),
        elsewhere: FindElsewhere<'_>,
    ) -> Result<(), RecordStepError> {
        let mut opened = None;
        if kept.session.is_none() && !kept.is_refused() {
            opened = Some(self.find_or_begin(kept, event, elsewhere)?);
        }
        let actions = kept.agent.advance(event);
        if actions.is_empty() || kept.is_refused() {
            return Ok(());
        }
        let opened = match opened {
            Some(opened) => opened,
            None => self.open(kept, event, elsewhere)?,
        };
        let session = opened.manager.session();
        // The client may not wait for the state before its call.
        if matches!(event.kind, EventKind::Before(_)) {
            session.note_call()?;
        }
        record_actions(&opened.manager, opened.is_fresh, actions, settle)?;
        if !kept.agent.is_at_work() {
            session.note_no_call()?;
        }
        Ok(())
    }

    fn open(
        &self,
        kept: &mut Kept,
        event: &Event,
        elsewhere: FindElsewhere<'_>,
    ) -> Result<Opened, RecordStepError> {
        if let Some(id) = &kept.session {
            match SessionDir::open(&self.request.root.join(id)) {
                Ok(session) => {
                    return Ok(Opened { manager: self.manager(&session)?, is_fresh: false });
                }
                // Retention or a person removed it.
                Err(ManifestError::Io(error)) if error.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.find_or_begin(kept, event, elsewhere)
    }

    fn manager(&self, session: &SessionDir) -> Result<SnapshotManager, RecordStepError> {
        let manager = SnapshotManager::open(session.path())?;
        Ok(manager
            .with_budget(self.request.budget)
            .with_compression(self.request.compression)
            .with_threads(self.request.threads))
    }

    /// Looks through the manifests, and begins a session where none is of this agent session.
    fn find_or_begin(
        &self,
        kept: &mut Kept,
        event: &Event,
        elsewhere: FindElsewhere<'_>,
    ) -> Result<Opened, RecordStepError> {
        let agent =
            AgentSession { client: event.client.clone(), session_id: event.session_id.clone() };
        let catalog = Catalog::new(self.request.root.clone(), []);
        for session in catalog.sessions()?.into_iter().rev() {
            // A session that cannot be read is another one's.
            let Ok(metadata) = session.metadata() else { continue };
            if metadata.agent.as_ref() == Some(&agent) && metadata.snapshot_count > 0 {
                let prompts = metadata.steps.iter().filter_map(|step| step.prompt.as_ref());
                let last = prompts.map(|prompt| prompt.number).max().unwrap_or(0);
                kept.agent = AgentState::resumed(last);
                kept.session = Some(session.id());
                return Ok(Opened { manager: self.manager(&session)?, is_fresh: false });
            }
        }
        let begun = self.begin(event, agent, elsewhere);
        match &begun {
            Ok(recording) => {
                kept.session = Some(recording.session_id());
                kept.refused = None;
            }
            Err(_) => kept.refused = Some(Timestamp::now()),
        }
        Ok(Opened { manager: begun?.manager().clone(), is_fresh: true })
    }

    fn begin(
        &self,
        event: &Event,
        agent: AgentSession,
        elsewhere: FindElsewhere<'_>,
    ) -> Result<Recording, RecordStepError> {
        let cwd = event.cwd.as_deref().unwrap_or(Path::new("/"));
        let home = std::env::home_dir();
        sys::real_path(cwd).map_err(RecordStepError::Unreachable)?;
        let project = project_of(cwd, home.as_deref())
            .ok_or_else(|| RecordStepError::NoProject { place: Shown::path(cwd).to_string() })?;
        let shown = Shown::path(&project).to_string();
        let elsewhere = elsewhere(&project);
        let request = RecordRequest {
            tracked_paths: std::iter::once(project).chain(elsewhere).collect(),
            command: vec![event.client.clone().into()],
            ..self.request.clone()
        };
        Recording::start_agent(&request, agent, Arc::new(NoProgress))
            .map_err(|error| RecordStepError::Begin { project: shown, source: Box::new(error) })
    }
}

/// Carries out actions in a session that is there. `is_fresh`: its last snapshot is the present
/// state.
///
/// # Errors
/// When a step cannot be taken; the actions after it are not carried out.
pub fn record_actions(
    manager: &SnapshotManager,
    is_fresh: bool,
    actions: Vec<Action>,
    settle: &dyn Fn(&mut Step),
) -> Result<(), RecordStepError> {
    for action in actions {
        match action {
            Action::Begin => set_ended(manager, None)?,
            Action::Capture(_) if is_fresh => {}
            Action::Capture(mut step) => {
                keep_outside(&mut step, manager);
                drop(manager.record_step(*step, settle)?);
            }
            Action::End => set_ended(manager, Some(Timestamp::now()))?,
        }
    }
    Ok(())
}

/// Keeps the paths of a call that no tracked directory holds.
fn keep_outside(step: &mut Step, manager: &SnapshotManager) {
    for outside in &mut step.outside {
        if outside.what == OutsideFate::Entered {
            outside.path = sys::real_or_future_path(&outside.path);
        }
    }
    let roots = || manager.roots().iter().map(|root| root.path.as_path());
    step.outside.retain(|outside| is_outside(outside, roots()));
}

/// Ends the session, or goes on with it.
fn set_ended(manager: &SnapshotManager, ended: Option<Timestamp>) -> Result<(), RecordStepError> {
    let metadata = manager.session().metadata()?;
    // A run ends with its command.
    let is_agents = metadata.origin == nono_engine::snapshot::SessionOrigin::Agent;
    if is_agents && metadata.ended.is_some() != ended.is_some() {
        let metadata = nono_engine::snapshot::SessionMetadata { ended, ..metadata };
        manager.save_session_metadata(&metadata)?;
    }
    Ok(())
}
