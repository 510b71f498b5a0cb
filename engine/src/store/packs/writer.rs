//! A pack that is being made: without a name until it is complete.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::block::{BLOCK_BYTES, BLOCK_HEADER_BYTES, Listed, decode, encode};
use super::format::{Entry, HEADER_BYTES, Kind, Span, encode_index, header};
use super::{make_packs_dir, name_of};
use crate::object::{ContentHash, is_tree};
use crate::store::StoreError;
use crate::store::compression::Compression;
use crate::store::local::OBJECT_MODE;
use crate::sys::{self, Dir, IoContext, TempFile};

/// Number of bytes of records that are compressed and written at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// How large packs are: complete when the blocks have so many bytes, or there are so many objects.
/// So what an interrupted snapshot has to do again, and the memory that an index takes, stay
/// bounded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) objects: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 128 << 20, objects: 1 << 18 }
    }
}

/// A pack in the making. Appending only fills a buffer; records to write are handed out as a
/// [`Chunk`], so that several threads can append and compress while one of them writes.
///
/// The place of an object is counted in the order in which objects come. Its final place follows
/// from the order in which the blocks are written.
#[derive(Debug)]
pub(super) struct PackWriter<'s> {
    objects: &'s Dir,
    compression: Compression,
    /// From the first chunk on.
    temp: Option<Arc<TempFile<'s>>>,
    entries: Vec<Entry>,
    contents: Stream,
    /// A reader of trees alone decompresses no contents.
    trees: Stream,
    /// Where the next block comes in the file.
    file_at: u64,
    /// In the order in which they lie in the file.
    blocks: Vec<Placed>,
}

/// Records that share blocks, and were not handed out.
#[derive(Debug)]
struct Stream {
    buffer: Vec<u8>,
    /// Where full blocks end in the buffer.
    cuts: Vec<usize>,
    /// The place of the buffer's first byte.
    at: u64,
}

/// The place of the first tree. Places are only counted, and no pack has so many contents.
const TREES_AT: u64 = 1 << 48;

impl Stream {
    fn new(at: u64) -> Self {
        let buffer = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        Self { buffer, cuts: Vec::new(), at }
    }

    fn append(&mut self, hash: &ContentHash, kind: Kind, bytes: &[u8]) -> Span {
        let len = bytes.len() as u32;
        self.buffer.extend_from_slice(&Entry::record_header(hash, kind, len));
        let span = Span { offset: self.at + self.buffer.len() as u64, len, kind };
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() - self.last_cut() >= BLOCK_BYTES {
            self.cuts.push(self.buffer.len());
        }
        span
    }

    /// Where the last full block in the buffer ends.
    fn last_cut(&self) -> usize {
        self.cuts.last().copied().unwrap_or(0)
    }

    /// Takes full blocks or, without one, all there is: the place of the first record, the records,
    /// and where the blocks end. `empty` is the next buffer.
    fn take(&mut self, mut empty: Vec<u8>) -> (u64, Vec<u8>, Vec<usize>) {
        let end = if self.cuts.is_empty() { self.buffer.len() } else { self.last_cut() };
        let mut cuts = std::mem::take(&mut self.cuts);
        if cuts.is_empty() && end > 0 {
            cuts.push(end);
        }
        empty.clear();
        empty.extend_from_slice(&self.buffer[end..]);
        let mut records = std::mem::replace(&mut self.buffer, empty);
        records.truncate(end);
        let came_at = self.at;
        self.at += end as u64;
        (came_at, records, cuts)
    }

    /// The bytes of an object that is in the buffer.
    fn part(&self, span: Span) -> Option<&[u8]> {
        part(&self.buffer, self.at, span)
    }
}

/// A block with its places.
#[derive(Debug)]
struct Placed {
    /// The place of its first record, in the order in which objects came.
    came_at: u64,
    /// Where its header is in the file.
    file_at: u64,
    listed: Listed,
}

/// A part of a pack, to be compressed and written.
#[derive(Debug, Clone)]
pub(super) struct Chunk<'s> {
    temp: Arc<TempFile<'s>>,
    /// The place of its first record.
    came_at: u64,
    records: Arc<Vec<u8>>,
    /// Where its blocks end.
    cuts: Vec<usize>,
    compression: Compression,
}

/// A compressed part of a pack.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// The place of the first record, and the block.
    blocks: Vec<(u64, Listed)>,
}

/// A pack that has its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sealed {
    /// The digits of its name.
    pub(super) digits: [u8; 16],
    /// Length of its file.
    pub(super) bytes: u64,
}

impl<'s> PackWriter<'s> {
    /// Nothing is made on the disk yet.
    pub(super) fn new(objects: &'s Dir, compression: Compression) -> Self {
        Self {
            objects,
            compression,
            temp: None,
            entries: Vec::new(),
            contents: Stream::new(0),
            trees: Stream::new(TREES_AT),
            file_at: HEADER_BYTES as u64,
            blocks: Vec::new(),
        }
    }

    /// Adds an object of at most [`MAX_PACKED_BYTES`](super::format::MAX_PACKED_BYTES).
    pub(super) fn append(&mut self, hash: &ContentHash, kind: Kind, bytes: &[u8]) -> Span {
        let stream = if is_tree(bytes) { &mut self.trees } else { &mut self.contents };
        let span = stream.append(hash, kind, bytes);
        self.entries.push(Entry { hash: *hash, span });
        span
    }

    /// Whether nothing was appended.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it is complete.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        let waiting = self.contents.buffer.len() + self.trees.buffer.len();
        self.file_at + waiting as u64 >= limits.bytes || self.entries.len() >= limits.objects
    }

    /// As [`append`](Self::append), where no other process does.
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub(super) fn append_and_write(
        &mut self,
        hash: &ContentHash,
        kind: Kind,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.append(hash, kind, bytes);
        if !self.is_chunk_full() {
            return Ok(());
        }
        let chunk = self.take_chunk(Vec::new())?;
        let packed = chunk.compress();
        let at = self.place(&packed);
        chunk.write(&packed, at, self.objects)
    }

    /// Whether there is enough to be written.
    pub(super) fn is_chunk_full(&self) -> bool {
        self.contents.last_cut().max(self.trees.last_cut()) >= CHUNK_BYTES
    }

    /// Whether a list of chunks is among its objects: such a list is in packs only.
    pub(super) fn has_chunk_list(&self) -> bool {
        self.entries.iter().any(|entry| entry.span.kind == Kind::ChunkList)
    }

    /// Whether something was handed out to be written.
    pub(super) fn has_file(&self) -> bool {
        self.temp.is_some()
    }

    /// Hands out what is to be written next: full blocks or, without one, all there is of contents
    /// or of trees. `empty` takes its place.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(super) fn take_chunk(&mut self, empty: Vec<u8>) -> Result<Chunk<'s>, StoreError> {
        let temp = self.file()?;
        let (contents, trees) = (&mut self.contents, &mut self.trees);
        let stream = match trees.last_cut() > contents.last_cut() || contents.buffer.is_empty() {
            true => trees,
            false => contents,
        };
        let (came_at, records, cuts) = stream.take(empty);
        let (records, compression) = (Arc::new(records), self.compression);
        Ok(Chunk { temp, came_at, records, cuts, compression })
    }

    fn file(&mut self) -> Result<Arc<TempFile<'s>>, StoreError> {
        if let Some(temp) = &self.temp {
            return Ok(temp.clone());
        }
        let temp = Arc::new(TempFile::new(self.objects, OBJECT_MODE)?);
        Ok(self.temp.insert(temp).clone())
    }

    /// Gives compressed blocks their place in the file, and says where that begins.
    pub(super) fn place(&mut self, packed: &Packed) -> u64 {
        let begin = self.file_at;
        for (came_at, listed) in &packed.blocks {
            let file_at = self.file_at;
            self.file_at += BLOCK_HEADER_BYTES as u64 + u64::from(listed.stored);
            self.blocks.push(Placed { came_at: *came_at, file_at, listed: *listed });
        }
        begin
    }

    /// The objects so far, each with its bytes, as long as nothing was handed out.
    pub(super) fn unwritten(&self) -> impl Iterator<Item = (&ContentHash, &[u8])> {
        self.entries.iter().map(|entry| (&entry.hash, self.in_buffer(entry.span).unwrap_or(&[])))
    }

    /// The bytes of an object that is not handed out yet.
    fn in_buffer(&self, span: Span) -> Option<&[u8]> {
        self.contents.part(span).or_else(|| self.trees.part(span))
    }

    /// Reads an object that was appended. `writing` is what was handed out and may not be written
    /// yet.
    ///
    /// # Errors
    /// When it cannot be read back.
    pub(super) fn read(&self, span: Span, writing: &[Chunk<'_>]) -> Result<Vec<u8>, StoreError> {
        let mut in_chunks =
            writing.iter().filter_map(|chunk| part(&chunk.records, chunk.came_at, span));
        let in_memory = self.in_buffer(span).or_else(|| in_chunks.next());
        if let Some(bytes) = in_memory {
            return Ok(bytes.to_vec());
        }
        let holds = |placed: &&Placed| {
            let end = placed.came_at + u64::from(placed.listed.plain);
            (placed.came_at..end).contains(&span.record_at())
        };
        let placed = self.blocks.iter().find(holds);
        let Some((placed, temp)) = placed.zip(self.temp.as_ref()) else { return Ok(Vec::new()) };
        let mut stored = vec![0; placed.listed.stored as usize];
        let at = placed.file_at + BLOCK_HEADER_BYTES as u64;
        let path = self.objects.path();
        sys::read_full_at(temp.file(), &mut stored, at).at("read back from", path)?;
        let mut records = vec![0; placed.listed.plain as usize];
        let is_told = decode(&stored, &mut records);
        let bytes = part(&records, placed.came_at, span).filter(|_| is_told);
        Ok(bytes.unwrap_or_default().to_vec())
    }

    /// Writes what is left, the index and the header, and gives the pack its name. Everything that
    /// was handed out must have been written. The pack is not durable yet. Returns what the digits
    /// of its name say.
    ///
    /// # Errors
    /// When the disk is full or broken; there is no pack then.
    pub(super) fn seal(mut self) -> Result<Sealed, StoreError> {
        while !(self.contents.buffer.is_empty() && self.trees.buffer.is_empty()) {
            let chunk = self.take_chunk(Vec::new())?;
            let packed = chunk.compress();
            let at = self.place(&packed);
            chunk.write(&packed, at, self.objects)?;
        }
        let entries = self.final_entries();
        let blocks = self.blocks.iter().map(|placed| placed.listed);
        let index = encode_index(entries, blocks, self.file_at);
        let (temp, path) = (self.file()?, self.objects.path());
        temp.file().write_all_at(&index, self.file_at).at("write a pack in", path)?;
        temp.file().write_all_at(&header(), 0).at("write a pack in", path)?;
        make_packs_dir(self.objects)?;
        let digits = sys::random_bytes()?;
        let name = name_of(digits);
        if temp.persist(self.objects, &name)? {
            return Ok(Sealed { digits, bytes: self.file_at + index.len() as u64 });
        }
        // No other process can have chosen it.
        let source = io::ErrorKind::AlreadyExists.into();
        Err(sys::Error { operation: "name", path: self.objects.path_of(&name), source }.into())
    }

    /// The entries with their places in the order in which the blocks lie.
    fn final_entries(&mut self) -> Vec<Entry> {
        let mut moved = Vec::with_capacity(self.blocks.len());
        let mut place = 0;
        for Placed { came_at, listed, .. } in &self.blocks {
            moved.push((*came_at, place));
            place += u64::from(listed.plain);
        }
        moved.sort_unstable();
        let mut entries = std::mem::take(&mut self.entries);
        let mut at = 0;
        entries.sort_unstable_by_key(|entry| entry.span.offset);
        // They are in the order of the places now, and each lies in a block.
        for Entry { span, .. } in &mut entries {
            while moved.get(at + 1).is_some_and(|(came_at, _)| *came_at <= span.record_at()) {
                at += 1;
            }
            if let Some((came_at, place)) = moved.get(at) {
                span.offset = span.offset - came_at + place;
            }
        }
        entries
    }
}

/// The bytes of an object in records of which the first has a place.
fn part(records: &[u8], first: u64, span: Span) -> Option<&[u8]> {
    span.record_at().checked_sub(first)?;
    let start = usize::try_from(span.offset - first).ok()?;
    records.get(start..start + span.len as usize)
}

impl Chunk<'_> {
    /// Compresses it, block by block.
    pub(super) fn compress(&self) -> Packed {
        let mut bytes = Vec::with_capacity(self.records.len() / 2);
        let (mut blocks, mut begin) = (Vec::with_capacity(self.cuts.len()), 0);
        for end in &self.cuts {
            let listed = encode(&self.records[begin..*end], self.compression, &mut bytes);
            blocks.push((self.came_at + begin as u64, listed));
            begin = *end;
        }
        Packed { bytes, blocks }
    }

    /// Writes it where it was [placed](PackWriter::place).
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub(super) fn write(&self, packed: &Packed, at: u64, objects: &Dir) -> Result<(), StoreError> {
        let written = self.temp.file().write_all_at(&packed.bytes, at);
        Ok(written.at("write a pack in", objects.path())?)
    }

    /// Whether it is this one. An empty one begins where the next one does.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.records, &other.records)
    }

    /// The buffer, to be used again.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        Arc::into_inner(self.records).unwrap_or_default()
    }
}
