//! The event of a client's hook, in one form for all clients.
//!
//! The parser is total: any bytes are an event or none. Fields and events that it does not know are
//! ignored, because clients add some in every version. The names are those of Claude Code, which
//! Codex shares; Gemini's are translated, and the plugin for OpenCode speaks Claude Code's.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::outside::{self, NamedPath};
use super::{background, title};
use nono_engine::snapshot::{MAX_STEP_NAME_BYTES, MAX_STEP_PROMPT_BYTES};

/// A coding agent whose hooks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// Anthropic's.
    ClaudeCode,
    /// OpenAI's.
    Codex,
    /// Google's.
    Gemini,
    /// <https://opencode.ai>.
    #[serde(rename = "opencode")]
    OpenCode,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Gemini, Self::OpenCode];

    /// Its name in commands and in steps.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude",
            Self::Codex | Self::Gemini | Self::OpenCode => self.name(),
        }
    }

    /// Other names that people give it, its program's among them.
    pub fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &["claude", "claudecode", "claude_code"],
            Self::Codex => &["codex-cli", "openai-codex"],
            Self::Gemini => &["gemini-cli", "google-gemini"],
            Self::OpenCode => &["open-code", "opencode-ai"],
        }
    }

    /// The client of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// The client that a person means, by its name or another one.
    pub fn meant(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let is_alias = |client: &Self| client.aliases().contains(&name.as_str());
        Self::named(&name).or_else(|| Self::ALL.into_iter().find(is_alias))
    }

    /// Whether it may start a call before the call before it has ended. One that does not and
    /// begins a call has given up the one before: a person refused it.
    fn runs_calls_in_parallel(self) -> bool {
        self == Self::Codex
    }
}

/// Something that happened in an agent session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The client's name.
    pub client: String,
    /// The client's own id of its session.
    pub session_id: String,
    /// Where the agent works.
    #[serde(default, with = "optional_path", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Id of the subagent that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent: Option<String>,
    /// Whether calls of one agent may overlap.
    #[serde(default)]
    pub is_parallel: bool,
    /// The kind of event.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A session began or was resumed.
    SessionStart,
    /// A person asked for something.
    Prompt {
        /// The beginning of the text.
        text: String,
    },
    /// A tool is about to be called; the client waits for the hook.
    Before(Call),
    /// A tool was called.
    After(Call),
    /// A subagent has ended.
    SubagentEnd,
    /// The agent has ended its turn.
    TurnEnd {
        /// Whether commands go on; `None` where the client does not say.
        background: Option<bool>,
    },
    /// The session has ended.
    SessionEnd,
}

/// A call of a tool that may change files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The client's id of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool.
    pub tool: String,
    /// The call in a few words.
    pub title: String,
    /// Whether what it starts goes on after its end.
    #[serde(default)]
    pub background: bool,
    /// Whether it failed.
    #[serde(default)]
    pub failed: bool,
    /// The paths that it names; a hook looks at them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<NamedPath>,
    /// Whether it writes the files that it names, as the client says, and no shell does.
    #[serde(default)]
    pub is_edit: bool,
}

/// Tools that change no file of a project, in lower case; of all clients.
const READING: [&str; 46] = [
    "agent",
    "ask_user",
    "askuserquestion",
    "bashoutput",
    "codesearch",
    "enterplanmode",
    "exitplanmode",
    "glob",
    "google_web_search",
    "grep",
    "grep_files",
    "grep_search",
    "killbash",
    "killshell",
    "list",
    "list_dir",
    "list_directory",
    "listmcpresourcestool",
    "ls",
    "lsp",
    "notebookread",
    "question",
    "read",
    "read_file",
    "read_many_files",
    "readmcpresourcetool",
    "search_file_content",
    "skill",
    "task",
    "taskcreate",
    "taskget",
    "tasklist",
    "taskoutput",
    "taskstop",
    "taskupdate",
    "todoread",
    "todowrite",
    "toolsearch",
    "update_plan",
    "view_image",
    "web_fetch",
    "web_search",
    "webfetch",
    "websearch",
    "write_todos",
    "slashcommand",
];

/// Tools of our own server that change files or the record: what came before them is no part of
/// them.
const OWN_CHANGING: [&str; 2] = ["checkpoint", "restore"];

/// A longer path is none that a system call takes.
const MAX_PATH_BYTES: usize = 4096;

/// The name that our own server gives a tool, if the client's name of it means one of ours.
pub(super) fn own_tool(tool: &str) -> Option<&str> {
    ["mcp__nono__", "mcp_nono_", "nono_"].iter().find_map(|own| tool.strip_prefix(own))
}

/// Whether a tool may change files.
fn may_change(tool: &str) -> bool {
    let tool = tool.to_ascii_lowercase();
    match own_tool(&tool) {
        Some(own) => OWN_CHANGING.contains(&own),
        None => !READING.contains(&tool.as_str()),
    }
}

/// Whether a tool takes a command for a shell.
fn is_shell(tool: &str) -> bool {
    matches!(tool, "Bash" | "bash" | "shell" | "run_shell_command" | "exec_command" | "local_shell")
}

/// Reads an event. `None`: nothing that matters to a record. `client`: as the configuration says,
/// else it follows from the event.
pub fn parse(client: Option<Client>, bytes: &[u8]) -> Option<Event> {
    let Value::Object(fields) = serde_json::from_slice(bytes).ok()? else { return None };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let name = |name: &str| text(name).map(short).filter(|text| !text.is_empty());
    let client = client.or_else(|| guess(&fields));
    // `notify` of Codex.
    if text("type") == Some("agent-turn-complete") {
        return Some(Event {
            client: Client::Codex.name().to_owned(),
            session_id: name("thread-id").or_else(|| name("thread_id"))?,
            cwd: text("cwd").map(PathBuf::from),
            subagent: None,
            is_parallel: true,
            kind: EventKind::TurnEnd { background: None },
        });
    }
    let cwd = text("cwd")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.as_os_str().len() < MAX_PATH_BYTES);
    let call = |failed: bool| {
        let tool = name("tool_name").filter(|tool| may_change(tool))?;
        let input = fields.get("tool_input").unwrap_or(&Value::Null);
        let is_true = |field: &str| input.get(field).and_then(Value::as_bool).unwrap_or(false);
        let command = || input.get("command").and_then(Value::as_str).unwrap_or_default();
        let background = is_true("run_in_background")
            || is_true("is_background")
            || (is_shell(&tool) && background::is_left_by(command()));
        Some(Call {
            id: name("tool_use_id").or_else(|| name("tool_call_id")),
            title: title::of(input, cwd.as_deref()),
            background,
            failed: failed || says_it_failed(&fields),
            paths: outside::named_in(input, cwd.as_deref()),
            is_edit: !is_shell(&tool) && own_tool(&tool).is_none(),
            tool,
        })
    };
    let kind = match text("hook_event_name")? {
        "SessionStart" => EventKind::SessionStart,
        "UserPromptSubmit" | "BeforeAgent" => {
            let prompt = text("prompt").unwrap_or_default();
            // A part that is cut away later anyway need not be spooled.
            let text = prompt.chars().take(MAX_STEP_PROMPT_BYTES + 1).collect();
            EventKind::Prompt { text }
        }
        "PreToolUse" | "BeforeTool" => EventKind::Before(call(false)?),
        "PostToolUse" | "AfterTool" => EventKind::After(call(false)?),
        "PostToolUseFailure" => EventKind::After(call(true)?),
        "SubagentStop" => EventKind::SubagentEnd,
        "Stop" | "AfterAgent" => {
            let tasks = fields.get("background_tasks").and_then(Value::as_array);
            EventKind::TurnEnd { background: tasks.map(|tasks| !tasks.is_empty()) }
        }
        "SessionEnd" => EventKind::SessionEnd,
        _ => return None,
    };
    Some(Event {
        client: client.map_or("agent", Client::name).to_owned(),
        session_id: name("session_id")?,
        cwd,
        subagent: name("agent_id"),
        is_parallel: client.is_none_or(Client::runs_calls_in_parallel),
        kind,
    })
}

/// Ids and names, which are short unless an agent means harm.
fn short(text: &str) -> String {
    text.chars().take(MAX_STEP_NAME_BYTES).collect()
}

fn guess(fields: &Map<String, Value>) -> Option<Client> {
    if fields.contains_key("turn_id") {
        return Some(Client::Codex);
    }
    let transcript = fields.get("transcript_path")?.as_str()?;
    let places = [
        ("/.claude/", Client::ClaudeCode),
        ("/.codex/", Client::Codex),
        ("/.gemini/", Client::Gemini),
    ];
    places.into_iter().find(|(place, _)| transcript.contains(place)).map(|(_, client)| client)
}

/// Clients that have no event for failures say it in the answer, or not at all.
fn says_it_failed(fields: &Map<String, Value>) -> bool {
    match fields.get("tool_response") {
        Some(Value::String(text)) => {
            let code = text.strip_prefix("Exit code: ").and_then(|rest| rest.lines().next());
            code.is_some_and(|code| code.trim() != "0")
        }
        Some(Value::Object(answer)) => {
            let is_error = answer.get("isError").and_then(Value::as_bool).unwrap_or(false);
            is_error || answer.get("error").is_some_and(|error| !error.is_null())
        }
        _ => false,
    }
}

/// A path in JSON, or none.
pub(super) mod optional_path {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "nono_engine::path_text::serde_path")] PathBuf);

    pub(in super::super) fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.clone().map(Item).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Item>::deserialize(deserializer)?.map(|item| item.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLAUDE_CODE: &str = include_str!("fixtures/claude-code.jsonl");
    const CLAUDE_CODE_MORE: &str = include_str!("fixtures/claude-code-more.jsonl");
    const CODEX: &str = include_str!("fixtures/codex.jsonl");
    const GEMINI: &str = include_str!("fixtures/gemini.jsonl");

    /// The events of a client's session, each in a few words.
    fn told(client: Client, lines: &str) -> Vec<String> {
        let events = lines.lines().filter_map(|line| parse(Some(client), line.as_bytes()));
        let word = |event: Event| {
            assert_eq!(event.client, client.name());
            assert_eq!(event.session_id.len(), 36);
            let call = |word: &str, call: Call| {
                let failed = if call.failed { " failed" } else { "" };
                format!("{word} {}: {}{failed}", call.tool, call.title)
            };
            match event.kind {
                EventKind::Before(it) => call("before", it),
                EventKind::After(it) => call("after", it),
                EventKind::Prompt { text } => format!("prompt {text}"),
                other => format!("{other:?}").split(' ').next().unwrap().to_owned(),
            }
        };
        events.map(word).collect()
    }

    #[test]
    fn claude_code_is_understood() {
        assert_eq!(
            told(Client::ClaudeCode, CLAUDE_CODE),
            [
                "SessionStart",
                "prompt do the work",
                "before Bash: rm -rf src && echo x > new.txt",
                "after Bash: rm -rf src && echo x > new.txt",
                "before Edit: README.md",
                "after Edit: README.md",
                "before Write: made.txt",
                "after Write: made.txt",
                "TurnEnd",
                "SessionEnd"
            ]
        );
        let more = told(Client::ClaudeCode, CLAUDE_CODE_MORE);
        assert!(more.contains(&"after Bash: echo out; echo err >&2; exit 3 failed".to_owned()));
        assert!(more.contains(&"SubagentEnd".to_owned()));
        assert!(!more.iter().any(|event| event.contains("Agent:")), "{more:?}");
    }

    #[test]
    fn codex_is_understood() {
        assert_eq!(
            told(Client::Codex, CODEX),
            [
                "SessionStart",
                "prompt do the work",
                "before Bash: rm -rf src && echo x > new.txt",
                "before apply_patch: README.md, made.txt",
                "after apply_patch: README.md, made.txt",
                "before mcp__nonotest__checkpoint: from codex",
                "after mcp__nonotest__checkpoint: from codex",
                "TurnEnd",
                "SessionEnd"
            ]
        );
    }

    #[test]
    fn gemini_is_understood() {
        assert_eq!(
            told(Client::Gemini, GEMINI),
            [
                "SessionStart",
                "prompt do the work",
                "before run_shell_command: rm -rf src && echo x > new.txt",
                "after run_shell_command: rm -rf src && echo x > new.txt",
                "before replace: README.md",
                "after replace: README.md",
                "before write_file: made.txt",
                "after write_file: made.txt",
                "before mcp_nonotest_checkpoint: from gemini",
                "after mcp_nonotest_checkpoint: from gemini",
                "TurnEnd",
                "SessionEnd"
            ]
        );
    }

    #[test]
    fn who_does_not_name_the_client_is_told_by_the_transcript() {
        for (client, lines) in
            [(Client::ClaudeCode, CLAUDE_CODE), (Client::Codex, CODEX), (Client::Gemini, GEMINI)]
        {
            let first = parse(None, lines.lines().next().unwrap().as_bytes()).unwrap();
            assert_eq!(first.client, client.name());
        }
    }

    #[test]
    fn reading_and_asking_are_no_events() {
        for tool in ["Read", "Grep", "Glob", "TodoWrite", "WebFetch", "Agent", "mcp__nono__diff"] {
            let event = format!(
                r#"{{"session_id":"s","hook_event_name":"PostToolUse","tool_name":"{tool}","tool_input":{{}}}}"#
            );
            assert_eq!(parse(Some(Client::ClaudeCode), event.as_bytes()), None, "{tool}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(None, &bytes);
        }

        #[test]
        fn any_values_are_an_event_or_none(
            event in prop_oneof!["PreToolUse", "PostToolUse", "Stop", "UserPromptSubmit"],
            name in ".{0,200}", value in "[\\[\\]{}\":,a-z0-9]{0,20}",
        ) {
            let name = serde_json::to_string(&name).unwrap();
            let value: Value = serde_json::from_str(&value).unwrap_or(Value::Null);
            let text = format!(
                r#"{{"session_id":{name},"hook_event_name":"{event}","tool_name":{name},
                    "tool_input":{value},"prompt":{name},"background_tasks":{value},"cwd":{value}}}"#
            );
            if let Some(event) = parse(None, text.as_bytes()) {
                let again = serde_json::to_string(&event).unwrap();
                prop_assert_eq!(serde_json::from_str::<Event>(&again).unwrap(), event);
            }
        }
    }
}
