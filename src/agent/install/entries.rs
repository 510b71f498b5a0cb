//! The entries in the configuration of each client, and how they are found again.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::json_text::{self, JsonTextError, Key};
use super::{InstallError, Part, Place, Scope};
use crate::agent::Client;

/// Seconds after which a client gives a hook up; far above its own deadline.
const TIMEOUT_SECONDS: u64 = 10;
/// Name of our server and of our hooks.
const NAME: &str = "nono";
/// The plugin for OpenCode.
const PLUGIN: &str = include_str!("opencode_plugin.js");
/// Variables that lead a server to the supervisor of its run.
const VARIABLES: [&str; 2] = ["NONO_SOCKET", "NONO_SESSION"];

/// The meaning of a file of a client's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON with hooks of events.
    Hooks,
    /// JSON with servers below these keys.
    JsonServers(&'static str),
    /// TOML with servers.
    TomlServers,
    /// A file that is ours as a whole.
    Plugin,
}

/// A file of a client's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// Below the base of the place.
    pub(super) path: PathBuf,
    pub(super) form: Form,
    pub(super) part: Part,
}

/// The files of a client that it reads.
pub(super) fn files(client: Client, place: &Place) -> Vec<File> {
    with_alternatives(client, place).into_iter().map(|(file, _)| file).collect()
}

/// Files that held our part if another file was there then, or was not.
pub(super) fn other_files(client: Client, place: &Place) -> Vec<File> {
    with_alternatives(client, place).into_iter().filter_map(|(_, other)| other).collect()
}

/// Each file of a client, and the one that takes its place under other circumstances.
fn with_alternatives(client: Client, place: &Place) -> Vec<(File, Option<File>)> {
    let Place { scope, base, top, dir } = place;
    let is_user = *scope == Scope::User;
    let hooks = |name: &str, form| (File { path: dir.join(name), form, part: Part::Hooks }, None);
    let servers = |path: PathBuf, form| File { path, form, part: Part::Server };
    // The first one, if it is there.
    let either = |first: PathBuf, second: PathBuf, key| {
        let is_there = nono_engine::sys::identity(&base.join(&first)).is_some();
        let (read, other) = if is_there { (first, second) } else { (second, first) };
        let form = Form::JsonServers(key);
        (servers(read, form), Some(servers(other, form)))
    };
    match client {
        Client::ClaudeCode if is_user => vec![
            hooks("settings.json", Form::Hooks),
            either(dir.join(".config.json"), top.join(".claude.json"), "mcpServers"),
        ],
        Client::ClaudeCode => vec![
            hooks("settings.local.json", Form::Hooks),
            (servers(top.join(".mcp.json"), Form::JsonServers("mcpServers")), None),
        ],
        Client::Codex => vec![
            hooks("hooks.json", Form::Hooks),
            (servers(dir.join("config.toml"), Form::TomlServers), None),
        ],
        Client::Gemini => vec![
            hooks("settings.json", Form::Hooks),
            (servers(dir.join("settings.json"), Form::JsonServers("mcpServers")), None),
        ],
        Client::OpenCode => {
            let config = if is_user { dir } else { top };
            vec![
                hooks("plugin/nono.js", Form::Plugin),
                either(config.join("opencode.jsonc"), config.join("opencode.json"), "mcp"),
            ]
        }
    }
}

/// Events of a client, and whether they are about tools.
fn events(client: Client) -> &'static [(&'static str, bool)] {
    match client {
        Client::ClaudeCode => &[
            ("SessionStart", false),
            ("UserPromptSubmit", false),
            ("PreToolUse", true),
            ("PostToolUse", true),
            ("PostToolUseFailure", true),
            ("SubagentStop", false),
            ("Stop", false),
            ("SessionEnd", false),
        ],
        Client::Codex => &[
            ("SessionStart", false),
            ("UserPromptSubmit", false),
            ("PreToolUse", true),
            ("PostToolUse", true),
            ("SubagentStop", false),
            ("Stop", false),
            ("SessionEnd", false),
        ],
        Client::Gemini => &[
            ("SessionStart", false),
            ("BeforeAgent", false),
            ("BeforeTool", true),
            ("AfterTool", true),
            ("AfterAgent", false),
            ("SessionEnd", false),
        ],
        // It has a plugin.
        Client::OpenCode => &[],
    }
}

/// The command of a hook, as a shell reads it.
fn command(client: Client, program: &Path) -> String {
    let program = program.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let quoted = match program.chars().all(is_plain) {
        true => program.into_owned(),
        false => format!("'{}'", program.replace('\'', "'\\''")),
    };
    format!("{quoted} hook {}", client.name())
}

/// Whether a command is a hook of ours, wherever the program lies.
fn is_ours(client: Client, command: &str) -> bool {
    let program = command.strip_suffix(&format!(" hook {}", client.name()));
    program.is_some_and(|program| program.trim_end_matches('\'').ends_with(NAME))
}

/// The entry that is added to the hooks of an event.
fn group(client: Client, program: &Path, is_tool: bool) -> Value {
    let timeout = match client {
        Client::Gemini => TIMEOUT_SECONDS * 1000,
        _ => TIMEOUT_SECONDS,
    };
    let mut hook =
        json!({"type": "command", "command": command(client, program), "timeout": timeout});
    if client == Client::Gemini {
        hook["name"] = json!(NAME);
    }
    match is_tool {
        true => json!({"matcher": "*", "hooks": [hook]}),
        false => json!({"hooks": [hook]}),
    }
}

/// A file with our part in it.
pub(super) fn with_ours(
    client: Client,
    form: Form,
    text: &str,
    program: &Path,
) -> Result<String, InstallError> {
    let arguments = json!(["mcp"]);
    let shown = program.to_string_lossy();
    match form {
        Form::Plugin => Ok(PLUGIN.replace("__PROGRAM__", &json!(shown).to_string())),
        Form::Hooks => {
            let mut text = without_other_hooks(client, text, program)?;
            for (event, is_tool) in events(client) {
                let item = group(client, program, *is_tool);
                if !has(&text, event, &item)? {
                    text = json_text::push(&text, &["hooks", event], &item)?;
                }
            }
            Ok(text)
        }
        Form::JsonServers(key) => {
            let server = match client {
                Client::OpenCode => {
                    json!({"type": "local", "command": [shown, "mcp"], "enabled": true})
                }
                Client::ClaudeCode => {
                    json!({"type": "stdio", "command": shown, "args": arguments, "env": {}})
                }
                _ => json!({"command": shown, "args": arguments}),
            };
            let known = json_text::value(text)?;
            if known.get(key).and_then(|servers| servers.get(NAME)) == Some(&server) {
                return Ok(text.to_owned());
            }
            Ok(json_text::set(text, &[key, NAME], &server)?)
        }
        Form::TomlServers => {
            let mut document: toml_edit::DocumentMut = text.parse()?;
            let servers = document.entry("mcp_servers").or_insert_with(|| {
                let mut table = toml_edit::Table::new();
                table.set_implicit(true);
                table.into()
            });
            let Some(servers) = servers.as_table_like_mut() else {
                return Err(
                    JsonTextError::Shape { at: "mcp_servers".into(), expected: "table" }.into()
                );
            };
            let list = |words: &[&str]| words.iter().copied().collect::<toml_edit::Array>();
            let mut server = toml_edit::Table::new();
            server.insert("command", toml_edit::value(&*shown));
            server.insert("args", toml_edit::value(list(&["mcp"])));
            server.insert("env_vars", toml_edit::value(list(&VARIABLES)));
            let new = toml_edit::Item::Table(server);
            if servers.get(NAME).is_none_or(|known| known.to_string() != new.to_string()) {
                servers.insert(NAME, new);
            }
            Ok(document.to_string())
        }
    }
}

/// A file without our part; `None`: nothing is left of it.
pub(super) fn without_ours(
    client: Client,
    form: Form,
    text: &str,
) -> Result<Option<String>, InstallError> {
    let without = match form {
        Form::Plugin => return Ok(None),
        Form::Hooks => without_hooks(text, |command| is_ours(client, command))?,
        Form::JsonServers(key) => {
            let value = json_text::value(text)?;
            let Some(servers) = value.get(key).filter(|servers| servers.get(NAME).is_some()) else {
                return Ok(Some(text.to_owned()));
            };
            let is_only = servers.as_object().is_some_and(|servers| servers.len() == 1);
            match is_only {
                true => json_text::remove(text, &[Key::Name(key)])?,
                false => json_text::remove(text, &[Key::Name(key), Key::Name(NAME)])?,
            }
        }
        Form::TomlServers => {
            let mut document: toml_edit::DocumentMut = text.parse()?;
            if let Some(servers) =
                document.get_mut("mcp_servers").and_then(|item| item.as_table_like_mut())
            {
                servers.remove(NAME);
            }
            document.to_string()
        }
    };
    Ok(Some(without))
}

/// Whether our part is in a file, and as it has to be.
pub(super) fn state(client: Client, form: Form, text: &str, program: &Path) -> State {
    let is_current = with_ours(client, form, text, program).is_ok_and(|with| with == text);
    let is_there = match form {
        Form::Plugin => !text.is_empty(),
        _ => without_ours(client, form, text).is_ok_and(|without| without.as_deref() != Some(text)),
    };
    match (is_there, is_current) {
        (true, true) => State::Installed,
        (true, false) => State::Outdated,
        (false, _) => State::Missing,
    }
}

/// How our part of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is there.
    Installed,
    /// It is there and names another program, or lacks something.
    Outdated,
    /// It is not there.
    Missing,
}

fn has(text: &str, event: &str, item: &Value) -> Result<bool, InstallError> {
    let value = json_text::value(text)?;
    let items = value.get("hooks").and_then(|hooks| hooks.get(event)).and_then(Value::as_array);
    Ok(items.is_some_and(|items| items.contains(item)))
}

/// Without hooks of ours that name another program.
fn without_other_hooks(client: Client, text: &str, program: &Path) -> Result<String, InstallError> {
    let current = command(client, program);
    without_hooks(text, |command| is_ours(client, command) && command != current)
}

/// Without the hooks whose commands are to go, and without what held nothing else.
fn without_hooks(text: &str, goes: impl Fn(&str) -> bool) -> Result<String, InstallError> {
    let mut text = text.to_owned();
    let before = json_text::value(&text)?;
    let Some(hooks) = before.get("hooks").and_then(Value::as_object) else { return Ok(text) };
    let goes = |hook: &Value| hook.get("command").and_then(Value::as_str).is_some_and(&goes);
    let mut has_removed = false;
    for (event, groups) in hooks {
        let groups = groups.as_array().map(Vec::as_slice).unwrap_or_default();
        let mut left = groups.len();
        for (at, group) in groups.iter().enumerate().rev() {
            let all = group.get("hooks").and_then(Value::as_array);
            let all = all.map(Vec::as_slice).unwrap_or_default();
            let path = [Key::Name("hooks"), Key::Name(event), Key::Index(at)];
            if !all.is_empty() && all.iter().all(goes) {
                text = json_text::remove(&text, &path)?;
                left -= 1;
                has_removed = true;
                continue;
            }
            for (index, _) in all.iter().enumerate().rev().filter(|(_, hook)| goes(hook)) {
                let inner = [&path[..], &[Key::Name("hooks"), Key::Index(index)]].concat();
                text = json_text::remove(&text, &inner)?;
                has_removed = true;
            }
        }
        if left == 0 && !groups.is_empty() {
            text = json_text::remove(&text, &[Key::Name("hooks"), Key::Name(event)])?;
        }
    }
    let after = json_text::value(&text)?;
    let is_empty = after.get("hooks").and_then(Value::as_object).is_some_and(|it| it.is_empty());
    if has_removed && is_empty {
        text = json_text::remove(&text, &[Key::Name("hooks")])?;
    }
    Ok(text)
}
