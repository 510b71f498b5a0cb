//! Collection of garbage: removing sessions, and the objects that nothing needs any more.
//!
//! An object stays if a snapshot of a remaining session reaches it that was not removed. Always
//! true:
//!
//! - Planning changes nothing, and what a plan announces is what applying it does, unless sessions
//!   came or went in between: [`CleanupPlan::apply`] looks at everything again under the store's
//!   exclusive lock, when no process writes a snapshot.
//! - If one manifest or tree of a remaining session cannot be read, nothing at all is changed: what
//!   lies behind it could not be told from garbage.
//! - A session vanishes from every list at once, by a rename to a hidden name, and that is durable
//!   before the first of its objects goes. Leftovers of a crash are collected the next time.
//! - Objects of removed sessions go at once, whatever their age: a manifest named them, so they
//!   are complete. Other unneeded objects are what an interrupted snapshot left, and go
//!   when they are older than a grace time, or at once where no other process uses the store.
//! - An unneeded object in a pack goes when the pack is rewritten, which copies its neighbours: as
//!   soon as a fifth of the pack is unneeded, or at once where that is asked for.
//! - A file in quarantine stays as long as a session needs the object under whose name it was
//!   found.
//! - A new generation of the store begins before the first object goes, so that no stat cache
//!   vouches for removed objects. Caches without a removed object are then made valid for the new
//!   one, so that the next snapshot of the remaining paths need not read every file again.

mod alone;
mod apply;
mod holdings;
mod largest;
mod mark;
mod pack;
mod packs;
mod plan;
mod store_root;
mod survey;
#[cfg(test)]
mod tests;
mod tombstone;
mod usage;
mod withdraw;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::path_text::Shown;
use crate::progress::{NoProgress, Progress};
use crate::snapshot::ManifestError;
use crate::store::{Compression, StoreError};
use crate::sys;

pub use holdings::{Bytes, Holdings, SessionHoldings, UnreadSession, measure_holdings};
pub use largest::LargePath;
pub use pack::pack_long_files;
pub use plan::CleanupPlan;
pub use tombstone::{RemoveSnapshotError, remove_snapshots};
pub use usage::{StorageUsage, UsageGuess, disk_usage, guess_usage, measure_usage, note_floor};
pub use withdraw::{Withdrawn, withdraw};

/// Age at which an object that nothing ever named is garbage, unless told otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(60 * 60);

/// How to clean up.
#[derive(Clone, Copy)]
pub struct CleanupOptions<'a> {
    /// Objects that no session ever named stay until they are this old.
    pub grace: Duration,
    /// Whether they go at once if no other process uses the store: no other session runs or is
    /// being written.
    pub orphans_at_once: bool,
    /// Whether every pack is rewritten that holds something unneeded, or would be smaller if it
    /// was compressed, and long files that were stored plain are packed. Otherwise only those packs
    /// are in which a fifth or more is unneeded.
    pub compact: bool,
    /// How what is rewritten is compressed.
    pub compression: Compression,
    /// Whether sessions stay that are pinned by the time they would go.
    pub spare_pinned: bool,
    /// Worker threads; 0 is one for each core.
    pub threads: usize,
    /// Told of every list that is read, then of every object that is removed. Asked whether to stop
    /// as long as nothing is changed.
    pub progress: &'a dyn Progress,
}

impl Default for CleanupOptions<'_> {
    fn default() -> Self {
        Self {
            grace: DEFAULT_GRACE,
            orphans_at_once: false,
            compact: false,
            compression: Compression::default(),
            spare_pinned: false,
            threads: 0,
            progress: &NoProgress,
        }
    }
}

impl std::fmt::Debug for CleanupOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CleanupOptions")
            .field("grace", &self.grace)
            .field("orphans_at_once", &self.orphans_at_once)
            .field("compact", &self.compact)
            .field("spare_pinned", &self.spare_pinned)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl CleanupOptions<'_> {
    /// Threads of its own, which have the priority of whoever asks for them.
    fn pool(&self) -> Result<rayon::ThreadPool, CleanupError> {
        Ok(rayon::ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .thread_name(|index| format!("cleanup-{index}"))
            .build()?)
    }
}

/// The effect of a cleanup: planned or done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CleanupReport {
    /// Whether this is only what would be done.
    pub dry_run: bool,
    /// Ids of the sessions that are removed.
    pub sessions_removed: Vec<String>,
    /// Sessions that were to be removed and stay.
    pub sessions_skipped: Vec<SkippedSession>,
    /// Objects that are removed.
    pub objects_removed: u64,
    /// Lengths of those objects in bytes, added up.
    pub bytes_freed: u64,
    /// Bytes by which the files of the store became smaller: also where packs were compressed,
    /// copies went, or long files were packed. It cannot be foreseen, so 0 in a plan.
    pub bytes_shrunk: u64,
    /// Objects that nothing needs and that are younger than the grace time.
    pub objects_kept_young: u64,
    /// Lengths of those objects in bytes, added up.
    pub bytes_kept_young: u64,
    /// Objects that nothing needs and that stay in packs with others, because too little of a pack
    /// would be freed.
    pub objects_kept_packed: u64,
    /// Lengths of those objects in bytes, added up.
    pub bytes_kept_packed: u64,
}

impl CleanupReport {
    /// Whether there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.sessions_removed.is_empty() && self.objects_removed == 0
    }
}

/// A session that stays although it was to be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkippedSession {
    /// Its id.
    pub session_id: String,
    /// Why it stays.
    pub reason: SkipReason,
}

/// Why a session cannot be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// Its command is running.
    Running,
    /// A snapshot of it is being taken or restored. Only noticed when a plan is applied.
    Busy,
    /// A restore of it was interrupted: only with the session can that be finished or taken back.
    RestoreInterrupted,
    /// A fork begins from it.
    Forked,
    /// The user pinned it. Only noticed where pinned sessions are spared.
    Pinned,
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Running => "its command is still running",
            Self::Busy => "a snapshot of it is being taken or restored",
            Self::RestoreInterrupted => "a restore of it was interrupted: resume or abort it first",
            Self::Forked => "a fork begins from it: discard that first",
            Self::Pinned => "it is pinned",
        })
    }
}

/// Why nothing, or not everything, was cleaned up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CleanupError {
    /// The needs of a remaining session are unknown. Nothing was changed.
    #[error(
        "nothing was freed, because it cannot be told what session {session_id} needs: {source} \
         (verify that session with --repair; what cannot be mended has to be removed as well)"
    )]
    DamagedSession {
        /// The session.
        session_id: String,
        /// The unreadable part.
        source: Unreadable,
    },
    /// A session to remove is not a directory right in the root directory of the store.
    #[error("session {} does not lie in {}", Shown::path(session), Shown::path(root))]
    NotInRoot {
        /// The session's directory.
        session: PathBuf,
        /// The root directory of the store.
        root: PathBuf,
    },
    /// The directory is itself a session: its objects are its own, and none of them is garbage.
    #[error("{} is a session and not a root directory of sessions", Shown::path(root))]
    RootIsSession {
        /// The directory.
        root: PathBuf,
    },
    /// The remaining sessions cannot be listed. Nothing was changed.
    #[error("cannot list the sessions that remain: {0}")]
    List(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The caller asked to stop. Nothing was changed.
    #[error("stopped; nothing was removed")]
    Cancelled,
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
    /// A session cannot be looked at.
    #[error(transparent)]
    Session(#[from] ManifestError),
    /// The store cannot be read or changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The root directory cannot be read or changed.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

/// The unreadable part of a session.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// A manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A tree.
    #[error(transparent)]
    Tree(#[from] StoreError),
}
