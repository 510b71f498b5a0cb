//! Whether a session at a place is the one that is here.
//!
//! Two stores may go on with one session: each records a snapshot of the same number. The newest
//! snapshot that is both here and there decides, because a manifest names the one before it. A push
//! also compares what appears there while it goes on.

use super::archives::Archives;
use super::error::RemoteError;
use super::place::Place;
use super::watched::Failure;
use crate::{ArchiveError, ArchiveId, ArchiveName, Identities, snapshot_in};
use nono_engine::object::ContentHash;
use nono_engine::progress::Progress;

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Agreement {
    /// The history there is the one here, or there is nothing to compare.
    Same,
    /// The snapshot of this number is another one there.
    Other(u64),
    /// An archive is encrypted, and only its key could tell.
    Unknown,
    /// An archive cannot be told from junk.
    Unusable { archive: String, reason: String },
}

/// The newest snapshot of a session that has an archive and a manifest here.
pub(super) fn newest_common(
    held: &Archives,
    session: &str,
    here: &[ContentHash],
) -> Option<ArchiveId> {
    let is_here = |id: &&ArchiveId| usize::try_from(id.number()).is_ok_and(|it| it < here.len());
    let ids = held.of_session(session).map(|(name, _)| &name.id);
    ids.rev().find(is_here).cloned()
}

/// Compares the newest snapshot of a session that has an archive and a manifest here. `here` are
/// the hashes of the manifests, by number. One archive of several of a
/// snapshot is enough, if it is the same: a reader finds out which one it can use.
pub(super) fn compare(
    place: &Place,
    held: &Archives,
    session: &str,
    here: &[ContentHash],
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<Agreement, RemoteError> {
    let Some(id) = newest_common(held, session, here) else { return Ok(Agreement::Same) };
    let found = compare_each(place, held.of_snapshot(&id), here, identities, progress)?;
    Ok(match found.contains(&Agreement::Same) {
        true => Agreement::Same,
        false => found.into_iter().next().unwrap_or(Agreement::Same),
    })
}

/// Compares every one of these archives of a snapshot; `None` if there is none. One that is another
/// one decides: whoever stores more would make a mixture of two histories.
pub(super) fn compare_all<'n>(
    place: &Place,
    names: impl Iterator<Item = &'n ArchiveName>,
    here: &[ContentHash],
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<Option<Agreement>, RemoteError> {
    let found = compare_each(place, names, here, identities, progress)?;
    let other = found.iter().find(|it| matches!(it, Agreement::Other(_)));
    let same = || found.iter().find(|it| **it == Agreement::Same);
    Ok(other.or_else(same).or_else(|| found.first()).cloned())
}

/// The agreement of each archive. One that is gone meanwhile has none.
fn compare_each<'n>(
    place: &Place,
    names: impl Iterator<Item = &'n ArchiveName>,
    here: &[ContentHash],
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<Vec<Agreement>, RemoteError> {
    let mut found = Vec::new();
    for name in names {
        let (key, number) = (name.to_string(), name.id.number());
        let failure = Failure::default();
        let source = match place.open_object(&key, progress) {
            // A cleanup was faster.
            Err(RemoteError::Missing { .. }) => continue,
            opened => failure.watch(opened?),
        };
        found.push(match snapshot_in(source, identities) {
            Ok(hash) if here.get(number as usize) == Some(&hash) => Agreement::Same,
            Ok(_) => Agreement::Other(number),
            Err(_) if progress.is_cancelled() => return Err(RemoteError::Cancelled),
            Err(error) => match failure.error(&key, &place.address().to_string()) {
                Some(broken) => return Err(broken),
                None => match error {
                    ArchiveError::Encrypted | ArchiveError::WrongKey => Agreement::Unknown,
                    error => Agreement::Unusable { archive: key, reason: error.to_string() },
                },
            },
        });
    }
    Ok(found)
}
