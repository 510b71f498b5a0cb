//! What is still missing of a state: found from the Merkle root down, so that nothing is taken that
//! no tree names. Trees are few and held in memory; files are many and are not.

use std::collections::{HashMap, HashSet};

use super::missing::MissingFiles;
use crate::archive::delta::{HASH_PREFIX, LineSum};
use crate::archive::read::ArchiveHead;
use crate::archive::write::{Walk, asking};
use crate::archive::{ArchiveError, Short};
use crate::manifest::{SnapshotManifest, Totals};
use crate::object::{ContentHash, LinkGroups, Midstates, Node, RootTree, Tree};
use crate::path_text::{Shown, encode};
use crate::progress::Progress;
use crate::store::{
    LocalStore, MAX_TREE_BYTES, ObjectSource, ObjectStore, StoreError, Transfer, read_root_tree,
    read_tree,
};

/// A state of more entries is refused: a few trees can name more than anybody can visit.
const MAX_ENTRIES: u64 = 1 << 28;

/// The kinds of objects that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Root,
    Tree,
    Links,
    /// Contents of so many bytes.
    File(u64),
}

/// Objects that are missing, and all that were looked for.
#[derive(Debug, Default)]
pub(super) struct Needs {
    missing: HashMap<ContentHash, Kind>,
    files: MissingFiles,
    /// All objects but files.
    seen: HashSet<Short>,
    /// Midstates that a tree names → the file, and its length.
    midstates: HashMap<ContentHash, (ContentHash, u64)>,
}

impl Needs {
    /// Looks for everything below a root, and notes what the store does not have.
    pub(super) fn need(
        &mut self,
        store: &LocalStore,
        root: ContentHash,
    ) -> Result<(), ArchiveError> {
        self.look(store, vec![(root, Kind::Root)])
    }

    fn look(
        &mut self,
        store: &LocalStore,
        mut pending: Vec<(ContentHash, Kind)>,
    ) -> Result<(), ArchiveError> {
        while let Some((hash, kind)) = pending.pop() {
            if let Kind::File(size) = kind {
                if !store.contains(&hash, size)? {
                    self.files.insert(hash, size)?;
                }
                continue;
            }
            if !self.seen.insert(Short::of(&hash)) {
                continue;
            }
            match store.read(&hash, MAX_TREE_BYTES) {
                Ok(bytes) => pending.extend(self.below(kind, &hash, &bytes)?),
                Err(StoreError::Missing { .. }) => {
                    self.missing.insert(hash, kind);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The objects that one names.
    fn below(
        &mut self,
        kind: Kind,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<Vec<(ContentHash, Kind)>, StoreError> {
        let mut found = Vec::new();
        let undecodable = |kind, source| StoreError::Undecodable { hash: *hash, kind, source };
        let nodes: Vec<Node> = match kind {
            Kind::Root => {
                let root = RootTree::decode(bytes).map_err(|it| undecodable("root tree", it))?;
                found.extend(root.links.map(|links| (links, Kind::Links)));
                root.entries.into_iter().map(|entry| entry.node).collect()
            }
            Kind::Tree => {
                let tree = Tree::decode(bytes).map_err(|it| undecodable("tree", it))?;
                tree.into_entries().into_iter().map(|entry| entry.node).collect()
            }
            Kind::Links => {
                LinkGroups::decode(bytes).map_err(|it| undecodable("list of hard links", it))?;
                Vec::new()
            }
            Kind::File(_) => Vec::new(),
        };
        for node in nodes {
            match node {
                Node::Directory { tree } => found.push((tree, Kind::Tree)),
                Node::File { size, hash, midstates } => {
                    if let Some(name) = midstates.name() {
                        self.midstates.insert(name, (hash, size));
                    }
                    found.push((hash, Kind::File(size)));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Whether an object is missing.
    pub(super) fn has(&self, hash: &ContentHash) -> Result<bool, ArchiveError> {
        Ok(self.missing.contains_key(hash) || self.files.get(hash)?.is_some())
    }

    /// Whether a file is missing. Refuses one of another length than its tree says.
    pub(super) fn has_file(&self, hash: &ContentHash, size: u64) -> Result<bool, ArchiveError> {
        match self.files.get(hash)? {
            None => Ok(false),
            Some(wanted) if wanted == size => Ok(true),
            Some(_) => {
                Err(ArchiveError::corrupt(format!("{hash} has another length than its tree says")))
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.files.is_empty()
    }

    pub(super) fn first(&self) -> Result<Option<ContentHash>, ArchiveError> {
        match self.missing.keys().next() {
            Some(hash) => Ok(Some(*hash)),
            None => self.files.first(),
        }
    }

    /// All objects of an archive but its files have come, and files will be looked for.
    pub(super) fn files_begin(&mut self) -> Result<(), ArchiveError> {
        self.files.merge()
    }

    /// A missing object has come, and its bytes have its hash.
    pub(super) fn came(
        &mut self,
        store: &LocalStore,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<(), ArchiveError> {
        if let Some(kind) = self.missing.get(hash).copied() {
            let below = self.below(kind, hash, bytes);
            let below = below.map_err(|error| ArchiveError::corrupt(error.to_string()))?;
            self.missing.remove(hash);
            self.look(store, below)?;
        }
        match self.has_file(hash, bytes.len() as u64)? {
            true => self.came_file(hash),
            false => Ok(()),
        }
    }

    pub(super) fn came_file(&mut self, hash: &ContentHash) -> Result<(), ArchiveError> {
        self.files.remove(hash)
    }

    /// Compares a state with what its archive and its manifest say of it.
    pub(super) fn check_state(
        &self,
        store: &LocalStore,
        head: &ArchiveHead,
        manifest: &SnapshotManifest,
        progress: &dyn Progress,
    ) -> Result<(), ArchiveError> {
        let (held, empty) = count(store, &head.merkle_root)?;
        // First, because a few trees can name more paths than anybody can visit.
        if held.files != head.stats.total_files {
            return Err(ArchiveError::corrupt(format!(
                "{} declares {} files and has {}",
                head.id, head.stats.total_files, held.files
            )));
        }
        // Directories are no files, and a few trees can name more of them than anybody can visit.
        if held.entries > MAX_ENTRIES {
            let reason = format!("{} has {} entries", head.id, held.entries);
            return Err(ArchiveError::TooLarge { reason });
        }
        let Totals { file_count, entry_count, total_bytes, .. } = manifest.totals;
        if held != (Count { files: file_count, entries: entry_count, bytes: total_bytes }) {
            let id = &head.id;
            return Err(ArchiveError::corrupt(format!("the totals of {id} are not its trees'")));
        }
        let is_tracked = |path: &[u8]| {
            manifest.roots.iter().any(|root| root.path.as_os_str().as_encoded_bytes() == path)
        };
        let entries = read_root_tree(store, &head.merkle_root)?.entries;
        if let Some(entry) = entries.iter().find(|entry| !is_tracked(&entry.path)) {
            let (id, path) = (&head.id, Shown::bytes(&entry.path));
            return Err(ArchiveError::corrupt(format!(
                "{id} holds {path}, which it does not track"
            )));
        }
        let mut sum = LineSum::default();
        for found in asking(Walk::of_lines(store, &head.merkle_root, empty)?, progress) {
            let (path, state) = found?;
            if let Node::File { hash, .. } = state.node {
                sum.add(&encode(&path), &format!("{HASH_PREFIX}{hash}"));
            }
        }
        match sum.finish().root_hash == head.root_hash {
            true => Ok(()),
            false => Err(ArchiveError::corrupt(format!(
                "the files of {} are not those of its Merkle root",
                head.id
            ))),
        }
    }

    /// Makes the midstates of long files that no archive brings: they follow from the contents.
    pub(super) fn make_midstates(
        &self,
        store: &LocalStore,
        progress: &dyn Progress,
    ) -> Result<(), ArchiveError> {
        let mut buffer = Vec::new();
        for (name, (hash, size)) in &self.midstates {
            if store.contains(name, Midstates::encoded_bytes(*size))? {
                continue;
            }
            let object = store.open_object(hash)?;
            object.check_size(*size)?;
            let mut transfer = Transfer::new(&mut buffer, progress);
            let made = object.verify_with_midstates(&mut transfer)?.map(|it| it.encode());
            let stored = made.map(|bytes| store.write(&bytes)).transpose()?;
            if stored.is_none_or(|stored| stored.hash != *name) {
                return Err(ArchiveError::corrupt(format!("the midstates of {hash} are others")));
            }
        }
        Ok(())
    }
}

/// The entries below a directory, added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    files: u64,
    entries: u64,
    bytes: u64,
}

impl Count {
    fn and(self, other: Self) -> Self {
        Self {
            files: self.files.saturating_add(other.files),
            entries: self.entries.saturating_add(other.entries),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Counts the entries below a root, and the trees without any file. Visits each tree once, however
/// often it is named.
fn count(
    store: &LocalStore,
    root: &ContentHash,
) -> Result<(Count, HashSet<ContentHash>), StoreError> {
    let mut counts: HashMap<ContentHash, Count> = HashMap::new();
    let children = |nodes: Vec<Node>| {
        let mut own = Count::default();
        let mut trees = Vec::new();
        for node in nodes {
            own.entries += 1;
            match node {
                Node::File { size, .. } => {
                    own = own.and(Count { files: 1, entries: 0, bytes: size });
                }
                Node::Directory { tree } => trees.push(tree),
                _ => {}
            }
        }
        (own, trees)
    };
    let entries = read_root_tree(store, root)?.entries;
    let (own, tops) = children(entries.into_iter().map(|entry| entry.node).collect());
    let mut pending = tops.clone();
    while let Some(hash) = pending.last().copied() {
        if counts.contains_key(&hash) {
            pending.pop();
            continue;
        }
        let entries = read_tree(store, &hash)?.into_entries();
        let (own, trees) = children(entries.into_iter().map(|entry| entry.node).collect());
        let before = pending.len();
        pending.extend(trees.iter().filter(|tree| !counts.contains_key(*tree)));
        if pending.len() == before {
            counts.insert(hash, trees.iter().map(|tree| counts[tree]).fold(own, Count::and));
            pending.pop();
        }
    }
    let all = tops.iter().map(|tree| counts[tree]).fold(own, Count::and);
    let empty = counts.into_iter().filter(|(_, held)| held.files == 0).map(|(hash, _)| hash);
    Ok((all, empty.collect()))
}
