//! One pack on the disk: finding an object in it, and reading it.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::io::Errno;

use super::filter::Filter;
use super::format::{
    ENTRY_BYTES, Entry, HEADER_BYTES, Span, TRAILER_BYTES, Trailer, header, is_newer, slot_of,
};
use crate::object::{ContentHash, Hasher};
use crate::store::{FoundObject, PackState, StoreError};
use crate::sys::{self, Dir, FileKind, FileTime, IoContext};

/// A pack gets a filter after one question for so many of its objects: to read the whole index
/// takes as long.
const OBJECTS_PER_QUESTION: usize = 16;

/// Entries of an index that are read at a time.
const ENTRIES_IN_PART: usize = 1024;
const OUTSIDE: &str = "its index names a place outside of it";

/// An open pack. Only its fan-out is kept in memory, and a filter once it is asked often; entries
/// are read as they are asked for.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(super) file: File,
    name: Box<[u8]>,
    pub(super) path: PathBuf,
    trailer: Trailer,
    fan_out: Box<[u32]>,
    bytes: u64,
    stored_at: FileTime,
    /// How often it was asked for an object.
    questions: AtomicUsize,
    /// `None` inside: the index cannot be believed.
    filter: OnceLock<Option<Filter>>,
}

impl Pack {
    /// Opens the pack of this name.
    ///
    /// # Errors
    /// [`StoreError::CorruptPack`] for what is none, or was cut short; [`StoreError::NewerPack`].
    pub(super) fn open(packs: &Dir, name: &[u8]) -> Result<Self, StoreError> {
        let path = packs.path_of(name);
        let corrupt = |reason: &str| corrupt(&path, reason);
        let file = match packs.open_file(name, true) {
            Err(error) if error.is_symlink_in_path() => return Err(corrupt("it is a symlink")),
            // A socket.
            Err(error) if error.errno() == Some(Errno::NXIO) => {
                return Err(corrupt("it is not a regular file"));
            }
            file => file?,
        };
        let stat = packs.stat_file(&file, name)?;
        if stat.kind != FileKind::File {
            return Err(corrupt("it is not a regular file"));
        }
        let Some(trailer_at) = stat.size.checked_sub(TRAILER_BYTES as u64) else {
            return Err(corrupt("it is shorter than any pack"));
        };
        let mut first = [0; HEADER_BYTES];
        sys::read_full_at(&file, &mut first, 0).at("read", &path)?;
        let mut bytes = [0; TRAILER_BYTES];
        sys::read_full_at(&file, &mut bytes, trailer_at).at("read", &path)?;
        if is_newer(&first, &bytes) {
            return Err(StoreError::NewerPack { path });
        }
        if first != header() {
            return Err(corrupt("it does not begin as one"));
        }
        let trailer = Trailer::decode(&bytes, stat.size).map_err(corrupt)?;
        // Its length is bounded by that of the file, and by the number of bits.
        let mut fan_out = vec![0; trailer.fan_out_bytes() as usize];
        sys::read_full_at(&file, &mut fan_out, trailer.index_at).at("read", &path)?;
        let fan_out = trailer.fan_out(&fan_out).map_err(corrupt)?;
        let (bytes, stored_at) = (stat.size, stat.ctime);
        Ok(Self {
            file,
            name: name.into(),
            path,
            trailer,
            fan_out,
            bytes,
            stored_at,
            questions: AtomicUsize::new(0),
            filter: OnceLock::new(),
        })
    }

    /// Its name among the packs.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length of the whole file in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When it came into the store.
    pub(crate) fn stored_at(&self) -> FileTime {
        self.stored_at
    }

    /// Which pack this is, as a stat cache names it. `None` where its name is none that nono gives.
    pub(super) fn state(&self) -> Option<PackState> {
        let mut name = [0; 16];
        hex::decode_to_slice(&*self.name, &mut name).ok()?;
        Some(PackState { name, changed_at: self.stored_at })
    }

    /// Where the index begins, and the records end.
    pub(super) fn index_at(&self) -> u64 {
        self.trailer.index_at
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> usize {
        self.trailer.count as usize
    }

    /// Where an object is, if it is here.
    ///
    /// # Errors
    /// A failed read, or an entry that cannot be one.
    pub(crate) fn find(&self, hash: &ContentHash) -> Result<Option<Span>, StoreError> {
        if self.filter().is_some_and(|filter| !filter.may_have(hash)) {
            return Ok(None);
        }
        let numbers = self.numbers_in_slot(slot_of(hash, self.trailer.bits));
        let count = numbers.len();
        if count == 0 {
            return Ok(None);
        }
        let (mut few, mut many) = ([0; 64 * ENTRY_BYTES], Vec::new());
        let entries = match few.get_mut(..count * ENTRY_BYTES) {
            Some(entries) => entries,
            None => {
                many.resize(count * ENTRY_BYTES, 0);
                &mut many
            }
        };
        self.read_index(entries, self.trailer.entry_at(numbers.start))?;
        let found =
            entries.chunks_exact(ENTRY_BYTES).map(Entry::decode).find(|entry| entry.hash == *hash);
        match found {
            Some(entry) => self.checked(entry).map(|entry| Some(entry.span)),
            None => Ok(None),
        }
    }

    /// The filter, made when it is time.
    fn filter(&self) -> Option<&Filter> {
        let made = self.filter.get().or_else(|| {
            let questions = self.questions.fetch_add(1, Relaxed);
            (questions > self.len() / OBJECTS_PER_QUESTION)
                .then(|| self.filter.get_or_init(|| self.make_filter().ok()))
        });
        made?.as_ref()
    }

    fn make_filter(&self) -> Result<Filter, StoreError> {
        let mut filter = Filter::for_objects(self.len());
        self.for_each_entry(|entry| filter.add(&entry.hash))?;
        Ok(filter)
    }

    /// Reads the bytes of an object, which are not checked yet.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read(&self, span: Span, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        buffer.resize(span.len as usize, 0);
        let len = sys::read_full_at(&self.file, buffer, span.offset).at("read", &self.path)?;
        buffer.truncate(len);
        Ok(())
    }

    /// Reads a part of an object.
    ///
    /// # Errors
    /// As `pread`.
    pub(crate) fn read_at(&self, span: Span, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = span.len().saturating_sub(offset);
        let len = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        // The rest is 0 for an offset that is too large to be added.
        sys::read_full_at(&self.file, &mut buffer[..len], span.offset.saturating_add(offset))
    }

    /// Lets the kernel forget all pages of the pack. Not those of one object: a page of the kernel
    /// may be larger, and stays if a part of it is to be kept.
    pub(super) fn drop_cached_pages(&self) {
        sys::drop_cached_pages(&self.file, 0, self.bytes);
    }

    /// Whether the bytes of an object are the ones that its name says.
    ///
    /// # Errors
    /// A failed read.
    pub(super) fn is_intact(
        &self,
        entry: &Entry,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        self.read(entry.span, buffer)?;
        Ok(ContentHash::of(buffer) == entry.hash)
    }

    /// The whole index, sorted by hash, after it was checked.
    ///
    /// # Errors
    /// A failed read, or [`StoreError::CorruptPack`].
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::with_capacity(self.len());
        self.for_each_entry(|entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Checks the whole index.
    ///
    /// # Errors
    /// As [`entries`](Self::entries).
    pub(super) fn check_index(&self) -> Result<(), StoreError> {
        self.for_each_entry(|_| {})
    }

    /// Gives the entries of the whole index, sorted by hash, each checked; but only the end tells
    /// whether the index is the one that was written. It is read a part at a time: an index has
    /// megabytes, and new memory is dearer than to read them.
    ///
    /// # Errors
    /// As [`entries`](Self::entries). After an error, the entries given before are void.
    fn for_each_entry(&self, mut each: impl FnMut(Entry)) -> Result<(), StoreError> {
        let Trailer { index_at, count, .. } = self.trailer;
        let (mut hasher, mut wrong) = (Hasher::new(), None);
        let mut fan_out = vec![0; self.trailer.fan_out_bytes() as usize];
        self.read_index(&mut fan_out, index_at)?;
        hasher.update(&fan_out);
        let mut part = vec![0; ENTRIES_IN_PART.min(self.len()) * ENTRY_BYTES];
        let mut before = None;
        for first in (0..count).step_by(ENTRIES_IN_PART) {
            part.truncate((count - first) as usize * ENTRY_BYTES);
            self.read_index(&mut part, self.trailer.entry_at(first))?;
            hasher.update(&part);
            for (bytes, number) in part.chunks_exact(ENTRY_BYTES).zip(first..) {
                let entry = Entry::decode(bytes);
                wrong = wrong.or_else(|| self.wrong_with(&entry, number, before));
                before = Some(entry.hash);
                if wrong.is_none() {
                    each(entry);
                }
            }
        }
        match wrong {
            _ if !self.trailer.fits(hasher) => Err(corrupt(&self.path, "its index was changed")),
            Some(wrong) => Err(corrupt(&self.path, wrong)),
            None => Ok(()),
        }
    }

    /// The defect of the entry with a number, which comes after that of an object.
    fn wrong_with(
        &self,
        entry: &Entry,
        number: u32,
        before: Option<ContentHash>,
    ) -> Option<&'static str> {
        // The checksum is no secret: a lookup of one object and a listing of all must agree.
        let is_found =
            || self.numbers_in_slot(slot_of(&entry.hash, self.trailer.bits)).contains(&number);
        if !entry.is_within(self.trailer.index_at) {
            Some(OUTSIDE)
        } else if before.is_some_and(|before| before >= entry.hash) {
            Some("its index is not sorted")
        } else if !is_found() {
            Some("its fan-out contradicts its index")
        } else {
            None
        }
    }

    /// Numbers of the entries of a place in the fan-out.
    fn numbers_in_slot(&self, slot: u32) -> Range<u32> {
        // There is one end for each place, and they do not go down.
        let slot = slot as usize;
        let start = if slot == 0 { 0 } else { self.fan_out[slot - 1] };
        start..self.fan_out[slot]
    }

    /// Whether an object is here, and intact.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(crate) fn holds_intact(
        &self,
        hash: &ContentHash,
        buffer: &mut Vec<u8>,
    ) -> Result<bool, StoreError> {
        let Some(span) = self.find(hash)? else { return Ok(false) };
        self.is_intact(&Entry { hash: *hash, span }, buffer)
    }

    /// The plausible entries of a damaged index.
    pub(super) fn plausible_entries(&self) -> Vec<Entry> {
        let mut index = vec![0; self.trailer.index_bytes() as usize];
        if self.read_index(&mut index, self.trailer.index_at).is_err() {
            return Vec::new();
        }
        let entries = index[self.trailer.fan_out_bytes() as usize..].chunks_exact(ENTRY_BYTES);
        entries.filter_map(|bytes| self.checked(Entry::decode(bytes)).ok()).collect()
    }

    /// All objects, as the index tells of them.
    ///
    /// # Errors
    /// As [`entries`](Self::entries).
    pub(crate) fn objects(&self) -> Result<Vec<FoundObject>, StoreError> {
        let entries = self.entries()?.into_iter();
        Ok(entries.map(|entry| self.found(&entry)).collect())
    }

    /// An entry, as the store tells of objects.
    pub(crate) fn found(&self, entry: &Entry) -> FoundObject {
        FoundObject { hash: entry.hash, size: entry.size(), stored_at: self.stored_at }
    }

    fn read_index(&self, buffer: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let len = sys::read_full_at(&self.file, buffer, offset).at("read", &self.path)?;
        if len == buffer.len() { Ok(()) } else { Err(corrupt(&self.path, "it was cut short")) }
    }

    fn checked(&self, entry: Entry) -> Result<Entry, StoreError> {
        if entry.is_within(self.trailer.index_at) {
            Ok(entry)
        } else {
            Err(corrupt(&self.path, OUTSIDE))
        }
    }
}

pub(super) fn corrupt(path: &Path, reason: &str) -> StoreError {
    StoreError::CorruptPack { path: path.to_owned(), reason: reason.to_owned() }
}
