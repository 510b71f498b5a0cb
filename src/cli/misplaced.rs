//! A subcommand of `rollback` that was typed without it: the command as it has to be typed.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::commands::undo::is_subcommand;
use super::error::CliError;
use super::shell_word::shell_word;

/// The message instead of an error of the parser, if the word belongs behind `rollback`.
pub(super) fn explained(error: &clap::Error, given: &[OsString]) -> Option<CliError> {
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return None;
    };
    let at = given.iter().skip(1).position(|argument| argument == word.as_str())? + 1;
    if !is_subcommand(word) {
        return None;
    }
    let shown = |arguments: &[OsString]| -> Option<String> {
        let words: Option<Vec<_>> =
            arguments.iter().map(|argument| shell_word(Path::new(argument))).collect();
        Some(words?.join(" "))
    };
    // Text that is unfit for a terminal is left out.
    let before = shown(&given[1..at]).filter(|before| !before.is_empty());
    let before = before.map_or(String::new(), |before| format!("{before} "));
    let rest = shown(&given[at..]).unwrap_or_else(|| word.clone());
    Some(
        CliError::usage(format!("`{word}` is a command of `nono rollback`"))
            .with_hint(format!("nono {before}rollback {rest}")),
    )
}
