//! Systems for which there are no walls: nothing can be kept within its grants.

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

/// Nothing is granted where there are no walls.
#[must_use]
pub fn is_readable_by_all(_path: &std::path::Path) -> bool {
    false
}

/// Nobody is.
#[must_use]
pub fn is_inside() -> bool {
    false
}
