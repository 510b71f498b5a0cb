//! The record of a snapshot: the document `container.json`.
//!
//! It says what the container was when the snapshot was taken, in the words of the engine where a
//! restore needs all of them (`config`, `host_config`), and names what the snapshot does not hold.
//! It never changes: later restorations are in the session's manifest.

use bollard::models::{ContainerConfig, EndpointSettings, HostConfig, PortMap};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use nono_engine::snapshot::VolumeSource;

/// Version of the documents that this program writes, and the newest it reads.
pub const RECORD_VERSION: u32 = 1;
/// The words for a snapshot that is not [consistent](ContainerRecord::is_consistent).
pub const INCONSISTENT: &str = "inconsistent: its files were captured at different moments \
                                (`nono container show` says why)";
/// Longer records are refused.
pub(super) const MAX_RECORD_BYTES: u64 = 64 << 20;

/// One state of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Version of the document.
    pub format_version: u32,
    /// The engine's id of the container.
    pub container_id: String,
    /// Its name, without a slash.
    pub name: String,
    /// When the snapshot began.
    pub captured_at: Timestamp,
    /// The occasion.
    pub trigger: Trigger,
    /// The run of the agent, as the caller names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The words of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The state before the snapshot.
    pub state: ContainerState,
    /// Whether its files stood still while they were captured: it was paused, or not running, and
    /// no other container ran with a volume of it.
    pub is_consistent: bool,
    /// Name and version of the engine.
    pub engine: String,
    /// The image.
    pub image: ImageRecord,
    /// Environment, working directory, user, command, entrypoint, labels, health check, exposed
    /// ports, as the engine describes them.
    pub config: ContainerConfig,
    /// Restart policy, limits, port bindings, devices, rights, as the engine describes them.
    pub host_config: HostConfig,
    /// The ports that were published when the snapshot was taken.
    #[serde(default)]
    pub ports: PortMap,
    /// The networks, by name.
    #[serde(default)]
    pub networks: Vec<NetworkRecord>,
    /// The mounts, by destination.
    #[serde(default)]
    pub mounts: Vec<MountRecord>,
    /// The source of the volumes' contents; `None` without volumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_source: Option<VolumeSource>,
    /// The files that differ from the image; `None` if the caller did not ask for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_files: Option<ChangedFiles>,
    /// The gaps of the snapshot, in sentences.
    #[serde(default)]
    pub not_captured: Vec<String>,
    /// Warnings for the user before a restore, in sentences.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The occasion of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "clap", value(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The user asked.
    #[default]
    Manual,
    /// A run of an agent begins.
    RunStart,
    /// A run of an agent has ended.
    RunEnd,
    /// An action is about to begin.
    BeforeAction,
    /// An action has ended.
    AfterAction,
    /// A restore is about to change the container. Only nono itself gives this one.
    #[cfg_attr(feature = "clap", value(skip))]
    BeforeRestore,
}

impl Trigger {
    /// The word of the command line and of documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::RunStart => "run_start",
            Self::RunEnd => "run_end",
            Self::BeforeAction => "before_action",
            Self::AfterAction => "after_action",
            Self::BeforeRestore => "before_restore",
        }
    }
}

/// The state of a container that can be captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// Never started.
    Created,
    /// Running.
    Running,
    /// Paused by another program.
    Paused,
    /// Stopped.
    Exited,
}

/// The image of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// The reference with which the container was made: `postgres:16`.
    pub reference: String,
    /// The engine's id of the image: `sha256:…`.
    pub id: String,
    /// The digests under which registries know the image.
    #[serde(default)]
    pub digests: Vec<String>,
    /// The image that the snapshot made; `None` if the caller did not ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<CommittedImage>,
}

/// An image that a snapshot made of the container's own files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedImage {
    /// Its tag: `nono/container:SESSION.N-STORE`.
    pub reference: String,
    /// The engine's id of the image: `sha256:…`.
    pub id: String,
    /// Length of its layers that the original image does not have, in bytes.
    pub size_bytes: u64,
}

/// A network of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkRecord {
    /// Its name.
    pub name: String,
    /// Aliases, static addresses and the present ones, as the engine describes them.
    pub endpoint: EndpointSettings,
}

/// A mount of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    /// Its kind.
    pub kind: MountKind,
    /// The name of the volume: 64 hexadecimal digits of an anonymous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The path on the engine's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The path in the container.
    pub destination: String,
    /// The driver of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Whether the container cannot write there.
    pub read_only: bool,
    /// The name of the volume's contents below `/volumes`; `None` where none were captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
}

/// The kind of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountKind {
    /// A volume with a name.
    Volume,
    /// A volume that the engine named by a random number.
    Anonymous,
    /// A directory or file of the engine's machine.
    Bind,
    /// A file system in memory.
    Tmpfs,
    /// Anything else.
    Other,
}

impl MountKind {
    /// Whether the engine keeps the contents.
    pub fn is_volume(self) -> bool {
        matches!(self, Self::Volume | Self::Anonymous)
    }
}

/// The files of a container that differ from its image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFiles {
    /// Number of paths that the container added or changed.
    pub changed_count: u64,
    /// Absolute paths that the image has and the container deleted, sorted.
    pub deleted: Vec<String>,
}

impl ContainerRecord {
    /// The volumes whose contents the snapshot holds, each once.
    pub fn volumes(&self) -> impl Iterator<Item = &MountRecord> {
        let mounts = self.mounts.iter().enumerate();
        let is_first = |(at, mount): &(usize, &MountRecord)| {
            mount.tree.is_some() && !self.mounts[..*at].iter().any(|m| m.tree == mount.tree)
        };
        mounts.filter(is_first).map(|(_, mount)| mount)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The defect in words.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if record.format_version > RECORD_VERSION {
            return Err(format!(
                "it has version {}, and this nono knows up to {RECORD_VERSION}",
                record.format_version
            ));
        }
        Ok(record)
    }

    /// The bytes of the document.
    ///
    /// # Errors
    /// The defect in words.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// The name below `/volumes` of a volume. Two snapshots of one container give the same volume the
/// same name, also an anonymous one: it is named by its destination, with `:` for each slash, which
/// no named volume has.
pub fn tree_name(kind: MountKind, volume: &str, destination: &str) -> String {
    /// Room for the digest of a name that is too long.
    const LONGEST: usize = 200;
    let name = match kind {
        MountKind::Anonymous => {
            let escaped = destination.replace('%', "%25").replace(':', "%3A");
            escaped.replace('/', ":")
        }
        _ => volume.replace('/', ":"),
    };
    if name.len() <= LONGEST && nono_engine::object::is_name(name.as_bytes()) {
        return name;
    }
    let end = (0..=LONGEST.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    let digest = nono_engine::object::ContentHash::of(name.as_bytes()).hex();
    format!("{}:{}", name[..end.unwrap_or(0)].replace('\0', ":"), &digest[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_volumes_are_stable_and_apart() {
        let anonymous = |destination: &str| tree_name(MountKind::Anonymous, "0f3a", destination);
        assert_eq!(anonymous("/var/lib/data"), ":var:lib:data");
        assert_ne!(anonymous("/a:b"), anonymous("/a/b"));
        assert_eq!(tree_name(MountKind::Volume, "db_data", "/x"), "db_data");
        let long = format!("/{}", "ä".repeat(300));
        assert_ne!(anonymous(&long), anonymous(&format!("{long}x")));
        for name in [anonymous(&long), tree_name(MountKind::Volume, "..", "/x")] {
            assert!(nono_engine::object::is_name(name.as_bytes()), "{name}");
        }
    }
}
