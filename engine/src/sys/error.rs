//! One error for all file system calls: the operation, its path, and the kernel's answer.

use std::io;
use std::path::{Path, PathBuf};

use crate::path_text::Shown;

/// A file system call that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {}: {}", Shown::path(path), describe(source))]
pub struct Error {
    /// The operation as a verb: `open`, `rename`.
    pub operation: &'static str,
    /// The path it was tried on.
    pub path: PathBuf,
    /// The kernel's answer.
    pub source: io::Error,
}

/// Result of a file system call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The kind of the kernel's answer.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The kernel's error number, if it came from there.
    pub fn errno(&self) -> Option<rustix::io::Errno> {
        self.source.raw_os_error().map(rustix::io::Errno::from_raw_os_error)
    }

    /// Whether the path does not exist, or a component of it is no longer a directory.
    pub fn is_gone(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }

    /// Whether the disk, or what this user may have of it, is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether this user may not do that.
    pub fn is_denied(&self) -> bool {
        self.kind() == io::ErrorKind::PermissionDenied
    }

    /// Whether the file system has nothing of the kind: links get EPERM as its answer.
    pub fn is_unsupported(&self) -> bool {
        use rustix::io::Errno;
        matches!(self.errno(), Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM))
    }

    /// Whether this is refused to a user without the right to write here, or on a read-only file
    /// system.
    pub(crate) fn is_not_writable(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
    }

    /// Whether a symlink stood where none may be followed.
    pub fn is_symlink_in_path(&self) -> bool {
        self.errno() == Some(rustix::io::Errno::LOOP)
    }
}

/// The kernel's words without Rust's "(os error N)".
fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Adds operation and path to an error.
pub trait IoContext<T> {
    /// Names the operation and the path.
    ///
    /// # Errors
    /// The error that was there, with its context.
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error { operation, path: path.to_owned(), source: source.into() })
    }
}
