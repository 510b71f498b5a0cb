//! The facts, as `nono events` prints them: `docs/events.md` describes each field.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::log::Cursor;
use crate::diff::ChangeSummary;
use crate::manifest::{RemovalReason, SnapshotKind, StepKind, is_false};
use crate::object::ContentHash;
use crate::path_text::{serde_path, serde_paths};
use crate::snapshot::{AgentSession, SessionOrigin};

/// A fact with its place in the order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// The place behind it.
    pub cursor: Cursor,
    /// The fact.
    #[serde(flatten)]
    pub record: Record,
}

/// A fact with its time and its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it happened, as the store says. Not in order.
    pub at: Timestamp,
    /// The session; none for what many sessions share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The fact.
    #[serde(flatten)]
    pub fact: Fact,
}

/// The kinds of facts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Fact {
    /// A session began: a run, an agent's session, a snapshot by hand.
    SessionBegan {
        /// Its maker.
        origin: SessionOrigin,
        /// Its command.
        command: Vec<String>,
        /// Its recorded paths.
        #[serde(with = "serde_paths")]
        tracked_paths: Vec<PathBuf>,
        /// The agent session that it records.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<AgentSession>,
        /// Whether an archive brought it.
        #[serde(default, skip_serializing_if = "is_false")]
        received: bool,
    },
    /// A session ended. One that was resumed ends again.
    SessionEnded {
        /// Exit code of its command.
        exit_code: Option<i32>,
        /// Its changes; none where these are not known.
        changes: Option<ChangeSummary>,
    },
    /// The supervisor of a run died before the last state was recorded.
    SessionInterrupted {},
    /// A session was removed.
    SessionRemoved {},
    /// A state was recorded.
    Snapshot {
        /// Its number.
        number: u64,
        /// Why.
        kind: SnapshotKind,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The hash of the whole state.
        merkle_root: ContentHash,
    },
    /// A state was recorded that is a step.
    Step {
        /// Number of the step and of its snapshot.
        number: u64,
        /// Its contents.
        kind: StepKind,
        /// The client that made the call.
        agent: String,
        /// Number of its prompt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
        /// The tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
        /// The call in a few words.
        title: String,
        /// Whether the client says that the call failed.
        #[serde(default, skip_serializing_if = "is_false")]
        failed: bool,
        /// The changes since the snapshot before.
        changes: Option<ChangeSummary>,
    },
    /// A snapshot was taken out of its session.
    SnapshotRemoved {
        /// Its number.
        number: u64,
        /// Why.
        reason: RemovalReason,
    },
    /// A state was brought back, and is none of the following.
    Restore(Restored),
    /// A session was undone, or steps of it.
    Undo(Restored),
    /// An earlier restore was taken back.
    Redo(Restored),
    /// A restore left paths as they were: newer ones that were kept, or paths that could not be
    /// restored.
    Conflict {
        /// Number of the restore in its session, from 0.
        restore: u64,
        /// The snapshot that was to be brought back.
        snapshot: u64,
    },
    /// The work of a fork came into its project. The session is that of the merge.
    Merge {
        /// Name of the fork.
        fork: String,
        /// The changes of the merge.
        changes: Option<ChangeSummary>,
    },
    /// The archive of a snapshot was stored at a remote.
    Push {
        /// Number of the snapshot.
        number: u64,
        /// The remote, as the user named it.
        remote: String,
        /// Name of the archive.
        archive: String,
    },
    /// Something in the store is damaged.
    Damage {
        /// The kind of damage.
        what: Damage,
        /// The file.
        #[serde(with = "serde_path")]
        path: PathBuf,
    },
}

/// A restore that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Number of the restore in its session, from 0.
    pub restore: u64,
    /// The snapshot that was brought back; of steps that were taken back, the last one.
    pub snapshot: u64,
    /// The snapshot that holds the state before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<u64>,
    /// Whether only a part was asked for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// Whether single steps were taken back.
    #[serde(default, skip_serializing_if = "is_false")]
    pub steps: bool,
}

/// The kinds of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// A manifest cannot be read, or that of a listed snapshot is gone.
    Manifest,
    /// Another program changed the manifest of a session.
    Altered,
    /// A baseline that was announced did not survive.
    Baseline,
    /// A repair moved a damaged file into quarantine.
    Quarantined,
}
