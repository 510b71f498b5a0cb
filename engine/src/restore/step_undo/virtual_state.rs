//! The present state, and what it is to be: changed in memory, step by step.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::edit_tree::Edits;
use super::{StepConflict, is_in_git};
use crate::byte_path;
use crate::diff::{Difference, EntryState, Lookup};
use crate::object::{ContentHash, Node, RootTree};
use crate::path_text::to_path;
use crate::restore::merge::{Merged, Merger, is_same as are_same};
use crate::restore::others::Contested;
use crate::snapshot::TrackedRoot;
use crate::store::{ObjectStore, StoreError, read_root_tree, read_tree};

/// The present state, with edits.
pub(super) struct VirtualState<'a> {
    store: &'a dyn ObjectStore,
    root: RootTree,
    roots: &'a [TrackedRoot],
    contested: Contested,
    /// Whether conflicts with later changes are decided: the state before the step comes back.
    overwrite: bool,
    edits: Edits,
    merged: Vec<PathBuf>,
    conflicts: Vec<StepConflict>,
}

type State = Option<Arc<EntryState>>;

impl<'a> VirtualState<'a> {
    pub(super) fn new(
        store: &'a dyn ObjectStore,
        current: &ContentHash,
        roots: &'a [TrackedRoot],
        contested: Contested,
        overwrite: bool,
    ) -> Result<Self, StoreError> {
        let root = read_root_tree(store, current)?;
        let (edits, merged, conflicts) = (Edits::new(), Vec::new(), Vec::new());
        Ok(Self { store, root, roots, contested, overwrite, edits, merged, conflicts })
    }

    pub(super) fn edits(&self) -> &Edits {
        &self.edits
    }

    /// The paths that are to be another.
    pub(super) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.edits.keys().map(Vec::as_slice)
    }

    /// Files that were merged, and what stays as it is.
    pub(super) fn finish(self) -> (Vec<PathBuf>, Vec<StepConflict>) {
        (self.merged, self.conflicts)
    }

    /// Takes back what a step changed.
    pub(super) fn take_back<'d>(
        &mut self,
        step: u64,
        differences: impl Iterator<Item = &'d Difference>,
    ) -> Result<(), StoreError> {
        let mut made_directories = Vec::new();
        for difference in differences.filter(|it| it.change_type().is_some()) {
            let Difference { path, old, new, .. } = difference;
            if is_in_git(path) {
                if is_commit(path) {
                    let reason = "commits and branches stay as they are: use git for them";
                    self.conflict(step, path, reason);
                }
                continue;
            }
            if new.as_deref().is_some_and(is_directory) && !old.as_deref().is_some_and(is_directory)
            {
                made_directories.push((path, old));
                continue;
            }
            self.take_back_path(step, path, old, new)?;
        }
        // Deepest first: by then it is known whether anything is left in them.
        for (path, old) in made_directories.into_iter().rev() {
            let Some(current) = self.get(path)? else { continue };
            if !is_directory(&current) {
                continue;
            }
            if self.is_empty(path, &current)? {
                self.edits.insert(path.clone(), old.clone());
            } else if old.is_some() {
                self.conflict(step, path, "the directory in its place holds something else now");
            }
        }
        Ok(())
    }

    fn take_back_path(
        &mut self,
        step: u64,
        path: &[u8],
        old: &State,
        new: &State,
    ) -> Result<(), StoreError> {
        let current = self.get(path)?;
        if is_same(&current, old) {
            return Ok(());
        }
        if let Some(other) = self.contested.sessions(path).first() {
            let reason = format!("session {other}, at work at the same time, may have changed it");
            return self.take_back_or_leave(step, path, old, &reason);
        }
        if is_same(&current, new) {
            return self.bring_back(step, path, old);
        }
        let (Some(was), Some(is), Some(made)) = (old, &current, new) else {
            let reason = match (&current, new) {
                (None, _) => "it is gone by now",
                (Some(_), None) => "something of this name is there again",
                _ => "it was changed since the step made it",
            };
            return self.take_back_or_leave(step, path, old, reason);
        };
        let merger = Merger::new(self.store, self.roots);
        if let Some(Merged { state, bytes }) = merger.take_back(path, was, made, is)? {
            // A step that was taken back before is in it no more.
            if are_same(&state, is) {
                return Ok(());
            }
            if let Some(bytes) = bytes {
                self.store.write(&bytes)?;
            }
            if state.node != is.node {
                self.merged.push(to_path(path).to_owned());
            }
            self.edits.insert(path.to_vec(), Some(Arc::new(state)));
            return Ok(());
        }
        let reason = "what came later touches what the step changed";
        self.take_back_or_leave(step, path, old, reason)
    }

    /// For later changes that cannot be told from those of the step.
    fn take_back_or_leave(
        &mut self,
        step: u64,
        path: &[u8],
        old: &State,
        reason: &str,
    ) -> Result<(), StoreError> {
        if self.overwrite {
            return self.bring_back(step, path, old);
        }
        self.conflict(step, path, reason);
        Ok(())
    }

    fn bring_back(&mut self, step: u64, path: &[u8], old: &State) -> Result<(), StoreError> {
        if old.is_some() && !self.has_parent(path)? {
            self.conflict(step, path, "the directory in which it was is gone");
        } else {
            self.edits.insert(path.to_vec(), old.clone());
        }
        Ok(())
    }

    fn conflict(&mut self, step: u64, path: &[u8], reason: &str) {
        let path = to_path(path).to_owned();
        self.conflicts.push(StepConflict { path, step, reason: reason.to_owned() });
    }

    /// What a path is, edits included.
    fn get(&self, path: &[u8]) -> Result<State, StoreError> {
        if let Some(edited) = self.edits.get(path) {
            return Ok(edited.clone());
        }
        // Below what goes or is no directory any more, nothing is.
        let is_cut = |above: &[u8]| match self.edits.get(above) {
            Some(None) => true,
            Some(Some(state)) => !is_directory(state),
            None => false,
        };
        if byte_path::ancestors(path).any(is_cut) {
            return Ok(None);
        }
        Ok(Lookup::new(self.store, &self.root).find(path)?.map(Arc::new))
    }

    fn has_parent(&self, path: &[u8]) -> Result<bool, StoreError> {
        let is_root = self.roots.iter().any(|root| root.path.as_os_str().as_bytes() == path);
        Ok(is_root || self.get(byte_path::split(path).0)?.is_some_and(|state| is_directory(&state)))
    }

    /// Whether nothing is left in a directory.
    fn is_empty(&self, path: &[u8], state: &EntryState) -> Result<bool, StoreError> {
        let edited = |child: &[u8]| self.edits.get(child).map(Option::is_some);
        let below = [path, b"/"].concat();
        let has_new = self
            .edits
            .range(below.clone()..)
            .take_while(|(child, _)| child.starts_with(&below))
            .any(|(_, state)| state.is_some());
        if has_new {
            return Ok(false);
        }
        // One that an edit puts there has nothing but edits in it.
        if self.edits.contains_key(path) {
            return Ok(true);
        }
        let Node::Directory { tree } = &state.node else { return Ok(false) };
        let tree = read_tree(self.store, tree)?;
        let stays = |name: &[u8]| edited(&byte_path::join(path, name)) != Some(false);
        Ok(!tree.entries().iter().any(|entry| stays(&entry.name)))
    }
}

fn is_directory(state: &EntryState) -> bool {
    matches!(state.node, Node::Directory { .. })
}

/// Whether two states are the same but for times, and for what is in directories.
fn is_same(a: &State, b: &State) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => are_same(a, b),
        _ => false,
    }
}

/// Whether a path in a git directory says what is committed.
pub(in crate::restore) fn is_commit(path: &[u8]) -> bool {
    let mut names = byte_path::components(path).skip_while(|name| *name != b".git").skip(1);
    matches!(names.next(), Some(b"refs" | b"HEAD" | b"packed-refs"))
}
