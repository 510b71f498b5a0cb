//! Steps: the field `step` of a snapshot's manifest.
//!
//! A step is a snapshot that a tool call of a coding agent made, or that was made because something
//! changed between two calls. Its number is the number of its snapshot. The field says whose call
//! it was, to which prompt it belongs, and what the call was in a few words.
//!
//! Every text comes from the agent and is hostile until it is shown through
//! [`Shown`](crate::path_text::Shown). Always true of a step that [`Step::bounded`] made: each text
//! has at most the bytes that the constants here say, and all but the prompt are one line.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::path_text::{serde_path, serde_paths};

/// Longest name of a client, of a tool, or of a call, in bytes.
pub const MAX_STEP_NAME_BYTES: usize = 100;
/// Longest title of a step in bytes.
pub const MAX_STEP_TITLE_BYTES: usize = 160;
/// Maximum number of bytes of a prompt that are kept.
pub const MAX_STEP_PROMPT_BYTES: usize = 1000;

/// Most paths that a step names as not recorded, of each kind.
pub const MAX_STEP_PATHS: usize = 32;
/// Longest such path in bytes: no system call takes a longer one.
const MAX_STEP_PATH_BYTES: usize = 4096;

/// The kind of changes in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The changes of a tool call.
    #[default]
    Tool,
    /// Changes while no call was at work: the user's own edits.
    UserEdits,
    /// Changes after the end of the call that began them: by a command in the background, or
    /// by a call whose step was not finished in time.
    Late,
    /// A snapshot on request: of the agent by `nono mcp`, or of a person.
    Checkpoint,
    /// The state after steps were taken back.
    Undo,
    /// A change that a watcher saw while nothing recorded was at work: of the user, or of another
    /// program.
    Watched,
    /// Changes that a watcher found after a command, an agent or a restore, whose own sessions have
    /// them. An edit that came between may be among them.
    Elsewhere,
}

/// The prompt that a step belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPrompt {
    /// Number of the prompt in its agent session; 1 is the first.
    pub number: u64,
    /// Its text, at most [`MAX_STEP_PROMPT_BYTES`]; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// The fate of a path outside of the recorded directories while a call was at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutsideFate {
    /// It is new.
    Created,
    /// It is another, or it has other contents.
    Changed,
    /// It is not there any more.
    Gone,
    /// The call worked in this directory.
    Entered,
}

impl fmt::Display for OutsideFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Gone => "gone",
            Self::Entered => "worked in",
        })
    }
}

/// A path outside of the recorded directories that a call named, and its fate. No snapshot holds
/// what was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsidePath {
    /// Absolute path, with the symlinks of its parents resolved.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Its fate.
    pub what: OutsideFate,
}

/// The facts of a snapshot of a step beside those of any snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The kind of the changes that it holds.
    #[serde(default)]
    pub kind: StepKind,
    /// The client: `claude-code`, `codex`, `gemini`, `opencode`, or another name.
    pub agent: String,
    /// The client's own id of its session.
    pub agent_session: String,
    /// The prompt that it belongs to; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<StepPrompt>,
    /// The tool, as the client names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The call in a few words: the command, the path, the label.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The client's id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The client's id of the subagent that made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// Whether another call was at work meanwhile. What it wrote so far is in this step as well,
    /// and the step is not the state before any call that began meanwhile.
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
}

/// Whether a count need not be written.
pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}

pub fn is_false(value: &bool) -> bool {
    !value
}

impl Step {
    /// The same step with every text cut to its limit, and all but the prompt on one line.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let path_count = |step: &Self| step.outside.len() + step.gone.len();
        let all = path_count(&self);
        let is_short = |path: &PathBuf| path.as_os_str().as_bytes().len() <= MAX_STEP_PATH_BYTES;
        self.outside.retain(|outside| is_short(&outside.path));
        self.outside.truncate(MAX_STEP_PATHS);
        self.gone.retain(is_short);
        self.gone.truncate(MAX_STEP_PATHS);
        let unnamed = self.unnamed + (all - path_count(&self)) as u64;
        let name = |text: String| one_line(&text, MAX_STEP_NAME_BYTES);
        let some_name = |text: Option<String>| text.map(name).filter(|text| !text.is_empty());
        Self {
            agent: name(self.agent),
            agent_session: name(self.agent_session),
            prompt: self.prompt.map(|prompt| StepPrompt {
                text: cut(prompt.text.trim(), MAX_STEP_PROMPT_BYTES),
                ..prompt
            }),
            tool: some_name(self.tool),
            title: one_line(&self.title, MAX_STEP_TITLE_BYTES),
            call_id: some_name(self.call_id),
            subagent: some_name(self.subagent),
            kind: self.kind,
            overlapped: self.overlapped,
            failed: self.failed,
            outside: self.outside,
            gone: self.gone,
            unnamed,
            undoes: self.undoes,
        }
    }

    /// The step in one line, without its number: `Bash · rm -rf src`. As hostile as its parts.
    pub fn summary(&self) -> String {
        summary(self.kind, self.tool.as_deref(), &self.title)
    }
}

/// The words of a step: its tool and its title, or what its kind is called.
pub fn summary(kind: StepKind, tool: Option<&str>, title: &str) -> String {
    let kind = match kind {
        // The title of an undo says it.
        StepKind::Tool | StepKind::Undo => None,
        StepKind::UserEdits => Some("your own edits"),
        StepKind::Late => Some("late changes"),
        StepKind::Checkpoint => Some("checkpoint"),
        StepKind::Watched => Some("you or another program"),
        StepKind::Elsewhere => Some("changes of other sessions"),
    };
    let parts = [kind, tool, Some(title)].into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" · ")
}

/// Text with each run of white space as one space, in at most so many bytes.
pub(crate) fn one_line(text: &str, most_bytes: usize) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() > most_bytes {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(cut_str(word, most_bytes + 1));
    }
    cut(&line, most_bytes)
}

/// The beginning of a text, with an ellipsis where something is missing.
fn cut(text: &str, most_bytes: usize) -> String {
    const MORE: &str = "…";
    if text.len() <= most_bytes {
        return text.to_owned();
    }
    let mut kept = cut_str(text, most_bytes - MORE.len()).to_owned();
    kept.push_str(MORE);
    kept
}

/// The longest beginning of whole characters in so many bytes.
fn cut_str(text: &str, most_bytes: usize) -> &str {
    let mut end = most_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_step_says_tool_and_title_in_one_line() {
        let step = Step {
            tool: Some("Bash".to_owned()),
            title: "rm -rf src\n  && echo x".to_owned(),
            ..Step::default()
        };
        assert_eq!(step.bounded().summary(), "Bash · rm -rf src && echo x");
        let edits = Step { kind: StepKind::UserEdits, ..Step::default() };
        assert_eq!(edits.summary(), "your own edits");
    }

    #[test]
    fn what_is_empty_or_false_is_not_written() {
        let step = Step { agent: "codex".into(), agent_session: "s".into(), ..Step::default() };
        let text = serde_json::to_string(&step).unwrap();
        assert_eq!(text, r#"{"kind":"tool","agent":"codex","agent_session":"s"}"#);
        assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
    }

    proptest! {
        #[test]
        fn no_text_of_a_bounded_step_is_longer_than_its_limit(text in "\\PC{0,400}|[ é\\n]{0,900}") {
            let step = Step {
                agent: text.clone(), agent_session: text.clone(), title: text.clone(),
                tool: Some(text.clone()), call_id: Some(text.clone()), subagent: Some(text.clone()),
                prompt: Some(StepPrompt { number: 1, text: text.repeat(4) }),
                gone: vec![PathBuf::from(format!("/{text}")); text.len()],
                ..Step::default()
            };
            let step = step.bounded();
            prop_assert!(step.gone.len() <= MAX_STEP_PATHS);
            prop_assert_eq!(step.gone.len() as u64 + step.unnamed, text.len() as u64);
            let names = [Some(&step.agent), Some(&step.agent_session), step.tool.as_ref(),
                step.call_id.as_ref(), step.subagent.as_ref()];
            for name in names.into_iter().flatten() {
                prop_assert!(name.len() <= MAX_STEP_NAME_BYTES);
                prop_assert!(!name.contains('\n'));
            }
            prop_assert!(step.title.len() <= MAX_STEP_TITLE_BYTES && !step.title.contains('\n'));
            prop_assert!(step.prompt.unwrap().text.len() <= MAX_STEP_PROMPT_BYTES);
        }
    }
}
