//! The file that became another one: it went in the moment in which the other one appeared.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::MAX_BLAME_BYTES;
use super::lines::similarity;
use crate::byte_path;
use crate::diff;
use crate::history::{HistoryError, Place};
use crate::object::{ContentHash, Node};
use crate::path_text::to_path;
use crate::snapshot::{NotCapturedSet, SessionDir, SnapshotManifest};
use crate::store::ObjectSource;

/// Similarity in percent from which a file is taken for a renamed one, as git has it.
const MIN_SIMILARITY: u64 = 50;

/// Maximum number of files whose contents are compared. Each is read.
const MAX_COMPARED: usize = 500;

/// The path of the file that became the one at `path`, with these contents, between two snapshots.
pub(super) fn source_of(
    path: &Path,
    hash: &ContentHash,
    bytes: &[u8],
    (before, after): (&Place, &Place),
    sessions: &[SessionDir],
    source: &dyn ObjectSource,
) -> Result<Option<PathBuf>, HistoryError> {
    let (Some(old), Some(new)) = (manifest(before, sessions)?, manifest(after, sessions)?) else {
        return Ok(None);
    };
    let unknown = (NotCapturedSet::new(&old), NotCapturedSet::new(&new));
    let mut gone = Vec::new();
    for difference in diff::differences(source, &old.merkle_root, &new.merkle_root)? {
        let difference = difference?;
        if difference.new.is_none()
            && let Some(state) = &difference.old
            && let Node::File { hash, size, .. } = &state.node
            && diff::is_known(&difference, &unknown.0, &unknown.1)
        {
            gone.push((difference.path.clone(), *hash, *size));
        }
    }
    let name = |path: &[u8]| byte_path::split(path).1.to_vec();
    let own = name(path.as_os_str().as_bytes());
    let mut same: Vec<_> = gone.iter().filter(|(_, old, _)| old == hash).collect();
    // The one that kept its name comes first.
    same.sort_by_key(|(path, ..)| (name(path) != own, path.clone()));
    if let Some((path, ..)) = same.first() {
        return Ok(Some(to_path(path).to_owned()));
    }
    let is_near = |size: u64| {
        let (least, most) = (size.min(bytes.len() as u64), size.max(bytes.len() as u64));
        size <= MAX_BLAME_BYTES && least * 100 >= most * MIN_SIMILARITY
    };
    gone.retain(|(_, _, size)| *size > 0 && is_near(*size));
    let mut best: Option<((u64, bool), PathBuf)> = None;
    for (path, hash, size) in gone.iter().take(MAX_COMPARED) {
        let score = (similarity(&source.read(hash, *size)?, bytes), name(path) == own);
        if score.0 >= MIN_SIMILARITY && best.as_ref().is_none_or(|(known, _)| score > *known) {
            best = Some((score, to_path(path).to_owned()));
        }
    }
    Ok(best.map(|(_, path)| path))
}

/// The manifest of a snapshot, if its session is one of these.
fn manifest(
    place: &Place,
    sessions: &[SessionDir],
) -> Result<Option<SnapshotManifest>, HistoryError> {
    let session = sessions.iter().find(|session| session.id() == place.session_id);
    Ok(session.map(|session| session.manifest(place.number)).transpose()?.map(|it| it.manifest))
}
