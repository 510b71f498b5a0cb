//! The names of everything on the disk, and what in a root directory is a session. `docs/format.md`
//! says what the things are.
//!
//! ```text
//! <root directory>/      a store that sessions share
//!   objects/             the objects
//!   index/               stat caches
//!   forks/               forks, each in a directory of its session's name
//!   <session>/           any other name that is not hidden
//!   .new-…  .removed-…   sessions that are not there yet, or no longer
//!   .restoring-…         the paths of a restore that is at work
//!   .watch/              places of watchers, each in a directory named by the watched path
//! ```

use crate::sys::{self, Dir, FileKind};

/// Objects: of a root directory, or of a session (maybe a link to those of the root directory).
pub const OBJECTS: &str = "objects";
/// Stat caches.
pub const INDEX: &str = "index";
/// Forks.
pub(crate) const FORKS: &str = "forks";
/// The facts of a fork, in its directory.
pub(crate) const FORK_DOCUMENT: &str = "fork.json";
/// Longer documents of forks are not read.
pub(crate) const MAX_FORK_DOCUMENT_BYTES: u64 = 1 << 24;
/// Beside the stat caches: space that is given back when the disk is full.
pub(crate) const RESERVE: &str = "reserve";
/// The manifest of a session or of a snapshot.
pub const MANIFEST: &str = "manifest.json";
/// The manifest of a baseline that is in the store and not yet durable.
pub(crate) const PENDING_MANIFEST: &str = "manifest.pending.json";
/// One whose objects did not survive: nothing reads it.
pub(crate) const LOST_MANIFEST: &str = "manifest.lost.json";
/// Beside the manifest of a removed snapshot: when and why it was removed.
pub(crate) const REMOVED_NOTE: &str = "removed.json";
/// Snapshots of a session, in directories named by their numbers.
pub(crate) const SNAPSHOTS: &str = "snapshots";
/// The journal of a restore, in its session.
pub(crate) const RESTORE_JOURNAL: &str = "restore.journal";
/// The journal of a restore of a container, in its session.
pub const CONTAINER_RESTORE_JOURNAL: &str = "container-restore.journal";
/// The pushes of a session: a line for each stored archive.
pub(crate) const PUSHES: &str = "pushes.jsonl";
/// The lock of a session's supervisor.
pub(crate) const RUNNING: &str = ".running";
/// Beside the stat caches: the facts of the store in the order in which they were seen, and the lock
/// of whoever adds to them.
pub(crate) const EVENTS: &str = "events.jsonl";
pub(crate) const EVENTS_LOCK: &str = "events.lock";
/// Damaged files that a repair found: of objects, in their directory; of manifests, in their
/// session.
pub(crate) const QUARANTINE: &str = "quarantine";
/// Packs, in the directory of objects.
pub(crate) const PACKS: &str = "packs";
/// In front of the name of a pack in quarantine.
pub(crate) const DAMAGED_PACK_PREFIX: &str = "pack-";
/// In front of what is being made and will get its name when it is complete.
pub(crate) const NEW_PREFIX: &str = ".new-";
/// In front of the id of a session that is being removed.
pub const REMOVED_PREFIX: &str = ".removed-";

/// In front of the name of a mark: a restore is at work on the paths in it.
pub(crate) const RESTORING_PREFIX: &str = ".restoring-";

/// Places of watchers. Hidden, so it is no session.
pub(crate) const WATCH: &str = ".watch";

/// The target of a session's link to its root directory's objects.
pub const SHARED_OBJECTS: &[u8] = b"../objects";

/// Path of a snapshot's manifest in its session.
pub fn snapshot_manifest(number: u64) -> String {
    format!("{SNAPSHOTS}/{number}/{MANIFEST}")
}

/// Path of the manifest of a baseline that is not yet durable, in its session.
pub(crate) fn pending_manifest() -> String {
    format!("{SNAPSHOTS}/0/{PENDING_MANIFEST}")
}

/// Where a baseline that was announced and lost is noted, relative to the session.
pub(crate) fn lost_manifest() -> String {
    format!("{SNAPSHOTS}/0/{LOST_MANIFEST}")
}

/// The word for the newest session or snapshot, and the name of a link to it. No session is called
/// so: nothing could name it.
pub const LATEST: &str = "latest";

/// A name for what is being made; no other process uses it.
///
/// # Errors
/// When the system gives no random numbers.
pub fn new_name() -> sys::Result<String> {
    Ok(format!("{NEW_PREFIX}{}", hex::encode(sys::random_bytes()?)))
}

/// Whether a directory of this name in a root directory can be a session.
pub fn may_be_session(name: &[u8]) -> bool {
    let others = [OBJECTS, INDEX, FORKS];
    !name.starts_with(b".") && !others.iter().any(|other| name == other.as_bytes())
}

/// Whether a name in a root directory is that of a session. One has a manifest and snapshots;
/// either is enough, so that it is noticed when the other was removed. A directory of another user
/// that lets no one look into it counts: it may be one.
///
/// # Errors
/// When it cannot be looked at.
pub(crate) fn is_session(root: &Dir, name: &[u8]) -> sys::Result<bool> {
    if !may_be_session(name)
        || root.try_stat(name)?.is_none_or(|stat| stat.kind != FileKind::Directory)
    {
        return Ok(false);
    }
    let has = |part: &str| match root.try_stat(&[name, b"/", part.as_bytes()].concat()) {
        Err(error) if error.is_denied() => Ok(true),
        found => Ok(found?.is_some()),
    };
    Ok(has(MANIFEST)? || has(SNAPSHOTS)?)
}

/// The names of all sessions in a root directory, sorted.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn session_names(root: &Dir) -> sys::Result<Vec<Box<[u8]>>> {
    let mut names = Vec::new();
    // Opened anew, because reading moves an open directory's position.
    for listed in root.open_beneath(b"")?.names()? {
        if is_session(root, &listed.name)? {
            names.push(listed.name);
        }
    }
    names.sort_unstable();
    Ok(names)
}
