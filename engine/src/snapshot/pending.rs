//! A baseline that is in the store and not yet durable, so that a command need not wait for the
//! disk.
//!
//! It is announced by a manifest under another name, `manifest.pending.json`, which no reader takes
//! for a snapshot. Then the store is flushed, the manifest is published under its own name, and the
//! announcement goes. Always true: `manifest.json` names durable objects only. The announcing
//! process holds the session's lock until the manifest is published. So an announcement in an
//! unlocked session comes from a killed process or a failed flush. [`settle`] then flushes, reads
//! every object that it reaches back from the disk, and publishes; if one is missing or cut short,
//! as after a power failure, the announcement is set aside, and the session has no baseline. The
//! bytes are read whatever the reason was: a disk that was pulled out is as good as a power
//! failure, and the kernel does not name the losses of a failed flush. The collector keeps the
//! objects of an announcement.

use super::capture::{CaptureError, NewCaches};
use super::manager::{SnapshotError, SnapshotManager};
use super::manifests::ManifestError;
use super::read_back::read_back;
use super::session_dir::SessionDir;
use crate::manifest::SnapshotManifest;
use crate::store::{LocalStore, StoreLock};
use crate::sys::FileLock;

/// A baseline that is captured and announced. Dropped without [`publish`](Self::publish), it stays
/// announced, and is settled by whoever looks at the session next.
#[derive(Debug)]
pub struct PendingBaseline {
    manager: SnapshotManager,
    manifest: SnapshotManifest,
    caches: NewCaches,
    _session_lock: FileLock,
    store_lock: StoreLock,
}

impl PendingBaseline {
    pub(super) fn new(
        manager: SnapshotManager,
        manifest: SnapshotManifest,
        caches: NewCaches,
        session_lock: FileLock,
        store_lock: StoreLock,
    ) -> Self {
        Self { manager, manifest, caches, _session_lock: session_lock, store_lock }
    }

    /// The manifest that it will have.
    pub fn manifest(&self) -> &SnapshotManifest {
        &self.manifest
    }

    /// Flushes the store and makes it a snapshot. When this returns, it is durable.
    ///
    /// # Errors
    /// EIO when the kernel lost data, or a session that cannot be written. It is no snapshot then.
    pub fn publish(self) -> Result<(), SnapshotError> {
        self.manager.publish_pending(self.manifest, self.caches)?;
        self.manager.store().drop_doubles(&self.store_lock);
        Ok(())
    }
}

/// The outcome of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// There is none.
    Nothing,
    /// Another process is at work on it.
    Busy,
    /// It is a snapshot now, and durable.
    Published,
    /// Its objects are gone.
    Lost,
}

/// Settles what a killed process announced in a session. `waits`: for one that is at work.
///
/// # Errors
/// When the session or the store cannot be read or written; the announcement stays.
pub(crate) fn settle(session: &SessionDir, waits: bool) -> Result<Settled, SnapshotError> {
    if !session.has_announcement()? {
        return Ok(Settled::Nothing);
    }
    let lock = if waits { Some(session.lock()?) } else { session.try_lock()? };
    let Some(_lock) = lock else { return Ok(Settled::Busy) };
    let lose = |reason: &dyn std::fmt::Display| {
        tracing::warn!("session {} lost its baseline: {reason}", session.id());
        session.withdraw(true)?;
        Ok(Settled::Lost)
    };
    let manifest = match session.pending_baseline() {
        Ok(Some(manifest)) => manifest,
        Ok(None) if !session.has_announcement()? => return Ok(Settled::Nothing),
        // Killed between the publication and what follows it.
        Ok(None) => {
            SnapshotManager::open(session.path())?.list_published()?;
            return Ok(Settled::Published);
        }
        Err(error @ ManifestError::Corrupt { .. }) => return lose(&error),
        Err(error) => return Err(error.into()),
    };
    let store = LocalStore::open(&session.objects_path())?;
    // Pages that are only in memory are written now, so that the next read comes from the disk.
    store.sync()?;
    let say = || {
        tracing::warn!(
            "the first snapshot of session {} was not completed: all of it ({} bytes) is read back",
            session.id(),
            manifest.totals.total_bytes
        );
    };
    // Where it cannot be started, that is an error; rayon's own would panic.
    let pool = rayon::ThreadPoolBuilder::new()
        .thread_name(|index| format!("read-back-{index}"))
        .build()
        .map_err(CaptureError::from)?;
    match pool
        .install(|| manifest.needed_roots().try_for_each(|root| read_back(&store, &root, say)))
    {
        Ok(()) => {}
        Err(error) if error.is_damage() => return lose(&error),
        Err(error) => return Err(error.into()),
    }
    let roots = manifest.roots.clone();
    SnapshotManager::for_session(session.clone(), store, roots)
        .publish_pending(manifest, NewCaches::default())?;
    Ok(Settled::Published)
}
