//! The others that change files now, or recorded a change: a watcher leaves that to them.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};

use crate::progress::Progress;
use crate::restore::{runs_on, wait_for_restores};
use crate::snapshot::{ManifestError, SessionDir, SessionOrigin};
use crate::sys::FileTime;

/// A call that began longer ago than this counts as one of an agent that was killed.
const LONGEST_CALL: SignedDuration = SignedDuration::from_hours(1);

/// Something that changes files and is recorded by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtWork {
    /// A recorded command, by its session.
    Run(String),
    /// A call of an agent, by its session.
    Call(String),
    /// A restore.
    Restore,
}

impl std::fmt::Display for AtWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(id) => write!(f, "the command of session {id}"),
            Self::Call(id) => write!(f, "a call of the agent of session {id}"),
            Self::Restore => f.write_str("a restore"),
        }
    }
}

/// The first one found that works on these paths, if any does.
///
/// # Errors
/// When the store cannot be listed.
pub fn at_work(root: &Path, paths: &[PathBuf]) -> Result<Option<AtWork>, ManifestError> {
    if let Some(run) = runs_on(root, paths)?.first() {
        return Ok(Some(AtWork::Run(run.id())));
    }
    let now = Timestamp::now();
    for session in SessionDir::all_below(root)? {
        // One that cannot be looked at is no obstacle.
        let began = session.call_began().ok().flatten().and_then(FileTime::timestamp);
        let is_recent = began.is_some_and(|began| began > now - LONGEST_CALL);
        if is_recent && is_of(&session, paths) {
            return Ok(Some(AtWork::Call(session.id())));
        }
    }
    let is_free = wait_for_restores(root, paths, &NoPatience)?;
    Ok((!is_free).then_some(AtWork::Restore))
}

/// Whether a command or an agent of another session than `own`, or a restore of any, recorded
/// changes of these paths after a moment.
///
/// # Errors
/// When the store cannot be listed.
pub fn recorded_by_others(
    root: &Path,
    paths: &[PathBuf],
    own: &str,
    since: Timestamp,
) -> Result<bool, ManifestError> {
    // A restore of the future happened under a wrong clock.
    let now = Timestamp::now();
    for session in SessionDir::all_below(root)? {
        let Ok(metadata) = session.metadata() else { continue };
        let is_writer = session.id() != own
            && matches!(metadata.origin, SessionOrigin::Run | SessionOrigin::Agent);
        let is_restored =
            metadata.restores.iter().any(|restore| restore.at > since && restore.at <= now);
        let is_written = || {
            let last = session.last_written().ok().flatten().and_then(FileTime::timestamp);
            last.is_some_and(|last| last > since)
        };
        if is_of(&session, paths) && (is_restored || (is_writer && is_written())) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_of(session: &SessionDir, paths: &[PathBuf]) -> bool {
    session.metadata().is_ok_and(|metadata| {
        !metadata.received
            && metadata.tracked_paths.iter().any(|tracked| {
                paths.iter().any(|path| tracked.starts_with(path) || path.starts_with(tracked))
            })
    })
}

/// Does not wait.
struct NoPatience;

impl Progress for NoPatience {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn is_cancelled(&self) -> bool {
        true
    }
}
