//! The facts of a fork, as every report in JSON has them.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use nono_engine::fork::Fork;
use nono_engine::path_text::serde_paths;

/// The facts of a fork.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) session_id: String,
    pub(super) from: String,
    pub(super) created: Timestamp,
    #[serde(with = "serde_paths")]
    pub(super) tracked_paths: Vec<PathBuf>,
    /// Directories that are in the fork as they are on the disk, below layers of their own.
    #[serde(with = "serde_paths")]
    pub(super) live_paths: Vec<PathBuf>,
}

impl Facts {
    pub(super) fn of(fork: &Fork) -> Self {
        let document = fork.document();
        Self {
            name: document.name.clone(),
            session_id: document.session.clone(),
            from: document.from.clone(),
            created: document.created,
            tracked_paths: fork.recorded_paths().cloned().collect(),
            live_paths: fork.live_paths().cloned().collect(),
        }
    }
}
