//! A bucket with a hundred thousand archives of others.

use super::Travel;
use super::faulty_server::FaultyServer;
use crate::object_server::ObjectServer;

/// Archives in the bucket before the test.
const ARCHIVES: usize = 100_000;
/// Most requests of a command that works on one session.
const MOST_REQUESTS: usize = 20;

#[test]
fn one_session_is_pushed_listed_pulled_and_cleaned_up_with_few_requests_among_many_archives() {
    let travel = Travel::with(1, 20, 0);
    let Some(server) = ObjectServer::start_full(ARCHIVES) else { return };
    let travel = travel.at(server);
    let counting = FaultyServer::before(travel.server().address());
    let url = counting.url("far");
    travel.nono(&["remote", "add", "far", &url, "--recipient", &travel.recipient]).success();
    let requests = |arguments: &[&str]| {
        let before = counting.requests(&[]).len();
        let done = travel.nono(arguments);
        assert_eq!(done.code, 0, "{arguments:?}: {}{}", done.stdout, done.stderr);
        let heads = counting.requests(&[]).split_off(before);
        assert!(heads.len() <= MOST_REQUESTS, "{arguments:?}: {}: {heads:#?}", heads.len());
        done
    };
    let mut sessions = Vec::new();
    for run in 0..5 {
        travel.fixture.record(&format!("echo {run} >> d1/f1")).success();
        sessions.push(travel.fixture.latest());
        requests(&["push", "far", &sessions[run]]);
    }
    let [first, .., last] = &sessions[..] else { unreachable!("five runs") };
    let shown = requests(&["remote", "show", "far", last, "--json"]).json();
    assert_eq!(shown["archive_count"], 2, "{shown:#}");
    assert!(shown["sessions"][0]["snapshots"][1]["chain"][1].is_string(), "{shown:#}");
    let root = travel.fixture.path("store").to_str().unwrap().to_owned();
    requests(&["--root", &root, "pull", "far", last, "--identity", travel.identity()]);
    requests(&["remote", "cleanup", "far", first, "--keep", "0", "--yes"]);
    requests(&["remote", "verify", "far", last, "--identity", travel.identity()]);
}
