//! The common part of finishing and reverting: places, staging directories, and two questions:
//! whether a path still holds what it should, and whether it may be changed in place.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::areas::Areas;
use super::journal::Staged;
use super::places::{Place, Places};
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{ContentHash, LinkGroups, Node};
use crate::progress::{Progress, Uncounted};
use crate::store::{StoreError, Transfer, hash_file};
use crate::sys::{self, Dir, FileKind, FileTime, Inode, Stat};

/// The disk as the steps see it.
pub(super) struct Disk<'a, 'b> {
    pub(super) places: &'a mut Places<'b>,
    pub(super) areas: &'a Areas,
    /// The kernel's time before the safety snapshot: a file with an older ctime is as captured.
    started: FileTime,
    /// Names that shared an inode in the safety snapshot: of each, all of them.
    linked: HashMap<&'a [u8], &'a [Box<[u8]>]>,
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
        links: &'a LinkGroups,
        progress: &'a dyn Progress,
    ) -> Self {
        places.forget();
        let is_root_user = sys::effective_uid() == 0;
        let names = |group: &'a Vec<Box<[u8]>>| group.iter().map(|name| (&**name, &**group));
        let linked = links.groups().iter().flat_map(names).collect();
        Self { places, areas, started, linked, writable: HashSet::new(), is_root_user, progress }
    }

    /// An error between two steps if the caller asked to stop.
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
            parent_place.dir.inode(&parent_place.name)?.set_mode(stat.mode | 0o700)?;
        }
        self.places.find(path)
    }

    /// Whether a removed file still is as captured: a process with an open descriptor may have gone
    /// on writing. `thoroughly`: its bytes, and not only its length and time.
    pub(super) fn holds_staged(
        &self,
        staged: Staged,
        state: &EntryState,
        thoroughly: bool,
    ) -> Result<bool, StoreError> {
        let (dir, name) = self.staging(staged)?;
        let Some(stat) = dir.try_stat(&name)? else { return Ok(true) };
        let Node::File { size, .. } = &state.node else { return Ok(true) };
        if thoroughly {
            return Ok(self.holds(&Place { dir, name }, state)?.is_some());
        }
        Ok(stat.size == *size && stat.mtime == state.attributes.mtime)
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

    /// As [`try_place`](Self::try_place), where no name changes: the directory gets no right that
    /// it needs not, because nothing takes that back.
    fn place_to_look_at(&mut self, path: &[u8]) -> sys::Result<Option<Place>> {
        match self.places.find(path) {
            Err(error) if error.is_denied() => self.try_place(path),
            Err(error) if error.is_gone() || error.is_symlink_in_path() => Ok(None),
            found => found.map(Some),
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
            Node::File { size, hash, .. } => {
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

/// The state that a path must have before its attributes change.
pub(super) enum Changeable {
    /// It is; this is its inode.
    Yes(Inode),
    /// Nothing is there, or something else, or an inode that has names which are none of ours.
    No,
}

impl Disk<'_, '_> {
    /// The inode at `path` if it is one of `states` (which differ in attributes alone) and has no
    /// name but those that the safety snapshot knows: a change in place then changes nothing else.
    pub(super) fn changeable(
        &mut self,
        path: &[u8],
        states: &[&EntryState],
    ) -> Result<Changeable, StoreError> {
        let Some(place) = self.place_to_look_at(path)? else { return Ok(Changeable::No) };
        // Held before it is looked at, so that all that follows is about this one.
        let inode = match place.dir.inode(&place.name) {
            Ok(inode) => inode,
            Err(error) if error.is_gone() => return Ok(Changeable::No),
            Err(error) => return Err(error.into()),
        };
        let held = inode.stat()?;
        let is_held = |stat: &Stat| (stat.dev, stat.ino) == (held.dev, held.ino);
        for state in states {
            let is_it = match &state.node {
                Node::Directory { .. } => held.kind == FileKind::Directory,
                _ => self.holds(&place, state)?.is_some_and(|stat| is_held(&stat)),
            };
            if is_it {
                let is_ours =
                    held.kind == FileKind::Directory || self.knows_all_names(path, &held)?;
                return Ok(if is_ours { Changeable::Yes(inode) } else { Changeable::No });
            }
        }
        Ok(Changeable::No)
    }

    /// Whether the safety snapshot knows more names of what is at `path`.
    pub(super) fn is_linked(&self, path: &[u8]) -> bool {
        self.linked.contains_key(path)
    }

    fn knows_all_names(&mut self, path: &[u8], held: &Stat) -> sys::Result<bool> {
        if held.nlink <= 1 {
            return Ok(true);
        }
        let Some(names) = self.linked.get(path).copied() else { return Ok(false) };
        let mut count = 0;
        for name in names {
            let found = self.places.find(name).and_then(|place| place.dir.try_stat(&place.name));
            let is_same = |stat: Stat| (stat.dev, stat.ino) == (held.dev, held.ino);
            // One that cannot be looked at is none that is known.
            count += u64::from(found.ok().flatten().is_some_and(is_same));
        }
        Ok(count == held.nlink)
    }
}

/// Whether what was moved is what was looked at just before.
pub(super) fn is_same_inode(dir: &Dir, name: &[u8], before: &Stat) -> sys::Result<bool> {
    let now = dir.stat(name)?;
    let key = |stat: &Stat| (stat.dev, stat.ino, stat.kind, stat.size, stat.mtime);
    Ok(key(&now) == key(before))
}
