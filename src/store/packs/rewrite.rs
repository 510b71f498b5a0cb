//! Taking objects out of packs, by copying the others into new ones.

use std::collections::HashSet;
use std::sync::Arc;

use super::format::MAX_PACKED_BYTES;
use super::pack::salvage;
use super::writer::PackWriter;
use super::{Entry, PACKS_DIR, Pack, Packs};
use crate::layout;
use crate::object::ContentHash;
use crate::store::{LocalStore, StoreError, StoreLock};
use crate::sys::Dir;

/// The records of a new pack have at least so many bytes, if there is so much.
const PACK_BYTES: u64 = 128 << 20;

/// A pack that goes, and what of it stays.
#[derive(Debug)]
pub(crate) struct Rewrite {
    /// The pack.
    pub(crate) pack: Arc<Pack>,
    /// Its objects that are copied.
    pub(crate) kept: Vec<Entry>,
}

/// Copies what stays into new packs, makes these durable, and removes the old ones. Nobody may be
/// writing: the lock is the exclusive one. Whatever an object's bytes are, they are copied: damage
/// stays, and stays visible.
///
/// # Errors
/// When a pack cannot be read or written. All objects are then still there, some twice.
pub(super) fn rewrite(
    objects: &Dir,
    packs: &Packs,
    rewrites: &[Rewrite],
    _lock: &StoreLock,
) -> Result<(), StoreError> {
    let mut writer = PackWriter::new(objects);
    let (mut copied, mut bytes, mut is_new) = (HashSet::new(), Vec::new(), false);
    for Rewrite { pack, kept } in rewrites {
        // In the order in which they lie there.
        let mut kept: Vec<_> = kept.iter().collect();
        kept.sort_unstable_by_key(|entry| entry.span.offset);
        for entry in kept {
            if !copied.insert(entry.hash) {
                continue;
            }
            pack.read(entry.span, &mut bytes)?;
            // One that was cut short keeps its length, and is as damaged as it was.
            bytes.resize(entry.span.len as usize, 0);
            writer.append(&entry.hash, &bytes);
            if writer.is_chunk_full() {
                writer.take_chunk(Vec::new())?.write(objects)?;
            }
            if writer.bytes() >= PACK_BYTES {
                std::mem::replace(&mut writer, PackWriter::new(objects)).seal()?;
                is_new = true;
            }
        }
    }
    if writer.len() > 0 {
        writer.seal()?;
        is_new = true;
    }
    if is_new {
        // A power failure must not take both.
        objects.sync_file_system()?;
    }
    if rewrites.is_empty() {
        return Ok(());
    }
    let dir = objects.open_dir(PACKS_DIR)?;
    for Rewrite { pack, .. } in rewrites {
        match dir.remove_file(pack.name()) {
            Err(error) if !error.is_gone() => return Err(error.into()),
            _ => {}
        }
    }
    packs.refresh(objects)?;
    Ok(())
}

impl LocalStore {
    /// Replaces packs by new ones with what is kept of them. For the lock and the errors see
    /// [`rewrite`].
    pub(crate) fn rewrite_packs(
        &self,
        rewrites: &[Rewrite],
        lock: &StoreLock,
    ) -> Result<(), StoreError> {
        rewrite(self.dir(), self.packs(), rewrites, lock)
    }

    /// Takes the objects that were [quarantined](Self::quarantine) out of their packs.
    ///
    /// # Errors
    /// As [`rewrite`]; nothing is lost then.
    pub(crate) fn purge_packs(&self, lock: &StoreLock) -> Result<(), StoreError> {
        let dropped = self.packs().dropped();
        if dropped.is_empty() {
            return Ok(());
        }
        let mut rewrites = Vec::new();
        for pack in self.packs().all(self.dir())? {
            let mut kept = pack.entries()?;
            let all = kept.len();
            kept.retain(|entry| !dropped.contains(&entry.hash));
            if kept.len() < all {
                rewrites.push(Rewrite { pack, kept });
            }
        }
        self.rewrite_packs(&rewrites, lock)?;
        self.packs().forget_dropped();
        Ok(())
    }

    /// Takes what is intact out of packs that cannot be opened or have a damaged index, and moves
    /// these into quarantine. Gives the names of what can be read again.
    ///
    /// # Errors
    /// When the disk is full or broken; nothing is lost then.
    pub(crate) fn salvage_packs(
        &self,
        lock: &StoreLock,
    ) -> Result<HashSet<ContentHash>, StoreError> {
        let mut damaged: Vec<Box<[u8]>> = Vec::new();
        for pack in self.packs().all(self.dir())? {
            match pack.entries() {
                Ok(_) => {}
                Err(error) if error.is_damage() => damaged.push(pack.name().into()),
                Err(error) => return Err(error),
            }
        }
        damaged.extend(self.packs().unreadable().into_iter().map(|pack| pack.name));
        let mut salvaged = HashSet::new();
        for name in damaged {
            salvaged.extend(self.salvage(&name, lock)?);
        }
        Ok(salvaged)
    }

    fn salvage(&self, name: &[u8], _lock: &StoreLock) -> Result<HashSet<ContentHash>, StoreError> {
        let dir = self.dir().open_dir(PACKS_DIR)?;
        let mut writer = PackWriter::new(self.dir());
        let mut taken = HashSet::new();
        salvage(&dir, name, |hash, bytes| {
            debug_assert!(bytes.len() as u64 <= MAX_PACKED_BYTES);
            if !taken.contains(hash) && !self.has_object(hash)? {
                taken.insert(*hash);
                writer.append(hash, bytes);
                if writer.is_chunk_full() {
                    writer.take_chunk(Vec::new())?.write(self.dir())?;
                }
            }
            Ok(())
        })?;
        if writer.len() > 0 {
            tracing::warn!("{} objects were taken out of a damaged pack", writer.len());
            writer.seal()?;
        }
        self.sync()?;
        let quarantine = self.make_quarantine()?;
        let aside = [layout::DAMAGED_PACK_PREFIX.as_bytes(), name].concat();
        dir.rename_new(name, &quarantine, &aside)?;
        self.packs().refresh(self.dir())?;
        Ok(taken)
    }

    fn has_object(&self, hash: &ContentHash) -> Result<bool, StoreError> {
        match self.open_object(hash) {
            Ok(_) => Ok(true),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
