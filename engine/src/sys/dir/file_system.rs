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

    /// Bytes that an ordinary user can still write to this file system. `None`: it does not tell,
    /// as file systems of FUSE need not.
    ///
    /// # Errors
    /// Hardly any.
    pub fn free_bytes(&self) -> Result<Option<u64>> {
        let space = self.space()?;
        Ok((space.bytes > 0).then_some(space.available_bytes))
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

/// File systems that show something else than stored files, nono's own mounts among them. Numbers
/// are from `statfs(2)`.
pub(crate) fn is_virtual_file_system(magic: u64) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const DEVPTS: u64 = 0x1cd1;
    const CGROUP: u64 = 0x0027_e0eb;
    const CGROUP2: u64 = 0x6367_7270;
    const DEBUGFS: u64 = 0x6462_6720;
    const TRACEFS: u64 = 0x7472_6163;
    const SECURITYFS: u64 = 0x7363_6673;
    const AUTOFS: u64 = 0x0187;
    let others = [PROC, SYSFS, DEVPTS, CGROUP, CGROUP2, DEBUGFS, TRACEFS, SECURITYFS, AUTOFS];
    magic == FUSE_SUPER_MAGIC || others.contains(&magic)
}

/// File systems whose changes the kernel of this machine makes itself, so it can tell of all of
/// them. Numbers are from `statfs(2)`.
pub(crate) fn is_local_file_system(magic: u64) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const F2FS: u64 = 0xf2f5_2010;
    const BCACHEFS: u64 = 0xca45_1a4e;
    const ZFS: u64 = 0x2fc1_2fc1;
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    const OVERLAYFS: u64 = 0x794c_7630;
    [EXT, XFS, BTRFS, F2FS, BCACHEFS, ZFS, TMPFS, RAMFS, OVERLAYFS].contains(&magic)
}
