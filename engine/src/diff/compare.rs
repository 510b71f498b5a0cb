//! Two snapshots side by side, from the top down, through nothing that is equal.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::iter::Peekable;
use std::sync::Arc;
use std::vec;

use super::index::is_refreshed;
use super::{Difference, EntryState, Lookup};
use crate::byte_path;
use crate::object::{ContentHash, Node, RootEntry, RootTree, Tree, TreeEntry};
use crate::store::{ObjectSource, StoreError, read_links, read_root_tree, read_tree};

/// Everything that is different between two snapshots, sorted so that a directory stands before
/// what is in it. Reads only trees that differ.
///
/// # Errors
/// When a tree is missing or damaged.
pub fn compare(
    store: &dyn ObjectSource,
    old_root: &ContentHash,
    new_root: &ContentHash,
) -> Result<Vec<Difference>, StoreError> {
    differences(store, old_root, new_root)?.collect()
}

/// As [`compare()`], one difference after the other: for whoever needs each but once, since there
/// may be millions.
///
/// # Errors
/// When a root tree or a list of links is missing or damaged; damage below appears on the way.
pub fn differences<'a>(
    source: &'a dyn ObjectSource,
    old_root: &ContentHash,
    new_root: &ContentHash,
) -> Result<Differences<'a>, StoreError> {
    let mut found = Differences {
        source,
        base: Vec::new(),
        levels: Vec::new(),
        below: None,
        ahead: None,
        links: Vec::new().into_iter().peekable(),
    };
    if old_root != new_root {
        let old = read_root_tree(source, old_root)?;
        let new = read_root_tree(source, new_root)?;
        if old.links != new.links {
            found.links = other_links(source, &old, &new)?.into_iter().peekable();
        }
        found.enter(Vec::new(), root_entries(old.entries), root_entries(new.entries));
    }
    Ok(found)
}

/// As [`differences`], of one path whose two states are at hand. Its links are not looked at.
pub fn differences_of<'a>(
    source: &'a dyn ObjectSource,
    path: &[u8],
    old: Option<&EntryState>,
    new: Option<&EntryState>,
) -> Differences<'a> {
    let mut found = Differences {
        source,
        base: Vec::new(),
        levels: Vec::new(),
        below: None,
        ahead: None,
        links: Vec::new().into_iter().peekable(),
    };
    let entry = |state: &EntryState| {
        let EntryState { attributes, node } = state.clone();
        TreeEntry { name: path.into(), attributes, node }
    };
    let entries = |state: Option<&EntryState>| state.map(entry).into_iter().collect();
    found.enter(Vec::new(), entries(old), entries(new));
    found
}

/// The differences of two snapshots, in the order of [`compare()`]. Ends after an error.
pub struct Differences<'a> {
    source: &'a dyn ObjectSource,
    /// The directory that the last level lists.
    base: Vec<u8>,
    /// The pairs that are still to be compared, from the top down. Not the program's stack: a tree
    /// may be deeper.
    levels: Vec<Level>,
    /// The path of the last difference, if its contents come next.
    below: Option<(Vec<u8>, Option<ContentHash>, Option<ContentHash>)>,
    /// The next difference of the trees.
    ahead: Option<Difference>,
    /// Paths that are linked to others than before, in order; something else of them may be
    /// different as well.
    links: Peekable<vec::IntoIter<Difference>>,
}

struct Level {
    /// Length of the directory's path.
    base_len: usize,
    old: Peekable<vec::IntoIter<TreeEntry>>,
    new: Peekable<vec::IntoIter<TreeEntry>>,
}

impl std::fmt::Debug for Differences<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Differences").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Iterator for Differences<'_> {
    type Item = Result<Difference, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ahead.is_none() {
            match self.of_trees() {
                Ok(found) => self.ahead = found,
                Err(error) => {
                    self.levels.clear();
                    self.links = Vec::new().into_iter().peekable();
                    return Some(Err(error));
                }
            }
        }
        let order = match (&self.ahead, self.links.peek()) {
            (Some(found), Some(linked)) => byte_path::order(&found.path, &linked.path),
            (None, Some(_)) => Ordering::Greater,
            _ => Ordering::Less,
        };
        match order {
            Ordering::Less => self.ahead.take().map(Ok),
            Ordering::Greater => self.links.next().map(Ok),
            Ordering::Equal => {
                self.links.next();
                self.ahead.take().map(|found| Ok(Difference { is_relinked: true, ..found }))
            }
        }
    }
}

impl Differences<'_> {
    /// Leaves out what is in the directory that the last difference was about; that some of it is
    /// linked to others than before is told all the same. Does nothing for any other path.
    pub(crate) fn skip_in(&mut self, directory: &[u8]) {
        self.below.take_if(|(path, ..)| path == directory);
    }

    fn enter(&mut self, base: Vec<u8>, old: Vec<TreeEntry>, new: Vec<TreeEntry>) {
        let (old, new) = (old.into_iter().peekable(), new.into_iter().peekable());
        self.levels.push(Level { base_len: base.len(), old, new });
        self.base = base;
    }

    /// The next difference that the trees tell.
    fn of_trees(&mut self) -> Result<Option<Difference>, StoreError> {
        if let Some((path, old, new)) = self.below.take() {
            let load = |hash: Option<ContentHash>| match hash {
                Some(hash) => read_tree(self.source, &hash).map(Tree::into_entries),
                None => Ok(Vec::new()),
            };
            let (old, new) = (load(old)?, load(new)?);
            self.enter(path, old, new);
        }
        while let Some(level) = self.levels.last_mut() {
            self.base.truncate(level.base_len);
            let order = match (level.old.peek(), level.new.peek()) {
                (None, None) => {
                    self.levels.pop();
                    continue;
                }
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                // Tracked paths are whole paths; everywhere else this is the order of the names.
                (Some(old), Some(new)) => byte_path::order(&old.name, &new.name),
            };
            let before = if order.is_le() { level.old.next() } else { None };
            let after = if order.is_ge() { level.new.next() } else { None };
            if before == after {
                continue;
            }
            let name = before.as_ref().or(after.as_ref()).map_or(&b""[..], |entry| &entry.name);
            let path = byte_path::join(&self.base, name);
            let tree = |entry: &Option<TreeEntry>| match entry.as_ref()?.node {
                Node::Directory { tree } => Some(tree),
                _ => None,
            };
            let trees = (tree(&before), tree(&after));
            if trees.0 != trees.1 {
                self.below = Some((path.clone(), trees.0, trees.1));
            }
            let (old, new) = (state(before), state(after));
            let (was, is) = (old.as_deref().map(|it| &it.node), new.as_deref().map(|it| &it.node));
            let is_refreshed = is_refreshed(self.source, &path, was, is);
            return Ok(Some(Difference { path, old, new, is_relinked: false, is_refreshed }));
        }
        Ok(None)
    }
}

fn state(entry: Option<TreeEntry>) -> Option<Arc<EntryState>> {
    let TreeEntry { attributes, node, .. } = entry?;
    Some(Arc::new(EntryState { attributes, node }))
}

/// Tracked paths in the form of tree entries, named by their whole path.
fn root_entries(entries: Vec<RootEntry>) -> Vec<TreeEntry> {
    let entry = |RootEntry { path, attributes, node }| TreeEntry { name: path, attributes, node };
    let mut entries: Vec<TreeEntry> = entries.into_iter().map(entry).collect();
    entries.sort_by(|a, b| byte_path::order(&a.name, &b.name));
    entries
}

/// Paths of both snapshots that are linked to others than before.
fn other_links(
    source: &dyn ObjectSource,
    old_root: &RootTree,
    new_root: &RootTree,
) -> Result<Vec<Difference>, StoreError> {
    let old_links = read_links(source, old_root.links.as_ref())?;
    let new_links = read_links(source, new_root.links.as_ref())?;
    let old_groups: HashSet<_> = old_links.groups().iter().collect();
    let new_groups: HashSet<_> = new_links.groups().iter().collect();
    // A path is in one group at most, so a group that is not in the other set is news to each of
    // its paths.
    let paths: BTreeSet<&[u8]> = old_groups
        .symmetric_difference(&new_groups)
        .flat_map(|group| group.iter().map(|path| &**path))
        .collect();
    let mut old = Lookup::new(source, old_root);
    let mut new = Lookup::new(source, new_root);
    let mut found = Vec::new();
    for path in paths {
        if let (Some(old), Some(new)) = (old.find(path)?, new.find(path)?) {
            let (old, new) = (Some(Arc::new(old)), Some(Arc::new(new)));
            let path = path.to_vec();
            let is_refreshed = false;
            found.push(Difference { path, old, new, is_relinked: true, is_refreshed });
        }
    }
    found.sort_by(|a, b| byte_path::order(&a.path, &b.path));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Attributes, MidstatesLink};
    use crate::store::{MemoryStore, ObjectStore};

    fn directory(store: &MemoryStore, entries: &[(&str, Node)]) -> Node {
        let entry = |(name, node): &(&str, Node)| TreeEntry {
            name: name.as_bytes().into(),
            attributes: Attributes::default(),
            node: node.clone(),
        };
        let tree = Tree::new(entries.iter().map(entry).collect());
        Node::Directory { tree: store.write(&tree.encode()).unwrap().hash }
    }

    fn root(store: &MemoryStore, node: Node) -> ContentHash {
        let path = Box::from(&b"/p"[..]);
        let entry = RootEntry { path, attributes: Attributes::default(), node };
        store.write(&RootTree { entries: vec![entry], links: None }.encode()).unwrap().hash
    }

    #[test]
    fn midstates_make_no_difference() {
        let store = MemoryStore::new();
        let file = |midstates| {
            let (size, hash) = (5 << 20, ContentHash::of(b"contents"));
            Node::File { size, hash, midstates }
        };
        let tree = |midstates| directory(&store, &[("long", file(midstates))]);
        let link = MidstatesLink::to(ContentHash::of(b"midstates"));
        let (old, new) = (tree(MidstatesLink::NONE), tree(link));
        assert_ne!(old, new);
        let found = compare(&store, &root(&store, old), &root(&store, new)).unwrap();
        // The list of the directory is another one, and nothing that it tells.
        let paths: Vec<_> = found.iter().map(|difference| &*difference.path).collect();
        assert_eq!(paths, [b"/p"]);
        assert_eq!(found[0].change_type(), None);
    }

    #[test]
    fn a_directory_that_is_skipped_is_not_even_read() {
        let store = MemoryStore::new();
        let missing = Node::Directory { tree: ContentHash::of(b"never stored") };
        let inner = directory(&store, &[("x", Node::Fifo)]);
        let old = directory(&store, &[("b", inner)]);
        let new =
            directory(&store, &[("a", missing), ("b", directory(&store, &[])), ("c", Node::Fifo)]);
        let (old, new) = (root(&store, old), root(&store, new));
        let mut differences = differences(&store, &old, &new).unwrap();
        let mut paths = Vec::new();
        while let Some(difference) = differences.next() {
            let Difference { path, .. } = difference.unwrap();
            if path == b"/p/a" {
                differences.skip_in(b"/p");
                differences.skip_in(&path);
            }
            paths.push(String::from_utf8(path).unwrap());
        }
        assert_eq!(paths, ["/p", "/p/a", "/p/b", "/p/b/x", "/p/c"]);
        assert!(compare(&store, &old, &new).is_err(), "it is read where it is not skipped");
    }
}
