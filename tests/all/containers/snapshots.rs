//! Snapshots of containers: what they hold, and that no container stays paused.

use std::fs;

use serde_json::Value;

use super::daemon::{Container, daemon};
use super::engine::Ability;
use crate::fixture::Fixture;

/// Takes a snapshot, which has to succeed; its report.
#[track_caller]
fn snapshot(fixture: &Fixture, container: &Container, more: &[&str]) -> Value {
    let daemon = daemon().unwrap();
    let arguments = [&["container", "snapshot", &container.name, "--json"][..], more].concat();
    daemon.nono(fixture, &arguments).success().json()
}

fn id(report: &Value) -> String {
    format!("{}/{}", report["session_id"].as_str().unwrap(), report["snapshot"])
}

#[track_caller]
fn show(fixture: &Fixture, id: &str) -> Value {
    daemon().unwrap().nono(fixture, &["container", "show", id, "--json"]).success().json()
}

#[test]
fn a_snapshot_holds_image_volumes_changed_files_and_configuration() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("whole");
    let mount = format!("{volume}:/data");
    let options = ["-v", &mount, "-v", "/hidden/place", "-e", "A=b", "--tmpfs", "/quick"];
    let container = Container::run(daemon, "whole", &options);
    container.sh("echo named >/data/file; echo anonymous >/hidden/place/file");
    container.sh("echo new >/etc/new; mkdir -p /own/deep; echo x >/own/deep/x; rm /etc/image");
    let taken = snapshot(&fixture, &container, &["-m", "all of it", "--run-id", "r1"]);
    assert_eq!(container.state().as_deref(), Some("running"));
    assert_eq!(taken["is_consistent"], true);
    assert_eq!(taken["volume_source"], "directory");
    let shown = show(&fixture, &id(&taken));
    let record = &shown["record"];
    assert_eq!((&record["message"], &record["run_id"]), (&"all of it".into(), &"r1".into()));
    let env = record["config"]["Env"].as_array().unwrap();
    assert!(env.contains(&"A=b".into()), "{env:?}");
    assert_eq!(record["changed_files"]["deleted"], serde_json::json!(["/etc/image"]));
    let gaps = record["not_captured"].to_string();
    assert!(gaps.contains("/quick") && gaps.contains("memory"), "{gaps}");
    let image = record["image"]["committed"]["reference"].as_str().unwrap();
    let found = daemon.inspect(image);
    assert_eq!(found["Config"]["Labels"]["io.nono.session"], taken["session_id"]);
    let (name, session) = (&container.name, taken["session_id"].as_str().unwrap());
    for command in ["show", "restore", "delete", "list", "validate", "diff"] {
        let offered = crate::completing::offered(&fixture, &["nono", "container", command, ""]);
        assert!(offered.contains(name) && offered.iter().any(|it| it == session), "{offered:?}");
    }
    let number = format!("{name}/");
    let numbers = crate::completing::offered(&fixture, &["nono", "container", "show", &number]);
    assert_eq!(numbers, [format!("{name}/0")]);
    let cat = |path: &str| {
        daemon.nono(&fixture, &["rollback", "cat", &id(&taken), path]).success().stdout
    };
    assert_eq!(cat(&format!("/volumes/{volume}/file")), "named\n");
    assert_eq!(cat("/volumes/:hidden:place/file"), "anonymous\n");
    assert_eq!(cat("/changes/etc/new"), "new\n");
    assert_eq!(cat("/changes/own/deep/x"), "x\n");
    daemon.nono(&fixture, &["rollback", "verify", taken["session_id"].as_str().unwrap()]).success();
    daemon.nono(&fixture, &["container", "validate"]).success();
}

#[test]
fn an_unchanged_volume_is_not_read_again_and_a_diff_names_what_changed() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("again");
    let mount = format!("{volume}:/data");
    let container = Container::run(daemon, "again", &["-v", &mount]);
    container.sh("for i in 1 2 3; do echo $i >/data/$i; done");
    let first = snapshot(&fixture, &container, &["--no-files", "--no-image"]);
    let again = snapshot(&fixture, &container, &["--no-files", "--no-image"]);
    assert_eq!(first["session_id"], again["session_id"]);
    // A file as young as the first snapshot may be read once more, and none after that.
    container.sh("sleep 1; echo other >/data/2");
    let third = snapshot(&fixture, &container, &["--no-files", "--no-image"]);
    assert!(third["files_read"].as_u64().unwrap() <= 3, "{third}");
    let (old, new) = (id(&again), id(&third));
    let diff = daemon.nono(&fixture, &["container", "diff", &old, &new, "--json"]);
    let diff = diff.success().json();
    let paths: Vec<_> = diff["changes"].as_array().unwrap().iter().map(|c| &c["path"]).collect();
    assert_eq!(paths, [&Value::from(format!("/volumes/{volume}/2"))]);
}

#[test]
fn the_stream_of_the_engine_gives_the_tree_of_the_directory_in_what_it_carries() {
    let Some(daemon) = daemon() else { return };
    let volume = daemon.unique("equal");
    let mount = format!("{volume}:/data");
    let container = Container::run(daemon, "equal", &["-v", &mount]);
    container.sh(
        "cd /data; mkdir -p a/b; echo x >a/b/x; ln a/b/x a/y; ln -s ../nowhere a/link; chmod 751 \
         a; dd if=/dev/zero of=long bs=1024 count=3000 2>/dev/null",
    );
    if daemon.engine().has(Ability::WholeStreams) {
        container.sh("chown 12:34 /data/a/b/x");
    }
    // Whole seconds, so that both sources carry the same times.
    container.sh("find /data | while read p; do touch -h -d '2026-01-02 03:04:05' $p; done");
    let trees: Vec<String> = [&[][..], &["--through-engine"][..]]
        .into_iter()
        .map(|more| {
            let fixture = Fixture::new();
            let arguments = [&["--no-files", "--no-image"][..], more].concat();
            let taken = snapshot(&fixture, &container, &arguments);
            let source = if more.is_empty() { "directory" } else { "archive" };
            assert_eq!(taken["volume_source"], source);
            show(&fixture, &id(&taken))["volumes"][&volume].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn a_container_that_was_paused_stays_paused_and_one_in_no_fit_state_is_refused() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "paused", &[]);
    daemon.run(&["pause", &container.name]);
    let taken = snapshot(&fixture, &container, &["--no-image"]);
    assert_eq!(taken["is_consistent"], true);
    assert_eq!(container.state().as_deref(), Some("paused"));
    let refused = daemon.nono(&fixture, &["container", "snapshot", "no-such-container"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("there is no container no-such-container"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_created_and_a_stopped_container_are_captured() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let created = Container::create(daemon, "created", &["-v", "/data"]);
    snapshot(&fixture, &created, &[]);
    let stopped = Container::run_command(daemon, "stopped", &[], &["true"]);
    daemon.until("it stops", || stopped.state().as_deref() == Some("exited"));
    let taken = snapshot(&fixture, &stopped, &[]);
    assert_eq!(taken["is_consistent"], true);
}

#[test]
fn a_kill_at_any_step_leaves_no_container_paused_and_no_half_snapshot() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "killed", &["-v", "/data"]);
    container.sh("echo x >/data/x; echo y >/etc/y");
    for step in ["watcher", "pause", "commit", "volumes", "changes", "unpause"] {
        let fixture = Fixture::new();
        let mut command = daemon.command(&fixture, &["container", "snapshot", &container.name]);
        command.env("NONO_FAIL_POINT", format!("name={step}"));
        let killed = command.output().unwrap();
        assert!(!killed.status.success(), "not killed at {step}");
        daemon.until(step, || container.state().as_deref() == Some("running"));
        let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
        let held =
            list.as_array().unwrap().iter().map(|s| s["snapshots"].as_array().unwrap().len());
        assert_eq!(held.sum::<usize>(), 0, "killed at {step}");
        // The next one works, and clears the image that has no snapshot.
        snapshot(&fixture, &container, &[]);
        daemon.nono(&fixture, &["container", "validate"]).success();
    }
}

#[test]
fn a_deleted_snapshot_takes_its_image_and_the_newest_its_number() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "deleted", &[]);
    let first = snapshot(&fixture, &container, &[]);
    let second = snapshot(&fixture, &container, &[]);
    let image = first["image"]["reference"].as_str().unwrap();
    let name = &container.name;
    let delete =
        |more: &[&str]| daemon.nono(&fixture, &[&["container", "delete"][..], more].concat());
    assert_eq!(delete(&[name]).code, 2);
    let session = first["session_id"].as_str().unwrap();
    let verify = || daemon.nono(&fixture, &["rollback", "verify", session]).success();
    // The newest one.
    delete(&[&id(&second)]).success();
    verify();
    daemon.nono(&fixture, &["container", "show", &id(&second)]).fails(1, "removed by request");
    daemon.nono(&fixture, &["rollback", "cleanup", "--yes"]).success();
    assert_eq!(show(&fixture, name)["snapshot"], 0);
    let third = snapshot(&fixture, &container, &[]);
    assert_eq!(third["snapshot"], 2);
    verify();
    delete(&[&id(&first)]).success();
    assert_ne!(daemon.docker(&["inspect", "--type=image", image]).code, 0);
    verify();
    // The only one that is held: its history goes, and the next one has an id of its own.
    delete(&[&id(&third)]).success();
    let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list, serde_json::json!([]));
    let anew = snapshot(&fixture, &container, &[]);
    assert_ne!(anew["session_id"], first["session_id"]);
    delete(&[name, "--all"]).success();
    let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list, serde_json::json!([]));
}

/// The snapshot goes first: what is left is found, and cleared.
#[test]
fn a_deletion_that_is_killed_before_the_image_goes_leaves_it_to_a_cleanup() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "half-gone", &[]);
    let taken = snapshot(&fixture, &container, &[]);
    let image = taken["image"]["reference"].as_str().unwrap();
    let mut command = daemon.command(&fixture, &["container", "delete", &id(&taken)]);
    let killed = command.env("NONO_FAIL_POINT", "name=remove image").output().unwrap();
    assert_eq!(killed.status.code(), None, "killed");
    let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list, serde_json::json!([]));
    daemon.run(&["image", "inspect", image]);
    daemon.nono(&fixture, &["container", "validate"]).fails(1, "");
    daemon.nono(&fixture, &["container", "cleanup"]).success();
    assert_ne!(daemon.docker(&["image", "inspect", image]).code, 0);
    daemon.nono(&fixture, &["container", "validate"]).success();
}

#[test]
fn a_repaired_history_knows_its_container_and_its_removed_snapshots() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "repaired", &["-v", "/data"]);
    let first = snapshot(&fixture, &container, &["--no-image"]);
    let second = snapshot(&fixture, &container, &["--no-image"]);
    daemon.nono(&fixture, &["container", "delete", &id(&second)]).success();
    let session = first["session_id"].as_str().unwrap();
    let manifest = fixture.store().join(session).join("manifest.json");
    fs::write(&manifest, "damaged").unwrap();
    daemon.nono(&fixture, &["rollback", "verify", session, "--repair"]);
    daemon.nono(&fixture, &["rollback", "verify", session]).success();
    assert_eq!(show(&fixture, &container.name)["snapshot"], 0);
    let third = snapshot(&fixture, &container, &["--no-image"]);
    assert_eq!((&third["session_id"], &third["snapshot"]), (&first["session_id"], &2.into()));
}

#[test]
fn what_is_over_a_limit_goes_oldest_first() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "limits", &[]);
    let all: Vec<Value> = (0..3).map(|_| snapshot(&fixture, &container, &["--no-files"])).collect();
    let cleanup = ["container", "cleanup", "--max-per-container", "2", "--json"];
    let planned = daemon.nono(&fixture, &[&cleanup[..], &["--dry-run"]].concat());
    assert_eq!(planned.success().json()["removed"][0]["snapshot"], 0);
    let done = daemon.nono(&fixture, &cleanup).success().json();
    assert_eq!(done["removed"].as_array().unwrap().len(), 1);
    assert_eq!(done["removed"][0]["image_removal"], "removed");
    show(&fixture, &id(&all[1]));
    assert_ne!(daemon.nono(&fixture, &["container", "show", &id(&all[0])]).code, 0);
}

#[test]
fn an_ordinary_restore_of_a_container_session_is_refused_with_the_right_command() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "wrongway", &[]);
    let taken = snapshot(&fixture, &container, &["--no-image"]);
    let refused = daemon.nono(&fixture, &["rollback", "restore", &id(&taken)]);
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("nono container restore"), "{}", refused.stderr);
    assert!(!fs::exists("/container.json").unwrap());
}
