//! The tombstone of a snapshot that was taken out of its session.
//!
//! The manifest of the snapshot stays, byte for byte, so numbers never move and the chain of hashes
//! verifies. The session's manifest notes the number; from then on nothing needs the snapshot's
//! objects, and the next collection frees those that nothing else reaches.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A snapshot that was removed from its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedSnapshot {
    /// Its number, which no other snapshot gets.
    pub number: u64,
    /// When it was removed.
    pub removed_at: Timestamp,
    /// Why.
    pub reason: RemovalReason,
}

/// Why a snapshot was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalReason {
    /// The user named it.
    Asked,
    /// A limit of age, number or space.
    Retention,
    /// Some of many steps are enough.
    Thinning,
    /// It was never here: the session came out of archives, and this snapshot was not asked for.
    NotReceived,
}

impl RemovalReason {
    /// Whether the user did not name the snapshot, so that a pin of the session keeps it.
    pub fn spares_pinned(self) -> bool {
        self != Self::Asked
    }
}

/// As it stands after "it was removed".
impl std::fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Asked => "by request",
            Self::Retention => "by retention",
            Self::Thinning => "by thinning",
            Self::NotReceived => "by leaving it in its archive",
        })
    }
}

/// `removed by retention on 2026-02-14T14:30:22Z`.
impl std::fmt::Display for RemovedSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let second = self.removed_at.as_second();
        let at = Timestamp::from_second(second).unwrap_or(self.removed_at);
        if self.reason == RemovalReason::NotReceived {
            return f.write_str("not received with the rest: it is in its archive");
        }
        write!(f, "removed {} on {at}", self.reason)
    }
}
