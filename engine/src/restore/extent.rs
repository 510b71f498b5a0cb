//! How much a restore is about, and how much of that it left: `undo` and `redo` follow from it.

use std::os::unix::ffi::OsStrExt;

use super::planned::Planned;
use super::{OnConflict, RestoreOptions, RestoreReport, Skipped};
use crate::diff::Lookup;
use crate::snapshot::{SnapshotManager, SnapshotManifest};
use crate::store::{StoreError, read_root_tree};

impl RestoreOptions {
    /// Whether all is meant that the snapshot stands for.
    pub(super) fn is_whole(&self) -> bool {
        self.takes_back || self.selection.is_everything()
    }

    /// Whether a plan is about less than all that differs from the snapshot.
    pub(super) fn is_narrowed(&self, planned: &Planned) -> bool {
        !self.is_whole()
            || self.keep_commits
            || planned.leaves_undone
            || !planned.spared.is_empty()
            || !planned.merged.is_empty()
            || (self.on_conflict == OnConflict::KeepNewer && !planned.conflicts.is_empty())
    }
}

impl RestoreReport {
    /// Whether newer changes of what was asked for stayed.
    pub fn has_kept_newer(&self) -> bool {
        self.on_conflict == OnConflict::KeepNewer && !self.conflicts.is_empty()
    }
}

impl SnapshotManager {
    /// Whether a restore that left these paths left some of its target. A new path that nothing
    /// recorded is none of the target. What cannot be told counts as left.
    pub(super) fn has_any_of(&self, skipped: &[Skipped], target: &SnapshotManifest) -> bool {
        let find = || -> Result<bool, StoreError> {
            let root = read_root_tree(self.store(), &target.merkle_root)?;
            let mut target = Lookup::new(self.store(), &root);
            for skipped in skipped {
                if target.find(skipped.path.as_os_str().as_bytes())?.is_some() {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        find().unwrap_or(true)
    }
}
