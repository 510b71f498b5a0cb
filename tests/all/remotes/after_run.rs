//! Pushes beside the end of a run.

use std::fs;

use serde_json::Value;

use super::{Travel, archives, eventually};
use crate::fixture::finished;

#[test]
fn a_push_after_a_run_never_fails_the_run_and_its_failure_is_shown_until_one_succeeds() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.directory("disk");
    travel.nono(&["config", "set", "push_after_run", "disk"]).success();
    let aside = travel.fixture.path("aside");
    fs::rename(&place, &aside).unwrap();
    travel.fixture.record("echo x > made").success();
    let session = travel.fixture.latest();
    let status = || travel.nono(&["status", "--json"]).success().json();
    let has_failed = || !status()["failed_pushes"].as_array().unwrap().is_empty();
    eventually("the failure is noted", has_failed);
    let status = status();
    assert_eq!(status["failed_pushes"][0]["session_id"], session.as_str(), "{status:#}");
    travel.nono(&["doctor"]).fails(1, "");
    fs::rename(&aside, &place).unwrap();
    travel.nono(&["push", "disk", &session]).success();
    let status = travel.nono(&["status", "--json"]).success().json();
    assert_eq!(status["failed_pushes"], Value::Array(vec![]));
    travel.fixture.record("echo y > made").success();
    let session = travel.fixture.latest();
    eventually("the session is pushed", || archives(&place, &session).len() == 2);
    travel.verify("disk").success();
}

#[test]
fn the_push_after_a_run_sends_what_an_earlier_one_could_not() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.directory("disk");
    let unknown = travel.nono(&["config", "set", "push_after_run", "nosuch"]).success();
    assert!(unknown.says("there is no remote nosuch yet"), "{}", unknown.stderr);
    travel.nono(&["config", "set", "push_after_run", "disk"]).success();
    let aside = travel.fixture.path("aside");
    fs::rename(&place, &aside).unwrap();
    let failed = || {
        let status = travel.nono(&["status", "--json"]).success().json();
        status["failed_pushes"].as_array().unwrap().len()
    };
    let mut sessions = Vec::new();
    for number in 1..=2 {
        travel.fixture.record(&format!("echo {number} > made")).success();
        sessions.push(travel.fixture.latest());
        eventually("the failure is noted", || failed() == number);
    }
    let told = travel.nono(&["status"]).success();
    assert!(told.says("and 1 earlier one were not pushed to disk"), "{}", told.stdout);
    fs::rename(&aside, &place).unwrap();
    travel.fixture.record("echo 3 > made").success();
    sessions.push(travel.fixture.latest());
    eventually("nothing is left to be pushed", || failed() == 0);
    for session in &sessions {
        assert_eq!(archives(&place, session).len(), 2, "{session}");
    }
    travel.verify("disk").success();
}

#[test]
fn the_note_of_a_push_to_a_remote_that_is_not_there_says_so_and_goes_when_nobody_wants_it() {
    let travel = Travel::with(1, 3, 0);
    travel.directory("disk");
    travel.nono(&["config", "set", "push_after_run", "nope"]).success();
    let noted = || travel.nono(&["status", "--json"]).success().json()["failed_pushes"].clone();
    let count = || noted().as_array().unwrap().len();
    for number in 1..=6 {
        travel.fixture.record(&format!("echo {number} > made")).success();
        eventually("the failure is noted", || count() == number);
    }
    let last = travel.fixture.latest();
    let told = travel.nono(&["status"]).success();
    assert!(told.says(&format!("{last} and 5 earlier ones were not pushed")), "{}", told.stdout);
    assert!(told.says("there is no remote \"nope\""), "{}", told.stdout);
    assert!(told.says("nono remote add nope URL"), "{}", told.stdout);
    travel.nono(&["push", "nope", &last]).fails(2, "there is no remote \"nope\"");
    // Another project has nothing to do with it.
    let elsewhere = travel.fixture.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let mut command = travel.fixture.command(&["status", "--json"]);
    let other = finished(command.current_dir(&elsewhere).output().unwrap()).success().json();
    assert_eq!(other["failed_pushes"], Value::Array(vec![]));
    // A session that was removed needs no push.
    travel.nono(&["cleanup", &last, "--yes"]).success();
    assert_eq!(count(), 5);
    travel.nono(&["doctor"]).fails(1, "");
    // The settings name the remote no more, and there is none.
    travel.nono(&["config", "set", "push_after_run", ""]).success();
    assert_eq!(noted(), Value::Array(vec![]));
    let doctor = travel.nono(&["doctor"]);
    assert!(!doctor.says("push after run"), "{}", doctor.stdout);
    let notes = travel.fixture.path("home/.local/state/nono/pushes");
    for remote in fs::read_dir(notes).unwrap() {
        assert_eq!(fs::read_dir(remote.unwrap().path()).unwrap().count(), 0);
    }
}

#[test]
fn the_command_for_pushes_that_failed_sends_all_of_them() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.directory("disk");
    travel.nono(&["config", "set", "push_after_run", "disk"]).success();
    let aside = travel.fixture.path("aside");
    fs::rename(&place, &aside).unwrap();
    let count = || {
        let status = travel.nono(&["status", "--json"]).success().json();
        status["failed_pushes"].as_array().unwrap().len()
    };
    // The push after a run notes its own session.
    for number in 1..=6 {
        travel.fixture.record(&format!("echo {number} > made")).success();
        eventually("the failure is noted", || count() == number);
        let told = travel.nono(&["status"]).success().stdout;
        match number {
            ..=5 => assert!(told.contains(&format!("{})", travel.fixture.latest())), "{told}"),
            _ => assert!(told.contains("(nono push disk --all)"), "{told}"),
        }
    }
    fs::rename(&aside, &place).unwrap();
    // One line for each session, and a total.
    let pushed = travel.nono(&["push", "disk", "--all"]).success().stderr;
    let (sessions, others): (Vec<_>, Vec<_>) =
        pushed.lines().partition(|line| line.starts_with("nono: session "));
    assert!(sessions.len() >= 6, "{pushed}");
    assert!(sessions.iter().all(|line| line.contains(" archive")), "{pushed}");
    let [total] = others[..] else { panic!("{pushed}") };
    assert!(total.contains(" archives stored, "), "{pushed}");
    assert_eq!(count(), 0);
}

#[test]
fn a_push_after_a_run_that_is_killed_is_shown_and_the_next_one_sends_its_session() {
    let travel = Travel::with(2, 5, 1);
    let mut shown = 0;
    for point in 1.. {
        let remote = format!("disk{point}");
        let place = travel.directory(&remote);
        let mut push = travel.command(&["push", &remote, &travel.session]);
        push.env("NONO_PUSH_AFTER_RUN", "1").env("NONO_FAIL_POINT", point.to_string());
        let is_whole = push.output().unwrap().status.success();
        let status = travel.nono(&["status", "--json"]).success().json();
        let failed = status["failed_pushes"].as_array().unwrap();
        if is_whole {
            assert!(failed.is_empty(), "{status:#}");
            break;
        }
        if archives(&place, &travel.session).len() == 1 {
            assert_eq!(failed[0]["session_id"], travel.session.as_str(), "at point {point}");
            travel.nono(&["doctor"]).fails(1, "");
            shown += 1;
        }
        travel.push(&remote);
        let status = travel.nono(&["status", "--json"]).success().json();
        assert_eq!(status["failed_pushes"], Value::Array(vec![]), "at point {point}");
    }
    assert!(shown > 3, "{shown}");
}

#[test]
fn a_push_after_a_run_that_is_under_way_has_not_failed_and_a_killed_one_has() {
    let Some(travel) = Travel::with(2, 5, 1).with_server() else { return };
    travel.cloud("cloud");
    let failed = || {
        let status = travel.nono(&["status", "--json"]).success().json();
        status["failed_pushes"].as_array().unwrap().len()
    };
    travel.server().forget_requests();
    let mut push = travel.command(&["push", "cloud", &travel.session]);
    let mut push = push.env("NONO_PUSH_AFTER_RUN", "1").spawn().unwrap();
    drop(travel.server().next_request());
    let paused = travel.server().pause();
    assert_eq!(failed(), 0);
    push.kill().unwrap();
    push.wait().unwrap();
    assert_eq!(failed(), 1);
    drop(paused);
    travel.push("cloud");
    assert_eq!(failed(), 0);
}
