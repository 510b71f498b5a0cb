//! What finishing and taking back have in common: places, staging directories, and the question
//! whether a path still holds what it should.

use std::collections::HashSet;
use std::rc::Rc;

use super::areas::Areas;
use super::journal::Staged;
use super::places::{Place, Places};
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, Node};
use crate::progress::{Progress, Uncounted};
use crate::store::{StoreError, Transfer, hash_file};
use crate::sys::{self, Dir, FileKind, FileTime, Stat};

/// The disk as the steps see it.
pub(super) struct Disk<'a, 'b> {
    pub(super) places: &'a mut Places<'b>,
    pub(super) areas: &'a Areas,
    /// The kernel's time before the safety snapshot: what has an older ctime is as captured.
    started: FileTime,
    writable: HashSet<Vec<u8>>,
    is_root_user: bool,
    /// May stop whoever can be called again; see [`check_stopped`](Self::check_stopped).
    progress: &'a dyn Progress,
}

impl<'a, 'b> Disk<'a, 'b> {
    pub(super) fn new(
        places: &'a mut Places<'b>,
        areas: &'a Areas,
        started: FileTime,
        progress: &'a dyn Progress,
    ) -> Self {
        places.forget();
        let is_root_user = sys::effective_uid() == 0;
        Self { places, areas, started, writable: HashSet::new(), is_root_user, progress }
    }

    /// An error between two steps if somebody asked to stop.
    pub(super) fn check_stopped(&self) -> Result<(), StoreError> {
        if self.progress.is_cancelled() { Err(StoreError::Cancelled) } else { Ok(()) }
    }

    fn hash(&self, place: &Place) -> Result<Option<ContentHash>, StoreError> {
        let progress = Uncounted(self.progress);
        hash_file(&place.dir, &place.name, &mut Transfer::new(&mut Vec::new(), &progress))
    }

    /// The staging directory, and the name in it.
    pub(super) fn staging(&self, staged: Staged) -> sys::Result<(Rc<Dir>, Vec<u8>)> {
        Ok((self.areas.dir(staged.area)?, staged.name()))
    }

    /// Where a path is, with its directory made writable if it is ours and is not. The attributes
    /// of directories come last, in both directions, so that no mode stays like that.
    pub(super) fn writable_place(&mut self, path: &[u8]) -> sys::Result<Place> {
        let place = self.places.find(path)?;
        let (parent, _) = byte_path::split(path);
        if self.is_root_user || !self.writable.insert(parent.to_vec()) {
            return Ok(place);
        }
        let stat = place.dir.stat_self()?;
        let is_tracked = self.places.root_of(parent).is_some();
        if is_tracked && stat.uid == sys::effective_uid() && stat.mode & 0o300 != 0o300 {
            let parent_place = self.places.find(parent)?;
            parent_place.dir.set_mode(&parent_place.name, stat.mode | 0o700)?;
        }
        self.places.find(path)
    }

    /// As [`writable_place`](Self::writable_place); `None` when the directory is not there, or not
    /// one any more.
    pub(super) fn try_place(&mut self, path: &[u8]) -> sys::Result<Option<Place>> {
        match self.writable_place(path) {
            Ok(place) => Ok(Some(place)),
            Err(error) if error.is_gone() || error.is_symlink_in_path() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The attributes of what is at a place if it is `state`, contents included.
    pub(super) fn holds(
        &self,
        place: &Place,
        state: &EntryState,
    ) -> Result<Option<Stat>, StoreError> {
        let Some(stat) = place.dir.try_stat(&place.name)? else { return Ok(None) };
        let is_same = match &state.node {
            Node::File { size, hash } => {
                stat.kind == FileKind::File
                    && stat.size == *size
                    && stat.mtime == state.attributes.mtime
                    // Changed since, or so lately that its times cannot tell.
                    && (stat.ctime < self.started
                        || self.hash(place)? == Some(*hash))
            }
            Node::Symlink { target } => {
                stat.kind == FileKind::Symlink && *place.dir.read_link(&place.name)? == **target
            }
            Node::Fifo => stat.kind == FileKind::Fifo,
            Node::Socket => stat.kind == FileKind::Socket,
            Node::Directory { .. } | Node::CharDevice(_) | Node::BlockDevice(_) => false,
        };
        Ok(is_same.then_some(stat))
    }
}

/// Whether what was moved is what was looked at just before.
pub(super) fn is_same_inode(dir: &Dir, name: &[u8], before: &Stat) -> sys::Result<bool> {
    let now = dir.stat(name)?;
    let key = |stat: &Stat| (stat.dev, stat.ino, stat.kind, stat.size, stat.mtime);
    Ok(key(&now) == key(before))
}
