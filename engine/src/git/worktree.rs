//! The repository of a work tree, wherever its git directory is: in it, above it, or elsewhere.
//!
//! A recorded command may have written a `.git` file, and the file decides the grants of the next
//! one. So the directory of a linked worktree counts only if it says itself that it belongs to this
//! very worktree, lies where git puts it (`<common>/worktrees/NAME`), and is the user's own. Any
//! other directory elsewhere is only told, as [`Repository::Separate`]: the caller has to ask its
//! settings for the work tree. No file says to whom borrowed objects may be lent.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::files::REFTABLE;
use super::refs::Head;
use super::state::{GitFiles, OnDisk, read_state};
use crate::byte_path;
use crate::sys::{self, Dir, FileKind, IoContext};
use crate::walk::DOT_GIT;

/// The beginning of a `.git` file.
const GIT_DIR: &[u8] = b"gitdir: ";
/// The directory of the histories of refs.
const LOGS: &[u8] = b"logs";
/// A path and a newline.
const MAX_POINTER_BYTES: u64 = 8 << 10;
/// A list of directories is a few lines.
const MAX_ALTERNATES_BYTES: u64 = 64 << 10;
/// As git follows them.
const MAX_ALTERNATES_DEPTH: usize = 5;
/// Maximum number of directories of borrowed objects.
const MAX_ALTERNATES: usize = 32;
/// Where a git directory has its objects.
const OBJECTS: &str = "objects";

/// The repository of a directory of this user, by the place of its git directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repository {
    /// Its git directory is the directory itself, or `.git` in it.
    Here(PathBuf),
    /// It is a linked work tree.
    Linked(LinkedWorktree),
    /// Its `.git` leads to this git directory. Whether that belongs to it is unknown.
    Separate(PathBuf),
}

impl Repository {
    /// The repository of a directory, if it is the top of one. The path has no symlink.
    pub fn at(top: &Path) -> Option<Self> {
        let dir = Dir::open_no_symlinks(top).ok()?;
        let dot_git = top.join(sys_name(DOT_GIT));
        let git_dir = match dir.try_stat(DOT_GIT).ok()?.map(|stat| stat.kind) {
            None => return is_repository(top).then(|| Self::Here(top.to_owned())),
            Some(FileKind::Directory) => {
                return is_repository(&dot_git).then_some(Self::Here(dot_git));
            }
            Some(FileKind::Symlink) => sys::real_path(&dot_git).ok()?,
            Some(FileKind::File) => {
                if let Some(linked) = LinkedWorktree::at(top) {
                    return Some(Self::Linked(linked));
                }
                let named = pointer(&dir, DOT_GIT, GIT_DIR)?;
                sys::real_path(&sys::plain_absolute(&named, top)).ok()?
            }
            Some(_) => return None,
        };
        is_repository(&git_dir).then_some(Self::Separate(git_dir))
    }

    /// The repository that a directory is in, with its top, unless it is the top of one itself.
    pub fn above(dir: &Path) -> Option<(PathBuf, Self)> {
        let has_git = |dir: &Path| Some(Dir::open(dir).ok()?.try_stat(DOT_GIT).ok()?.is_some());
        if has_git(dir)? || has_marks(&Dir::open(dir).ok()?) {
            return None;
        }
        let top = dir.ancestors().skip(1).find(|above| has_git(above) == Some(true))?;
        Some((top.to_owned(), Self::at(top)?))
    }

    /// The git directory; of a linked work tree the one that all share.
    pub fn git_dir(&self) -> &Path {
        match self {
            Self::Here(git_dir) | Self::Separate(git_dir) => git_dir,
            Self::Linked(linked) => &linked.common,
        }
    }

    /// The directories with objects that the repository does not have itself (its *alternates*), as
    /// far as they are there. Without symlinks.
    pub fn borrowed_objects(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        let mut lenders = vec![self.git_dir().join(OBJECTS)];
        for _ in 0..MAX_ALTERNATES_DEPTH {
            let mut next = Vec::new();
            for path in lenders.iter().flat_map(|objects| alternates(objects)) {
                if !found.contains(&path) && found.len() < MAX_ALTERNATES {
                    found.push(path.clone());
                    next.push(path);
                }
            }
            lenders = next;
        }
        found
    }
}

/// The directories that a directory of objects names in `info/alternates`.
fn alternates(objects: &Path) -> Vec<PathBuf> {
    let list = Dir::open(&objects.join("info"))
        .and_then(|info| info.read(b"alternates", MAX_ALTERNATES_BYTES))
        .unwrap_or_default();
    let lines = list.split(|byte| *byte == b'\n');
    // A quoted name has bytes that no directory of a person has.
    let names = lines.filter(|line| !line.is_empty() && !matches!(line[0], b'#' | b'"'));
    let paths = names.map(|name| sys::plain_absolute(Path::new(OsStr::from_bytes(name)), objects));
    paths
        .filter_map(|path| sys::real_path(&path).ok())
        .filter(|path| sys::leads_to_dir(path))
        .collect()
}

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
        let pointer = pointer(&Dir::open_no_symlinks(top).ok()?, DOT_GIT, GIT_DIR)?;
        let own = real_dir(top, &pointer)?;
        let common = own.parent()?.parent()?;
        if own.parent()?.file_name()? != "worktrees" {
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

    /// Makes the directory of the histories of refs, as git does at the next commit: a bare
    /// repository may have none. Reftables have no use for it.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn make_logs(&self) -> sys::Result<()> {
        let common = Dir::open_no_symlinks(&self.common)?;
        let is_there = |name| Ok(common.try_stat(name)?.is_some());
        if is_there(LOGS)? || is_there(REFTABLE)? {
            return Ok(());
        }
        common.make_dir(LOGS, 0o777)
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

fn sys_name(name: &[u8]) -> OsString {
    OsString::from_vec(name.to_vec())
}

/// Opens a directory of this user, through no symlink.
fn own_dir(path: &Path) -> Option<Dir> {
    let dir = Dir::open_no_symlinks(path).ok()?;
    (dir.stat_self().ok()?.uid == sys::effective_uid()).then_some(dir)
}

/// Whether a path without symlinks is a git directory of this user.
fn is_repository(path: &Path) -> bool {
    own_dir(path).is_some_and(|dir| has_marks(&dir))
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
