//! One tree under watch: a watch on each of its directories, and a log of their changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::WatchError;
use super::log::{ChangeLog, ChangedDirectory};
use super::mounts::Mounts;
use super::protocol::{Reply, Token};
use crate::byte_path;
use crate::manifest::SnapshotManifest;
use crate::object::Node;
use crate::path_text::Shown;
use crate::store::{ObjectSource, read_root_tree, read_tree};
use crate::sys::{self, Dir, Fate, FileKind, Notice, Notifier, Writers};

/// Events that are read at once. A queue that is longer is as good as full.
const MAX_EVENTS: usize = 1 << 20;
/// Files whose contents decide which other paths are recorded.
const RULES: &[u8] = b".gitignore";

/// Why a change may come without an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gap {
    /// The limit of watches is reached: `fs.inotify.max_user_watches`, or one that the user set.
    NoMoreWatches,
    /// A directory lies in a file system that others may change, over a network.
    FileSystem(PathBuf),
    /// A directory cannot be watched.
    Failed(String),
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMoreWatches => {
                f.write_str("the watches ran out (fs.inotify.max_user_watches, or --max-watches)")
            }
            Self::FileSystem(path) => {
                let path = Shown::path(path);
                write!(f, "{path} lies in a file system that other machines may change")
            }
            Self::Failed(error) => f.write_str(error),
        }
    }
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The queue of events was full.
    Overflow,
    /// A mount came or went.
    Mount,
    /// Another directory is at the tracked path, or none.
    Replaced,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "the queue of events was full",
            Self::Mount => "a mount came or went",
            Self::Replaced => "the directory was replaced",
        })
    }
}

/// The result of a look at the events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether anything changed, or may have.
    pub changed: bool,
    /// Why events may be missing, if so. Everything is watched anew by now.
    pub loss: Option<Loss>,
}

/// A directory with a watch.
#[derive(Debug)]
struct Watched {
    /// The directory above it; none for the tracked path.
    parent: Option<i32>,
    name: Box<[u8]>,
}

/// The watches of one generation.
#[derive(Debug)]
struct Watches {
    notifier: Notifier,
    /// The tracked path; none while it is not there.
    top: Option<Top>,
    directories: HashMap<i32, Watched>,
    /// The same by the directory above and the name.
    places: BTreeMap<(i32, Box<[u8]>), i32>,
    /// The watch of the directory around the tracked path, which tells when that is replaced.
    around: Option<i32>,
    gap: Option<Gap>,
}

#[derive(Debug)]
struct Top {
    dir: Dir,
    id: (u64, u64),
    watch: i32,
}

/// A tracked path under watch.
#[derive(Debug)]
pub struct TreeWatch {
    path: PathBuf,
    /// Directories of nono's own, which are not watched.
    own: Vec<(u64, u64)>,
    /// The highest number of watches.
    limit: usize,
    /// Left-out directories, relative: watched themselves, and nothing below them.
    left_out: HashSet<Box<[u8]>>,
    watches: Watches,
    /// Tells the names of programs; none without the right to ask for them.
    writers: Option<Writers>,
    mounts: Mounts,
    log: ChangeLog,
    generation: [u8; 16],
}

impl TreeWatch {
    /// Watches a directory. `own`: places of nono's own, by their paths. At most `limit` watches
    /// are set.
    ///
    /// # Errors
    /// When it is no directory, or nothing can be watched at all.
    pub fn begin(path: &Path, own: &[PathBuf], limit: usize) -> Result<Self, WatchError> {
        match sys::kind_of(path)? {
            Some(FileKind::Directory) => {}
            _ => return Err(WatchError::NoDirectory { path: Shown::path(path).to_string() }),
        }
        let ids = own.iter().filter_map(|path| Dir::open(path).and_then(|it| it.stat_self()).ok());
        let own = ids.map(|stat| (stat.dev, stat.ino)).collect();
        let mut made = Self {
            path: path.to_owned(),
            own,
            limit,
            left_out: HashSet::new(),
            mounts: Mounts::of(path)?,
            watches: Watches::new()?,
            writers: Writers::new(),
            log: ChangeLog::default(),
            generation: sys::random_bytes()?,
        };
        made.cover_all();
        Ok(made)
    }

    /// The tracked path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptor that can be read when there are events.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.watches.notifier.as_fd()
    }

    /// The descriptor that has something with priority when a mount came or went.
    pub fn mounts(&self) -> BorrowedFd<'_> {
        self.mounts.as_fd()
    }

    /// The descriptor that can be read when [programs](Self::programs) wrote; none where their
    /// names cannot be known.
    pub fn writers(&self) -> Option<BorrowedFd<'_>> {
        self.writers.as_ref().map(Writers::as_fd)
    }

    /// The names of the programs that wrote files since the last call, as far as they can be known.
    pub fn programs(&self) -> BTreeSet<String> {
        let top = self.path.as_os_str().as_bytes();
        let is_recorded = |path: &Path| {
            let path = byte_path::relative_to(path.as_os_str().as_bytes(), top);
            let mut above = path.into_iter().flat_map(byte_path::ancestors);
            path.is_some() && !above.any(|above| self.left_out.contains(above))
        };
        let written = self.writers.as_ref().map(Writers::read).unwrap_or_default();
        let recorded = written.into_iter().filter(|(path, _)| is_recorded(path));
        recorded.map(|(_, program)| program).collect()
    }

    /// Number of watched directories.
    pub fn directories(&self) -> usize {
        self.watches.directories.len()
    }

    /// Why changes may come without an event, if they may.
    pub fn gap(&self) -> Option<&Gap> {
        self.watches.gap.as_ref()
    }

    /// Reads all events that are there. Afterwards the log has every change before this call.
    ///
    /// # Errors
    /// When the tree cannot be watched any more.
    pub fn look(&mut self) -> Result<Seen, WatchError> {
        if self.mounts.changed() {
            return self.begin_anew(Loss::Mount);
        }
        let notices = self.watches.notifier.read(MAX_EVENTS)?;
        if notices.len() == MAX_EVENTS {
            return self.begin_anew(Loss::Overflow);
        }
        let mut seen = Seen::default();
        for notice in notices {
            match self.note(notice) {
                Ok(changed) => seen.changed |= changed,
                Err(loss) => return self.begin_anew(loss),
            }
        }
        // Where the directory around it was moved, no event told.
        let id = Dir::open_no_symlinks(&self.path).and_then(|dir| dir.stat_self());
        let id = id.ok().map(|stat| (stat.dev, stat.ino));
        if id != self.watches.top.as_ref().map(|top| top.id) {
            return self.begin_anew(Loss::Replaced);
        }
        Ok(seen)
    }

    /// The present moment. Call [`look`](Self::look) first.
    pub fn token(&self) -> Token {
        Token { generation: self.generation, number: self.log.last() }
    }

    /// The directories that changed since a moment; `None` where only a whole walk can tell.
    pub fn changed_since(&self, token: &Token) -> Option<Vec<ChangedDirectory>> {
        if token.generation != self.generation || self.watches.gap.is_some() {
            return None;
        }
        self.watches.top.as_ref()?;
        self.log.since(token.number)
    }

    /// The answer to a question about changes. Call [`look`](Self::look) first.
    pub fn reply(&self, since: Option<&Token>) -> Reply {
        Reply::Changed {
            now: self.watches.gap.is_none().then(|| self.token()),
            top: self.watches.top.as_ref().map(|top| top.id),
            namespace: mount_namespace(),
            directories: since.and_then(|since| self.changed_since(since)),
        }
    }

    /// Leaves the watches below those directories that a snapshot left out, and takes up what it
    /// records.
    pub fn follow(&mut self, manifest: &SnapshotManifest, store: &dyn ObjectSource) {
        let top = self.path.as_os_str().as_bytes();
        let root = read_root_tree(store, &manifest.merkle_root).ok();
        let tree = root.as_ref().and_then(|root| match root.get(top)?.node {
            Node::Directory { tree } => Some(tree),
            _ => None,
        });
        let mut lists = HashMap::new();
        let mut holds = |path: &[u8]| {
            let mut tree = tree;
            for name in byte_path::components(path) {
                let Some(hash) = tree else { return false };
                let list = lists.entry(hash).or_insert_with(|| read_tree(store, &hash).ok());
                let Some(list) = list else { return true };
                let Some(entry) = list.get(name) else { return false };
                tree = match entry.node {
                    Node::Directory { tree } => Some(tree),
                    _ => None,
                };
            }
            true
        };
        let mut left_out = HashSet::new();
        for left in &manifest.not_captured {
            let path = left.path.as_os_str().as_bytes();
            if let Some(path) = byte_path::relative_to(path, top)
                && !path.is_empty()
                && !holds(path)
            {
                left_out.insert(path.into());
            }
        }
        let before = std::mem::replace(&mut self.left_out, left_out);
        let new: Vec<_> = self.left_out.difference(&before).cloned().collect();
        for path in new {
            if let Some(watch) = self.watches.at(&path) {
                self.watches.leave_below(watch);
            }
        }
        let recorded: Vec<_> = before.difference(&self.left_out).cloned().collect();
        for path in recorded {
            self.log.note(&path, true);
            self.cover(&path);
        }
    }

    /// Notes one event. Gives whether anything changed.
    fn note(&mut self, notice: Notice) -> Result<bool, Loss> {
        let (watch, name, is_dir, fate) = match notice {
            Notice::Overflow => return Err(Loss::Overflow),
            Notice::Unmounted => return Err(Loss::Mount),
            Notice::Moved { watch } => {
                let top = self.watches.top.as_ref().map(|top| top.watch);
                return if top == Some(watch) { Err(Loss::Replaced) } else { Ok(false) };
            }
            Notice::Ended { watch } => {
                self.watches.forget(watch);
                return Ok(false);
            }
            Notice::Changed { watch, name, is_dir, fate } => (watch, name, is_dir, fate),
        };
        if self.watches.around == Some(watch) && !self.watches.directories.contains_key(&watch) {
            let own = self.path.file_name().unwrap_or_default().as_bytes();
            let is_replaced = *name == *own && fate != Fate::Stays;
            return if is_replaced { Err(Loss::Replaced) } else { Ok(false) };
        }
        // An event of a directory that was moved; it was noted at its new place.
        let Some(path) = self.watches.path_of(watch) else { return Ok(false) };
        let inside = || byte_path::join(&path, &name);
        // A rule may change the fate of everything below.
        self.log.note(&path, *name == *RULES || is_git_rules(&path, &name));
        if is_dir && !name.is_empty() && !self.left_out.contains(path.as_slice()) {
            let place = (watch, name.clone());
            // One that stays may be readable only now. One that went may have been exchanged.
            if fate != Fate::Stays || !self.watches.places.contains_key(&place) {
                self.watches.leave(&place);
                self.log.note(&inside(), true);
                self.cover(&inside());
            }
        }
        Ok(true)
    }

    fn begin_anew(&mut self, loss: Loss) -> Result<Seen, WatchError> {
        self.watches = Watches::new()?;
        self.writers = Writers::new();
        self.mounts = Mounts::of(&self.path)?;
        self.log = ChangeLog::default();
        self.generation = sys::random_bytes()?;
        self.cover_all();
        Ok(Seen { changed: true, loss: Some(loss) })
    }

    /// Watches the tracked path, the directory around it, and all that is below it.
    fn cover_all(&mut self) {
        let around = self.path.parent().and_then(|path| Dir::open_no_symlinks(path).ok());
        self.watches.around = around.and_then(|dir| self.watches.notifier.watch(&dir).ok());
        let opened = Dir::open_no_symlinks(&self.path).and_then(|dir| {
            let stat = dir.stat_self()?;
            let watch = self.watches.notifier.watch(&dir)?;
            Ok(Top { dir, id: (stat.dev, stat.ino), watch })
        });
        match opened {
            Ok(top) => {
                self.watches.top = Some(top);
                self.cover(b"");
            }
            Err(error) if error.is_gone() => {}
            Err(error) => self.watches.set_gap(&error),
        }
    }

    /// Watches a directory and all that is below it, unless it is left out.
    fn cover(&mut self, from: &[u8]) {
        let Self { watches, left_out, own, limit, path, writers, .. } = self;
        let Some(top) = &watches.top else { return };
        let Ok(top_dir) = top.dir.open_beneath(b"") else { return };
        let mut waiting: Vec<Vec<u8>> = vec![from.to_vec()];
        while let Some(relative) = waiting.pop() {
            let (above, name) = byte_path::split(&relative);
            let parent = if relative.is_empty() { None } else { watches.at(above) };
            if parent.is_none() && !relative.is_empty() {
                // It went meanwhile; an event tells.
                continue;
            }
            if watches.directories.len() >= *limit {
                watches.gap.get_or_insert(Gap::NoMoreWatches);
                return;
            }
            let dir = match top_dir.open_beneath(&relative) {
                Ok(dir) => dir,
                // Nothing of it is recorded either.
                Err(error) if error.is_gone() || error.is_symlink_in_path() => continue,
                Err(error) if error.is_denied() => continue,
                Err(error) => {
                    watches.set_gap(&error);
                    continue;
                }
            };
            let looked = dir.stat_self().and_then(|stat| Ok((stat, dir.file_system_type()?)));
            let (stat, magic) = match looked {
                Ok(looked) => looked,
                Err(error) => {
                    watches.set_gap(&error);
                    continue;
                }
            };
            if own.contains(&(stat.dev, stat.ino))
                || (!relative.is_empty() && sys::is_virtual_file_system(magic))
            {
                continue;
            }
            if !sys::is_local_file_system(magic) {
                let place = path.join(crate::path_text::to_path(&relative));
                watches.gap.get_or_insert(Gap::FileSystem(place));
            }
            let watch = match watches.notifier.watch(&dir) {
                Ok(watch) => watch,
                Err(error) if error.is_gone() || error.is_denied() => continue,
                Err(error) => {
                    watches.set_gap(&error);
                    return;
                }
            };
            if let Some(writers) = writers {
                writers.watch(&dir);
            }
            watches.put(watch, parent, name);
            if left_out.contains(relative.as_slice()) {
                continue;
            }
            match dir.names() {
                Ok(names) => {
                    let may_be =
                        |kind: Option<FileKind>| kind.is_none_or(|it| it == FileKind::Directory);
                    let inside = names.into_iter().filter(|listed| may_be(listed.kind));
                    waiting.extend(inside.map(|it| byte_path::join(&relative, &it.name)));
                }
                Err(error) => watches.set_gap(&error),
            }
        }
    }
}

impl Watches {
    fn new() -> Result<Self, WatchError> {
        Ok(Self {
            notifier: Notifier::new()?,
            top: None,
            directories: HashMap::new(),
            places: BTreeMap::new(),
            around: None,
            gap: None,
        })
    }

    fn set_gap(&mut self, error: &sys::Error) {
        self.gap.get_or_insert_with(|| match error.kind() {
            ErrorKind::StorageFull => Gap::NoMoreWatches,
            _ => Gap::Failed(error.to_string()),
        });
    }

    /// The watch of a directory.
    fn at(&self, relative: &[u8]) -> Option<i32> {
        let mut watch = self.top.as_ref()?.watch;
        for name in byte_path::components(relative) {
            watch = *self.places.get(&(watch, name.into()))?;
        }
        Some(watch)
    }

    /// Where a watched directory is.
    fn path_of(&self, watch: i32) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut at = self.directories.get(&watch)?;
        while let Some(parent) = at.parent {
            names.push(&at.name);
            at = self.directories.get(&parent)?;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    fn put(&mut self, watch: i32, parent: Option<i32>, name: &[u8]) {
        let new = Watched { parent, name: name.into() };
        if let Some(Watched { parent: Some(parent), name }) = self.directories.insert(watch, new) {
            // It was moved here.
            let former = (parent, name);
            if self.places.get(&former) == Some(&watch) {
                self.places.remove(&former);
            }
        }
        if let Some(parent) = parent {
            self.places.insert((parent, name.into()), watch);
        }
    }

    /// The kernel ended a watch.
    fn forget(&mut self, watch: i32) {
        if let Some(Watched { parent: Some(parent), name }) = self.directories.remove(&watch) {
            let place = (parent, name);
            if self.places.get(&place) == Some(&watch) {
                self.places.remove(&place);
            }
        }
    }

    /// Ends the watches of a directory and of all below it.
    fn leave(&mut self, place: &(i32, Box<[u8]>)) {
        if let Some(watch) = self.places.get(place).copied() {
            self.leave_below(watch);
            self.notifier.unwatch(watch);
            self.forget(watch);
        }
    }

    fn leave_below(&mut self, watch: i32) {
        let mut waiting = vec![watch];
        let mut found = Vec::new();
        while let Some(above) = waiting.pop() {
            let from = (above, Box::default());
            let below = self.places.range(from..).take_while(|((parent, _), _)| *parent == above);
            for (_, watch) in below {
                waiting.push(*watch);
                found.push(*watch);
            }
        }
        for watch in found {
            self.notifier.unwatch(watch);
            self.forget(watch);
        }
    }
}

/// The name of the mount namespace of this process; empty where the system has none.
pub(super) fn mount_namespace() -> String {
    let name = Dir::open(Path::new("/proc/self/ns")).and_then(|dir| dir.read_link(b"mnt"));
    name.map(|name| String::from_utf8_lossy(&name).into_owned()).unwrap_or_default()
}

/// Whether a file in a git directory decides which paths are ignored.
fn is_git_rules(directory: &[u8], name: &[u8]) -> bool {
    let (_, last) = byte_path::split(directory);
    let is_exclude = name == b"exclude" && directory.ends_with(b".git/info");
    is_exclude || (last == b".git" && name == b"config")
}

/// Watches for new and changed names in a few directories, in none below them.
#[derive(Debug)]
pub struct NameWatch {
    notifier: Notifier,
}

impl NameWatch {
    /// Watches these directories, as far as they are there.
    ///
    /// # Errors
    /// When nothing can be watched.
    pub fn of<'a>(directories: impl Iterator<Item = &'a Path>) -> Result<Self, WatchError> {
        let notifier = Notifier::new()?;
        for path in directories {
            if let Ok(dir) = Dir::open(path) {
                notifier.watch(&dir)?;
            }
        }
        Ok(Self { notifier })
    }

    /// The descriptor that can be read when there are events.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.notifier.as_fd()
    }

    /// Reads the events that are there, and says whether there were any.
    pub fn has_events(&self) -> bool {
        self.notifier.read(MAX_EVENTS).is_ok_and(|notices| !notices.is_empty())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make files")]
mod tests;
