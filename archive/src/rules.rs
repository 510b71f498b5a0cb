//! When an archive is full, and when a delta.

use serde::Serialize;

use super::delta::DeltaStats;

/// Most deltas between a snapshot and its full archive.
pub const MAX_CHAIN_DEPTH: u32 = 10;
/// The part of the files from which on a delta is not worth its chain.
pub const FULL_SNAPSHOT_THRESHOLD: f64 = 0.7;

/// Why an archive is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FullReason {
    /// The user asked for it.
    Asked,
    /// There is no archive to which it could be a delta.
    NoParent,
    /// There are such archives, and none of their snapshots is in the store.
    ParentNotHere,
    /// The chain of deltas has its greatest depth.
    ChainDepth,
    /// Most files changed, so a delta saves little.
    MostChanged,
}

impl FullReason {
    /// The reason for a user who might expect a delta; nothing where no user does.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Self::Asked | Self::NoParent => None,
            Self::ParentNotHere => Some("the snapshots before it are not in this store"),
            Self::ChainDepth => Some("the chain is 10 deltas deep"),
            Self::MostChanged => Some("most files changed"),
        }
    }
}

/// Whether so many files changed that the archive is full again: (added + modified + removed) of
/// max(before, after).
pub(super) fn is_mostly_changed(stats: &DeltaStats) -> bool {
    let before = stats.unchanged + stats.modified + stats.removed;
    let changed = stats.added + stats.modified + stats.removed;
    let most = before.max(stats.total_files);
    most > 0 && changed as f64 / most as f64 >= FULL_SNAPSHOT_THRESHOLD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(before: u64, added: u64, modified: u64, removed: u64) -> DeltaStats {
        let unchanged = before - modified - removed;
        let total_files = unchanged + added + modified;
        DeltaStats { added, modified, removed, unchanged, total_files, bytes_saved: 0 }
    }

    #[test]
    fn seventy_of_a_hundred_files_are_most() {
        assert!(is_mostly_changed(&stats(100, 0, 70, 0)));
        assert!(!is_mostly_changed(&stats(100, 0, 69, 0)));
        assert!(is_mostly_changed(&stats(100, 0, 0, 70)));
        assert!(!is_mostly_changed(&stats(0, 0, 0, 0)));
        assert!(is_mostly_changed(&stats(30, 70, 0, 0)));
        assert!(!is_mostly_changed(&stats(31, 69, 0, 0)));
    }
}
