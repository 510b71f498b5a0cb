//! Archives: one snapshot in one file, that ordinary tools open and that becomes a snapshot again.
//!
//! An archive is a `tar` stream, compressed with `zstd` and, as a rule, encrypted with `age`.
//! `docs/archive.md` has the format. A *full* archive holds everything. A *delta* holds the
//! difference to the snapshot of another archive, its parent.
//!
//! - [`ArchivePlan`] decides between the two, and writes the archive as a stream.
//! - [`ArchiveReader`] reads any archive as a stream, and believes nothing that it did not check.
//! - [`Receiver`] makes a snapshot of a session from a chain of archives, newest first.
//! - [`ArchiveName`] tells from a name alone what an archive is, without a key.
//!
//! Always true:
//!
//! - Memory is bounded by the number of directories and the longest of them, not by the sizes of
//!   files. The index of an archive that is written takes thirteen bytes for each of its files.
//! - Every byte that comes into the store is hashed, and named by a tree below the Merkle root.
//! - A session or a snapshot appears complete or not at all. A session that is there is completed;
//!   where its history is another one, nothing is changed.

mod delta;
mod encryption;
mod error;
mod frames;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod graph;
mod limits;
mod mark;
mod name;
mod read;
mod receive;
pub mod remote;
mod rules;
mod shelf;
mod spill;
mod state;
mod write;

pub use delta::DeltaStats;
pub use encryption::{Encryption, EncryptionError, Identities, is_private_key};
pub use error::ArchiveError;
pub use mark::snapshot_in;
pub use name::{ArchiveId, ArchiveKind, ArchiveName, NameError};
pub use read::{ArchiveHead, ArchiveReader, ArchiveSummary, KnownStates};
pub use receive::{ReadOutcome, ReceiveReport, Receiver, Role};
pub use rules::{FULL_SNAPSHOT_THRESHOLD, FullReason, MAX_CHAIN_DEPTH};
pub use write::{ArchivePlan, ArchiveReport, Parent};

/// A hash, shortened: no attacker finds two objects with one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Short([u8; 16]);

impl Short {
    fn of(hash: &nono_engine::object::ContentHash) -> Self {
        let mut short = [0; 16];
        short.copy_from_slice(&hash.as_bytes()[..16]);
        Self(short)
    }
}

impl std::fmt::Debug for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}
