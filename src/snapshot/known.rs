//! What earlier snapshots hold, looked up only where it matters.
//!
//! A `.gitignore` can be edited by the command that is recorded. As in git, a path that is known
//! stays in whatever the ignore files say later, so nothing can be hidden by ignoring it. Trees are
//! read one directory at a time, and only in directories where an ignore rule matches.

use std::sync::{Arc, OnceLock};

use crate::object::{ContentHash, Node, Tree};
use crate::store::{ObjectSource, read_tree};

/// A directory of an earlier snapshot.
pub(super) struct KnownDir {
    source: Source,
    tree: OnceLock<Option<Tree>>,
}

enum Source {
    Tree(ContentHash),
    Child { parent: Arc<KnownDir>, name: Box<[u8]> },
}

impl KnownDir {
    /// The directory with this tree.
    pub(super) fn of_tree(tree: ContentHash) -> Arc<Self> {
        Arc::new(Self { source: Source::Tree(tree), tree: OnceLock::new() })
    }

    /// The directory of this name inside another; it may turn out not to exist.
    pub(super) fn child(parent: &Arc<Self>, name: &[u8]) -> Arc<Self> {
        let source = Source::Child { parent: Arc::clone(parent), name: name.into() };
        Arc::new(Self { source, tree: OnceLock::new() })
    }

    /// Whether the directory held this name.
    pub(super) fn has(&self, store: &dyn ObjectSource, name: &[u8]) -> bool {
        self.tree(store).is_some_and(|tree| tree.get(name).is_some())
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
            // A damaged tree knows nothing. What it held is then recorded as ignored, and a restore
            // leaves it alone; `verify` reports the damage.
            read_tree(store, &hash).inspect_err(|error| tracing::warn!("{error}")).ok()
        };
        self.tree.get_or_init(load).as_ref()
    }
}
