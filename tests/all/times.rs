//! States that are named by a time, as people say it.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished};
use crate::thinning::age;

/// A session of five states, a day apart: the last one is of now.
fn five_days() -> (Fixture, String) {
    five_states(|number| i64::try_from(4 - number).unwrap() * 24)
}

/// A session of five states that were recorded so many hours ago.
fn five_states(hours: impl Fn(u64) -> i64) -> (Fixture, String) {
    let fixture = Fixture::new();
    fixture.write("a", "state 0\n");
    fixture.nono(&["snapshot"]).success();
    let session = fixture.latest();
    for number in 1..5 {
        fixture.write("a", format!("state {number}\n"));
        fixture.nono(&["snapshot", "--session", &session]).success();
    }
    age(&fixture.session(), hours);
    (fixture, session)
}

fn read(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.project().join("a")).unwrap()
}

#[test]
fn a_restore_to_a_time_says_which_state_it_means_before_anything_happens() {
    let (fixture, session) = five_days();
    let planned = fixture.nono(&["restore", "--at", "50h ago", "--dry-run"]).success();
    assert!(planned.says(&format!(" is {session}/1, recorded 2")), "{}", planned.stderr);
    assert_eq!(read(&fixture), "state 4\n");
    let done = fixture.nono(&["restore", "a", "--at", "50h ago"]).success();
    let said = done.stderr.find("the state at ").unwrap();
    assert!(said < done.stderr.find("restoring").unwrap(), "{}", done.stderr);
    assert_eq!(read(&fixture), "state 1\n");
    fixture.nono(&["redo"]).success();
    assert_eq!(read(&fixture), "state 4\n");
    // A session has its own states.
    fixture.nono(&["restore", &session, "--at", "73 hours ago", "--force"]).success();
    assert_eq!(read(&fixture), "state 0\n");
    fixture.nono(&["redo"]).success();
    let out = fixture.path("out");
    let to = out.to_str().unwrap();
    fixture.nono(&["restore", "--at", "25h ago", "--to", to]).success();
    assert_eq!(fs::read_to_string(out.join("a")).unwrap(), "state 2\n");
    let id = format!("{session}/0");
    fixture.nono(&["restore", &id, "--at", "now"]).fails(2, "--at names a state");
    let first = format!("the first state is {session}/0, recorded 2");
    fixture.nono(&["restore", "--at", "200h ago"]).fails(1, &first);
    fixture.nono(&["restore", "--at", "2999-01-01"]).fails(2, "is in the future");
    fixture.nono(&["restore", "--at", "soon"]).fails(2, "is no time: a time is 12:00");
}

#[test]
fn a_comparison_begins_with_the_state_at_a_time() {
    let (fixture, session) = five_days();
    fixture.write("a", "now\n");
    let patch = fixture.nono(&["diff", "--at", "50h ago"]).success();
    assert!(patch.stdout.contains("-state 1\n+now\n"), "{}", patch.stdout);
    assert!(patch.says(&format!(" is {session}/1, recorded 2")), "{}", patch.stderr);
    let cat = fixture.nono(&["cat", "a", "--at", "30h ago"]).success();
    assert_eq!(cat.stdout, "state 2\n");
    let patch = fixture.nono(&["diff", "--at", "80h ago", &format!("{session}/3"), "a"]).success();
    assert!(patch.stdout.contains("-state 0\n+state 3\n"), "{}", patch.stdout);
    let twice = ["diff", "--at", "80h ago", &format!("{session}/3"), "now"];
    fixture.nono(&twice).fails(2, "name one other at most");
}

#[test]
fn a_log_has_the_versions_since_a_time_or_the_one_that_stood() {
    let (fixture, session) = five_days();
    let numbers = |words: &[&str]| {
        let report = fixture.nono(&[&["log", "a", "--json"], words].concat()).success().json();
        let versions = report["versions"].as_array().unwrap().iter();
        versions.map(|version| version["number"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(numbers(&[]), [4, 3, 2, 1, 0]);
    assert_eq!(numbers(&["--since", "50h ago"]), [4, 3, 2]);
    assert_eq!(numbers(&["--at", "50h ago"]), [1]);
    let shown = fixture.nono(&["log", "a", "--at", "50h ago"]).success();
    assert!(shown.says("the version at 2") && shown.says(&format!("{session}/1")));
    assert!(shown.stdout.contains("1 version\n"), "{}", shown.stdout);
    fixture.nono(&["log", "a", "--at", "200h ago"]).fails(1, "no version of");
    fixture.nono(&["log", "--at", "now"]).fails(2, "PATH");
}

#[test]
fn states_of_a_wrong_clock_are_meant_by_what_the_clock_said() {
    // The clock was behind for the third state, and ahead for the fourth.
    let hours = |number| [96, 72, 48, 500, -1000][usize::try_from(number).unwrap()];
    let (fixture, session) = five_states(hours);
    let meant = |at: &str| {
        let planned = fixture.nono(&["restore", "--at", at, "--dry-run"]);
        let said = planned.stderr.lines().find(|line| line.starts_with("nono: the state at "));
        let number = said.and_then(|said| said.split_once(&format!(" is {session}/")));
        number.map_or(planned.stderr.clone(), |(_, rest)| rest.split(',').next().unwrap().into())
    };
    assert_eq!(meant("now"), "2");
    assert_eq!(meant("50h ago"), "1");
    assert_eq!(meant("400h ago"), "3");
    let first = format!("the first state is {session}/3, recorded 2");
    assert!(meant("600h ago").contains(&first), "{}", meant("600h ago"));
}

#[test]
fn exact_times_have_the_offset_of_this_place() {
    let (fixture, session) = five_days();
    let shown = fixture.nono(&["show", &session, "--json"]).success().json();
    let taken = shown["snapshots"][2]["timestamp"].as_str().unwrap();
    let said = |zone: &str, at: &str| {
        let mut command = fixture.command(&["diff", "--stat", "--at", at]);
        finished(command.env("TZ", zone).output().unwrap()).success().stderr
    };
    for (zone, offset) in [("UTC", "+00:00"), ("XXX-5:30", "+05:30"), ("XXX8", "-08:00")] {
        let stderr = said(zone, taken);
        assert!(stderr.contains(&format!("{offset} is {session}/2, recorded ")), "{stderr}");
    }
}

#[test]
fn after_an_undo_the_state_at_a_time_is_the_restored_one() {
    let fixture = Fixture::new();
    fixture.write("a", "old\n");
    fixture.record("echo new > a").success();
    let session = fixture.latest();
    let said = |fixture: &Fixture| -> Finished { fixture.nono(&["diff", "--at", "now"]).success() };
    assert!(said(&fixture).says(&format!(" is {session}/1, recorded ")));
    fixture.nono(&["undo", "--yes"]).success();
    let compared = said(&fixture);
    assert!(compared.says(&format!(" is {session}/0, restored ")), "{}", compared.stderr);
    assert_eq!(compared.stdout, "");
}

#[test]
fn all_sessions_since_a_time_are_undone_newest_first() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    for number in 1..=3 {
        fixture.record(&format!("echo {number} > a; echo {number} > b{number}")).success();
    }
    let listed = fixture.nono(&["list", "--json"]).success().json();
    let middle = &listed[1];
    let since = middle["started"].as_str().unwrap();
    let planned = fixture.nono(&["undo", "--since", since, "--dry-run"]).success();
    assert!(planned.says("2 sessions here began since 2"), "{}", planned.stderr);
    assert_eq!(read(&fixture), "3\n");
    fixture.nono(&["undo", "--since", since]).fails(2, "--yes undoes without a question");
    fixture.nono(&["undo", "--since", since, "--yes"]).success();
    assert_eq!(read(&fixture), "1\n");
    assert!(!fixture.project().join("b2").exists() && fixture.project().join("b1").exists());
    fixture.nono(&["undo", "--since", since, "--yes"]).fails(1, "is left to undo");
    // Each of them comes back by itself.
    fixture.nono(&["redo"]).success();
    assert_eq!(read(&fixture), "2\n");
    fixture.nono(&["redo"]).success();
    assert_eq!(read(&fixture), "3\n");
    fixture.nono(&["undo", "--since", "1h ago", "--yes"]).success();
    assert_eq!(read(&fixture), "0\n");
}

#[test]
fn a_cleanup_takes_a_length_of_time() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    fixture.record("echo 1 > a").success();
    let session = fixture.latest();
    let manifest = fixture.session().join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let metadata: Value = serde_json::from_str(&text).unwrap();
    let started = metadata["started"].as_str().unwrap();
    let begun: Timestamp = started.parse().unwrap();
    let earlier = (begun - SignedDuration::from_hours(40)).to_string();
    fs::write(&manifest, text.replace(started, &earlier)).unwrap();
    let foreseen = |age: &str| fixture.nono(&["cleanup", "--older-than", age, "--dry-run"]);
    let removed = foreseen("36h").success();
    assert!(removed.stdout.contains(&format!("would remove {session}")), "{}", removed.stdout);
    assert!(removed.says("sessions that began before 2"), "{}", removed.stderr);
    for kept in ["41h", "2", "3 days ago"] {
        assert!(!foreseen(kept).success().stdout.contains("would remove"), "{kept}");
    }
    assert!(foreseen("1").success().stdout.contains("would remove"));
    foreseen("soon").fails(2, "is no time");
}
