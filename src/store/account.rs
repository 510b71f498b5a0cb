//! Whether anything went from where objects have files of their own, while this process added to it.
//!
//! A fan-out directory gets a new ctime from what is added as from what is removed. So whoever adds an object first
//! notes what is in its directory, if that is still as it was in the beginning, and in the end all of that and
//! what was added must be there. Then the directory has lost nothing since the beginning, and its last ctime may be counted
//! on: as long as it stays, nothing is lost either.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;

use super::{LocalStore, StoreError};
use crate::object::ContentHash;
use crate::stat_cache::FanOutTimes;
use crate::sys;

/// What is noted between a beginning and an end.
#[derive(Debug, Default)]
pub(super) struct Account(Mutex<Option<Noted>>);

#[derive(Debug)]
struct Noted {
    begun: FanOutTimes,
    /// What must be in the directories to which something was added. `None`: what was in it before is not known.
    expected: BTreeMap<u8, Option<Vec<ContentHash>>>,
}

impl LocalStore {
    /// Begins to note what must stay, and returns what can be counted on now.
    ///
    /// # Errors
    /// When a fan-out directory cannot be looked at.
    pub(crate) fn begin_account(&self) -> Result<FanOutTimes, StoreError> {
        let begun = self.fan_out_times()?;
        let noted = Noted { begun: begun.clone(), expected: BTreeMap::new() };
        *self.account().0.lock() = Some(noted);
        Ok(begun)
    }

    /// An object is about to be added, or is there already.
    ///
    /// # Errors
    /// When its directory cannot be looked at.
    pub(super) fn note_addition(&self, hash: &ContentHash) -> Result<(), StoreError> {
        let mut account = self.account().0.lock();
        let Some(noted) = &mut *account else { return Ok(()) };
        let prefix = hash.as_bytes()[0];
        if !noted.expected.contains_key(&prefix) {
            // Listed after the look at the time: what goes meanwhile moves it, and is missing in the end.
            let now = sys::coarse_now();
            let is_as_it_was = noted.begun.is_same(prefix, self.fan_out_time(prefix)?, now);
            let names = if is_as_it_was { Some(self.own_with_prefix(prefix)?) } else { None };
            noted.expected.insert(prefix, names);
        }
        if let Some(Some(expected)) = noted.expected.get_mut(&prefix) {
            expected.push(*hash);
        }
        Ok(())
    }

    /// Ends what [`begin_account`](Self::begin_account) began, and returns what can be counted on now of all that could
    /// be then, or was added since.
    ///
    /// # Errors
    /// When a fan-out directory cannot be looked at.
    pub(crate) fn end_account(&self) -> Result<FanOutTimes, StoreError> {
        let noted = self.account().0.lock().take();
        let mut times = self.fan_out_times()?;
        for prefix in 0..=u8::MAX {
            let lost_nothing = match &noted {
                None => false,
                Some(noted) => match noted.expected.get(&prefix) {
                    None => noted.begun.is_same_in(&times, prefix),
                    Some(None) => false,
                    Some(Some(expected)) => {
                        let there: HashSet<_> = self.own_with_prefix(prefix)?.into_iter().collect();
                        expected.iter().all(|hash| there.contains(hash))
                    }
                },
            };
            if !lost_nothing {
                times.doubt(prefix);
            }
        }
        Ok(times)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;
    use crate::store::ObjectStore;

    /// Contents whose objects share a fan-out directory.
    fn contents() -> impl Iterator<Item = Vec<u8>> {
        (0_u32..).map(|n| n.to_le_bytes().to_vec()).filter(|bytes| prefix_of(bytes) == PREFIX)
    }

    const PREFIX: u8 = 0xab;

    fn prefix_of(bytes: &[u8]) -> u8 {
        ContentHash::of(bytes).as_bytes()[0]
    }

    /// Until the clock tells what is done now from what was done before.
    fn settle() {
        let before = sys::coarse_now();
        while sys::coarse_now() <= before {
            std::thread::yield_now();
        }
    }

    /// Whether the directory is as it was for a snapshot that begins after this one, during which `work` was done.
    fn is_counted_on(earlier: usize, work: impl FnOnce(&LocalStore, &[Vec<u8>])) -> bool {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::open(temp.path()).unwrap();
        let contents: Vec<_> = contents().take(4).collect();
        for bytes in &contents[..earlier] {
            store.write(bytes).unwrap();
        }
        settle();
        store.begin_account().unwrap();
        work(&store, &contents);
        settle();
        let end = store.end_account().unwrap();
        end.is_same_in(&store.fan_out_times().unwrap(), PREFIX)
    }

    fn remove(store: &LocalStore, bytes: &[u8]) {
        std::fs::remove_file(store.object_path(&ContentHash::of(bytes))).unwrap();
    }

    #[test]
    fn what_only_gains_objects_is_counted_on() {
        for earlier in [0, 1, 3] {
            assert!(is_counted_on(earlier, |_, _| ()));
            assert!(is_counted_on(earlier, |store, contents| {
                store.write(&contents[3]).unwrap();
                store.write(&contents[2]).unwrap();
            }));
        }
    }

    #[test]
    fn what_loses_an_object_while_another_is_added_is_not() {
        // Before the first is added, between two, after them.
        for at in 0..3 {
            for lost in 0..2 {
                assert!(!is_counted_on(2, |store, contents| {
                    for n in 0..3 {
                        if n == at {
                            remove(store, &contents[lost]);
                            settle();
                        }
                        if n < 2 {
                            store.write(&contents[2 + n]).unwrap();
                        }
                    }
                }));
            }
        }
        assert!(!is_counted_on(0, |store, contents| {
            store.write(&contents[0]).unwrap();
            store.write(&contents[1]).unwrap();
            remove(store, &contents[0]);
        }));
    }

    #[test]
    fn what_others_change_or_just_changed_is_not() {
        assert!(!is_counted_on(1, |store, contents| {
            LocalStore::open(store.path()).unwrap().write(&contents[1]).unwrap();
        }));
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::open(temp.path()).unwrap();
        assert!(!store.end_account().unwrap().is_same_in(&store.fan_out_times().unwrap(), PREFIX));
        store.begin_account().unwrap();
        // Until the clock moves, it could lose something again without a new time.
        let mut contents = contents();
        let is_same = loop {
            store.write(&contents.next().unwrap()).unwrap();
            let before = sys::coarse_now();
            let end = store.end_account().unwrap();
            let times = store.fan_out_times().unwrap();
            if sys::coarse_now() == before {
                break end.is_same_in(&times, PREFIX);
            }
            store.begin_account().unwrap();
        };
        assert!(!is_same);
    }
}
