//! The proof of the root of a session, which a person or a program noted, through the program.

use std::fs;

use nono_engine::snapshot::SessionDir;

use super::fixture::{Finished, Fixture};

/// The root of the last session, as it is shown.
fn noted_root(fixture: &Fixture) -> String {
    let shown = fixture.nono(&["show", "latest"]).success().stdout;
    let line = shown.lines().find_map(|line| line.strip_prefix("root: "));
    line.unwrap_or_else(|| panic!("{shown}")).to_owned()
}

fn verify(fixture: &Fixture, root: &str) -> Finished {
    fixture.nono(&["rollback", "verify", "latest", "--expect-root", root])
}

#[test]
fn the_noted_root_of_a_session_proves_who_did_what() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let run = fixture.record("echo 2 > a; exit 3");
    assert_eq!(run.code, 3);
    let root = noted_root(&fixture);
    assert!(!run.says(&root), "{}", run.stderr);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(list[0]["session_root"].as_str(), Some(&*root));
    assert_eq!(show["session_root"].as_str(), Some(&*root));
    let shown = fixture.nono(&["rollback", "show", "latest"]).success();
    assert!(shown.stdout.contains(&format!("\nroot: {root}\n")), "{}", shown.stdout);
    let proved = "proved by the root: the command, its tracked paths and when it began, when it \
                  ended and its exit code; every byte of snapshots 0 to 1";
    let told = verify(&fixture, &root).success();
    assert!(told.says(proved) && !told.says("not proved"), "{}", told.stdout);
    // An undo adds a snapshot, and takes nothing from the proof.
    fixture.nono(&["rollback", "restore", "latest"]).success();
    let told = verify(&fixture, &root).success();
    assert!(told.says(proved), "{}", told.stdout);
    assert!(told.says("not proved by the root: every byte of snapshot 2"), "{}", told.stdout);
    let json = ["rollback", "verify", "latest", "--json", "--expect-root", &root];
    let report = fixture.nono(&json).success().json();
    assert_eq!(report["proved"]["by"], "session_root");
    assert_eq!(report["proved"]["snapshots"], serde_json::json!([0, 1]));
    assert_ne!(report["session_root"].as_str(), Some(&*root));
    // The root of a snapshot says nothing of the command.
    let merkle_root = show["snapshots"][1]["merkle_root"].as_str().unwrap();
    let told = verify(&fixture, merkle_root).success();
    assert!(told.says("proved by the root: every byte of snapshots 1 to 2\n"), "{}", told.stdout);
    assert!(told.says("not proved by the root: what the session says of the command; every byte"));
}

#[test]
fn a_fact_that_sed_changed_is_found_without_a_root_and_a_forged_one_with_it() {
    for (fact, forged) in [("exit 3", "exit 0"), ("\"exit_code\": 3", "\"exit_code\": 0")] {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        fixture.record("echo 2 > a; exit 3");
        let root = noted_root(&fixture);
        let path = fixture.session().join("manifest.json");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace(fact, forged)).unwrap();
        let told = fixture.nono(&["rollback", "verify", "latest"]).fails(1, "");
        assert!(told.says("it was changed, and not by nono"), "{}", told.stdout);
        // It keeps no user from an undo, which does not launder it.
        fixture.nono(&["rollback", "restore", "latest"]).success();
        fixture.nono(&["rollback", "verify", "latest"]).fails(1, "");
        verify(&fixture, &root).fails(1, "");
        // The owner of the store can make all of it agree.
        let session = SessionDir::open(&fixture.session()).unwrap();
        let mut metadata = session.metadata().unwrap();
        metadata.altered = None;
        session.save_metadata(&metadata).unwrap();
        fixture.nono(&["rollback", "verify", "latest"]).success();
        let told = verify(&fixture, &root).fails(1, "");
        assert!(told.says("neither the session nor a snapshot has the root"), "{}", told.stdout);
    }
}

#[test]
fn the_root_of_a_session_stays_proved_when_a_snapshot_is_added() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let first = fixture.nono(&["snapshot", "--json"]).success().json();
    let root = first["session_root"].as_str().unwrap().to_owned();
    fixture.write("a", "2");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    let told = verify(&fixture, &root).success();
    assert!(told.says("every byte of snapshot 0\n"), "{}", told.stdout);
    assert!(told.says("not proved by the root: every byte of snapshot 1\n"), "{}", told.stdout);
}

#[test]
fn a_command_that_edits_its_own_record_cannot_change_what_is_said_of_it() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    // Without walls it can write the store.
    let edit = "m=$HOME/.nono/rollbacks/$NONO_SESSION/manifest.json; \
                timeout 60 sh -c \"until grep -q 'snapshot_count\\\": 1' $m; do sleep 0.01; \
                done\"; sed -i 's/burglar/gardener/' $m; : burglar";
    let run = fixture.nono(&["run", "-v", "--no-sandbox", "--", "sh", "-c", edit]).success();
    let root = run.stderr.lines().find_map(|line| line.strip_prefix("nono:   root: "));
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["command"][2], edit);
    // The root is of what really ran, and that the store was edited is not forgotten.
    let told = verify(&fixture, root.unwrap()).fails(1, "");
    assert!(told.says("proved by the root: the command"), "{}", told.stdout);
    assert!(told.says("it was changed, and not by nono"), "{}", told.stdout);
}
