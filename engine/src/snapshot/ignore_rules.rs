//! The ignore files of a session's baseline: written down with it, and looked up by what follows.
//!
//! A `.gitignore` can be edited by the command that is recorded, so those of the baseline have the
//! last word, and have to be known later: also those that are not captured themselves, because they
//! ignore themselves or are over the budget. They are kept as a snapshot of their own: a root tree
//! that holds the ignore files alone, with the directories on the way to them, all without
//! attributes. So the collector, `verify` and the repair treat it as any other, and a directory
//! without ignore files costs no read. An ignore file that could not be read stands there as a
//! named pipe, which has no contents either.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;

use crate::byte_path;
use crate::manifest::{SnapshotManifest, TrackedRoot};
use crate::object::{
    Attributes, ContentHash, MidstatesLink, Node, RootEntry, RootTree, Tree, TreeEntry,
};
use crate::store::{ObjectSource, ObjectStore, StoreError, read_root_tree, read_tree};
use crate::walk::{FoundEntry, IGNORE_FILE, IgnoreFile, Ignores, MAX_IGNORE_BYTES};

/// Which ignore files count in a tracked path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RootRules {
    /// The files on the disk, which are recorded: it is the first capture of the path in its
    /// session.
    OnDisk,
    /// The files of the first capture, as far as those on the disk agree. With the tree that holds
    /// them; without one there were none.
    Both(Option<ContentHash>),
    /// The files of the first capture alone.
    Recorded(Option<ContentHash>),
}

impl RootRules {
    /// The rules in tracked paths after the snapshots of `earlier`, which are those of the session
    /// in order. The first snapshot of a path has the rules of that path. With `follows_disk`, the
    /// ignore files on the disk have a say.
    pub(crate) fn of<'a>(
        roots: &[TrackedRoot],
        store: &dyn ObjectSource,
        earlier: impl IntoIterator<Item = Cow<'a, SnapshotManifest>>,
        follows_disk: bool,
    ) -> Vec<Self> {
        let known = if follows_disk { Self::Both } else { Self::Recorded };
        let mut rules = vec![Self::OnDisk; roots.len()];
        for manifest in earlier {
            let recorded = manifest.ignore_files.and_then(|hash| {
                // Without rules nothing is left out: more is recorded then, never less.
                read_root_tree(store, &hash).inspect_err(|error| tracing::warn!("{error}")).ok()
            });
            for (root, rules) in roots.iter().zip(&mut rules) {
                let is_tracked = || manifest.roots.iter().any(|known| known.path == root.path);
                if *rules == Self::OnDisk && is_tracked() {
                    let path = root.path.as_os_str().as_bytes();
                    *rules =
                        known(recorded.as_ref().and_then(|tree| tree_of(&tree.get(path)?.node)));
                }
            }
            if !rules.contains(&Self::OnDisk) {
                break;
            }
        }
        rules
    }
}

fn tree_of(node: &Node) -> Option<ContentHash> {
    match node {
        Node::Directory { tree } => Some(*tree),
        _ => None,
    }
}

/// The rules that a directory inherits from those above it.
#[derive(Debug, Clone)]
pub(super) struct InheritedRules {
    ignores: Ignores,
    /// The tree that holds the recorded ignore files of the directory and of those below it.
    recorded: Option<ContentHash>,
}

/// The rules in a directory.
#[derive(Debug)]
pub(super) struct RulesInside {
    pub(super) ignores: Ignores,
    recorded: Option<Tree>,
}

impl InheritedRules {
    pub(super) fn of_root(rules: RootRules) -> Self {
        let (ignores, recorded) = match rules {
            RootRules::OnDisk => (Ignores::ON_DISK, None),
            RootRules::Both(recorded) => (Ignores::BOTH, recorded),
            RootRules::Recorded(recorded) => (Ignores::RECORDED, recorded),
        };
        Self { ignores, recorded }
    }

    pub(super) fn reads_disk(&self) -> bool {
        self.ignores.reads_disk()
    }

    /// Adds the ignore files of the directory itself.
    pub(super) fn enter(
        &self,
        store: &dyn ObjectSource,
        relative: &[u8],
        on_disk: Option<&IgnoreFile>,
    ) -> RulesInside {
        let recorded = self.recorded.and_then(|tree| {
            read_tree(store, &tree).inspect_err(|error| tracing::warn!("{error}")).ok()
        });
        let entry = recorded.as_ref().and_then(|tree| tree.get(IGNORE_FILE));
        let file = entry.and_then(|entry| match (&entry.node, on_disk) {
            (Node::File { hash, .. }, Some(IgnoreFile::Read(bytes)))
                if ContentHash::of(bytes) == *hash =>
            {
                on_disk.cloned()
            }
            (Node::File { hash, .. }, _) => match store.read(hash, MAX_IGNORE_BYTES) {
                Ok(bytes) => Some(IgnoreFile::Read(bytes)),
                Err(error) => {
                    tracing::warn!("{error}");
                    None
                }
            },
            (Node::Fifo, _) => {
                let reason = "it could not be read when the session began";
                Some(IgnoreFile::Unreadable(reason.to_owned()))
            }
            _ => None,
        });
        RulesInside { ignores: self.ignores.enter(relative, on_disk, file.as_ref()), recorded }
    }
}

impl RulesInside {
    /// The rules that a directory in this one inherits.
    pub(super) fn inherited(&self, found: &FoundEntry) -> InheritedRules {
        let tree = self.recorded.as_ref().and_then(|tree| tree_of(&tree.get(&found.name)?.node));
        InheritedRules { ignores: self.ignores.inherited(found.is_ignored), recorded: tree }
    }
}

/// Ignore files that were found on the disk: index of the tracked path, directory relative to it,
/// and what stands for the file.
pub(super) type FoundFiles = Vec<(usize, Box<[u8]>, Node)>;

/// Stores what an ignore file says, and returns what stands for it.
pub(super) fn store_file(
    store: &dyn ObjectStore,
    file: &IgnoreFile,
    written: impl FnOnce(u64),
) -> Result<Node, StoreError> {
    let IgnoreFile::Read(bytes) = file else { return Ok(Node::Fifo) };
    let stored = store.write(bytes)?;
    if stored.is_new {
        written(bytes.len() as u64);
    }
    let size = bytes.len() as u64;
    Ok(Node::File { size, hash: stored.hash, midstates: MidstatesLink::NONE })
}

/// Makes the root tree of ignore files; `None` without any. `write` stores an object.
pub(super) fn root_tree(
    paths: &[&[u8]],
    files: FoundFiles,
    mut write: impl FnMut(&[u8]) -> Result<ContentHash, StoreError>,
) -> Result<Option<ContentHash>, StoreError> {
    type Place = (usize, Box<[u8]>);
    let entry = |name: &[u8], node| TreeEntry {
        name: name.into(),
        attributes: Attributes::default(),
        node,
    };
    let mut inside: HashMap<Place, Vec<TreeEntry>> = HashMap::new();
    // Deepest first: a directory comes when all that is in it is known.
    let mut pending: BTreeSet<(usize, Place)> = BTreeSet::new();
    for (root, dir, node) in files {
        let place = (root, dir);
        pending.insert((depth(&place.1), place.clone()));
        inside.entry(place).or_default().push(entry(IGNORE_FILE, node));
    }
    let mut entries = Vec::new();
    while let Some((_, (root, dir))) = pending.pop_last() {
        let place = (root, dir);
        let tree = write(&Tree::new(inside.remove(&place).unwrap_or_default()).encode())?;
        let ((root, dir), node) = (place, Node::Directory { tree });
        if dir.is_empty() {
            let (path, attributes) = (paths[root].into(), Attributes::default());
            entries.push(RootEntry { path, attributes, node });
            continue;
        }
        let (above, name) = byte_path::split(&dir);
        let above = (root, Box::from(above));
        pending.insert((depth(&above.1), above.clone()));
        inside.entry(above).or_default().push(entry(name, node));
    }
    if entries.is_empty() {
        return Ok(None);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Some(write(&RootTree { entries, links: None }.encode())?))
}

/// Directories above, the tracked path itself counted.
fn depth(dir: &[u8]) -> usize {
    byte_path::components(dir).count()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;
    use crate::store::MemoryStore;
    use crate::sys::{FileKind, Stat};
    use crate::walk::Mode;

    /// Counts what is read of a store.
    struct Counted<'a>(&'a MemoryStore, AtomicU64);

    impl ObjectSource for Counted<'_> {
        fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
            self.1.fetch_add(1, SeqCst);
            self.0.read(hash, max_bytes)
        }
    }

    fn read(rules: &str) -> IgnoreFile {
        IgnoreFile::Read(rules.as_bytes().to_vec())
    }

    fn directory(name: &str) -> FoundEntry {
        let temp = tempfile::tempdir().unwrap();
        let dir = crate::sys::Dir::open(temp.path().parent().unwrap()).unwrap();
        let stat: Stat = dir.stat(temp.path().file_name().unwrap().as_encoded_bytes()).unwrap();
        assert_eq!(stat.kind, FileKind::Directory);
        let (mode, is_ignored, is_marked) = (Mode::Filtered, false, false);
        FoundEntry { name: name.as_bytes().into(), stat, mode, is_ignored, is_marked }
    }

    #[test]
    fn recorded_ignore_files_are_found_again_and_cost_nothing_where_there_are_none() {
        let store = MemoryStore::new();
        let file = |rules: &str| store_file(&store, &read(rules), |_| ()).unwrap();
        let unreadable = IgnoreFile::Unreadable("denied".to_owned());
        let found = vec![
            (0, Box::from(*b"a/b"), file("x\n")),
            (0, Box::from(*b""), file("*.log\n")),
            (0, Box::from(*b"c"), store_file(&store, &unreadable, |_| ()).unwrap()),
        ];
        let write = |bytes: &[u8]| Ok(store.write(bytes)?.hash);
        let root = root_tree(&[b"/p"], found, write).unwrap().unwrap();
        let top = read_root_tree(&store, &root).unwrap();
        let tree = top.get(b"/p").and_then(|entry| tree_of(&entry.node));

        let counted = Counted(&store, AtomicU64::new(0));
        let cost = |work: &dyn Fn() -> RulesInside| {
            let before = counted.1.load(SeqCst);
            (work(), counted.1.load(SeqCst) - before)
        };
        let rules = InheritedRules::of_root(RootRules::Both(tree));
        // The list alone: on the disk is what was recorded.
        let (inside, reads) = cost(&|| rules.enter(&counted, b"", Some(&read("*.log\n"))));
        assert_eq!(reads, 1);
        // Another one is there now, so the recorded one is read.
        let (_, reads) = cost(&|| rules.enter(&counted, b"", Some(&read("*\n"))));
        assert_eq!(reads, 2);
        let a = inside.inherited(&directory("a"));
        let b = a.enter(&counted, b"a", None).inherited(&directory("b"));
        assert!(
            matches!(b.enter(&counted, b"a/b", None).recorded, Some(tree) if tree.entries().len() == 1)
        );
        // Nothing was recorded there or below.
        for name in ["new", "other"] {
            let other = inside.inherited(&directory(name));
            assert_eq!(cost(&|| other.enter(&counted, name.as_bytes(), Some(&read("*")))).1, 0);
        }
        let c = inside.inherited(&directory("c")).enter(&counted, b"c", Some(&unreadable));
        assert!(format!("{c:?}").contains("it could not be read when the session began"));
        assert_eq!(root_tree(&[b"/p"], Vec::new(), write).unwrap(), None);
    }
}
