//! Directory lists, decoded once and kept for a while.
//!
//! The bound is in entries over all lists, so that memory stays flat however much is visited. One list that is
//! longer than half of that is kept besides, while somebody pages through it or asks for what it names: it
//! neither pushes out all others nor goes with the next one that comes.

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
    long: Option<Long<S>>,
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

    pub(crate) fn new(capacity: usize) -> Self {
        Self { short: LruCache::unbounded(), entries: 0, capacity, long: None }
    }

    pub(crate) fn get(&mut self, key: ListKey) -> Option<Arc<List<S>>> {
        if let Some(long) = self.long.as_mut().filter(|long| long.key == key) {
            long.age = 0;
            return Some(long.list.clone());
        }
        self.short.get(&key).map(Arc::clone)
    }

    /// Keeps a list that somebody may want, but not in the place of a long one that somebody wants.
    pub(crate) fn put_short(&mut self, key: ListKey, list: &Arc<List<S>>) {
        if weight(list) <= self.capacity / 2 {
            self.put(key, list.clone());
        }
    }

    pub(crate) fn put(&mut self, key: ListKey, list: Arc<List<S>>) {
        if let Some(old) = self.short.pop(&key) {
            self.entries -= weight(&old);
        }
        if weight(&list) > self.capacity / 2 {
            self.long = Some(Long { key, list, age: 0 });
            return;
        }
        if let Some(long) = &mut self.long {
            long.age += 1;
            if long.age > Self::LONG_WAITS || long.key == key {
                self.long = None;
            }
        }
        self.entries += weight(&list);
        self.short.put(key, list);
        while self.entries > self.capacity {
            let Some((_, oldest)) = self.short.pop_lru() else { break };
            self.entries -= weight(&oldest);
        }
    }
}

/// An empty list costs something too.
fn weight<S: TreeSource>(list: &List<S>) -> usize {
    list.entries.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::nodes::tests::{Nothing, node};
    use crate::source::{Entry, Kind};

    /// A cache for 100 entries, and what puts lists into it and finds them there.
    struct Lab(ListCache<Nothing>);

    impl Lab {
        fn put(&mut self, id: u64, entries: usize) {
            let entry = |name: usize| Entry {
                name: format!("{name:05}").into_bytes().into(),
                node: node(Kind::Fifo, None),
            };
            let list = List::new((0..entries).map(entry).collect());
            self.0.put(ListKey::Node(id), Arc::new(list));
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
    fn one_long_list_stays_while_it_is_used() {
        let mut lab = Lab(ListCache::new(100));
        (1..=10).for_each(|id| lab.put(id, 9));
        lab.put(50, 10_000);
        assert!((1..=10).all(|id| lab.has(id)), "it pushes out none");
        for id in 100..2000 {
            lab.put(id, 9);
            assert!(id % 200 != 0 || lab.has(50));
        }
        lab.put(51, 10_000);
        assert!(lab.has(51) && !lab.has(50), "there is one");
        (100..).take(ListCache::<Nothing>::LONG_WAITS).for_each(|id| lab.put(id, 9));
        assert!(lab.has(51));
        (100..).take(ListCache::<Nothing>::LONG_WAITS + 1).for_each(|id| lab.put(id, 9));
        assert!(!lab.has(51));
        lab.put(52, 10_000);
        lab.put(52, 1);
        assert_eq!(lab.0.get(ListKey::Node(52)).map(|list| list.entries.len()), Some(1));
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
