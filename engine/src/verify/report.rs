//! The report of a verification.

use std::borrow::Cow;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::claims::Proved;
use super::uses::UsedAs;
use crate::object::ContentHash;
use crate::path_text::{self, Shown, serde_path};
use crate::snapshot::RemovedSnapshot;

/// The findings for one session after everything in it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The session.
    pub session_id: String,
    /// Whether there is no problem at all.
    pub ok: bool,
    /// Commits to what the session's manifest says and to all snapshots that it lists; none where
    /// the manifest cannot be read.
    pub session_root: Option<ContentHash>,
    /// The part that the noted root vouches for; none where no root was given, or it is a root of
    /// nothing here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proved: Option<Proved>,
    /// Its snapshots, by number.
    pub snapshots: Vec<SnapshotCheck>,
    /// Different objects of this session that were read, trees included.
    pub objects_checked: u64,
    /// Bytes of those objects.
    pub bytes_checked: u64,
    /// Everything that is wrong: manifests first, then objects in the order of the snapshots.
    pub problems: Vec<Problem>,
}

/// The findings for one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotCheck {
    /// Its number.
    pub number: u64,
    /// Its Merkle root: of its manifest, else as the session lists it, if either can be read.
    pub merkle_root: Option<ContentHash>,
    /// When and why it was removed from the session. Then only its manifest is looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedSnapshot>,
    /// Whether its manifest and every object below its Merkle root are sound.
    pub ok: bool,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// An object that a snapshot needs is not there.
    MissingObject {
        /// Name of the object.
        object: ContentHash,
        /// The use that needs it.
        used_as: UsedAs,
        /// Where it should be.
        #[serde(with = "serde_path")]
        on_disk: PathBuf,
        /// First snapshot of the session that needs it.
        snapshot: u64,
        /// A path in that snapshot that needs it; none for the snapshot's root or list of links.
        #[serde(serialize_with = "optional_path")]
        path: Option<PathBuf>,
    },
    /// The contents of a file, or its midstates, are not the ones that were recorded, or cannot be
    /// read.
    CorruptObject {
        /// Name of the object.
        object: ContentHash,
        /// The use that needs it.
        used_as: UsedAs,
        /// Where it is.
        #[serde(with = "serde_path")]
        on_disk: PathBuf,
        /// First snapshot of the session that needs it.
        snapshot: u64,
        /// A path in that snapshot whose contents it is.
        #[serde(serialize_with = "optional_path")]
        path: Option<PathBuf>,
        /// The defect.
        reason: String,
    },
    /// A list of a directory, of tracked paths or of hard links is not what was recorded, is not
    /// valid, or does not agree with the objects it names.
    CorruptTree {
        /// Name of the object.
        object: ContentHash,
        /// Where it is.
        #[serde(with = "serde_path")]
        on_disk: PathBuf,
        /// First snapshot of the session that needs it.
        snapshot: u64,
        /// The path it is wrong about; none for the snapshot's root or list of links.
        #[serde(serialize_with = "optional_path")]
        path: Option<PathBuf>,
        /// The defect.
        reason: String,
    },
    /// A manifest is missing, damaged, from a newer nono, or does not agree with the others or with
    /// the trees.
    CorruptManifest {
        /// Where it is or should be.
        #[serde(with = "serde_path")]
        on_disk: PathBuf,
        /// The snapshot it describes; none for the manifest of the session.
        snapshot: Option<u64>,
        /// The defect.
        reason: String,
    },
    /// A pack is not the one that was written: its header, its index, or the bytes between its
    /// objects differ. Objects that are missing because of that are problems of their own; a repair
    /// takes the whole objects out of the pack.
    CorruptPack {
        /// Where it is.
        #[serde(with = "serde_path")]
        on_disk: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A Merkle root is not the one that was noted.
    MerkleMismatch {
        /// The snapshot; none when a root noted elsewhere is neither the session's nor that of a
        /// snapshot.
        snapshot: Option<u64>,
        /// The root that was noted.
        expected: ContentHash,
        /// The root in the snapshot's manifest.
        found: Option<ContentHash>,
    },
}

impl Problem {
    /// The snapshot it is about, if it is about one.
    pub fn snapshot(&self) -> Option<u64> {
        match self {
            Self::MissingObject { snapshot, .. }
            | Self::CorruptObject { snapshot, .. }
            | Self::CorruptTree { snapshot, .. } => Some(*snapshot),
            Self::CorruptManifest { snapshot, .. } | Self::MerkleMismatch { snapshot, .. } => {
                *snapshot
            }
            Self::CorruptPack { .. } => None,
        }
    }
}

/// One line for a person; safe on a terminal.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingObject { object, used_as, on_disk, snapshot, path } => {
                write!(f, "snapshot {snapshot}{}: ", About(path))?;
                write!(f, "object {object} ({used_as}) is missing")?;
                write!(f, " (expected at {})", Shown::path(on_disk))
            }
            Self::CorruptObject { object, used_as, on_disk, snapshot, path, reason } => {
                write!(f, "snapshot {snapshot}{}: ", About(path))?;
                write!(f, "object {object} ({used_as}) is damaged: {reason}")?;
                write!(f, " ({})", Shown::path(on_disk))
            }
            Self::CorruptTree { object, on_disk, snapshot, path, reason } => {
                write!(f, "snapshot {snapshot}{}: ", About(path))?;
                write!(f, "tree {object} is damaged: {reason} ({})", Shown::path(on_disk))
            }
            Self::CorruptManifest { on_disk, snapshot: Some(snapshot), reason } => {
                write!(f, "snapshot {snapshot}: manifest {}: {reason}", Shown::path(on_disk))
            }
            Self::CorruptManifest { on_disk, snapshot: None, reason } => {
                write!(f, "manifest {}: {reason}", Shown::path(on_disk))
            }
            Self::CorruptPack { on_disk, reason } => {
                write!(f, "pack {} is damaged: {reason}", Shown::path(on_disk))
            }
            Self::MerkleMismatch { snapshot: Some(snapshot), expected, found } => {
                write!(f, "snapshot {snapshot}: the session lists the Merkle root {expected}")?;
                match found {
                    Some(found) => write!(f, ", its manifest says {found}"),
                    None => Ok(()),
                }
            }
            Self::MerkleMismatch { snapshot: None, expected, .. } => {
                write!(f, "neither the session nor a snapshot has the root {expected}")
            }
        }
    }
}

struct About<'a>(&'a Option<PathBuf>);

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(path) => write!(f, ", {}", Shown::path(path)),
            None => Ok(()),
        }
    }
}

fn optional_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    let text: Option<Cow<'_, str>> =
        path.as_ref().map(|path| path_text::encode(path.as_os_str().as_bytes()));
    text.serialize(serializer)
}
