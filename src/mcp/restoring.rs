//! `checkpoint`, `preview_restore` and `restore`: the tools that write.
//!
//! A restore takes paths of the project that are named one by one, never a whole state, never a
//! glob, never what git keeps, and always takes a safety snapshot. It is refused while a run is at
//! work on the paths, and where the settings switch it off.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pages::{answer, page};
use super::workspace::is_in_git;
use super::{Answer, CHECKPOINT, ToolError, Workspace};
use crate::agent::{AgentState, Caller, Spool};
use crate::cli::render::{Palette, change_mark, summary_line};
use nono_engine::byte_path;
use nono_engine::diff::Change;
use nono_engine::job::{JobKind, RestoreJob};
use nono_engine::path_text::Shown;
use nono_engine::progress::NoProgress;
use nono_engine::restore::{Conflict, OnConflict, RestoreError, RestoreReport, Selection, Skipped};
use nono_engine::session::{
    RecordRequest, Recording, SessionStatus, SessionSummary, check_label, steps,
};
use nono_engine::snapshot::{AgentSession, SessionOrigin, SnapshotManager, SnapshotRequest, Taken};
use nono_engine::sys;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointArguments {
    label: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreArguments {
    at: String,
    paths: Vec<String>,
    #[serde(default)]
    on_conflict: Conflicts,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
}

/// The treatment of later changes of others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Conflicts {
    #[default]
    Refuse,
    KeepNewer,
    Overwrite,
}

impl Workspace {
    /// Records the state of the project: in the session of the agent that is at work here, else in
    /// an open one, else in a new one.
    pub(super) fn checkpoint(&self, arguments: &CheckpointArguments) -> Result<Answer, ToolError> {
        let label = arguments.checked()?;
        let (all, _) = self.sessions()?;
        let is_open = |session: &&SessionSummary| {
            session.status == SessionStatus::Open
                && session.tracked_paths.iter().any(|tracked| self.project.starts_with(tracked))
        };
        let open: Vec<_> = all.iter().filter(is_open).collect();
        let agents: Vec<_> = open.iter().filter_map(|session| self.told(session)).collect();
        let caller = Caller::among(&agents, CHECKPOINT, &label);
        let of_caller = open.iter().find(|session| {
            session.agent.is_some() && session.agent.as_ref() == caller.as_ref().map(|it| &it.agent)
        });
        let Some(open) = of_caller.or(open.first()) else { return self.first_checkpoint(label) };
        let session = self.catalog.find(&open.session_id)?;
        let manager = SnapshotManager::open(session.path())?
            .with_budget(self.policy.budget)
            .with_compression(self.policy.compression)
            .with_threads(self.policy.threads);
        take(&manager, label, caller)
    }

    /// The agent session that a session records, and what its hooks have told.
    fn told(&self, session: &SessionSummary) -> Option<(AgentSession, AgentState)> {
        let agent = session.agent.clone()?;
        // Without it, the number of the last prompt is that of the last step.
        let resumed = || {
            let session = self.catalog.find(&session.session_id).ok();
            let steps = session.and_then(|session| steps(&session).ok()).unwrap_or_default();
            let prompts = steps.iter().filter_map(|step| step.prompt.as_ref());
            AgentState::resumed(prompts.map(|prompt| prompt.number).max().unwrap_or(0))
        };
        let state = Spool::told(self.catalog.root(), &agent).unwrap_or_else(resumed);
        Some((agent, state))
    }

    fn first_checkpoint(&self, label: String) -> Result<Answer, ToolError> {
        let request = RecordRequest {
            root: self.catalog.root().to_owned(),
            command: Vec::new(),
            tracked_paths: vec![self.project.clone()],
            exclusion: self.policy.exclusion.clone(),
            budget: self.policy.budget,
            compression: self.policy.compression,
            threads: self.policy.threads,
            origin: SessionOrigin::Snapshot,
            label: Some(label),
        };
        let recording = Recording::start(&request, std::sync::Arc::new(NoProgress))?;
        Ok(checkpoint_answer(&recording.session_id(), recording.baseline().number, None))
    }

    pub(super) fn preview_restore(
        &self,
        arguments: &RestoreArguments,
    ) -> Result<Answer, ToolError> {
        let report = self.job(arguments)?.plan()?.report.restore;
        let page = Page { cursor: arguments.cursor.as_deref(), limit: arguments.limit };
        self.report("A restore would do this", &report, page)
    }

    pub(super) fn restore(&self, arguments: &RestoreArguments) -> Result<Answer, ToolError> {
        if !self.policy.may_restore {
            return Err(ToolError::Refused(
                "restores by agents are switched off here (mcp_restore); ask the user to run \
                 `nono restore`"
                    .to_owned(),
            ));
        }
        if arguments.cursor.is_some() {
            let reason =
                "cursor: a restore has one page; preview_restore and show_changes have more";
            return Err(ToolError::arguments(reason));
        }
        let done = self.job(arguments)?.run().map_err(|error| match error {
            RestoreError::RunAtWork { session, .. } => ToolError::Refused(format!(
                "session {session} is running on these paths; nothing was changed"
            )),
            error => error.into(),
        })?;
        let report = done.restore;
        let head = match report.is_refused() {
            true => "Nothing was changed, because of conflicts; this is what was asked for",
            false => "Restored",
        };
        self.report(head, &report, Page { cursor: None, limit: arguments.limit })
    }

    /// The request, checked.
    fn job(&self, arguments: &RestoreArguments) -> Result<RestoreJob, ToolError> {
        let paths = self.paths(&arguments.paths)?;
        let project = self.project.as_os_str().as_bytes();
        if paths.is_empty() || paths.iter().any(|path| path == project) {
            let reason = "paths: name the files and directories to restore, not the whole project";
            return Err(ToolError::arguments(reason));
        }
        if let Some(path) = paths.iter().find(|path| is_in_git(path)) {
            let path = Shown::bytes(path);
            return Err(ToolError::Refused(format!(
                "{path} belongs to git; this tool leaves repositories alone"
            )));
        }
        let named = self.state(Some(&arguments.at))?;
        let number = named.recorded()?;
        let paths = paths.iter().map(|path| PathBuf::from(nono_engine::path_text::to_path(path)));
        let job = RestoreJob::new(named.manager, JobKind::Restore(number))?;
        let mut job = job.in_catalog(&self.catalog);
        job.choose(|options| {
            options.selection.paths = paths.collect();
            options.keep_commits = true;
        });
        self.name_exactly(&mut job)?;
        job.choose(|options| {
            options.on_conflict = match arguments.on_conflict {
                Conflicts::Refuse => OnConflict::Refuse,
                Conflicts::KeepNewer => OnConflict::KeepNewer,
                Conflicts::Overwrite => OnConflict::Overwrite,
            };
        });
        Ok(job)
    }

    /// Takes names with the signs of globs for what they are: names. What lies below them is named
    /// one by one, because a selection of paths would read them as globs.
    fn name_exactly(&self, job: &mut RestoreJob) -> Result<(), ToolError> {
        let paths = job.options().selection.paths.clone();
        let has_signs = |path: &PathBuf| {
            path.as_os_str().as_bytes().iter().any(|byte| b"*?[{\\".contains(byte))
        };
        if !paths.iter().any(has_signs) {
            return Ok(());
        }
        let mut everything = job.clone();
        everything.choose(|options| {
            options.on_conflict = OnConflict::Overwrite;
            options.selection = Selection::default();
        });
        let planned = everything.plan()?.report.restore;
        let named = |path: &&PathBuf| {
            let path = path.as_os_str().as_bytes();
            paths.iter().any(|named| byte_path::is_in(path, named.as_os_str().as_bytes()))
        };
        let changed = planned.changes.iter().map(|change| &change.path);
        let changed: Vec<_> = changed.chain(&planned.touched).collect();
        // A path that is neither here nor brought back is a mistake, or meant as a glob.
        let is_nowhere = |path: &&PathBuf| {
            let is_in = |changed: &&PathBuf| {
                byte_path::is_in(changed.as_os_str().as_bytes(), path.as_os_str().as_bytes())
            };
            matches!(sys::kind_of(path), Ok(None)) && !changed.iter().any(is_in)
        };
        if let Some(path) = paths.iter().find(is_nowhere) {
            let path = self.named(path.as_os_str().as_bytes());
            return Err(ToolError::Refused(format!(
                "there is nothing at {path:?}, neither now nor in that state; each of `paths` is \
                 the path of a file or a directory, and no glob (find_in_history takes globs)"
            )));
        }
        let mut exactly: Vec<_> = changed.into_iter().filter(named).cloned().collect();
        // With nothing to do, nothing is meant; an empty selection would mean everything.
        exactly.extend(paths.iter().cloned());
        let selection = Selection { exactly, ..Selection::default() };
        job.choose(|options| options.selection = selection);
        Ok(())
    }

    /// Says what a restore did or would do, as much as a page takes.
    fn report(
        &self,
        head: &str,
        report: &RestoreReport,
        asked: Page<'_>,
    ) -> Result<Answer, ToolError> {
        let changes = report.changes.iter().map(Told::Change);
        let conflicts = report.conflicts.iter().map(Told::Conflict);
        let skipped = report.skipped.iter().map(Told::Skipped);
        let all: Vec<_> = conflicts.chain(skipped).chain(changes).collect();
        let count = all.len();
        let line = |told: &Told<'_>| told.line(self);
        let (told, next) = page(all, asked.cursor, asked.limit, line)?;
        let recorded: String = told.iter().map(line).collect();
        let left = count - told.len();
        let more = match (&next, report.dry_run, report.safety_snapshot) {
            (Some(_), false, Some(safety)) => {
                let id = format!("{}/{safety}", report.session_id);
                format!(
                    " {left} more are not listed: show_changes with `since` {id:?} and `at` \
                     \"now\" lists them."
                )
            }
            (Some(_), false, None) => format!(" {left} more are not listed."),
            _ => String::new(),
        };
        // A restore is not called again for its second page.
        let next = next.filter(|_| report.dry_run);
        let summary = summary_line(&report.summary(), &Palette::plain());
        let safety = report.safety_snapshot.map(|safety| format!("{}/{safety}", report.session_id));
        let kept = safety.as_ref().map(|id| format!(" The state before is {id}."));
        let head = format!("{head}: {summary}.{}{more}", kept.unwrap_or_default());
        let of = |kind: &str| -> Vec<Value> {
            told.iter().filter(|told| told.kind() == kind).map(|told| told.value(self)).collect()
        };
        let data = json!({
            "session_id": report.session_id,
            "at": format!("{}/{}", report.session_id, report.snapshot),
            "dry_run": report.dry_run,
            "is_complete": report.is_complete(),
            "is_refused": report.is_refused(),
            "change_count": report.changes.len(),
            "conflict_count": report.conflicts.len(),
            "skipped_count": report.skipped.len(),
            "changes": of(CHANGE),
            "conflicts": of(CONFLICT),
            "skipped": of(SKIPPED),
            "safety_snapshot": safety,
        });
        Ok(answer(&head, &recorded, next, data))
    }
}

/// The page that is asked for.
#[derive(Clone, Copy)]
struct Page<'a> {
    cursor: Option<&'a str>,
    limit: Option<u64>,
}

const CHANGE: &str = "change";
const CONFLICT: &str = "conflict";
const SKIPPED: &str = "skipped";

/// A line of a report.
enum Told<'a> {
    Change(&'a Change),
    Conflict(&'a Conflict),
    Skipped(&'a Skipped),
}

impl Told<'_> {
    fn kind(&self) -> &'static str {
        match self {
            Self::Change(_) => CHANGE,
            Self::Conflict(_) => CONFLICT,
            Self::Skipped(_) => SKIPPED,
        }
    }

    fn path(&self, workspace: &Workspace) -> String {
        let path = match self {
            Self::Change(change) => &change.path,
            Self::Conflict(conflict) => &conflict.path,
            Self::Skipped(skipped) => &skipped.path,
        };
        workspace.named(path.as_os_str().as_bytes())
    }

    fn line(&self, workspace: &Workspace) -> String {
        let path = self.path(workspace);
        let path = Shown::bytes(path.as_bytes());
        match self {
            Self::Change(change) => format!("{} {path}\n", change_mark(change.change_type)),
            Self::Conflict(_) => format!("! changed later: {path}\n"),
            Self::Skipped(skipped) => format!("! skipped: {path}: {}\n", skipped.reason),
        }
    }

    fn value(&self, workspace: &Workspace) -> Value {
        let path = self.path(workspace);
        match self {
            Self::Change(change) => json!({"path": path, "change_type": change.change_type}),
            Self::Conflict(conflict) => json!({
                "path": path, "change_type": conflict.change_type, "sessions": conflict.sessions,
            }),
            Self::Skipped(skipped) => json!({"path": path, "reason": skipped.reason}),
        }
    }
}

/// Records the present state in a session that is there, as the arguments of the tool say. Of
/// `agents` the one that was heard of last is the first.
///
/// # Errors
/// No label, or a state that cannot be recorded.
pub fn checkpoint_in(
    manager: &SnapshotManager,
    arguments: Value,
    agents: &[(AgentSession, AgentState)],
) -> Result<Answer, ToolError> {
    let arguments: CheckpointArguments = super::tools::parsed(arguments)?;
    let label = arguments.checked()?;
    let caller = Caller::among(agents, CHECKPOINT, &label);
    take(manager, label, caller)
}

impl CheckpointArguments {
    fn checked(&self) -> Result<String, ToolError> {
        let label = check_label(&self.label);
        Ok(label.map_err(|error| ToolError::arguments(format!("label: {error}")))?.to_owned())
    }
}

/// In the session of an agent a checkpoint is a step of the prompt for which it was asked.
fn take(
    manager: &SnapshotManager,
    label: String,
    caller: Option<Caller>,
) -> Result<Answer, ToolError> {
    let step = caller.map(|caller| caller.checkpoint(&label));
    let request = SnapshotRequest { label: Some(label), step, if_changed: false };
    let taken = manager.record_state(request)?;
    let summary = match &taken {
        Taken::Snapshot(_, comparison) => summary_line(&comparison.summary(), &Palette::plain()),
        Taken::Unchanged(_) => "no changes".to_owned(),
    };
    Ok(checkpoint_answer(&manager.session().id(), taken.manifest().number, Some(&summary)))
}

fn checkpoint_answer(session: &str, number: u64, summary: Option<&str>) -> Answer {
    let id = format!("{session}/{number}");
    let changed = summary.map(|summary| format!(" ({summary})")).unwrap_or_default();
    let head = format!("Checkpoint {id} holds the present state{changed}.");
    answer(&head, "", None, json!({"at": id, "session_id": session, "number": number}))
}
