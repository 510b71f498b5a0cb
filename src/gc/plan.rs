//! What a cleanup will do.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::store_root::{StoreRoot, identity};
use super::survey::Survey;
use super::{CleanupError, CleanupOptions, CleanupReport, SkipReason, SkippedSession};
use crate::snapshot::SessionDir;

/// Sessions to remove and what that frees. Making one changes nothing.
#[derive(Debug, Clone)]
pub struct CleanupPlan {
    pub(super) root: PathBuf,
    /// Names of the sessions to remove in the root directory.
    pub(super) names: Vec<Box<[u8]>>,
    report: CleanupReport,
}

impl CleanupPlan {
    /// Plans the removal of sessions (of none: only what interrupted work left is freed) from the
    /// store in `root`, which holds the sessions' directories and their shared `objects`.
    ///
    /// `remaining` are all other sessions whose objects are in that store. Those of the root
    /// directory are found even if they are not named; sessions that lie elsewhere and use this
    /// store must be named. A session that is in both is removed. Needs no lock; numbers may be off
    /// while a snapshot is being taken.
    ///
    /// # Errors
    /// [`CleanupError::DamagedSession`] when a remaining session cannot be read completely, and as
    /// [`CleanupError`] says.
    pub fn new(
        root: &Path,
        remove: &[SessionDir],
        remaining: &[SessionDir],
        options: &CleanupOptions<'_>,
    ) -> Result<Self, CleanupError> {
        let store_root = StoreRoot::open(root)?;
        let mut report = CleanupReport { dry_run: true, ..CleanupReport::default() };
        let mut names = Vec::new();
        let mut removed: Vec<&SessionDir> = Vec::new();
        let mut kept: Vec<&SessionDir> = Vec::new();
        for session in remove {
            let Some(name) = store_root.name_of(session)? else { continue };
            if names.contains(&name) {
                continue;
            }
            let reason = if session.is_running()? {
                Some(SkipReason::Running)
            } else if session.has_restore_journal()? {
                Some(SkipReason::RestoreInterrupted)
            } else {
                None
            };
            if let Some(reason) = reason {
                report.sessions_skipped.push(SkippedSession { session_id: session.id(), reason });
                kept.push(session);
                continue;
            }
            report.sessions_removed.push(session.id());
            names.push(name);
            removed.push(session);
        }
        let mut known = HashSet::new();
        for session in remove {
            known.extend(identity(session)?);
        }
        for session in remaining {
            if identity(session)?.is_some_and(|id| known.insert(id)) {
                kept.push(session);
            }
        }
        let leftovers = store_root.leftovers()?;
        removed.extend(&leftovers);
        let survey = Survey::new(&store_root, &removed, &kept, options)?;
        let report = survey.report(report);
        Ok(Self { root: root.to_owned(), names, report })
    }

    /// What it would do, with the numbers of the moment in which it was made.
    pub fn report(&self) -> &CleanupReport {
        &self.report
    }
}
