//! A directory by its descriptor.
//!
//! All methods take one name (never a path) unless they say *beneath*, never follow a symlink, and
//! put the full path into their errors.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::error::{IoContext, Result};
use super::fail_point::{self, Operation, Place};
use super::frozen;
use super::inode::Inode;
use super::stat::{FileKind, FileSystemSpace, Stat};
use super::xattr::{self, XattrPairs};
use crate::path_text::to_path;

/// An open directory.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// Only for messages: the directory may have been moved since.
    path: PathBuf,
}

/// A file system at one place; see [`Dir::mount`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountId {
    dev: u64,
    /// None where the kernel does not tell.
    id: Option<u64>,
}

/// A name found in a directory, with its kind where the file system tells it for free.
#[derive(Debug, Clone)]
pub(crate) struct ListedName {
    /// One path component.
    pub name: Box<[u8]>,
    /// The kind, if known.
    pub kind: Option<FileKind>,
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
/// Longest relative path given to one call, below PATH_MAX.
const MAX_STEP_BYTES: usize = 4000;

impl Dir {
    /// Opens a directory that a person named; symlinks in the path are followed.
    ///
    /// # Errors
    /// When it is missing, not a directory, or may not be read.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = DIR_FLAGS.difference(OFlags::NOFOLLOW);
        let fd = rustix::fs::openat(CWD, path, flags, Mode::empty()).at("open", path)?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens an absolute directory in whose path nothing is a symlink.
    ///
    /// # Errors
    /// ELOOP when a component is one; else as [`open`](Self::open).
    pub(crate) fn open_no_symlinks(path: &Path) -> Result<Self> {
        let Some(relative) = path.as_os_str().as_bytes().strip_prefix(b"/") else {
            return Err(Errno::INVAL).at("open without symlinks", path);
        };
        let mut dir = Self::open(Path::new("/"))?.open_beneath(relative)?;
        path.clone_into(&mut dir.path);
        Ok(dir)
    }

    /// Where the directory was when it was opened.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in here, for messages.
    pub(crate) fn path_of(&self, name: &[u8]) -> PathBuf {
        self.path.join(to_path(name))
    }

    /// Opens a directory below this one; no symlink is followed and `..` cannot leave. An empty
    /// path opens this one again. Paths longer than PATH_MAX work.
    ///
    /// # Errors
    /// ELOOP for a symlink, ENOTDIR, ENOENT, EACCES.
    pub(crate) fn open_beneath(&self, relative: &[u8]) -> Result<Self> {
        let path = if relative.is_empty() { self.path.clone() } else { self.path_of(relative) };
        let mut rest = if relative.is_empty() { b"." } else { relative };
        let mut current: Option<OwnedFd> = None;
        while rest.len() > MAX_STEP_BYTES {
            let cut = rest[..MAX_STEP_BYTES].iter().rposition(|byte| *byte == b'/');
            let Some(cut) = cut else { break };
            let from = current.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            current = Some(resolve_beneath(from, &rest[..cut], OFlags::PATH).at("open", &path)?);
            rest = &rest[cut + 1..];
        }
        let from = current.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
        let fd = resolve_beneath(from, rest, OFlags::RDONLY).at("open", &path)?;
        Ok(Self { fd, path })
    }

    /// Opens a directory in here by one name.
    ///
    /// # Errors
    /// As [`open_beneath`](Self::open_beneath).
    pub(crate) fn open_dir(&self, name: &[u8]) -> Result<Self> {
        let path = self.path_of(name);
        let fd = rustix::fs::openat(&self.fd, name, DIR_FLAGS, Mode::empty()).at("open", &path)?;
        Ok(Self { fd, path })
    }

    /// Opens a regular file for reading. Never blocks on a FIFO that was put in its place; the
    /// caller looks at the kind. `keep_atime` asks the kernel not to record the read, which only
    /// the owner may.
    ///
    /// # Errors
    /// ELOOP for a symlink, ENOENT, EACCES.
    pub(crate) fn open_file(&self, name: &[u8], keep_atime: bool) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        #[cfg(target_os = "linux")]
        if keep_atime {
            match rustix::fs::openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty()) {
                Err(Errno::PERM) => {}
                other => return Ok(other.at("open", &self.path_of(name))?.into()),
            }
        }
        let _ = keep_atime;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(fd.at("open", &self.path_of(name))?.into())
    }

    /// Attributes of a name.
    ///
    /// # Errors
    /// ENOENT, EACCES.
    pub fn stat(&self, name: &[u8]) -> Result<Stat> {
        let raw = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(std::io::Error::from);
        // The path is built only for an error: this is the hottest call of a capture.
        match raw {
            Ok(raw) => Ok(Stat::from_raw(&raw)),
            Err(error) => Err(error).at("look at", &self.path_of(name)),
        }
    }

    /// Attributes of a name, or `None` when there is nothing of that name.
    ///
    /// # Errors
    /// EACCES.
    pub(crate) fn try_stat(&self, name: &[u8]) -> Result<Option<Stat>> {
        match self.stat(name) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Attributes of the directory itself.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn stat_self(&self) -> Result<Stat> {
        Ok(Stat::from_raw(&rustix::fs::fstat(&self.fd).at("look at", &self.path)?))
    }

    /// Attributes of an open file of this directory.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn stat_file(&self, file: &File, name: &[u8]) -> Result<Stat> {
        Ok(Stat::from_raw(&rustix::fs::fstat(file).at("look at", &self.path_of(name))?))
    }

    /// What names can be moved about in: the file system, and the mount of it. The same file system may be
    /// mounted twice, one inside the other, and no name moves from mount to mount.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn mount(&self) -> Result<MountId> {
        #[cfg(target_os = "linux")]
        if let Ok(found) =
            rustix::fs::statx(&self.fd, "", AtFlags::EMPTY_PATH, rustix::fs::StatxFlags::MNT_ID)
        {
            let dev = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
            // Kernels before 5.8 do not tell.
            let is_told = found.stx_mask & rustix::fs::StatxFlags::MNT_ID.bits() != 0;
            return Ok(MountId { dev, id: is_told.then_some(found.stx_mnt_id) });
        }
        Ok(MountId { dev: self.stat_self()?.dev, id: None })
    }

    /// All names but `.` and `..`, in no order.
    ///
    /// # Errors
    /// EIO, or EACCES on some network file systems.
    pub(crate) fn names(&self) -> Result<Vec<ListedName>> {
        let mut names = Vec::new();
        #[cfg(target_os = "linux")]
        {
            // The descriptor may have been read to its end before.
            rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::Start(0)).at("list", &self.path)?;
            let mut buffer = Vec::with_capacity(32 * 1024);
            let mut entries = rustix::fs::RawDir::new(&self.fd, buffer.spare_capacity_mut());
            while let Some(entry) = entries.next() {
                let entry = entry.at("list", &self.path)?;
                let name = entry.file_name().to_bytes();
                if !matches!(name, b"." | b"..") {
                    let kind = FileKind::from_raw(entry.file_type());
                    names.push(ListedName { name: name.into(), kind });
                }
            }
        }
        #[cfg(not(target_os = "linux"))]
        for entry in rustix::fs::Dir::read_from(&self.fd).at("list", &self.path)? {
            let entry = entry.at("list", &self.path)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                let kind = FileKind::from_raw(entry.file_type());
                names.push(ListedName { name: name.into(), kind });
            }
        }
        Ok(names)
    }

    /// The target of a symlink, as bytes.
    ///
    /// # Errors
    /// EINVAL when it is none.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new());
        Ok(target.at("read the link", &self.path_of(name))?.into_bytes())
    }

    /// Extended attributes of the directory itself.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn xattrs_self(&self) -> Result<XattrPairs> {
        xattr::of_fd(&self.fd, &self.path)
    }

    /// Extended attributes of an open file of this directory.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn xattrs_file(&self, file: &File, name: &[u8]) -> Result<XattrPairs> {
        xattr::of_fd(file, &self.path_of(name))
    }

    /// Extended attributes of a name, which may be a symlink or a special file.
    ///
    /// # Errors
    /// EIO, ENOENT.
    pub(crate) fn xattrs(&self, name: &[u8]) -> Result<XattrPairs> {
        xattr::of_path(&self.proc_path(name), &self.path_of(name))
    }

    /// Holds on to the inode that a name has now, symlinks included.
    ///
    /// # Errors
    /// ENOENT.
    pub(crate) fn inode(&self, name: &[u8]) -> Result<Inode> {
        Inode::open(self, name)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub fn make_dir(&self, name: &[u8], mode: u16) -> Result<()> {
        fail_point::around(Operation::MakeDir(Place(self, name)), || {
            rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode.into()))
        })
        .at("make the directory", &self.path_of(name))
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub(crate) fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<()> {
        fail_point::around(Operation::Create(Place(self, name)), || {
            rustix::fs::symlinkat(target, &self.fd, name)
        })
        .at("make the symlink", &self.path_of(name))
    }

    /// Makes a named pipe.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub(crate) fn make_fifo(&self, name: &[u8], mode: u16) -> Result<()> {
        #[cfg(target_os = "linux")]
        let made = fail_point::around(Operation::Create(Place(self, name)), || {
            let mode = Mode::from_raw_mode(mode.into());
            rustix::fs::mknodat(&self.fd, name, rustix::fs::FileType::Fifo, mode, 0)
        });
        #[cfg(not(target_os = "linux"))]
        let made: rustix::io::Result<()> = Err(Errno::NOTSUP).inspect_err(|_| {
            let _ = mode;
        });
        made.at("make the named pipe", &self.path_of(name))
    }

    /// Makes a file that must not exist yet, open for reading and writing.
    ///
    /// # Errors
    /// EEXIST, EACCES, ENOSPC.
    pub(crate) fn create_file(&self, name: &[u8], mode: u16) -> Result<File> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = fail_point::around(Operation::Create(Place(self, name)), || {
            rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode.into()))
        });
        Ok(fd.at("make the file", &self.path_of(name))?.into())
    }

    /// Gives a file of this directory a second name in `target`.
    ///
    /// # Errors
    /// EEXIST, EXDEV, EMLINK.
    pub(crate) fn link(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        fail_point::around(Operation::Link(Place(target, new_name)), || {
            rustix::fs::linkat(&self.fd, name, &target.fd, new_name, AtFlags::empty())
        })
        .at("link", &target.path_of(new_name))
    }

    /// Moves a name; what has the new name is replaced.
    ///
    /// # Errors
    /// EXDEV, ENOENT, EACCES.
    pub(crate) fn rename(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        fail_point::around(Operation::Rename(Place(self, name), Place(target, new_name)), || {
            rustix::fs::renameat(&self.fd, name, &target.fd, new_name)
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name), (target, new_name)]))
        .at("rename", &target.path_of(new_name))
    }

    /// Moves a name to one that must be free.
    ///
    /// # Errors
    /// EEXIST when it is taken; EXDEV, ENOENT, EACCES.
    pub(crate) fn rename_new(&self, name: &[u8], target: &Dir, new_name: &[u8]) -> Result<()> {
        self.rename_with(name, target, new_name, RenameFlags::NOREPLACE)
    }

    /// Exchanges two names atomically.
    ///
    /// # Errors
    /// ENOENT when one is missing; EXDEV, EACCES, EINVAL where the file system cannot.
    pub(crate) fn exchange(&self, name: &[u8], target: &Dir, other: &[u8]) -> Result<()> {
        self.rename_with(name, target, other, RenameFlags::EXCHANGE)
    }

    fn rename_with(
        &self,
        name: &[u8],
        target: &Dir,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (Place(self, name), Place(target, new_name));
        let operation = if flags.contains(RenameFlags::EXCHANGE) {
            Operation::Exchange(from, to)
        } else {
            Operation::Rename(from, to)
        };
        fail_point::around(operation, || {
            rustix::fs::renameat_with(&self.fd, name, &target.fd, new_name, flags)
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name), (target, new_name)]))
        .at("rename", &target.path_of(new_name))
    }

    /// Removes a name that is not a directory.
    ///
    /// # Errors
    /// ENOENT, EISDIR, EACCES.
    pub(crate) fn remove_file(&self, name: &[u8]) -> Result<()> {
        fail_point::around(Operation::Remove(Place(self, name)), || {
            rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name)]))
        .at("remove", &self.path_of(name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY, ENOENT, EACCES.
    pub(crate) fn remove_dir(&self, name: &[u8]) -> Result<()> {
        fail_point::around(Operation::RemoveDir(Place(self, name)), || {
            rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
        })
        .map_err(|errno| frozen::explain(errno, &[(self, name)]))
        .at("remove the directory", &self.path_of(name))
    }

    /// Removes a directory of nono's own with everything in it; a symlink in it is removed, not
    /// followed. Never used on a tracked path.
    ///
    /// Whoever filled it may have made it as deep as the disk is large: what lies deeper is moved up
    /// before it is looked into, so depth costs neither stack nor descriptors, and `..` is not needed.
    ///
    /// # Errors
    /// The first that occurs.
    pub(crate) fn remove_dir_all(&self, name: &[u8]) -> Result<()> {
        let top = self.open_own_dir(name)?;
        let mut directories = Vec::new();
        top.remove_files(|name| {
            directories.push(name.to_vec());
            Ok(())
        })?;
        let moved = hex::encode(&super::random_bytes()?[..8]);
        let mut moved_count = 0u64;
        while let Some(directory) = directories.pop() {
            let dir = top.open_own_dir(&directory)?;
            dir.remove_files(|name| {
                moved_count += 1;
                let new_name = format!(".{moved}-{moved_count}").into_bytes();
                // Moving a directory to another one writes to it.
                dir.open_own_dir(name)?;
                dir.rename(name, &top, &new_name)?;
                directories.push(new_name);
                Ok(())
            })?;
            top.remove_dir(&directory)?;
        }
        self.remove_dir(name)
    }

    /// Opens a directory of nono's own, made accessible if it is not.
    ///
    /// # Errors
    /// As [`open_dir`](Self::open_dir).
    pub(crate) fn open_own_dir(&self, name: &[u8]) -> Result<Self> {
        let inode = self.inode(name)?;
        let stat = inode.stat()?;
        if stat.kind == FileKind::Directory && stat.mode & 0o700 != 0o700 {
            inode.set_mode(stat.mode | 0o700)?;
        }
        self.open_dir(name)
    }

    /// Removes what is no directory, and names those that are.
    fn remove_files(&self, mut directory: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for listed in self.names()? {
            if self.stat(&listed.name)?.kind == FileKind::Directory {
                directory(&listed.name)?;
            } else {
                self.remove_file(&listed.name)?;
            }
        }
        Ok(())
    }

    /// Reads a whole file of at most `max_bytes`.
    ///
    /// # Errors
    /// EFBIG when it is larger; EINVAL when it is not a regular file.
    pub(crate) fn read(&self, name: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
        let file = self.open_file(name, false)?;
        let stat = self.stat_file(&file, name)?;
        if stat.kind != FileKind::File {
            return Err(Errno::INVAL).at("read as a regular file", &self.path_of(name));
        }
        if stat.size > max_bytes {
            return Err(Errno::FBIG).at("read", &self.path_of(name));
        }
        let mut bytes = vec![0; stat.size as usize];
        let len = super::read_full_at(&file, &mut bytes, 0).at("read", &self.path_of(name))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Replaces a file at once: readers see the old or the new bytes, never a part. With `durable`
    /// the new bytes and their name are on the disk when this returns.
    ///
    /// # Errors
    /// EACCES, ENOSPC; the old file is then still there.
    pub(crate) fn replace_file(
        &self,
        name: &[u8],
        bytes: &[u8],
        mode: u16,
        durable: bool,
    ) -> Result<()> {
        self.replace_file_with(name, mode, durable, |file| file.write_all(bytes))
    }

    /// As [`replace_file`](Self::replace_file), for bytes that are not all in memory: `write` writes them.
    ///
    /// # Errors
    /// As there, and those of `write`.
    pub(crate) fn replace_file_with(
        &self,
        name: &[u8],
        mode: u16,
        durable: bool,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<()> {
        let path = self.path_of(name);
        // A name that nobody else takes, so that two writers cannot publish each other's half.
        let random = hex::encode(&super::random_bytes()?[..8]);
        let temp = [b".", name, b".new-", random.as_bytes()].concat();
        let written = (|| {
            let mut file = self.create_file(&temp, mode)?;
            fail_point::around(Operation::Attributes, || write(&mut file)).at("write", &path)?;
            if durable {
                let synced = Operation::SyncFile(Place(self, &temp));
                fail_point::around(synced, || rustix::fs::fsync(&file)).at("flush", &path)?;
            }
            self.rename(&temp, self, name)
        })();
        if written.is_err() {
            let _ = self.remove_file(&temp);
        } else if durable {
            self.sync()?;
        }
        written
    }

    /// Removes what a crash left of [`replace_file`](Self::replace_file) for this name. Only for whoever
    /// keeps all others from replacing it; a failure leaves what nobody reads.
    pub(crate) fn remove_unfinished(&self, name: &[u8]) {
        let temporary = [b".", name, b".new-"].concat();
        for listed in self.names().unwrap_or_default() {
            if listed.name.starts_with(&temporary) {
                let _ = self.remove_file(&listed.name);
            }
        }
    }

    /// Flushes the names in this directory: what was renamed in it stays renamed after a power
    /// failure.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn sync(&self) -> Result<()> {
        fail_point::around(Operation::SyncDir(self), || rustix::fs::fsync(&self.fd))
            .at("flush", &self.path)
    }

    /// Flushes the whole file system that holds this directory: one call for any number of files.
    ///
    /// # Errors
    /// EIO when the kernel lost data that was not yet on the disk.
    pub(crate) fn sync_file_system(&self) -> Result<()> {
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

    /// Bytes that an ordinary user can still write to this file system.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        Ok(self.space()?.available_bytes)
    }

    /// Room on this file system.
    ///
    /// # Errors
    /// Hardly any.
    pub(crate) fn space(&self) -> Result<FileSystemSpace> {
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

    /// A path to a name that goes through this descriptor, for the calls that only take paths.
    fn proc_path(&self, name: &[u8]) -> PathBuf {
        #[cfg(target_os = "linux")]
        {
            let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
            Path::new(&own).join(to_path(name))
        }
        #[cfg(not(target_os = "linux"))]
        self.path_of(name)
    }
}

/// Opens a directory below `from`, `O_RDONLY` or `O_PATH`.
fn resolve_beneath(
    from: BorrowedFd<'_>,
    path: &[u8],
    access: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = DIR_FLAGS | access;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        // EAGAIN: something was renamed meanwhile and the kernel could not be sure.
        loop {
            match rustix::fs::openat2(from, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                // Older kernels, and sandboxes that do not know the call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                other => return other,
            }
        }
    }
    resolve_by_component(from, path, flags)
}

/// The same promise, one component at a time.
fn resolve_by_component(
    from: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let mut current: Option<OwnedFd> = None;
    for name in path.split(|byte| *byte == b'/') {
        if name == b".." || name.is_empty() {
            return Err(Errno::XDEV);
        }
        let dir = current.as_ref().map_or(from, AsFd::as_fd);
        current = Some(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    }
    current.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn dir() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    #[test]
    fn nothing_beneath_is_reached_through_a_symlink_or_dot_dot() {
        let (temp, dir) = dir();
        std::fs::create_dir_all(temp.path().join("a/b")).unwrap();
        symlink("a", temp.path().join("link")).unwrap();
        assert!(dir.open_beneath(b"a/b").is_ok());
        assert!(dir.open_beneath(b"link/b").unwrap_err().is_symlink_in_path());
        assert!(dir.open_beneath(b"link").is_err());
        assert!(dir.open_beneath(b"..").is_err());
        assert!(dir.open_beneath(b"/").is_err());
        let by_component = |path: &[u8]| resolve_by_component(dir.as_fd(), path, DIR_FLAGS);
        assert!(by_component(b"a/b").is_ok());
        assert!(by_component(b"link/b").is_err());
        assert!(by_component(b"a/..").is_err());
        assert!(by_component(b"/a").is_err());
    }

    #[test]
    fn paths_beyond_path_max_are_opened() {
        let (_temp, dir) = dir();
        let mut path = Vec::new();
        let name = [b'n'; 200];
        let mut current = dir.open_beneath(b"").unwrap();
        for _ in 0..40 {
            current.make_dir(&name, 0o700).unwrap();
            current = current.open_dir(&name).unwrap();
            path.extend_from_slice(&name);
            path.push(b'/');
        }
        path.pop();
        assert!(path.len() > 8000);
        let found = dir.open_beneath(&path).unwrap().stat_self().unwrap();
        assert_eq!(found.ino, current.stat_self().unwrap().ino);
    }

    #[test]
    fn a_directory_of_any_depth_and_mode_is_removed_with_few_descriptors() {
        let (temp, dir) = dir();
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), b"").unwrap();
        dir.make_dir(b"top", 0o700).unwrap();
        let mut current = dir.open_dir(b"top").unwrap();
        for level in 0..20_000 {
            current.make_dir(b"d", 0o700).unwrap();
            let next = current.open_dir(b"d").unwrap();
            if level % 1000 == 0 {
                current.make_symlink(b"link", outside.as_os_str().as_bytes()).unwrap();
                current.create_file(b"file", 0).unwrap();
                current.make_dir(b"empty", 0).unwrap();
                current.inode(b".").unwrap().set_mode(0o500).unwrap();
            }
            current = next;
            // Only for messages, and long.
            current.path = PathBuf::new();
        }
        dir.remove_dir_all(b"top").unwrap();
        assert!(dir.try_stat(b"top").unwrap().is_none());
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn a_temporary_file_appears_complete_or_not_at_all() {
        let (temp, dir) = dir();
        for make in [super::super::TempFile::new, super::super::TempFile::named] {
            let file = make(&dir, 0o400).unwrap();
            file.file().write_all(b"x").unwrap();
            drop(file);
            assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0);
            assert!(make(&dir, 0o400).unwrap().persist(&dir, b"name").unwrap());
            assert!(!make(&dir, 0o400).unwrap().persist(&dir, b"name").unwrap());
            assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 1);
            dir.remove_file(b"name").unwrap();
        }
    }
}
