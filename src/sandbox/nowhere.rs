//! Systems for which there are no walls: nothing can be kept within its grants.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;

use super::{NamespaceError, Policy, SandboxError, Support, View};

/// The support on a system without Landlock.
pub(super) const NO_LANDLOCK: Support = Support::NotBuilt;

pub(super) fn landlock_abi() -> std::io::Result<Option<i32>> {
    Ok(None)
}

/// Always refuses.
///
/// # Errors
/// [`SandboxError::Unsupported`].
pub fn enforce(_policy: &Policy) -> Result<(), SandboxError> {
    Err(SandboxError::Unsupported(NO_LANDLOCK))
}

/// Always refuses.
///
/// # Errors
/// Always.
pub fn separate(_own_processes: bool) -> Result<(), NamespaceError> {
    Err(NamespaceError::of("make namespaces on this system", Errno::NOSYS))
}

/// Always refuses.
///
/// # Errors
/// Always.
pub fn furnish(_view: &View, _own_processes: bool) -> Result<(), NamespaceError> {
    Err(NamespaceError::of("make namespaces on this system", Errno::NOSYS))
}

/// Always refuses.
///
/// # Errors
/// Always.
pub fn join(_other: BorrowedFd<'_>, _own_processes: bool) -> Result<(), NamespaceError> {
    Err(NamespaceError::of("enter namespaces on this system", Errno::NOSYS))
}

/// There is no right to give up.
///
/// # Errors
/// Never.
pub fn relinquish() -> Result<(), NamespaceError> {
    Ok(())
}

/// Layers are mounted nowhere.
pub mod layers {
    use std::path::Path;

    use rustix::io::Errno;

    use crate::sandbox::NamespaceError;

    /// A directory that lies below an overlay.
    #[derive(Debug)]
    pub struct Lower(());

    impl Lower {
        /// Always refuses.
        ///
        /// # Errors
        /// Always.
        pub fn open(path: &Path) -> Result<Self, NamespaceError> {
            Err(NamespaceError::at("open below a layer", path, Errno::NOSYS))
        }
    }

    /// Always refuses.
    ///
    /// # Errors
    /// Always.
    pub fn prepare() -> Result<(), NamespaceError> {
        Err(NamespaceError::of("mount layers on this system", Errno::NOSYS))
    }

    /// Always refuses.
    ///
    /// # Errors
    /// Always.
    pub fn lay(_: &str, _: &Lower, _: &Path, _: &Path, at: &Path) -> Result<(), NamespaceError> {
        Err(NamespaceError::at("mount a layer at", at, Errno::NOSYS))
    }

    /// Always refuses.
    ///
    /// # Errors
    /// Always.
    pub fn show(_: &Path, at: &Path) -> Result<(), NamespaceError> {
        Err(NamespaceError::at("mount a copy at", at, Errno::NOSYS))
    }

    /// Always refuses.
    ///
    /// # Errors
    /// Always.
    pub fn lift(at: &Path) -> Result<(), NamespaceError> {
        Err(NamespaceError::at("unmount", at, Errno::NOSYS))
    }
}

/// Nothing is granted where there are no walls.
#[must_use]
pub fn is_readable_by_all(_path: &std::path::Path) -> bool {
    false
}

/// No process is.
#[must_use]
pub fn is_inside() -> bool {
    false
}
