//! Reverting a restore: its changes, and no other path.
//!
//! The safety snapshot has the state of everything before the restore. Somebody may have worked on
//! since; so only the paths in which that state differs from what was restored are meant.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::{RestoreError, Selection};
use crate::diff;
use crate::snapshot::{RestoreRecord, SnapshotError, SnapshotKind, SnapshotManager};

impl SnapshotManager {
    /// The paths that the restore changed before which the safety snapshot `number` was taken.
    /// `None`: it changed none, or the snapshot is no safety snapshot.
    ///
    /// # Errors
    /// When a manifest or a tree is missing or damaged.
    pub fn changed_by_restore(&self, number: u64) -> Result<Option<Selection>, RestoreError> {
        let listed = self.session().metadata().map_err(SnapshotError::from)?.manifest_hashes;
        let load = |number| {
            self.session().refuse_removed(number)?;
            self.session().listed_manifest(number, &listed)
        };
        let safety = load(number).map_err(SnapshotError::from)?.manifest;
        let (SnapshotKind::Safety, Some(restored)) = (safety.kind, safety.restores) else {
            return Ok(None);
        };
        let mut exactly = safety.restores_only;
        if exactly.is_empty() {
            let restored = load(restored).map_err(SnapshotError::from)?.manifest;
            let roots = (&safety.merkle_root, &restored.merkle_root);
            for difference in diff::differences(self.store(), roots.0, roots.1)? {
                exactly.push(PathBuf::from(OsString::from_vec(difference?.path)));
            }
        }
        let selection = Selection { exactly, ..Selection::default() };
        Ok(Some(selection).filter(|selection| !selection.is_everything()))
    }

    /// Notes a restore that is done. If that fails, `undo` finds out from the disk that there is
    /// nothing to do.
    pub(super) fn note(&self, done: RestoreRecord) {
        if let Err(error) = self.note_restore(done) {
            tracing::warn!("the session does not say that it was restored: {error}");
        }
    }
}
