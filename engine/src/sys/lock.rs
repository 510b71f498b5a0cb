//! Advisory locks on files and directories (`flock`): shared by every process, released by the
//! kernel when the process ends in whatever way.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::dir::Dir;
use super::error::{IoContext, Result};

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub struct FileLock {
    _fd: OwnedFd,
}

impl FileLock {
    /// Takes the lock for shared use, waiting for an exclusive holder. A lock file that cannot be
    /// written is locked all the same.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub(crate) fn shared(path: &Path) -> Result<Self> {
        wait(open_shared(path)?, FlockOperation::LockShared, path)
    }

    /// Takes the lock for exclusive use, waiting for all other holders.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub fn exclusive(path: &Path) -> Result<Self> {
        Self::wait(path, FlockOperation::LockExclusive)
    }

    /// Takes the lock for exclusive use if it is free.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub fn try_exclusive(path: &Path) -> Result<Option<Self>> {
        Self::attempt(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// As `shared`, if no other process holds the lock exclusively.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub fn try_shared(path: &Path) -> Result<Option<Self>> {
        attempt(open_shared(path)?, FlockOperation::NonBlockingLockShared, path)
    }

    /// Whether another process holds the lock exclusively. Writes nothing and makes no lock file, so
    /// a look at a lock is no change of its directory.
    ///
    /// # Errors
    /// When the lock file cannot be opened.
    pub fn is_held(path: &Path) -> Result<bool> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            fd => fd.at("open the lock", path)?,
        };
        // Shared, so that two who look do not take each other for a holder.
        Ok(attempt(fd, FlockOperation::NonBlockingLockShared, path)?.is_none())
    }

    /// Takes the lock of a directory itself for shared use, waiting for an exclusive holder.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn shared_dir(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty()).at("open", path)?;
        wait(fd, FlockOperation::LockShared, path)
    }

    /// Takes the lock of an open directory itself, for exclusive use, waiting for all other
    /// holders.
    ///
    /// # Errors
    /// Hardly any.
    pub fn exclusive_of(dir: &Dir) -> Result<Self> {
        wait(open_again(dir)?, FlockOperation::LockExclusive, dir.path())
    }

    /// Takes the lock of an open directory itself, for exclusive use, if it is free.
    ///
    /// # Errors
    /// Hardly any.
    pub fn try_exclusive_of(dir: &Dir) -> Result<Option<Self>> {
        attempt(open_again(dir)?, FlockOperation::NonBlockingLockExclusive, dir.path())
    }

    fn attempt(path: &Path, operation: FlockOperation) -> Result<Option<Self>> {
        attempt(open(path)?, operation, path)
    }

    fn wait(path: &Path, operation: FlockOperation) -> Result<Self> {
        wait(open(path)?, operation, path)
    }
}

fn attempt(fd: OwnedFd, operation: FlockOperation, path: &Path) -> Result<Option<FileLock>> {
    match rustix::fs::flock(&fd, operation) {
        Ok(()) => Ok(Some(FileLock { _fd: fd })),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno).at("lock", path),
    }
}

fn wait(fd: OwnedFd, operation: FlockOperation, path: &Path) -> Result<FileLock> {
    loop {
        match rustix::fs::flock(&fd, operation) {
            Ok(()) => return Ok(FileLock { _fd: fd }),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).at("lock", path),
        }
    }
}

/// A descriptor of its own: a lock belongs to what one `open` made, not to the directory.
fn open_again(dir: &Dir) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::empty()).at("open", dir.path())
}

/// On a file system that is mounted read-only here, others may write, and then they lock the same
/// file.
fn open_shared(path: &Path) -> Result<OwnedFd> {
    open(path).or_else(|error| {
        if !error.is_not_writable() {
            return Err(error);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|_| error)
    })
}

fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).at("open the lock", path)
}
