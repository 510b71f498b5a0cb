//! The way back into a conversation: the client's own command that goes on from before a prompt.
//!
//! Claude Code alone has such a command. It names the last answer before the prompt, which stands
//! in the transcript of the session. Other clients go on with a whole session or not at all, and
//! get no command here.
//!
//! A transcript is hostile and another program's: lines that are no entries are passed over, and
//! where the prompt or an answer before it is not found, there is no command.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::event::Client;
use nono_engine::sys::{self, Dir};

/// A longer transcript is read up to here.
const MAX_BYTES: u64 = 256 << 20;
/// The mark of a recorded prompt that was cut.
const CUT: char = '…';

/// A prompt whose conversation is looked for.
#[derive(Debug, Clone)]
pub struct AskedPrompt {
    /// The client's name.
    pub client: String,
    /// The client's own id of its session.
    pub session: String,
    /// The beginning of the prompt's text, as it was recorded.
    pub text: String,
    /// A time after the prompt and before the next one: that of its first step.
    pub answered: Timestamp,
}

/// An entry of a transcript.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    uuid: String,
    #[serde(default)]
    parent_uuid: Option<String>,
    timestamp: Timestamp,
    #[serde(default)]
    is_sidechain: bool,
    #[serde(default)]
    message: Value,
}

/// The words of the command that goes on from before a prompt, without the next prompt.
/// `claude_home`: the directory of Claude Code's own files.
///
/// # Errors
/// When a directory or the transcript cannot be read.
pub fn command_before(
    prompt: &AskedPrompt,
    claude_home: &Path,
) -> sys::Result<Option<Vec<String>>> {
    let is_id = |id: &str| {
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if prompt.client != Client::ClaudeCode.name() || !is_id(&prompt.session) {
        return Ok(None);
    }
    let Some(transcript) = transcript(&prompt.session, claude_home)? else { return Ok(None) };
    let answer = answer_before(prompt, BufReader::new(transcript.take(MAX_BYTES)));
    Ok(answer.filter(|id| is_id(id)).map(|answer| {
        let words = [Client::ClaudeCode.program(), "-p", "--resume", &prompt.session];
        let more = ["--resume-session-at", &answer, "--fork-session"];
        words.into_iter().chain(more).map(str::to_owned).collect()
    }))
}

/// The transcript of a session. It lies in a directory for the place where the client worked.
fn transcript(session: &str, claude_home: &Path) -> sys::Result<Option<File>> {
    let projects = match Dir::open(&claude_home.join("projects")) {
        Err(error) if error.is_gone() => return Ok(None),
        projects => projects?,
    };
    for project in projects.names()? {
        let path = [&*project.name, b"/", session.as_bytes(), b".jsonl"].concat();
        match projects.open_file(&path, false) {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The id of the last answer before a prompt.
fn answer_before(prompt: &AskedPrompt, transcript: impl BufRead) -> Option<String> {
    let recorded = prompt.text.trim();
    let is_it = |text: &str| {
        let text = text.trim();
        let beginning = recorded.strip_suffix(CUT);
        text == recorded || beginning.is_some_and(|beginning| text.starts_with(beginning))
    };
    // The entry before each one, and whether it is an answer.
    let mut entries: HashMap<String, (Option<String>, bool)> = HashMap::new();
    let mut asked = None;
    for line in transcript.split(b'\n') {
        let Ok(line) = line else { break };
        let Ok(entry) = serde_json::from_slice::<Entry>(&line) else { continue };
        let is_asked = entry.kind == "user"
            && !entry.is_sidechain
            && entry.timestamp <= prompt.answered
            && text_of(&entry.message).is_some_and(|text| is_it(&text));
        if is_asked {
            asked.clone_from(&entry.parent_uuid);
        }
        let is_answer = entry.kind == "assistant";
        entries.insert(entry.uuid, (entry.parent_uuid, is_answer));
    }
    let mut at = asked?;
    // A chain that bites its tail ends here as well.
    while let Some((before, is_answer)) = entries.remove(&at) {
        if is_answer {
            return Some(at);
        }
        at = before?;
    }
    None
}

/// The text of a user's message; none for the result of a tool.
fn text_of(message: &Value) -> Option<String> {
    let content = message.get("content")?;
    if let Some(text) = content.as_str() {
        return Some(text.to_owned());
    }
    let parts = content.as_array()?.iter().filter_map(|part| part.get("text")?.as_str());
    let text = parts.collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make what they look at")]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(kind: &str, uuid: &str, parent: Option<&str>, second: u8, content: Value) -> String {
        let timestamp = format!("2026-11-28T12:00:{second:02}Z");
        let entry = json!({
            "type": kind, "uuid": uuid, "parentUuid": parent, "timestamp": timestamp,
            "message": {"content": content},
        });
        format!("{entry}\n")
    }

    fn conversation() -> String {
        [
            "no entry\n{\"type\":\"mode\"}\n".to_owned(),
            line("user", "p1", None, 1, json!("do it")),
            line("attachment", "x1", Some("p1"), 1, json!(null)),
            line("assistant", "a1", Some("x1"), 2, json!([{"type": "tool_use"}])),
            line("user", "r1", Some("a1"), 3, json!([{"tool_use_id": "1", "content": "do it"}])),
            line("assistant", "a2", Some("r1"), 4, json!([{"text": "done"}])),
            line("user", "p2", Some("a2"), 5, json!([{"type": "text", "text": "do it again"}])),
            line("assistant", "a3", Some("p2"), 6, json!([{"text": "done"}])),
            line("attachment", "x2", Some("a3"), 7, json!(null)),
            line("user", "p3", Some("x2"), 8, json!("do it")),
        ]
        .concat()
    }

    fn asked(text: &str, second: u8) -> AskedPrompt {
        AskedPrompt {
            client: "claude-code".to_owned(),
            session: "5e55-10".to_owned(),
            text: text.to_owned(),
            answered: format!("2026-11-28T12:00:{second:02}Z").parse().unwrap(),
        }
    }

    #[test]
    fn the_answer_before_a_prompt_is_found_by_its_text_and_its_time() {
        let answer = |prompt| answer_before(&prompt, conversation().as_bytes());
        assert_eq!(answer(asked("do it again", 6)).as_deref(), Some("a2"));
        assert_eq!(answer(asked("do it ag…", 6)).as_deref(), Some("a2"));
        assert_eq!(answer(asked("do it", 9)).as_deref(), Some("a3"));
        assert_eq!(answer(asked("do it", 7)), None, "nothing is before the first prompt");
        assert_eq!(answer(asked("something else", 9)), None);
    }

    #[test]
    fn a_chain_of_entries_that_bites_its_tail_has_an_end() {
        let text = [
            line("user", "a", Some("b"), 1, json!("x")),
            line("user", "b", Some("a"), 1, json!([])),
        ];
        assert_eq!(answer_before(&asked("x", 2), text.concat().as_bytes()), None);
    }

    #[test]
    fn a_command_names_the_session_and_other_clients_and_hostile_ids_have_none() {
        let home = tempfile::tempdir().unwrap();
        let prompt = asked("do it again", 6);
        assert_eq!(command_before(&prompt, home.path()).unwrap(), None);
        let project = home.path().join("projects/-home-ada-shop");
        std::fs::create_dir_all(&project).unwrap();
        std::fs::write(home.path().join("projects/file"), "").unwrap();
        std::fs::write(project.join("5e55-10.jsonl"), conversation()).unwrap();
        let words = command_before(&prompt, home.path()).unwrap().unwrap();
        let wanted = "claude -p --resume 5e55-10 --resume-session-at a2 --fork-session";
        assert_eq!(words.join(" "), wanted);
        let other = AskedPrompt { client: "codex".to_owned(), ..prompt.clone() };
        assert_eq!(command_before(&other, home.path()).unwrap(), None);
        let hostile = AskedPrompt { session: "../-home-ada-shop/5e55-10".to_owned(), ..prompt };
        assert_eq!(command_before(&hostile, home.path()).unwrap(), None);
    }
}
