//! Paths that cannot be moved or written: found before the first change, so that one of them does
//! not take the whole restore back.
//!
//! A name changes by the rights on its directory: those of this user, the sticky bit, and the flags
//! of the inodes (`chattr`). A directory of this user is made writable by the restore itself.
//! Attributes that may not be set are no obstacle: they are named when the rest is done.

use std::collections::{HashMap, HashSet};

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
        let mut directories: HashMap<Vec<u8>, Option<String>> = HashMap::new();
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
            let of_directory = match directories.get(parent) {
                Some(known) => known.clone(),
                None => {
                    let found = obstacle_of(&dir)?;
                    directories.insert(parent.to_vec(), found.clone());
                    found
                }
            };
            let own = || if is_there { obstacle_at(&dir, &name) } else { Ok(None) };
            if let Some(reason) = of_directory.map_or_else(own, |reason| Ok(Some(reason)))? {
                blocked.push(Skipped { path: to_path(path).to_owned(), reason });
            }
        }
        super::plan::sort(&mut blocked);
        Ok(blocked)
    }

    /// Leaves these paths as they are, and git directories that one of them is in.
    pub(super) fn leave_blocked(&mut self, blocked: Vec<Skipped>, repositories: &Repositories) {
        use std::os::unix::ffi::OsStrExt;
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

/// Why no name in a directory can be changed, if that is so.
fn obstacle_of(dir: &Dir) -> sys::Result<Option<String>> {
    if let Some(cause) = dir.obstacle_of_self() {
        return Ok(Some(format!("its directory is {cause}")));
    }
    let stat = dir.stat_self()?;
    Ok(match dir.refused_to_change()? {
        None => None,
        Some(Refused::ReadOnly) => Some("its file system is read-only".to_owned()),
        // The restore gives itself the right for the time being.
        Some(Refused::NoRight) if stat.uid == sys::effective_uid() => None,
        Some(Refused::NoRight) => {
            let owner = stat.uid;
            Some(format!("its directory belongs to user {owner}, and may not be written"))
        }
    })
}

/// Why a name cannot be moved or replaced although its directory can be written, if that is so.
fn obstacle_at(dir: &Dir, name: &[u8]) -> sys::Result<Option<String>> {
    if let Some(cause) = dir.obstacle(name) {
        return Ok(Some(format!("it is {cause}")));
    }
    let (user, above) = (sys::effective_uid(), dir.stat_self()?);
    if user == 0 || above.mode & STICKY == 0 || above.uid == user {
        return Ok(None);
    }
    let owner = dir.try_stat(name)?.map(|stat| stat.uid).filter(|owner| *owner != user);
    Ok(owner.map(|owner| format!("it belongs to user {owner}, in a directory with the sticky bit")))
}
