//! An inode by its descriptor.
//!
//! Its names may change meanwhile: every question and every change is about this inode and
//! no other: no process can put another file (a foreign hard link, say) under a name between
//! two calls. A file that is open anyway needs neither a second descriptor nor a way through
//! `/proc`.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::path::PathBuf;

#[cfg(target_os = "linux")]
use rustix::fd::OwnedFd;
#[cfg(target_os = "linux")]
use rustix::fs::OFlags;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid};

use super::dir::Dir;
use super::error::{IoContext, Result};
use super::fail_point::{self, Operation};
use super::frozen;
use super::stat::{FileTime, Stat};
use super::xattr::{self, XattrPairs};

/// An inode of any kind, symlinks included.
#[derive(Debug)]
pub struct Inode {
    handle: Handle,
    /// Only for messages.
    path: PathBuf,
}

#[derive(Debug)]
enum Handle {
    /// A regular file that is open for writing.
    File(File),
    /// Opened for nothing but to hold on to it.
    #[cfg(target_os = "linux")]
    Held(OwnedFd),
    /// Where such descriptors do not exist, the name has to do.
    #[cfg(not(target_os = "linux"))]
    Named(Dir, Vec<u8>),
}

impl Handle {
    /// A path that leads to this inode, even if that is a symlink, and not beyond.
    #[cfg(target_os = "linux")]
    fn own(held: &OwnedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
    }
}

impl Inode {
    pub(super) fn open(dir: &Dir, name: &[u8]) -> Result<Self> {
        let path = dir.path_of(name);
        #[cfg(target_os = "linux")]
        {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(dir, name, flags, Mode::empty()).at("open", &path)?;
            Ok(Self { handle: Handle::Held(fd), path })
        }
        #[cfg(not(target_os = "linux"))]
        {
            dir.stat(name)?;
            Ok(Self { handle: Handle::Named(dir.open_beneath(b"")?, name.to_vec()), path })
        }
    }

    /// The inode of a file that was opened, or made, for writing.
    pub(crate) fn of_file(file: File, path: PathBuf) -> Self {
        Self { handle: Handle::File(file), path }
    }

    /// The reason why no user, not even root, can change it, if that is so.
    pub fn frozen(&self) -> Option<&'static str> {
        match &self.handle {
            Handle::File(file) => frozen::cause(file),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => frozen::cause(held),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(..) => None,
        }
    }

    /// Its attributes.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn stat(&self) -> Result<Stat> {
        let stat = match &self.handle {
            Handle::File(file) => rustix::fs::fstat(file),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => rustix::fs::fstat(held),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(dir, name) => return dir.stat(name),
        };
        Ok(Stat::from_raw(&stat.at("look at", &self.path)?))
    }

    /// Its extended attributes.
    ///
    /// # Errors
    /// EIO.
    pub fn xattrs(&self) -> Result<XattrPairs> {
        match &self.handle {
            Handle::File(file) => xattr::of_fd(file, &self.path),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => xattr::of_inode(&Handle::own(held), &self.path),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(..) => xattr::of_inode(&self.path, &self.path),
        }
    }

    /// Sets one extended attribute.
    ///
    /// # Errors
    /// EPERM, ENOTSUP, ENOSPC.
    pub(crate) fn set_xattr(&self, attribute: &[u8], value: &[u8]) -> Result<()> {
        match &self.handle {
            Handle::File(file) => xattr::set_fd(file, attribute, value, &self.path),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => xattr::set(&Handle::own(held), attribute, value, &self.path),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(..) => xattr::set(&self.path, attribute, value, &self.path),
        }
    }

    /// Removes one extended attribute.
    ///
    /// # Errors
    /// EPERM.
    pub(crate) fn remove_xattr(&self, attribute: &[u8]) -> Result<()> {
        match &self.handle {
            Handle::File(file) => xattr::remove_fd(file, attribute, &self.path),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => xattr::remove(&Handle::own(held), attribute, &self.path),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(..) => xattr::remove(&self.path, attribute, &self.path),
        }
    }

    /// Sets the 12 permission bits.
    ///
    /// # Errors
    /// EPERM; EOPNOTSUPP when it is a symlink.
    pub fn set_mode(&self, mode: u16) -> Result<()> {
        let mode = Mode::from_raw_mode(mode.into());
        fail_point::around(Operation::Attributes, || match &self.handle {
            Handle::File(file) => rustix::fs::fchmod(file, mode),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => rustix::fs::chmod(Handle::own(held), mode),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(dir, name) => {
                rustix::fs::chmodat(dir, name.as_slice(), mode, AtFlags::SYMLINK_NOFOLLOW)
            }
        })
        .at("set the mode of", &self.path)
    }

    /// Sets owner and group.
    ///
    /// # Errors
    /// EPERM for nearly everybody but root.
    pub(crate) fn set_owner(&self, uid: u32, gid: u32) -> Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        fail_point::around(Operation::Attributes, || match &self.handle {
            Handle::File(file) => rustix::fs::fchown(file, uid, gid),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => rustix::fs::chownat(held, "", uid, gid, AtFlags::EMPTY_PATH),
            #[cfg(not(target_os = "linux"))]
            Handle::Named(dir, name) => {
                rustix::fs::chownat(dir, name.as_slice(), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        })
        .at("set the owner of", &self.path)
    }

    /// Sets the modification time; the access time stays, unless the file system can only set both.
    /// `false`: it keeps another time, which is not a coarser one.
    ///
    /// # Errors
    /// EPERM.
    pub fn set_mtime(&self, mtime: FileTime) -> Result<bool> {
        let is_set = || Ok(is_kept_as(mtime, self.stat()?.mtime));
        self.set_times(&modified_at(mtime))?;
        if is_set()? {
            return Ok(true);
        }
        // Some file systems in user space ignore a time that is set alone.
        let Timestamps { last_modification, .. } = modified_at(mtime);
        self.set_times(&Timestamps { last_access: last_modification, last_modification })?;
        is_set()
    }

    fn set_times(&self, times: &Timestamps) -> Result<()> {
        fail_point::around(Operation::Attributes, || match &self.handle {
            Handle::File(file) => rustix::fs::futimens(file, times),
            #[cfg(target_os = "linux")]
            Handle::Held(held) => {
                let own = Handle::own(held);
                rustix::fs::utimensat(rustix::fs::CWD, &own, times, AtFlags::empty())
            }
            #[cfg(not(target_os = "linux"))]
            Handle::Named(dir, name) => {
                rustix::fs::utimensat(dir, name.as_slice(), times, AtFlags::SYMLINK_NOFOLLOW)
            }
        })
        .at("set the time of", &self.path)
    }
}

/// Whether a file system that is asked to keep a time may keep this one: the same, or rounded down
/// to its unit. FAT has two seconds, NTFS 100 ns, NFS and others what their server has.
fn is_kept_as(asked: FileTime, kept: FileTime) -> bool {
    const UNITS: [u32; 5] = [1, 100, 1_000, 1_000_000, 10_000_000];
    let rounded = |unit: u32| asked.nanoseconds / unit * unit;
    let is_in_second = asked.seconds == kept.seconds
        && UNITS.iter().any(|unit| rounded(*unit) == kept.nanoseconds);
    let is_second = kept.nanoseconds == 0
        && (kept.seconds == asked.seconds || kept.seconds == asked.seconds & !1);
    is_in_second || is_second
}

fn modified_at(mtime: FileTime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_kept_time_is_the_one_that_was_asked_for_or_a_coarser_one() {
        let time = |seconds, nanoseconds| FileTime { seconds, nanoseconds };
        let asked = time(1_001, 123_456_789);
        for kept in [
            asked,
            time(1_001, 123_456_700),
            time(1_001, 123_456_000),
            time(1_001, 123_000_000),
            time(1_001, 120_000_000),
            time(1_001, 0),
            time(1_000, 0),
        ] {
            assert!(is_kept_as(asked, kept), "{kept:?}");
        }
        for other in [time(1_001, 123_456_790), time(1_002, 0), time(999, 0), time(1_000, 1)] {
            assert!(!is_kept_as(asked, other), "{other:?}");
        }
    }

    #[test]
    fn what_a_symlink_points_to_is_never_changed() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        fs::write(temp.path().join("file"), b"").unwrap();
        symlink("file", temp.path().join("link")).unwrap();
        let before = dir.stat(b"file").unwrap();
        let (link, time) = (dir.inode(b"link").unwrap(), FileTime { seconds: 5, nanoseconds: 6 });
        assert!(link.set_mode(0o777).is_err());
        assert!(link.set_xattr(b"user.test", b"x").is_err());
        link.set_mtime(time).unwrap();
        assert_eq!(dir.stat(b"link").unwrap().mtime, time);
        assert_eq!(dir.stat(b"file").unwrap(), before);
        dir.inode(b"file").unwrap().set_mode(0o4711).unwrap();
        assert_eq!(dir.stat(b"file").unwrap().mode, 0o4711);
    }

    #[test]
    fn what_gets_the_name_later_is_not_changed() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name);
        let dir = Dir::open(temp.path()).unwrap();
        fs::write(path("file"), b"").unwrap();
        fs::write(path("other"), b"").unwrap();
        let before = dir.stat(b"other").unwrap();
        let held = dir.inode(b"file").unwrap();
        fs::rename(path("file"), path("moved")).unwrap();
        fs::hard_link(path("other"), path("file")).unwrap();
        held.set_mode(0o640).unwrap();
        held.set_mtime(FileTime { seconds: 5, nanoseconds: 6 }).unwrap();
        held.set_owner(before.uid, before.gid).unwrap();
        assert_eq!(dir.stat(b"moved").unwrap().mode, 0o640);
        let after = dir.stat(b"other").unwrap();
        assert_eq!((after.mode, after.mtime), (before.mode, before.mtime));
    }
}
