//! The change from one state to another, made in the present state.
//!
//! For each path there are three states: the one that a change begins with, the one that it leads
//! to, and the present one. Where the present one is the first, it becomes the second. Where all
//! three differ, a text is merged by lines and each attribute by itself, if the two changes do not
//! touch each other. Everything else is a conflict: the path stays as it is and is named. No file
//! ever gets markers.
//!
//! To take a step back is such a change ([`step_undo`](super::step_undo)): from the state after the
//! step to the one before. So is a merge ([`state_merge`](super::state_merge)): from the state that
//! both sides began with to the other side's.
//!
//! The result is a tree, made of the present one. To reach it is an ordinary restore of a part:
//! with plan, safety snapshot, staging and journal. So a crash is as safe as in any other.

mod edit_tree;
mod outcome;
mod renames;
mod virtual_state;

use std::collections::BTreeSet;
use std::path::PathBuf;

use jiff::Timestamp;

use super::plan;
use super::{Decision, RestoreError, RestoreOptions, RestoreReport, Selection, States};
use crate::byte_path;
use crate::diff::Comparison;
use crate::manifest::NotCaptured;
use crate::object::ContentHash;
use crate::restore::OnConflict;
use crate::snapshot::{CacheUse, LoadedManifest, RestoreRecord, SnapshotManager, SnapshotManifest};
use crate::store::{ObjectStore, OverlayStore};
pub(super) use edit_tree::Edits;
pub(super) use edit_tree::apply;
pub(super) use outcome::Conflict;
use outcome::Outcome;
pub use outcome::{Decided, DecidedBy};
pub(super) use renames::Renames;
pub use virtual_state::ConflictSide;
pub(super) use virtual_state::{Change, Purpose, VirtualState};

/// Maximum number of plans of a state that keeps changing.
const ATTEMPTS: usize = 5;

/// A state that is made of the present one.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) root: ContentHash,
    /// The paths that are to be another.
    pub(super) paths: Vec<PathBuf>,
    /// Files among them that were merged by lines.
    pub(super) merged: Vec<PathBuf>,
    pub(super) conflicts: Vec<Conflict>,
    /// The changes that are not made, and not decided.
    pub(super) left: BTreeSet<Vec<u8>>,
    /// Conflicts about which a side or a choice decided.
    pub(super) decided: Vec<Decided>,
    /// The contents of the text of which a part is taken back.
    pub(super) left_text: Option<ContentHash>,
}

impl Wanted {
    /// The tree that a state with edits has. `current`: the root that the state began with;
    /// `linked`: paths that are to be one file.
    pub(super) fn of(
        state: VirtualState<'_>,
        store: &dyn ObjectStore,
        current: &ContentHash,
        linked: Vec<Vec<Box<[u8]>>>,
    ) -> Result<Self, RestoreError> {
        let paths = state.paths().map(|path| crate::path_text::to_path(path).to_owned()).collect();
        let root = apply(store, current, state.edits(), linked)?;
        let Outcome { merged, mut conflicts, left, mut decided } = state.finish();
        decided.sort();
        conflicts.sort();
        conflicts.dedup_by(|a, b| a.path == b.path && a.change == b.change);
        Ok(Self { root, paths, merged, conflicts, left, decided, left_text: None })
    }

    /// Later changes of these paths are in the state that is to be reached. `asked`: the choices.
    pub(super) fn options(&self, asked: &RestoreOptions) -> RestoreOptions {
        RestoreOptions {
            on_conflict: OnConflict::Overwrite,
            selection: Selection { exactly: self.paths.clone(), ..Selection::default() },
            skip_blocked: asked.skip_blocked,
            ..RestoreOptions::default()
        }
    }
}

/// A change of the present state that was carried out.
pub(super) struct Carried {
    pub(super) wanted: Wanted,
    pub(super) restore: RestoreReport,
}

/// Makes of the present state, by its root and what it left out, what is wanted.
pub(super) type WantedOf<'a> =
    &'a dyn Fn(&dyn ObjectStore, &ContentHash, &[NotCaptured]) -> Result<Wanted, RestoreError>;

impl SnapshotManager {
    /// Says what a change of the present state would do. Writes nothing.
    pub(super) fn plan_change(
        &self,
        states: States,
        asked: &RestoreOptions,
        wanted: WantedOf<'_>,
    ) -> Result<Carried, RestoreError> {
        let overlay = OverlayStore::new(self.store());
        let (target, latest) = (&states.target.manifest, &states.latest);
        let current = self.capture_current(&overlay, target, latest, CacheUse::Read)?;
        let wanted = wanted(&overlay, &current.merkle_root, &current.not_captured)?;
        let options = wanted.options(asked);
        let mut restore = self.report(target.number, &options, true);
        let states = states.aiming_at(wanted.root, &current.not_captured);
        if !wanted.paths.is_empty() {
            let (root, left_out) = (&current.merkle_root, &current.not_captured);
            let planned =
                self.planned(&overlay, &states, root, left_out, &options, &Default::default())?;
            restore.skipped.clone_from(&planned.plan.skipped);
            restore.blocked = planned.blocked;
            let Comparison { changes, touched } = planned.plan.changes.comparison();
            (restore.changes, restore.touched) = (changes, touched);
        }
        Ok(Carried { wanted, restore })
    }

    /// Changes the present state, as a restore that undoes steps. The state before is kept as a
    /// snapshot of the session. `number`: the snapshot that says what is tracked. `then` gets the
    /// work under the locks when all of it is done.
    pub(super) fn carry_out_change(
        &self,
        number: u64,
        asked: &RestoreOptions,
        decision: Decision,
        wanted: WantedOf<'_>,
        then: impl Fn(&Carried),
    ) -> Result<Carried, RestoreError> {
        let everything = RestoreOptions {
            runs_at_work: asked.runs_at_work.clone(),
            ..RestoreOptions::default()
        };
        let _mark = self.begin_restore(number, &everything)?;
        if self.session().has_restore_journal()? {
            let _ = self.clear_staging();
        }
        let _session_lock = self.lock_session()?;
        self.check_restore_count(decision.restore_count)?;
        let _store_lock = self.lock_store()?;
        for _ in 0..ATTEMPTS {
            let states = self.states(number)?;
            let (target, latest) = (&states.target.manifest, &states.latest);
            let cache = CacheUse::ReadAndWrite;
            let current = self.capture_current(self.store(), target, latest, cache)?;
            let (root, left_out) = (current.merkle_root, current.not_captured);
            let wanted = wanted(self.store(), &root, &left_out)?;
            let options = wanted.options(asked);
            if wanted.paths.is_empty() {
                let restore = self.report(number, &options, false);
                return Ok(Carried { wanted, restore });
            }
            // A merged file must survive a crash as well as the one that it replaces.
            self.store().sync()?;
            let states = states.aiming_at(wanted.root, &left_out);
            let mut prepared = self.prepare(&states, &options)?;
            // Planned from a second look: what it saw has to be what was merged.
            let seen = prepared.before.safety.map(|safety| self.load_manifest(safety));
            let seen = seen.transpose()?.map(|manifest| manifest.merkle_root);
            if seen.is_some_and(|seen| seen != root) {
                continue;
            }
            if !prepared.planned.blocked.is_empty() {
                return Err(RestoreError::Blocked { blocked: prepared.planned.blocked });
            }
            let mut restore = self.report(number, &options, false);
            let (skipped, not_kept) = prepared.planned.left();
            (restore.not_kept, restore.is_store_full) = (not_kept, prepared.is_store_full);
            restore.safety_snapshot = prepared.before.safety;
            prepared.planned.plan.skipped = skipped;
            let record = RestoreRecord {
                at: Timestamp::now(),
                snapshot: number,
                command: decision.command,
                safety_snapshot: prepared.before.safety,
                is_partial: true,
                undoes_steps: true,
                left_some: false,
                has_merged: false,
                left_text: wanted.left_text,
            };
            let target = &states.target.manifest;
            let (mut done, left) =
                self.carry_out(prepared.planned.plan, target, &prepared.before, Some(record), &[])?;
            left.retain_made(&mut done);
            (restore.changes, restore.touched) = (done.changes, done.touched);
            restore.skipped = left.skipped;
            plan::sort(&mut restore.skipped);
            let carried = Carried { wanted, restore };
            then(&carried);
            return Ok(carried);
        }
        Err(RestoreError::NeverStill)
    }
}

impl States {
    /// The same with another target. Paths that are not captured now stay so.
    pub(super) fn aiming_at(self, root: ContentHash, left_out: &[NotCaptured]) -> Self {
        let manifest = SnapshotManifest {
            merkle_root: root,
            not_captured: left_out.to_vec(),
            unstable: Vec::new(),
            ..self.target.manifest
        };
        let target = LoadedManifest { manifest, hash: self.target.hash };
        Self { target, ..self }
    }
}

/// Whether a path is what is called `.git`, or lies in it.
pub(super) fn is_in_git(path: &[u8]) -> bool {
    byte_path::components(path).any(|name| name == b".git")
}

/// Whether a path in a git directory says what is committed.
pub(super) fn is_commit(path: &[u8]) -> bool {
    let mut names = byte_path::components(path).skip_while(|name| *name != b".git").skip(1);
    matches!(names.next(), Some(b"refs" | b"HEAD" | b"packed-refs"))
}
