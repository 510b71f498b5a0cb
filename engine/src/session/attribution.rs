//! Which other sessions changed some paths.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError};
use super::summary::SessionSummary;
use crate::restore::changed_by_session;
use crate::snapshot::{SessionDir, SnapshotKind};

/// The sessions that changed each of the paths after `session` recorded its last state, oldest
/// first. Counted is what their command or agent changed, and recorded after that. A session that
/// is undone left nothing behind, and one that was received did nothing here. One that cannot be
/// read is not named; nothing depends on it.
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
    // There may be millions, and no session to ask.
    let mut rest = Some(paths);
    let mut paths: HashSet<&[u8]> = HashSet::new();
    let ended = match session.metadata()?.ended {
        Some(ended) => Some(ended),
        None => last_recorded(session)?,
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
        for path in changed_in(&other, ended).unwrap_or_default() {
            if paths.contains(path.as_slice()) {
                let path = crate::path_text::to_path(&path).to_owned();
                found.entry(path).or_default().push(other.id());
            }
        }
    }
    Ok(found)
}

fn changed_in(
    session: &SessionDir,
    since: Option<Timestamp>,
) -> Result<HashSet<Vec<u8>>, CatalogError> {
    let store = Catalog::store_of(session)?;
    let metadata = session.metadata()?;
    let chain = session.recorded_chain(&metadata)?;
    Ok(changed_by_session(&metadata, &chain, &store, since)?)
}

/// The time of the last snapshot that no restore took.
fn last_recorded(session: &SessionDir) -> Result<Option<Timestamp>, CatalogError> {
    for number in session.recorded_numbers()?.into_iter().rev() {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary {
            return Ok(Some(manifest.timestamp));
        }
    }
    Ok(None)
}
