//! The user's own edits in the session of an agent, which go where an earlier step comes back.
//!
//! An undo of the session spares them. To go back to a step means all that came after it, so these
//! edits are only named. What nono itself restored in between is nobody's edit.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::step_undo::{is_commit, is_in_git};
use super::{RestoreError, RestoreOptions};
use crate::diff::{self, Difference};
use crate::snapshot::{SnapshotError, SnapshotKind, SnapshotManager, SnapshotManifest, StepKind};
use crate::store::StoreError;

impl SnapshotManager {
    /// The paths that the user changed after a snapshot, as far as the steps and the disk say so.
    /// Of a repository whose branches the user moved, the git directory.
    ///
    /// # Errors
    /// When a manifest or a tree is missing or damaged.
    pub fn own_edits_after(&self, number: u64) -> Result<BTreeSet<PathBuf>, RestoreError> {
        let chain = self.states(number)?.chain;
        let metadata = self.session().metadata().map_err(SnapshotError::from)?;
        let held = |wanted: u64| {
            let found = chain.iter().map(|loaded| &loaded.manifest).find(|it| it.number == wanted);
            found.filter(|_| metadata.removal(wanted).is_none())
        };
        let mut edits = BTreeSet::new();
        let later = chain.iter().map(|loaded| &loaded.manifest).filter(|it| it.number > number);
        for after in later.filter(|after| is_users(after)) {
            // With a removed step, nobody can tell whose a change is.
            let Some(before) = after.parent.and_then(held) else { continue };
            let restored = before.restores.and_then(held);
            self.add_edits(before, after, restored, &mut edits)?;
        }
        let latest = chain.last().map(|loaded| &loaded.manifest);
        let is_open = metadata.ended.is_none();
        if let Some(latest) = latest.filter(|it| is_open && it.kind != SnapshotKind::Safety) {
            let since = self.plan_restore(latest.number, &RestoreOptions::default())?.changes;
            let paths = since.into_iter().map(|change| change.path.into_os_string().into_vec());
            edits.extend(paths.filter_map(named));
        }
        Ok(edits)
    }

    /// Adds what changed between two states, without what is as in `restored`: nono brought that.
    fn add_edits(
        &self,
        before: &SnapshotManifest,
        after: &SnapshotManifest,
        restored: Option<&SnapshotManifest>,
        edits: &mut BTreeSet<PathBuf>,
    ) -> Result<(), StoreError> {
        let changed = |from: &SnapshotManifest| -> Result<Vec<Vec<u8>>, StoreError> {
            let all = diff::compare(self.store(), &from.merkle_root, &after.merkle_root)?;
            let is_change = |it: &Difference| it.change_type().is_some();
            Ok(all.into_iter().filter(is_change).map(|it| it.path).collect())
        };
        let unlike: Option<HashSet<Vec<u8>>> = match restored {
            Some(target) => Some(changed(target)?.into_iter().collect()),
            None => None,
        };
        let is_own = |path: &Vec<u8>| unlike.as_ref().is_none_or(|unlike| unlike.contains(path));
        edits.extend(changed(before)?.into_iter().filter(is_own).filter_map(named));
        Ok(())
    }
}

/// Whether what a snapshot changed is the user's. A state before a restore holds what no call did.
fn is_users(manifest: &SnapshotManifest) -> bool {
    let is_edit = manifest.step.as_ref().is_some_and(|step| step.kind == StepKind::UserEdits);
    manifest.kind == SnapshotKind::Safety || is_edit
}

/// The path as it is named; `None`: git's own files are nobody's edit.
fn named(path: Vec<u8>) -> Option<PathBuf> {
    if !is_in_git(&path) {
        return Some(PathBuf::from(OsString::from_vec(path)));
    }
    let path = is_commit(&path).then(|| PathBuf::from(OsString::from_vec(path)))?;
    path.ancestors().filter(|above| above.ends_with(".git")).last().map(PathBuf::from)
}
