//! Files that the baseline could not read: their contents are unknown, and a change is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::fixture::{Finished, Fixture};

const NOTHING_HELD: &str = "and no snapshot holds what it was: ";

fn set_mode(fixture: &Fixture, name: &str, mode: u32) {
    let path = fixture.project().join(name);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A project with a directory and a file that an ordinary user may not read.
fn closed() -> Fixture {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    fixture.write("closed/inside", "never captured");
    fixture.write("secret", "never captured");
    set_mode(&fixture, "closed", 0);
    set_mode(&fixture, "secret", 0);
    fixture
}

/// Paths and fates in a list `lost` of a report.
fn lost(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let name = |path: &Value| text(path).rsplit('/').next().unwrap().to_owned();
    let lost = report["lost"].as_array().unwrap_or_else(|| panic!("no list in {report}"));
    lost.iter().map(|lost| (name(&lost["path"]), text(&lost["what"]))).collect()
}

#[track_caller]
fn says(done: &Finished, text: &str) {
    assert!(done.says(text), "{text:?} is not in: {}{}", done.stdout, done.stderr);
}

#[test]
fn what_cannot_be_read_is_named_before_and_after_a_run_that_leaves_it() {
    let fixture = closed();
    let run = fixture.record("echo 2 > a").success();
    says(&run, "not captured: ");
    says(&run, "a change there cannot be undone");
    let after = run.stderr.lines().find(|line| line.contains("could not be read, so a change"));
    let project = fixture.project().display().to_string();
    let after = after.unwrap_or_else(|| panic!("{}", run.stderr));
    assert!(after.contains(&format!("{project}/closed and 1 more")), "{after}");
    assert!(!run.says(NOTHING_HELD), "{}", run.stderr);
    // As unreadable as before, it is as before.
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert_eq!(lost(&status["since"]), [], "{status}");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn what_a_command_opened_changed_and_closed_again_is_named_wherever_somebody_asks() {
    let fixture = closed();
    let script = "chmod 700 closed; echo evil > closed/inside; chmod 0 closed
        chmod 600 secret; echo evil > secret; chmod 0 secret; echo 2 > a";
    let place = fixture.path("home/report").display().to_string();
    let words = ["run", "--rollback", "--report", &place, "--", "sh", "-c", script];
    let run = fixture.nono(&words).success();
    let project = fixture.project().display().to_string();
    for path in ["closed/", "secret"] {
        says(&run, &format!("changed, {NOTHING_HELD}{project}/{path}\n"));
    }
    assert!(!run.says("could not be read, so a change"), "{}", run.stderr);
    let expected = [("closed", "changed"), ("secret", "changed")];
    let expected = expected.map(|(path, what)| (path.to_owned(), what.to_owned()));
    let report = fixture.path("home/report");
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(lost(&report), expected, "{report}");
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert_eq!(lost(&status["since"]), expected, "{status}");
    let status = fixture.nono(&["status"]).success();
    says(&status, &format!("cannot be restored: changed, {NOTHING_HELD}{project}/closed/\n"));
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).fails(1, "");
    assert_eq!(lost(&planned.json()), expected);
    let undone = fixture.nono(&["undo", "--yes"]).fails(1, "2 paths that are not recorded");
    says(&undone, &format!("changed, {NOTHING_HELD}{project}/secret\n"));
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    let restored = fixture.nono(&["restore", "latest", "--json"]).fails(1, "");
    assert_eq!(lost(&restored.json()), expected);
    // A partial restore leaves the other paths alone.
    fixture.nono(&["restore", "latest", "a"]).success();
    set_mode(&fixture, "closed", 0o700);
    let inside = fs::read_to_string(fixture.project().join("closed/inside")).unwrap();
    assert_eq!(inside, "evil\n", "nothing was invented");
}

#[test]
fn what_is_gone_or_open_is_named_too() {
    for (script, fates) in [
        ("chmod 700 closed; rm -r closed; rm -f secret", [("closed", "gone"), ("secret", "gone")]),
        ("chmod 755 closed; chmod 644 secret", [("closed", "changed"), ("secret", "changed")]),
    ] {
        let fixture = closed();
        let run = fixture.record(script).success();
        for (path, what) in fates {
            let slash = if path == "closed" { "/" } else { "" };
            says(&run, &format!("{what}, {NOTHING_HELD}"));
            says(&run, &format!("/{path}{slash}\n"));
        }
        let restored = fixture.nono(&["restore", "latest", "--json"]).fails(1, "").json();
        let fates = fates.map(|(path, what)| (path.to_owned(), what.to_owned()));
        assert_eq!(lost(&restored), fates, "{script}: {restored}");
        assert_eq!(restored["skipped"], json!([]), "{restored}");
    }
}

#[test]
fn a_run_that_changed_nothing_but_what_could_not_be_read_is_the_one_that_is_meant() {
    let fixture = closed();
    fixture.record("echo 2 > a").success();
    let earlier = fixture.latest();
    let run = fixture.record("chmod 600 secret; echo evil > secret; chmod 0 secret").success();
    says(&run, "nothing that is recorded changed");
    says(&run, NOTHING_HELD);
    let id = fixture.latest();
    assert_ne!(id, earlier);
    says(&fixture.nono(&["list"]).success(), &id);
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert_eq!(status["session"]["session_id"], *id);
    assert_eq!(lost(&status["since"]), [("secret".to_owned(), "changed".to_owned())]);
    for flag in ["--dry-run", "--yes"] {
        let undone = fixture.nono(&["undo", flag]).fails(1, NOTHING_HELD);
        says(&undone, &format!("nothing of session {id} can be undone now"));
    }
    fixture.nono(&["restore"]).fails(1, NOTHING_HELD);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
    // The session before is undone by its name, and finds the same.
    fixture.nono(&["undo", &earlier, "--yes"]).fails(1, NOTHING_HELD);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn the_notes_about_an_unreadable_path_are_what_its_inode_says() {
    let fixture = closed();
    fixture.nono(&["snapshot"]).fails(1, "a change there cannot be undone");
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let left = show["snapshots"][0]["not_captured"].as_array().unwrap();
    let [closed, secret] = &left[..] else { panic!("{show}") };
    assert_eq!(
        (&closed["reason"], &closed["state"]["kind"]),
        (&json!("unreadable"), &json!("unreadable"))
    );
    assert_eq!(closed["state"]["is_directory"], true);
    assert_eq!(secret["state"]["size"], 14);
    assert_eq!(secret["state"]["mode"], 0);
    assert_eq!(secret["state"]["is_directory"], Value::Null);
    fixture.nono(&["rollback", "verify", "latest"]).success();
}
