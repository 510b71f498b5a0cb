//! The layer of an overlayfs, read as changes of a recorded directory.
//!
//! The layer was captured as it lies on the disk, so it is a tree like that below it. This module
//! puts the two together as the kernel does: a whiteout hides a name, an opaque directory hides all
//! that was below, and two directories become one. Anything else stands in place of what was there.
//! The marks are those of `userxattr` mounts (Documentation/filesystems/overlayfs.rst). Marks that
//! nono's mounts never make (redirects, metadata-only copies, unknown ones) and devices are
//! refused: the entry is [named](NotTaken), and what was below it stays.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::vec;

use serde::Serialize;

use crate::byte_path;
use crate::manifest::Totals;
use crate::object::{Attributes, ContentHash, Device, Node, Tree, TreeEntry, Xattrs};
use crate::path_text::{Shown, serde_path, to_path};
use crate::store::{ObjectStore, StoreError, read_tree};

/// In front of the marks of a mount by an ordinary user, and of those by root without `userxattr`.
const USER_MARK: &[u8] = b"user.overlay.";
const TRUSTED_MARK: &[u8] = b"trusted.overlay.";
/// Marks that say nothing about the state.
const SILENT_MARKS: [&[u8]; 6] = [b"origin", b"impure", b"nlink", b"upper", b"uuid", b"protattr"];

/// An entry of a layer that is no part of the fork's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotTaken {
    /// The path as the fork shows it.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Why.
    #[serde(flatten)]
    pub reason: NotTakenReason,
}

/// Why an entry of a layer is no part of the fork's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum NotTakenReason {
    /// A device.
    Device,
    /// A mark of overlayfs that its mounts for forks do not make.
    Mark {
        /// Its name, as text.
        name: String,
    },
}

impl std::fmt::Display for NotTakenReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device => f.write_str("a device"),
            Self::Mark { name } => write!(f, "an attribute that forks do not have ({name})"),
        }
    }
}

/// The meaning of the marks of an entry.
#[derive(Debug, Default)]
struct Marks {
    is_opaque: bool,
    /// Names in this directory may be whiteouts that are files.
    has_file_whiteouts: bool,
    is_whiteout: bool,
    refused: Option<NotTakenReason>,
    /// The other attributes.
    xattrs: Xattrs,
}

impl Marks {
    fn of(xattrs: &Xattrs) -> Self {
        let mut marks = Self::default();
        let mut own = Vec::new();
        for (name, value) in xattrs.iter() {
            let Some(mark) = name.strip_prefix(USER_MARK) else {
                if name.starts_with(TRUSTED_MARK) {
                    marks.refuse(name);
                }
                own.push((name.into(), value.into()));
                continue;
            };
            match (mark, value) {
                (b"opaque", b"y") => marks.is_opaque = true,
                (b"opaque", b"x") => marks.has_file_whiteouts = true,
                (b"whiteout", _) => marks.is_whiteout = true,
                _ if SILENT_MARKS.contains(&mark) => {}
                _ => marks.refuse(name),
            }
        }
        Self { xattrs: Xattrs::new(own), ..marks }
    }

    fn refuse(&mut self, name: &[u8]) {
        let name = Shown::bytes(name).to_string();
        self.refused.get_or_insert(NotTakenReason::Mark { name });
    }
}

/// The attributes of a layer's top, without the marks.
pub(super) fn unmarked(attributes: &Attributes) -> Attributes {
    Attributes { xattrs: Marks::of(&attributes.xattrs).xattrs, ..attributes.clone() }
}

/// Puts layers over recorded directories.
pub(super) struct Merging<'a> {
    store: &'a dyn ObjectStore,
    /// Absolute paths at which something else is mounted: what the layer has there is the place for
    /// that.
    places: &'a HashSet<Vec<u8>>,
    /// Absolute paths that the layer left out.
    left_out: &'a HashSet<Vec<u8>>,
    pub(super) totals: Totals,
    pub(super) not_taken: Vec<NotTaken>,
    /// Paths of files and directories that are not those of the state below.
    changed: HashSet<Vec<u8>>,
    /// The paths among them at which the layer has a file.
    taken: HashSet<Vec<u8>>,
}

/// A directory of the layer that is not merged yet.
struct Frame {
    path: Vec<u8>,
    name: Box<[u8]>,
    attributes: Attributes,
    has_file_whiteouts: bool,
    /// The entries below that nothing hides so far, and those that were merged.
    entries: BTreeMap<Box<[u8]>, TreeEntry>,
    rest: vec::IntoIter<TreeEntry>,
}

impl<'a> Merging<'a> {
    pub(super) fn new(
        store: &'a dyn ObjectStore,
        places: &'a HashSet<Vec<u8>>,
        left_out: &'a HashSet<Vec<u8>>,
        totals: Totals,
    ) -> Self {
        let (changed, taken) = (HashSet::new(), HashSet::new());
        Self { store, places, left_out, totals, not_taken: Vec::new(), changed, taken }
    }

    /// The tree of a directory with a layer over it. `top`: attributes of the layer's top.
    pub(super) fn merge(
        &mut self,
        path: &[u8],
        below: &ContentHash,
        top: &Attributes,
        layer: &ContentHash,
    ) -> Result<ContentHash, StoreError> {
        // A stack of its own: a directory may be deeper than that of a thread.
        let first = self.enter(path.to_vec(), Box::default(), top.clone(), Some(*below), layer)?;
        let mut frames = vec![first];
        loop {
            let Some(frame) = frames.last_mut() else { return Ok(*below) };
            if let Some(entry) = frame.rest.next() {
                if let Some(inner) = self.take(frame, entry)? {
                    frames.push(inner);
                }
                continue;
            }
            let Some(Frame { name, attributes, entries, .. }) = frames.pop() else {
                return Ok(*below);
            };
            let tree = Tree::new(entries.into_values().collect());
            let tree = self.store.write(&tree.encode())?.hash;
            match frames.last_mut() {
                None => return Ok(tree),
                Some(parent) => {
                    let node = Node::Directory { tree };
                    let entry = TreeEntry { name: name.clone(), attributes, node };
                    parent.entries.insert(name, entry);
                }
            }
        }
    }

    /// Whether a path is the one of the state below, with all above it.
    pub(super) fn is_unchanged(&self, path: &[u8]) -> bool {
        !self.changed.contains(path)
            && !byte_path::ancestors(path).any(|above| self.changed.contains(above))
    }

    /// Whether a path is a file of the layer.
    pub(super) fn is_taken(&self, path: &[u8]) -> bool {
        self.taken.contains(path)
    }

    fn enter(
        &mut self,
        path: Vec<u8>,
        name: Box<[u8]>,
        attributes: Attributes,
        below: Option<ContentHash>,
        layer: &ContentHash,
    ) -> Result<Frame, StoreError> {
        let Marks { is_opaque, has_file_whiteouts, xattrs, .. } = Marks::of(&attributes.xattrs);
        let below = match below {
            Some(below) => read_tree(self.store, &below)?.into_entries(),
            None => Vec::new(),
        };
        let mut entries = BTreeMap::new();
        for entry in below {
            if is_opaque {
                self.hide(&byte_path::join(&path, &entry.name), &entry)?;
            } else {
                entries.insert(entry.name.clone(), entry);
            }
        }
        let rest = read_tree(self.store, layer)?.into_entries().into_iter();
        let attributes = Attributes { xattrs, ..attributes };
        Ok(Frame { path, name, attributes, has_file_whiteouts, entries, rest })
    }

    /// Puts an entry of a layer over what is below it. A directory is merged by the caller.
    fn take(&mut self, frame: &mut Frame, entry: TreeEntry) -> Result<Option<Frame>, StoreError> {
        let path = byte_path::join(&frame.path, &entry.name);
        if self.places.contains(&path) {
            return Ok(None);
        }
        let marks = Marks::of(&entry.attributes.xattrs);
        let is_whiteout = match entry.node {
            Node::CharDevice(device) => device == Device { major: 0, minor: 0 },
            Node::File { size: 0, .. } => frame.has_file_whiteouts && marks.is_whiteout,
            _ => false,
        };
        if is_whiteout {
            self.changed.insert(path.clone());
            if let Some(hidden) = frame.entries.remove(&entry.name) {
                self.hide(&path, &hidden)?;
            }
            return Ok(None);
        }
        let refused = match entry.node {
            Node::CharDevice(_) | Node::BlockDevice(_) => Some(NotTakenReason::Device),
            _ => marks.refused,
        };
        if let Some(reason) = refused {
            self.not_taken.push(NotTaken { path: to_path(&path).to_owned(), reason });
            return Ok(None);
        }
        let attributes = entry.attributes;
        if let Node::Directory { tree: layer } = entry.node {
            let below = match frame.entries.remove(&entry.name) {
                Some(TreeEntry { node: Node::Directory { tree }, .. }) => Some(tree),
                other => {
                    self.changed.insert(path.clone());
                    if let Some(hidden) = other {
                        self.hide(&path, &hidden)?;
                    }
                    self.totals.entry_count += 1;
                    None
                }
            };
            return self.enter(path, entry.name, attributes, below, &layer).map(Some);
        }
        if let Some(hidden) = frame.entries.remove(&entry.name) {
            self.hide(&path, &hidden)?;
        }
        self.changed.insert(path.clone());
        self.taken.insert(path);
        self.totals.entry_count += 1;
        if let Node::File { size, .. } = entry.node {
            self.totals.file_count += 1;
            self.totals.total_bytes = self.totals.total_bytes.saturating_add(size);
        }
        let attributes = Attributes { xattrs: marks.xattrs, ..attributes };
        let taken = TreeEntry { name: entry.name.clone(), attributes, node: entry.node };
        frame.entries.insert(entry.name, taken);
        Ok(None)
    }

    /// Counts what is not in the state any more.
    fn hide(&mut self, path: &[u8], entry: &TreeEntry) -> Result<(), StoreError> {
        self.changed.insert(path.to_vec());
        let mut hidden = vec![entry.node.clone()];
        while let Some(node) = hidden.pop() {
            self.totals.entry_count = self.totals.entry_count.saturating_sub(1);
            match node {
                Node::Directory { tree } => {
                    let inside = read_tree(self.store, &tree)?.into_entries();
                    hidden.extend(inside.into_iter().map(|entry| entry.node));
                }
                Node::File { size, .. } => {
                    self.totals.file_count = self.totals.file_count.saturating_sub(1);
                    self.totals.total_bytes = self.totals.total_bytes.saturating_sub(size);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes out of a merged directory what the layer has and a snapshot leaves out: the state
    /// below has another one of it, or none.
    pub(super) fn without_left_out(
        &mut self,
        path: &[u8],
        tree: ContentHash,
    ) -> Result<ContentHash, StoreError> {
        let mut tree = tree;
        let mut left_out: Vec<&Vec<u8>> =
            self.left_out.iter().filter(|left| byte_path::is_in(left, path)).collect();
        left_out.sort();
        for left in left_out {
            if let Some(relative) = byte_path::relative_to(left, path)
                && !relative.is_empty()
            {
                tree = self.without(path, tree, relative)?;
            }
        }
        Ok(tree)
    }

    fn without(
        &mut self,
        top: &[u8],
        tree: ContentHash,
        relative: &[u8],
    ) -> Result<ContentHash, StoreError> {
        let names: Vec<&[u8]> = byte_path::components(relative).collect();
        let Some((last, above)) = names.split_last() else { return Ok(tree) };
        // The directories on the way, topmost first.
        let mut way = vec![read_tree(self.store, &tree)?];
        for name in above {
            let inside = way.last().and_then(|tree| tree.get(name)).map(|entry| &entry.node);
            match inside {
                Some(Node::Directory { tree }) => way.push(read_tree(self.store, tree)?),
                _ => return Ok(tree),
            }
        }
        let mut changed = match way.pop().map(Tree::into_entries) {
            Some(mut entries) => {
                let Some(at) = entries.iter().position(|entry| *entry.name == **last) else {
                    return Ok(tree);
                };
                let hidden = entries.remove(at);
                self.hide(&byte_path::join(top, relative), &hidden)?;
                self.store.write(&Tree::new(entries).encode())?.hash
            }
            None => return Ok(tree),
        };
        for (parent, name) in way.into_iter().zip(above).rev() {
            let mut entries = parent.into_entries();
            if let Some(entry) = entries.iter_mut().find(|entry| *entry.name == **name) {
                entry.node = Node::Directory { tree: changed };
            }
            changed = self.store.write(&Tree::new(entries).encode())?.hash;
        }
        Ok(changed)
    }
}
