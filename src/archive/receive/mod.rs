//! A chain of archives becomes snapshots of a session.
//!
//! ```text
//! let mut receiver = Receiver::new(root, "20260214-143022-12345", progress)?;
//! let mut next = receiver.read(open(5)?, &keys, Role::Target)?;
//! while let Some(parent) = next.needs { next = receiver.read(open(parent)?, &keys, Role::Source)?; }
//! receiver.finish()?;
//! ```

use std::io::Read;
use std::path::Path;

use serde::Serialize;

use super::name::ArchiveId;
use super::read::ArchiveHead;
use super::{ArchiveError, Identities};
use crate::progress::Progress;

/// What an archive is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Its snapshot is to be there afterwards.
    Target,
    /// Only for what other snapshots need of it.
    Source,
}

/// An archive that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOutcome {
    /// What it says of itself.
    pub head: ArchiveHead,
    /// The snapshot whose archive has to be read next, because something is still missing. `None`:
    /// everything is there.
    pub needs: Option<ArchiveId>,
}

/// Snapshots that are there now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReceiveReport {
    /// The session.
    pub session_id: String,
    /// Whether it was made; else it was there.
    pub is_new_session: bool,
    /// Numbers of the snapshots that were made, ascending.
    pub snapshots: Vec<u64>,
    /// Numbers of those that were there already.
    pub already_here: Vec<u64>,
    /// Objects that the store did not have.
    pub objects_written: u64,
    /// Bytes of these objects.
    pub bytes_written: u64,
}

/// Makes snapshots of one session. Archives are read one after the other, each target before its
/// parents, the highest number first. Nothing appears before [`finish`](Self::finish); a receiver
/// that is dropped leaves nothing that a cleanup does not remove.
pub struct Receiver<'a> {
    progress: &'a dyn Progress,
    session: String,
}

impl std::fmt::Debug for Receiver<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("session", &self.session).finish_non_exhaustive()
    }
}

impl<'a> Receiver<'a> {
    /// Begins to receive snapshots of a session into the store in `root`, which is made when it is
    /// missing.
    ///
    /// # Errors
    /// When the store cannot be used.
    pub fn new(
        root: &Path,
        session: &str,
        progress: &'a dyn Progress,
    ) -> Result<Self, ArchiveError> {
        let _ = root;
        Ok(Self { progress, session: session.to_owned() })
    }

    /// The numbers of the session's snapshots that are here already, so that they need not be had.
    pub fn already_here(&self) -> &[u64] {
        &[]
    }

    /// Reads one archive, and of it only what is still needed.
    ///
    /// # Errors
    /// As [`ArchiveError`] says. The receiver cannot be used any more.
    pub fn read(
        &mut self,
        source: impl Read,
        identities: &Identities,
        role: Role,
    ) -> Result<ReadOutcome, ArchiveError> {
        let _ = (source, identities, role, self.progress);
        Err(ArchiveError::Cancelled)
    }

    /// Checks everything against the Merkle roots and the hashes of the files, makes it durable, and
    /// lets the snapshots appear.
    ///
    /// # Errors
    /// [`ArchiveError::Incomplete`], [`ArchiveError::Diverged`], or as [`ArchiveError`] says; then
    /// nothing appears.
    pub fn finish(self) -> Result<ReceiveReport, ArchiveError> {
        Err(ArchiveError::Cancelled)
    }
}
