//! Forks that are being made, and what killed processes left of them.
//!
//! A process that makes a fork, or records a state for a while, first makes a hidden directory in
//! the directory of forks and locks it. The directory becomes the fork, or goes. The kernel
//! releases the lock when the process ends in whatever way. So a hidden directory without a lock
//! proves that its process is dead, and that a session may be there which nothing names.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use jiff::Timestamp;

use super::ForkError;
use super::store::{
    BASE, DOCUMENT, FORMAT_VERSION, Fork, ForkDocument, Forks, LAYERS, Layer, Lower, UPPER, WORK,
    withdraw_unused,
};
use crate::layout;
use crate::manifest::{NotCaptured, SnapshotManifest};
use crate::object::{Attributes, Node};
use crate::path_text::Shown;
use crate::restore::CopyOptions;
use crate::session::{Catalog, SessionStatus};
use crate::snapshot::{SessionDir, SessionOrigin, SnapshotManager};
use crate::store::{LocalStore, read_root_tree};
use crate::sys::{self, Dir, FileKind, FileLock};

/// A fork that is being made. Dropped, nothing of it is left but a session, if there is one.
#[derive(Debug)]
pub struct Birth {
    forks: Forks,
    /// The name of its hidden directory; none when it has become a fork.
    hidden: Option<String>,
    lock: Option<FileLock>,
}

/// The facts of a fork that its maker gives.
#[derive(Debug, Clone, Copy)]
pub struct NewFork<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its session, which [`begin_now`](super::begin_now) or
    /// [`begin_recorded`](super::begin_recorded) made for it.
    pub session: &'a SessionDir,
    /// How the state was named.
    pub from: &'a str,
    /// Whether it goes with the process that makes it.
    pub throw_away: bool,
    /// Whether its layers are copies of the recorded state. They share blocks with the store where
    /// the file system can.
    pub copied: bool,
}

impl Birth {
    pub(super) fn begin(forks: &Forks) -> Result<Self, ForkError> {
        sys::create_private_dir(&forks.directory())?;
        let dir = Dir::open(&forks.directory())?;
        let hidden = layout::new_name()?;
        // No process that clears up sees the directory before it is locked.
        let _no_clearing = FileLock::shared_dir(&forks.directory())?;
        dir.make_dir(hidden.as_bytes(), 0o700)?;
        match FileLock::shared_dir(&forks.directory().join(&hidden)) {
            Ok(lock) => Ok(Self { forks: forks.clone(), hidden: Some(hidden), lock: Some(lock) }),
            Err(error) => {
                let _ = dir.remove_dir_all(hidden.as_bytes());
                Err(error.into())
            }
        }
    }

    /// Makes the fork. It is in use as long as the lock that comes with it lives.
    ///
    /// # Errors
    /// The name is taken, a tracked path is no directory, or the store cannot be written. There is
    /// no fork then, and the session is withdrawn.
    pub fn make(mut self, new: NewFork<'_>) -> Result<(Fork, FileLock), ForkError> {
        let made = self.try_make(&new);
        if made.is_err()
            && let Err(error) = withdraw_unused(self.forks.root(), new.session)
        {
            tracing::warn!("the session {} of no fork stays: {error}", new.session.id());
        }
        made
    }

    fn try_make(&mut self, new: &NewFork<'_>) -> Result<(Fork, FileLock), ForkError> {
        let (forks, NewFork { name, session, from, throw_away, copied }) = (&self.forks, *new);
        let base = session.manifest(0)?.manifest;
        let paths: Vec<PathBuf> = base.roots.iter().map(|root| root.path.clone()).collect();
        forks.check_new_name(name, &paths)?;
        let store = LocalStore::open(&session.objects_path())?;
        let dir = Dir::open(&forks.directory())?;
        let gone = || ForkError::NotFound { name: name.to_owned() };
        let hidden = self.hidden.clone().ok_or_else(gone)?;
        let own = dir.open_dir(hidden.as_bytes())?;
        let layers = match copied {
            true => make_copies(&own, &base, session)?,
            false => make_layers(&own, &base, &store)?,
        };
        let document = ForkDocument {
            format_version: FORMAT_VERSION,
            name: name.to_owned(),
            throw_away,
            session: session.id(),
            created: Timestamp::now(),
            from: from.to_owned(),
            layers,
        };
        own.make_dir(BASE, 0o700)?;
        own.replace_file(DOCUMENT, &encoded(&document)?, 0o600, true)?;
        // Retention spares it as long as the fork lives.
        session.set_pinned(true)?;
        if !throw_away {
            // The name of the fork is on the disk after all that it stands for.
            store.sync()?;
        }
        // No other fork gets the name meanwhile.
        let alone = FileLock::exclusive_of(&dir)?;
        forks.check_new_name(name, &paths)?;
        dir.rename_new(hidden.as_bytes(), &dir, document.session.as_bytes())?;
        drop(alone);
        self.hidden = None;
        dir.sync()?;
        let fork = forks.of_session(&document.session)?;
        Ok((fork, self.lock.take().ok_or_else(gone)?))
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        if let Some(hidden) = self.hidden.take()
            && let Err(error) = Dir::open(&self.forks.directory())
                .and_then(|it| it.remove_dir_all(hidden.as_bytes()))
        {
            tracing::debug!("{hidden} stays: {error}");
        }
    }
}

pub(super) fn encoded(document: &ForkDocument) -> Result<Vec<u8>, ForkError> {
    serde_json::to_vec_pretty(document).map_err(|error| ForkError::Document {
        name: document.name.clone(),
        reason: error.to_string(),
    })
}

/// See [`Forks::clear_up`].
pub(super) fn clear_up(forks: &Forks) -> Result<(), ForkError> {
    let dir = match Dir::open(&forks.directory()) {
        Err(error) if error.is_gone() => return Ok(()),
        dir => dir?,
    };
    let is_hidden = |name: &&[u8]| {
        name.starts_with(layout::NEW_PREFIX.as_bytes())
            || name.starts_with(layout::REMOVED_PREFIX.as_bytes())
    };
    let names = dir.names()?;
    let hidden: Vec<&[u8]> = names.iter().map(|listed| &*listed.name).filter(is_hidden).collect();
    let throw_away = || -> Result<Vec<Fork>, ForkError> {
        Ok(forks.list()?.into_iter().flatten().filter(|it| it.document().throw_away).collect())
    };
    if hidden.is_empty() && throw_away()?.is_empty() {
        return Ok(());
    }
    // No fork is begun meanwhile. Another process clears up where this is refused.
    let Some(_alone) = FileLock::try_exclusive_of(&dir)? else { return Ok(()) };
    for fork in throw_away()? {
        if let Err(error) = fork.discard_if_unused() {
            tracing::debug!("fork {} stays: {error}", fork.name());
        }
    }
    let (mut dead, mut is_any_at_work) = (Vec::new(), false);
    for name in hidden {
        let own = match dir.open_dir(name) {
            Err(error) if error.is_gone() => continue,
            own => own?,
        };
        match FileLock::try_exclusive_of(&own)? {
            Some(lock) => dead.push((name, lock)),
            None => is_any_at_work = true,
        }
    }
    // The session of a living process may have no fork yet.
    if dead.is_empty() || is_any_at_work {
        return Ok(());
    }
    for (name, _lock) in &dead {
        let document = dir.open_dir(name)?.read(DOCUMENT, layout::MAX_FORK_DOCUMENT_BYTES);
        let document =
            document.ok().and_then(|it| serde_json::from_slice::<ForkDocument>(&it).ok());
        let session = document
            .map(|document| document.session)
            .filter(|id| layout::may_be_session(id.as_bytes()) && !id.contains('/'));
        if let Some(Ok(session)) = session.map(|id| SessionDir::open(&forks.root().join(id))) {
            withdraw_unused(forks.root(), &session)?;
        }
    }
    withdraw_sessions_of_none(forks)?;
    for (name, _lock) in &dead {
        dir.remove_dir_all(name)?;
    }
    Ok(())
}

/// Withdraws the sessions of forks that are not there, except those with snapshots of a fork.
fn withdraw_sessions_of_none(forks: &Forks) -> Result<(), ForkError> {
    let known = forks.ids()?;
    for session in Catalog::new(forks.root().to_owned(), []).sessions()? {
        let Ok(metadata) = session.metadata() else { continue };
        let is_of_none = metadata.origin == SessionOrigin::Fork
            && !metadata.received
            && !known.contains(&session.id())
            && session.snapshot_numbers()?.len() <= 1
            && SessionStatus::of(&session, &metadata)? != SessionStatus::Running;
        if is_of_none {
            withdraw_unused(forks.root(), &session)?;
        }
    }
    Ok(())
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
        give_attributes(&layer, &entry.attributes)?;
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

/// Copies each tracked path of the state into a layer.
fn make_copies(
    own: &Dir,
    base: &SnapshotManifest,
    session: &SessionDir,
) -> Result<Vec<Layer>, ForkError> {
    own.make_dir(LAYERS, 0o700)?;
    let dir = own.open_dir(LAYERS)?;
    let manager = SnapshotManager::open(session.path())?;
    let mut layers = Vec::new();
    for tracked in &base.roots {
        let root = read_root_tree(manager.store(), &base.merkle_root)?;
        let entry = root.get(tracked.path.as_os_str().as_bytes());
        let entry = entry.filter(|entry| matches!(entry.node, Node::Directory { .. }));
        let Some(entry) = entry else {
            return Err(ForkError::NotADirectory { path: tracked.path.clone() });
        };
        let layer = make_layer(&dir, layers.len())?;
        let options = CopyOptions {
            base: Some(tracked.path.clone()),
            in_store: true,
            ..CopyOptions::default()
        };
        let copied = manager.copy_out(0, &layer.path().join(UPPER), &options);
        let report = copied.map_err(|error| ForkError::Copy { reason: error.to_string() })?;
        if let Some(skipped) = report.skipped.first() {
            let reason = format!("{}: {}", Shown::path(&skipped.path), skipped.reason);
            return Err(ForkError::Copy { reason });
        }
        give_attributes(&layer, &entry.attributes)?;
        layers.push(Layer { path: tracked.path.clone(), lower: Lower::Copied });
    }
    Ok(layers)
}

/// Gives a layer the attributes of the directory that it stands for: the kernel shows these, and
/// not those below.
fn give_attributes(layer: &Dir, attributes: &Attributes) -> Result<(), ForkError> {
    let upper = layer.inode(UPPER.as_bytes())?;
    for (name, value) in attributes.xattrs.iter() {
        upper.set_xattr(name, value)?;
    }
    let stat = upper.stat()?;
    if (stat.uid, stat.gid) != (attributes.uid, attributes.gid) {
        upper.set_owner(attributes.uid, attributes.gid)?;
    }
    upper.set_mode(attributes.mode)?;
    upper.set_mtime(attributes.mtime)?;
    Ok(())
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
