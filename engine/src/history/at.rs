//! The recorded state at a time.
//!
//! The recorded times decide, whatever clock wrote them. A whole restore brings the state of its
//! snapshot back. After a restore of a part, no snapshot holds the state: the last snapshot is the
//! nearest, and the time of the restore is told.

use jiff::Timestamp;

use super::error::Damaged;
use super::snapshots::{Place, each_snapshot};
use super::versions::each_restore;
use crate::snapshot::{Recency, SessionDir};

/// A recorded state that stood at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateAt {
    /// The snapshot; of a restored state, with the time of the restore.
    pub place: Place,
    /// Whether a restore brought it back.
    pub is_restored: bool,
    /// When a restore changed a part of it before the time that is asked about.
    pub changed_by_restore: Option<Timestamp>,
}

/// The last state of these sessions that was recorded until then. A state that an archive
/// added to a session of here is none of them.
///
/// # Errors
/// The first state, where nothing was recorded by then; `None` where nothing is recorded at all.
pub fn state_at(
    sessions: &[SessionDir],
    until: Timestamp,
) -> (Result<StateAt, Option<Place>>, Vec<Damaged>) {
    let now = Timestamp::now();
    let mut damaged = Vec::new();
    let is_received = |id: &str| {
        let session = sessions.iter().find(|session| session.id() == id);
        session.and_then(|session| session.metadata().ok()).is_some_and(|it| it.received)
    };
    let snapshots = each_snapshot(sessions, &mut damaged, |place, _| {
        let is_of_here = !place.received || is_received(&place.session_id);
        Ok(is_of_here.then_some(()))
    });
    let key = |place: &Place| -> (Recency, u64) { place.order(now) };
    let is_over = |place: &Place| place.timestamp <= until;
    let last = snapshots.iter().map(|(place, ())| place).rfind(|place| is_over(place));
    let Some(last) = last else {
        // A state from the future is older than all others in the order of states, and nothing that
        // a person could mean.
        let past = snapshots.iter().map(|(place, ())| place);
        let first = past.filter(|place| place.timestamp <= now).min_by_key(|it| it.timestamp);
        return (Err(first.cloned()), damaged);
    };
    let mut restored: Option<(Place, bool)> = None;
    for session in sessions {
        let told = each_restore(session, |record, place, _, _| {
            let is_whole = !record.is_partial && !record.left_some && !record.has_merged;
            let is_newer = restored.as_ref().is_none_or(|(known, _)| key(known) < key(&place));
            if is_over(&place) && is_newer && place.timestamp > last.timestamp {
                restored = Some((place, is_whole));
            }
            Ok(())
        });
        if let Err(error) = told {
            tracing::debug!("restores of session {}: {error}", session.id());
        }
    }
    let state = match restored {
        Some((place, true)) => StateAt { place, is_restored: true, changed_by_restore: None },
        other => StateAt {
            place: last.clone(),
            is_restored: false,
            changed_by_restore: other.map(|(place, _)| place.timestamp),
        },
    };
    (Ok(state), damaged)
}
