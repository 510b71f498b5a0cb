//! Reading what a walker will come to, while there is nothing to push.
//!
//! Who walks a tree lists a directory, reads its files, and goes on to the first directory in it, or to the next one
//! beside it. The lists and the short files there are read, and verified, before it does:
//! when the kernel knows their names they only have to be handed over, and the walker does not overtake the thread that pushes.
//!
//! - It is done for who came to where it was expected [a few times](SURE) in a row. `diff -r` of two snapshots, which goes to and
//!   fro between them, never does; nor do two walkers whose pushes come in turn, because one way is kept in mind.
//! - It is done in steps of one list or file, and takes [so much](MOST_BYTES) memory for contents, and as much again
//!   where the walker is; of lists it keeps [so many](MOST_ENTRIES) entries ahead and [more](MOST_ENTRIES_AROUND) around.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::in_order::InOrder;
use crate::lists::List;
use crate::nodes::{Order, ROOT, Spot, probable_number};
use crate::source::{Kind, Node, StateId, TreeSource};
use crate::tree::Tree;

/// How often in a row a walker comes to where it was expected before anything is read.
const SURE: u32 = 3;
/// Bytes of contents of directories to come.
const MOST_BYTES: usize = 2 * 1024 * 1024;
/// Of one file.
const MOST_FILE_BYTES: u64 = 128 * 1024;
/// Directories that are read before a walker comes to them.
const MOST_DIRECTORIES: usize = 16;
/// Entries of a list of which files are read, and of all those together: each takes about 200 bytes.
const MOST_ENTRIES: usize = 4096;
/// Entries of all lists around where it is. Who walks below more does not come to where it is expected.
const MOST_ENTRIES_AROUND: usize = 4 * MOST_ENTRIES;
/// Directories above one that are thought of.
const MOST_ABOVE: usize = 64;
/// Empty buffers that are kept: new memory costs a page fault for each page.
const MOST_SPARE: usize = 2;

/// Where a walker is, where it will come, and what was read there. It comes to `coming`, then to `next`, then to what is in
/// `lists`, the last of them first.
pub(super) struct Ahead<S: TreeSource> {
    /// How often in a row it came to where it was expected.
    hits: u32,
    /// The directory to which it came last.
    here: Option<StateId>,
    contents: Contents,
    /// It was not expected there, and it is not yet known what comes next: the directory and its list.
    lost_in: Option<(u64, Arc<List<S>>)>,
    /// The order of its way.
    order: Order,
    coming: VecDeque<Coming<S>>,
    next: Option<(S::Directory, StateId)>,
    /// The rest of the lists around `next`, outermost first.
    lists: Vec<InOrder<S>>,
    spare: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

/// A directory to which somebody will come.
struct Coming<S: TreeSource> {
    state: StateId,
    /// What is still to be read, unless its list is too long.
    files: Option<InOrder<S>>,
    contents: Contents,
}

/// Verified contents of files.
#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    files: HashMap<StateId, Range<usize>>,
}

impl<S: TreeSource> Ahead<S> {
    pub(super) fn new() -> Self {
        Self {
            hits: 0,
            here: None,
            contents: Contents::default(),
            lost_in: None,
            order: Order::Listed,
            coming: VecDeque::new(),
            next: None,
            lists: Vec::new(),
            spare: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// A walker, whose way through short lists has this order, has come to a directory.
    pub(super) fn came_to(
        &mut self,
        tree: &Tree<S>,
        directory: u64,
        list: &Arc<List<S>>,
        order: Order,
    ) {
        let state = tree.nodes.lock().get(directory).and_then(|node| node.state);
        if state == self.here && state.is_some() {
            return;
        }
        let is_next = self.next.as_ref().is_some_and(|(_, next)| Some(*next) == state);
        // It may have left some out, by their names or because they are empty.
        let coming = self.coming.iter().position(|coming| Some(coming.state) == state);
        if order != self.order || coming.is_none() && !is_next {
            self.clear();
            self.order = order;
            self.lost_in = Some((directory, list.clone()));
        } else {
            self.hits = self.hits.saturating_add(1);
            for _ in 0..coming.map_or(self.coming.len(), |coming| coming + 1) {
                self.leave();
                self.contents = self.coming.pop_front().map(|it| it.contents).unwrap_or_default();
            }
            if coming.is_none() {
                self.leave();
                self.go_into(list);
            }
        }
        self.here = state;
    }

    /// What was read of a file in the directory to which the walker came last.
    pub(super) fn contents(&self, file: StateId) -> Option<&[u8]> {
        self.contents.bytes.get(self.contents.files.get(&file)?.clone())
    }

    /// Whether it is known how the walker goes on.
    pub(super) fn is_sure(&self) -> bool {
        self.hits >= SURE
    }

    /// Finds the way, or reads a list or a file. False when there is nothing to do now.
    pub(super) fn step(&mut self, tree: &Tree<S>) -> bool {
        if let Some((directory, list)) = self.lost_in.take() {
            self.find_way(tree, directory, &list);
            return true;
        }
        let bytes = self.coming.iter().map(|coming| coming.contents.bytes.len()).sum::<usize>();
        if !self.is_sure() || bytes + MOST_FILE_BYTES as usize > MOST_BYTES {
            return false;
        }
        if self.coming.back_mut().is_some_and(|coming| coming.read_next(tree, &mut self.buffer)) {
            return true;
        }
        let lists = self.coming.iter().filter_map(|coming| coming.files.as_ref());
        let entries: usize = lists.map(|files| files.list().entries.len()).sum();
        if self.coming.len() == MOST_DIRECTORIES || entries >= MOST_ENTRIES {
            return false;
        }
        let Some((key, state)) = self.next.take() else { return false };
        // Who comes to one that cannot be listed will hear of it.
        match tree.list_ahead(&key, state) {
            Some(list) => {
                let is_long = list.entries.len() > MOST_ENTRIES;
                let files = (!is_long).then(|| in_expected_order(&list, self.order, 0));
                let bytes = self.spare.pop().unwrap_or_default();
                let contents = Contents { bytes, ..Contents::default() };
                self.coming.push_back(Coming { state, files, contents });
                self.go_into(&list);
            }
            None => self.find_next(),
        }
        true
    }

    /// Whether nothing is in memory.
    pub(super) fn is_empty(&self) -> bool {
        self.here.is_none() && self.lost_in.is_none() && self.lists.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// What was read where the walker was is not needed any more.
    fn leave(&mut self) {
        let Contents { mut bytes, .. } = std::mem::take(&mut self.contents);
        if bytes.capacity() > 0 && self.spare.len() < MOST_SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
    }

    /// What comes next is in the next directory, of which this is the list.
    fn go_into(&mut self, list: &Arc<List<S>>) {
        self.add_list(list, 0);
        self.find_next();
    }

    /// What comes in a directory and, after it, in those above it.
    fn find_way(&mut self, tree: &Tree<S>, directory: u64, list: &Arc<List<S>>) {
        let mut below = directory;
        self.add_list(list, 0);
        for _ in 0..MOST_ABOVE {
            let place = tree.nodes.lock().place(below).filter(|_| below != ROOT);
            let Some(place) = place else { break };
            // Who lists it again for this takes longer than it saves.
            let Some(list) = tree.known_list(place.parent) else { break };
            let Some(entry) = list.entries.get(place.index as usize) else { break };
            let Some(state) = entry.node.state else { break };
            let spot = Spot { index: place.index, number: probable_number(state) };
            let order = Order::expected(self.order, list.entries.len());
            if !self.add_list(&list, spot.position(order) + 1) {
                break;
            }
            below = place.parent;
        }
        self.lists.reverse();
        self.find_next();
    }

    /// False when that would be too much.
    fn add_list(&mut self, list: &Arc<List<S>>, start: u64) -> bool {
        let around = self.lists.iter().map(|around| around.list().entries.len()).sum::<usize>();
        let is_short = around + list.entries.len() <= MOST_ENTRIES_AROUND;
        if is_short {
            self.lists.push(in_expected_order(list, self.order, start));
        }
        is_short
    }

    fn find_next(&mut self) {
        self.next = None;
        while let Some(list) = self.lists.last_mut() {
            let Some((index, _)) = list.next() else {
                self.lists.pop();
                continue;
            };
            let node = &list.list().entries[index].node;
            if let (Kind::Directory(key), Some(state)) = (&node.kind, node.state) {
                self.next = Some((key.clone(), state));
                return;
            }
        }
    }
}

impl<S: TreeSource> Coming<S> {
    /// Reads the next file. False when there is none.
    fn read_next(&mut self, tree: &Tree<S>, buffer: &mut Vec<u8>) -> bool {
        let Some(files) = &mut self.files else { return false };
        let Some((index, _)) = files.next() else { return false };
        let list = files.list().clone();
        self.read(tree, &list.entries[index].node, buffer);
        true
    }

    /// Reads a file, if it is short and the kernel does not have it.
    fn read(&mut self, tree: &Tree<S>, node: &Node<S>, buffer: &mut Vec<u8>) {
        let most = tree.options.push_file_bytes.min(MOST_FILE_BYTES);
        let (Kind::File { size, content }, Some(state)) = (&node.kind, node.state) else {
            return;
        };
        if !(1..=most).contains(size) || tree.nodes.lock().is_loaded(state) {
            return;
        }
        tree.counters.opened.one();
        // The reader that comes for it will report the error, once.
        if tree.source.read_whole(content, *size, buffer).is_ok() {
            let start = self.contents.bytes.len();
            self.contents.bytes.extend_from_slice(buffer);
            self.contents.files.insert(state, start..self.contents.bytes.len());
        }
    }
}

/// The entries of a list from this position on, in the order in which they are read on a way of that order.
fn in_expected_order<S: TreeSource>(list: &Arc<List<S>>, order: Order, start: u64) -> InOrder<S> {
    let order = Order::expected(order, list.entries.len());
    InOrder::new(list.clone(), order, start)
}

#[cfg(test)]
mod tests;
