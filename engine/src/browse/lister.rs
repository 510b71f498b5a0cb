//! Recorded entries as nodes of the mounted tree.

use nono_mount::{HardLinks, Kind, Node, Xattrs};

use super::key::{
    ContentKey, DirectoryKind, EntryPlace, ObjectKey, PathHash, StoreId, TreeKey, entry_state,
};
use super::links::LinkIndex;
use super::tree::{StoreNode, StoreTree};
use crate::object::{self, Attributes, ContentHash};
use crate::sys;

/// Turns entries of one directory into nodes.
pub(super) struct Lister<'a> {
    store: StoreId,
    /// The directory.
    parent: PathHash,
    links: Option<(&'a ContentHash, &'a LinkIndex)>,
    scratch: Vec<u8>,
}

impl<'a> Lister<'a> {
    pub(super) fn new(
        store: StoreId,
        parent: PathHash,
        links: Option<(&'a ContentHash, &'a LinkIndex)>,
    ) -> Self {
        Self { store, parent, links, scratch: Vec::new() }
    }

    pub(super) fn node(
        &mut self,
        name: &[u8],
        attributes: &Attributes,
        node: &object::Node,
    ) -> StoreNode {
        let Self { store, parent, links, scratch } = self;
        let own = EntryPlace { parent, name, links: 1, links_below: None };
        let (kind, place) = match node {
            object::Node::Directory { tree } => {
                let path = parent.child(name);
                let below = links.and_then(|(hash, index)| Some((*hash, index.below(&path)?)));
                let links = below.map(|(hash, _)| hash);
                let key = TreeKey { store: *store, tree: *tree, path, links };
                let kind = Kind::Directory(DirectoryKind::Tree(key).into());
                (kind, EntryPlace { links_below: below.map(|(_, digest)| digest), ..own })
            }
            other => {
                let group = links.and_then(|(_, index)| index.group(parent, name));
                let place = group.map_or(own, |group| EntryPlace {
                    parent: &group.parent,
                    name: &group.name,
                    links: group.count,
                    links_below: None,
                });
                (leaf(*store, other), place)
            }
        };
        let state = entry_state(place, attributes, node, scratch);
        Node {
            kind,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            mtime_s: attributes.mtime.seconds,
            mtime_ns: attributes.mtime.nanoseconds,
            links: HardLinks(place.links),
            xattrs: xattrs(attributes),
            state: Some(state),
        }
    }
}

/// The kind of an entry that is not a directory.
fn leaf(store: StoreId, node: &object::Node) -> Kind<StoreTree> {
    let device =
        |device: &object::Device| nono_mount::Device { major: device.major, minor: device.minor };
    match node {
        object::Node::File { size, hash, midstates } => {
            let object = ObjectKey { store, hash: *hash };
            Kind::File { size: *size, content: ContentKey::new(object, midstates) }
        }
        object::Node::Symlink { target } => Kind::Symlink { target: target.clone() },
        // A directory has a key of its own, so it never comes here.
        object::Node::Fifo | object::Node::Directory { .. } => Kind::Fifo,
        object::Node::Socket => Kind::Socket,
        object::Node::CharDevice(found) => Kind::CharDevice(device(found)),
        object::Node::BlockDevice(found) => Kind::BlockDevice(device(found)),
    }
}

fn xattrs(attributes: &Attributes) -> Option<Xattrs> {
    // No file system knows the flags by this name, and no program could copy them.
    let shown = attributes.xattrs.iter().filter(|(name, _)| *name != sys::INODE_FLAGS);
    let shown: Vec<_> = shown.map(|(name, value)| (name.into(), value.into())).collect();
    (!shown.is_empty()).then(|| shown.into())
}
