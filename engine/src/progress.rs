//! How long work tells what it has done, and how it is asked to stop.

use std::time::Duration;

/// Longest time between two looks whether something is free by now or the wait was cancelled.
const WAIT_POLL: Duration = Duration::from_millis(25);

/// A part of some work. The caller that shows it chooses the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Files are listed, and read where they changed.
    Capture,
    /// Written bytes reach the disk.
    Flush,
    /// Files that a restore is about to replace are compared with their objects.
    Compare,
    /// Files are made beside their targets.
    Stage,
    /// Files are put in place.
    Commit,
    /// Files are written into a copy.
    Copy,
    /// Lists of files are read, to find out what there is.
    ReadLists,
    /// The contents of files are read and checked.
    ReadContents,
    /// The objects of a store are listed.
    ListObjects,
    /// Files go into archives at a remote.
    Upload,
    /// Archives of a remote are read.
    Download,
    /// Unneeded objects are removed.
    Remove,
    /// Nothing is done: another process is at work on the same files.
    Wait,
}

/// So much work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files, directories, links or objects.
    pub entries: u64,
    /// Bytes of their contents.
    pub bytes: u64,
}

/// Told about finished work, from several threads. The library itself never prints.
pub trait Progress: Sync {
    /// Adds to the number of entries and bytes that are done.
    fn advance(&self, entries: u64, bytes: u64);

    /// The next part begins. `expected` is about how much there is to do in it, where that
    /// is known.
    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        let _ = (stage, expected);
    }

    /// Whether to stop now. The work then ends with an error and leaves nothing half-done. Asked
    /// often, and within files too; once it is true it stays so.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// A receiver that drops all progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn advance(&self, _entries: u64, _bytes: u64) {}
}

/// Passes on the wish to stop and tells nothing: for a further look at what is counted elsewhere.
pub(crate) struct Uncounted<'a>(pub(crate) &'a dyn Progress);

impl Progress for Uncounted<'_> {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Attempts something until it succeeds. `None`: the wait was cancelled.
pub fn wait_for<T, E>(
    progress: &dyn Progress,
    attempt: impl Fn() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(got) = attempt()? {
            return Ok(Some(got));
        }
        if progress.is_cancelled() {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = WAIT_POLL.min(pause * 2);
    }
}
