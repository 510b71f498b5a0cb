//! Pushes beside the end of a run.

use std::fs;

use serde_json::Value;

use super::{Travel, archives, eventually};
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
