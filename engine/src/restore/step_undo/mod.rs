//! Taking back what single steps did, and nothing that came later.
//!
//! For each path that a step changed there are three states: the one before the step, the one after
//! it, and the present one. Where the present one is the one after, the one before comes back.
//! Where a text was changed since, the three are merged, if what the step did and what came later
//! do not touch each other. Everything else is a conflict: the path stays as it is and is named. No
//! file ever gets markers.
//!
//! Thinning removes steps. Where all the steps between two states are to be taken back, the states
//! of those in the middle are not needed. Where one of them is not, nothing is done.
//!
//! What comes of that is a tree, made of the present one. To reach it is an ordinary restore of a
//! part: with plan, safety snapshot, staging and journal, so a crash is as safe as in any other.
//! Git directories stay as they are: half of a commit is none.

mod edit_tree;
mod virtual_state;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::makers::{Link, Makers, Window};
use super::others::Contested;
use super::repositories::Repositories;
use super::{RestoreError, RestoreOptions, RestoreReport, Selection, States};
use crate::byte_path;
use crate::diff::{self, Comparison};
use crate::manifest::NotCapturedSet;
use crate::object::ContentHash;
use crate::path_text::serde_path;
use crate::restore::{OnConflict, RunsAtWork};
use crate::snapshot::{
    CacheUse, LoadedManifest, RestoreRecord, SnapshotError, SnapshotManager, SnapshotManifest,
    Step, StepKind,
};
use crate::store::{ObjectStore, OverlayStore};
use virtual_state::VirtualState;
pub(super) use virtual_state::is_commit;

/// So often it is tried to make a plan of a state that keeps changing.
const ATTEMPTS: usize = 5;

/// A path that stays as it is, because what came later cannot be told from what the step did.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepConflict {
    /// The path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// The step.
    pub step: u64,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// What taking back steps did, or would do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepUndoReport {
    /// The steps.
    pub steps: Vec<u64>,
    /// What stays as it is.
    pub step_conflicts: Vec<StepConflict>,
    /// The restore by which it was done.
    #[serde(flatten)]
    pub restore: RestoreReport,
}

impl StepUndoReport {
    /// Whether all that the steps did is taken back.
    pub fn is_complete(&self) -> bool {
        self.step_conflicts.is_empty() && self.restore.is_complete()
    }

    /// Whether nothing of the steps is left: nothing to do, and nothing that stays.
    pub fn is_nothing(&self) -> bool {
        self.is_nothing_but_commits() && self.step_conflicts.is_empty()
    }

    /// Whether nothing of the steps is left but commits and branches, which no undo of steps takes
    /// back.
    pub fn is_nothing_but_commits(&self) -> bool {
        let RestoreReport { changes, touched, skipped, .. } = &self.restore;
        let nothing_to_do = changes.is_empty() && touched.is_empty();
        let is_of_git = |it: &StepConflict| is_in_git(it.path.as_os_str().as_bytes());
        nothing_to_do && skipped.is_empty() && self.step_conflicts.iter().all(is_of_git)
    }
}

/// The treatment of what stands in the way of taking back steps.
#[derive(Debug, Clone, Default)]
pub struct StepUndoOptions {
    /// Whether the state before the steps comes back also where later changes cannot be told from
    /// theirs. Else these paths stay. Git directories stay in any case.
    pub overwrite: bool,
    /// The treatment of runs that are at work on the paths.
    pub runs_at_work: RunsAtWork,
}

/// What is to come of the present state.
struct Wanted {
    root: ContentHash,
    paths: Vec<PathBuf>,
    merged: Vec<PathBuf>,
    conflicts: Vec<StepConflict>,
}

impl SnapshotManager {
    /// Says what taking back steps would do. Writes nothing.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn plan_step_undo(
        &self,
        numbers: &[u64],
        asked: &StepUndoOptions,
    ) -> Result<StepUndoReport, RestoreError> {
        let (states, steps) = self.step_states(numbers)?;
        let overlay = OverlayStore::new(self.store());
        let (target, latest) = (&states.target.manifest, &states.latest);
        let current = self.capture_current(&overlay, target, latest, CacheUse::Read)?;
        let wanted = self.wanted(&overlay, &current.merkle_root, &steps, target, asked)?;
        let options = options_for(&wanted);
        let states = states.aiming_at(wanted.root, &current.not_captured);
        let number = states.target.manifest.number;
        let mut restore = self.report(number, &options, true);
        if !wanted.paths.is_empty() {
            let (root, left_out) = (&current.merkle_root, &current.not_captured);
            let planned =
                self.planned(&overlay, &states, root, left_out, &options, &Default::default())?;
            restore.skipped.clone_from(&planned.plan.skipped);
            let Comparison { changes, touched } = planned.plan.changes.comparison();
            (restore.changes, restore.touched) = (changes, touched);
        }
        Ok(report(numbers, wanted, restore))
    }

    /// Takes back what steps did. The state before is kept as a further snapshot of the session.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub fn undo_steps(
        &self,
        numbers: &[u64],
        asked: &StepUndoOptions,
    ) -> Result<StepUndoReport, RestoreError> {
        let everything =
            RestoreOptions { runs_at_work: asked.runs_at_work.clone(), ..Default::default() };
        let newest = numbers.iter().max().copied().unwrap_or(0);
        let _mark = self.begin_restore(newest, &everything)?;
        if self.session().has_restore_journal()? {
            let _ = self.clear_staging();
        }
        let _session_lock = self.lock_session()?;
        let _store_lock = self.lock_store()?;
        for _ in 0..ATTEMPTS {
            let (states, steps) = self.step_states(numbers)?;
            let (target, latest) = (&states.target.manifest, &states.latest);
            let cache = CacheUse::ReadAndWrite;
            let current = self.capture_current(self.store(), target, latest, cache)?;
            let root = &current.merkle_root;
            let wanted = self.wanted(self.store(), root, &steps, target, asked)?;
            let options = options_for(&wanted);
            let number = target.number;
            if wanted.paths.is_empty() {
                let restore = self.report(number, &options, false);
                return Ok(report(numbers, wanted, restore));
            }
            // What was merged must survive a crash as well as what it replaces.
            self.store().sync()?;
            let states = states.aiming_at(wanted.root, &current.not_captured);
            let mut prepared = self.prepare(&states, &options)?;
            // Planned from a second look: what it saw has to be what was merged.
            let seen = prepared.before.safety.map(|safety| self.load_manifest(safety));
            let seen = seen.transpose()?.map(|manifest| manifest.merkle_root);
            if seen.is_some_and(|seen| seen != current.merkle_root) {
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
            let target = &states.target.manifest;
            let record = RestoreRecord {
                at: Timestamp::now(),
                snapshot: number,
                safety_snapshot: prepared.before.safety,
                is_partial: true,
                undoes_steps: true,
                left_some: false,
                has_merged: false,
            };
            let (mut done, left) =
                self.carry_out(prepared.planned.plan, target, &prepared.before, record, &[])?;
            if let Err(error) = self.record_undone(undo_of(numbers, &steps)) {
                tracing::warn!("the state after the undo is not recorded: {error}");
            }
            left.retain_made(&mut done);
            (restore.changes, restore.touched) = (done.changes, done.touched);
            restore.skipped = left.skipped;
            super::plan::sort(&mut restore.skipped);
            return Ok(report(numbers, wanted, restore));
        }
        Err(RestoreError::NeverStill)
    }

    /// The states that a restore needs, and the steps with the snapshots before them, the last step
    /// first. Steps that were removed go with the next one that is held.
    fn step_states(&self, steps: &[u64]) -> Result<(States, Vec<StepStates>), RestoreError> {
        let numbers: BTreeSet<u64> = steps.iter().copied().collect();
        let session = self.session();
        let metadata = session.metadata()?;
        let mut left = numbers.clone();
        let mut found = Vec::new();
        while let Some(number) = left.pop_last() {
            session.refuse_removed(number)?;
            let load = |number| session.listed_manifest(number, &metadata.manifest_hashes);
            let after = load(number)?.manifest;
            let mut before = after.parent;
            while let Some(removed) = before.and_then(|before| metadata.removal(before)) {
                if !left.remove(&removed.number) {
                    let (session, removed) = (session.path().to_owned(), removed.clone());
                    return Err(RestoreError::StepNotApart { session, step: number, removed });
                }
                before = load(removed.number)?.manifest.parent;
            }
            let Some(before) = before else {
                return Err(SnapshotError::NoSuchSnapshot {
                    session: session.path().to_owned(),
                    number,
                    last: None,
                }
                .into());
            };
            found.push(StepStates { before: load(before)?.manifest, after });
        }
        // Where nothing is asked for, the first state will do.
        let newest = numbers.last().copied().unwrap_or(0);
        Ok((self.states(newest)?, found))
    }

    fn wanted(
        &self,
        store: &dyn ObjectStore,
        current: &ContentHash,
        steps: &[StepStates],
        target: &SnapshotManifest,
        asked: &StepUndoOptions,
    ) -> Result<Wanted, RestoreError> {
        let contested = self.contested(store, steps)?;
        let overwrite = asked.overwrite;
        let mut state = VirtualState::new(store, current, &target.roots, contested, overwrite)?;
        for step in steps {
            let StepStates { before, after } = step;
            let differences = diff::compare(store, &before.merkle_root, &after.merkle_root)?;
            let (old, new) = (NotCapturedSet::new(before), NotCapturedSet::new(after));
            let known = differences.iter().filter(|it| diff::is_known(it, &old, &new));
            state.take_back(after.number, known)?;
        }
        let paths = state.paths().map(|path| PathBuf::from(OsString::from_vec(path.to_vec())));
        let paths = paths.collect();
        let root = edit_tree::apply(store, current, state.edits())?;
        let (merged, mut conflicts) = state.finish();
        conflicts.sort();
        conflicts.dedup_by(|a, b| a.path == b.path && a.step == b.step);
        Ok(Wanted { root, paths, merged, conflicts })
    }
}

impl SnapshotManager {
    /// The paths of steps that other sessions may have changed at the same time.
    fn contested(
        &self,
        store: &dyn ObjectStore,
        steps: &[StepStates],
    ) -> Result<Contested, RestoreError> {
        // Oldest first.
        let links = steps.iter().rev().map(|StepStates { before, after }| Link {
            before: &before.merkle_root,
            after: &after.merkle_root,
            restored: None,
            makers: Makers { session: true, user: None },
            number: after.number,
            window: Window { from: before.timestamp, to: after.timestamp },
        });
        let links: Vec<Link<'_>> = links.collect();
        // Git directories stay as they are.
        let metadata = self.session().metadata().map_err(SnapshotError::from)?;
        Contested::find(store, self.session(), &metadata, &links, &Repositories::default())
    }
}

/// A step, and the state before it.
struct StepStates {
    before: SnapshotManifest,
    after: SnapshotManifest,
}

impl States {
    /// With another state as the one that is to be reached. What is not captured now stays so.
    fn aiming_at(self, root: ContentHash, left_out: &[crate::manifest::NotCaptured]) -> Self {
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

/// Later changes of these paths are in the state that is to be reached.
fn options_for(wanted: &Wanted) -> RestoreOptions {
    RestoreOptions {
        on_conflict: OnConflict::Overwrite,
        selection: Selection { exactly: wanted.paths.clone(), ..Selection::default() },
        ..RestoreOptions::default()
    }
}

fn report(steps: &[u64], wanted: Wanted, restore: RestoreReport) -> StepUndoReport {
    let Wanted { merged, conflicts: step_conflicts, .. } = wanted;
    let restore = RestoreReport { merged, ..restore };
    let steps = BTreeSet::from_iter(steps.iter().copied()).into_iter().collect();
    StepUndoReport { steps, step_conflicts, restore }
}

/// What the snapshot after an undo says of itself.
fn undo_of(numbers: &[u64], steps: &[StepStates]) -> Step {
    let last = steps.first().and_then(|step| step.after.step.clone()).unwrap_or_default();
    let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    let steps = if numbers.len() == 1 { "step" } else { "steps" };
    Step {
        kind: StepKind::Undo,
        agent: last.agent,
        agent_session: last.agent_session,
        title: format!("undo of {steps} {}", numbers.join(", ")),
        ..Step::default()
    }
}

/// Whether a path is what is called `.git`, or lies in it.
pub(super) fn is_in_git(path: &[u8]) -> bool {
    byte_path::components(path).any(|name| name == b".git")
}
