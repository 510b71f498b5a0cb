//! The file system that a directory is on: which one, how much room, and flushing it.

use rustix::fs::AtFlags;
#[cfg(not(target_os = "linux"))]
use rustix::io::Errno;

use super::Dir;
use crate::sys::error::{IoContext, Result};
use crate::sys::fail_point::{self, Operation};
use crate::sys::stat::FileSystemSpace;

/// A file system at one place; see [`Dir::mount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountId {
    dev: u64,
    /// None where the kernel does not tell.
    id: Option<u64>,
}

/// Magic number of FUSE, from `linux/magic.h`.
pub(crate) const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;

impl Dir {
    /// The area in which names can be moved: the file system, and the mount of it. The same file
    /// system may be mounted twice, one inside the other, and no name moves from mount to mount.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn mount(&self) -> Result<MountId> {
        #[cfg(target_os = "linux")]
        match rustix::fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::MNT_ID) {
            // Kernels before 4.11, and filters of system calls that do not know it.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            found => {
                let found = found.at("look at", &self.path)?;
                let dev = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
                // Kernels before 5.8 do not tell.
                let is_told = found.stx_mask & rustix::fs::StatxFlags::MNT_ID.bits() != 0;
                return Ok(MountId { dev, id: is_told.then_some(found.stx_mnt_id) });
            }
        }
        Ok(MountId { dev: self.stat_self()?.dev, id: None })
    }

    /// Flushes the names in this directory: a rename in it survives a power failure.
    ///
    /// # Errors
    /// EIO.
    pub fn sync(&self) -> Result<()> {
        fail_point::around(Operation::SyncDir(self), || rustix::fs::fsync(&self.fd))
            .at("flush", &self.path)
    }

    /// Flushes the whole file system that holds this directory: one call for any number of files.
    ///
    /// # Errors
    /// EIO when the kernel lost data that was not yet on the disk.
    pub fn sync_file_system(&self) -> Result<()> {
        #[cfg(target_os = "linux")]
        fail_point::around(Operation::SyncAll, || rustix::fs::syncfs(&self.fd))
            .at("flush", &self.path)?;
        #[cfg(not(target_os = "linux"))]
        fail_point::around(Operation::SyncAll, || {
            rustix::fs::sync();
            Ok::<_, Errno>(())
        })
        .at("flush", &self.path)?;
        Ok(())
    }

    /// The same, unless it is a file system among `flushed`, by their devices; then it is one.
    ///
    /// A file system notes the time of a change through a mapping of a file at the first one after
    /// a page was written back. So after a flush the next change is seen by its time.
    ///
    /// # Errors
    /// As there.
    pub fn sync_file_system_once(&self, flushed: &mut Vec<u64>) -> Result<()> {
        let device = self.stat_self()?.dev;
        if !flushed.contains(&device) {
            self.sync_file_system()?;
            flushed.push(device);
        }
        Ok(())
    }

    /// Bytes that an ordinary user can still write to this file system.
    ///
    /// # Errors
    /// Hardly any.
    pub fn free_bytes(&self) -> Result<u64> {
        Ok(self.space()?.available_bytes)
    }

    /// Room on this file system.
    ///
    /// # Errors
    /// Hardly any.
    pub fn space(&self) -> Result<FileSystemSpace> {
        let stat = rustix::fs::fstatvfs(&self.fd).at("look at the file system of", &self.path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(FileSystemSpace {
            bytes: bytes(stat.f_blocks),
            free_bytes: bytes(stat.f_bfree),
            available_bytes: bytes(stat.f_bavail),
            inodes: stat.f_files,
            free_inodes: stat.f_ffree,
        })
    }

    /// Magic number of the file system (`statfs`); 0 where the platform has none.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn file_system_type(&self) -> Result<u64> {
        #[cfg(target_os = "linux")]
        {
            let stat =
                rustix::fs::fstatfs(&self.fd).at("look at the file system of", &self.path)?;
            Ok(stat.f_type as u64)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(0)
    }
}
