//! One open object, wherever it lies.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

    /// Reads all bytes and compares their hash with the object's name.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], a failed read, or [`StoreError::Cancelled`].
    pub fn verify(&self, transfer: &mut Transfer<'_>) -> Result<(), StoreError> {
        self.verify_with_midstates(transfer).map(drop)
    }

    /// As [`verify`](Self::verify), with the midstates of a long one.
    pub(crate) fn verify_with_midstates(
        &self,
        transfer: &mut Transfer<'_>,
    ) -> Result<Option<Midstates>, StoreError> {
        let file = match &self.place {
            Place::Own(file) => file,
            Place::Packed(..) => {
                self.read_checked(self.size, transfer.buffer)?;
                return Ok(None);
            }
        };
        let found = import::hash_object(file, self.size, self.sparse, transfer)
            .map_err(|error| error.at("read", &self.path))?;
        if found.is(&self.hash, self.size) { Ok(found.midstates) } else { Err(self.corrupt()) }
    }

    pub(crate) fn corrupt(&self) -> StoreError {
        StoreError::Corrupt {
            hash: self.hash,
            path: self.path.clone(),
            reason: "its bytes do not have the hash that names it".to_owned(),
        }
    }

    /// Its file, for positioned reads. `None` for one in a pack, which is small.
    pub fn file(&self) -> Option<&File> {
        match &self.place {
            Place::Own(file) => Some(file),
            Place::Packed(..) => None,
        }
    }

    /// As [`file`](Self::file), to be kept.
    #[cfg_attr(
        not(feature = "mount"),
        allow(dead_code, reason = "only the mount keeps files open")
    )]
    pub(crate) fn into_file(self) -> Option<File> {
        match self.place {
            Place::Own(file) => Some(file),
            Place::Packed(..) => None,
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
        }
    }

    /// Reads all bytes, unchecked: fewer if it was cut short.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn read_whole(&self, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        match &self.place {
            Place::Packed(pack, span) => pack.read(*span, buffer),
            Place::Own(file) => {
                buffer.resize(self.size as usize, 0);
                let len = sys::read_full_at(file, buffer, 0).at("read", &self.path)?;
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

    /// Where it is: its own file, or the pack that it is in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
