//! The command that was probably meant by a word that is none: a slip of the pen, or the word that
//! other programs have for it.
//!
//! `clap` offers whatever shares some letters (`remote` for `rm`). A tip that leads astray is worse
//! than none, so an offered word differs by a slip, or means the same.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

/// Words of other programs, and the command that does this here.
const OTHER_WORDS: [(&str, &str); 24] = [
    ("back", "undo"),
    ("changes", "diff"),
    ("checkout", "restore"),
    ("checkpoint", "snapshot"),
    ("clean", "cleanup"),
    ("commit", "snapshot"),
    ("delete", "cleanup"),
    ("exec", "run"),
    ("gc", "cleanup"),
    ("history", "log"),
    ("ls", "list"),
    ("prune", "cleanup"),
    ("record", "run"),
    ("recover", "restore"),
    ("remove", "cleanup"),
    ("reset", "undo"),
    ("revert", "undo"),
    ("rm", "cleanup"),
    ("save", "snapshot"),
    ("search", "grep"),
    ("sessions", "list"),
    ("st", "status"),
    ("unmount", "umount"),
    ("wrap", "run"),
];

/// Flags that other programs have, by our command, and what has that effect here.
const OTHER_FLAGS: [(&str, &str, &str); 9] = [
    ("diff", "--cached", "`git diff --cached` shows what is staged"),
    ("diff", "--staged", "`git diff --staged` shows what is staged"),
    ("diff", "-p", "the difference is a patch without it"),
    ("list", "--oneline", "each session is a line without it"),
    ("log", "--oneline", "`nono list` has a line for each session"),
    ("log", "--stat", "`nono diff ID --stat` counts the lines of a session's changes"),
    ("log", "-n", "`nono list --recent N` has the newest N sessions"),
    ("status", "--short", "`nono diff --name-only` has the changed paths alone"),
    ("status", "-s", "`nono diff --name-only` has the changed paths alone"),
];

/// The error with tips that help, or with none.
pub(super) fn with_fitting_tip(
    mut error: clap::Error,
    given: &[OsString],
    program: &clap::Command,
) -> clap::Error {
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) {
        let tip = flag_tip(flag, given);
        // A tip about values misleads where the flag is none.
        let is_about_values = |error: &clap::Error| match error.get(ContextKind::Suggested) {
            Some(ContextValue::StyledStrs(tips)) => {
                tips.iter().any(|tip| tip.to_string().contains("as a value"))
            }
            _ => false,
        };
        if tip.is_some() || is_about_values(&error) {
            error.remove(ContextKind::Suggested);
        }
        if let Some(tip) = tip {
            let tip = StyledStr::from(tip);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
        }
        return error;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let word = word.clone();
    let (within, place) = place_of(&word, given, program);
    let (text, strings) = (ContextKind::Suggested, ContextKind::SuggestedSubcommand);
    error.remove(text);
    let offered = error.remove(strings);
    if let Some((meant, about)) = meant(&word, within) {
        let place = place.iter().map(|word| format!("{word} ")).collect::<String>();
        let tip = StyledStr::from(format!("`nono {place}{meant}` is probably meant: {about}"));
        error.insert(text, ContextValue::StyledStrs(vec![tip]));
        return error;
    }
    let mut offered = match offered {
        Some(ContextValue::Strings(offered)) => offered,
        Some(ContextValue::String(offered)) => vec![offered],
        _ => Vec::new(),
    };
    offered.retain(|known| is_slip(&word, known));
    if !offered.is_empty() {
        error.insert(strings, ContextValue::Strings(offered));
    }
    error
}

/// The command in which a word was to be a subcommand, and its words.
fn place_of<'a>(
    word: &str,
    given: &'a [OsString],
    program: &'a clap::Command,
) -> (&'a clap::Command, Vec<&'a str>) {
    let (mut within, mut place) = (program, Vec::new());
    for known in given.iter().skip(1).map_while(|it| it.to_str()).filter(|it| !it.starts_with('-'))
    {
        let inner = Some(known).filter(|known| *known != word);
        match inner.and_then(|known| within.find_subcommand(known)) {
            Some(inner) => within = inner,
            None => break,
        }
        place.push(known);
    }
    (within, place)
}

/// The command of a place that another program's word means, or that begins with the word, if there
/// is one such command, with its help.
fn meant<'a>(word: &str, within: &'a clap::Command) -> Option<(&'a str, String)> {
    let other = OTHER_WORDS.iter().find(|(other, _)| *other == word);
    let known = other.and_then(|(_, meant)| within.find_subcommand(meant));
    let shortened = || {
        let begins = |it: &&clap::Command| !it.is_hide_set() && it.get_name().starts_with(word);
        let mut all = within.get_subcommands().filter(begins);
        all.next().filter(|_| word.len() > 1 && all.next().is_none())
    };
    let command = known.or_else(shortened)?;
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    Some((command.get_name(), about))
}

/// The tip for a flag of another program, behind the command of ours that it is given to.
fn flag_tip(flag: &str, given: &[OsString]) -> Option<&'static str> {
    let is_given = |command: &str| given.iter().skip(1).any(|word| word == command);
    let found = OTHER_FLAGS.iter().find(|(command, it, _)| *it == flag && is_given(command));
    found.map(|(_, _, tip)| *tip)
}

/// Whether at most a third of a word is typed wrong.
fn is_slip(word: &str, known: &str) -> bool {
    let most = (known.chars().count() / 3).max(1);
    strsim::osa_distance(word, known) <= most
}

#[cfg(test)]
mod tests {
    use super::super::groups::program;
    use super::*;

    fn told(words: &[&str]) -> String {
        let given: Vec<OsString> = ["nono"].iter().chain(words).map(OsString::from).collect();
        let program = program();
        let error = program.clone().try_get_matches_from(&given).unwrap_err();
        with_fitting_tip(error, &given, &program).to_string()
    }

    #[test]
    fn a_slip_is_mended_another_word_is_known_and_letters_alone_are_no_tip() {
        for (word, meant) in [("statsu", "status"), ("lsit", "list"), ("reedo", "redo")] {
            let told = told(&[word]);
            assert!(told.contains(&format!("'{meant}'")), "{word}: {told}");
        }
        for (word, meant) in OTHER_WORDS {
            let told = told(&[word]);
            assert!(told.contains(&format!("`nono {meant}` is probably meant")), "{word}: {told}");
        }
        for word in ["nonsense", "xyz", "mr", "rewind-everything"] {
            let told = told(&[word]);
            assert!(!told.contains("tip:") && told.contains(word), "{word}: {told}");
        }
        assert!(!told(&["--quiet", "rm"]).contains("remote"));
        for (words, meant) in [
            (&["remote", "ls"][..], "`nono remote list` is probably meant"),
            (&["profile", "ls"], "`nono profile list` is probably meant"),
            (&["agent", "stat"], "`nono agent status` is probably meant"),
            (&["stat"], "`nono status` is probably meant"),
        ] {
            assert!(told(words).contains(meant), "{words:?}: {}", told(words));
        }
        // No command there is meant, and an empty tip is none.
        assert!(!told(&["agent", "rm"]).contains("\n\n\n"), "{}", told(&["agent", "rm"]));
    }

    #[test]
    fn each_known_word_is_no_command_and_leads_to_one() {
        let program = program();
        assert!(OTHER_WORDS.is_sorted());
        for (word, meant) in OTHER_WORDS {
            assert!(program.find_subcommand(word).is_none(), "{word}");
            assert!(program.find_subcommand(meant).is_some(), "{meant}");
        }
    }
}
