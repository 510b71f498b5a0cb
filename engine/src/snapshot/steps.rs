//! The steps of a session, as its manifest lists them.
//!
//! A list of 500 steps must not read 500 manifests. So the session's manifest has an entry for each
//! snapshot that is a step, as it has for labels: it follows from the snapshots, and `verify`
//! compares. The text of a prompt stands only in the first entry of the prompt.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::diff::ChangeSummary;
use crate::manifest::{
    OutsidePath, SnapshotManifest, StepKind, StepPrompt, is_false, is_zero, step_summary,
};
use crate::path_text::serde_paths;

/// The agent session that a session records.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AgentSession {
    /// The client: `claude-code`, `codex`, `gemini`, `opencode`, or another name.
    pub client: String,
    /// The client's own id of its session. A session that is resumed keeps it.
    pub session_id: String,
}

/// A step in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEntry {
    /// Number of the step and of its snapshot.
    pub number: u64,
    /// When its capture began.
    pub timestamp: Timestamp,
    /// The kind of its changes.
    #[serde(default)]
    pub kind: StepKind,
    /// The client that made the call.
    pub agent: String,
    /// The prompt that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<StepPrompt>,
    /// The tool, as the client names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The call in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The client's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The client's id of the subagent that made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// Whether another call was at work meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    pub overlapped: bool,
    /// Whether the client says that the call failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
    /// Paths outside of the recorded directories that the call named and that changed meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<OutsidePath>,
    /// Left-out paths of the snapshot before that are gone, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "serde_paths")]
    pub gone: Vec<PathBuf>,
    /// The number of further such paths, which neither list names.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnamed: u64,
    /// The steps of which an undo left nothing but commits, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undoes: Vec<u64>,
    /// Changes since the snapshot before; `None` where they were not counted.
    #[serde(default)]
    pub changes: Option<ChangeSummary>,
}

impl StepEntry {
    /// The entry of a snapshot that is a step, with the whole text of its prompt.
    pub(crate) fn of(manifest: &SnapshotManifest, changes: Option<ChangeSummary>) -> Option<Self> {
        let step = manifest.step.clone()?;
        Some(Self {
            number: manifest.number,
            timestamp: manifest.timestamp,
            kind: step.kind,
            agent: step.agent,
            prompt: step.prompt,
            tool: step.tool,
            title: step.title,
            call_id: step.call_id,
            subagent: step.subagent,
            overlapped: step.overlapped,
            failed: step.failed,
            outside: step.outside,
            gone: step.gone,
            unnamed: step.unnamed,
            undoes: step.undoes,
            changes,
        })
    }

    /// Whether the agent made it. The user's own edits and undos are in the list, too.
    pub fn is_agents(&self) -> bool {
        !matches!(
            self.kind,
            StepKind::UserEdits | StepKind::Undo | StepKind::Watched | StepKind::Elsewhere
        )
    }

    /// The step in one line, without its number: `Bash · rm -rf src`. As hostile as its parts.
    pub fn summary(&self) -> String {
        step_summary(self.kind, self.tool.as_deref(), &self.title)
    }
}

/// The lists of a session that is described anew, from its snapshots alone.
pub(crate) fn of_chain<'a>(
    chain: impl Iterator<Item = &'a SnapshotManifest>,
) -> (Option<AgentSession>, Vec<StepEntry>) {
    let (mut agent, mut entries) = (None, Vec::new());
    for manifest in chain {
        if let Some(step) = &manifest.step {
            let (client, session_id) = (step.agent.clone(), step.agent_session.clone());
            agent.get_or_insert(AgentSession { client, session_id });
        }
        if let Some(entry) = StepEntry::of(manifest, None) {
            push(&mut entries, entry);
        }
    }
    (agent, entries)
}

/// Adds an entry to a session's list, without the text of a prompt that is there already.
pub(crate) fn push(entries: &mut Vec<StepEntry>, mut entry: StepEntry) {
    if let Some(prompt) = &mut entry.prompt
        && let Some(known) = entries.iter().rev().find_map(|entry| entry.prompt.as_ref())
        && known.number == prompt.number
    {
        prompt.text.clear();
    }
    entries.push(entry);
}

/// The entries of a session's list, each with the text of its prompt.
pub(crate) fn with_prompts(entries: &[StepEntry]) -> Vec<StepEntry> {
    let mut last: Option<StepPrompt> = None;
    let filled = |entry: &StepEntry| {
        let mut entry = entry.clone();
        if let Some(prompt) = &mut entry.prompt {
            match &last {
                Some(known) if known.number == prompt.number && prompt.text.is_empty() => {
                    prompt.text.clone_from(&known.text);
                }
                _ => last = Some(prompt.clone()),
            }
        }
        entry
    };
    entries.iter().map(filled).collect()
}
