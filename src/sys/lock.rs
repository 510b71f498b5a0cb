//! Advisory locks on files (`flock`): shared by every process, released by the kernel when the
//! process ends in whatever way.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::error::{IoContext, Result};

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub struct FileLock {
    _fd: OwnedFd,
}

impl FileLock {
    /// Takes the lock for shared use, waiting for an exclusive holder.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub(crate) fn shared(path: &Path) -> Result<Self> {
        Self::wait(path, FlockOperation::LockShared)
    }

    /// Takes the lock for exclusive use, waiting for all other holders.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub(crate) fn exclusive(path: &Path) -> Result<Self> {
        Self::wait(path, FlockOperation::LockExclusive)
    }

    /// Takes the lock for exclusive use if nobody holds it.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub(crate) fn try_exclusive(path: &Path) -> Result<Option<Self>> {
        Self::attempt(path, FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock for shared use if nobody holds it exclusively.
    ///
    /// # Errors
    /// When the lock file cannot be made or opened.
    pub(crate) fn try_shared(path: &Path) -> Result<Option<Self>> {
        Self::attempt(path, FlockOperation::NonBlockingLockShared)
    }

    fn attempt(path: &Path, operation: FlockOperation) -> Result<Option<Self>> {
        let fd = open(path)?;
        match rustix::fs::flock(&fd, operation) {
            Ok(()) => Ok(Some(Self { _fd: fd })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno).at("lock", path),
        }
    }

    fn wait(path: &Path, operation: FlockOperation) -> Result<Self> {
        let fd = open(path)?;
        loop {
            match rustix::fs::flock(&fd, operation) {
                Ok(()) => return Ok(Self { _fd: fd }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).at("lock", path),
            }
        }
    }
}

fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).at("open the lock", path)
}
