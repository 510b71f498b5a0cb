//! `nono blame`: who wrote each line.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Fixture, finished};
use crate::hooks::Agent;
use crate::random::Random;

fn blamed(fixture: &Fixture, words: &[&str]) -> Vec<(String, String)> {
    let report = fixture.nono(&[&["blame", "--json"], words].concat()).success().json();
    let lines = report["lines"].as_array().unwrap().iter();
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    lines.map(|line| (text(line, "text"), text(line, "by"))).collect()
}

fn pairs(lines: &[(String, String)]) -> Vec<(&str, &str)> {
    lines.iter().map(|(text, by)| (text.as_str(), by.as_str())).collect()
}

#[test]
fn each_line_says_whose_work_it_is() {
    let fixture = Fixture::new();
    fixture.write("a", "old\nolder\n");
    fixture.record("sed -i '1a by a shell' a").success();
    let session = fixture.latest();
    fixture.write("a", "old\nby a shell\nolder\nby hand\n");
    fixture.record("true").success();
    fixture.write("a", "old\nby a shell\nolder\nby hand\nnot recorded\n");
    let lines = blamed(&fixture, &["a"]);
    let expected = [
        ("old", "before"),
        ("by a shell", "command"),
        ("older", "before"),
        ("by hand", "you"),
        ("not recorded", "unrecorded"),
    ];
    assert_eq!(pairs(&lines), expected);
    let shown = fixture.nono(&["blame", "a"]).success().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines[0].contains("  before the record  ") && lines[0].ends_with("  1: old"),
        "{shown}"
    );
    assert!(lines[1].starts_with(&format!("{session}/1 ")), "{shown}");
    assert!(lines[1].contains("sh -c 'sed -i "), "{shown}");
    assert!(lines[3].contains("you or another program"), "{shown}");
    assert!(lines[4].starts_with("now ") && lines[4].contains("not recorded yet"), "{shown}");
}

#[test]
fn a_line_of_an_agent_names_its_step_and_its_prompt_and_an_edit_between_is_yours() {
    let fixture = Fixture::new();
    fixture.write("a", "old\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.prompt("Make it\nbetter, \u{1b}[2J please");
    agent.shell("echo by a shell >> a");
    fixture.write("a", "by hand\nold\nby a shell\n");
    agent.prompt("And more");
    agent.call("Edit", serde_json::json!({"file_path": "a"}), || {
        fixture.write("a", "by hand\nold\nby a shell\nby an edit\n");
    });
    agent.turn_end();
    agent.end();
    let lines = blamed(&fixture, &["a"]);
    let expected =
        [("by hand", "you"), ("old", "before"), ("by a shell", "agent"), ("by an edit", "agent")];
    assert_eq!(pairs(&lines), expected);
    let shown = fixture.nono(&["blame", "a"]).success().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].contains("you or another program"), "{shown}");
    assert!(lines[2].contains("#1  ") && lines[2].contains("Bash · echo by a shell"), "{shown}");
    assert!(lines[2].contains("“Make it”"), "{shown}");
    assert!(lines[3].contains("Edit") && lines[3].contains("“And more”"), "{shown}");
    // The same steps stand where a text is looked for.
    let found = fixture.nono(&["grep", "by a shell"]).success().stdout;
    assert!(found.contains("step 1 · Bash · echo by a shell >> a"), "{found}");
}

#[test]
fn lines_can_be_chosen_and_so_can_the_state() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n2\n3\n");
    fixture.record("printf '4\\n5\\n' >> a").success();
    let session = fixture.latest();
    let texts = |words: &[&str]| {
        let lines = blamed(&fixture, words);
        lines.into_iter().map(|(text, _)| text).collect::<Vec<_>>()
    };
    assert_eq!(texts(&["a:2"]), ["2"]);
    assert_eq!(texts(&["a:2,4"]), ["2", "3", "4"]);
    assert_eq!(texts(&["a", "-L", "4,+9"]), ["4", "5"]);
    assert_eq!(texts(&["a", "-L", ",2"]), ["1", "2"]);
    assert_eq!(texts(&["a", "--at", &format!("{session}/0")]), ["1", "2", "3"]);
    assert_eq!(texts(&["a", "--at", "latest"]).len(), 5);
    let at = fixture.nono(&["blame", "a", "--at", "now"]).success();
    assert!(at.says(&format!("the state of {session}/1, recorded 2")), "{}", at.stderr);
    fixture.nono(&["blame", "a:6"]).fails(1, "a has 5 lines in this state");
    fixture.nono(&["blame", "a:2", "-L", "3"]).fails(2, "the lines stand behind the file");
    fixture.nono(&["blame", "a", "-L", "0"]).fails(2, "names no lines");
    fixture.nono(&["blame", "a", "--at", "2001-01-01"]).fails(1, "no state of a is recorded at");
    fixture.nono(&["blame", "a", "--at", "nonsense"]).fails(1, "a time is 12:00");
    fixture.nono(&["blame", "nowhere"]).fails(1, "no session holds");
    // A name with a colon is a name.
    fixture.write("b:2", "x\n");
    fixture.nono(&["snapshot"]).success();
    assert_eq!(texts(&["b:2"]), ["x"]);
    // The file is gone; the record is not.
    fs::remove_file(fixture.project().join("a")).unwrap();
    assert_eq!(texts(&["a:5"]), ["5"]);
}

#[test]
fn a_rename_by_a_shell_keeps_the_writers_and_names_the_old_path() {
    let fixture = Fixture::new();
    let text: String = (0..12).map(|n| format!("line {n}\n")).collect();
    fixture.write("old name", &text);
    fixture.record("echo added >> 'old name'").success();
    fixture.record("mkdir d; mv 'old name' d/new; sed -i '3s/.*/edited/' d/new").success();
    let lines = blamed(&fixture, &["d/new"]);
    assert_eq!(lines.len(), 13);
    let of = |by: &str| lines.iter().filter(|(_, it)| it == by).count();
    assert_eq!((of("before"), of("command")), (11, 2));
    let shown = fixture.nono(&["blame", "d/new", "-L", "13"]).success().stdout;
    assert!(shown.contains("  old name  13: added"), "{shown}");
    // An undo brings the old path back, with the writers that it had.
    fixture.nono(&["undo", "--yes"]).success();
    let lines = blamed(&fixture, &["old name"]);
    assert_eq!(lines.iter().filter(|(_, by)| by == "before").count(), 12);
}

#[test]
fn a_terminal_is_shown_no_control_characters_and_a_pipe_every_byte() {
    let fixture = Fixture::new();
    fixture.write("a", b"x\x1b[2J\xff\n");
    fixture.record("printf '\\033]0;t\\007\\n' >> a").success();
    let mut script = Command::new("script");
    let program = env!("CARGO_BIN_EXE_nono");
    script.args(["-qec", &format!("{program} --no-pager blame a"), "/dev/null"]);
    script.current_dir(fixture.project()).env("HOME", fixture.path("home"));
    let screen = finished(script.output().unwrap()).success().stdout;
    assert!(screen.contains("\\u{1b}[2J\\xff"), "{screen:?}");
    assert!(!screen.contains("\u{1b}[2J") && !screen.contains("\u{1b}]0"), "{screen:?}");
    let output = fixture.command(&["blame", "a"]).output().unwrap();
    assert!(output.stdout.windows(6).any(|bytes| bytes == b"x\x1b[2J\xff"));
}

/// git, with a user and a clock of its own.
fn git_at(fixture: &Fixture, time: &str, author: &str, args: &[&str]) {
    let output = Command::new("git")
        .current_dir(fixture.project())
        .args(["-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"])
        .args(["-c", &format!("user.name={author}")])
        .args(args)
        .env("GIT_AUTHOR_DATE", time)
        .env("GIT_COMMITTER_DATE", time)
        .env("HOME", fixture.project())
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {output:?}");
}

#[test]
fn lines_that_are_older_than_the_record_name_their_commit() {
    let fixture = Fixture::new();
    git_at(&fixture, "2020-01-01T00:00:00Z", "Ann", &["init", "-q", "-b", "main"]);
    fixture.write("d/a", "one\ntwo\nthree\n");
    git_at(&fixture, "2020-01-01T00:00:00Z", "Ann", &["add", "."]);
    git_at(&fixture, "2020-01-01T00:00:00Z", "Ann", &["commit", "-q", "-m", "first\n\nmore"]);
    git_at(&fixture, "2020-01-02T00:00:00Z", "Ann", &["checkout", "-q", "-b", "side"]);
    fixture.write("d/a", "one\ntwo\nthree\nside\n");
    git_at(&fixture, "2020-01-02T00:00:00Z", "Bob", &["commit", "-qam", "the \u{1b}[2Jside"]);
    git_at(&fixture, "2020-01-03T00:00:00Z", "Ann", &["checkout", "-q", "main"]);
    fixture.write("d/a", "top\none\ntwo\nthree\n");
    git_at(&fixture, "2020-01-03T00:00:00Z", "Ann", &["commit", "-qam", "a line on top"]);
    git_at(&fixture, "2020-01-04T00:00:00Z", "Ann", &["merge", "-q", "-m", "both", "side"]);
    fixture.write("d/a", "top\none\ntwo\nthree\nside\nnot committed\n");
    fixture
        .record("sed -i 's/two/TWO/' d/a; git -c user.name=x -c user.email=x commit -qam new")
        .success();
    let report = fixture.nono(&["blame", "--json", "d/a"]).success().json();
    let lines: Vec<(&str, &str, &str, &str)> = report["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            let of = |field: &str| line["commit"][field].as_str().unwrap_or_default();
            let text = line["text"].as_str().unwrap();
            (text, line["by"].as_str().unwrap(), of("author"), of("subject"))
        })
        .collect();
    let expected = [
        ("top", "commit", "Ann", "a line on top"),
        ("one", "commit", "Ann", "first"),
        ("TWO", "command", "", ""),
        ("three", "commit", "Ann", "first"),
        ("side", "commit", "Bob", "the \u{1b}[2Jside"),
        ("not committed", "before", "", ""),
    ];
    assert_eq!(lines, expected);
    assert_eq!(report["lines"][1]["commit"]["timestamp"], "2020-01-01T00:00:00Z");
    let shown = fixture.nono(&["blame", "d/a"]).success().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].contains("  Ann · first  ") && lines[1].ends_with(": one"), "{shown}");
    assert!(lines[4].contains("Bob · the ") && !shown.contains('\u{1b}'), "{shown}");
    assert!(lines[5].contains("before the record"), "{shown}");
    // The same names as git gives them.
    let git = Command::new("git")
        .current_dir(fixture.project())
        .args(["blame", "--porcelain", "-s", "HEAD~1", "--", "d/a"])
        .output()
        .unwrap();
    let names = String::from_utf8(git.stdout).unwrap();
    let first = report["lines"][0]["commit"]["id"].as_str().unwrap();
    assert!(names.lines().next().unwrap().starts_with(first), "{names}");
    // A repository without its objects has no commits to name, and is no error.
    fs::remove_dir_all(fixture.project().join(".git/objects")).unwrap();
    let lines = blamed(&fixture, &["d/a"]);
    assert!(lines.iter().all(|(_, by)| by != "commit"), "{lines:?}");
}

#[test]
fn commits_of_lines_are_those_that_git_names() {
    let fixture = Fixture::new();
    git_at(&fixture, "2020-01-01T00:00:00Z", "Ann", &["init", "-q", "-b", "main"]);
    let mut random = Random::new(42);
    let mut lines: Vec<String> = Vec::new();
    for commit in 0..30 {
        for new in 0..3 {
            let at = random.below(lines.len() + 1);
            lines.insert(at, format!("line {new} of commit {commit}"));
        }
        if lines.len() > 6 {
            lines.remove(random.below(lines.len()));
        }
        fixture.write("a", &(lines.join("\n") + "\n"));
        // All in one second, where names decide the order, and then one after the other.
        let time = format!("2020-01-01T00:00:{:02}Z", if commit < 10 { 0 } else { commit });
        git_at(&fixture, &time, "Ann", &["add", "a"]);
        git_at(&fixture, &time, "Ann", &["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    fixture.nono(&["snapshot"]).success();
    let git = Command::new("git")
        .current_dir(fixture.project())
        .args(["blame", "-s", "-l", "--root", "a"])
        .output()
        .unwrap();
    let git = String::from_utf8(git.stdout).unwrap();
    let git: Vec<&str> = git.lines().map(|line| line.split(' ').next().unwrap()).collect();
    let report = fixture.nono(&["blame", "--json", "a"]).success().json();
    let found: Vec<&str> = report["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["commit"]["id"].as_str().unwrap())
        .collect();
    assert_eq!(found, git);
}
