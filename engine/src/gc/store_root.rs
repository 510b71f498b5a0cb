//! The root directory of a store: where its objects are, and what in it is a session.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use super::CleanupError;
use super::mark::damaged;
use super::survey::is_older;
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::to_path;
use crate::snapshot::{ManifestError, SessionDir};
use crate::stat_cache::{carry_over, is_cache_name};
use crate::store::{LocalStore, StoreError};
use crate::sys::{self, Dir, FileKind};

/// An open root directory.
pub(super) struct StoreRoot {
    pub(super) dir: Dir,
    /// The shared objects, with their device and inode; none where all sessions have their own.
    pub(super) store: Option<(LocalStore, (u64, u64))>,
}

/// Where a session's objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectsPlace {
    /// In the objects of the root directory. Also when the link is broken: better to keep too much.
    Shared,
    /// In the session itself.
    Own,
    /// Behind a link to another store.
    Elsewhere,
}

impl StoreRoot {
    pub(super) fn open(path: &Path) -> Result<Self, CleanupError> {
        let dir = Dir::open(path)?;
        if dir.try_stat(layout::SNAPSHOTS.as_bytes())?.is_some() {
            return Err(CleanupError::RootIsSession { root: path.to_owned() });
        }
        let objects = path.join(layout::OBJECTS);
        let store = match LocalStore::open(&objects) {
            Ok(store) => {
                let stat = Dir::open(&objects)?.stat_self()?;
                Some((store, (stat.dev, stat.ino)))
            }
            Err(StoreError::Io(error)) if error.is_gone() => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Self { dir, store })
    }

    pub(super) fn place(&self, session: &SessionDir) -> Result<ObjectsPlace, CleanupError> {
        let dir = match Dir::open(session.path()) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(ObjectsPlace::Shared),
            Err(error) => return Err(damaged(session, ManifestError::from(error).into())),
        };
        match dir.try_stat(layout::OBJECTS.as_bytes())?.map(|stat| stat.kind) {
            Some(FileKind::Directory) => return Ok(ObjectsPlace::Own),
            Some(FileKind::Symlink) => {}
            _ => return Ok(ObjectsPlace::Shared),
        }
        let target = match Dir::open(&session.objects_path()) {
            Ok(target) => target.stat_self()?,
            Err(error) if error.is_gone() => return Ok(ObjectsPlace::Shared),
            Err(error) => return Err(error.into()),
        };
        let shared = self.store.as_ref().map(|(_, id)| *id);
        let is_shared = shared == Some((target.dev, target.ino));
        Ok(if is_shared { ObjectsPlace::Shared } else { ObjectsPlace::Elsewhere })
    }

    /// The name of a session that lies right in this directory; `None` when it is gone.
    pub(super) fn name_of(&self, session: &SessionDir) -> Result<Option<Box<[u8]>>, CleanupError> {
        let not_here = || CleanupError::NotInRoot {
            session: session.path().to_owned(),
            root: self.dir.path().to_owned(),
        };
        let name = session.path().file_name().ok_or_else(not_here)?.as_bytes();
        let Some(opened) = identity(session)? else { return Ok(None) };
        let is_here = match self.dir.try_stat(name)? {
            // Removed just now.
            None if identity(session)?.is_none() => return Ok(None),
            None => false,
            Some(here) => here.kind == FileKind::Directory && (here.dev, here.ino) == opened,
        };
        if is_here && layout::may_be_session(name) {
            Ok(Some(name.into()))
        } else {
            Err(not_here())
        }
    }

    /// Everything in this directory that looks like a session, whatever its name and state.
    pub(super) fn sessions(&self) -> Result<Vec<SessionDir>, CleanupError> {
        let mut sessions = Vec::new();
        for name in layout::session_names(&self.dir)? {
            sessions.extend(self.open_session(&name)?);
        }
        Ok(sessions)
    }

    /// Sessions whose removal a crash interrupted.
    pub(super) fn leftovers(&self) -> Result<Vec<SessionDir>, CleanupError> {
        let mut leftovers = Vec::new();
        for listed in self.dir.open_beneath(b"")?.names()? {
            if listed.name.starts_with(layout::REMOVED_PREFIX.as_bytes()) {
                leftovers.extend(self.open_session(&listed.name)?);
            }
        }
        Ok(leftovers)
    }

    /// A session by name, unless it is gone.
    pub(super) fn open_session(&self, name: &[u8]) -> Result<Option<SessionDir>, CleanupError> {
        if self.dir.try_stat(name)?.is_none_or(|stat| stat.kind != FileKind::Directory) {
            return Ok(None);
        }
        match SessionDir::open_listed(&self.dir.path().join(to_path(name))) {
            Err(ManifestError::Io(error)) if error.is_gone() => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// Hides a session from every list, at once. Gives its hidden name; `None` when it is gone.
    pub(super) fn hide(&self, name: &[u8]) -> Result<Option<Box<[u8]>>, CleanupError> {
        let mut hidden = [layout::REMOVED_PREFIX.as_bytes(), name].concat();
        if self.dir.try_stat(&hidden)?.is_some() {
            // The leftovers of a crash of an earlier session with that name.
            hidden.push(b'-');
            hidden.extend_from_slice(hex::encode(crate::sys::random_bytes()?).as_bytes());
        }
        match self.dir.rename(name, &self.dir, &hidden) {
            Err(error) if error.is_gone() => Ok(None),
            renamed => Ok(renamed.map(|()| Some(hidden.into()))?),
        }
    }

    /// Makes the stat caches that name nothing that is gone valid for the new generation of the
    /// store, and removes the others.
    pub(super) fn carry_stat_caches(
        &self,
        generations: [&[u8; 16]; 2],
        is_gone: impl Fn(&ContentHash) -> bool,
    ) {
        let carried = self.dir.open_dir(layout::INDEX.as_bytes()).and_then(|index| {
            let names = index.names()?;
            for name in names.iter().map(|listed| &*listed.name).filter(|n| is_cache_name(n)) {
                if !carry_over(&index, name, generations, &is_gone)? {
                    index.remove_file(name)?;
                }
            }
            Ok(())
        });
        if let Err(error) = carried
            && !error.is_gone()
        {
            tracing::warn!("stat caches are lost: {error}");
        }
    }

    /// Removes what a crash left of unfinished sessions and stat caches, once no process can
    /// be at work on them any more.
    pub(super) fn remove_unfinished(&self, grace: Duration) -> sys::Result<()> {
        let (now, new_prefix) = (sys::coarse_now(), layout::NEW_PREFIX.as_bytes());
        for listed in self.dir.open_beneath(b"")?.names()? {
            if listed.name.starts_with(new_prefix)
                && is_older(self.dir.stat(&listed.name)?.ctime, now, grace)
            {
                self.dir.remove_dir_all(&listed.name)?;
            }
        }
        let index = match self.dir.open_dir(layout::INDEX.as_bytes()) {
            Ok(index) => index,
            Err(error) if error.is_gone() => return Ok(()),
            Err(error) => return Err(error),
        };
        for listed in index.names()? {
            let is_new = listed.name.windows(new_prefix.len()).any(|part| part == new_prefix);
            if is_new && is_older(index.stat(&listed.name)?.ctime, now, grace) {
                index.remove_file(&listed.name)?;
            }
        }
        Ok(())
    }
}

/// Device and inode of a session's directory, by which two are known to be one however their paths
/// are written. `None` when it is gone.
pub(super) fn identity(session: &SessionDir) -> Result<Option<(u64, u64)>, CleanupError> {
    match Dir::open(session.path()).and_then(|dir| dir.stat_self()) {
        Ok(stat) => Ok(Some((stat.dev, stat.ino))),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(damaged(session, ManifestError::from(error).into())),
    }
}
