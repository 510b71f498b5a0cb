//! Which objects have files of their own.
//!
//! To look for a file of its own takes as long as to read a small object from its pack, and most
//! objects of a large store are packed. So whoever looks for many objects has the files listed
//! once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use foldhash::fast::RandomState;
use parking_lot::RwLock;

use crate::object::ContentHash;

/// Maximum number of objects that are kept in memory, 33 bytes each.
pub(crate) const MAX_OWN: usize = 1 << 18;

/// Looks of a reader before all files are listed.
pub(crate) const READING_LOOKS: u32 = 1024;

/// Objects with files of their own, once a caller needed them all. One that others store since, or
/// stores while they are listed, may be missing: it comes into a pack too, or is looked for there
/// in vain first.
#[derive(Debug, Default)]
pub(super) struct OwnFiles(RwLock<Option<HashSet<ContentHash, RandomState>>>);

impl OwnFiles {
    pub(super) fn are_known(&self) -> bool {
        self.0.read().is_some()
    }

    /// These are all.
    pub(super) fn set(&self, all: HashSet<ContentHash, RandomState>) {
        *self.0.write() = Some(all);
    }

    /// One more is stored.
    pub(super) fn add(&self, hash: &ContentHash) {
        if let Some(known) = &mut *self.0.write() {
            known.insert(*hash);
        }
    }

    /// Others may have stored some since. Whether anything was known.
    pub(super) fn forget(&self) -> bool {
        self.are_known() && self.0.write().take().is_some()
    }

    /// Tells of many objects whether they are known to have no file of their own. While it lives,
    /// no thread can learn of others: it is not for long, nor while anything else is done with the
    /// store.
    pub(super) fn lacking(&self) -> impl Fn(&ContentHash) -> bool + '_ {
        let known = self.0.read();
        move |hash| known.as_ref().is_some_and(|known| !known.contains(hash))
    }
}

/// How many objects are looked for one by one before all files are listed.
#[derive(Debug)]
pub(super) struct Patience {
    looks: AtomicU32,
    most_looks: u32,
    /// Files that are listed at the most.
    pub(super) most_files: usize,
}

impl Patience {
    /// For a reader of one object after the other: a mount, a restore.
    pub(super) fn of_reading() -> Self {
        Self::new(READING_LOOKS, MAX_OWN)
    }

    /// For a snapshot. Each of its looks costs one `stat`: so many take as long as to list so many
    /// files.
    pub(super) fn of_storing() -> Self {
        Self::new(2048, 16 * 1024)
    }

    fn new(most_looks: u32, most_files: usize) -> Self {
        Self { looks: AtomicU32::new(0), most_looks, most_files }
    }

    /// Counts one more look. True for the one that is too many, not for those after it.
    pub(super) fn is_over(&self) -> bool {
        self.looks.fetch_add(1, Relaxed) == self.most_looks
    }

    pub(super) fn begin_again(&self) {
        self.looks.store(0, Relaxed);
    }
}
