//! Objects on this machine's disk.

mod own;
mod read;
mod write;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, RwLock};

use super::account::Ledger;
use super::compression::Compression;
use super::guard::check_format;
use super::import;
use super::own::{OwnFiles, Patience};
use super::packs::{Kind, Packs};
use super::{
    FileSource, ImportError, Imported, ObjectSource, ObjectStore, StoreError, Stored, Transfer,
};
use crate::object::ContentHash;
use crate::sys::{self, Dir, EarlyFlush};

/// Mode of an object: no user writes it, its owner reads it.
pub(super) const OBJECT_MODE: u16 = 0o400;

/// A directory of objects.
#[derive(Debug)]
pub struct LocalStore {
    dir: Dir,
    /// Fan-out directories that are known to exist.
    prefixes: Box<[AtomicBool; 256]>,
    packs: Packs,
    own: OwnFiles,
    ledger: Arc<Ledger>,
    reading: Patience,
    compression: RwLock<Compression>,
    /// Long objects with a file of their own and a list of chunks, and their lengths.
    doubles: Mutex<Vec<(ContentHash, u64)>>,
}

impl LocalStore {
    /// Opens the objects below `path`, which must exist.
    ///
    /// # Errors
    /// When it is missing or not a directory, or [`StoreError::OtherFormat`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let dir = Dir::open(path)?;
        check_format(&dir)?;
        let prefixes = Box::new([const { AtomicBool::new(false) }; 256]);
        Ok(Self {
            dir,
            prefixes,
            packs: Packs::default(),
            own: OwnFiles::default(),
            ledger: Arc::default(),
            reading: Patience::of_reading(),
            compression: RwLock::default(),
            doubles: Mutex::default(),
        })
    }

    /// Opens the objects below `path`, making the directory when it is missing.
    ///
    /// # Errors
    /// When it cannot be made, or root would make it in the store of another user.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        if let Some(store) = path.parent() {
            sys::refuse_to_write_as_root(store)?;
        }
        sys::create_private_dir(path)?;
        Self::open(path)
    }

    /// How what it stores from now on is compressed.
    pub fn set_compression(&self, compression: Compression) {
        *self.compression.write() = compression;
    }

    pub(super) fn compression(&self) -> Compression {
        *self.compression.read()
    }

    /// Where the objects are.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(super) fn packs(&self) -> &Packs {
        &self.packs
    }

    /// Where an object is or would be: a file of its own, or a pack.
    pub fn object_path(&self, hash: &ContentHash) -> PathBuf {
        let name = relative_name(hash);
        let is_own = self.dir.try_stat(&name).is_ok_and(|stat| stat.is_some());
        let packed = if is_own { Ok(None) } else { self.packs.find(&self.dir, hash, false) };
        match packed {
            Ok(Some((pack, _))) => pack.path().to_owned(),
            _ => self.dir.path_of(&name),
        }
    }

    /// Makes everything stored so far durable, with one call.
    ///
    /// # Errors
    /// EIO when the kernel lost data.
    pub fn sync(&self) -> Result<(), StoreError> {
        Ok(self.dir.sync_file_system()?)
    }

    /// Does some work that writes to the store, flushing what is complete meanwhile.
    ///
    /// # Errors
    /// EIO when the kernel lost data.
    pub(crate) fn flush_during<T>(
        &self,
        work: impl FnOnce(&EarlyFlush) -> T,
    ) -> Result<T, StoreError> {
        Ok(EarlyFlush::during(&[&self.dir], work)?)
    }

    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }
}

impl LocalStore {
    /// As [`contains`](ObjectStore::contains), of what is small: never a list of chunks.
    pub(super) fn contains_chunk(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        if !self.has_no_own(hash) && self.has_own(hash, size)? {
            return Ok(true);
        }
        let packed = self.packs.find(&self.dir, hash, false)?;
        Ok(packed.is_some_and(|(_, span)| span.kind() == Kind::Whole && span.len() == size))
    }
}

impl ObjectSource for LocalStore {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        self.read_into(hash, max_bytes, &mut bytes)?;
        Ok(bytes)
    }
}

impl FileSource for LocalStore {
    /// Holes stay holes, and blocks are shared where the file system can.
    fn export(
        &self,
        hash: &ContentHash,
        size: u64,
        target: &File,
        transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError> {
        self.export(hash, size, target, transfer)
    }

    fn open_checked(
        &self,
        hash: &ContentHash,
        size: u64,
        transfer: &mut Transfer<'_>,
    ) -> Result<Box<dyn Read>, StoreError> {
        Ok(Box::new(self.open_intact(hash, size, transfer)?.into_reader()))
    }
}

impl ObjectStore for LocalStore {
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        if !self.has_no_own(hash) && self.has_own(hash, size)? {
            self.note_found(hash);
            return Ok(true);
        }
        match self.packs.find(&self.dir, hash, false) {
            Ok(None) => Ok(false),
            Ok(Some((pack, span))) => match span.kind() {
                Kind::Whole => Ok(span.len() == size),
                Kind::ChunkList => self.has_all_chunks(hash, size, &pack, span),
            },
            // A fan-out directory that is not found cannot be relied on.
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        let hash = ContentHash::of(bytes);
        if self.contains(&hash, bytes.len() as u64)? {
            return Ok(Stored { hash, is_new: false });
        }
        let is_new = self.write_own(&hash, bytes)?;
        Ok(Stored { hash, is_new })
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        import::import(self, source, size, sparse, transfer)
    }
}

/// `ab/cd1234…`
pub(super) fn relative_name(hash: &ContentHash) -> [u8; 65] {
    let mut name = [b'/'; 65];
    let bytes = hash.as_bytes();
    // The slices have exactly twice the length of what is encoded, so this cannot fail.
    let _ = hex::encode_to_slice(&bytes[..1], &mut name[..2]);
    let _ = hex::encode_to_slice(&bytes[1..], &mut name[3..]);
    name
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests;
