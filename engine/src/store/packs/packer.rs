//! Where a snapshot stores: in the store that it belongs to, many small objects packed.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::fast::RandomState;
use parking_lot::{Condvar, Mutex};

use super::format::{Kind, MAX_PACKED_BYTES, Span};
use super::writer::{Chunk, Limits, PackWriter};
use crate::object::ContentHash;
use crate::store::chunks::{self, Chunked};
use crate::store::import::{copy_to_temp, import_cloned};
use crate::store::own::Patience;
use crate::store::{
    ImportError, Imported, LocalStore, ObjectSource, ObjectStore, StoreError, StoreLock, Stored,
    Transfer,
};
use crate::sys;

/// How the contents of long files are stored where blocks cannot be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LongFiles {
    /// In chunks, compressed.
    Packed,
    /// As they are, because a command waits: compression takes longer than all the rest. A later
    /// pass packs them.
    Plain,
}

/// A store on disk in which new small objects come into packs. They are in the store once
/// [`finish`](Self::finish) has returned; a packer dropped without it leaves nothing.
#[derive(Debug)]
pub struct Packer<'s> {
    store: &'s LocalStore,
    lock: &'s StoreLock,
    limits: Limits,
    few_objects: usize,
    long_files: LongFiles,
    patience: Patience,
    _forget: ForgetOwn<'s>,
    /// Bytes that the stored objects take on the disk.
    stored_bytes: AtomicU64,
    state: Mutex<State<'s>>,
    written: Condvar,
}

/// A snapshot's knowledge of objects with their own files counts no longer than the snapshot.
/// Objects that others store meanwhile may come into the store twice, and nothing is removed as
/// long as a process holds the lock.
#[derive(Debug)]
struct ForgetOwn<'s>(&'s LocalStore);

impl Drop for ForgetOwn<'_> {
    fn drop(&mut self) {
        self.0.forget_own();
    }
}

#[derive(Debug)]
struct State<'s> {
    pack: PackWriter<'s>,
    /// Packs before this one.
    completed: u64,
    /// The objects in the pack.
    pending: HashMap<ContentHash, Span, RandomState>,
    /// Handed out and not written yet.
    writing: Vec<Chunk<'s>>,
    /// Written buffers, to be filled again.
    spare: Vec<Vec<u8>>,
    /// A part could not be written: the pack has a hole.
    is_broken: bool,
}

/// The outcome of adding an object.
enum Added {
    New,
    /// It is in the pack.
    Known,
    /// The pack was completed since the object was looked for.
    LookAgain,
}

impl<'s> Packer<'s> {
    /// Begins to store. The lock is the one that keeps the collector away until what is stored is
    /// named by a manifest.
    pub fn new(store: &'s LocalStore, lock: &'s StoreLock) -> Self {
        Self::with_limits(store, lock, Limits::default(), few_objects())
    }

    pub(super) fn with_limits(
        store: &'s LocalStore,
        lock: &'s StoreLock,
        limits: Limits,
        few_objects: usize,
    ) -> Self {
        let state = State {
            pack: store.new_pack(),
            completed: 0,
            pending: HashMap::default(),
            writing: Vec::new(),
            spare: Vec::new(),
            is_broken: false,
        };
        let (patience, _forget) = (Patience::of_storing(), ForgetOwn(store));
        let (state, written) = (Mutex::new(state), Condvar::new());
        let long_files = LongFiles::Packed;
        let stored_bytes = AtomicU64::new(0);
        Self {
            store,
            lock,
            limits,
            few_objects,
            long_files,
            patience,
            _forget,
            stored_bytes,
            state,
            written,
        }
    }

    /// Says how long files are stored; else they are packed.
    #[must_use]
    pub(crate) fn storing_long_files(self, long_files: LongFiles) -> Self {
        Self { long_files, ..self }
    }

    /// Makes all objects part of the store. They are not durable before [`LocalStore::sync`].
    /// Returns the bytes that they take on the disk.
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub fn finish(self) -> Result<u64, StoreError> {
        let mut stored_bytes = self.stored_bytes.into_inner();
        let State { pack, pending, writing, is_broken, .. } = self.state.into_inner();
        // All writers have returned, or this could not be called.
        debug_assert!(writing.is_empty());
        if is_broken {
            return Err(broken(self.store));
        }
        let are_few = !pack.has_file() && pending.len() < self.few_objects;
        if are_few && !pack.has_chunk_list() {
            for (hash, bytes) in pack.unwritten() {
                let is_new = self.store.write_own(hash, bytes)?;
                stored_bytes += if is_new { bytes.len() as u64 } else { 0 };
            }
            return Ok(stored_bytes);
        }
        if !pending.is_empty() {
            stored_bytes += self.store.seal(pack)?;
        }
        // The snapshot does not depend on it.
        if let Err(error) = self.store.merge_small_packs(self.lock) {
            tracing::warn!("small packs stay as they are: {error}");
        }
        Ok(stored_bytes)
    }

    /// Adds an object to the pack that has the number `pack`, unless it is in there already.
    fn add(
        &self,
        hash: &ContentHash,
        kind: Kind,
        bytes: &[u8],
        pack: u64,
    ) -> Result<Added, StoreError> {
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
                vacant.insert(state.pack.append(hash, kind, bytes));
                Ok(Added::New)
            }
        }
    }

    /// Where the store is.
    pub(crate) fn path(&self) -> &Path {
        self.store.path()
    }

    /// Stores bytes of which the hash is known. Whether they are new.
    pub(in crate::store) fn write_hashed(
        &self,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<bool, StoreError> {
        self.write_as(hash, bytes.len() as u64, Kind::Whole, bytes)
    }

    /// Stores the object `hash` of `size` bytes as the list of its chunks, which are stored.
    /// Whether it is new.
    fn write_list(&self, hash: &ContentHash, size: u64, head: &[u8]) -> Result<bool, StoreError> {
        self.write_as(hash, size, Kind::ChunkList, head)
    }

    fn write_as(
        &self,
        hash: &ContentHash,
        size: u64,
        kind: Kind,
        bytes: &[u8],
    ) -> Result<bool, StoreError> {
        loop {
            let pack = self.state.lock().completed;
            if self.contains(hash, size)? {
                return Ok(false);
            }
            match self.add(hash, kind, bytes, pack)? {
                Added::New => break,
                Added::Known => return Ok(false),
                Added::LookAgain => {}
            }
        }
        self.spill()?;
        Ok(true)
    }

    pub(in crate::store) fn import_in_chunks(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        let Chunked { hashed, mut new_bytes, head } =
            chunks::import(self, source, size, sparse, transfer)?;
        if hashed.size <= MAX_PACKED_BYTES {
            // It became short meanwhile.
            return self.import(source, hashed.size, sparse, transfer);
        }
        let is_new = self.write_list(&hashed.hash, hashed.size, &head)?;
        if is_new {
            new_bytes += head.len() as u64;
        } else {
            self.list_double(&hashed.hash, hashed.size, &head)?;
        }
        Ok(Imported { new_bytes, ..hashed.imported(is_new) })
    }

    /// An object that was there may have a file of its own, and has all its chunks now, too. With a
    /// list of them it can do without the file ([`LocalStore::drop_doubles`]).
    fn list_double(&self, hash: &ContentHash, size: u64, head: &[u8]) -> Result<(), StoreError> {
        let is_pending = || self.state.lock().pending.contains_key(hash);
        if is_pending() || self.store.open_own_file(hash, size)?.is_none() {
            return Ok(());
        }
        if self.store.lists_of(hash)?.is_empty() {
            self.add_list(hash, head)?;
        }
        self.store.note_double(*hash, size);
        Ok(())
    }

    /// Adds a list of chunks, whatever else the store has of the object.
    fn add_list(&self, hash: &ContentHash, head: &[u8]) -> Result<(), StoreError> {
        loop {
            let pack = self.state.lock().completed;
            match self.add(hash, Kind::ChunkList, head, pack)? {
                Added::New | Added::Known => break,
                Added::LookAgain => {}
            }
        }
        self.spill()
    }

    /// Stores an object that has a file of its own once more, in chunks. `false`: the file has
    /// other bytes.
    ///
    /// # Errors
    /// When the file cannot be read, or the store not be written; [`StoreError::Cancelled`].
    pub(in crate::store) fn pack_own(
        &self,
        hash: &ContentHash,
        file: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<bool, StoreError> {
        let chunked = chunks::import(self, file, size, sparse, transfer);
        let Chunked { hashed, head, .. } = chunked.map_err(|error| match error {
            ImportError::Store(error) => error,
            ImportError::Source(source) => {
                let path = self.store.path().to_owned();
                sys::Error { operation: "read an object in", path, source }.into()
            }
        })?;
        if !hashed.is(hash, size) {
            return Ok(false);
        }
        self.add_list(hash, &head)?;
        Ok(true)
    }

    fn import_plain(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        let (temp, copied) = copy_to_temp(self.store, source, size, sparse, transfer)?;
        // As a list of chunks, of another project.
        let is_known = ObjectStore::contains(self.store, &copied.hash, copied.size)?;
        let is_new = !is_known && self.store.adopt(&temp, &copied.hash, copied.size)?;
        Ok(copied.imported(is_new))
    }

    /// Writes what has come together, if that is enough.
    fn spill(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if !(state.pack.is_chunk_full() || state.pack.is_full(&self.limits)) || state.is_broken {
            return Ok(());
        }
        let spare = state.spare.pop().unwrap_or_default();
        let chunk = state.pack.take_chunk(spare).inspect_err(|_| state.is_broken = true)?;
        state.writing.push(chunk.clone());
        drop(state);

        let packed = chunk.compress();
        let at = self.state.lock().pack.place(&packed);
        let written = chunk.write(&packed, at, self.store.dir());

        let mut state = self.state.lock();
        state.writing.retain(|other| !other.is(&chunk));
        state.spare.push(chunk.into_buffer());
        state.is_broken |= written.is_err();
        self.written.notify_all();
        while state.pack.is_full(&self.limits) && !state.writing.is_empty() {
            self.written.wait(&mut state);
        }
        // Another thread may have completed it meanwhile.
        if state.pack.is_full(&self.limits) && !state.is_broken {
            let next = self.store.new_pack();
            let full = std::mem::replace(&mut state.pack, next);
            state.pending.clear();
            state.completed += 1;
            let bytes = self.store.seal(full).inspect_err(|_| state.is_broken = true)?;
            self.stored_bytes.fetch_add(bytes, Relaxed);
        }
        written
    }
}

fn broken(store: &LocalStore) -> StoreError {
    let source = std::io::Error::other("an earlier part of it could not be written");
    let path = store.path().to_owned();
    sys::Error { operation: "write a pack in", path, source }.into()
}

/// With fewer new small objects than this, each gets a file of its own: packs would become many,
/// and save little. Tests pack few objects too.
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
        let Some(span) = state.pending.get(hash).filter(|span| span.len() <= max_bytes) else {
            drop(state);
            return self.store.read(hash, max_bytes);
        };
        let mut bytes = state.pack.read(*span, &state.writing)?;
        if span.kind() == Kind::ChunkList {
            drop(state);
            let read = |chunk: &ContentHash| self.read(chunk, MAX_PACKED_BYTES);
            bytes = chunks::assemble(hash, &bytes, max_bytes, self.path(), read)?;
        }
        if ContentHash::of(&bytes) == *hash {
            return Ok(bytes);
        }
        let path = self.store.path().to_owned();
        let reason = "it could not be read back".to_owned();
        Err(StoreError::Corrupt { hash: *hash, path, reason })
    }
}

impl ObjectStore for Packer<'_> {
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        if self.state.lock().pending.contains_key(hash) {
            return Ok(true);
        }
        self.store.note_look(&self.patience);
        self.store.contains(hash, size)
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        let size = bytes.len() as u64;
        if size > chunks::LONGEST_LIST_BYTES {
            let stored = self.store.write(bytes)?;
            self.stored_bytes.fetch_add(if stored.is_new { size } else { 0 }, Relaxed);
            return Ok(stored);
        }
        let hash = ContentHash::of(bytes);
        let is_new = match size {
            ..=MAX_PACKED_BYTES => self.write_hashed(&hash, bytes)?,
            // A list of names, or of midstates: the next one is mostly the same.
            _ if self.contains(&hash, size)? => false,
            _ => self.write_list(&hash, size, &chunks::import_list(self, bytes)?)?,
        };
        Ok(Stored { hash, is_new })
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        if size <= MAX_PACKED_BYTES {
            let bytes = transfer.read_small(source, size).map_err(ImportError::Source)?;
            return Ok(Imported::small(self.write(bytes)?, bytes.len() as u64));
        }
        let imported = match import_cloned(self.store, source, size, transfer)? {
            Some(imported) => imported,
            None if size > chunks::LONGEST_BYTES => {
                self.store.import(source, size, sparse, transfer)?
            }
            None if self.long_files == LongFiles::Plain => {
                self.import_plain(source, size, sparse, transfer)?
            }
            None => return self.import_in_chunks(source, size, sparse, transfer),
        };
        // It has a file of its own.
        self.stored_bytes.fetch_add(imported.new_bytes, Relaxed);
        Ok(imported)
    }
}
