//! Sessions that were at work on the same files at the same time.

use std::path::PathBuf;

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError};
use super::summary::{SessionStatus, SessionSummary};
use crate::restore::runs_on;
use crate::snapshot::{SessionDir, SessionOrigin};

/// The sessions whose command is running now and may write below these paths, or above them.
/// `except`: the session that asks.
///
/// # Errors
/// When the sessions cannot be listed.
pub fn running_on(
    catalog: &Catalog,
    paths: &[PathBuf],
    except: Option<&SessionDir>,
) -> Result<Vec<SessionSummary>, CatalogError> {
    let mut running = Vec::new();
    for root in catalog.roots() {
        for session in runs_on(root, paths)? {
            if except.is_some_and(|except| except.id() == session.id()) {
                continue;
            }
            match SessionSummary::of(&session) {
                Ok(summary) => running.push(summary),
                Err(_) if session.is_gone() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    // One may have ended since.
    running.retain(|session| session.status == SessionStatus::Running);
    Ok(running)
}

/// The sessions whose command ran between `began` and now on the paths that `session` tracks: what
/// they changed is in it too.
///
/// # Errors
/// When the sessions cannot be listed.
pub fn worked_meanwhile(
    catalog: &Catalog,
    session: &SessionDir,
    began: Timestamp,
    tracked: &[PathBuf],
) -> Result<Vec<SessionSummary>, CatalogError> {
    let beside = session.metadata()?.beside;
    // A session of the future ran under a clock that was put back since.
    let now = Timestamp::now();
    let mut others = catalog.listed()?.sessions;
    others.retain(|other| {
        // One without an end that does not run now may have ended long before.
        let worked = match other.ended {
            Some(ended) => ended > began && other.started <= now,
            None => {
                other.status == SessionStatus::Running
                    || (other.started > began && other.started <= now)
            }
        };
        other.origin == SessionOrigin::Run
            && other.session_id != session.id()
            && (worked || beside.contains(&other.session_id))
            && other.overlaps(tracked.iter().map(PathBuf::as_path))
    });
    Ok(others)
}

/// The sessions of which a restore on the paths that `session` tracks began between `began` and
/// now: what that changed is in `session` too.
///
/// # Errors
/// When the sessions cannot be listed.
pub fn restored_meanwhile(
    catalog: &Catalog,
    session: &SessionDir,
    began: Timestamp,
    tracked: &[PathBuf],
) -> Result<Vec<SessionSummary>, CatalogError> {
    let now = Timestamp::now();
    let mut others = catalog.listed()?.sessions;
    others.retain(|other| {
        let is_other = other.session_id != session.id()
            && other.overlaps(tracked.iter().map(PathBuf::as_path));
        // One that cannot be read is named by lists.
        let metadata =
            is_other.then(|| catalog.open(&other.session_id).ok()?.metadata().ok()).flatten();
        let is_meanwhile = |at: Timestamp| at > began && at <= now;
        metadata.is_some_and(|it| it.restores.iter().any(|restore| is_meanwhile(restore.at)))
    });
    Ok(others)
}
