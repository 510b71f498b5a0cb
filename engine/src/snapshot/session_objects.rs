//! Where the objects of a session are: with those of all sessions of a store, or its own.

use std::path::{Path, PathBuf};

use super::capture::InodeId;
use crate::layout;
use crate::store::{LocalStore, StoreError};
use crate::sys::{self, Dir};

/// Makes a new session one of the store that it lies in. Nothing is done for a session that has
/// objects, or that lies elsewhere.
///
/// # Errors
/// When the session or the store cannot be looked at, or the link cannot be made.
pub(super) fn link_to_store(session_dir: &Path) -> Result<(), StoreError> {
    let session = Dir::open(session_dir)?;
    let has_objects = session.try_stat(layout::OBJECTS.as_bytes())?.is_some();
    if has_objects || !session_dir.parent().is_some_and(is_store_root) {
        return Ok(());
    }
    match session.make_symlink(layout::OBJECTS.as_bytes(), layout::SHARED_OBJECTS) {
        // Another process resumed the same session.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => Ok(made?),
    }
}

/// Whether sessions in this directory share the objects in it. A session with objects of its own is
/// not such a directory, and neither is one that another program keeps `objects` in (`.git`).
fn is_store_root(directory: &Path) -> bool {
    let is_session =
        Dir::open(directory).and_then(|dir| dir.try_stat(layout::SNAPSHOTS.as_bytes()));
    matches!(is_session, Ok(None))
        && LocalStore::is_store(&directory.join(layout::OBJECTS)).unwrap_or(false)
}

/// The places that must not be tracked, nor copied into: the session and the store its objects are
/// in.
pub(crate) fn store_paths(session_dir: &Path) -> Vec<PathBuf> {
    let real = sys::real_or_future_path(session_dir);
    let store = match sys::real_path(&real.join(layout::OBJECTS)) {
        Ok(objects) => objects.parent().map(Path::to_owned),
        // It will be a link.
        Err(_) => real.parent().filter(|parent| is_store_root(parent)).map(Path::to_owned),
    };
    [Some(real), store].into_iter().flatten().collect()
}

/// The same places by device and inode, as far as they are there.
pub(crate) fn own_places(session_dir: &Path) -> Vec<InodeId> {
    let places = store_paths(session_dir);
    let stats =
        places.iter().filter_map(|path| Dir::open(path).and_then(|dir| dir.stat_self()).ok());
    stats.map(|stat| (stat.dev, stat.ino)).collect()
}
