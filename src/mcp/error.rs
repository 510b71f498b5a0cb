//! Why a tool has no answer. The text goes to a model, which may try again.

use nono_engine::history::HistoryError;
use nono_engine::path_text::Shown;
use nono_engine::restore::RestoreError;
use nono_engine::session::{CatalogError, RecordError};
use nono_engine::snapshot::{ManifestError, SnapshotError};
use nono_engine::store::StoreError;
use nono_engine::sys;

/// Why a tool has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The arguments cannot be used.
    #[error("{0}")]
    Arguments(String),
    /// A path is not in the project.
    #[error("{} is outside of the project {}", Shown::path(path), Shown::path(project))]
    OutsideProject {
        /// The path, made absolute.
        path: std::path::PathBuf,
        /// The project.
        project: std::path::PathBuf,
    },
    /// The tool is refused here, and why.
    #[error("{0}")]
    Refused(String),
    /// Which session is meant cannot be told, or it cannot be found.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A snapshot cannot be taken or read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A session cannot be made.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A restore failed.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A fork cannot be found.
    #[cfg(feature = "mount")]
    #[error(transparent)]
    Fork(#[from] nono_engine::fork::ForkError),
    /// A glob is none.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// An object cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Differences cannot be written out.
    #[error(transparent)]
    Render(#[from] crate::cli::render::RenderError),
    /// The disk cannot be read.
    #[error(transparent)]
    Io(#[from] sys::Error),
}

impl ToolError {
    /// The arguments cannot be used.
    pub(super) fn arguments(reason: impl Into<String>) -> Self {
        Self::Arguments(reason.into())
    }
}
