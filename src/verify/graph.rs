//! All objects that were looked at, each once, and which of them name which.
//!
//! Trees are read from the Merkle roots down, a bounded number at a time and in parallel; then the
//! contents of files. Names are not kept: four bytes for each entry of each different directory are
//! enough to say later what a damaged object is needed for. Totals are summed once for each tree,
//! from the leaves up, so that a tree which names another one twice sixty levels deep costs sixty
//! additions. Hashes are checked before a list is believed, so there are no cycles.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use indexmap::map::Entry;
use rayon::prelude::*;

use super::VerifyError;
use super::contents;
use crate::object::{ContentHash, DecodeError, LinkGroups, Node as EntryNode, RootTree, Tree};
use crate::progress::{Progress, Stage};
use crate::store::{LocalStore, MAX_TREE_BYTES, ObjectSource, StoreError};

/// So many lists are read and held in memory at once.
const LISTS_AT_ONCE: usize = 1024;

/// Index of an object in the graph.
pub(super) type NodeId = u32;

/// What an object is used as. The same bytes may be two things: somebody may track a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Role {
    Root,
    Links,
    Tree,
    /// Contents of a file that a tree says has so many bytes.
    File {
        size: u64,
    },
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Damage {
    Missing,
    Corrupt(String),
    /// The object is sound, but not of the length that the tree says.
    WrongSize {
        actual: u64,
    },
}

/// What a tree holds, subtrees included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) files: u64,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Count {
    fn plus(self, other: Self) -> Option<Self> {
        Some(Self {
            files: self.files.checked_add(other.files)?,
            entries: self.entries.checked_add(other.entries)?,
            bytes: self.bytes.checked_add(other.bytes)?,
        })
    }
}

/// The sum of a tree, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sum {
    Known(Count),
    /// Something below cannot be read.
    Unknown,
    /// Beyond 64 bits, which nothing that was ever captured is.
    TooLarge,
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::Known(a), Self::Known(b)) => a.plus(b).map_or(Self::TooLarge, Self::Known),
            _ => Self::TooLarge,
        }
    }
}

/// An object in one of its roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) hash: ContentHash,
    pub(super) role: Role,
}

/// What is known of a node.
#[derive(Default)]
struct Known {
    /// Bytes that were read of it; `None` when there was nothing to read.
    bytes: Option<u64>,
    /// Index of what it lists, if it is a list that can be read.
    list: Option<u32>,
}

/// What a sound list says.
struct List {
    children: Box<[NodeId]>,
    /// Its own entries; `None` beyond 64 bits.
    own: Option<Count>,
    sum: Sum,
    /// Whether nothing below is damaged.
    is_sound: bool,
    /// Whether `sum` and `is_sound` are computed.
    is_settled: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Graph {
    /// By their ids, which are their positions.
    nodes: IndexMap<Node, Known, RandomState>,
    lists: Vec<List>,
    damage: HashMap<NodeId, Damage>,
    root_paths: HashMap<NodeId, Vec<Box<[u8]>>>,
}

/// How objects are read.
pub(super) struct Reading<'a> {
    pub(super) store: &'a LocalStore,
    pub(super) pool: &'a rayon::ThreadPool,
    pub(super) progress: &'a dyn Progress,
}

impl Reading<'_> {
    pub(super) fn check_cancelled(&self) -> Result<(), VerifyError> {
        if self.progress.is_cancelled() { Err(VerifyError::Cancelled) } else { Ok(()) }
    }
}

impl Graph {
    pub(super) fn node(&self, id: NodeId) -> Node {
        self.nodes.keys()[id as usize]
    }

    pub(super) fn id(&self, hash: ContentHash, role: Role) -> Option<NodeId> {
        // `intern` refuses more nodes than an id can number.
        self.nodes.get_index_of(&Node { hash, role }).map(|id| id as NodeId)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How long every object was that could be read.
    pub(super) fn bytes_read(&self) -> impl Iterator<Item = u64> {
        self.nodes.values().filter_map(|known| known.bytes)
    }

    /// Length of what was read of a node; `None` when there was nothing to read.
    pub(super) fn bytes(&self, id: NodeId) -> Option<u64> {
        self.nodes[id as usize].bytes
    }

    pub(super) fn damage(&self, id: NodeId) -> Option<&Damage> {
        self.damage.get(&id)
    }

    /// What a list names; nothing for contents and for what cannot be read.
    pub(super) fn children(&self, id: NodeId) -> &[NodeId] {
        self.list(id).map_or(&[], |list| &list.children)
    }

    /// Whether an object and everything below it is sound.
    pub(super) fn is_sound(&self, id: NodeId) -> bool {
        !self.damage.contains_key(&id) && self.list(id).is_none_or(|list| list.is_sound)
    }

    /// What is in a tree or root.
    pub(super) fn sum(&self, id: NodeId) -> Sum {
        self.list(id).map_or(Sum::Unknown, |list| list.sum)
    }

    /// Tracked paths that a root holds, in order.
    pub(super) fn root_paths(&self, id: NodeId) -> &[Box<[u8]>] {
        self.root_paths.get(&id).map_or(&[], Vec::as_slice)
    }

    fn list(&self, id: NodeId) -> Option<&List> {
        self.nodes[id as usize].list.map(|list| &self.lists[list as usize])
    }

    /// Reads everything below some Merkle roots that was not read before.
    pub(super) fn add_roots(
        &mut self,
        roots: &[ContentHash],
        reading: &Reading<'_>,
    ) -> Result<(), VerifyError> {
        reading.progress.begin(Stage::ReadLists, None);
        let mut unread_lists = Vec::new();
        let mut unread_files = Vec::new();
        for root in roots {
            self.intern(*root, Role::Root, &mut unread_lists)?;
        }
        let first_list = self.lists.len();
        // One thread works on the lists, with the help of others; meanwhile these read what is long.
        let beside = contents::Beside::default();
        let mut found = reading.pool.install(|| {
            rayon::scope(|scope| {
                while !unread_lists.is_empty() {
                    let known = unread_files.len();
                    self.read_lists(&mut unread_lists, &mut unread_files, reading)?;
                    for file in contents::take_long(self, &mut unread_files, known) {
                        let beside = &beside;
                        beside.expect(file);
                        scope.spawn(move |_| beside.read(file, reading));
                    }
                }
                contents::read(self, unread_files, &beside, reading)
            })
        })?;
        found.extend(beside.finish()?);
        for found in found {
            self.nodes[found.id as usize].bytes = found.bytes;
            if let Some(damage) = found.damage {
                self.damage.insert(found.id, damage);
            }
        }
        for root in roots {
            if let Some(id) = self.id(*root, Role::Root) {
                self.settle(id);
            }
        }
        debug_assert!(self.lists[first_list..].iter().all(|list| list.is_settled));
        Ok(())
    }

    /// Reads a bundle of lists. From the end, so that few lists wait: depth first.
    fn read_lists(
        &mut self,
        unread_lists: &mut Vec<NodeId>,
        unread_files: &mut Vec<NodeId>,
        reading: &Reading<'_>,
    ) -> Result<(), VerifyError> {
        reading.check_cancelled()?;
        let rest = unread_lists.len().saturating_sub(LISTS_AT_ONCE);
        let bundle = unread_lists.split_off(rest);
        let read: Vec<_> = bundle.par_iter().map(|id| self.read_list(*id, reading)).collect();
        for (id, read) in bundle.into_iter().zip(read) {
            self.nodes[id as usize].bytes = read.bytes;
            match read.listing {
                Ok(listing) => self.add_list(id, listing, unread_lists, unread_files)?,
                Err(damage) => drop(self.damage.insert(id, damage)),
            }
        }
        Ok(())
    }

    /// The node of an object in a role; a new one is put into `unread`.
    fn intern(
        &mut self,
        hash: ContentHash,
        role: Role,
        unread: &mut Vec<NodeId>,
    ) -> Result<NodeId, VerifyError> {
        let id = NodeId::try_from(self.nodes.len()).map_err(|_| VerifyError::TooManyObjects)?;
        match self.nodes.entry(Node { hash, role }) {
            Entry::Occupied(known) => return Ok(known.index() as NodeId),
            Entry::Vacant(new) => drop(new.insert(Known::default())),
        }
        unread.push(id);
        Ok(id)
    }

    fn add_list(
        &mut self,
        id: NodeId,
        listing: Listing,
        unread_lists: &mut Vec<NodeId>,
        unread_files: &mut Vec<NodeId>,
    ) -> Result<(), VerifyError> {
        let mut children = Vec::with_capacity(listing.children.len());
        for (hash, role) in listing.children {
            let unread = match role {
                Role::File { .. } => &mut *unread_files,
                _ => &mut *unread_lists,
            };
            children.push(self.intern(hash, role, unread)?);
        }
        if self.node(id).role == Role::Root {
            self.root_paths.insert(id, listing.paths);
        }
        // There are never more lists than nodes.
        self.nodes[id as usize].list = Some(self.lists.len() as u32);
        self.lists.push(List {
            children: children.into(),
            own: listing.own,
            sum: Sum::Unknown,
            is_sound: false,
            is_settled: false,
        });
        Ok(())
    }

    /// Computes sums and soundness of a list after those of everything below it.
    fn settle(&mut self, from: NodeId) {
        let mut stack = vec![from];
        while let Some(&id) = stack.last() {
            let Some(list) = self.list(id).filter(|list| !list.is_settled) else {
                stack.pop();
                continue;
            };
            let waiting = stack.len();
            let unsettled =
                |child: &NodeId| self.list(*child).is_some_and(|child| !child.is_settled);
            stack.extend(list.children.iter().copied().filter(unsettled));
            if stack.len() > waiting {
                continue;
            }
            stack.pop();
            let mut sum = list.own.map_or(Sum::TooLarge, Sum::Known);
            let mut is_sound = true;
            for child in &list.children {
                is_sound &= self.is_sound(*child);
                if matches!(self.node(*child).role, Role::Tree) {
                    sum = sum.plus(self.sum(*child));
                }
            }
            if let Some(at) = self.nodes[id as usize].list {
                let list = &mut self.lists[at as usize];
                (list.sum, list.is_sound, list.is_settled) = (sum, is_sound, true);
            }
        }
    }

    fn read_list(&self, id: NodeId, reading: &Reading<'_>) -> ReadList {
        let Node { hash, role } = &self.node(id);
        let read = reading.store.read(hash, MAX_TREE_BYTES);
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => {
                let bytes = self.damaged_bytes(&error, hash, reading);
                return ReadList { bytes, listing: Err(Damage::of(error)) };
            }
        };
        let len = bytes.len() as u64;
        reading.progress.advance(1, len);
        let listing = Listing::decode(&bytes, *role)
            .map_err(|(kind, error)| Damage::Corrupt(undecodable(kind, &error)));
        ReadList { bytes: Some(len), listing }
    }

    /// How much was read of an object that turned out to be damaged.
    fn damaged_bytes(
        &self,
        error: &StoreError,
        hash: &ContentHash,
        reading: &Reading<'_>,
    ) -> Option<u64> {
        match error {
            StoreError::Corrupt { .. } => {
                reading.store.open_object(hash).ok().map(|object| object.size())
            }
            _ => None,
        }
    }
}

impl Damage {
    pub(super) fn of(error: StoreError) -> Self {
        match error {
            StoreError::Missing { .. } => Self::Missing,
            StoreError::Corrupt { reason, .. } => Self::Corrupt(reason),
            // Whatever cannot be read now is not there for a restore either.
            other => Self::Corrupt(other.to_string()),
        }
    }
}

fn undecodable(kind: &str, error: &DecodeError) -> String {
    let advice = match error {
        DecodeError::NewerVersion { .. } => ": use a newer nono",
        _ => "",
    };
    format!("it is not a valid {kind}: {error}{advice}")
}

struct ReadList {
    bytes: Option<u64>,
    listing: Result<Listing, Damage>,
}

/// What a list says, as far as the graph needs it.
struct Listing {
    children: Vec<(ContentHash, Role)>,
    own: Option<Count>,
    /// Of a root only.
    paths: Vec<Box<[u8]>>,
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
            children.extend(child_of(node));
        }
        Self { children, own, paths: Vec::new() }
    }
}

/// The object that an entry names, and as what.
pub(super) fn child_of(node: &EntryNode) -> Option<(ContentHash, Role)> {
    match node {
        EntryNode::File { size, hash } => Some((*hash, Role::File { size: *size })),
        EntryNode::Directory { tree } => Some((*tree, Role::Tree)),
        _ => None,
    }
}
