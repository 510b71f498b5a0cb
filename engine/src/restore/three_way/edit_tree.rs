//! A root tree with some paths replaced: only the directories on the way to them are written anew.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, LinkGroups, Node, Tree, TreeEntry};
use crate::store::{ObjectStore, StoreError, read_links, read_root_tree, read_tree};

/// The wanted states of paths; `None`: they go.
pub(in crate::restore) type Edits = BTreeMap<Vec<u8>, Option<Arc<EntryState>>>;

/// Writes the root tree that has these paths as they are to be, and all else as it is. Of `linked`
/// paths, each group is one file.
pub(in crate::restore) fn apply(
    store: &dyn ObjectStore,
    root: &ContentHash,
    edits: &Edits,
    linked: Vec<Vec<Box<[u8]>>>,
) -> Result<ContentHash, StoreError> {
    let mut tree = read_root_tree(store, root)?;
    for entry in &mut tree.entries {
        if let Some(Some(state)) = edits.get(&*entry.path) {
            entry.attributes = state.attributes.clone();
        }
        let Node::Directory { tree } = &mut entry.node else { continue };
        let inside: Inside<'_> = edits
            .iter()
            .filter_map(|(path, state)| Some((byte_path::relative_to(path, &entry.path)?, state)))
            .filter(|(inside, _)| !inside.is_empty())
            .collect();
        *tree = rebuilt(store, Some(*tree), &inside)?;
    }
    if tree.links.is_some() || !linked.is_empty() {
        let links = read_links(store, tree.links.as_ref())?;
        let joined: HashSet<&[u8]> = linked.iter().flatten().map(|path| &**path).collect();
        // Whatever a path is to be, it is linked to nothing else.
        let stays = |path: &[u8]| !edits.contains_key(path) && !joined.contains(path);
        let group =
            |group: &Vec<Box<[u8]>>| group.iter().filter(|path| stays(path)).cloned().collect();
        let known: Vec<_> = links.groups().iter().map(group).collect();
        let groups = LinkGroups::new(known.into_iter().chain(linked.iter().cloned()).collect());
        tree.links = match groups.is_empty() {
            true => None,
            false => Some(store.write(&groups.encode())?.hash),
        };
    }
    Ok(store.write(&tree.encode())?.hash)
}

/// Edits by their paths in one directory.
type Inside<'a> = BTreeMap<&'a [u8], &'a Option<Arc<EntryState>>>;

fn rebuilt(
    store: &dyn ObjectStore,
    tree: Option<ContentHash>,
    edits: &Inside<'_>,
) -> Result<ContentHash, StoreError> {
    if edits.is_empty()
        && let Some(tree) = tree
    {
        return Ok(tree);
    }
    let entries = match &tree {
        Some(tree) => read_tree(store, tree)?.into_entries(),
        None => Vec::new(),
    };
    let mut entries: BTreeMap<Box<[u8]>, TreeEntry> =
        entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect();
    let first = |path: &&[u8]| byte_path::components(path).next().map(<[u8]>::to_vec);
    let names: BTreeSet<Vec<u8>> = edits.keys().filter_map(first).collect();
    for name in names {
        let known = entries.remove(&*name);
        let entry = match (edits.get(&*name), known) {
            (None, known) => known,
            (Some(None), _) => None,
            (Some(Some(state)), known) => {
                let node = match (&state.node, known.map(|known| known.node)) {
                    // Its contents are not for its own edit to say.
                    (Node::Directory { .. }, Some(Node::Directory { tree })) => {
                        Node::Directory { tree }
                    }
                    (Node::Directory { .. }, _) => {
                        Node::Directory { tree: rebuilt(store, None, &Inside::new())? }
                    }
                    (node, _) => node.clone(),
                };
                let attributes = state.attributes.clone();
                Some(TreeEntry { name: name.clone().into(), attributes, node })
            }
        };
        let Some(mut entry) = entry else { continue };
        if let Node::Directory { tree } = &mut entry.node {
            let below = edits.iter().filter_map(|(path, state)| {
                let inside = byte_path::relative_to(path, &name)?;
                (!inside.is_empty()).then_some((inside, *state))
            });
            *tree = rebuilt(store, Some(*tree), &below.collect())?;
        }
        entries.insert(entry.name.clone(), entry);
    }
    let tree = Tree::new(entries.into_values().collect());
    Ok(store.write(&tree.encode())?.hash)
}
