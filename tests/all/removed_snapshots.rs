//! Snapshots that are taken out of the middle of a session: what the commands say of them, and what
//! a kill at any point of the removal leaves.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use nono_engine::gc::remove_snapshots;
use nono_engine::snapshot::{RemovalReason, SessionDir};

use crate::fixture::Fixture;
use crate::mount::mount;

/// Names the session in the process that removes its snapshot.
const CHILD: &str = "NONO_TEST_REMOVE_IN";

/// A session of three snapshots, and its id.
fn recorded() -> (Fixture, String) {
    let fixture = Fixture::in_memory();
    fixture.write("file", "one");
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    for state in ["two is longer", "three"] {
        fixture.write("file", state);
        fixture.nono(&["snapshot", "--session", &id]).success();
    }
    (fixture, id)
}

/// Removes snapshot 1, in a process that is killed at a point; says whether it was.
fn killed_at(fixture: &Fixture, point: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "removed_snapshots::a_process_that_removes_a_snapshot"]);
    child.env(CHILD, fixture.session()).env("NONO_FAIL_POINT", point.to_string());
    let status = child.output().unwrap().status;
    assert!(status.success() || status.signal() == Some(9), "at point {point}: {status}");
    !status.success()
}

/// Does nothing unless another test starts it to remove a snapshot.
#[test]
fn a_process_that_removes_a_snapshot() {
    let Some(session) = std::env::var_os(CHILD) else { return };
    let session = SessionDir::open(Path::new(&session)).unwrap();
    remove_snapshots(&session, &[1], RemovalReason::Retention).unwrap();
}

#[test]
fn a_removal_killed_at_any_point_leaves_the_snapshot_whole_or_removed() {
    let (fixture, id) = recorded();
    let whole = fs::read(fixture.session().join("manifest.json")).unwrap();
    let (mut point, mut done) = (1, 0);
    while killed_at(&fixture, point) {
        // A collection right after the crash, as eager as it can be.
        fixture.nono(&["rollback", "cleanup", "--yes", "--keep", "9", "--compact"]).success();
        let verified = fixture.nono(&["rollback", "verify", &id, "--json"]).success().json();
        let is_removed = verified["snapshots"][1]["removed"].is_object();
        done += u64::from(is_removed);
        let read = fixture.nono(&["rollback", "cat", &format!("{id}/1"), "file"]);
        match is_removed {
            true => drop(read.fails(1, "was removed by retention on")),
            false => assert_eq!(read.success().stdout, "two is longer"),
        }
        if is_removed {
            break;
        }
        fs::write(fixture.session().join("manifest.json"), &whole).unwrap();
        point += 1;
    }
    assert!(point > 4, "{point} points are not those of two durable documents");
    assert_eq!(done, 1, "the last points come after the removal");
}

#[test]
fn every_command_knows_a_removed_snapshot() {
    let (fixture, id) = recorded();
    remove_snapshots(
        &SessionDir::open(&fixture.session()).unwrap(),
        &[1],
        RemovalReason::Retention,
    )
    .unwrap();
    fixture.nono(&["rollback", "cleanup", "--yes", "--keep", "9", "--compact"]).success();
    let named = format!("{id}/1");
    let listed = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(listed[0]["snapshot_count"], 2);
    assert_eq!(listed[0]["removed"][0]["number"], 1);
    assert_eq!(listed[0]["removed"][0]["reason"], "retention");
    let shown = fixture.nono(&["rollback", "show", &id]).success();
    assert!(shown.stdout.contains("snapshot 1: removed by retention on"), "{}", shown.stdout);
    let shown = fixture.nono(&["rollback", "show", &id, "--json"]).success().json();
    let numbers: Vec<_> =
        shown["snapshots"].as_array().unwrap().iter().map(|s| &s["number"]).collect();
    assert_eq!(numbers, [0, 2]);
    // The changes of the next one are told against the present one before it.
    assert_eq!(shown["snapshots"][1]["changes"][0]["change_type"], "modified");
    let said = "was removed by retention on";
    fixture.nono(&["rollback", "show", &named]).fails(1, said);
    fixture.nono(&["rollback", "diff", &named]).fails(1, said);
    fixture.nono(&["rollback", "restore", &named]).fails(1, said);
    fixture.nono(&["rollback", "diff", &id]).success();
    let history = fixture.nono(&["log", "file", "--json"]).success();
    assert!(!history.stdout.contains(&named), "{}", history.stdout);
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("file")).unwrap(), "one");
    let point = fixture.path("point");
    fs::create_dir(&point).unwrap();
    let Some(_mount) = mount(&fixture.store(), &point) else { return };
    let names = fs::read_dir(point.join(&id)).unwrap();
    let mut names: Vec<_> =
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    // The undo kept the state before it.
    assert_eq!(names, ["0", "2", "3", "latest"]);
    assert!(!point.join(&id).join("1").exists());
}
