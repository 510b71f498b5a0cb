//! A store in memory, for tests of everything above the store.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::{
    FileSource, ImportError, Imported, ObjectSource, ObjectStore, StoreError, Stored, Transfer,
};
use crate::object::{ContentHash, PieceHasher};
use crate::sys::IoContext;

/// Objects in a map.
#[derive(Debug, Default)]
pub struct MemoryStore {
    objects: Mutex<HashMap<ContentHash, Vec<u8>>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl ObjectSource for MemoryStore {
    fn read(&self, hash: &ContentHash, _max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let missing = || StoreError::Missing { hash: *hash, path: PathBuf::from("memory") };
        self.objects.lock().get(hash).cloned().ok_or_else(missing)
    }
}

impl FileSource for MemoryStore {
    fn export(
        &self,
        hash: &ContentHash,
        size: u64,
        target: &File,
        _transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError> {
        let path = Path::new("memory");
        Ok(target.write_all_at(&self.read(hash, size)?, 0).at("write an object of", path)?)
    }

    fn open_checked(
        &self,
        hash: &ContentHash,
        size: u64,
        _transfer: &mut Transfer<'_>,
    ) -> Result<Box<dyn Read>, StoreError> {
        Ok(Box::new(Cursor::new(self.read(hash, size)?)))
    }
}

impl ObjectStore for MemoryStore {
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        Ok(self.objects.lock().get(hash).is_some_and(|bytes| bytes.len() as u64 == size))
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        let hash = ContentHash::of(bytes);
        let is_new = self.objects.lock().insert(hash, bytes.to_vec()).is_none();
        Ok(Stored { hash, is_new })
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        _sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        let bytes = transfer.read_small(source, size).map_err(ImportError::Source)?;
        let Stored { hash, is_new } = self.write(bytes)?;
        let mut hasher = PieceHasher::new(bytes.len() as u64);
        hasher.update(bytes);
        let midstates = hasher.finish().1;
        let size = bytes.len() as u64;
        let new_bytes = if is_new { size } else { 0 };
        Ok(Imported { hash, size, is_new, new_bytes, midstates })
    }
}
