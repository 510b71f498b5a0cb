//! The errors of mounting and unmounting, each with the path it is about.
//!
//! A program decides from the variant how to help; the text says what is missing.

use std::io;
use std::path::PathBuf;

/// A mount could not be made, found or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The mount point does not exist.
    #[error("cannot mount at {}: it does not exist", .path.display())]
    NotFound {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is something else than a directory.
    #[error("cannot mount at {}: it is not a directory", .path.display())]
    NotADirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point has entries, which the mount would hide.
    #[error("cannot mount at {}: the directory is not empty", .path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// Something is mounted there already.
    #[error("cannot mount at {}: {fs_type} is mounted there already", .path.display())]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// Type of the file system that is mounted there; `fuse.nono` is ours.
        fs_type: String,
    },
    /// The process behind another FUSE mount at this place is gone; it is not ours to remove.
    #[error("cannot mount at {}: a dead {fs_type} mount is in the way", .path.display())]
    DeadMount {
        /// The mount point.
        path: PathBuf,
        /// Type of the dead mount.
        fs_type: String,
    },
    /// The kernel has no FUSE, or a container hides it.
    #[error("cannot mount: /dev/fuse is missing")]
    NoFuseDevice,
    /// This user may not open `/dev/fuse`.
    #[error("cannot mount: no permission to open /dev/fuse")]
    FuseDevicePermission,
    /// An ordinary user needs the helper program of FUSE, and it is not installed.
    #[error("cannot mount or unmount as an ordinary user: fusermount3 is not installed")]
    NoFusermount,
    /// `allow_other` needs `user_allow_other` in `/etc/fuse.conf` for an ordinary user.
    #[error("cannot mount at {} for other users: user_allow_other is not set", .path.display())]
    AllowOtherRefused {
        /// The mount point.
        path: PathBuf,
    },
    /// This user may not mount there, or may not unmount what is there.
    #[error("no permission to {operation} {}: {message}", .path.display())]
    Permission {
        /// `mount at` or `unmount`.
        operation: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The message of the kernel or fusermount3.
        message: String,
    },
    /// Nothing of ours is mounted there.
    #[error("nothing of nono is mounted at {}", .path.display())]
    NotMounted {
        /// The directory that was named.
        path: PathBuf,
    },
    /// The kernel or fusermount3 refused for another reason.
    #[error("cannot {operation} {}: {message}", .path.display())]
    Refused {
        /// `mount at` or `unmount`.
        operation: &'static str,
        /// The mount point.
        path: PathBuf,
        /// The message of the kernel or fusermount3.
        message: String,
    },
    /// An operation on a path failed.
    #[error("cannot {operation} {}", .path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl MountError {
    pub(crate) fn io(
        operation: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { operation, path: path.into(), source: source.into() }
    }
}
