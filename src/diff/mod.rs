//! Comparing two snapshots: costs what changed, because equal trees have equal hashes.
//!
//! [`compare()`] finds every difference of any attribute; a restore works from it. [`changes`] is
//! what a person is told: it leaves out directories whose mtime alone moved, and paths that one of
//! the two snapshots did not capture, since nothing can be said of those.

mod compare;
mod count;
mod lookup;
mod lost;
mod unrecorded;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::manifest::NotCapturedSet;
use crate::object::{Attributes, ContentHash, LinkGroups, Node};
use crate::path_text::{serde_path, to_path};
use crate::store::{ObjectSource, StoreError, read_links, read_root_tree};

pub use compare::{Differences, compare, differences};
pub use count::count_changes;
pub(crate) use lookup::Lookup;
pub use lost::{Lost, LostAs, lost};
pub use unrecorded::unrecorded;
pub(crate) use unrecorded::{can_be_made_again, new_among};

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
        changes.iter().for_each(|change| summary.add(change.change_type));
        summary
    }

    fn add(&mut self, change_type: ChangeType) {
        *match change_type {
            ChangeType::Created => &mut self.created,
            ChangeType::Modified => &mut self.modified,
            ChangeType::Deleted => &mut self.deleted,
            ChangeType::PermissionsChanged => &mut self.permissions_changed,
        } += 1;
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
    /// State in the older snapshot, if it is there. Shared, as whoever works with many differences
    /// hands their states on.
    pub old: Option<Arc<EntryState>>,
    /// State in the newer snapshot, if it is there.
    pub new: Option<Arc<EntryState>>,
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
        let (change_type, size_delta) = self.told()?;
        Some(Change { path: to_path(&self.path).to_owned(), change_type, size_delta })
    }

    /// As [`change`](Self::change); the path is handed on and not copied.
    pub(crate) fn into_change(self) -> Option<Change> {
        let (change_type, size_delta) = self.told()?;
        Some(Change { path: PathBuf::from(OsString::from_vec(self.path)), change_type, size_delta })
    }

    /// Type and size of the change.
    pub(crate) fn told(&self) -> Option<(ChangeType, Option<i64>)> {
        let change_type = self.change_type()?;
        let sizes = (
            self.old.as_deref().and_then(EntryState::size),
            self.new.as_deref().and_then(EntryState::size),
        );
        let size_delta = match (change_type, sizes) {
            (ChangeType::PermissionsChanged, _) | (_, (None, None)) => None,
            (_, (old, new)) => Some(new.unwrap_or(0) - old.unwrap_or(0)),
        };
        Some((change_type, size_delta))
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
