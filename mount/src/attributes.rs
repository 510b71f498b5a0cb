//! What `stat` shows for an entry.
//!
//! - ctime and atime equal mtime: a state has one time, and GNU `diff` compares ctime when it decides
//!   whether two paths are the same file.
//! - `st_blocks` follows from the size, so `du` shows something true of the contents.
//! - A directory has nlink 1, which programs since btrfs know as "number of subdirectories unknown".
//!   The exact number would need every subdirectory's list just to answer `stat`, and a wrong one
//!   makes programs that trust it (Perl's File::Find) skip directories.

use rustix::fs::FileType;

use crate::options::Owner;
use crate::source::{Device, Kind, Node, TreeSource};
use crate::wire::Attr;

/// Unit of `st_blocks`, whatever the block size.
const STAT_BLOCK_BYTES: u64 = 512;
/// Preferred size of reads: a page.
const BLOCK_BYTES: u32 = 4096;

/// The attributes of `node`, shown under the inode number `number`.
pub(crate) fn attributes<S: TreeSource + ?Sized>(
    node: &Node<S>,
    number: u64,
    owner: Owner,
) -> Attr {
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
    let (uid, gid) = match owner {
        Owner::Original => (node.uid, node.gid),
        Owner::Me { uid, gid } => (uid, gid),
    };
    Attr {
        ino: number,
        size,
        blocks,
        atime: node.mtime_s,
        mtime: node.mtime_s,
        ctime: node.mtime_s,
        atime_ns: node.mtime_ns,
        mtime_ns: node.mtime_ns,
        ctime_ns: node.mtime_ns,
        mode: file_type(&node.kind).as_raw_mode() | u32::from(node.mode & 0o7777),
        nlink: node.links.0.max(1),
        uid,
        gid,
        rdev: match &node.kind {
            Kind::CharDevice(device) | Kind::BlockDevice(device) => encode_device(*device),
            _ => 0,
        },
        block_bytes: BLOCK_BYTES,
        flags: 0,
    }
}

/// What a list without attributes says of `node`: its number and its kind.
pub(crate) fn kind_alone<S: TreeSource + ?Sized>(kind: &Kind<S>, number: u64) -> Attr {
    Attr { ino: number, mode: file_type(kind).as_raw_mode(), ..Attr::default() }
}

/// As [`kind_alone`], of `.` and `..`.
pub(crate) fn directory_alone(number: u64) -> Attr {
    Attr { ino: number, mode: FileType::Directory.as_raw_mode(), ..Attr::default() }
}

impl Attr {
    pub(crate) fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::Directory
    }

    /// The times of a changing directory show how often its list has changed.
    pub(crate) fn add_version(&mut self, version: u32) {
        const SECOND_NS: u64 = 1_000_000_000;
        let ns = u64::from(self.mtime_ns) + u64::from(version);
        self.mtime = self.mtime.saturating_add((ns / SECOND_NS) as i64);
        self.mtime_ns = (ns % SECOND_NS) as u32;
        (self.ctime, self.ctime_ns) = (self.mtime, self.mtime_ns);
    }
}

fn file_type<S: TreeSource + ?Sized>(kind: &Kind<S>) -> FileType {
    match kind {
        Kind::Directory(_) => FileType::Directory,
        Kind::File { .. } => FileType::RegularFile,
        Kind::Symlink { .. } => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice(_) => FileType::CharacterDevice,
        Kind::BlockDevice(_) => FileType::BlockDevice,
    }
}

/// The kernel's 32-bit encoding of a device number (`new_encode_dev`).
fn encode_device(device: Device) -> u32 {
    (device.minor & 0xff) | ((device.major & 0xfff) << 8) | ((device.minor & 0xfff00) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_list_is_in_its_times() {
        let mut attr = Attr { mtime: -1, mtime_ns: 999_999_999, ..Attr::default() };
        attr.add_version(2);
        assert_eq!((attr.mtime, attr.mtime_ns), (0, 1));
        assert_eq!((attr.ctime, attr.ctime_ns), (0, 1));
        assert_eq!(attr.atime_ns, 0);
    }

    #[test]
    fn device_numbers_are_encoded_as_the_kernel_decodes_them() {
        assert_eq!(encode_device(Device { major: 8, minor: 1 }), 0x801);
        assert_eq!(encode_device(Device { major: 259, minor: 0x12345 }), 0x1231_0345);
    }
}
