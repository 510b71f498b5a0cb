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
    let notes = travel.fixture.path("home/.local/state/nono/pushes");
    eventually("the failure is noted", || fs::read_dir(&notes).into_iter().flatten().count() == 1);
    let status = travel.nono(&["status", "--json"]).success().json();
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
