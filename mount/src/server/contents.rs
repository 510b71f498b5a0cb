//! Verified file contents, kept open between the reads of one file.
//!
//! Opening may verify, which for a large file takes long. So a large file is opened by a thread of its
//! own while its reads wait in a queue: the threads that answer the kernel are never all busy
//! hashing, and each file is opened once however many programs read it at the same time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::server::contained::Opened;
use crate::source::TreeSource;

/// Files up to this size are verified by the thread that answers the read.
pub(crate) const INLINE_OPEN_BYTES: u64 = 1024 * 1024;

/// Small files that are kept while somebody reads them in several parts.
const SMALL_FILES: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// Files in use; `R` is a read that waits.
pub(crate) struct Contents<S: TreeSource, R> {
    files: Mutex<OpenFiles<S, R>>,
}

struct OpenFiles<S: TreeSource, R> {
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
            files: Mutex::new(OpenFiles {
                small: LruCache::new(SMALL_FILES),
                large: LruCache::new(capacity),
                opening: HashMap::new(),
            }),
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
        waiting
    }
}
