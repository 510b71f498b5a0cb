//! Finding out once what has a file of its own, for who looks for many objects.

use std::collections::HashSet;

use super::LocalStore;
use crate::object::ContentHash;
use crate::store::StoreError;
use crate::store::own::{MAX_OWN, Patience};

impl LocalStore {
    /// Lists all objects, so that reading many of them costs one call for each packed one. Objects
    /// that others store meanwhile are found all the same, only later.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub(crate) fn expect_many_reads(&self) -> Result<(), StoreError> {
        if self.look_for_own(MAX_OWN)? {
            self.packs.index(&self.dir)?;
        }
        Ok(())
    }

    /// Finds out what has a file of its own; `false` when that is more than `most`.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub(crate) fn look_for_own(&self, most: usize) -> Result<bool, StoreError> {
        let mut own = HashSet::default();
        for prefix in 0..=u8::MAX {
            own.extend(self.own_with_prefix(prefix)?);
            if own.len() > most {
                return Ok(false);
            }
        }
        self.own.set(own);
        Ok(true)
    }

    /// A caller looks for an object: when that was often enough, finds out what has a file of its
    /// own.
    pub(in crate::store) fn note_look(&self, patience: &Patience) {
        if !self.own.are_known()
            && patience.is_over()
            && let Err(error) = self.look_for_own(patience.most_files)
        {
            tracing::debug!("each object is looked for: {error}");
        }
    }

    /// Forgets what has a file of its own: others may have stored some since, or some are about to
    /// go. Whether anything was known.
    pub(crate) fn forget_own(&self) -> bool {
        let was_known = self.own.forget();
        if was_known {
            self.reading.begin_again();
        }
        was_known
    }

    /// Notes a long object that has a file of its own and a list of chunks.
    pub(in crate::store) fn note_double(&self, hash: ContentHash, size: u64) {
        self.doubles.lock().push((hash, size));
    }

    /// The long objects that were noted since.
    pub(in crate::store) fn take_doubles(&self) -> Vec<(ContentHash, u64)> {
        std::mem::take(&mut *self.doubles.lock())
    }

    /// Whether it is known what has a file of its own.
    pub(in crate::store) fn knows_own(&self) -> bool {
        self.own.are_known()
    }

    /// Whether an object is known to have no file of its own.
    pub(crate) fn has_no_own(&self, hash: &ContentHash) -> bool {
        self.own.lacking()(hash)
    }

    /// As [`has_no_own`](Self::has_no_own), for many. While it lives, no thread learns of others:
    /// it is not for long, nor while anything else is done with the store.
    pub(crate) fn having_no_own(&self) -> impl Fn(&ContentHash) -> bool + '_ {
        self.own.lacking()
    }
}
