//! A restore that was interrupted is named by other commands until it is finished.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use super::daemon::{Container, daemon};
use super::proxy::{At, Proxy};
use super::restore::Scene;
use crate::fixture::{Finished, Fixture, finished};

/// The command that ends it.
const REMEDY: &str = "nono container resume";

#[test]
fn an_interrupted_restore_is_named_by_other_commands_until_it_is_resumed() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let session = id.split('/').next().unwrap();
    let mut command = daemon.command(&scene.fixture, &["container", "restore", &id, "--replace"]);
    let killed = command.env("NONO_FAIL_POINT", "name=container-replace-stop").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{}", String::from_utf8_lossy(&killed.stderr));
    let remedy = format!("{REMEDY} {session}");
    let nono = |arguments: &[&str]| daemon.nono(&scene.fixture, arguments);
    for arguments in [
        &["container", "list"][..],
        &["container", "show", &id],
        &["container", "diff", &id, &id],
        &["container", "stats"],
        &["container", "cleanup", "--dry-run"],
        &["status"],
    ] {
        let told = nono(arguments).success();
        assert!(told.says(&remedy), "{arguments:?}: {}{}", told.stdout, told.stderr);
    }
    // No other restore of it would begin.
    nono(&["container", "validate"]).fails(1, &remedy);
    let listed = nono(&["container", "list", "--json"]).success().json();
    assert_eq!(listed[0]["restore_interrupted"], true);
    let status = nono(&["status", "--json"]).success().json();
    assert_eq!(status["interrupted"]["container_restores"][0]["session_id"], session);
    assert_eq!(status["interrupted"]["container_restores"][0]["mode"], "replace");
    let finding = || {
        let findings = nono(&["doctor", "--json"]).json();
        let all = findings.as_array().unwrap().iter();
        all.filter(|finding| finding["what"] == "container restores").cloned().collect::<Vec<_>>()
    };
    assert_eq!(finding().len(), 1);
    assert_eq!(finding()[0]["ok"], false);
    assert!(finding()[0]["mend"].as_str().unwrap().contains(&remedy));
    // Only with the session it can be ended.
    nono(&["container", "delete", session, "--all"]).fails(1, "a restore of it was interrupted");
    // The newest of all would stay in any case.
    let newer = Container::run(daemon, "newer", &[]);
    nono(&["container", "snapshot", &newer.name, "--no-image"]).success();
    let retention = ["container", "cleanup", "--max-snapshots", "1"];
    nono(&retention).fails(1, "a restore of it was interrupted");
    nono(&["rollback", "cleanup", session, "--yes"]);
    assert!(scene.fixture.store().join(session).exists());
    // The command that ends it does not say so first.
    let resumed = nono(&["container", "resume", session, "--abort"]).success();
    assert!(!resumed.says("was interrupted"), "{}", resumed.stderr);
    assert!(!nono(&["container", "list"]).success().says(REMEDY));
    assert!(!nono(&["status"]).success().says(REMEDY));
    assert_eq!(finding().len(), 0);
}

/// A restore that is under way has a journal, too.
#[test]
fn a_restore_that_is_under_way_is_not_called_interrupted() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let proxy = Proxy::start(&daemon.socket(), "/containers/create", At::Stall);
    let mut command = proxy.lead(scene.fixture.command(&["container", "restore", &id, "--json"]));
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    daemon.until("the new container is asked for", || proxy.is_met());
    let journal = scene.fixture.store().join(id.split('/').next().unwrap());
    let journal = journal.join("container-restore.journal");
    assert!(journal.exists());
    let list = daemon.nono(&scene.fixture, &["container", "list"]).success();
    assert!(!list.says(REMEDY), "{}{}", list.stdout, list.stderr);
    proxy.release();
    let report = finished(running.wait_with_output().unwrap()).success().json();
    assert!(!journal.exists());
    scene.remove(&report);
}

#[test]
fn a_damaged_journal_is_told_and_hides_nothing_else() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "damaged", &[]);
    let arguments = ["container", "snapshot", &container.name, "--no-image", "--json"];
    let taken = daemon.nono(&fixture, &arguments).success().json();
    let session = taken["session_id"].as_str().unwrap();
    let journal = fixture.store().join(session).join("container-restore.journal");
    std::fs::write(journal, "{").unwrap();
    let nono = |arguments: &[&str]| -> Finished { daemon.nono(&fixture, arguments) };
    for arguments in [&["container", "list"][..], &["status"]] {
        let told = nono(arguments).success();
        assert!(told.says("the journal of the interrupted restore"), "{}", told.stderr);
    }
    assert!(nono(&["container", "list"]).says(&container.name));
    assert!(nono(&["doctor"]).fails(1, "").says("is damaged"));
}

/// Killed between the making of its session and its first snapshot.
#[test]
fn cleanup_removes_a_session_that_never_got_a_snapshot() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "cut-off", &[]);
    let mut command = daemon.command(&fixture, &["container", "snapshot", &container.name]);
    let killed = command.env("NONO_FAIL_POINT", "name=watcher").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9));
    let sessions = || {
        let names = std::fs::read_dir(fixture.store()).unwrap().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("20")).collect::<Vec<_>>()
    };
    let [session] = &sessions()[..] else { panic!("{:?}", sessions()) };
    let cleanup = ["container", "cleanup", "--json"];
    let planned = daemon.nono(&fixture, &[&cleanup[..], &["--dry-run"]].concat()).success().json();
    assert_eq!(planned["sessions_removed"], serde_json::json!([session]));
    assert_eq!(sessions().len(), 1);
    let done = daemon.nono(&fixture, &cleanup).success().json();
    assert_eq!(done["sessions_removed"], serde_json::json!([session]));
    assert_eq!(sessions(), Vec::<String>::new());
    let again = daemon.nono(&fixture, &cleanup).success().json();
    assert_eq!(again["sessions_removed"], serde_json::json!([]));
}

fn session_of(id: &str) -> &str {
    id.split('/').next().unwrap()
}

#[test]
fn damaged_documents_of_restores_are_set_aside_on_request() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let session = session_of(&id);
    let nono = |arguments: &[&str]| daemon.nono(&scene.fixture, arguments);
    let give_up = ["container", "resume", session, "--give-up"];
    nono(&give_up).success();
    let place = scene.fixture.store().join(session);
    let remedy = give_up.join(" ");
    std::fs::write(place.join("container-restore.journal"), "{").unwrap();
    for arguments in [
        &["container", "restore", &id][..],
        &["container", "resume"],
        &["container", "resume", session, "--abort"],
        &["container", "delete", session, "--all"],
    ] {
        let told = nono(arguments);
        assert_eq!(told.code, 1, "{arguments:?}: {}", told.stderr);
        assert!(told.says(&remedy), "{arguments:?}: {}", told.stderr);
    }
    let report = nono(&[&give_up[..], &["--json"]].concat()).success().json();
    let aside = report[0]["set_aside"][0].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "{");
    assert_eq!(report[0]["is_given_up"], true);
    assert!(!nono(&["container", "list"]).success().says("damaged"));
    std::fs::write(place.join("kept-containers.json"), "[").unwrap();
    for arguments in [&["container", "cleanup"][..], &["container", "restore", &id, "--replace"]] {
        assert!(nono(arguments).fails(1, "put aside is damaged").says(&remedy));
    }
    let told = nono(&give_up).success();
    assert!(told.says("kept-containers.json.damaged"), "{}", told.stderr);
    nono(&["container", "cleanup"]).success();
    scene.remove(&scene.restore(&id, &["--no-start"]));
    nono(&["container", "delete", session, "--all"]).success();
}

#[test]
fn a_snapshot_of_a_half_restored_volume_is_not_called_consistent() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    scene.change();
    daemon.run(&["stop", &scene.container.name]);
    let mount = format!("{}:/other", scene.volume);
    let sharing = Container::create(daemon, "half", &["-v", &mount]);
    let bystander = Container::create(daemon, "whole", &["-v", "/other"]);
    let arguments = ["container", "restore", &id, "--volumes-only", &scene.volume];
    let mut command = daemon.command(&scene.fixture, &arguments);
    let killed = command.env("NONO_FAIL_POINT", "name=container-volume-fill").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{}", String::from_utf8_lossy(&killed.stderr));
    let taken = |name: &str| {
        let arguments = ["container", "snapshot", name, "--no-image", "--no-files", "--json"];
        daemon.nono(&scene.fixture, &arguments).success().json()
    };
    for name in [&scene.container.name, &sharing.name] {
        let report = taken(name);
        assert_eq!(report["is_consistent"], false, "{report}");
        let warnings = report["warnings"].to_string();
        let remedy = format!("{REMEDY} {}", session_of(&id));
        assert!(warnings.contains(&scene.volume) && warnings.contains(&remedy), "{warnings}");
    }
    assert_eq!(taken(&bystander.name)["is_consistent"], true);
    daemon.nono(&scene.fixture, &["container", "resume"]).success();
    for name in [&scene.container.name, &sharing.name] {
        assert_eq!(taken(name)["is_consistent"], true);
    }
}

/// No other command would know of it.
#[test]
fn the_removal_of_a_history_names_the_container_that_a_restore_put_aside() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let report = scene.restore(&id, &["--replace", "--health-seconds", "0"]);
    let kept = report["kept_as"].as_str().unwrap();
    let delete = ["container", "delete", session_of(&id), "--all", "--json"];
    let done = daemon.nono(&scene.fixture, &delete).success();
    assert_eq!(done.json()["kept_containers_left"], serde_json::json!([kept]));
    assert_eq!(daemon.state(kept).as_deref(), Some("exited"));
    daemon.run(&["rm", "-f", "-v", kept]);
    scene.remove(&report);
}

#[test]
fn the_removal_of_all_sessions_tells_of_the_images_that_stay() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "imaged", &[]);
    let arguments = ["container", "snapshot", &container.name, "--json"];
    let taken = daemon.nono(&fixture, &arguments).success().json();
    let image = taken["image"]["reference"].as_str().unwrap();
    let done = daemon.nono(&fixture, &["rollback", "cleanup", "--all", "--yes"]).success();
    assert!(done.says("nono container cleanup removes the images"), "{}", done.stderr);
    daemon.run(&["image", "inspect", image]);
    daemon.nono(&fixture, &["container", "cleanup"]).success();
    assert_ne!(daemon.docker(&["image", "inspect", image]).code, 0);
}
