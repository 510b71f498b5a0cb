//! The facts of a session: the JSON document `<session>/manifest.json`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::diff::ChangeSummary;
use crate::manifest::{
    MANIFEST_VERSION, RemovedSnapshot, SnapshotKind, SnapshotLabel, SnapshotManifest,
};
use crate::object::ContentHash;
use crate::path_text::{serde_optional_path, serde_paths};
use crate::snapshot::container_session::ContainerSession;
use crate::snapshot::merge_record::MergeRecord;
use crate::snapshot::restore_log::RestoreRecord;
use crate::snapshot::steps::{AgentSession, StepEntry};

/// The maker of a session, which determines the form of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum SessionOrigin {
    /// `nono run`: it ends with the command.
    Run,
    /// `nono snapshot`, or a program that uses the library: it stays open.
    #[default]
    Snapshot,
    /// `nono hook`: it ends with the agent's session, and goes on when that is resumed.
    Agent,
    /// `nono snapshot --agent`: it stays open. Only its id means it, never a place.
    AgentState,
    /// `nono container snapshot`: it stays open. Its paths are those of a container, virtual ones:
    /// only its id or the container's name means it, never a place.
    Container,
    /// `nono fork`: its first snapshot is the state from which the fork began, and the later ones
    /// are states of the fork. It stays open. Only its id means it, never a place: the directory
    /// itself never was in the later states.
    Fork,
    /// `nono watch`: its steps are changes of the user and of programs that are not recorded. It
    /// goes on when the watcher begins again. Of several sessions here it is the last one that a
    /// directory means. An undo without an id takes back its last step then, and never all of it.
    Watch,
}

impl SessionOrigin {
    /// Whether a directory never means such a session, only its id: what it recorded is no project,
    /// or no state that the project had.
    pub fn is_apart(self) -> bool {
        matches!(self, Self::AgentState | Self::Container | Self::Fork)
    }

    /// Whether the next snapshot is made from the newest one, which then cannot be removed alone. A
    /// container's snapshot is made from the container.
    pub fn builds_on_newest(self) -> bool {
        self != Self::Container
    }
}

/// A session: its command, its paths, and the roots of its snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionMetadata {
    /// Version of the document.
    #[serde(default = "current_version")]
    pub format_version: u32,
    /// `YYYYMMDD-HHMMSS-PID`, the name of the session's directory.
    pub session_id: String,
    /// Whether an archive brought the session: another user may have written it, so only its id
    /// means it. No fact of the session, as a pin is none.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub received: bool,
    /// Snapshots that archives added to a session that was recorded here: another user may have
    /// chosen the privileges of their files. Ascending, and of this store, as `received` is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub received_snapshots: Vec<u64>,
    /// When it began.
    pub started: Timestamp,
    /// When it ended, if it has.
    pub ended: Option<Timestamp>,
    /// The maker of the session.
    #[serde(default)]
    pub origin: SessionOrigin,
    /// The command and its arguments; bytes that are not UTF-8 as `\xNN`.
    pub command: Vec<String>,
    /// The sessions whose command was at work on the same paths when this one began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// The name that the user gave the session when it began. A fact of the session, as its command
    /// is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// For the state of an agent, the home directory of the user who recorded it, without symlinks:
    /// in another home, its paths are restored there. A fact of the session, as its command is.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "serde_optional_path")]
    pub home: Option<PathBuf>,
    /// The captured paths.
    #[serde(with = "serde_paths")]
    pub tracked_paths: Vec<PathBuf>,
    /// Number of snapshots that were taken, removed ones included.
    #[serde(default)]
    pub snapshot_count: u64,
    /// Exit code of the command; 128+n for a signal n.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Merkle roots of the snapshots, in order.
    #[serde(default)]
    pub merkle_roots: Vec<ContentHash>,
    /// SHA-256 of the snapshots' manifest files, in order.
    #[serde(default)]
    pub manifest_hashes: Vec<ContentHash>,
    /// Snapshots that have a label, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<SnapshotLabel>,
    /// Snapshots that restores took of the state before them, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub safety_snapshots: Vec<u64>,
    /// The agent session that it records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSession>,
    /// The container whose history it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerSession>,
    /// The merge of a fork that the session is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRecord>,
    /// Snapshots that are steps, in order, for lists;
    /// [`session::steps`](crate::session::steps()) reads them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepEntry>,
    /// A supervisor's record of network accesses.
    #[serde(default)]
    pub network_events: Vec<serde_json::Value>,
    /// Bytes of the objects that the session's snapshots added to the store.
    #[serde(default)]
    pub bytes_written: u64,
    /// The changes between the baseline and the last ordinary snapshot, counted. `None`: a damaged
    /// object prevents the count.
    #[serde(default)]
    pub changes: Option<ChangeSummary>,
    /// Restores that were carried out, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<RestoreRecord>,
    /// Snapshots that were removed, in order. Their manifests stay; their objects may be gone.
    /// Never the last one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<RemovedSnapshot>,
    /// SHA-256 of the manifest file when it was first found that something else than this program
    /// had changed it: nothing proves what it says beside the snapshots. It stays when the session
    /// goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub altered: Option<ContentHash>,
    /// Whether the user pinned the session: retention never removes it. No part of the session
    /// root, so that a root that was noted before stays valid.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub pinned: bool,
    /// Fields of programs that know more.
    #[serde(flatten)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// The command of a session that records the merge of a fork, in front of the fork's name.
const MERGE: [&str; 3] = ["nono", "fork", "merge"];

fn is_unset(flag: &bool) -> bool {
    !flag
}

fn current_version() -> u32 {
    MANIFEST_VERSION
}

impl SessionMetadata {
    /// A session that begins now.
    pub fn new(session_id: String, command: Vec<String>, tracked_paths: Vec<PathBuf>) -> Self {
        Self {
            format_version: MANIFEST_VERSION,
            session_id,
            started: Timestamp::now(),
            ended: None,
            command,
            beside: Vec::new(),
            label: None,
            home: None,
            tracked_paths,
            snapshot_count: 0,
            exit_code: None,
            merkle_roots: Vec::new(),
            manifest_hashes: Vec::new(),
            labels: Vec::new(),
            safety_snapshots: Vec::new(),
            agent: None,
            container: None,
            merge: None,
            steps: Vec::new(),
            network_events: Vec::new(),
            bytes_written: 0,
            origin: SessionOrigin::default(),
            changes: Some(ChangeSummary::default()),
            restores: Vec::new(),
            removed: Vec::new(),
            altered: None,
            pinned: false,
            received: false,
            received_snapshots: Vec::new(),
            extra: BTreeMap::new(),
        }
    }

    /// Adds tracked paths, as far as it does not have them: a session tracks all that one of its
    /// snapshots does.
    pub(crate) fn track(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        for path in paths {
            if !self.tracked_paths.contains(&path) {
                self.tracked_paths.push(path);
            }
        }
    }

    /// Adds what a list of snapshots says of one of them.
    pub fn describe(&mut self, manifest: &SnapshotManifest) {
        self.labels.extend(manifest.named());
        if manifest.kind == SnapshotKind::Safety {
            self.safety_snapshots.push(manifest.number);
        }
    }

    /// Number of the last snapshot that no restore took and no archive added.
    pub(crate) fn last_recorded(&self) -> Option<u64> {
        (0..self.snapshot_count)
            .rev()
            .find(|number| !self.safety_snapshots.contains(number) && !self.was_added(*number))
    }

    /// Whether a person gave a name to the session or to a snapshot that it holds.
    pub fn is_named(&self) -> bool {
        let mut labels = self.labels.iter();
        self.label.is_some() || labels.any(|label| self.removal(label.number).is_none())
    }

    /// Whether an archive added a snapshot to this session, which was recorded here. Of a session
    /// that archives brought as a whole, no snapshot was added. Nor is that known of one whose
    /// manifest was made again, where the first snapshot is marked with the others.
    pub fn was_added(&self, number: u64) -> bool {
        let marked = &self.received_snapshots;
        !self.received && !marked.contains(&0) && marked.contains(&number)
    }

    /// The fork whose merge it records, if that is done.
    pub fn merged_fork(&self) -> Option<&str> {
        match self.command.as_slice() {
            [nono, fork, merge, name, ..] if [nono, fork, merge].map(String::as_str) == MERGE => {
                (self.exit_code == Some(0) && !self.received).then_some(name)
            }
            _ => None,
        }
    }

    /// Whether and why a snapshot was removed.
    pub fn removal(&self, number: u64) -> Option<&RemovedSnapshot> {
        self.removed.iter().find(|removed| removed.number == number)
    }
}
