use proptest::prelude::*;

use super::arbitrary::{link_groups, root_tree, tree};
use super::*;

proptest! {
    #[test]
    fn a_tree_comes_back(value in tree()) {
        let bytes = value.encode();
        let decoded = Tree::decode(&bytes);
        // Links to midstates are equal whatever they name.
        prop_assert_eq!(decoded.as_ref().map(Tree::encode), Ok(bytes));
        prop_assert_eq!(decoded, Ok(value));
    }

    #[test]
    fn a_root_tree_comes_back(value in root_tree()) {
        let bytes = value.encode();
        let decoded = RootTree::decode(&bytes);
        prop_assert_eq!(decoded.as_ref().map(RootTree::encode), Ok(bytes));
        prop_assert_eq!(decoded, Ok(value));
    }

    #[test]
    fn link_groups_come_back(value in link_groups()) {
        prop_assert_eq!(LinkGroups::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn any_bytes_decode_to_a_canonical_value_or_an_error(
        value in tree(),
        edits in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = value.encode();
        for (at, byte) in edits {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        // An accepted value encodes to the very bytes it was read from: one value, one hash.
        if let Ok(tree) = Tree::decode(&bytes)
            && bytes[8] > 1
        {
            prop_assert_eq!(tree.encode(), bytes);
        }
    }

    #[test]
    fn damaged_roots_and_links_decode_to_a_canonical_value_or_an_error(
        root in root_tree(),
        links in link_groups(),
        edits in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let (mut root, mut links) = (root.encode(), links.encode());
        for (at, byte) in edits {
            let (in_root, in_links) = (at % root.len(), at % links.len());
            root[in_root] = byte;
            links[in_links] = byte;
        }
        if let Ok(decoded) = RootTree::decode(&root) {
            prop_assert_eq!(decoded.encode(), root);
        }
        if let Ok(decoded) = LinkGroups::decode(&links) {
            prop_assert_eq!(decoded.encode(), links);
        }
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        for magic in [b"nonotree", b"nonoroot", b"nonolink"] {
            for version in [1, 2] {
                let bytes = [magic.as_slice(), &[version], &noise].concat();
                let _ = (Tree::decode(&bytes), RootTree::decode(&bytes));
                let _ = LinkGroups::decode(&bytes);
            }
        }
    }
}

/// FIFOs of mode 0, with (shared, rest) of each name.
fn fifos(names: &[(u64, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(b"nonotree", 1);
    writer.varint(names.len() as u64);
    for (shared, rest) in names {
        writer.varint(*shared);
        writer.bytes(rest);
        // A FIFO with mode, owner and time of the one before.
        writer.u8(4 | 0b11_1000);
    }
    writer.finish()
}

#[test]
fn names_that_would_leave_the_directory_are_refused() {
    assert!(Tree::decode(&fifos(&[(0, b"ok")])).is_ok());
    for name in [b"..".as_slice(), b".", b"", b"a/b", b"/", b"a\0b"] {
        let decoded = Tree::decode(&fifos(&[(0, name)]));
        assert!(matches!(decoded, Err(DecodeError::Invalid { .. })), "{name:?}: {decoded:?}");
    }
    // Put together of two parts that are harmless alone.
    assert!(Tree::decode(&fifos(&[(0, b".-"), (1, b".")])).is_err());
    assert!(Tree::decode(&fifos(&[(0, &[b'x'; 200]), (200, &[b'x'; 56])])).is_err());
    assert!(Tree::decode(&fifos(&[(0, &[b'x'; 200]), (200, &[b'x'; 55])])).is_ok());
}

#[test]
fn names_twice_or_out_of_order_are_refused() {
    assert!(Tree::decode(&fifos(&[(0, b"ab"), (1, b"c")])).is_ok());
    assert!(Tree::decode(&fifos(&[(0, b"ab"), (2, b"c")])).is_ok());
    assert!(Tree::decode(&fifos(&[(0, b"ab"), (2, b"")])).is_err());
    assert!(Tree::decode(&fifos(&[(0, b"ab"), (1, b"a")])).is_err());
    assert!(Tree::decode(&fifos(&[(0, b"ab"), (3, b"c")])).is_err());
    // There is one way to write a name: as much as can be is shared.
    assert!(Tree::decode(&fifos(&[(0, b"ab"), (0, b"ac")])).is_err());
}

#[test]
fn attributes_are_written_in_one_way_only() {
    let entry = |head: u8, more: &[u8]| {
        let bytes = [b"nonotree\x01\x01\x00\x01a", &[head][..], more].concat();
        Tree::decode(&bytes)
    };
    let same = 4 | 0b11_1000;
    assert!(entry(same, &[]).is_ok());
    // A mode, an owner and a time that are as before, but are there.
    assert!(entry(same & !(1 << 3), &[0, 0]).is_err());
    assert!(entry(same & !(1 << 4), &[0, 0]).is_err());
    assert!(entry(same & !(1 << 5), &[0, 0, 0, 0, 0]).is_err());
    assert!(entry(same & !(1 << 5) | 1 << 6, &[0]).is_err());
    // Nanoseconds that are none, and no time with whole seconds.
    assert!(entry(same & !(1 << 5), &[2, 0, 0, 0, 0]).is_err());
    assert!(entry(same & !(1 << 5) | 1 << 6, &[2]).is_ok());
    assert!(entry(same | 1 << 6, &[]).is_err());
    assert!(entry(same & !7, &[]).is_err(), "kind 0");
}

#[test]
fn a_billion_declared_entries_take_no_memory() {
    let mut bytes = b"nonotree\x01".to_vec();
    bytes.extend_from_slice(&[0x80, 0x94, 0xeb, 0xdc, 0x03]);
    let decoded = Tree::decode(&bytes);
    assert!(matches!(decoded, Err(DecodeError::Invalid { .. })), "{decoded:?}");
}

#[test]
fn a_tree_never_encodes_what_it_would_not_decode() {
    let entry = |mode| TreeEntry {
        name: (*b"twice").into(),
        attributes: Attributes { mode, ..Attributes::default() },
        node: Node::Fifo,
    };
    let tree = Tree::new(vec![entry(1), entry(2)]);
    assert_eq!(tree.entries(), [entry(1)]);
    assert_eq!(Tree::decode(&tree.encode()), Ok(tree));
}

#[test]
fn the_smallest_root_tree_comes_back() {
    let entry =
        RootEntry { path: (*b"/a").into(), attributes: Attributes::default(), node: Node::Fifo };
    let root = RootTree { entries: vec![entry], links: None };
    assert_eq!(RootTree::decode(&root.encode()), Ok(root));
}

#[test]
fn a_newer_version_is_named_as_such() {
    let newer = Tree::decode(b"nonotree\x02\x00");
    assert_eq!(newer, Err(DecodeError::NewerVersion { found: 2, known: 1 }));
}

#[test]
fn the_encodings_never_change() {
    let entry = |name: &[u8], seconds, node| TreeEntry {
        name: name.into(),
        attributes: Attributes {
            mode: 0o644,
            uid: 1000,
            gid: 1000,
            mtime: FileTime { seconds, nanoseconds: 5 },
            xattrs: Xattrs::new(vec![((*b"user.k").into(), (*b"v").into())]),
        },
        node,
    };
    let file = Node::file(300, ContentHash::of(b""));
    let tree = Tree::new(vec![entry(b"a", -1, file), entry(b"ab", 2, Node::Socket)]);
    let encoded = "6e6f6e6f747265650102000161\
        81a401e807e8070105000000ac02e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\
        0106757365722e6b0176\
        0101629d06050000000106757365722e6b0176";
    assert_eq!(hex::encode(tree.encode()), encoded);
    assert_eq!(Tree::decode(&hex::decode(encoded).unwrap()), Ok(tree));

    let link = MidstatesLink::to(ContentHash::of(b"m"));
    let long = Node::File { size: 1 << 21, hash: ContentHash::of(b""), midstates: link };
    let tree = Tree::new(vec![entry(b"a", -1, long.clone())]);
    let encoded = "6e6f6e6f74726565010100016180a401e807e807010500000080808001\
        e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\
        62c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a\
        0106757365722e6b0176";
    assert_eq!(hex::encode(tree.encode()), encoded);
    assert_eq!(Tree::decode(&hex::decode(encoded).unwrap()).unwrap().encode(), tree.encode());

    let TreeEntry { attributes, .. } = entry(b"", -1, Node::Fifo);
    let entries = vec![RootEntry { path: (*b"/a").into(), attributes, node: long }];
    let root = RootTree { entries, links: None };
    let encoded = "6e6f6e6f726f6f740101022f610101a401e807e8070105000000\
        80808001e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\
        0106757365722e6b0176\
        0162c66a7a5dd70c3146618063c344e531e6d4b59e379808443ce962b3abd63c5a\
        00";
    assert_eq!(hex::encode(root.encode()), encoded);
    assert_eq!(RootTree::decode(&hex::decode(encoded).unwrap()).unwrap().encode(), root.encode());
}

#[test]
fn midstates_stand_only_beside_long_files() {
    let attributes = Attributes::default();
    let file = |size, midstates: Option<&[u8]>| Node::File {
        size,
        hash: ContentHash::of(b""),
        midstates: midstates.map(ContentHash::of).map_or(MidstatesLink::NONE, MidstatesLink::to),
    };
    let tree = |node| {
        let attributes = attributes.clone();
        Tree::new(vec![TreeEntry { name: (*b"a").into(), attributes, node }]).encode()
    };
    let root = |node| {
        let entry = RootEntry { path: (*b"/a").into(), attributes: attributes.clone(), node };
        RootTree { entries: vec![entry], links: None }.encode()
    };
    const LONG: u64 = (1 << 20) + 1;
    // A short file has none.
    assert_eq!(tree(file(1 << 20, Some(b"m"))), tree(file(1 << 20, None)));
    assert_eq!(root(file(1 << 20, Some(b"m"))), root(file(1 << 20, None)));
    let mut short = tree(file(LONG, Some(b"m")));
    // The length of the file stands before its hash; this one is as long as it is written.
    let size = short.windows(3).position(|bytes| bytes == [0x81, 0x80, 0x40]).unwrap();
    short[size + 2] = 0x3f;
    assert!(Tree::decode(&short).is_err());
    assert!(RootTree::decode(&root(file(LONG, Some(b"m")))).is_ok());
}

#[test]
fn an_owner_that_no_file_has_is_refused() {
    let entry = |uid, gid| TreeEntry {
        name: (*b"a").into(),
        attributes: Attributes { uid, gid, ..Attributes::default() },
        node: Node::Fifo,
    };
    for (uid, gid) in [(u32::MAX, 0), (0, u32::MAX)] {
        let tree = Tree::new(vec![entry(uid, gid)]);
        assert!(Tree::decode(&tree.encode()).is_err());
        let TreeEntry { attributes, node, .. } = entry(uid, gid);
        let entries = vec![RootEntry { path: (*b"/a").into(), attributes, node }];
        assert!(RootTree::decode(&RootTree { entries, links: None }.encode()).is_err());
    }
    let largest = Tree::new(vec![entry(u32::MAX - 1, u32::MAX - 1)]);
    assert_eq!(Tree::decode(&largest.encode()), Ok(largest));
}
