//! A store that writes nothing to the disk: captures of a plan, on top of the stored objects.

use std::fs::File;

use super::import::hash_object;
use super::{
    ImportError, Imported, LocalStore, MemoryStore, ObjectSource, ObjectStore, StoreError, Stored,
    Transfer,
};
use crate::object::ContentHash;

/// Reads from a store on disk, keeps new trees in memory, and only hashes the contents of files.
#[derive(Debug)]
pub struct OverlayStore<'a> {
    base: &'a LocalStore,
    trees: MemoryStore,
}

impl<'a> OverlayStore<'a> {
    /// An empty layer on top of `base`.
    pub fn new(base: &'a LocalStore) -> Self {
        Self { base, trees: MemoryStore::new() }
    }

    /// The entries of the layer.
    #[cfg(feature = "mount")]
    pub(crate) fn into_layer(self) -> MemoryStore {
        self.trees
    }
}

impl ObjectSource for OverlayStore<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match self.trees.read(hash, max_bytes) {
            Err(StoreError::Missing { .. }) => self.base.read(hash, max_bytes),
            other => other,
        }
    }
}

impl ObjectStore for OverlayStore<'_> {
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        Ok(self.trees.contains(hash, size)? || self.base.contains(hash, size)?)
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        let hash = ContentHash::of(bytes);
        if self.base.contains(&hash, bytes.len() as u64)? {
            return Ok(Stored { hash, is_new: false });
        }
        self.trees.write(bytes)
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        Ok(hash_object(source, size, sparse, transfer)?.imported(false))
    }
}
