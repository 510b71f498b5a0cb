//! Taking back what single steps did, and nothing that came later.
//!
//! Each step is a change from the state after it to the one before, done in the present state
//! ([`three_way`](super::three_way)). Where the present state of a path is the one after the step,
//! the one before comes back. Later changes of the same file stay, if they do not touch what the
//! step did.
//!
//! Thinning removes steps. Where all the steps between two states are to be taken back, the states
//! of those in the middle are not needed. Where one of them is not, nothing is done.
//!
//! A step that is taken back already has nothing left, also where an earlier step changed the same
//! lines and is taken back as well. Its changes are planned all the same, because a part of them
//! may have come again. But they are no conflict, and nothing is overwritten for them: the state
//! before the step may be the work of the other one.
//!
//! Git directories stay as they are: half of a commit is none.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use super::makers::{Link, Makers, Window};
use super::others::Contested;
use super::repositories::Repositories;
use super::three_way::{
    Carried, Change, Conflict, Purpose, VirtualState, Wanted, is_commit, is_in_git,
};
use super::{
    Decision, JobReport, OnConflict, RestoreError, RestoreOptions, RestoreReport, States,
    StepConflict,
};
use crate::diff;
use crate::manifest::NotCapturedSet;
use crate::object::ContentHash;
use crate::snapshot::{
    SessionMetadata, SnapshotError, SnapshotManager, SnapshotManifest, Step, StepEntry, StepKind,
    standing,
};
use crate::store::ObjectStore;

impl SnapshotManager {
    /// Says what taking back steps would do. Writes nothing.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub(crate) fn plan_step_undo(
        &self,
        numbers: &[u64],
        options: &RestoreOptions,
    ) -> Result<JobReport, RestoreError> {
        let (states, steps) = self.step_states(numbers)?;
        let target = states.target.manifest.clone();
        let carried = self.plan_change(states, options, &|store, current, _| {
            self.without(store, current, &steps, &target, options)
        })?;
        Ok(report(numbers, carried))
    }

    /// Takes back what steps did. The state before is kept as a further snapshot of the session.
    ///
    /// # Errors
    /// [`RestoreError`]; but for [`RestoreError::HalfDone`], nothing has changed then.
    pub(crate) fn undo_steps(
        &self,
        numbers: &[u64],
        options: &RestoreOptions,
        decision: Decision,
    ) -> Result<JobReport, RestoreError> {
        let newest = numbers.iter().max().copied().unwrap_or(0);
        let carried = self.carry_out_change(
            newest,
            options,
            decision,
            &|store, current, _| {
                let (states, steps) = self.step_states(numbers)?;
                let target = &states.target.manifest;
                self.without(store, current, &steps, target, options)
            },
            |carried| {
                let last = self.load_manifest(newest).map(|last| last.step.unwrap_or_default());
                let undo = |last| undo_of(numbers, carried, last);
                let noted = last.and_then(|last| self.record_undone(undo(last)));
                if let Err(error) = noted {
                    tracing::warn!("the state after the undo is not recorded: {error}");
                }
            },
        )?;
        Ok(report(numbers, carried))
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

    /// The present state without what steps did.
    fn without(
        &self,
        store: &dyn ObjectStore,
        current: &ContentHash,
        steps: &[StepStates],
        target: &SnapshotManifest,
        options: &RestoreOptions,
    ) -> Result<Wanted, RestoreError> {
        let contested = self.contested(store, steps)?;
        let metadata = self.session().metadata().map_err(SnapshotError::from)?;
        let taken_back = taken_back(&metadata);
        // Else the paths with later changes stay, and git directories in any case.
        let overwrites = options.on_conflict == OnConflict::Overwrite;
        let state = VirtualState::new(store, current, &target.roots, Purpose::TakeBack)?;
        let mut state = state.with_contested(contested);
        for StepStates { before, after } in steps {
            let is_taken_back = taken_back.contains(&after.number);
            state = state.overwriting(overwrites && !is_taken_back);
            let differences = diff::compare(store, &before.merkle_root, &after.merkle_root)?;
            let (old, new) = (NotCapturedSet::new(before), NotCapturedSet::new(after));
            let known = differences
                .into_iter()
                .filter(|it| it.change_type().is_some() && diff::is_known(it, &old, &new));
            let (of_git, known): (Vec<_>, Vec<_>) = known.partition(|it| is_in_git(&it.path));
            for difference in of_git.iter().filter(|it| is_commit(&it.path)) {
                let reason = "commits and branches stay as they are: use git for them";
                state.conflict(after.number, &difference.path, reason);
            }
            let back =
                known.into_iter().map(|it| Change { path: it.path, from: it.new, to: it.old });
            state.carry_over(after.number, back)?;
        }
        let mut wanted = Wanted::of(state, store, current, Vec::new())?;
        wanted.conflicts.retain(|it| {
            is_in_git(it.path.as_os_str().as_bytes()) || !taken_back.contains(&it.change)
        });
        Ok(wanted)
    }
}

impl SnapshotManager {
    /// The paths of steps that other sessions may have changed at the same time.
    fn contested(
        &self,
        store: &dyn ObjectStore,
        steps: &[StepStates],
    ) -> Result<Contested, RestoreError> {
        // No other session works in what another source shows.
        if self.has_source() {
            return Ok(Contested::default());
        }
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

fn report(steps: &[u64], Carried { wanted, restore }: Carried) -> JobReport {
    let Wanted { merged, conflicts, .. } = wanted;
    let conflict = |Conflict { path, change: step, reason }| StepConflict { path, step, reason };
    let step_conflicts = conflicts.into_iter().map(conflict).collect();
    let restore = RestoreReport { merged, ..restore };
    let steps = BTreeSet::from_iter(steps.iter().copied()).into_iter().collect();
    JobReport { steps, step_conflicts, restore }
}

/// The steps that restores took back which still stand: undos that left nothing of them, and
/// restores of states before them.
fn taken_back(metadata: &SessionMetadata) -> BTreeSet<u64> {
    // Each with the state before it.
    let mut of_restores: Vec<(u64, Vec<u64>)> = Vec::new();
    for record in standing(&metadata.restores) {
        let Some(before) = record.safety_snapshot else { continue };
        if record.undoes_steps {
            // The next snapshot has the state that it left.
            let is_it = |step: &&StepEntry| step.number == before + 1;
            let undo = metadata.steps.iter().find(is_it);
            of_restores.push((before, undo.map_or_else(Vec::new, |undo| undo.undoes.clone())));
        } else if !record.is_partial {
            // Steps that were taken back before that state are so again.
            of_restores.retain(|(at, _)| *at < record.snapshot);
            let later = record.snapshot + 1..before;
            let numbers = metadata.steps.iter().map(|step| step.number);
            if !record.left_some {
                of_restores.push((before, numbers.filter(|it| later.contains(it)).collect()));
            }
        }
    }
    of_restores.into_iter().flat_map(|(_, steps)| steps).collect()
}

/// The step that the snapshot after an undo tells of itself. `last`: the last of the steps.
fn undo_of(numbers: &[u64], carried: &Carried, last: Step) -> Step {
    let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
    let is_left = |number: u64| {
        let of_step = carried.wanted.conflicts.iter().filter(|it| it.change == number);
        of_step.map(|it| it.path.as_os_str().as_bytes()).any(|path| !is_in_git(path))
    };
    let is_done = carried.restore.skipped.is_empty();
    let undoes = numbers.iter().copied().filter(|number| is_done && !is_left(*number)).collect();
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    let steps = if numbers.len() == 1 { "step" } else { "steps" };
    Step {
        undoes,
        kind: StepKind::Undo,
        agent: last.agent,
        agent_session: last.agent_session,
        title: format!("undo of {steps} {}", numbers.join(", ")),
        ..Step::default()
    }
}
