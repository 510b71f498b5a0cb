//! A command that was killed before its first snapshot shuts no way back: undo, redo and status do
//! not take it for a session, `status` and `doctor` name it, and `cleanup` frees it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::Fixture;
use crate::terminal::eventually;

/// The first snapshot begins within so many points.
const EVERY_POINT: u64 = 24;
/// Points of one command, at least. A command that has fewer is not what is meant.
const MIN_POINTS: u64 = 20;

/// A project whose only good session changed a file.
fn changed() -> (Fixture, String) {
    let fixture = Fixture::in_memory();
    fixture.write("a", "before");
    fixture.write("b/c", "kept");
    fixture.record("echo after > a").success();
    let id = fixture.latest();
    (fixture, id)
}

/// The directories of sessions.
fn sessions(fixture: &Fixture) -> Vec<PathBuf> {
    let entries = fs::read_dir(fixture.store()).unwrap().map(|entry| entry.unwrap().path());
    let is_session = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("20");
    entries.filter(is_session).collect()
}

/// Kills a command at its points, at each of the first ones; `look` sees the store after each.
fn kill_everywhere(fixture: &Fixture, arguments: &[&str], mut look: impl FnMut(u64)) {
    for point in (1..EVERY_POINT).chain((EVERY_POINT..).step_by(6)) {
        let mut command = fixture.command(arguments);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal().is_none() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(point > MIN_POINTS, "{arguments:?} has {point} points");
            return;
        }
        look(point);
    }
}

#[test]
fn a_killed_start_is_no_session_for_any_command_and_cleanup_frees_it() {
    let run = ["run", "--rollback", "--no-rollback-prompt", "--no-sandbox", "--", "true"];
    for arguments in [&["snapshot", "."][..], &run] {
        let (fixture, good) = changed();
        let mut unbegun = 0;
        kill_everywhere(&fixture, arguments, |point| {
            let place = format!("{arguments:?} at point {point}");
            let is_unbegun =
                |session: &PathBuf| !session.join("snapshots/0/manifest.json").exists();
            let undo = fixture.nono(&["undo", "--dry-run"]).success();
            assert!(undo.says("1 modified"), "{place}: {}{}", undo.stdout, undo.stderr);
            let killed = sessions(&fixture).into_iter().filter(is_unbegun).collect::<Vec<_>>();
            let status = fixture.nono(&["status"]).success();
            let shown = fixture.nono(&["doctor"]);
            for session in &killed {
                let id = session.file_name().unwrap().to_str().unwrap();
                unbegun += 1;
                let said = format!("killed before its first snapshot: {id}");
                assert!(status.says(&said), "{place}: {}", status.stdout);
                assert!(shown.says(id), "{place}: {}", shown.stdout);
            }
            fixture.nono(&["rollback", "list"]).success();
            fixture.nono(&["rollback", "verify", &good]).success();
            if point % 7 == 0 {
                fixture.nono(&["rollback", "verify", "--all"]).success();
                fixture.nono(&["redo", "--dry-run"]).fails(1, "nothing here is undone");
            }
            fixture.nono(&["rollback", "cleanup"]).success();
            let left = sessions(&fixture).into_iter().filter(is_unbegun).collect::<Vec<_>>();
            assert_eq!(left, Vec::<PathBuf>::new(), "{place}");
        });
        assert!(unbegun > 2, "{arguments:?}: {unbegun}");
        fixture.nono(&["undo", "--yes", &good]).success();
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "before");
    }
}

#[test]
fn a_run_at_work_and_a_killed_one_are_in_diff_and_log() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "before\n");
    fixture.record("true").success();
    let fifo = fixture.path("gate");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let (gate, script) = (fifo.to_str().unwrap(), "echo after > a; echo > \"$0\"; read x < \"$0\"");
    let run = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", script, gate];
    let mut running = fixture.command(&run).spawn().unwrap();
    // The command has changed the file once it writes there.
    let mut line = String::new();
    BufReader::new(File::open(&fifo).unwrap()).read_line(&mut line).unwrap();
    let says = |word: &str| {
        let id = fixture.latest();
        for arguments in [&["diff"][..], &["diff", &id]] {
            let diff = fixture.nono(arguments).success();
            assert!(diff.stdout.contains("+after") && diff.says(&id), "{}", diff.stderr);
        }
        let log = fixture.nono(&["log"]).success();
        let own = log.stdout.lines().find(|line| line.contains(&id)).unwrap();
        assert!(own.contains(word), "{}", log.stdout);
    };
    says("running");
    running.kill().unwrap();
    running.wait().unwrap();
    // Its end of the FIFO is opened for both, so that nothing waits here.
    File::options().read(true).write(true).open(&fifo).unwrap().write_all(b"\n").unwrap();
    eventually("its supervisor is gone", || {
        let status = fixture.nono(&["rollback", "list", "--json"]).json();
        status[0]["status"] == "interrupted"
    });
    says("interrupted");
    // Undone, it is compared with its own end again.
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fixture.nono(&["diff"]).success().stdout, "");
}

/// Kills a run at its last points, in which the command has ended, and returns how many it has.
fn kill_at_the_end(fixture: &Fixture, run: &[&str], back: u64, mut look: impl FnMut(u64)) {
    let is_killed = |point: u64| {
        fixture.copy_state("keep", "");
        let mut command = fixture.command(run);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        output.status.signal().is_some()
    };
    // The last point is between one at which it is killed, and one that it does not reach.
    let (mut reached, mut beyond) = (1, 512);
    while beyond - reached > 1 {
        let middle = reached + (beyond - reached) / 2;
        match is_killed(middle) {
            true => reached = middle,
            false => beyond = middle,
        }
    }
    assert!(reached > back, "{reached} points");
    for point in reached - back..=reached {
        if is_killed(point) {
            look(point);
        }
    }
}

#[test]
fn after_a_run_that_was_killed_before_its_report_every_command_works() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "before");
    fixture.record("echo first > a").success();
    fixture.copy_state("", "keep");
    let run =
        ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", "echo second > a; echo n > n"];
    let (mut interrupted, mut completed) = (0, 0);
    kill_at_the_end(&fixture, &run, 10, |point| {
        let read = |name| fs::read_to_string(fixture.project().join(name)).ok();
        assert_eq!(read("a").as_deref(), Some("second\n"), "at point {point}");
        let id = fixture.latest();
        let place = |words: &[&str]| format!("{words:?} at point {point}");
        for words in [
            &["status"][..],
            &["list"],
            &["show"],
            &["show", &id],
            &["diff"],
            &["log"],
            &["log", "a"],
            &["steps"],
            &["usage"],
            &["find", "n"],
            &["cat", &format!("{id}/0"), "a"],
            &["verify"],
            &["verify", "--all"],
            &["undo", "--dry-run"],
            &["restore", &id, "--dry-run"],
            &["cleanup", "--dry-run"],
            &["doctor"],
        ] {
            let done = fixture.nono(words);
            assert!(!done.stderr.contains("panicked"), "{}: {}", place(words), done.stderr);
            // An interrupted session has no end that `show` could compare, and `doctor` names it.
            let is_fine = done.code == 0 || words == ["doctor"] || words == ["steps"];
            assert!(is_fine, "{}: {}{}", place(words), done.stdout, done.stderr);
        }
        let list = fixture.nono(&["list", "--json"]).success().json();
        match list[0]["status"].as_str().unwrap() {
            "interrupted" => interrupted += 1,
            "completed" => completed += 1,
            other => panic!("{other} at point {point}"),
        }
        fixture.nono(&["undo", "--yes"]).success();
        assert_eq!((read("a").as_deref(), read("n")), (Some("first\n"), None), "{point}");
        fixture.nono(&["redo", "--yes"]).success();
        assert_eq!(read("a").as_deref(), Some("second\n"), "{point}");
        fixture.nono(&["undo", "--yes"]).success();
        fixture.nono(&["undo", "--yes"]).success();
        assert_eq!(read("a").as_deref(), Some("before"), "{point}");
    });
    assert!(interrupted + completed > 5, "{interrupted} interrupted, {completed} completed");
}
