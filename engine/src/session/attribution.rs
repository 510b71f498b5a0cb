//! Which other sessions changed some paths.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::catalog::{Catalog, CatalogError};
use super::summary::SessionSummary;
use crate::diff;
use crate::snapshot::{NotCapturedSet, SessionDir, SnapshotKind, SnapshotManifest};

/// The sessions that changed each of the paths after `session` recorded its last state, oldest
/// first. A session that is undone left nothing behind, and one that was received did nothing here. A session that cannot be read is not named;
/// nothing depends on it.
///
/// # Errors
/// When the sessions cannot be listed.
pub fn changed_since<'a>(
    catalog: &Catalog,
    session: &SessionDir,
    paths: impl Iterator<Item = &'a Path>,
) -> Result<BTreeMap<PathBuf, Vec<String>>, CatalogError> {
    let mut found: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    let mut paths = paths.map(|path| path.as_os_str().as_bytes()).peekable();
    if paths.peek().is_none() {
        return Ok(found);
    }
    // There may be millions, and nobody to ask.
    let mut rest = Some(paths);
    let mut paths: HashSet<&[u8]> = HashSet::new();
    let ended = match session.metadata()?.ended {
        Some(ended) => Some(ended),
        None => last_ordinary(session)?.map(|last| last.timestamp),
    };
    for other in catalog.sessions()? {
        if other.path() == session.path() {
            continue;
        }
        // The last state of this session already includes earlier changes.
        let is_later = other.metadata().is_ok_and(|metadata| {
            ended.is_none_or(|ended| metadata.ended.is_none_or(|end| end > ended))
        });
        let is_no_cause = |other: SessionSummary| other.undone || other.received;
        if !is_later || SessionSummary::of(&other).is_ok_and(is_no_cause) {
            continue;
        }
        paths.extend(rest.take().into_iter().flatten());
        for path in changed_in(&other).unwrap_or_default() {
            if paths.contains(path.as_slice()) {
                let path = crate::path_text::to_path(&path).to_owned();
                found.entry(path).or_default().push(other.id());
            }
        }
    }
    Ok(found)
}

/// The last snapshot of a session that no restore took.
fn last_ordinary(session: &SessionDir) -> Result<Option<SnapshotManifest>, CatalogError> {
    for number in session.recorded_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            return Ok(Some(manifest));
        }
    }
    Ok(None)
}

/// The differences between a session's first state and its last ordinary one.
fn changed_in(session: &SessionDir) -> Result<Vec<Vec<u8>>, CatalogError> {
    let numbers = session.snapshot_numbers()?;
    let Some(first) = numbers.first() else { return Ok(Vec::new()) };
    let baseline = session.manifest(*first)?.manifest;
    let last = last_ordinary(session)?;
    let Some(last) = last else { return Ok(Vec::new()) };
    let store = Catalog::store_of(session)?;
    let differences = diff::compare(&store, &baseline.merkle_root, &last.merkle_root)?;
    let (old, new) = (NotCapturedSet::new(&baseline), NotCapturedSet::new(&last));
    Ok(differences
        .into_iter()
        .filter(|difference| diff::is_known(difference, &old, &new))
        .filter(|difference| difference.change_type().is_some())
        .map(|difference| difference.path)
        .collect())
}
