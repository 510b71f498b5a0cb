//! Which other sessions changed some paths.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError, SessionSummary};
use crate::diff;
use crate::snapshot::{ManifestError, NotCapturedSet, SessionDir, SnapshotKind};

/// The sessions that changed each of the paths after `session` recorded its last state, oldest
/// first. A session that is undone left nothing behind. A session that cannot be read is not named;
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
    let known = last_recorded(session)?;
    for other in catalog.sessions()? {
        if other.path() == session.path() {
            continue;
        }
        // The last state of this session already includes earlier changes.
        if !may_have_changed_since(&other, known).unwrap_or(false) {
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

/// When a session recorded the last state that is its own, and no restore's.
fn last_recorded(session: &SessionDir) -> Result<Option<Timestamp>, ManifestError> {
    if let Some(ended) = session.metadata()?.ended {
        return Ok(Some(ended));
    }
    for number in session.snapshot_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            return Ok(Some(manifest.timestamp));
        }
    }
    Ok(None)
}

fn may_have_changed_since(
    other: &SessionDir,
    known: Option<Timestamp>,
) -> Result<bool, ManifestError> {
    let is_later = known.is_none_or(|known| match last_recorded(other) {
        Ok(last) => last.is_none_or(|last| last > known),
        Err(_) => false,
    });
    Ok(is_later && !SessionSummary::of(other)?.undone)
}

/// The differences between a session's first state and its last ordinary one.
fn changed_in(session: &SessionDir) -> Result<Vec<Vec<u8>>, CatalogError> {
    let numbers = session.snapshot_numbers()?;
    let Some(first) = numbers.first() else { return Ok(Vec::new()) };
    let baseline = session.manifest(*first)?.manifest;
    let mut last = None;
    for number in numbers.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            last = Some(manifest);
            break;
        }
    }
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
