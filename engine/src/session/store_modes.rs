//! The modes of a store, put back after a command that could change them.
//!
//! Landlock keeps a command from opening, writing and removing what is in the store, and not from
//! `chmod` on a name that it can guess. A store that its owner may not read any more is whole and
//! of no use, so the supervisor, which holds the root directory open, puts the owner's rights back
//! and takes away what the root directory does not give to others either.

use std::path::Path;

use crate::sys::{self, Dir, FileKind, Inode};

/// So deep is a store: `<session>/snapshots/<number>`.
const MAX_DEPTH: usize = 4;
/// The permissions that the owner of a store's directory needs.
const OWNER: u16 = 0o700;
const OTHERS: u16 = 0o077;

/// The root directory of a store, held, and its mode.
#[derive(Debug)]
pub struct StoreModes {
    root: Inode,
    mode: u16,
}

impl StoreModes {
    /// Notes the mode of a root directory, before the command starts.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn note(root: &Path) -> sys::Result<Self> {
        let root = Dir::open(root)?.inode(b".")?;
        let mode = root.stat()?.mode;
        Ok(Self { root, mode })
    }

    /// Puts modes back, and says how many were changed. Files are looked at only if a directory was
    /// changed: there may be very many.
    ///
    /// # Errors
    /// When a mode cannot be set, because the inode is another's now.
    pub fn put_back(&self, root: &Path) -> sys::Result<usize> {
        let mut count = 0;
        if self.root.stat()?.mode != self.mode {
            self.root.set_mode(self.mode)?;
            count += 1;
        }
        count += self.put_back_below(root, false)?;
        if count > 0 {
            count += self.put_back_below(root, true)?;
        }
        Ok(count)
    }

    fn put_back_below(&self, root: &Path, with_files: bool) -> sys::Result<usize> {
        let mut count = 0;
        let mut rest = vec![(Dir::open(root)?, 0)];
        while let Some((dir, depth)) = rest.pop() {
            for listed in dir.names()? {
                let may_be_dir = listed.kind.is_none_or(|kind| kind == FileKind::Directory);
                if !may_be_dir && !with_files {
                    continue;
                }
                let inode = match dir.inode(&listed.name) {
                    Ok(inode) => inode,
                    // Files that another process makes and removes meanwhile.
                    Err(error) if error.is_gone() => continue,
                    Err(error) => return Err(error),
                };
                let stat = inode.stat()?;
                let needed = match stat.kind {
                    FileKind::Directory => OWNER,
                    FileKind::File if with_files => 0o400,
                    _ => continue,
                };
                let wanted = (stat.mode | needed) & (OWNER | (self.mode & OTHERS));
                if wanted != stat.mode {
                    inode.set_mode(wanted)?;
                    count += 1;
                }
                if stat.kind == FileKind::Directory && depth < MAX_DEPTH {
                    rest.push((dir.open_dir(&listed.name)?, depth + 1));
                }
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests set the scene with plain calls")]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_a_command_did_to_modes_is_taken_back() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("store");
        let deep = root.join("session/snapshots/0");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("manifest.json"), "{}").unwrap();
        let dirs = [&root, &root.join("session"), &root.join("session/snapshots"), &deep];
        dirs.iter().for_each(|dir| chmod(dir, 0o700));
        chmod(&deep.join("manifest.json"), 0o600);
        let modes = StoreModes::note(&root).unwrap();
        assert_eq!(modes.put_back(&root).unwrap(), 0);
        chmod(&deep.join("manifest.json"), 0o4777);
        chmod(&deep, 0o000);
        chmod(&root.join("session"), 0o777);
        chmod(&root, 0o000);
        assert_eq!(modes.put_back(&root).unwrap(), 4);
        dirs.iter().for_each(|dir| assert_eq!(mode(dir), 0o700));
        assert_eq!(mode(&deep.join("manifest.json")), 0o700 & 0o777);
        assert_eq!(modes.put_back(&root).unwrap(), 0);
    }
}
