//! Later changes that a restore would undo as well.
//!
//! In a completed session a path is in conflict if the restore would change it and its state now is
//! one that the session does not know: neither that of the last ordinary snapshot (what the command
//! left), nor one that an earlier restore of the same session brought it to. So restoring twice,
//! another snapshot, or the safety snapshot is no conflict, while an edit made after the command is
//! one until the user decides about it, also if it was left alone (and hence recorded by a safety
//! snapshot) before, and also if a restore of that safety snapshot brought it back. A path whose
//! time alone moved since is none: its bytes are known. In a session that is open, running or
//! interrupted, later changes are its own; but a redo takes back a restore, and guards what came
//! after that. It knows the state that the restore left, and not the one that the command left. An
//! undo is about the changes of the session: a path without one is in conflict with
//! nothing and stays, whatever is to become of the conflicts. And of a session of snapshots that
//! were taken by hand, and of an agent, it guards what is newer than the last of them.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::OsString;
use std::iter::Peekable;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::owners::User;
use super::packed::PackedPaths;
use super::plan::RestorePlan;
use super::privileges::without_privileges;
use crate::byte_path;
use crate::diff::{self, ChangeType, Difference, Differences, EntryState};
use crate::git::{Move, RefAt};
use crate::object::ContentHash;
use crate::path_text::{serde_path, to_path};
use crate::snapshot::{LoadedManifest, NotCapturedSet, SnapshotKind, SnapshotManifest};
use crate::store::{ObjectSource, StoreError};

/// A path that was changed after the session's last snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Its change since.
    pub change_type: ChangeType,
    /// Sessions that changed it, as far as they are known.
    pub sessions: Vec<String>,
    /// For a git directory: the obstacles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryConflict>,
    /// For an undo of an agent's session: the user's own edit of it, between the calls of the
    /// agent, who changed it as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_edit: Option<UserEdit>,
    /// For an undo: sessions that were at work on the path at the same time, or of which a restore
    /// changed it then. They may have made the change as well, or in place of the undone one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

/// The last edit of a path by the user in the session of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEdit {
    /// Number of the step.
    pub step: u64,
    /// Whether the step holds the user's edits alone. Else it is unknown whose the change is.
    pub is_certain: bool,
}

/// An edit by the user that the agent overwrote or removed later. The path is as it was before the
/// session, so an undo has nothing to do there, and only a snapshot has the edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverwrittenEdit {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Number of the step, and of the snapshot that holds the edit.
    pub step: u64,
}

/// Why a git directory is in conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum RepositoryConflict {
    /// HEAD or a ref is another than the session, or a restore of it, left.
    MovedOn {
        /// Their moves since.
        moves: Vec<Move>,
    },
    /// The repository was removed after the session.
    Removed {
        /// The branches, tags and the stash that it had.
        refs: Vec<RefAt>,
    },
    /// A repository was made after the session.
    Made {
        /// The branches, tags and the stash that it has.
        refs: Vec<RefAt>,
    },
    /// HEAD and the refs are as they were left, and the index stages something else: `git add`
    /// stored contents that no other file may have.
    Staged,
    /// The refs are in reftables, which are not read here, and these are others than the session
    /// left: branches, tags, stashes or commits that came since would be lost.
    Reftables,
    /// An operation of git is under way that began after the session.
    InProgress {
        /// The operation in a word: `merge`, `rebase`, `bisect`.
        operation: String,
    },
    /// A lock says that git works there at this moment.
    AtWork {
        /// The lock, relative to the git directory.
        #[serde(with = "serde_path")]
        lock: PathBuf,
    },
}

/// All conflicts of a plan.
#[derive(Debug, Default)]
pub(super) struct AllConflicts {
    pub(super) paths: Conflicts,
    /// Git directories, each as one thing.
    pub(super) repositories: Vec<Conflict>,
    /// The sessions that were at work at the same time, for each path that they may have changed.
    pub(super) beside: HashMap<Vec<u8>, Vec<String>>,
}

impl AllConflicts {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.repositories.is_empty()
    }

    /// As they are told: sorted by path.
    pub(super) fn told(&self) -> Vec<Conflict> {
        let mut told = self.paths.told();
        for conflict in &mut told {
            let path = conflict.path.as_os_str().as_bytes();
            conflict.beside = self.beside.get(path).cloned().unwrap_or_default();
        }
        told.extend_from_slice(&self.repositories);
        told.sort_by(|a, b| a.path.cmp(&b.path));
        told
    }
}

/// The conflicts of a plan, sorted by path, until they are told: there may be millions.
pub(super) type Conflicts = PackedPaths<Later>;

/// Why a path is in conflict.
#[derive(Debug, Clone, Copy)]
pub(super) struct Later {
    pub(super) change_type: ChangeType,
    pub(super) user_edit: Option<UserEdit>,
}

impl Conflicts {
    /// As they are told.
    pub(super) fn told(&self) -> Vec<Conflict> {
        let conflict = |(path, later): (Vec<u8>, &Later)| Conflict {
            path: PathBuf::from(OsString::from_vec(path)),
            change_type: later.change_type,
            sessions: Vec::new(),
            repository: None,
            user_edit: later.user_edit,
            beside: Vec::new(),
        };
        self.iter().map(conflict).collect()
    }
}

/// Takes out of the conflicts what the session itself did not change between two states, and says
/// which paths these are: git directories as a whole.
pub(super) fn take_foreign(
    conflicts: &mut AllConflicts,
    store: &dyn ObjectSource,
    before: &ContentHash,
    after: &ContentHash,
) -> Result<Vec<PathBuf>, StoreError> {
    let mut foreign = Vec::new();
    let mut own = Alongside::new(diff::differences(store, before, after)?);
    let mut paths = Conflicts::default();
    for (path, later) in conflicts.paths.iter() {
        match own.at(&path)? {
            Some(_) => paths.push(&path, *later),
            None => foreign.push(PathBuf::from(OsString::from_vec(path))),
        }
    }
    conflicts.paths = paths;
    if !conflicts.repositories.is_empty() {
        let mut touched = vec![false; conflicts.repositories.len()];
        for difference in diff::differences(store, before, after)? {
            let path = difference?.path;
            for (touched, repository) in touched.iter_mut().zip(&conflicts.repositories) {
                *touched |= to_path(&path).starts_with(&repository.path);
            }
        }
        let mut touched = touched.into_iter();
        conflicts.repositories.retain(|repository| {
            let is_own = touched.next().unwrap_or(true);
            if !is_own {
                foreign.push(repository.path.clone());
            }
            is_own
        });
    }
    Ok(foreign)
}

/// The treatment of conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnConflict {
    /// Change nothing at all.
    #[default]
    Refuse,
    /// Take the snapshot's version. The newer one is in the safety snapshot.
    Overwrite,
    /// Leave these paths as they are, and do the rest.
    KeepNewer,
}

/// Differences beside a list of paths in the same order: either may have millions.
pub(super) struct Alongside<'a>(Peekable<Differences<'a>>);

impl<'a> Alongside<'a> {
    pub(super) fn new(differences: Differences<'a>) -> Self {
        Self(differences.peekable())
    }

    /// The difference of a path. Paths come in order.
    pub(super) fn at(&mut self, path: &[u8]) -> Result<Option<Difference>, StoreError> {
        while let Some(next) = self.0.peek() {
            match next.as_ref().map(|next| byte_path::order(&next.path, path)) {
                Ok(Ordering::Greater) => return Ok(None),
                Ok(Ordering::Less) => drop(self.0.next()),
                Ok(Ordering::Equal) | Err(_) => break,
            }
        }
        self.0.next().transpose()
    }
}

/// The last snapshot that no restore took.
pub(super) fn last_ordinary(chain: &[LoadedManifest]) -> Option<&SnapshotManifest> {
    let last = chain.iter().rev().find(|loaded| loaded.manifest.kind == SnapshotKind::Ordinary);
    last.map(|loaded| &loaded.manifest)
}

/// Each restore of a session: the state before it, and the state that it may have brought a path
/// to. A safety snapshot also holds what others did since; of it, the session knows what its last
/// ordinary snapshot until then has.
pub(super) fn restored(
    chain: &[LoadedManifest],
) -> impl Iterator<Item = (&SnapshotManifest, &SnapshotManifest)> {
    chain.iter().filter_map(|loaded| {
        let number = loaded.manifest.restores?;
        let at = chain.iter().position(|target| target.manifest.number == number)?;
        let known = match chain[at].manifest.kind {
            SnapshotKind::Safety => last_ordinary(&chain[..at])?,
            _ => &chain[at].manifest,
        };
        Some((&loaded.manifest, known))
    })
}

/// The last state that nothing came after, but for later changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastKnown<'a> {
    state: &'a SnapshotManifest,
    /// Restores from before this snapshot explain nothing.
    since: u64,
    /// Whether nono made the state and brought the paths to it: no capture saw it.
    is_made: bool,
}

impl<'a> LastKnown<'a> {
    /// The state that the session left.
    pub(super) fn of_session(chain: &'a [LoadedManifest]) -> Option<Self> {
        Some(Self { state: last_ordinary(chain)?, since: 0, is_made: false })
    }

    /// The state that a restore left, whose safety snapshot this is.
    pub(super) fn of_restore(
        chain: &'a [LoadedManifest],
        safety: &SnapshotManifest,
    ) -> Option<Self> {
        let left = safety.restores?;
        let left = chain.iter().find(|loaded| loaded.manifest.number == left)?;
        Some(Self { state: &left.manifest, since: safety.number, is_made: false })
    }

    /// The same as a state that nono made.
    pub(super) fn made(self) -> Self {
        Self { is_made: true, ..self }
    }
}

/// The paths of a plan that are in conflict, sorted by path.
pub(super) fn conflicts(
    store: &dyn ObjectSource,
    chain: &[LoadedManifest],
    known: Option<LastKnown<'_>>,
    current_root: &ContentHash,
    plan: &RestorePlan,
) -> Result<Conflicts, StoreError> {
    let Some(LastKnown { state: last, since, is_made }) = known else {
        return Ok(Conflicts::default());
    };
    let unknown = NotCapturedSet::new(last);
    let mut later = Alongside::new(diff::differences(store, &last.merkle_root, current_root)?);
    let mut restored = Vec::new();
    for (before, after) in self::restored(chain).filter(|(before, _)| before.number >= since) {
        let (before, after) = (&before.merkle_root, &after.merkle_root);
        restored.push(Alongside::new(diff::differences(store, before, after)?));
    }
    let mut conflicts = Conflicts::default();
    let user = User::ordinary();
    // The contents of a touched file stay.
    let changes = plan.changes.iter().filter(|(_, told)| told.change_type().is_some());
    for (path, _) in changes {
        let Some(difference) = later.at(&path)? else { continue };
        // If a directory could not be read, only its place is known.
        let is_known = match unknown.reason(&path) {
            Some(reason) => difference.old.is_some() && !reason.is_problem(),
            None => true,
        };
        let (true, Some(change_type)) = (is_known, difference.change_type()) else { continue };
        let mut is_explained =
            is_made && is_left(difference.old.as_ref(), &difference, user.as_ref());
        for restored in &mut restored {
            let put_there = restored.at(&path)?;
            is_explained = is_explained
                || put_there
                    .is_some_and(|state| is_left(state.new.as_ref(), &difference, user.as_ref()));
        }
        if !is_explained {
            conflicts.push(&path, Later { change_type, user_edit: None });
        }
    }
    Ok(conflicts)
}

/// Whether a restore of this state leaves what is there now. It may leave privileges off, and give
/// a file to its user.
fn is_left(state: Option<&Arc<EntryState>>, difference: &Difference, user: Option<&User>) -> bool {
    let now = difference.new.as_ref();
    if is_same(state, now) {
        return true;
    }
    let (Some(state), Some(is)) = (state, now) else { return false };
    let less = without_privileges(state);
    let own = user.and_then(|user| user.leaves(less.as_ref().unwrap_or(state), is));
    [less, own].into_iter().flatten().any(|left| is_same(Some(&Arc::new(left)), now))
}

/// Whether no user would call one a change of the other.
fn is_same(a: Option<&Arc<EntryState>>, b: Option<&Arc<EntryState>>) -> bool {
    let (old, new) = (a.cloned(), b.cloned());
    let (path, is_relinked, is_refreshed) = (Vec::new(), false, false);
    let difference = Difference { path, old, new, is_relinked, is_refreshed };
    a == b || difference.change_type().is_none()
}
