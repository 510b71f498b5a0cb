//! The end of a restore, one way or the other: the staged files are cleared away, then the journal.
//! Leftovers are named.

use super::RestoreError;
use super::areas::Areas;
use super::journal::{End, Journal, Step, Work};
use super::plan::Skipped;
use crate::layout;
use crate::object::Node;
use crate::path_text::Shown;
use crate::snapshot::{SnapshotManager, TrackedRoot};
use crate::sys;

impl SnapshotManager {
    /// Ends a restore whose paths are all in one state or all in the other: clears the staging
    /// directories away, then the journal. `finished` is the work that was done; without it the
    /// state is the one before. Returns what cannot be as it was.
    ///
    /// # Errors
    /// Something is left, and the journal that names it.
    pub(super) fn settle(
        &self,
        mut journal: Journal,
        finished: Option<&Work>,
        roots: &[TrackedRoot],
    ) -> sys::Result<Vec<Skipped>> {
        journal.work = None;
        journal.end = Some(if finished.is_some() { End::Finished } else { End::TakenBack });
        for area in &mut journal.areas {
            let target = finished.and_then(|work| {
                work.steps.iter().find_map(|step| match step {
                    Step::Attributes { path, target, .. } if *path == area.parent => Some(target),
                    _ => None,
                })
            });
            if let Some(target) = target.filter(|t| matches!(t.node, Node::Directory { .. })) {
                area.mtime = target.attributes.mtime;
            }
        }
        // From here on there is nothing to take back and nothing to finish. As long as the journal
        // on the disk has steps, what is staged stays: both ways out of them need it.
        journal.save(self.session())?;
        self.clear_up(&journal, roots)
    }

    /// The same of a journal on the disk that has no steps: nothing has to be written, as the disk
    /// may be full.
    pub(super) fn clear_up(
        &self,
        journal: &Journal,
        roots: &[TrackedRoot],
    ) -> sys::Result<Vec<Skipped>> {
        let denied = Areas::open(&journal.areas, roots)?.clear()?;
        Journal::remove(self.session())?;
        Ok(denied)
    }

    /// Whether the journal on the disk surely has no steps: saving them may have failed half-way.
    pub(super) fn is_journal_without_steps(&self) -> bool {
        Journal::load(self.session())
            .is_ok_and(|journal| journal.is_some_and(|journal| journal.work.is_none()))
    }

    /// The leftovers of a finished restore.
    pub(super) fn left_of_restore(&self, areas: &Areas, error: &sys::Error) -> Vec<Skipped> {
        let mut paths = areas.left();
        if paths.is_empty() {
            paths.push(self.session().path().join(layout::RESTORE_JOURNAL));
        }
        let reason = format!("it is left of the restore, until that is resumed: {error}");
        paths.into_iter().map(|path| Skipped { path, reason: reason.clone() }).collect()
    }
}

/// The differences that remain after a restore that did not happen.
pub(super) fn warn_of(denied: &[Skipped]) {
    for Skipped { path, reason } in denied {
        tracing::warn!("{}: {reason}", Shown::path(path));
    }
}

/// Why a restore did not happen, and what is left of it.
pub(super) fn with_what_is_left(
    cause: RestoreError,
    cleared: sys::Result<Vec<Skipped>>,
    areas: &Areas,
) -> RestoreError {
    match cleared {
        Ok(denied) => {
            warn_of(&denied);
            cause
        }
        Err(error) => {
            let (cause, staging) = (Box::new(cause), areas.left());
            RestoreError::StagingLeft { cause, error, staging }
        }
    }
}
