//! For which path a damaged object is needed.
//!
//! Names are not kept while a session is read, so the few lists above something damaged are read
//! again.

use std::collections::HashMap;

use super::graph::{Graph, NodeId, Role};
use super::lists::children_of;
use crate::object::Node;
use crate::store::{LocalStore, read_root_tree, read_tree};

/// Marks a node that no other one led to.
const NO_PARENT: NodeId = NodeId::MAX;
/// Maximum number of lists that are kept decoded.
const LISTS_KEPT: usize = 64;

/// The part of the graph that a session reaches, found snapshot after snapshot.
pub(super) struct Reach<'g> {
    graph: &'g Graph,
    seen: Vec<bool>,
    /// The list that led to a node first.
    parents: Vec<NodeId>,
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl<'g> Reach<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        let (seen, parents) = (vec![false; graph.len()], vec![NO_PARENT; graph.len()]);
        Self { graph, seen, parents, objects: 0, bytes: 0 }
    }

    /// Goes down from a root; gives the damaged nodes that were not reached before, in no
    /// particular order.
    pub(super) fn descend(&mut self, root: NodeId) -> Vec<NodeId> {
        let mut damaged = Vec::new();
        let mut stack = Vec::new();
        self.meet(root, NO_PARENT, &mut stack);
        while let Some(id) = stack.pop() {
            if let Some(bytes) = self.graph.bytes(id) {
                self.objects += 1;
                self.bytes = self.bytes.saturating_add(bytes);
            }
            if self.graph.damage(id).is_some() {
                damaged.push(id);
            }
            for child in self.graph.children(id) {
                self.meet(*child, id, &mut stack);
            }
        }
        damaged
    }

    fn meet(&mut self, id: NodeId, parent: NodeId, stack: &mut Vec<NodeId>) {
        let at = id as usize;
        if !std::mem::replace(&mut self.seen[at], true) {
            self.parents[at] = parent;
            stack.push(id);
        }
    }

    /// The list that led to a node.
    pub(super) fn parent(&self, id: NodeId) -> Option<NodeId> {
        Some(self.parents[id as usize]).filter(|parent| *parent != NO_PARENT)
    }
}

/// Finds paths in what one session reaches.
pub(super) struct Locator<'a> {
    store: &'a LocalStore,
    graph: &'a Graph,
    lists: HashMap<NodeId, HashMap<NodeId, Box<[u8]>>>,
}

impl<'a> Locator<'a> {
    pub(super) fn new(store: &'a LocalStore, graph: &'a Graph) -> Self {
        Self { store, graph, lists: HashMap::new() }
    }

    /// One path that a node stands at. `None` for roots, for lists of links, and where a list above
    /// has gone bad since it was read.
    pub(super) fn path(&mut self, reach: &Reach<'_>, id: NodeId) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut id = id;
        while let Some(parent) = reach.parent(id) {
            names.push(self.name(parent, id)?);
            id = parent;
        }
        names.reverse();
        (!names.is_empty()).then(|| names.join(&b'/'))
    }

    /// The name (for an entry of a root, the path) under which `parent` lists `id`.
    fn name(&mut self, parent: NodeId, id: NodeId) -> Option<Box<[u8]>> {
        if !self.lists.contains_key(&parent) {
            if self.lists.len() >= LISTS_KEPT {
                self.lists.clear();
            }
            let names = self.names(parent);
            self.lists.insert(parent, names);
        }
        self.lists.get(&parent)?.get(&id).cloned()
    }

    fn names(&self, parent: NodeId) -> HashMap<NodeId, Box<[u8]>> {
        let node = self.graph.node(parent);
        let mut names = HashMap::new();
        let mut add = |entry: &Node, name: Box<[u8]>| {
            for id in children_of(entry).filter_map(|(hash, role)| self.graph.id(hash, role)) {
                names.entry(id).or_insert_with(|| name.clone());
            }
        };
        if node.role == Role::Root {
            if let Ok(root) = read_root_tree(self.store, &node.hash) {
                root.entries.into_iter().for_each(|entry| add(&entry.node, entry.path));
            }
        } else if let Ok(tree) = read_tree(self.store, &node.hash) {
            for entry in tree.into_entries() {
                add(&entry.node, entry.name);
            }
        }
        names
    }
}
