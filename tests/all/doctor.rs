//! The doctor; and the scripts for completions, older flags and labels.

use std::fs;

use nono_engine::session::new_session_dir;
use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;
use serde_json::json;

use crate::fixture::Fixture;

#[test]
fn shells_get_a_script_that_asks_for_completions() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = fixture.nono(&["completions", shell]).success().stdout;
        assert!(script.contains("NONO_COMPLETE") && script.contains("nono"), "{shell}");
    }
    fixture.nono(&["completions", "none"]).fails(2, "none");
}

#[test]
fn the_doctor_names_what_is_wrong_and_what_mends_it() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let of = |what: &str| {
        let findings = fixture.nono(&["doctor", "--json"]).json();
        findings.as_array().unwrap().iter().find(|found| found["what"] == what).unwrap().clone()
    };
    assert_eq!(of("sandbox")["ok"], true);
    assert_eq!(of("sessions")["ok"], true);
    assert_eq!(of("configuration")["ok"], true);
    // Really tried, whatever the answer is here.
    assert!(of("reflink")["found"].as_str().unwrap().contains("clone files"));
    let left = fs::read_dir(fixture.store()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().starts_with(".tmp-")));
    let config = fixture.path("home/.config/nono/config.toml");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    fs::write(&config, "[rollback]\nmax_sesions = 1").unwrap();
    assert_eq!(of("configuration")["ok"], false);
    assert!(of("configuration")["found"].as_str().unwrap().contains("max_sessions"));
    fs::remove_file(&config).unwrap();
    let manifest = fixture.session().join("manifest.json");
    fs::write(&manifest, "{").unwrap();
    assert_eq!(of("sessions")["ok"], false);
    assert!(of("sessions")["mend"].as_str().unwrap().starts_with("nono verify "));
    fixture.nono(&["doctor"]).fails(1, "");
}

#[test]
fn the_doctor_finds_interrupted_sessions_and_restores() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    // The parent is the keeper; its parent is the supervisor.
    let script = "echo 2 > a; kill -KILL $(awk '/^PPid/ {print $2}' /proc/$PPID/status); sleep 600";
    let run = ["run", "--rollback", "--", "sh", "-c", script];
    // Inside the sandbox no signal reaches the supervisor; without it, this one kills it.
    let run = [&run[..1], &["--no-sandbox"], &run[1..]].concat();
    assert_eq!(fixture.nono(&run).code, -1);
    let id = fixture.latest();
    let findings = |what: &str| -> Vec<serde_json::Value> {
        let found = fixture.nono(&["doctor", "--json"]).fails(1, "").json();
        found.as_array().unwrap().iter().filter(|found| found["what"] == what).cloned().collect()
    };
    let sessions = findings("sessions");
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["ok"], false);
    assert!(sessions[0]["mend"].as_str().unwrap().contains(&format!("nono undo {id}")));
    assert_eq!(findings("restores").len(), 0);
    fs::write(fixture.session().join("restore.journal"), "half").unwrap();
    let restores = findings("restores");
    assert!(restores[0]["mend"].as_str().unwrap().starts_with(&format!("nono resume {id}")));
}

#[test]
fn the_older_flags_of_a_run_are_accepted() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = ["--", "sh", "-c", "echo 2 > a"];
    let older = ["run", "--supervised", "--rollback", "--no-undo-prompt"];
    fixture.nono(&[&older[..], &script].concat()).success();
    fixture.nono(&["undo", "restore", "latest"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"1");
    // Alone it records as well, as the older documents have it.
    fixture.nono(&[&["run", "--supervised"][..], &script].concat()).success();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    fixture.nono(&["undo", "restore", "latest"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"1");
}

#[test]
fn labels_of_checkpoints_are_shown_and_listed() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let session = new_session_dir(&fixture.store()).unwrap();
    let tracked = [fixture.project()];
    let exclusion = ExclusionConfig::nothing();
    let manager = SnapshotManager::new(&session, &tracked, exclusion, Budget::default()).unwrap();
    manager.create_baseline().unwrap();
    fixture.write("a", "2");
    // The maker of a label may be the agent.
    manager.checkpoint("before é\u{1b}[2J").unwrap();
    // A session's manifest that is written again keeps them.
    let metadata = manager.session().metadata().unwrap();
    manager.save_session_metadata(&metadata).unwrap();

    let shown = fixture.nono(&["rollback", "show", "latest"]).success().stdout;
    assert!(shown.contains("snapshot 1 “before é\\u{1b}[2J”"), "{shown}");
    let listed = fixture.nono(&["rollback", "list"]).success().stdout;
    assert!(listed.contains("1 “before é\\u{1b}[2J”"), "{listed}");
    let labels = json!([{"number": 1, "label": "before é\u{1b}[2J"}]);
    let listed = fixture.nono(&["rollback", "list", "--json"]).json();
    assert_eq!(listed[0]["labels"], labels);
    let shown = fixture.nono(&["rollback", "show", "latest", "--json"]).json();
    assert_eq!(shown["labels"], labels);
    assert_eq!(shown["snapshots"][0]["label"], json!(null));
    assert_eq!(shown["snapshots"][1]["label"], "before é\u{1b}[2J");
}
