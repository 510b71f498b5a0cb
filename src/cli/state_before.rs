//! The message about a recorded state after a failure: it can be restored, or which part of it is
//! missing.
//!
//! A hint is a fact that was just looked at. Looked at are the session, its list, the snapshot's
//! manifest, which has to be the listed one, and its root tree, by their paths, as a restore finds
//! them. Contents are not read: that is what `nono verify` is for.

use super::error::CliError;
use crate::cli::offer::NONO;
use nono_engine::restore::RestoreError;
use nono_engine::snapshot::{SessionDir, SnapshotManager};

/// Whether a restore of a snapshot finds what it begins with.
pub(super) fn is_there(session: &SessionDir, number: u64) -> Result<(), RestoreError> {
    SnapshotManager::open(session.path())?.check_restorable(number)
}

/// The hint after a failure that left a session with the state before the command.
pub(super) fn hint(session: &SessionDir) -> String {
    let id = session.id();
    match is_there(session, 0) {
        Ok(()) => format!(
            "the state before is recorded (its contents were not read again): {NONO} restore {id}"
        ),
        Err(error) => {
            format!("the state before cannot be restored now: {}", CliError::from(error))
        }
    }
}

/// The hint when it is unknown whether the disk has all of that state.
pub(super) fn hint_when_not_durable(session: &SessionDir) -> String {
    let id = session.id();
    match session.metadata() {
        Ok(_) => format!("`{NONO} verify {id}` looks for all of it again"),
        Err(error) => {
            format!("the state before cannot be restored now: {}", CliError::from(error))
        }
    }
}
