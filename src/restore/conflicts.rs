//! Later changes that a restore would undo as well.
//!
//! In a completed session a path is in conflict if the restore would change it and its state now is
//! one that the session does not know: neither that of the last ordinary snapshot (what the command
//! left), nor one that an earlier restore of the same session brought it to. So restoring twice,
//! another snapshot, or the safety snapshot is no conflict, while an edit made after the command is
//! one until somebody decides about it, also if it was left alone (and hence recorded by a safety
//! snapshot) before. In a session that is open, running or interrupted, later changes are its own.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::plan::RestorePlan;
use crate::byte_path;
use crate::diff::{self, ChangeType, Difference, Differences, EntryState};
use crate::object::ContentHash;
use crate::path_text::{serde_path, to_path};
use crate::snapshot::{LoadedManifest, NotCapturedSet, SnapshotKind};
use crate::store::{ObjectSource, StoreError};

/// A path that was changed after the session's last snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// What happened to it since.
    pub change_type: ChangeType,
    /// Sessions that changed it, as far as they are known.
    pub sessions: Vec<String>,
}

/// What to do about conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
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

/// A path that was changed later.
struct Found<'a> {
    path: &'a [u8],
    change_type: ChangeType,
    /// Its state on the disk.
    now: Option<Arc<EntryState>>,
}

/// Differences beside a list of paths in the same order: either may have millions.
struct Alongside<'a>(Peekable<Differences<'a>>);

impl<'a> Alongside<'a> {
    fn new(differences: Differences<'a>) -> Self {
        Self(differences.peekable())
    }

    /// The difference of a path. Paths come in order.
    fn at(&mut self, path: &[u8]) -> Result<Option<Difference>, StoreError> {
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

/// The paths of a plan that are in conflict, sorted by path.
pub(super) fn conflicts(
    store: &dyn ObjectSource,
    chain: &[LoadedManifest],
    current_root: &ContentHash,
    plan: &RestorePlan,
) -> Result<Vec<Conflict>, StoreError> {
    let last = chain.iter().rev().find(|loaded| loaded.manifest.kind == SnapshotKind::Ordinary);
    let Some(last) = last.map(|loaded| &loaded.manifest) else { return Ok(Vec::new()) };
    let unknown = NotCapturedSet::new(last);
    let mut later = Alongside::new(diff::differences(store, &last.merkle_root, current_root)?);
    let mut found: Vec<Found<'_>> = Vec::new();
    for change in &plan.changes {
        let path = change.path.as_os_str().as_bytes();
        let Some(difference) = later.at(path)? else { continue };
        let is_known = difference.old.is_some() || unknown.reason(path).is_none();
        if let (true, Some(change_type)) = (is_known, difference.change_type()) {
            found.push(Found { path, change_type, now: difference.new });
        }
    }
    for loaded in chain {
        if found.is_empty() {
            break;
        }
        let safety = &loaded.manifest;
        let restored =
            safety.restores.and_then(|number| chain.iter().find(|l| l.manifest.number == number));
        let Some(restored) = restored else { continue };
        let (before, after) = (&safety.merkle_root, &restored.manifest.merkle_root);
        let mut restored = Alongside::new(diff::differences(store, before, after)?);
        let mut unexplained = Vec::new();
        for found in found {
            let put_there = restored.at(found.path)?;
            if put_there.is_none_or(|state| !is_same(state.new.as_ref(), found.now.as_ref())) {
                unexplained.push(found);
            }
        }
        found = unexplained;
    }
    Ok(found
        .into_iter()
        .map(|Found { path, change_type, .. }| Conflict {
            path: to_path(path).to_owned(),
            change_type,
            sessions: Vec::new(),
        })
        .collect())
}

/// Whether nobody would call one a change of the other.
fn is_same(a: Option<&Arc<EntryState>>, b: Option<&Arc<EntryState>>) -> bool {
    let difference = Difference { path: Vec::new(), old: a.cloned(), new: b.cloned() };
    a == b || difference.change_type().is_none()
}
