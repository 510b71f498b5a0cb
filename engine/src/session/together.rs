//! Sessions that were at work on the same files at the same time.

use std::path::PathBuf;

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError};
use super::summary::{SessionStatus, SessionSummary};
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
    let mut running = catalog.listed()?.sessions;
    running.retain(|session| {
        session.status == SessionStatus::Running
            && except.is_none_or(|except| except.id() != session.session_id)
            && session.overlaps(paths.iter().map(PathBuf::as_path))
    });
    Ok(running)
}

/// The sessions whose command ran between `began` and now on the paths that `session` tracks: what
/// they changed is in it too. `seen`: ids of those that ran when it began.
///
/// # Errors
/// When the sessions cannot be listed.
pub fn worked_meanwhile(
    catalog: &Catalog,
    session: &SessionDir,
    began: Timestamp,
    tracked: &[PathBuf],
    seen: &[String],
) -> Result<Vec<SessionSummary>, CatalogError> {
    let mut others = catalog.listed()?.sessions;
    others.retain(|other| {
        // One without an end that does not run now may have ended long before.
        let worked = match other.ended {
            Some(ended) => ended > began,
            None => other.status == SessionStatus::Running || other.started > began,
        };
        other.origin == SessionOrigin::Run
            && other.session_id != session.id()
            && (worked || seen.contains(&other.session_id))
            && other.overlaps(tracked.iter().map(PathBuf::as_path))
    });
    Ok(others)
}
