//! Whether no other process uses a store. Then what no session names goes, however young it is.
//!
//! A writer holds the store's lock from its first object until a manifest names all of them, so an
//! orphan under the exclusive lock belongs to work that has ended. The grace time is for what the
//! lock does not show: a process that counts on objects between two locks. Such a process runs a
//! session or holds its lock, and both can be asked, because the kernel releases them with the
//! process.

use std::time::Duration;

use super::CleanupOptions;
use crate::snapshot::{ManifestError, SessionDir};

impl<'a> CleanupOptions<'a> {
    /// The same, without a grace time for orphans if that is wanted and no process is at work on a
    /// session that stays. Under the store's exclusive lock.
    pub(super) fn when_alone(&self, stay: &[&SessionDir]) -> Self {
        let is_alone = self.orphans_at_once && stay.iter().all(|session| is_idle(session));
        let grace = if is_alone { Duration::ZERO } else { self.grace };
        Self { grace, ..*self }
    }
}

/// Whether surely no process is at work on a session.
fn is_idle(session: &SessionDir) -> bool {
    let look = || -> Result<bool, ManifestError> {
        Ok(!session.is_running()? && session.try_lock()?.is_some())
    };
    look().unwrap_or_else(|_| session.is_gone())
}
