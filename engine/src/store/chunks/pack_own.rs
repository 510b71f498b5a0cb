//! Packing long objects that were stored as they are, so that no user had to wait for it.
//!
//! To compress a long file takes several times as long as to copy it. So a first baseline copies,
//! and this is done beside the command. An object is in the store all the time: before its own file
//! goes, its list of chunks is durable and was read back. So others may read and write meanwhile,
//! and a crash leaves at worst an object with both.

use super::LONGEST_BYTES;
use crate::object::ContentHash;
use crate::progress::{NoProgress, Progress};
use crate::store::local::OBJECT_MODE;
use crate::store::packs::{MAX_PACKED_BYTES, Packer};
use crate::store::{LocalStore, StoreError, StoreLock, Transfer};
use crate::sys::{self, TempFile};

/// Contents that are packed at once. Work on them is lost when it is cancelled, and the collector
/// waits for them.
const BATCH_BYTES: u64 = 64 << 20;

/// The files whose objects are in packs now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PackedOwn {
    pub(crate) files: u64,
    /// Bytes that they had.
    pub(crate) bytes: u64,
}

impl LocalStore {
    /// Whether contents with files of their own share blocks with the files that they come from.
    ///
    /// # Errors
    /// When no file can be made.
    pub fn shares_blocks(&self) -> Result<bool, StoreError> {
        let source = TempFile::new(self.dir(), OBJECT_MODE)?;
        Ok(TempFile::new(self.dir(), OBJECT_MODE)?.clone_from_file(source.file())?)
    }

    /// Packs the long objects that have files of their own, where these share no blocks. Ends early
    /// when it is cancelled, and when the collector wants the store.
    ///
    /// # Errors
    /// When the store cannot be read or written. Nothing is lost then.
    pub(crate) fn pack_long_files(&self, progress: &dyn Progress) -> Result<PackedOwn, StoreError> {
        if self.shares_blocks()? { Ok(PackedOwn::default()) } else { self.pack_all_long(progress) }
    }

    /// The same on any file system.
    pub(crate) fn pack_all_long(&self, progress: &dyn Progress) -> Result<PackedOwn, StoreError> {
        let mut done = PackedOwn::default();
        let mut left = self.long_own_files()?;
        while !left.is_empty() {
            let Some(lock) = self.try_lock_shared()? else { break };
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while bytes < BATCH_BYTES
                && let Some(next) = left.pop()
            {
                bytes += next.1;
                batch.push(next);
            }
            match self.pack_batch(&batch, &lock, progress) {
                Ok(packed) => {
                    done.files += packed.files;
                    done.bytes += packed.bytes;
                }
                Err(StoreError::Cancelled) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn pack_batch(
        &self,
        batch: &[(ContentHash, u64)],
        lock: &StoreLock,
        progress: &dyn Progress,
    ) -> Result<PackedOwn, StoreError> {
        let packer = Packer::new(self, lock);
        let (mut buffer, mut packed) = (Vec::new(), Vec::new());
        for (hash, size) in batch {
            // Others may have packed it meanwhile.
            let Some(file) = self.open_own_file(hash, *size)? else { continue };
            let sparse = sys::stat_open_file(&file, self.path())?.is_sparse();
            let mut transfer = Transfer::new(&mut buffer, progress);
            if packer.pack_own(hash, &file, *size, sparse, &mut transfer)? {
                packed.push((hash, *size));
            } else {
                // To be found by a verification, and mended by a repair.
                tracing::warn!(object = %hash, "a damaged object stays as it is");
            }
        }
        packer.finish()?;
        self.drop_own(packed, lock, progress)
    }

    /// Removes the own files of long objects that have lists of chunks, after these are durable and
    /// were read back.
    fn drop_own(
        &self,
        packed: Vec<(&ContentHash, u64)>,
        lock: &StoreLock,
        progress: &dyn Progress,
    ) -> Result<PackedOwn, StoreError> {
        // A power failure must not take both.
        self.sync()?;
        let (mut done, mut buffer) = (PackedOwn::default(), Vec::new());
        for (hash, size) in packed {
            // A stop now would leave both. It has to wait for a batch, and not for a longer file.
            let mut transfer = match size > BATCH_BYTES {
                true => Transfer::new(&mut buffer, progress),
                false => Transfer::unwatched(&mut buffer),
            };
            let verified = self.open_packed(hash).and_then(|object| {
                object.check_size(size)?;
                object.verify(&mut transfer)
            });
            match verified {
                Ok(()) => self.remove(hash, lock)?,
                // A chunk that was there before is not what it should be.
                Err(error) if error.is_damage() => {
                    tracing::warn!("an object keeps its own file: {error}");
                    continue;
                }
                Err(error) => return Err(error),
            }
            done.files += 1;
            done.bytes += size;
        }
        Ok(done)
    }

    /// Removes the own files of long objects whose chunks a snapshot has stored, too: nothing needs
    /// them. A person waits for this, so what is more than a batch is left to
    /// [`pack_long_files`](Self::pack_long_files). What fails leaves both.
    pub(crate) fn drop_doubles(&self, lock: &StoreLock) {
        let mut doubles = self.take_doubles();
        let mut left = BATCH_BYTES;
        doubles.retain(|(_, size)| {
            let is_in_time = *size <= left;
            left -= if is_in_time { *size } else { 0 };
            is_in_time
        });
        if doubles.is_empty() {
            return;
        }
        let packed = doubles.iter().map(|(hash, size)| (hash, *size)).collect();
        if let Err(error) = self.drop_own(packed, lock, &NoProgress) {
            tracing::warn!("long files stay beside their chunks: {error}");
        }
    }

    /// Long objects with their own files, and their lengths.
    pub(super) fn long_own_files(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        let mut long = Vec::new();
        for prefix in 0..=u8::MAX {
            let found = self.objects_with_prefix(prefix, |_| true)?.into_iter();
            let found = found.filter(|found| {
                (MAX_PACKED_BYTES + 1..=LONGEST_BYTES).contains(&found.plain_bytes)
            });
            long.extend(found.map(|found| (found.hash, found.plain_bytes)));
        }
        Ok(long)
    }
}
