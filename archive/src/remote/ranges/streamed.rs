//! Reading an archive without an index: from its beginning, into a store.

use std::io::{self, Read, Write};

use crate::read::{ArchiveReader, Part};
use crate::{ArchiveError, Identities};
use nono_engine::object::ContentHash;
use nono_engine::progress::NoProgress;
use nono_engine::store::{LocalStore, ObjectStore};

/// Stores all objects of an archive that the store lacks.
///
/// # Errors
/// As [`ArchiveError`] says; what was stored until then stays.
pub(super) fn store_all(
    source: impl Read,
    keys: &Identities,
    store: &LocalStore,
) -> Result<(), ArchiveError> {
    let mut reader = ArchiveReader::open(source, keys)?;
    while let Some(part) = reader.next_part()? {
        match part {
            Part::Object(hash, size) if !store.contains(&hash, size)? => {
                let bytes = reader.bytes(&hash)?;
                store.write(&bytes)?;
            }
            Part::File(hash, size) if !store.contains(&hash, size)? => {
                let mut fill = |out: &mut dyn Write| {
                    let see = |bytes: &[u8]| out.write_all(bytes).map_err(ArchiveError::Write);
                    reader.contents(&hash, &NoProgress, see).map_err(io::Error::other)
                };
                store.take(&hash, &mut fill)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The manifests of an archive: of its session, of its snapshot, and of earlier snapshots.
pub(super) struct Manifests {
    pub(super) session: nono_engine::snapshot::SessionMetadata,
    pub(super) snapshot: Vec<u8>,
    pub(super) earlier: Vec<(u64, Vec<u8>)>,
}

/// Reads the beginning of an archive.
///
/// # Errors
/// As [`ArchiveError`] says.
pub(super) fn manifests(source: impl Read, keys: &Identities) -> Result<Manifests, ArchiveError> {
    let mut reader = ArchiveReader::open(source, keys)?;
    let mut earlier = Vec::new();
    while let Some(Part::Snapshot(number, bytes)) = reader.next_part()? {
        earlier.push((number, bytes));
    }
    let snapshot = std::mem::take(&mut reader.snapshot);
    Ok(Manifests { session: reader.session.clone(), snapshot, earlier })
}

/// Whether bytes are those that a hash names.
pub(super) fn is_of(hash: &ContentHash, bytes: &[u8]) -> bool {
    ContentHash::of(bytes) == *hash
}
