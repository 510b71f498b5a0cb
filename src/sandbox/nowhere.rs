//! Systems for which there are no walls: nothing can be kept within its grants.

use super::{Policy, SandboxError, Support};

/// What it means that no Landlock was found.
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
