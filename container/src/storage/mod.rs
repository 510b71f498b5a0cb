//! Where the histories of containers lie: metadata, contents, and the locks around them.
//!
//! [`SnapshotStorage`] is the seam. Everything in `container/` that takes, lists, compares,
//! restores and removes snapshots knows this trait and no path, no session and no store.
//!
//! - [`LocalStorage`]: a store on this disk. A history is a session of it.
//! - [`MemoryStorage`]: maps, for tests of everything above the storage.
//!
//! ```text
//! a storage       histories, by an id that no user chooses
//!   a history     facts that change (HistoryFacts), snapshots by number, two documents
//!     a snapshot  a manifest, and objects: the record, volumes, changed files
//!   a container   a lock, and the journal of its pause
//! ```
//!
//! Always true: a snapshot appears complete, after all its objects are durable, or not at all. Its
//! number is given once. A removed one leaves its number, and no list names it. A document is
//! replaced at once, durably. A lock ends with the process that holds it.

mod local;
mod memory;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::error::ContainerError;
use nono_engine::object::ContentHash;
use nono_engine::progress::Progress;
use nono_engine::snapshot::{
    Capture, ContainerSession, NotCaptured, RemovalReason, SnapshotManifest, Totals,
};
use nono_engine::store::{FileSource, ObjectStore};
use nono_engine::sys::{Dir, FileTime};

pub use local::LocalStorage;
pub use memory::MemoryStorage;

/// Where the histories of containers lie. A history is named by its id.
pub trait SnapshotStorage: fmt::Debug + Send + Sync {
    /// The name of this storage on the labels of images: two storages may share one engine.
    ///
    /// # Errors
    /// When the storage cannot be reached.
    fn id(&self) -> Result<String, ContainerError>;

    /// Its directory on this machine, if it has one: nothing that contains it may be cleared.
    fn directory(&self) -> Option<&Path>;

    /// Whether it is there still: a user may remove it at any time.
    ///
    /// # Errors
    /// When that cannot be told.
    fn is_there(&self) -> Result<bool, ContainerError>;

    /// All histories, in any order, without the [damaged](Self::damaged) ones.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn histories(&self) -> Result<Vec<HistoryFacts>, ContainerError>;

    /// Entries that cannot be read, and are or may be histories. None of them is garbage.
    ///
    /// # Errors
    /// When they cannot be listed.
    fn damaged(&self) -> Result<Vec<DamagedHistory>, ContainerError>;

    /// The present facts of a history.
    ///
    /// # Errors
    /// [`ContainerError::NotAContainer`], or a history that is gone or damaged.
    fn facts(&self, history: &str) -> Result<HistoryFacts, ContainerError>;

    /// Makes the history of a container, without a snapshot. Gives its id.
    ///
    /// # Errors
    /// When the storage cannot be written.
    fn create(&self, container: ContainerSession) -> Result<String, ContainerError>;

    /// Changes the facts of the container of a history, durably.
    ///
    /// # Errors
    /// When they cannot be written; they are then as they were.
    fn update(
        &self,
        history: &str,
        change: &mut dyn FnMut(&mut ContainerSession),
    ) -> Result<(), ContainerError>;

    /// Removes a history with its snapshots. The reason if it has to stay: a process is at work on
    /// it, it is pinned, or a restore needs it. One that is gone is removed.
    ///
    /// # Errors
    /// When the storage cannot be written.
    fn remove(&self, history: &str) -> Result<Option<String>, ContainerError>;

    /// Numbers of the snapshots that a history holds, ascending.
    ///
    /// # Errors
    /// When the history cannot be read.
    fn numbers(&self, history: &str) -> Result<Vec<u64>, ContainerError>;

    /// The manifest of a snapshot.
    ///
    /// # Errors
    /// When it is missing, damaged or was removed.
    fn manifest(&self, history: &str, number: u64) -> Result<SnapshotManifest, ContainerError>;

    /// Adds a snapshot of the state that `work` puts into the draft. `work` is called once, while
    /// no other process writes the history and no object of the storage goes. When it returns, the
    /// snapshot is durable.
    ///
    /// # Errors
    /// The error of `work`, or a storage that cannot be written. There is no snapshot then.
    fn add(
        &self,
        history: &str,
        effort: &Effort,
        work: &mut DraftWork<'_>,
    ) -> Result<SnapshotManifest, ContainerError>;

    /// Removes some snapshots of a history, not all of them; all that are named go, or none.
    ///
    /// # Errors
    /// [`ContainerError::NotRemoved`], or a storage that cannot be written.
    fn remove_snapshots(
        &self,
        history: &str,
        numbers: &[u64],
        reason: RemovalReason,
    ) -> Result<(), ContainerError>;

    /// The objects of a history.
    ///
    /// # Errors
    /// When they cannot be opened.
    fn objects(&self, history: &str) -> Result<Arc<dyn FileSource>, ContainerError>;

    /// Keeps all objects of a history, as long as the lock is held.
    ///
    /// # Errors
    /// When the lock cannot be made.
    fn hold_objects(&self, history: &str) -> Result<StorageLock, ContainerError>;

    /// A document; `None`: there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read(&self, document: Document<'_>) -> Result<Option<Vec<u8>>, ContainerError>;

    /// Replaces a document, or removes it, durably.
    ///
    /// # Errors
    /// When it cannot be written; it is then as it was.
    fn write(&self, document: Document<'_>, bytes: Option<&[u8]>) -> Result<(), ContainerError>;

    /// Takes a document that cannot be used out of the way, durably, and keeps its bytes. Gives
    /// their place; `None`: there is no such document.
    ///
    /// # Errors
    /// When the storage cannot be written; the document is then as it was.
    fn set_aside(&self, document: Document<'_>) -> Result<Option<PathBuf>, ContainerError>;

    /// Ids of the containers that have a [`Document::Pause`].
    ///
    /// # Errors
    /// When they cannot be listed.
    fn paused(&self) -> Result<Vec<String>, ContainerError>;

    /// Keeps others from something, unless a process is at work on it: `None`.
    ///
    /// # Errors
    /// When the lock cannot be made.
    fn try_lock(&self, what: Guarded<'_>) -> Result<Option<StorageLock>, ContainerError>;
}

/// Puts the state of a snapshot into a draft, and describes it.
pub type DraftWork<'a> =
    dyn FnMut(&dyn SnapshotDraft) -> Result<SnapshotState, ContainerError> + 'a;

/// A snapshot that is being written.
pub trait SnapshotDraft {
    /// Its number.
    fn number(&self) -> u64;

    /// Where its objects go.
    fn objects(&self) -> &dyn ObjectStore;

    /// A directory on the disk of the storage, for contents on their way that are too long for
    /// memory. Nothing in it outlives the draft.
    fn spool(&self) -> &Dir;

    /// Stores the contents of directories while programs write there, so that
    /// [`capture`](Self::capture) reads only what changed since. Gives what was read and written.
    /// `flushed_from`: a moment before their file systems were flushed. The paths are as there.
    ///
    /// # Errors
    /// As there. A failure is none of the snapshot.
    fn fill(&self, flushed_from: FileTime, directories: &[&Path])
    -> Result<Totals, ContainerError>;

    /// Captures directories of this machine whole. A storage that knows them from earlier
    /// snapshots reads the changed files alone. The paths are sorted, real, and none is inside
    /// another.
    ///
    /// # Errors
    /// A storage that cannot be written, or a stop.
    fn capture(&self, directories: &[&Path]) -> Result<CapturedDirectories, ContainerError>;
}

/// Directories that are in the storage.
#[derive(Debug)]
pub struct CapturedDirectories {
    /// The root tree, with an entry for each of them.
    pub merkle_root: ContentHash,
    /// Sizes.
    pub totals: Totals,
    /// The left-out paths, and why.
    pub not_captured: Vec<NotCaptured>,
    /// Files that kept changing while they were read.
    pub unstable: Vec<PathBuf>,
}

impl From<Capture> for CapturedDirectories {
    /// Without the caches: a storage may have none.
    fn from(captured: Capture) -> Self {
        let Capture { merkle_root, totals, not_captured, unstable, .. } = captured;
        Self { merkle_root, totals, not_captured, unstable }
    }
}

/// The state of a snapshot whose objects are in the storage.
#[derive(Debug)]
pub struct SnapshotState {
    /// When the capture began.
    pub timestamp: Timestamp,
    /// The root tree.
    pub merkle_root: ContentHash,
    /// Sizes.
    pub totals: Totals,
    /// The left-out paths, and why; sorted by path.
    pub not_captured: Vec<NotCaptured>,
    /// Files that kept changing while they were read; sorted.
    pub unstable: Vec<PathBuf>,
    /// The words of the caller.
    pub label: Option<String>,
}

/// The means of a snapshot.
#[derive(Clone)]
pub struct Effort {
    /// Worker threads; 0 is one for each core.
    pub threads: usize,
    /// Told about the work, and asked whether to stop.
    pub progress: Arc<dyn Progress + Send>,
}

impl fmt::Debug for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effort").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// The facts of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFacts {
    /// Its id.
    pub id: String,
    /// When it began.
    pub started: Timestamp,
    /// Whether the user keeps it from every limit.
    pub is_pinned: bool,
    /// Whether it came from a remote: it is the history of no container here.
    pub is_received: bool,
    /// Its container.
    pub container: ContainerSession,
}

/// An entry that cannot be read, and is or may be a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedHistory {
    /// Its id.
    pub id: String,
    /// The defect.
    pub reason: String,
}

impl fmt::Display for DamagedHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, reason } = self;
        write!(
            f,
            "session {id}, which may be a history of a container, cannot be read: {reason} \
             (`nono verify --repair {id}` mends what can be mended)"
        )
    }
}

/// A small document beside snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Document<'a> {
    /// The journal of a pause, by the engine's id of the container.
    Pause(&'a str),
    /// The journal of a restore of a history. As long as it is there, neither the history nor a
    /// snapshot of it can be removed.
    Restore(&'a str),
    /// The list of the originals of replacements, of a history.
    Kept(&'a str),
}

/// Something that one process at a time works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded<'a> {
    /// A container, by the engine's id.
    Container(&'a str),
    /// The restores of a history.
    Restores(&'a str),
}

/// Held until it is dropped.
pub struct StorageLock(#[allow(dead_code, reason = "held, not read")] Box<dyn Send>);

impl StorageLock {
    /// A lock that ends with a value.
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for StorageLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StorageLock")
    }
}
