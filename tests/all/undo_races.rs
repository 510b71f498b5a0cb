//! An undo beside another undo, and beside a run that begins: each session is taken once, and no
//! run records what an undo did.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use nono_engine::restore::RestoreMark;
use nono_engine::snapshot::SessionDir;
use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished};
use crate::terminal::{Terminal, eventually};

fn text(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

fn sessions(fixture: &Fixture) -> Vec<Value> {
    fixture.nono(&["rollback", "list", "--json"]).success().json().as_array().unwrap().clone()
}

/// Two sessions, each of which changed a file of its own.
fn two_sessions() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("one", "0");
    fixture.write("two", "0");
    fixture.record("echo 1 > one").success();
    fixture.record("echo 1 > two").success();
    fixture
}

/// A command that has said what it is about to do.
struct Announced {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    first: String,
}

impl Announced {
    fn start(fixture: &Fixture, arguments: &[&str]) -> Self {
        let mut command = fixture.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        said.read_line(&mut first).unwrap();
        Self { child, said, first }
    }

    fn finish(mut self) -> Finished {
        let mut stderr = self.first;
        self.said.read_to_string(&mut stderr).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Finished { code, stdout: String::new(), stderr }
    }
}

#[test]
fn of_two_undos_at_once_one_does_it_and_the_other_says_so() {
    let fixture = two_sessions();
    let id = fixture.latest();
    let session = SessionDir::open(&fixture.session()).unwrap();
    let lock = session.lock().unwrap();
    // Both have decided on the session before either can begin.
    let both = [(); 2].map(|()| Announced::start(&fixture, &["undo", "--yes"]));
    assert!(both.iter().all(|it| it.first.contains(&id)), "{}", both[0].first);
    drop(lock);
    let mut both = both.map(Announced::finish);
    both.sort_by_key(|it| it.code);
    let [done, late] = both;
    done.success();
    let late = late.fails(1, &format!("session {id} was undone or restored meanwhile"));
    assert!(late.says("nothing was changed"), "{}", late.stderr);
    assert_eq!(text(&fixture, "two"), "0");
    assert_eq!(text(&fixture, "one"), "1\n", "an undo by a race takes no second session");
}

#[test]
fn an_undo_that_finds_nothing_left_after_another_one_takes_no_session_before() {
    for _ in 0..5 {
        let fixture = two_sessions();
        let start = || {
            let mut command = fixture.command(&["undo", "--yes"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let both = [start(), start()];
        let codes = both.map(|child| finished(child.wait_with_output().unwrap()).code);
        let undone = sessions(&fixture).iter().filter(|session| session["undone"] == true).count();
        let done = codes.iter().filter(|code| **code == 0).count();
        assert_eq!(undone, done, "as many sessions are undone as commands say so: {codes:?}");
        assert_eq!(text(&fixture, "two"), "0");
    }
}

#[test]
fn a_redo_after_another_redo_that_was_at_work_says_so() {
    let fixture = two_sessions();
    fixture.nono(&["undo", "--yes"]).success();
    fixture.nono(&["undo", "--yes"]).success();
    let redone: Vec<_> = [(); 2]
        .map(|()| {
            let mut command = fixture.command(&["redo", "--yes"]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .map(|child| finished(child.wait_with_output().unwrap()).code)
        .into();
    let undone = sessions(&fixture).iter().filter(|session| session["undone"] == true).count();
    let done = redone.iter().filter(|code| **code == 0).count();
    assert_eq!(undone, 2 - done, "{redone:?}");
}

#[test]
fn a_session_that_was_undone_during_the_question_is_not_undone_again() {
    let fixture = two_sessions();
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} undo; echo ended with $?; exec cat"),
    );
    terminal.wait_for_question(1);
    fixture.nono(&["undo", "--yes"]).success();
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("ended with 1");
    let screen = terminal.screen().replace('\n', " ");
    assert!(screen.contains("was undone or restored meanwhile"), "{screen}");
    assert_eq!(text(&fixture, "one"), "1\n");
}

/// Starts a run that is at work until its standard input ends.
fn at_work(fixture: &Fixture) -> Child {
    let run = ["run", "--rollback", "--", "sh", "-c", "echo > begun; read line; true"];
    let mut command = fixture.command(&run);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let begun = fixture.project().join("begun");
    eventually("the command has begun", || begun.exists());
    child
}

#[test]
fn a_run_that_began_during_a_question_is_in_the_way_of_the_restore() {
    let fixture = Fixture::new();
    fixture.write("ours", "1");
    fixture.write("theirs", "1");
    fixture.record("echo 2 > ours; echo 2 > theirs").success();
    let id = fixture.latest();
    fixture.write("theirs", "edited by me");
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} rollback restore {id}; echo ended with $?; exec cat"),
    );
    terminal.wait_for("[d/k/o/N/?]");
    let run = at_work(&fixture);
    terminal.keys(&["o", "Enter"]);
    terminal.wait_for("Restore all the same? [y/N/?]");
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("ended with 1");
    assert_eq!([text(&fixture, "ours"), text(&fixture, "theirs")], ["2\n", "edited by me"]);
    finished(run.wait_with_output().unwrap()).success();
    let list = sessions(&fixture);
    assert_eq!(list[0]["changes"]["created"], 1, "the run's own file alone: {}", list[0]);
    assert_eq!(list[0]["changes"]["modified"], 0, "{}", list[0]);
}

#[test]
fn a_run_that_begins_beside_a_restore_waits_and_records_nothing_of_it() {
    let fixture = Fixture::new();
    fixture.write("file", "1");
    // The store is there from the first session on.
    fixture.record("echo 2 > file").success();
    let known = fixture.latest();
    let mark = RestoreMark::set(&fixture.store(), &[fixture.project()]).unwrap();
    let mut command = fixture.command(&["run", "--rollback", "--", "sh", "-c", "cat file > seen"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let run = command.spawn().unwrap();
    // It is listed as running already, so that no other restore begins.
    eventually("the run is listed", || {
        let list = sessions(&fixture);
        list[0]["session_id"] != known.as_str() && list[0]["status"] == "running"
    });
    fixture.nono(&["undo", &known, "--yes"]).fails(1, "is running in");
    // As the restore does it.
    fixture.write("file", "1");
    drop(mark);
    finished(run.wait_with_output().unwrap()).success();
    assert_eq!(text(&fixture, "seen"), "1");
    let list = sessions(&fixture);
    assert_eq!(list[0]["changes"]["created"], 1, "{}", list[0]);
    assert_eq!(list[0]["changes"]["modified"], 0, "{}", list[0]);
}
