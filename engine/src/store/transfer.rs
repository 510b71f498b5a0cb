//! One file on its way into the store, out of it, or through a hash: the buffer that its bytes go
//! through, and who is told how far it is.
//!
//! A file may be longer than a user wants to wait. So a reader of one asks after every step
//! whether it shall stop, and reports the step; a reported step is not reported again when the same
//! file is read once more. A file of one step costs nothing for that.

use std::fs::File;
use std::io;

use super::StoreError;
use crate::progress::{NoProgress, Progress};
use crate::sys;

/// Step of reading and writing, in bytes. Small enough that a wish to stop is noticed within
/// milliseconds.
pub(super) const STEP_BYTES: usize = 1024 * 1024;

/// The reading of one file.
pub struct Transfer<'a> {
    pub(super) buffer: &'a mut Vec<u8>,
    progress: &'a dyn Progress,
    /// Number of bytes of the file that were reported.
    told: u64,
}

impl std::fmt::Debug for Transfer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transfer").field("told", &self.told).finish_non_exhaustive()
    }
}

/// The caller asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;

impl From<Stopped> for StoreError {
    fn from(_: Stopped) -> Self {
        Self::Cancelled
    }
}

impl<'a> Transfer<'a> {
    /// A file of which nothing was read yet. The buffer is only lent, to be used for the next one.
    pub fn new(buffer: &'a mut Vec<u8>, progress: &'a dyn Progress) -> Self {
        Self { buffer, progress, told: 0 }
    }

    /// A file that no user waits for.
    pub fn unwatched(buffer: &'a mut Vec<u8>) -> Self {
        Self::new(buffer, &NoProgress)
    }

    /// Reads a file of at most `size` bytes at once.
    pub(super) fn read_small(&mut self, file: &File, size: u64) -> io::Result<&[u8]> {
        self.buffer.resize(size as usize, 0);
        let len = sys::read_full_at(file, self.buffer, 0)?;
        Ok(&self.buffer[..len])
    }

    /// Tells that the file is done, all `size` bytes of it.
    pub fn finish(self, size: u64) {
        self.progress.advance(1, size.saturating_sub(self.told));
    }

    /// The file was read up to `offset`, and there is more of it.
    pub(super) fn reached(&mut self, offset: u64) -> Result<(), Stopped> {
        if self.progress.is_cancelled() {
            return Err(Stopped);
        }
        if offset > self.told {
            self.progress.advance(0, offset - self.told);
            self.told = offset;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
pub(crate) mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;
    use crate::store::{ImportError, LocalStore, ObjectStore, OverlayStore};
    use crate::sys::stat_open_file;

    /// Asks to stop as soon as so many bytes are done.
    #[derive(Debug)]
    pub(crate) struct StopsAt {
        pub(crate) limit: u64,
        pub(crate) calls: AtomicU64,
        pub(crate) bytes: AtomicU64,
    }

    impl StopsAt {
        pub(crate) fn new(limit: u64) -> Self {
            Self { limit, calls: AtomicU64::new(0), bytes: AtomicU64::new(0) }
        }
    }

    impl Progress for StopsAt {
        fn advance(&self, _entries: u64, bytes: u64) {
            self.calls.fetch_add(1, SeqCst);
            self.bytes.fetch_add(bytes, SeqCst);
        }

        fn is_cancelled(&self) -> bool {
            self.bytes.load(SeqCst) >= self.limit
        }
    }

    const MIB: u64 = 1 << 20;

    /// A store, and a file of 16 MiB; `sparse`: almost all of it is a hole.
    fn place(sparse: bool) -> (tempfile::TempDir, LocalStore, File) {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        let file = File::create_new(temp.path().join("file")).unwrap();
        if !sparse {
            file.write_all_at(&vec![7; 16 << 20], 0).unwrap();
        }
        file.set_len(16 * MIB).unwrap();
        file.write_all_at(b"end", 16 * MIB - 3).unwrap();
        let file = File::open(file_path(&store)).unwrap();
        (temp, store, file)
    }

    fn file_path(store: &LocalStore) -> std::path::PathBuf {
        store.path().parent().unwrap().join("file")
    }

    fn object_count(store: &LocalStore) -> usize {
        let mut count = 0;
        store
            .for_each_object(|_| {
                count += 1;
                Ok::<_, StoreError>(())
            })
            .unwrap();
        count
    }

    #[test]
    fn a_long_import_stops_within_a_step_and_stores_nothing() {
        for sparse in [false, true] {
            let (_temp, store, file) = place(sparse);
            let overlay = OverlayStore::new(&store);
            for target in [&store as &dyn ObjectStore, &overlay] {
                let stops = StopsAt::new(3 * MIB);
                let mut buffer = Vec::new();
                let mut transfer = Transfer::new(&mut buffer, &stops);
                let stopped = target.import(&file, 16 * MIB, sparse, &mut transfer);
                assert!(matches!(stopped, Err(ImportError::Store(StoreError::Cancelled))));
                assert_eq!(stops.bytes.load(SeqCst), 3 * MIB);
            }
            assert_eq!(object_count(&store), 0);
        }
    }

    #[test]
    fn an_object_whose_reading_was_stopped_is_not_called_damaged() {
        let (_temp, store, file) = place(false);
        let mut buffer = Vec::new();
        let hash = store
            .import(&file, 16 * MIB, false, &mut Transfer::unwatched(&mut buffer))
            .unwrap()
            .hash;
        let mut stopped = |work: &dyn Fn(&mut Transfer<'_>) -> Result<(), StoreError>, limit| {
            let stops = StopsAt::new(limit);
            let error = work(&mut Transfer::new(&mut buffer, &stops)).unwrap_err();
            assert!(matches!(error, StoreError::Cancelled), "{error}");
            assert!(!error.is_damage());
            assert_eq!(stops.bytes.load(SeqCst), limit);
        };
        stopped(&|transfer| store.open_object(&hash)?.verify(transfer), MIB);
        let target = tempfile::tempfile().unwrap();
        stopped(&|transfer| store.export(&hash, 16 * MIB, &target, transfer), 2 * MIB);
        let stat = stat_open_file(&file, &file_path(&store)).unwrap();
        stopped(&|transfer| store.keep(&hash, &file, &stat, transfer).map(drop), 3 * MIB);
        // Neither removed nor set aside.
        store.open_object(&hash).unwrap().verify(&mut Transfer::unwatched(&mut buffer)).unwrap();
        assert!(store.quarantined().unwrap().is_empty());
    }

    #[test]
    fn every_byte_is_told_of_once_and_a_file_of_one_step_in_one_call() {
        for (len, calls) in [(5, 1), (MIB, 1), (16 * MIB, 16)] {
            let (_temp, store, file) = place(false);
            let progress = StopsAt::new(u64::MAX);
            let mut buffer = Vec::new();
            let mut transfer = Transfer::new(&mut buffer, &progress);
            // Read again, as one that changes meanwhile.
            for _ in 0..2 {
                store.import(&file, len, false, &mut transfer).unwrap();
            }
            transfer.finish(len);
            assert_eq!(progress.bytes.load(SeqCst), len);
            assert_eq!(progress.calls.load(SeqCst), calls, "{len} bytes");
        }
    }
}
