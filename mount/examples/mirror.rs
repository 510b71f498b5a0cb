//! Serves a real directory as two snapshots, `0` and `1`, that differ in a few files: for measuring
//! the mount without a store.
//!
//! `mirror DIRECTORY MOUNTPOINT [CHANGED_FILES] [OPTION=VALUE]…`; each line on standard input
//! prints the counts since the one before, and the end of the input unmounts. With `memory=true`
//! everything is read before it is mounted: what a walk takes then is what any source takes,
//! however fast. Others: `threads=N`, `push=false`.
#![allow(clippy::disallowed_methods, clippy::print_stdout, missing_docs)]

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nono_mount::{
    Content, Entry, HardLinks, Kind, Mount, MountOptions, Node, Stability, StateId, TreeSource,
};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Directory {
    Root,
    Captured { snapshot: u32, path: Arc<Path> },
}

struct Mirror {
    base: PathBuf,
    /// Paths of contents; the mount gets a small key, as it would from a store.
    paths: Mutex<Paths>,
    /// Files (and the directories above them) that are another state in snapshot 1.
    changed: HashSet<PathBuf>,
    memory: Option<Memory>,
}

/// All that is served.
#[derive(Default)]
struct Memory {
    lists: HashMap<Arc<Path>, Vec<Found>>,
    contents: HashMap<u32, Arc<[u8]>>,
}

/// An entry of a real directory.
#[derive(Clone)]
struct Found {
    name: Box<[u8]>,
    metadata: Metadata,
    target: Option<Box<[u8]>>,
}

#[derive(Default)]
struct Paths {
    keys: HashMap<Arc<Path>, u32>,
    paths: Vec<Arc<Path>>,
}

impl Paths {
    fn key(&mut self, path: &Path) -> u32 {
        if let Some(key) = self.keys.get(path) {
            return *key;
        }
        let path = Arc::<Path>::from(path);
        self.paths.push(path.clone());
        self.keys.insert(path, self.paths.len() as u32 - 1);
        self.paths.len() as u32 - 1
    }
}

struct Bytes(Arc<[u8]>);

impl Content for Bytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn lend(&self, range: Range<u64>, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let bytes = self.0.get(range.start as usize..range.end as usize);
        bytes.map(borrower);
        Ok(bytes.is_some())
    }
}

struct Opened(File);

impl Content for Opened {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }
}

impl Mirror {
    fn new(base: PathBuf, changes: usize) -> Self {
        let mut files = Vec::new();
        let mut pending = vec![base.clone()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                match entry.file_type().unwrap() {
                    kind if kind.is_dir() => pending.push(entry.path()),
                    kind if kind.is_file() => files.push(entry.path()),
                    _ => {}
                }
            }
        }
        let mut changed = HashSet::new();
        let step = (files.len() / changes.max(1)).max(1);
        for path in files.iter().step_by(step).take(changes) {
            changed.extend(path.ancestors().take_while(|p| *p != base).map(Path::to_path_buf));
        }
        changed.insert(base.clone());
        let mut paths = Paths::default();
        for path in &files {
            paths.key(path);
        }
        Self { base, paths: Mutex::new(paths), changed, memory: None }
    }

    /// Has everything read now.
    fn load(&mut self) {
        let mut memory = Memory::default();
        let mut pending = vec![self.base.clone()];
        while let Some(directory) = pending.pop() {
            let list = entries_of(&directory).unwrap();
            for found in &list {
                let path = directory.join(OsStr::from_bytes(&found.name));
                if found.metadata.is_file() {
                    let key = self.paths.lock().unwrap().key(&path);
                    memory.contents.insert(key, fs::read(path).unwrap().into());
                } else if found.metadata.is_dir() {
                    pending.push(path);
                }
            }
            memory.lists.insert(directory.into(), list);
        }
        self.memory = Some(memory);
    }

    fn node(&self, snapshot: u32, path: &Path, found: Found) -> Node<Self> {
        let Found { metadata, target, .. } = found;
        let other = snapshot == 1 && self.changed.contains(path);
        let is_root = path == self.base;
        let mut hash = [0; 16];
        for (seed, half) in hash.chunks_mut(8).enumerate() {
            let mut hasher = DefaultHasher::new();
            (seed, path, other, metadata.mtime(), metadata.size()).hash(&mut hasher);
            half.copy_from_slice(&hasher.finish().to_le_bytes());
        }
        let mtime_s = metadata.mtime() + i64::from(other && metadata.is_file());
        let kind = if metadata.is_dir() {
            Kind::Directory(Directory::Captured { snapshot, path: path.into() })
        } else if let Some(target) = target {
            Kind::Symlink { target }
        } else {
            Kind::File { size: metadata.size(), content: self.paths.lock().unwrap().key(path) }
        };
        Node {
            kind,
            mode: metadata.mode() as u16 & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            mtime_s,
            mtime_ns: metadata.mtime_nsec() as u32,
            links: HardLinks(1),
            xattrs: None,
            state: (!is_root).then_some(StateId(hash)),
        }
    }
}

fn found(name: &[u8], path: &Path) -> io::Result<Found> {
    let metadata = fs::symlink_metadata(path)?;
    let target = match metadata.is_symlink() {
        true => Some(fs::read_link(path)?.as_os_str().as_bytes().into()),
        false => None,
    };
    Ok(Found { name: name.into(), metadata, target })
}

fn entries_of(directory: &Path) -> io::Result<Vec<Found>> {
    let entry = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        found(entry.file_name().as_bytes(), &entry.path())
    };
    fs::read_dir(directory)?.map(entry).collect()
}

impl TreeSource for Mirror {
    type Directory = Directory;
    type Content = u32;

    fn root(&self) -> Node<Self> {
        Node {
            kind: Kind::Directory(Directory::Root),
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime_s: 0,
            mtime_ns: 0,
            links: HardLinks(1),
            xattrs: None,
            state: None,
        }
    }

    fn stability(&self, directory: &Directory) -> Stability {
        match directory {
            Directory::Root => Stability::Changing,
            Directory::Captured { .. } => Stability::Immutable,
        }
    }

    fn list(&self, directory: &Directory) -> io::Result<Vec<Entry<Self>>> {
        let mut entries = Vec::new();
        match directory {
            Directory::Root => {
                for snapshot in [0, 1] {
                    let name = snapshot.to_string().into_bytes();
                    let node = self.node(snapshot, &self.base, found(&name, &self.base)?);
                    entries.push(Entry { name: name.into(), node });
                }
            }
            Directory::Captured { snapshot, path } => {
                let list = match &self.memory {
                    Some(memory) => memory.lists[path].clone(),
                    None => entries_of(path)?,
                };
                for found in list {
                    let path = path.join(OsStr::from_bytes(&found.name));
                    let name = found.name.clone();
                    entries.push(Entry { name, node: self.node(*snapshot, &path, found) });
                }
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn open(&self, content: &u32, size: u64) -> io::Result<Arc<dyn Content>> {
        if let Some(memory) = &self.memory {
            return Ok(Arc::new(Bytes(memory.contents[content].clone())));
        }
        let path = self.paths.lock().unwrap().paths[*content as usize].clone();
        if size <= 1024 * 1024 {
            Ok(Arc::new(Bytes(fs::read(path)?.into())))
        } else {
            Ok(Arc::new(Opened(File::open(path)?)))
        }
    }

    fn sha256_hex(&self, _: &u32) -> String {
        "0".repeat(64)
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [base, directory, rest @ ..] = &*arguments else {
        panic!("usage: mirror DIRECTORY MOUNTPOINT [CHANGED_FILES] [option=value]…")
    };
    let mut changes = 10;
    let mut in_memory = false;
    let mut options = MountOptions::default();
    for argument in rest.iter().filter_map(|argument| argument.to_str()) {
        match argument.split_once('=') {
            Some(("threads", value)) => options.threads = value.parse().unwrap(),
            Some(("memory", value)) => in_memory = value.parse().unwrap(),
            Some(("push", value)) => options.predictor = value.parse().unwrap(),
            _ => changes = argument.parse().unwrap(),
        }
    }
    let base = fs::canonicalize(base).unwrap();
    let mut mirror = Mirror::new(base, changes);
    if in_memory {
        mirror.load();
    }
    let mount = Mount::new(mirror, Path::new(directory), options).unwrap();
    println!("mounted at {}", mount.directory().display());
    let unmounter = mount.unmounter();
    let mut earlier = mount.counts();
    let mut line = String::new();
    // Each line on standard input prints what happened since the last one.
    while io::stdin().read_line(&mut line).unwrap_or(0) > 0 {
        let now = mount.counts();
        println!("{} {:?} nodes {}", line.trim(), now - earlier, mount.live_nodes());
        earlier = now;
        line.clear();
    }
    unmounter.unmount().unwrap();
    mount.wait().unwrap();
}
