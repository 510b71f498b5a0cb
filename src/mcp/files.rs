//! `read_file_at` and `find_in_history`: single paths of the past.

use std::os::unix::ffi::OsStrExt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pages::{PAGE_BYTES, Window, answer, page, position};
use super::workspace::is_in_git;
use super::{Answer, ToolError, Workspace};
use nono_engine::counted::counted;
use nono_engine::diff::{EntryState, Lookup};
use nono_engine::history::{Found, Objects, find};
use nono_engine::object::{Node, TreeEntry};
use nono_engine::path_text::{Shown, encode};
use nono_engine::session::SessionSummary;
use nono_engine::snapshot::NotCapturedSet;
use nono_engine::store::{ObjectSource, read_root_tree, read_tree};

/// Larger files are described, in bytes: every byte is checked before one is shown.
const MAX_FILE_BYTES: u64 = 16 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    path: String,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FindArguments {
    glob: String,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
}

impl Workspace {
    pub(super) fn read_file_at(&self, arguments: &ReadArguments) -> Result<Answer, ToolError> {
        let from = position(arguments.cursor.as_deref())?.unwrap_or(0);
        let path = self.path(&arguments.path)?;
        let named = self.state(arguments.at.as_deref())?;
        let state = named.load()?;
        let bytes = path.as_os_str().as_bytes();
        let root = read_root_tree(state.source(), &state.manifest().merkle_root)?;
        let found = Lookup::new(state.source(), &root).find(bytes)?;
        let shown = Shown::path(&path).to_string();
        let Some(EntryState { node, attributes }) = found else {
            let unknown = NotCapturedSet::new(state.manifest());
            let why = match unknown.reason(bytes) {
                Some(reason) => format!("it was not captured: {reason}"),
                None => "nothing was there, or a symlink is on the way".to_owned(),
            };
            return Err(ToolError::Arguments(format!("{shown} in {}: {why}", named.name())));
        };
        let mut data = json!({
            "path": self.named(bytes),
            "at": named.name(),
            "kind": node.kind_name(),
            "mode": format!("{:04o}", attributes.mode),
        });
        let mut also = |key: &str, value: Value| data[key] = value;
        let at = named.name();
        let (head, recorded, next) = match node {
            Node::File { size, hash, .. } => {
                also("size", json!(size));
                also("sha256", json!(hash));
                let why_not = if self.hides(bytes) {
                    Some("its name is one that the settings hide (mcp_hidden)")
                } else if is_in_git(bytes) {
                    Some("it belongs to git")
                } else if size > MAX_FILE_BYTES {
                    Some("it is long; `nono cat` prints it")
                } else {
                    None
                };
                let contents = match why_not {
                    Some(_) => None,
                    None => Some(state.source().read(&hash, size)?),
                };
                match (contents, why_not) {
                    (Some(contents), _) if is_text(&contents) => {
                        let (text, next) = self.text(&contents, from);
                        also("text", json!(text));
                        (format!("{shown} in {at}, {size} bytes from {from} on."), text, next)
                    }
                    (Some(_), _) => {
                        also("binary", json!(true));
                        (
                            format!("{shown} in {at}: a binary file, {size} bytes."),
                            String::new(),
                            None,
                        )
                    }
                    (None, why) => {
                        let why = why.unwrap_or_default();
                        also("not_shown", json!(why));
                        let head = format!("{shown} in {at}: {size} bytes, not shown: {why}.");
                        (head, String::new(), None)
                    }
                }
            }
            Node::Symlink { target } => {
                also("target", json!(encode(&target)));
                let target = Shown::bytes(&target).to_string();
                (format!("{shown} in {at}: a symlink, not followed."), target, None)
            }
            Node::Directory { tree } => {
                let entries = read_tree(state.source(), &tree)?.into_entries();
                let mark = |entry: &TreeEntry| match entry.node {
                    Node::Directory { .. } => "/",
                    _ => "",
                };
                let line =
                    |entry: &TreeEntry| format!("{}{}\n", Shown::bytes(&entry.name), mark(entry));
                let (entries, next) = page(entries, arguments.cursor.as_deref(), None, line)?;
                let name = |entry: &TreeEntry| format!("{}{}", encode(&entry.name), mark(entry));
                also("entries", json!(entries.iter().map(name).collect::<Vec<_>>()));
                let listed: String = entries.iter().map(line).collect();
                (format!("{shown} in {at}: a directory."), listed, next)
            }
            other => (format!("{shown} in {at}: a {}.", other.kind_name()), String::new(), None),
        };
        Ok(answer(&head, &recorded, next, data))
    }

    fn text(&self, contents: &[u8], from: u64) -> (String, Option<String>) {
        let mut window = Window::new(from);
        // A page that is full says so itself.
        let _ = std::io::Write::write_all(&mut window, contents);
        debug_assert!(
            window.is_full() || contents.len() as u64 <= from.saturating_add(PAGE_BYTES as u64)
        );
        window.finish()
    }

    pub(super) fn find_in_history(&self, arguments: &FindArguments) -> Result<Answer, ToolError> {
        let glob = self.glob(&arguments.glob)?;
        let (mut all, _) = self.sessions()?;
        // As everywhere: what archives brought counts only where it is asked for by its id.
        all.retain(|session| !session.received || self.is_asked_for(session));
        let mut sessions = Vec::new();
        for SessionSummary { session_id, .. } in &all {
            sessions.push(self.catalog.find(session_id)?);
        }
        let (objects, unopened) = Objects::of(&sessions);
        let (mut found, mut damaged) = find(&glob, &sessions, &objects as &dyn ObjectSource);
        damaged.extend(unopened);
        found.retain(|found| self.holds(&found.path) && !is_in_git(&found.path));
        let count = found.len();
        let line = |one: &Found| {
            let (newest, path) = (&one.newest, self.named(&one.path));
            let time = newest.timestamp;
            format!("{newest}  {time:.0}  {}\n", Shown::bytes(path.as_bytes()))
        };
        let (found, next) = page(found, arguments.cursor.as_deref(), arguments.limit, line)?;
        let recorded: String = found.iter().map(line).collect();
        let mut listed = Vec::new();
        for one in &found {
            let path = self.named(&one.path);
            let (newest, oldest) = (one.newest.to_string(), one.oldest.to_string());
            let size = match one.state.node {
                Node::File { size, .. } => Some(size),
                _ => None,
            };
            listed.push(json!({
                "path": path,
                "kind": one.state.node.kind_name(),
                "size": size,
                "at": newest,
                "timestamp": one.newest.timestamp,
                "same_since": oldest,
                "state_count": one.count,
            }));
        }
        let mut head = format!(
            "{} in {}; each with the newest state that has it.",
            counted(count, "path matches", "paths match"),
            counted(sessions.len(), "session", "sessions")
        );
        if !damaged.is_empty() {
            let unread = counted(damaged.len(), "session", "sessions");
            head.push_str(&format!(" {unread} could not be searched."));
        }
        let data = json!({
            "match_count": count, "matches": listed, "damaged_session_count": damaged.len(),
        });
        Ok(answer(&head, &recorded, next, data))
    }
}

/// Whether contents are text that a model can read.
fn is_text(contents: &[u8]) -> bool {
    !contents.contains(&0) && std::str::from_utf8(contents).is_ok()
}
