//! Histories of containers that are made anew: they go on under the same name, and their volumes
//! are found where they are now. Sizes are those on the disk, and `validate` promises what works.

use std::fs;

use serde_json::Value;

use super::daemon::{Container, Daemon, daemon};
use super::restore::Scene;
use crate::fixture::Fixture;

fn snapshot(daemon: &Daemon, fixture: &Fixture, name: &str) -> Value {
    let taken = ["container", "snapshot", name, "--no-image", "--json"];
    daemon.nono(fixture, &taken).success().json()
}

fn session(taken: &Value) -> &str {
    taken["session_id"].as_str().unwrap()
}

/// As `docker compose up` does after a change: the container goes, and one of the same name comes
/// with the same named volume.
fn recreated(daemon: &'static Daemon, name: &str, volume: &str) {
    let mount = format!("{volume}:/data");
    daemon.run(&["rm", "-f", name]);
    let words = ["run", "-d", "--name", name, "--network", "none", "--stop-signal", "KILL"];
    let image = ["-v", &mount, super::daemon::IMAGE, "sleep", "1000000"];
    daemon.run(&[&words[..], &image].concat());
}

#[test]
fn the_history_of_a_container_that_was_made_anew_goes_on_under_its_name() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let (fixture, name) = (&scene.fixture, &*scene.container.name);
    let first = snapshot(daemon, fixture, name);
    scene.container.sh("echo second >/data/file");
    recreated(daemon, name, &scene.volume);
    let second = snapshot(daemon, fixture, name);
    assert_eq!(session(&first), session(&second));
    assert_eq!((&first["snapshot"], &second["snapshot"]), (&0.into(), &1.into()));
    // The name means one history, and its newest snapshot.
    let planned = ["container", "restore", name, "--dry-run", "--json"];
    let planned = daemon.nono(fixture, &planned).success().json();
    assert_eq!((&planned["session_id"], &planned["snapshot"]), (&first["session_id"], &1.into()));
    // The volume of the first snapshot is that of the container that is there now.
    daemon.run(&["stop", name]);
    let id = format!("{name}/0");
    let restore = ["container", "restore", &id, "--volumes-only", &scene.volume];
    daemon.nono(fixture, &restore).success();
    assert_eq!(fs::read_to_string(scene.source().join("file")).unwrap(), "first\n");
    daemon.run(&["start", name]);
    assert_eq!(snapshot(daemon, fixture, name)["session_id"], first["session_id"]);
}

#[test]
fn the_history_of_a_replaced_container_goes_on_with_its_replacement() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let (fixture, name) = (&scene.fixture, scene.container.name.clone());
    let id = scene.snapshot();
    scene.change();
    let report = scene.restore(&id, &["--replace", "--health-seconds", "0"]);
    let after = snapshot(daemon, fixture, &name);
    assert_eq!(session(&after), id.split('/').next().unwrap());
    // By path: the replacement has a volume of its own there.
    daemon.sh(&name, "echo third >/data/file");
    daemon.run(&["stop", &name]);
    let old = fs::read_to_string(scene.source().join("file")).unwrap();
    let restore = ["container", "restore", &id, "--volumes-only", &scene.volume];
    daemon.nono(fixture, &restore).success();
    let volume = super::restore::volume_at(&report, "/data");
    let now = fs::read_to_string(daemon.volume_dir(&volume).join("file")).unwrap();
    assert_eq!(now, "first\n");
    // The volume of the original, which is kept, stays.
    assert_eq!(fs::read_to_string(scene.source().join("file")).unwrap(), old);
    daemon.run(&["rm", "-f", report["kept_as"].as_str().unwrap()]);
    scene.remove(&report);
}

#[test]
fn a_name_that_another_container_got_while_the_first_is_there_begins_a_history_and_means_it() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::in_memory();
    let container = Container::run(daemon, "moved", &["-v", "/data"]);
    let first = snapshot(daemon, &fixture, &container.name);
    let other = daemon.unique("elsewhere");
    daemon.run(&["rename", &container.name, &other]);
    let words = ["run", "-d", "--name", &container.name, "--network", "none"];
    daemon.run(&[&words[..], &[super::daemon::IMAGE, "sleep", "1000000"]].concat());
    let second = snapshot(daemon, &fixture, &container.name);
    assert_ne!(session(&first), session(&second));
    let shown = ["container", "show", &container.name, "--json"];
    let shown = daemon.nono(&fixture, &shown).success().json();
    assert_eq!(shown["session_id"], second["session_id"]);
    // Nothing goes by a name in doubt.
    let delete = ["container", "delete", &container.name];
    let refused = daemon.nono(&fixture, &delete).fails(1, "histories");
    assert!(refused.says(session(&first)) && refused.says(session(&second)));
    daemon.run(&["rm", "-f", &other]);
}

#[test]
fn sizes_and_limits_count_what_is_on_the_disk() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let fixture = &scene.fixture;
    // It compresses to nearly nothing.
    let text = "a line that comes again and again\n".repeat(1 << 20);
    fs::write(scene.source().join("log"), &text).unwrap();
    let taken = snapshot(daemon, fixture, &scene.container.name);
    let written = taken["bytes_written"].as_u64().unwrap();
    let usage = fixture.nono(&["rollback", "usage", "--json"]).success().json();
    let disk = usage["disk_bytes"].as_u64().unwrap();
    assert!(written < text.len() as u64 / 7, "{written} of {}", text.len());
    assert!(written <= disk && disk < written + (1 << 20), "{written} {disk}");
    let stats = daemon.nono(fixture, &["container", "stats", "--json"]).success().json();
    assert_eq!(stats["store_bytes"].as_u64(), Some(written));
}

#[test]
fn validate_promises_what_a_restore_does() {
    let Some(daemon) = daemon() else { return };
    let network = daemon.unique("going");
    daemon.run(&["network", "create", "--subnet", "172.31.78.0/24", &network]);
    let scene = Scene::new(daemon, &["--network", &network]);
    let id = scene.snapshot();
    let validate = ["container", "validate", &id];
    daemon.nono(&scene.fixture, &validate).success();
    daemon.run(&["rm", "-f", &scene.container.name]);
    daemon.run(&["network", "rm", &network]);
    let found = daemon.nono(&scene.fixture, &validate);
    let restored = daemon.nono(&scene.fixture, &["container", "restore", &id]);
    assert_eq!((found.code, restored.code), (1, 1), "{}{}", found.stdout, restored.stderr);
    assert!(found.says(&network) && restored.says(&network), "{}{}", found.stdout, restored.stderr);
}
