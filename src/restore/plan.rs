//! What a restore will do, as a value: made from two states, changing nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;

use crate::diff::{self, Change, Difference, EntryState};
use crate::object::{ContentHash, LinkGroups, Node};
use crate::path_text::{serde_path, to_path};
use crate::snapshot::{NotCaptured, NotCapturedReason, NotCapturedSet, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};

/// A path that a restore leaves as it is although the snapshot says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// The steps of a restore, in the order in which they are taken.
#[derive(Debug, Clone, Default)]
pub struct RestorePlan {
    /// What is different afterwards, sorted by path; directories before their contents.
    pub changes: Vec<Change>,
    /// What stays as it is, and why.
    pub skipped: Vec<Skipped>,
    /// Bytes of file contents that are written.
    pub bytes_to_write: u64,
    pub(super) actions: Actions,
}

impl RestorePlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
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
    /// Everything else that gets a new inode.
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
}

#[derive(Debug, Clone)]
pub(super) struct Removal {
    pub(super) path: Vec<u8>,
    pub(super) current: EntryState,
}

#[derive(Debug, Clone)]
pub(super) struct Put {
    pub(super) path: Vec<u8>,
    /// What is there now, if it is no directory. A directory there is removed first.
    pub(super) current: Option<EntryState>,
    pub(super) target: EntryState,
    /// Index of the put whose inode this one shares, if it is a further name of it.
    pub(super) link_to: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) path: Vec<u8>,
    /// `None` for a directory that the restore makes.
    pub(super) current: Option<EntryState>,
    pub(super) target: EntryState,
}

/// Plans how the state `current` becomes `target`.
pub(super) fn plan(
    store: &dyn ObjectSource,
    current_root: &ContentHash,
    current_left_out: &[NotCaptured],
    target: &SnapshotManifest,
) -> Result<RestorePlan, StoreError> {
    let differences = diff::compare(store, current_root, &target.merkle_root)?;
    let current_left_out = LeftOutNow::new(current_left_out);
    let unknown = NotCapturedSet::new(target);
    let mut planner = Planner {
        plan: RestorePlan::default(),
        puts: BTreeMap::new(),
        kept: HashSet::new(),
        current_left_out,
        unknown,
    };
    for difference in &differences {
        planner.difference(difference);
    }
    planner.links(store, current_root, &target.merkle_root)?;
    Ok(planner.finish(&differences))
}

/// What the capture of the current state could not see: it is in the way, and stays.
struct LeftOutNow<'a> {
    reasons: BTreeMap<&'a [u8], &'a NotCapturedReason>,
}

impl<'a> LeftOutNow<'a> {
    fn new(left_out: &'a [NotCaptured]) -> Self {
        let reasons = left_out
            .iter()
            .filter(|left| left.reason != NotCapturedReason::Special)
            .map(|left| (left.path.as_os_str().as_bytes(), &left.reason))
            .collect();
        Self { reasons }
    }

    /// The path, or a directory above it, was not captured.
    fn covers(&self, path: &[u8]) -> Option<&'a NotCapturedReason> {
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        ends.map(|(at, _)| &path[..at])
            .chain([path])
            .find_map(|prefix| self.reasons.get(prefix).copied())
    }

    /// Something below the path was not captured.
    fn is_above(&self, path: &[u8]) -> bool {
        let below = super::below(path);
        self.reasons.range(&*below..).next().is_some_and(|(found, _)| found.starts_with(&below))
    }
}

struct Planner<'a> {
    plan: RestorePlan,
    puts: BTreeMap<Vec<u8>, Put>,
    /// Directories that stay with everything in them.
    kept: HashSet<Vec<u8>>,
    current_left_out: LeftOutNow<'a>,
    unknown: NotCapturedSet<'a>,
}

impl Planner<'_> {
    fn skip(&mut self, path: &[u8], reason: impl Into<String>) {
        self.plan.skipped.push(Skipped { path: to_path(path).to_owned(), reason: reason.into() });
    }

    fn is_kept(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        !self.kept.is_empty() && ends.map(|(at, _)| &path[..at]).any(|dir| self.kept.contains(dir))
    }

    /// Differences come sorted: a directory before what is in it.
    fn difference(&mut self, difference: &Difference) {
        let path = &difference.path;
        if self.is_kept(path) {
            return;
        }
        match (&difference.old, &difference.new) {
            (None, None) => {}
            (Some(current), None) => self.remove(path, current),
            (None, Some(target)) => self.create(path, target),
            (Some(current), Some(target)) => self.change(path, current, target),
        }
    }

    fn remove(&mut self, path: &[u8], current: &EntryState) {
        if self.unknown.reason(path).is_some() {
            // The snapshot does not know whether it was there: it is not the session's work.
            if matches!(current.node, Node::Directory { .. }) {
                self.kept.insert(path.to_vec());
            }
            return;
        }
        match current.node {
            Node::Directory { .. } if self.current_left_out.is_above(path) => {
                self.skip(path, "the directory holds something that was not captured");
            }
            Node::CharDevice(_) | Node::BlockDevice(_) => {
                self.skip(path, "a device cannot be brought back, so it is not removed");
            }
            _ => self
                .plan
                .actions
                .removals
                .push(Removal { path: path.to_vec(), current: current.clone() }),
        }
    }

    fn create(&mut self, path: &[u8], target: &EntryState) {
        if let Some(reason) = self.current_left_out.covers(path) {
            self.kept.insert(path.to_vec());
            let reason = format!("what is there now could not be captured: {reason}");
            return self.skip(path, reason);
        }
        match target.node {
            Node::Directory { .. } => {
                self.plan.actions.directories.push(path.to_vec());
                self.directory_attributes(path, None, target);
            }
            _ => self.put(path, None, target),
        }
    }

    fn change(&mut self, path: &[u8], current: &EntryState, target: &EntryState) {
        let both_directories = matches!(
            (&current.node, &target.node),
            (Node::Directory { .. }, Node::Directory { .. })
        );
        if both_directories {
            return self.directory_attributes(path, Some(current), target);
        }
        if current.node == target.node {
            return self.plan.actions.attributes.push(Attribute {
                path: path.to_vec(),
                current: Some(current.clone()),
                target: target.clone(),
            });
        }
        if let Node::Directory { .. } = current.node {
            if self.current_left_out.is_above(path) {
                self.kept.insert(path.to_vec());
                return self.skip(
                    path,
                    format!(
                        "it is a directory now that holds something that was not captured, and \
                         was a {}",
                        target.node.kind_name()
                    ),
                );
            }
            if !self.can_make(path, target) {
                self.kept.insert(path.to_vec());
                return;
            }
            let removal = Removal { path: path.to_vec(), current: current.clone() };
            self.plan.actions.removals.push(removal);
            return self.put(path, None, target);
        }
        match (&current.node, &target.node) {
            (Node::CharDevice(_) | Node::BlockDevice(_), _) => {
                self.kept.insert(path.to_vec());
                self.skip(path, "a device cannot be brought back, so it is not removed");
            }
            (_, Node::Directory { .. }) => {
                let removal = Removal { path: path.to_vec(), current: current.clone() };
                self.plan.actions.removals.push(removal);
                self.plan.actions.directories.push(path.to_vec());
                self.directory_attributes(path, None, target);
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

    fn put(&mut self, path: &[u8], current: Option<&EntryState>, target: &EntryState) {
        if self.can_make(path, target) {
            let (path, current) = (path.to_vec(), current.cloned());
            let put = Put { path: path.clone(), current, target: target.clone(), link_to: None };
            self.puts.insert(path, put);
        }
    }

    fn directory_attributes(
        &mut self,
        path: &[u8],
        current: Option<&EntryState>,
        target: &EntryState,
    ) {
        self.plan.actions.directory_attributes.push(Attribute {
            path: path.to_vec(),
            current: current.cloned(),
            target: target.clone(),
        });
    }

    /// Hard links: a group that is not exactly as it was is made anew, from one inode.
    fn links(
        &mut self,
        store: &dyn ObjectSource,
        current_root: &ContentHash,
        target_root: &ContentHash,
    ) -> Result<(), StoreError> {
        let current = diff::links_of(store, current_root)?;
        let target = diff::links_of(store, target_root)?;
        let mut lookup = Lookup { store, trees: HashMap::new() };
        let current_groups: HashSet<&Vec<Box<[u8]>>> = current.groups().iter().collect();
        let target_groups: HashSet<&Vec<Box<[u8]>>> = target.groups().iter().collect();
        // Names that are linked now and were not, or not so: each gets an inode of its own, and
        // the groups below link again what belongs together.
        for group in current.groups().iter().filter(|group| !target_groups.contains(group)) {
            for path in group {
                self.renew(&mut lookup, current_root, target_root, path)?;
            }
        }
        for group in target.groups() {
            let is_same = current_groups.contains(group);
            if is_same && !group.iter().any(|path| self.puts.contains_key(&**path)) {
                continue;
            }
            for path in group {
                self.renew(&mut lookup, current_root, target_root, path)?;
            }
        }
        Ok(())
    }

    /// Plans a new inode for a path that keeps its contents.
    fn renew(
        &mut self,
        lookup: &mut Lookup<'_>,
        current_root: &ContentHash,
        target_root: &ContentHash,
        path: &[u8],
    ) -> Result<(), StoreError> {
        if self.puts.contains_key(path) || self.is_kept(path) || self.kept.contains(path) {
            return Ok(());
        }
        let current = lookup.find(current_root, path)?;
        let target = lookup.find(target_root, path)?;
        if let (Some(current), Some(target)) = (current, target)
            && current.node.same_kind(&target.node)
            && self.can_make(path, &target)
        {
            self.put(path, Some(&current), &target);
        }
        Ok(())
    }

    fn finish(self, differences: &[Difference]) -> RestorePlan {
        let skipped: HashSet<&[u8]> =
            self.plan.skipped.iter().map(|skip| skip.path.as_os_str().as_bytes()).collect();
        let changes = differences
            .iter()
            .filter(|difference| {
                let path = difference.path.as_slice();
                let is_unknown = difference.new.is_none() && self.unknown.reason(path).is_some();
                !is_unknown && !skipped.contains(path) && !self.is_kept(path)
            })
            .filter_map(Difference::change)
            .collect();
        let mut plan = self.plan;
        plan.changes = changes;
        plan.actions.removals.reverse();
        plan.actions.directory_attributes.reverse();
        // What gets a new inode needs no attributes set on the old one.
        plan.actions.attributes.retain(|attribute| !self.puts.contains_key(&attribute.path));
        plan.actions.puts = self.puts.into_values().collect();
        plan.bytes_to_write = plan.actions.puts.iter().map(Put::bytes).sum();
        plan
    }
}

impl Put {
    fn bytes(&self) -> u64 {
        match self.target.node {
            Node::File { size, .. } => size,
            _ => 0,
        }
    }
}

impl RestorePlan {
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

/// Finds single paths in a snapshot.
struct Lookup<'a> {
    store: &'a dyn ObjectSource,
    trees: HashMap<ContentHash, crate::object::Tree>,
}

impl Lookup<'_> {
    fn find(&mut self, root: &ContentHash, path: &[u8]) -> Result<Option<EntryState>, StoreError> {
        let root = read_root_tree(self.store, root)?;
        let inside = root.entries.iter().find_map(|entry| {
            let rest = path.strip_prefix(&*entry.path)?;
            if rest.is_empty() {
                Some((entry, rest))
            } else {
                Some((entry, rest.strip_prefix(b"/")?))
            }
        });
        let Some((entry, rest)) = inside else { return Ok(None) };
        let mut state =
            EntryState { attributes: entry.attributes.clone(), node: entry.node.clone() };
        for name in rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let Node::Directory { tree } = state.node else { return Ok(None) };
            if !self.trees.contains_key(&tree) {
                self.trees.insert(tree, read_tree(self.store, &tree)?);
            }
            match self.trees[&tree].get(name) {
                Some(found) => {
                    state = EntryState {
                        attributes: found.attributes.clone(),
                        node: found.node.clone(),
                    };
                }
                None => return Ok(None),
            }
        }
        Ok(Some(state))
    }
}
