//! Directory lists, decoded once and kept for a while.
//!
//! The bound is in entries over all lists, so that memory stays flat however much is visited. Lists that are
//! longer than half of that are kept besides, while somebody pages through them or asks for what they name: they
//! neither push out all others nor go with the next one that comes. Together they may be some times as long; one of
//! any length stays.

use std::sync::Arc;

use lru::LruCache;

use crate::source::{Entry, StateId, TreeSource};

/// What a list belongs to: a state, in whatever place, or one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ListKey {
    State(StateId),
    Node(u64),
}

/// The entries of a directory, sorted by name, each name valid and used once.
pub(crate) struct List<S: TreeSource> {
    pub(crate) entries: Vec<Entry<S>>,
}

impl<S: TreeSource> List<S> {
    /// Keeps what a directory can hold. A name the kernel would refuse makes it refuse the whole
    /// directory, so such an entry is left out and logged.
    pub(crate) fn new(mut entries: Vec<Entry<S>>) -> Self {
        entries.retain(|entry| {
            let valid = is_valid_name(&entry.name);
            if !valid {
                tracing::error!(name = %entry.name.escape_ascii(), "impossible name is not shown");
            }
            valid
        });
        if !entries.is_sorted_by(|a, b| a.name < b.name) {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            entries.dedup_by(|later, first| later.name == first.name);
        }
        Self { entries }
    }

    /// Position of `name`.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok()
    }
}

fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Lists used last.
pub(crate) struct ListCache<S: TreeSource> {
    short: LruCache<ListKey, Arc<List<S>>>,
    /// Entries of these, and one for each list.
    entries: usize,
    capacity: usize,
    /// Used last at the end.
    long: Vec<Long<S>>,
}

/// A list that would push out half of the others.
struct Long<S: TreeSource> {
    key: ListKey,
    list: Arc<List<S>>,
    /// Others that came since it was used.
    age: usize,
}

impl<S: TreeSource> ListCache<S> {
    /// Lists that come while a long one waits to be used again.
    const LONG_WAITS: usize = 256;
    /// How many times as many entries as in all others there may be in more than one long list.
    const LONG_SHARE: usize = 4;

    pub(crate) fn new(capacity: usize) -> Self {
        Self { short: LruCache::unbounded(), entries: 0, capacity, long: Vec::new() }
    }

    pub(crate) fn get(&mut self, key: ListKey) -> Option<Arc<List<S>>> {
        if let Some(at) = self.long.iter().position(|long| long.key == key) {
            self.long[at].age = 0;
            self.long[at..].rotate_left(1);
            return self.long.last().map(|long| long.list.clone());
        }
        self.short.get(&key).map(Arc::clone)
    }

    pub(crate) fn put(&mut self, key: ListKey, list: Arc<List<S>>) {
        if let Some(old) = self.short.pop(&key) {
            self.entries -= weight(&old);
        }
        self.long.retain(|long| long.key != key);
        if self.is_long(&list) {
            self.long.push(Long { key, list, age: 0 });
            while self.long.len() > 1 && self.long_entries() > self.most_long_entries() {
                self.long.remove(0);
            }
            return;
        }
        self.long.iter_mut().for_each(|long| long.age += 1);
        self.long.retain(|long| long.age <= Self::LONG_WAITS);
        self.entries += weight(&list);
        self.short.put(key, list);
        while self.entries > self.capacity {
            let Some((_, oldest)) = self.short.pop_lru() else { break };
            self.entries -= weight(&oldest);
        }
    }

    fn is_long(&self, list: &List<S>) -> bool {
        weight(list) > self.capacity / 2
    }

    fn long_entries(&self) -> usize {
        self.long.iter().map(|long| weight(&long.list)).sum()
    }

    fn most_long_entries(&self) -> usize {
        self.capacity.saturating_mul(Self::LONG_SHARE)
    }
}

/// An empty list costs something too.
fn weight<S: TreeSource>(list: &List<S>) -> usize {
    list.entries.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::server::nodes::tests::{Nothing, node};
    use crate::source::{Entry, Kind};

    fn list(entries: usize) -> Arc<List<Nothing>> {
        let entry = |name: usize| Entry {
            name: format!("{name:05}").into_bytes().into(),
            node: node(Kind::Fifo, None),
        };
        Arc::new(List::new((0..entries).map(entry).collect()))
    }

    /// A cache for 100 entries, and what puts lists into it and finds them there.
    struct Lab(ListCache<Nothing>);

    impl Lab {
        fn put(&mut self, id: u64, entries: usize) {
            self.0.put(ListKey::Node(id), list(entries));
        }

        fn has(&mut self, id: u64) -> bool {
            self.0.get(ListKey::Node(id)).is_some()
        }
    }

    #[test]
    fn what_was_used_last_stays_within_the_bound() {
        let mut lab = Lab(ListCache::new(100));
        (1..=10).for_each(|id| lab.put(id, 9));
        assert!(lab.has(1));
        lab.put(11, 9);
        assert!(lab.has(1) && !lab.has(2) && lab.has(3));
        lab.put(1, 40);
        let there: Vec<u64> = (1..=11).filter(|id| lab.has(*id)).collect();
        assert_eq!(there, [1, 3, 8, 9, 10, 11]);
        (20..1000).for_each(|id| lab.put(id, 0));
        assert_eq!((1..1000).filter(|id| lab.has(*id)).count(), 100);
        assert_eq!(lab.0.entries, 100);
    }

    #[test]
    fn a_long_list_stays_while_it_is_used() {
        let mut lab = Lab(ListCache::new(100));
        (1..=10).for_each(|id| lab.put(id, 9));
        lab.put(50, 10_000);
        assert!((1..=10).all(|id| lab.has(id)), "it pushes out none");
        for id in 100..2000 {
            lab.put(id, 9);
            assert!(id % 200 != 0 || lab.has(50));
        }
        lab.put(51, 10_000);
        assert!(lab.has(51) && !lab.has(50), "there is one of such a length");
        (100..).take(ListCache::<Nothing>::LONG_WAITS).for_each(|id| lab.put(id, 9));
        assert!(lab.has(51));
        (100..).take(ListCache::<Nothing>::LONG_WAITS + 1).for_each(|id| lab.put(id, 9));
        assert!(!lab.has(51));
        lab.put(52, 10_000);
        lab.put(52, 1);
        assert_eq!(lab.0.get(ListKey::Node(52)).map(|list| list.entries.len()), Some(1));
    }

    #[test]
    fn some_long_lists_stay_and_go_one_by_one() {
        let mut lab = Lab(ListCache::new(100));
        (50..54).for_each(|id| lab.put(id, 99));
        assert!(lab.has(50) && lab.has(51) && lab.has(52) && lab.has(53));
        assert!(lab.has(50), "used last");
        lab.put(54, 100);
        let there: Vec<u64> = (50..55).filter(|id| lab.has(*id)).collect();
        assert_eq!(there, [50, 53, 54], "two had to go for one that is a little longer");
        // Two of them are used.
        for id in (100..).take(ListCache::<Nothing>::LONG_WAITS + 1) {
            lab.put(id, 9);
            assert!(lab.has(50) && lab.has(54));
        }
        assert!(!lab.has(53));
    }

    #[test]
    fn a_cache_for_nothing_keeps_one_list() {
        let mut lab = Lab(ListCache::new(0));
        lab.put(1, 20_000);
        lab.put(2, 0);
        assert!(lab.has(2) && !lab.has(1));
    }

    #[test]
    fn names_that_no_file_system_allows_are_invalid() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
            assert!(!is_valid_name(name), "{}", name.escape_ascii());
        }
        for name in [&b"..."[..], b" ", b"\xff", &[b'x'; 255]] {
            assert!(is_valid_name(name), "{}", name.escape_ascii());
        }
    }
}
