//! Files of an undo in which later changes stay.
//!
//! An undo takes back what the session did, and a later change of the same file is no part of that.
//! Where both touch different lines or attributes, the file becomes what it is now without what the
//! session did ([`merge`](super::merge)). So a conflict is left only where they touch, or may. The
//! merged state is planned as any other: its bytes are in the store before the journal.
//!
//! In hunks that both touch, a person may choose: mine, theirs or both ([`ChosenText`]).
//!
//! No snapshot holds the merged state. To take such an undo back is no conflict with it: it follows
//! from the three states, so it is found again. The session says which of its restores merged.
//!
//! A file with other names is not merged: these would get its bytes. Nor is a git directory, which
//! is one thing.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use super::conflicts::{AllConflicts, Conflicts, last_ordinary};
use super::merge::{Merged, Merger, is_same};
use super::plan::{Attribute, Put, RestorePlan};
use super::repositories::Repositories;
use super::{OnConflict, RestoreOptions};
use crate::diff::{self, Difference, EntryState, Lookup};
use crate::object::{ContentHash, Node, RootTree};
use crate::snapshot::{LoadedManifest, RestoreRecord, SnapshotManager, SnapshotManifest};
use crate::store::{ObjectSource, ObjectStore, StoreError, read_root_tree};
use crate::sys;

/// Maximum of bytes that a plan holds for merged files. Further files are conflicts.
const MAX_PLANNED_BYTES: usize = 256 << 20;

/// A file that is to be in a state that no snapshot has.
pub(super) struct MergedFile {
    pub(super) path: Vec<u8>,
    pub(super) now: Option<Arc<EntryState>>,
    pub(super) target: Arc<EntryState>,
    /// Its contents, if no snapshot has them.
    pub(super) bytes: Option<Vec<u8>>,
}

/// The contents of a file in which a person chose among the hunks that both changes touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenText {
    /// Absolute path.
    pub path: PathBuf,
    /// The contents that the choice was about. Others are a conflict as before.
    pub now: ContentHash,
    /// The new contents ([`merge_chosen`](super::merge_chosen)).
    pub bytes: Vec<u8>,
}

/// Paths of an undo with later changes that are no conflict.
#[derive(Default)]
pub(super) struct Settled {
    /// Files that were merged.
    pub(super) merged: Vec<PathBuf>,
    /// Files of which nothing is left to undo: they stay.
    pub(super) stays: Vec<PathBuf>,
}

impl RestoreOptions {
    /// Whether files with later changes are merged: only to overwrite is about whole files.
    pub(super) fn merges(&self) -> bool {
        self.is_undo && (self.always_merges || self.on_conflict != OnConflict::Overwrite)
    }
}

impl RestorePlan {
    /// Merges files that are in conflict, and takes them out of the conflicts. `roots`: before the
    /// session, after it, and now; `chosen`: contents that a person chose.
    pub(super) fn merge_later_changes(
        &mut self,
        merger: &Merger<'_>,
        (source, roots): (&dyn ObjectSource, [&ContentHash; 3]),
        chosen: &[ChosenText],
        repositories: &Repositories,
        conflicts: &mut AllConflicts,
    ) -> Result<Settled, StoreError> {
        let mut settled = Settled::default();
        if conflicts.paths.is_empty() {
            return Ok(settled);
        }
        let trees = Trees::read(source, roots)?;
        let mut states = trees.lookups(source);
        let mut files = Vec::new();
        let mut planned_bytes = 0;
        let mut left = Conflicts::default();
        for (path, later) in conflicts.paths.iter() {
            // An edit between the calls, or of another session, is in the state after the session.
            let is_of_others = later.user_edit.is_some() || conflicts.beside.contains_key(&path);
            let is_candidate = !is_of_others
                && repositories.of_path(&path).is_none()
                && planned_bytes < MAX_PLANNED_BYTES;
            let found = match is_candidate {
                true => match states.merged(merger, &path)? {
                    None => states.chosen(&path, chosen)?,
                    found => found,
                },
                false => None,
            };
            let Some((now, Merged { state, bytes })) = found else {
                left.push(&path, *later);
                continue;
            };
            let name = PathBuf::from(OsString::from_vec(path.clone()));
            if is_same(&state, &now) {
                settled.stays.push(name);
                continue;
            }
            planned_bytes += bytes.as_ref().map_or(0, Vec::len);
            settled.merged.push(name);
            files.push(MergedFile { path, now: Some(now), target: Arc::new(state), bytes });
        }
        conflicts.paths = left;
        self.put_merged(files);
        Ok(settled)
    }

    /// Makes merged files of those that were to be restored or removed.
    pub(super) fn put_merged(&mut self, files: Vec<MergedFile>) {
        if files.is_empty() {
            return;
        }
        let told = files.iter().filter_map(|file| {
            let (old, new) = (file.now.clone(), Some(Arc::clone(&file.target)));
            let (path, is_relinked, is_refreshed) = (Vec::new(), false, false);
            let difference = Difference { path, old, new, is_relinked, is_refreshed };
            Some((file.path.as_slice(), difference.told()?))
        });
        self.changes.replace(&told.collect::<HashMap<_, _>>());
        let paths: HashSet<&[u8]> = files.iter().map(|file| file.path.as_slice()).collect();
        let actions = &mut self.actions;
        actions.removals.retain(|removal| !paths.contains(&*removal.path));
        actions.attributes.retain(|attribute| !paths.contains(&*attribute.path));
        actions.puts.retain(|put| !paths.contains(&*put.path));
        for MergedFile { path, now: current, target, bytes } in files {
            if current.as_ref().is_some_and(|now| now.node == target.node) {
                actions.attributes.push(Attribute { path, current, target });
                continue;
            }
            actions.puts.push(Put { path, current, target, link_to: None, is_relinked: false });
            self.merged.extend(bytes);
        }
        actions.sort_puts();
        self.bytes_to_write = actions.puts.iter().map(Put::bytes).sum();
    }
}

/// Takes out of the conflicts the files that are as a merge left them, in a restore of the state
/// before it. `done`: the restores of the session.
pub(super) fn take_merged_before(
    conflicts: &mut AllConflicts,
    merger: &Merger<'_>,
    source: &dyn ObjectSource,
    (chain, done): (&[LoadedManifest], &[RestoreRecord]),
    target: &SnapshotManifest,
    current_root: &ContentHash,
) -> Result<(), StoreError> {
    let has_merged =
        done.iter().any(|it| it.has_merged && it.safety_snapshot == Some(target.number));
    let is_about_it = has_merged && !conflicts.paths.is_empty();
    let Some(restored) = target.restores.filter(|_| is_about_it) else { return Ok(()) };
    let earlier = chain.iter().position(|loaded| loaded.manifest.number == target.number);
    let after = earlier.and_then(|at| last_ordinary(&chain[..at]));
    let before = chain.iter().find(|loaded| loaded.manifest.number == restored);
    let (Some(before), Some(after)) = (before, after) else { return Ok(()) };
    let undone = [&before.manifest.merkle_root, &after.merkle_root, &target.merkle_root];
    let trees = match Trees::read(source, undone) {
        // A state that cannot be read explains nothing.
        Err(error) if error.is_damage() => return Ok(()),
        trees => trees?,
    };
    let current_root = read_root_tree(source, current_root)?;
    let (mut states, mut now) = (trees.lookups(source), Lookup::new(source, &current_root));
    let mut left = Conflicts::default();
    for (path, later) in conflicts.paths.iter() {
        let is_merged = match now.find(&path)? {
            None => false,
            Some(now) => match states.is_merge(merger, &path, &now) {
                Err(error) if error.is_damage() => false,
                answer => answer?,
            },
        };
        if !is_merged {
            left.push(&path, *later);
        }
    }
    conflicts.paths = left;
    Ok(())
}

/// Three states of the tracked paths: before the session, after it, and with later changes.
struct Trees {
    before: RootTree,
    after: RootTree,
    now: RootTree,
    /// Paths that are one name of several, in any of them.
    linked: HashSet<Vec<u8>>,
}

impl Trees {
    fn read(source: &dyn ObjectSource, roots: [&ContentHash; 3]) -> Result<Self, StoreError> {
        let mut linked = HashSet::new();
        for root in roots {
            let links = diff::links_of(source, root)?;
            linked.extend(links.groups().iter().flatten().map(|path| path.to_vec()));
        }
        let [before, after, now] = roots;
        Ok(Self {
            before: read_root_tree(source, before)?,
            after: read_root_tree(source, after)?,
            now: read_root_tree(source, now)?,
            linked,
        })
    }

    fn lookups<'a>(&'a self, source: &'a dyn ObjectSource) -> ThreeStates<'a> {
        ThreeStates {
            before: Lookup::new(source, &self.before),
            after: Lookup::new(source, &self.after),
            now: Lookup::new(source, &self.now),
            linked: &self.linked,
        }
    }
}

struct ThreeStates<'a> {
    before: Lookup<'a>,
    after: Lookup<'a>,
    now: Lookup<'a>,
    linked: &'a HashSet<Vec<u8>>,
}

impl ThreeStates<'_> {
    /// A file with later changes, and the same without what the session did.
    fn merged(
        &mut self,
        merger: &Merger<'_>,
        path: &[u8],
    ) -> Result<Option<(Arc<EntryState>, Merged)>, StoreError> {
        let states = (self.before.find(path)?, self.after.find(path)?, self.now.find(path)?);
        let (Some(before), Some(after), Some(now)) = states else { return Ok(None) };
        let are_files =
            [&before, &after, &now].iter().all(|it| matches!(it.node, Node::File { .. }));
        if !are_files || self.linked.contains(path) {
            return Ok(None);
        }
        let merged = merger.carry_over(path, &after, &before, &now)?;
        Ok(merged.map(|merged| (Arc::new(now), merged)))
    }
}

impl ThreeStates<'_> {
    /// A file with later changes, and the same with the contents that a person chose for it.
    fn chosen(
        &mut self,
        path: &[u8],
        chosen: &[ChosenText],
    ) -> Result<Option<(Arc<EntryState>, Merged)>, StoreError> {
        let text = chosen.iter().find(|it| it.path.as_os_str().as_bytes() == path);
        let Some(ChosenText { now: meant, bytes, .. }) = text else { return Ok(None) };
        let Some(now) = self.now.find(path)? else { return Ok(None) };
        let is_meant = matches!(&now.node, Node::File { hash, .. } if hash == meant);
        if !is_meant || self.linked.contains(path) {
            return Ok(None);
        }
        let mut state = now.clone();
        state.node = Node::file(bytes.len() as u64, ContentHash::of(bytes));
        // Programs that compare times have to see that it is another.
        state.attributes.mtime = sys::coarse_now();
        Ok(Some((Arc::new(now), Merged { state, bytes: Some(bytes.clone()) })))
    }

    /// Whether a file is as a merge of the three states left it, with any choices.
    fn is_merge(
        &mut self,
        merger: &Merger<'_>,
        path: &[u8],
        found: &EntryState,
    ) -> Result<bool, StoreError> {
        if let Some((_, merged)) = self.merged(merger, path)? {
            return Ok(is_same(&merged.state, found));
        }
        let states = (self.before.find(path)?, self.after.find(path)?, self.now.find(path)?);
        let (Some(before), Some(after), Some(now)) = states else { return Ok(false) };
        merger.is_taken_back_by_choice(path, [&before, &after, &now], found)
    }
}

impl SnapshotManager {
    /// Stores what a plan merged: files are staged from their objects.
    pub(super) fn store_merged(&self, plan: &mut RestorePlan) -> Result<(), StoreError> {
        let merged = std::mem::take(&mut plan.merged);
        if merged.is_empty() {
            return Ok(());
        }
        // Some may have been left since.
        let hash = |put: &Put| match &put.target.node {
            Node::File { hash, .. } => Some(*hash),
            _ => None,
        };
        let put: HashSet<ContentHash> = plan.actions.puts.iter().filter_map(hash).collect();
        for bytes in merged.iter().filter(|bytes| put.contains(&ContentHash::of(bytes))) {
            while let Err(error) = self.store().write(bytes) {
                let is_full = matches!(&error, StoreError::Io(error) if error.is_disk_full());
                if !is_full || !self.make_room() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
