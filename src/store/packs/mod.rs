//! Packs: many small objects in one file.
//!
//! A file of its own costs an object an inode, a block and several system calls, which for the small
//! files that most trees consist of is more than all else that a snapshot does. So a snapshot that has
//! many new small objects writes them one after the other into a file, with an index at its end.
//!
//! ```text
//! objects/packs/<32 hexadecimal digits>     0400, see `format.rs`
//! ```
//!
//! Always true:
//!
//! - A pack appears complete or not at all, and is never written again. To take an object out, the
//!   others are copied into a new pack ([`rewrite`]), which is durable before the old one goes.
//! - An object that has a file of its own too is read from that. So a good copy takes the place of a
//!   damaged one in a pack at once.
//! - Who has the store's lock knows all packs: nothing that was removed before is counted on. Who
//!   has not looks again when it does not find an object.

mod format;
mod pack;
mod packer;
mod rewrite;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::RwLock;

pub(crate) use format::{Entry, Span};
pub(crate) use pack::Pack;
pub use packer::Packer;
pub(crate) use rewrite::Rewrite;
pub(super) use writer::PackWriter;

use super::StoreError;
use crate::object::ContentHash;
use crate::sys::Dir;

/// Where packs are, in the directory of objects.
const PACKS_DIR: &[u8] = b"packs";
const NAME_DIGITS: usize = 32;

/// More packs than this are not asked one after the other for long.
const FEW_PACKS: usize = 4;
/// So many objects are looked for before the indexes of many packs are read as a whole.
const SEARCHES_BEFORE_TABLE: usize = 512;
/// Entries of the table at the most: each takes about 64 bytes.
const MAX_TABLE_ENTRIES: usize = 1 << 20;

/// `packs/<name>`
fn name_of(random: [u8; 16]) -> Vec<u8> {
    [PACKS_DIR, b"/", hex::encode(random).as_bytes()].concat()
}

/// The packs of a store.
#[derive(Debug, Default)]
pub(super) struct Packs {
    known: RwLock<Known>,
    /// Objects that were looked for among many packs.
    searches: AtomicUsize,
}

#[derive(Debug, Default)]
struct Known {
    is_loaded: bool,
    /// The newest first: what a snapshot needs, it mostly wrote itself.
    packs: Vec<Arc<Pack>>,
    unreadable: Vec<UnreadablePack>,
    /// Objects that were found damaged and count as gone.
    dropped: HashSet<ContentHash>,
    /// Pack and place of every object, once many were looked for.
    table: Option<HashMap<ContentHash, (u32, Span)>>,
}

/// What has the name of a pack and is none.
#[derive(Debug, Clone)]
pub(super) struct UnreadablePack {
    name: Box<[u8]>,
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
        let mut known = self.known.read();
        if !known.is_loaded {
            drop(known);
            self.refresh(objects)?;
            known = self.known.read();
        } else if known.packs.len() > FEW_PACKS
            && known.table.is_none()
            && self.searches.fetch_add(1, Relaxed) == SEARCHES_BEFORE_TABLE
        {
            drop(known);
            self.known.write().make_table();
            known = self.known.read();
        }
        let found = known.find(hash)?;
        drop(known);
        if found.is_none() && look_again && self.refresh(objects)? {
            return self.known.read().find(hash);
        }
        Ok(found)
    }

    /// Looks which packs there are now. Whether others are there than before.
    ///
    /// # Errors
    /// When they cannot be listed, or one is of a version that this program does not know.
    pub(super) fn refresh(&self, objects: &Dir) -> Result<bool, StoreError> {
        let mut known = self.known.write();
        known.is_loaded = true;
        let mut has_changed = false;
        loop {
            let names = names(objects)?;
            if known.is_up_to_date(&names) {
                return Ok(has_changed);
            }
            has_changed = true;
            known.table = None;
            let is_there = |name: &[u8]| names.iter().any(|other| **other == *name);
            known.packs.retain(|pack| is_there(pack.name()));
            known.unreadable.retain(|pack| is_there(&pack.name));
            known.open_new(objects, names)?;
            // Again, until nothing has come or gone while it was looked at: what a pack that went held is
            // in one that came.
        }
    }

    /// All packs that can be read.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub(super) fn all(&self, objects: &Dir) -> Result<Vec<Arc<Pack>>, StoreError> {
        self.refresh(objects)?;
        Ok(self.known.read().packs.clone())
    }

    /// Whether something has the name of a pack and is none.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(super) fn has_unreadable(&self, objects: &Dir) -> Result<bool, StoreError> {
        let known = self.known.read();
        if known.is_loaded {
            return Ok(!known.unreadable.is_empty());
        }
        drop(known);
        self.refresh(objects)?;
        Ok(!self.known.read().unreadable.is_empty())
    }

    /// What has the name of a pack and is none, as far as is known.
    pub(super) fn unreadable(&self) -> Vec<UnreadablePack> {
        self.known.read().unreadable.clone()
    }

    /// From now on, an object counts as not being in any pack; the next [`rewrite`] leaves it out.
    pub(super) fn drop_object(&self, hash: &ContentHash) {
        self.known.write().dropped.insert(*hash);
    }

    /// What was dropped since the last rewrite.
    pub(super) fn dropped(&self) -> HashSet<ContentHash> {
        self.known.read().dropped.clone()
    }

    fn forget_dropped(&self) {
        self.known.write().dropped.clear();
    }
}

impl Known {
    fn find(&self, hash: &ContentHash) -> Result<Option<(Arc<Pack>, Span)>, StoreError> {
        if self.packs.is_empty() || self.dropped.contains(hash) {
            return Ok(None);
        }
        if let Some(table) = &self.table {
            let found = table.get(hash);
            return Ok(found.map(|(pack, span)| (self.packs[*pack as usize].clone(), *span)));
        }
        for pack in &self.packs {
            if let Some(span) = pack.find(hash)? {
                return Ok(Some((pack.clone(), span)));
            }
        }
        Ok(None)
    }

    /// Reads all indexes, unless they are too long. What is wrong with one is found out as before.
    fn make_table(&mut self) {
        let count = self.packs.iter().map(|pack| pack.len()).sum::<usize>();
        if count > MAX_TABLE_ENTRIES {
            return;
        }
        let mut table = HashMap::with_capacity(count);
        // The newest last, so that it is found first.
        for (number, pack) in self.packs.iter().enumerate().rev() {
            let Ok(entries) = pack.entries() else { return };
            let number = number as u32;
            table.extend(entries.into_iter().map(|entry| (entry.hash, (number, entry.span))));
        }
        self.table = Some(table);
    }

    fn is_up_to_date(&self, names: &[Box<[u8]>]) -> bool {
        let is_listed = |name: &[u8]| names.iter().any(|other| **other == *name);
        self.packs.len() + self.unreadable.len() == names.len()
            && self.packs.iter().all(|pack| is_listed(pack.name()))
            && self.unreadable.iter().all(|pack| is_listed(&pack.name))
    }

    fn open_new(&mut self, objects: &Dir, names: Vec<Box<[u8]>>) -> Result<(), StoreError> {
        let Some(dir) = packs_dir(objects)? else { return Ok(()) };
        for name in names {
            let is_known = self.packs.iter().any(|pack| *pack.name() == *name)
                || self.unreadable.iter().any(|pack| pack.name == name);
            if is_known {
                continue;
            }
            match Pack::open(&dir, &name) {
                Ok(pack) => self.packs.push(Arc::new(pack)),
                Err(StoreError::Io(error)) if error.is_gone() => {}
                Err(error @ StoreError::CorruptPack { .. }) => {
                    tracing::warn!("{error}");
                    self.unreadable.push(UnreadablePack { name });
                }
                Err(error) => return Err(error),
            }
        }
        self.packs.sort_by_key(|pack| std::cmp::Reverse(pack.stored_at()));
        Ok(())
    }
}

fn packs_dir(objects: &Dir) -> Result<Option<Dir>, StoreError> {
    match objects.open_dir(PACKS_DIR) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The names of all packs.
fn names(objects: &Dir) -> Result<Vec<Box<[u8]>>, StoreError> {
    let Some(dir) = packs_dir(objects)? else { return Ok(Vec::new()) };
    let is_pack =
        |name: &[u8]| name.len() == NAME_DIGITS && name.iter().all(|byte| byte.is_ascii_hexdigit());
    let names = dir.names()?.into_iter().map(|listed| listed.name);
    Ok(names.filter(|name| is_pack(name)).collect())
}
