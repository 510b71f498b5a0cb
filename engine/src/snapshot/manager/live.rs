//! The tracked paths as they are at the moment, as if they were a snapshot.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::take::{Why, described};
use super::{CacheUse, SnapshotError, SnapshotManager};
use crate::diff::{self, Difference};
use crate::manifest::SnapshotManifest;
use crate::object::{ContentHash, Node};
use crate::path_text::to_path;
use crate::store::{ObjectSource, OverlayStore, StoreError};
use crate::sys::{self, Dir};

/// A state of the tracked paths that is recorded nowhere. Contents that the store does not have are
/// read from the files themselves, as long as these are what they were.
#[derive(Debug)]
pub struct LiveState<'a> {
    overlay: OverlayStore<'a>,
    manifest: SnapshotManifest,
    /// Files whose contents are not in the store.
    files: HashMap<ContentHash, PathBuf>,
}

impl SnapshotManager {
    /// Captures the current state with the filters of an earlier snapshot of the session. Writes
    /// nothing.
    ///
    /// # Errors
    /// When the session has no snapshot, or what is tracked cannot be read.
    pub fn live_state(&self, since: &SnapshotManifest) -> Result<LiveState<'_>, SnapshotError> {
        let latest = self.latest()?;
        let overlay = OverlayStore::new(&self.store);
        let capture = self.capture_current(&overlay, since, &latest, CacheUse::Read)?;
        let (manifest, _) =
            described(capture, Some(&latest), Why::Asked(Box::default()), &since.roots);
        let mut files = HashMap::new();
        for changed in diff::differences(&overlay, &since.merkle_root, &manifest.merkle_root)? {
            let Difference { path, new, .. } = changed?;
            if let Some(Node::File { hash, .. }) = new.as_ref().map(|state| &state.node) {
                files.insert(*hash, to_path(&path).to_owned());
            }
        }
        Ok(LiveState { overlay, manifest, files })
    }
}

impl LiveState<'_> {
    /// The manifest that a snapshot of this state would have.
    pub fn manifest(&self) -> &SnapshotManifest {
        &self.manifest
    }
}

impl ObjectSource for LiveState<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match (self.overlay.read(hash, max_bytes), self.files.get(hash)) {
            (Err(StoreError::Missing { .. }), Some(path)) => {
                let bytes = read_file(path, max_bytes)?;
                let is_same = ContentHash::of(&bytes) == *hash;
                let changed = || StoreError::Missing { hash: *hash, path: path.clone() };
                is_same.then_some(bytes).ok_or_else(changed)
            }
            (read, _) => read,
        }
    }
}

fn read_file(path: &Path, max_bytes: u64) -> sys::Result<Vec<u8>> {
    let parent = Dir::open_no_symlinks(path.parent().unwrap_or(Path::new("/")))?;
    parent.read(path.file_name().unwrap_or(OsStr::new("")).as_bytes(), max_bytes)
}
