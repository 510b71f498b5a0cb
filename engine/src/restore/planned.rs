//! A plan with everything that decides about it: the selection, later changes, what stays.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::check_selection::{Present, check_selection};
use super::conflicts::{self, AllConflicts, LastKnown, OverwrittenEdit, RepositoryConflict};
use super::makers::{self, Link, Makers, Window};
use super::merge::Merger;
use super::merged::{self, Settled};
use super::others::Contested;
use super::places::Places;
use super::plan::{self, RestorePlan, Skipped};
use super::repositories::Repositories;
use super::selection::Selected;
use super::shared_tables::{SharedTables, is_shared};
use super::text_undo;
use super::user_edits::UserEdits;
use super::{OnConflict, RestoreError, RestoreOptions, States};
use crate::diff::{self, Lookup};
use crate::git::RepositoryChange;
use crate::object::ContentHash;
use crate::snapshot::{
    LoadedManifest, NotCaptured, SessionMetadata, SessionOrigin, SnapshotManager, SnapshotManifest,
    standing,
};
use crate::store::{ObjectSource, read_links, read_root_tree};

/// A plan, and what it would undo that the session did not do.
pub(super) struct Planned {
    pub(super) plan: RestorePlan,
    pub(super) conflicts: AllConflicts,
    /// The paths that others changed.
    pub(super) spared: Vec<PathBuf>,
    /// Files with later changes that stay in them.
    pub(super) merged: Vec<PathBuf>,
    /// Edits by the user that the agent overwrote.
    pub(super) overwritten: Vec<OverwrittenEdit>,
    pub(super) repositories: Vec<RepositoryChange>,
    /// The paths that stay because nothing of them is kept.
    pub(super) not_kept: Vec<Skipped>,
    /// Whether paths stay of which the session's changes were taken back before.
    pub(super) leaves_undone: bool,
    /// The paths that cannot be changed. Nothing is done as long as there are some.
    pub(super) blocked: Vec<Skipped>,
}

impl Planned {
    /// The paths that stay for any reason, and those of them that are not kept.
    pub(super) fn left(&mut self) -> (Vec<Skipped>, Vec<PathBuf>) {
        let mut skipped = std::mem::take(&mut self.plan.skipped);
        let paths = self.not_kept.iter().map(|skipped| skipped.path.clone()).collect();
        skipped.append(&mut self.not_kept);
        (skipped, paths)
    }
}

impl SnapshotManager {
    /// Plans, and narrows the plan to what is selected and not to be left alone. `unkept` are paths
    /// that stay because nothing of them is kept.
    pub(super) fn planned(
        &self,
        source: &dyn ObjectSource,
        states: &States,
        current_root: &ContentHash,
        left_out: &[NotCaptured],
        options: &RestoreOptions,
        unkept: &HashSet<Vec<u8>>,
    ) -> Result<Planned, RestoreError> {
        let target = &states.target.manifest;
        let mut plan = plan::plan(source, current_root, left_out, target)?;
        let present = Present::new(source, &[&target.merkle_root, current_root])?;
        let mut exists = |path: &[u8]| present.has(path);
        let selected = Selected::new(&options.selection, &target.roots, &mut exists)?;
        check_selection(&present, &selected, target)?;
        let repositories = Repositories::of(source, current_root, target, &plan)?;
        if !selected.is_all() {
            let wanted = |path: &[u8], change: Option<diff::ChangeType>| {
                repositories.is_selected(&selected, path, change)
            };
            // The kind of change that it would have been is unknown.
            let concerns = |path: &[u8], has_all_below: bool| {
                selected.contains(path) || has_all_below && selected.may_mean_below(path)
            };
            plan.narrow(wanted, concerns, &HashSet::new());
        }
        if options.keep_commits {
            let is_meant = |path: &[u8]| !repositories.has(path) && !is_shared(target, path);
            plan.narrow(|path, _| is_meant(path), |path, _| is_meant(path), &HashSet::new());
        }
        let chain = &states.chain;
        let metadata = self.session().metadata()?;
        // A merge that never landed left the state before.
        let is_landed = metadata.merge.as_ref().map(|merge| merge.is_done);
        let left_states =
            if is_landed == Some(false) { &chain[..1.min(chain.len())] } else { chain };
        let last = conflicts::last_ordinary(left_states);
        let has_states = last.is_some_and(|last| last.number != target.number);
        // Without a step, nothing is known to be the agent's.
        let is_guarded = options.is_undo
            && match metadata.origin {
                // The states of a merge are made, so all else is later, also if it was killed.
                _ if is_landed.is_some() => true,
                SessionOrigin::Agent | SessionOrigin::Watch => true,
                SessionOrigin::Snapshot => has_states,
                _ => false,
            };
        let has_later_changes = metadata.ended.is_some() || is_guarded || options.takes_back;
        // A restore of a state means all that is different, each time.
        let undone = match options.is_undo && has_later_changes {
            true => undone_before(&metadata, chain, target, &repositories),
            false => HashSet::new(),
        };
        let leaves_undone = plan.changes.iter().any(|(path, _)| undone.contains(&path));
        if leaves_undone {
            let is_meant = |path: &[u8]| !undone.contains(path);
            // A directory is made again for what is in it.
            let made: HashSet<&Vec<u8>> = plan.actions.directories.iter().collect();
            let stays: HashSet<Vec<u8>> =
                undone.iter().filter(|path| !made.contains(path)).cloned().collect();
            plan.narrow(|path, _| is_meant(path), |path, _| is_meant(path), &stays);
        }
        let mut conflicts = if has_later_changes {
            let mut known = LastKnown::of_session(left_states);
            if is_landed.is_some() {
                known = known.map(LastKnown::made);
            }
            // An undo of steps left a state of its own, which is recorded.
            let mut restores = metadata.restores.iter();
            let undoes_steps =
                restores.any(|it| it.safety_snapshot == Some(target.number) && it.undoes_steps);
            if options.takes_back && !undoes_steps {
                known = LastKnown::of_restore(chain, target).or(known);
            }
            let mut paths = conflicts::conflicts(source, chain, known, current_root, &plan)?;
            let repositories =
                repositories.conflicts(source, chain, current_root, &plan, &mut paths)?;
            AllConflicts { paths, repositories, ..AllConflicts::default() }
        } else {
            AllConflicts::default()
        };
        let (mut left, mut spared) = (HashSet::new(), Vec::new());
        let mut overwritten = Vec::new();
        let links = match last.filter(|_| options.is_undo) {
            Some(last) => makers::links(chain, &metadata, target, last.number),
            None => Vec::new(),
        };
        // To overwrite is an answer about the conflicts alone.
        if let (true, Some(last)) = (options.is_undo && has_later_changes, last) {
            let (before, after) = (&target.merkle_root, &last.merkle_root);
            left.extend(repositories.unchanged_between(source, before, after)?);
            // They stay, whatever else is staged in them now.
            conflicts.repositories.retain(|conflict| {
                conflict.repository != Some(RepositoryConflict::Staged)
                    || !left.contains(&bytes_of(&conflict.path))
            });
            if !conflicts.is_empty() {
                spared = conflicts::take_foreign(&mut conflicts, source, before, after)?;
                left.extend(spared.iter().map(|path| bytes_of(path)));
            }
            if metadata.origin == SessionOrigin::Agent {
                let edits = UserEdits::find(source, &links, &repositories)?;
                spared.extend(edits.settle(&plan, &repositories, &mut conflicts, &mut left));
                spared.sort();
                overwritten = edits.overwritten(source, chain, target, &plan)?;
                overwritten.retain(|edit| {
                    let path = bytes_of(&edit.path);
                    selected.contains(&path) && repositories.of_path(&path).is_none()
                });
            }
        }
        if options.is_undo && !plan.changes.is_empty() {
            self.contest(source, states, current_root, links, &repositories)?.settle(
                &plan,
                &repositories,
                &mut conflicts,
                &left,
            );
        }
        let shared = SharedTables::of(source, chain, current_root, target, &plan)?;
        for tables in &shared {
            tables.settle(&mut conflicts, has_later_changes);
            spared.retain(|path| !tables.has(&bytes_of(path)));
            left.retain(|path| !tables.has(path));
        }
        let merger = Merger::new(source, &target.roots);
        let mut merged = Vec::new();
        if let (true, Some(last)) = (options.merges(), last) {
            let roots = [&target.merkle_root, &last.merkle_root, current_root];
            let Settled { merged: files, stays } = plan.merge_later_changes(
                &merger,
                (source, roots),
                &options.chosen,
                &repositories,
                &mut conflicts,
            )?;
            merged = files;
            left.extend(stays.iter().map(|path| bytes_of(path)));
            spared.extend(stays);
            spared.sort();
        }
        if !options.is_undo {
            merged::take_merged_before(
                &mut conflicts,
                &merger,
                source,
                (chain, &metadata.restores),
                target,
                current_root,
            )?;
        }
        if options.takes_back {
            let (done, paths) = (&metadata.restores, &mut conflicts.paths);
            text_undo::take_left_text(paths, source, done, target, current_root)?;
        }
        if options.on_conflict == OnConflict::KeepNewer {
            left.extend(conflicts.paths.iter().map(|(path, _)| path));
            left.extend(conflicts.repositories.iter().map(|c| bytes_of(&c.path)));
        }
        if !left.is_empty() {
            let stays =
                |path: &[u8]| repositories.of_path(path).is_some_and(|dir| left.contains(dir));
            plan.narrow(|path, _| !stays(path), |path, _| !stays(path), &left);
        }
        for tables in shared {
            tables.plan(&mut plan, options.on_conflict == OnConflict::KeepNewer);
        }
        let kept = plan.keep_remote_refs(source, current_root, target, &repositories)?;
        let not_kept = plan.leave_unkept(unkept);
        let changed =
            repositories.changes(source, current_root, target, &plan, &selected, &kept)?;
        if !options.with_privileges && self.is_foreign(target.number)? {
            plan.leave_off_privileges();
        }
        let mut places = Places::new(&target.roots);
        if let Some(path) = plan.first_path() {
            // Making directories above a tracked path is not for a restore to decide. Those above
            // the state of an agent are made before, but for a plan.
            let may_miss = metadata.origin == SessionOrigin::AgentState;
            match places.find(path) {
                Err(error) if error.is_gone() && may_miss => {}
                found => drop(found.map_err(|error| RestoreError::from_place(error, path))?),
            }
        }
        let mut blocked = plan.blocked(&mut places)?;
        if options.skip_blocked && !blocked.is_empty() {
            plan.leave_blocked(std::mem::take(&mut blocked), &repositories);
        }
        let current_tree = read_root_tree(source, current_root)?;
        let mut current = Lookup::new(source, &current_tree);
        let groups = read_links(source, current_tree.links.as_ref())?;
        plan.detach_foreign_links(&groups, &mut places, &mut current)?;
        plan.link(&diff::links_of(source, &target.merkle_root)?);
        Ok(Planned {
            plan,
            conflicts,
            spared,
            merged,
            overwritten,
            repositories: changed,
            not_kept,
            leaves_undone,
            blocked,
        })
    }
}

impl SnapshotManager {
    /// The paths that other sessions may have changed at the time of this one.
    fn contest<'a>(
        &self,
        source: &dyn ObjectSource,
        states: &'a States,
        current_root: &'a ContentHash,
        mut links: Vec<Link<'a>>,
        repositories: &Repositories,
    ) -> Result<Contested, RestoreError> {
        let session = self.session();
        let metadata = session.metadata()?;
        let target = &states.target.manifest;
        if metadata.origin == SessionOrigin::Run {
            if let (Some(last), Some(ended)) = (links.last_mut(), metadata.ended) {
                // Its last state was captured before that.
                last.window.to = last.window.to.max(ended);
            }
            // A merge does nothing that it did not record.
            if metadata.ended.is_none() && metadata.merge.is_none() {
                let last = conflicts::last_ordinary(&states.chain).unwrap_or(target);
                links.push(Link {
                    before: &last.merkle_root,
                    after: current_root,
                    restored: None,
                    makers: Makers { session: true, user: None },
                    number: last.number,
                    window: Window { from: last.timestamp, to: Timestamp::MAX },
                });
            }
        }
        Contested::find(source, session, &metadata, &links, repositories)
    }
}

/// The paths of which the changes of a session are taken back, by restores of a part that still
/// stand. What is there now is not the session's, also where it is not as in the target. Git
/// directories are not among them: each is looked at as one thing.
fn undone_before(
    metadata: &SessionMetadata,
    chain: &[LoadedManifest],
    target: &SnapshotManifest,
    repositories: &Repositories,
) -> HashSet<Vec<u8>> {
    let last = conflicts::last_ordinary(chain).map(|last| last.number);
    let mut undone = HashSet::new();
    for record in standing(&metadata.restores).into_iter().filter(|it| !it.undoes_steps) {
        if !record.is_partial {
            // Its paths are as in that snapshot, whatever was decided before.
            undone.clear();
            continue;
        }
        let safety = record.safety_snapshot.filter(|number| last.is_none_or(|it| it < *number));
        let safety = chain.iter().find(|loaded| Some(loaded.manifest.number) == safety);
        let paths = safety.into_iter().flat_map(|loaded| &loaded.manifest.restores_only);
        let paths = paths.map(|path| bytes_of(path));
        if record.snapshot != target.number {
            for path in paths {
                undone.remove(&path);
            }
        } else if !record.left_some {
            // A path that could not be restored then may be restored now.
            undone.extend(paths.filter(|path| repositories.of_path(path).is_none()));
        }
    }
    undone
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}
