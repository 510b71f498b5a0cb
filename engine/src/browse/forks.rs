//! Forks as they are now: `<session>/forks/NAME/…`, in the session of the fork.
//!
//! A look captures the layers and merges them into the trees below, as `nono fork diff` does. So a
//! hostile layer shows nothing that a snapshot of the fork would not hold, an unchanged directory is
//! the same directory as in the snapshot below, and `diff -r` of two forks costs what differs.
//! Always true:
//! - Trees of a state are in memory alone, and contents that the store lacks are read from the
//!   layer. They are hashed before they are handed out, like all others.
//! - Nothing is mounted and nothing is written. The fork may be entered, changed and discarded.
//! - A state that was looked at is kept for a while: who is in it sees all of it.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nono_mount::{Content, Entry};
use parking_lot::Mutex;

use super::error::{from_store, from_sys};
use super::key::{ContentKey, DirectoryKind, PathHash, SessionKey, StoreId};
use super::lister::Lister;
use super::tree::{Child, StoreEntry, StoreNode, StoreTree, children, file_time};
use crate::fork::{Fork, ForkError, Forks, LiveState};
use crate::object::{ContentHash, Hasher};
use crate::progress::NoProgress;
use crate::snapshot::SessionDir;
use crate::store::{LocalStore, ObjectSource, StoreError, read_root_tree};
use crate::sys::{self, Dir, Stat};

/// The folder of a session with its fork.
pub(super) const FORKS: &[u8] = b"forks";
/// A layer that was looked at this long ago is looked at again.
const FRESH: Duration = Duration::from_millis(200);
/// States of a fork that are kept, with those that are read at the moment.
const KEPT_STATES: usize = 4;
/// Longer contents are read in place.
const SMALL_BYTES: u64 = 1 << 20;

/// The states of forks that were looked at.
#[derive(Default)]
pub(super) struct LiveForks {
    looked_at: Mutex<HashMap<SessionKey, LookedAt>>,
}

struct LookedAt {
    at: Instant,
    /// The layers as they were then.
    fingerprint: ContentHash,
    /// The newest last.
    states: VecDeque<Arc<LiveState>>,
}

impl LiveForks {
    /// The newest state of a fork, if the layers are as they were then.
    fn known(
        &self,
        session: &SessionKey,
        fingerprint: impl FnOnce() -> io::Result<ContentHash>,
    ) -> io::Result<Result<Arc<LiveState>, ContentHash>> {
        let newest = |looked: &LookedAt| looked.states.back().cloned();
        if let Some(looked) = self.looked_at.lock().get(session)
            && looked.at.elapsed() < FRESH
            && let Some(state) = newest(looked)
        {
            return Ok(Ok(state));
        }
        // No lock is held meanwhile.
        let fingerprint = fingerprint()?;
        let mut all = self.looked_at.lock();
        if let Some(looked) = all.get_mut(session)
            && looked.fingerprint == fingerprint
            && let Some(state) = newest(looked)
        {
            looked.at = Instant::now();
            return Ok(Ok(state));
        }
        Ok(Err(fingerprint))
    }

    fn note(&self, session: &SessionKey, fingerprint: ContentHash, state: &Arc<LiveState>) {
        let mut all = self.looked_at.lock();
        let looked = all.entry(session.clone()).or_insert_with(|| LookedAt {
            at: Instant::now(),
            fingerprint,
            states: VecDeque::new(),
        });
        (looked.at, looked.fingerprint) = (Instant::now(), fingerprint);
        looked.states.push_back(Arc::clone(state));
        if looked.states.len() > KEPT_STATES {
            looked.states.pop_front();
        }
    }

    fn forget(&self, session: &SessionKey) {
        self.looked_at.lock().remove(session);
    }

    fn states(&self) -> Vec<Arc<LiveState>> {
        let all = self.looked_at.lock();
        all.values().flat_map(|looked| looked.states.iter().rev().cloned()).collect()
    }

    /// Where a layer has these contents.
    fn place(&self, hash: &ContentHash) -> Option<PathBuf> {
        self.states().iter().find_map(|state| state.place(hash).cloned())
    }
}

/// The objects of a store, and those of the states that were looked at.
pub(super) struct Objects<'a> {
    pub(super) store: Arc<LocalStore>,
    forks: &'a LiveForks,
}

impl ObjectSource for Objects<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match self.store.read(hash, max_bytes) {
            Err(missing @ StoreError::Missing { .. }) => {
                let states = self.forks.states();
                let tree = states.iter().find_map(|state| state.tree(hash, max_bytes));
                tree.ok_or(missing)
            }
            read => read,
        }
    }
}

impl StoreTree {
    /// The objects of a store, with those of forks.
    pub(super) fn objects(&self, store: StoreId) -> io::Result<Objects<'_>> {
        Ok(Objects { store: self.stores.open(store)?, forks: &self.forks })
    }

    /// The name of the fork of a session, if it has one.
    pub(super) fn fork_name(&self, session: &SessionKey) -> Option<String> {
        SessionDir::open(&self.sessions.path(session)).ok()?.fork_name().ok()?
    }

    /// The folder with the fork of a session, if it has one.
    pub(super) fn forks_node(&self, session: &SessionKey) -> Option<StoreNode> {
        self.fork_name(session)?;
        Some(self.folder(DirectoryKind::Forks(session.clone()), self.started))
    }

    pub(super) fn list_forks(&self, session: &SessionKey) -> io::Result<Vec<StoreEntry>> {
        let Some(name) = self.fork_name(session) else {
            self.forks.forget(session);
            return Err(io::ErrorKind::NotFound.into());
        };
        let key = DirectoryKind::Fork { session: session.clone(), prefix: [].into() };
        let node = self.folder(key, self.started);
        Ok(vec![Entry { name: name.into_bytes().into(), node }])
    }

    /// The entry at `prefix` of a fork, a directory above its tracked paths or the top.
    pub(super) fn list_fork(
        &self,
        session: &SessionKey,
        prefix: &[u8],
    ) -> io::Result<Vec<StoreEntry>> {
        let id = self.stores.of_session(&self.sessions.path(session))?;
        let state = self.fork_now(session, id)?;
        let root = read_root_tree(&self.objects(id)?, &state.merkle_root()).map_err(from_store)?;
        let links = self.links_of(id, root.links)?;
        let links = links.as_ref().map(|(hash, index)| (hash, &**index));
        let mut lister = Lister::new(id, PathHash::of(self.stores.top(id)?, prefix), links);
        let entries = children(&root, prefix).into_iter().map(|(name, child)| {
            let node = match child {
                Child::Tracked(entry) => lister.node(name, &entry.attributes, &entry.node),
                Child::Above => {
                    let prefix: Box<[u8]> = [prefix, b"/", name].concat().into();
                    let key = DirectoryKind::Fork { session: session.clone(), prefix };
                    self.folder(key, file_time(state.begun()))
                }
            };
            Entry { name: name.into(), node }
        });
        Ok(entries.collect())
    }

    /// The state of a fork now.
    fn fork_now(&self, session: &SessionKey, store: StoreId) -> io::Result<Arc<LiveState>> {
        let path = self.sessions.path(session);
        let root = path.parent().ok_or(io::ErrorKind::NotFound)?;
        let fork = Forks::new(root).of_session(&session.id).map_err(from_fork)?;
        let fingerprint = || fork.fingerprint().map_err(from_fork);
        let fingerprint = match self.forks.known(session, fingerprint)? {
            Ok(state) => return Ok(state),
            Err(fingerprint) => fingerprint,
        };
        let state = self.capture(&fork, store)?;
        self.forks.note(session, fingerprint, &state);
        Ok(state)
    }

    fn capture(&self, fork: &Fork, store: StoreId) -> io::Result<Arc<LiveState>> {
        let store = self.stores.open(store)?;
        let state = fork.state(&store, &NoProgress, 1).map_err(from_fork)?;
        for entry in state.not_taken() {
            let path = entry.path.as_os_str().as_bytes().escape_ascii();
            tracing::warn!("fork {}: not shown: {path}, {}", fork.name(), entry.reason);
        }
        Ok(Arc::new(state.into_live()))
    }

    /// Opens contents that only a layer has.
    pub(super) fn open_in_layer(
        &self,
        content: &ContentKey,
        size: u64,
    ) -> io::Result<Option<Arc<dyn Content>>> {
        let hash = content.object().hash;
        let Some(path) = self.forks.place(&hash) else { return Ok(None) };
        InLayer::open(path, &hash, size).map(|opened| Some(Arc::new(opened) as Arc<dyn Content>))
    }
}

fn from_fork(error: ForkError) -> io::Error {
    match error {
        ForkError::NotFound { .. } => io::Error::new(io::ErrorKind::NotFound, error),
        ForkError::Store(error) => from_store(error),
        ForkError::Io(error) => from_sys(error),
        error => io::Error::other(error),
    }
}

/// Contents in a layer, which were hashed when they were opened.
enum InLayer {
    InMemory(Vec<u8>),
    InPlace { file: File, stat: Stat, path: PathBuf },
}

impl InLayer {
    fn open(path: PathBuf, hash: &ContentHash, size: u64) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let changed =
            || io::Error::new(io::ErrorKind::InvalidData, "it changed since it was listed");
        let parent = Dir::open_no_symlinks(parent).map_err(from_sys)?;
        if size <= SMALL_BYTES {
            let bytes = parent.read(name.as_bytes(), size).map_err(from_sys)?;
            let is_same = ContentHash::of(&bytes) == *hash;
            return is_same.then_some(Self::InMemory(bytes)).ok_or_else(changed);
        }
        let file = parent.open_file(name.as_bytes(), false).map_err(from_sys)?;
        let stat = sys::stat_open_file(&file, &path).map_err(from_sys)?;
        if stat.size != size {
            return Err(changed());
        }
        let (mut hasher, mut offset) = (Hasher::new(), 0);
        let mut buffer = vec![0; SMALL_BYTES as usize];
        loop {
            let len = sys::read_full_at(&file, &mut buffer, offset)?;
            hasher.update(&buffer[..len]);
            offset += len as u64;
            if len < buffer.len() {
                break;
            }
        }
        if hasher.finish() != *hash {
            return Err(changed());
        }
        let opened = Self::InPlace { file, stat, path };
        opened.unchanged()?;
        Ok(opened)
    }

    fn unchanged(&self) -> io::Result<()> {
        let Self::InPlace { file, stat, path } = self else { return Ok(()) };
        let now = sys::stat_open_file(file, path).map_err(from_sys)?;
        let changed = "it was changed after it was verified";
        match now.same_state(stat) {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, changed)),
        }
    }
}

impl Content for InLayer {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Self::InMemory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let len = buffer.len().min(bytes.len() - start);
                buffer[..len].copy_from_slice(&bytes[start..start + len]);
                Ok(len)
            }
            Self::InPlace { file, .. } => {
                let len = sys::read_full_at(file, buffer, offset)?;
                self.unchanged()?;
                Ok(len)
            }
        }
    }
}
