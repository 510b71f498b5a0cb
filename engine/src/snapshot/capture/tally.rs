//! The counts of a capture so far, and their limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::InodeId;
use crate::manifest::Totals;
use crate::snapshot::budget::Budget;
use crate::sys::{FileKind, Stat};

/// Counters that all threads add to.
pub(super) struct Tally {
    budget: Budget,
    files: AtomicU64,
    entries: AtomicU64,
    /// Lengths of files.
    bytes: AtomicU64,
    /// Bytes of them that lie in holes, which the budget does not count.
    hole_bytes: AtomicU64,
    /// The files that have holes.
    sparse: Mutex<HashMap<InodeId, u64>>,
    files_read: AtomicU64,
    objects_written: AtomicU64,
    bytes_written: AtomicU64,
}

impl Tally {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            files: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            hole_bytes: AtomicU64::new(0),
            sparse: Mutex::default(),
            files_read: AtomicU64::new(0),
            objects_written: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        }
    }

    /// Counts an entry, of which so many bytes lie in holes. Whether everything counted so far is
    /// within the budget.
    pub(super) fn add(&self, stat: &Stat, hole_bytes: u64) -> bool {
        let entries = self.entries.fetch_add(1, Relaxed) + 1;
        let mut bytes = self.bytes.load(Relaxed);
        if stat.kind == FileKind::File {
            self.files.fetch_add(1, Relaxed);
            bytes = self.bytes.fetch_add(stat.size, Relaxed).wrapping_add(stat.size);
        }
        if hole_bytes > 0 {
            self.hole_bytes.fetch_add(hole_bytes, Relaxed);
            self.sparse.lock().insert((stat.dev, stat.ino), hole_bytes);
        }
        !self.budget.is_exceeded(entries, bytes.saturating_sub(self.hole_bytes.load(Relaxed)))
    }

    /// Takes back what [`add`](Self::add) counted.
    pub(super) fn remove(&self, stat: &Stat) {
        self.entries.fetch_sub(1, Relaxed);
        if stat.kind == FileKind::File {
            self.files.fetch_sub(1, Relaxed);
            self.bytes.fetch_sub(stat.size, Relaxed);
            if let Some(holes) = self.sparse.lock().get(&(stat.dev, stat.ino)) {
                self.hole_bytes.fetch_sub(*holes, Relaxed);
            }
        }
    }

    /// A directory whose place in the snapshot depends on what is in it.
    pub(super) fn add_directory(&self) {
        self.entries.fetch_add(1, Relaxed);
    }

    pub(super) fn remove_directory(&self) {
        self.entries.fetch_sub(1, Relaxed);
    }

    /// A file was read, and had another length than when it was listed.
    pub(super) fn file_read(&self, listed: u64, read: u64) {
        self.files_read.fetch_add(1, Relaxed);
        // Wraps as the sum itself does, so that a shrunken file subtracts.
        self.bytes.fetch_add(read.wrapping_sub(listed), Relaxed);
    }

    /// An object was written that the store did not have.
    pub(super) fn object_written(&self, bytes: u64) {
        self.objects_written.fetch_add(1, Relaxed);
        self.bytes_written.fetch_add(bytes, Relaxed);
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            file_count: self.files.load(Relaxed),
            entry_count: self.entries.load(Relaxed),
            total_bytes: self.bytes.load(Relaxed),
            files_read: self.files_read.load(Relaxed),
            objects_written: self.objects_written.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
        }
    }
}
