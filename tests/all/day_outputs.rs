//! A new user's day, as it is printed: a part of the [transcripts](crate::transcripts).

use std::fs;

use crate::fixture::Fixture;
use crate::git_history::{git, settings};
use crate::transcripts::Transcript;

/// A part of the day: something that happens beside nono, and the commands after it.
struct Hour {
    before: &'static [(&'static str, Option<&'static str>)],
    commands: &'static [&'static [&'static str]],
}

/// In the order of the day. A file without a text is removed.
const DAY: &[Hour] = &[
    Hour {
        before: &[],
        commands: &[
            &["status"],
            &["list"],
            &["undo", "--yes"],
            &["statsu"],
            &["log", "--oneline"],
            &["show", "nosuch"],
            &["run", "nosuchcommand"],
        ],
    },
    Hour {
        before: &[],
        commands: &[
            &[
                "run",
                "sh",
                "-c",
                "echo two > a; rm src/gone; mkdir new; echo 1 > new/one; echo 2 > new/two",
            ],
            &["list"],
            &["log"],
            &["diff"],
            &["diff", "--stat"],
            &["status"],
            &["undo", "--dry-run"],
            &["undo"],
            &["undo", "--yes"],
            &["list"],
            &["log", "a"],
            &["restore", "--yes", "a"],
            &["undo", "--yes"],
            &["redo"],
            &["redo"],
        ],
    },
    Hour {
        before: &[("src/gone", Some("again\n")), ("a", Some("mine\n"))],
        commands: &[
            &["status"],
            &["status", "src"],
            &["undo", "--yes", "new"],
            &["list"],
            &["undo", "--yes"],
            &["undo", "--yes", "--keep-newer"],
            &["log", "a"],
            &["cat", "a"],
            &["restore", "--yes", "a"],
            &["find", "new/*"],
            &["find", "gone"],
            &["grep", "mine"],
            &["blame", "a"],
        ],
    },
    Hour {
        before: &[("b", Some("1\n"))],
        commands: &[
            &["snapshot", "-m", "noon"],
            &["run", "sh", "-c", "echo 2 > b; git add b; git commit -qm b"],
            &["list"],
            &["diff", "--name-only"],
            &["restore", "--yes", "b"],
            &["restore", "--yes", "never"],
            &["undo", "--yes"],
            &["status"],
        ],
    },
    Hour {
        before: &[("b", None)],
        commands: &[
            &["restore", "--yes", "b"],
            &["run", "true"],
            &["run", "sh", "-c", "exit 3"],
            &["pin", "noon"],
            &["cleanup", "--keep-last", "1"],
            &["cleanup", "--keep", "1", "--dry-run"],
            &["cleanup", "--keep", "1", "--yes"],
            &["list"],
            &["verify", "--all"],
            &["forks"],
        ],
    },
];

#[test]
fn the_day_of_a_new_user() {
    let fixture = Fixture::new();
    settings(&fixture);
    for (name, text) in [("a", "one\n"), ("src/gone", "gone\n"), (".gitignore", "*.iso\n")] {
        fixture.write(name, text);
    }
    git(&fixture, &fixture.project(), &["init", "-q", "-b", "main", "--template="]).success();
    git(&fixture, &fixture.project(), &["add", "."]).success();
    git(&fixture, &fixture.project(), &["commit", "-qm", "begin"]).success();
    let mut transcript = Transcript::of(&fixture);
    for hour in DAY {
        for (name, text) in hour.before {
            match text {
                Some(text) => drop(fixture.write(name, text)),
                None => fs::remove_file(fixture.project().join(name)).unwrap(),
            }
        }
        for words in hour.commands {
            transcript.type_words(words);
        }
    }
    transcript.compare("the_day_of_a_new_user");
}
