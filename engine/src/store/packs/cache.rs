//! The blocks that were read last: neighbours are read one after the other.
//!
//! A reader in the order in which objects lie needs one block. A reader in another order needs all
//! in which the objects lie: `grep -r` reads a directory of more than 10,000 names in the order of
//! inode numbers, which is no order of a pack. So a mount has [room](BlockCache::set_room) for the
//! blocks of a large directory. Without it, each file there would cost a whole block.
//!
//! A block that leaves lends its memory to the next one: new memory costs the kernel half as much
//! as the block costs to decompress.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

/// Bytes of blocks in memory, unless more are asked for.
const ROOM_BYTES: usize = 4 << 20;
/// Buffers that wait for the next block: for two threads that decompress at once.
const MAX_SPARE: usize = 2;

/// Blocks of all packs of a store, up to so many bytes together. The last one stays, however long
/// it is.
#[derive(Debug)]
pub(super) struct BlockCache(Mutex<Blocks>);

#[derive(Debug)]
struct Blocks {
    /// The last one that was used at the end. They are some hundred, so they are searched.
    cached: VecDeque<Cached>,
    /// Memory that they take.
    bytes: usize,
    room_bytes: usize,
    /// Empty.
    spare: Vec<Vec<u8>>,
    #[cfg(test)]
    loaded: u64,
}

#[derive(Debug)]
struct Cached {
    key: Key,
    records: Arc<Vec<u8>>,
}

/// A pack, and the number of a block in it.
type Key = (u64, usize);

/// A number that no other pack of this process has.
pub(super) fn new_pack() -> u64 {
    static PACKS: AtomicU64 = AtomicU64::new(0);
    PACKS.fetch_add(1, Relaxed)
}

impl Default for BlockCache {
    fn default() -> Self {
        Self(Mutex::new(Blocks {
            cached: VecDeque::new(),
            bytes: 0,
            room_bytes: ROOM_BYTES,
            spare: Vec::new(),
            #[cfg(test)]
            loaded: 0,
        }))
    }
}

impl BlockCache {
    /// From now on, keeps up to so many bytes.
    pub(super) fn set_room(&self, bytes: usize) {
        self.0.lock().room_bytes = bytes;
    }

    pub(super) fn get(&self, key: Key) -> Option<Arc<Vec<u8>>> {
        let cached = &mut self.0.lock().cached;
        let at = cached.iter().rposition(|cached| cached.key == key)?;
        let last = cached.len() - 1;
        if at < last {
            let found = cached.remove(at)?;
            cached.push_back(found);
        }
        Some(cached[last].records.clone())
    }

    /// Memory for a block, if there is some at hand.
    pub(super) fn spare(&self) -> Vec<u8> {
        self.0.lock().spare.pop().unwrap_or_default()
    }

    pub(super) fn put(&self, key: Key, records: Arc<Vec<u8>>) {
        let mut blocks = self.0.lock();
        #[cfg(test)]
        {
            blocks.loaded += 1;
        }
        let mut freed = Vec::new();
        blocks.bytes += records.capacity();
        blocks.cached.push_back(Cached { key, records });
        while blocks.bytes > blocks.room_bytes
            && blocks.cached.len() > 1
            && let Some(oldest) = blocks.cached.pop_front()
        {
            blocks.bytes -= oldest.records.capacity();
            match Arc::into_inner(oldest.records) {
                Some(buffer) if blocks.spare.len() < MAX_SPARE => blocks.spare.push(buffer),
                buffer => freed.extend(buffer),
            }
        }
        drop(blocks);
        // Freed after the lock.
        drop(freed);
    }

    /// Forgets all: what is read next is read from the disk.
    pub(super) fn clear(&self) {
        let mut blocks = self.0.lock();
        blocks.bytes = 0;
        blocks.cached.clear();
        blocks.spare.clear();
    }

    /// How many blocks were read from the disk so far.
    #[cfg(test)]
    pub(super) fn loaded(&self) -> u64 {
        self.0.lock().loaded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_leaves_lends_its_memory_and_one_in_use_does_not() {
        let cache = BlockCache::default();
        cache.set_room(1);
        let block = |byte| Arc::new(vec![byte; 100]);
        cache.put((0, 0), block(0));
        let in_use = cache.get((0, 0)).unwrap();
        cache.put((0, 1), block(1));
        assert_eq!(cache.spare().capacity(), 0);
        cache.put((0, 2), block(2));
        assert!(cache.spare().capacity() >= 100);
        assert_eq!(cache.spare().capacity(), 0);
        assert_eq!(*in_use, [0; 100]);
    }
}
