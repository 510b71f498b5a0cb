//! Where a snapshot stores: in the store that it belongs to, many small objects packed.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fs::File;

use parking_lot::{Condvar, Mutex};

use super::format::{MAX_PACKED_BYTES, Span};
use super::writer::{Chunk, PackWriter};
use crate::object::ContentHash;
use crate::store::{
    ImportError, Imported, LocalStore, ObjectSource, ObjectStore, StoreError, StoreLock, Stored,
    Transfer,
};
use crate::sys;

/// How large packs are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// With fewer new small objects than this, each gets a file of its own: packs would become many,
    /// and save little.
    pub(super) few_objects: usize,
    /// A pack is complete when its records have so many bytes, or it has so many objects: what an
    /// interrupted snapshot has to do again, and the memory that the index takes, stay bounded.
    pub(super) pack_bytes: u64,
    pub(super) pack_objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { few_objects: few_objects(), pack_bytes: 128 << 20, pack_objects: 1 << 18 }
    }
}

/// A store on disk in which new small objects come into packs. They are in the store once
/// [`finish`](Self::finish) has returned; what is dropped without it was never there.
#[derive(Debug)]
pub struct Packer<'s> {
    store: &'s LocalStore,
    limits: Limits,
    state: Mutex<State<'s>>,
    written: Condvar,
}

#[derive(Debug)]
struct State<'s> {
    pack: PackWriter<'s>,
    /// Packs before this one.
    completed: u64,
    /// What is in the pack.
    pending: HashMap<ContentHash, Span>,
    /// Handed out and not written yet.
    writing: Vec<Chunk<'s>>,
    /// Written buffers, to be filled again.
    spare: Vec<Vec<u8>>,
    /// A part could not be written: the pack has a hole.
    is_broken: bool,
}

/// What became of an object that was to be added.
enum Added {
    New,
    /// It is in the pack.
    Known,
    /// The pack was completed since the object was looked for.
    LookAgain,
}

impl State<'_> {
    fn is_full(&self, limits: &Limits) -> bool {
        self.pack.bytes() >= limits.pack_bytes || self.pack.len() >= limits.pack_objects
    }
}

impl<'s> Packer<'s> {
    /// Begins to store. The lock is the one that keeps the collector away until what is stored is
    /// named by a manifest.
    pub fn new(store: &'s LocalStore, _lock: &StoreLock) -> Self {
        Self::with_limits(store, Limits::default())
    }

    pub(super) fn with_limits(store: &'s LocalStore, limits: Limits) -> Self {
        let state = State {
            pack: PackWriter::new(store.dir()),
            completed: 0,
            pending: HashMap::new(),
            writing: Vec::new(),
            spare: Vec::new(),
            is_broken: false,
        };
        Self { store, limits, state: Mutex::new(state), written: Condvar::new() }
    }

    /// Makes all objects part of the store. They are not durable before [`LocalStore::sync`].
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub fn finish(self) -> Result<(), StoreError> {
        let State { pack, pending, writing, is_broken, .. } = self.state.into_inner();
        // Whoever wrote has returned, or nobody could call this.
        debug_assert!(writing.is_empty());
        if is_broken {
            return Err(broken(self.store));
        }
        if !pack.has_file() && pending.len() < self.limits.few_objects {
            return pack
                .unwritten()
                .try_for_each(|(hash, bytes)| self.store.write_own(hash, bytes).map(drop));
        }
        if pending.is_empty() { Ok(()) } else { self.store.seal(pack) }
    }

    /// Adds an object to the pack that has the number `pack`, unless it is in there already.
    fn add(&self, hash: &ContentHash, bytes: &[u8], pack: u64) -> Result<Added, StoreError> {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.is_broken {
            return Err(broken(self.store));
        }
        match state.pending.entry(*hash) {
            MapEntry::Occupied(_) => Ok(Added::Known),
            // It may be in the one that was completed.
            MapEntry::Vacant(_) if state.completed != pack => Ok(Added::LookAgain),
            MapEntry::Vacant(vacant) => {
                vacant.insert(state.pack.append(hash, bytes));
                Ok(Added::New)
            }
        }
    }

    /// Writes what has come together, if that is enough.
    fn spill(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if !(state.pack.is_chunk_full() || state.is_full(&self.limits)) || state.is_broken {
            return Ok(());
        }
        let spare = state.spare.pop().unwrap_or_default();
        let chunk = state.pack.take_chunk(spare).inspect_err(|_| state.is_broken = true)?;
        state.writing.push(chunk.clone());
        drop(state);

        let written = chunk.write(self.store.dir());

        let mut state = self.state.lock();
        state.writing.retain(|other| other.offset != chunk.offset);
        state.spare.push(chunk.into_buffer());
        state.is_broken |= written.is_err();
        self.written.notify_all();
        while state.is_full(&self.limits) && !state.writing.is_empty() {
            self.written.wait(&mut state);
        }
        // Somebody else may have completed it meanwhile.
        if state.is_full(&self.limits) && !state.is_broken {
            let next = PackWriter::new(self.store.dir());
            let full = std::mem::replace(&mut state.pack, next);
            state.pending.clear();
            state.completed += 1;
            self.store.seal(full).inspect_err(|_| state.is_broken = true)?;
        }
        written
    }
}

fn broken(store: &LocalStore) -> StoreError {
    let source = std::io::Error::other("an earlier part of it could not be written");
    let path = store.path().to_owned();
    sys::Error { operation: "write a pack in", path, source }.into()
}

/// Tests pack few objects too.
fn few_objects() -> usize {
    #[cfg(feature = "fail-points")]
    if let Some(few) = std::env::var("NONO_PACK_FROM").ok().and_then(|text| text.parse().ok()) {
        return few;
    }
    256
}

impl ObjectSource for Packer<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let state = self.state.lock();
        match state.pending.get(hash) {
            Some(span) => state.pack.read(*span, &state.writing),
            None => {
                drop(state);
                self.store.read(hash, max_bytes)
            }
        }
    }
}

impl ObjectStore for Packer<'_> {
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        let is_pending = self.state.lock().pending.contains_key(hash);
        Ok(is_pending || self.store.contains(hash, size)?)
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        if bytes.len() as u64 > MAX_PACKED_BYTES {
            return self.store.write(bytes);
        }
        let hash = ContentHash::of(bytes);
        let known = Stored { hash, is_new: false };
        loop {
            let pack = self.state.lock().completed;
            if self.contains(&hash, bytes.len() as u64)? {
                return Ok(known);
            }
            match self.add(&hash, bytes, pack)? {
                Added::New => break,
                Added::Known => return Ok(known),
                Added::LookAgain => {}
            }
        }
        self.spill()?;
        Ok(Stored { hash, is_new: true })
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        if size > MAX_PACKED_BYTES {
            return self.store.import(source, size, sparse, transfer);
        }
        let bytes = transfer.read_small(source, size).map_err(ImportError::Source)?;
        let Stored { hash, is_new } = self.write(bytes)?;
        Ok(Imported { hash, size: bytes.len() as u64, is_new })
    }
}
