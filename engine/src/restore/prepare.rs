//! Before a restore changes anything: the present state is made safe, and the plan is made from it.
//!
//! As a rule the whole present state becomes a snapshot. On a full disk of the store it cannot;
//! then a path needs nothing new if a snapshot of the session holds its present state (the
//! command's last state, or no state at all). Such paths are restored, each checked against its
//! object, and all others are left and named. [`KeepBefore::Nothing`] gives the rest up.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::places::Places;
use super::plan::{RestorePlan, Skipped};
use super::planned::Planned;
use super::{RestoreError, RestoreOptions, States, is_refused, secure};
use crate::diff::{self, Difference};
use crate::object::{ContentHash, LinkGroups};
use crate::path_text::to_path;
use crate::snapshot::{CacheUse, Capture, SnapshotKind, SnapshotManager};
use crate::store::{ObjectSource, OverlayStore, StoreError};
use crate::sys;

/// The part of the state before a restore that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepBefore {
    /// All of it, as a safety snapshot. Where the disk of the store is full, only what snapshots
    /// hold already is overwritten or removed.
    #[default]
    Snapshot,
    /// Nothing: overwritten or removed bytes that no snapshot holds are gone.
    Nothing,
}

/// The state before a restore, as the steps need it.
pub(super) struct Before {
    /// The snapshot that holds it, unless there is none.
    pub(super) safety: Option<u64>,
    /// The kernel's time before it was captured.
    pub(super) started: sys::FileTime,
    /// Its hard links.
    pub(super) links: LinkGroups,
}

/// A plan that may be carried out.
pub(super) struct Prepared {
    pub(super) planned: Planned,
    pub(super) before: Before,
    /// Whether the store had no room for a safety snapshot that was wanted.
    pub(super) is_store_full: bool,
}

const NO_SPACE: &str =
    "as it is now it is in no snapshot, and there is no space in the store to keep it";

impl SnapshotManager {
    /// Plans from the disk. Every byte that the plan replaces or removes is then in the store,
    /// unless the user gave it up.
    pub(super) fn prepare(
        &self,
        states: &States,
        options: &RestoreOptions,
    ) -> Result<Prepared, RestoreError> {
        match options.keep_before {
            KeepBefore::Nothing => self.prepare_without_snapshot(states, options, false),
            KeepBefore::Snapshot => match self.prepare_with_snapshot(states, options) {
                // All that was written so far went into the store.
                Err(error) if error.is_disk_full() => {
                    tracing::info!("no safety snapshot: {error}");
                    self.prepare_without_snapshot(states, options, true)
                }
                prepared => prepared,
            },
        }
    }

    fn prepare_with_snapshot(
        &self,
        states: &States,
        options: &RestoreOptions,
    ) -> Result<Prepared, RestoreError> {
        let (current, planned) = self.plan_from_disk(states, options)?;
        let (started, root) = (current.started, current.merkle_root);
        let mut before = Before { safety: None, started, links: LinkGroups::default() };
        let is_refused = is_refused(options, &planned.conflicts) || !planned.blocked.is_empty();
        if !is_refused && !planned.plan.is_empty() {
            let is_part = options.is_narrowed(&planned);
            let only = if is_part { paths_to_take_back(&planned) } else { Vec::new() };
            before.safety = Some(self.safety_snapshot(states, current, only)?);
            before.links = diff::links_of(self.store(), &root)?;
        }
        Ok(Prepared { planned, before, is_store_full: false })
    }

    /// Captures the current state into the store and plans from it; if the cached capture missed a
    /// byte that is replaced, all is read afresh.
    fn plan_from_disk(
        &self,
        states: &States,
        options: &RestoreOptions,
    ) -> Result<(Capture, Planned), RestoreError> {
        let (target, latest) = (&states.target.manifest, &states.latest);
        for cache in [CacheUse::ReadAndWrite, CacheUse::Nothing] {
            let current = self.capture_current(self.store(), target, latest, cache)?;
            let (root, left_out) = (&current.merkle_root, &current.not_captured);
            let left = HashSet::new();
            let planned = self.planned(self.store(), states, root, left_out, options, &left)?;
            let mut places = Places::new(&target.roots);
            if secure::is_everything_stored(
                self.store(),
                &planned.plan,
                &mut places,
                self.progress(),
            )? {
                return Ok((current, planned));
            }
        }
        Err(RestoreError::NeverStill)
    }

    /// Makes the state before a snapshot.
    fn safety_snapshot(
        &self,
        states: &States,
        current: Capture,
        only: Vec<PathBuf>,
    ) -> Result<u64, RestoreError> {
        let States { target, latest, .. } = states;
        let last = &latest.manifest;
        // A restore that failed and is tried again needs no second record of the same state.
        let is_recorded = last.kind == SnapshotKind::Safety
            && last.restores == Some(target.manifest.number)
            && last.restores_only == only
            && last.merkle_root == current.merkle_root;
        if is_recorded {
            return Ok(last.number);
        }
        Ok(self.publish_safety(current, latest, &target.manifest, only)?.number)
    }

    /// Plans without writing to the store. `keeps`: only what a snapshot holds may go.
    fn prepare_without_snapshot(
        &self,
        states: &States,
        options: &RestoreOptions,
        keeps: bool,
    ) -> Result<Prepared, RestoreError> {
        let overlay = OverlayStore::new(self.store());
        let (target, latest) = (&states.target.manifest, &states.latest);
        let current = self.capture_current(&overlay, target, latest, CacheUse::Read)?;
        let (root, left_out) = (&current.merkle_root, &current.not_captured);
        let mut left = if keeps { in_no_snapshot(&overlay, states, root)? } else { HashSet::new() };
        let planned = loop {
            let planned = self.planned(&overlay, states, root, left_out, options, &left)?;
            let mut places = Places::new(&target.roots);
            let lost = match keeps {
                true => {
                    secure::not_stored(self.store(), &planned.plan, &mut places, self.progress())?
                }
                false => HashSet::new(),
            };
            if lost.is_empty() {
                break planned;
            }
            // Each is left from now on, so this ends.
            left.extend(lost);
        };
        let links = diff::links_of(&overlay, root)?;
        let before = Before { safety: None, started: current.started, links };
        Ok(Prepared { planned, before, is_store_full: keeps })
    }
}

/// The paths of a plan, for the restore that takes it back, with directories that only get another
/// time. A repository that moves is one thing, so its git directory is among them.
fn paths_to_take_back(planned: &Planned) -> Vec<PathBuf> {
    let mut paths = planned.plan.changes.paths();
    let moved = planned.repositories.iter().filter(|repository| !repository.moves.is_empty());
    paths.extend(moved.map(|repository| repository.git_dir.clone()));
    paths.extend(planned.plan.set_directories().map(|path| to_path(path).to_owned()));
    paths.sort();
    paths.dedup();
    paths
}

/// Paths that are there now in a state that no snapshot of the session holds.
fn in_no_snapshot(
    source: &dyn ObjectSource,
    states: &States,
    current_root: &ContentHash,
) -> Result<HashSet<Vec<u8>>, StoreError> {
    let mut left: Option<HashSet<Vec<u8>>> = None;
    // The last one has most of it.
    for loaded in states.chain.iter().rev() {
        let held = |path: &Vec<u8>| left.as_ref().is_some_and(|left| !left.contains(path));
        let unlike = differing(source, &loaded.manifest.merkle_root, current_root, held);
        left = Some(match unlike {
            Ok(unlike) => unlike,
            // A snapshot that cannot be read holds nothing.
            Err(error) if error.is_damage() => continue,
            Err(error) => return Err(error),
        });
        if left.as_ref().is_some_and(HashSet::is_empty) {
            break;
        }
    }
    // The last snapshot's root tree was read before, so one of them could be.
    Ok(left.unwrap_or_default())
}

fn differing(
    source: &dyn ObjectSource,
    root: &ContentHash,
    current_root: &ContentHash,
    is_held: impl Fn(&Vec<u8>) -> bool,
) -> Result<HashSet<Vec<u8>>, StoreError> {
    let mut unlike = HashSet::new();
    for difference in diff::differences(source, root, current_root)? {
        let difference = difference?;
        // A path with a new time alone loses no contents.
        let is_other = difference.new.is_some() && difference.change_type().is_some();
        let Difference { path, .. } = difference;
        if is_other && !is_held(&path) {
            unlike.insert(path);
        }
    }
    Ok(unlike)
}

impl RestorePlan {
    /// Leaves paths of which nothing is kept, and names those that would have changed.
    pub(super) fn leave_unkept(&mut self, left: &HashSet<Vec<u8>>) -> Vec<Skipped> {
        if left.is_empty() {
            return Vec::new();
        }
        let named: Vec<Skipped> = self
            .changes
            .iter()
            .filter(|(path, _)| left.contains(path))
            .map(|(path, _)| Skipped {
                path: to_path(&path).to_owned(),
                reason: NO_SPACE.to_owned(),
            })
            .collect();
        self.narrow(|_, _| true, |_, _| true, left);
        named
    }
}
