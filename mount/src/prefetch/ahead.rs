//! Reading what a walker will come to, while there is nothing to push.
//!
//! Who walks a tree lists a directory, reads its files, and goes on to the first directory in it, or to the next one
//! beside it. The lists and the short files there are read, and verified, before it does:
//! when the kernel knows their names they only have to be handed over, and the walker does not overtake the thread that pushes.
//!
//! - It is done for who came to where it was expected [a few times](SURE) in a row. `diff -r` of two snapshots, which goes to and
//!   fro between them, never does; nor do two walkers whose pushes come in turn, because one way is kept in mind.
//! - It is done in steps of one list or file, and takes [so much](MOST_BYTES) memory for contents, and as much again where the walker is.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::upcoming::Upcoming;
use crate::lists::List;
use crate::nodes::{Order, ROOT, Spot, Stretch, probable_number};
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
    lists: Vec<Upcoming<S>>,
    spare: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

/// A directory to which somebody will come.
struct Coming<S: TreeSource> {
    state: StateId,
    /// What is still to be read, unless its list is too long.
    files: Option<Upcoming<S>>,
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
                let files = (!is_long).then(|| in_order(&list, self.order, 0));
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
            self.lists.push(in_order(list, self.order, start));
        }
        is_short
    }

    fn find_next(&mut self) {
        self.next = None;
        while let Some(list) = self.lists.last_mut() {
            let Some((index, _)) = list.next(0) else {
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
        let Some((index, _)) = files.next(0) else { return false };
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
fn in_order<S: TreeSource>(list: &Arc<List<S>>, order: Order, start: u64) -> Upcoming<S> {
    let order = Order::expected(order, list.entries.len());
    Upcoming::new(list.clone(), Stretch { order, start, length: u32::MAX })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    use crate::nodes::Place;
    use crate::options::MountOptions;
    use crate::source::{Content, Entry, HardLinks, Stability};

    /// Directories by name, of which each prefix is one; contents that are their own keys.
    struct Wood {
        files: Vec<(String, Vec<u8>)>,
    }

    /// Contents that cannot be read.
    const BROKEN: &[u8] = b"broken";

    struct Bytes(Vec<u8>);

    impl Content for Bytes {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = &self.0[offset as usize..];
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    impl Wood {
        fn node(&self, path: &str, kind: Kind<Self>) -> Node<Self> {
            let mut state = [0; 16];
            // Of the whole path, in an order that is not that of the names.
            for (number, byte) in path.bytes().enumerate() {
                state[number % 16] = 31_u8.wrapping_mul(state[number % 16]).wrapping_add(!byte);
            }
            Node {
                kind,
                mode: 0o755,
                uid: 0,
                gid: 0,
                mtime_s: 0,
                mtime_ns: 0,
                links: HardLinks(1),
                xattrs: None,
                state: Some(StateId(state)),
            }
        }
    }

    impl TreeSource for Wood {
        type Directory = String;
        type Content = Vec<u8>;

        fn root(&self) -> Node<Self> {
            self.node("", Kind::Directory(String::new()))
        }

        fn stability(&self, _: &String) -> Stability {
            Stability::Immutable
        }

        fn list(&self, directory: &String) -> io::Result<Vec<Entry<Self>>> {
            let mut entries = Vec::new();
            for (path, bytes) in &self.files {
                let Some(rest) = path.strip_prefix(directory.as_str()) else { continue };
                let (name, kind) = match rest.split_once('/') {
                    Some((name, _)) => (name, Kind::Directory(format!("{directory}{name}/"))),
                    None => (rest, Kind::File { size: bytes.len() as u64, content: bytes.clone() }),
                };
                let node = self.node(&format!("{directory}{name}"), kind);
                entries.push(Entry { name: name.as_bytes().into(), node });
            }
            entries.dedup_by(|a, b| a.name == b.name);
            Ok(entries)
        }

        fn open(&self, content: &Vec<u8>, _: u64) -> io::Result<Arc<dyn Content>> {
            if content == BROKEN {
                return Err(io::ErrorKind::InvalidData.into());
            }
            Ok(Arc::new(Bytes(content.clone())))
        }

        fn sha256_hex(&self, _: &Vec<u8>) -> String {
            String::new()
        }
    }

    /// A walker in a wood: it lists directories, and then somebody reads ahead of it for as long as there is anything.
    struct Walk {
        tree: Tree<Wood>,
        ahead: Ahead<Wood>,
        order: Order,
    }

    impl Walk {
        fn new(files: Vec<(String, Vec<u8>)>, order: Order) -> Self {
            let tree = Tree::new(Wood { files }, MountOptions::default());
            Self { tree, ahead: Ahead::new(), order }
        }

        /// Comes to a directory. Returns what was read of its files before.
        fn comes_to(&mut self, path: &str) -> Vec<Vec<u8>> {
            let mut id = ROOT;
            for name in path.split('/').filter(|name| !name.is_empty()) {
                let list = self.tree.siblings(id).unwrap();
                let index = list.find(name.as_bytes()).unwrap();
                let place = Place { parent: id, index: index as u32 };
                let node = &list.entries[index].node;
                id = self.tree.nodes.lock().acquire(place, name.as_bytes(), node).unwrap().id;
            }
            let list = self.tree.siblings(id).unwrap();
            self.ahead.came_to(&self.tree, id, &list, self.order);
            let read = |entry: &Entry<Wood>| Some(self.ahead.contents(entry.node.state?)?.to_vec());
            let read = list.entries.iter().filter_map(read).collect();
            while self.ahead.step(&self.tree) {}
            read
        }

        /// Bytes that were read ahead.
        fn bytes(&self) -> usize {
            self.ahead.coming.iter().map(|coming| coming.contents.bytes.len()).sum()
        }
    }

    /// One file in each of these directories, with its path in it.
    fn files(paths: &[&str]) -> Vec<(String, Vec<u8>)> {
        paths.iter().map(|path| ((*path).to_owned(), path.as_bytes().to_vec())).collect()
    }

    #[test]
    fn who_comes_to_where_it_was_expected_has_the_next_read() {
        let paths = ["a/b/1", "a/c/d/2", "a/e/3", "f/4", "g/h/5", "i/6"];
        let mut walk = Walk::new(files(&paths), Order::Listed);
        for path in ["", "a", "a/b"] {
            assert!(walk.comes_to(path).is_empty(), "{path}");
            assert!(!walk.ahead.is_sure() && walk.bytes() == 0);
        }
        assert!(walk.comes_to("a/c").is_empty());
        assert!(walk.ahead.is_sure());
        for (path, file) in [("a/c/d", 1), ("a/e", 2), ("f", 3)] {
            assert_eq!(walk.comes_to(path), [paths[file].as_bytes()]);
            // The kernel asks whether there is more of the list.
            assert_eq!(walk.comes_to(path), [paths[file].as_bytes()]);
        }
        assert!(walk.comes_to("g").is_empty());
        assert_eq!(walk.comes_to("g/h"), [b"g/h/5"]);
        assert_eq!(walk.comes_to("i"), [b"i/6"]);
        assert_eq!(walk.bytes(), 0, "there is nothing left");
    }

    #[test]
    fn who_goes_elsewhere_has_nothing_read_any_more() {
        let paths = ["a/1", "b/2", "c/3", "d/4", "e/5", "f/6"];
        let mut walk = Walk::new(files(&paths), Order::Listed);
        for path in ["", "a", "b", "c"] {
            walk.comes_to(path);
        }
        assert!(walk.bytes() > 0);
        assert!(walk.comes_to("a").is_empty());
        assert!(!walk.ahead.is_sure() && walk.bytes() == 0);
        // In another order it goes elsewhere, too.
        for path in ["", "a", "b", "c"] {
            walk.comes_to(path);
        }
        walk.order = Order::Numbered;
        assert!(walk.comes_to("d").is_empty());
        assert!(!walk.ahead.is_sure());
    }

    #[test]
    fn the_way_is_by_number_for_who_goes_by_number() {
        let paths = ["a/1", "b/2", "c/3", "d/4", "e/5", "f/6"];
        let mut walk = Walk::new(files(&paths), Order::Numbered);
        let list = walk.tree.siblings(ROOT).unwrap();
        let mut names: Vec<_> = list.entries.iter().map(|entry| &*entry.name).collect();
        names.sort_by_key(|name| {
            let entry = &list.entries[list.find(name).unwrap()];
            probable_number(entry.node.state.unwrap())
        });
        assert!(!names.is_sorted());
        walk.comes_to("");
        let found = names.iter().map(|name| walk.comes_to(std::str::from_utf8(name).unwrap()));
        let found: Vec<_> = found.map(|read| read.len()).collect();
        assert_eq!(found, [0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn who_leaves_some_out_is_still_on_its_way() {
        let paths = ["a/1", "b/2", "c/3", "d/4", "e/5", "f/6", "g/7"];
        let mut walk = Walk::new(files(&paths), Order::Listed);
        for path in ["", "a", "b", "c"] {
            walk.comes_to(path);
        }
        assert_eq!(walk.comes_to("f"), [b"f/6"]);
        assert_eq!(walk.comes_to("g"), [b"g/7"]);
    }

    #[test]
    fn what_the_kernel_has_and_what_cannot_be_read_is_not_read_ahead() {
        let mut files = files(&["a/1", "b/2", "c/3", "d/4", "d/5", "e/7"]);
        files.insert(5, ("d/6".to_owned(), BROKEN.to_vec()));
        let mut walk = Walk::new(files, Order::Listed);
        for path in ["", "a", "b"] {
            walk.comes_to(path);
        }
        // Another path led to the same state before.
        let place = Place { parent: ROOT, index: 0 };
        let had = walk.tree.source.list(&"d/".to_owned()).unwrap().swap_remove(0);
        let mut nodes = walk.tree.nodes.lock();
        nodes.acquire(place, b"x", &had.node).unwrap();
        let id = nodes.pin(had.node.state.unwrap(), false).unwrap();
        nodes.unpin(id, true);
        drop(nodes);
        walk.comes_to("c");
        assert_eq!(walk.comes_to("d"), [b"d/5"]);
        assert_eq!(walk.comes_to("e"), [b"e/7"]);
    }

    #[test]
    fn a_very_long_list_is_not_kept_and_who_comes_to_it_is_on_its_way() {
        let mut files = files(&["a/1", "b/2", "c/3"]);
        files.extend((0..=MOST_ENTRIES).map(|number| (format!("d/{number:05}"), vec![7])));
        files.extend([("e/1".to_owned(), vec![8])]);
        let mut walk = Walk::new(files, Order::Listed);
        for path in ["", "a", "b", "c"] {
            walk.comes_to(path);
        }
        assert!(walk.ahead.coming[0].files.is_none());
        assert!(walk.comes_to("d").is_empty() && walk.ahead.is_sure());
        assert_eq!(walk.comes_to("e"), [[8]]);
    }

    #[test]
    fn there_are_not_more_directories_and_bytes_than_there_may() {
        const FILE: usize = MOST_FILE_BYTES as usize;
        let walk = |bytes: &[usize]| {
            let mut files = files(&["a/1", "b/1", "c/1"]);
            for directory in 'd'..='z' {
                let file = |(number, len): (usize, &usize)| {
                    (format!("{directory}/{number}"), vec![7; *len])
                };
                files.extend(bytes.iter().enumerate().map(file));
            }
            let mut walk = Walk::new(files, Order::Listed);
            for path in ["", "a", "b", "c"] {
                walk.comes_to(path);
            }
            walk
        };
        let many = walk(&[1]);
        assert_eq!((many.ahead.coming.len(), many.bytes()), (MOST_DIRECTORIES, MOST_DIRECTORIES));
        let mut long = walk(&[FILE + 1, FILE, 0, FILE]);
        assert_eq!((long.ahead.coming.len(), long.bytes()), (8, MOST_BYTES));
        assert_eq!(long.comes_to("d"), [vec![7; FILE], vec![7; FILE]]);
        assert_eq!(long.bytes(), MOST_BYTES);
        long.ahead.clear();
        assert!(long.ahead.is_empty() && long.bytes() == 0);
    }
}
