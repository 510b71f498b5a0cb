//! Removing single snapshots of a session.
//!
//! A removed snapshot leaves its manifest in place, so numbers never move and the chain verifies
//! (`manifest/removed.rs`). Always true: that the session calls a snapshot removed is durable
//! before any collection treats its objects as garbage, so a crash leaves the snapshot whole or
//! removed. Nothing is freed here: the next [`CleanupPlan`](super::CleanupPlan) does that.

use std::path::PathBuf;

use jiff::Timestamp;

use crate::diff::{ChangeSummary, count_changes};
use crate::manifest::{RemovalReason, RemovedSnapshot, SnapshotKind, SnapshotManifest};
use crate::path_text::Shown;
use crate::snapshot::{ManifestError, SessionDir, SessionMetadata};
use crate::store::{LocalStore, StoreError};

/// Why no snapshot was removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveSnapshotError {
    /// The session has no such snapshot.
    #[error("session {} has no snapshot {number}", Shown::path(session))]
    NoSuchSnapshot {
        /// The session's directory.
        session: PathBuf,
        /// The number.
        number: u64,
    },
    /// It is the newest one, from which the next one is made.
    #[error(
        "snapshot {number} is the newest of session {}, which always stays: remove the session \
         instead",
        Shown::path(session)
    )]
    Newest {
        /// The session's directory.
        session: PathBuf,
        /// The number.
        number: u64,
    },
    /// The session would hold none.
    #[error("session {} holds no other snapshot: remove the session instead", Shown::path(session))]
    NoneLeft {
        /// The session's directory.
        session: PathBuf,
    },
    /// The user pinned the session, and did not name the snapshot.
    #[error("session {} is pinned, so none of its snapshots goes by itself", Shown::path(session))]
    Pinned {
        /// The session's directory.
        session: PathBuf,
    },
    /// A restore was interrupted, which needs the snapshots.
    #[error(
        "a restore of session {} was interrupted: finish it or take it back first",
        Shown::path(session)
    )]
    RestoreInterrupted {
        /// The session's directory.
        session: PathBuf,
    },
    /// The session's manifest was edited by another program, so it is left as it is.
    #[error(
        "the manifest of session {} was changed, and not by nono: nothing is removed from it",
        Shown::path(session)
    )]
    Altered {
        /// The session's directory.
        session: PathBuf,
    },
    /// A manifest cannot be used or written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

/// Removes snapshots from a session: from here on no list names them, and nothing keeps their
/// objects. Waits until no other process writes the session. Returns those removed now; one
/// that was removed before is passed over. All of them go, or none.
///
/// Whether the first snapshot of a run may go is the caller's business. One snapshot always stays:
/// the newest one, where [the next one is made from it](crate::snapshot::SessionOrigin).
///
/// # Errors
/// As [`RemoveSnapshotError`] says. Nothing was removed then.
pub fn remove_snapshots(
    session: &SessionDir,
    numbers: &[u64],
    reason: RemovalReason,
) -> Result<Vec<RemovedSnapshot>, RemoveSnapshotError> {
    let _lock = session.lock()?;
    let mut metadata = session.metadata()?;
    let path = || session.path().to_owned();
    if metadata.altered.is_some() {
        return Err(RemoveSnapshotError::Altered { session: path() });
    }
    if session.is_needed_by_restore()? {
        return Err(RemoveSnapshotError::RestoreInterrupted { session: path() });
    }
    if reason.spares_pinned() && metadata.pinned {
        return Err(RemoveSnapshotError::Pinned { session: path() });
    }
    let listed = metadata.manifest_hashes.len() as u64;
    let newest = session.manifest_numbers()?.last().copied();
    let removed_at = Timestamp::now();
    let mut removed: Vec<RemovedSnapshot> = Vec::new();
    for number in numbers.iter().copied() {
        if newest == Some(number) && metadata.origin.builds_on_newest() {
            return Err(RemoveSnapshotError::Newest { session: path(), number });
        }
        if number >= listed {
            return Err(RemoveSnapshotError::NoSuchSnapshot { session: path(), number });
        }
        let is_known = removed.iter().any(|known| known.number == number);
        if !is_known && metadata.removal(number).is_none() {
            removed.push(RemovedSnapshot { number, removed_at, reason });
        }
    }
    if removed.is_empty() {
        return Ok(removed);
    }
    if (metadata.removed.len() + removed.len()) as u64 >= listed {
        return Err(RemoveSnapshotError::NoneLeft { session: path() });
    }
    removed.sort_unstable_by_key(|removed| removed.number);
    let before = ends(session, &metadata);
    metadata.removed.extend(removed.iter().cloned());
    metadata.removed.sort_unstable_by_key(|removed| removed.number);
    let after = ends(session, &metadata);
    if before != after {
        metadata.changes = count_between(session, after);
    }
    // For a repair that has to make the session's manifest again.
    session.mark_removed(&removed, true)?;
    session.save_metadata(&metadata)?;
    Ok(removed)
}

/// Numbers of the first snapshot that is held and of the last one that the user asked for: the two
/// that a session's changes are counted between.
fn ends(session: &SessionDir, metadata: &SessionMetadata) -> (Option<u64>, Option<u64>) {
    let listed = 0..metadata.manifest_hashes.len() as u64;
    let is_held =
        |number: &u64| metadata.removal(*number).is_none() && !metadata.was_added(*number);
    let held: Vec<u64> = listed.filter(is_held).collect();
    let is_ordinary = |number: &&u64| {
        let loaded = session.manifest(**number);
        loaded.is_ok_and(|loaded| loaded.manifest.kind == SnapshotKind::Ordinary)
    };
    (held.first().copied(), held.iter().rev().find(is_ordinary).copied())
}

/// `None` where a damaged object hides it.
fn count_between(session: &SessionDir, ends: (Option<u64>, Option<u64>)) -> Option<ChangeSummary> {
    let (Some(first), Some(last)) = ends else { return Some(ChangeSummary::default()) };
    if first >= last {
        return Some(ChangeSummary::default());
    }
    let load =
        |number: u64| -> Option<SnapshotManifest> { Some(session.manifest(number).ok()?.manifest) };
    let counted = LocalStore::open(&session.objects_path()).and_then(|store| {
        let (Some(old), Some(new)) = (load(first), load(last)) else { return Ok(None) };
        count_changes(&store, &old, &new, || true)
    });
    let warn = |error: &StoreError| tracing::warn!("changes of the session not counted: {error}");
    counted.inspect_err(warn).ok().flatten()
}
