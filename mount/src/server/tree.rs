//! The mounted tree: a source, the nodes the kernel knows of it, and the caches in between.
//!
//! Everything here answers in terms of nodes and errors; [`filesystem`](super::filesystem) makes
//! answers of them. Locks are held for table operations only, never while the source works.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use fuser::{Errno, FileAttr};
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::options::MountOptions;
use crate::server::attributes::file_attr;
use crate::server::contained::Contained;
use crate::server::list_cache::{List, ListCache, ListKey};
use crate::server::nodes::{Acquired, Nodes, Place, ROOT};
use crate::server::xattrs::Labels;
use crate::source::{Kind, Node, Stability, TreeSource};

/// Longer than any machine runs, and safe in the kernel's arithmetic.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// A source as it is mounted.
pub(crate) struct Tree<S: TreeSource> {
    pub(crate) source: Contained<S>,
    pub(crate) options: MountOptions,
    pub(crate) nodes: Mutex<Nodes<S>>,
    pub(crate) counters: Arc<Counters>,
    lists: Mutex<ListCache<S>>,
    pub(crate) labels: Labels,
}

/// A name was found: what to tell the kernel.
pub(crate) struct Found {
    pub(crate) acquired: Acquired,
    pub(crate) attr: FileAttr,
    /// How long the name stays what it is.
    pub(crate) entry_ttl: Duration,
    /// How long the attributes stay what they are.
    pub(crate) attr_ttl: Duration,
}

/// An open directory: its list, and how far it can be trusted.
pub(crate) struct Listed<S: TreeSource> {
    pub(crate) list: Arc<List<S>>,
    /// Positions of a changing directory, parallel to the list.
    pub(crate) cookies: Option<Vec<u64>>,
    /// The directory's own number, and its parent's.
    pub(crate) number: u64,
    pub(crate) parent_number: u64,
}

impl<S: TreeSource> Tree<S> {
    pub(crate) fn new(source: S, options: MountOptions) -> Self {
        let root = source.root();
        Self {
            source: Contained::new(source),
            nodes: Mutex::new(Nodes::new(root)),
            counters: Arc::default(),
            lists: Mutex::new(ListCache::new(options.cached_entries)),
            labels: Labels::default(),
            options,
        }
    }

    /// The key of a directory node.
    fn directory(&self, id: u64) -> Result<(S::Directory, ListKey), Errno> {
        let nodes = self.nodes.lock();
        let node = nodes.get(id).ok_or(Errno::ESTALE)?;
        let Kind::Directory(key) = &node.kind else { return Err(Errno::ENOTDIR) };
        Ok((key.clone(), node.state.map_or(ListKey::Node(id), ListKey::State)))
    }

    pub(crate) fn is_changing(&self, key: &S::Directory) -> bool {
        self.source.stability(key) == Stability::Changing
    }

    /// Finds `name` in a directory and names it to the kernel. `None`: an immutable directory does
    /// not have it, which holds for ever, too.
    pub(crate) fn lookup(&self, parent: u64, name: &[u8]) -> Result<Option<Found>, Errno> {
        let (key, list_key) = self.directory(parent)?;
        if self.is_changing(&key) {
            let found = self.source.find(&key, name);
            let node = found.map_err(|e| self.failed("find a name in", parent, &e))?;
            let node = node.ok_or(Errno::ENOENT)?;
            return self.name(Place { parent, index: 0 }, name, &node, true).map(Some);
        }
        let list = self.list(parent, &key, list_key)?;
        let Some(index) = list.find(name) else { return Ok(None) };
        let place = Place { parent, index: index as u32 };
        self.name(place, name, &list.entries[index].node, false).map(Some)
    }

    fn name(
        &self,
        place: Place,
        name: &[u8],
        node: &Node<S>,
        in_changing: bool,
    ) -> Result<Found, Errno> {
        let mut nodes = self.nodes.lock();
        let acquired = nodes.acquire(place, name, node).ok_or(Errno::ESTALE)?;
        let version = nodes.changing_list(acquired.id).map_or(0, |list| list.version());
        drop(nodes);
        Ok(self.describe(acquired, node, in_changing, version))
    }

    /// Attributes and lifetimes of a node that was just named.
    pub(crate) fn describe(
        &self,
        acquired: Acquired,
        node: &Node<S>,
        in_changing: bool,
        version: u32,
    ) -> Found {
        // fuser names a node by the inode number in its attributes. A later place of a directory
        // has another number than id, so the kernel must ask for its attributes before it shows
        // them.
        let mut attr = file_attr(node, acquired.id, self.options.owner);
        let mut attr_ttl = if acquired.id == acquired.number { FOREVER } else { Duration::ZERO };
        if let Kind::Directory(key) = &node.kind
            && self.is_changing(key)
        {
            // GETATTR finds out the version of its list.
            add_version(&mut attr, version);
            attr_ttl = Duration::ZERO;
        }
        let entry_ttl = match &node.kind {
            _ if !in_changing => FOREVER,
            // `latest` moves at once.
            Kind::Symlink { .. } => Duration::ZERO,
            _ => self.options.changing_ttl,
        };
        if in_changing && !matches!(node.kind, Kind::Directory(_)) {
            attr_ttl = entry_ttl;
        }
        Found { acquired, attr, entry_ttl, attr_ttl }
    }

    /// Attributes of a node, and how long they hold.
    pub(crate) fn getattr(&self, id: u64) -> Result<(FileAttr, Duration), Errno> {
        let changing = {
            let nodes = self.nodes.lock();
            let node = nodes.get(id).ok_or(Errno::ESTALE)?;
            match &node.kind {
                Kind::Directory(key) if self.is_changing(key) => key.clone(),
                _ => {
                    let number = nodes.number(id).ok_or(Errno::ESTALE)?;
                    return Ok((file_attr(node, number, self.options.owner), FOREVER));
                }
            }
        };
        let node = self.current(id)?;
        let list = self.list_now(id, &changing)?;
        let fingerprint = fingerprint(&list);
        let mut nodes = self.nodes.lock();
        let version = nodes.changing_list(id).map_or(0, |list| list.observe(fingerprint));
        let number = nodes.number(id).ok_or(Errno::ESTALE)?;
        let mut attr = file_attr(&node, number, self.options.owner);
        nodes.refresh(id, node);
        add_version(&mut attr, version);
        Ok((attr, self.options.changing_ttl))
    }

    /// The source's present answer about a changing directory.
    fn current(&self, id: u64) -> Result<Node<S>, Errno> {
        if id == ROOT {
            return Ok(self.source.root());
        }
        let (parent, name) = {
            let nodes = self.nodes.lock();
            let place = nodes.place(id).ok_or(Errno::ESTALE)?;
            (place.parent, Box::<[u8]>::from(nodes.name(id).ok_or(Errno::ESTALE)?))
        };
        let (key, _) = self.directory(parent)?;
        let found = self.source.find(&key, &name);
        found.map_err(|e| self.failed("look at", id, &e))?.ok_or(Errno::ENOENT)
    }

    /// The list of a directory for a reader that starts at `offset`.
    pub(crate) fn open_list(&self, id: u64, offset: u64) -> Result<Listed<S>, Errno> {
        let (key, list_key) = self.directory(id)?;
        let changing = self.is_changing(&key);
        let cached = if changing && offset != 0 { self.lists.lock().get(list_key) } else { None };
        let list = match cached {
            Some(list) => list,
            None if changing => {
                let list = self.list_now(id, &key)?;
                self.lists.lock().put(list_key, list.clone());
                list
            }
            None => self.list(id, &key, list_key)?,
        };
        let mut nodes = self.nodes.lock();
        let number = nodes.number(id).ok_or(Errno::ESTALE)?;
        let parent = nodes.place(id).map_or(ROOT, |place| place.parent);
        let parent_number = nodes.number(parent).unwrap_or(number);
        let cookies = match nodes.changing_list(id) {
            Some(state) if changing => {
                Some(state.cookies(list.entries.iter().map(|entry| &*entry.name)))
            }
            _ => None,
        };
        Ok(Listed { list, cookies, number, parent_number })
    }

    /// The list of a directory, from the source. `id` is only for the log.
    fn list_now(&self, id: u64, key: &S::Directory) -> Result<Arc<List<S>>, Errno> {
        self.counters.listed.one();
        let entries = self.source.list(key).map_err(|e| self.failed("list", id, &e))?;
        let list = List::new(entries);
        self.labels.note(&list);
        Ok(Arc::new(list))
    }

    /// The list of an immutable directory, from the cache or the source.
    fn list(&self, id: u64, key: &S::Directory, list_key: ListKey) -> Result<Arc<List<S>>, Errno> {
        if let Some(list) = self.lists.lock().get(list_key) {
            return Ok(list);
        }
        let list = self.list_now(id, key)?;
        self.lists.lock().put(list_key, list.clone());
        Ok(list)
    }

    /// The list of an immutable directory that the kernel knows; `None` for all others.
    pub(crate) fn siblings(&self, directory: u64) -> Option<Arc<List<S>>> {
        let (key, list_key) = self.directory(directory).ok()?;
        if self.is_changing(&key) {
            return None;
        }
        self.list(directory, &key, list_key).ok()
    }

    /// The contents of a file node: their key and length.
    pub(crate) fn file(&self, id: u64) -> Result<(S::Content, u64), Errno> {
        let nodes = self.nodes.lock();
        match nodes.get(id).ok_or(Errno::ESTALE)?.kind {
            Kind::File { ref content, size } => Ok((content.clone(), size)),
            Kind::Directory(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Logs an error of the source with the path it hit and says what the kernel is told.
    pub(crate) fn failed(&self, operation: &str, id: u64, error: &io::Error) -> Errno {
        let path = self.path(id);
        if error.kind() == io::ErrorKind::NotFound && self.is_removed(id) {
            tracing::info!(path = %path.escape_ascii(), %error, "was removed");
            return Errno::ENOENT;
        }
        tracing::error!(path = %path.escape_ascii(), %error, "cannot {operation}");
        Errno::EIO
    }

    /// A node and the directories above it, up to the root: where each is, and its name as far as
    /// the node has one of its own.
    fn upwards(&self, mut id: u64) -> impl Iterator<Item = (Place, Option<Box<[u8]>>)> {
        let up = move || {
            let nodes = self.nodes.lock();
            let place = nodes.place(id).filter(|_| id != ROOT)?;
            let name = nodes.name(id).map(Box::from);
            id = place.parent;
            Some((place, name))
        };
        // Deeper than any path the kernel allows; a guard against a cycle made by a broken source.
        std::iter::from_fn(up).take(4096)
    }

    /// Whether a changing directory above the node no longer has what leads to it.
    fn is_removed(&self, id: u64) -> bool {
        self.upwards(id).any(|(place, name)| match self.directory(place.parent) {
            Err(_) => true,
            // An entry of a changing directory has no state, and so it has a name.
            Ok((key, _)) => name.is_some_and(|name| {
                self.is_changing(&key) && !matches!(self.source.find(&key, &name), Ok(Some(_)))
            }),
        })
    }

    /// A path of a node, below the mount. For messages only.
    fn path(&self, id: u64) -> Vec<u8> {
        let names =
            self.upwards(id).map(|(place, name)| name.unwrap_or_else(|| self.name_at(place)));
        let mut names: Vec<Box<[u8]>> = names.collect();
        names.push(Box::default());
        names.reverse();
        if names.len() == 1 { b"/".to_vec() } else { names.join(&b'/') }
    }

    fn name_at(&self, place: Place) -> Box<[u8]> {
        let cached = self
            .directory(place.parent)
            .ok()
            .and_then(|(_, list_key)| self.lists.lock().get(list_key));
        cached
            .and_then(|list| Some(list.entries.get(place.index as usize)?.name.clone()))
            .unwrap_or_else(|| b"?".as_slice().into())
    }
}

/// The times of a changing directory show how often its list has changed.
fn add_version(attr: &mut FileAttr, version: u32) {
    attr.mtime += Duration::from_nanos(version.into());
    attr.ctime = attr.mtime;
}

/// Differs when a changing directory lists something else. Attributes of entries do not count.
fn fingerprint<S: TreeSource>(list: &List<S>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in &list.entries {
        entry.name.hash(&mut hasher);
        std::mem::discriminant(&entry.node.kind).hash(&mut hasher);
    }
    hasher.finish()
}
