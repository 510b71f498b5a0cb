//! Finding sessions: by id, by prefix, by tracked path, or all of them.

use std::path::{Path, PathBuf};

use super::moved::Moved;
use super::names::{self, NameOwner};
use super::summary::{SessionSummary, project_of};
use crate::layout::{self, LATEST};
use crate::path_text::Shown;
use crate::snapshot::{
    ManifestError, RemovedSnapshot, SessionDir, SessionOrigin, SnapshotError, settle,
};
use crate::store::{LocalStore, StoreError};
use crate::sys::{self, Dir};

/// Maximum number of named ids that begin alike.
const MAX_CANDIDATES: usize = 5;

/// The sessions of one store, and of older places that are still looked at.
#[derive(Debug, Clone)]
pub struct Catalog {
    roots: Vec<PathBuf>,
}

/// The restores of a store that were interrupted.
#[derive(Debug, Default)]
pub struct InterruptedRestores {
    /// Their sessions.
    pub sessions: Vec<SessionDir>,
    /// The reason for each session that cannot be looked at.
    pub unknown: Vec<ManifestError>,
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
    #[error("{label:?} is the name of {}", shown_owners(candidates))]
    AmbiguousLabel {
        /// The name as given.
        label: String,
        /// The sessions and snapshots that have it: those here first, then the newest.
        candidates: Vec<NameOwner>,
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

/// A session, and maybe one snapshot of it: `ID` or `ID/N`, or a name in the place of the id. A
/// step has the number of its snapshot: `ID#N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotId {
    /// Id or prefix of a session, `latest`, or `latest~N` (also `-N`): the session N places before
    /// that one.
    pub session: String,
    /// Number of a snapshot, or `latest`.
    pub snapshot: Option<String>,
    /// Whether it is written as a step.
    pub is_step: bool,
}

impl SnapshotId {
    /// Whether it says by its place which session is meant: `latest`, or `latest~N`.
    pub fn is_relative(&self) -> bool {
        self.session == LATEST || self.places_back().is_some()
    }

    /// How many places before the latest session it stands, if it is written so.
    pub(super) fn places_back(&self) -> Option<usize> {
        let behind_latest =
            || self.session.strip_prefix(LATEST).and_then(|rest| rest.strip_prefix('~'));
        let places = self.session.strip_prefix('-').or_else(behind_latest)?;
        places.parse().ok().filter(|places| *places > 0)
    }
}

impl std::str::FromStr for SnapshotId {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (session, snapshot, is_step) = match text.split_once('/') {
            Some((session, snapshot)) => (session, Some(snapshot.to_owned()), false),
            None => match text.rsplit_once('#') {
                // A name may have the character in it: behind an id stands a number.
                Some((session, step)) if is_step(step) => (session, Some(step.to_owned()), true),
                _ => (text, None, false),
            },
        };
        Ok(Self { session: session.to_owned(), snapshot, is_step })
    }
}

impl std::fmt::Display for SnapshotId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.is_step { '#' } else { '/' };
        match &self.snapshot {
            Some(snapshot) => write!(out, "{}{mark}{snapshot}", self.session),
            None => write!(out, "{}", self.session),
        }
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

    /// Looks for restores that were interrupted. A session that cannot be looked at hides no other.
    ///
    /// # Errors
    /// When a directory of sessions cannot be read.
    pub fn interrupted_restores(&self) -> Result<InterruptedRestores, CatalogError> {
        let mut found = InterruptedRestores::default();
        for session in self.sessions()? {
            match session.has_interrupted_restore() {
                // The paths of a fork are not those of the project.
                Ok(true) if session.metadata().is_ok_and(|it| it.origin == SessionOrigin::Fork) => {
                }
                Ok(true) => found.sessions.push(session),
                Ok(false) => {}
                Err(error) => found.unknown.push(error),
            }
        }
        Ok(found)
    }

    /// Looks for merges that were killed: no process is at work on them, and they have no end.
    ///
    /// # Errors
    /// When a directory of sessions cannot be read.
    pub fn killed_merges(&self) -> Result<Vec<SessionDir>, CatalogError> {
        let is_killed = |session: &SessionDir| {
            let metadata = session.metadata()?;
            let is_open = metadata.merge.is_some() && metadata.ended.is_none();
            Ok::<_, ManifestError>(is_open && !metadata.received && !session.is_running()?)
        };
        let mut sessions = self.sessions()?;
        sessions.retain(|session| {
            let killed = is_killed(session);
            killed.inspect_err(|error| tracing::info!("passed over: {error}")).unwrap_or(false)
        });
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
        self.find_near(id, None)
    }

    /// As [`find`](Self::find). A name that several projects use means the one of `directory`.
    pub(super) fn find_near(
        &self,
        id: &str,
        directory: Option<&Path>,
    ) -> Result<SessionDir, CatalogError> {
        let session = match self.find_unsettled(id) {
            Err(unknown @ CatalogError::NotFound { .. }) => {
                let session = id.to_owned();
                let whole = SnapshotId { session, snapshot: None, is_step: false };
                names::find(self, &whole, directory)?.map(|(session, _)| session).ok_or(unknown)?
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

    pub(super) fn not_found(&self, id: &str) -> CatalogError {
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
        self.find_snapshot_near(id, None)
    }

    /// As [`find_snapshot`](Self::find_snapshot). A name that several projects use means the one of
    /// `directory`.
    pub(super) fn find_snapshot_near(
        &self,
        id: &SnapshotId,
        directory: Option<&Path>,
    ) -> Result<(SessionDir, Option<u64>), CatalogError> {
        let (session, snapshot) = match self.find_unsettled(&id.session) {
            Err(unknown @ CatalogError::NotFound { .. }) => {
                names::find(self, id, directory)?.ok_or(unknown)?
            }
            found => (found?, id.snapshot.clone()),
        };
        settle_baseline(&session, true);
        self.snapshot_of(session, &SnapshotId { snapshot, ..id.clone() })
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

/// The newest of them, by their ids.
fn shown_candidates(ids: &[String]) -> String {
    let shown = ids.iter().rev().take(MAX_CANDIDATES);
    let shown = shown.map(|id| Shown::bytes(id.as_bytes()).to_string()).collect::<Vec<_>>();
    match ids.len().saturating_sub(MAX_CANDIDATES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The first of them: each id, and the paths of its project.
fn shown_owners(owners: &[NameOwner]) -> String {
    let shown = owners.iter().take(MAX_CANDIDATES).map(|owner| {
        let id = Shown::bytes(owner.id.as_bytes());
        format!("{id} ({})", Shown::bytes(project_of(&owner.tracked_paths).as_bytes()))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match owners.len().saturating_sub(MAX_CANDIDATES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn shown_list(projects: &[String]) -> String {
    let shown = projects.iter().map(|project| Shown::bytes(project.as_bytes()).to_string());
    shown.collect::<Vec<_>>().join("; ")
}

/// A supervisor that was killed may have left a baseline that is not durable yet.
fn settle_baseline(session: &SessionDir, waits: bool) {
    match settle(session, waits) {
        // One of another user is named by the commands that need it.
        Err(SnapshotError::Manifest(ManifestError::Io(error))) if error.is_denied() => {}
        Err(error) => {
            tracing::warn!("the baseline of session {} is not settled: {error}", session.id());
        }
        Ok(_) => {}
    }
}

fn sessions_below(root: &Path) -> Result<Vec<SessionDir>, CatalogError> {
    SessionDir::all_below(root).map_err(|error| match error {
        ManifestError::Io(error) => CatalogError::Io(error),
        error => CatalogError::Manifest(error),
    })
}
