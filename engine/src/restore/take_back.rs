//! Reverting a restore: its changes, and no other path.
//!
//! The safety snapshot has the state of everything before the restore. The user may have worked on
//! since; so only the paths in which that state differs from what was restored are meant.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::{RestoreError, Selection};
use crate::diff;
use crate::object::FileTime;
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
        self.change_notes(|restores| restores.push(done));
    }

    /// Notes an interrupted restore that is finished now, unless it was noted before that.
    /// `started`: its journal's time from before the first change.
    pub(super) fn note_finished(&self, done: RestoreRecord, started: FileTime) {
        self.change_notes(|restores| {
            if !restores.last().is_some_and(|last| is_since(last, started)) {
                restores.push(done);
            }
        });
    }

    /// Takes the note of an interrupted restore away, which is taken back now.
    pub(super) fn note_taken_back(&self, started: FileTime) {
        self.change_notes(|restores| restores.retain(|restore| !is_since(restore, started)));
    }

    fn change_notes(&self, change: impl FnOnce(&mut Vec<RestoreRecord>)) {
        if let Err(error) = self.note_restores(change) {
            tracing::warn!("the session does not say that it was restored: {error}");
        }
    }
}

/// Whether a restore was done after a file system's clock had this time. Nothing else is restored
/// while there is a journal.
fn is_since(restore: &RestoreRecord, started: FileTime) -> bool {
    (restore.at.as_second(), restore.at.subsec_nanosecond())
        >= (started.seconds, started.nanoseconds.cast_signed())
}
