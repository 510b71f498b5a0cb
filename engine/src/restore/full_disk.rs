//! A full disk of the project: what goes anyway goes first.
//!
//! A restore stages all that is new before anything goes. On a full disk that fails, also where the
//! restore frees more than it needs. Then it is done in two parts, each with a journal of its own:
//! the removals, then the rest. The safety snapshot from before the first part holds every removed
//! byte, and one redo takes both parts back. After a crash between them the session says that a
//! part was restored, and the same command does the rest.

use std::collections::HashSet;

use super::plan::RestorePlan;
use super::three_way::is_in_git;
use super::{Decision, KeepBefore, RestoreError, RestoreOptions, RestoreReport};
use crate::snapshot::SnapshotManager;
use crate::sys::Dir;

/// The part of a plan that is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// The paths that are only removed: none, unless they make enough space for the rest.
    Removals {
        /// Bytes that are free before.
        free: u64,
    },
    /// The rest, after the removals.
    Rest {
        /// The snapshot of the state before the removals.
        safety: Option<u64>,
    },
}

impl SnapshotManager {
    /// Carries out a plan as a whole, or on a full disk in two parts. Under the locks.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`] and [`RestoreError::OnlyRemoved`],
    /// nothing has changed then.
    pub(super) fn restore_in_parts(
        &self,
        number: u64,
        options: &RestoreOptions,
        decision: Decision,
    ) -> Result<RestoreReport, RestoreError> {
        let restore = |part| self.restore_part(number, options, decision, part);
        let (mount_point, removed, cause) = match restore(Part::Whole) {
            Err(RestoreError::ProjectFull { mount_point, removed, cause }) => {
                (mount_point, removed, cause)
            }
            done => return done,
        };
        // Free space is not for a user whose quota is exhausted.
        let told = if cause.is_quota() { None } else { Dir::open(&mount_point)?.free_bytes()? };
        let free = told.unwrap_or(0);
        let full = RestoreError::ProjectFull { mount_point, removed, cause };
        // Without a snapshot, what is removed would be gone for good before the rest is certain.
        if options.keep_before == KeepBefore::Nothing {
            return Err(full);
        }
        let first = restore(Part::Removals { free })?;
        if first.changes.is_empty() {
            return Err(full);
        }
        let removed = first.changes.len();
        let safety = first.safety_snapshot;
        let rest = match restore(Part::Rest { safety }) {
            Ok(rest) if rest.is_refused() => {
                Err(RestoreError::Conflicts { conflicts: rest.conflicts })
            }
            Err(error) if !error.is_before_any_change() => return Err(error),
            done => done,
        };
        let rest = rest.map_err(|cause| RestoreError::OnlyRemoved {
            removed,
            safety,
            cause: Box::new(cause),
        })?;
        Ok(rest.after(first))
    }
}

impl RestorePlan {
    /// Narrows the plan to the paths that are only removed: to nothing, unless they and the `free`
    /// bytes are enough for the rest of the plan.
    pub(super) fn keep_removals(&mut self, free: u64) {
        let gone = self.actions.gone();
        let is_gone = |path: &[u8]| gone.contains(path) && !is_in_git(path);
        let removals = self.actions.removals.iter().filter(|it| is_gone(&it.path));
        let freed: u64 = removals.map(|removal| removal.current.bytes()).sum();
        if freed == 0 || freed.saturating_add(free) < self.bytes_to_write {
            *self = Self::default();
            return;
        }
        let gone: HashSet<Vec<u8>> =
            gone.iter().filter(|path| is_gone(path)).map(|path| path.to_vec()).collect();
        self.narrow(|path, _| gone.contains(path), |_, _| false, &HashSet::new());
    }
}

impl RestoreReport {
    /// The report of the rest, with that of the removals before it.
    fn after(mut self, first: Self) -> Self {
        self.changes.extend(first.changes);
        self.changes.sort_by(|a, b| a.path.cmp(&b.path));
        self.touched.extend(first.touched);
        self.touched.sort();
        self.touched.dedup();
        self.conflicts.extend(first.conflicts);
        self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        self.conflicts.dedup_by(|a, b| a.path == b.path);
        self
    }
}
