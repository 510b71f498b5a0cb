//! Lifetimes and numbers, collisions included, which no mounted test can provoke.

use std::io;
use std::sync::Arc;

use super::*;
use crate::source::{Content, Entry, HardLinks, Kind, Stability};

/// A source of which nothing is asked.
pub(crate) struct Nothing;

impl TreeSource for Nothing {
    type Directory = u32;
    type Content = u32;

    fn root(&self) -> Node<Self> {
        node(Kind::Directory(0), None)
    }

    fn stability(&self, _: &u32) -> Stability {
        Stability::Immutable
    }

    fn list(&self, _: &u32) -> io::Result<Vec<Entry<Self>>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn open(&self, _: &u32, _: u64) -> io::Result<Arc<dyn Content>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn sha256_hex(&self, _: &u32) -> String {
        String::new()
    }
}

pub(crate) fn node<S: TreeSource>(kind: Kind<S>, state: Option<StateId>) -> Node<S> {
    Node {
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        links: HardLinks(1),
        xattrs: None,
        state,
    }
}

fn file(content: u32, state: StateId) -> Node<Nothing> {
    node(Kind::File { size: 1, content }, Some(state))
}

/// States that differ only where the number does not look: a collision of all bits of it.
fn state(number: u8, rest: u8) -> StateId {
    let mut bytes = [rest; 16];
    bytes[..8].fill(number);
    StateId(bytes)
}

const PLACE: Place = Place { parent: ROOT, index: 0 };

fn content(nodes: &Nodes<Nothing>, id: u64) -> u32 {
    match nodes.get(id).unwrap().kind {
        Kind::File { content, .. } => content,
        _ => panic!("not a file"),
    }
}

#[test]
fn states_whose_numbers_collide_never_share_a_node() {
    let mut nodes = Nodes::new(Nothing.root());
    let one = nodes.acquire(PLACE, b"a", &file(1, state(7, 1))).unwrap();
    let two = nodes.acquire(PLACE, b"b", &file(2, state(7, 2))).unwrap();
    let directory = node(Kind::Directory(3), Some(state(7, 3)));
    let three = nodes.acquire(PLACE, b"c", &directory).unwrap();
    assert!(one.id != two.id && two.id != three.id && one.id != three.id);
    assert_eq!((content(&nodes, one.id), content(&nodes, two.id)), (1, 2));
    assert_eq!(nodes.acquire(PLACE, b"b", &file(2, state(7, 2))), Some(two));
    assert_eq!(nodes.pin(state(7, 2), false), Some(two.id));
}

#[test]
fn an_id_that_comes_to_mean_another_state_has_another_generation() {
    let mut nodes = Nodes::new(Nothing.root());
    let one = nodes.acquire(PLACE, b"a", &file(1, state(7, 1))).unwrap();
    nodes.forget(one.id, 1);
    let two = nodes.acquire(PLACE, b"b", &file(2, state(7, 2))).unwrap();
    assert_eq!(one.id, two.id);
    assert_ne!(one.generation, two.generation);
}

#[test]
fn a_number_is_kept_while_any_place_of_a_directory_lives() {
    let mut nodes = Nodes::new(Nothing.root());
    let same = node(Kind::Directory(3), Some(state(7, 3)));
    let first = nodes.acquire(PLACE, b"a", &same).unwrap();
    let later = nodes.acquire(PLACE, b"b", &same).unwrap();
    assert_eq!(first.id, first.number);
    assert_eq!(later.number, first.number);
    assert_ne!(later.id, later.number);
    nodes.forget(first.id, 1);
    // A file whose number would be the same gets another one.
    let other = nodes.acquire(PLACE, b"c", &file(1, state(7, 1))).unwrap();
    assert_ne!(other.id, first.number);
    // The first place may come back as it was.
    assert_eq!(nodes.acquire(PLACE, b"a", &same), Some(first));
}

#[test]
fn a_node_lives_as_long_as_it_was_named_or_pinned() {
    let mut nodes = Nodes::new(Nothing.root());
    let one = nodes.acquire(PLACE, b"a", &file(1, state(7, 1))).unwrap();
    nodes.acquire(PLACE, b"a", &file(1, state(7, 1))).unwrap();
    assert!(!nodes.forget(one.id, 1));
    assert_eq!(nodes.pin(state(7, 1), false), Some(one.id));
    assert!(!nodes.forget(one.id, 1));
    assert_eq!(nodes.len(), 2);
    nodes.unpin(one.id, true);
    assert_eq!(nodes.len(), 1);
    // The kernel's messages about nodes that are gone, or about the root, change nothing.
    assert!(!nodes.forget(one.id, 5));
    assert!(!nodes.forget(ROOT, 5));
    assert_eq!(nodes.len(), 1);
}

#[test]
fn what_is_forgotten_leaves_nothing_behind() {
    let mut nodes = Nodes::new(Nothing.root());
    let names: Vec<Vec<u8>> = (0..100_u8).map(|i| vec![b'a', i]).collect();
    let mut ids = Vec::new();
    for (i, name) in (0..100_u8).zip(&names) {
        let directory = node(Kind::Directory(i.into()), Some(state(i, i)));
        ids.push(nodes.acquire(PLACE, name, &directory).unwrap().id);
        let unique = node(Kind::Fifo, None);
        ids.push(nodes.acquire(PLACE, &[b"x", &**name].concat(), &unique).unwrap().id);
    }
    ids.iter().for_each(|id| assert!(nodes.forget(*id, 1)));
    assert_eq!(nodes.len(), 1);
    assert!(nodes.directory_numbers.is_empty());
    assert!(nodes.records[&ROOT].named.as_ref().unwrap().children.is_empty());
}

#[test]
fn numbers_fit_into_a_double() {
    for byte in 0..=255 {
        let number = first_number(state(byte, byte));
        assert!((1 << 52..1 << 53).contains(&number));
        assert!((1 << 52..1 << 53).contains(&next_number(number)));
    }
}

#[test]
fn numbers_have_the_order_of_ids() {
    for byte in 0..255 {
        assert!(first_number(state(byte, 255)) < first_number(state(byte + 1, 0)));
    }
}
