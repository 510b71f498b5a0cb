//! Which objects a session needs.
//!
//! Trees are walked from the Merkle roots of all sessions down, level by level, each once, many at a
//! time on all cores. Contents of files are named and not read.

use std::collections::HashSet;

use rayon::prelude::*;

use super::{CleanupError, Unreadable};
use crate::object::{ContentHash, Node};
use crate::progress::Progress;
use crate::snapshot::{LoadedManifest, ManifestError, SessionDir};
use crate::store::{LocalStore, StoreError, read_root_tree, read_tree};

/// Lists that are read before what they name is noted: bounds the memory that they take.
const BATCH: usize = 1024;

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

/// A list that is to be read, for the session of this index.
#[derive(Clone, Copy)]
struct Step {
    hash: ContentHash,
    list: List,
    session: usize,
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

    /// Marks everything that remaining sessions need.
    pub(super) fn keep(
        &mut self,
        store: &LocalStore,
        sessions: &[&SessionDir],
        progress: &dyn Progress,
    ) -> Result<(), CleanupError> {
        let mut roots = Vec::new();
        for (index, session) in sessions.iter().enumerate() {
            let damaged = |source: ManifestError| damaged(session, source.into());
            // In this order: what is announced no longer is published by then.
            let pending = session.pending_baseline().map_err(damaged)?;
            let manifests = all_manifests(session).map_err(damaged)?;
            let published = manifests.into_iter().map(|loaded| loaded.manifest);
            let needed = published.chain(pending).map(|manifest| manifest.merkle_root);
            roots.extend(needed.map(|root| (root, index)));
        }
        self.walk(store, roots, &Self::default(), progress, |index, error| {
            Err(damaged(sessions[index], error.into()))
        })
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
        let roots = roots.into_iter().map(|root| (root, 0)).collect();
        self.walk(store, roots, kept, progress, |_, error| {
            tracing::debug!("while releasing session {}: {error}", session.id());
            Ok(())
        })
    }

    /// `on_damage` is told of a list that cannot be read, and of the session that needs it.
    fn walk(
        &mut self,
        store: &LocalStore,
        roots: Vec<(ContentHash, usize)>,
        kept: &Self,
        progress: &dyn Progress,
        on_damage: impl Fn(usize, StoreError) -> Result<(), CleanupError>,
    ) -> Result<(), CleanupError> {
        let mut pending = Vec::new();
        let root = |(hash, session)| Step { hash, list: List::Root, session };
        self.note_lists(roots.into_iter().map(root), kept, &mut pending);
        while !pending.is_empty() {
            if progress.is_cancelled() {
                return Err(CleanupError::Cancelled);
            }
            let batch = pending.split_off(pending.len().saturating_sub(BATCH));
            let lists: Vec<_> = batch.par_iter().map(|step| read_list(store, step)).collect();
            progress.advance(batch.len() as u64, 0);
            for (step, nodes) in batch.iter().zip(lists) {
                let Named { files, trees } = match nodes {
                    Ok(named) => named,
                    Err(error) => {
                        on_damage(step.session, error)?;
                        continue;
                    }
                };
                self.reached.extend(files);
                let session = step.session;
                let below = trees.into_iter().map(|hash| Step { hash, list: List::Tree, session });
                self.note_lists(below, kept, &mut pending);
            }
        }
        Ok(())
    }

    /// Marks lists, and notes those that are to be read.
    fn note_lists(
        &mut self,
        steps: impl Iterator<Item = Step>,
        kept: &Self,
        pending: &mut Vec<Step>,
    ) {
        for step in steps {
            self.reached.insert(step.hash);
            if !kept.walked.contains(&step.hash) && self.walked.insert(step.hash) {
                pending.push(step);
            }
        }
    }
}

/// What a list names.
#[derive(Default)]
struct Named {
    /// Contents of files, and the list of hard links.
    files: Vec<ContentHash>,
    trees: Vec<ContentHash>,
}

fn read_list(store: &LocalStore, step: &Step) -> Result<Named, StoreError> {
    let mut named = Named::default();
    let mut add = |node: &Node| match node {
        Node::File { hash, .. } => named.files.push(*hash),
        Node::Directory { tree } => named.trees.push(*tree),
        _ => {}
    };
    match step.list {
        List::Root => {
            let root = read_root_tree(store, &step.hash)?;
            root.entries.iter().for_each(|entry| add(&entry.node));
            named.files.extend(root.links);
        }
        List::Tree => {
            read_tree(store, &step.hash)?.entries().iter().for_each(|entry| add(&entry.node));
        }
    }
    Ok(named)
}

fn damaged(session: &SessionDir, source: Unreadable) -> CleanupError {
    CleanupError::DamagedSession { session_id: session.id(), source }
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
