//! Snapshots: capturing the state of tracked paths, and the manifests that describe it.
//!
//! [`SnapshotManager`] is the way in. Always true: a manifest appears only after everything it
//! reaches is durable in the store; left-out paths are in the manifest, with the reason; an error
//! leaves the session as it was.

mod budget;
mod capture;
mod container_session;
mod documents;
mod ignore_rules;
mod known;
mod manager;
mod manifests;
mod merge_record;
mod metadata;
mod pending;
mod read;
mod read_back;
mod recency;
mod reserve;
mod restore_log;
mod roots;
mod session_dir;
mod session_objects;
mod session_root;
mod steps;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests;

pub use crate::manifest::{
    FileState, LeftOutState, MANIFEST_VERSION, MAX_STEP_NAME_BYTES, MAX_STEP_PATHS,
    MAX_STEP_PROMPT_BYTES, MAX_STEP_TITLE_BYTES, NotCaptured, NotCapturedReason, NotCapturedSet,
    OutsideFate, OutsidePath, RemovalReason, RemovedSnapshot, SnapshotKind, SnapshotLabel,
    SnapshotManifest, Step, StepKind, StepPrompt, Totals, TrackedRoot,
};
pub use budget::{Budget, LargeDirectory, OverBudget};
pub use capture::CaptureError;
pub use capture::NewCaches;
pub use capture::{Capture, CaptureRequest, capture};
pub use container_session::CONTAINER_PATHS;
pub use container_session::{ContainerSession, Restoration, RestorationMode, VolumeSource};
pub use documents::parse as parse_manifest;
pub use documents::parse_session;
pub(crate) use ignore_rules::RootRules;
pub(crate) use known::KnownState;
pub use manager::{Built, capture_whole, whole_roots};
pub(crate) use manager::{CacheUse, CaptureMeans, StateSource, captured};
pub use manager::{LiveState, SnapshotError, SnapshotManager, SnapshotRequest, Taken};
pub use manifests::{LoadedManifest, ManifestError};
pub use merge_record::{MergeRecord, TakenChanges};
pub use metadata::{SessionMetadata, SessionOrigin};
pub use pending::PendingBaseline;
pub(crate) use pending::{Settled, settle};
pub use recency::Recency;
pub use restore_log::{RestoreCommand, RestoreRecord, Undone, standing, undone};
pub(crate) use roots::OpenPath;
pub use roots::{TrackedPathError, resolve_roots};
pub use session_dir::{PushNote, SessionDir};
pub(crate) use session_objects::{own_places, store_paths};
pub use steps::{AgentSession, StepEntry};
pub(crate) use steps::{of_chain as steps_of_chain, with_prompts};
