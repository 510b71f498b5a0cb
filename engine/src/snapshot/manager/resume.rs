//! The tracked paths of a session that is opened again.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::SnapshotError;
use crate::manifest::{SnapshotKind, TrackedRoot};
use crate::snapshot::manifests::ManifestError;
use crate::snapshot::roots::{TrackedPathError, resolve_roots};
use crate::snapshot::session_dir::SessionDir;
use crate::sys;
use crate::walk::ExclusionConfig;

/// The tracked paths of the last requested snapshot. (A safety snapshot has the roots and filters
/// of the restored one.)
pub(super) fn latest_roots(
    session: &SessionDir,
) -> Result<Option<Vec<TrackedRoot>>, ManifestError> {
    for number in session.snapshot_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            return Ok(Some(manifest.roots));
        }
    }
    Ok(None)
}

/// Paths of a session that is resumed: one that is tracked already may be gone or replaced by now.
pub(super) fn resume_roots(
    known: &[TrackedRoot],
    tracked_paths: &[PathBuf],
    exclusion: &ExclusionConfig,
    store_paths: &[PathBuf],
) -> Result<Vec<TrackedRoot>, SnapshotError> {
    let current_dir = sys::current_dir()?;
    let mut roots = Vec::new();
    let mut others = Vec::new();
    for path in tracked_paths {
        let plain =
            sys::canonical_parent(path).unwrap_or_else(|_| sys::plain_absolute(path, &current_dir));
        match known.iter().find(|root| root.path == plain) {
            Some(root) => {
                roots.push(root.path.clone());
            }
            None => others.push(path.clone()),
        }
    }
    if roots.is_empty() || !others.is_empty() {
        return Ok(resolve_roots(tracked_paths, exclusion, store_paths)?);
    }
    roots.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    roots.dedup();
    let tied = roots.iter().map(|path| {
        let exclusion = exclusion.tied(path, &roots)?;
        Ok(TrackedRoot { path: path.clone(), exclusion })
    });
    tied.collect::<Result<_, TrackedPathError>>().map_err(SnapshotError::from)
}
