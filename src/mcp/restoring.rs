//! `checkpoint`, `preview_restore` and `restore`: the tools that write.
//!
//! A restore takes paths of the project that are named one by one, never a whole state, never a
//! glob, never what git keeps, and always takes a safety snapshot. It is refused while a run is at
//! work on the paths, and where the settings switch it off.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pages::{answer, items};
use super::workspace::is_in_git;
use super::{Answer, ToolError, Workspace};
use crate::byte_path;
use crate::cli::render::{Palette, change_mark, summary_line};
use crate::path_text::Shown;
use crate::progress::NoProgress;
use crate::restore::{OnConflict, RestoreOptions, RestoreReport, Selection};
use crate::session::{RecordRequest, Recording, SessionStatus, check_label, running_on, steps_of};
use crate::snapshot::{SessionOrigin, SnapshotManager, SnapshotRequest, Step, StepKind, Taken};

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
}

/// What to do about later changes of others.
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
        let is_open = |session: &&crate::session::SessionSummary| {
            session.status == SessionStatus::Open
                && session.tracked_paths.iter().any(|tracked| self.project.starts_with(tracked))
        };
        let open = all.iter().filter(is_open);
        let Some(open) = open.max_by_key(|session| session.agent.is_some()) else {
            return self.first_checkpoint(label);
        };
        let session = self.catalog.find(&open.session_id)?;
        let manager = SnapshotManager::open(session.path())?
            .with_budget(self.policy.budget)
            .with_compression(self.policy.compression)
            .with_threads(self.policy.threads);
        take(&manager, label)
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
        let (manager, number, mut options) = self.asked(arguments)?;
        self.name_exactly(&manager, number, &mut options)?;
        let report = manager.plan_restore(number, &options)?;
        Ok(self.report("A restore would do this", &report))
    }

    pub(super) fn restore(&self, arguments: &RestoreArguments) -> Result<Answer, ToolError> {
        if !self.policy.may_restore {
            return Err(ToolError::Refused(
                "restores by agents are switched off here (mcp_restore); ask the user to run \
                 `nono rollback restore`"
                    .to_owned(),
            ));
        }
        let (manager, number, mut options) = self.asked(arguments)?;
        let running = running_on(&self.catalog, &options.selection.paths, None)?;
        if let Some(session) = running.first() {
            let id = &session.session_id;
            return Err(ToolError::Refused(format!(
                "session {id} is running on these paths; nothing was changed"
            )));
        }
        self.name_exactly(&manager, number, &mut options)?;
        let report = manager.restore_with(number, &options)?;
        let head = match report.is_refused() {
            true => "Nothing was changed, because of conflicts; this is what was asked for",
            false => "Restored",
        };
        Ok(self.report(head, &report))
    }

    /// What is asked for, checked.
    fn asked(
        &self,
        arguments: &RestoreArguments,
    ) -> Result<(SnapshotManager, u64, RestoreOptions), ToolError> {
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
        let paths = paths.iter().map(|path| PathBuf::from(crate::path_text::to_path(path)));
        let options = RestoreOptions {
            on_conflict: match arguments.on_conflict {
                Conflicts::Refuse => OnConflict::Refuse,
                Conflicts::KeepNewer => OnConflict::KeepNewer,
                Conflicts::Overwrite => OnConflict::Overwrite,
            },
            selection: Selection { paths: paths.collect(), ..Selection::default() },
            keep_commits: true,
            ..RestoreOptions::default()
        };
        Ok((named.manager, number, options))
    }

    /// Takes names with the signs of globs for what they are: names. What lies below them is named
    /// one by one, because a selection of paths would read them as globs.
    fn name_exactly(
        &self,
        manager: &SnapshotManager,
        number: u64,
        options: &mut RestoreOptions,
    ) -> Result<(), ToolError> {
        let paths = &options.selection.paths;
        let has_signs = |path: &PathBuf| {
            path.as_os_str().as_bytes().iter().any(|byte| b"*?[{\\".contains(byte))
        };
        if !paths.iter().any(has_signs) {
            return Ok(());
        }
        let everything = RestoreOptions {
            on_conflict: OnConflict::Overwrite,
            selection: Selection::default(),
            ..options.clone()
        };
        let planned = manager.plan_restore(number, &everything)?;
        let named = |path: &&PathBuf| {
            let path = path.as_os_str().as_bytes();
            paths.iter().any(|named| byte_path::is_in(path, named.as_os_str().as_bytes()))
        };
        let changed = planned.changes.iter().map(|change| &change.path);
        let mut exactly: Vec<_> = changed.chain(&planned.touched).filter(named).cloned().collect();
        // With nothing to do, nothing is meant; an empty selection would mean everything.
        exactly.extend(paths.iter().cloned());
        options.selection = Selection { exactly, ..Selection::default() };
        Ok(())
    }

    fn report(&self, head: &str, report: &RestoreReport) -> Answer {
        let most = items(Some(u64::MAX));
        let named = |path: &PathBuf| self.named(path.as_os_str().as_bytes());
        let mut recorded = String::new();
        for change in report.changes.iter().take(most) {
            let mark = change_mark(change.change_type);
            let path = named(&change.path);
            recorded.push_str(&format!("{mark} {}\n", Shown::bytes(path.as_bytes())));
        }
        for conflict in report.conflicts.iter().take(most) {
            let path = named(&conflict.path);
            recorded.push_str(&format!("! changed later: {}\n", Shown::bytes(path.as_bytes())));
        }
        for skipped in report.skipped.iter().take(most) {
            let (path, why) = (named(&skipped.path), &skipped.reason);
            recorded.push_str(&format!("! skipped: {}: {why}\n", Shown::bytes(path.as_bytes())));
        }
        let left = report.changes.len().saturating_sub(most);
        let more = if left == 0 { String::new() } else { format!(", {left} of them not listed") };
        let summary = summary_line(&report.summary(), &Palette::plain());
        let safety = report.safety_snapshot.map(|safety| format!("{}/{safety}", report.session_id));
        let kept = safety.as_ref().map(|id| format!(" The state before is {id}."));
        let head = format!("{head}: {summary}{more}.{}", kept.unwrap_or_default());
        let changes =
            report.changes.iter().take(most).map(
                |change| json!({"path": named(&change.path), "change_type": change.change_type}),
            );
        let conflicts = report.conflicts.iter().take(most).map(|conflict| {
            json!({
                "path": named(&conflict.path),
                "change_type": conflict.change_type,
                "sessions": conflict.sessions,
            })
        });
        let skipped = report.skipped.iter().take(most);
        let skipped =
            skipped.map(|skipped| json!({"path": named(&skipped.path), "reason": skipped.reason}));
        let data = json!({
            "session_id": report.session_id,
            "at": format!("{}/{}", report.session_id, report.snapshot),
            "dry_run": report.dry_run,
            "is_complete": report.is_complete(),
            "is_refused": report.is_refused(),
            "change_count": report.changes.len(),
            "changes": changes.collect::<Vec<Value>>(),
            "conflicts": conflicts.collect::<Vec<Value>>(),
            "skipped": skipped.collect::<Vec<Value>>(),
            "safety_snapshot": safety,
        });
        answer(&head, &recorded, None, data)
    }
}

/// Records the present state in a session that is there, as the arguments of the tool say.
///
/// # Errors
/// No label, or a state that cannot be recorded.
pub fn checkpoint_in(manager: &SnapshotManager, arguments: Value) -> Result<Answer, ToolError> {
    let arguments: CheckpointArguments = super::tools::parsed(arguments)?;
    take(manager, arguments.checked()?)
}

impl CheckpointArguments {
    fn checked(&self) -> Result<String, ToolError> {
        let label = check_label(&self.label);
        Ok(label.map_err(|error| ToolError::arguments(format!("label: {error}")))?.to_owned())
    }
}

/// In the session of an agent a checkpoint is a step of its last prompt.
fn take(manager: &SnapshotManager, label: String) -> Result<Answer, ToolError> {
    let metadata = manager.session().metadata()?;
    let prompt = steps_of(&metadata).pop().and_then(|last| last.prompt);
    let step = metadata.agent.map(|agent| Step {
        kind: StepKind::Checkpoint,
        agent: agent.client,
        agent_session: agent.session_id,
        prompt,
        title: label.clone(),
        ..Step::default()
    });
    let request =
        SnapshotRequest { label: Some(label), step: step.map(Step::bounded), if_changed: false };
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
