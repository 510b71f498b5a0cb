//! Merging a state into the live projects: what another side did since a state that both sides
//! began with.
//!
//! The change from `base` to `theirs` is made in the present state
//! ([`three_way`](super::three_way)): texts are merged by lines, attributes each by itself, files
//! and symlinks as wholes. A file that one side renamed gets what the other side did in it. The
//! rest is a named conflict: the path stays as it is here.
//!
//! A merge is the work of a session of its own. The last snapshot of that session before the merge
//! holds the state before, so the session's undo takes the merge back. The journal knows the merge,
//! and a crash at any point leaves one state or leads to it.
//!
//! Git directories are left out, with HEAD, index and locks: a merged index would be none. A
//! path that either side did not capture is unknown, and stays. Setuid, setgid and capabilities
//! that the other side added do not come along.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::check_selection::{Present, check_selection};
use super::privileges::without_privileges;
use super::selection::Selected;
use super::three_way::{
    Carried, Change, Conflict, Purpose, Renames, ToldAs, VirtualState, Wanted, is_in_git,
};
use super::{RestoreError, RestoreReport, RunsAtWork, Selection};
use crate::byte_path;
use crate::diff::{self, Difference, EntryState};
use crate::manifest::NotCapturedSet;
use crate::object::{ContentHash, FileTime, Node};
use crate::path_text::serde_path;
use crate::snapshot::{Built, CacheUse, SnapshotManager, SnapshotManifest, Totals};
use crate::store::{ObjectSource, ObjectStore, StoreError};
use crate::sys;

const OF_GIT: &str = "git directories are not merged: only the commits in them can be fetched";

/// A change that is to be merged into the live projects. The store has the objects of both states.
#[derive(Debug, Clone)]
pub struct Merge {
    base: SnapshotManifest,
    theirs: SnapshotManifest,
    selection: Selection,
    runs_at_work: RunsAtWork,
    /// The time of files that get other contents.
    time: FileTime,
}

/// A path that stays as it is here, because both sides changed it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MergeConflict {
    /// The path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Why, as a sentence for a person.
    pub reason: String,
}

/// The result of a merge, or of a plan of one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MergeReport {
    /// The paths that stay as they are here.
    pub merge_conflicts: Vec<MergeConflict>,
    /// The restore by which it was done: its changes, the files that were merged by lines, and what
    /// could not be done.
    #[serde(flatten)]
    pub restore: RestoreReport,
}

impl MergeReport {
    /// Whether all that the other side did is here now.
    pub fn is_complete(&self) -> bool {
        self.merge_conflicts.is_empty() && self.restore.is_complete()
    }

    /// Whether there was nothing to do: no change, and no conflict.
    pub fn is_nothing(&self) -> bool {
        let RestoreReport { changes, touched, skipped, .. } = &self.restore;
        changes.is_empty()
            && touched.is_empty()
            && skipped.is_empty()
            && self.merge_conflicts.is_empty()
    }
}

/// The result of a merge as a snapshot, before anything of it is in the project.
#[derive(Debug, Clone)]
pub struct MergedState {
    /// Number of the snapshot in the session of the merge.
    pub number: u64,
    /// The plan of the merge.
    pub report: MergeReport,
    /// The root of the state that it was made from.
    seen: ContentHash,
}

impl Merge {
    /// Merges what leads from `base` to `theirs`. Both have the same tracked paths.
    pub fn new(base: SnapshotManifest, theirs: SnapshotManifest) -> Self {
        let (selection, runs_at_work) = (Selection::default(), RunsAtWork::default());
        Self { base, theirs, selection, runs_at_work, time: sys::coarse_now() }
    }

    /// The same for these paths alone.
    #[must_use]
    pub fn of(self, selection: Selection) -> Self {
        Self { selection, ..self }
    }

    /// The same with this treatment of runs that are at work in the project.
    #[must_use]
    pub fn beside(self, runs_at_work: RunsAtWork) -> Self {
        Self { runs_at_work, ..self }
    }

    /// The selected changes of the other side: files and directories, and new git
    /// directories, which do not come along.
    fn changes(
        &self,
        store: &dyn ObjectSource,
        current: &ContentHash,
    ) -> Result<(Vec<Change>, Vec<Vec<u8>>), RestoreError> {
        let Self { base, theirs, selection, .. } = self;
        let roots = [&base.merkle_root, &theirs.merkle_root, current];
        let present = Present::new(store, &roots)?;
        let mut exists = |path: &[u8]| present.has(path);
        let selected = Selected::new(selection, &base.roots, &mut exists)?;
        check_selection(&present, &selected, base)?;
        let (mut changes, git_dirs): (Vec<_>, Vec<_>) =
            known_changes(store, base, theirs)?.partition(|change| !is_in_git(&change.path));
        if !selected.is_all() {
            let is_meant = |change: &Change| selected.contains(&change.path);
            // A selected path comes with the new directories above it.
            let needed: BTreeSet<Vec<u8>> = changes
                .iter()
                .filter(|change| change.to.is_some() && is_meant(change))
                .flat_map(|change| byte_path::ancestors(&change.path).map(<[u8]>::to_vec))
                .collect();
            changes.retain(|change| {
                let is_new_directory = change.to.as_ref().is_some_and(|to| to.is_directory());
                is_meant(change) || is_new_directory && needed.contains(&change.path)
            });
        }
        let is_new = |change: &Change| change.path.ends_with(b"/.git") && change.from.is_none();
        let of_git = git_dirs.into_iter().filter(|it| is_new(it) && selected.contains(&it.path));
        Ok((changes, of_git.map(|change| change.path).collect()))
    }

    /// The merged state.
    fn wanted(
        &self,
        store: &dyn ObjectStore,
        current: &ContentHash,
    ) -> Result<Wanted, RestoreError> {
        let (mut changes, new_repositories) = self.changes(store, current)?;
        let roots = &self.base.roots;
        let here: Vec<Change> = diff::compare(store, &self.base.merkle_root, current)?
            .into_iter()
            .filter_map(change_of)
            .collect();
        let state = VirtualState::new(store, current, roots, Purpose::Merge(self.time))?;
        let mut state = state.with_renamed_here(Renames::among(&here));
        for change in &mut changes {
            if let Some(less) = change.without_new_privileges() {
                change.to = Some(Arc::new(less));
                state.conflict(0, &change.path, "setuid, setgid and capabilities were left off");
            }
        }
        for path in &new_repositories {
            if state.get(path)?.is_none() {
                state.conflict(0, path, OF_GIT);
            }
        }
        state.carry_over(0, changes.into_iter())?;
        Wanted::of(state, store, current)
    }
}

/// A difference as a change; `None`: it is one of times.
fn change_of(difference: Difference) -> Option<Change> {
    difference.change_type()?;
    let Difference { path, old: from, new: to, .. } = difference;
    Some(Change { path, from, to })
}

/// The changes between two snapshots, without what one of them did not capture.
fn known_changes(
    store: &dyn ObjectSource,
    old: &SnapshotManifest,
    new: &SnapshotManifest,
) -> Result<impl Iterator<Item = Change>, RestoreError> {
    let differences = diff::compare(store, &old.merkle_root, &new.merkle_root)?;
    let (then, now) = (NotCapturedSet::new(old), NotCapturedSet::new(new));
    let known: Vec<Change> = differences
        .into_iter()
        .filter(|it| diff::is_known(it, &then, &now))
        .filter_map(change_of)
        .collect();
    Ok(known.into_iter())
}

impl Change {
    /// The state that it leads to without the privileges that it adds; `None`: it adds none.
    fn without_new_privileges(&self) -> Option<EntryState> {
        let less = without_privileges(self.to.as_deref()?)?;
        let has_them = self.from.as_deref().is_some_and(|from| without_privileges(from).is_some());
        (!has_them).then_some(less)
    }
}

impl SnapshotManager {
    /// Says what a merge would do. Writes nothing. The session is the one of the base.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn plan_merge(&self, merge: &Merge) -> Result<MergeReport, RestoreError> {
        let states = self.states(merge.base.number)?;
        let carried = self.plan_change(states, &|store, current| merge.wanted(store, current))?;
        Ok(report(carried))
    }

    /// Merges into the live projects. The session is one of the merge alone: its last snapshot is
    /// the state before, or the merged state that was `checked`. Nothing is merged if the projects
    /// are not as they were then.
    ///
    /// # Errors
    /// [`RestoreError::ChangedSinceCheck`], or another [`RestoreError`]. But for
    /// [`RestoreError::HalfDone`], nothing has changed then.
    pub fn merge(
        &self,
        merge: &Merge,
        checked: Option<&MergedState>,
    ) -> Result<MergeReport, RestoreError> {
        let latest = self.latest()?.manifest;
        let number = latest.number;
        let carried = self.carry_out_change(
            number,
            &merge.runs_at_work,
            ToldAs::OwnWork,
            // The last one is the merged state where there was a check.
            checked.is_none().then_some(latest),
            &|store, current| {
                if checked.is_some_and(|checked| checked.seen != *current) {
                    return Err(RestoreError::ChangedSinceCheck);
                }
                merge.wanted(store, current)
            },
            || {},
        )?;
        Ok(report(carried))
    }

    /// Stores the result of a merge as a further snapshot of its session, and changes nothing in
    /// the live projects. Paths that no merge can make (sockets, devices) are in the snapshot all
    /// the same.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn merged_state(&self, merge: &Merge) -> Result<MergedState, RestoreError> {
        let _session_lock = self.lock_session()?;
        let _store_lock = self.lock_store()?;
        let latest = self.latest()?;
        let tracked = &latest.manifest;
        let current =
            self.capture_current(self.store(), tracked, &latest, CacheUse::ReadAndWrite)?;
        let seen = current.merkle_root;
        let wanted = merge.wanted(self.store(), &seen)?;
        let totals = totals_of(self.store(), current.totals, &seen, &wanted.root)?;
        let mut restore = self.report(tracked.number, &super::RestoreOptions::default(), true);
        let merged = SnapshotManifest { merkle_root: wanted.root, ..tracked.clone() };
        let before = SnapshotManifest { merkle_root: seen, ..tracked.clone() };
        let comparison = self.compare(&before, &merged)?;
        (restore.changes, restore.touched) = (comparison.changes, comparison.touched);
        let built = Built {
            timestamp: current.timestamp,
            merkle_root: wanted.root,
            totals,
            not_captured: current.not_captured,
            unstable: current.unstable,
            caches: current.caches,
            label: None,
        };
        let number = self.publish_built(built, Some(&latest))?.number;
        Ok(MergedState { number, report: report(Carried { wanted, restore }), seen })
    }
}

/// The totals of a state, from those of another one.
fn totals_of(
    store: &dyn ObjectSource,
    mut totals: Totals,
    old: &ContentHash,
    new: &ContentHash,
) -> Result<Totals, StoreError> {
    let of = |state: &EntryState| match state.node {
        Node::File { size, .. } => (1, size),
        _ => (0, 0),
    };
    for difference in diff::differences(store, old, new)? {
        let Difference { old, new, .. } = difference?;
        if let Some(old) = &old {
            let (files, bytes) = of(old);
            totals.file_count -= files;
            totals.entry_count -= 1;
            totals.total_bytes -= bytes;
        }
        if let Some(new) = &new {
            let (files, bytes) = of(new);
            totals.file_count += files;
            totals.entry_count += 1;
            totals.total_bytes += bytes;
        }
    }
    Ok(totals)
}

fn report(Carried { wanted, restore }: Carried) -> MergeReport {
    let Wanted { merged, conflicts, .. } = wanted;
    let paths: HashSet<PathBuf> = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
    // A conflict of a path includes the paths below it.
    let is_named_above =
        |conflict: &Conflict| conflict.path.ancestors().skip(1).any(|above| paths.contains(above));
    let told = conflicts.iter().filter(|conflict| !is_named_above(conflict));
    let merge_conflicts =
        told.map(|it| MergeConflict { path: it.path.clone(), reason: it.reason.clone() }).collect();
    MergeReport { merge_conflicts, restore: RestoreReport { merged, ..restore } }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests;
