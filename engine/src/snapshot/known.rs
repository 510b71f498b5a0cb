//! The contents of earlier snapshots, looked up only where they matter.
//!
//! A `.gitignore` can be edited by the command that is recorded. As in git, a path that is known
//! stays in whatever the ignore files say later, so nothing can be hidden by ignoring it. Trees are
//! read one directory at a time, and only in directories where an ignore rule matches.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::byte_path;
use crate::manifest::{NotCaptured, NotCapturedReason, SnapshotManifest};
use crate::object::{ContentHash, Node, Tree};
use crate::store::{ObjectSource, read_tree};
use crate::walk::{self, Known, Recorded};

/// An earlier snapshot whose paths stay in, whatever a rule says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownState<'a> {
    pub(crate) merkle_root: ContentHash,
    /// Its left-out paths: of a left-out directory, it may hold something all the same.
    pub(crate) not_captured: &'a [NotCaptured],
}

impl<'a> KnownState<'a> {
    pub(crate) fn of(manifest: &'a SnapshotManifest) -> Self {
        Self { merkle_root: manifest.merkle_root, not_captured: &manifest.not_captured }
    }

    /// The left-out paths of a tracked path, relative to that.
    pub(super) fn left_out_of(&self, root: &Path) -> Arc<LeftOutPaths> {
        let root = root.as_os_str().as_bytes();
        let mut paths = LeftOutPaths::default();
        for left in self.not_captured {
            let path = left.path.as_os_str().as_bytes();
            let Some(path) = byte_path::relative_to(path, root) else { continue };
            let NotCapturedReason::Excluded { rule } = &left.reason else {
                paths.all.insert(path.into());
                continue;
            };
            if walk::mark_in(rule).is_some() {
                paths.made.insert(path.into());
            }
            paths.all.insert(path.into());
        }
        Arc::new(paths)
    }
}

/// The left-out paths of a tracked path, relative to that.
#[derive(Default)]
pub(super) struct LeftOutPaths {
    all: HashSet<Box<[u8]>>,
    /// The paths among them that a maker's mark left out.
    made: BTreeSet<Box<[u8]>>,
}

impl LeftOutPaths {
    fn has_made_below(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let from = (Bound::Included(below.as_slice()), Bound::Unbounded);
        let first = self.made.range::<[u8], _>(from).next();
        first.is_some_and(|first| first.starts_with(&below))
    }
}

/// A directory of an earlier snapshot.
pub(super) struct KnownDir {
    source: Source,
    tree: OnceLock<Option<Tree>>,
    left_out: Arc<LeftOutPaths>,
}

enum Source {
    Tree(ContentHash),
    Child { parent: Arc<KnownDir>, name: Box<[u8]> },
}

impl KnownDir {
    /// The directory with this tree, which is a tracked path.
    pub(super) fn of_tree(tree: ContentHash, left_out: Arc<LeftOutPaths>) -> Arc<Self> {
        Arc::new(Self { source: Source::Tree(tree), tree: OnceLock::new(), left_out })
    }

    /// The directory of this name inside another; it may turn out not to exist.
    pub(super) fn child(parent: &Arc<Self>, name: &[u8]) -> Arc<Self> {
        let source = Source::Child { parent: Arc::clone(parent), name: name.into() };
        let left_out = Arc::clone(&parent.left_out);
        Arc::new(Self { source, tree: OnceLock::new(), left_out })
    }

    /// Whether the directory held this name.
    pub(super) fn has(&self, store: &dyn ObjectSource, name: &[u8]) -> bool {
        self.tree(store).is_some_and(|tree| tree.get(name).is_some())
    }

    /// Its knowledge of a name, which is at `path` below the tracked path.
    pub(super) fn holds(&self, store: &dyn ObjectSource, name: &[u8], path: &[u8]) -> Known {
        match self.has(store, name) {
            false => Known::No,
            true if self.left_out.all.contains(path) => Known::Partly,
            true => Known::Whole,
        }
    }

    /// The record that it has of a name, which is at `path` below the tracked path.
    pub(super) fn recorded(&self, store: &dyn ObjectSource, name: &[u8], path: &[u8]) -> Recorded {
        self.as_recorded(self.holds(store, name, path), path)
    }

    /// The record that it is of the directory itself, which is at `path` below the tracked path.
    pub(super) fn recorded_itself(&self, store: &dyn ObjectSource, path: &[u8]) -> Recorded {
        self.as_recorded(self.itself(store, path), path)
    }

    fn as_recorded(&self, known: Known, path: &[u8]) -> Recorded {
        match known {
            Known::No | Known::Partly => Recorded::No,
            Known::Whole if self.left_out.has_made_below(path) => Recorded::InPart,
            Known::Whole => Recorded::Plainly,
        }
    }

    /// Its knowledge of the directory itself, which is at `path` below the tracked path.
    pub(super) fn itself(&self, store: &dyn ObjectSource, path: &[u8]) -> Known {
        match self.tree(store) {
            None => Known::No,
            Some(_) if self.left_out.all.contains(path) => Known::Partly,
            Some(_) => Known::Whole,
        }
    }

    fn tree(&self, store: &dyn ObjectSource) -> Option<&Tree> {
        let load = || {
            let hash = match &self.source {
                Source::Tree(hash) => *hash,
                Source::Child { parent, name } => match parent.tree(store)?.get(name)?.node {
                    Node::Directory { tree } => tree,
                    _ => return None,
                },
            };
            // A damaged tree knows nothing. Its paths are then recorded as ignored, and a restore
            // leaves them alone; `verify` reports the damage.
            read_tree(store, &hash).inspect_err(|error| tracing::warn!("{error}")).ok()
        };
        self.tree.get_or_init(load).as_ref()
    }
}
