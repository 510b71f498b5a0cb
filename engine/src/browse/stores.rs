//! Which objects belong to which session.
//!
//! Sessions share a store through a link, or have one of their own. Descriptors of many stores are
//! not kept open, and a store that was removed and made again at the same place is noticed.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::error::{from_store, from_sys};
use super::key::{PathHash, StoreId};
use crate::layout;
use crate::store::LocalStore;
use crate::sys::{self, Dir};

/// Stores whose directories stay open.
const OPEN_STORES: NonZeroUsize = NonZeroUsize::new(32).unwrap();

/// Bytes of decompressed blocks that stay in memory, of each store: the small files of a directory
/// of 40,000 names. Programs read a long directory in the order of inode numbers, and where all
/// names begin alike, that is none.
const BLOCKS_KEPT_BYTES: usize = 24 << 20;

/// All stores that were seen.
pub(super) struct Stores {
    known: Mutex<Known>,
}

struct Known {
    places: Vec<StorePlace>,
    by_path: HashMap<PathBuf, StoreId>,
    open: LruCache<StoreId, OpenStore>,
}

#[derive(Clone)]
struct StorePlace {
    path: Arc<Path>,
    top: PathHash,
}

struct OpenStore {
    store: Arc<LocalStore>,
    /// Device and inode of its directory.
    identity: (u64, u64),
}

impl Stores {
    pub(super) fn new() -> Self {
        let open = LruCache::new(OPEN_STORES);
        Self { known: Mutex::new(Known { places: Vec::new(), by_path: HashMap::new(), open }) }
    }

    /// The store of the session in `session_dir`.
    pub(super) fn of_session(&self, session_dir: &Path) -> io::Result<StoreId> {
        let path = sys::real_path(&session_dir.join(layout::OBJECTS)).map_err(from_sys)?;
        let identity = identity(&path)?;
        let mut known = self.known.lock();
        if let Some(id) = known.by_path.get(&path).copied() {
            match known.open.peek(&id) {
                Some(open) if open.identity != identity => drop(known.open.pop(&id)),
                Some(open) => {
                    let store = open.store.clone();
                    drop(known);
                    store.forget_removed_packs();
                }
                None => {}
            }
            return Ok(id);
        }
        let id = StoreId(known.places.len() as u32);
        let top = PathHash::top(path.as_os_str().as_bytes());
        known.places.push(StorePlace { path: path.as_path().into(), top });
        known.by_path.insert(path, id);
        Ok(id)
    }

    /// The top of every snapshot of a store.
    pub(super) fn top(&self, id: StoreId) -> io::Result<PathHash> {
        Ok(self.place(id)?.top)
    }

    /// The store, opened again if it was not used for long.
    pub(super) fn open(&self, id: StoreId) -> io::Result<Arc<LocalStore>> {
        if let Some(open) = self.known.lock().open.get(&id) {
            return Ok(open.store.clone());
        }
        let place = self.place(id)?;
        let identity = identity(&place.path)?;
        let store = LocalStore::open(&place.path).map_err(from_store)?;
        store.keep_blocks(BLOCKS_KEPT_BYTES);
        let store = Arc::new(store);
        let open = OpenStore { store: store.clone(), identity };
        let _evicted = self.known.lock().open.push(id, open);
        Ok(store)
    }

    #[cfg(test)]
    pub(super) fn blocks_read(&self) -> u64 {
        self.known.lock().open.iter().map(|(_, open)| open.store.blocks_read()).sum()
    }

    #[cfg(test)]
    pub(super) fn keep_blocks(&self, bytes: usize) {
        self.known.lock().open.iter().for_each(|(_, open)| open.store.keep_blocks(bytes));
    }

    #[cfg(test)]
    pub(super) fn forget_blocks(&self) {
        self.known.lock().open.iter().for_each(|(_, open)| open.store.drop_cached_packs().unwrap());
    }

    fn place(&self, id: StoreId) -> io::Result<StorePlace> {
        let known = self.known.lock();
        // Ids are made from the table, which never shrinks.
        known.places.get(id.0 as usize).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let stat = Dir::open(path).and_then(|dir| dir.stat_self()).map_err(from_sys)?;
    Ok((stat.dev, stat.ino))
}
