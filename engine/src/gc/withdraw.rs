//! Removing sessions at once, and their objects later.
//!
//! A withdrawn session is in no list any more. Its objects go with the next collection, which a
//! caller may put off, because collecting costs a look at every object.

use std::path::Path;

use super::store_root::StoreRoot;
use super::{CleanupError, SkipReason, SkippedSession};
use crate::snapshot::{ManifestError, SessionDir};
use crate::sys::FileLock;

/// The outcome for sessions that were to be withdrawn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Withdrawn {
    /// Ids of those that are gone, durably.
    pub session_ids: Vec<String>,
    /// The sessions that stay.
    pub skipped: Vec<SkippedSession>,
}

/// Takes sessions out of every list, unless they are pinned by now. Their objects stay until the
/// next collection.
///
/// # Errors
/// When the root directory cannot be changed. Each session is then gone or untouched.
pub fn withdraw(root: &Path, sessions: &[SessionDir]) -> Result<Withdrawn, CleanupError> {
    let root = StoreRoot::open(root)?;
    let mut withdrawn = Withdrawn::default();
    for session in sessions {
        let Some(name) = root.name_of(session)? else { continue };
        let session_id = session.id();
        match claim(session, true)? {
            Claim::Granted(_lock) => {
                if root.hide(&name)?.is_some() {
                    withdrawn.session_ids.push(session_id);
                }
            }
            Claim::Refused(reason) => withdrawn.skipped.push(SkippedSession { session_id, reason }),
            Claim::Gone => {}
        }
    }
    if !withdrawn.session_ids.is_empty() {
        root.dir.sync()?;
    }
    Ok(withdrawn)
}

/// The claim on a session that is to be removed.
pub(super) enum Claim {
    /// No other process is at work on it as long as this is held.
    Granted(FileLock),
    /// It has to stay.
    Refused(SkipReason),
    /// Another process removed it.
    Gone,
}

/// Keeps others from a session that is about to be removed. `spare_pinned`: not if it is pinned.
pub(super) fn claim(session: &SessionDir, spare_pinned: bool) -> Result<Claim, CleanupError> {
    match try_claim(session, spare_pinned) {
        Err(_) if session.is_gone() => Ok(Claim::Gone),
        claim => Ok(claim?),
    }
}

fn try_claim(session: &SessionDir, spare_pinned: bool) -> Result<Claim, ManifestError> {
    if session.is_running()? {
        return Ok(Claim::Refused(SkipReason::Running));
    }
    // Not waited for: its holder may be waiting for the store's lock.
    let Some(lock) = session.try_lock()? else { return Ok(Claim::Refused(SkipReason::Busy)) };
    if session.is_needed_by_restore()? {
        return Ok(Claim::Refused(SkipReason::RestoreInterrupted));
    }
    if session.is_needed_by_fork()? {
        return Ok(Claim::Refused(SkipReason::Forked));
    }
    // Under the lock, without which no process pins it.
    if spare_pinned && session.metadata()?.pinned {
        return Ok(Claim::Refused(SkipReason::Pinned));
    }
    Ok(Claim::Granted(lock))
}
