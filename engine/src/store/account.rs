//! Whether anything went from a store while this process added to it.
//!
//! A fan-out directory gets a new ctime from what is added as from what is removed. So whoever adds
//! an object first notes what is in its directory, if that is still as it was in the beginning; all
//! of that, and what was added, must be there in the end. Then the directory has lost nothing
//! meanwhile, and its last ctime may be counted on: as long as it stays, nothing is lost either.
//! Packs are named one by one, each from when it was first seen.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{FanOut, FanOuts, LocalStore, MAX_OWN, PackState, StoreError};
use crate::object::ContentHash;
use crate::sys;

/// An account that is being kept. Only one at a time is: of a second nothing that changes is
/// certain.
#[derive(Debug)]
pub(crate) struct Account {
    begun: FanOuts,
    /// `None`: another one is being kept.
    ledger: Option<Arc<Ledger>>,
}

/// Where a store finds the account that is being kept of it.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Option<Noted>>);

#[derive(Debug)]
struct Noted {
    begun: FanOuts,
    /// The expected objects of each directory that got new ones. `None`: unknown, or too many.
    expected: BTreeMap<u8, Option<Vec<ContentHash>>>,
    /// The objects in all directories, at most [`MAX_OWN`].
    count: usize,
}

impl LocalStore {
    /// Begins an account of what this process adds.
    pub(crate) fn begin_account(&self) -> Account {
        let begun = self.fan_outs();
        let mut noted = self.ledger().0.lock();
        let is_kept = noted.is_some();
        if !is_kept {
            self.packs().forget_seen();
            let begun = begun.clone();
            *noted = Some(Noted { begun, expected: BTreeMap::new(), count: 0 });
        }
        drop(noted);
        Account { begun, ledger: (!is_kept).then(|| self.ledger().clone()) }
    }

    /// An object is about to be added, unless it is there.
    pub(super) fn note_addition(&self, hash: &ContentHash) {
        let mut noted = self.ledger().0.lock();
        let Some(noted) = &mut *noted else { return };
        let prefix = hash.as_bytes()[0];
        if !noted.expected.contains_key(&prefix) {
            // Listed after the time is read: a later removal moves the time, and is missing in the
            // end.
            let is_same = noted.begun.is_same(prefix, self.fan_out(prefix, sys::coarse_now()));
            let known = if is_same { self.own_or_doubt(prefix) } else { None };
            noted.count += known.as_ref().map_or(0, Vec::len);
            noted.expected.insert(prefix, known);
        }
        noted.expect(hash);
    }

    /// An object was found, and the caller may count on it.
    pub(crate) fn note_found(&self, hash: &ContentHash) {
        // In a directory to which this process has not added anything it is found by its time.
        if let Some(noted) = &mut *self.ledger().0.lock() {
            noted.expect(hash);
        }
    }

    /// The objects in a fan-out directory. An unreadable directory fails nothing: an account is
    /// worth less than the objects it is kept of.
    fn own_or_doubt(&self, prefix: u8) -> Option<Vec<ContentHash>> {
        let listed = self.own_with_prefix(prefix);
        listed.inspect_err(|error| tracing::debug!(%error, "what is there is not certain")).ok()
    }
}

impl Noted {
    fn expect(&mut self, hash: &ContentHash) {
        let Some(expected) = self.expected.get_mut(&hash.as_bytes()[0]) else { return };
        self.count += 1;
        match expected {
            Some(known) if self.count <= MAX_OWN => known.push(*hash),
            known => *known = None,
        }
    }
}

impl Account {
    /// As it was in the beginning.
    pub(crate) fn begun(&self) -> &FanOuts {
        &self.begun
    }

    /// Ends it: the fan-out directories as they are now, where all that was there in the beginning,
    /// or was added, still is; and all packs that were there at any time.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub(crate) fn end(self, store: &LocalStore) -> Result<(FanOuts, Vec<PackState>), StoreError> {
        let noted = self.ledger.as_ref().and_then(|ledger| ledger.0.lock().take());
        let expected = noted.map(|noted| noted.expected).unwrap_or_default();
        let now = store.fan_outs();
        let has_lost_nothing = |prefix| match expected.get(&prefix) {
            None => self.begun.is_same(prefix, now.get(prefix)),
            Some(None) => false,
            Some(Some(expected)) => store.own_or_doubt(prefix).is_some_and(|there| {
                let there: HashSet<_> = there.into_iter().collect();
                expected.iter().all(|hash| there.contains(hash))
            }),
        };
        let fan_outs = FanOuts::new(|prefix| match has_lost_nothing(prefix) {
            true => now.get(prefix),
            false => FanOut::Doubtful,
        });
        Ok((fan_outs, store.packs().seen(store.dir())?))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(ledger) = &self.ledger {
            *ledger.0.lock() = None;
        }
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

    /// Until the clock tells what is done now from what was done before. One tick may not do: file
    /// systems may keep a finer time.
    fn settle(store: &LocalStore) {
        while store.fan_out(PREFIX, sys::coarse_now()) == FanOut::Doubtful {
            std::thread::yield_now();
        }
    }

    /// Whether the directory is as it was for a snapshot that begins after this one, during which
    /// `work` was done.
    fn is_counted_on(earlier: usize, work: impl FnOnce(&LocalStore, &[Vec<u8>])) -> bool {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::open(temp.path()).unwrap();
        let contents: Vec<_> = contents().take(4).collect();
        for bytes in &contents[..earlier] {
            store.write(bytes).unwrap();
        }
        settle(&store);
        let account = store.begin_account();
        work(&store, &contents);
        settle(&store);
        is_sure(account, &store)
    }

    fn is_sure(account: Account, store: &LocalStore) -> bool {
        account.end(store).unwrap().0.get(PREFIX) != FanOut::Doubtful
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
                            settle(store);
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
        // Until the clock moves, it could lose something again without a new time.
        let mut contents = contents();
        let is_sure = loop {
            let account = store.begin_account();
            let before = sys::coarse_now();
            store.write(&contents.next().unwrap()).unwrap();
            let is_sure = is_sure(account, &store);
            if sys::coarse_now() == before {
                break is_sure;
            }
        };
        assert!(!is_sure);
    }

    #[test]
    fn what_was_found_beside_what_is_added_must_stay() {
        for added in [0, 1] {
            assert!(!is_counted_on(added, |store, contents| {
                store.write(&contents[1]).unwrap();
                // By another process.
                LocalStore::open(store.path()).unwrap().write(&contents[2]).unwrap();
                assert!(!store.write(&contents[2]).unwrap().is_new);
                remove(store, &contents[2]);
            }));
        }
    }

    #[test]
    fn only_one_account_is_kept_at_a_time() {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::open(temp.path()).unwrap();
        let contents: Vec<_> = contents().take(3).collect();
        store.write(&contents[0]).unwrap();
        settle(&store);
        let first = store.begin_account();
        remove(&store, &contents[0]);
        settle(&store);
        let second = store.begin_account();
        store.write(&contents[1]).unwrap();
        settle(&store);
        assert!(!is_sure(second, &store));
        assert!(!is_sure(first, &store));
        // One that was given up is not in the way.
        drop(store.begin_account());
        let third = store.begin_account();
        store.write(&contents[2]).unwrap();
        settle(&store);
        assert!(is_sure(third, &store));
    }

    #[test]
    fn a_fan_out_directory_that_is_removed_while_a_process_stores_is_made_again() {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::open(temp.path()).unwrap();
        let contents: Vec<_> = contents().take(3).collect();
        let fan_out = temp.path().join(hex::encode([PREFIX]));
        store.write(&contents[0]).unwrap();
        for (at, bytes) in contents.iter().enumerate() {
            std::fs::remove_dir_all(&fan_out).unwrap();
            // Also in the middle of what one account is kept of.
            let account = (at > 0).then(|| store.begin_account());
            assert!(store.write(bytes).unwrap().is_new);
            assert!(store.contains(&ContentHash::of(bytes), bytes.len() as u64).unwrap());
            drop(account);
        }
    }
}
