//! Verified file contents, kept open between the reads of one file.
//!
//! Opening may verify, which for a large file takes long. So a large file is opened by a thread of its
//! own while its reads wait in a queue: the threads that answer the kernel are never all busy
//! hashing, and each file is opened once however many programs read it at the same time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::{Condvar, Mutex};

use crate::contained::Opened;
use crate::source::TreeSource;

/// Files up to this size are verified by the thread that answers the read.
pub(crate) const INLINE_OPEN_BYTES: u64 = 1024 * 1024;

/// Small files that are kept while somebody reads them in several parts.
const SMALL_FILES: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// Files in use; `R` is a read that waits.
pub(crate) struct Contents<S: TreeSource, R> {
    files: Mutex<Files<S, R>>,
    /// A file was opened, or could not be.
    opened: Condvar,
}

struct Files<S: TreeSource, R> {
    /// A source may hold these in memory, so they are few.
    small: LruCache<S::Content, Opened>,
    /// Costly to verify again, and backed by descriptors.
    large: LruCache<S::Content, Opened>,
    opening: HashMap<S::Content, Vec<R>>,
}

/// What [`Contents::open_or_queue`] found.
pub(crate) enum Found<R> {
    /// The file is open; here is the read back.
    Open(Opened, R),
    /// Somebody is opening it and will answer the read.
    Queued,
    /// The read is queued, and the caller must open the file and call [`Contents::opened`].
    Missing,
}

impl<S: TreeSource, R> Contents<S, R> {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        Self {
            files: Mutex::new(Files {
                small: LruCache::new(SMALL_FILES),
                large: LruCache::new(capacity),
                opening: HashMap::new(),
            }),
            opened: Condvar::new(),
        }
    }

    /// The file, if it is open.
    pub(crate) fn cached(&self, key: &S::Content) -> Option<Opened> {
        let mut files = self.files.lock();
        let files = &mut *files;
        files.small.get(key).or_else(|| files.large.get(key)).cloned()
    }

    /// Keeps an open small file.
    pub(crate) fn keep_small(&self, key: S::Content, content: Opened) {
        // The file that falls out is closed after the lock is free.
        let _evicted = self.files.lock().small.push(key, content);
    }

    /// Finds the open file, or queues `read` until it is open.
    pub(crate) fn open_or_queue(&self, key: &S::Content, read: R) -> Found<R> {
        let mut files = self.files.lock();
        if let Some(content) = files.large.get(key) {
            return Found::Open(content.clone(), read);
        }
        match files.opening.entry(key.clone()) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push(read);
                Found::Queued
            }
            Entry::Vacant(slot) => {
                slot.insert(vec![read]);
                Found::Missing
            }
        }
    }

    /// Whether the file is neither open nor being opened. The caller must open it then and call
    /// [`opened`](Self::opened).
    pub(crate) fn begin(&self, key: &S::Content) -> bool {
        let mut files = self.files.lock();
        if files.large.contains(key) {
            return false;
        }
        match files.opening.entry(key.clone()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(slot) => {
                slot.insert(Vec::new());
                true
            }
        }
    }

    /// The file that somebody else is opening, unless that fails or takes too long.
    pub(crate) fn wait(&self, key: &S::Content, patience: Duration) -> Option<Opened> {
        let deadline = Instant::now() + patience;
        let mut files = self.files.lock();
        while files.opening.contains_key(key) {
            if self.opened.wait_until(&mut files, deadline).timed_out() {
                return None;
            }
        }
        files.large.get(key).cloned()
    }

    /// A read of an open file failed: the next one opens it again, as somebody may have mended it.
    pub(crate) fn forget(&self, key: &S::Content) {
        let mut files = self.files.lock();
        let _closed = (files.small.pop(key), files.large.pop(key));
        drop(files);
    }

    /// The file is open, or could not be opened: returns the reads that waited. A failure is not
    /// remembered, the next read tries again.
    pub(crate) fn opened(&self, key: &S::Content, content: Option<&Opened>) -> Vec<R> {
        let mut files = self.files.lock();
        let waiting = files.opening.remove(key).unwrap_or_default();
        let _evicted = content.and_then(|content| files.large.push(key.clone(), content.clone()));
        drop(files);
        self.opened.notify_all();
        waiting
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    use crate::nodes::tests::Nothing;
    use crate::source::Content;

    struct Empty;

    impl Content for Empty {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Ok(0)
        }
    }

    #[test]
    fn who_waits_for_a_file_has_it_when_it_is_open_and_goes_when_it_cannot_be() {
        let long = Duration::from_secs(60);
        for opened in [Some(Opened::new(Empty)), None] {
            let files = Contents::<Nothing, ()>::new(2);
            assert!(files.begin(&7));
            assert!(files.wait(&7, Duration::ZERO).is_none(), "it is still being opened");
            std::thread::scope(|scope| {
                let waits = std::thread::Builder::new();
                let waits = waits.spawn_scoped(scope, || files.wait(&7, long).is_some()).unwrap();
                files.opened(&7, opened.as_ref());
                assert_eq!(waits.join().unwrap(), opened.is_some());
            });
            assert_eq!(files.wait(&7, long).is_some(), opened.is_some(), "nobody opens it now");
        }
    }
}
