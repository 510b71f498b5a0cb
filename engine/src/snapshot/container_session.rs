//! The facts of a session that is the history of a container.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The tracked paths of such a session, sorted: the changed files, the record, the volumes.
pub const CONTAINER_PATHS: [&str; 3] = ["/changes", "/container.json", "/volumes"];

/// The container of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSession {
    /// The id that the engine gave the container: 64 hexadecimal digits.
    pub container_id: String,
    /// The engine's ids of the containers before it, of which this is the history as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_ids: Vec<String>,
    /// The name of the container at the last snapshot, without a slash.
    pub name: String,
    /// The place of the engine: `unix:///var/run/docker.sock`.
    pub endpoint: String,
    /// The source of the volumes' contents. `None`: the container has no volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_source: Option<VolumeSource>,
    /// The snapshot `SESSION/N` from which a restore made the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<String>,
    /// The restores of snapshots of this session, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restorations: Vec<Restoration>,
}

/// The source of the contents of volumes. A session keeps to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeSource {
    /// Their directories on this machine, with everything that nono records of files.
    Directory,
    /// Tar streams of the engine: whole seconds, no sockets, and of the extended attributes only
    /// `security.capability`.
    Archive,
}

/// One restore of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoration {
    /// When it was complete.
    pub at: Timestamp,
    /// Number of the restored snapshot.
    pub snapshot: u64,
    /// How.
    pub mode: RestorationMode,
    /// Id of the container that has the state now.
    pub container_id: String,
    /// Its name.
    pub name: String,
}

/// The way of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestorationMode {
    /// A new container beside the original.
    New,
    /// A new container in the place of the original.
    Replace,
    /// The volumes of the original.
    VolumesOnly,
}
