//! The session of a merge: nothing but what the merge wrote is the merge's.
//!
//! ```text
//! 0   the state before, captured
//! 1   the merged state, made of it: a tree that was never captured
//! 2   the same with the branches that nono made
//! ```
//!
//! A capture after the merge would take in what a person did meanwhile, and an undo would take that
//! back. So the state after is made from the state before. Until the [record](MergeRecord) says
//! that the paths have it, the session did nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::RestoreError;
use super::plan::Skipped;
use super::state_merge::totals_of;
use super::three_way::{Edits, apply};
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, Node};
use crate::snapshot::{
    Budget, CaptureRequest, MergeRecord, RootRules, SnapshotError, SnapshotManager,
    TrackedPathError, captured, whole_roots,
};
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};

impl SnapshotManager {
    /// Notes that the paths have the merged state, but for those that stay.
    pub(super) fn note_landed(&self, skipped: &[Skipped]) {
        let noted = self.note_merge(|record| {
            record.is_done = true;
            record.taken.leave(skipped.iter().map(|skipped| skipped.path.clone()));
        });
        if let Err(error) = noted {
            tracing::warn!("the session does not say that it merged: {error}");
        }
    }

    /// Notes that the paths have the state before again. Power may have gone when the journal was
    /// removed: then it is there beside a record of a merge that is done.
    pub(super) fn note_not_landed(&self) {
        if let Err(error) = self.note_merge(|record| record.is_done = false) {
            tracing::warn!("the session says that it merged: {error}");
        }
    }

    /// Notes whether branches are still to be made.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn note_awaited_branches(&self, awaits_branches: bool) -> Result<(), RestoreError> {
        let _session_lock = self.lock_session()?;
        Ok(self.note_merge(|record| record.awaits_branches = awaits_branches)?)
    }

    /// Adds what nono made besides the merge to the state that the merge left. Of the directories
    /// among `made`, everything in them is new. No path is inside another.
    ///
    /// # Errors
    /// A path cannot be captured, or the store not be written.
    pub fn add_to_merge(&self, made: &[PathBuf]) -> Result<(), RestoreError> {
        let _session_lock = self.lock_session()?;
        let _store_lock = self.lock_store()?;
        let latest = self.latest()?;
        let mut paths: Vec<&Path> = made.iter().map(PathBuf::as_path).collect();
        paths.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
        if paths.is_empty() {
            return Ok(self.note_merge(MergeRecord::end)?);
        }
        if let Some(path) = paths.iter().find(|path| path.starts_with(self.session().path())) {
            let (path, store) = ((*path).to_owned(), self.session().path().to_owned());
            let refused = TrackedPathError::InStore { path, store };
            return Err(SnapshotError::from(refused).into());
        }
        let captured = captured(CaptureRequest {
            store: self.store(),
            flushed: None,
            roots: &whole_roots(&paths),
            own: &[],
            budget: Budget::UNLIMITED,
            is_baseline: true,
            rules: vec![RootRules::Recorded(None); paths.len()],
            known: Vec::new(),
            cache: None,
            progress: self.progress(),
            expected: None,
            racy_from: None,
            threads: self.threads(),
        })?;
        let edits = edits_of(self.store(), &captured.merkle_root)?;
        let before = &latest.manifest;
        let root = apply(self.store(), &before.merkle_root, &edits, Vec::new())?;
        let totals = totals_of(self.store(), before.totals, &before.merkle_root, &root)?;
        self.publish_made(root, totals, &latest)?;
        Ok(self.note_merge(MergeRecord::end)?)
    }
}

/// The entries of a captured state, each with its path.
fn edits_of(store: &dyn ObjectSource, root: &ContentHash) -> Result<Edits, StoreError> {
    let mut edits = Edits::new();
    let mut pending: Vec<(Vec<u8>, ContentHash)> = Vec::new();
    for entry in read_root_tree(store, root)?.entries {
        let (path, node) = (entry.path.to_vec(), entry.node);
        if let Node::Directory { tree } = &node {
            pending.push((path.clone(), *tree));
        }
        edits.insert(path, Some(Arc::new(EntryState { attributes: entry.attributes, node })));
    }
    while let Some((directory, tree)) = pending.pop() {
        for entry in read_tree(store, &tree)?.into_entries() {
            let path = byte_path::join(&directory, &entry.name);
            if let Node::Directory { tree } = &entry.node {
                pending.push((path.clone(), *tree));
            }
            let state = EntryState { attributes: entry.attributes, node: entry.node };
            edits.insert(path, Some(Arc::new(state)));
        }
    }
    Ok(edits)
}
