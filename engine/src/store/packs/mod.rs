//! Packs: many small objects in one file.
//!
//! A file of its own costs an object an inode, a block and several system calls, which for the
//! small files that most trees consist of is more than all else that a snapshot does. So a snapshot
//! that has many new small objects writes them one after the other into a file, with an index at
//! its end.
//!
//! ```text
//! objects/packs/<32 hexadecimal digits>     0400, see `format.rs`
//! ```
//!
//! Always true:
//!
//! - A pack appears complete or not at all, and is never written again. To take an object out, the
//!   others are copied into a new pack ([`rewrite`]), which is durable before the old one goes.
//!   Only who has the store's lock exclusively takes objects out.
//! - An object that has a file of its own too is read from that. So a good copy takes the place of
//!   a damaged one in a pack at once.
//! - A holder of the store's lock lists the packs anew, so that no removed object is relied on. A
//!   reader without the lock lists them again when it does not find an object.

mod block;
mod cache;
mod filter;
mod format;
mod in_order;
mod of_store;
mod pack;
mod packer;
mod records;
mod rewrite;
mod salvage;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use foldhash::fast::RandomState;
use parking_lot::RwLock;
use rayon::prelude::*;

use cache::BlockCache;
pub use format::{Entry, MAX_PACKED_BYTES};
pub(crate) use format::{Kind, Span};
pub use pack::Pack;
pub use packer::{LongFiles, Packer};
pub use rewrite::{Rewrite, SMALL_PACK_BYTES};
pub use salvage::BadDisk;
use writer::PackWriter;

use super::{PackState, StoreError};
use crate::layout;
use crate::object::{ContentHash, FileTime};
use crate::sys::Dir;

const NAME_DIGITS: usize = 32;
/// Maximum number of looks at the list of packs while packs come and go.
const MAX_LOOKS: usize = 32;

/// More packs than this are not asked one after the other for long.
const FEW_PACKS: usize = 4;
/// So often packs are asked before the indexes of all are read as a whole.
const QUESTIONS_BEFORE_TABLE: usize = 2048;
/// Entries of the table at the most: each takes up to 115 bytes. A store with more has large packs,
/// and asking each costs less than the memory.
const MAX_TABLE_ENTRIES: usize = 1 << 18;

/// `packs/<name>`
fn name_of(random: [u8; 16]) -> Vec<u8> {
    [layout::PACKS.as_bytes(), b"/", hex::encode(random).as_bytes()].concat()
}

/// The packs of a store.
#[derive(Debug, Default)]
pub(super) struct Packs {
    known: RwLock<Known>,
    /// How often one of many packs was asked for an object.
    questions: AtomicUsize,
    cache: Arc<BlockCache>,
}

#[derive(Debug, Default)]
struct Known {
    is_loaded: bool,
    /// The newest first: a snapshot mostly needs objects that it wrote itself.
    packs: Vec<Arc<Pack>>,
    unreadable: Vec<Unreadable>,
    /// Packs in quarantine that were looked through: each once.
    tried: HashSet<Box<[u8]>>,
    /// Objects that were found damaged in a pack, and count as not being there.
    dropped: HashSet<(Box<[u8]>, ContentHash)>,
    /// Pack and place of every object, once many were looked for.
    table: Option<HashMap<ContentHash, (u32, Span), RandomState>>,
    is_table_tried: bool,
    /// Packs in which something may have been found or written since that was last forgotten, also
    /// those that are gone.
    seen: Vec<PackState>,
}

/// A file with the name of a pack that is no pack, or that the disk does not give.
#[derive(Debug, Clone)]
struct Unreadable {
    name: Box<[u8]>,
    /// The disk may yet give it.
    is_on_bad_disk: bool,
}

impl Unreadable {
    fn new(name: &[u8], error: &StoreError) -> Self {
        Self { name: name.into(), is_on_bad_disk: error.is_bad_disk() }
    }
}

impl Packs {
    /// The pack that has an object, and where. `look_again`: also look for packs that are new.
    ///
    /// # Errors
    /// When the packs cannot be listed, or an index cannot be read.
    pub(super) fn find(
        &self,
        objects: &Dir,
        hash: &ContentHash,
        look_again: bool,
    ) -> Result<Option<(Arc<Pack>, Span)>, StoreError> {
        self.load(objects)?;
        let found = self.search(hash)?;
        if found.is_none() && look_again {
            self.refresh(objects)?;
            return self.search(hash);
        }
        Ok(found)
    }

    /// All packs that have an object, and where, newest first. One that cannot tell is left out.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(super) fn find_all(
        &self,
        objects: &Dir,
        hash: &ContentHash,
    ) -> Result<Vec<(Arc<Pack>, Span)>, StoreError> {
        self.refresh(objects)?;
        let known = self.known.read();
        let there = known.packs.iter().filter(|pack| !known.is_dropped(pack, hash));
        Ok(there.filter_map(|pack| Some((pack.clone(), pack.find(hash).ok()??))).collect())
    }

    /// All packs that have an object, of those that are known.
    ///
    /// # Errors
    /// When the packs cannot be listed, or one of them cannot tell.
    pub(super) fn find_each(
        &self,
        objects: &Dir,
        hash: &ContentHash,
    ) -> Result<Vec<(Arc<Pack>, Span)>, StoreError> {
        self.load(objects)?;
        let known = self.known.read();
        if known.table.as_ref().is_some_and(|table| !table.contains_key(hash)) {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for pack in known.packs.iter().filter(|pack| !known.is_dropped(pack, hash)) {
            found.extend(pack.find(hash)?.map(|span| (pack.clone(), span)));
        }
        Ok(found)
    }

    /// Whether a pack that is known has an intact copy of an object.
    fn have_intact(&self, hash: &ContentHash, buffer: &mut Vec<u8>) -> bool {
        let known = self.known.read();
        let mut packs = known.packs.iter().filter(|pack| !known.is_dropped(pack, hash));
        packs.any(|pack| pack.holds_intact(hash, buffer).unwrap_or(false))
    }

    fn search(&self, hash: &ContentHash) -> Result<Option<(Arc<Pack>, Span)>, StoreError> {
        let mut known = self.known.read();
        if known.wants_table()
            && self.questions.fetch_add(known.packs.len(), Relaxed) >= QUESTIONS_BEFORE_TABLE
        {
            drop(known);
            self.known.write().make_table();
            known = self.known.read();
        }
        known.find(hash)
    }

    /// Reads the indexes of all packs, so that to find an object costs no call.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(super) fn index(&self, objects: &Dir) -> Result<(), StoreError> {
        self.load(objects)?;
        self.known.write().make_table();
        Ok(())
    }

    /// Looks which packs there are, unless that was done before.
    fn load(&self, objects: &Dir) -> Result<(), StoreError> {
        let is_loaded = self.known.read().is_loaded;
        if is_loaded { Ok(()) } else { self.refresh(objects) }
    }

    /// Looks which packs there are now.
    ///
    /// # Errors
    /// When they cannot be listed, or one is of a version that this program does not know.
    pub(super) fn refresh(&self, objects: &Dir) -> Result<(), StoreError> {
        let mut known = self.known.write();
        for _ in 0..MAX_LOOKS {
            let names = names(objects)?;
            if known.is_up_to_date(&names) {
                break;
            }
            (known.table, known.is_table_tried) = (None, false);
            self.questions.store(0, Relaxed);
            known.packs.retain(|pack| names.contains(pack.name()));
            known.unreadable.retain(|unreadable| names.contains(&unreadable.name));
            known.dropped.retain(|(pack, _)| names.contains(pack));
            known.open_new(objects, names, &self.cache)?;
            // Again, until no pack comes or goes during the listing: a new pack may hold the
            // objects of a removed one.
        }
        known.is_loaded = true;
        Ok(())
    }

    /// A pack got this name from this process. It may be gone by now.
    fn note_written(&self, name: [u8; 16]) {
        let mut known = self.known.write();
        if !known.seen.iter().any(|pack| pack.name == name) {
            // A state that no pack is ever in.
            known.seen.push(PackState { name, changed_at: FileTime::default() });
        }
    }

    /// Forgets which packs were seen, but for those that are known.
    pub(super) fn forget_seen(&self) {
        let mut known = self.known.write();
        known.seen = known.packs.iter().filter_map(|pack| pack.state()).collect();
    }

    /// The packs that are there, and those that were since others were
    /// [forgotten](Self::forget_seen).
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) fn seen(&self, objects: &Dir) -> Result<Vec<PackState>, StoreError> {
        self.refresh(objects)?;
        Ok(self.known.read().seen.clone())
    }

    /// All packs that can be read.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) fn all(&self, objects: &Dir) -> Result<Vec<Arc<Pack>>, StoreError> {
        self.refresh(objects)?;
        Ok(self.known.read().packs.clone())
    }

    /// As [`Pack::drop_cached_pages`], for all.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(super) fn drop_cached_pages(&self, objects: &Dir) -> Result<(), StoreError> {
        self.all(objects)?.iter().for_each(|pack| pack.drop_cached_pages());
        self.cache.clear();
        Ok(())
    }

    /// As [`BlockCache::set_room`].
    fn keep_blocks(&self, bytes: usize) {
        self.cache.set_room(bytes);
    }

    #[cfg(all(test, feature = "mount"))]
    fn blocks_read(&self) -> u64 {
        self.cache.loaded()
    }

    /// Packs that were changed, and what is wrong with each. Objects are not read.
    ///
    /// # Errors
    /// When the packs cannot be listed or read.
    pub(super) fn changed(&self, objects: &Dir) -> Result<Vec<(PathBuf, String)>, StoreError> {
        let check = |pack: Arc<Pack>| match pack.check() {
            Err(error) if error.is_damage() || error.is_bad_disk() => {
                Ok(Some((pack.path().to_owned(), reason_of(&error))))
            }
            checked => checked.map(|()| None),
        };
        let changed = self.all(objects)?.into_par_iter().map(check);
        Ok(changed.collect::<Result<Vec<_>, StoreError>>()?.into_iter().flatten().collect())
    }

    /// Whether something has the name of a pack and is none.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(super) fn has_unreadable(&self, objects: &Dir) -> Result<bool, StoreError> {
        self.load(objects)?;
        Ok(!self.known.read().unreadable.is_empty())
    }

    /// Files with the name of a pack that are no packs, as far as is known.
    fn unreadable(&self) -> Vec<Unreadable> {
        self.known.read().unreadable.clone()
    }

    /// Notes that a pack in quarantine was looked through.
    fn note_tried(&self, name: &[u8]) {
        self.known.write().tried.insert(name.into());
    }

    fn is_tried(&self, name: &[u8]) -> bool {
        self.known.read().tried.contains(name)
    }

    /// Takes a pack that counted as unreadable for one again.
    fn trust(&self, name: &[u8]) {
        self.known.write().unreadable.retain(|unreadable| *unreadable.name != *name);
    }

    /// From now on, an object counts as not being in a pack (`None`: in any).
    /// [`purge_packs`](super::LocalStore::purge_packs) takes it out.
    pub(super) fn drop_object(&self, pack: Option<&Pack>, hash: &ContentHash) {
        let mut known = self.known.write();
        let names: Vec<Box<[u8]>> = match pack {
            Some(pack) => vec![pack.name().into()],
            None => known.packs.iter().map(|pack| pack.name().into()).collect(),
        };
        known.dropped.extend(names.into_iter().map(|name| (name, *hash)));
    }

    /// From now on, a pack counts as unreadable.
    fn distrust(&self, pack: &Pack, error: &StoreError) {
        let mut known = self.known.write();
        (known.table, known.is_table_tried) = (None, false);
        known.packs.retain(|other| other.name() != pack.name());
        known.unreadable.push(Unreadable::new(pack.name(), error));
    }

    /// Whether something was dropped.
    fn has_dropped(&self) -> bool {
        !self.known.read().dropped.is_empty()
    }

    /// The dropped objects, by the names of the packs.
    fn dropped(&self) -> HashSet<(Box<[u8]>, ContentHash)> {
        self.known.read().dropped.clone()
    }
}

impl Known {
    fn find(&self, hash: &ContentHash) -> Result<Option<(Arc<Pack>, Span)>, StoreError> {
        if self.dropped.is_empty()
            && let Some(table) = &self.table
        {
            let found = table.get(hash);
            return Ok(found.map(|(pack, span)| (self.packs[*pack as usize].clone(), *span)));
        }
        let mut damage = None;
        for pack in &self.packs {
            match pack.find(hash) {
                Ok(Some(_)) if self.is_dropped(pack, hash) => {}
                Ok(Some(span)) => return Ok(Some((pack.clone(), span))),
                Ok(None) => {}
                // Another one may have it too.
                Err(error) => damage = damage.or(Some(error)),
            }
        }
        damage.map_or(Ok(None), Err)
    }

    /// Whether an object counts as not being in a pack.
    fn is_dropped(&self, pack: &Pack, hash: &ContentHash) -> bool {
        !self.dropped.is_empty() && self.dropped.contains(&(pack.name().into(), *hash))
    }

    fn wants_table(&self) -> bool {
        self.packs.len() > FEW_PACKS && !self.is_table_tried
    }

    /// Reads all indexes, unless they are too long. A defect of one is found out as before.
    fn make_table(&mut self) {
        if std::mem::replace(&mut self.is_table_tried, true) {
            return;
        }
        let count = self.packs.iter().map(|pack| pack.len()).sum::<usize>();
        if count > MAX_TABLE_ENTRIES {
            return;
        }
        let mut table = HashMap::with_capacity_and_hasher(count, RandomState::default());
        // The newest last, so that it is found first.
        for (number, pack) in self.packs.iter().enumerate().rev() {
            let Ok(entries) = pack.entries() else { return };
            let number = number as u32;
            table.extend(entries.into_iter().map(|entry| (entry.hash, (number, entry.span))));
        }
        self.table = Some(table);
    }

    fn is_up_to_date(&self, names: &BTreeSet<Box<[u8]>>) -> bool {
        self.packs.len() + self.unreadable.len() == names.len()
            && self.packs.iter().all(|pack| names.contains(pack.name()))
            && self.unreadable.iter().all(|unreadable| names.contains(&unreadable.name))
    }

    fn open_new(
        &mut self,
        objects: &Dir,
        names: BTreeSet<Box<[u8]>>,
        cache: &Arc<BlockCache>,
    ) -> Result<(), StoreError> {
        let Some(dir) = packs_dir(objects)? else { return Ok(()) };
        let known = self.packs.iter().map(|pack| pack.name());
        let known = known.chain(self.unreadable.iter().map(|unreadable| &*unreadable.name));
        let known: BTreeSet<Box<[u8]>> = known.map(Into::into).collect();
        for name in names.difference(&known) {
            match Pack::open(&dir, name, cache) {
                Ok(pack) => {
                    self.seen.extend(pack.state());
                    self.packs.push(Arc::new(pack));
                }
                Err(StoreError::Io(error)) if error.is_gone() => {}
                Err(error) if error.is_damage() || error.is_bad_disk() => {
                    tracing::warn!("{error}");
                    self.unreadable.push(Unreadable::new(name, &error));
                }
                Err(error) => return Err(error),
            }
        }
        self.packs.sort_by_key(|pack| std::cmp::Reverse(pack.stored_at()));
        Ok(())
    }
}

/// The text of an error about a pack, without the path where that is known.
fn reason_of(error: &StoreError) -> String {
    match error {
        StoreError::CorruptPack { reason, .. } => reason.clone(),
        error => error.to_string(),
    }
}

fn packs_dir(objects: &Dir) -> Result<Option<Dir>, StoreError> {
    match objects.open_dir(layout::PACKS.as_bytes()) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the directory of packs, made if it was not there.
fn make_packs_dir(objects: &Dir) -> Result<Dir, StoreError> {
    match objects.make_dir(layout::PACKS.as_bytes(), 0o700) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    Ok(objects.open_dir(layout::PACKS.as_bytes())?)
}

/// The names of all packs.
fn names(objects: &Dir) -> Result<BTreeSet<Box<[u8]>>, StoreError> {
    let Some(dir) = packs_dir(objects)? else { return Ok(BTreeSet::new()) };
    let names = dir.names()?.into_iter().map(|listed| listed.name);
    Ok(names.filter(|name| is_name(name)).collect())
}

/// Whether a pack may be called that.
fn is_name(name: &[u8]) -> bool {
    name.len() == NAME_DIGITS && name.iter().all(|byte| byte.is_ascii_hexdigit())
}
