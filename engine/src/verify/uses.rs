//! Everything that a damaged object is needed for.
//!
//! A report names one path of each; a user who lost something wants all of them. Only lists above
//! something damaged are read again, so that this costs the size of the damage. The number of named
//! paths is bounded: trees that name each other can have more than there are atoms.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::graph::{Damage, Graph, NodeId, Role};
use super::lists::children_of;
use crate::object::{ContentHash, Midstates};
use crate::path_text::to_path;
use crate::store::{LocalStore, MAX_TREE_BYTES, read_root_tree, read_tree};

/// Maximum number of paths of one object that are named.
const MAX_PATHS: usize = 1000;
/// Maximum number of lists, each at one path, that are looked at.
const MAX_LISTS: usize = 100_000;

/// A damaged object of a session, with what needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedObject {
    /// Its name.
    pub hash: ContentHash,
    /// The use of it.
    pub used_as: UsedAs,
    /// The defect.
    pub reason: String,
    /// Whether it could not be read, which says nothing of its bytes.
    pub is_unreadable: bool,
    /// Numbers of the snapshots that need it.
    pub snapshots: BTreeSet<u64>,
    /// Where it stands in them; empty for the root of a snapshot and for its list of links.
    pub paths: BTreeSet<PathBuf>,
    /// Whether it stands at more paths, or these could not all be looked for.
    pub has_more_paths: bool,
}

/// The use of an object. In JSON the kind alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedAs {
    /// The list of the tracked paths of a snapshot.
    RootTree,
    /// The list of hard links of a snapshot.
    HardLinks,
    /// The list of a directory.
    Tree,
    /// The contents of a file of so many bytes.
    Contents {
        /// Length that the tree says.
        size: u64,
    },
    /// The midstates of such contents: with these a mount need not read all of a file to verify a
    /// part of it.
    Midstates {
        /// Length of the file.
        size: u64,
    },
}

impl UsedAs {
    /// Whether an intact object of this use can have so many bytes.
    pub fn may_have(self, bytes: u64) -> bool {
        match self {
            Self::Contents { size } => bytes == size,
            Self::Midstates { size } => bytes == Midstates::encoded_bytes(size),
            Self::RootTree | Self::HardLinks | Self::Tree => bytes <= MAX_TREE_BYTES,
        }
    }
}

impl Serialize for UsedAs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::RootTree => "root_tree",
            Self::HardLinks => "hard_links",
            Self::Tree => "tree",
            Self::Contents { .. } => "contents",
            Self::Midstates { .. } => "midstates",
        })
    }
}

impl std::fmt::Display for UsedAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::RootTree => "the root of a snapshot",
            Self::HardLinks => "a list of hard links",
            Self::Tree => "the list of a directory",
            Self::Contents { .. } => "the contents of a file",
            Self::Midstates { .. } => "the midstates of a file's hash",
        })
    }
}

impl From<Role> for UsedAs {
    fn from(role: Role) -> Self {
        match role {
            Role::Root => Self::RootTree,
            Role::Links => Self::HardLinks,
            Role::Tree => Self::Tree,
            Role::File { size } => Self::Contents { size },
            Role::Midstates { size } => Self::Midstates { size },
        }
    }
}

/// Finds what is damaged below the roots of some snapshots, given with their numbers.
pub(super) fn damaged(
    store: &LocalStore,
    graph: &Graph,
    roots: &[(u64, ContentHash)],
) -> Vec<DamagedObject> {
    let mut uses = Uses { store, graph, found: BTreeMap::new() };
    for (number, root) in roots {
        if let Some(id) = graph.id(*root, Role::Root) {
            uses.count_snapshot(*number, id);
        }
    }
    if !uses.found.is_empty() && !uses.name_paths(roots) {
        uses.found.values_mut().for_each(|damaged| damaged.has_more_paths = true);
    }
    uses.found.into_values().collect()
}

struct Uses<'a> {
    store: &'a LocalStore,
    graph: &'a Graph,
    found: BTreeMap<NodeId, DamagedObject>,
}

impl Uses<'_> {
    /// Notes for everything damaged below a root that this snapshot needs it.
    fn count_snapshot(&mut self, number: u64, root: NodeId) {
        let mut seen = HashSet::from([root]);
        let mut pending = vec![root];
        while let Some(id) = pending.pop() {
            if let Some(damage) = self.graph.damage(id) {
                let node = self.graph.node(id);
                let damaged = self.found.entry(id).or_insert_with(|| DamagedObject {
                    hash: node.hash,
                    used_as: node.role.into(),
                    reason: reason(damage, node.role),
                    is_unreadable: matches!(damage, Damage::Unreadable(_)),
                    snapshots: BTreeSet::new(),
                    paths: BTreeSet::new(),
                    has_more_paths: false,
                });
                damaged.snapshots.insert(number);
            }
            for child in self.graph.children(id) {
                if !self.graph.is_sound(*child) && seen.insert(*child) {
                    pending.push(*child);
                }
            }
        }
    }

    /// Names the paths; `false` when there were too many to look at all.
    fn name_paths(&mut self, roots: &[(u64, ContentHash)]) -> bool {
        let mut seen: HashSet<(NodeId, Vec<u8>)> = HashSet::new();
        let mut pending = Vec::new();
        for (_, root) in roots {
            let Ok(tree) = read_root_tree(self.store, root) else { continue };
            for entry in tree.entries {
                let children = children_of(&entry.node);
                self.meet(children, entry.path.into_vec(), &mut seen, &mut pending);
            }
        }
        while let Some((id, path)) = pending.pop() {
            if seen.len() > MAX_LISTS {
                return false;
            }
            let Ok(tree) = read_tree(self.store, &self.graph.node(id).hash) else { continue };
            for entry in tree.into_entries() {
                let path = [&*path, b"/", &*entry.name].concat();
                self.meet(children_of(&entry.node), path, &mut seen, &mut pending);
            }
        }
        true
    }

    fn meet(
        &mut self,
        children: impl Iterator<Item = (ContentHash, Role)>,
        path: Vec<u8>,
        seen: &mut HashSet<(NodeId, Vec<u8>)>,
        pending: &mut Vec<(NodeId, Vec<u8>)>,
    ) {
        for id in children.filter_map(|(hash, role)| self.graph.id(hash, role)) {
            if let Some(damaged) = self.found.get_mut(&id) {
                if damaged.paths.len() < MAX_PATHS {
                    damaged.paths.insert(PathBuf::from(to_path(&path)));
                } else {
                    damaged.has_more_paths |= !damaged.paths.contains(to_path(&path));
                }
            } else if !self.graph.is_sound(id) && seen.insert((id, path.clone())) {
                pending.push((id, path.clone()));
            }
        }
    }
}

fn reason(damage: &Damage, role: Role) -> String {
    match (damage, role) {
        (Damage::Missing, _) => "it is missing".to_owned(),
        (Damage::Corrupt(reason) | Damage::Unreadable(reason), _) => reason.clone(),
        (Damage::Mistaken(reason), _) => format!("it {reason}"),
        (Damage::WrongSize { actual }, Role::File { size }) => {
            format!("a tree says that it has {size} bytes, but it has {actual}")
        }
        (Damage::WrongSize { actual }, _) => format!("it has {actual} bytes"),
    }
}
