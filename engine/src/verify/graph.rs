//! All objects that were looked at, each once, and which of them name which.
//!
//! Trees are read from the Merkle roots down, a bounded number at a time and in parallel, and
//! meanwhile files that are too long for a pack; then the contents of all others. Names are not
//! kept: four bytes for each entry of each different directory are enough to say later what a
//! damaged object is needed for. Totals are summed once for each tree, from the leaves up, so that
//! a tree which names another one twice sixty levels deep costs sixty additions. Hashes are checked
//! before a list is believed, so there are no cycles.

use std::collections::{BTreeSet, HashMap};

use super::VerifyError;
use super::contents;
use super::lists::{BadList, ListOutcome, ReadList, read_lists};
use super::long_files::LongFiles;
use super::nodes::{Nodes, TooMany};
use super::sum::{Count, Sum};
use crate::object::ContentHash;
use crate::progress::{Progress, Stage};
use crate::store::{LocalStore, StoreError};

/// Number of lists that are read at once; as many are in memory until they are added.
const LISTS_AT_ONCE: usize = 1024;
/// Maximum number of objects for which there is room in advance: 66 bytes of address space
/// each, and of memory only what is used and two bytes.
const MAX_EXPECTED: usize = 1 << 21;
/// Longer files, in bytes, are read when all lists are: the thread that adds lists could be kept
/// from it for long by one.
const MAX_BYTES_MEANWHILE: u64 = 64 << 20;

/// Index of an object in the graph.
pub(super) type NodeId = u32;

/// The use of an object. The same bytes may have two uses: a user may track a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Root,
    Links,
    Tree,
    /// Contents of a file that a tree says has so many bytes.
    File {
        size: u64,
    },
    /// The midstates of such contents.
    Midstates {
        size: u64,
    },
}

/// The defect of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Damage {
    Missing,
    Corrupt(String),
    /// It could not be read, which says nothing of its bytes.
    Unreadable(String),
    /// The object is sound, but not of the length that the tree says.
    WrongSize {
        actual: u64,
    },
    /// The object is sound, but not what the tree takes it for.
    Mistaken(String),
}

/// An object in one of its roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) hash: ContentHash,
    pub(super) role: Role,
}

/// The defect of a node.
pub(super) struct Finding {
    pub(super) id: NodeId,
    /// Bytes that were read of it; `None` when there was nothing to read.
    pub(super) bytes: Option<u64>,
    pub(super) damage: Damage,
}

/// The contents of a sound list.
struct List {
    /// Its length.
    bytes: u64,
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
    /// With the index of what they list. Contents that were read and are sound have neither that
    /// nor a finding.
    nodes: Nodes,
    lists: Vec<List>,
    findings: HashMap<NodeId, Finding>,
    /// Contents with the midstates that a tree names beside them, as far as no thread has compared
    /// them.
    beside: BTreeSet<(NodeId, NodeId)>,
    /// Names of the midstates that intact contents have.
    midstates: HashMap<ContentHash, ContentHash>,
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
    /// An empty one that will probably hold so many objects: to grow is to place them all anew.
    pub(super) fn for_about(objects: usize) -> Self {
        Self { nodes: Nodes::with_capacity(objects.min(MAX_EXPECTED)), ..Self::default() }
    }

    pub(super) fn node(&self, id: NodeId) -> Node {
        *self.nodes.node(id)
    }

    pub(super) fn id(&self, hash: ContentHash, role: Role) -> Option<NodeId> {
        self.nodes.find(&Node { hash, role })
    }

    /// Whether this is the node of an object in a role.
    pub(super) fn is(&self, id: NodeId, node: &Node) -> bool {
        self.nodes.get(id) == Some(node)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How long every object was that could be read.
    pub(super) fn bytes_read(&self) -> impl Iterator<Item = u64> {
        (0..self.nodes.len() as NodeId).filter_map(|id| self.bytes(id))
    }

    /// Length of what was read of a node; `None` when there was nothing to read.
    pub(super) fn bytes(&self, id: NodeId) -> Option<u64> {
        if let Some(list) = self.list(id) {
            return Some(list.bytes);
        }
        match (self.findings.get(&id), self.node(id).role) {
            (Some(finding), _) => finding.bytes,
            (None, Role::File { size }) => Some(size),
            (None, _) => None,
        }
    }

    pub(super) fn damage(&self, id: NodeId) -> Option<&Damage> {
        self.findings.get(&id).map(|finding| &finding.damage)
    }

    /// The children in a list; nothing for contents and for an unreadable list.
    pub(super) fn children(&self, id: NodeId) -> &[NodeId] {
        self.list(id).map_or(&[], |list| &list.children)
    }

    /// Whether an object and everything below it is sound.
    pub(super) fn is_sound(&self, id: NodeId) -> bool {
        !self.findings.contains_key(&id) && self.list(id).is_none_or(|list| list.is_sound)
    }

    /// The sum over a tree or root.
    pub(super) fn sum(&self, id: NodeId) -> Sum {
        self.list(id).map_or(Sum::Unknown, |list| list.sum)
    }

    /// Tracked paths that a root holds, in order.
    pub(super) fn root_paths(&self, id: NodeId) -> &[Box<[u8]>] {
        self.root_paths.get(&id).map_or(&[], Vec::as_slice)
    }

    fn list(&self, id: NodeId) -> Option<&List> {
        self.nodes.list(id).map(|list| &self.lists[list as usize])
    }

    /// Reads everything below some Merkle roots that was not read before.
    pub(super) fn add_roots(
        &mut self,
        roots: &[ContentHash],
        reading: &Reading<'_>,
    ) -> Result<(), VerifyError> {
        reading.progress.begin(Stage::ReadLists, None);
        let mut unread_lists = Vec::new();
        for root in roots {
            self.intern(*root, Role::Root, &mut unread_lists)?;
        }
        let first_list = self.lists.len();
        let long_files = LongFiles::new(reading);
        let findings = reading.pool.install(|| {
            rayon::scope(|scope| {
                let files = self.add_lists_below(unread_lists, &long_files, scope, reading)?;
                contents::read(self, files, &long_files, scope)
            })
        })?;
        let (in_long, midstates) = long_files.finish()?;
        for finding in findings.into_iter().chain(in_long) {
            self.findings.insert(finding.id, finding);
        }
        self.midstates.extend(midstates);
        self.compare_midstates();
        for root in roots {
            if let Some(id) = self.id(*root, Role::Root) {
                self.settle(id);
            }
        }
        debug_assert!(self.lists[first_list..].iter().all(|list| list.is_settled));
        Ok(())
    }

    /// The name of midstates that a tree names beside these contents.
    pub(super) fn midstates_beside(&self, contents: NodeId) -> Option<ContentHash> {
        let (_, id) = self.beside.range((contents, 0)..=(contents, NodeId::MAX)).next()?;
        Some(self.node(*id).hash)
    }

    /// Whether midstates are those of the contents that they stand beside.
    fn compare_midstates(&mut self) {
        for (contents, id) in std::mem::take(&mut self.beside) {
            if [contents, id].iter().any(|id| self.findings.contains_key(id)) {
                continue;
            }
            if self.midstates.get(&self.node(contents).hash) != Some(&self.node(id).hash) {
                let reason = "is not the midstates of the contents that it stands beside";
                let (bytes, damage) = (self.bytes(id), Damage::Mistaken(reason.to_owned()));
                self.findings.insert(id, Finding { id, bytes, damage });
            }
        }
    }

    /// Reads lists, and all that they name, and returns the files that are still to be read. While
    /// some lists are read, one thread adds those before them, and long files are read as well.
    fn add_lists_below<'s>(
        &mut self,
        mut unread_lists: Vec<NodeId>,
        long_files: &'s LongFiles<'_>,
        scope: &rayon::Scope<'s>,
        reading: &Reading<'_>,
    ) -> Result<Vec<NodeId>, VerifyError> {
        let mut unread_files = Vec::new();
        let mut lists = Vec::new();
        while !unread_lists.is_empty() || !lists.is_empty() {
            reading.check_cancelled()?;
            // From the end, so that few lists wait: depth first.
            let rest = unread_lists.len().saturating_sub(LISTS_AT_ONCE);
            let bundle = unread_lists.drain(rest..).map(|id| (id, self.node(id))).collect();
            let first_file = unread_files.len();
            let (next, added) = rayon::join(
                || read_lists(bundle, reading),
                || {
                    lists.drain(..).try_for_each(|(id, read)| {
                        self.add_list(id, read, &mut unread_lists, &mut unread_files)
                    })
                },
            );
            added?;
            lists = next;
            long_files.take(self, &mut unread_files, first_file, MAX_BYTES_MEANWHILE, scope);
        }
        Ok(unread_files)
    }

    /// The node of an object in a role; a new one is put into `unread`.
    pub(super) fn intern(
        &mut self,
        hash: ContentHash,
        role: Role,
        unread: &mut Vec<NodeId>,
    ) -> Result<NodeId, VerifyError> {
        let found = self.nodes.find_or_add(Node { hash, role });
        let (id, is_new) = found.map_err(|TooMany| VerifyError::TooManyObjects)?;
        if is_new {
            unread.push(id);
        }
        Ok(id)
    }

    fn add_list(
        &mut self,
        id: NodeId,
        read: ListOutcome,
        unread_lists: &mut Vec<NodeId>,
        unread_files: &mut Vec<NodeId>,
    ) -> Result<(), VerifyError> {
        let ReadList { bytes, listing } = match read {
            Ok(read) => read,
            Err(BadList { bytes, damage }) => {
                self.findings.insert(id, Finding { id, bytes, damage });
                return Ok(());
            }
        };
        let mut children = Vec::with_capacity(listing.children.len());
        for (hash, role) in listing.children {
            let unread = match role {
                Role::File { .. } => &mut *unread_files,
                _ => &mut *unread_lists,
            };
            let child = self.intern(hash, role, unread)?;
            if let (Role::Midstates { .. }, Some(contents)) = (role, children.last()) {
                self.beside.insert((*contents, child));
            }
            children.push(child);
        }
        if self.node(id).role == Role::Root {
            self.root_paths.insert(id, listing.paths);
        }
        // There are never more lists than nodes.
        self.nodes.set_list(id, self.lists.len() as u32);
        self.lists.push(List {
            bytes,
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
            if let Some(at) = self.nodes.list(id) {
                let list = &mut self.lists[at as usize];
                (list.sum, list.is_sound, list.is_settled) = (sum, is_sound, true);
            }
        }
    }
}

impl Damage {
    pub(super) fn of(error: StoreError) -> Self {
        match error {
            StoreError::Missing { .. } => Self::Missing,
            StoreError::Corrupt { reason, .. } => Self::Corrupt(reason),
            // An object that cannot be read now is not there for a restore either.
            other => Self::Unreadable(other.to_string()),
        }
    }
}
