//! Which objects a session needs.
//!
//! Trees are walked from the Merkle roots down, each once for all snapshots and sessions, without
//! recursion. Contents of files are named and not read.

use std::collections::HashSet;

use super::CleanupError;
use crate::object::{ContentHash, Node};
use crate::progress::Progress;
use crate::snapshot::{LoadedManifest, ManifestError, SessionDir};
use crate::store::{LocalStore, StoreError, read_root_tree, read_tree};

/// Objects that were reached.
#[derive(Default)]
pub(super) struct Marks {
    reached: HashSet<ContentHash>,
    /// Roots and trees among them whose contents are reached too.
    walked: HashSet<ContentHash>,
}

/// What kind of list a hash is expected to name.
#[derive(Clone, Copy)]
enum List {
    Root,
    Tree,
}

impl Marks {
    pub(super) fn contains(&self, hash: &ContentHash) -> bool {
        self.reached.contains(hash)
    }

    /// What was reached here and not there.
    pub(super) fn beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a ContentHash> {
        self.reached.difference(&other.reached)
    }

    /// Adds what somebody else reached.
    pub(super) fn absorb(&mut self, other: Self) {
        self.reached.extend(other.reached);
        self.walked.extend(other.walked);
    }

    /// Marks everything that a remaining session needs.
    pub(super) fn keep(
        &mut self,
        store: &LocalStore,
        session: &SessionDir,
        progress: &dyn Progress,
    ) -> Result<(), CleanupError> {
        let damaged = |source| CleanupError::DamagedSession { session_id: session.id(), source };
        // In this order: what is announced no longer is published by then.
        let pending = session.pending_baseline().map_err(|error| damaged(error.into()))?;
        let manifests = all_manifests(session).map_err(|error| damaged(error.into()))?;
        let published = manifests.into_iter().map(|loaded| loaded.manifest);
        for manifest in published.chain(pending) {
            let refuse = |error: StoreError| Err(damaged(error.into()));
            self.walk(store, manifest.merkle_root, &Self::default(), progress, refuse)?;
        }
        Ok(())
    }

    /// Marks what a session that is removed can still be seen to have needed, without what lies
    /// below the trees that stay.
    pub(super) fn release(
        &mut self,
        store: &LocalStore,
        session: &SessionDir,
        kept: &Self,
        progress: &dyn Progress,
    ) -> Result<(), CleanupError> {
        let numbers = session.snapshot_numbers().unwrap_or_default();
        let manifests = numbers.iter().filter_map(|number| session.manifest(*number).ok());
        let mut roots: Vec<_> = manifests.map(|loaded| loaded.manifest.merkle_root).collect();
        roots.extend(session.metadata().map(|metadata| metadata.merkle_roots).unwrap_or_default());
        for root in roots {
            let go_on = |error: StoreError| {
                tracing::debug!("while releasing session {}: {error}", session.id());
                Ok(())
            };
            self.walk(store, root, kept, progress, go_on)?;
        }
        Ok(())
    }

    fn walk(
        &mut self,
        store: &LocalStore,
        root: ContentHash,
        kept: &Self,
        progress: &dyn Progress,
        on_damage: impl Fn(StoreError) -> Result<(), CleanupError>,
    ) -> Result<(), CleanupError> {
        let mut pending = vec![(root, List::Root)];
        while let Some((hash, list)) = pending.pop() {
            if progress.is_cancelled() {
                return Err(CleanupError::Cancelled);
            }
            self.reached.insert(hash);
            if kept.walked.contains(&hash) || !self.walked.insert(hash) {
                continue;
            }
            let nodes: Vec<Node> = match list {
                List::Root => match read_root_tree(store, &hash) {
                    Ok(root) => {
                        self.reached.extend(root.links);
                        root.entries.into_iter().map(|entry| entry.node).collect()
                    }
                    Err(error) => {
                        on_damage(error)?;
                        continue;
                    }
                },
                List::Tree => match read_tree(store, &hash) {
                    Ok(tree) => tree.into_entries().into_iter().map(|entry| entry.node).collect(),
                    Err(error) => {
                        on_damage(error)?;
                        continue;
                    }
                },
            };
            for node in nodes {
                match node {
                    Node::File { hash, .. } => drop(self.reached.insert(hash)),
                    Node::Directory { tree } => pending.push((tree, List::Tree)),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The manifests of a session, all that there ever were: a gap, or one that was changed, is an
/// error, because the objects behind it could not be told from garbage.
fn all_manifests(session: &SessionDir) -> Result<Vec<LoadedManifest>, ManifestError> {
    match session.chain() {
        // A crash right after the first snapshot of a session that a program made.
        Err(ManifestError::Missing { path }) if path.parent() == Some(session.path()) => {
            match session.snapshot_numbers()?[..] {
                [] => Ok(Vec::new()),
                [0] => Ok(vec![session.manifest(0)?]),
                _ => Err(ManifestError::Missing { path }),
            }
        }
        other => other,
    }
}
