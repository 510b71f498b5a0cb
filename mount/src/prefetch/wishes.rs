//! Files too long to be pushed, to be hashed before a walker comes to them.
//!
//! One list for all: where a walker is now replaces what was wished before, so nothing is hashed for
//! a place that it has left.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

/// Bytes that are wished for one place of a walker. That is to read and hash them all.
pub(super) const MOST_BYTES: u64 = 128 * 1024 * 1024;

/// What is to be opened, in this order; `K` names a file.
pub(super) struct Wishes<K> {
    list: Mutex<List<K>>,
    changed: Condvar,
}

struct List<K> {
    waiting: VecDeque<(K, u64)>,
    /// Bytes that may still be wished for this place.
    left: u64,
    is_closed: bool,
}

impl<K> Wishes<K> {
    pub(super) fn new() -> Self {
        let list = List { waiting: VecDeque::new(), left: 0, is_closed: false };
        Self { list: Mutex::new(list), changed: Condvar::new() }
    }

    /// A walker has come to another place: what still waits is dropped.
    pub(super) fn begin(&self) {
        let mut list = self.list.lock();
        list.waiting.clear();
        list.left = MOST_BYTES;
    }

    /// Wishes for a file of so many bytes, unless that is too much for one place.
    pub(super) fn add(&self, key: K, bytes: u64) {
        let mut list = self.list.lock();
        if let Some(left) = list.left.checked_sub(bytes) {
            list.left = left;
            list.waiting.push_back((key, bytes));
            self.changed.notify_one();
        }
    }

    /// Waits for a wish. `None` when the list is closed.
    pub(super) fn next(&self) -> Option<(K, u64)> {
        let mut list = self.list.lock();
        loop {
            if list.is_closed {
                return None;
            }
            if let Some(wish) = list.waiting.pop_front() {
                return Some(wish);
            }
            self.changed.wait(&mut list);
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> VecDeque<(K, u64)> {
        std::mem::take(&mut self.list.lock().waiting)
    }

    /// No wish is fulfilled any more.
    pub(super) fn close(&self) {
        self.list.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_place_replaces_what_was_wished_before() {
        let wishes = Wishes::new();
        wishes.begin();
        wishes.add("old", 1);
        wishes.begin();
        wishes.add("first", MOST_BYTES - 1);
        wishes.add("too much", 2);
        wishes.add("second", 1);
        assert_eq!(wishes.next(), Some(("first", MOST_BYTES - 1)));
        assert_eq!(wishes.next(), Some(("second", 1)));
        wishes.add("nothing is left", 1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wishes.next());
            wishes.close();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }
}
