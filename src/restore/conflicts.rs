//! Later changes that a restore would undo as well.
//!
//! In a completed session a path is in conflict if the restore would change it and its state now is
//! one that the session does not know: neither that of the last ordinary snapshot (what the command
//! left), nor one that an earlier restore of the same session brought it to. So restoring twice,
//! another snapshot, or the safety snapshot is no conflict, while an edit made after the command is
//! one until somebody decides about it, also if it was left alone (and hence recorded by a safety
//! snapshot) before. In a session that is open, running or interrupted, later changes are its own.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::Serialize;

use super::plan::RestorePlan;
use crate::diff::{self, ChangeType, Difference, EntryState};
use crate::object::ContentHash;
use crate::path_text::serde_path;
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
    let later: HashMap<Vec<u8>, Difference> =
        diff::compare(store, &last.merkle_root, current_root)?
            .into_iter()
            .filter(|difference| {
                difference.old.is_some() || unknown.reason(&difference.path).is_none()
            })
            .map(|difference| (difference.path.clone(), difference))
            .collect();
    let mut found: Vec<(&[u8], ChangeType)> = plan
        .changes
        .iter()
        .filter_map(|change| {
            let path = change.path.as_os_str().as_bytes();
            Some((path, later.get(path)?.change_type()?))
        })
        .collect();
    for loaded in chain {
        if found.is_empty() {
            break;
        }
        let safety = &loaded.manifest;
        let restored =
            safety.restores.and_then(|number| chain.iter().find(|l| l.manifest.number == number));
        let Some(restored) = restored else { continue };
        let put_there: HashMap<Vec<u8>, Option<EntryState>> =
            diff::compare(store, &safety.merkle_root, &restored.manifest.merkle_root)?
                .into_iter()
                .map(|difference| (difference.path, difference.new))
                .collect();
        found.retain(|(path, _)| {
            let now = later.get(*path).and_then(|difference| difference.new.as_ref());
            put_there.get(*path).is_none_or(|state| !is_same(state.as_ref(), now))
        });
    }
    Ok(found
        .into_iter()
        .map(|(path, change_type)| Conflict {
            path: crate::path_text::to_path(path).to_owned(),
            change_type,
            sessions: Vec::new(),
        })
        .collect())
}

/// Whether nobody would call one a change of the other.
fn is_same(a: Option<&EntryState>, b: Option<&EntryState>) -> bool {
    let difference = Difference { path: Vec::new(), old: a.cloned(), new: b.cloned() };
    a == b || difference.change_type().is_none()
}
