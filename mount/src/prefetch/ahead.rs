//! What a walker will come to after a directory, made ready while there is nothing to push.
//!
//! A file can be pushed when the kernel knows its name, which it learns as the walker lists the
//! directory. But opening the file, which is to verify it, and listing the directory can be done
//! before. Directories are gone through as a walker does: what is below one first, then what comes
//! after it in those above. Only so far that little is done for nothing when the walker turns away.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use super::{MOST_OPENED_BYTES, in_order};
use crate::lists::List;
use crate::nodes::{Order, Stretch};
use crate::source::{Content, Kind, TreeSource};
use crate::tree::Tree;

/// Files that are made ready at the most, and their bytes.
const MOST_FILES: NonZeroUsize = NonZeroUsize::new(64).unwrap();
const MOST_BYTES: u64 = 1024 * 1024;
/// Directories listed ahead, at the most.
const MOST_DIRECTORIES: usize = 16;

/// Goes ahead of the walker for whom files were pushed last.
pub(super) struct Ahead<S: TreeSource> {
    ready: Ready<S>,
    /// The directories above the next entry, the innermost last.
    levels: Vec<Level<S>>,
    /// The outermost of them that the kernel knows.
    top: u64,
    opens: bool,
    order: Order,
    /// What may still be made ready.
    left: Left,
}

/// A directory, and which of its entries come next.
struct Level<S: TreeSource> {
    list: Arc<List<S>>,
    next: std::vec::IntoIter<usize>,
}

/// Open files, those that were made ready last.
struct Ready<S: TreeSource> {
    files: LruCache<S::Content, (Arc<dyn Content>, u64)>,
    bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Left {
    files: usize,
    bytes: u64,
    opened_bytes: u64,
    directories: usize,
}

impl<S: TreeSource> Ahead<S> {
    pub(super) fn new() -> Self {
        Self {
            ready: Ready { files: LruCache::new(MOST_FILES), bytes: 0 },
            levels: Vec::new(),
            top: 0,
            opens: false,
            order: Order::default(),
            left: Left::default(),
        }
    }

    /// A walker that reads directories in this order has come to `directory`. With `opens`, it reads files
    /// that are too long to be pushed.
    pub(super) fn begin(&mut self, tree: &Tree<S>, directory: u64, order: Order, opens: bool) {
        self.levels.clear();
        (self.top, self.order, self.opens) = (directory, order, opens);
        self.left = Left {
            files: MOST_FILES.get(),
            bytes: MOST_BYTES,
            opened_bytes: MOST_OPENED_BYTES,
            directories: MOST_DIRECTORIES,
        };
        if let Some(list) = tree.siblings(directory) {
            self.enter(list, 0, true);
        }
    }

    /// The walker is gone, or somebody else is served.
    pub(super) fn end(&mut self) {
        self.levels.clear();
        self.ready.files.clear();
        self.ready.bytes = 0;
    }

    /// Makes the next file ready; long ones are opened with `open`. False when there is no more to do.
    pub(super) fn step(&mut self, tree: &Tree<S>, open: &dyn Fn(&S::Content, u64)) -> bool {
        let Some(level) = self.levels.last_mut() else { return false };
        let Some(index) = level.next.next() else {
            self.levels.pop();
            return !self.levels.is_empty() || self.climb(tree).is_some();
        };
        let list = level.list.clone();
        let node = &list.entries[index].node;
        match node.kind {
            Kind::Directory(_) => {
                if self.left.directories == 0 {
                    return false;
                }
                self.left.directories -= 1;
                if let Some(list) = tree.list_ahead(node) {
                    self.enter(list, 0, false);
                }
                true
            }
            Kind::File { size, ref content } => {
                // What the kernel has it does not ask for.
                let is_known = node.state.is_some_and(|state| tree.nodes.lock().is_loaded(state));
                is_known || self.make_ready(tree, open, content, size)
            }
            _ => true,
        }
    }

    /// A file that was made ready.
    pub(super) fn take(&mut self, content: &S::Content) -> Option<Arc<dyn Content>> {
        self.ready.take(content)
    }

    fn make_ready(
        &mut self,
        tree: &Tree<S>,
        open: &dyn Fn(&S::Content, u64),
        content: &S::Content,
        size: u64,
    ) -> bool {
        if size > tree.options.push_file_bytes {
            let Some(left) = self.left.opened_bytes.checked_sub(size) else { return true };
            if self.opens {
                self.left.opened_bytes = left;
                open(content, size);
            }
            return true;
        }
        let Some(bytes) = self.left.bytes.checked_sub(size) else { return false };
        let Some(files) = self.left.files.checked_sub(1) else { return false };
        (self.left.bytes, self.left.files) = (bytes, files);
        if size > 0 && !self.ready.files.contains(content) {
            tree.counters.opened.one();
            // Whoever reads it will report the error.
            if let Ok(file) = tree.source.open(content, size) {
                self.ready.keep(content, file, size);
            }
        }
        true
    }

    fn enter(&mut self, list: Arc<List<S>>, start: u64, is_listed: bool) {
        let order = Order::expected(self.order, list.entries.len());
        let all = Stretch { order, start, length: u32::MAX };
        // What is in directories that were listed is pushed.
        let is_next = |index: &usize| {
            !is_listed || matches!(list.entries[*index].node.kind, Kind::Directory(_))
        };
        let indices = in_order(&list.entries, all).into_iter().map(|(_, index)| index);
        let next: Vec<_> = indices.filter(is_next).collect();
        self.levels.push(Level { list, next: next.into_iter() });
    }

    /// To what comes after the outermost directory in the one above.
    fn climb(&mut self, tree: &Tree<S>) -> Option<()> {
        let (parent, spot) = tree.nodes.lock().spot(self.top)?;
        let list = tree.siblings(parent).filter(|_| parent != self.top)?;
        let order = Order::expected(self.order, list.entries.len());
        self.top = parent;
        self.enter(list, spot.position(order) + 1, true);
        Some(())
    }
}

impl<S: TreeSource> Ready<S> {
    fn keep(&mut self, content: &S::Content, file: Arc<dyn Content>, size: u64) {
        self.bytes += size;
        if let Some((_, (_, size))) = self.files.push(content.clone(), (file, size)) {
            self.bytes -= size;
        }
        while self.bytes > MOST_BYTES {
            let Some((_, (_, size))) = self.files.pop_lru() else { break };
            self.bytes -= size;
        }
    }

    fn take(&mut self, content: &S::Content) -> Option<Arc<dyn Content>> {
        let (file, size) = self.files.pop(content)?;
        self.bytes -= size;
        Some(file)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

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

    /// The kernel learns of an entry of a directory.
    fn name(tree: &Tree<Shelves>, parent: u64, index: u32) -> u64 {
        let list = tree.siblings(parent).unwrap();
        let entry = &list.entries[index as usize];
        let place = Place { parent, index };
        tree.nodes.lock().acquire(place, &entry.name, &entry.node).unwrap().id
    }

    /// Goes as far ahead of `directory` as it may. Returns what was opened: small files, and large ones.
    fn go(
        ahead: &mut Ahead<Shelves>,
        tree: &Tree<Shelves>,
        directory: u64,
        opens: bool,
    ) -> (Vec<u32>, Vec<u32>) {
        let large = RefCell::new(Vec::new());
        let open = |content: &u32, _| large.borrow_mut().push(*content);
        ahead.begin(tree, directory, Order::Listed, opens);
        while ahead.step(tree, &open) {}
        (std::mem::take(&mut tree.source.opened.lock()), large.into_inner())
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
        let (third, mut ahead) = (name(&tree, ROOT, 2), Ahead::new());
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
        assert_eq!(go(&mut Ahead::new(), &tree, first, true).0, [21]);
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
        assert_eq!(go(&mut Ahead::new(), &small, first, true).0.len(), MOST_FILES.get());

        let long = tree(entries().chain([(2, many(1000, MOST_BYTES / 4))]));
        let first = name(&long, ROOT, 0);
        assert_eq!(go(&mut Ahead::new(), &long, first, true).0.len(), 4);

        let large = tree(entries().chain([(2, many(1000, MOST_OPENED_BYTES / 4))]));
        let first = name(&large, ROOT, 0);
        assert_eq!(
            go(&mut Ahead::new(), &large, first, true),
            (vec![], vec![1000, 1001, 1002, 1003])
        );

        let empty = tree(entries().chain((2..100).map(|number| (number, vec![]))));
        let first = name(&empty, ROOT, 0);
        let before = listed(&empty);
        assert_eq!(go(&mut Ahead::new(), &empty, first, true).0, [0; 0]);
        assert_eq!(listed(&empty) - before, 1 + MOST_DIRECTORIES as u64);
    }
}
