//! Reading the lists of a store: trees, root trees, groups of hard links, and midstates.

use rayon::prelude::*;

use super::graph::{Damage, Node, NodeId, Reading, Role};
use super::sum::Count;
use crate::object::{
    ContentHash, DecodeError, LinkGroups, Midstates, Node as EntryNode, RootTree, Tree,
};
use crate::store::{MAX_TREE_BYTES, StoreError};

fn undecodable(kind: &str, error: &DecodeError) -> String {
    let advice = match error {
        DecodeError::NewerVersion { .. } => ": use a newer nono",
        _ => "",
    };
    format!("it is not a valid {kind}: {error}{advice}")
}

/// A list that is sound.
pub(super) struct ReadList {
    /// Its length.
    pub(super) bytes: u64,
    pub(super) listing: Listing,
}

/// One that is not.
pub(super) struct BadList {
    /// Bytes that were read of it; `None` when there was nothing to read.
    pub(super) bytes: Option<u64>,
    pub(super) damage: Damage,
}

pub(super) type ListOutcome = Result<ReadList, BadList>;

pub(super) fn read_lists(
    bundle: Vec<(NodeId, Node)>,
    reading: &Reading<'_>,
) -> Vec<(NodeId, ListOutcome)> {
    bundle.into_par_iter().map(|(id, node)| (id, read_list(&node, reading))).collect()
}

fn read_list(Node { hash, role }: &Node, reading: &Reading<'_>) -> ListOutcome {
    let contents = reading.store.read_first_found(hash, MAX_TREE_BYTES).map_err(|error| {
        let bytes = damaged_bytes(&error, hash, reading);
        BadList { bytes, damage: Damage::of(error) }
    })?;
    let bytes = contents.len() as u64;
    reading.progress.advance(1, bytes);
    match Listing::decode(&contents, *role) {
        Ok(listing) => Ok(ReadList { bytes, listing }),
        Err((kind, error)) => {
            let damage = match role {
                Role::Midstates { .. } => {
                    Damage::Mistaken(format!("is not a valid {kind}: {error}"))
                }
                _ => Damage::Corrupt(undecodable(kind, &error)),
            };
            Err(BadList { bytes: Some(bytes), damage })
        }
    }
}

/// How much was read of an object that turned out to be damaged.
fn damaged_bytes(error: &StoreError, hash: &ContentHash, reading: &Reading<'_>) -> Option<u64> {
    match error {
        StoreError::Corrupt { .. } => {
            reading.store.open_object(hash).ok().map(|object| object.size())
        }
        _ => None,
    }
}

/// The part of a list that the graph needs.
pub(super) struct Listing {
    pub(super) children: Vec<(ContentHash, Role)>,
    pub(super) own: Option<Count>,
    /// The paths of a root; empty for other lists.
    pub(super) paths: Vec<Box<[u8]>>,
}

impl Listing {
    fn decode(bytes: &[u8], role: Role) -> Result<Self, (&'static str, DecodeError)> {
        match role {
            Role::Root => {
                let root = RootTree::decode(bytes).map_err(|error| ("root tree", error))?;
                let mut listing = Self::of(root.entries.iter().map(|entry| &entry.node));
                listing.children.extend(root.links.map(|links| (links, Role::Links)));
                listing.paths = root.entries.into_iter().map(|entry| entry.path).collect();
                Ok(listing)
            }
            Role::Links => {
                LinkGroups::decode(bytes).map_err(|error| ("list of hard links", error))?;
                Ok(Self::of([].into_iter()))
            }
            Role::Midstates { size } => {
                Midstates::decode(bytes, size).map_err(|error| ("list of midstates", error))?;
                Ok(Self::of([].into_iter()))
            }
            Role::Tree | Role::File { .. } => {
                let tree = Tree::decode(bytes).map_err(|error| ("tree", error))?;
                Ok(Self::of(tree.entries().iter().map(|entry| &entry.node)))
            }
        }
    }

    fn of<'n>(nodes: impl Iterator<Item = &'n EntryNode>) -> Self {
        let mut children = Vec::new();
        let mut own = Some(Count::default());
        for node in nodes {
            let mut count = Count { entries: 1, ..Count::default() };
            if let EntryNode::File { size, .. } = node {
                count = Count { files: 1, entries: 1, bytes: *size };
            }
            own = own.and_then(|own| own.plus(count));
            children.extend(children_of(node));
        }
        Self { children, own, paths: Vec::new() }
    }
}

/// The objects that an entry names, and as what: a file's midstates after its contents.
pub(super) fn children_of(node: &EntryNode) -> impl Iterator<Item = (ContentHash, Role)> {
    let (first, second) = match node {
        EntryNode::File { size, hash, midstates } => {
            let midstates = midstates.name().map(|hash| (hash, Role::Midstates { size: *size }));
            (Some((*hash, Role::File { size: *size })), midstates)
        }
        EntryNode::Directory { tree } => (Some((*tree, Role::Tree)), None),
        _ => (None, None),
    };
    first.into_iter().chain(second)
}
