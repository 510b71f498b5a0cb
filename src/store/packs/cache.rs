//! The blocks that were read last: neighbours are read one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Blocks in memory: at most 8 MiB, mostly 2.
const BLOCKS: usize = 16;

/// Blocks of all packs of a store, the last one that was used at the end.
#[derive(Debug, Default)]
pub(super) struct BlockCache(Mutex<VecDeque<Cached>>);

#[derive(Debug)]
struct Cached {
    /// A pack, and the number of a block in it.
    key: (u64, usize),
    records: Arc<Vec<u8>>,
}

/// A number that no other pack of this process has.
pub(super) fn new_pack() -> u64 {
    static PACKS: AtomicU64 = AtomicU64::new(0);
    PACKS.fetch_add(1, Relaxed)
}

impl BlockCache {
    pub(super) fn get(&self, key: (u64, usize)) -> Option<Arc<Vec<u8>>> {
        let mut cached = self.0.lock();
        let at = cached.iter().rposition(|cached| cached.key == key)?;
        let last = cached.len() - 1;
        if at < last {
            let found = cached.remove(at)?;
            cached.push_back(found);
        }
        Some(cached[last].records.clone())
    }

    pub(super) fn put(&self, key: (u64, usize), records: Arc<Vec<u8>>) {
        let mut cached = self.0.lock();
        let oldest = if cached.len() >= BLOCKS { cached.pop_front() } else { None };
        cached.push_back(Cached { key, records });
        drop(cached);
        // Freed after the lock.
        drop(oldest);
    }

    /// Forgets all: what is read next is read from the disk.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
