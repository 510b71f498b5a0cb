//! The user's own edits in the session of an agent, which go where an earlier step comes back.
//!
//! An undo of the session spares them. To go back to a step means all that came after it, so these
//! edits are only named.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::makers::links;
use super::three_way::{is_commit, is_in_git};
use super::{RestoreError, RestoreOptions};
use crate::snapshot::{SnapshotError, SnapshotKind, SnapshotManager};

impl SnapshotManager {
    /// The paths that the user changed after a snapshot, as far as the steps and the disk say so.
    /// The git directory stands for a repository whose branches the user moved.
    ///
    /// # Errors
    /// When a manifest or a tree is missing or damaged.
    pub(crate) fn own_edits_after(&self, number: u64) -> Result<BTreeSet<PathBuf>, RestoreError> {
        let states = self.states(number)?;
        let metadata = self.session().metadata().map_err(SnapshotError::from)?;
        let last = states.latest.manifest.number;
        let mut edits = BTreeSet::new();
        for link in links(&states.chain, &metadata, &states.target.manifest, last) {
            if link.makers.is_users() {
                link.each_change(self.store(), |path, _| edits.extend(named(path)))?;
            }
        }
        let latest = states.chain.last().map(|loaded| &loaded.manifest);
        let is_open = metadata.ended.is_none();
        if let Some(latest) = latest.filter(|it| is_open && it.kind != SnapshotKind::Safety) {
            let since = self.plan_restore(latest.number, &RestoreOptions::default())?.changes;
            let paths = since.into_iter().map(|change| change.path.into_os_string().into_vec());
            edits.extend(paths.filter_map(named));
        }
        Ok(edits)
    }
}

/// The path as it is named; `None`: git's own files are no user's edit.
fn named(path: Vec<u8>) -> Option<PathBuf> {
    if !is_in_git(&path) {
        return Some(PathBuf::from(OsString::from_vec(path)));
    }
    let path = is_commit(&path).then(|| PathBuf::from(OsString::from_vec(path)))?;
    path.ancestors().filter(|above| above.ends_with(".git")).last().map(PathBuf::from)
}
