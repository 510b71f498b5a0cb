//! Repositories whose git directory is not in the work tree: linked worktrees, and a repository
//! above.
//!
//! A recorded command may have written a `.git` file, and the file decides the grants of the next
//! one. So a directory counts only if it says itself that it belongs to this very worktree, lies
//! where git puts it (`<common>/worktrees/NAME`), in a directory named as git names it, and is the
//! user's own.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::refs::Head;
use super::state::{GitFiles, OnDisk, read_state};
use crate::byte_path;
use crate::sys::{self, Dir, FileKind, IoContext};
use crate::walk::DOT_GIT;

/// A path and a newline.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// A work tree that `git worktree add` made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedWorktree {
    /// Its own git directory: HEAD and the index.
    pub own: PathBuf,
    /// The git directory of the repository, with what all work trees share.
    pub common: PathBuf,
    /// The full name of the branch that is checked out, if it has a commit.
    branch: Option<String>,
    /// Whether the branch has a file of its own.
    is_loose: bool,
}

impl LinkedWorktree {
    /// The worktree of a directory, if it is the top of one. The path has no symlink.
    pub fn at(top: &Path) -> Option<Self> {
        let pointer = pointer(&Dir::open_no_symlinks(top).ok()?, DOT_GIT, b"gitdir: ")?;
        let own = real_dir(top, &pointer)?;
        let common = own.parent()?.parent()?;
        if own.parent()?.file_name()? != "worktrees"
            || !common.as_os_str().as_bytes().ends_with(DOT_GIT)
        {
            return None;
        }
        let (own_dir, common_dir) = (own_dir(&own)?, own_dir(common)?);
        let back = pointer_to(&own, &own_dir, b"gitdir")?;
        let is_mutual = back == top.join(sys_name(DOT_GIT));
        let leads_to_common = real_dir(&own, &pointer_of(&own_dir, b"commondir")?)? == common;
        if !is_mutual || !leads_to_common || !has_marks(&common_dir) {
            return None;
        }
        let head = match read_head(&own_dir) {
            Some(Head::Ref(name)) if name.starts_with("refs/heads/") => Some(name),
            _ => None,
        };
        let Ok(shared) = read_state(&mut OnDisk(&common_dir));
        let branch = head.filter(|name| shared.refs.contains_key(name));
        let is_loose = branch.as_ref().is_some_and(|name| is_file(&common_dir, name.as_bytes()));
        Some(Self { common: common.to_owned(), own, branch, is_loose })
    }

    /// Gives the branch that is checked out a file of its own, as git does at the next commit: then
    /// its state can be recorded without those of others. Returns the path of the file.
    ///
    /// # Errors
    /// When git works on the branch at this moment, or the file cannot be written.
    pub fn branch_file(&self) -> sys::Result<Option<PathBuf>> {
        let Some(name) = &self.branch else { return Ok(None) };
        let path = self.common.join(name);
        if !self.is_loose {
            let common = Dir::open_no_symlinks(&self.common)?;
            let Ok(shared) = read_state(&mut OnDisk(&common));
            let Some(oid) = shared.refs.get(name) else { return Ok(None) };
            let (above, short) = byte_path::split(name.as_bytes());
            let mut dir = common;
            for part in byte_path::components(above) {
                if dir.try_stat(part)?.is_none() {
                    dir.make_dir(part, 0o777)?;
                }
                dir = dir.open_dir(part)?;
            }
            // The way in which programs of git keep out of each other's way.
            let lock = [short, b".lock"].concat();
            let mut file = dir.create_file(&lock, 0o644)?;
            let written = writeln!(file, "{}", oid.hex());
            let placed =
                written.at("write", &path).and_then(|()| dir.rename_new(&lock, &dir, short));
            if let Err(error) = placed {
                let _ = dir.remove_file(&lock);
                return Err(error);
            }
        }
        Ok(Some(path))
    }
}

/// A repository above a directory that is not its top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Above {
    /// The top of the work tree.
    pub top: PathBuf,
    /// Its git directory.
    pub git_dir: PathBuf,
}

/// The repository that a directory is in, unless it is the top of one itself. Only one of this
/// user.
pub fn repository_above(dir: &Path) -> Option<Above> {
    let has_git = |dir: &Path| Some(Dir::open(dir).ok()?.try_stat(DOT_GIT).ok()?.is_some());
    if has_git(dir)? || has_marks(&Dir::open(dir).ok()?) {
        return None;
    }
    let top = dir.ancestors().skip(1).find(|above| has_git(above) == Some(true))?;
    let git_dir = top.join(sys_name(DOT_GIT));
    has_marks(&own_dir(&git_dir)?).then(|| Above { top: top.to_owned(), git_dir })
}

fn sys_name(name: &[u8]) -> OsString {
    OsString::from_vec(name.to_vec())
}

/// Opens a directory of this user, through no symlink.
fn own_dir(path: &Path) -> Option<Dir> {
    let dir = Dir::open_no_symlinks(path).ok()?;
    (dir.stat_self().ok()?.uid == sys::effective_uid()).then_some(dir)
}

fn has_marks(dir: &Dir) -> bool {
    let is = |name: &[u8], kind| matches!(dir.try_stat(name), Ok(Some(stat)) if stat.kind == kind);
    is(b"HEAD", FileKind::File)
        && is(b"objects", FileKind::Directory)
        && is(b"refs", FileKind::Directory)
}

fn is_file(dir: &Dir, relative: &[u8]) -> bool {
    let Ok(found) = OnDisk(dir).file(relative, MAX_POINTER_BYTES);
    found.is_some()
}

fn read_head(dir: &Dir) -> Option<Head> {
    let Ok(state) = read_state(&mut OnDisk(dir));
    state.head
}

/// The target in a pointer file.
fn pointer(dir: &Dir, name: &[u8], prefix: &[u8]) -> Option<PathBuf> {
    let bytes = dir.read(name, MAX_POINTER_BYTES).ok()?;
    let path = bytes.strip_prefix(prefix)?.trim_ascii_end();
    let is_plain = !path.is_empty() && !path.contains(&0) && !path.contains(&b'\n');
    is_plain.then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
}

fn pointer_of(dir: &Dir, name: &[u8]) -> Option<PathBuf> {
    pointer(dir, name, b"")
}

/// The file that a file leads to.
fn pointer_to(base: &Path, dir: &Dir, name: &[u8]) -> Option<PathBuf> {
    Some(sys::plain_absolute(&pointer_of(dir, name)?, base))
}

/// A directory that is named from another one, if no symlink is on the way.
fn real_dir(base: &Path, path: &Path) -> Option<PathBuf> {
    let plain = sys::plain_absolute(path, base);
    (sys::real_path(&plain).ok()? == plain).then_some(plain)
}
