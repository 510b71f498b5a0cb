//! What a walker will come to after a directory, made ready while there is nothing to push.
//!
//! A file can be pushed when the kernel knows its name, which it learns as the walker lists the
//! directory. But opening the file, which is to verify it, and listing the directory can be done
//! before. Directories are gone through as a walker does: what is below one first, then what comes
//! after it in those above. Only so far that little is done for nothing when the walker turns away.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::in_order;
use super::walkers::Walker;
use super::wishes::Wishes;
use crate::lists::List;
use crate::nodes::{Order, Stretch};
use crate::source::{Content, Kind, StateId, TreeSource};
use crate::tree::Tree;

/// Files that are made ready for one place of a walker.
const MOST_FILES: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Bytes of them.
const MOST_BYTES: u64 = 1024 * 1024;
/// Directories that are listed.
const MOST_DIRECTORIES: usize = 16;
/// Entries of a list that is looked at: longer ones take too long when each of their directories is such a
/// place, and too much of the cache.
const LONGEST_LIST: usize = 4096;
/// Entries that are looked at.
const MOST_ENTRIES: usize = 1024;

/// Goes ahead of a walker.
pub(super) struct Ahead<S: TreeSource> {
    ready: Ready<S>,
    walk: Option<Walk<S>>,
    /// A directory that the walker will come to, whose list is too long.
    too_long: Option<StateId>,
}

/// What comes after one place of a walker.
struct Walk<S: TreeSource> {
    walker: Walker,
    /// The directories above the next entry, the innermost last.
    levels: Vec<Level<S>>,
    /// The outermost of them.
    top: u64,
    left: Left,
}

/// A directory, and which of its entries come next.
struct Level<S: TreeSource> {
    list: Arc<List<S>>,
    next: std::vec::IntoIter<(u64, usize)>,
}

/// What may still be done for this place.
#[derive(Clone, Copy)]
struct Left {
    files: usize,
    bytes: u64,
    directories: usize,
    entries: usize,
}

/// Open files, those that were made ready last.
struct Ready<S: TreeSource> {
    files: LruCache<S::Content, (Arc<dyn Content>, u64)>,
    bytes: u64,
}

impl<S: TreeSource> Default for Ahead<S> {
    fn default() -> Self {
        let ready = Ready { files: LruCache::new(MOST_FILES), bytes: 0 };
        Self { ready, walk: None, too_long: None }
    }
}

impl<S: TreeSource> Ahead<S> {
    /// A walker has come to `directory`.
    pub(super) fn begin(&mut self, tree: &Tree<S>, directory: u64, walker: Walker) {
        let left = Left {
            files: MOST_FILES.get(),
            bytes: MOST_BYTES,
            directories: MOST_DIRECTORIES,
            entries: MOST_ENTRIES,
        };
        let mut walk = Walk { walker, levels: Vec::new(), top: directory, left };
        self.walk = tree.kept_siblings(directory).and_then(|list| {
            walk.enter_listed(list, 0)?;
            Some(walk)
        });
    }

    /// The walker is gone.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Goes one step on: a file is made ready, or wished for if it is long, or a directory listed. False when that
    /// was all for this place.
    pub(super) fn step(&mut self, tree: &Tree<S>, wishes: &Wishes<S::Content>) -> bool {
        if self.try_step(tree, wishes).is_none() {
            self.walk = None;
        }
        self.walk.is_some()
    }

    fn try_step(&mut self, tree: &Tree<S>, wishes: &Wishes<S::Content>) -> Option<()> {
        let walk = self.walk.as_mut()?;
        walk.left.entries = walk.left.entries.checked_sub(1)?;
        let Some(level) = walk.levels.last_mut() else { return walk.climb(tree) };
        let Some((_, index)) = level.next.next() else {
            walk.levels.pop();
            return Some(());
        };
        let list = level.list.clone();
        let node = &list.entries[index].node;
        // What has none is never pushed.
        let Some(state) = node.state else { return Some(()) };
        match node.kind {
            Kind::Directory(_) => {
                walk.left.directories = walk.left.directories.checked_sub(1)?;
                if self.too_long == Some(state) {
                    return None;
                }
                match tree.list_ahead(node, LONGEST_LIST) {
                    Some(list) => walk.enter(list),
                    None => {
                        self.too_long = Some(state);
                        return None;
                    }
                }
            }
            // What the kernel has it does not ask for.
            Kind::File { size: 1.., .. } if tree.nodes.lock().is_loaded(state) => {}
            Kind::File { size, ref content } if size > tree.options.push_file_bytes => {
                let is_wished = walk.walker.reads_long_files;
                is_wished.then(|| wishes.add(content.clone(), size));
            }
            Kind::File { size: size @ 1.., ref content } => {
                walk.left.bytes = walk.left.bytes.checked_sub(size)?;
                walk.left.files = walk.left.files.checked_sub(1)?;
                self.ready.open(tree, content, size);
            }
            _ => {}
        }
        Some(())
    }

    /// A file that was made ready.
    pub(super) fn take(&mut self, content: &S::Content) -> Option<Arc<dyn Content>> {
        let (file, size) = self.ready.files.pop(content)?;
        self.ready.bytes -= size;
        Some(file)
    }
}

impl<S: TreeSource> Walk<S> {
    /// Into a directory that the walker has not listed.
    fn enter(&mut self, list: Arc<List<S>>) {
        let stretch = self.stretch(&list, 0, MOST_ENTRIES);
        let next = in_order(&list.entries, stretch, |_| true).into_iter();
        self.levels.push(Level { list, next });
    }

    /// Into one that it has listed, at a position. What files it has is pushed.
    fn enter_listed(&mut self, list: Arc<List<S>>, start: u64) -> Option<()> {
        if list.entries.len() > LONGEST_LIST {
            return None;
        }
        let stretch = self.stretch(&list, start, MOST_DIRECTORIES);
        let is_directory =
            |entry: &crate::source::Entry<S>| matches!(entry.node.kind, Kind::Directory(_));
        let next = in_order(&list.entries, stretch, is_directory).into_iter();
        self.levels.push(Level { list, next });
        Some(())
    }

    fn stretch(&self, list: &List<S>, start: u64, most: usize) -> Stretch {
        let order = Order::expected(self.walker.order, list.entries.len());
        Stretch { order, start, length: u32::try_from(most).unwrap_or(u32::MAX) }
    }

    /// To what comes after the outermost directory in the one above. `None` where none is.
    fn climb(&mut self, tree: &Tree<S>) -> Option<()> {
        let (parent, spot) = tree.nodes.lock().spot(self.top)?;
        if parent == self.top {
            return None;
        }
        // Not read again, for each of its directories, where it is too long to be kept.
        let list = tree.kept_siblings(parent)?;
        let order = Order::expected(self.walker.order, list.entries.len());
        self.top = parent;
        self.enter_listed(list, spot.position(order) + 1)
    }
}

impl<S: TreeSource> Ready<S> {
    fn open(&mut self, tree: &Tree<S>, content: &S::Content, size: u64) {
        if self.files.contains(content) {
            return;
        }
        tree.counters.opened.one();
        // Whoever reads it will report the error.
        let Ok(file) = tree.source.open(content, size) else { return };
        self.bytes += size;
        if let Some((_, (_, size))) = self.files.push(content.clone(), (file, size)) {
            self.bytes -= size;
        }
        while self.bytes > MOST_BYTES {
            let Some((_, (_, size))) = self.files.pop_lru() else { break };
            self.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::{Place, ROOT};
    use crate::options::MountOptions;
    use crate::shelves::{Shelves, directory, file};

    /// A mounted tree of these lists.
    fn tree(
        lists: impl IntoIterator<Item = (u32, Vec<crate::source::Entry<Shelves>>)>,
    ) -> Tree<Shelves> {
        Tree::new(Shelves::new(lists), MountOptions::default())
    }

    /// The kernel learns of an entry of a directory, which is listed for that.
    fn name(tree: &Tree<Shelves>, parent: u64, index: u32) -> u64 {
        let list = tree.siblings(parent).unwrap();
        let entry = &list.entries[index as usize];
        let place = Place { parent, index };
        tree.nodes.lock().acquire(place, &entry.name, &entry.node).unwrap().id
    }

    /// Goes as far ahead of `directory` as it may. Returns what was opened, and what is wished for.
    fn go(
        ahead: &mut Ahead<Shelves>,
        tree: &Tree<Shelves>,
        directory: u64,
        reads_long_files: bool,
    ) -> (Vec<u32>, Vec<u32>) {
        let wishes = Wishes::new();
        wishes.begin();
        // As a push does before.
        tree.siblings(directory).unwrap();
        ahead.begin(tree, directory, Walker { order: Order::Listed, reads_long_files });
        while ahead.step(tree, &wishes) {}
        assert!(!ahead.step(tree, &wishes));
        let opened = std::mem::take(&mut *tree.source.opened.lock());
        (opened, wishes.waiting().into_iter().map(|(file, _)| file).collect())
    }

    #[test]
    fn what_is_below_comes_first_and_then_what_is_after_it() {
        const LARGE: u64 = 3 << 20;
        let tree = tree([
            (0, vec![file(1, 1), directory(2), directory(3), file(4, 1), directory(5)]),
            (2, vec![file(20, 1)]),
            (3, vec![file(30, 1), directory(31), file(32, LARGE)]),
            (31, vec![file(310, 1), file(311, 0), file(312, LARGE)]),
            (5, vec![file(50, 1)]),
        ]);
        let (third, mut ahead) = (name(&tree, ROOT, 2), Ahead::default());
        // Files of directories that were listed are pushed.
        assert_eq!(go(&mut ahead, &tree, third, true), (vec![310, 50], vec![312]));
        // They are ready.
        assert_eq!(go(&mut ahead, &tree, third, false), (vec![], vec![]));
        assert!(ahead.take(&50).is_some());
        assert!(ahead.take(&50).is_none());
        ahead.end();
        assert!(ahead.take(&310).is_none());
    }

    #[test]
    fn what_the_kernel_has_is_left_alone() {
        let lists = [
            (0, vec![directory(1), directory(2)]),
            (1, vec![]),
            (2, vec![file(20, 1), file(21, 1)]),
        ];
        let tree = tree(lists);
        let (first, second) = (name(&tree, ROOT, 0), name(&tree, ROOT, 1));
        let known = name(&tree, second, 0);
        tree.nodes.lock().unpin(known, true);
        assert_eq!(go(&mut Ahead::default(), &tree, first, true).0, [21]);
    }

    #[test]
    fn little_is_done_for_nothing() {
        let many = |from: u32, size: u64| {
            (from..from + 1000).map(move |number| file(number, size)).collect()
        };
        let entries = || [(0, (1..100).map(directory).collect()), (1, vec![])].into_iter();
        let listed = |tree: &Tree<Shelves>| tree.counters.counts().listed;

        let small = tree(entries().chain([(2, many(1000, 1))]));
        let first = name(&small, ROOT, 0);
        assert_eq!(go(&mut Ahead::default(), &small, first, true).0.len(), MOST_FILES.get());

        let long = tree(entries().chain([(2, many(1000, MOST_BYTES / 4))]));
        let first = name(&long, ROOT, 0);
        assert_eq!(go(&mut Ahead::default(), &long, first, true).0.len(), 4);

        let large =
            tree(entries().chain([(2, many(1000, crate::prefetch::wishes::MOST_BYTES / 4))]));
        let first = name(&large, ROOT, 0);
        assert_eq!(
            go(&mut Ahead::default(), &large, first, true),
            (vec![], vec![1000, 1001, 1002, 1003])
        );

        let empty = tree(entries().chain((2..100).map(|number| (number, vec![]))));
        let first = name(&empty, ROOT, 0);
        let before = listed(&empty);
        assert_eq!(go(&mut Ahead::default(), &empty, first, true).0, [0; 0]);
        assert_eq!(listed(&empty) - before, 1 + MOST_DIRECTORIES as u64);

        let links = |number| (number..number + 1000).map(|number| file(number, 0)).collect();
        let tedious = tree(entries().chain((2..100).map(|number| (number, links(number * 1000)))));
        let first = name(&tedious, ROOT, 0);
        let before = listed(&tedious);
        assert_eq!(go(&mut Ahead::default(), &tedious, first, true).0, [0; 0]);
        assert_eq!(listed(&tedious) - before, 1 + 2);
    }

    #[test]
    fn a_list_that_is_too_long_is_looked_at_once() {
        let long = (10_000..10_001 + LONGEST_LIST as u32).map(|number| file(number, 1)).collect();
        let lists = [(0, vec![directory(1), directory(2), directory(3)]), (1, vec![]), (2, long)];
        let tree = tree(lists);
        let (first, mut ahead) = (name(&tree, ROOT, 0), Ahead::default());
        let before = tree.counters.counts().listed;
        for _ in 0..3 {
            assert_eq!(go(&mut ahead, &tree, first, true).0, [0; 0]);
        }
        // The other one is that of the walker's own place.
        assert_eq!(tree.counters.counts().listed - before, 2);
        // Nor is one that the walker has listed gone through for each of its directories.
        let second = name(&tree, ROOT, 1);
        assert_eq!(go(&mut ahead, &tree, second, true).0, [0; 0]);
    }
}
