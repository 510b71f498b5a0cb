//! Finding sessions: by id, by prefix, by tracked path, or all of them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::moved::Moved;
use super::names;
use crate::diff::ChangeSummary;
use crate::layout::{self, LATEST};
use crate::object::{ContentHash, Node};
use crate::path_text::{Shown, encode, serde_paths};
use crate::snapshot::{
    AgentSession, ManifestError, RemovedSnapshot, SessionDir, SessionMetadata, SessionOrigin,
    SnapshotLabel, Undone,
};
use crate::snapshot::{settle, undone};
use crate::store::{LocalStore, StoreError, read_root_tree};
use crate::sys::{self, Dir, FileKind};

/// So many ids are named that begin alike.
const MOST_CANDIDATES: usize = 5;

/// The sessions of one store, and of older places that are still looked at.
#[derive(Debug, Clone)]
pub struct Catalog {
    roots: Vec<PathBuf>,
}

/// Why a session was not found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogError {
    /// No session has this id.
    #[error("there is no session {id:?} in {}", Shown::path(root))]
    NotFound {
        /// The id as given.
        id: String,
        /// The store.
        root: PathBuf,
    },
    /// There are no sessions at all.
    #[error("there are no sessions in {}", Shown::path(root))]
    Empty {
        /// The store.
        root: PathBuf,
    },
    /// There are only sessions that archives brought.
    #[error("nothing was recorded in {}: its sessions came in archives", Shown::path(root))]
    OnlyReceived {
        /// The store.
        root: PathBuf,
    },
    /// Several sessions begin with this prefix.
    #[error("{id:?} could be any of {}", shown_candidates(candidates))]
    Ambiguous {
        /// The prefix as given.
        id: String,
        /// The sessions that begin with it.
        candidates: Vec<String>,
    },
    /// Several sessions or snapshots have this name.
    #[error("{label:?} is the name of {}", candidates.join(", "))]
    AmbiguousLabel {
        /// The name as given.
        label: String,
        /// The sessions and snapshots that have it.
        candidates: Vec<String>,
    },
    /// Which session began last cannot be told.
    #[error("session {session} may be the latest, but {source}")]
    LatestUnknown {
        /// One that may be it.
        session: String,
        /// Why that is not known.
        source: ManifestError,
    },
    /// No session tracks the directory or one above it.
    #[error("no session has recorded {}", Shown::path(directory))]
    NoneHere {
        /// The directory.
        directory: PathBuf,
        /// The newest session of the store that may have changed something.
        elsewhere: Box<SessionSummary>,
        /// For a directory that was moved since: `elsewhere` is the newest session of it.
        moved: Option<Moved>,
    },
    /// Sessions of several projects are below the directory.
    #[error("several projects are below {}: {}", Shown::path(directory), shown_list(projects))]
    SeveralBelow {
        /// The directory.
        directory: PathBuf,
        /// The tracked paths, as text.
        projects: Vec<String>,
    },
    /// The part after the `/` is no snapshot of the session.
    #[error("session {session} has no snapshot {snapshot:?}")]
    NoSnapshot {
        /// The session.
        session: String,
        /// The snapshot as given.
        snapshot: String,
    },
    /// The snapshot was removed from the session.
    #[error("snapshot {} of session {session} was {removed}", removed.number)]
    SnapshotRemoved {
        /// The session.
        session: String,
        /// When and why.
        removed: RemovedSnapshot,
    },
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A directory cannot be read.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

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
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// The maker of the session.
    #[serde(skip)]
    pub origin: SessionOrigin,
    /// Where it stands.
    pub status: SessionStatus,
    /// The changes from the baseline to the last ordinary snapshot; `None` where a damaged object
    /// prevents the count.
    pub changes: Option<ChangeSummary>,
    /// Whether all of that is undone: its baseline was brought back, and that stands.
    pub undone: bool,
    /// Whether that is undone but for some paths, which stayed as they were.
    pub partly_undone: bool,
    /// Bytes that the session added to the store when it was recorded.
    pub disk_size: u64,
    /// Commits to the session as its manifest describes it, and to all its snapshots. Noted
    /// elsewhere, it proves them.
    pub session_root: ContentHash,
}

/// A session, and maybe one snapshot of it: `ID` or `ID/N`, or a name in the place of the id. A
/// step has the number of its snapshot, and `ID#N` means the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotId {
    /// Id or prefix of a session, or `latest`.
    pub session: String,
    /// Number of a snapshot, or `latest`.
    pub snapshot: Option<String>,
}

impl std::str::FromStr for SnapshotId {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (session, snapshot) = match text.split_once('/') {
            Some((session, snapshot)) => (session, Some(snapshot.to_owned())),
            None => match text.rsplit_once('#') {
                // A name may have the character in it: behind an id stands a number.
                Some((session, step)) if is_step(step) => (session, Some(step.to_owned())),
                _ => (text, None),
            },
        };
        Ok(Self { session: session.to_owned(), snapshot })
    }
}

fn is_step(text: &str) -> bool {
    text == LATEST || (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Catalog {
    /// The sessions below `root`, and below `legacy` where those directories exist.
    pub fn new(root: PathBuf, legacy: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { roots: [root].into_iter().chain(legacy).collect() }
    }

    /// The store's root directory.
    pub fn root(&self) -> &Path {
        &self.roots[0]
    }

    /// All directories that are looked at.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Opens all sessions, oldest id first. A store that does not exist has none. A baseline that a
    /// killed supervisor left half-done is finished first.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionDir>, CatalogError> {
        let mut sessions = Vec::new();
        for root in &self.roots {
            sessions.append(&mut sessions_below(root)?);
        }
        sessions.sort_by_key(SessionDir::id);
        for session in &sessions {
            settle_baseline(session, false);
        }
        Ok(sessions)
    }

    /// Finds a session by its id, a prefix that only it has, its name or that of one of its
    /// snapshots, or `latest`, which is the newest of the store ([`find_from`](Self::find_from)
    /// means the one of a directory). Waits until its baseline is durable.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`], [`CatalogError::Ambiguous`], [`CatalogError::AmbiguousLabel`],
    /// [`CatalogError::Empty`], [`CatalogError::OnlyReceived`], [`CatalogError::LatestUnknown`].
    pub fn find(&self, id: &str) -> Result<SessionDir, CatalogError> {
        let session = match self.find_unsettled(id) {
            Err(unknown @ CatalogError::NotFound { .. }) => {
                let whole = SnapshotId { session: id.to_owned(), snapshot: None };
                names::find(self, &whole)?.map(|(session, _)| session).ok_or(unknown)?
            }
            found => found?,
        };
        settle_baseline(&session, true);
        Ok(session)
    }

    /// The session of this very id, as it was listed. Waits until its baseline is durable.
    pub(super) fn open(&self, id: &str) -> Result<SessionDir, CatalogError> {
        let found = self.sessions()?.into_iter().find(|session| session.id() == id);
        let session = found.ok_or_else(|| self.not_found(id))?;
        settle_baseline(&session, true);
        Ok(session)
    }

    fn not_found(&self, id: &str) -> CatalogError {
        CatalogError::NotFound { id: id.to_owned(), root: self.root().to_owned() }
    }

    fn find_unsettled(&self, id: &str) -> Result<SessionDir, CatalogError> {
        if id == LATEST {
            return self.newest_of_store();
        }
        let mut sessions = self.sessions()?;
        if let Some(exact) = sessions.iter().position(|session| session.id() == id) {
            return Ok(sessions.swap_remove(exact));
        }
        sessions.retain(|session| !id.is_empty() && session.id().starts_with(id));
        match sessions.len() {
            1 => Ok(sessions.remove(0)),
            0 => Err(self.not_found(id)),
            _ => Err(CatalogError::Ambiguous {
                id: id.to_owned(),
                candidates: sessions.iter().map(SessionDir::id).collect(),
            }),
        }
    }

    /// Finds a session and the number of one of its snapshots, if one is named.
    ///
    /// # Errors
    /// As [`find`](Self::find), or [`CatalogError::NoSnapshot`].
    pub fn find_snapshot(
        &self,
        id: &SnapshotId,
    ) -> Result<(SessionDir, Option<u64>), CatalogError> {
        let (session, snapshot) = match self.find_unsettled(&id.session) {
            Err(unknown @ CatalogError::NotFound { .. }) => {
                names::find(self, id)?.ok_or(unknown)?
            }
            found => (found?, id.snapshot.clone()),
        };
        settle_baseline(&session, true);
        self.snapshot_of(session, &SnapshotId { session: id.session.clone(), snapshot })
    }

    /// The number of the snapshot of a session that an id names, if it names one.
    pub(super) fn snapshot_of(
        &self,
        session: SessionDir,
        id: &SnapshotId,
    ) -> Result<(SessionDir, Option<u64>), CatalogError> {
        let Some(wanted) = &id.snapshot else { return Ok((session, None)) };
        let numbers = session.snapshot_numbers()?;
        let found = if wanted == LATEST {
            numbers.last().copied()
        } else {
            wanted.parse().ok().filter(|number| numbers.contains(number))
        };
        match found {
            Some(number) => Ok((session, Some(number))),
            None => {
                let removed = wanted
                    .parse()
                    .ok()
                    .and_then(|number| Some(session.metadata().ok()?.removal(number)?.clone()));
                if let Some(removed) = removed {
                    let session = session.id();
                    return Err(CatalogError::SnapshotRemoved { session, removed });
                }
                Err(CatalogError::NoSnapshot { session: session.id(), snapshot: wanted.clone() })
            }
        }
    }

    /// Whether a directory is a store that sessions share.
    pub fn is_store(root: &Path) -> bool {
        Dir::open(&root.join(layout::OBJECTS)).is_ok()
    }

    /// The objects of a session.
    ///
    /// # Errors
    /// When they cannot be opened.
    pub fn store_of(session: &SessionDir) -> Result<LocalStore, CatalogError> {
        Ok(LocalStore::open(&session.objects_path())?)
    }
}

impl SessionSummary {
    /// Sums up a session from its manifests.
    ///
    /// # Errors
    /// When its manifest cannot be used.
    pub fn of(session: &SessionDir) -> Result<Self, ManifestError> {
        let metadata = session.metadata()?;
        let status = SessionStatus::of(session, &metadata)?;
        Ok(Self::from_parts(session, metadata, status))
    }

    /// Sums up a session whose manifest is at hand.
    pub(super) fn from_parts(
        session: &SessionDir,
        metadata: SessionMetadata,
        status: SessionStatus,
    ) -> Self {
        let undone = undone(&metadata.restores, metadata.snapshot_count);
        let mut held_labels = metadata.labels.clone();
        held_labels.retain(|label| metadata.removal(label.number).is_none());
        Self {
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
            exit_code: metadata.exit_code,
            origin: metadata.origin,
            status,
            changes: metadata.changes,
            undone: undone == Undone::Wholly,
            partly_undone: undone == Undone::Partly,
            disk_size: metadata.bytes_written,
        }
    }

    /// Whether something that is recorded changed; also where nobody can tell.
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

    /// The tracked paths as one text, by which sessions are grouped.
    pub fn project(&self) -> String {
        project_of(&self.tracked_paths)
    }
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
            | SessionOrigin::Container => Self::Open,
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

/// The newest of them, by their ids.
fn shown_candidates(ids: &[String]) -> String {
    let shown = ids.iter().rev().take(MOST_CANDIDATES);
    let shown = shown.map(|id| Shown::bytes(id.as_bytes()).to_string()).collect::<Vec<_>>();
    match ids.len().saturating_sub(MOST_CANDIDATES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn shown_list(projects: &[String]) -> String {
    let shown = projects.iter().map(|project| Shown::bytes(project.as_bytes()).to_string());
    shown.collect::<Vec<_>>().join("; ")
}

/// A supervisor that was killed may have left a baseline that nobody made durable.
fn settle_baseline(session: &SessionDir, waits: bool) {
    if let Err(error) = settle(session, waits) {
        tracing::warn!("the baseline of session {} is not settled: {error}", session.id());
    }
}

fn sessions_below(root: &Path) -> Result<Vec<SessionDir>, CatalogError> {
    let dir = match Dir::open(root) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut sessions = Vec::new();
    for name in layout::session_names(&dir)? {
        match SessionDir::open(&dir.path_of(&name)) {
            Ok(session) => sessions.push(session),
            // Removed since the names were read.
            Err(ManifestError::Io(error)) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sessions)
}
