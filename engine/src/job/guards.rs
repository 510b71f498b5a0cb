//! The obstacles that a job looks for before it plans.

use std::path::PathBuf;

use super::RestoreJob;
use crate::restore::RestoreError;
use crate::session::{Catalog, SessionSummary};
use crate::snapshot::{SessionDir, SessionOrigin, SnapshotError};
use crate::sys;

/// Refuses paths that an interrupted restore of any session left between two states. A session
/// that cannot be looked at is in the way of no other.
///
/// # Errors
/// [`SnapshotError::RestoreInterrupted`], or a directory of sessions that cannot be read.
pub fn refuse_half_way(catalog: &Catalog, paths: &[PathBuf]) -> Result<(), RestoreError> {
    for root in catalog.roots() {
        for session in SessionDir::all_below(root).map_err(SnapshotError::from)? {
            if is_half_way(&session) && is_about(&session, paths) {
                let session = session.path().to_owned();
                return Err(SnapshotError::RestoreInterrupted { session }.into());
            }
        }
    }
    Ok(())
}

/// The paths of a fork are not those of the project.
fn is_half_way(session: &SessionDir) -> bool {
    session.has_interrupted_restore().unwrap_or(false)
        && !session.metadata().is_ok_and(|it| it.origin == SessionOrigin::Fork)
}

fn is_about(session: &SessionDir, paths: &[PathBuf]) -> bool {
    SessionSummary::of(session)
        .map_or(true, |summary| paths.iter().any(|path| summary.concerns(path)))
}

impl RestoreJob {
    pub(super) fn refuse_half_way(&self) -> Result<(), RestoreError> {
        match &self.catalog {
            Some(catalog) => refuse_half_way(catalog, &self.tracked_paths()),
            None => Ok(()),
        }
    }

    /// Makes the directories above the state of an agent: on a new machine they do not exist yet.
    /// For a project, a missing directory above is a mistake that the restore names.
    pub(super) fn make_directories_above(&self) -> Result<(), RestoreError> {
        let metadata = self.session().metadata().map_err(SnapshotError::from)?;
        if metadata.origin == SessionOrigin::AgentState {
            for above in self.manager().roots().iter().filter_map(|root| root.path.parent()) {
                sys::create_private_dir(above)?;
            }
        }
        Ok(())
    }
}
