//! All that a new user's day prints, held by one file: a sentence is changed on purpose.
//!
//! `NONO_TEST_UPDATE=1` writes the file anew. Ids, hashes, times and the place of the test have
//! names, and columns one width, so that every day is the same.

use std::fs;
use std::path::Path;

use crate::fixture::Fixture;
use crate::git_history::{git, settings};

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/day_outputs.txt");

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

/// What differs from day to day, with its names.
struct Names<'a> {
    place: &'a str,
    ids: Vec<String>,
}

impl Names<'_> {
    fn in_text(&mut self, text: &str) -> String {
        let text = text.replace(self.place, "/place");
        let told = text.lines().filter(|line| !is_about_walls(line));
        told.map(|line| self.in_line(line) + "\n").collect()
    }

    fn in_line(&mut self, line: &str) -> String {
        let indent = line.len() - line.trim_start().len();
        let (indent, mut rest) = line.split_at(indent);
        let mut named = indent.to_owned();
        while let Some(c) = rest.chars().next() {
            let is_inside = named.ends_with(|c: char| c.is_ascii_alphanumeric());
            let word_end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let word = &rest[..word_end.unwrap_or(rest.len())];
            if !is_inside && is_id(word) {
                named += &self.id(word);
                rest = &rest[word.len()..];
            } else if !is_inside && is_time(rest) {
                named += "TIME";
                rest = &rest[TIME.len()..];
            } else if !is_inside && is_hash(word) {
                named += "HASH";
                rest = &rest[word.len()..];
            } else {
                if !(c == ' ' && named.ends_with("  ")) {
                    named.push(c);
                }
                rest = &rest[c.len_utf8()..];
            }
        }
        for (number, unit) in (1..60).flat_map(|number| [(number, "second"), (number, "minute")]) {
            let plural = if number == 1 { "" } else { "s" };
            named = named.replace(&format!(" {number} {unit}{plural} ago"), " just now");
        }
        without_sizes(named.trim_end())
    }

    fn id(&mut self, id: &str) -> String {
        let known = self.ids.iter().position(|known| known == id);
        let at = known.unwrap_or_else(|| {
            self.ids.push(id.to_owned());
            self.ids.len() - 1
        });
        format!("ID{}", at + 1)
    }
}

/// The sizes of objects differ with the version of git.
fn without_sizes(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let named = words.iter().enumerate().map(|(at, word)| {
        let unit = words.get(at + 1).map_or("", |unit| unit.trim_end_matches(','));
        if is_number(word) && ["KiB", "object", "objects"].contains(&unit) { "N" } else { word }
    });
    named.collect::<Vec<_>>().join(" ")
}

/// Whether a line is about the walls, which differ with the machine.
fn is_about_walls(line: &str) -> bool {
    ["Landlock", "namespace"].iter().any(|word| line.contains(word))
}

fn fits(text: &str, form: &str) -> bool {
    let is_it = |(c, form): (char, char)| match form {
        '0' => c.is_ascii_digit(),
        form => c == form,
    };
    text.len() >= form.len() && text.chars().zip(form.chars()).all(is_it)
}

fn is_id(word: &str) -> bool {
    const FORM: &str = "00000000-000000-";
    let is_pid = |pid: &str| !pid.is_empty() && pid.chars().all(|c| c.is_ascii_digit());
    fits(word, FORM) && is_pid(&word[FORM.len()..])
}

const TIME: &str = "0000-00-00 00:00:00";

fn is_time(text: &str) -> bool {
    fits(text, TIME)
}

fn is_hash(word: &str) -> bool {
    [7, 40, 64].contains(&word.len())
        && word.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
        && word.contains(|c: char| c.is_ascii_digit())
}

#[test]
fn the_day_of_a_new_user_prints_what_it_printed() {
    let fixture = Fixture::new();
    settings(&fixture);
    for (name, text) in [("a", "one\n"), ("src/gone", "gone\n"), (".gitignore", "*.iso\n")] {
        fixture.write(name, text);
    }
    git(&fixture, &fixture.project(), &["init", "-q", "-b", "main", "--template="]).success();
    git(&fixture, &fixture.project(), &["add", "."]).success();
    git(&fixture, &fixture.project(), &["commit", "-qm", "begin"]).success();
    let project = fixture.project();
    let place = Path::new(&project).parent().unwrap().display().to_string();
    let mut names = Names { place: &place, ids: Vec::new() };
    let mut found = String::new();
    for hour in DAY {
        for (name, text) in hour.before {
            match text {
                Some(text) => drop(fixture.write(name, text)),
                None => fs::remove_file(project.join(name)).unwrap(),
            }
        }
        for words in hour.commands {
            let output = fixture.command(words).output().unwrap();
            let (out, err) = (output.stdout, output.stderr);
            let code = output.status.code().unwrap();
            found += &format!("$ nono {}\n", words.join(" "));
            found += &names.in_text(&String::from_utf8(out).unwrap());
            found += &names.in_text(&String::from_utf8(err).unwrap());
            found += &format!("exit {code}\n\n");
        }
    }
    if std::env::var_os("NONO_TEST_UPDATE").is_some() {
        fs::write(EXPECTED, &found).unwrap();
    }
    let expected = fs::read_to_string(EXPECTED).unwrap();
    let differs = |(_, (a, b)): &(usize, (&str, &str))| a != b;
    let mut both = expected.lines().zip(found.lines()).enumerate();
    if let Some((at, (expected, found_line))) = both.find(differs) {
        let number = at + 1;
        panic!("line {number} of day_outputs.txt:\n- {expected}\n+ {found_line}\n\n{found}");
    }
    assert_eq!(expected.lines().count(), found.lines().count(), "{found}");
}
