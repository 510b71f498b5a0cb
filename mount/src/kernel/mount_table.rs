//! The few real file-system calls of the crate: looking at mount points and at the mount table.
//!
//! A mount whose process is gone answers every call with ENOTCONN. The mount table answers without
//! asking the mount, so it is what says which mounts exist and whose they are.

#![allow(clippy::disallowed_methods)]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::MountError;

/// File system type of every mount of this crate, as the mount table shows it.
pub const FS_TYPE: &str = "fuse.nono";

const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// A line of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountedAt {
    /// Where it is mounted.
    pub directory: PathBuf,
    /// The name of the served tree: [`MountOptions::fs_name`](crate::MountOptions::fs_name).
    pub fs_name: String,
    /// `fuse.nono` for ours.
    pub fs_type: String,
    /// The kernel's id of the mount, unique among live mounts.
    pub mount_id: u64,
    /// Major and minor device number: `st_dev` of everything in it.
    pub device: (u32, u32),
}

impl MountedAt {
    /// Whether a process still answers for the mount.
    ///
    /// # Errors
    /// Any error but the one that says that the process is gone.
    pub fn is_alive(&self) -> Result<bool, MountError> {
        // Not `stat`, which the kernel may answer from its cache.
        match rustix::fs::statfs(&self.directory) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN | Errno::CONNABORTED) => Ok(false),
            // A mount of another user refuses us, so it answers.
            Err(Errno::ACCESS | Errno::PERM) => Ok(true),
            Err(errno) => Err(MountError::io("look at", &self.directory, errno)),
        }
    }
}

fn is_dead(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// All mounts of this crate that the process can see, live or dead.
///
/// # Errors
/// The mount table cannot be read.
pub fn mounts() -> Result<Vec<MountedAt>, MountError> {
    Ok(mount_table()?.into_iter().filter(|mount| mount.fs_type == FS_TYPE).collect())
}

/// Every mount, oldest first.
fn mount_table() -> Result<Vec<MountedAt>, MountError> {
    let table = fs::read(MOUNT_TABLE).map_err(|e| MountError::io("read", MOUNT_TABLE, e))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect())
}

/// The mount that is seen at `directory` (the newest of several), whatever its type.
pub(crate) fn mounted_at(directory: &Path) -> Result<Option<MountedAt>, MountError> {
    Ok(mount_table()?.into_iter().rfind(|mount| mount.directory == directory))
}

/// One line of `mountinfo`, see proc_pid_mountinfo(5).
fn parse_mount(line: &[u8]) -> Option<MountedAt> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mount_id = number(fields.next()?)?;
    let _parent = fields.next()?;
    let mut device = fields.next()?.split(|byte| *byte == b':');
    let device = (number(device.next()?)?, number(device.next()?)?);
    let _root = fields.next()?;
    let directory = PathBuf::from(OsString::from_vec(unescape(fields.next()?)));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let fs_name = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    Some(MountedAt { directory, fs_name, fs_type, mount_id, device })
}

fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The kernel writes blanks, tabs, line ends, `#` and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let escaped = match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'))
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

/// The absolute path of a mount point without links, also when the mount on it is dead.
pub(crate) fn resolve(directory: &Path) -> Result<PathBuf, MountError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NotFound { path: directory.to_owned() },
        io::ErrorKind::NotADirectory => MountError::NotADirectory { path: directory.to_owned() },
        _ => MountError::io("resolve", directory, error),
    };
    match fs::canonicalize(directory) {
        Err(error) if is_dead(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
            let absolute = std::path::absolute(directory).map_err(failed)?;
            let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(failed(error));
            };
            Ok(fs::canonicalize(parent).map_err(failed)?.join(name))
        }
        resolved => resolved.map_err(failed),
    }
}

/// The state of a place where a caller wants to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MountPoint {
    /// An empty directory: its path without links.
    Free(PathBuf),
    /// A mount of ours whose process is gone; [`Mount::new`](crate::Mount::new) replaces it.
    Dead(MountedAt),
}

/// Checks a mount point without changing anything.
///
/// # Errors
/// The variant of [`MountError`] that says why nothing can be mounted there.
pub fn check_mount_point(directory: &Path) -> Result<MountPoint, MountError> {
    let path = resolve(directory)?;
    if let Some(mounted) = mounted_at(&path)? {
        let fs_type = mounted.fs_type.clone();
        return match mounted.is_alive()? {
            true => Err(MountError::AlreadyMounted { path, fs_type }),
            false if fs_type == FS_TYPE => Ok(MountPoint::Dead(mounted)),
            false => Err(MountError::DeadMount { path, fs_type }),
        };
    }
    let metadata = fs::metadata(&path).map_err(|e| MountError::io("look at", &path, e))?;
    if !metadata.is_dir() {
        return Err(MountError::NotADirectory { path });
    }
    let mut entries = fs::read_dir(&path).map_err(|e| MountError::io("list", &path, e))?;
    if entries.next().is_some() {
        return Err(MountError::NotEmpty { path });
    }
    Ok(MountPoint::Free(path))
}

/// Type and permission bits of a directory, as the kernel wants them of a mount's root.
pub(crate) fn mode(directory: &Path) -> Result<u32, MountError> {
    let metadata = fs::metadata(directory);
    Ok(metadata.map_err(|e| MountError::io("look at", directory, e))?.mode())
}

/// A file that the kernel keeps about a thread, such as `stat`. `None` when it is gone, or hidden.
pub(crate) fn open_of_thread(thread: u32, name: &str) -> Option<fs::File> {
    fs::File::open(format!("/proc/{thread}/{name}")).ok()
}

/// An executable file of this name in `PATH` or where distributions put it.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).map(|folder| folder.join(name)).find(|program| {
        program.is_absolute()
            && fs::metadata(program).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_understood_with_blanks_in_the_path() {
        let line =
            b"531 29 0:87 / /home/a\\040b\\134c ro,nosuid shared:3 - fuse.nono nono:/x\\040y ro";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.directory, Path::new("/home/a b\\c"));
        assert_eq!(mount.fs_name, "nono:/x y");
        assert_eq!((mount.mount_id, mount.device), (531, (0, 87)));
        assert_eq!(mount.fs_type, FS_TYPE);
    }

    #[test]
    fn broken_lines_of_the_mount_table_are_skipped() {
        for line in [&b""[..], b"1 2", b"x y z", b"1 2 0:1 / /a ro -"] {
            assert_eq!(parse_mount(line), None);
        }
    }
}
