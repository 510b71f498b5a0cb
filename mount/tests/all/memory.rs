//! A tree in memory: what the tests mount.
//!
//! Directories and contents can be changed, removed and damaged behind the mount's back.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nono_mount::{
    Content, Device, Entry, HardLinks, Kind, Node, Space, Stability, StateId, TreeSource, Xattrs,
};
use parking_lot::Mutex;

/// A description of an entry, before it has keys.
#[derive(Clone)]
pub(crate) struct Spec {
    pub(crate) kind: What,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: (i64, u32),
    pub(crate) links: u32,
    pub(crate) xattrs: Vec<(&'static str, Vec<u8>)>,
    /// Members of one hard-link group share their state.
    pub(crate) group: Option<&'static str>,
}

#[derive(Clone)]
pub(crate) enum What {
    Directory(BTreeMap<Vec<u8>, Spec>),
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    CharDevice(Device),
    BlockDevice(Device),
}

impl Spec {
    pub(crate) fn new(kind: What) -> Self {
        let mode = match kind {
            What::Directory(_) => 0o755,
            What::Symlink(_) => 0o777,
            _ => 0o644,
        };
        let mtime = (1_700_000_000, 123_456_789);
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self { kind, mode, uid, gid, mtime, links: 1, xattrs: Vec::new(), group: None }
    }
}

pub(crate) fn file(bytes: impl Into<Vec<u8>>) -> Spec {
    Spec::new(What::File(bytes.into()))
}

pub(crate) fn symlink(target: &str) -> Spec {
    Spec::new(What::Symlink(target.into()))
}

pub(crate) fn dir<N: Into<Vec<u8>>>(entries: impl IntoIterator<Item = (N, Spec)>) -> Spec {
    let entries = entries.into_iter().map(|(name, spec)| (name.into(), spec)).collect();
    Spec::new(What::Directory(entries))
}

/// Shared with the test, which can change it.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<State>);

#[derive(Default)]
struct State {
    next: AtomicU64,
    directories: Mutex<HashMap<u64, Directory>>,
    contents: Mutex<HashMap<u64, Arc<Vec<u8>>>>,
    /// Contents that do not verify.
    damaged: Mutex<Vec<Vec<u8>>>,
    panicking: Mutex<Vec<Vec<u8>>>,
    /// Names of the threads in which it did.
    panicked_in: Mutex<Vec<String>>,
    /// Contents that are not there.
    lost: Mutex<Vec<Vec<u8>>>,
    meeting: Mutex<Option<Meeting>>,
}

/// See [`Memory::meet_at`].
#[derive(Clone)]
struct Meeting {
    bytes: Vec<u8>,
    /// Made when the pusher has opened the bytes.
    opened: PathBuf,
    is_read: Arc<AtomicBool>,
}

impl Meeting {
    fn open(&self) {
        if std::thread::current().name() == Some("nono-push") {
            std::fs::write(&self.opened, "").unwrap();
            while !self.is_read.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        } else {
            self.is_read.store(true, Ordering::Release);
            loop {
                std::thread::park();
            }
        }
    }
}

#[derive(Default)]
struct Directory {
    changing: bool,
    entries: BTreeMap<Vec<u8>, Node<Memory>>,
}

pub(crate) const ROOT: u64 = 0;

impl Memory {
    pub(crate) fn new() -> Self {
        let memory = Self::default();
        memory.0.next.store(1, Ordering::Relaxed);
        let root = Directory { changing: true, ..Directory::default() };
        memory.0.directories.lock().insert(ROOT, root);
        memory
    }

    /// Snapshots below the root.
    pub(crate) fn with(snapshots: impl IntoIterator<Item = (&'static str, Spec)>) -> Self {
        let memory = Self::new();
        for (name, spec) in snapshots {
            memory.add(ROOT, name, &spec);
        }
        memory
    }

    /// A changing directory; returns its key.
    pub(crate) fn add_changing(&self, parent: u64, name: &str) -> u64 {
        let key = self.0.next.fetch_add(1, Ordering::Relaxed);
        let directory = Directory { changing: true, ..Directory::default() };
        self.0.directories.lock().insert(key, directory);
        let mut node = self.node(&Spec::new(What::Fifo), b"", None);
        node.kind = Kind::Directory(key);
        node.mode = 0o755;
        self.insert(parent, name, node);
        key
    }

    /// Adds a snapshot (or anything else) to a changing directory.
    pub(crate) fn add(&self, parent: u64, name: &str, spec: &Spec) {
        let node = self.node(spec, b"", None);
        self.insert(parent, name, node);
    }

    fn insert(&self, parent: u64, name: &str, node: Node<Self>) {
        let mut directories = self.0.directories.lock();
        directories.get_mut(&parent).unwrap().entries.insert(name.into(), node);
    }

    /// Takes a name away, and everything below it.
    pub(crate) fn remove(&self, parent: u64, name: &str) {
        let mut directories = self.0.directories.lock();
        let node = directories.get_mut(&parent).unwrap().entries.remove(name.as_bytes()).unwrap();
        let mut pending = vec![node];
        while let Some(node) = pending.pop() {
            match node.kind {
                Kind::Directory(key) => {
                    let gone = directories.remove(&key);
                    pending.extend(gone.into_iter().flat_map(|gone| gone.entries.into_values()));
                }
                Kind::File { content, .. } => drop(self.0.contents.lock().remove(&content)),
                _ => {}
            }
        }
    }

    /// Takes these contents away.
    pub(crate) fn lose(&self, bytes: &[u8]) {
        self.0.lost.lock().push(bytes.to_vec());
    }

    /// From now on these bytes do not verify.
    pub(crate) fn damage(&self, bytes: &[u8]) {
        self.0.damaged.lock().push(bytes.into());
    }

    /// From now on to open these bytes panics.
    pub(crate) fn panic_at(&self, bytes: &[u8]) {
        self.0.panicking.lock().push(bytes.into());
    }

    /// Whether it panicked in a thread of this name.
    pub(crate) fn has_panicked_in(&self, thread: &str) -> bool {
        self.0.panicked_in.lock().iter().any(|name| name == thread)
    }

    /// The pusher that opens these bytes says so by making the file `opened`, and gets them
    /// as soon as another reader opens them, which never gets them.
    pub(crate) fn meet_at(&self, bytes: &[u8], opened: PathBuf) {
        let is_read = Arc::default();
        *self.0.meeting.lock() = Some(Meeting { bytes: bytes.into(), opened, is_read });
    }

    pub(crate) fn repair(&self) {
        self.0.damaged.lock().clear();
        self.0.panicking.lock().clear();
    }

    /// `path` is relative to the snapshot; `None` as state for the snapshot itself.
    fn node(&self, spec: &Spec, path: &[u8], state: Option<StateId>) -> Node<Self> {
        let kind = match &spec.kind {
            What::Directory(children) => {
                let mut entries = BTreeMap::new();
                for (name, child) in children {
                    let path = [path, b"/", name].concat();
                    let node = self.node(child, &path, Some(child.state(&path)));
                    entries.insert(name.clone(), node);
                }
                let key = self.0.next.fetch_add(1, Ordering::Relaxed);
                self.0.directories.lock().insert(key, Directory { changing: false, entries });
                Kind::Directory(key)
            }
            What::File(bytes) => {
                let content = self.0.next.fetch_add(1, Ordering::Relaxed);
                self.0.contents.lock().insert(content, Arc::new(bytes.clone()));
                Kind::File { size: bytes.len() as u64, content }
            }
            What::Symlink(target) => Kind::Symlink { target: target.as_slice().into() },
            What::Fifo => Kind::Fifo,
            What::Socket => Kind::Socket,
            What::CharDevice(device) => Kind::CharDevice(*device),
            What::BlockDevice(device) => Kind::BlockDevice(*device),
        };
        let xattrs: Xattrs = spec
            .xattrs
            .iter()
            .map(|(name, value)| (name.as_bytes().into(), value.as_slice().into()))
            .collect();
        Node {
            kind,
            mode: spec.mode,
            uid: spec.uid,
            gid: spec.gid,
            mtime_s: spec.mtime.0,
            mtime_ns: spec.mtime.1,
            links: HardLinks(spec.links),
            xattrs: (!xattrs.is_empty()).then_some(xattrs),
            state,
        }
    }
}

impl Spec {
    /// Equal for the same path with the same everything.
    fn state(&self, path: &[u8]) -> StateId {
        let mut id = [0; 16];
        for (seed, half) in id.chunks_mut(8).enumerate() {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            match self.group {
                Some(group) => group.hash(&mut hasher),
                None => path.hash(&mut hasher),
            }
            self.feed(&mut hasher);
            half.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        StateId(id)
    }

    fn feed(&self, hasher: &mut DefaultHasher) {
        (self.mode, self.uid, self.gid, self.mtime, self.links, &self.xattrs).hash(hasher);
        match &self.kind {
            What::Directory(entries) => {
                for (name, entry) in entries {
                    name.hash(hasher);
                    entry.feed(hasher);
                }
            }
            What::File(bytes) => ("file", bytes).hash(hasher),
            What::Symlink(target) => ("link", target).hash(hasher),
            What::Fifo => "fifo".hash(hasher),
            What::Socket => "socket".hash(hasher),
            What::CharDevice(device) => ("char", device.major, device.minor).hash(hasher),
            What::BlockDevice(device) => ("block", device.major, device.minor).hash(hasher),
        }
    }
}

impl TreeSource for Memory {
    type Directory = u64;
    type Content = u64;

    fn root(&self) -> Node<Self> {
        let mut node = self.node(&Spec::new(What::Fifo), b"", None);
        node.kind = Kind::Directory(ROOT);
        node.mode = 0o755;
        node
    }

    fn stability(&self, directory: &u64) -> Stability {
        match self.0.directories.lock().get(directory) {
            Some(Directory { changing: true, .. }) => Stability::Changing,
            _ => Stability::Immutable,
        }
    }

    fn list(&self, directory: &u64) -> io::Result<Vec<Entry<Self>>> {
        let directories = self.0.directories.lock();
        let found = directories.get(directory).ok_or(io::ErrorKind::NotFound)?;
        let entries = found.entries.iter();
        Ok(entries
            .map(|(name, node)| Entry { name: (**name).into(), node: node.clone() })
            .collect())
    }

    fn open(&self, content: &u64, _: u64) -> io::Result<Arc<dyn Content>> {
        let contents = self.0.contents.lock();
        let bytes = contents.get(content).cloned().ok_or(io::ErrorKind::NotFound)?;
        if self.0.lost.lock().contains(&bytes) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let panics = self.0.panicking.lock().contains(&bytes);
        if panics {
            self.0.panicked_in.lock().extend(std::thread::current().name().map(str::to_owned));
            panic!("this source panics");
        }
        if self.0.damaged.lock().contains(&bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the hash is another one"));
        }
        let meeting = self.0.meeting.lock().clone();
        if let Some(meeting) = meeting.filter(|meeting| meeting.bytes == *bytes) {
            drop(contents);
            meeting.open();
        }
        Ok(Arc::new(Bytes(bytes)))
    }

    fn sha256_hex(&self, content: &u64) -> String {
        format!("{content:064x}")
    }

    fn space(&self) -> Space {
        let (bytes, free_bytes, available_bytes) = (1 << 20, 3 << 14, 1 << 15);
        Space { bytes, free_bytes, available_bytes, inodes: 1000, free_inodes: 10 }
    }
}

struct Bytes(Arc<Vec<u8>>);

impl Content for Bytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}
