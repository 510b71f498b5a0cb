//! Commands that look at the past, typed in a fork: they mean the fork.
//!
//! The store is out of reach there. So the supervisor of the command runs them, on the fork and on
//! its session alone. The command is not trusted: only these commands, these flags of them and no
//! name of a session come through, and paths stand behind `--`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::Outcome;
use crate::cli::checkpoints::{self, SOCKET_VARIABLE};
use crate::cli::command_tree::{Command, Rollback};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::inside::fork_around;
use nono_engine::fork::Fork;
use nono_engine::sys;

/// A command as it was typed, with absolute paths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::cli) struct Look {
    verb: Verb,
    flags: Vec<String>,
    words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Status,
    Diff,
    Log,
    Cat,
    Grep,
}

impl Verb {
    #[cfg(test)]
    const ALL: [Self; 5] = [Self::Status, Self::Diff, Self::Log, Self::Cat, Self::Grep];

    fn of(command: &Command) -> Option<Self> {
        Some(match command {
            Command::Status(_) => Self::Status,
            Command::Log(_) => Self::Log,
            Command::Grep(_) => Self::Grep,
            Command::Rollback { command: Rollback::Diff(_) } => Self::Diff,
            Command::Rollback { command: Rollback::Cat(_) } => Self::Cat,
            _ => return None,
        })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Diff => "diff",
            Self::Log => "log",
            Self::Cat => "cat",
            Self::Grep => "grep",
        }
    }

    /// The flags that mean the same for a fork.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Log => &["--json"],
            Self::Diff => {
                &["--json", "--stat", "--name-only", "--binary", "--side-by-side", "--full"]
            }
            Self::Cat => &[],
            Self::Grep => &[
                "--json",
                "--ignore-case",
                "-i",
                "--word-regexp",
                "-w",
                "--fixed-strings",
                "-F",
                "--files-with-matches",
                "-l",
                "--count",
                "-c",
            ],
        }
    }

    /// The number of words in front of the paths that are none, and of all words.
    fn counts(self) -> (usize, usize) {
        match self {
            Self::Status | Self::Log => (0, 0),
            Self::Diff => (0, usize::MAX),
            Self::Cat => (0, 2),
            Self::Grep => (1, usize::MAX),
        }
    }
}

/// Carries a command that looks out for the fork around this process; `None` elsewhere, and for
/// every other command.
pub(in crate::cli) fn look(command: &Command, context: &Context) -> Option<Outcome> {
    let verb = Verb::of(command)?;
    fork_around()?;
    let socket = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty())?;
    let asked = Look::typed(verb, std::env::args_os().skip(1));
    Some(asked.and_then(|look| checkpoints::ask_look(socket.as_ref(), look, context)))
}

impl Look {
    /// The command as it was typed.
    fn typed(
        verb: Verb,
        given: impl Iterator<Item = std::ffi::OsString>,
    ) -> Result<Self, CliError> {
        let text = |word: std::ffi::OsString| {
            word.into_string().map_err(|word| {
                CliError::usage(format!("in a fork, {word:?} cannot be asked for: it is no text"))
            })
        };
        let mut given =
            given.map(text).skip_while(|word| !matches!(word, Ok(word) if word == verb.word()));
        given.next().transpose()?;
        let here = sys::current_dir()?;
        let absolute = |word: &str| -> Result<String, CliError> {
            let path = sys::plain_absolute(Path::new(word), &here);
            text(path.into_os_string())
        };
        let mut look = Self { verb, flags: Vec::new(), words: Vec::new() };
        let mut are_paths = false;
        for word in given {
            let word = word?;
            if !are_paths && word == "--" {
                are_paths = true;
            } else if !are_paths && word.len() > 1 && word.starts_with('-') {
                look.flags.push(word);
            } else {
                look.words.push(word);
            }
        }
        let numbered = verb == Verb::Cat && look.words.len() > 1;
        let first_path = verb.counts().0 + usize::from(numbered);
        for word in look.words.iter_mut().skip(first_path) {
            *word = absolute(word)?;
        }
        look.checked()
    }

    /// The same, unless it means more than the fork.
    fn checked(self) -> Result<Self, CliError> {
        let Self { verb, flags, words } = &self;
        let name = verb.word();
        if let Some(flag) = flags.iter().find(|flag| !verb.flags().contains(&flag.as_str())) {
            let taken = match verb.flags() {
                [] => "takes no flags".to_owned(),
                known => format!("takes {}", known.join(", ")),
            };
            return Err(CliError::usage(format!("{flag} means nothing here"))
                .with_hint(format!("in a fork, `nono {name}` {taken}")));
        }
        let (least, most) = verb.counts();
        if words.len() < least.max(usize::from(*verb == Verb::Cat)) || words.len() > most {
            let says = match verb {
                Verb::Status | Verb::Log => "takes no path: it is about the fork",
                Verb::Cat => "takes a file, and the number of a snapshot before it",
                Verb::Diff | Verb::Grep => "takes a pattern and paths",
            };
            return Err(CliError::usage(format!("in a fork, `nono {name}` {says}")));
        }
        Ok(self)
    }

    /// The words that a process outside of the fork is started with.
    ///
    /// # Errors
    /// It means more than the fork.
    pub(in crate::cli) fn words(self, fork: &Fork) -> Result<Vec<String>, CliError> {
        let Self { verb, flags, words } = self.checked()?;
        let session = fork.document().session.clone();
        let mut all: Vec<String> = match verb {
            Verb::Status => vec!["fork".into(), "show".into(), session],
            Verb::Diff => vec!["fork".into(), "diff".into(), session],
            Verb::Log => vec!["show".into(), session],
            Verb::Grep => vec!["grep".into(), "--session".into(), session],
            Verb::Cat => {
                let numbers = fork.session()?.recorded_numbers()?;
                let number = match &words[..] {
                    [number, _] => number.parse::<u64>().map_err(|_| {
                        let message = format!("{number:?} is no number of a snapshot of this fork");
                        CliError::usage(message)
                    })?,
                    _ => numbers.last().copied().unwrap_or(0),
                };
                let path = words.last().cloned().unwrap_or_default();
                return Ok(vec!["cat".into(), "--".into(), format!("{session}/{number}"), path]);
            }
        };
        all.extend(flags);
        if !words.is_empty() {
            all.push("--".into());
            all.extend(words);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(words: &[&str]) -> Result<Look, CliError> {
        let verb = Verb::ALL.into_iter().find(|verb| words.contains(&verb.word())).unwrap();
        Look::typed(verb, words.iter().map(Into::into))
    }

    #[test]
    fn only_what_means_the_fork_comes_through() {
        let look = typed(&["-v", "diff", "--stat", "--", "/a/-b"]).unwrap();
        assert_eq!(
            (&*look.flags, &*look.words),
            (&["--stat".to_owned()][..], &["/a/-b".to_owned()][..])
        );
        assert_eq!(typed(&["grep", "-i", "x", "/a"]).unwrap().words, ["x", "/a"]);
        assert_eq!(typed(&["cat", "3", "/a"]).unwrap().words, ["3", "/a"]);
        for refused in [
            &["grep", "--session", "other", "x"][..],
            &["grep", "--all", "x"],
            &["grep"],
            &["diff", "--at", "12:00"],
            &["log", "/a"],
            &["cat"],
            &["cat", "1", "/a", "/b"],
            &["status", "--root=/x"],
        ] {
            assert_eq!(typed(refused).map_err(|error| error.exit_code()).err(), Some(2));
        }
    }

    #[test]
    fn a_request_that_was_not_typed_is_checked_again() {
        let forged = r#"{"verb": "grep", "flags": ["--session=other"], "words": ["x"]}"#;
        assert!(serde_json::from_str::<Look>(forged).unwrap().checked().is_err());
    }
}
