//! Paths that cannot be moved or written: found before the first change, so that one of them does
//! not take the whole restore back.
//!
//! A name changes by the rights on its directory: those of this user, the sticky bit, and the flags
//! of the inodes (`chattr`). A directory of this user is made writable by the restore itself.
//! Attributes that may not be set are no obstacle: they are named when the rest is done.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;

use super::places::{Place, Places};
use super::plan::{RestorePlan, Skipped};
use super::repositories::Repositories;
use crate::byte_path;
use crate::path_text::to_path;
use crate::sys::{self, Dir, Refused};

const STICKY: u16 = 0o1000;

impl RestorePlan {
    /// The paths whose names cannot be changed, each with the reason, sorted.
    ///
    /// # Errors
    /// A path cannot be looked at.
    pub(super) fn blocked(&self, places: &mut Places<'_>) -> sys::Result<Vec<Skipped>> {
        let actions = &self.actions;
        let made: HashSet<&[u8]> = actions.directories.iter().map(Vec::as_slice).collect();
        let removed = actions.removals.iter().map(|removal| (removal.path.as_slice(), true));
        let put = actions.puts.iter().map(|put| (put.path.as_slice(), put.current.is_some()));
        let new = actions.directories.iter().map(|path| (path.as_slice(), false));
        let mut directories: HashMap<&[u8], Directory> = HashMap::new();
        let mut blocked = Vec::new();
        for (path, is_there) in removed.chain(put).chain(new) {
            let parent = byte_path::split(path).0;
            if made.contains(parent) {
                continue;
            }
            let Place { dir, name } = match places.find(path) {
                // A removal stands in its way, and is looked at by itself.
                Err(error) if error.is_gone() || error.is_symlink_in_path() => continue,
                place => place?,
            };
            let directory = match directories.entry(parent) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(Directory::of(&dir)?),
            };
            let reason = match &directory.obstacle {
                Some(reason) => Some(reason.clone()),
                None if is_there => directory.obstacle_at(&dir, &name)?,
                None => None,
            };
            if let Some(reason) = reason {
                blocked.push(Skipped { path: to_path(path).to_owned(), reason });
            }
        }
        super::plan::sort(&mut blocked);
        Ok(blocked)
    }

    /// Leaves these paths as they are, and git directories that one of them is in.
    pub(super) fn leave_blocked(&mut self, blocked: Vec<Skipped>, repositories: &Repositories) {
        let left: HashSet<Vec<u8>> = blocked
            .iter()
            .map(|skipped| skipped.path.as_os_str().as_bytes())
            .map(|path| repositories.of_path(path).unwrap_or(path).to_vec())
            .collect();
        let stays = |path: &[u8]| repositories.of_path(path).is_some_and(|dir| left.contains(dir));
        self.narrow(|path, _| !stays(path), |path, _| !stays(path), &left);
        self.skipped.extend(blocked);
    }
}

/// A directory in which names change.
struct Directory {
    /// Why none of them can, if that is so.
    obstacle: Option<String>,
    /// Whether only their owners can.
    is_guarded: bool,
}

impl Directory {
    fn of(dir: &Dir) -> sys::Result<Self> {
        let (stat, user) = (dir.stat_self()?, sys::effective_uid());
        let is_guarded = user != 0 && stat.mode & STICKY != 0 && stat.uid != user;
        let frozen = dir.obstacle_of_self().map(|cause| format!("its directory is {cause}"));
        let obstacle = match (frozen, dir.refused_to_change()?) {
            (Some(frozen), _) => Some(frozen),
            (None, None) => None,
            (None, Some(Refused::ReadOnly)) => Some("its file system is read-only".to_owned()),
            // The restore gives itself the right for the time being.
            (None, Some(Refused::NoRight)) if stat.uid == user => None,
            (None, Some(Refused::NoRight)) => {
                let owner = stat.uid;
                Some(format!("its directory belongs to user {owner}, and may not be written"))
            }
        };
        Ok(Self { obstacle, is_guarded })
    }

    /// Why a name cannot be moved or replaced although the directory can be written, if that is so.
    fn obstacle_at(&self, dir: &Dir, name: &[u8]) -> sys::Result<Option<String>> {
        if let Some(cause) = dir.obstacle(name) {
            return Ok(Some(format!("it is {cause}")));
        }
        if !self.is_guarded {
            return Ok(None);
        }
        let user = sys::effective_uid();
        let owner = dir.try_stat(name)?.map(|stat| stat.uid).filter(|owner| *owner != user);
        let said =
            |owner| format!("it belongs to user {owner}, in a directory with the sticky bit");
        Ok(owner.map(said))
    }
}
