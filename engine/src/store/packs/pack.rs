//! One pack on the disk: finding an object in it, and reading it.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;

use super::block::{BLOCK_HEADER_BYTES, Block, Listed, TABLE_ENTRY_BYTES, decoded};
use super::cache::{BlockCache, new_pack};
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

/// An open pack. Its fan-out and the places of its blocks are kept in memory, and a filter once it
/// is asked often; entries are read as they are asked for.
#[derive(Debug)]
pub struct Pack {
    pub(super) file: File,
    name: Box<[u8]>,
    pub(super) path: PathBuf,
    trailer: Trailer,
    fan_out: Box<[u32]>,
    blocks: Box<[Block]>,
    number: u64,
    cache: Arc<BlockCache>,
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
    pub(super) fn open(
        packs: &Dir,
        name: &[u8],
        cache: &Arc<BlockCache>,
    ) -> Result<Self, StoreError> {
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
        // So is this one, and by the greatest number of blocks.
        let mut table = vec![0; trailer.blocks as usize * TABLE_ENTRY_BYTES];
        sys::read_full_at(&file, &mut table, trailer.blocks_at()).at("read", &path)?;
        let table = table.as_chunks().0.iter().map(Listed::decode);
        let blocks = Block::places(table);
        let end = |block: &Block| block.file_end();
        let blocks = blocks
            .filter(|all| all.last().map_or(HEADER_BYTES as u64, end) == trailer.index_at)
            .ok_or_else(|| corrupt("its blocks contradict its length"))?;
        let (bytes, stored_at) = (stat.size, stat.ctime);
        Ok(Self {
            file,
            name: name.into(),
            path,
            trailer,
            fan_out,
            blocks,
            number: new_pack(),
            cache: cache.clone(),
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

    /// Length of all records in bytes, uncompressed.
    pub(crate) fn records_bytes(&self) -> u64 {
        self.blocks.last().map_or(0, Block::plain_end)
    }

    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// How many blocks it has.
    #[cfg(all(test, feature = "mount"))]
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The number of the block in which an object lies.
    pub(super) fn block_of(&self, span: Span) -> usize {
        self.blocks.partition_point(|block| block.plain_end() <= span.record_at())
    }

    /// The records of a block; none where they cannot be told.
    fn records(&self, number: usize) -> io::Result<Arc<Vec<u8>>> {
        let key = (self.number, number);
        if let Some(records) = self.cache.get(key) {
            return Ok(records);
        }
        let Some(block) = self.blocks.get(number) else { return Ok(Arc::default()) };
        thread_local! {
            static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        let records = STORED.with_borrow_mut(|stored| {
            // Both lengths are bounded.
            stored.resize(block.stored as usize, 0);
            let at = block.file_at + BLOCK_HEADER_BYTES as u64;
            let len = sys::read_full_at(&self.file, stored, at)?;
            let is_whole = len == stored.len();
            let decoded = || decoded(stored, block.plain, self.cache.spare());
            io::Result::Ok(is_whole.then(decoded).flatten())
        })?;
        let Some(records) = records.map(Arc::new) else { return Ok(Arc::default()) };
        self.cache.put(key, records.clone());
        Ok(records)
    }

    /// Gives the bytes of an object to `take`; none where its block cannot be told.
    fn with_bytes<T>(&self, span: Span, take: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
        let number = self.block_of(span);
        let records = self.records(number)?;
        let bytes = self.blocks.get(number).and_then(|block| {
            let start = usize::try_from(span.offset.checked_sub(block.plain_at)?).ok()?;
            records.get(start..start.checked_add(span.len as usize)?)
        });
        Ok(take(bytes.unwrap_or_default()))
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
        buffer.clear();
        let read = self.with_bytes(span, |bytes| buffer.extend_from_slice(bytes));
        Ok(read.at("read", &self.path)?)
    }

    /// Reads a part of an object.
    ///
    /// # Errors
    /// As `pread`.
    pub(crate) fn read_at(&self, span: Span, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with_bytes(span, |bytes| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
            let len = buffer.len().min(bytes.len() - start);
            buffer[..len].copy_from_slice(&bytes[start..start + len]);
            len
        })
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
        Ok(entry.span.kind.is_intact(&entry.hash, buffer))
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
        let mut table = vec![0; self.blocks.len() * TABLE_ENTRY_BYTES];
        self.read_index(&mut table, self.trailer.blocks_at())?;
        hasher.update(&table);
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
        if !entry.is_within(self.records_bytes()) {
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
        let mut entries = vec![0; self.trailer.entries_bytes() as usize];
        if self.read_index(&mut entries, self.trailer.entry_at(0)).is_err() {
            return Vec::new();
        }
        let entries = entries.chunks_exact(ENTRY_BYTES);
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

    /// An entry, as the store tells of objects, with its share of its block.
    pub(crate) fn found(&self, entry: &Entry) -> FoundObject {
        let share = self.blocks.get(self.block_of(entry.span)).map_or(0, |block| {
            (entry.size() * u64::from(block.stored)).div_ceil(u64::from(block.plain))
        });
        FoundObject {
            hash: entry.hash,
            size: share,
            plain_bytes: entry.size(),
            stored_at: self.stored_at,
        }
    }

    /// The table of blocks, as the index has it.
    ///
    /// # Errors
    /// A failed read.
    pub(super) fn table(&self) -> Result<Vec<Listed>, StoreError> {
        let mut table = vec![0; self.blocks.len() * TABLE_ENTRY_BYTES];
        self.read_index(&mut table, self.trailer.blocks_at())?;
        Ok(table.as_chunks().0.iter().map(Listed::decode).collect())
    }

    pub(super) fn read_index(&self, buffer: &mut [u8], offset: u64) -> Result<(), StoreError> {
        let len = sys::read_full_at(&self.file, buffer, offset).at("read", &self.path)?;
        if len == buffer.len() { Ok(()) } else { Err(corrupt(&self.path, "it was cut short")) }
    }

    fn checked(&self, entry: Entry) -> Result<Entry, StoreError> {
        if entry.is_within(self.records_bytes()) {
            Ok(entry)
        } else {
            Err(corrupt(&self.path, OUTSIDE))
        }
    }
}

pub(super) fn corrupt(path: &Path, reason: &str) -> StoreError {
    StoreError::CorruptPack { path: path.to_owned(), reason: reason.to_owned() }
}
