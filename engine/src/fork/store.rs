//! The forks of a store: found, renamed, removed.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ForkError;
use super::birth::{Birth, encoded};
use super::names::is_name;
use crate::gc::withdraw;
use crate::layout;
use crate::manifest::SnapshotManifest;
use crate::path_text::{serde_path, to_path};
use crate::snapshot::SessionDir;
use crate::sys::{self, Dir, FileKind, FileLock};

/// The file of the process that holds the mounts: its number.
pub const HOLDER_PID: &str = "holder.pid";
/// Version of the document.
pub(super) const FORMAT_VERSION: u32 = 1;
pub(super) const DOCUMENT: &[u8] = layout::FORK_DOCUMENT.as_bytes();
pub(super) const LAYERS: &[u8] = b"layers";
pub(super) const BASE: &[u8] = b"base";
pub(super) const UPPER: &str = "upper";
pub(super) const WORK: &str = "work";
/// The last process of a fork may take so long to be gone when all others are.
const PATIENCE: Duration = Duration::from_secs(30);

/// The facts of a fork: `fork.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkDocument {
    /// Version of the document.
    pub format_version: u32,
    /// Its name. No other fork of the same directories has it.
    pub name: String,
    /// Whether it lives only as long as the process that made it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub throw_away: bool,
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
    /// Nothing: the layer is a copy of the recorded state of a tracked path.
    Copied,
    /// The directory itself, which a snapshot leaves out because a program makes it again.
    Live,
}

/// The forks of one store.
///
/// A name belongs to a project: the directories that a fork shows. From [here](Self::here) a name
/// means the fork of the project around this directory, or of the only one below it. A project
/// inside of another one is told by its git work tree, or by a fork of it.
#[derive(Debug, Clone)]
pub struct Forks {
    root: PathBuf,
    pub(super) here: Option<PathBuf>,
}

impl Forks {
    /// The forks of the store in a root directory.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), here: None }
    }

    /// Names mean the forks of this directory from now on.
    pub fn here(self, directory: &Path) -> Self {
        Self { here: Some(directory.to_owned()), ..self }
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.root.join(layout::FORKS)
    }

    /// The root directory of the store.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// All forks, by name. One whose document cannot be read is an error beside the others.
    ///
    /// # Errors
    /// The directory of forks cannot be read.
    pub fn list(&self) -> Result<Vec<Result<Fork, ForkError>>, ForkError> {
        let found = self.ids()?.into_iter().map(|id| self.of_session(&id));
        // Removed since the names were read.
        let mut found: Vec<_> =
            found.filter(|fork| !matches!(fork, Err(ForkError::NotFound { .. }))).collect();
        let key = |fork: &Result<Fork, ForkError>| {
            let fork = fork.as_ref().ok()?;
            let paths: Vec<PathBuf> = fork.recorded_paths().cloned().collect();
            Some((fork.name().to_owned(), paths))
        };
        found.sort_by_cached_key(key);
        Ok(found)
    }

    /// The sessions of all forks.
    pub(super) fn ids(&self) -> Result<BTreeSet<String>, ForkError> {
        let dir = match Dir::open(&self.directory()) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(BTreeSet::new()),
            Err(error) => return Err(error.into()),
        };
        let names = dir.names()?.into_iter();
        let names = names.filter_map(|listed| String::from_utf8(listed.name.into_vec()).ok());
        Ok(names.filter(|name| layout::may_be_session(name.as_bytes())).collect())
    }

    /// The fork of a session.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn of_session(&self, session: &str) -> Result<Fork, ForkError> {
        let not_found = || ForkError::NotFound { name: session.to_owned() };
        if !layout::may_be_session(session.as_bytes()) || session.contains('/') {
            return Err(not_found());
        }
        let path = self.directory().join(session);
        let dir = match Dir::open(&path) {
            Err(error) if error.is_gone() => return Err(not_found()),
            dir => dir?,
        };
        let damaged = |reason: String| ForkError::Document { name: session.to_owned(), reason };
        let bytes = match dir.read(DOCUMENT, layout::MAX_FORK_DOCUMENT_BYTES) {
            Err(error) if error.is_gone() && sys::kind_of(&path)?.is_none() => {
                return Err(not_found());
            }
            Err(error) if error.is_gone() => return Err(damaged("it is not there".to_owned())),
            bytes => bytes?,
        };
        let document: ForkDocument =
            serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if document.format_version != FORMAT_VERSION {
            return Err(damaged(format!("its format is {}", document.format_version)));
        }
        // An edited one must not name a directory elsewhere.
        if document.session != session {
            return Err(damaged(format!("{:?} is not its session", document.session)));
        }
        if !is_name(&document.name) {
            return Err(damaged(format!("{:?} is no name", document.name)));
        }
        if let Some(layer) = document
            .layers
            .iter()
            .find(|layer| !crate::object::is_tracked_path(layer.path.as_os_str().as_bytes()))
        {
            return Err(damaged(format!("{:?} is no path of a layer", layer.path)));
        }
        Ok(Fork { root: self.root.clone(), path, document })
    }

    /// Begins to make a fork: before its session is made, so that a killed process leaves a trace.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn expect(&self) -> Result<Birth, ForkError> {
        Birth::begin(self)
    }

    /// Removes what killed processes left: throw-away forks, forks that were being made or removed,
    /// and sessions of these. A process at work holds a lock, so nothing of it goes.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub fn clear_up(&self) -> Result<(), ForkError> {
        super::birth::clear_up(self)
    }
}

/// One fork.
#[derive(Debug, Clone)]
pub struct Fork {
    root: PathBuf,
    path: PathBuf,
    document: ForkDocument,
}

impl Fork {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.document.name
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
        let recorded = self.document.layers.iter().filter(|it| it.lower != Lower::Live);
        recorded.map(|layer| &layer.path)
    }

    /// Whether its layers are copies of the recorded state.
    pub fn is_copy(&self) -> bool {
        self.document.layers.iter().any(|layer| layer.lower == Lower::Copied)
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

    /// When a command in it began last, or else when it was made.
    ///
    /// # Errors
    /// Its directory cannot be read.
    pub fn last_used(&self) -> Result<Timestamp, ForkError> {
        let held = Dir::open(&self.path)?.try_stat(HOLDER_PID.as_bytes())?;
        let held = held.and_then(|stat| Timestamp::from_second(stat.mtime.seconds).ok());
        Ok(held.map_or(self.document.created, |held| held.max(self.document.created)))
    }

    /// Uses the fork: as long as the value lives it stays, and so do its mounts. Waits while the
    /// process that held the mounts for others ends.
    ///
    /// # Errors
    /// It was removed or renamed.
    pub fn enter(&self) -> Result<FileLock, ForkError> {
        let not_found = || ForkError::NotFound { name: self.name().to_owned() };
        let lock = match FileLock::shared_dir(&self.path) {
            Err(error) if error.is_gone() => return Err(not_found()),
            lock => lock?,
        };
        // Removed or renamed while this process waited.
        let now = self.reread().map_err(|error| match error {
            ForkError::NotFound { .. } => not_found(),
            error => error,
        })?;
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

    /// The fork as its document is now.
    fn reread(&self) -> Result<Self, ForkError> {
        Forks::new(&self.root).of_session(&self.document.session)
    }

    /// As [`wait_until_unused`](Self::wait_until_unused), for a moment.
    fn claim(&self) -> Result<FileLock, ForkError> {
        let dir = Dir::open(&self.path)?;
        if let Some(lock) = FileLock::try_exclusive_of(&dir)? {
            return Ok(lock);
        }
        let (send, receive) = mpsc::sync_channel(1);
        let in_use = || ForkError::InUse { name: self.name().to_owned() };
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
        let paths: Vec<PathBuf> = self.recorded_paths().cloned().collect();
        forks.check_new_name(name, &paths)?;
        let _lock = self.claim()?;
        // No other fork gets the name meanwhile.
        let _alone = FileLock::exclusive_of(&Dir::open(&forks.directory())?)?;
        forks.check_new_name(name, &paths)?;
        let document = ForkDocument { name: name.to_owned(), ..self.reread()?.document };
        let bytes = encoded(&document)?;
        Dir::open(&self.path)?.replace_file(DOCUMENT, &bytes, 0o600, true)?;
        Ok(Self { document, ..self.clone() })
    }

    /// Removes the fork with its layers. Its session goes too, unless it has snapshots of the fork.
    /// Such a session stays, and the limits of sessions count for it.
    ///
    /// # Errors
    /// A process uses it, or it cannot be removed.
    pub fn discard(&self) -> Result<(), ForkError> {
        let lock = self.claim()?;
        self.remove(&lock)
    }

    /// As [`discard`](Self::discard), unless a process uses it now. Whether it was removed.
    pub(super) fn discard_if_unused(&self) -> Result<bool, ForkError> {
        match FileLock::try_exclusive_of(&Dir::open(&self.path)?)? {
            Some(lock) => self.remove(&lock).map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes it. The lock is that of its directory.
    fn remove(&self, _lock: &FileLock) -> Result<(), ForkError> {
        let dir = Dir::open(&Forks::new(&self.root).directory())?;
        let hidden = format!("{}{}", layout::REMOVED_PREFIX, hex::encode(sys::random_bytes()?));
        dir.rename_new(self.document.session.as_bytes(), &dir, hidden.as_bytes())?;
        dir.sync()?;
        // Before the directory goes: a kill in between leaves a trace.
        if let Ok(session) = self.session() {
            withdraw_unused(&self.root, &session)?;
        }
        dir.remove_dir_all(hidden.as_bytes())?;
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

/// Lets the session of no fork go, unless it has snapshots of the fork that was.
pub(super) fn withdraw_unused(root: &Path, session: &SessionDir) -> Result<(), ForkError> {
    session.set_pinned(false)?;
    if session.snapshot_numbers()?.len() <= 1
        && let Err(error) = withdraw(root, std::slice::from_ref(session))
    {
        tracing::warn!("session {} of the fork stays: {error}", session.id());
    }
    Ok(())
}
