//! Generators of objects for property tests.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::*;

fn name() -> impl Strategy<Value = Vec<u8>> {
    // Some begin alike.
    prop_oneof![vec(any::<u8>(), 1..12), vec(b'a'..=b'b', 1..12)]
        .prop_filter("a name", |name| is_name(name))
}

fn node() -> impl Strategy<Value = Node> {
    let hash = any::<[u8; 32]>().prop_map(ContentHash::from_bytes);
    let device = (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| Device { major, minor });
    let size = prop_oneof![any::<u64>(), 0..4_u64 << 20];
    let link = proptest::option::of(hash.clone());
    prop_oneof![
        (size, hash.clone(), link).prop_map(|(size, hash, midstates)| Node::File {
            size,
            hash,
            midstates: midstates
                .filter(|_| Midstates::are_kept_of(size))
                .map_or(MidstatesLink::NONE, MidstatesLink::to),
        }),
        hash.prop_map(|tree| Node::Directory { tree }),
        vec(1u8.., 1..20).prop_map(|target| Node::Symlink { target: target.into() }),
        Just(Node::Fifo),
        Just(Node::Socket),
        device.clone().prop_map(Node::CharDevice),
        device.prop_map(Node::BlockDevice),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let xattrs = btree_map(vec(1u8.., 1..9), vec(any::<u8>(), 0..9), 0..3);
    // Some are like those of others.
    let mode = prop_oneof![0..=MODE_MASK, Just(0o644)];
    let owner = || prop_oneof![0..u32::MAX, Just(1000)];
    let seconds = prop_oneof![any::<i64>(), 0..2_i64];
    let nanoseconds = prop_oneof![0..1_000_000_000_u32, Just(0)];
    (mode, owner(), owner(), seconds, nanoseconds, xattrs).prop_map(
        |(mode, uid, gid, seconds, nanoseconds, xattrs)| Attributes {
            mode,
            uid,
            gid,
            mtime: FileTime { seconds, nanoseconds },
            xattrs: Xattrs::new(xattrs.into_iter().map(|(k, v)| (k.into(), v.into())).collect()),
        },
    )
}

pub(crate) fn entry() -> impl Strategy<Value = (Attributes, Node)> {
    (attributes(), node())
}

pub(crate) fn tree() -> impl Strategy<Value = Tree> {
    btree_map(name(), (attributes(), node()), 0..8).prop_map(|entries| {
        Tree::new(
            entries
                .into_iter()
                .map(|(name, (attributes, node))| TreeEntry { name: name.into(), attributes, node })
                .collect(),
        )
    })
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(name(), 1..4)
        .prop_map(|names| names.iter().flat_map(|name| [b"/".as_slice(), name].concat()).collect())
}

pub(crate) fn root_tree() -> impl Strategy<Value = RootTree> {
    let links = proptest::option::of(any::<[u8; 32]>().prop_map(ContentHash::from_bytes));
    (btree_map(path(), (attributes(), node()), 0..4), links).prop_map(|(entries, links)| RootTree {
        entries: entries
            .into_iter()
            .map(|(path, (attributes, node))| RootEntry { path: path.into(), attributes, node })
            .collect(),
        links,
    })
}

pub(crate) fn link_groups() -> impl Strategy<Value = LinkGroups> {
    proptest::collection::btree_set(path(), 0..12).prop_map(|paths| {
        let paths: Vec<Box<[u8]>> = paths.into_iter().map(Into::into).collect();
        LinkGroups::new(paths.chunks(3).map(<[_]>::to_vec).collect())
    })
}
