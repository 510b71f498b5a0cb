//! The snapshots of some sessions, in the order in which they were taken.

use std::fmt;

use jiff::Timestamp;

use super::error::{Damaged, HistoryError};
use crate::object::ContentHash;
use crate::snapshot::{
    Recency, RestoreCommand, SessionDir, SessionMetadata, SnapshotKind, SnapshotManifest,
};

/// A snapshot. Shown as `ID/N`, which is what names it everywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The session.
    pub session_id: String,
    /// Number of the snapshot in it.
    pub number: u64,
    /// When it was taken.
    pub timestamp: Timestamp,
    /// Why it was taken.
    pub kind: SnapshotKind,
    /// Hash of its root tree.
    pub merkle_root: ContentHash,
    /// Whether an archive brought it, so that nothing here recorded it.
    pub received: bool,
    /// The command that brought this state back, if a restore did.
    pub restored: Option<RestoreCommand>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.session_id, self.number)
    }
}

impl Place {
    pub(super) fn of(
        session: &SessionDir,
        metadata: Option<&SessionMetadata>,
        manifest: &SnapshotManifest,
    ) -> Self {
        // A restore of a received session keeps the state before it, which is of here.
        let number = manifest.number;
        let is_received = |metadata: &SessionMetadata| {
            let mut kept = metadata.restores.iter().map(|restore| restore.safety_snapshot);
            metadata.was_added(number) || metadata.received && !kept.any(|it| it == Some(number))
        };
        Self {
            received: metadata.is_some_and(is_received),
            session_id: session.id(),
            number,
            timestamp: manifest.timestamp,
            kind: manifest.kind,
            merkle_root: manifest.merkle_root,
            restored: None,
        }
    }

    /// The sort key of snapshots: as sessions are sorted, and within one by number.
    pub(super) fn order(&self, now: Timestamp) -> (Recency, u64) {
        (Recency::new(self.timestamp, self.session_id.as_str(), now), self.number)
    }
}

/// Looks at every snapshot of some sessions, and returns what `see` made of each, oldest first. A
/// manifest is not kept longer than `see` looks at it: one may name a million paths.
pub(super) fn each_snapshot<T>(
    sessions: &[SessionDir],
    damaged: &mut Vec<Damaged>,
    mut see: impl FnMut(&Place, &SnapshotManifest) -> Result<Option<T>, HistoryError>,
) -> Vec<(Place, T)> {
    let mut seen = Vec::new();
    for session in sessions {
        let mut failed = None;
        let numbers = session.snapshot_numbers().unwrap_or_else(|error| {
            failed = Some(HistoryError::from(error));
            Vec::new()
        });
        let metadata = session.metadata().ok();
        tracing::debug!("session {}: {} snapshots are looked at", session.id(), numbers.len());
        for number in numbers {
            let looked = session.manifest(number).map_err(HistoryError::from).and_then(|loaded| {
                let place = Place::of(session, metadata.as_ref(), &loaded.manifest);
                let made = see(&place, &loaded.manifest)?;
                Ok(made.map(|made| (place, made)))
            });
            match looked {
                Ok(made) => seen.extend(made),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        // One that another process removed meanwhile is not damaged.
        if let Some(error) = failed.filter(|_| !session.is_gone()) {
            damaged.push(Damaged { session_id: session.id(), error });
        }
    }
    let now = Timestamp::now();
    seen.sort_by_cached_key(|(place, _)| place.order(now));
    seen
}
