//! From the differences of two states to a plan: one difference after the other, each judged by
//! what either side did not capture.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{Attribute, Put, Removal, RestorePlan, Skipped};
use crate::byte_path;
use crate::diff::{self, Difference, EntryState, Lookup};
use crate::object::{Attributes, ContentHash, Node, Tree};
use crate::path_text::to_path;
use crate::restore::repositories::{AddedObjects, Locks};
use crate::snapshot::{NotCaptured, NotCapturedReason, NotCapturedSet, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree};

/// Plans how the state `current` becomes `target`.
pub(in crate::restore) fn plan(
    store: &dyn ObjectSource,
    current_root: &ContentHash,
    current_left_out: &[NotCaptured],
    target: &SnapshotManifest,
) -> Result<RestorePlan, StoreError> {
    let mut planner = Planner {
        plan: RestorePlan::default(),
        kept: HashSet::new(),
        holders: Vec::new(),
        empty_tree: ContentHash::of(&Tree::new(Vec::new()).encode()),
        holds_device: directories_with_devices(store, current_root, &target.merkle_root)?,
        // A path that the capture of the current state could not see is in the way, and stays.
        current_left_out: NotCapturedSet::of(&target.roots, current_left_out),
        unknown: NotCapturedSet::new(target),
    };
    let target_tree = read_root_tree(store, &target.merkle_root)?;
    let mut added = AddedObjects::new(store, target, &target_tree);
    let mut locks = Locks::new(store, target, &target_tree);
    for difference in diff::differences(store, current_root, &target.merkle_root)? {
        let difference = difference?;
        let comes_back = difference.old.is_none() && difference.new.is_some();
        let is_lock = comes_back && locks.has(&difference.path)?;
        if !is_lock && !added.has(&difference)? {
            planner.difference(difference);
        }
    }
    planner.plan.actions.sort_puts();
    let current = read_root_tree(store, current_root)?;
    let manifest = target;
    let target = &target_tree;
    let renewed = planner.links(store, &current, target)?;
    let (mut now, mut before) = (Lookup::new(store, &current), Lookup::new(store, target));
    planner.name_unrecorded(current_left_out, &mut now, &mut before)?;
    let then = &manifest.not_captured;
    planner.name_unreadable_then(then, current_left_out, &mut now, &mut before)?;
    planner.name_lost(then, current_left_out);
    Ok(planner.finish(renewed))
}

/// Directories above a device that is not in the target: it cannot be brought back, so it stays,
/// and they with it. The differences are gone through for that alone, without what is only in the
/// target, because to keep them takes more than to find them again.
fn directories_with_devices(
    store: &dyn ObjectSource,
    current_root: &ContentHash,
    target_root: &ContentHash,
) -> Result<HashSet<Vec<u8>>, StoreError> {
    let mut found = HashSet::new();
    let mut differences = diff::differences(store, current_root, target_root)?;
    while let Some(difference) = differences.next() {
        let Difference { path, old, .. } = difference?;
        match old.as_deref().map(|old| &old.node) {
            Some(Node::Directory { .. }) => {}
            Some(Node::CharDevice(_) | Node::BlockDevice(_)) => {
                found.extend(byte_path::ancestors(&path).map(<[u8]>::to_vec));
            }
            // Nothing of the current state is below.
            _ => differences.skip_in(&path),
        }
    }
    Ok(found)
}

pub(super) struct Planner<'a> {
    pub(super) plan: RestorePlan,
    /// Directories that stay with everything in them.
    pub(super) kept: HashSet<Vec<u8>>,
    /// Directories that are new, and stay because something in them was not captured.
    pub(super) holders: Vec<Vec<u8>>,
    /// The hash of an empty directory's tree.
    empty_tree: ContentHash,
    /// Directories that cannot go because a device in them stays.
    holds_device: HashSet<Vec<u8>>,
    current_left_out: NotCapturedSet<'a>,
    pub(super) unknown: NotCapturedSet<'a>,
}

impl Planner<'_> {
    pub(super) fn skip(&mut self, path: &[u8], reason: impl Into<String>) {
        self.plan.skipped.push(Skipped { path: to_path(path).to_owned(), reason: reason.into() });
    }

    pub(super) fn is_kept(&self, path: &[u8]) -> bool {
        !self.kept.is_empty() && byte_path::ancestors(path).any(|dir| self.kept.contains(dir))
    }

    /// The reason why a path of the target may exist although the current state does not have it.
    /// The capture looked for the target's paths in left-out directories too.
    fn in_the_way(&self, path: &[u8]) -> Option<&NotCapturedReason> {
        let reason = self.current_left_out.reason(path)?;
        let is_itself = || self.current_left_out.has(path);
        let is_excluded = matches!(reason, NotCapturedReason::Excluded { .. });
        (!is_excluded || is_itself()).then_some(reason)
    }

    /// Differences come sorted: a directory before what is in it. There may be millions, so path
    /// and states are handed on and not copied.
    fn difference(&mut self, difference: Difference) {
        if self.is_kept(&difference.path) {
            return;
        }
        let told = difference.told();
        let Difference { path, old, new, .. } = difference;
        if new.is_none() && self.unknown.reason(&path).is_some() {
            // The snapshot does not know whether it was there: it is not the session's work.
            if old.is_some_and(|current| matches!(current.node, Node::Directory { .. }))
                && !self.unknown.knows_absence_below(&path)
            {
                self.kept.insert(path);
            }
            return;
        }
        if let Some(told) = told {
            self.plan.changes.push(&path, told);
        }
        match (old, new) {
            (None, None) => {}
            (Some(current), None) => self.remove(path, current),
            (None, Some(target)) => self.create(path, target),
            (Some(current), Some(target)) => self.change(path, current, target),
        }
    }

    fn remove(&mut self, path: Vec<u8>, current: Arc<EntryState>) {
        let left_out = self.current_left_out.reason(&path);
        match current.node {
            Node::Directory { .. } if left_out.is_some_and(NotCapturedReason::is_problem) => {
                self.keep_unlisted(&path, left_out);
            }
            // One that is left out is known for what is force-included in it.
            Node::Directory { .. }
                if left_out.is_some() || self.current_left_out.is_above(&path) =>
            {
                self.holders.push(path);
            }
            Node::Directory { .. } if self.holds_device.contains(&path) => {
                self.skip(&path, "the directory holds a device, which stays");
            }
            Node::CharDevice(_) | Node::BlockDevice(_) => {
                self.skip(&path, "a device cannot be brought back, so it is not removed");
            }
            _ => self.plan.actions.removals.push(Removal { path, current }),
        }
    }

    fn create(&mut self, path: Vec<u8>, target: Arc<EntryState>) {
        if let Some(reason) = self.in_the_way(&path) {
            let reason = format!("what is there now could not be captured: {reason}");
            self.skip(&path, reason);
            self.kept.insert(path);
            return;
        }
        match target.node {
            Node::Directory { .. } => self.directory(path, target),
            _ => self.put(path, None, target),
        }
    }

    fn change(&mut self, path: Vec<u8>, current: Arc<EntryState>, target: Arc<EntryState>) {
        let both_directories = matches!(
            (&current.node, &target.node),
            (Node::Directory { .. }, Node::Directory { .. })
        );
        if both_directories {
            let left_out = self.current_left_out.reason(&path).filter(|reason| reason.is_problem());
            // A directory in which nothing could be looked at: with other permissions more could be
            // seen, and the next restore would do more.
            let is_empty = current.node == (Node::Directory { tree: self.empty_tree });
            let (now, then) = (&current.attributes, &target.attributes);
            let may_hide = is_empty && *then != Attributes { mtime: then.mtime, ..now.clone() };
            let unseen = || self.current_left_out.problem_in(&path).filter(|_| may_hide);
            if let Some(reason) = left_out.or_else(unseen) {
                return self.keep_unlisted(&path, Some(reason));
            }
            return self.directory_attributes(path, Some(current), target);
        }
        if current.node == target.node {
            let current = Some(current);
            return self.plan.actions.attributes.push(Attribute { path, current, target });
        }
        if let Node::Directory { .. } = current.node {
            let is_left_out = self.current_left_out.reason(&path).is_some();
            let in_the_way = if is_left_out || self.current_left_out.is_above(&path) {
                Some("something that was not captured")
            } else {
                self.holds_device.contains(&path).then_some("a device, which stays")
            };
            if let Some(what) = in_the_way {
                let kind = target.node.kind_name();
                let reason = format!("it is a directory now that holds {what}, and was a {kind}");
                self.skip(&path, reason);
                self.kept.insert(path);
                return;
            }
            if !self.can_make(&path, &target) {
                self.kept.insert(path);
                return;
            }
            self.plan.actions.removals.push(Removal { path: path.clone(), current });
            return self.put(path, None, target);
        }
        match (&current.node, &target.node) {
            (Node::CharDevice(_) | Node::BlockDevice(_), _) => {
                self.skip(&path, "a device cannot be brought back, so it is not removed");
                self.kept.insert(path);
            }
            (_, Node::Directory { .. }) => {
                self.plan.actions.removals.push(Removal { path: path.clone(), current });
                self.directory(path, target);
            }
            _ => self.put(path, Some(current), target),
        }
    }

    pub(super) fn can_make(&mut self, path: &[u8], target: &EntryState) -> bool {
        let what = match target.node {
            Node::Socket => "a socket exists only while its program runs",
            Node::CharDevice(_) | Node::BlockDevice(_) => "devices are recorded, but not made",
            _ => return true,
        };
        self.skip(path, what);
        false
    }

    fn put(&mut self, path: Vec<u8>, current: Option<Arc<EntryState>>, target: Arc<EntryState>) {
        if self.can_make(&path, &target) {
            let put = Put { path, current, target, link_to: None, is_relinked: false };
            self.plan.actions.puts.push(put);
        }
    }

    /// A directory that is made.
    fn directory(&mut self, path: Vec<u8>, target: Arc<EntryState>) {
        self.plan.actions.directories.push(path.clone());
        self.directory_attributes(path, None, target);
    }

    pub(super) fn directory_attributes(
        &mut self,
        path: Vec<u8>,
        current: Option<Arc<EntryState>>,
        target: Arc<EntryState>,
    ) {
        self.plan.actions.directory_attributes.push(Attribute { path, current, target });
    }

    fn finish(self, renewed: Vec<Put>) -> RestorePlan {
        let mut plan = self.plan;
        plan.kept = self.kept;
        let skipped = plan.skipped.iter().map(|skip| skip.path.as_os_str().as_bytes());
        let skipped: HashSet<&[u8]> =
            skipped.chain(self.holders.iter().map(Vec::as_slice)).collect();
        if !skipped.is_empty() {
            plan.changes.retain(|path| !skipped.contains(path));
        }
        let actions = &mut plan.actions;
        actions.removals.reverse();
        actions.sort_directories();
        // A path that gets a new inode needs no attributes set on the old one.
        let has_new_inode: HashSet<&[u8]> = renewed.iter().map(|put| put.path.as_slice()).collect();
        actions.attributes.retain(|attribute| !has_new_inode.contains(attribute.path.as_slice()));
        if !renewed.is_empty() {
            actions.puts.extend(renewed);
            actions.sort_puts();
        }
        plan.bytes_to_write = actions.puts.iter().map(Put::bytes).sum();
        plan
    }
}
