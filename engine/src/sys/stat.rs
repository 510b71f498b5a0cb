//! The answer of `stat` about a file.

use jiff::Timestamp;
use rustix::fs::FileType;

/// A point in time with nanoseconds, as file systems keep it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileTime {
    /// Whole seconds since 1970-01-01 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

impl FileTime {
    /// Whether a change after a look that began at `start` ([`coarse_now`]) could leave this ctime
    /// as it is.
    pub fn is_racy(self, start: Self) -> bool {
        // File systems that keep whole seconds (or two) cannot tell changes within one apart.
        let slack = if self.nanoseconds == 0 { 2 } else { 0 };
        Self { seconds: self.seconds.saturating_add(slack), ..self } >= start
    }

    /// The same as a time of a manifest; `None`: the year is beyond 9999, or before -9999.
    pub fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.seconds, i32::try_from(self.nanoseconds).ok()?).ok()
    }
}

/// Major and minor number of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Kind of a directory entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    pub(super) fn from_raw(kind: FileType) -> Option<Self> {
        Some(match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// Room on a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileSystemSpace {
    /// Size in bytes; 0 where the file system does not tell its space.
    pub bytes: u64,
    /// Bytes that no file uses.
    pub free_bytes: u64,
    /// Bytes that an ordinary user can still use.
    pub available_bytes: u64,
    /// Number of inodes, used and free; 0 where the file system does not count them.
    pub inodes: u64,
    /// Inodes that no file uses.
    pub free_inodes: u64,
}

/// Attributes of one inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Device the inode is on.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileKind,
    /// 12 permission bits.
    pub mode: u16,
    /// Number of names.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last modification of the contents.
    pub mtime: FileTime,
    /// Last change of the inode; no program can set it.
    pub ctime: FileTime,
    /// For a device node, which device.
    pub device: Device,
}

impl Stat {
    #[allow(
        clippy::unnecessary_cast,
        clippy::useless_conversion,
        reason = "the types differ between platforms"
    )]
    pub(super) fn from_raw(raw: &rustix::fs::Stat) -> Self {
        let time = |seconds, nanoseconds| FileTime {
            seconds: seconds as i64,
            nanoseconds: nanoseconds as u32,
        };
        Self {
            dev: raw.st_dev as u64,
            ino: raw.st_ino as u64,
            // Kinds that do not exist on Linux or macOS are treated like devices: never read.
            kind: FileKind::from_raw(FileType::from_raw_mode(raw.st_mode))
                .unwrap_or(FileKind::CharDevice),
            mode: (raw.st_mode & 0o7777) as u16,
            nlink: raw.st_nlink as u64,
            uid: raw.st_uid,
            gid: raw.st_gid,
            size: u64::try_from(raw.st_size).unwrap_or(0),
            blocks: u64::try_from(raw.st_blocks).unwrap_or(0),
            mtime: time(raw.st_mtime, raw.st_mtime_nsec),
            ctime: time(raw.st_ctime, raw.st_ctime_nsec),
            device: Device {
                major: rustix::fs::major(raw.st_rdev),
                minor: rustix::fs::minor(raw.st_rdev),
            },
        }
    }

    /// Whether the file takes less space than its length: it has holes (or is compressed).
    pub(crate) fn is_sparse(&self) -> bool {
        self.blocks.saturating_mul(512) < self.size
    }

    /// Bytes that its contents take: its length, or the space that it takes where that is less.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.size.min(self.blocks.saturating_mul(512))
    }

    /// Whether this is the same inode in the same state as `other`, as far as `stat` can tell.
    pub(crate) fn same_state(&self, other: &Stat) -> bool {
        (self.dev, self.ino, self.kind, self.size, self.mtime, self.ctime)
            == (other.dev, other.ino, other.kind, other.size, other.mtime, other.ctime)
    }
}

/// The time that the kernel would put on a file that is changed now.
///
/// Kernels stamp inodes with the coarse clock, which can lag the fine one by a tick; comparing a
/// ctime with the fine clock would call a just-changed file old.
pub fn coarse_now() -> FileTime {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::RealtimeCoarse;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Realtime;
    let now = rustix::time::clock_gettime(clock);
    FileTime { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
}
