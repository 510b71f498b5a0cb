//! Systems without Landlock: nothing can be kept within its grants.

use super::{Policy, SandboxError, Support};

pub(super) fn landlock_abi() -> Option<i32> {
    None
}

/// Always refuses.
///
/// # Errors
/// [`SandboxError::Unsupported`].
pub fn enforce(_policy: &Policy) -> Result<(), SandboxError> {
    Err(SandboxError::Unsupported(Support::None))
}
