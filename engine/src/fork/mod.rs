//! Forks: writable layers over recorded states.
//!
//! A fork is a directory in the store, and no copy of anything: the kernel's overlayfs shows the
//! recorded state below, and the fork's layer takes what is written. Mounting is the program's
//! work; this module makes forks, and reads a layer as the changes that it is.
//!
//! ```text
//! <root directory>/forks/          0700
//!   SESSION/                       locked (shared) by each process that uses the fork
//!     fork.json                    name, session, begin, layers
//!     start  holder  holder.pid    locks of the process that holds the mounts, and its number
//!     unflushed.json               since when the layers may be unflushed
//!     base/                        where that process mounts the recorded state, for itself alone
//!     layers/0/upper  layers/0/work
//!   .new-…  .removed-…             forks that are not there yet, or no longer; locked as well
//! ```
//!
//! Always true:
//! - A fork has a session of its own. Its snapshot 0 is the state below, so the collector, `verify`
//!   and the mount know that state as any other. It goes with the fork, and not before.
//! - Where the kernel mounts no layer, a layer can hold a copy of the whole state.
//! - A name belongs to the directories that the fork shows: two projects may have one each.
//! - A killed process leaves a directory that no process locks, so another one clears it up.
//! - A layer is untrusted: commands wrote it. An entry that overlayfs does not make is named
//!   ([`NotTaken`]) and changes nothing.
//! - Nothing here writes a tracked path.

mod birth;
mod layer;
mod merges;
mod names;
mod recording;
mod session;
mod state;
mod store;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests;
mod unflushed;

use std::path::PathBuf;

use crate::path_text::Shown;
use crate::session::{CatalogError, RecordError};
use crate::snapshot::{CaptureError, ManifestError, SnapshotError};
use crate::store::StoreError;
use crate::sys;

pub use birth::{Birth, NewFork};
pub use layer::{NotTaken, NotTakenReason};
pub use names::MAX_NAME_BYTES;
pub use recording::ForkSnapshot;
pub use session::{begin_now, begin_recorded};
pub use state::ForkState;
#[cfg(feature = "mount")]
pub(crate) use state::LiveState;
pub use store::{Fork, ForkDocument, Forks, HOLDER_PID, Layer, Lower};
pub use unflushed::{LostWrites, UnflushedUse};

/// Why a fork cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The name is none for a fork.
    #[error(
        "{name:?} is no name for a fork: use letters, digits, `-`, `_` and `.`, first a letter or \
         a digit, at most {MAX_NAME_BYTES}"
    )]
    Name {
        /// The name as given.
        name: String,
    },
    /// There is one of this name.
    #[error("there is a fork {name} already")]
    Exists {
        /// Its name.
        name: String,
    },
    /// There is none of this name.
    #[error("there is no fork {name}")]
    NotFound {
        /// The name as given.
        name: String,
    },
    /// The forks of this name are those of other projects.
    #[error("there is no fork {name} of this project: it is one of {}", paths(projects))]
    Elsewhere {
        /// Its name.
        name: String,
        /// The projects that have one.
        projects: Vec<PathBuf>,
    },
    /// It is one of a directory above this one, which may be another project.
    #[error("fork {name} is one of {}, a directory above this one", Shown::path(project))]
    Above {
        /// Its name.
        name: String,
        /// The directory.
        project: PathBuf,
    },
    /// Several projects below this directory have one of this name.
    #[error("several projects have a fork {name}: {}", paths(projects))]
    Ambiguous {
        /// Its name.
        name: String,
        /// The projects.
        projects: Vec<PathBuf>,
    },
    /// A process uses it.
    #[error("fork {name} is in use")]
    InUse {
        /// Its name.
        name: String,
    },
    /// A tracked path of the state is no directory.
    #[error(
        "{} is no directory in that state, and only directories can be forked",
        Shown::path(path)
    )]
    NotADirectory {
        /// The tracked path.
        path: PathBuf,
    },
    /// Its document is not what nono wrote.
    #[error("the document of fork {name} is damaged: {reason}")]
    Document {
        /// Its name.
        name: String,
        /// The defect.
        reason: String,
    },
    /// Its state cannot be captured or recorded.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The recorded state cannot be copied, or not as a whole.
    #[error("the state below the fork cannot be copied: {reason}")]
    Copy {
        /// Why.
        reason: String,
    },
    /// The sessions of its store cannot be listed.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// Its session cannot be made.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of it cannot be read or written.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

/// Paths in a message.
fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| Shown::path(path).to_string()).collect::<Vec<_>>().join(", ")
}

impl From<ManifestError> for ForkError {
    fn from(error: ManifestError) -> Self {
        Self::Snapshot(error.into())
    }
}

impl From<CaptureError> for ForkError {
    fn from(error: CaptureError) -> Self {
        Self::Snapshot(error.into())
    }
}
