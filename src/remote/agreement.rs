//! Whether a session at a place is the one that is here.
//!
//! Two stores may go on with one session: each records a snapshot of the same number. The newest
//! snapshot that is both here and there decides, because a manifest names the one before it.

use super::error::RemoteError;
use super::inventory::SessionArchives;
use super::place::Place;
use super::watched::Failure;
use crate::archive::{ArchiveError, Identities, snapshot_in};
use crate::object::ContentHash;
use crate::progress::Progress;

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

/// Compares the newest snapshot that has an archive and a manifest here. `here` are the hashes of
/// the manifests, by number. Of several archives of one snapshot, one that is the same is enough.
pub(super) fn compare(
    place: &Place,
    held: &SessionArchives,
    here: &[ContentHash],
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<Agreement, RemoteError> {
    let numbers = held.numbers();
    let is_here = |number: &&u64| usize::try_from(**number).is_ok_and(|it| it < here.len());
    let Some(number) = numbers.iter().rev().find(is_here).copied() else {
        return Ok(Agreement::Same);
    };
    let mut found = Agreement::Same;
    for (name, _) in held.all().filter(|(name, _)| name.id.number() == number) {
        let key = name.to_string();
        let failure = Failure::default();
        let source = match place.open_object(&key, progress) {
            // A cleanup was faster.
            Err(RemoteError::Missing { .. }) => continue,
            opened => failure.watch(opened?),
        };
        found = match snapshot_in(source, identities) {
            Ok(hash) if here.get(number as usize) == Some(&hash) => return Ok(Agreement::Same),
            Ok(_) => Agreement::Other(number),
            Err(_) if progress.is_cancelled() => return Err(RemoteError::Cancelled),
            Err(error) => match failure.error(&key, &place.address().to_string()) {
                Some(broken) => return Err(broken),
                None if found != Agreement::Same => found,
                None => match error {
                    ArchiveError::Encrypted | ArchiveError::WrongKey => Agreement::Unknown,
                    error => Agreement::Unusable { archive: key, reason: error.to_string() },
                },
            },
        };
    }
    Ok(found)
}
