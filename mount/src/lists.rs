//! Directory lists, decoded once and kept for a while.
//!
//! The bound is in entries over all lists, so that memory stays flat however much is visited. A long list counts as
//! no more than half of the bound: it neither pushes out all others nor goes with the next one that comes, while somebody is still paging through
//! it or asks for what it names.

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

/// Lists used last, at most `capacity` entries in all.
pub(crate) struct ListCache<S: TreeSource> {
    lists: LruCache<ListKey, Arc<List<S>>>,
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
        self.entries += self.weight(&list);
        if let Some(old) = self.lists.put(key, list) {
            self.entries -= self.weight(&old);
        }
        while self.entries > self.capacity && self.lists.len() > 1 {
            let Some((_, oldest)) = self.lists.pop_lru() else { break };
            self.entries -= self.weight(&oldest);
        }
    }

    /// An empty list costs something too.
    fn weight(&self, list: &List<S>) -> usize {
        (list.entries.len() + 1).min(self.capacity / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
