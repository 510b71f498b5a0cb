//! Containers: their snapshots, and the way back.
//!
//! The history of one container is an ordinary session of the store with the origin
//! [`Container`](nono_engine::snapshot::SessionOrigin::Container). Its snapshots are ordinary
//! snapshots whose tracked paths are virtual:
//!
//! ```text
//! /container.json    the record: configuration, image, mounts, networks ([`ContainerRecord`])
//! /volumes/NAME/…    the contents of each volume, named or anonymous ([`MountRecord::tree`])
//! /changes/…         the files that differ from the image
//! ```
//!
//! So the mount, `verify`, the collector, archives and comparisons know a container's snapshot
//! without a special case. Nothing ever restores such a session to those paths.
//!
//! - [`Docker`] is the connection. It is synchronous: the asynchronous part, one runtime on the
//!   current thread, stays inside. [`Docker::call`] runs one request of `bollard`, with a limit of
//!   time and an error that names the operation. [`Docker::archive`] reads files of a container as
//!   a tar stream.
//! - [`SnapshotStorage`] is where histories lie: [`LocalStorage`] is a store on this disk. Nothing
//!   else here knows a path, a session or an object store.
//! - [`ContainerHistory`] is the history of a container. [`ContainerHistory::find`] takes what a
//!   user types (`ID`, `ID/N`, `NAME`, `NAME/N`); [`record`](ContainerHistory::record) reads the
//!   record of a snapshot; [`volume`](ContainerHistory::volume) and
//!   [`changes`](ContainerHistory::changes) give the tree object of a volume and of the changed
//!   files, to be read with [`read_tree`](nono_engine::store::read_tree) from
//!   [`objects`](ContainerHistory::objects).
//! - [`ContainerSession`](nono_engine::snapshot::ContainerSession), in the session's manifest,
//!   holds the facts that change after a snapshot: the name, the source of the volumes' contents,
//!   and each restoration. [`ContainerHistory::note_restoration`] adds one under the session's
//!   lock. A new container of a restore bears the label [`LABEL_RESTORED_FROM`] with `SESSION/N`.
//!
//! Always true: the record appears with its snapshot, after everything else is durable. An image
//! that nono made bears [`LABEL_SESSION`]; no other image is ever removed. A container that nono
//! paused is unpaused, whatever happens to nono: see `pause.rs`.

mod archive;
mod changes;
mod compare;
mod describe;
mod docker;
mod endpoint;
mod error;
mod history;
mod image;
mod members;
mod pause;
mod record;
mod removal;
pub mod restore;
mod retention;
mod snapshot;
mod stillness;
mod storage;
mod tar_tree;
mod top;
mod validate;
mod volumes;

pub use archive::ArchiveReader;
pub use compare::{ContainerDiff, FieldChange, compare};
pub use docker::{Docker, Patience};
pub use endpoint::Endpoint;
pub use error::ContainerError;
pub use history::{ContainerHistory, Picked};
pub use image::{ImageRemoval, OwnImage, own_images, remove_own};
pub use pause::{LeftPaused, Watcher, lock, recover, watch};
pub use record::{
    ChangedFiles, CommittedImage, ContainerRecord, ContainerState, INCONSISTENT, ImageRecord,
    MountKind, MountRecord, NetworkRecord, RECORD_VERSION, Trigger, tree_name,
};
pub use removal::{
    ContainerStats, RemovalReport, RemovedState, SessionStats, cleanup, container_stats, expired,
    remove, stray_images,
};
pub use retention::{
    ContainerPolicy, ExpiredSnapshot, MAX_SAFETY_SNAPSHOTS, SnapshotExpiry, SnapshotFacts,
    SnapshotWorth,
};
pub use snapshot::{SnapshotOptions, SnapshotReport, take_locked, take_snapshot};
pub use storage::{
    CapturedDirectories, DamagedHistory, Document, DraftWork, Effort, Guarded, HistoryFacts,
    LocalStorage, MemoryStorage, SnapshotDraft, SnapshotState, SnapshotStorage, StorageLock,
};
pub use validate::{ContainerProblem, ValidationReport, validate};

use nono_engine::snapshot::CONTAINER_PATHS;

/// Label of an image of ours: the id of the session.
pub const LABEL_SESSION: &str = "io.nono.session";
/// Label of an image of ours: the number of the snapshot.
pub const LABEL_SNAPSHOT: &str = "io.nono.snapshot";
/// Label of an image of ours: the store of the session, as a digest of its place.
pub const LABEL_STORE: &str = "io.nono.store";
/// Label of a container and of a volume that a restore made: `SESSION/N`.
pub const LABEL_RESTORED_FROM: &str = "io.nono.restored-from";

/// The record in a snapshot.
pub const RECORD_PATH: &str = CONTAINER_PATHS[1];
/// The volumes in a snapshot.
pub const VOLUMES_PATH: &str = CONTAINER_PATHS[2];
/// The changed files in a snapshot.
pub const CHANGES_PATH: &str = CONTAINER_PATHS[0];
