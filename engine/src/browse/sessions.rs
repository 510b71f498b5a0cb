//! Which sessions and snapshots there are now.
//!
//! Looked up on the disk each time; what a manifest says is remembered as long as the file's `stat`
//! stays. A session is a directory with a manifest. A name that could not be a folder in the mount
//! (hidden, not UTF-8, `latest`, `by-project`) is no session. A baseline that is announced and not
//! yet durable is shown: it is the same state before it is a snapshot as after, and every byte is
//! checked in any case.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;

use super::error::{BrowseError, from_manifest, from_sys};
use super::head::{self, SessionHead, SnapshotHead};
use super::key::SessionKey;
use super::{BY_PROJECT, LATEST};
use crate::layout;
use crate::snapshot::{Recency, SessionDir, SessionOrigin};
use crate::store::show_session;
use crate::sys::{self, Dir, FileKind, FileSystemSpace, FileTime, Stat};

/// Sessions whose manifests are remembered.
const REMEMBERED_SESSIONS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Snapshots whose manifests are remembered; about 200 bytes each.
const REMEMBERED_SNAPSHOTS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// Sessions and snapshots of some stores.
pub(super) struct Sessions {
    roots: Vec<PathBuf>,
    /// Only sessions that track this path, something in it, or a directory around it.
    tracked: Option<PathBuf>,
    sessions: Mutex<LruCache<SessionKey, (Stat, SessionFacts)>>,
    snapshots: Mutex<LruCache<(SessionKey, u64), (Stat, SnapshotHead)>>,
    /// Sessions that were looked at on the disk, and those whose manifests were read.
    #[cfg(test)]
    pub(super) looks: std::sync::atomic::AtomicU64,
    #[cfg(test)]
    pub(super) reads: std::sync::atomic::AtomicU64,
}

/// The facts of a session's manifest.
#[derive(Clone)]
struct SessionFacts {
    /// `None` for a manifest that cannot be read.
    head: Option<Arc<SessionHead>>,
    is_shown: bool,
    /// Whether it says the same as long as its `stat` stays, unlike one that could not be read just
    /// now.
    is_lasting: bool,
}

/// A session as it is now.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) key: SessionKey,
    /// The beginning of its manifest. `None` for one that cannot be read.
    pub(super) head: Option<Arc<SessionHead>>,
    /// When the manifest was written: with every snapshot, and when the session ends.
    pub(super) mtime: FileTime,
    /// A time not before it began; for one whose beginning is not known.
    latest_begin: FileTime,
}

impl Session {
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.head.as_ref().map(|head| head.started)
    }

    /// Whether a watcher writes it.
    fn is_watched(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.origin == SessionOrigin::Watch)
    }

    /// Whether an archive brought it: only its id means it.
    pub(super) fn received(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.received)
    }
}

impl Sessions {
    pub(super) fn new(roots: Vec<PathBuf>, tracked: Option<PathBuf>) -> Self {
        let sessions = Mutex::new(LruCache::new(REMEMBERED_SESSIONS));
        let snapshots = Mutex::new(LruCache::new(REMEMBERED_SNAPSHOTS));
        Self {
            roots,
            tracked,
            sessions,
            snapshots,
            #[cfg(test)]
            looks: Default::default(),
            #[cfg(test)]
            reads: Default::default(),
        }
    }

    pub(super) fn path(&self, key: &SessionKey) -> PathBuf {
        self.roots.get(key.root as usize).map_or_else(PathBuf::new, |root| root.join(&*key.id))
    }

    /// All sessions by id.
    pub(super) fn list(&self) -> Result<BTreeMap<Arc<str>, Session>, BrowseError> {
        let mut found = BTreeMap::new();
        for (root, path) in self.roots.iter().enumerate() {
            let unreadable = |source| BrowseError::Unreadable { root: path.clone(), source };
            let dir = match Dir::open(path) {
                Ok(dir) => dir,
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(unreadable(error)),
            };
            for listed in dir.names().map_err(unreadable)? {
                let Some(id) = session_id(&listed.name) else { continue };
                if found.contains_key(id) {
                    continue;
                }
                let key = SessionKey { root: root as u32, id: id.into() };
                if let Some(session) = self.look(&dir, key).map_err(unreadable)? {
                    found.insert(session.key.id.clone(), session);
                }
            }
        }
        Ok(found)
    }

    /// The session of this id.
    pub(super) fn find(&self, id: &[u8]) -> io::Result<Option<Session>> {
        let Some(id) = session_id(id) else { return Ok(None) };
        for (root, path) in self.roots.iter().enumerate() {
            show_session(&path.join(id));
            let dir = match Dir::open(path) {
                Ok(dir) => dir,
                Err(error) if error.is_gone() => continue,
                Err(error) => return Err(from_sys(error)),
            };
            let key = SessionKey { root: root as u32, id: id.into() };
            if let Some(session) = self.look(&dir, key).map_err(from_sys)? {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    /// The session of this id, or why there is none.
    pub(super) fn named(&self, id: &str) -> Result<Session, BrowseError> {
        self.list()?.remove(id).ok_or_else(|| BrowseError::NoSuchSession { id: id.to_owned() })
    }

    /// The session that `key` was made from, if it is still there.
    pub(super) fn get(&self, key: &SessionKey) -> io::Result<Option<Session>> {
        let Some(root) = self.roots.get(key.root as usize) else { return Ok(None) };
        match Dir::open(root) {
            Ok(dir) => self.look(&dir, key.clone()).map_err(from_sys),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(from_sys(error)),
        }
    }

    fn look(&self, root: &Dir, key: SessionKey) -> sys::Result<Option<Session>> {
        #[cfg(test)]
        self.looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let id = key.id.as_bytes();
        let changed = match root.try_stat(id)? {
            Some(stat) if stat.kind == FileKind::Directory => stat.mtime,
            _ => return Ok(None),
        };
        let first = || [id, b"/", layout::snapshot_manifest(0).as_bytes()].concat();
        let manifest = [id, b"/", layout::MANIFEST.as_bytes()].concat();
        let stat = match root.try_stat(&manifest)? {
            Some(stat) => stat,
            None => {
                // A crash between the first snapshot and the session's manifest.
                let Some(stat) = root.try_stat(&first())? else { return Ok(None) };
                stat
            }
        };
        let known = self.sessions.lock().get(&key).cloned();
        let facts = match known {
            Some((known, facts)) if known.same_state(&stat) && facts.is_lasting => facts,
            known => {
                // The log says it once, however often it is looked at.
                let is_news = known.is_none_or(|(known, _)| !known.same_state(&stat));
                let facts = self.read_facts(root, &key, &manifest, is_news);
                self.sessions.lock().put(key.clone(), (stat, facts.clone()));
                facts
            }
        };
        let SessionFacts { head, is_shown, .. } = facts;
        let latest_begin = match head {
            // It is not asked for.
            Some(_) => changed,
            None => root.try_stat(&first())?.map_or(changed, |stat| stat.mtime),
        };
        Ok(is_shown.then_some(Session { key, head, mtime: stat.mtime, latest_begin }))
    }

    fn read_facts(
        &self,
        root: &Dir,
        key: &SessionKey,
        manifest: &[u8],
        is_news: bool,
    ) -> SessionFacts {
        #[cfg(test)]
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match head::read_session(root, manifest) {
            Ok(mut head) => {
                if head.origin == SessionOrigin::Fork {
                    let session = SessionDir::open(&self.path(key));
                    head.fork = session.and_then(|session| session.fork_name()).ok().flatten();
                }
                let tracks = |wanted: &PathBuf| {
                    let mut paths = head.tracked_paths.iter();
                    paths.any(|path| path.starts_with(wanted) || wanted.starts_with(path))
                };
                let is_shown = self.tracked.as_ref().is_none_or(tracks);
                SessionFacts { head: Some(Arc::new(head)), is_shown, is_lasting: true }
            }
            Err(error) => {
                // Its snapshots may be fine, so it is shown, whatever it tracked.
                if is_news {
                    tracing::warn!("{error}");
                }
                let is_lasting = error.kind() == io::ErrorKind::InvalidData;
                SessionFacts { head: None, is_shown: true, is_lasting }
            }
        }
    }

    /// Numbers of the snapshots of a session, ascending.
    pub(super) fn numbers(&self, session: &SessionKey) -> io::Result<Vec<u64>> {
        show_session(&self.path(session));
        let dir = SessionDir::open(&self.path(session)).map_err(from_manifest)?;
        let numbers = dir.snapshot_numbers().map_err(from_manifest)?;
        if numbers.is_empty() && self.written(session, 0).is_ok() {
            return Ok(vec![0]);
        }
        Ok(numbers)
    }

    /// The facts in the manifest of a snapshot.
    pub(super) fn snapshot(&self, session: &SessionKey, number: u64) -> io::Result<SnapshotHead> {
        let dir = Dir::open(&self.path(session)).map_err(from_sys)?;
        self.snapshot_in(&dir, session, number)
    }

    /// As [`snapshot`](Self::snapshot), with the session's directory at hand.
    pub(super) fn snapshot_in(
        &self,
        dir: &Dir,
        session: &SessionKey,
        number: u64,
    ) -> io::Result<SnapshotHead> {
        let (name, stat) = find_manifest(dir, number).map_err(from_sys)?;
        let key = (session.clone(), number);
        if let Some((known, head)) = self.snapshots.lock().get(&key)
            && known.same_state(&stat)
        {
            return Ok(*head);
        }
        let head = head::read_snapshot(dir, &name, number)?;
        self.snapshots.lock().put(key, (stat, head));
        Ok(head)
    }

    /// Whether a snapshot was removed from its session.
    pub(super) fn is_removed(&self, session: &SessionKey, number: u64) -> bool {
        SessionDir::open(&self.path(session)).is_ok_and(|dir| dir.refuse_removed(number).is_err())
    }

    /// When the manifest of a snapshot was written.
    pub(super) fn written(&self, session: &SessionKey, number: u64) -> io::Result<FileTime> {
        let dir = Dir::open(&self.path(session)).map_err(from_sys)?;
        Ok(find_manifest(&dir, number).map_err(from_sys)?.1.mtime)
    }

    /// When the newest of the stores' root directories changed.
    pub(super) fn mtime(&self) -> FileTime {
        let stats = self.roots.iter().filter_map(|root| Dir::open(root).ok()?.stat_self().ok());
        stats.map(|stat| stat.mtime).max().unwrap_or_default()
    }

    /// Room on the file system of the first store that is there.
    pub(super) fn space(&self) -> FileSystemSpace {
        let mut spaces = self.roots.iter().filter_map(|root| Dir::open(root).ok()?.space().ok());
        spaces.next().unwrap_or_default()
    }

    /// The newest of some sessions: of those that were recorded here the one that began last. One
    /// of a watcher is it only where there is no other one.
    /// `None` also when that may be one whose manifest cannot be read: a link to another one would
    /// be to the wrong state.
    pub(super) fn newest<'a>(
        sessions: impl Iterator<Item = &'a Session> + Clone,
    ) -> Option<&'a Session> {
        let now = Timestamp::now();
        let dated =
            sessions.clone().filter(|session| session.head.is_some() && !session.received());
        let recency = |session: &Session| Recency::new(session.started(), &*session.key.id, now);
        let newest = dated.max_by_key(|session| (!session.is_watched(), recency(session)))?;
        let mut undated = sessions.filter(|session| session.head.is_none());
        let is_sure = !undated.any(|session| recency(newest).may_be_before(session.latest_begin));
        is_sure.then_some(newest)
    }
}

/// The path of a snapshot's manifest in its session, or of its announcement.
fn find_manifest(session: &Dir, number: u64) -> sys::Result<(Vec<u8>, Stat)> {
    let published = layout::snapshot_manifest(number).into_bytes();
    match session.stat(&published) {
        Err(error) if error.is_gone() && number == 0 => {}
        found => return Ok((published, found?)),
    }
    let pending = layout::pending_manifest().into_bytes();
    match session.stat(&pending) {
        // It goes after the other one has come.
        Err(error) if error.is_gone() => {
            let stat = session.stat(&published)?;
            Ok((published, stat))
        }
        found => Ok((pending, found?)),
    }
}

/// The id, if a directory of this name can be a session.
fn session_id(name: &[u8]) -> Option<&str> {
    let id = std::str::from_utf8(name).ok()?;
    let is_plain = !id.is_empty() && !id.contains('/') && !id.contains(char::is_control);
    let is_own = id == LATEST || id.as_bytes() == BY_PROJECT;
    (is_plain && !is_own && layout::may_be_session(name)).then_some(id)
}

/// The path that `--path` means, as tracked paths are stored: symlinks in its parents resolved,
/// whether or not it still exists.
pub(super) fn tracked_path(path: &Path) -> PathBuf {
    sys::canonical_parent(path).unwrap_or_else(|_| {
        let current = sys::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        sys::plain_absolute(path, &current)
    })
}
