//! Verified file contents, kept open between the reads of one file.
//!
//! Opening may verify, which for a large file takes long. So a large file is opened by a thread
//! that answers no other request, and once, however many programs read it at the same time.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use crate::server::contained::Opened;
use crate::source::TreeSource;

/// Files up to this size are verified by the thread that answers the read.
pub(crate) const INLINE_OPEN_BYTES: u64 = 1024 * 1024;
/// Small files that are kept while a program reads them in several parts. A source may hold them in
/// memory, so they are few.
const SMALL_FILES: NonZeroUsize = NonZeroUsize::new(8).unwrap();

/// Files in use.
pub(crate) struct Contents<S: TreeSource> {
    small: OpenFiles<S>,
    /// Costly to verify again, and backed by descriptors.
    large: OpenFiles<S>,
}

/// Locked, a file is being opened. A failure is not remembered, so the next read tries again.
type OpenFile = Arc<Mutex<Option<Opened>>>;
type OpenFiles<S> = Mutex<LruCache<<S as TreeSource>::Content, OpenFile>>;

impl<S: TreeSource> Contents<S> {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN);
        let [small, large] = [SMALL_FILES, capacity].map(|most| Mutex::new(LruCache::new(most)));
        Self { small, large }
    }

    /// The file, if it is open. Waits for nothing.
    pub(crate) fn get(&self, key: &S::Content, size: u64) -> Option<Opened> {
        let file = self.files(size).lock().get(key).cloned()?;
        file.try_lock()?.clone()
    }

    /// The file, opened by this call unless another one did so or is about to.
    ///
    /// # Errors
    /// The errors of `open`.
    pub(crate) fn get_or_open(
        &self,
        key: &S::Content,
        size: u64,
        open: impl FnOnce() -> io::Result<Opened>,
    ) -> io::Result<Opened> {
        let file = self.files(size).lock().get_or_insert(key.clone(), OpenFile::default).clone();
        let mut file = file.lock();
        match &*file {
            Some(opened) => Ok(opened.clone()),
            None => Ok(file.insert(open()?).clone()),
        }
    }

    /// A read of an open file failed: the next one opens it again, as a repair may have mended it.
    pub(crate) fn forget(&self, key: &S::Content, size: u64) {
        // The file is closed after the lock is free.
        let _closed = self.files(size).lock().pop(key);
    }

    fn files(&self, size: u64) -> &OpenFiles<S> {
        if size <= INLINE_OPEN_BYTES { &self.small } else { &self.large }
    }
}
