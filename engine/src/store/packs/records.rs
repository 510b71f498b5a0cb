//! Whether every byte of a pack between its header and its index belongs to an object or a block.
//!
//! Readers find objects by the index, and names prove what they read. A repair of a pack that lost
//! its index needs more: the lengths of blocks, and the records in them. So `verify` compares each
//! block, as it is stored, with its checksum in the index. Blocks follow each other without a gap,
//! so with the checksum of the index no byte of a pack is unproved. A changed byte that damages an
//! object is a matter of that object, which is mended by itself.

use std::cell::RefCell;

use rayon::prelude::*;

use super::pack::{Pack, corrupt};
use crate::object::ContentHash;
use crate::store::StoreError;
use crate::sys::{self, IoContext};

impl Pack {
    /// Checks the index, and what is not objects in the blocks.
    ///
    /// # Errors
    /// A failed read, or [`StoreError::CorruptPack`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.check_index()?;
        let table = self.table()?;
        let blocks = self.blocks().par_iter().zip(&table).enumerate();
        let changed = blocks.map(|(number, (block, listed))| {
            thread_local! {
                static STORED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
            }
            STORED.with_borrow_mut(|stored| {
                stored.resize((block.file_end() - block.file_at) as usize, 0);
                let len =
                    sys::read_full_at(&self.file, stored, block.file_at).at("read", &self.path)?;
                if !stored.starts_with(&listed.header()) {
                    return Err(corrupt(&self.path, "a block does not begin as one"));
                }
                let is_right = ContentHash::of(&stored[..len]) == listed.checksum;
                Ok((!is_right).then_some(number))
            })
        });
        let changed: Vec<_> = changed.collect::<Result<_, _>>()?;
        let changed: Vec<usize> = changed.into_iter().flatten().collect();
        if changed.is_empty() { Ok(()) } else { self.check_changed(&changed) }
    }

    /// Checks that each of the changed blocks has an object that is damaged by it.
    fn check_changed(&self, changed: &[usize]) -> Result<(), StoreError> {
        let entries = self.entries_in_order()?;
        for number in changed {
            let in_block = entries.iter().filter(|entry| self.block_of(entry.span) == *number);
            let (mut buffer, mut is_damage_of_object) = (Vec::new(), false);
            for entry in in_block {
                is_damage_of_object |= !self.is_intact(entry, &mut buffer)?;
            }
            if !is_damage_of_object {
                return Err(corrupt(&self.path, "what stands between its objects was changed"));
            }
        }
        Ok(())
    }
}
