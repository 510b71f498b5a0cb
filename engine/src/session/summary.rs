//! One session, summed up for lists.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::catalog::{Catalog, CatalogError};
use super::steps::UnrecordedStep;
use crate::diff::{self, ChangeSummary, Difference};
use crate::object::{ContentHash, Node};
use crate::path_text::{encode, serde_paths};
use crate::restore::count_by_maker;
use crate::snapshot::{
    AgentSession, ManifestError, NotCaptured, RemovedSnapshot, SessionDir, SessionMetadata,
    SessionOrigin, SnapshotKind, SnapshotLabel, StepKind, Undone, standing, undone,
};
use crate::store::read_root_tree;
use crate::sys::{self, FileKind};

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionStatus {
    /// Made by `nono snapshot`: more snapshots may follow.
    Open,
    /// Its command is running.
    Running,
    /// Its command has ended, and its last state is recorded.
    Completed,
    /// Its supervisor died before the last state was recorded.
    Interrupted,
}

/// A session in a list.
#[derive(Debug, Clone, Serialize)]
pub struct SessionSummary {
    /// Its id.
    pub session_id: String,
    /// When it began.
    pub started: jiff::Timestamp,
    /// When it ended.
    pub ended: Option<jiff::Timestamp>,
    /// The command.
    pub command: Vec<String>,
    /// The captured paths.
    #[serde(with = "serde_paths")]
    pub tracked_paths: Vec<PathBuf>,
    /// The captured paths that are files, and no directories.
    #[serde(skip)]
    pub tracked_files: Vec<PathBuf>,
    /// Number of snapshots that it holds.
    pub snapshot_count: u64,
    /// Snapshots that were removed from it, in order.
    pub removed: Vec<RemovedSnapshot>,
    /// The name that the session got when it began.
    pub label: Option<String>,
    /// Whether retention never removes it.
    pub pinned: bool,
    /// Whether an archive brought it: only its id means it.
    pub received: bool,
    /// Snapshots that have a label, in order.
    pub labels: Vec<SnapshotLabel>,
    /// The agent session that it records.
    pub agent: Option<AgentSession>,
    /// Number of steps.
    pub step_count: u64,
    /// Number of these that the agent made.
    #[serde(skip)]
    pub agent_step_count: u64,
    /// The paths that steps name and no snapshot holds, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unrecorded: Vec<UnrecordedStep>,
    /// Whether it holds a snapshot, or its command runs. One that was killed before its first
    /// snapshot is no session to go back to: only its id means it.
    #[serde(skip)]
    pub has_begun: bool,
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// The maker of the session.
    #[serde(skip)]
    pub origin: SessionOrigin,
    /// Whether the state of a fork's merge landed.
    #[serde(skip)]
    pub has_landed: Option<bool>,
    /// The name of the fork that begins from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork: Option<String>,
    /// Where it stands.
    pub status: SessionStatus,
    /// The changes from the baseline to the last ordinary snapshot; `None` where a damaged object
    /// prevents the count.
    pub changes: Option<ChangeSummary>,
    /// Number of changes between the calls of an agent that are the user's. They are no part of
    /// `changes` once [`count_own_changes`](Self::count_own_changes) told them apart.
    #[serde(skip_serializing_if = "is_zero")]
    pub user_changes: usize,
    /// Whether the list of steps tells of edits by the user.
    #[serde(skip)]
    pub(super) has_user_edits: bool,
    /// Whether something that the baseline could not read is gone or another in the last ordinary
    /// snapshot: no snapshot holds what it was. Only looked for where nothing else changed.
    #[serde(skip)]
    pub has_lost_unread: bool,
    /// Whether all of that is undone: its baseline was brought back, and that stands.
    pub undone: bool,
    /// Whether a part of that is undone: some paths or steps alone, or all but paths that stayed as
    /// they were.
    pub partly_undone: bool,
    /// Whether all of it was to be undone, and some paths stayed as they were.
    #[serde(skip)]
    pub has_kept_some: bool,
    /// Number of restores of the session that are noted, reverted ones included.
    #[serde(skip)]
    pub restore_count: u64,
    /// Bytes that the session added to the store when it was recorded.
    pub disk_size: u64,
    /// Commits to the session as its manifest describes it, and to all its snapshots. Noted
    /// elsewhere, it proves them.
    pub session_root: ContentHash,
}

impl SessionSummary {
    /// Whether it changed something in a git directory.
    pub fn has_changes_in_git(&self) -> bool {
        self.changes.is_some_and(|changes| changes.in_git > 0)
    }

    /// Sums up a session from its manifests.
    ///
    /// # Errors
    /// When its manifest cannot be used.
    pub fn of(session: &SessionDir) -> Result<Self, ManifestError> {
        let metadata = session.metadata()?;
        let status = SessionStatus::of(session, &metadata)?;
        Ok(Self::from_parts(session, metadata, status))
    }

    /// Whether the last state of its command is not recorded: the command is at work, or was
    /// killed, and no undo made that of no importance.
    pub fn lacks_end(&self) -> bool {
        let is_unfinished =
            matches!(self.status, SessionStatus::Running | SessionStatus::Interrupted);
        // A merge records what it does before it does it.
        is_unfinished
            && self.has_landed.is_none()
            && self.has_begun
            && !self.undone
            && !self.received
    }

    /// Sums up a session whose manifest is at hand.
    pub(super) fn from_parts(
        session: &SessionDir,
        metadata: SessionMetadata,
        status: SessionStatus,
    ) -> Self {
        let undone = match undone(&metadata.restores, metadata.last_recorded()) {
            Undone::InPart => undone_parts(session, &metadata).unwrap_or(Undone::InPart),
            undone => undone,
        };
        let has_landed = metadata.merge.as_ref().map(|merge| merge.is_done);
        let fork = match metadata.origin {
            SessionOrigin::Fork => session.fork_name().unwrap_or_default(),
            _ => None,
        };
        let mut held_labels = metadata.labels.clone();
        held_labels.retain(|label| metadata.removal(label.number).is_none());
        let is_unchanged = metadata.changes.is_some_and(|changes| changes.total() == 0);
        let may_have_lost = is_unchanged && metadata.origin == SessionOrigin::Run;
        Self {
            has_lost_unread: may_have_lost && has_lost_unread(session).unwrap_or(false),
            session_id: session.id(),
            session_root: metadata.session_root(),
            started: metadata.started,
            ended: metadata.ended,
            command: metadata.command,
            tracked_files: tracked_files(session, &metadata.tracked_paths, &metadata.merkle_roots),
            tracked_paths: metadata.tracked_paths,
            snapshot_count: metadata.snapshot_count.saturating_sub(metadata.removed.len() as u64),
            removed: metadata.removed,
            label: metadata.label,
            pinned: metadata.pinned,
            received: metadata.received,
            labels: held_labels,
            agent: metadata.agent,
            step_count: metadata.steps.len() as u64,
            agent_step_count: metadata.steps.iter().filter(|step| step.is_agents()).count() as u64,
            unrecorded: metadata.steps.iter().filter_map(UnrecordedStep::of).collect(),
            has_begun: metadata.snapshot_count > 0
                || status == SessionStatus::Running
                || session.may_hold_snapshot(),
            exit_code: metadata.exit_code,
            origin: metadata.origin,
            has_landed,
            fork,
            status,
            changes: match has_landed {
                Some(false) => Some(ChangeSummary::default()),
                _ => metadata.changes,
            },
            user_changes: 0,
            has_user_edits: metadata.steps.iter().any(|step| step.kind == StepKind::UserEdits),
            undone: undone == Undone::Wholly,
            partly_undone: matches!(undone, Undone::Partly | Undone::InPart),
            has_kept_some: undone == Undone::Partly,
            restore_count: metadata.restores.len() as u64,
            disk_size: metadata.bytes_written,
        }
    }

    /// Tells the user's own edits in the session of an agent apart from the changes of the agent.
    /// It reads the manifests of all its steps, so only a list that shows the numbers asks for it.
    pub fn count_own_changes(&mut self, session: &SessionDir) {
        if !self.has_user_edits || self.changes.is_none() {
            return;
        }
        let count = || -> Result<_, CatalogError> {
            let metadata = session.metadata()?;
            let chain = session.recorded_chain(&metadata)?;
            Ok(count_by_maker(&metadata, &chain, &Catalog::store_of(session)?)?)
        };
        let counted = count()
            .inspect_err(|error| tracing::warn!("the changes cannot be told apart: {error}"));
        if let Ok((own, users)) = counted {
            (self.changes, self.user_changes) = (Some(own), users);
        }
    }

    /// Whether something that is recorded changed; also where that is unknown.
    pub fn has_changes(&self) -> bool {
        self.changes.is_none_or(|changes| changes.total() > 0)
    }

    /// How much of it is undone, in a word; `None` for nothing.
    pub fn undone_word(&self) -> Option<&'static str> {
        match (self.undone, self.partly_undone) {
            (true, _) => Some("undone"),
            (false, true) => Some("partly undone"),
            (false, false) => None,
        }
    }

    /// Whether the session has to do with a path: it tracks it, something above, or something
    /// below.
    pub fn concerns(&self, path: &Path) -> bool {
        self.tracked_paths
            .iter()
            .any(|tracked| tracked.starts_with(path) || path.starts_with(tracked))
    }

    /// Whether the session knows states that a path, or something in it, had. The project never
    /// had those of a fork.
    pub fn is_past_of(&self, path: &Path) -> bool {
        self.origin != SessionOrigin::Fork && self.concerns(path)
    }

    /// Whether its snapshots say what a path was: it tracks the path, or something above.
    pub fn holds(&self, path: &Path) -> bool {
        self.is_past_of(path) && self.tracked_paths.iter().any(|tracked| path.starts_with(tracked))
    }

    /// The tracked paths as one text, by which sessions are grouped.
    pub fn project(&self) -> String {
        project_of(&self.tracked_paths)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // for serde
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How much the undos of parts that still stand took back together.
fn undone_parts(session: &SessionDir, metadata: &SessionMetadata) -> Result<Undone, CatalogError> {
    let (mut taken_back, mut left_some) = (HashSet::new(), false);
    for record in standing(&metadata.restores) {
        let Some(safety) = record.safety_snapshot.filter(|_| record.is_partial) else {
            return Ok(Undone::InPart);
        };
        if record.undoes_steps {
            return Ok(Undone::InPart);
        }
        let paths = session.manifest(safety)?.manifest.restores_only;
        if record.snapshot == 0 {
            left_some |= record.left_some;
            taken_back.extend(paths);
        } else {
            taken_back.retain(|path| !paths.contains(path));
        }
    }
    if taken_back.is_empty() {
        return Ok(Undone::No);
    }
    let first = session.manifest(session.first_number()?)?.manifest;
    let mut last = None;
    for number in session.recorded_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            last = Some(manifest);
            break;
        }
    }
    let Some(last) = last else { return Ok(Undone::InPart) };
    let store = Catalog::store_of(session)?;
    let changed = diff::compare(&store, &first.merkle_root, &last.merkle_root)?;
    let mut changed = changed.iter().filter_map(Difference::change).peekable();
    if changed.peek().is_none() {
        return Ok(Undone::No);
    }
    // An open session may be undone again, for what came since.
    let is_closed = metadata.ended.is_some() && !left_some;
    match is_closed && changed.all(|change| taken_back.contains(&change.path)) {
        true => Ok(Undone::Wholly),
        false => Ok(Undone::InPart),
    }
}

/// Whether the last ordinary snapshot shows that something is lost which the first could not read.
fn has_lost_unread(session: &SessionDir) -> Result<bool, ManifestError> {
    let numbers = session.recorded_numbers()?;
    let Some(first) = numbers.first() else { return Ok(false) };
    let then = session.manifest(*first)?.manifest.not_captured;
    let could_not_read =
        |left: &NotCaptured| left.state.as_ref().is_some_and(|s| s.is_unreadable());
    if !then.iter().any(could_not_read) {
        return Ok(false);
    }
    for number in numbers.iter().skip(1).rev() {
        let last = session.manifest(*number)?.manifest;
        if last.kind == SnapshotKind::Ordinary {
            return Ok(diff::has_lost_unread(&then, &last.not_captured));
        }
    }
    Ok(false)
}

/// The tracked paths that are files: on the disk, or in the first state if they are gone.
fn tracked_files(
    session: &SessionDir,
    tracked_paths: &[PathBuf],
    merkle_roots: &[ContentHash],
) -> Vec<PathBuf> {
    let was_file = |path: &Path| -> Result<bool, CatalogError> {
        let Some(first) = merkle_roots.first() else { return Ok(false) };
        let root = read_root_tree(&Catalog::store_of(session)?, first)?;
        let mut entries = root.entries.iter();
        let entry = entries.find(|entry| *entry.path == *path.as_os_str().as_bytes());
        Ok(entry.is_some_and(|entry| matches!(entry.node, Node::File { .. })))
    };
    let is_file = |path: &&PathBuf| match sys::kind_of(path) {
        Ok(Some(kind)) => kind == FileKind::File,
        Ok(None) => was_file(path).unwrap_or(false),
        Err(_) => false,
    };
    tracked_paths.iter().filter(is_file).cloned().collect()
}

/// The tracked paths that are places of work. A linked worktree has its branch and its
/// index in the repository, and that is none, unless nothing else is tracked.
pub fn places_of_work(tracked_paths: &[PathBuf]) -> Vec<&PathBuf> {
    let is_work = |path: &&PathBuf| !path.iter().any(|name| name == ".git");
    let places: Vec<&PathBuf> = tracked_paths.iter().filter(is_work).collect();
    if places.is_empty() { tracked_paths.iter().collect() } else { places }
}

/// Tracked paths as one text, by which sessions are grouped.
pub fn project_of(tracked_paths: &[PathBuf]) -> String {
    let paths = tracked_paths.iter().map(|path| encode(path.as_os_str().as_bytes()));
    paths.collect::<Vec<_>>().join(", ")
}

impl SessionStatus {
    /// Where a session stands.
    ///
    /// # Errors
    /// When its lock cannot be looked at.
    pub fn of(session: &SessionDir, metadata: &SessionMetadata) -> Result<Self, ManifestError> {
        Ok(match metadata.origin {
            _ if metadata.ended.is_some() => Self::Completed,
            SessionOrigin::Snapshot
            | SessionOrigin::Agent
            | SessionOrigin::AgentState
            | SessionOrigin::Container
            | SessionOrigin::Fork
            | SessionOrigin::Watch => Self::Open,
            SessionOrigin::Run if session.is_running()? => Self::Running,
            SessionOrigin::Run => Self::Interrupted,
        })
    }

    /// The status in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Interrupted => "interrupted",
        }
    }
}
