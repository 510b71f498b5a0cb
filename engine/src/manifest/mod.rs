//! The description of a snapshot: the JSON document `snapshots/<number>/manifest.json`.
//!
//! A manifest names a Merkle root, from which every byte of the snapshot is reached, and the hash
//! of the manifest before it, so that the chain is tamper-evident. It also says what was *not*
//! captured: a restore leaves those paths alone.
//!
//! Below captures, comparisons and whoever reads and writes the documents, which all know these
//! types.

mod left_out;
mod not_captured;
mod removed;
mod step;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::byte_path;
use crate::object::{ContentHash, Node, is_tracked_path};
use crate::path_text::{serde_path, serde_paths};
use crate::progress::Amount;
use crate::store::{ObjectSource, StoreError, read_root_tree, read_tree};
use crate::walk::ExclusionConfig;

pub use left_out::LeftOutState;
pub(crate) use left_out::LeftOutTally;
pub use not_captured::{NotCaptured, NotCapturedReason, NotCapturedSet};
pub use removed::{RemovalReason, RemovedSnapshot};
pub(crate) use step::is_zero;
pub use step::{
    MAX_STEP_NAME_BYTES, MAX_STEP_PATHS, MAX_STEP_PROMPT_BYTES, MAX_STEP_TITLE_BYTES, OutsideFate,
    OutsidePath, Step, StepKind, StepPrompt,
};
pub use step::{is_false, summary as step_summary};

/// Version of session and snapshot manifests that this program writes, and the newest it reads.
pub const MANIFEST_VERSION: u32 = 1;
/// Larger manifests are refused: millions of paths that were left out.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 30;

/// Why a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotKind {
    /// The first, or one that the user asked for.
    #[default]
    Ordinary,
    /// The state before a restore, taken by the restore itself.
    Safety,
}

/// A path that a session captures, with what is left out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedRoot {
    /// Absolute, with the symlinks of its parents resolved.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Its filter.
    #[serde(default)]
    pub exclusion: ExclusionConfig,
}

/// The name that the user gave a snapshot, as in [`SnapshotManifest::label`]; here for lists, which
/// read no manifest of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotLabel {
    /// Number of the snapshot.
    pub number: u64,
    /// The name.
    pub label: String,
}

/// One state of the tracked paths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SnapshotManifest {
    /// Version of the document.
    pub format_version: u32,
    /// Number in the session; 0 is the baseline.
    pub number: u64,
    /// When the capture began.
    pub timestamp: Timestamp,
    /// Number of the snapshot before, if there is one.
    pub parent: Option<u64>,
    /// SHA-256 of the parent's manifest file.
    pub parent_hash: Option<ContentHash>,
    /// Hash of the root tree: commits to every name, attribute and byte.
    pub merkle_root: ContentHash,
    /// Root tree of the ignore files by which the session goes in the paths that it tracks from
    /// this snapshot on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_files: Option<ContentHash>,
    /// Why it was taken.
    #[serde(default)]
    pub kind: SnapshotKind,
    /// The name that the user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The tool call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// In a safety snapshot: the number of the snapshot that was then restored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restores: Option<u64>,
    /// In a safety snapshot before a partial restore: the paths that the restore was about to
    /// change, so that a redo changes no others. Empty: everything was to be restored.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "serde_paths")]
    pub restores_only: Vec<PathBuf>,
    /// The tracked paths, with their filters.
    pub roots: Vec<TrackedRoot>,
    /// Sizes.
    #[serde(flatten)]
    pub totals: Totals,
    /// The left-out paths, and why; sorted by path.
    #[serde(default)]
    pub not_captured: Vec<NotCaptured>,
    /// In an imported snapshot: paths in left-out directories that are known not to have existed.
    /// Sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "serde_paths")]
    pub known_absent: Vec<PathBuf>,
    /// Files that kept changing while they were read: stored as read.
    #[serde(default, with = "serde_paths")]
    pub unstable: Vec<PathBuf>,
}

impl SnapshotManifest {
    /// Its entry in [`SessionMetadata::labels`](crate::snapshot::SessionMetadata::labels).
    pub(crate) fn named(&self) -> Option<SnapshotLabel> {
        let label = self.label.clone()?;
        Some(SnapshotLabel { number: self.number, label })
    }
}

/// Sizes of a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Regular files.
    pub file_count: u64,
    /// Entries of every kind, tracked paths included.
    pub entry_count: u64,
    /// Bytes of the contents of all files.
    pub total_bytes: u64,
    /// Files whose contents were read, because the stat cache did not know them.
    pub files_read: u64,
    /// Objects that the store did not have.
    pub objects_written: u64,
    /// Bytes that those objects take on the disk.
    pub bytes_written: u64,
}

impl Totals {
    /// The expected work of a capture of a similar state.
    pub(crate) fn expected(&self) -> Amount {
        Amount { entries: self.entry_count, bytes: self.total_bytes }
    }
}

/// The facts about a file in the documented API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// SHA-256 of the contents.
    pub hash: ContentHash,
    /// Length in bytes.
    pub size: u64,
    /// Seconds of the last modification since 1970.
    pub mtime: i64,
    /// 12 permission bits.
    pub permissions: u32,
}

impl SnapshotManifest {
    /// All regular files by absolute path. Reads every tree, so it is only made when asked for.
    ///
    /// # Errors
    /// When a tree is missing or damaged.
    pub fn files(
        &self,
        store: &dyn ObjectSource,
    ) -> Result<BTreeMap<PathBuf, FileState>, StoreError> {
        let mut files = BTreeMap::new();
        let mut pending: Vec<(Vec<u8>, ContentHash)> = Vec::new();
        let root = read_root_tree(store, &self.merkle_root)?;
        let entries = root.entries.into_iter().map(|e| (e.path.into_vec(), e.attributes, e.node));
        let mut level: Vec<_> = entries.collect();
        loop {
            for (path, attributes, node) in level.drain(..) {
                match node {
                    Node::File { size, hash, .. } => {
                        let state = FileState {
                            hash,
                            size,
                            mtime: attributes.mtime.seconds,
                            permissions: attributes.mode.into(),
                        };
                        files.insert(crate::path_text::to_path(&path).to_owned(), state);
                    }
                    Node::Directory { tree } => pending.push((path, tree)),
                    _ => {}
                }
            }
            let Some((base, tree)) = pending.pop() else { return Ok(files) };
            level.extend(
                read_tree(store, &tree)?.into_entries().into_iter().map(|entry| {
                    (byte_path::join(&base, &entry.name), entry.attributes, entry.node)
                }),
            );
        }
    }

    /// The root trees from which everything is reached that it needs.
    pub(crate) fn needed_roots(&self) -> impl Iterator<Item = ContentHash> {
        [Some(self.merkle_root), self.ignore_files].into_iter().flatten()
    }

    /// Checks what the JSON types do not say.
    pub fn validate(&self, number: u64) -> Result<(), String> {
        if self.number != number {
            return Err(format!("it says it is snapshot {}, not {number}", self.number));
        }
        if self.parent.is_some() != self.parent_hash.is_some() {
            return Err("parent and parent_hash do not belong together".to_owned());
        }
        if self.parent.is_some_and(|parent| parent >= number) {
            return Err("its parent is not an earlier snapshot".to_owned());
        }
        let paths = self.roots.iter().map(|root| &root.path);
        if let Some(bad) = paths.clone().find(|path| !is_tracked_path(path.as_os_str().as_bytes()))
        {
            return Err(format!("tracked path {bad:?} is not absolute and plain"));
        }
        if !paths.is_sorted_by(|a, b| a.as_os_str().as_bytes() < b.as_os_str().as_bytes()) {
            return Err("its tracked paths are not in order".to_owned());
        }
        let plain = |path: &Path| {
            path.is_absolute()
                && path.components().skip(1).all(|c| matches!(c, std::path::Component::Normal(_)))
        };
        let left_out = self.not_captured.iter().map(|left| &left.path);
        if let Some(bad) =
            left_out.chain(&self.restores_only).chain(&self.known_absent).find(|path| !plain(path))
        {
            return Err(format!("path {bad:?} is not absolute and plain"));
        }
        Ok(())
    }
}
