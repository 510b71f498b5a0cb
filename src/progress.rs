//! How long work tells what it has done, and how it is asked to stop.

/// Told about finished work, from several threads. The library itself never prints.
pub trait Progress: Sync {
    /// So many more entries and bytes are done.
    fn advance(&self, entries: u64, bytes: u64);

    /// Whether to stop now. The work then ends with an error and leaves nothing half-done.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// Nobody is listening.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _entries: u64, _bytes: u64) {}
}
