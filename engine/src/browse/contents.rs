//! Bytes of files, checked before they are handed out.
//!
//! A small file is read once into memory, and what was hashed is what is served. A long one is
//! verified [piece by piece](super::pieces). A large one without midstates, because it is not that
//! long or they are damaged, is hashed as a whole when it is opened and then read in place. That it
//! was verified is remembered together with its `stat`, which also has to be the same after every
//! later read: an object is never written again, so any other time or size means that a program
//! tampered with it. A long file that is made of chunks has no `stat` of its own, so its pieces are
//! verified whenever they come into memory, and served from there alone.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;

use lru::LruCache;
use nono_mount::Content;
use parking_lot::Mutex;

use super::error::{from_store, from_sys};
use super::key::{ContentKey, ObjectKey};
use super::pieces::Pieces;
use crate::object::{ContentHash, Midstates, PieceHasher};
use crate::store::{LocalStore, ObjectFile, ObjectSource, StoreError, Transfer};
use crate::sys::{self, Stat};

/// Files up to this size are served from memory.
const SMALL_BYTES: u64 = 128 * 1024;
/// Large files that are remembered as verified.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
/// Objects of up to so many bytes stay in the page cache after they were served, for the next
/// mount. Of longer ones what was served is dropped: the kernel keeps the pages of the mounted
/// file, and a second copy of them would push others out.
const MAX_KEPT_BYTES: u64 = 64 << 20;
/// Dropped at a time, in bytes.
const DROP_BYTES: u64 = 8 << 20;

/// Objects from this size on are read by one thread and hashed by another.
const OVERLAP_BYTES: u64 = 16 << 20;
/// Handed from one to the other: each time wakes a processor, which in a virtual machine can take
/// 0.1 ms.
const CHUNK_BYTES: usize = 4 << 20;

/// The large objects that were verified, with their `stat` at that time.
pub(super) struct Verified {
    objects: Mutex<LruCache<ObjectKey, Stat>>,
    pieces: Pieces,
}

impl Verified {
    pub(super) fn new() -> Self {
        Self { objects: Mutex::new(LruCache::new(REMEMBERED)), pieces: Pieces::new() }
    }

    /// Reads all bytes of an object of `size` bytes, in the place of what is in the buffer, and
    /// verifies them. One of several pieces is not verified again if that was done before.
    pub(super) fn read_whole(
        &self,
        store: &Arc<LocalStore>,
        content: &ContentKey,
        size: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        if size <= Midstates::PIECE_BYTES {
            return read_small(store, content, size, buffer);
        }
        let file = self.open(store, content, size)?;
        buffer.resize(usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
        let len = file.read_at(buffer, 0)?;
        buffer.truncate(len);
        Ok(())
    }

    /// Opens an object of `size` bytes and verifies it unless that was done before. Where the copy
    /// that is found first is damaged, another one is served.
    pub(super) fn open(
        &self,
        store: &Arc<LocalStore>,
        content: &ContentKey,
        size: u64,
    ) -> io::Result<Arc<dyn Content>> {
        if size <= SMALL_BYTES {
            return in_memory(store, content, size);
        }
        let hash = &content.object().hash;
        let first = store.open_object(hash).map_err(from_store);
        let damage = match first.and_then(|object| self.open_copy(store, object, content, size)) {
            Err(error) => error,
            opened => return opened,
        };
        let intact = store.open_intact(hash, size, &mut Transfer::unwatched(&mut Vec::new()));
        let Ok(intact) = intact else { return Err(damage) };
        self.open_copy(store, intact, content, size)
    }

    fn open_copy(
        &self,
        store: &Arc<LocalStore>,
        object: ObjectFile,
        content: &ContentKey,
        size: u64,
    ) -> io::Result<Arc<dyn Content>> {
        let key = content.object();
        if object.is_chunked() {
            return self.open_chunked(store, object, content, size);
        }
        let Some(file) = object.file() else {
            return in_memory(store, content, size);
        };
        let stat = sys::stat_open_file(file, object.path()).map_err(from_sys)?;
        if stat.size != size {
            return Err(wrong_size(store, key, stat.size, size));
        }
        let known = self.objects.lock().get(key).is_some_and(|known| known.same_state(&stat));
        if !known {
            sys::will_read_in_order(file);
        }
        let midstates = content.midstates().filter(|_| !known);
        let midstates = midstates.and_then(|name| midstates_of(store, name, size));
        let is_hashed_as_a_whole = !known && midstates.is_none();
        if is_hashed_as_a_whole {
            // No lock is held: this takes seconds for gigabytes.
            if object.is_sparse() || size < OVERLAP_BYTES {
                thread_local! {
                    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
                }
                let verified = BUFFER
                    .with_borrow_mut(|buffer| object.verify(&mut Transfer::unwatched(buffer)));
                verified.map_err(from_store)?;
            } else {
                verify_overlapped(&object, file, key)?;
            }
        }
        let path = object.path().to_owned();
        let file = object.into_file().ok_or(io::ErrorKind::NotFound)?;
        let opened = OpenObject::new(store, Place::Own(file, stat), path, *key, size);
        if is_hashed_as_a_whole {
            opened.unchanged()?;
            self.objects.lock().put(*key, stat);
        }
        Ok(match midstates {
            Some(midstates) => self.pieces.serve(opened, midstates),
            None => Arc::new(InPlace(opened)),
        })
    }

    /// Serves a long file that is made of chunks, piece by piece.
    fn open_chunked(
        &self,
        store: &Arc<LocalStore>,
        object: ObjectFile,
        content: &ContentKey,
        size: u64,
    ) -> io::Result<Arc<dyn Content>> {
        let key = *content.object();
        if object.size() != size {
            return Err(wrong_size(store, &key, object.size(), size));
        }
        if size <= Midstates::PIECE_BYTES {
            return in_memory(store, content, size);
        }
        if !Midstates::are_kept_of(size) {
            // Nothing stores contents of this length in chunks.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let named = content.midstates().and_then(|name| midstates_of(store, name, size));
        let midstates = match named {
            Some(midstates) => midstates,
            None => {
                let found = object.verify_with_midstates(&mut Transfer::unwatched(&mut Vec::new()));
                found.map_err(from_store)?.ok_or_else(|| unlike_its_name(&key, object.path()))?
            }
        };
        let path = object.path().to_owned();
        let opened = OpenObject::new(store, Place::Chunked(object), path, key, size);
        Ok(self.pieces.serve(opened, midstates))
    }
}

/// Reads and verifies a small file, to be served from memory.
fn in_memory(store: &LocalStore, content: &ContentKey, size: u64) -> io::Result<Arc<dyn Content>> {
    let mut bytes = Vec::new();
    read_small(store, content, size, &mut bytes)?;
    Ok(Arc::new(InMemory(bytes.into())))
}

/// Midstates that can be used. Without them a file is verified as a whole.
fn midstates_of(store: &LocalStore, name: &ContentHash, size: u64) -> Option<Midstates> {
    let read = store.read(name, Midstates::encoded_bytes(size)).map_err(|error| error.to_string());
    let decoded = read.and_then(|bytes| {
        Midstates::decode(&bytes, size).map_err(|error| format!("object {name}: {error}"))
    });
    decoded.inspect_err(|error| tracing::warn!("verifying a long file as a whole: {error}")).ok()
}

/// Reads and verifies all bytes of a small file, in the place of what is in the buffer.
fn read_small(
    store: &LocalStore,
    content: &ContentKey,
    size: u64,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    let key = content.object();
    store.read_into(&key.hash, size, buffer).map_err(from_store)?;
    match buffer.len() as u64 {
        found if found == size => Ok(()),
        found => Err(wrong_size(store, key, found, size)),
    }
}

/// Verifies an object while it is being read: a reader waits for its first byte. Measured on 1 GiB
/// in the page cache: 0.79 s, against 0.94 s for one after the other.
fn verify_overlapped(object: &ObjectFile, file: &File, key: &ObjectKey) -> io::Result<()> {
    let (filled, to_hash) = mpsc::sync_channel::<(Vec<u8>, usize)>(2);
    let (emptied, to_fill) = mpsc::channel();
    for _ in 0..3 {
        // The receiver is alive: it is used below.
        let _ = emptied.send(vec![0; CHUNK_BYTES]);
    }
    let mut hasher = PieceHasher::new(object.size());
    thread::scope(|scope| {
        let reader = sys::spawn_scoped(scope, "nono-reader", move || {
            let mut offset = 0;
            while let Ok(mut buffer) = to_fill.recv() {
                let len = sys::read_full_at(file, &mut buffer, offset)?;
                offset += len as u64;
                if len == 0 || filled.send((buffer, len)).is_err() {
                    break;
                }
            }
            Ok(offset)
        })?;
        for (buffer, len) in to_hash {
            hasher.update(&buffer[..len]);
            // The reader is at the end of the file when it takes no more.
            let _ = emptied.send(buffer);
        }
        reader.join().unwrap_or_else(|_| Err(io::Error::other("the reader of an object panicked")))
    })
    .and_then(|len| match hasher.finish().0 == key.hash && len == object.size() {
        true => Ok(()),
        false => Err(unlike_its_name(key, object.path())),
    })
}

/// The error of an object with other bytes.
fn unlike_its_name(key: &ObjectKey, path: &Path) -> io::Error {
    corrupt(StoreError::Corrupt {
        hash: key.hash,
        path: path.to_owned(),
        reason: "its bytes do not have the hash that names it".to_owned(),
    })
}

fn wrong_size(store: &LocalStore, key: &ObjectKey, found: u64, size: u64) -> io::Error {
    corrupt(StoreError::Corrupt {
        hash: key.hash,
        path: store.object_path(&key.hash),
        reason: format!("it has {found} bytes and not {size}, as its entry says"),
    })
}

fn corrupt(error: StoreError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// An object that was opened to be read in place, and how it was then. What was served of a long
/// one is dropped from the page cache, the rest when it is closed.
pub(super) struct OpenObject {
    place: Place,
    path: PathBuf,
    pub(super) key: ObjectKey,
    /// In bytes.
    pub(super) size: u64,
    store: Arc<LocalStore>,
    /// An intact copy, if that was looked for and there is one.
    other: OnceLock<Option<ObjectFile>>,
}

enum Place {
    /// A file, as it was when it was opened.
    Own(File, Stat),
    Chunked(ObjectFile),
}

impl OpenObject {
    fn new(
        store: &Arc<LocalStore>,
        place: Place,
        path: PathBuf,
        key: ObjectKey,
        size: u64,
    ) -> Self {
        Self { place, path, key, size, store: Arc::clone(store), other: OnceLock::new() }
    }

    /// As [`read_unverified`](Self::read_unverified), from another copy, which was intact. `None`:
    /// there is none.
    pub(super) fn read_other(&self, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
        let other = self.other.get_or_init(|| {
            let mut buffer = Vec::new();
            let mut transfer = Transfer::unwatched(&mut buffer);
            self.store.open_intact(&self.key.hash, self.size, &mut transfer).ok()
        });
        other.as_ref().map(|other| other.read_at(buffer, offset))
    }

    /// Reads bytes that were verified before.
    ///
    /// # Errors
    /// When it is not as it was when it was opened.
    pub(super) fn read_in_place(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = self.read_unverified(buffer, offset)?;
        self.unchanged()?;
        Ok(len)
    }

    /// Reads bytes that are to be verified.
    pub(super) fn read_unverified(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.place {
            Place::Own(file, _) => sys::read_full_at(file, buffer, offset),
            Place::Chunked(object) => object.read_at(buffer, offset),
        }
    }

    /// Whether bytes that were verified once can be [read in place](Self::read_in_place) later.
    pub(super) fn stays_verified(&self) -> bool {
        matches!(self.place, Place::Own(..))
    }

    fn unchanged(&self) -> io::Result<()> {
        let Place::Own(file, known) = &self.place else { return Err(self.unlike_its_name()) };
        let stat = sys::stat_open_file(file, &self.path).map_err(from_sys)?;
        // A changed number of names moves ctime too, and an object that the collector removed while
        // it is open still has its bytes; only then the times say nothing, and it cannot be written
        // by name.
        if stat.same_state(known) || (stat.nlink == 0 && stat.mtime == known.mtime) {
            return Ok(());
        }
        Err(corrupt(StoreError::Corrupt {
            hash: self.key.hash,
            path: self.path.clone(),
            reason: "it was changed after it was verified".to_owned(),
        }))
    }

    /// The error of an object with other bytes.
    pub(super) fn unlike_its_name(&self) -> io::Error {
        unlike_its_name(&self.key, &self.path)
    }

    /// Lets the page cache go of what lies behind these bytes, which were read.
    pub(super) fn drop_behind(&self, read: Range<u64>) {
        if let Place::Own(file, _) = &self.place
            && let Some(behind) = behind(self.size, read)
        {
            sys::drop_cached_pages(file, behind, DROP_BYTES);
        }
    }
}

/// Where the [`DROP_BYTES`] begin that are dropped when these bytes of an object are read: one such
/// piece behind, because reads of a sequential reader come a little out of order.
fn behind(object_bytes: u64, read: Range<u64>) -> Option<u64> {
    let piece = read.end / DROP_BYTES;
    let is_due = object_bytes > MAX_KEPT_BYTES && piece > read.start / DROP_BYTES;
    piece.checked_sub(2).filter(|_| is_due).map(|behind| behind * DROP_BYTES)
}

impl Drop for OpenObject {
    fn drop(&mut self) {
        if let Place::Own(file, _) = &self.place
            && self.size > MAX_KEPT_BYTES
        {
            sys::drop_cached_pages(file, 0, self.size);
        }
    }
}

/// Contents in memory.
pub(super) struct InMemory(pub(super) Box<[u8]>);

impl Content for InMemory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.0.len());
        let len = buffer.len().min(self.0.len() - start);
        buffer[..len].copy_from_slice(&self.0[start..start + len]);
        Ok(len)
    }

    fn lend(&self, range: Range<u64>, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let [start, end] =
            [range.start, range.end].map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let bytes = self.0.get(start..end);
        bytes.map(borrower);
        Ok(bytes.is_some())
    }
}

/// An object that was verified as a whole.
struct InPlace(OpenObject);

impl Content for InPlace {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = self.0.read_in_place(buffer, offset)?;
        self.0.drop_behind(offset..offset + len as u64);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_lies_behind_the_reader_and_each_part_is_dropped_once() {
        const LONG: u64 = MAX_KEPT_BYTES + 1;
        for step in [128 << 10, 256 << 10, 1 << 20] {
            let reads = (0..LONG).step_by(step as usize).map(|at| at..LONG.min(at + step));
            let dropped: Vec<_> =
                reads.filter_map(|read| Some((read.end, behind(LONG, read)?))).collect();
            let parts: Vec<_> = dropped.iter().map(|(_, behind)| behind / DROP_BYTES).collect();
            assert_eq!(parts, (0..=MAX_KEPT_BYTES / DROP_BYTES - 2).collect::<Vec<_>>());
            assert!(dropped.iter().all(|(end, behind)| behind + 2 * DROP_BYTES <= *end));
        }
        assert_eq!(behind(MAX_KEPT_BYTES, 0..MAX_KEPT_BYTES), None);
    }
}
