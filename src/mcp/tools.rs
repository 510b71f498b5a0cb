//! The table of tools: what each is called, takes and does.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

#[cfg(feature = "mount")]
use super::forks;
use super::{Answer, ToolError, Tools, Workspace, changes, files, restoring, steps};

/// A tool as it is announced.
#[derive(Debug)]
pub struct ToolInfo {
    /// Its name.
    pub name: &'static str,
    /// Its purpose, for a model.
    pub description: &'static str,
    /// Its arguments: name, JSON type, what it is for, whether it is needed.
    arguments: &'static [Argument],
    /// Whether it changes nothing, not even the record.
    pub is_read_only: bool,
    /// Whether it may overwrite files.
    pub is_destructive: bool,
    /// Whether a supervisor carries it out for the command that it records.
    pub is_served_inside: bool,
    call: fn(&Workspace, Value) -> Result<Answer, ToolError>,
}

#[derive(Debug)]
struct Argument {
    name: &'static str,
    kind: Kind,
    about: &'static str,
    is_needed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Number,
    Texts,
    #[cfg(feature = "mount")]
    Flag,
    OneOf(&'static [&'static str]),
}

const STATE: &str =
    "a number from list_steps, an id like SESSION/17, `latest`, `baseline` or `now`";
const CURSOR: Argument = optional("cursor", Kind::Text, "next_cursor of the page before");
const LIMIT: Argument = optional("limit", Kind::Number, "items on a page, at most 200");
const AT: Argument =
    needed("at", Kind::Text, "the state to go back to: a number from list_steps, or SESSION/17");
const PATHS: Argument =
    needed("paths", Kind::Texts, "files and directories of the project; no globs");
#[cfg(feature = "mount")]
const FORK: Argument = needed("name", Kind::Text, "the fork");
const ON_CONFLICT: Argument = optional(
    "on_conflict",
    Kind::OneOf(&["refuse", "keep_newer", "overwrite"]),
    "what to do where a path was changed after the session ended; refuse is usual",
);

/// Name of the tool that records the present state.
pub const CHECKPOINT: &str = "checkpoint";

/// All tools.
pub const TOOLS: &[ToolInfo] = &[
    ToolInfo {
        name: "list_steps",
        description: "List the recorded states of this project, newest first: one for each tool \
                      call that changed files, with its prompt and what changed. Use it to find \
                      out when something was lost.",
        arguments: &[
            optional("session", Kind::Text, "another session of the project; usually left out"),
            CURSOR,
            LIMIT,
        ],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: true,
        call: |workspace, given| workspace.list_steps(&parsed::<steps::Arguments>(given)?),
    },
    ToolInfo {
        name: "show_changes",
        description: "Name the files that a step changed, shell commands included.",
        arguments: &[
            optional("at", Kind::Text, STATE),
            optional("since", Kind::Text, "compare with this state and not with the one before"),
            CURSOR,
            LIMIT,
        ],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: true,
        call: |workspace, given| {
            workspace.show_changes(&parsed::<changes::ChangesArguments>(given)?)
        },
    },
    ToolInfo {
        name: "diff",
        description: "Show what changed between two states as a patch.",
        arguments: &[
            optional("from", Kind::Text, "the older state; usually the one before `to`"),
            optional("to", Kind::Text, STATE),
            optional("paths", Kind::Texts, "only these files and directories"),
            CURSOR,
        ],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: true,
        call: |workspace, given| workspace.diff(&parsed::<changes::DiffArguments>(given)?),
    },
    ToolInfo {
        name: "read_file_at",
        description: "Read a file, or list a directory, as it was in a recorded state; also one \
                      that is gone.",
        arguments: &[
            needed("path", Kind::Text, "a path in the project"),
            optional("at", Kind::Text, STATE),
            CURSOR,
        ],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: true,
        call: |workspace, given| workspace.read_file_at(&parsed::<files::ReadArguments>(given)?),
    },
    ToolInfo {
        name: "find_in_history",
        description: "Find paths in all recorded states by a glob: a name (*.rs) or a path \
                      (src/**/*.rs). Finds deleted files.",
        arguments: &[needed("glob", Kind::Text, "a name or a path with wildcards"), CURSOR, LIMIT],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: true,
        call: |workspace, given| workspace.find_in_history(&parsed::<files::FindArguments>(given)?),
    },
    ToolInfo {
        name: CHECKPOINT,
        description: "Record the present state of the project under a label, before something \
                      risky.",
        arguments: &[needed("label", Kind::Text, "what the state is, in a few words")],
        is_read_only: false,
        is_destructive: false,
        is_served_inside: true,
        call: |workspace, given| {
            workspace.checkpoint(&parsed::<restoring::CheckpointArguments>(given)?)
        },
    },
    ToolInfo {
        name: "preview_restore",
        description: "Say what `restore` with the same arguments would change. Changes nothing.",
        arguments: &[AT, PATHS, ON_CONFLICT, CURSOR, LIMIT],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: false,
        call: |workspace, given| {
            workspace.preview_restore(&parsed::<restoring::RestoreArguments>(given)?)
        },
    },
    ToolInfo {
        name: "restore",
        description: "Bring files and directories of the project back to a recorded state. The \
                      state before is kept, so a restore can itself be taken back.",
        arguments: &[AT, PATHS, ON_CONFLICT, LIMIT],
        is_read_only: false,
        is_destructive: true,
        is_served_inside: false,
        call: |workspace, given| workspace.restore(&parsed::<restoring::RestoreArguments>(given)?),
    },
    #[cfg(feature = "mount")]
    ToolInfo {
        name: "list_forks",
        description: "List the forks of this project: writable copies of a recorded state in which \
                      agents work side by side, with what each changed and where two collide.",
        arguments: &[CURSOR, LIMIT],
        is_read_only: true,
        is_destructive: false,
        is_served_inside: false,
        call: |workspace, given| workspace.list_forks(&parsed::<forks::ListArguments>(given)?),
    },
    #[cfg(feature = "mount")]
    ToolInfo {
        name: "fork",
        description: "Make a fork of the project, in which an attempt changes nothing of the \
                      project. Commands run in it by `nono fork enter NAME -- CMD` in a shell.",
        arguments: &[
            needed("name", Kind::Text, "the name of the new fork: letters, digits, - _ ."),
            optional("from", Kind::Text, "the state from which it begins; usually `now`"),
        ],
        is_read_only: false,
        is_destructive: false,
        is_served_inside: false,
        call: |workspace, given| workspace.fork(&parsed::<forks::ForkArguments>(given)?),
    },
    #[cfg(feature = "mount")]
    ToolInfo {
        name: "merge",
        description: "Bring what was done in a fork into the project: files three ways, commits as \
                      a branch. A change of both sides stays as it is here, and is named. The \
                      state before is kept, so a merge can be taken back.",
        arguments: &[
            FORK,
            optional("paths", Kind::Texts, "only these files and directories"),
            optional(
                "on_conflict",
                Kind::OneOf(&["leave", "ours", "theirs"]),
                "whose side conflicts take: that of the project or of the fork; leave is usual",
            ),
            optional(
                "commits",
                Kind::OneOf(&["with", "without", "only"]),
                "whether commits come, too; with is usual",
            ),
            optional("dry_run", Kind::Flag, "only say what would be merged"),
            CURSOR,
            LIMIT,
        ],
        is_read_only: false,
        is_destructive: true,
        is_served_inside: false,
        call: |workspace, given| workspace.merge(&parsed::<forks::MergeArguments>(given)?),
    },
    #[cfg(feature = "mount")]
    ToolInfo {
        name: "discard",
        description: "Remove forks with all that was changed in them and not merged. A discard \
                      cannot be taken back. A fork with a process in it is refused.",
        arguments: &[needed("names", Kind::Texts, "the forks")],
        is_read_only: false,
        is_destructive: true,
        is_served_inside: false,
        call: |workspace, given| workspace.discard(&parsed::<forks::DiscardArguments>(given)?),
    },
];

const fn optional(name: &'static str, kind: Kind, about: &'static str) -> Argument {
    Argument { name, kind, about, is_needed: false }
}

const fn needed(name: &'static str, kind: Kind, about: &'static str) -> Argument {
    Argument { name, kind, about, is_needed: true }
}

impl ToolInfo {
    /// The tool of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// JSON schema of its arguments.
    pub fn schema(&self) -> Map<String, Value> {
        let property = |argument: &Argument| {
            let mut property = match argument.kind {
                Kind::Text => json!({"type": "string"}),
                Kind::Number => json!({"type": "integer"}),
                Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
                #[cfg(feature = "mount")]
                Kind::Flag => json!({"type": "boolean"}),
                Kind::OneOf(words) => json!({"type": "string", "enum": words}),
            };
            property["description"] = json!(argument.about);
            (argument.name.to_owned(), property)
        };
        let properties: Map<_, _> = self.arguments.iter().map(property).collect();
        let needed = self.arguments.iter().filter(|argument| argument.is_needed);
        let needed: Vec<_> = needed.map(|argument| argument.name).collect();
        let mut schema = Map::new();
        schema.insert("type".to_owned(), json!("object"));
        schema.insert("properties".to_owned(), Value::Object(properties));
        schema.insert("required".to_owned(), json!(needed));
        schema.insert("additionalProperties".to_owned(), json!(false));
        schema
    }

    /// Arguments as they are meant: models write numbers for texts, and null for nothing.
    fn meant(&self, given: Value) -> Result<Value, ToolError> {
        let fields = match given {
            Value::Null => Map::new(),
            Value::Object(fields) => fields,
            _ => return Err(ToolError::arguments("the arguments are no object")),
        };
        let is_text = |name: &str| {
            let found = self.arguments.iter().find(|argument| argument.name == name);
            found.is_some_and(|argument| matches!(argument.kind, Kind::Text))
        };
        let meant = fields.into_iter().filter(|(_, value)| !value.is_null());
        let meant = meant.map(|(name, value)| match value {
            Value::Number(number) if is_text(&name) => (name, Value::String(number.to_string())),
            value => (name, value),
        });
        Ok(Value::Object(meant.collect()))
    }
}

impl Tools for Workspace {
    fn call(&self, tool: &str, arguments: Value) -> Result<Answer, ToolError> {
        let Some(info) = ToolInfo::named(tool) else {
            let tool = super::workspace::cut(tool, 100);
            return Err(ToolError::Arguments(format!("there is no tool {tool:?}")));
        };
        (info.call)(self, info.meant(arguments)?)
    }
}

pub(super) fn parsed<T: DeserializeOwned>(given: Value) -> Result<T, ToolError> {
    serde_json::from_value(given).map_err(|error| ToolError::Arguments(error.to_string()))
}
