//! A request for a snapshot, and its outcome.

use crate::diff::Comparison;
use crate::manifest::{SnapshotManifest, Step};

/// How a snapshot is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// Its name.
    pub label: Option<String>,
    /// The tool call that it is a step of.
    pub step: Option<Step>,
    /// Whether no snapshot is wanted where no path changed since the one before. A time that moved
    /// is no change.
    pub if_changed: bool,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// A new snapshot, and what changed since the one before.
    Snapshot(Box<SnapshotManifest>, Comparison),
    /// Nothing changed since this snapshot, the last of the session.
    Unchanged(Box<SnapshotManifest>),
}

impl Taken {
    /// The snapshot that holds the state: the new one, or the last one.
    pub fn manifest(&self) -> &SnapshotManifest {
        match self {
            Self::Snapshot(manifest, _) | Self::Unchanged(manifest) => manifest,
        }
    }

    /// Whether a snapshot was taken.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::Snapshot(..))
    }
}
