//! `list_steps`: the states of a session, newest first, and the other sessions of the project.

use serde::{Deserialize, Serialize};
use serde_json::{json, to_value};

use super::pages::{answer, cursor, fitting, most_items, position};
use super::workspace::cut;
use super::{Answer, ToolError, Workspace};
use crate::cli::render::{Palette, summary_line};
use nono_engine::counted::counted;
use nono_engine::diff::ChangeSummary;
use nono_engine::path_text::Shown;
use nono_engine::session::{SessionSummary, steps_of};
use nono_engine::snapshot::{SessionDir, SnapshotKind, StepEntry};

/// Maximum length of a shown prompt, in characters.
const PROMPT_CHARACTERS: usize = 200;
/// Maximum number of other sessions that are named.
const MAX_SESSIONS: usize = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Arguments {
    session: Option<String>,
    cursor: Option<String>,
    limit: Option<u64>,
}

/// A state in the list.
#[derive(Debug, Serialize)]
struct Listed {
    /// The id that other tools take.
    id: String,
    number: u64,
    timestamp: jiff::Timestamp,
    /// `tool`, `user_edits`, `late`, `checkpoint`, `undo`; of what is no step `baseline`,
    /// `snapshot`, `before_restore`.
    kind: String,
    /// In one line.
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subagent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    overlapped: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    failed: bool,
    /// Since the state before.
    changes: Option<ChangeSummary>,
}

impl Workspace {
    pub(super) fn list_steps(&self, arguments: &Arguments) -> Result<Answer, ToolError> {
        let before = position(arguments.cursor.as_deref())?;
        let (all, _) = self.sessions()?;
        let session = self.session(arguments.session.as_deref())?;
        let metadata = session.metadata()?;
        let mut numbers = session.snapshot_numbers()?;
        let count = numbers.len();
        numbers.retain(|number| before.is_none_or(|before| *number < before));
        let steps = steps_of(&metadata);
        let mut listed = Vec::new();
        for number in numbers.iter().rev().take(most_items(arguments.limit)) {
            listed.push(match steps.binary_search_by_key(number, |step| step.number) {
                Ok(at) => Listed::step(&session, &steps[at]),
                Err(_) => Listed::snapshot(&session, *number)?,
            });
        }
        listed.truncate(fitting(listed.iter().map(Listed::text), arguments.limit));
        let last = listed.last().map(|last| last.number);
        let next = last.filter(|last| numbers.first().is_some_and(|first| first < last));
        let next = next.map(cursor);
        let id = session.id();
        let head = format!(
            "Session {id} of {}: {}, newest first. A state is named by its id, or by \
             its number alone.",
            Shown::path(&self.project),
            counted(count, "state", "states")
        );
        let recorded: String = listed.iter().map(Listed::line).collect();
        let others: Vec<_> = all.iter().filter(|other| other.session_id != id).collect();
        let others: Vec<_> = others.into_iter().take(MAX_SESSIONS).map(session_value).collect();
        let data = json!({
            "session_id": id,
            "state_count": count,
            "steps": to_value(&listed).unwrap_or_default(),
            "other_sessions": others,
        });
        Ok(answer(&head, &recorded, next, data))
    }
}

fn session_value(session: &SessionSummary) -> serde_json::Value {
    json!({
        "session_id": session.session_id,
        "started": session.started,
        "status": session.status,
        "agent": session.agent.as_ref().map(|agent| &agent.client),
        "command": cut(&session.command.join(" "), PROMPT_CHARACTERS),
        "state_count": session.snapshot_count,
    })
}

impl Listed {
    fn step(session: &SessionDir, step: &StepEntry) -> Self {
        let prompt = step.prompt.as_ref().map(
            |prompt| json!({"number": prompt.number, "text": cut(&prompt.text, PROMPT_CHARACTERS)}),
        );
        let kind = to_value(step.kind).ok();
        let kind = kind.and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default();
        Self {
            id: format!("{}/{}", session.id(), step.number),
            number: step.number,
            timestamp: step.timestamp,
            kind,
            summary: step.summary(),
            label: None,
            prompt,
            agent: Some(step.agent.clone()),
            tool: step.tool.clone(),
            call_id: step.call_id.clone(),
            subagent: step.subagent.clone(),
            overlapped: step.overlapped,
            failed: step.failed,
            changes: step.changes,
        }
    }

    fn snapshot(session: &SessionDir, number: u64) -> Result<Self, ToolError> {
        let manifest = session.manifest(number)?.manifest;
        let kind = match (manifest.kind, manifest.parent) {
            (SnapshotKind::Safety, _) => "before_restore",
            (_, None) => "baseline",
            _ => "snapshot",
        };
        let summary = match (kind, manifest.restores) {
            ("before_restore", Some(restored)) => format!("state before {restored} was restored"),
            ("baseline", _) => "the state at the beginning".to_owned(),
            _ => "snapshot".to_owned(),
        };
        Ok(Self {
            id: format!("{}/{number}", session.id()),
            number,
            timestamp: manifest.timestamp,
            kind: kind.to_owned(),
            summary,
            label: manifest.label,
            prompt: None,
            agent: None,
            tool: None,
            call_id: None,
            subagent: None,
            overlapped: false,
            failed: false,
            changes: None,
        })
    }

    /// All that comes from the past.
    fn text(&self) -> String {
        let prompt = self.prompt.as_ref().map(ToString::to_string).unwrap_or_default();
        self.line() + &prompt
    }

    fn line(&self) -> String {
        let Self { number, timestamp, summary, .. } = self;
        let label = self.label.as_ref().map(|label| format!(" “{label}”")).unwrap_or_default();
        let failed = if self.failed { " (the call failed)" } else { "" };
        let overlapped = if self.overlapped { " (overlapped)" } else { "" };
        let changes = self.changes.as_ref().map(|changes| summary_line(changes, &Palette::plain()));
        let changes = changes.map(|changes| format!(": {changes}")).unwrap_or_default();
        format!(
            "{number}  {timestamp:.0}  {}{label}{failed}{overlapped}{changes}\n",
            Shown::bytes(summary.as_bytes())
        )
    }
}
