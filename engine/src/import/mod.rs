//! Sessions of the other nono become sessions of ours, so that a change of programs keeps the past.
//!
//! `documents` reads its files, `merkle` proves their lists, `contents` checks the objects and
//! builds the trees, `session` lets the result appear. Always true:
//!
//! - The source is untrusted and only read. No symlink in it is followed, every object is hashed
//!   while it is copied, every path is checked, and documents have a largest size.
//! - A session appears complete or not at all, under its own id. A second import changes nothing.
//! - The files of a snapshot have its Merkle root, or the session is refused.
//! - Nothing is invented. The other program records regular files with contents, permissions and
//!   whole seconds, and symlinks by their paths at most. So each tracked path of an imported
//!   snapshot is listed as left out: a restore leaves every path alone that the record does not
//!   name. [`ImportReport::not_known`] lists the other gaps.
//! - Attributes that the record lacks come from the disk, where the same path still exists: a
//!   restore then changes none of them.

mod contents;
mod documents;
mod merkle;
mod session;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::path_text::{Shown, serde_path};
use crate::progress::Progress;
use crate::snapshot::SnapshotError;
use crate::store::StoreError;
use crate::sys::{self, Dir};

#[cfg(feature = "fuzzing")]
pub(crate) use documents::can_read_snapshot;
pub use documents::{FoundSessions, find_sessions, usual_place};

/// Facts that no version of the other program records.
const NOT_KNOWN: [&str; 6] = [
    "hard links",
    "empty directories",
    "owners and directory permissions",
    "extended attributes and ACLs",
    "times below a second",
    "the paths that it left out",
];
/// The gaps of versions that list no symlinks.
const SYMLINKS_NOT_KNOWN: &str = "symlinks (it records the file behind a link)";
/// The gaps of versions that list symlinks.
const TARGETS_NOT_KNOWN: &str = "targets of symlinks (it names the links)";

/// The rule under which the tracked paths of an imported snapshot are left out.
pub(crate) const FOREIGN_RULE: &str =
    "the filter of the program that recorded it, which its record does not name";
/// The rule under which a symlink of a snapshot is left out.
const SYMLINK_RULE: &str = "the record, which names the symlink and not where it leads";

/// Why a session was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportSessionError {
    /// There is no session of the other program.
    #[error(
        "{} holds no sessions of another nono (session.json, snapshots/000.json)",
        Shown::path(path)
    )]
    NothingThere {
        /// The directory.
        path: PathBuf,
    },
    /// A document is not what the other program writes.
    #[error("{}: {reason}", Shown::path(path))]
    Invalid {
        /// The document.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// Another session has the id.
    #[error("a session {id} is here already, and is another one: {reason}")]
    Taken {
        /// The id.
        id: String,
        /// The difference.
        reason: String,
    },
    /// A read or a write failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The store could not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session could not be made.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl ImportSessionError {
    /// Whether the caller asked to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Store(StoreError::Cancelled))
    }
}

/// The outcome for one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImportOutcome {
    /// It is here now.
    Imported,
    /// It was imported before.
    AlreadyHere,
}

/// A file of a session that could not be taken over. A restore leaves it alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportProblem {
    /// Number of the snapshot.
    pub snapshot: u64,
    /// The absolute path of the file.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The import of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportReport {
    /// Its id, there and here.
    pub session_id: String,
    /// Its directory.
    #[serde(with = "serde_path")]
    pub source: PathBuf,
    /// The outcome.
    pub outcome: ImportOutcome,
    /// Number of snapshots.
    pub snapshot_count: u64,
    /// Objects whose bytes were checked.
    pub objects_checked: u64,
    /// Their length in bytes.
    pub bytes_checked: u64,
    /// Whether the session has no `session.json`, so that its command and its end are not known.
    pub lacks_session_document: bool,
    /// Files that could not be taken over.
    pub problems: Vec<ImportProblem>,
    /// Symlinks that the record names without their targets. A restore makes none of them.
    pub symlink_count: u64,
    /// Facts that the other program does not record, in the version that made the session.
    pub not_known: Vec<&'static str>,
}

/// Imports the session in the directory `source` into the store in `root`. With `pinned`, retention
/// never removes it. When this returns, the session is durable.
///
/// # Errors
/// As [`ImportSessionError`] says; there is no new session then.
pub fn import_session(
    root: &Path,
    source: &Path,
    pinned: bool,
    progress: &dyn Progress,
) -> Result<ImportReport, ImportSessionError> {
    let dir = Dir::open(source)?;
    let foreign = documents::read(&dir)?;
    session::make(root, source, &dir, foreign, pinned, progress)
}
