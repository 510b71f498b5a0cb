//! Two sources of objects as one: two sessions may keep their objects in different places.

use super::{ObjectSource, StoreError};
use crate::object::ContentHash;

/// Reads what the first does not have from the second.
#[derive(Clone, Copy)]
pub struct EitherSource<'a> {
    /// Asked first.
    pub first: &'a dyn ObjectSource,
    /// Asked for what the first does not have.
    pub second: &'a dyn ObjectSource,
}

impl ObjectSource for EitherSource<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match self.first.read(hash, max_bytes) {
            Err(StoreError::Missing { .. }) => self.second.read(hash, max_bytes),
            other => other,
        }
    }
}

impl std::fmt::Debug for EitherSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EitherSource").finish_non_exhaustive()
    }
}
