//! [`StoreTree`]: the store as a [`TreeSource`].

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use nono_mount::{Content, Entry, HardLinks, Kind, Node, Space, Stability, TreeSource};
use parking_lot::Mutex;

use super::by_project::ByProject;
use super::contents::Verified;
use super::error::{BrowseError, from_store, from_sys};
use super::forks::{FORKS, LiveForks};
use super::git_index::GitIndexes;
use super::head::SnapshotHead;
use super::key::{
    ContentKey, DirectoryKey, DirectoryKind, PathHash, SessionKey, SnapshotKey, StoreId, TreeKey,
    above_state,
};
use super::links::{LinkCache, LinkIndex};
use super::lister::Lister;
use super::sessions::{self, Session, Sessions};
use super::steps::{self, STEPS, StepLinks};
use super::stores::Stores;
use super::{BY_PROJECT, LATEST};
use crate::object::{self, ContentHash, RootTree};
use crate::path_text::Shown;
use crate::store::{StoreError, read_links, read_root_tree, read_tree};
use crate::sys::{self, Dir, FileTime};

/// Every user may look, no user may write.
const FOLDER_MODE: u16 = 0o555;

/// The part of the stores that is shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Scope {
    /// Every session.
    #[default]
    Everything,
    /// The snapshots of the session with this id, directly at the top.
    Session(String),
    /// The sessions that track a path, something in it, or a directory around it.
    Path(PathBuf),
}

/// One or more stores as a tree of folders; see the [module](super).
pub struct StoreTree {
    pub(super) sessions: Sessions,
    pub(super) stores: Stores,
    verified: Verified,
    links: Mutex<LinkCache>,
    step_links: StepLinks,
    pub(super) by_project: ByProject,
    pub(super) forks: LiveForks,
    git_indexes: GitIndexes,
    /// The session at the top, if it is only one.
    session: Option<SessionKey>,
    root: DirectoryKey,
    /// Shown until there is anything with a time of its own.
    pub(super) started: FileTime,
    uid: u32,
    gid: u32,
}

pub(super) type StoreNode = Node<StoreTree>;
pub(super) type StoreEntry = Entry<StoreTree>;

impl StoreTree {
    /// Shows the sessions in `roots` (directories that hold `<id>/` and `objects/`). A root that
    /// does not exist yet is shown as soon as it does. Opens nothing but what `scope` needs.
    ///
    /// # Errors
    /// When `scope` names a session that is not there.
    pub fn new(roots: &[PathBuf], scope: &Scope) -> Result<Self, BrowseError> {
        // The process may change its directory later.
        let absolute = |root: &PathBuf| std::path::absolute(root).unwrap_or_else(|_| root.clone());
        let roots: Vec<PathBuf> = roots.iter().map(absolute).collect();
        let tracked = match scope {
            Scope::Path(path) => Some(sessions::tracked_path(path)),
            _ => None,
        };
        let sessions = Sessions::new(roots, tracked);
        let session = match scope {
            Scope::Session(id) => Some(sessions.named(id)?.key),
            _ => None,
        };
        let root = match &session {
            None => DirectoryKind::Store,
            Some(session) => DirectoryKind::Session(session.clone()),
        };
        Ok(Self {
            sessions,
            stores: Stores::new(),
            verified: Verified::new(),
            links: Mutex::new(LinkCache::new()),
            step_links: StepLinks::default(),
            by_project: ByProject::new(),
            forks: LiveForks::default(),
            git_indexes: GitIndexes::default(),
            session,
            root: root.into(),
            started: sys::coarse_now(),
            uid: sys::effective_uid(),
            gid: sys::effective_gid(),
        })
    }

    /// Shows each index of git at the top of a tracked path of a snapshot with the times and inode
    /// numbers that files have here, so that git need not read them. For a mount that programs take
    /// for the project itself.
    ///
    /// # Errors
    /// The snapshot of the one session that is shown cannot be read.
    pub fn with_git_indexes(mut self, number: u64) -> io::Result<Self> {
        if let Some(session) = &self.session {
            let snapshot = self.snapshot_key(session, number)?;
            let store = self.stores.open(snapshot.store)?;
            let root = read_root_tree(&*store, &snapshot.merkle_root).map_err(from_store)?;
            let top = self.stores.top(snapshot.store)?;
            self.git_indexes = GitIndexes::of(snapshot, top, &root);
        }
        Ok(self)
    }

    /// How many blocks of packs were read so far, of all stores.
    #[cfg(test)]
    pub(super) fn blocks_read(&self) -> u64 {
        self.stores.blocks_read()
    }

    /// Sets the number of bytes of blocks that stay in memory, for each open store.
    #[cfg(test)]
    pub(super) fn keep_blocks(&self, bytes: usize) {
        self.stores.keep_blocks(bytes);
    }

    /// The next reads of packs go to the disk.
    #[cfg(test)]
    pub(super) fn forget_blocks(&self) {
        self.stores.forget_blocks();
    }

    /// A folder of the mount's own.
    pub(super) fn folder(&self, key: impl Into<DirectoryKey>, mtime: FileTime) -> StoreNode {
        self.own(Kind::Directory(key.into()), FOLDER_MODE, mtime)
    }

    /// A link `latest`.
    fn latest(&self, target: &str, mtime: FileTime) -> StoreEntry {
        let target = target.as_bytes().into();
        let node = self.own(Kind::Symlink { target }, 0o777, mtime);
        Entry { name: LATEST.as_bytes().into(), node }
    }

    pub(super) fn own(&self, kind: Kind<Self>, mode: u16, mtime: FileTime) -> StoreNode {
        Node {
            kind,
            mode,
            uid: self.uid,
            gid: self.gid,
            mtime_s: mtime.seconds,
            mtime_ns: mtime.nanoseconds,
            links: HardLinks(1),
            xattrs: None,
            state: None,
        }
    }

    fn session_node(&self, session: &Session) -> StoreNode {
        self.folder(DirectoryKind::Session(session.key.clone()), session.mtime)
    }

    fn list_sessions(&self) -> io::Result<Vec<StoreEntry>> {
        let sessions = self.sessions.list().map_err(io::Error::other)?;
        let mut entries: Vec<StoreEntry> = sessions
            .values()
            .map(|session| Entry {
                name: session.key.id.as_bytes().into(),
                node: self.session_node(session),
            })
            .collect();
        if let Some(newest) = Sessions::newest(sessions.values()) {
            entries.push(self.latest(&newest.key.id, newest.mtime));
        }
        if let Some(mtime) = sessions.values().map(|session| session.mtime).max() {
            let node = self.by_project_node(mtime);
            entries.push(Entry { name: BY_PROJECT.into(), node });
        }
        Ok(sorted(entries))
    }

    fn list_snapshots(&self, session: &SessionKey) -> io::Result<Vec<StoreEntry>> {
        let numbers = self.sessions.numbers(session)?;
        let path = self.sessions.path(session);
        let dir = Dir::open(&path).map_err(from_sys)?;
        let store = self.stores.of_session(&path);
        let mut entries = Vec::with_capacity(numbers.len() + 1);
        for number in numbers.iter().copied() {
            let key = match (&store, self.sessions.snapshot_in(&dir, session, number)) {
                (Ok(store), Ok(head)) => {
                    let SnapshotHead { timestamp, merkle_root } = head;
                    let (session, store) = (session.clone(), *store);
                    Ok(self.top(SnapshotKey { session, number, store, merkle_root, timestamp }))
                }
                (Err(error), _) => Err(io::Error::new(error.kind(), error.to_string())),
                (_, Err(error)) => Err(error),
            };
            match key {
                Ok(node) => {
                    entries.push(Entry { name: number.to_string().into_bytes().into(), node })
                }
                // Removed since the directory was listed.
                Err(_) if self.sessions.written(session, number).is_err() => {}
                Err(error) => {
                    tracing::error!("snapshot {number} of session {}: {error}", session.id);
                    let node = self.unusable(session, number);
                    entries.push(Entry { name: number.to_string().into_bytes().into(), node });
                }
            }
        }
        if let Some(newest) = numbers.last() {
            let mtime = self.sessions.written(session, *newest).unwrap_or(self.started);
            entries.push(self.latest(&newest.to_string(), mtime));
            if steps::has_steps(&path) {
                let key = DirectoryKind::Steps(session.clone());
                entries.push(Entry { name: STEPS.into(), node: self.folder(key, mtime) });
            }
        }
        if let Some(node) = self.forks_node(session) {
            entries.push(Entry { name: FORKS.into(), node });
        }
        Ok(sorted(entries))
    }

    fn find_snapshot(&self, session: &SessionKey, name: &[u8]) -> io::Result<Option<StoreNode>> {
        if name == LATEST.as_bytes() {
            let numbers = self.sessions.numbers(session)?;
            return Ok(match numbers.last() {
                None => None,
                Some(newest) => {
                    let mtime = self.sessions.written(session, *newest).unwrap_or(self.started);
                    Some(self.latest(&newest.to_string(), mtime).node)
                }
            });
        }
        if name == STEPS {
            let has_steps = steps::has_steps(&self.sessions.path(session));
            let key = || DirectoryKind::Steps(session.clone());
            return Ok(has_steps.then(|| self.folder(key(), self.started)));
        }
        if name == FORKS {
            return Ok(self.forks_node(session));
        }
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse::<u64>().ok());
        let Some(number) = number.filter(|number| number.to_string().as_bytes() == name) else {
            return Ok(None);
        };
        if self.sessions.is_removed(session, number) {
            return Ok(None);
        }
        match self.snapshot_key(session, number) {
            Ok(snapshot) => Ok(Some(self.top(snapshot))),
            Err(_) if self.sessions.written(session, number).is_err() => Ok(None),
            Err(error) => {
                tracing::error!("snapshot {number} of session {}: {error}", session.id);
                Ok(Some(self.unusable(session, number)))
            }
        }
    }

    /// The steps of a session: links to their snapshots.
    fn list_steps(&self, session: &SessionKey) -> io::Result<Vec<StoreEntry>> {
        let links = self.step_links.of(&self.sessions.path(session))?;
        let entry = |(name, target): &(String, String)| Entry {
            name: name.as_bytes().into(),
            node: self.step_link(target),
        };
        Ok(links.iter().map(entry).collect())
    }

    fn step_link(&self, target: &str) -> StoreNode {
        let target = target.as_bytes().into();
        self.own(Kind::Symlink { target }, 0o777, self.started)
    }

    /// A snapshot, as its manifest says.
    pub(super) fn snapshot_key(
        &self,
        session: &SessionKey,
        number: u64,
    ) -> io::Result<SnapshotKey> {
        let head = self.sessions.snapshot(session, number)?;
        let store = self.stores.of_session(&self.sessions.path(session))?;
        let SnapshotHead { timestamp, merkle_root } = head;
        Ok(SnapshotKey { session: session.clone(), number, store, merkle_root, timestamp })
    }

    fn top(&self, snapshot: SnapshotKey) -> StoreNode {
        let mtime = file_time(snapshot.timestamp);
        self.folder(DirectoryKind::Above { snapshot, prefix: [].into() }, mtime)
    }

    pub(super) fn unusable(&self, session: &SessionKey, number: u64) -> StoreNode {
        let mtime = self.sessions.written(session, number).unwrap_or(self.started);
        self.folder(DirectoryKind::Unusable { session: session.clone(), number }, mtime)
    }

    /// Why an unusable snapshot is unusable.
    fn explain(&self, session: &SessionKey, number: u64) -> io::Error {
        let found = self.sessions.snapshot(session, number);
        let found = found.and_then(|_| self.stores.of_session(&self.sessions.path(session)));
        match found {
            Err(error) => error,
            Ok(_) => io::Error::other("the snapshot was damaged when it was first looked at"),
        }
    }

    /// The entries at `prefix`, a directory above tracked paths or the top.
    pub(super) fn list_above(
        &self,
        snapshot: &SnapshotKey,
        prefix: &[u8],
    ) -> io::Result<Vec<StoreEntry>> {
        let store = self.stores.open(snapshot.store)?;
        let root = read_root_tree(&*store, &snapshot.merkle_root).map_err(from_store)?;
        let links = self.links_of(snapshot.store, root.links)?;
        let links = links.as_ref().map(|(hash, index)| (hash, &**index));
        let parent = PathHash::of(self.stores.top(snapshot.store)?, prefix);
        let mut lister = Lister::new(snapshot.store, parent, links);
        let mut entries = BTreeMap::new();
        for (name, child) in children(&root, prefix) {
            let node = match child {
                Child::Tracked(entry) => lister.node(name, &entry.attributes, &entry.node),
                Child::Above => {
                    let prefix: Box<[u8]> = [prefix, b"/", name].concat().into();
                    let state = above_state(snapshot, &prefix);
                    let key = DirectoryKind::Above { snapshot: snapshot.clone(), prefix };
                    let node = self.folder(key, file_time(snapshot.timestamp));
                    Node { state: Some(state), ..node }
                }
            };
            entries.insert(name, node);
        }
        Ok(entries.into_iter().map(|(name, node)| Entry { name: name.into(), node }).collect())
    }

    pub(super) fn list_tree(&self, key: &TreeKey) -> io::Result<Vec<StoreEntry>> {
        let tree = read_tree(&self.objects(key.store)?, &key.tree).map_err(from_store)?;
        let links = self.links_of(key.store, key.links)?;
        let links = links.as_ref().map(|(hash, index)| (hash, &**index));
        let mut lister = Lister::new(key.store, key.path, links);
        let entries = tree.into_entries().into_iter();
        Ok(entries
            .map(|entry| {
                let node = lister.node(&entry.name, &entry.attributes, &entry.node);
                let node = self.git_indexes.marked(&key.path, &entry.name, node);
                Entry { name: entry.name, node }
            })
            .collect())
    }

    /// The index of a list of hard links, from memory or the store.
    pub(super) fn links_of(
        &self,
        store: StoreId,
        hash: Option<ContentHash>,
    ) -> io::Result<Option<(ContentHash, Arc<LinkIndex>)>> {
        let Some(hash) = hash else { return Ok(None) };
        if let Some(index) = self.links.lock().get(&(store, hash)) {
            return Ok(Some((hash, index.clone())));
        }
        let index = match read_links(&self.objects(store)?, Some(&hash)) {
            Ok(groups) => LinkIndex::new(self.stores.top(store)?, &groups),
            // The key of an unchanged directory can come from a snapshot that is removed by now,
            // with its links. Without them every name counts as the only one of its file.
            Err(error @ StoreError::Missing { .. }) => {
                tracing::warn!("hard links are not shown: {error}");
                LinkIndex::default()
            }
            Err(error) => return Err(from_store(error)),
        };
        let index = Arc::new(index);
        self.links.lock().put((store, hash), index.clone());
        Ok(Some((hash, index)))
    }
}

impl TreeSource for StoreTree {
    type Directory = DirectoryKey;
    type Content = ContentKey;

    fn root(&self) -> StoreNode {
        let mtime = match &self.session {
            None => Some(self.sessions.mtime()),
            Some(session) => self.sessions.get(session).ok().flatten().map(|found| found.mtime),
        };
        let mtime = mtime.filter(|mtime| *mtime != FileTime::default()).unwrap_or(self.started);
        self.folder(self.root.clone(), mtime)
    }

    fn stability(&self, directory: &DirectoryKey) -> Stability {
        match &*directory.0 {
            DirectoryKind::Store
            | DirectoryKind::Session(_)
            | DirectoryKind::Steps(_)
            | DirectoryKind::Forks(_)
            | DirectoryKind::Fork { .. }
            | DirectoryKind::Projects
            | DirectoryKind::Project(_)
            | DirectoryKind::Past(_)
            | DirectoryKind::PastSteps(_)
            | DirectoryKind::PastPrompt(..) => Stability::Changing,
            DirectoryKind::Unusable { .. }
            | DirectoryKind::Alone { .. }
            | DirectoryKind::Above { .. }
            | DirectoryKind::Tree(_) => Stability::Immutable,
        }
    }

    fn list(&self, directory: &DirectoryKey) -> io::Result<Vec<StoreEntry>> {
        match &*directory.0 {
            DirectoryKind::Store => self.list_sessions(),
            DirectoryKind::Session(session) => self.list_snapshots(session),
            DirectoryKind::Steps(session) => self.list_steps(session),
            DirectoryKind::Forks(session) => self.list_forks(session),
            DirectoryKind::Fork { session, prefix } => self.list_fork(session, prefix),
            DirectoryKind::Projects => self.list_projects(),
            DirectoryKind::Project(path) => self.list_project(path),
            DirectoryKind::Past(past) => self.list_past(past),
            DirectoryKind::PastSteps(past) => self.list_past_steps(past),
            DirectoryKind::PastPrompt(past, prompt) => self.list_past_prompt(past, *prompt),
            DirectoryKind::Alone { snapshot, path } => self.list_alone(snapshot, path),
            DirectoryKind::Unusable { session, number } => Err(self.explain(session, *number)),
            DirectoryKind::Above { snapshot, prefix } => self.list_above(snapshot, prefix),
            DirectoryKind::Tree(key) => self.list_tree(key),
        }
    }

    fn find(&self, directory: &DirectoryKey, name: &[u8]) -> io::Result<Option<StoreNode>> {
        match &*directory.0 {
            DirectoryKind::Store if name == LATEST.as_bytes() => {
                let sessions = self.sessions.list().map_err(io::Error::other)?;
                let newest = Sessions::newest(sessions.values());
                Ok(newest.map(|newest| self.latest(&newest.key.id, newest.mtime).node))
            }
            DirectoryKind::Store if name == BY_PROJECT => {
                let sessions = self.sessions.list().map_err(io::Error::other)?;
                let mtime = sessions.values().map(|session| session.mtime).max();
                Ok(mtime.map(|mtime| self.by_project_node(mtime)))
            }
            DirectoryKind::Store => {
                Ok(self.sessions.find(name)?.map(|session| self.session_node(&session)))
            }
            DirectoryKind::Session(session) => self.find_snapshot(session, name),
            DirectoryKind::Steps(session) => {
                let target = self.step_links.target(&self.sessions.path(session), name)?;
                Ok(target.map(|target| self.step_link(&target)))
            }
            DirectoryKind::Projects => self.find_project(name),
            DirectoryKind::Project(path) => self.find_in_project(path, name),
            DirectoryKind::Past(past) => self.find_in_past(past, name),
            DirectoryKind::PastSteps(past) => self.find_past_step(past, name),
            DirectoryKind::PastPrompt(past, prompt) => {
                self.find_in_past_prompt(past, *prompt, name)
            }
            _ => {
                let mut entries = self.list(directory)?;
                let at = entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok();
                Ok(at.map(|at| entries.swap_remove(at).node))
            }
        }
    }

    fn open(&self, content: &ContentKey, size: u64) -> io::Result<Arc<dyn Content>> {
        if let Some(tracked) = content.git_index_of() {
            return self.git_indexes.open(self, content, size, tracked);
        }
        let store = self.stores.open(content.object().store)?;
        match self.verified.open(&store, content, size) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.open_in_layer(content, size)?.ok_or(error)
            }
            opened => opened,
        }
    }

    fn read_whole(&self, content: &ContentKey, size: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        if let Some(tracked) = content.git_index_of() {
            let index = self.git_indexes.open(self, content, size, tracked)?;
            buffer.clear();
            buffer.resize(usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
            let len = index.read_at(buffer, 0)?;
            buffer.truncate(len);
            return Ok(());
        }
        let store = self.stores.open(content.object().store)?;
        match self.verified.read_whole(&store, content, size, buffer) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = self.open_in_layer(content, size)?.ok_or(error)?;
                buffer.clear();
                buffer.resize(usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?, 0);
                let len = file.read_at(buffer, 0)?;
                buffer.truncate(len);
                Ok(())
            }
            read => read,
        }
    }

    /// The space of the first store that is there.
    fn space(&self) -> Space {
        let sys::FileSystemSpace { bytes, free_bytes, available_bytes, inodes, free_inodes } =
            self.sessions.space();
        Space { bytes, free_bytes, available_bytes, inodes, free_inodes }
    }

    fn sha256_hex(&self, content: &ContentKey) -> String {
        content.object().hash.hex()
    }
}

/// The entry at one name below a directory that is above tracked paths.
pub(super) enum Child<'a> {
    Tracked(&'a object::RootEntry),
    Above,
}

/// The next components of all tracked paths below `prefix`.
pub(super) fn children<'a>(root: &'a RootTree, prefix: &[u8]) -> BTreeMap<&'a [u8], Child<'a>> {
    let mut children = BTreeMap::new();
    for entry in &root.entries {
        let below = entry.path.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(b"/"));
        let Some(below) = below else { continue };
        match below.iter().position(|byte| *byte == b'/') {
            None => drop(children.insert(below, Child::Tracked(entry))),
            // A tracked path inside another one is part of the outer one, which sorts before it.
            Some(end) => match children.entry(&below[..end]).or_insert(Child::Above) {
                Child::Above => {}
                Child::Tracked(outer) => tracing::warn!(
                    "{} is not shown, because {} is tracked as well",
                    Shown::bytes(&entry.path),
                    Shown::bytes(&outer.path)
                ),
            },
        }
    }
    children
}

pub(super) fn sorted(mut entries: Vec<StoreEntry>) -> Vec<StoreEntry> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
}

pub(super) fn file_time(timestamp: Timestamp) -> FileTime {
    let nanoseconds = timestamp.as_nanosecond();
    const SECOND: i128 = 1_000_000_000;
    FileTime {
        seconds: i64::try_from(nanoseconds.div_euclid(SECOND)).unwrap_or_default(),
        nanoseconds: nanoseconds.rem_euclid(SECOND) as u32,
    }
}
