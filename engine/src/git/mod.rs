//! Git directories as states: where HEAD and the refs are, read from a snapshot or from the disk.
//!
//! No git is run here: its configuration is part of what a recorded command may have written, and
//! can name programs. Everything that is read is hostile: sizes are bounded, decoders are total,
//! and what cannot be understood is left out of what is told, never guessed.

mod changes;
mod files;
mod packed;
mod refs;
mod reftable;
mod state;
mod work;
mod worktree;

pub use changes::{Move, RemoteBranch, RepositoryChange, moves, repositories};
pub(crate) use files::{
    GitDirs, LOCK, OPERATIONS, REFTABLE, is_about_objects, is_added_object, is_bookkeeping,
    is_lock, is_of_remote,
};
pub(crate) use packed::PackedRefs;
pub use refs::{Head, Oid};
pub(crate) use reftable::{MAX_TABLE_BYTES, MAX_TABLES, RefStack, RefValue, TABLES};
pub use state::GitState;
pub(crate) use state::{MAX_PACKED_BYTES, read_contents};
pub(crate) use work::own_refs;
pub use work::{GitWork, RefAt, StagedFile, staged_between};
pub use worktree::{LinkedWorktree, Repository};

/// For fields that are left out of documents where they say nothing.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
