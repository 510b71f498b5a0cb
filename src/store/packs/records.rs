//! Whether every byte of a pack between its header and its index belongs to a block.
//!
//! Readers find objects by the index, and names prove what they read. A repair of a pack that lost
//! its index needs the blocks, and several encodings decompress to the same bytes. So `verify`
//! compares each block, as it is stored, with its checksum in the index. Blocks follow each other
//! without a gap, so with the checksum of the index no byte of a pack is unproved.

use std::cell::RefCell;

use rayon::prelude::*;

use super::pack::{Pack, corrupt};
use crate::object::ContentHash;
use crate::store::StoreError;
use crate::sys::{self, IoContext};

impl Pack {
    /// Checks the index and the blocks as they are stored.
    ///
    /// # Errors
    /// A failed read, or [`StoreError::CorruptPack`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.check_index()?;
        let table = self.table()?;
        self.blocks().par_iter().zip(&table).try_for_each(|(block, listed)| {
            thread_local! {
                static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
            }
            STORED.with_borrow_mut(|stored| {
                stored.resize((block.file_end() - block.file_at) as usize, 0);
                let len =
                    sys::read_full_at(&self.file, stored, block.file_at).at("read", &self.path)?;
                let is_right = stored.starts_with(&listed.header())
                    && ContentHash::of(&stored[..len]) == listed.checksum;
                if is_right { Ok(()) } else { Err(corrupt(&self.path, "a block was changed")) }
            })
        })
    }
}
