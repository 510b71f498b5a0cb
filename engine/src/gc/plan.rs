//! The plan of a cleanup.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::store_root::{StoreRoot, identity};
use super::survey::Survey;
use super::{CleanupError, CleanupOptions, CleanupReport, SkipReason, SkippedSession};
use crate::snapshot::{ManifestError, SessionDir};

fn reason_to_stay(session: &SessionDir) -> Result<Option<SkipReason>, ManifestError> {
    Ok(if session.is_running()? {
        Some(SkipReason::Running)
    } else if session.is_needed_by_restore()? {
        Some(SkipReason::RestoreInterrupted)
    } else if session.is_needed_by_fork()? {
        Some(SkipReason::Forked)
    } else {
        None
    })
}

/// The sessions that go. Making a plan changes nothing and costs little: [`foresee`](Self::foresee)
/// finds out the freed space, and the application does so again.
#[derive(Debug, Clone)]
pub struct CleanupPlan {
    pub(super) root: PathBuf,
    /// Names of the sessions to remove in the root directory.
    pub(super) names: Vec<Box<[u8]>>,
    pub(super) skipped: Vec<SkippedSession>,
    removed: Vec<SessionDir>,
    kept: Vec<SessionDir>,
}

impl CleanupPlan {
    /// Plans the removal of sessions (of none: only leftovers of interrupted work are freed) from
    /// the store in `root`, which holds the sessions' directories and their shared `objects`.
    /// Sessions that cannot be removed now are skipped.
    ///
    /// # Errors
    /// [`CleanupError::NotInRoot`], [`CleanupError::RootIsSession`], or a directory that cannot be
    /// read.
    pub fn new(root: &Path, remove: &[SessionDir]) -> Result<Self, CleanupError> {
        let store_root = StoreRoot::open(root)?;
        let mut plan = Self {
            root: root.to_owned(),
            names: Vec::new(),
            skipped: Vec::new(),
            removed: Vec::new(),
            kept: Vec::new(),
        };
        for session in remove {
            let Some(name) = store_root.name_of(session)? else { continue };
            if plan.names.contains(&name) {
                continue;
            }
            let reason = match reason_to_stay(session) {
                Err(_) if session.is_gone() => continue,
                reason => reason?,
            };
            match reason {
                Some(reason) => {
                    plan.skipped.push(SkippedSession { session_id: session.id(), reason });
                    plan.kept.push(session.clone());
                }
                None => {
                    plan.names.push(name);
                    plan.removed.push(session.clone());
                }
            }
        }
        Ok(plan)
    }

    /// The effect that it would have now. Changes nothing and needs no lock; numbers may be off
    /// while a snapshot is being taken.
    ///
    /// `remaining` are all other sessions whose objects are in that store. Those of the root
    /// directory are found even if they are not named; sessions that lie elsewhere and use this
    /// store must be named. A session that is in both is removed.
    ///
    /// # Errors
    /// [`CleanupError::DamagedSession`] when a remaining session cannot be read completely, and as
    /// [`CleanupError`] says.
    pub fn foresee(
        &self,
        remaining: &[SessionDir],
        options: &CleanupOptions<'_>,
    ) -> Result<CleanupReport, CleanupError> {
        let root = StoreRoot::open(&self.root)?;
        if let Some((store, _)) = &root.store {
            store.set_compression(options.compression);
        }
        let mut known = HashSet::new();
        for session in self.removed.iter().chain(&self.kept) {
            known.extend(identity(session)?);
        }
        let mut kept: Vec<&SessionDir> = self.kept.iter().collect();
        for session in remaining {
            if identity(session)?.is_some_and(|id| known.insert(id)) {
                kept.push(session);
            }
        }
        let leftovers = root.leftovers()?;
        let removed: Vec<&SessionDir> = self.removed.iter().chain(&leftovers).collect();
        // Only a writer is kept waiting, and only for a look. A store that cannot be locked is
        // looked at all the same.
        let store = root.store.as_ref().filter(|_| options.orphans_at_once);
        let options = match store.map(|(store, _)| store.try_lock_exclusive()) {
            Some(Ok(Some(_lock))) => options.when_alone(&kept),
            _ => *options,
        };
        let survey = options.pool()?.install(|| Survey::new(&root, &removed, &kept, &options))?;
        Ok(survey.report(CleanupReport {
            dry_run: true,
            sessions_removed: self.removed.iter().map(SessionDir::id).collect(),
            sessions_skipped: self.skipped.clone(),
            ..CleanupReport::default()
        }))
    }
}
