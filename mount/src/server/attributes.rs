//! The attributes that `stat` shows for an entry.
//!
//! - ctime and atime equal mtime: a state has one time, and GNU `diff` compares ctime when it
//!   decides whether two paths are the same file.
//! - `st_blocks` follows from the size, so `du` shows something true of the contents.
//! - A directory has nlink 1, which programs since btrfs know as "number of subdirectories
//!   unknown". The exact number would need every subdirectory's list just to answer `stat`, and a
//!   wrong one makes programs that trust it (Perl's File::Find) skip directories.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};

use crate::options::Owner;
use crate::source::{Device, Kind, Node, TreeSource};

/// Unit of `st_blocks`, whatever the block size.
const STAT_BLOCK_BYTES: u64 = 512;
/// Preferred size of reads: a page.
const BLOCK_BYTES: u32 = 4096;

/// The attributes of `node`, shown under the inode number `number`.
pub(crate) fn file_attr<S: TreeSource + ?Sized>(
    node: &Node<S>,
    number: u64,
    owner: Owner,
) -> FileAttr {
    let size = match &node.kind {
        Kind::File { size, .. } => *size,
        Kind::Symlink { target } => target.len() as u64,
        Kind::Directory(_) => u64::from(BLOCK_BYTES),
        _ => 0,
    };
    // The kernel refuses attributes of files larger than this.
    let size = size.min(i64::MAX as u64);
    let blocks = match &node.kind {
        Kind::File { .. } => size.div_ceil(STAT_BLOCK_BYTES),
        _ => 0,
    };
    let time = system_time(node.mtime_s, node.mtime_ns);
    let (uid, gid) = match owner {
        Owner::Original => (node.uid, node.gid),
        Owner::Me { uid, gid } => (uid, gid),
    };
    FileAttr {
        ino: INodeNo(number),
        size,
        blocks,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(&node.kind),
        perm: node.mode & 0o7777,
        nlink: node.links.0.max(1),
        uid,
        gid,
        rdev: match &node.kind {
            Kind::CharDevice(device) | Kind::BlockDevice(device) => encode_device(*device),
            _ => 0,
        },
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// The `d_type` of an entry.
pub(crate) fn file_type<S: TreeSource + ?Sized>(kind: &Kind<S>) -> FileType {
    match kind {
        Kind::Directory(_) => FileType::Directory,
        Kind::File { .. } => FileType::RegularFile,
        Kind::Symlink { .. } => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice(_) => FileType::CharDevice,
        Kind::BlockDevice(_) => FileType::BlockDevice,
    }
}

/// Attributes of `.`, `..` and of a name that is not there: the number and the kind alone.
pub(crate) fn directory_alone(number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// Times before the epoch included; a time that cannot be represented becomes the epoch.
fn system_time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// The kernel's 32-bit encoding of a device number (`new_encode_dev`).
fn encode_device(device: Device) -> u32 {
    (device.minor & 0xff) | ((device.major & 0xfff) << 8) | ((device.minor & 0xfff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_keep_their_nanoseconds() {
        let time = system_time(-2, 800_000_000);
        assert_eq!(UNIX_EPOCH.duration_since(time).unwrap(), Duration::from_millis(1200));
    }

    #[test]
    fn impossible_times_become_the_epoch_and_never_panic() {
        system_time(i64::MIN, u32::MAX);
        assert_eq!(system_time(i64::MAX, u32::MAX), UNIX_EPOCH);
    }

    #[test]
    fn device_numbers_are_encoded_as_the_kernel_decodes_them() {
        assert_eq!(encode_device(Device { major: 8, minor: 1 }), 0x801);
        assert_eq!(encode_device(Device { major: 259, minor: 0x12345 }), 0x1231_0345);
    }
}
