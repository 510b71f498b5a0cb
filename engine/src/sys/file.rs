//! Contents of files: clones, holes, and files that have no name until they are complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::dir::Dir;
use super::error::{IoContext, Result};
use super::fail_point::{self, Operation, Place};
use super::stat::Stat;

/// Shares the blocks of `source` with the empty file `target` (FICLONE). `Ok(false)` where the file
/// system cannot, or the two are on different ones.
///
/// # Errors
/// When the disk is full or broken.
pub fn reflink(source: &File, target: &File, path: &Path) -> Result<bool> {
    #[cfg(target_os = "linux")]
    return match rustix::fs::ioctl_ficlone(target, source) {
        Ok(()) => Ok(true),
        Err(
            Errno::OPNOTSUPP
            | Errno::NOTTY
            | Errno::NOSYS
            | Errno::XDEV
            | Errno::INVAL
            | Errno::PERM
            | Errno::ACCESS
            | Errno::TXTBSY,
        ) => Ok(false),
        Err(errno) => Err(errno).at("clone", path),
    };
    // Elsewhere a clone cannot be made into an open file: see `TempFile::clone_from_file`.
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (source, target, path);
        Ok(false)
    }
}

/// Calls `visit(offset, len, is_data)` for each range of the first `len` bytes, in order. Holes are
/// reported where the file system knows them; elsewhere all is data.
///
/// # Errors
/// The error of `visit`, or a failure to seek.
pub fn allocated_ranges<E: From<io::Error>>(
    file: &File,
    len: u64,
    mut visit: impl FnMut(u64, u64, bool) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut at = 0;
    while at < len {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            // No data after `at`: a hole up to the end.
            Err(Errno::NXIO) => len,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return visit(at, len - at, true),
            Err(errno) => return Err(E::from(errno.into())),
        };
        if data > at {
            visit(at, data - at, false)?;
        }
        if data == len {
            break;
        }
        let hole = match rustix::fs::seek(file, SeekFrom::Hole(data)) {
            Ok(hole) => hole.clamp(data, len),
            Err(Errno::NXIO) => len,
            Err(errno) => return Err(E::from(errno.into())),
        };
        if hole == data {
            // A file that shrinks while it is read; the caller notices by its stat.
            break;
        }
        visit(data, hole - data, true)?;
        at = hole;
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
///
/// # Errors
/// As `pread`.
pub fn read_full_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let mut total = 0;
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => break,
            Ok(count) => {
                total += count;
                offset += count as u64;
                buffer = &mut buffer[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Attributes of an open file; `path` is only for the message.
///
/// # Errors
/// Hardly any.
pub fn stat_open_file(file: impl AsFd, path: &Path) -> Result<Stat> {
    Ok(Stat::from_raw(&rustix::fs::fstat(file).at("look at", path)?))
}

/// Whether a device can be opened for reading and writing; it is closed again at once.
///
/// # Errors
/// Why it cannot.
pub fn try_open_device(path: &Path) -> Result<()> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).at("open", path)?;
    Ok(())
}

/// Opens a pipe or a device that a person named, for writing. Waits for the reader of a pipe.
///
/// # Errors
/// As `open`.
pub fn open_to_write(path: &Path) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).at("open", path)?;
    Ok(fd.into())
}

/// Opens a file that a person named, for reading: symlinks are followed, and a pipe is waited for.
/// Nothing but the file itself need be readable, not even its directory.
///
/// # Errors
/// ENOENT, EACCES, EISDIR.
pub fn open_named(path: &Path) -> Result<File> {
    let file = File::open(path).at("open", path)?;
    match stat_open_file(&file, path)?.kind {
        super::FileKind::Directory => Err(Errno::ISDIR).at("open", path),
        _ => Ok(file),
    }
}

/// Opens the device that swallows what is written, and has nothing to read.
///
/// # Errors
/// It is not there.
pub fn open_nowhere() -> Result<File> {
    let path = Path::new("/dev/null");
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty()).at("open", path)?.into())
}

/// Reads a file that the kernel makes up as it is read (`/proc`, `/sys`): its size is not known
/// before. At most `max_bytes` are read.
///
/// # Errors
/// When it is missing or may not be read.
pub fn read_kernel_file(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = File::open(path).at("open", path)?;
    file.take(max_bytes).read_to_end(&mut bytes).at("read", path)?;
    Ok(bytes)
}

/// Opens a file that the kernel makes up, to wait for its changes.
///
/// # Errors
/// When it is missing or may not be read.
pub(crate) fn open_kernel_file(path: &Path) -> Result<File> {
    File::open(path).at("open", path)
}

/// Writes a file of the kernel, in one call as it demands.
///
/// # Errors
/// When it is missing, may not be written, or does not like the bytes.
pub fn write_kernel_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).at("open", path)?;
    rustix::io::write(&file, bytes).at("write", path)?;
    Ok(())
}

/// Opens a log for appending, making its directory if needed. One that is longer than `max_bytes`
/// is started anew.
///
/// # Errors
/// When it cannot be made or written.
pub fn open_log(path: &Path, max_bytes: u64) -> Result<File> {
    if let Some(parent) = path.parent() {
        super::create_private_dir(parent)?;
    }
    let flags =
        OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file: File =
        rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).at("open", path)?.into();
    if stat_open_file(&file, path)?.size > max_bytes {
        file.set_len(0).at("shorten", path)?;
    }
    Ok(file)
}

/// Tells the kernel that a file will be read from its beginning to its end, so that it reads
/// further ahead. Only a hint: nothing depends on it.
pub fn will_read_in_order(file: &File) {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Sequential);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// Tells the kernel that a part of a file will not be read again soon, so that it need not keep it
/// in memory. Only a hint: nothing depends on it.
pub fn drop_cached_pages(file: &File, offset: u64, len: u64) {
    #[cfg(target_os = "linux")]
    {
        let len = std::num::NonZeroU64::new(len);
        let _ = rustix::fs::fadvise(file, offset, len, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, offset, len);
}

/// A file that gets its name only when it is complete, and leaves nothing behind if it never is.
///
/// `O_TMPFILE` where the file system has it (the kernel then forgets the file with its last
/// descriptor, even after a crash), else a temporary name that `Drop` removes.
#[derive(Debug)]
pub struct TempFile<'a> {
    file: File,
    dir: &'a Dir,
    /// The temporary name, in the fallback.
    name: Option<Box<[u8]>>,
}

impl<'a> TempFile<'a> {
    /// Makes an empty file in `dir`, open for reading and writing.
    ///
    /// # Errors
    /// When the directory is not writable or the disk is full.
    pub fn new(dir: &'a Dir, mode: u16) -> Result<Self> {
        #[cfg(target_os = "linux")]
        if proc_is_mounted() {
            let unsupported = [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL];
            match Self::unnamed(dir, mode) {
                Err(error) if error.errno().is_some_and(|errno| unsupported.contains(&errno)) => {}
                other => return other,
            }
        }
        Self::named(dir, mode)
    }

    #[cfg(target_os = "linux")]
    fn unnamed(dir: &'a Dir, mode: u16) -> Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd: OwnedFd = fail_point::around(Operation::Attributes, || {
            rustix::fs::openat(dir, c".", flags, Mode::from_raw_mode(mode.into()))
        })
        .at("make a file in", dir.path())?;
        Ok(Self { file: fd.into(), dir, name: None })
    }

    /// Whether a name has the form of a temporary one.
    pub fn is_name(name: &[u8]) -> bool {
        let digits = name.strip_prefix(b".tmp-").unwrap_or_default();
        digits.len() == 32 && digits.iter().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The fallback with a temporary name.
    pub(super) fn named(dir: &'a Dir, mode: u16) -> Result<Self> {
        let mut name = b".tmp-".to_vec();
        name.extend(super::random_bytes()?.iter().flat_map(|byte| {
            [
                b"0123456789abcdef"[usize::from(byte >> 4)],
                b"0123456789abcdef"[usize::from(byte & 15)],
            ]
        }));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(dir, &*name, flags, Mode::from_raw_mode(mode.into()))
            .at("make a file in", dir.path())?;
        Ok(Self { file: fd.into(), dir, name: Some(name.into()) })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes this file, which is empty, a clone of `source`: the two share their blocks.
    /// `Ok(false)` where the file system cannot, or the two are on different ones; it is then still
    /// empty.
    ///
    /// # Errors
    /// When the disk is full or broken.
    pub fn clone_from_file(&mut self, source: &File) -> Result<bool> {
        #[cfg(target_vendor = "apple")]
        return self.clone_by_name(source);
        #[cfg(not(target_vendor = "apple"))]
        reflink(source, &self.file, self.dir.path())
    }

    /// APFS makes a clone under a name that is free, so the clone takes this file's place. It has
    /// the permissions and attributes of the source; the permissions become those of this file.
    #[cfg(target_vendor = "apple")]
    fn clone_by_name(&mut self, source: &File) -> Result<bool> {
        use rustix::fs::CloneFlags;
        let mode =
            Mode::from_raw_mode(rustix::fs::fstat(&self.file).at("stat", self.dir.path())?.st_mode);
        let mut name = b".tmp-".to_vec();
        name.extend(hex::encode(super::random_bytes()?).into_bytes());
        let flags = CloneFlags::NOFOLLOW | CloneFlags::NOOWNERCOPY;
        match rustix::fs::fclonefileat(source, self.dir, &*name, flags) {
            Ok(()) => {}
            Err(
                Errno::NOTSUP
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::XDEV
                | Errno::INVAL
                | Errno::PERM
                | Errno::ACCESS,
            ) => return Ok(false),
            Err(errno) => return Err(errno).at("clone", self.dir.path()),
        }
        let opened = || {
            // The source may be one that cannot be opened for writing.
            let usable = Mode::RUSR | Mode::WUSR;
            rustix::fs::chmodat(self.dir, &*name, usable, AtFlags::empty())?;
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(self.dir, &*name, flags, Mode::empty())?;
            rustix::fs::fchmod(&fd, mode)?;
            Ok::<OwnedFd, Errno>(fd)
        };
        let fd = match opened() {
            Ok(fd) => fd,
            // A clone that cannot be used, such as one of an immutable file.
            Err(_) => {
                let _ = rustix::fs::unlinkat(self.dir, &*name, AtFlags::empty());
                return Ok(false);
            }
        };
        let mut replaced = Self { file: fd.into(), dir: self.dir, name: Some(name.into()) };
        // The empty file goes with `replaced`.
        std::mem::swap(self, &mut replaced);
        Ok(true)
    }

    /// Gives the file its name in `target` (same file system; the name may have a `/`). `Ok(false)`
    /// when the name is taken; its file is left alone.
    ///
    /// # Errors
    /// When `target` is gone, not writable, or the disk is full.
    pub fn persist(&self, target: &Dir, name: &[u8]) -> Result<bool> {
        let linked =
            fail_point::around(Operation::Create(Place(target, name)), || match &self.name {
                #[cfg(target_os = "linux")]
                None => self.link_unnamed(target, name),
                #[cfg(not(target_os = "linux"))]
                None => Err(Errno::NOTSUP),
                Some(own) => {
                    rustix::fs::linkat(self.dir, &**own, target.as_fd(), name, AtFlags::empty())
                }
            });
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno).at("name a new file", &target.path_of(name)),
        }
    }

    /// By the descriptor itself where the kernel lets whoever opened it (Linux 6.10; before that
    /// only with CAP_DAC_READ_SEARCH), else by its name in /proc, which costs a walk through that.
    #[cfg(target_os = "linux")]
    fn link_unnamed(&self, target: &Dir, name: &[u8]) -> rustix::io::Result<()> {
        static BY_DESCRIPTOR: AtomicBool = AtomicBool::new(true);
        if BY_DESCRIPTOR.load(Relaxed) {
            match rustix::fs::linkat(&self.file, c"", target.as_fd(), name, AtFlags::EMPTY_PATH) {
                // The kernel's answer when it is not allowed; for the target it would be the same.
                Err(Errno::NOENT) => BY_DESCRIPTOR.store(false, Relaxed),
                linked => return linked,
            }
        }
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::linkat(CWD, own.as_str(), target.as_fd(), name, AtFlags::SYMLINK_FOLLOW)
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing can be done about a failure here; the collector removes stale ones.
            let _ = rustix::fs::unlinkat(self.dir, &**name, AtFlags::empty());
        }
    }
}

/// Without /proc an unnamed file cannot be given a name.
#[cfg(target_os = "linux")]
fn proc_is_mounted() -> bool {
    static MOUNTED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *MOUNTED.get_or_init(|| rustix::fs::access("/proc/self/fd", rustix::fs::Access::EXISTS).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_temporary_file_appears_complete_or_not_at_all() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        for make in [TempFile::new, TempFile::named] {
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
