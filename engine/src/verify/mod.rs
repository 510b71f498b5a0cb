//! Proving that a session is what was recorded.
//!
//! [`verify_session`] reads every manifest, every tree and every byte of a session and collects
//! what is wrong; it stops at no problem and changes nothing. Always true: each object is read
//! once, however many snapshots, sessions and directories share it (so a [`Verifier`] can check a
//! whole store in one pass); nothing recurses, so neither depth nor sharing of trees costs stack or
//! time; objects are read in parallel. Where one root is known from elsewhere
//! ([`VerifyOptions::expected_root`]), it vouches for what is below it: a Merkle root for every
//! name, attribute and byte of a snapshot, the session root also for the command, its times and its
//! exit code.

mod claims;
mod contents;
mod graph;
mod lists;
mod locate;
mod long_files;
mod manifests;
mod nodes;
mod report;
mod sum;
#[cfg(test)]
mod tests;
mod uses;
mod verifier;

use std::path::PathBuf;

use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::progress::{NoProgress, Progress};
use crate::snapshot::{ManifestError, SessionDir};
use crate::store::LocalStore;

pub use claims::{Proved, ProvedBy};
pub use report::{Problem, SnapshotCheck, VerifyReport};
pub use uses::{DamagedObject, UsedAs};
pub use verifier::Verifier;

/// How to verify.
#[derive(Clone, Copy)]
pub struct VerifyOptions<'a> {
    /// Worker threads; 0 for one per core.
    pub threads: usize,
    /// Told of every object that was read, and asked whether to stop.
    pub progress: &'a dyn Progress,
    /// A root noted elsewhere, of the session or of a snapshot: that it is none of the session's is
    /// a problem. [`VerifyReport::proved`] says what it vouches for.
    pub expected_root: Option<ContentHash>,
}

impl Default for VerifyOptions<'_> {
    fn default() -> Self {
        Self { threads: 0, progress: &NoProgress, expected_root: None }
    }
}

impl std::fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("threads", &self.threads)
            .field("expected_root", &self.expected_root)
            .finish_non_exhaustive()
    }
}

/// Why nothing can be said of a session. Damage is no error: it is in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The session's directory cannot be listed.
    #[error("cannot verify session {}: {source}", Shown::path(session))]
    Session {
        /// The session's directory.
        session: PathBuf,
        /// The failure.
        source: ManifestError,
    },
    /// The caller asked to stop.
    #[error("stopped before everything was verified; nothing was changed")]
    Cancelled,
    /// The store holds more objects than one verification can keep in mind (2^32).
    #[error("more objects than one verification can check")]
    TooManyObjects,
    /// The worker threads could not be started.
    #[error("cannot start worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// Verifies one session, whose objects are in `store`. Holds the store's lock shared where it can,
/// so that the collector removes nothing meanwhile.
///
/// # Errors
/// As [`VerifyError`] says. Damage is a finding and not an error.
pub fn verify_session(
    session: &SessionDir,
    store: &LocalStore,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    Verifier::new(store, *options)?.session(session)
}
