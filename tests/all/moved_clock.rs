//! A clock that jumps by years between commands, by libfaketime: the processes of nono, and of the
//! command in it, read the moved clock.

use std::fs;
use std::path::Path;

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::not_run;

/// Where Debian has it, and other systems.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
];

/// Runs nono under a clock that is off by so many days. `None`: there is no libfaketime.
fn nono_at(fixture: &Fixture, days: i64, arguments: &[&str]) -> Option<Finished> {
    let library = LIBRARIES.into_iter().find(|path| Path::new(path).exists())?;
    let mut command = fixture.command(arguments);
    command.env("LD_PRELOAD", library).env("FAKETIME", format!("{days:+}d"));
    // Timeouts go by the monotonic clock, which no jump moves.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Some(finished(command.output().unwrap()))
}

/// Records five runs: under the right clock, years ahead, right, years behind, right.
fn recorded() -> Option<Fixture> {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    for (number, days) in [0, 4000, 0, -4000, 0].into_iter().enumerate() {
        let script = format!("echo {} > a; date +%Y", number + 1);
        let arguments = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", &script];
        let Some(run) = nono_at(&fixture, days, &arguments) else {
            not_run("there is no libfaketime");
            return None;
        };
        let run = run.success();
        let year: i64 = run.stdout.trim().parse().unwrap();
        let now: i64 = jiff::Timestamp::now().strftime("%Y").to_string().parse().unwrap();
        // The clock of the command was moved as well.
        assert!((year - now - days / 365).abs() <= 1, "{days}: {year}");
        assert!(!run.says("meanwhile"), "{days}: {}", run.stderr);
    }
    Some(fixture)
}

fn content(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.project().join("a")).unwrap()
}

#[test]
fn a_clock_that_jumps_hides_no_session_and_invents_no_other_at_work() {
    let Some(fixture) = recorded() else { return };
    let listed = fixture.nono(&["list", "--all", "--json"]).success().json();
    assert_eq!(listed.as_array().unwrap().len(), 5, "{listed}");
    // The newest by the clock of now.
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(content(&fixture), "4\n");
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(content(&fixture), "5\n");
    // The state before each of the others can still be had.
    for session in listed.as_array().unwrap() {
        let id = session["session_id"].as_str().unwrap();
        fixture.nono(&["restore", &format!("{id}/0"), "--yes", "--force"]).success();
        fixture.nono(&["show", id]).success();
    }
    fixture.nono(&["verify", "--all"]).success();
}

#[test]
fn a_clock_that_jumps_removes_no_session() {
    let Some(fixture) = recorded() else { return };
    for days in [4000, -4000, 0] {
        let run = nono_at(&fixture, days, &["run", "--rollback", "--no-sandbox", "--", "true"]);
        run.unwrap().success();
        nono_at(&fixture, days, &["cleanup", "--yes"]).unwrap().success();
    }
    let listed = fixture.nono(&["list", "--all", "--json"]).success().json();
    let changed = listed.as_array().unwrap().iter().filter(|it| it["changes"]["modified"] == 1);
    assert_eq!(changed.count(), 5, "{listed}");
}

#[test]
fn a_change_is_seen_whatever_the_clock_was_at_the_baseline() {
    for days in [4000, -4000] {
        let fixture = Fixture::new();
        let path = fixture.write("a", "1\n");
        let Some(taken) = nono_at(&fixture, days, &["snapshot"]) else {
            not_run("there is no libfaketime");
            return;
        };
        taken.success();
        // The same length, and the time of before.
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, "2\n").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let found = fixture.nono(&["diff", "--name-only"]).success();
        assert_eq!(found.stdout, "a\n", "{days}: {}", found.stderr);
        fixture.nono(&["restore", "latest/0", "--yes", "--force"]).success();
        assert_eq!(content(&fixture), "1\n", "{days}");
    }
}
