//! Comparing two snapshots: costs what changed, because equal trees have equal hashes.
//!
//! [`compare`] finds every difference of any attribute; a restore works from it. [`changes`] is
//! what a person is told: it leaves out directories whose mtime alone moved, and paths that one of
//! the two snapshots did not capture, since nothing can be said of those.

mod lookup;

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::byte_path;
use crate::manifest::NotCapturedSet;
use crate::object::{
    Attributes, ContentHash, LinkGroups, Node, RootEntry, RootTree, Tree, TreeEntry,
};
use crate::path_text::{serde_path, to_path};
use crate::store::{ObjectSource, StoreError, read_links, read_root_tree, read_tree};

pub(crate) use lookup::Lookup;

/// How a path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeType {
    /// It is there only in the newer state.
    Created,
    /// Its contents, its kind, its link target, its time or the names it is linked to are different.
    Modified,
    /// It is there only in the older state.
    Deleted,
    /// Only its mode, owner or extended attributes are different.
    PermissionsChanged,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// How it changed.
    pub change_type: ChangeType,
    /// By how many bytes a file's contents grew; `None` where there are none.
    pub size_delta: Option<i64>,
}

/// Changes counted by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSummary {
    /// Created paths.
    pub created: u64,
    /// Modified paths.
    pub modified: u64,
    /// Deleted paths.
    pub deleted: u64,
    /// Paths with other permissions.
    pub permissions_changed: u64,
}

impl ChangeSummary {
    /// Counts changes.
    pub fn of(changes: &[Change]) -> Self {
        let mut summary = Self::default();
        for change in changes {
            *match change.change_type {
                ChangeType::Created => &mut summary.created,
                ChangeType::Modified => &mut summary.modified,
                ChangeType::Deleted => &mut summary.deleted,
                ChangeType::PermissionsChanged => &mut summary.permissions_changed,
            } += 1;
        }
        summary
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.created + self.modified + self.deleted + self.permissions_changed
    }
}

/// State of one path in one snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryState {
    /// Permissions, owner, times, xattrs.
    pub attributes: Attributes,
    /// Kind and contents.
    pub node: Node,
}

impl EntryState {
    /// Bytes of its contents; none for what is not a file.
    pub(crate) fn bytes(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            _ => 0,
        }
    }

    fn size(&self) -> Option<i64> {
        match self.node {
            Node::File { size, .. } => Some(i64::try_from(size).unwrap_or(i64::MAX)),
            _ => None,
        }
    }
}

/// A path whose state is not the same in two snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Absolute path.
    pub path: Vec<u8>,
    /// State in the older snapshot, if it is there.
    pub old: Option<EntryState>,
    /// State in the newer snapshot, if it is there.
    pub new: Option<EntryState>,
}

impl Difference {
    /// The kind of change, or `None` for a directory in which only something else changed.
    pub fn change_type(&self) -> Option<ChangeType> {
        let (old, new) = match (&self.old, &self.new) {
            (None, None) => return None,
            (None, Some(_)) => return Some(ChangeType::Created),
            (Some(_), None) => return Some(ChangeType::Deleted),
            (Some(old), Some(new)) => (old, new),
        };
        let is_same_node = match (&old.node, &new.node) {
            // Its contents have differences of their own.
            (Node::Directory { .. }, Node::Directory { .. }) => true,
            (old, new) => old == new,
        };
        if !is_same_node {
            return Some(ChangeType::Modified);
        }
        let (old, new) = (&old.attributes, &new.attributes);
        if (old.mode, old.uid, old.gid, &old.xattrs) != (new.mode, new.uid, new.gid, &new.xattrs) {
            return Some(ChangeType::PermissionsChanged);
        }
        // Of a directory, only its mtime or its contents changed; of anything else, its mtime or
        // what it is linked to.
        let is_dir = self.new.as_ref().is_some_and(|s| matches!(s.node, Node::Directory { .. }));
        (!is_dir).then_some(ChangeType::Modified)
    }

    /// The change as it is told, or `None` when there is nothing to tell.
    pub fn change(&self) -> Option<Change> {
        let change_type = self.change_type()?;
        let sizes = (
            self.old.as_ref().and_then(EntryState::size),
            self.new.as_ref().and_then(EntryState::size),
        );
        let size_delta = match (change_type, sizes) {
            (ChangeType::PermissionsChanged, _) | (_, (None, None)) => None,
            (_, (old, new)) => Some(new.unwrap_or(0) - old.unwrap_or(0)),
        };
        Some(Change { path: to_path(&self.path).to_owned(), change_type, size_delta })
    }
}

/// Everything that is different between two snapshots, sorted so that a directory stands before
/// what is in it. Reads only trees that differ.
///
/// # Errors
/// When a tree is missing or damaged.
pub fn compare(
    store: &dyn ObjectSource,
    old_root: &ContentHash,
    new_root: &ContentHash,
) -> Result<Vec<Difference>, StoreError> {
    let mut differences = Vec::new();
    if old_root == new_root {
        return Ok(differences);
    }
    let old_root = read_root_tree(store, old_root)?;
    let new_root = read_root_tree(store, new_root)?;
    let (old, new) = (root_entries(&old_root.entries), root_entries(&new_root.entries));
    let mut pending: Vec<(Vec<u8>, Option<ContentHash>, Option<ContentHash>)> = Vec::new();
    compare_entries(b"", &old, &new, &mut differences, &mut pending);
    // Not recursive: a tree may be deeper than a stack.
    while let Some((base, old, new)) = pending.pop() {
        let load = |hash: Option<ContentHash>| match hash {
            Some(hash) => read_tree(store, &hash),
            None => Ok(Tree::default()),
        };
        let (old, new) = (load(old)?, load(new)?);
        compare_entries(&base, old.entries(), new.entries(), &mut differences, &mut pending);
    }
    if old_root.links != new_root.links {
        compare_links(store, &old_root, &new_root, &mut differences)?;
    }
    // `/` sorts before every other byte here, so that a directory comes right before its contents.
    differences.sort_by(|a, b| a.path.split(|b| *b == b'/').cmp(b.path.split(|b| *b == b'/')));
    Ok(differences)
}

/// Tracked paths in the form of tree entries, named by their whole path.
fn root_entries(entries: &[RootEntry]) -> Vec<TreeEntry> {
    let entry = |RootEntry { path, attributes, node }| TreeEntry { name: path, attributes, node };
    entries.iter().cloned().map(entry).collect()
}

/// Adds paths that are linked to others than before, though nothing else of them changed.
fn compare_links(
    source: &dyn ObjectSource,
    old_root: &RootTree,
    new_root: &RootTree,
    differences: &mut Vec<Difference>,
) -> Result<(), StoreError> {
    let old_links = read_links(source, old_root.links.as_ref())?;
    let new_links = read_links(source, new_root.links.as_ref())?;
    let old_groups: HashSet<_> = old_links.groups().iter().collect();
    let new_groups: HashSet<_> = new_links.groups().iter().collect();
    // A path is in one group at most, so a group that is not in the other set is news to each of
    // its paths.
    let paths: BTreeSet<&[u8]> = old_groups
        .symmetric_difference(&new_groups)
        .flat_map(|group| group.iter().map(|path| &**path))
        .collect();
    let known: HashSet<Vec<u8>> = differences.iter().map(|found| found.path.clone()).collect();
    let mut old = Lookup::new(source, old_root);
    let mut new = Lookup::new(source, new_root);
    for path in paths.into_iter().filter(|path| !known.contains(*path)) {
        if let (Some(old), Some(new)) = (old.find(path)?, new.find(path)?) {
            differences.push(Difference { path: path.to_vec(), old: Some(old), new: Some(new) });
        }
    }
    Ok(())
}

fn compare_entries(
    base: &[u8],
    old: &[TreeEntry],
    new: &[TreeEntry],
    differences: &mut Vec<Difference>,
    pending: &mut Vec<(Vec<u8>, Option<ContentHash>, Option<ContentHash>)>,
) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(&new.name),
        };
        let before = if order.is_le() { old.next() } else { None };
        let after = if order.is_ge() { new.next() } else { None };
        if before == after {
            continue;
        }
        let name = before.or(after).map_or(&b""[..], |entry| &entry.name);
        let path = byte_path::join(base, name);
        let tree = |entry: Option<&TreeEntry>| match entry?.node {
            Node::Directory { tree } => Some(tree),
            _ => None,
        };
        if tree(before) != tree(after) {
            pending.push((path.clone(), tree(before), tree(after)));
        }
        let state = |entry: Option<&TreeEntry>| {
            entry.map(|entry| EntryState {
                attributes: entry.attributes.clone(),
                node: entry.node.clone(),
            })
        };
        differences.push(Difference { path, old: state(before), new: state(after) });
    }
}

/// What a person is told about differences.
pub fn changes(
    differences: &[Difference],
    old: &NotCapturedSet<'_>,
    new: &NotCapturedSet<'_>,
) -> Vec<Change> {
    differences
        .iter()
        .filter(|difference| is_known(difference, old, new))
        .filter_map(Difference::change)
        .collect()
}

/// Whether both snapshots know the path: one that was not captured in either is no change.
pub fn is_known(
    difference: &Difference,
    old: &NotCapturedSet<'_>,
    new: &NotCapturedSet<'_>,
) -> bool {
    match (&difference.old, &difference.new) {
        (None, _) => old.knows(&difference.path),
        (_, None) => new.knows(&difference.path),
        _ => true,
    }
}

/// The hard-link groups of a snapshot.
///
/// # Errors
/// When its root tree or its list of links is missing or damaged.
pub fn links_of(store: &dyn ObjectSource, root: &ContentHash) -> Result<LinkGroups, StoreError> {
    let root = read_root_tree(store, root)?;
    read_links(store, root.links.as_ref())
}

/// A path relative to the tracked path that it lies in, for showing; else the whole path.
pub fn relative_to_roots<'a>(path: &'a [u8], roots: &[PathBuf]) -> &'a [u8] {
    let inside = roots
        .iter()
        .find_map(|root| path.strip_prefix(root.as_os_str().as_bytes())?.strip_prefix(b"/"));
    inside.unwrap_or(path)
}
