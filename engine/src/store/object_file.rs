//! One open object, wherever it lies.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunks::ChunkedFile;
use super::import::{OpenFile, Source};
use super::packs::{Pack, Span};
use super::{StoreError, Transfer, import};
use crate::object::{ContentHash, Midstates};
use crate::sys::{self, IoContext, Stat};

/// An open object.
#[derive(Debug)]
pub struct ObjectFile {
    place: Place,
    size: u64,
    sparse: bool,
    hash: ContentHash,
    path: PathBuf,
}

#[derive(Debug)]
enum Place {
    Own(File),
    Packed(Arc<Pack>, Span),
    Chunked(ChunkedFile),
}

impl ObjectFile {
    /// An object with a file of its own, at `path`.
    pub(super) fn own(file: File, stat: &Stat, hash: ContentHash, path: PathBuf) -> Self {
        Self { place: Place::Own(file), size: stat.size, sparse: stat.is_sparse(), hash, path }
    }

    /// An object in a pack.
    pub(super) fn packed(pack: Arc<Pack>, span: Span, hash: ContentHash) -> Self {
        let (size, path) = (span.len(), pack.path().to_owned());
        Self { place: Place::Packed(pack, span), size, sparse: false, hash, path }
    }

    /// An object that is made of chunks, whose list is at `path`.
    pub(super) fn chunked(file: ChunkedFile, hash: ContentHash, path: PathBuf) -> Self {
        let (size, sparse) = (file.size(), file.is_sparse());
        Self { place: Place::Chunked(file), size, sparse, hash, path }
    }

    /// Whether it is made of chunks.
    pub(crate) fn is_chunked(&self) -> bool {
        matches!(self.place, Place::Chunked(_))
    }

    /// Reads all bytes and compares their hash with the object's name.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], a failed read, or [`StoreError::Cancelled`].
    pub fn verify(&self, transfer: &mut Transfer<'_>) -> Result<(), StoreError> {
        self.verify_with_midstates(transfer).map(drop)
    }

    /// As [`verify`](Self::verify), with the midstates of a long one.
    pub fn verify_with_midstates(
        &self,
        transfer: &mut Transfer<'_>,
    ) -> Result<Option<Midstates>, StoreError> {
        if let Place::Packed(..) = self.place {
            self.read_checked(self.size, transfer.buffer)?;
            return Ok(None);
        }
        let found = import::hash_source(self, self.size, transfer)
            .map_err(|error| error.at("read", &self.path))?;
        if found.is(&self.hash, self.size) { Ok(found.midstates) } else { Err(self.corrupt()) }
    }

    /// Compares its length with the one that an entry says.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when it is another one.
    pub fn check_size(&self, size: u64) -> Result<(), StoreError> {
        if self.size == size {
            return Ok(());
        }
        let reason = format!("it has {} bytes instead of {size}", self.size);
        Err(StoreError::Corrupt { hash: self.hash, path: self.path.clone(), reason })
    }

    /// The error for contents that have another hash.
    pub fn corrupt(&self) -> StoreError {
        StoreError::Corrupt {
            hash: self.hash,
            path: self.path.clone(),
            reason: "its bytes do not have the hash that names it".to_owned(),
        }
    }

    /// Its file, if it has one of its own.
    pub fn file(&self) -> Option<&File> {
        match &self.place {
            Place::Own(file) => Some(file),
            Place::Packed(..) | Place::Chunked(_) => None,
        }
    }

    /// As [`file`](Self::file), to be kept.
    pub(crate) fn into_file(self) -> Option<File> {
        match self.place {
            Place::Own(file) => Some(file),
            Place::Packed(..) | Place::Chunked(_) => None,
        }
    }

    /// Reads until the buffer is full or the object ends, unchecked.
    ///
    /// # Errors
    /// As `pread`.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.place {
            Place::Own(file) => sys::read_full_at(file, buffer, offset),
            Place::Packed(pack, span) => pack.read_at(*span, buffer, offset),
            Place::Chunked(file) => file.read_at(buffer, offset),
        }
    }

    /// Reads all bytes, unchecked: fewer if it was cut short.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read_whole(&self, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        match &self.place {
            Place::Packed(pack, span) => pack.read(*span, buffer),
            Place::Own(_) | Place::Chunked(_) => {
                buffer.resize(self.size as usize, 0);
                let len = self.read_at(buffer, 0).at("read", &self.path)?;
                buffer.truncate(len);
                Ok(())
            }
        }
    }

    /// Reads all bytes, checked.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], also where there are more than `max_bytes`, or a failed read.
    pub(crate) fn read_checked(
        &self,
        max_bytes: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let (hash, size) = (self.hash, self.size);
        if size > max_bytes {
            let reason = format!("it has {size} bytes, more than such an object may have");
            return Err(StoreError::Corrupt { hash, path: self.path.clone(), reason });
        }
        self.read_whole(buffer)?;
        if ContentHash::of(buffer) == hash { Ok(()) } else { Err(self.corrupt()) }
    }

    /// Lets the kernel forget what it holds of its own file in memory, so that the next read is one
    /// of the disk. For the others see [`super::LocalStore::drop_cached_packs`].
    pub(crate) fn drop_cached_pages(&self) {
        if let Some(file) = self.file() {
            sys::drop_cached_pages(file, 0, self.size);
        }
    }

    /// Its name.
    pub fn hash(&self) -> ContentHash {
        self.hash
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether it has holes.
    pub fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Its bytes from the start.
    pub(super) fn into_reader(self) -> impl io::Read {
        ObjectReader { object: self, at: 0 }
    }

    /// Where it is: its own file, or the pack that it, or the list of its chunks, is in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

struct ObjectReader {
    object: ObjectFile,
    at: u64,
}

impl io::Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.object.read_at(buffer, self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Source for ObjectFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }

    fn ranges<E: From<io::Error>>(
        &self,
        len: u64,
        mut visit: impl FnMut(u64, u64, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.place {
            Place::Own(file) => OpenFile { file, sparse: self.sparse }.ranges(len, visit),
            Place::Packed(..) => visit(0, len, true),
            Place::Chunked(file) => file.ranges(len, visit),
        }
    }
}
