//! Extended attributes, and the [flags](super::inode_flags) as one of them.
//!
//! ACLs are extended attributes as well (`system.posix_acl_*`). Labels that the system's own policy
//! derives (SELinux, Smack, IMA, EVM) are left out: restoring them is the policy's business, and
//! copying an old measurement onto new contents would break the file.

use std::path::Path;

#[cfg(target_os = "linux")]
use rustix::fd::AsRawFd;
use rustix::fd::{AsFd, OwnedFd};
#[cfg(target_os = "linux")]
use rustix::fs::{FileType, Mode};
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

use super::error::{IoContext, Result};
use super::inode_flags;

const SET_FLAGS: &str = "set the flags of";

/// Names and values.
pub(crate) type XattrPairs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Whether an attribute is part of a snapshot.
pub(crate) fn is_captured_xattr(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"trusted.")
        || name == b"security.capability"
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
        || cfg!(target_os = "macos")
}

/// Attributes of an open file or directory, with its flags.
pub(super) fn of_fd(fd: impl AsFd, shown: &Path) -> Result<XattrPairs> {
    let mut pairs = read(
        |list| rustix::fs::flistxattr(&fd, list),
        |name, value| rustix::fs::fgetxattr(&fd, name, value),
        shown,
    )?;
    push_flags(&mut pairs, inode_flags::of_fd(fd));
    Ok(pairs)
}

/// Attributes of what a path names, without following it if it is a symlink.
pub(super) fn of_path(path: &Path, shown: &Path) -> Result<XattrPairs> {
    let mut pairs = read(
        |list| rustix::fs::llistxattr(path, list),
        |name, value| rustix::fs::lgetxattr(path, name, value),
        shown,
    )?;
    push_flags(&mut pairs, opened(path, OFlags::NOFOLLOW).map_or(Vec::new(), inode_flags::of_fd));
    Ok(pairs)
}

fn push_flags(pairs: &mut XattrPairs, flags: Vec<u8>) {
    if !flags.is_empty() {
        pairs.push((inode_flags::NAME.into(), flags.into()));
    }
}

/// A file or directory, opened for its flags. Nothing else has any, and to open it may have an
/// effect.
#[cfg(target_os = "linux")]
fn opened(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let held = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())?;
    match FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode) {
        FileType::RegularFile | FileType::Directory => {}
        _ => return Err(Errno::NOTSUP),
    }
    let own = format!("/proc/self/fd/{}", held.as_raw_fd());
    let readable = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(own, readable, Mode::empty())
}

/// There are no flags here.
#[cfg(not(target_os = "linux"))]
fn opened(_path: &Path, _flags: OFlags) -> rustix::io::Result<OwnedFd> {
    Err(Errno::NOTSUP)
}

fn read(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
    shown: &Path,
) -> Result<XattrPairs> {
    let names = match grow(|buffer| list(buffer)) {
        Ok(names) => names,
        // File systems without xattrs, and files whose kind has none.
        Err(Errno::NOTSUP | Errno::NOSYS | Errno::PERM) => return Ok(Vec::new()),
        Err(errno) => return Err(errno).at("list the extended attributes of", shown),
    };
    let mut pairs = Vec::new();
    for name in names.split(|byte| *byte == 0).filter(|name| is_captured_xattr(name)) {
        match grow(|buffer| get(name, buffer)) {
            Ok(value) => pairs.push((name.into(), value.into())),
            // Removed since it was listed, or for privileged eyes only.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(errno) => return Err(errno).at("read the extended attributes of", shown),
        }
    }
    Ok(pairs)
}

/// Calls with a buffer that grows until the answer fits; nearly always the first, small one does.
fn grow(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut small = [0u8; 256];
    match call(&mut small) {
        Ok(len) => return Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(errno) => return Err(errno),
    }
    let mut large = vec![0u8; 65536];
    let len = call(&mut large)?;
    large.truncate(len);
    Ok(large)
}

/// Attributes of the inode that a path of its descriptor leads to (`/proc/self/fd/N`), and which is
/// not followed further. Where there are no such paths, those of what a path names.
pub(super) fn of_inode(own: &Path, shown: &Path) -> Result<XattrPairs> {
    #[cfg(not(target_os = "linux"))]
    return of_path(own, shown);
    #[cfg(target_os = "linux")]
    {
        let mut pairs = read(
            |list| rustix::fs::listxattr(own, list),
            |name, value| rustix::fs::getxattr(own, name, value),
            shown,
        )?;
        push_flags(&mut pairs, opened(own, OFlags::empty()).map_or(Vec::new(), inode_flags::of_fd));
        Ok(pairs)
    }
}

/// Sets one attribute of an open file.
pub(super) fn set_fd(fd: impl AsFd, name: &[u8], value: &[u8], shown: &Path) -> Result<()> {
    if name == inode_flags::NAME {
        return inode_flags::set_fd(fd, value).at(SET_FLAGS, shown);
    }
    rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty())
        .at("set an extended attribute of", shown)
}

/// Removes one attribute of an open file; one that is gone already is fine.
pub(super) fn remove_fd(fd: impl AsFd, name: &[u8], shown: &Path) -> Result<()> {
    if name == inode_flags::NAME {
        return inode_flags::set_fd(fd, b"").at(SET_FLAGS, shown);
    }
    removed(rustix::fs::fremovexattr(fd, name), shown)
}

/// Sets one attribute of an inode, as [`of_inode`] finds it.
pub(super) fn set(own: &Path, name: &[u8], value: &[u8], shown: &Path) -> Result<()> {
    if name == inode_flags::NAME {
        return set_flags(own, value, shown);
    }
    #[cfg(not(target_os = "linux"))]
    let set = rustix::fs::lsetxattr(own, name, value, XattrFlags::empty());
    #[cfg(target_os = "linux")]
    let set = rustix::fs::setxattr(own, name, value, XattrFlags::empty());
    set.at("set an extended attribute of", shown)
}

/// Removes one attribute of an inode, as [`of_inode`] finds it; one that is gone already is fine.
pub(super) fn remove(own: &Path, name: &[u8], shown: &Path) -> Result<()> {
    if name == inode_flags::NAME {
        return set_flags(own, b"", shown);
    }
    #[cfg(not(target_os = "linux"))]
    let answer = rustix::fs::lremovexattr(own, name);
    #[cfg(target_os = "linux")]
    let answer = rustix::fs::removexattr(own, name);
    removed(answer, shown)
}

fn set_flags(own: &Path, flags: &[u8], shown: &Path) -> Result<()> {
    let set = opened(own, OFlags::empty()).and_then(|opened| inode_flags::set_fd(opened, flags));
    set.at(SET_FLAGS, shown)
}

fn removed(answer: rustix::io::Result<()>, shown: &Path) -> Result<()> {
    match answer {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(errno) => Err(errno).at("remove an extended attribute of", shown),
    }
}
