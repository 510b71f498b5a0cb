//! A database that a program writes all the time: every recorded state of it is one that the
//! database had.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::fixture::{Fixture, finished};
use crate::not_run::not_run;

/// Moves amounts between rows in transactions until its input ends; the sum stays.
const WRITER: &str = r#"
import random, select, sqlite3, sys, time
mode, path, pause = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
db.execute(f"PRAGMA journal_mode={mode}")
db.execute("PRAGMA synchronous=OFF")
db.execute("PRAGMA wal_autocheckpoint=100")
db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, filling BLOB)")
db.execute("BEGIN")
for row in range(300):
    db.execute("INSERT INTO t VALUES(?, 1000, randomblob(3000))", (row,))
db.execute("COMMIT")
print("ready", flush=True)
while not select.select([sys.stdin], [], [], float(pause))[0]:
    db.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        a, b, n = random.randrange(300), random.randrange(300), random.randrange(9)
        db.execute("UPDATE t SET n=n-?, filling=randomblob(3000) WHERE id=?", (n, a))
        db.execute("UPDATE t SET n=n+?, filling=randomblob(3000) WHERE id=?", (n, b))
    db.execute("COMMIT")
# As a program that is killed: the files stay as they are.
import os
os._exit(0)
"#;

/// Opens a copy as a program would after a crash, and says what it holds.
const CHECKER: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("PRAGMA integrity_check").fetchone()[0],
      db.execute("SELECT count(*), sum(n) FROM t").fetchone())
"#;

fn python(fixture: &Fixture, script: &str, words: &[&str]) -> Command {
    let path = fixture.path("script.py");
    let path = path.with_extension(format!("{}.py", script.len()));
    fs::write(&path, script).unwrap();
    let mut command = Command::new("python3");
    command.arg(path).args(words).current_dir(fixture.project());
    command
}

fn every_state_is_whole(mode: &str, pause: &str) {
    let fixture = Fixture::new();
    let has_sqlite = Command::new("python3").args(["-c", "import sqlite3"]).output();
    if !has_sqlite.is_ok_and(|done| done.status.success()) {
        return not_run("no python3 with sqlite3");
    }
    let path = fixture.project().join("data.db");
    let mut writer = python(&fixture, WRITER, &[mode, path.to_str().unwrap(), pause]);
    let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(writer.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(ready, "ready\n");
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    for _ in 0..12 {
        fixture.nono(&["snapshot", "--session", &id]).success();
    }
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    let mut whole = 0;
    for number in 0..=12 {
        let manifest = fixture.store().join(format!("{id}/snapshots/{number}/manifest.json"));
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
        // One that changed all the time is called so.
        if !manifest["unstable"].as_array().unwrap().is_empty() {
            continue;
        }
        let to = fixture.path(&format!("copy-{number}"));
        let state = format!("{id}/{number}");
        fixture.nono(&["restore", &state, "--to", to.to_str().unwrap()]).success();
        let copy = to.join("data.db");
        let checked = python(&fixture, CHECKER, &[copy.to_str().unwrap()]).output().unwrap();
        let checked = finished(checked).success();
        assert_eq!(checked.stdout, "ok (300, 300000)\n", "snapshot {number} ({mode})");
        whole += 1;
    }
    assert!(whole >= 1, "of 13 snapshots {whole} were not called unstable ({mode})");
}

#[test]
fn a_database_with_a_write_ahead_log_comes_back_as_it_was_at_one_moment() {
    every_state_is_whole("WAL", "0.002");
}

#[test]
fn a_database_with_a_rollback_journal_comes_back_as_it_was_at_one_moment() {
    // Each transaction writes the database itself: it has to rest now and then.
    every_state_is_whole("DELETE", "0.5");
}

/// A profile of the user with hooks.
fn with_hooks(fixture: &Fixture, hooks: &str) {
    let profiles = fixture.path("home/.config/nono/profiles");
    fs::create_dir_all(&profiles).unwrap();
    let text = format!("extends = \"generic\"\n\n[hooks]\n{hooks}\n");
    fs::write(profiles.join("server.toml"), text).unwrap();
}

/// A hook that writes a word into a file beside the project, after another command.
fn noting(fixture: &Fixture, name: &str, word: &str, first: &str) -> String {
    let log = fixture.path("log");
    format!("{name} = [\"sh\", \"-c\", \"echo {word} >> {}; {first}\"]", log.display())
}

const RUN: [&str; 6] = ["run", "--rollback", "--profile", "server", "--", "touch"];

#[test]
fn hooks_run_around_both_snapshots_and_their_files_are_recorded() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let hooks = [
        noting(&fixture, "before_snapshot", "before", "date +%s%N > dump"),
        noting(&fixture, "after_snapshot", "after", "rm dump"),
    ];
    with_hooks(&fixture, &hooks.join("\n"));
    fixture.nono(&[&RUN[..], &["made"]].concat()).success();
    let log = fs::read_to_string(fixture.path("log")).unwrap();
    assert_eq!(log, "before\nafter\nbefore\nafter\n");
    let id = fixture.latest();
    let dump =
        |number: u64| fixture.nono(&["cat", &format!("{id}/{number}"), "dump"]).success().stdout;
    assert_ne!(dump(0), dump(1), "each snapshot has its own");
    assert!(!fixture.project().join("dump").exists());
}

#[test]
fn a_hook_that_fails_or_hangs_is_said_and_stops_a_run_only_if_that_is_wanted() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let after = noting(&fixture, "after_snapshot", "after", "true");
    let count = || fs::read_to_string(fixture.path("log")).unwrap_or_default().lines().count();
    let failing = noting(&fixture, "before_snapshot", "before", "exit 3");
    with_hooks(&fixture, &[failing.as_str(), &after].join("\n"));
    let run = fixture.nono(&[&RUN[..], &["made"]].concat()).success();
    assert!(run.stderr.contains("before_snapshot (sh) failed: exit status: 3"), "{}", run.stderr);
    assert_eq!(count(), 4);
    with_hooks(&fixture, &[failing.as_str(), &after, "on_failure = \"stop\""].join("\n"));
    fixture.nono(&[&RUN[..], &["other"]].concat()).fails(1, "before_snapshot (sh) failed");
    assert!(!fixture.project().join("other").exists(), "the command did not begin");
    assert_eq!(count(), 6, "what the first one holds is let go");
    let hanging = "before_snapshot = [\"sh\", \"-c\", \"sleep 1000 & wait\"]\ntimeout_seconds = 1";
    with_hooks(&fixture, hanging);
    let run = fixture.nono(&[&RUN[..], &["other"]].concat()).success();
    assert!(run.stderr.contains("took longer than 1 s"), "{}", run.stderr);
    assert!(fixture.project().join("other").exists());
    with_hooks(&fixture, "before_snapshot = [\"no-such-program\"]");
    let run = fixture.nono(&[&RUN[..], &["other"]].concat()).success();
    assert!(run.stderr.contains("cannot be started"), "{}", run.stderr);
}

#[test]
fn hooks_of_a_file_that_a_command_could_have_written_do_not_count() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let hook = noting(&fixture, "before_snapshot", "before", "true");
    fixture.write("mine.toml", format!("extends = \"generic\"\n[hooks]\n{hook}\n"));
    let run = ["run", "--rollback", "--profile", "./mine.toml", "--", "true"];
    fixture.nono(&run).fails(2, "has hooks, which do not count there");
    assert!(!fixture.path("log").exists());
}
