//! Which objects a session needs.
//!
//! Trees are walked from the Merkle roots of all sessions down, level by level, each once, many at
//! a time on all cores. Contents of files are named and not read; of long ones that are lists of
//! chunks, the lists are.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use rayon::prelude::*;

use super::{CleanupError, Unreadable};
use crate::object::{ContentHash, Midstates, Node};
use crate::progress::Progress;
use crate::snapshot::{LoadedManifest, ManifestError, SessionDir};
use crate::store::{LocalStore, MAX_PACKED_BYTES, StoreError, measure_root_tree, visit_tree};

/// Lists that are read before what they name is noted: bounds the memory that they take.
const BATCH: usize = 1024;

/// Parts of a table that several threads fill: so many that two rarely meet.
const SHARDS: usize = 64;

/// Objects that were reached.
#[derive(Default)]
pub(super) struct Marks {
    reached: Reached,
    /// Roots and trees among them whose contents are reached too.
    walked: HashSet<ContentHash, RandomState>,
}

/// Objects and their lengths in bytes, as far as these are known.
struct Reached {
    shards: Vec<Mutex<HashMap<ContentHash, u64, RandomState>>>,
}

impl Default for Reached {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Reached {
    fn shard(&self, hash: &ContentHash) -> &Mutex<HashMap<ContentHash, u64, RandomState>> {
        // Tables look at the first bytes, so all in one shard would have the same.
        let [.., last] = hash.as_bytes();
        &self.shards[usize::from(*last) % SHARDS]
    }

    fn contains(&self, hash: &ContentHash) -> bool {
        self.shard(hash).lock().contains_key(hash)
    }

    fn insert(&self, hash: ContentHash, bytes: u64) {
        self.shard(&hash).lock().insert(hash, bytes);
    }

    /// Whether it is new.
    fn insert_if_new(&self, hash: ContentHash, bytes: u64) -> bool {
        match self.shard(&hash).lock().entry(hash) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                vacant.insert(bytes);
                true
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (ContentHash, u64)> {
        let pairs = |shard: &Mutex<HashMap<_, _, RandomState>>| {
            shard.lock().iter().map(|(hash, bytes)| (*hash, *bytes)).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(pairs)
    }
}

/// The expected kind of list behind a hash.
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

    /// The objects that were reached here and not there.
    pub(super) fn beyond(&self, other: &Self) -> impl Iterator<Item = ContentHash> {
        self.reached.iter().map(|(hash, _)| hash).filter(|hash| !other.contains(hash))
    }

    /// Bytes of all that was reached, as the lists tell them.
    pub(super) fn bytes(&self) -> u64 {
        self.reached.iter().map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
    }

    /// Adds what another thread reached.
    pub(super) fn absorb(&mut self, other: Self) {
        for (hash, bytes) in other.reached.iter() {
            self.reached.insert(hash, bytes);
        }
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
        let mut doubtful = Vec::new();
        for (index, session) in sessions.iter().enumerate() {
            let damaged = |source: ManifestError| damaged(session, source.into());
            // In this order: an announcement that is gone is published by then.
            let pending = session.pending_baseline().map_err(damaged)?;
            let manifests = all_manifests(session).map_err(damaged)?;
            let removed = Removed::of(session);
            let published = manifests.into_iter().map(|loaded| loaded.manifest);
            for manifest in published.chain(pending) {
                if removed.has(manifest.number) {
                    // A later snapshot may go by the ignore files of this one.
                    roots.extend(manifest.ignore_files.map(|root| (root, index)));
                    if removed.is_doubtful {
                        doubtful.push((manifest.merkle_root, index));
                    }
                } else {
                    roots.extend(manifest.needed_roots().map(|root| (root, index)));
                }
            }
        }
        self.walk(store, roots, &Self::default(), progress, |index, error| {
            Err(damaged(sessions[index], error.into()))
        })?;
        self.walk(store, doubtful, &Self::default(), progress, |index, error| {
            tracing::debug!("session {}: {error}", sessions[index].id());
            Ok(())
        })
    }

    /// Marks what the removed snapshots of a session that stays can still be seen to have needed,
    /// without what lies below the trees that stay.
    pub(super) fn release_removed(
        &mut self,
        store: &LocalStore,
        session: &SessionDir,
        kept: &Self,
        progress: &dyn Progress,
    ) -> Result<(), CleanupError> {
        let numbers = Removed::of(session).numbers;
        let manifests = numbers.iter().filter_map(|number| session.manifest(*number).ok());
        let roots = manifests.map(|loaded| (loaded.manifest.merkle_root, 0)).collect();
        self.walk(store, roots, kept, progress, |_, error| {
            tracing::debug!("removed snapshots of session {}: {error}", session.id());
            Ok(())
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
        let numbers = session.manifest_numbers().unwrap_or_default();
        let manifests = numbers.iter().filter_map(|number| session.manifest(*number).ok());
        let needed =
            manifests.flat_map(|loaded| loaded.manifest.needed_roots().collect::<Vec<_>>());
        let mut roots: Vec<_> = needed.collect();
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
        let workers: Vec<_> =
            (0..rayon::current_num_threads()).map(|_| Mutex::<Worker>::default()).collect();
        let root = |(hash, session)| Step { hash, list: List::Root, session };
        self.note_lists(roots.into_iter().map(root), kept, &mut pending);
        while !pending.is_empty() {
            if progress.is_cancelled() {
                return Err(CleanupError::Cancelled);
            }
            let batch = pending.split_off(pending.len().saturating_sub(BATCH));
            let read = |step: &Step| {
                // Outside of a pool there is one thread.
                let worker = &workers[rayon::current_thread_index().unwrap_or(0)];
                self.read(store, step, &mut worker.lock())
            };
            let lists: Vec<_> = batch.par_iter().map(read).collect();
            progress.advance(batch.len() as u64, 0);
            for (step, below) in batch.iter().zip(lists) {
                let session = step.session;
                match below {
                    Ok(below) => {
                        let step = |hash| Step { hash, list: List::Tree, session };
                        self.note_lists(below.into_iter().map(step), kept, &mut pending);
                    }
                    Err(error) => on_damage(session, error)?,
                }
            }
        }
        Ok(())
    }

    /// Reads a list and marks the files in it. Returns its trees.
    fn read(
        &self,
        store: &LocalStore,
        step: &Step,
        worker: &mut Worker,
    ) -> Result<Vec<ContentHash>, StoreError> {
        worker.files.clear();
        worker.trees.clear();
        let bytes = worker.read_list(store, step)?;
        self.reached.insert(step.hash, bytes);
        self.mark_chunks(store, &step.hash, bytes)?;
        for (hash, bytes) in &worker.files {
            if worker.recent.is_new(hash) && self.reached.insert_if_new(*hash, *bytes) {
                self.mark_chunks(store, hash, *bytes)?;
            }
        }
        Ok(std::mem::take(&mut worker.trees))
    }

    /// Marks what an object of so many bytes is cut into: contents of a file, or a list.
    fn mark_chunks(
        &self,
        store: &LocalStore,
        hash: &ContentHash,
        bytes: u64,
    ) -> Result<(), StoreError> {
        if bytes > MAX_PACKED_BYTES {
            for chunk in store.chunks_of(hash)? {
                // Their bytes are those of the object.
                self.reached.insert_if_new(chunk, 0);
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
            self.reached.insert_if_new(step.hash, 0);
            if !kept.walked.contains(&step.hash) && self.walked.insert(step.hash) {
                pending.push(step);
            }
        }
    }
}

/// The buffers that a thread reuses.
#[derive(Default)]
struct Worker {
    buffer: Vec<u8>,
    /// Contents of files with their lengths, their midstates, and the list of hard links, as the
    /// last list names them.
    files: Vec<(ContentHash, u64)>,
    /// The trees that it names.
    trees: Vec<ContentHash>,
    recent: Recent,
}

impl Worker {
    /// Reads a list of so many bytes.
    fn read_list(&mut self, store: &LocalStore, step: &Step) -> Result<u64, StoreError> {
        let Self { buffer, files, trees, .. } = self;
        let mut add = |node: &Node| match node {
            Node::File { hash, size, midstates } => {
                files.push((*hash, *size));
                files.extend(midstates.name().map(|hash| (hash, Midstates::encoded_bytes(*size))));
            }
            Node::Directory { tree } => trees.push(*tree),
            _ => {}
        };
        match step.list {
            List::Tree => visit_tree(store, &step.hash, buffer, |_, _, node| add(&node)),
            List::Root => {
                let (root, bytes) = measure_root_tree(store, &step.hash)?;
                root.entries.iter().for_each(|entry| add(&entry.node));
                let links = root.links.map(|links| {
                    // One that is missing takes no space.
                    (links, store.open_object(&links).map_or(0, |object| object.size()))
                });
                files.extend(links);
                Ok(bytes)
            }
        }
    }
}

/// Contents that a thread marked lately: lists of the same directory in many snapshots name mostly
/// the same, and to look here costs a tenth of marking it once more.
struct Recent {
    slots: Box<[ContentHash]>,
}

/// As many as there are files in a large directory; 32 bytes each.
const RECENT: usize = 1 << 15;

impl Default for Recent {
    fn default() -> Self {
        Self { slots: vec![ContentHash::from_bytes([0; 32]); RECENT].into() }
    }
}

impl Recent {
    /// Notes an object that is about to be marked. `false`: this thread has marked it before.
    fn is_new(&mut self, hash: &ContentHash) -> bool {
        let [a, b, c, d, ..] = *hash.as_bytes();
        let slot = &mut self.slots[u32::from_le_bytes([a, b, c, d]) as usize % RECENT];
        *slot != *hash && {
            *slot = *hash;
            true
        }
    }
}

/// The snapshots that a session calls removed.
struct Removed {
    numbers: Vec<u64>,
    /// Whether another program edited the session's manifest, so that it proves no removal.
    is_doubtful: bool,
}

impl Removed {
    fn of(session: &SessionDir) -> Self {
        let Ok(metadata) = session.metadata() else {
            return Self { numbers: Vec::new(), is_doubtful: true };
        };
        let numbers = metadata.removed.iter().map(|removed| removed.number).collect();
        Self { numbers, is_doubtful: metadata.altered.is_some() }
    }

    fn has(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }
}

pub(super) fn damaged(session: &SessionDir, source: Unreadable) -> CleanupError {
    CleanupError::DamagedSession { session_id: session.id(), source }
}

/// The manifests of a session, all that there ever were: a gap, or one that was changed, is an
/// error, because the objects behind it could not be told from garbage.
fn all_manifests(session: &SessionDir) -> Result<Vec<LoadedManifest>, ManifestError> {
    match session.chain() {
        // A crash right after the first snapshot of a session that a program made.
        Err(ManifestError::Missing { path }) if path.parent() == Some(session.path()) => {
            match session.manifest_numbers()?[..] {
                [] => Ok(Vec::new()),
                [0] => Ok(vec![session.manifest(0)?]),
                _ => Err(ManifestError::Missing { path }),
            }
        }
        other => other,
    }
}
