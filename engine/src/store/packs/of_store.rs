//! The questions of the rest of the engine to a store about its packs.

use std::path::PathBuf;
use std::sync::Arc;

use super::writer::Sealed;
use super::{Pack, PackWriter};
#[cfg(test)]
use crate::store::local::relative_name;
use crate::store::{LocalStore, PackState, StoreError};

impl LocalStore {
    /// Begins a pack.
    pub(super) fn new_pack(&self) -> PackWriter<'_> {
        PackWriter::new(self.dir(), self.compression())
    }

    /// Gives a pack its name. Its objects can be found from now on.
    /// Returns the bytes that it takes on the disk.
    pub(super) fn seal(&self, pack: PackWriter<'_>) -> Result<u64, StoreError> {
        let Sealed { digits, bytes } = pack.seal()?;
        self.packs().refresh(self.dir())?;
        self.packs().note_written(digits);
        Ok(bytes)
    }

    /// All packs that can be read. An object that has a file of its own too is read from that.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) fn all_packs(&self) -> Result<Vec<Arc<Pack>>, StoreError> {
        self.packs().all(self.dir())
    }

    /// Which packs can be read, in which state.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) fn pack_states(&self) -> Result<Vec<PackState>, StoreError> {
        Ok(self.all_packs()?.iter().filter_map(|pack| pack.state()).collect())
    }

    /// All packs in the order in which they are asked for an object, for reading much of them; none
    /// where what has a file of its own is not known, or while some objects count as not being in a
    /// pack.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(crate) fn packs_to_read_in_order(&self) -> Result<Vec<Arc<Pack>>, StoreError> {
        let packs = self.all_packs()?;
        let may_be = self.knows_own() && !self.packs().has_dropped();
        Ok(if may_be { packs } else { Vec::new() })
    }

    /// Changed packs, with the defect of each. Objects are not read. A file that is no pack at all
    /// is not among them: a power failure may leave one, and its objects are missing.
    ///
    /// # Errors
    /// When the packs cannot be listed or read.
    pub(crate) fn changed_packs(&self) -> Result<Vec<(PathBuf, String)>, StoreError> {
        self.packs().changed(self.dir())
    }

    /// Whether there are packs from which [`salvage_packs`](Self::salvage_packs) has to take what
    /// is whole: those that were changed, and those that are none.
    ///
    /// # Errors
    /// When the packs cannot be listed or read.
    pub(crate) fn has_damaged_packs(&self) -> Result<bool, StoreError> {
        Ok(!self.changed_packs()?.is_empty() || self.packs().has_unreadable(self.dir())?)
    }

    /// Lets the kernel forget what it holds of packs in memory, so that the next reads are of the
    /// disk.
    pub(crate) fn drop_cached_packs(&self) -> Result<(), StoreError> {
        self.packs().drop_cached_pages(self.dir())
    }

    /// How many bytes of blocks of packs stay in memory, for whoever reads in an order of its own.
    #[cfg_attr(not(feature = "mount"), allow(dead_code, reason = "only the mount does"))]
    pub(crate) fn keep_blocks(&self, bytes: usize) {
        self.packs().keep_blocks(bytes);
    }

    /// How many blocks of packs were read so far.
    #[cfg(all(test, feature = "mount"))]
    pub(crate) fn blocks_read(&self) -> u64 {
        self.packs().blocks_read()
    }

    /// Closes packs that were removed: as long as they are open, they take space. For processes
    /// that live long and do not lock.
    #[cfg_attr(not(feature = "mount"), allow(dead_code, reason = "only the mount lives so long"))]
    pub(crate) fn forget_removed_packs(&self) {
        if let Err(error) = self.packs().refresh(self.dir()) {
            tracing::warn!("{error}");
        }
    }

    /// Puts what is said to be an object into a pack of its own.
    #[cfg(test)]
    pub(in crate::store) fn pack_one(
        &self,
        hash: &crate::object::ContentHash,
        kind: super::Kind,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let mut pack = self.new_pack();
        pack.append_and_write(hash, kind, bytes)?;
        self.seal(pack).map(drop)
    }

    /// From now on, an object counts as not being in any pack.
    #[cfg(test)]
    pub(in crate::store) fn drop_everywhere(&self, hash: &crate::object::ContentHash) {
        self.packs().drop_object(None, hash);
    }

    /// Gives every object a file of its own, as where blocks are shared and few objects are small.
    #[cfg(test)]
    pub(crate) fn unpack_all(&self) -> Result<(), StoreError> {
        use crate::store::ImportError;
        for pack in self.all_packs()? {
            for entry in pack.entries()? {
                let (object, mut buffer) = (self.open_object(&entry.hash)?, Vec::new());
                let mut transfer = crate::store::Transfer::unwatched(&mut buffer);
                match crate::store::import::copy_object_to_temp(self, &object, &mut transfer) {
                    Ok((temp, found)) => self.adopt(&temp, &found.hash, found.size)?,
                    Err(ImportError::Store(error)) => return Err(error),
                    Err(ImportError::Source(error)) => panic!("{error}"),
                };
            }
            let name = [crate::layout::PACKS.as_bytes(), b"/", pack.name()].concat();
            self.dir().remove_file(&name)?;
        }
        self.packs().refresh(self.dir())
    }

    /// Moves every object that has a file of its own into one pack.
    #[cfg(test)]
    pub(crate) fn pack_all(&self) -> Result<(), StoreError> {
        use crate::store::ObjectSource;
        let mut own = Vec::new();
        self.for_each_object(|found| {
            own.push(found.hash);
            Ok::<_, StoreError>(())
        })?;
        let mut pack = self.new_pack();
        for hash in &own {
            pack.append_and_write(hash, super::Kind::Whole, &self.read(hash, u64::MAX)?)?;
        }
        self.seal(pack)?;
        own.iter().try_for_each(|hash| Ok(self.dir().remove_file(&relative_name(hash))?))
    }
}
