//! The mounts of a fork: overlays, in a mount namespace of this process.
//!
//! Each directory below an overlay is named to the kernel by a descriptor. So no byte of a path has
//! a meaning in the options of the mount. Forks of root and of ordinary users have the same marks
//! (`userxattr`), and none that moves a directory or leaves contents below. The kernel flushes
//! nothing of a layer (`volatile`), so a first change of an old file does not wait for the disk.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::namespaces::{attach, copy_of, open_place, separate_mounts};
use crate::sandbox::NamespaceError;

/// A directory that lies below an overlay.
#[derive(Debug)]
pub struct Lower(OwnedFd);

impl Lower {
    /// Takes a directory as it is now: an overlay at its path later does not hide it from this.
    ///
    /// # Errors
    /// There is none, or a symlink leads there.
    pub fn open(path: &Path) -> Result<Self, NamespaceError> {
        Ok(Self(open_place(path)?))
    }
}

/// Separates the mounts of this process from those of others, for the overlays that follow.
///
/// # Errors
/// The process has no mount namespace of its own.
pub fn prepare() -> Result<(), NamespaceError> {
    separate_mounts()
}

/// Mounts `upper` over `lower`, at `at`. `work` lies on the file system of `upper`. `source` is the
/// first column in the table of mounts.
///
/// # Errors
/// The kernel refuses.
pub fn lay(
    source: &str,
    lower: &Lower,
    upper: &Path,
    work: &Path,
    at: &Path,
) -> Result<(), NamespaceError> {
    let [upper_dir, work_dir, place] = [open_place(upper)?, open_place(work)?, open_place(at)?];
    let of = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
    let options = format!(
        "lowerdir={},upperdir={},workdir={},userxattr,index=off,volatile",
        of(&lower.0),
        of(&upper_dir),
        of(&work_dir)
    );
    let refused = |errno: Errno| NamespaceError::at("mount a layer at", at, errno);
    let options = CString::new(options).map_err(|_| refused(Errno::INVAL))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(source, PathBuf::from(of(&place)), "overlay", flags, options.as_c_str()).map_err(refused)
}

/// Mounts a directory at another place, in place of a layer over it.
///
/// # Errors
/// The kernel refuses.
pub fn show(directory: &Path, at: &Path) -> Result<(), NamespaceError> {
    attach(&copy_of(directory)?, at)
}

/// Takes an overlay away.
///
/// # Errors
/// There is none.
pub fn lift(at: &Path) -> Result<(), NamespaceError> {
    rustix::mount::unmount(at, rustix::mount::UnmountFlags::DETACH)
        .map_err(|errno| NamespaceError::at("unmount", at, errno))
}
