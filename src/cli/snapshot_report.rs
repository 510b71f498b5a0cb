//! The report of a snapshot, which its supervisor also sends to a recorded command.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use nono_engine::diff::{Change, Comparison};
use nono_engine::object::ContentHash;
use nono_engine::path_text::serde_paths;
use nono_engine::snapshot::{NotCaptured, SessionDir, SnapshotManifest};

/// Maximum number of named files that kept changing while they were read.
pub(super) const NAMED_UNSTABLE: usize = 20;

/// The totals of a snapshot, and the changes since the one before.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SnapshotReport {
    pub(super) session_id: String,
    pub(super) number: u64,
    /// Whether it is new; else nothing changed since it was taken.
    #[serde(default = "yes")]
    pub(super) taken: bool,
    pub(super) merkle_root: ContentHash,
    /// The root of the session with this snapshot; none if the session's manifest cannot be read
    /// again.
    pub(super) session_root: Option<ContentHash>,
    pub(super) file_count: u64,
    pub(super) total_bytes: u64,
    pub(super) not_captured: Vec<NotCaptured>,
    /// Files that kept changing while they were read.
    #[serde(with = "serde_paths")]
    pub(super) unstable: Vec<PathBuf>,
    pub(super) changes: Vec<Change>,
    /// Paths whose time alone moved.
    #[serde(with = "serde_paths")]
    pub(super) touched: Vec<PathBuf>,
}

fn yes() -> bool {
    true
}

impl SnapshotReport {
    pub(super) fn of(
        session: &SessionDir,
        manifest: &SnapshotManifest,
        Comparison { changes, touched }: Comparison,
    ) -> Self {
        Self {
            session_id: session.id(),
            number: manifest.number,
            taken: true,
            merkle_root: manifest.merkle_root,
            session_root: session.metadata().ok().map(|metadata| metadata.session_root()),
            file_count: manifest.totals.file_count,
            total_bytes: manifest.totals.total_bytes,
            not_captured: manifest.not_captured.clone(),
            unstable: manifest.unstable.clone(),
            changes,
            touched,
        }
    }
}
