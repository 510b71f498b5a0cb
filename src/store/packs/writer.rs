//! A pack that is being made: without a name until it is complete.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::format::{Entry, HEADER_BYTES, RECORD_BYTES, Span, encode_index, header};
use super::{make_packs_dir, name_of};
use crate::object::ContentHash;
use crate::store::StoreError;
use crate::store::local::OBJECT_MODE;
use crate::sys::{self, Dir, IoContext, TempFile};

/// So many bytes are written at once.
const CHUNK_BYTES: usize = 1024 * 1024;

/// How large packs are: complete when the records have so many bytes, or there are so many objects.
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

/// A pack in the making. Appending only fills a buffer; bytes to write are handed out as a
/// [`Chunk`], so that several threads can append while one of them writes.
#[derive(Debug)]
pub(super) struct PackWriter<'s> {
    objects: &'s Dir,
    /// From the first chunk on.
    temp: Option<Arc<TempFile<'s>>>,
    entries: Vec<Entry>,
    buffer: Vec<u8>,
    /// Where the buffer's first byte belongs.
    buffer_at: u64,
}

/// A part of a pack, to be written at its place.
#[derive(Debug, Clone)]
pub(super) struct Chunk<'s> {
    temp: Arc<TempFile<'s>>,
    pub(super) offset: u64,
    pub(super) bytes: Arc<Vec<u8>>,
}

impl<'s> PackWriter<'s> {
    /// Nothing is made on the disk yet.
    pub(super) fn new(objects: &'s Dir) -> Self {
        let mut buffer = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        buffer.extend_from_slice(&header());
        Self { objects, temp: None, entries: Vec::new(), buffer, buffer_at: 0 }
    }

    /// Adds an object of at most [`MAX_PACKED_BYTES`](super::format::MAX_PACKED_BYTES).
    pub(super) fn append(&mut self, hash: &ContentHash, bytes: &[u8]) -> Span {
        let len = bytes.len() as u32;
        self.buffer.extend_from_slice(&Entry::record_header(hash, len));
        let span = Span { offset: self.buffer_at + self.buffer.len() as u64, len };
        self.buffer.extend_from_slice(bytes);
        self.entries.push(Entry { hash: *hash, span });
        span
    }

    /// Whether nothing was appended.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it is complete.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.bytes() >= limits.bytes || self.entries.len() >= limits.objects
    }

    /// Length of the records so far.
    fn bytes(&self) -> u64 {
        self.buffer_at + self.buffer.len() as u64
    }

    /// As [`append`](Self::append), where nobody else does.
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub(super) fn append_and_write(
        &mut self,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.append(hash, bytes);
        if !self.is_chunk_full() {
            return Ok(());
        }
        let chunk = self.take_chunk(Vec::new())?;
        chunk.write(self.objects)?;
        self.buffer = chunk.into_buffer();
        self.buffer.clear();
        Ok(())
    }

    /// Whether there is enough to be written.
    pub(super) fn is_chunk_full(&self) -> bool {
        self.buffer.len() >= CHUNK_BYTES
    }

    /// Whether something was handed out to be written.
    pub(super) fn has_file(&self) -> bool {
        self.temp.is_some()
    }

    /// Hands out what is to be written next; `empty` takes its place.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub(super) fn take_chunk(&mut self, mut empty: Vec<u8>) -> Result<Chunk<'s>, StoreError> {
        let temp = self.file()?;
        empty.clear();
        let offset = self.buffer_at;
        let bytes = Arc::new(std::mem::replace(&mut self.buffer, empty));
        self.buffer_at += bytes.len() as u64;
        Ok(Chunk { temp, offset, bytes })
    }

    fn file(&mut self) -> Result<Arc<TempFile<'s>>, StoreError> {
        if let Some(temp) = &self.temp {
            return Ok(temp.clone());
        }
        let temp = Arc::new(TempFile::new(self.objects, OBJECT_MODE)?);
        Ok(self.temp.insert(temp).clone())
    }

    /// The objects so far, each with its bytes, as long as nothing was handed out.
    pub(super) fn unwritten(&self) -> impl Iterator<Item = (&ContentHash, &[u8])> {
        self.entries.iter().map(|entry| (&entry.hash, self.in_buffer(entry.span).unwrap_or(&[])))
    }

    /// The bytes of an object that is not handed out yet.
    fn in_buffer(&self, span: Span) -> Option<&[u8]> {
        let start = usize::try_from(span.offset.checked_sub(self.buffer_at)?).ok()?;
        self.buffer.get(start..start + span.len as usize)
    }

    /// Reads an object that was appended. `writing` is what was handed out and may not be written
    /// yet.
    ///
    /// # Errors
    /// When it cannot be read back.
    pub(super) fn read(&self, span: Span, writing: &[Chunk<'_>]) -> Result<Vec<u8>, StoreError> {
        let in_chunk = |chunk: &Chunk<'_>| {
            let start = usize::try_from(span.offset.checked_sub(chunk.offset)?).ok()?;
            chunk.bytes.get(start..start + span.len as usize).map(<[u8]>::to_vec)
        };
        if let Some(bytes) = self.in_buffer(span) {
            return Ok(bytes.to_vec());
        }
        if let Some(bytes) = writing.iter().find_map(in_chunk) {
            return Ok(bytes);
        }
        let mut bytes = vec![0; span.len as usize];
        if let Some(temp) = &self.temp {
            let path = self.objects.path();
            let len = sys::read_full_at(temp.file(), &mut bytes, span.offset)
                .at("read back from", path)?;
            bytes.truncate(len);
        }
        Ok(bytes)
    }

    /// Writes what is left and the index, and gives the pack its name. Everything that was handed
    /// out must have been written. The pack is not durable yet. Returns what the digits of its name
    /// say.
    ///
    /// # Errors
    /// When the disk is full or broken; there is no pack then.
    pub(super) fn seal(mut self) -> Result<[u8; 16], StoreError> {
        let index_at = self.bytes();
        self.buffer.extend_from_slice(&encode_index(std::mem::take(&mut self.entries), index_at));
        let chunk = self.take_chunk(Vec::new())?;
        chunk.write(self.objects)?;
        make_packs_dir(self.objects)?;
        let digits = sys::random_bytes()?;
        let name = name_of(digits);
        if chunk.temp.persist(self.objects, &name)? {
            return Ok(digits);
        }
        // Nobody else can have chosen it.
        let source = io::ErrorKind::AlreadyExists.into();
        Err(sys::Error { operation: "name", path: self.objects.path_of(&name), source }.into())
    }
}

impl Chunk<'_> {
    /// # Errors
    /// When the disk is full or broken.
    pub(super) fn write(&self, objects: &Dir) -> Result<(), StoreError> {
        let written = self.temp.file().write_all_at(&self.bytes, self.offset);
        Ok(written.at("write a pack in", objects.path())?)
    }

    /// The buffer, to be used again.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        Arc::into_inner(self.bytes).unwrap_or_default()
    }
}

const _: () = assert!(HEADER_BYTES + RECORD_BYTES < CHUNK_BYTES);
