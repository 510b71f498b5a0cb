//! Taking objects out of packs, by copying the others into new ones.

use std::collections::HashSet;
use std::sync::Arc;

use super::block::BLOCK_HEADER_BYTES;
use super::writer::{Limits, PackWriter};
use super::{Entry, Kind, Pack};
use crate::layout;
use crate::object::ContentHash;
use crate::store::compression::Compression;
use crate::store::{LocalStore, StoreError, StoreLock};
use crate::sys::{self, Dir};

/// Packs below this length are small, in bytes.
pub const SMALL_PACK_BYTES: u64 = 16 << 20;
/// Maximum number of small packs, after a snapshot that made one.
const MAX_SMALL_PACKS: usize = 128;

/// A pack is small enough when it would lose less than one in so many bytes.
const WORTH_PACKING: u64 = 8;

impl Pack {
    /// Whether a copy in a store would be smaller by much, because blocks are stored plain.
    pub(crate) fn would_shrink(&self, store: &LocalStore) -> bool {
        let plain = self.blocks().iter().filter(|block| block.stored == block.plain);
        let (mut records, mut packed) = (Vec::new(), Vec::new());
        let gained = plain.filter_map(|block| {
            records.resize(block.plain as usize, 0);
            let at = block.file_at + BLOCK_HEADER_BYTES as u64;
            sys::read_full_at(&self.file, &mut records, at).ok()?;
            packed.clear();
            let is_smaller = store.compression().compress(&records, &mut packed);
            is_smaller.then(|| records.len() as u64 - packed.len() as u64)
        });
        gained.sum::<u64>().saturating_mul(WORTH_PACKING) > self.bytes()
    }
}

/// A pack that goes, and what of it stays.
#[derive(Debug)]
pub struct Rewrite {
    /// The pack.
    pub(crate) pack: Arc<Pack>,
    /// Its objects that are copied.
    pub(crate) kept: Vec<Entry>,
}

impl LocalStore {
    /// Replaces packs by new ones with what is kept of them: copied, made durable, and only then
    /// are the old ones removed, those first of which nothing is kept. A damaged object is copied
    /// as it is, so that it is still found damaged, unless an intact one comes from another pack. A
    /// pack that the disk does not give back stays.
    ///
    /// If an object is left out, no process may be writing: the lock is the exclusive one.
    ///
    /// # Errors
    /// When a pack cannot be written. All objects are then still there, some twice.
    pub(crate) fn rewrite_packs(
        &self,
        rewrites: &[Rewrite],
        _lock: &StoreLock,
    ) -> Result<(), StoreError> {
        if rewrites.is_empty() {
            return Ok(());
        }
        let (empty, others): (Vec<_>, Vec<_>) =
            rewrites.iter().partition(|rewrite| rewrite.kept.is_empty());
        remove(self.dir(), empty.into_iter().map(|rewrite| &*rewrite.pack))?;
        let mut copy = Copy {
            objects: self.dir(),
            compression: self.compression(),
            writer: self.new_pack(),
            copied: HashSet::new(),
            damaged: Vec::new(),
            done: Vec::new(),
        };
        for Rewrite { pack, kept } in others {
            match copy.pack(pack, kept) {
                Err(error) if error.is_bad_disk() => tracing::warn!("{error}: the pack stays"),
                copied => copied?,
            }
        }
        copy.finish()?;
        self.packs().refresh(self.dir())
    }

    /// Takes the objects that were [set aside](Self::quarantine) out of their packs, durably.
    ///
    /// # Errors
    /// As `rewrite_packs`.
    pub fn purge_packs(&self, lock: &StoreLock) -> Result<(), StoreError> {
        let dropped = self.packs().dropped();
        if dropped.is_empty() {
            return Ok(());
        }
        // The objects that were copied into quarantine.
        self.sync()?;
        let mut rewrites = Vec::new();
        for pack in self.packs().all(self.dir())? {
            let mut kept = pack.entries()?;
            let all = kept.len();
            kept.retain(|entry| !dropped.contains(&(pack.name().into(), entry.hash)));
            if kept.len() < all {
                rewrites.push(Rewrite { pack, kept });
            }
        }
        self.rewrite_packs(&rewrites, lock)
    }

    /// Makes one pack of all that are small, if there are too many: each is an open file of every
    /// process that reads. Nothing is taken out, so others may read and write meanwhile.
    ///
    /// # Errors
    /// As [`rewrite_packs`](Self::rewrite_packs).
    pub(super) fn merge_small_packs(&self, lock: &StoreLock) -> Result<(), StoreError> {
        let mut small = self.packs().all(self.dir())?;
        small.retain(|pack| pack.bytes() < SMALL_PACK_BYTES);
        if small.len() <= MAX_SMALL_PACKS {
            return Ok(());
        }
        let mut rewrites = Vec::new();
        for pack in small {
            match pack.entries() {
                Ok(kept) => rewrites.push(Rewrite { pack, kept }),
                // A repair takes out of it what is whole.
                Err(error) if error.is_damage() => tracing::warn!("{error}"),
                Err(error) => return Err(error),
            }
        }
        self.rewrite_packs(&rewrites, lock)
    }
}

/// Copying packs into new ones.
struct Copy<'a> {
    objects: &'a Dir,
    compression: Compression,
    writer: PackWriter<'a>,
    /// The intact objects in new packs.
    copied: HashSet<ContentHash>,
    /// Objects whose bytes are not those of their names.
    damaged: Vec<(ContentHash, Kind, Vec<u8>)>,
    /// Packs of which all is copied.
    done: Vec<&'a Pack>,
}

impl<'a> Copy<'a> {
    fn pack(&mut self, pack: &'a Pack, kept: &[Entry]) -> Result<(), StoreError> {
        // In the order in which they lie there.
        let mut kept: Vec<_> = kept.iter().collect();
        kept.sort_unstable_by_key(|entry| entry.span.offset);
        let mut bytes = Vec::new();
        for entry in kept {
            if self.copied.contains(&entry.hash) {
                continue;
            }
            if !pack.is_intact(entry, &mut bytes)? {
                // One that was cut short keeps its length.
                bytes.resize(entry.span.len as usize, 0);
                self.damaged.push((entry.hash, entry.span.kind, bytes.clone()));
                continue;
            }
            self.append(&entry.hash, entry.span.kind, &bytes)?;
            self.copied.insert(entry.hash);
        }
        self.done.push(pack);
        // Not more than two packs' worth is there twice.
        if self.writer.is_full(&Limits::default()) { self.replace() } else { Ok(()) }
    }

    fn append(&mut self, hash: &ContentHash, kind: Kind, bytes: &[u8]) -> Result<(), StoreError> {
        if self.writer.is_full(&Limits::default()) {
            std::mem::replace(&mut self.writer, PackWriter::new(self.objects, self.compression))
                .seal()?;
        }
        self.writer.append_and_write(hash, kind, bytes)
    }

    /// Makes what was copied so far durable, and removes the packs that it came from.
    fn replace(&mut self) -> Result<(), StoreError> {
        if !self.damaged.is_empty() {
            // They wait for the end: an intact one may still come.
            return Ok(());
        }
        let writer =
            std::mem::replace(&mut self.writer, PackWriter::new(self.objects, self.compression));
        if !writer.is_empty() {
            writer.seal()?;
        }
        // A power failure must not take both.
        self.objects.sync_file_system()?;
        remove(self.objects, self.done.drain(..))
    }

    fn finish(mut self) -> Result<(), StoreError> {
        for (hash, kind, bytes) in std::mem::take(&mut self.damaged) {
            if !self.copied.contains(&hash) {
                self.append(&hash, kind, &bytes)?;
            }
        }
        if self.done.is_empty() { Ok(()) } else { self.replace() }
    }
}

fn remove<'p>(objects: &Dir, packs: impl Iterator<Item = &'p Pack>) -> Result<(), StoreError> {
    let dir = objects.open_dir(layout::PACKS.as_bytes())?;
    for pack in packs {
        match dir.remove_file(pack.name()) {
            Err(error) if !error.is_gone() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
