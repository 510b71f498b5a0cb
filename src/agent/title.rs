//! A call in a few words: the command, the files, the label.

use std::path::Path;

use serde_json::Value;

use nono_engine::snapshot::MAX_STEP_TITLE_BYTES;

/// Fields of an input that say what a call is about, the best first.
const TELLING: [&str; 15] = [
    "command",
    "cmd",
    "file_path",
    "filePath",
    "notebook_path",
    "absolute_path",
    "path",
    "paths",
    "label",
    "query",
    "url",
    "pattern",
    "name",
    "description",
    "chars",
];
/// How a patch names the files that it is about.
const FILES: [&str; 4] =
    ["*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "];

/// A call in a few words. Paths are shown from `cwd`.
pub(super) fn of(input: &Value, cwd: Option<&Path>) -> String {
    let said = TELLING.iter().find_map(|field| Some((*field, words(input.get(field)?)?)));
    let text = match said {
        Some((_, patch)) if is_patch(&patch) => files(&patch).join(", "),
        Some((field, path)) if field.to_ascii_lowercase().contains("path") => {
            let shown = cwd.and_then(|cwd| Path::new(&path).strip_prefix(cwd).ok()?.to_str());
            shown.filter(|shown| !shown.is_empty()).unwrap_or(&path).to_owned()
        }
        Some((_, text)) => text,
        None => match input.get("patchText").or_else(|| input.get("patch")).and_then(Value::as_str)
        {
            Some(patch) => files(patch).join(", "),
            None if input.as_object().is_none_or(serde_json::Map::is_empty) => String::new(),
            None => input.to_string(),
        },
    };
    text.chars().take(MAX_STEP_TITLE_BYTES + 1).collect()
}

/// A text, or a list of words such as a command.
fn words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Array(items) => {
            let words: Vec<_> = items.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(" "))
        }
        _ => None,
    }
}

/// Whether a text is a patch, and no command.
pub(super) fn is_patch(text: &str) -> bool {
    text.trim_start().starts_with("*** Begin Patch")
}

/// The files of the patch in an input.
pub(super) fn patched_files(input: &Value) -> Vec<String> {
    let texts = ["command", "input", "patchText", "patch"];
    let patches = texts.iter().filter_map(|field| input.get(field)?.as_str());
    patches.filter(|text| is_patch(text)).flat_map(files).map(str::to_owned).collect()
}

fn files(patch: &str) -> Vec<&str> {
    let named = patch.lines().filter_map(|line| FILES.iter().find_map(|f| line.strip_prefix(f)));
    named.map(str::trim).collect()
}
