//! Git directories as states: where HEAD and the refs are, read from a snapshot or from the disk.
//!
//! No git is run here: its configuration is part of what a recorded command may have written, and
//! can name programs. Everything that is read is hostile: sizes are bounded, decoders are total,
//! and what cannot be understood is left out of what is told, never guessed.

mod changes;
mod files;
mod refs;
mod state;
#[cfg(feature = "cli")]
mod worktree;

pub use changes::{Move, RepositoryChange, moves, repositories};
pub(crate) use files::{GitDirs, is_added_object, is_bookkeeping, is_lock};
pub use refs::{Head, Oid};
pub use state::GitState;
#[cfg(feature = "cli")]
pub(crate) use worktree::{LinkedWorktree, repository_above};
