//! Taking a part of a text back: hunks of what changed between two snapshots.
//!
//! The caller says what the newer text is without that part. This is a change from the newer state
//! of the file to that text, done in the present state ([`three_way`](super::three_way)), so later
//! changes of other lines stay. Where they touch the part, nothing is done.
//!
//! No snapshot holds the text that is left. The record of the restore has its hash, so that `redo`
//! does not take it for the work of others.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::conflicts::Conflicts;
use super::three_way::{Carried, Change, Purpose, VirtualState, Wanted};
use super::{Decision, JobReport, RestoreError, RestoreOptions, StepConflict};
use crate::diff::{self, Lookup};
use crate::object::{ContentHash, Node};
use crate::snapshot::{RestoreRecord, SnapshotManager, SnapshotManifest};
use crate::store::{ObjectSource, ObjectStore, StoreError, read_root_tree};

/// A text of a snapshot, and the same without a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPart {
    /// The number of the snapshot that has the text.
    pub snapshot: u64,
    /// Absolute path.
    pub path: PathBuf,
    /// The text without the part.
    pub without: Vec<u8>,
}

/// A conflict is about the path as a whole: nothing was done.
fn report(part: &TextPart, Carried { wanted, restore }: Carried) -> JobReport {
    let conflict = wanted.conflicts.into_iter().next().map(|conflict| StepConflict {
        path: part.path.clone(),
        step: part.snapshot,
        reason: conflict.reason,
    });
    JobReport { step_conflicts: conflict.into_iter().collect(), ..JobReport::of(restore) }
}

impl SnapshotManager {
    /// Says what taking a part of a text back would do. Writes nothing.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) fn plan_text_undo(
        &self,
        part: &TextPart,
        options: &RestoreOptions,
    ) -> Result<JobReport, RestoreError> {
        let states = self.states(part.snapshot)?;
        let planned = self.plan_change(states, options, &|store, current, _| {
            self.without_part(store, current, part)
        })?;
        Ok(report(part, planned))
    }

    /// Takes a part of a text back. The state before is kept as a further snapshot of the session.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub(crate) fn undo_text(
        &self,
        part: &TextPart,
        options: &RestoreOptions,
        decision: Decision,
    ) -> Result<JobReport, RestoreError> {
        let carried = self.carry_out_change(
            part.snapshot,
            options,
            decision,
            &|store, current, _| self.without_part(store, current, part),
            |_| (),
        )?;
        Ok(report(part, carried))
    }

    /// The present state without the part.
    fn without_part(
        &self,
        store: &dyn ObjectStore,
        current: &ContentHash,
        part: &TextPart,
    ) -> Result<Wanted, RestoreError> {
        let manifest = self.load_manifest(part.snapshot)?;
        let path = part.path.as_os_str().as_bytes();
        let root = read_root_tree(store, &manifest.merkle_root)?;
        let mut state = VirtualState::new(store, current, &manifest.roots, Purpose::TakeBack)?;
        if let Some(from) = Lookup::new(store, &root).find(path)? {
            let hash = store.write(&part.without)?.hash;
            let mut to = diff::EntryState { node: from.node.clone(), ..from.clone() };
            to.node = Node::file(part.without.len() as u64, hash);
            to.attributes.mtime = crate::sys::coarse_now();
            let (from, to) = (Some(Arc::new(from)), Some(Arc::new(to)));
            let change = Change { path: path.to_vec(), from, to };
            state.carry_over(part.snapshot, std::iter::once(change))?;
        }
        let wanted = Wanted::of(state, store, current, Vec::new())?;
        let root = read_root_tree(store, &wanted.root)?;
        let left_text = match Lookup::new(store, &root).find(path)?.map(|state| state.node) {
            Some(Node::File { hash, .. }) => Some(hash),
            _ => None,
        };
        Ok(Wanted { left_text, ..wanted })
    }
}

/// Takes the text out of the conflicts that is as the undo of a part of it left it, in a restore of
/// the state before that. `done`: the restores of the session.
pub(super) fn take_left_text(
    conflicts: &mut Conflicts,
    source: &dyn ObjectSource,
    done: &[RestoreRecord],
    target: &SnapshotManifest,
    current_root: &ContentHash,
) -> Result<(), StoreError> {
    let record = done.iter().find(|it| it.safety_snapshot == Some(target.number));
    let Some(left) = record.and_then(|it| it.left_text).filter(|_| !conflicts.is_empty()) else {
        return Ok(());
    };
    let root = read_root_tree(source, current_root)?;
    let mut now = Lookup::new(source, &root);
    let mut others = Conflicts::default();
    for (path, later) in conflicts.iter() {
        let state = now.find(&path)?.map(|state| state.node);
        if !matches!(state, Some(Node::File { hash, .. }) if hash == left) {
            others.push(&path, *later);
        }
    }
    *conflicts = others;
    Ok(())
}
