//! Opening what is in a directory or below it, through no symlink.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Dir;
use crate::sys::error::{IoContext, Result};
use crate::sys::file::allocated_ranges;
use crate::sys::stat::{FileKind, Stat};

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// The holes of shorter files are not worth a look.
const SHORT_BYTES: u64 = 1 << 20;
/// Longest relative path given to one call, below PATH_MAX.
const MAX_STEP_BYTES: usize = 4000;
/// How a directory is opened for nothing but to go on from it. `O_PATH` needs no right to list it.
#[cfg(target_os = "linux")]
const PASS_THROUGH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS_THROUGH: OFlags = OFlags::RDONLY;

impl Dir {
    /// Opens a directory that a person named; symlinks in the path are followed.
    ///
    /// # Errors
    /// When it is missing, not a directory, or may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = DIR_FLAGS.difference(OFlags::NOFOLLOW);
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty()).at("open", path)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens an absolute directory in whose path nothing is a symlink.
    ///
    /// # Errors
    /// ELOOP when a component on the way is one, ENOTDIR when the last is; else as
    /// [`open`](Self::open).
    pub fn open_no_symlinks(path: &Path) -> Result<Self> {
        let Some(relative) = path.as_os_str().as_bytes().strip_prefix(b"/") else {
            return Err(Errno::INVAL).at("open without symlinks", path);
        };
        // To go on from it, nothing of it need be readable: within the walls of a run it is not.
        let flags = PASS_THROUGH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = Path::new("/");
        let fd = rustix::fs::openat(CWD, top, flags, Mode::empty()).at("open", top)?;
        let mut dir = Self { fd, path: top.to_owned() }.open_beneath(relative)?;
        path.clone_into(&mut dir.path);
        Ok(dir)
    }

    /// Opens a directory below this one; no symlink is followed and `..` cannot leave. An empty
    /// path opens this one again. Paths longer than PATH_MAX work.
    ///
    /// # Errors
    /// ELOOP for a symlink on the way, ENOTDIR for one at the end, and for what is no directory;
    /// ENOENT, EACCES.
    pub fn open_beneath(&self, relative: &[u8]) -> Result<Self> {
        let path = if relative.is_empty() { self.path.clone() } else { self.path_of(relative) };
        let mut rest = if relative.is_empty() { b"." } else { relative };
        let mut current: Option<OwnedFd> = None;
        while rest.len() > MAX_STEP_BYTES {
            let cut = rest[..MAX_STEP_BYTES].iter().rposition(|byte| *byte == b'/');
            let Some(cut) = cut else { break };
            let from = current.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            current = Some(resolve_beneath(from, &rest[..cut], PASS_THROUGH).at("open", &path)?);
            rest = &rest[cut + 1..];
        }
        let from = current.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
        let fd = resolve_beneath(from, rest, OFlags::RDONLY).at("open", &path)?;
        Ok(Self { fd, path })
    }

    /// Opens a directory in here by one name.
    ///
    /// # Errors
    /// As [`open_beneath`](Self::open_beneath).
    pub fn open_dir(&self, name: &[u8]) -> Result<Self> {
        let path = self.path_of(name);
        let fd = rustix::fs::openat(&self.fd, name, DIR_FLAGS, Mode::empty()).at("open", &path)?;
        Ok(Self { fd, path })
    }

    /// Opens a regular file for reading. Never blocks on a FIFO that was put in its place; the
    /// caller looks at the kind. `keep_atime` asks the kernel not to record the read, which only
    /// the owner may.
    ///
    /// # Errors
    /// ELOOP for a symlink, ENOENT, EACCES.
    pub fn open_file(&self, name: &[u8], keep_atime: bool) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        if keep_atime {
            match rustix::fs::openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty()) {
                Err(Errno::PERM) => {}
                other => return Ok(other.at("open", &self.path_of(name))?.into()),
            }
        }
        let _ = keep_atime;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(fd.at("open", &self.path_of(name))?.into())
    }

    /// The bytes of a file that lie in holes; 0 where the file system does not tell, and for what
    /// is no file. Only a file that is long and takes less space than its length is opened.
    pub(crate) fn hole_bytes(&self, name: &[u8], stat: &Stat) -> u64 {
        if stat.kind != FileKind::File || stat.size < SHORT_BYTES || !stat.is_sparse() {
            return 0;
        }
        let Ok(file) = self.open_file(name, true) else { return 0 };
        let mut holes = 0;
        let counted = allocated_ranges(&file, stat.size, |_, len, is_data| {
            holes += if is_data { 0 } else { len };
            Ok::<_, std::io::Error>(())
        });
        counted.map_or(0, |()| holes)
    }
}

/// Opens a directory below `from`, `O_RDONLY` or `O_PATH`.
fn resolve_beneath(
    from: BorrowedFd<'_>,
    path: &[u8],
    access: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = DIR_FLAGS | access;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // EAGAIN: something was renamed meanwhile and the kernel could not be sure.
        loop {
            match rustix::fs::openat2(from, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                // Older kernels, and sandboxes that do not know the call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                other => return other,
            }
        }
    }
    resolve_by_component(from, path, flags)
}

/// The same promise and the same errors, one component at a time. It only misses a directory that
/// is moved away meanwhile: the opened file lay beneath when it was looked up.
fn resolve_by_component(
    from: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let mut current: Option<OwnedFd> = None;
    let mut names = path.split(|byte| *byte == b'/').peekable();
    while let Some(name) = names.next() {
        if name == b".." || name.is_empty() {
            return Err(Errno::XDEV);
        }
        let dir = current.as_ref().map_or(from, AsFd::as_fd);
        let next = if names.peek().is_none() {
            rustix::fs::openat(dir, name, flags, Mode::empty())
        } else {
            // A process that may pass through a directory may not always list it.
            rustix::fs::openat(dir, name, DIR_FLAGS | PASS_THROUGH, Mode::empty())
                .map_err(|errno| loop_if_symlink(errno, dir, name))
        };
        current = Some(next?);
    }
    current.ok_or(Errno::NOENT)
}

/// To `O_DIRECTORY | O_NOFOLLOW` a symlink is not a directory (ENOTDIR); one on the way is a loop
/// to `openat2`.
fn loop_if_symlink(errno: Errno, dir: BorrowedFd<'_>, name: &[u8]) -> Errno {
    let is_symlink = || {
        let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(found.st_mode).is_symlink())
    };
    if errno == Errno::NOTDIR && is_symlink() == Some(true) { Errno::LOOP } else { errno }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn dir() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    #[test]
    fn nothing_beneath_is_reached_through_a_symlink_or_dot_dot() {
        let (temp, dir) = dir();
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        symlink("a", temp.path().join("link")).unwrap();
        assert!(dir.open_beneath(b"a/b").is_ok());
        assert!(dir.open_beneath(b"link/b").unwrap_err().is_symlink_in_path());
        assert!(dir.open_beneath(b"link").unwrap_err().is_gone());
        assert!(dir.open_dir(b"link").unwrap_err().is_gone());
        assert!(dir.open_beneath(b"..").is_err());
        assert!(dir.open_beneath(b"/").is_err());
        let by_component = |path: &[u8]| resolve_by_component(dir.as_fd(), path, DIR_FLAGS);
        assert!(by_component(b"a/b").is_ok());
        assert_eq!(by_component(b"link/b").unwrap_err(), Errno::LOOP);
        assert_eq!(by_component(b"a/../link").unwrap_err(), Errno::XDEV);
        assert_eq!(by_component(b"a/link").unwrap_err(), Errno::NOENT);
        assert_eq!(by_component(b"link").unwrap_err(), Errno::NOTDIR);
        assert!(by_component(b"a/..").is_err());
        assert!(by_component(b"/a").is_err());
    }

    #[test]
    fn paths_beyond_path_max_are_opened() {
        let (_temp, dir) = dir();
        let mut path = Vec::new();
        let name = [b'n'; 200];
        let mut current = dir.open_beneath(b"").unwrap();
        for _ in 0..40 {
            current.make_dir(&name, 0o700).unwrap();
            current = current.open_dir(&name).unwrap();
            path.extend_from_slice(&name);
            path.push(b'/');
        }
        path.pop();
        assert!(path.len() > 8000);
        let found = dir.open_beneath(&path).unwrap().stat_self().unwrap();
        assert_eq!(found.ino, current.stat_self().unwrap().ino);
    }
}
