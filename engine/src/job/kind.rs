//! The kinds of a job.

use crate::restore::TextPart;
use crate::snapshot::RestoreCommand;

/// The meaning of a job. It decides whose changes stay, and the record of the restore says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobKind {
    /// The state of this snapshot comes back. Changes that came after the session are conflicts.
    Restore(u64),
    /// The changes of the session since this snapshot are taken back. The changes of others stay,
    /// and files that both changed are merged.
    Undo(u64),
    /// The state of this snapshot comes back, as an undo of all that came later.
    GoBack(u64),
    /// The restore is taken back before which this safety snapshot was taken. The paths that it
    /// changed are selected.
    Redo(u64),
    /// The changes of these steps are taken back, and nothing that came later.
    Steps(Vec<u64>),
    /// A part of a text is taken back, and nothing that came later.
    Text(TextPart),
}

impl JobKind {
    /// The number of the snapshot that says what is tracked.
    pub(super) fn snapshot(&self) -> u64 {
        match self {
            Self::Restore(number)
            | Self::Undo(number)
            | Self::GoBack(number)
            | Self::Redo(number) => *number,
            Self::Steps(numbers) => numbers.iter().max().copied().unwrap_or(0),
            Self::Text(part) => part.snapshot,
        }
    }

    /// The command, for the record of the restore.
    pub(super) fn command(&self) -> RestoreCommand {
        match self {
            Self::Restore(_) => RestoreCommand::Restore,
            Self::Undo(_) | Self::GoBack(_) | Self::Steps(_) | Self::Text(_) => {
                RestoreCommand::Undo
            }
            Self::Redo(_) => RestoreCommand::Redo,
        }
    }
}
