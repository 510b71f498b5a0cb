//! Directory lists, decoded once and kept for a while.
//!
//! The bound is in entries over all lists, so that memory stays flat however much is visited. The
//! list that came last stays, however long it is.

use std::sync::Arc;

use lru::LruCache;

use crate::source::{Entry, StateId, TreeSource};

/// The owner of a list: a state, in whatever place, or one node.
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
    lists: LruCache<ListKey, Arc<List<S>>>,
    /// Entries of these, and one for each list.
    entries: usize,
    capacity: usize,
}

impl<S: TreeSource> ListCache<S> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { lists: LruCache::unbounded(), entries: 0, capacity }
    }

    pub(crate) fn get(&mut self, key: ListKey) -> Option<Arc<List<S>>> {
        self.lists.get(&key).map(Arc::clone)
    }

    pub(crate) fn put(&mut self, key: ListKey, list: Arc<List<S>>) {
        self.entries += weight(&list);
        if let Some(old) = self.lists.put(key, list) {
            self.entries -= weight(&old);
        }
        while self.entries > self.capacity && self.lists.len() > 1 {
            let Some((_, oldest)) = self.lists.pop_lru() else { break };
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
