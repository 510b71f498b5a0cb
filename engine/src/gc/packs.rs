//! Which packs are rewritten, and what goes with them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rayon::prelude::*;

use super::{CleanupError, CleanupOptions};
use crate::object::ContentHash;
use crate::store::{FoundObject, LocalStore, Pack, PackEntry, PackRewrite, SMALL_PACK_BYTES};

/// A pack is rewritten when one of so many bytes of it is unneeded.
const WORTH_REWRITING: u64 = 5;
/// More small packs than this become one: looking for an object asks each of them.
const MANY_SMALL_PACKS: usize = 64;

/// Whether an object is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Kept,
    /// Unneeded, and too young to go.
    Young,
    Garbage,
}

/// The space to free in packs.
#[derive(Debug, Default)]
pub(super) struct Packs {
    /// The treatment of the packs that go.
    pub(super) rewrites: Vec<PackRewrite>,
    /// The objects that go with them.
    pub(super) garbage: Vec<FoundObject>,
    /// Garbage in packs that stay.
    pub(super) left: Amount,
    pub(super) young: Amount,
    /// Bytes by which compression makes what is needed smaller.
    pub(super) spared: u64,
}

/// Objects and their bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Amount {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Amount {
    fn add(&mut self, size: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(size);
    }

    fn absorb(&mut self, other: Self) {
        self.count += other.count;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A pack, sorted by what is needed.
struct Sorted {
    pack: Arc<Pack>,
    kept: Vec<PackEntry>,
    garbage: Vec<FoundObject>,
    /// Bytes of the records that are garbage, or copies of what other packs have.
    garbage_bytes: u64,
    young: Amount,
    spared: u64,
}

impl Packs {
    /// Looks at every pack that can be read. `need` says of an object whether it is needed.
    pub(super) fn new(
        store: &LocalStore,
        options: &CleanupOptions<'_>,
        need: impl Fn(&FoundObject) -> Need + Sync,
    ) -> Result<Self, CleanupError> {
        let sorted = store.all_packs()?.into_par_iter().map(|pack| {
            if options.progress.is_cancelled() {
                return Err(CleanupError::Cancelled);
            }
            Ok(sort(pack, &need))
        });
        let mut sorted: Vec<_> =
            sorted.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        leave_out_copies(&mut sorted)?;
        let is_small = |pack: &Sorted| pack.pack.bytes() < SMALL_PACK_BYTES;
        let are_many = sorted.iter().filter(|pack| is_small(pack)).count() > MANY_SMALL_PACKS;
        let mut packs = Self::default();
        for sorted in sorted {
            packs.young.absorb(sorted.young);
            packs.spared += sorted.spared;
            let is_worth_it = match options.compact {
                true => sorted.garbage_bytes > 0 || sorted.pack.would_shrink(store),
                false => {
                    sorted.garbage_bytes.saturating_mul(WORTH_REWRITING)
                        >= sorted.pack.records_bytes()
                }
            };
            if is_worth_it || (are_many && is_small(&sorted)) {
                packs.garbage.extend(sorted.garbage);
                packs.rewrites.push(PackRewrite { pack: sorted.pack, kept: sorted.kept });
            } else {
                sorted.garbage.iter().for_each(|found| packs.left.add(found.size));
            }
        }
        Ok(packs)
    }
}

/// Snapshots of the same time may store an object twice: the first intact copy stays.
fn leave_out_copies(packs: &mut [Sorted]) -> Result<(), CleanupError> {
    if packs.len() < 2 {
        return Ok(());
    }
    packs.sort_by_key(|sorted| sorted.pack.stored_at());
    let mut holders: HashMap<ContentHash, usize, RandomState> = HashMap::default();
    let mut buffer = Vec::new();
    for number in 0..packs.len() {
        let (before, rest) = packs.split_at_mut(number);
        let mut copies = 0;
        let mut failure = None;
        rest[0].kept.retain(|entry| match holders.entry(entry.hash) {
            Entry::Vacant(vacant) => {
                vacant.insert(number);
                true
            }
            Entry::Occupied(holder) => {
                let held = before[*holder.get()].pack.holds_intact(&entry.hash, &mut buffer);
                let is_held = held.unwrap_or_else(|error| {
                    failure.get_or_insert(error);
                    false
                });
                copies += if is_held { entry.record_bytes() } else { 0 };
                !is_held
            }
        });
        if let Some(error) = failure.filter(|error| !error.is_damage() && !error.is_bad_disk()) {
            return Err(error.into());
        }
        rest[0].garbage_bytes += copies;
    }
    Ok(())
}

/// `None` for a pack with a damaged index: its contents are unknown, so all of it stays.
fn sort(pack: Arc<Pack>, need: impl Fn(&FoundObject) -> Need) -> Option<Sorted> {
    let entries = pack.entries().inspect_err(|error| tracing::warn!("{error}")).ok()?;
    let (mut kept, mut garbage) = (Vec::new(), Vec::new());
    let (mut garbage_bytes, mut young, mut spared) = (0, Amount::default(), 0);
    for entry in entries {
        let found = pack.found(&entry);
        let need = need(&found);
        if need == Need::Kept {
            spared += found.plain_bytes.saturating_sub(found.size);
        }
        match need {
            Need::Kept => kept.push(entry),
            Need::Young => {
                young.add(found.size);
                kept.push(entry);
            }
            Need::Garbage => {
                garbage_bytes += entry.record_bytes();
                garbage.push(found);
            }
        }
    }
    Some(Sorted { pack, kept, garbage, garbage_bytes, young, spared })
}
