//! The space to free: the same answer for a plan and for its application.

use std::collections::HashSet;
use std::time::Duration;

use rayon::prelude::*;

use super::mark::Marks;
use super::packs::{Need, Packs};
use super::store_root::{ObjectsPlace, StoreRoot, identity};
use super::{CleanupError, CleanupOptions, CleanupReport};
use crate::object::FileTime;
use crate::progress::Stage;
use crate::snapshot::SessionDir;
use crate::store::{BadDisk, FoundObject, LocalStore, Quarantined};
use crate::sys;

/// The space that a cleanup would free.
#[derive(Default)]
pub(super) struct Survey {
    /// Objects of the shared store that go, each with its file.
    pub(super) garbage: Vec<FoundObject>,
    /// Packs of which something goes.
    pub(super) packs: Packs,
    /// Files in quarantine for objects that nothing needs any more.
    pub(super) quarantined: Vec<Quarantined>,
    /// Objects that go with the sessions that have their own.
    pub(super) own_count: u64,
    pub(super) own_bytes: u64,
    young_count: u64,
    young_bytes: u64,
    kept_bytes: u64,
}

impl Survey {
    /// Looks at everything. `remove` are the sessions that go, `keep` those that stay; sessions of
    /// the root directory that are in neither stay as well.
    pub(super) fn new(
        root: &StoreRoot,
        remove: &[&SessionDir],
        keep: &[&SessionDir],
        options: &CleanupOptions<'_>,
    ) -> Result<Self, CleanupError> {
        let mut survey = Self::default();
        for session in remove {
            if root.place(session)? == ObjectsPlace::Own {
                survey.count_own(session)?;
            }
        }
        if let Some((store, _)) = &root.store {
            survey.find_garbage(root, store, remove, keep, options)?;
        }
        Ok(survey)
    }

    fn count_own(&mut self, session: &SessionDir) -> Result<(), CleanupError> {
        LocalStore::open(&session.objects_path())?.for_each_object(|found| {
            self.own_count += 1;
            self.own_bytes = self.own_bytes.saturating_add(found.size);
            Ok::<_, CleanupError>(())
        })
    }

    fn find_garbage(
        &mut self,
        root: &StoreRoot,
        store: &LocalStore,
        remove: &[&SessionDir],
        keep: &[&SessionDir],
        options: &CleanupOptions<'_>,
    ) -> Result<(), CleanupError> {
        let mut known = HashSet::new();
        for session in keep.iter().chain(remove) {
            known.extend(identity(session)?);
        }
        // The caller may have left out a session that it could not read.
        let mut unlisted = Vec::new();
        for session in root.sessions()? {
            if identity(&session)?.is_some_and(|id| !known.contains(&id)) {
                unlisted.push(session);
            }
        }
        let mut sharing = Vec::new();
        for session in keep.iter().copied().chain(&unlisted) {
            if root.place(session)? == ObjectsPlace::Shared {
                sharing.push(session);
            }
        }
        options.progress.begin(Stage::ReadLists, None);
        // An unreadable pack would be called missing, and unknown objects cannot be kept.
        store.look_again_at_packs(BadDisk::Refuse)?;
        store.expect_many_reads()?;
        let mut kept = Marks::default();
        kept.keep(store, &sharing, options.progress)?;
        let mut released = Marks::default();
        for session in remove {
            if root.place(session)? == ObjectsPlace::Shared {
                released.release(store, session, &kept, options.progress)?;
            }
        }
        for session in &sharing {
            released.release_removed(store, session, &kept, options.progress)?;
        }
        options.progress.begin(Stage::ListObjects, None);
        let now = sys::coarse_now();
        for quarantined in store.quarantined()? {
            let FoundObject { hash, stored_at, .. } = quarantined.object;
            let is_old = is_older(stored_at, now, options.grace);
            if !kept.contains(&hash) && (released.contains(&hash) || is_old) {
                self.quarantined.push(quarantined);
            }
        }
        let sorted = (0..=u8::MAX).into_par_iter().map(|prefix| {
            if options.progress.is_cancelled() {
                return Err(CleanupError::Cancelled);
            }
            let mut sorted = Self::default();
            for found in store.objects_with_prefix(prefix, |hash| !kept.contains(hash))? {
                if released.contains(&found.hash) || is_older(found.stored_at, now, options.grace) {
                    sorted.garbage.push(found);
                } else {
                    sorted.young_count += 1;
                    sorted.young_bytes = sorted.young_bytes.saturating_add(found.size);
                }
            }
            Ok(sorted)
        });
        for mut sorted in sorted.collect::<Result<Vec<_>, _>>()? {
            self.garbage.append(&mut sorted.garbage);
            self.young_count += sorted.young_count;
            self.young_bytes = self.young_bytes.saturating_add(sorted.young_bytes);
        }
        self.packs = Packs::new(store, options, |found| {
            if kept.contains(&found.hash) {
                Need::Kept
            } else if released.contains(&found.hash)
                || is_older(found.stored_at, now, options.grace)
            {
                Need::Garbage
            } else {
                Need::Young
            }
        })?;
        self.young_count += self.packs.young.count;
        self.young_bytes = self.young_bytes.saturating_add(self.packs.young.bytes);
        self.kept_bytes = kept.bytes();
        Ok(())
    }

    /// Every object that goes.
    pub(super) fn removed(&self) -> impl Iterator<Item = &FoundObject> {
        let aside = self.quarantined.iter().map(|quarantined| &quarantined.object);
        self.garbage.iter().chain(&self.packs.garbage).chain(aside)
    }

    /// Bytes of the files that go, packs not among them.
    pub(super) fn file_bytes(&self) -> u64 {
        let aside = self.quarantined.iter().map(|quarantined| quarantined.object.size);
        let garbage = self.garbage.iter().map(|found| found.size);
        garbage.chain(aside).fold(self.own_bytes, u64::saturating_add)
    }

    /// Bytes of the shared objects that stay, without what only waits for its pack to be rewritten.
    pub(super) fn remaining_bytes(&self) -> u64 {
        // Lists tell lengths without compression.
        let kept = self.kept_bytes.saturating_sub(self.packs.spared);
        kept.saturating_add(self.young_bytes)
    }

    /// Fills in the numbers.
    pub(super) fn report(&self, mut report: CleanupReport) -> CleanupReport {
        report.objects_removed = self.own_count + self.removed().count() as u64;
        report.bytes_freed =
            self.removed().map(|found| found.size).fold(self.own_bytes, u64::saturating_add);
        report.objects_kept_packed = self.packs.left.count;
        report.bytes_kept_packed = self.packs.left.bytes;
        report.objects_kept_young = self.young_count;
        report.bytes_kept_young = self.young_bytes;
        report
    }
}

/// Whether something is at least `grace` old. A time in the future is not, unless the grace time is
/// zero: kernels may stamp an inode with a finer clock than the one that is read here.
pub(super) fn is_older(stored_at: FileTime, now: FileTime, grace: Duration) -> bool {
    let ns =
        |time: FileTime| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    // A duration has fewer than 2^94 nanoseconds.
    grace.is_zero() || ns(now) - ns(stored_at) >= grace.as_nanos() as i128
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_counted_to_the_nanosecond_and_the_future_is_young() {
        let time = |seconds, nanoseconds| FileTime { seconds, nanoseconds };
        let hour = Duration::from_secs(3600);
        assert!(is_older(time(0, 5), time(3600, 5), hour));
        assert!(!is_older(time(0, 6), time(3600, 5), hour));
        assert!(!is_older(time(9000, 0), time(3600, 0), hour));
        assert!(is_older(time(9000, 0), time(3600, 0), Duration::ZERO));
        assert!(!is_older(time(i64::MIN, 0), time(i64::MAX, 0), Duration::MAX));
    }
}
