//! The session of a fork: its first snapshot is the state from which the fork begins.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;

use super::ForkError;
use crate::layout;
use crate::manifest::{SnapshotKind, SnapshotManifest, Totals};
use crate::progress::{Progress, wait_for};
use crate::session::{RecordRequest, Recording, new_session_id};
use crate::snapshot::{SessionDir, SessionMetadata, SessionOrigin, SnapshotManager};
use crate::store::{LocalStore, StoreError};
use crate::sys::Dir;

/// Records the present state as the one from which a fork begins.
///
/// # Errors
/// As for [`Recording::start`].
pub fn begin_now(
    request: &RecordRequest,
    progress: Arc<dyn Progress + Send>,
) -> Result<SessionDir, ForkError> {
    let request = RecordRequest { origin: SessionOrigin::Fork, label: None, ..request.clone() };
    Ok(Recording::start(&request, progress)?.manager().session().clone())
}

/// Makes the session of a fork that begins from a recorded state: the same objects under a manifest
/// of its own. The session of that state may go before the fork does.
///
/// # Errors
/// When the state cannot be read, or the store not be written.
pub fn begin_recorded(
    root: &Path,
    from: &SnapshotManifest,
    progress: &dyn Progress,
) -> Result<SessionDir, ForkError> {
    let store = LocalStore::open(&root.join(layout::OBJECTS))?;
    // Held until the session is there: the collector sees all of it or nothing.
    let _lock = wait_for(progress, || store.try_lock_shared())?.ok_or(StoreError::Cancelled)?;
    let manifest = SnapshotManifest {
        number: 0,
        parent: None,
        parent_hash: None,
        kind: SnapshotKind::Ordinary,
        label: None,
        step: None,
        restores: None,
        restores_only: Vec::new(),
        totals: Totals { files_read: 0, objects_written: 0, bytes_written: 0, ..from.totals },
        ..from.clone()
    };
    let tracked = manifest.roots.iter().map(|root| root.path.clone()).collect();
    let mut metadata = SessionMetadata::new(String::new(), Vec::new(), tracked);
    metadata.origin = SessionOrigin::Fork;
    let parent = Dir::open(root)?;
    let hidden = layout::new_name()?;
    let made = appear(&parent, root, &hidden, &manifest, metadata);
    if made.is_err() {
        // Nothing names it.
        let _ = parent.remove_dir_all(hidden.as_bytes());
    }
    made
}

fn appear(
    parent: &Dir,
    root: &Path,
    hidden: &str,
    manifest: &SnapshotManifest,
    mut metadata: SessionMetadata,
) -> Result<SessionDir, ForkError> {
    let place = root.join(hidden);
    let session = SessionDir::create(&place)?;
    let own = parent.open_dir(hidden.as_bytes())?;
    own.make_symlink(layout::OBJECTS.as_bytes(), layout::SHARED_OBJECTS)?;
    session.publish(manifest)?;
    let mut second = Timestamp::now();
    loop {
        metadata.session_id = new_session_id(second);
        // Lists the snapshot.
        SnapshotManager::open(&place)?.save_session_metadata(&metadata)?;
        match parent.rename_new(hidden.as_bytes(), parent, metadata.session_id.as_bytes()) {
            Ok(()) => break,
            // This process made another session within the same second.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                second += jiff::SignedDuration::from_secs(1);
            }
            Err(error) => return Err(error.into()),
        }
    }
    parent.sync()?;
    Ok(SessionDir::open(&root.join(&metadata.session_id))?)
}
