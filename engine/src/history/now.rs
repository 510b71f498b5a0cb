//! Which version of a path is on the disk.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::error::HistoryError;
use super::versions::{Origin, PathHistory, Version, is_same};
use crate::diff::{EntryState, Lookup};
use crate::object::{Attributes, ContentHash, Node, Xattrs};
use crate::snapshot::{SessionDir, SnapshotManager};
use crate::store::{HashError, Transfer, hash_object, read_root_tree};
use crate::sys::{self, Dir, FileKind, IoContext, Stat};

/// The node on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Now {
    /// The version with this index.
    Version(usize),
    /// Nothing, and no version says so.
    Gone,
    /// Something that no snapshot has. Bytes of a file.
    Unrecorded {
        /// Length of a file.
        size: Option<u64>,
    },
}

/// Finds out which version is on the disk. A file is read only if some version is as long; a
/// directory is captured in memory, with the filters of `newest`, a session that tracks it.
///
/// # Errors
/// When the path, or what is in it, cannot be looked at.
pub fn now_of(history: &PathHistory, newest: &SessionDir) -> Result<Now, HistoryError> {
    let path = history.path.as_path();
    let Some(stat) = stat_of(path)? else {
        let newest = in_doubt(history).find(|(_, version)| version.state.is_none());
        return Ok(newest.map_or(Now::Gone, |(index, _)| Now::Version(index)));
    };
    if stat.kind == FileKind::Directory {
        return directory(history, newest);
    }
    let size = (stat.kind == FileKind::File).then_some(stat.size);
    let candidates = || {
        in_doubt(history).filter(|(_, version)| {
            let state = version.state.as_deref();
            state.is_some_and(|state| could_be(state, &stat))
        })
    };
    if candidates().next().is_none() {
        return Ok(Now::Unrecorded { size });
    }
    let Some(state) = state_of(path, &stat)? else { return Ok(Now::Unrecorded { size }) };
    let state = Some(Arc::new(state));
    let nothing = crate::store::MemoryStore::default();
    let same = candidates().find(|(_, version)| is_same(&version.state, &state, path, &nothing));
    Ok(same.map_or(Now::Unrecorded { size }, |(index, _)| Now::Version(index)))
}

/// The bytes of the file at a path, through no symlink; `None` where no file is, or one that is
/// longer than `max_bytes`.
///
/// # Errors
/// When it cannot be read.
pub fn text_now(path: &Path, max_bytes: u64) -> Result<Option<Vec<u8>>, HistoryError> {
    let is_file = |stat: &Stat| stat.kind == FileKind::File && stat.size <= max_bytes;
    if stat_of(path)?.filter(is_file).is_none() {
        return Ok(None);
    }
    let (parent, name) = parent_of(path)?;
    let file = parent.open_file(name, true)?;
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    let mut limited = std::io::Read::take(&file, max_bytes + 1);
    std::io::Read::read_to_end(&mut limited, &mut bytes).at("read", &parent.path_of(name))?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= max_bytes))
}

fn directory(history: &PathHistory, newest: &SessionDir) -> Result<Now, HistoryError> {
    let manager = SnapshotManager::open(newest.path())?;
    let baseline = manager.load_manifest(newest.first_number()?)?;
    let live = manager.live_state(&baseline)?;
    let root = read_root_tree(&live, &live.manifest().merkle_root)?;
    let state = Lookup::new(&live, &root).find(history.path.as_os_str().as_bytes())?;
    let Some(state) = state.map(Arc::new) else { return Ok(Now::Unrecorded { size: None }) };
    let state = Some(state);
    let is_now = |version: &Version| is_same(&version.state, &state, &history.path, &live);
    let same = in_doubt(history).find(|(_, version)| is_now(version));
    Ok(same.map_or(Now::Unrecorded { size: None }, |(index, _)| Now::Version(index)))
}

/// The versions with their indices. What was recorded here comes before what archives brought.
fn in_doubt(history: &PathHistory) -> impl Iterator<Item = (usize, &Version)> {
    let all = || history.versions.iter().enumerate();
    let is_received = |version: &Version| version.origin == Origin::Received;
    let here = all().filter(move |(_, version)| !is_received(version));
    here.chain(all().filter(move |(_, version)| is_received(version)))
}

fn stat_of(path: &Path) -> Result<Option<Stat>, HistoryError> {
    let found = parent_of(path).and_then(|(parent, name)| parent.try_stat(name));
    match found {
        Err(error) if error.is_gone() => Ok(None),
        found => Ok(found?),
    }
}

fn parent_of(path: &Path) -> sys::Result<(Dir, &[u8])> {
    let parent = Dir::open_no_symlinks(path.parent().unwrap_or(Path::new("/")))?;
    Ok((parent, path.file_name().unwrap_or_default().as_bytes()))
}

/// Whether a look at its contents can show that it is this version.
fn could_be(state: &EntryState, stat: &Stat) -> bool {
    match (&state.node, stat.kind) {
        (Node::File { size, .. }, FileKind::File) => *size == stat.size,
        (Node::Symlink { .. }, FileKind::Symlink) => true,
        (Node::Fifo, FileKind::Fifo) => true,
        _ => false,
    }
}

/// The state of what is no directory. `None`: a kind that has none, or one that changes meanwhile.
fn state_of(path: &Path, stat: &Stat) -> Result<Option<EntryState>, HistoryError> {
    let (parent, name) = parent_of(path)?;
    let node = match stat.kind {
        FileKind::File => match hash_of(&parent, name, stat)? {
            Some(hash) => Node::file(stat.size, hash),
            None => return Ok(None),
        },
        FileKind::Symlink => Node::Symlink { target: parent.read_link(name)?.into() },
        FileKind::Fifo => Node::Fifo,
        _ => return Ok(None),
    };
    let Stat { mode, uid, gid, mtime, .. } = *stat;
    let xattrs = Xattrs::new(parent.xattrs(name)?);
    Ok(Some(EntryState { attributes: Attributes { mode, uid, gid, mtime, xattrs }, node }))
}

fn hash_of(parent: &Dir, name: &[u8], stat: &Stat) -> sys::Result<Option<ContentHash>> {
    let file = parent.open_file(name, true)?;
    let opened = parent.stat_file(&file, name)?;
    if !opened.same_state(stat) {
        return Ok(None);
    }
    let mut buffer = Vec::new();
    let mut transfer = Transfer::unwatched(&mut buffer);
    match hash_object(&file, opened.size, opened.is_sparse(), &mut transfer) {
        Ok(hashed) => Ok(Some(hashed.hash)),
        Err(HashError::Read(error)) => Err(error).at("read", &parent.path_of(name)),
        // Only a watcher asks for that.
        Err(HashError::Stopped) => Ok(None),
    }
}
