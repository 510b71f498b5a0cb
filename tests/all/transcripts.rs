//! The outputs and the errors that people meet most, as they stand: a changed sentence is seen in
//! the change itself. `INSTA_UPDATE=always` writes them anew.
//!
//! A transcript holds commands with what each printed and its exit code. Ids, times, sizes and
//! hashes are replaced: they differ with each run.

use std::fmt::Write as _;
use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::hooks::Agent;

/// Patterns of what differs with each run, and the word in its place.
const VARYING: [(&str, &str); 14] = [
    // The walls of a run differ with the machine.
    (r"(?m)^.*(Landlock|namespace).*\n", ""),
    // A column is as wide as its longest id, which ends in the number of a process.
    (r"(\[id \d+\]) {2,}", "$1  "),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?( UTC|Z)?", "[time]"),
    (r"\b\d{4}-\d\d-\d\d\b", "[day]"),
    (r"\b\d\d:\d\d\b", "[clock]"),
    (r"(just now|\b\d+ (seconds?|minutes?) ago)", "[age]"),
    (r"\[age\] {2,}", "[age]  "),
    (r"\b[0-9a-f]{64}\b", "[hash]"),
    (r"\b[0-9a-f]{10,40}\b", "[hash]"),
    (r"\b[0-9a-f]{7}\b", "[commit]"),
    // The objects of a repository differ with the version of git.
    (r"\b\d+ objects?\b", "[n] objects"),
    (r" *\b\d+(\.\d+)? ([KMG]iB|B)\b", " [size]"),
    (r#""disk_size": \d+"#, r#""disk_size": "[size]""#),
    (r"\b\d+(\.\d+)? (ms|s)\b", "[duration]"),
];

/// The text with a number for each session, in the place of its id: a time and a process.
fn with_numbered_ids(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let is_id = |word: &str| {
        let parts: Vec<&str> = word.split('-').collect();
        parts.iter().all(|part| is_number(part))
            && matches!(parts[..], [day, time, _] if day.len() == 8 && time.len() == 6)
    };
    let mut ids: Vec<&str> = Vec::new();
    let mut numbered = String::new();
    for piece in text.split_inclusive(|c| !is_part(c)) {
        let word = piece.trim_end_matches(|c| !is_part(c));
        if is_id(word) {
            let at = ids.iter().position(|id| *id == word).unwrap_or(ids.len());
            if at == ids.len() {
                ids.push(word);
            }
            write!(numbered, "[id {}]{}", at + 1, &piece[word.len()..]).unwrap();
        } else {
            numbered.push_str(piece);
        }
    }
    numbered
}

/// The screen of a person who types these commands one after the other.
pub struct Transcript<'a> {
    fixture: &'a Fixture,
    text: String,
}

impl<'a> Transcript<'a> {
    pub fn of(fixture: &'a Fixture) -> Self {
        Self { fixture, text: String::new() }
    }

    /// Types commands, each one as words between spaces.
    fn type_all(&mut self, lines: &[&str]) -> &mut Self {
        for line in lines {
            self.type_words(&line.split(' ').collect::<Vec<_>>());
        }
        self
    }

    pub fn type_words(&mut self, words: &[&str]) -> &mut Self {
        let done = self.fixture.nono(words);
        writeln!(self.text, "$ nono {}", words.join(" ")).unwrap();
        for (mark, printed) in [("", &done.stdout), ("! ", &done.stderr)] {
            for line in printed.lines() {
                writeln!(self.text, "{}", format!("{mark}{line}").trim_end()).unwrap();
            }
        }
        if done.code != 0 {
            writeln!(self.text, "[exit {}]", done.code).unwrap();
        }
        self.text.push('\n');
        self
    }

    /// Compares all of it with the snapshot of this name.
    #[track_caller]
    pub fn compare(&self, name: &str) {
        let dir = self.fixture.path("");
        let dir = dir.to_str().unwrap().trim_end_matches('/');
        let mut settings = insta::Settings::clone_current();
        settings.set_filters(VARYING.to_vec());
        settings.set_prepend_module_to_snapshot(false);
        settings.set_snapshot_path("transcripts");
        settings.set_omit_expression(true);
        settings.bind(|| {
            insta::assert_snapshot!(name, with_numbered_ids(&self.text.replace(dir, "[dir]")))
        });
    }
}

/// A project with two files and a recorded run that changed one, made one and removed one.
fn after_a_run() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("src/main.rs", "fn main() {\n    old();\n}\n");
    fixture.write("notes.txt", "one\ntwo\n");
    fixture.write("gone.txt", "to be removed\n");
    fixture.nono(&["run", "--rollback", "--no-sandbox", "--", "sh", "-c", SCRIPT]).success();
    fixture
}

const SCRIPT: &str = "sed -i s/old/new/ src/main.rs; echo made > made.txt; rm gone.txt";

#[test]
fn before_anything_is_recorded() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "1\n");
    let lines = [
        "status",
        "list",
        "log",
        "log a.txt",
        "show",
        "diff",
        "steps",
        "undo --yes",
        "redo --yes",
        "restore a.txt --yes",
        "blame a.txt",
        "grep x",
        "find *",
        "cat latest a.txt",
        "usage",
        "verify",
        "cleanup",
        "forks",
        "pin latest",
        "resume",
        "review",
        "watch status",
        "remote list",
        "push",
        "events",
        "config",
        "profile list",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("before_anything_is_recorded");
}

#[test]
fn a_run_and_its_undo() {
    let fixture = Fixture::new();
    fixture.write("src/main.rs", "fn main() {\n    old();\n}\n");
    fixture.write("gone.txt", "to be removed\n");
    let mut transcript = Transcript::of(&fixture);
    transcript.type_words(&["run", "--no-sandbox", "--rollback", "--", "sh", "-c", SCRIPT]);
    transcript.type_words(&["run", "--no-sandbox", "--rollback", "--", "sh", "-c", "exit 3"]);
    transcript.type_words(&["run", "--no-sandbox", "--rollback", "--", "true"]);
    let lines = [
        "status",
        "list",
        "undo --dry-run",
        "undo --yes",
        "status",
        "undo --yes",
        "redo --dry-run",
        "redo --yes",
        "redo --yes",
        "list",
    ];
    transcript.type_all(&lines).compare("a_run_and_its_undo");
}

#[test]
fn a_look_at_what_changed() {
    let fixture = after_a_run();
    fixture.write("notes.txt", "one\nmine\n");
    let lines = [
        "status",
        "show",
        "show --json",
        "show latest/1",
        "diff",
        "diff --stat",
        "diff latest/0 latest/1",
        "diff notes.txt",
        "log",
        "log --oneline",
        "log src/main.rs",
        "log gone.txt",
        "blame src/main.rs",
        "blame made.txt",
        "grep new",
        "grep old",
        "grep -l old",
        "grep nothing-has-this",
        "find *.txt",
        "find *.rs",
        "cat latest/0 gone.txt",
        "list --json",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("a_look_at_what_changed");
}

#[test]
fn paths_come_back() {
    let fixture = after_a_run();
    let lines = [
        "restore gone.txt --dry-run",
        "restore gone.txt --yes",
        "restore src --dry-run",
        "restore latest/0 --dry-run",
        "restore latest/0 --to out",
        "restore latest/0 --yes",
        "undo --yes",
        "log gone.txt",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("paths_come_back");
}

#[test]
fn an_undo_beside_own_edits() {
    let fixture = after_a_run();
    fixture.write("src/main.rs", "fn main() {\n    mine();\n}\n");
    fixture.write("made.txt", "made\nand more\n");
    let lines = [
        "undo --dry-run",
        "undo",
        "undo --yes",
        "undo --keep-newer --dry-run",
        "undo --keep-newer --yes",
        "undo --force --yes",
        "status",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("an_undo_beside_own_edits");
}

#[test]
fn steps_of_an_agent() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.prompt("make it two");
    for (text, tool) in [("two\n", "Write"), ("three\n", "Edit")] {
        let call = agent.call_of(tool, json!({"file_path": fixture.project().join("a.txt")}));
        agent.before(&call);
        fs::write(fixture.project().join("a.txt"), text).unwrap();
        agent.after(&call);
    }
    agent.turn_end();
    let lines = [
        "steps",
        "status",
        "list",
        "show",
        "log a.txt",
        "blame a.txt",
        "undo --step 2 --dry-run",
        "undo --step 2 --yes",
        "undo --prompt 1 --yes",
        "steps",
        "redo --yes",
        "undo --step 9",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("steps_of_an_agent");
}

#[test]
fn sessions_are_kept_and_removed() {
    let fixture = after_a_run();
    let lines = [
        "snapshot",
        "snapshot -m before-lunch",
        "list",
        "pin latest",
        "list",
        "unpin latest",
        "usage",
        "verify",
        "verify --all",
        "cleanup --dry-run",
        "cleanup --keep-last 1 --yes",
        "cleanup --all --dry-run",
        "cleanup --all --yes",
        "list",
        "usage",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("sessions_are_kept_and_removed");
}

#[test]
fn settings_and_profiles() {
    let fixture = after_a_run();
    let lines = [
        "config",
        "config set max_sessions 7",
        "config set max_sessions many",
        "config set no_such_setting 1",
        "config show",
        "profile list",
        "profile show generic",
        "profile show no-such-profile",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("settings_and_profiles");
}

#[test]
fn errors_of_words() {
    let fixture = after_a_run();
    let lines = [
        "undoo",
        "run",
        "run --no-such-flag -- true",
        "run --rollback -- no-such-command",
        "show nothing",
        "show latest/9",
        "show latest~9",
        "diff latest/0 latest/9",
        "diff no-such-file",
        "restore no-such-file --yes",
        "restore latest/9 --yes",
        "restore latest/0 no-such-file --yes",
        "restore --yes",
        "cat latest no-such-file",
        "cat latest",
        "log no-such-file",
        "blame no-such-file",
        "blame src",
        "blame src/main.rs:99",
        "grep [",
        "find [",
        "undo nothing",
        "undo --step 1",
        "undo --prompt 1",
        "undo --since yesterdayy",
        "undo no-such-file --yes",
        "redo",
        "pin nothing",
        "cleanup --older-than soon",
        "cleanup --keep-last no",
        "cleanup nothing",
        "snapshot missing",
        "snapshot /dev/null",
        "resume nothing",
        "fork enter nothing",
        "fork discard nothing",
        "fork merge nothing",
        "bisect -- true",
        "push",
        "push nothing",
        "pull nothing",
        "remote add",
        "remote add x ftp://x",
        "remote remove nothing",
        "archive create latest",
        "archive verify no-such-file",
        "import no-such-dir",
        "mount /no-such-dir/deep",
        "umount nothing",
        "watch stop",
        "difftool --tool no-such-tool",
        "review latest",
        "--root /no-such-dir/store list",
        "completions nosuchshell",
        "help nothing",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("errors_of_words");
}

#[test]
fn errors_of_stores() {
    let fixture = after_a_run();
    let session = fixture.session();
    fs::write(session.join("session.json"), "{").unwrap();
    let lines = [
        "list",
        "status",
        "show",
        "undo --yes",
        "restore gone.txt --yes",
        "verify",
        "usage",
        "cleanup",
    ];
    Transcript::of(&fixture).type_all(&lines).compare("errors_of_stores");
}

/// The commands of the program, as its help lists them.
fn commands(fixture: &Fixture) -> Vec<String> {
    let help = fixture.nono(&["--help"]).success().stdout;
    let entries = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = entries.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(str::to_owned)
        .collect()
}

#[test]
fn help_of_each_command() {
    let fixture = Fixture::new();
    let commands = commands(&fixture);
    assert!(commands.len() > 40, "{commands:?}");
    Transcript::of(&fixture).type_all(&["--help", "-h"]).compare("help");
    for command in &commands {
        let mut transcript = Transcript::of(&fixture);
        transcript.type_words(&[command, "--help"]).compare(&format!("help_{command}"));
    }
}
