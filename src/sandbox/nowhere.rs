//! Systems for which there are no walls: nothing can be kept within its grants.

use super::{Policy, SandboxError, Support};

/// What a system without Landlock is.
pub(super) const WITHOUT: Support = Support::NotBuilt;

pub(super) fn landlock_abi() -> Option<i32> {
    None
}

/// Always refuses.
///
/// # Errors
/// [`SandboxError::Unsupported`].
pub fn enforce(_policy: &Policy) -> Result<(), SandboxError> {
    Err(SandboxError::Unsupported(WITHOUT))
}
