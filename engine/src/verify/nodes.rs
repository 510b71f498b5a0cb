//! Objects by name and by number, with one copy of the name: of each of millions of them a few
//! bytes more count.
//!
//! A lookup mostly misses a processor's cache, so its cost is the number of touched places: one in
//! the table, of four bytes each, and one among the nodes.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::graph::{Node, NodeId, Role};

/// Nodes, numbered in the order in which they came, each with the index of what it lists.
#[derive(Default)]
pub(super) struct Nodes {
    nodes: Vec<(Node, Option<u32>)>,
    /// The numbers, by the hashes of the nodes.
    numbers: HashTable<NodeId>,
    /// Keyed: no writer can choose names that come to one place.
    hasher: RandomState,
}

/// There are more nodes than numbers.
#[derive(Debug)]
pub(super) struct TooMany;

impl Nodes {
    /// Room for so many nodes: to grow is to place them all anew.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(count),
            numbers: HashTable::with_capacity(count),
            hasher: RandomState::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node of a number that was given out.
    pub(super) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize].0
    }

    /// As [`node`](Self::node); `None` for a number that was not given out.
    pub(super) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize).map(|(node, _)| node)
    }

    /// The index of what a node lists, once it was [set](Self::set_list).
    pub(super) fn list(&self, id: NodeId) -> Option<u32> {
        self.nodes[id as usize].1
    }

    pub(super) fn set_list(&mut self, id: NodeId, list: u32) {
        self.nodes[id as usize].1 = Some(list);
    }

    /// The number of a node.
    pub(super) fn find(&self, node: &Node) -> Option<NodeId> {
        let is_it = |id: &NodeId| self.node(*id) == node;
        self.numbers.find(hash_of(&self.hasher, node), is_it).copied()
    }

    /// The number of a node, and whether it is new.
    ///
    /// # Errors
    /// It would be new, and there is no number for it.
    pub(super) fn find_or_add(&mut self, node: Node) -> Result<(NodeId, bool), TooMany> {
        let Self { nodes, numbers, hasher } = self;
        let is_it = |id: &NodeId| nodes[*id as usize].0 == node;
        let hash = |id: &NodeId| hash_of(hasher, &nodes[*id as usize].0);
        match numbers.entry(hash_of(hasher, &node), is_it, hash) {
            Entry::Occupied(known) => Ok((*known.get(), false)),
            Entry::Vacant(new) => {
                let id = NodeId::try_from(nodes.len()).map_err(|_| TooMany)?;
                new.insert(id);
                nodes.push((node, None));
                Ok((id, true))
            }
        }
    }
}

/// A name is a hash already, so that its beginning is enough. The same name with many lengths is
/// what a list may claim.
fn hash_of(hasher: &RandomState, node: &Node) -> u64 {
    let size = match node.role {
        Role::File { size } | Role::Midstates { size } => size,
        Role::Root | Role::Links | Role::Tree => 0,
    };
    hasher.hash_one((node.hash.beginning(), size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ContentHash;

    #[test]
    fn each_node_has_one_number_and_is_found_by_it_and_by_name() {
        let mut nodes = Nodes::with_capacity(3);
        let node = |number: u64, role| Node { hash: ContentHash::of(&number.to_le_bytes()), role };
        for round in 0..2 {
            for number in 0..1000 {
                for (at, role) in [Role::Tree, Role::File { size: number }].into_iter().enumerate()
                {
                    let id = number as NodeId * 2 + at as NodeId;
                    assert_eq!(nodes.find(&node(number, role)), (round == 1).then_some(id));
                    let found = nodes.find_or_add(node(number, role)).unwrap();
                    assert_eq!(found, (id, round == 0));
                    assert_eq!(nodes.get(id), Some(&node(number, role)));
                }
            }
        }
        assert_eq!((nodes.len(), nodes.get(2000)), (2000, None));
        nodes.set_list(7, 9);
        assert_eq!((nodes.list(6), nodes.list(7)), (None, Some(9)));
    }

    #[test]
    fn one_name_with_many_lengths_has_as_many_places() {
        let (hasher, hash) = (RandomState::default(), ContentHash::of(b"claimed"));
        let node = |size| Node { hash, role: Role::File { size } };
        let places: std::collections::HashSet<_> =
            (0..10_000).map(|size| hash_of(&hasher, &node(size))).collect();
        assert!(places.len() > 9_900, "{}", places.len());
    }
}
