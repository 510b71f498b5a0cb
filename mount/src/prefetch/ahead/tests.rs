//! A walker in a wood of directories in memory.

use std::io;

use super::*;

use crate::nodes::Place;
use crate::nodes::tests::node;
use crate::options::MountOptions;
use crate::source::{Content, Entry, Stability};

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
        node(kind, Some(StateId(state)))
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
            let file =
                |(number, len): (usize, &usize)| (format!("{directory}/{number}"), vec![7; *len]);
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
