//! The forks of a store: made, found, renamed, removed.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ForkError;
use crate::gc::withdraw;
use crate::layout;
use crate::manifest::{NotCaptured, SnapshotManifest};
use crate::object::Node;
use crate::path_text::{serde_path, to_path};
use crate::snapshot::SessionDir;
use crate::store::{LocalStore, read_root_tree};
use crate::sys::{self, Dir, FileKind, FileLock};

/// Longest name of a fork.
pub const MAX_NAME_BYTES: usize = 64;
/// Version of the document.
const FORMAT_VERSION: u32 = 1;
const DOCUMENT: &[u8] = layout::FORK_DOCUMENT.as_bytes();
const LAYERS: &[u8] = b"layers";
const BASE: &[u8] = b"base";
const UPPER: &str = "upper";
const WORK: &str = "work";
/// The last process of a fork may take so long to be gone when all others are.
const PATIENCE: Duration = Duration::from_secs(5);

/// The facts of a fork: `fork.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkDocument {
    /// Version of the document.
    pub format_version: u32,
    /// Its session. Snapshot 0 of that is the state below the layers.
    pub session: String,
    /// When it was made.
    pub created: Timestamp,
    /// The state that was named when it was made: `ID/N`, or `now`.
    pub from: String,
    /// Its layers.
    pub layers: Vec<Layer>,
}

/// A directory of a fork, and what lies below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Where the fork shows it, and the project has it.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// The directory below it.
    pub lower: Lower,
}

/// The directory below a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lower {
    /// The recorded state of a tracked path.
    Recorded,
    /// The directory itself, which a snapshot leaves out because a program makes it again.
    Live,
}

/// The forks of one store.
#[derive(Debug, Clone)]
pub struct Forks {
    root: PathBuf,
}

impl Forks {
    /// The forks of the store in a root directory.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn directory(&self) -> PathBuf {
        self.root.join(layout::FORKS)
    }

    /// All forks, by name. One whose document cannot be read is an error beside the others.
    ///
    /// # Errors
    /// The directory of forks cannot be read.
    pub fn list(&self) -> Result<Vec<Result<Fork, ForkError>>, ForkError> {
        let dir = match Dir::open(&self.directory()) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut names: Vec<String> = dir
            .names()?
            .into_iter()
            .filter_map(|listed| String::from_utf8(listed.name.into_vec()).ok())
            .filter(|name| is_name(name))
            .collect();
        names.sort_unstable();
        let found = names.iter().map(|name| self.find(name));
        // Removed since the names were read.
        Ok(found.filter(|fork| !matches!(fork, Err(ForkError::NotFound { .. }))).collect())
    }

    /// The fork of a name.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn find(&self, name: &str) -> Result<Fork, ForkError> {
        let not_found = || ForkError::NotFound { name: name.to_owned() };
        if !is_name(name) {
            return Err(ForkError::Name { name: name.to_owned() });
        }
        let path = self.directory().join(name);
        let dir = match Dir::open(&path) {
            Err(error) if error.is_gone() => return Err(not_found()),
            dir => dir?,
        };
        let damaged = |reason: String| ForkError::Document { name: name.to_owned(), reason };
        let bytes = match dir.read(DOCUMENT, layout::MAX_FORK_DOCUMENT_BYTES) {
            Err(error) if error.is_gone() => return Err(damaged("it is not there".to_owned())),
            bytes => bytes?,
        };
        let document: ForkDocument =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if document.format_version != FORMAT_VERSION {
            return Err(damaged(format!("its format is {}", document.format_version)));
        }
        // An edited one must not name a directory elsewhere.
        if !layout::may_be_session(document.session.as_bytes()) || document.session.contains('/') {
            return Err(damaged(format!("{:?} is no session", document.session)));
        }
        if let Some(layer) = document
            .layers
            .iter()
            .find(|layer| !crate::object::is_tracked_path(layer.path.as_os_str().as_bytes()))
        {
            return Err(damaged(format!("{:?} is no path of a layer", layer.path)));
        }
        Ok(Fork { root: self.root.clone(), name: name.to_owned(), path, document })
    }

    /// Refuses a name that no new fork can have.
    ///
    /// # Errors
    /// It is no name, or taken.
    pub fn check_new_name(&self, name: &str) -> Result<(), ForkError> {
        match self.find(name) {
            Err(ForkError::NotFound { .. }) => Ok(()),
            Err(error @ ForkError::Name { .. }) => Err(error),
            _ => Err(ForkError::Exists { name: name.to_owned() }),
        }
    }

    /// Makes a fork over the first snapshot of a session, which [`begin_now`](super::begin_now) or
    /// [`begin_recorded`](super::begin_recorded) made for it. `from`: how the state was named.
    ///
    /// # Errors
    /// The name is taken, a tracked path is no directory, or the store cannot be written. There is
    /// no fork then, and the session is withdrawn.
    pub fn make(&self, name: &str, session: &SessionDir, from: &str) -> Result<Fork, ForkError> {
        let made = self.try_make(name, session, from);
        if made.is_err()
            && let Err(error) = withdraw(&self.root, std::slice::from_ref(session))
        {
            tracing::warn!("the session {} of no fork stays: {error}", session.id());
        }
        made
    }

    fn try_make(&self, name: &str, session: &SessionDir, from: &str) -> Result<Fork, ForkError> {
        self.check_new_name(name)?;
        let base = session.manifest(0)?.manifest;
        let store = LocalStore::open(&session.objects_path())?;
        sys::create_private_dir(&self.directory())?;
        let dir = Dir::open(&self.directory())?;
        let hidden = layout::new_name()?;
        dir.make_dir(hidden.as_bytes(), 0o700)?;
        let made = (|| {
            let own = dir.open_dir(hidden.as_bytes())?;
            let layers = make_layers(&own, &base, &store)?;
            let document = ForkDocument {
                format_version: FORMAT_VERSION,
                session: session.id(),
                created: Timestamp::now(),
                from: from.to_owned(),
                layers,
            };
            let bytes = encoded(&document, name)?;
            own.make_dir(BASE, 0o700)?;
            own.replace_file(DOCUMENT, &bytes, 0o600, true)?;
            // Retention spares it as long as the fork lives.
            session.set_pinned(true)?;
            dir.rename_new(hidden.as_bytes(), &dir, name.as_bytes())?;
            dir.sync()?;
            Ok(())
        })();
        match made {
            Ok(()) => self.find(name),
            Err(error) => {
                let _ = dir.remove_dir_all(hidden.as_bytes());
                let _ = session.set_pinned(false);
                Err(match error {
                    ForkError::Io(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                        ForkError::Exists { name: name.to_owned() }
                    }
                    error => error,
                })
            }
        }
    }

    /// The fork that begins from a session, if there is one.
    ///
    /// # Errors
    /// The forks cannot be read.
    pub fn of_session(&self, session: &str) -> Result<Option<Fork>, ForkError> {
        let mut forks = self.list()?.into_iter().filter_map(Result::ok);
        Ok(forks.find(|fork| fork.document.session == session))
    }
}

fn encoded(document: &ForkDocument, name: &str) -> Result<Vec<u8>, ForkError> {
    serde_json::to_vec_pretty(document)
        .map_err(|error| ForkError::Document { name: name.to_owned(), reason: error.to_string() })
}

/// Whether a text is the name of a fork.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= MAX_NAME_BYTES
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(is_plain)
}

/// Makes the directories of all layers.
fn make_layers(
    own: &Dir,
    base: &SnapshotManifest,
    store: &LocalStore,
) -> Result<Vec<Layer>, ForkError> {
    own.make_dir(LAYERS, 0o700)?;
    let dir = own.open_dir(LAYERS)?;
    let root = read_root_tree(store, &base.merkle_root)?;
    let mut layers = Vec::new();
    for tracked in &base.roots {
        let path = tracked.path.as_os_str().as_bytes();
        let entry = root.get(path).filter(|entry| matches!(entry.node, Node::Directory { .. }));
        let Some(entry) = entry else {
            return Err(ForkError::NotADirectory { path: tracked.path.clone() });
        };
        let layer = make_layer(&dir, layers.len())?;
        let upper = layer.inode(UPPER.as_bytes())?;
        // The kernel shows the attributes of the layer, and not those below.
        let attributes = &entry.attributes;
        for (name, value) in attributes.xattrs.iter() {
            upper.set_xattr(name, value)?;
        }
        let stat = upper.stat()?;
        if (stat.uid, stat.gid) != (attributes.uid, attributes.gid) {
            upper.set_owner(attributes.uid, attributes.gid)?;
        }
        upper.set_mode(attributes.mode)?;
        upper.set_mtime(attributes.mtime)?;
        layers.push(Layer { path: tracked.path.clone(), lower: Lower::Recorded });
    }
    for path in live_paths(&base.not_captured) {
        let layer = make_layer(&dir, layers.len())?;
        let stat = Dir::open(&path)?.stat_self()?;
        layer.inode(UPPER.as_bytes())?.set_mode(stat.mode)?;
        layers.push(Layer { path, lower: Lower::Live });
    }
    Ok(layers)
}

fn make_layer(dir: &Dir, number: usize) -> Result<Dir, ForkError> {
    let name = number.to_string();
    dir.make_dir(name.as_bytes(), 0o700)?;
    let layer = dir.open_dir(name.as_bytes())?;
    for part in [UPPER, WORK] {
        layer.make_dir(part.as_bytes(), 0o700)?;
    }
    Ok(layer)
}

/// The left-out directories that a program makes again and that are there now.
fn live_paths(not_captured: &[NotCaptured]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for left in not_captured.iter().filter(|left| left.is_rebuildable()) {
        let is_dir = || matches!(sys::kind_of(&left.path), Ok(Some(FileKind::Directory)));
        let is_inside = |outer: &PathBuf| left.path.starts_with(outer);
        if !paths.iter().any(is_inside) && is_dir() {
            paths.push(left.path.clone());
        }
    }
    paths
}

/// One fork.
#[derive(Debug, Clone)]
pub struct Fork {
    root: PathBuf,
    name: String,
    path: PathBuf,
    document: ForkDocument,
}

impl Fork {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The root directory of its store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its facts.
    pub fn document(&self) -> &ForkDocument {
        &self.document
    }

    /// The paths at which it shows the recorded state.
    pub fn recorded_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let recorded = self.document.layers.iter().filter(|it| it.lower == Lower::Recorded);
        recorded.map(|layer| &layer.path)
    }

    /// The paths of its layers over live directories.
    pub fn live_paths(&self) -> impl Iterator<Item = &PathBuf> {
        let live = self.document.layers.iter().filter(|layer| layer.lower == Lower::Live);
        live.map(|layer| &layer.path)
    }

    /// Where the process that holds the mounts mounts the recorded state, for itself alone.
    pub fn base_path(&self) -> PathBuf {
        self.path.join(to_path(BASE))
    }

    /// The directory of a layer's changes.
    pub fn upper_path(&self, layer: usize) -> PathBuf {
        self.path.join(to_path(LAYERS)).join(layer.to_string()).join(UPPER)
    }

    /// The directory that the kernel works in.
    pub fn work_path(&self, layer: usize) -> PathBuf {
        self.path.join(to_path(LAYERS)).join(layer.to_string()).join(WORK)
    }

    /// Its session.
    ///
    /// # Errors
    /// When it is not there.
    pub fn session(&self) -> Result<SessionDir, ForkError> {
        Ok(SessionDir::open(&self.root.join(&self.document.session))?)
    }

    /// The state below its layers.
    ///
    /// # Errors
    /// When its session cannot be read.
    pub fn base(&self) -> Result<SnapshotManifest, ForkError> {
        Ok(self.session()?.manifest(0)?.manifest)
    }

    /// Uses the fork: as long as the value lives it stays, and so do its mounts. Waits while the
    /// process that held the mounts for others ends.
    ///
    /// # Errors
    /// It was removed or renamed.
    pub fn enter(&self) -> Result<FileLock, ForkError> {
        let not_found = || ForkError::NotFound { name: self.name.clone() };
        let lock = match FileLock::shared_dir(&self.path) {
            Err(error) if error.is_gone() => return Err(not_found()),
            lock => lock?,
        };
        // Removed or renamed while this process waited.
        let now = Forks::new(&self.root).find(&self.name)?;
        if now.document != self.document {
            return Err(not_found());
        }
        Ok(lock)
    }

    /// Waits until no process uses the fork, however long, and keeps all from it.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn wait_until_unused(&self) -> Result<FileLock, ForkError> {
        Ok(FileLock::exclusive_of(&Dir::open(&self.path)?)?)
    }

    /// As [`wait_until_unused`](Self::wait_until_unused), for a moment.
    fn claim(&self) -> Result<FileLock, ForkError> {
        let dir = Dir::open(&self.path)?;
        if let Some(lock) = FileLock::try_exclusive_of(&dir)? {
            return Ok(lock);
        }
        let (send, receive) = mpsc::sync_channel(1);
        let in_use = || ForkError::InUse { name: self.name.clone() };
        // Processes that are about to end tell no other process when they have. A thread that waits
        // in vain ends with this process.
        let waiting = sys::spawn("fork", move || drop(send.send(FileLock::exclusive_of(&dir))));
        waiting.map_err(|_| in_use())?;
        match receive.recv_timeout(PATIENCE) {
            Ok(lock) => Ok(lock?),
            Err(_) => Err(in_use()),
        }
    }

    /// Gives the fork another name.
    ///
    /// # Errors
    /// The name is taken or none, or a process uses the fork.
    pub fn rename(&self, name: &str) -> Result<Self, ForkError> {
        let forks = Forks::new(&self.root);
        forks.check_new_name(name)?;
        let _lock = self.claim()?;
        let dir = Dir::open(&forks.directory())?;
        dir.rename_new(self.name.as_bytes(), &dir, name.as_bytes())?;
        dir.sync()?;
        forks.find(name)
    }

    /// Removes the fork with its layers. Its session goes too, unless it has snapshots of the fork.
    /// Such a session stays, and the limits of sessions count for it.
    ///
    /// # Errors
    /// A process uses it, or it cannot be removed.
    pub fn discard(&self) -> Result<(), ForkError> {
        let _lock = self.claim()?;
        let dir = Dir::open(&Forks::new(&self.root).directory())?;
        let hidden = format!("{}{}", layout::REMOVED_PREFIX, hex::encode(sys::random_bytes()?));
        dir.rename_new(self.name.as_bytes(), &dir, hidden.as_bytes())?;
        dir.sync()?;
        dir.remove_dir_all(hidden.as_bytes())?;
        let Ok(session) = self.session() else { return Ok(()) };
        session.set_pinned(false)?;
        if session.snapshot_numbers()?.len() <= 1 {
            let withdrawn = withdraw(&self.root, &[session]);
            if let Err(error) = withdrawn {
                tracing::warn!("session {} of the fork stays: {error}", self.document.session);
            }
        }
        Ok(())
    }

    /// Bytes that the layers take on the disk.
    ///
    /// # Errors
    /// A layer cannot be read.
    pub fn disk_bytes(&self) -> Result<u64, ForkError> {
        let mut bytes = 0u64;
        for layer in 0..self.document.layers.len() {
            let mut pending = vec![Dir::open(&self.upper_path(layer))?];
            while let Some(dir) = pending.pop() {
                for listed in dir.names()? {
                    let Some(stat) = dir.try_stat(&listed.name)? else { continue };
                    bytes = bytes.saturating_add(stat.blocks.saturating_mul(512));
                    if stat.kind == FileKind::Directory {
                        match dir.open_dir(&listed.name) {
                            Ok(inside) => pending.push(inside),
                            // Removed meanwhile, or closed to its own user.
                            Err(error) => tracing::debug!("{error}"),
                        }
                    }
                }
            }
        }
        Ok(bytes)
    }
}
