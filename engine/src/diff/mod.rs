//! Comparing two snapshots: costs what changed, because equal trees have equal hashes.
//!
//! [`compare()`] finds every difference of any attribute; a restore works from it. [`Comparison`]
//! is what a person is told. A path whose time alone moved is *touched*: it is no [`Change`], and
//! is listed apart. So is git's index where it stages the same. Directories whose time alone moved
//! are not told at all. Paths that one of the two snapshots did not capture are not told either,
//! since nothing can be said of them.

mod compare;
mod count;
mod index;
mod lookup;
mod lost;
mod unrecorded;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::byte_path;
use crate::manifest::NotCapturedSet;
use crate::object::{Attributes, ContentHash, LinkGroups, Node};
use crate::path_text::{serde_path, to_path};
use crate::store::{ObjectSource, StoreError, read_links, read_root_tree};
use crate::walk::DOT_GIT;

pub use compare::{Differences, compare, differences, differences_of};
pub use count::count_changes;
pub(crate) use index::{is_refreshed, staging, staging_at};
pub use lookup::Lookup;
pub(crate) use lost::has_lost_unread;
pub use lost::{Lost, LostAs, lost};
pub use unrecorded::unrecorded;
pub use unrecorded::{can_be_made_again, new_among};

/// How a path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeType {
    /// It is there only in the newer state.
    Created,
    /// Its contents, its kind, its link target or the names it is linked to are different.
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
    /// Whether it is a directory or, if it was deleted, was one.
    pub is_directory: bool,
}

impl Change {
    /// Whether the path is called as a git directory is, or lies in one.
    pub fn is_in_git(&self) -> bool {
        is_in_git(self.path.as_os_str().as_bytes())
    }
}

/// Changes counted by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSummary {
    /// Created paths.
    pub created: u64,
    /// How many of these are directories.
    pub created_directories: u64,
    /// Modified paths.
    pub modified: u64,
    /// Deleted paths.
    pub deleted: u64,
    /// How many of these are directories.
    pub deleted_directories: u64,
    /// Paths with other permissions.
    pub permissions_changed: u64,
    /// Paths whose time alone moved. They are no changes.
    pub touched: u64,
    /// Changes of git directories (what is called `.git`, and all in it), which the other numbers
    /// leave out: a commit is a dozen of them.
    #[serde(default)]
    pub in_git: u64,
}

impl ChangeSummary {
    /// Counts changes.
    pub fn of<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Self {
        let mut summary = Self::default();
        for Change { path, change_type, is_directory, .. } in changes {
            summary.add(path.as_os_str().as_bytes(), *change_type, *is_directory);
        }
        summary
    }

    /// With so many paths whose time alone moved.
    #[must_use]
    pub fn with_touched(self, count: usize) -> Self {
        Self { touched: count as u64, ..self }
    }

    fn add(&mut self, path: &[u8], change_type: ChangeType, is_directory: bool) {
        if is_in_git(path) {
            self.in_git += 1;
            return;
        }
        *match change_type {
            ChangeType::Created => &mut self.created,
            ChangeType::Modified => &mut self.modified,
            ChangeType::Deleted => &mut self.deleted,
            ChangeType::PermissionsChanged => &mut self.permissions_changed,
        } += 1;
        match change_type {
            ChangeType::Created => self.created_directories += u64::from(is_directory),
            ChangeType::Deleted => self.deleted_directories += u64::from(is_directory),
            _ => {}
        }
    }

    /// All changes together. A touched file is no change.
    pub fn total(&self) -> u64 {
        self.created + self.modified + self.deleted + self.permissions_changed + self.in_git
    }
}

/// Whether a path is called as a git directory is, or lies in one.
fn is_in_git(path: &[u8]) -> bool {
    byte_path::components(path).any(|name| name == DOT_GIT)
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
    pub fn bytes(&self) -> u64 {
        match self.node {
            Node::File { size, .. } => size,
            _ => 0,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.node, Node::Directory { .. })
    }

    /// Whether one inode can have both names: the attributes and the contents are the same. A list
    /// of links may say so of others, because a file kept changing or the list is forged.
    pub fn may_be_one_file(&self, other: &Self) -> bool {
        let is_same = match (&self.node, &other.node) {
            (Node::Directory { .. }, _) | (_, Node::Directory { .. }) => false,
            (Node::File { size: a, hash: x, .. }, Node::File { size: b, hash: y, .. }) => {
                (a, x) == (b, y)
            }
            (one, other) => one == other,
        };
        is_same && self.attributes == other.attributes
    }

    pub(crate) fn size(&self) -> Option<i64> {
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
    /// Whether it is linked to other names than before.
    pub is_relinked: bool,
    /// Whether it is git's index, with other bytes, and stages the same as before.
    pub is_refreshed: bool,
}

/// How a difference is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// As a change, with the fields of [`Change`].
    Change { change_type: ChangeType, size_delta: Option<i64>, is_directory: bool },
    /// As a path whose time alone moved.
    Touched,
}

impl Told {
    /// The type of a change.
    pub(crate) fn change_type(self) -> Option<ChangeType> {
        match self {
            Self::Change { change_type, .. } => Some(change_type),
            Self::Touched => None,
        }
    }
}

impl Difference {
    /// The kind of change. `None`: only the time moved, git wrote its index anew and stages the
    /// same, or it is a directory in which only something else changed.
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
        if !is_same_node && !self.is_refreshed {
            return Some(ChangeType::Modified);
        }
        let (old, new) = (&old.attributes, &new.attributes);
        if (old.mode, old.uid, old.gid, &old.xattrs) != (new.mode, new.uid, new.gid, &new.xattrs) {
            return Some(ChangeType::PermissionsChanged);
        }
        self.is_relinked.then_some(ChangeType::Modified)
    }

    /// Whether only the time moved, of something else than a directory, or git wrote its index
    /// anew and stages the same.
    pub fn is_touched(&self) -> bool {
        self.told() == Some(Told::Touched)
    }

    /// The change as it is told, or `None` when there is none.
    pub fn change(&self) -> Option<Change> {
        self.told().and_then(|told| told.change(|| to_path(&self.path).to_owned()))
    }

    /// How it is told, or `None` when there is nothing to tell.
    pub(crate) fn told(&self) -> Option<Told> {
        let is_directory =
            self.new.as_ref().or(self.old.as_ref()).is_some_and(|s| s.is_directory());
        let Some(change_type) = self.change_type() else {
            // The contents of a directory may be different.
            let is_there = self.old.is_some() && self.new.is_some();
            return (is_there && !is_directory).then_some(Told::Touched);
        };
        let sizes = (
            self.old.as_deref().and_then(EntryState::size),
            self.new.as_deref().and_then(EntryState::size),
        );
        let size_delta = match (change_type, sizes) {
            (ChangeType::PermissionsChanged, _) | (_, (None, None)) => None,
            (_, (old, new)) => Some(new.unwrap_or(0) - old.unwrap_or(0)),
        };
        Some(Told::Change { change_type, size_delta, is_directory })
    }
}

impl Told {
    fn change(self, path: impl FnOnce() -> PathBuf) -> Option<Change> {
        let Self::Change { change_type, size_delta, is_directory } = self else { return None };
        Some(Change { path: path(), change_type, size_delta, is_directory })
    }
}

/// The differences in a person's terms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The changes, in the order of [`compare()`].
    pub changes: Vec<Change>,
    /// Paths, in that order, whose time alone moved, and indexes of git that stage the same.
    pub touched: Vec<PathBuf>,
}

impl Comparison {
    /// Takes apart what is different and known on both sides.
    pub fn of(
        differences: &[Difference],
        old: &NotCapturedSet<'_>,
        new: &NotCapturedSet<'_>,
    ) -> Self {
        let mut comparison = Self::default();
        for difference in differences {
            if let Some(told) = told_between(difference, old, new) {
                comparison.push(to_path(&difference.path).to_owned(), told);
            }
        }
        comparison
    }

    pub(crate) fn push(&mut self, path: PathBuf, told: Told) {
        match told {
            Told::Touched => self.touched.push(path),
            told => self.changes.extend(told.change(|| path)),
        }
    }

    /// How much there is of each kind.
    pub fn summary(&self) -> ChangeSummary {
        let touched = self.touched.iter().filter(|path| !is_in_git(path.as_os_str().as_bytes()));
        ChangeSummary::of(&self.changes).with_touched(touched.count())
    }

    /// Whether nothing is told: no path changed or was touched.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.touched.is_empty()
    }
}

/// The changes of a [`Comparison`], for whoever does not ask what was touched.
pub fn changes(
    differences: &[Difference],
    old: &NotCapturedSet<'_>,
    new: &NotCapturedSet<'_>,
) -> Vec<Change> {
    Comparison::of(differences, old, new).changes
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

/// A difference between two snapshots, as it is told. A path that was read and that its
/// permissions keep from being read now has other permissions: more of it is not known.
pub(crate) fn told_between(
    difference: &Difference,
    old: &NotCapturedSet<'_>,
    new: &NotCapturedSet<'_>,
) -> Option<Told> {
    if is_known(difference, old, new) {
        return difference.told();
    }
    let before = difference.old.as_deref()?;
    new.is_denied(&difference.path).then(|| Told::Change {
        change_type: ChangeType::PermissionsChanged,
        size_delta: None,
        is_directory: before.is_directory(),
    })
}

/// The hard-link groups of a snapshot.
///
/// # Errors
/// When its root tree or its list of links is missing or damaged.
pub fn links_of(store: &dyn ObjectSource, root: &ContentHash) -> Result<LinkGroups, StoreError> {
    let root = read_root_tree(store, root)?;
    read_links(store, root.links.as_ref())
}

/// A path relative to the tracked path, for showing. With several, relative to the directory that
/// holds them all, because each may have a path of this name. Else the whole path.
pub fn relative_to_roots<'a>(path: &'a [u8], roots: &[PathBuf]) -> &'a [u8] {
    let base = match roots {
        [] => return path,
        [root] => root.as_os_str().as_bytes(),
        [first, others @ ..] => {
            let first = first.as_os_str().as_bytes();
            let holds = |dir: &&[u8]| {
                others
                    .iter()
                    .all(|root| byte_path::relative_to(root.as_os_str().as_bytes(), dir).is_some())
            };
            byte_path::ancestors(first).rfind(holds).unwrap_or(b"")
        }
    };
    if base.is_empty() {
        return path;
    }
    path.strip_prefix(base).and_then(|path| path.strip_prefix(b"/")).unwrap_or(path)
}
