//! Histories of containers at remotes: pushed, verified, pulled into an empty store, looked at,
//! mounted and restored from there.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::daemon::{Daemon, daemon};
use super::restore::{Scene, volume_at};
use crate::fixture::Fixture;
use crate::observe::observe;

/// Pulls a session from a directory into a store that has nothing.
fn pulled(daemon: &Daemon, place: &Path, session: &str) -> Fixture {
    let fixture = Fixture::in_memory();
    let add = ["remote", "add", "there", place.to_str().unwrap(), "--plaintext"];
    daemon.nono(&fixture, &add).success();
    daemon.nono(&fixture, &["pull", "there", session]).success();
    fixture
}

#[test]
fn a_history_travels_to_an_empty_store_and_is_restored_there() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let before = observe(&scene.source());
    let first = scene.snapshot();
    scene.change();
    let second = scene.snapshot();
    let session = first.split('/').next().unwrap();
    let place = tempfile::tempdir().unwrap();
    let add = ["remote", "add", "there", place.path().to_str().unwrap(), "--plaintext"];
    daemon.nono(&scene.fixture, &add).success();
    daemon.nono(&scene.fixture, &["push", "there", session]).success();
    daemon.nono(&scene.fixture, &["remote", "verify", "there"]).success();
    let other = pulled(daemon, place.path(), session);
    let nono = |arguments: &[&str]| daemon.nono(&other, arguments);
    nono(&["rollback", "verify", session]).success();
    let listed = nono(&["container", "list", &scene.container.name, "--json"]).success().json();
    assert_eq!(listed[0]["session_id"], session);
    assert_eq!(listed[0]["snapshots"].as_array().unwrap().len(), 2);
    for id in [&first, &second] {
        let of = |fixture: &Fixture| -> Value {
            let show = ["container", "show", id, "--json"];
            let shown = daemon.nono(fixture, &show).success().json();
            json!([shown["record"], shown["volumes"], shown["total_bytes"]])
        };
        assert_eq!(of(&other), of(&scene.fixture));
    }
    let diff = nono(&["container", "diff", &first, &second, "--json"]).success().json();
    let path = format!("/volumes/{}/file", scene.volume);
    let changes = diff["changes"].as_array().unwrap();
    assert!(changes.iter().any(|change| change["path"] == path.as_str()), "{diff}");
    nono(&["container", "validate"]).success();
    // From the pulled history a container is made as from the first one.
    let report = nono(&["container", "restore", &first, "--json"]).success().json();
    let name = report["name"].as_str().unwrap();
    assert_eq!(daemon.state(name).as_deref(), Some("running"));
    assert_eq!(daemon.sh(name, "cat /own /anonymous/file"), "own\nfirst");
    assert_eq!(observe(&daemon.volume_dir(&volume_at(&report, "/data"))), before);
    // Its image belongs to the first store.
    scene.remove(&report);
    let deleted = nono(&["container", "delete", &first, "--json"]).success().json();
    assert_eq!(deleted["removed"][0]["image_removal"], "not_ours");
    daemon.nono(&scene.fixture, &["container", "validate"]).success();
    // The pulled store's own snapshots are told from the first one's.
    let taken = ["container", "snapshot", &scene.container.name, "--json"];
    let taken = nono(&taken).success().json();
    assert_eq!((&taken["session_id"], &taken["snapshot"]), (&session.into(), &2.into()));
    nono(&["rollback", "verify", session]).success();
    // A pulled session is pinned.
    nono(&["container", "delete", session, "--all"]).fails(1, "it is pinned");
    nono(&["rollback", "unpin", session]).success();
    nono(&["container", "delete", session, "--all"]).success();
    daemon.nono(&scene.fixture, &["container", "validate"]).success();
    assert_eq!(nono(&["container", "list", "--json"]).success().json(), json!([]));
}

#[test]
fn a_mount_shows_volumes_changes_and_the_record_of_a_pulled_history() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let session = id.split('/').next().unwrap();
    let place = tempfile::tempdir().unwrap();
    let add = ["remote", "add", "there", place.path().to_str().unwrap(), "--plaintext"];
    daemon.nono(&scene.fixture, &add).success();
    daemon.nono(&scene.fixture, &["push", "there", session]).success();
    let other = pulled(daemon, place.path(), session);
    let point = tempfile::tempdir().unwrap();
    let Some(mount) = crate::mount::mount(&other.store(), point.path()) else { return };
    let snapshot = point.path().join(&id);
    let names = |path: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&snapshot), ["changes", "container.json", "volumes"]);
    let mut volumes = [scene.volume.as_str(), ":anonymous"];
    volumes.sort_unstable();
    assert_eq!(names(&snapshot.join("volumes")), volumes);
    assert_eq!(fs::read_to_string(snapshot.join("changes/own")).unwrap(), "own\n");
    let record: Value =
        serde_json::from_slice(&fs::read(snapshot.join("container.json")).unwrap()).unwrap();
    assert_eq!(record["name"], scene.container.name.as_str());
    let shown = daemon.nono(&other, &["container", "show", &id, "--json"]).success().json();
    assert_eq!(record, shown["record"]);
    // Name by name what the volume is.
    let compare = std::process::Command::new("diff")
        .args(["-r", "--no-dereference"])
        .arg(snapshot.join("volumes").join(&scene.volume))
        .arg(scene.source())
        .output()
        .unwrap();
    assert!(compare.stdout.starts_with(b"File ") || compare.stdout.is_empty());
    assert_eq!(String::from_utf8_lossy(&compare.stdout).matches("differ").count(), 0);
    drop(mount);
}
