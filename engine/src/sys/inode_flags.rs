//! Flags of inodes (`chattr`), as one more extended attribute.
//!
//! Flags belong to a file as its attributes do: they are captured, compared and restored with them.
//! The kernel gives them no name among the attributes, so they have one that no file system can
//! have: [`NAME`]. The value is the letters of `lsattr`, sorted, so equal flags are equal bytes.
//!
//! Immutable and append-only files (`i`, `a`) are no part of it. No command of a run can set or
//! clear these flags, and such a file cannot be moved into place. A restore names the files that
//! they protect from it (see [`frozen`](super::frozen)). Neither are flags that the file system
//! sets by itself, and those that only an empty directory can get.

use rustix::fd::AsFd;
#[cfg(target_os = "linux")]
use rustix::fs::IFlags;
use rustix::io::Errno;

/// The name of the attribute: without a namespace of the kernel.
pub const NAME: &[u8] = b"nono.inode-flags";

/// The letters of `chattr` with their bits (`linux/fs.h`), sorted.
const LETTERS: [(u8, u32); 13] = [
    (b'A', 0x80),
    (b'C', 0x0080_0000),
    (b'D', 0x0001_0000),
    (b'P', 0x2000_0000),
    (b'S', 0x8),
    (b'T', 0x0002_0000),
    (b'c', 0x4),
    (b'd', 0x40),
    (b'j', 0x4000),
    (b's', 0x1),
    (b't', 0x8000),
    (b'u', 0x2),
    (b'x', 0x0200_0000),
];

/// The flags of an open file or directory; empty where there are none, and on file systems without
/// them.
pub(super) fn of_fd(fd: impl AsFd) -> Vec<u8> {
    #[cfg(target_os = "linux")]
    let bits = rustix::fs::ioctl_getflags(fd).map_or(0, |flags| flags.bits());
    #[cfg(not(target_os = "linux"))]
    let bits = {
        let _ = fd;
        0
    };
    LETTERS.iter().filter(|(_, bit)| bits & bit != 0).map(|(letter, _)| *letter).collect()
}

/// Gives an open file or directory these flags, and takes the others of the table from it.
///
/// # Errors
/// EOPNOTSUPP, also where a flag is not kept or does not suit the file; EPERM.
pub(super) fn set_fd(fd: impl AsFd, letters: &[u8]) -> rustix::io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let known = LETTERS.iter().fold(0, |all, (_, bit)| all | bit);
        let wanted = LETTERS.iter().filter(|(letter, _)| letters.contains(letter));
        let wanted = wanted.fold(0, |all, (_, bit)| all | bit);
        let now = rustix::fs::ioctl_getflags(&fd).map_err(|_| Errno::NOTSUP)?.bits();
        let asked = (now & !known) | wanted;
        match rustix::fs::ioctl_setflags(&fd, IFlags::from_bits_retain(asked)) {
            Ok(()) if of_fd(&fd) == letters => Ok(()),
            Err(errno @ (Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::IO)) => Err(errno),
            Ok(()) | Err(_) => Err(Errno::NOTSUP),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (fd, letters);
        Err(Errno::NOTSUP)
    }
}
