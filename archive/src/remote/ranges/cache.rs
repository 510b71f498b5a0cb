//! The bound of a store in the cache.
//!
//! Objects that were not written for the longest time go first. One that is needed again comes
//! again. A file that is open stays readable.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nono_engine::store::LocalStore;
use nono_engine::sys::{self, Dir, FileKind, FileTime};

/// Most bytes of objects in the store of one remote.
const MAX_BYTES: u64 = 2 << 30;
/// Names another bound, in bytes.
const VARIABLE: &str = "NONO_REMOTE_CACHE";
/// The part of the bound to which objects are removed, and after which it is looked again.
const PARTS: u64 = 8;

/// Counts what comes into a store, and keeps it below a bound.
#[derive(Debug)]
pub(super) struct Bound {
    most: u64,
    /// Bytes that came since the last look.
    came: AtomicU64,
}

impl Bound {
    /// As the environment says.
    ///
    /// # Errors
    /// When the variable is no number of bytes.
    pub(super) fn of_environment() -> Result<Self, String> {
        let most = match std::env::var_os(VARIABLE).filter(|set| !set.is_empty()) {
            None => MAX_BYTES,
            Some(set) => set
                .to_str()
                .and_then(|set| set.parse().ok())
                .ok_or_else(|| format!("{VARIABLE} is no number of bytes"))?,
        };
        // The first object leads to a look.
        Ok(Self { most, came: AtomicU64::new(most) })
    }

    /// Notes bytes that are about to come into the store, and makes room for them.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn make_room(&self, store: &LocalStore, bytes: u64) -> sys::Result<()> {
        let came = self.came.fetch_add(bytes, Relaxed).saturating_add(bytes);
        if came < self.most / PARTS {
            return Ok(());
        }
        self.came.store(0, Relaxed);
        let goal = self.most.saturating_sub(bytes);
        let mut objects = objects(&Dir::open(store.path())?)?;
        let mut sum: u64 = objects.iter().map(|object| object.size).sum();
        if sum <= goal {
            return Ok(());
        }
        objects.sort_by_key(|object| object.written);
        for Object { name, size, .. } in objects {
            if sum <= goal - goal / PARTS {
                break;
            }
            // Another process may have been faster.
            let _ = Dir::open(store.path())?.remove_file(&name);
            sum -= size;
        }
        Ok(())
    }
}

struct Object {
    /// As `ab/cd1234…`.
    name: Vec<u8>,
    size: u64,
    written: (i64, u32),
}

/// The files of objects in a store.
fn objects(store: &Dir) -> sys::Result<Vec<Object>> {
    let mut found = Vec::new();
    for prefix in store.names()?.into_iter().filter(|listed| listed.name.len() == 2) {
        let Ok(dir) = store.open_dir(&prefix.name) else { continue };
        for listed in dir.names()? {
            let Ok(Some(stat)) = dir.try_stat(&listed.name) else { continue };
            if stat.kind == FileKind::File {
                let FileTime { seconds, nanoseconds } = stat.mtime;
                let name = [&*prefix.name, b"/", &*listed.name].concat();
                found.push(Object { name, size: stat.size, written: (seconds, nanoseconds) });
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;
    use nono_engine::object::ContentHash;
    use nono_engine::store::ObjectStore;

    #[test]
    fn the_oldest_objects_go_when_more_would_lie_in_the_store_than_its_bound() {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        let bound = Bound { most: 10_000, came: AtomicU64::new(10_000) };
        let mut hashes = Vec::new();
        for number in 0..30_u8 {
            bound.make_room(&store, 1000).unwrap();
            let bytes = vec![number; 1000];
            let hash = store.write(&bytes).unwrap().hash;
            let path = store.object_path(&hash);
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number.into());
            std::fs::File::open(&path).unwrap().set_modified(time).unwrap();
            hashes.push(hash);
            let dir = Dir::open(store.path()).unwrap();
            let sum: u64 = objects(&dir).unwrap().iter().map(|object| object.size).sum();
            // It is looked at after an eighth of the bound.
            assert!(sum <= 11_000, "{sum} after {number}");
        }
        let has = |hash: &ContentHash| store.contains(hash, 1000).unwrap();
        assert!(!has(&hashes[0]) && has(&hashes[29]));
    }
}
