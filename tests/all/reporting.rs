//! The messages of `nono run` for a program.

use std::fs;

use serde_json::Value;

use crate::fixture::{Finished, Fixture};

fn last_line(done: &Finished) -> Value {
    serde_json::from_str(done.stderr.lines().last().unwrap()).unwrap()
}

#[test]
fn the_last_line_on_stderr_is_a_report() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    let script = "echo 2 > a; echo x > new; echo x > b.log; exit 3";
    let run =
        ["run", "--rollback", "--rollback-exclude", "*.log", "--json", "--", "sh", "-c", script];
    let done = fixture.nono(&run);
    assert_eq!(done.code, 3);
    let report = last_line(&done);
    assert_eq!(report["session_id"], fixture.latest().as_str());
    assert_eq!(report["snapshots"], 2);
    assert_eq!(report["changes"]["created"], 1);
    assert_eq!(report["changes"]["modified"], 1);
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["leftovers"], Value::Array(Vec::new()));
    let left = report["unrecorded"][0]["path"].as_str().unwrap();
    assert!(left.ends_with("/b.log"), "{left}");
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(report["root"], list[0]["session_root"]);
    // The same in a file, and nothing else that is said by who is quiet.
    let file = fixture.path("report.json");
    let path = file.to_str().unwrap();
    let run = ["run", "-q", "--rollback", "--report", path, "--", "sh", "-c", "echo 3 > a"];
    assert_eq!(fixture.nono(&run).success().stderr, "");
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["session_id"], fixture.latest().as_str());
    assert_eq!(report["changes"]["modified"], 1);
    // It is outside of the record.
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert!(file.exists());
}

#[test]
fn what_goes_on_behind_the_command_is_in_the_report() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    let script = "sleep 300 > /dev/null 2>&1 < /dev/null & echo 2 > a";
    let run = ["run", "--rollback", "--json", "--", "sh", "-c", script];
    let report = last_line(&fixture.nono(&run).success());
    let left = &report["leftovers"][0];
    assert_eq!(left["command"], "sleep 300");
    let pid = left["pid"].as_i64().unwrap() as i32;
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn a_wrong_place_for_the_report_is_found_before_the_command_starts() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    let run = |place: &str| {
        let script = ["--", "sh", "-c", "echo 2 > a"];
        fixture.nono(&[&["run", "--rollback", "--report", place][..], &script].concat())
    };
    run("report.json").fails(2, "which is recorded");
    run(fixture.path("nowhere/report").to_str().unwrap()).fails(1, "nowhere");
    run(fixture.path("home").to_str().unwrap()).fails(2, "is there and no file");
    run("/").fails(2, "names no file");
    let store = fixture.store();
    run(store.join("report").to_str().unwrap()).fails(2, "lies in the store");
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1\n");
    // A run without a record changes none.
    let done =
        fixture.nono(&["run", "--no-rollback", "--report", "report.json", "--", "true"]).success();
    assert!(!done.says("session"));
    let report: Value =
        serde_json::from_slice(&fs::read(fixture.project().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["session_id"], Value::Null);
    assert_eq!(report["exit_code"], 0);
}

#[test]
fn a_command_that_cannot_start_has_a_report_too() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    let done =
        fixture.nono(&["run", "--rollback", "--json", "--", "./nowhere"]).fails(127, "nowhere");
    let report = last_line(&done);
    assert_eq!(report["exit_code"], 127);
    assert_eq!(report["session_id"], fixture.latest().as_str());
    // Failures of this program itself are named.
    let run = ["run", "--rollback", "--profile", "nowhere", "--json", "--", "true"];
    let report = last_line(&fixture.nono(&run).fails(2, "nowhere"));
    assert_eq!(report["exit_code"], 2);
    assert!(report["error"].as_str().unwrap().contains("nowhere"));
}
