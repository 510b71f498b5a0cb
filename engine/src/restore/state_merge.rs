//! Merging a state into the live projects: what another side did since a state that both sides
//! began with.
//!
//! The change from `base` to `theirs` is made in the present state
//! ([`three_way`](super::three_way)): texts are merged by lines, attributes each by itself, files
//! and symlinks as wholes. A file that one side renamed gets what the other side did in it. The
//! rest is a named conflict: the path stays as it is here, unless a side was chosen.
//!
//! A later merge of the same side begins where the merges before it ended: a change that one of
//! these brought is in its base. A change that was left, or that an undo took back, is not.
//!
//! A merge is the work of a session of its own ([`merge_session`](super::merge_session)). Its first
//! snapshot is the state before, and the only look at the projects: each path that changes is
//! compared with it in the moment of the change. The journal knows the merge, and a crash at any
//! point leaves one state or leads to it.
//!
//! Git directories are left out, with HEAD, index and locks: a merged index would be none. A
//! path that either side did not capture is unknown, and stays. Setuid, setgid and capabilities
//! that the other side added do not come along.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::check_selection::check_selection;
use super::places::Places;
use super::plan;
use super::prepare::Before;
use super::privileges::without_privileges;
use super::secure::is_everything_stored;
use super::selection::Selected;
use super::three_way::{
    Carried, Change, Conflict, ConflictSide, Decided, Edits, Purpose, Renames, VirtualState,
    Wanted, apply, is_in_git,
};
use super::{ChosenText, RestoreError, RestoreOptions, RestoreReport, RunsAtWork, Selection};
use crate::byte_path;
use crate::diff::{self, Difference, EntryState};
use crate::manifest::{NotCaptured, NotCapturedSet};
use crate::object::{ContentHash, FileTime, Node};
use crate::path_text::{Shown, serde_path, to_path};
use crate::snapshot::{
    CacheUse, LoadedManifest, SnapshotManager, SnapshotManifest, TakenChanges, Totals,
};
use crate::store::{
    ObjectSource, ObjectStore, OverlayStore, StoreError, read_links, read_root_tree,
};
use crate::sys;

const OF_GIT: &str = "git directories are not merged: only the commits in them can be fetched";
/// A clock of a file system may be behind that of the snapshot by less than this.
const CLOCK_GRAIN_SECONDS: i64 = 1;

/// A change that is to be merged into the live projects. The store has the objects of all states.
#[derive(Debug, Clone)]
pub struct Merge {
    base: SnapshotManifest,
    theirs: SnapshotManifest,
    past: Vec<PastMerge>,
    selection: Selection,
    runs_at_work: RunsAtWork,
    side: ConflictSide,
    chosen: Vec<ChosenText>,
    /// The time of files that get other contents.
    time: FileTime,
}

/// An earlier merge of the same side, which still stands.
#[derive(Debug, Clone)]
pub struct PastMerge {
    /// The state that was merged.
    pub theirs: SnapshotManifest,
    /// The changes that it decided.
    pub taken: TakenChanges,
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
    /// Whether a chosen side would decide about some of them.
    #[serde(skip)]
    pub is_open: bool,
    /// Conflicts about which a chosen side, or a choice in hunks, decided.
    #[serde(default)]
    pub decided: Vec<Decided>,
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
    /// Number of the snapshot in the session of the merge; where nothing changes, that of the state
    /// before.
    pub number: u64,
    /// The plan of the merge.
    pub report: MergeReport,
    /// Number of the state that it was made from.
    before: u64,
    wanted: Wanted,
}

/// The state into which is merged.
#[derive(Clone, Copy)]
struct Present<'a> {
    root: &'a ContentHash,
    left_out: &'a [NotCaptured],
}

impl<'a> Present<'a> {
    fn of(manifest: &'a SnapshotManifest) -> Self {
        Self { root: &manifest.merkle_root, left_out: &manifest.not_captured }
    }
}

impl Merge {
    /// Merges what leads from `base` to `theirs`. Both have the same tracked paths.
    pub fn new(base: SnapshotManifest, theirs: SnapshotManifest) -> Self {
        Self {
            base,
            theirs,
            past: Vec::new(),
            selection: Selection::default(),
            runs_at_work: RunsAtWork::default(),
            side: ConflictSide::Open,
            chosen: Vec::new(),
            time: sys::coarse_now(),
        }
    }

    /// The same after these merges, oldest first.
    #[must_use]
    pub fn after(self, past: Vec<PastMerge>) -> Self {
        Self { past, ..self }
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

    /// The same with decisions about conflicts: these texts first, then this side.
    #[must_use]
    pub fn deciding(self, side: ConflictSide, chosen: Vec<ChosenText>) -> Self {
        Self { side, chosen, ..self }
    }

    /// The state of the other side.
    pub fn theirs(&self) -> &SnapshotManifest {
        &self.theirs
    }

    /// The root of the state that the sides have in common: that of the base, with what the merges
    /// before brought.
    ///
    /// # Errors
    /// A tree is missing or damaged.
    pub fn common_root(&self, store: &dyn ObjectStore) -> Result<ContentHash, RestoreError> {
        let mut common = self.base.clone();
        for PastMerge { theirs, taken } in &self.past {
            let taken = taken.lookup();
            let changes = known_changes(store, &common, theirs)?.filter(|it| !is_in_git(&it.path));
            let (taken, left): (Vec<_>, Vec<_>) = changes.partition(|it| taken.has(&it.path));
            let left: BTreeSet<Vec<u8>> = left.into_iter().map(|it| it.path).collect();
            let holds_left = |path: &[u8]| {
                let below = [path, b"/"].concat();
                left.range(below.clone()..).next().is_some_and(|it| it.starts_with(&below))
            };
            let is_directory = |state: &Arc<EntryState>| state.is_directory();
            let stays = |it: &Change| {
                let goes = !it.to.as_ref().is_some_and(is_directory);
                goes && it.from.as_ref().is_some_and(is_directory) && holds_left(&it.path)
            };
            let edits: Edits =
                taken.into_iter().filter(|it| !stays(it)).map(|it| (it.path, it.to)).collect();
            common.merkle_root = apply(store, &common.merkle_root, &edits, Vec::new())?;
        }
        Ok(common.merkle_root)
    }

    /// All changes of the other side since the common state, those among them that are selected,
    /// and new git directories, which do not come along.
    fn changes(
        &self,
        store: &dyn ObjectStore,
        common: &SnapshotManifest,
        current: &ContentHash,
    ) -> Result<Changes, RestoreError> {
        let Self { theirs, selection, .. } = self;
        let roots = [&self.base.merkle_root, &theirs.merkle_root, current];
        let present = super::check_selection::Present::new(store, &roots)?;
        let mut exists = |path: &[u8]| present.has(path);
        let selected = Selected::new(selection, &common.roots, &mut exists)?;
        check_selection(&present, &selected, &self.base)?;
        let (mut changes, git_dirs): (Vec<_>, Vec<_>) =
            known_changes(store, common, theirs)?.partition(|change| !is_in_git(&change.path));
        let all = changes.iter().map(|change| change.path.clone()).collect();
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
        let new_repositories = of_git.map(|change| change.path).collect();
        let was_left_out: HashSet<&PathBuf> =
            self.base.not_captured.iter().map(|left| &left.path).collect();
        let is_unread =
            |left: &&NotCaptured| left.reason.is_problem() && !was_left_out.contains(&left.path);
        let unread = theirs.not_captured.iter().filter(is_unread).map(|left| &left.path);
        let unread = unread.filter(|path| selected.contains(path.as_os_str().as_bytes()));
        Ok(Changes { all, selected: changes, new_repositories, unread: unread.cloned().collect() })
    }

    /// The merged state, and the changes that it decides.
    fn wanted(
        &self,
        store: &dyn ObjectStore,
        present: Present<'_>,
    ) -> Result<(Wanted, TakenChanges), RestoreError> {
        let Present { root: current, left_out } = present;
        let common =
            SnapshotManifest { merkle_root: self.common_root(store)?, ..self.base.clone() };
        let Changes { all, selected: mut changes, new_repositories, unread } =
            self.changes(store, &common, current)?;
        let roots = &self.base.roots;
        let here: Vec<Change> = diff::compare(store, &common.merkle_root, current)?
            .into_iter()
            .filter_map(change_of)
            .collect();
        let state = VirtualState::new(store, current, roots, Purpose::Merge(self.time))?;
        let state = state.with_renamed_here(Renames::among(&here));
        let mut state = state.deciding(self.side, &self.chosen);
        let mut untaken: HashSet<Vec<u8>> = HashSet::new();
        for path in &unread {
            state.conflict(0, path.as_os_str().as_bytes(), "it cannot be read in the fork");
        }
        let unknown = NotCapturedSet::of(roots, left_out);
        changes.retain(|change| {
            let is_unread = unknown.reason(&change.path).is_some_and(|reason| reason.is_problem());
            if is_unread {
                state.conflict(0, &change.path, "it cannot be read here");
                untaken.insert(change.path.clone());
            }
            !is_unread
        });
        for change in &mut changes {
            if let Some(less) = change.without_new_privileges() {
                change.to = Some(Arc::new(less));
                state.conflict(0, &change.path, "setuid, setgid and capabilities were left off");
                untaken.insert(change.path.clone());
            }
        }
        for path in &new_repositories {
            if state.get(path)?.is_none() {
                state.conflict(0, path, OF_GIT);
            }
        }
        let selected: HashSet<Vec<u8>> = changes.iter().map(|it| it.path.clone()).collect();
        state.carry_over(0, changes.into_iter())?;
        let linked = self.linked(store, &mut state, current)?;
        let wanted = Wanted::of(state, store, current, linked)?;
        let is_taken = |path: &Vec<u8>| {
            selected.contains(path) && !untaken.contains(path) && !wanted.left.contains(path)
        };
        Ok((wanted.clone(), taken_changes(all, is_taken)))
    }

    /// Files that are to be one: those that are one on the other side, and come as they are there.
    /// A file that loses another name by that is named.
    fn linked(
        &self,
        store: &dyn ObjectStore,
        state: &mut VirtualState<'_>,
        current: &ContentHash,
    ) -> Result<Vec<Vec<Box<[u8]>>>, RestoreError> {
        let groups = |root: &ContentHash| -> Result<_, StoreError> {
            read_links(store, read_root_tree(store, root)?.links.as_ref())
        };
        let edited: HashMap<Vec<u8>, Arc<EntryState>> = state
            .edits()
            .iter()
            .filter_map(|(path, state)| Some((path.clone(), Arc::clone(state.as_ref()?))))
            .collect();
        let mut linked = Vec::new();
        for group in groups(&self.theirs.merkle_root)?.groups() {
            let mut alike: Vec<Box<[u8]>> = Vec::new();
            for path in group.iter().filter(|path| edited.contains_key(&***path)) {
                let first = alike.first().map(|first| &edited[&**first]);
                if first.is_none_or(|first| *first == edited[&**path]) {
                    alike.push(path.clone());
                }
            }
            // A name that is no change is the old file, which stays as it is here.
            let old = group.iter().find(|path| !edited.contains_key(&***path));
            if let (Some(old), [new, ..]) = (old, &alike[..])
                && state.get(old)?.is_some()
            {
                let name = Shown::bytes(byte_path::split(old).1).to_string();
                let reason = format!("it is one file with {name} there, and comes as a copy");
                state.conflict(0, new, &reason);
            }
            if alike.len() > 1 {
                linked.push(alike);
            }
        }
        for group in groups(current)?.groups() {
            let Some(split) = group.iter().find(|path| edited.contains_key(&***path)) else {
                continue;
            };
            let mut rest = Vec::new();
            for path in group.iter().filter(|path| *path != split) {
                let is_with_it =
                    linked.iter().any(|group| group.contains(split) && group.contains(path));
                if !is_with_it && state.get(path)?.is_some() {
                    rest.push(path);
                }
            }
            if let Some(other) = rest.first() {
                let name = Shown::bytes(byte_path::split(other).1).to_string();
                let reason = format!("it was one file with {name}, and is a file of its own now");
                state.conflict(0, split, &reason);
            }
        }
        Ok(linked)
    }
}

/// The changes of the other side.
struct Changes {
    /// The paths of all.
    all: Vec<Vec<u8>>,
    selected: Vec<Change>,
    new_repositories: Vec<Vec<u8>>,
    /// Paths that the other side cannot read, and could.
    unread: Vec<PathBuf>,
}

/// The shorter list of those that are taken and those that are not.
fn taken_changes(all: Vec<Vec<u8>>, is_taken: impl Fn(&Vec<u8>) -> bool) -> TakenChanges {
    let (taken, left): (Vec<_>, Vec<_>) = all.into_iter().partition(is_taken);
    let paths = |list: Vec<Vec<u8>>| list.iter().map(|path| to_path(path).to_owned()).collect();
    match taken.len() < left.len() {
        true => TakenChanges::Only(paths(taken)),
        false => TakenChanges::AllBut(paths(left)),
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
        let carried =
            self.plan_change(states, &RestoreOptions::default(), &|store, root, left_out| {
                Ok(merge.wanted(store, Present { root, left_out })?.0)
            })?;
        Ok(report(carried))
    }

    /// Says what a merge would do to the last snapshot of its session, without a look at the live
    /// projects: the changes are not among that. Writes nothing.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn foresee_merge(&self, merge: &Merge) -> Result<MergeReport, RestoreError> {
        let before = self.latest()?.manifest;
        let overlay = OverlayStore::new(self.store());
        let (wanted, _) = merge.wanted(&overlay, Present::of(&before))?;
        let restore = self.report(before.number, &RestoreOptions::default(), true);
        Ok(report(Carried { wanted, restore }))
    }

    /// Stores the result of a merge as a further snapshot of its session, and changes nothing in
    /// the live projects. The session is one of the merge alone, and its last snapshot the state
    /// before. Paths that no merge can make (sockets, devices) are in the snapshot all the same.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn merged_state(&self, merge: &Merge) -> Result<MergedState, RestoreError> {
        let _session_lock = self.lock_session()?;
        let _store_lock = self.lock_store()?;
        let latest = self.latest()?;
        let before = &latest.manifest;
        let (wanted, taken) = merge.wanted(self.store(), Present::of(before))?;
        self.note_merge(|record| record.taken = taken)?;
        let mut restore = self.report(before.number, &RestoreOptions::default(), true);
        let mut number = before.number;
        if !wanted.paths.is_empty() {
            let merged = SnapshotManifest { merkle_root: wanted.root, ..before.clone() };
            let comparison = self.compare(before, &merged)?;
            (restore.changes, restore.touched) = (comparison.changes, comparison.touched);
            let root = &before.merkle_root;
            let totals = totals_of(self.store(), before.totals, root, &wanted.root)?;
            // With the flush, a merged file survives a crash as well as the one that it replaces.
            number = self.publish_made(wanted.root, totals, &latest)?.number;
        }
        let report = report(Carried { wanted: wanted.clone(), restore });
        Ok(MergedState { number, report, before: before.number, wanted })
    }

    /// Merges into the live projects: the state that was made from the snapshot before it. Where
    /// time went by since (`is_checked`), the projects have to be as they were then. A path that
    /// changed since that snapshot stays in any case, and is named.
    ///
    /// # Errors
    /// [`RestoreError::ChangedSinceCheck`], or another [`RestoreError`]. But for
    /// [`RestoreError::HalfDone`], nothing has changed then.
    pub fn merge(
        &self,
        merge: &Merge,
        state: &MergedState,
        is_checked: bool,
    ) -> Result<MergeReport, RestoreError> {
        let MergedState { before: number, wanted, .. } = state;
        let everything =
            RestoreOptions { runs_at_work: merge.runs_at_work.clone(), ..Default::default() };
        let _mark = self.begin_restore(*number, &everything)?;
        let _session_lock = self.lock_session()?;
        let _store_lock = self.lock_store()?;
        let states = self.states(*number)?;
        let before = states.target.manifest.clone();
        if is_checked {
            let cache = CacheUse::ReadAndWrite;
            let now = self.capture_current(self.store(), &before, &states.latest, cache)?;
            if now.merkle_root != before.merkle_root {
                return Err(RestoreError::ChangedSinceCheck);
            }
        }
        let options = wanted.options(&everything);
        let mut restore = self.report(*number, &options, false);
        if wanted.paths.is_empty() {
            self.note_landed(&[]);
            return Ok(report(Carried { wanted: wanted.clone(), restore }));
        }
        let states = states.aiming_at(wanted.root, &before.not_captured);
        let (root, left_out) = (&before.merkle_root, &before.not_captured);
        let mut planned =
            self.planned(self.store(), &states, root, left_out, &options, &HashSet::new())?;
        if !planned.blocked.is_empty() {
            return Err(RestoreError::Blocked { blocked: planned.blocked });
        }
        let LoadedManifest { manifest: target, .. } = &states.target;
        let mut places = Places::new(&target.roots);
        if !is_everything_stored(self.store(), &planned.plan, &mut places, self.progress())? {
            return Err(RestoreError::ChangedSinceCheck);
        }
        drop(places);
        restore.safety_snapshot = Some(*number);
        (planned.plan.skipped, restore.not_kept) = planned.left();
        let started = FileTime {
            seconds: before.timestamp.as_second() - CLOCK_GRAIN_SECONDS,
            nanoseconds: 0,
        };
        let links = diff::links_of(self.store(), root)?;
        let before = Before { safety: Some(*number), started, links };
        let (mut done, left) = self.carry_out(planned.plan, target, &before, None, &[])?;
        left.retain_made(&mut done);
        (restore.changes, restore.touched) = (done.changes, done.touched);
        restore.skipped = left.skipped;
        plan::sort(&mut restore.skipped);
        Ok(report(Carried { wanted: wanted.clone(), restore }))
    }
}

/// The totals of a state, from those of another one.
pub(super) fn totals_of(
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
    let Wanted { merged, conflicts, left, decided, .. } = wanted;
    let paths: HashSet<PathBuf> = conflicts.iter().map(|conflict| conflict.path.clone()).collect();
    // A conflict of a path includes the paths below it.
    let is_named_above =
        |conflict: &Conflict| conflict.path.ancestors().skip(1).any(|above| paths.contains(above));
    let told = conflicts.iter().filter(|conflict| !is_named_above(conflict));
    let merge_conflicts =
        told.map(|it| MergeConflict { path: it.path.clone(), reason: it.reason.clone() }).collect();
    let is_open = !left.is_empty();
    MergeReport { merge_conflicts, is_open, decided, restore: RestoreReport { merged, ..restore } }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests;
