//! What a restore will do, as a value: made from two states, changing nothing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::RestoreError;
use super::packed::PackedPaths;
use super::selection::{Pattern, Selected};
use crate::byte_path;
use crate::diff::{self, Change, ChangeType, Difference, EntryState, Lookup};
use crate::object::{ContentHash, LinkGroups, Node, RootTree, TreeEntry};
use crate::path_text::{serde_path, to_path};
use crate::snapshot::{NotCaptured, NotCapturedReason, NotCapturedSet, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_links, read_root_tree, read_tree};

/// A path that a restore leaves as it is although the snapshot says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// What is different afterwards, sorted by path; directories before their contents. Packed, because it
/// is looked at twice at most, and there may be millions.
pub(super) type PlannedChanges = PackedPaths<(ChangeType, Option<i64>)>;

impl PlannedChanges {
    /// As they are told.
    pub(super) fn told(&self) -> Vec<Change> {
        let change = |(path, &(change_type, size_delta)): (Vec<u8>, &(_, _))| Change {
            path: PathBuf::from(OsString::from_vec(path)),
            change_type,
            size_delta,
        };
        self.iter().map(change).collect()
    }
}

/// The steps of a restore, in the order in which they are taken.
#[derive(Debug, Clone, Default)]
pub(super) struct RestorePlan {
    pub(super) changes: PlannedChanges,
    /// What stays as it is, and why.
    pub(super) skipped: Vec<Skipped>,
    /// Bytes of file contents that are written.
    pub(super) bytes_to_write: u64,
    pub(super) actions: Actions,
}

impl RestorePlan {
    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }
}

/// The plan in the form in which it is carried out.
#[derive(Debug, Clone, Default)]
pub(super) struct Actions {
    /// Entries that go, deepest first; directories are empty when their turn comes.
    pub(super) removals: Vec<Removal>,
    /// Directories that are made, parents first.
    pub(super) directories: Vec<Vec<u8>>,
    /// Everything else that gets a new inode, sorted by path.
    pub(super) puts: Vec<Put>,
    /// Entries that keep their inode and get other attributes.
    pub(super) attributes: Vec<Attribute>,
    /// Attributes of directories, deepest first: set when all else is done.
    pub(super) directory_attributes: Vec<Attribute>,
}

impl Actions {
    fn is_empty(&self) -> bool {
        self.removals.is_empty()
            && self.directories.is_empty()
            && self.puts.is_empty()
            && self.attributes.is_empty()
            && self.directory_attributes.is_empty()
    }

    /// As [`has_put`](Self::has_put) needs them.
    fn sort_puts(&mut self) {
        self.puts.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    }

    fn has_put(&self, path: &[u8]) -> bool {
        self.puts.binary_search_by(|put| put.path.as_slice().cmp(path)).is_ok()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Removal {
    pub(super) path: Vec<u8>,
    pub(super) current: Arc<EntryState>,
}

#[derive(Debug, Clone)]
pub(super) struct Put {
    pub(super) path: Vec<u8>,
    /// What is there now, if it is no directory. A directory there is removed first.
    pub(super) current: Option<Arc<EntryState>>,
    pub(super) target: Arc<EntryState>,
    /// Index of the put whose inode this one shares, if it is a further name of it.
    pub(super) link_to: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) path: Vec<u8>,
    /// `None` for a directory that the restore makes.
    pub(super) current: Option<Arc<EntryState>>,
    pub(super) target: Arc<EntryState>,
}

/// Plans how the state `current` becomes `target`.
pub(super) fn plan(
    store: &dyn ObjectSource,
    current_root: &ContentHash,
    current_left_out: &[NotCaptured],
    target: &SnapshotManifest,
) -> Result<RestorePlan, StoreError> {
    let mut planner = Planner {
        plan: RestorePlan::default(),
        kept: HashSet::new(),
        holds_device: directories_with_devices(store, current_root, &target.merkle_root)?,
        // What the capture of the current state could not see is in the way, and stays.
        current_left_out: NotCapturedSet::of(&target.roots, current_left_out),
        unknown: NotCapturedSet::new(target),
    };
    for difference in diff::differences(store, current_root, &target.merkle_root)? {
        planner.difference(difference?);
    }
    planner.plan.actions.sort_puts();
    let current = read_root_tree(store, current_root)?;
    let target = read_root_tree(store, &target.merkle_root)?;
    let renewed = planner.links(store, &current, &target)?;
    Ok(planner.finish(renewed))
}

/// Directories above a device that is not in the target: it cannot be brought back, so it stays, and
/// they with it. All differences are looked at for that alone, because keeping them takes more than
/// finding them once more.
fn directories_with_devices(
    store: &dyn ObjectSource,
    current_root: &ContentHash,
    target_root: &ContentHash,
) -> Result<HashSet<Vec<u8>>, StoreError> {
    let mut found = HashSet::new();
    for difference in diff::differences(store, current_root, target_root)? {
        let Difference { path, old, .. } = difference?;
        if old.is_some_and(|old| matches!(old.node, Node::CharDevice(_) | Node::BlockDevice(_))) {
            found.extend(byte_path::ancestors(&path).map(<[u8]>::to_vec));
        }
    }
    Ok(found)
}

struct Planner<'a> {
    plan: RestorePlan,
    /// Directories that stay with everything in them.
    kept: HashSet<Vec<u8>>,
    /// Directories that cannot go because a device in them stays.
    holds_device: HashSet<Vec<u8>>,
    current_left_out: NotCapturedSet<'a>,
    unknown: NotCapturedSet<'a>,
}

impl Planner<'_> {
    fn skip(&mut self, path: &[u8], reason: impl Into<String>) {
        self.plan.skipped.push(Skipped { path: to_path(path).to_owned(), reason: reason.into() });
    }

    fn is_kept(&self, path: &[u8]) -> bool {
        !self.kept.is_empty() && byte_path::ancestors(path).any(|dir| self.kept.contains(dir))
    }

    /// Whether it is about a directory that is there and excluded: the target holds it only for what is
    /// force-included below.
    fn is_there_excluded(&self, Difference { path, old, new }: &Difference) -> bool {
        let is_directory = |state: &EntryState| matches!(state.node, Node::Directory { .. });
        old.is_none()
            && new.as_deref().is_some_and(is_directory)
            && matches!(
                self.current_left_out.reason(path),
                Some(NotCapturedReason::Excluded { .. })
            )
    }

    /// Differences come sorted: a directory before what is in it. There may be millions, so path and
    /// states are handed on and not copied.
    fn difference(&mut self, difference: Difference) {
        if self.is_kept(&difference.path) {
            return;
        }
        if self.is_there_excluded(&difference) {
            return;
        }
        let told = difference.told();
        let Difference { path, old, new } = difference;
        if new.is_none() && self.unknown.reason(&path).is_some() {
            // The snapshot does not know whether it was there: it is not the session's work.
            if old.is_some_and(|current| matches!(current.node, Node::Directory { .. })) {
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
        match current.node {
            Node::Directory { .. } if self.current_left_out.is_above(&path) => {
                self.skip(&path, "the directory holds something that was not captured");
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
        let reason = self.current_left_out.reason(&path);
        if let Some(reason) = reason {
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

    fn can_make(&mut self, path: &[u8], target: &EntryState) -> bool {
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
            self.plan.actions.puts.push(Put { path, current, target, link_to: None });
        }
    }

    /// A directory that is made.
    fn directory(&mut self, path: Vec<u8>, target: Arc<EntryState>) {
        self.plan.actions.directories.push(path.clone());
        self.directory_attributes(path, None, target);
    }

    fn directory_attributes(
        &mut self,
        path: Vec<u8>,
        current: Option<Arc<EntryState>>,
        target: Arc<EntryState>,
    ) {
        self.plan.actions.directory_attributes.push(Attribute { path, current, target });
    }

    /// Hard links: a group that is not exactly as it was is made anew, from one inode. Returns what gets
    /// a new inode for that alone.
    fn links(
        &mut self,
        store: &dyn ObjectSource,
        current_root: &RootTree,
        target_root: &RootTree,
    ) -> Result<Vec<Put>, StoreError> {
        let current = read_links(store, current_root.links.as_ref())?;
        let target = read_links(store, target_root.links.as_ref())?;
        let current_groups: HashSet<&Vec<Box<[u8]>>> = current.groups().iter().collect();
        let target_groups: HashSet<&Vec<Box<[u8]>>> = target.groups().iter().collect();
        // Names that are linked now and were not, or not so: each gets an inode of its own, and
        // the groups link again what belongs together.
        let loosened = current.groups().iter().filter(|group| !target_groups.contains(group));
        let linked = target.groups().iter().filter(|group| {
            !current_groups.contains(group)
                || group.iter().any(|path| self.plan.actions.has_put(path))
        });
        let paths: BTreeSet<&[u8]> = loosened.chain(linked).flatten().map(|path| &**path).collect();
        let mut renewed = Vec::new();
        if paths.is_empty() {
            return Ok(renewed);
        }
        let of_directories = self.plan.actions.directory_attributes.iter();
        let mut planned: HashSet<Vec<u8>> =
            of_directories.map(|known| known.path.clone()).collect();
        let mut states = (Lookup::new(store, current_root), Lookup::new(store, target_root));
        for path in paths {
            let Some(put) = self.renew(&mut states, path)? else { continue };
            renewed.push(put);
            // Its directory is written to, and so needs its time back, even if nothing else in there
            // is different.
            let (parent, _) = byte_path::split(path);
            if planned.contains(parent) {
                continue;
            }
            let (current, target) = &mut states;
            if let (Some(now), Some(then)) = (current.find(parent)?, target.find(parent)?) {
                planned.insert(parent.to_vec());
                self.directory_attributes(parent.to_vec(), Some(now.into()), then.into());
            }
        }
        Ok(renewed)
    }

    /// A new inode for a path that keeps its contents.
    fn renew(
        &mut self,
        (current, target): &mut (Lookup<'_>, Lookup<'_>),
        path: &[u8],
    ) -> Result<Option<Put>, StoreError> {
        if self.plan.actions.has_put(path) || self.is_kept(path) || self.kept.contains(path) {
            return Ok(None);
        }
        let (Some(now), Some(then)) = (current.find(path)?, target.find(path)?) else {
            return Ok(None);
        };
        if !now.node.same_kind(&then.node) || !self.can_make(path, &then) {
            return Ok(None);
        }
        let (current, target) = (Some(now.into()), then.into());
        Ok(Some(Put { path: path.to_vec(), current, target, link_to: None }))
    }

    fn finish(self, renewed: Vec<Put>) -> RestorePlan {
        let mut plan = self.plan;
        let skipped = plan.skipped.iter().map(|skip| skip.path.as_os_str().as_bytes());
        let skipped: HashSet<&[u8]> = skipped.collect();
        if !skipped.is_empty() {
            plan.changes.retain(|path| !skipped.contains(path));
        }
        let actions = &mut plan.actions;
        actions.removals.reverse();
        // Stable, so that the order does not depend on how many there are of one depth.
        let attributes = &mut actions.directory_attributes;
        attributes.sort_by_key(|attribute| std::cmp::Reverse(byte_path::depth(&attribute.path)));
        // What gets a new inode needs no attributes set on the old one.
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

impl Put {
    /// Bytes of its contents.
    pub(super) fn bytes(&self) -> u64 {
        self.target.bytes()
    }
}

impl RestorePlan {
    /// The topmost path that changes.
    pub(super) fn first_path(&self) -> Option<&[u8]> {
        let actions = &self.actions;
        let removed = actions.removals.iter().map(|removal| &removal.path);
        let put = actions.puts.iter().map(|put| &put.path);
        let made = actions.directories.iter();
        removed.chain(put).chain(made).map(Vec::as_slice).min_by_key(|path| byte_path::depth(path))
    }

    /// Gives a new inode to each path whose attributes change and whose inode has names outside of
    /// what was captured: those must not change along.
    pub(super) fn detach_foreign_links(
        &mut self,
        groups: &LinkGroups,
        places: &mut super::places::Places<'_>,
    ) -> Result<(), super::RestoreError> {
        let sizes: HashMap<&[u8], usize> = groups
            .groups()
            .iter()
            .flat_map(|group| group.iter().map(|path| (&**path, group.len())))
            .collect();
        let mut kept = Vec::new();
        for attribute in std::mem::take(&mut self.actions.attributes) {
            let place = places.find(&attribute.path)?;
            let known = sizes.get(attribute.path.as_slice()).copied().unwrap_or(1);
            if place.dir.stat(&place.name)?.nlink <= known as u64 {
                kept.push(attribute);
                continue;
            }
            let Attribute { path, current, target } = attribute;
            self.actions.puts.push(Put { path, current, target, link_to: None });
        }
        self.actions.attributes = kept;
        self.actions.sort_puts();
        self.bytes_to_write = self.actions.puts.iter().map(Put::bytes).sum();
        Ok(())
    }

    /// Marks which puts are further names of one inode.
    pub(super) fn link(&mut self, groups: &LinkGroups) {
        let puts = &mut self.actions.puts;
        for group in groups.groups() {
            let mut first: Option<usize> = None;
            for path in group {
                let Ok(index) = puts.binary_search_by(|put| put.path.as_slice().cmp(path)) else {
                    continue;
                };
                match first {
                    None => first = Some(index),
                    // A group whose members differ was changed while it was captured; one inode
                    // cannot have two states.
                    Some(first) if puts[first].target == puts[index].target => {
                        puts[index].link_to = Some(first);
                        self.bytes_to_write -= puts[index].bytes();
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

/// Refuses a selection that names what is in none of the states; of the paths that one name may stand
/// for, one is enough, and of those that a glob matches, too. A slip of the pen must not look like a
/// state that needs no restore.
pub(super) fn check_selection(
    source: &dyn ObjectSource,
    selected: &Selected<'_>,
    roots: &[&ContentHash],
    snapshot: u64,
) -> Result<(), RestoreError> {
    let states = roots.iter().map(|root| read_root_tree(source, root));
    let states = states.collect::<Result<Vec<RootTree>, _>>()?;
    for paths in selected.named() {
        let mut is_found = false;
        for state in &states {
            let mut lookup = Lookup::new(source, state);
            for path in paths {
                is_found = is_found || lookup.find(path)?.is_some();
            }
        }
        if !is_found {
            let path = to_path(paths.first().map_or(b"", Vec::as_slice)).to_owned();
            return Err(RestoreError::NoSuchPath { path, snapshot });
        }
    }
    for glob in selected.globs() {
        let mut is_matched = false;
        for state in &states {
            is_matched = is_matched || has_match(source, state, selected, glob)?;
        }
        if !is_matched {
            return Err(RestoreError::NothingMatches { pattern: glob.given.clone(), snapshot });
        }
    }
    Ok(())
}

fn has_match(
    source: &dyn ObjectSource,
    root: &RootTree,
    selected: &Selected<'_>,
    glob: &Pattern,
) -> Result<bool, StoreError> {
    let of_root = root.entries.iter().map(|entry| (entry.path.to_vec(), entry.node.clone()));
    let mut pending: Vec<(Vec<u8>, Node)> = of_root.collect();
    while let Some((path, node)) = pending.pop() {
        if selected.matches(glob, &path) {
            return Ok(true);
        }
        if let Node::Directory { tree } = node {
            let entries = read_tree(source, &tree)?.into_entries();
            let below = |entry: TreeEntry| (byte_path::join(&path, &entry.name), entry.node);
            pending.extend(entries.into_iter().map(below));
        }
    }
    Ok(false)
}
