//! Originals of replacements, and replacements that worked: what ran is kept, or recorded first.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;

use super::daemon::{Container, Daemon, daemon};
use super::engine::Ability;
use super::restore::Scene;
use crate::fixture::{Finished, Fixture, finished};

const REPLACE: [&str; 3] = ["--replace", "--health-seconds", "0"];
const CLEANUP: [&str; 3] = ["container", "cleanup", "--json"];

fn id_of(daemon: &Daemon, name: &str) -> String {
    daemon.inspect(name)["Id"].as_str().unwrap().to_owned()
}

/// Makes the replacements of a session a month old.
fn age(scene: &Scene, id: &str) {
    let session = id.split('/').next().unwrap();
    let path = scene.fixture.store().join(session).join("kept-containers.json");
    let mut list: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for kept in list.as_array_mut().unwrap() {
        kept["at"] = "2026-01-01T00:00:00Z".into();
    }
    std::fs::write(&path, serde_json::to_vec(&list).unwrap()).unwrap();
}

/// The plan and the work of `cleanup` with kept containers, which are the same.
#[track_caller]
fn cleaned(scene: &Scene) -> Value {
    let would = [&CLEANUP[..], &["--dry-run"]].concat();
    let planned = scene.daemon.nono(&scene.fixture, &would).success().json();
    let done = scene.daemon.nono(&scene.fixture, &CLEANUP).success().json();
    assert_eq!(planned["kept_containers_removed"], done["kept_containers_removed"]);
    let outcomes = |report: &Value| -> Vec<(Value, Value)> {
        let all = report["kept_containers"].as_array().unwrap().iter();
        all.map(|one| (one["name"].clone(), one["outcome"].clone())).collect()
    };
    assert_eq!(outcomes(&planned), outcomes(&done));
    done
}

/// Killed at a step of a replacement.
fn kill_at(scene: &Scene, id: &str, step: &str) {
    let arguments = [&["container", "restore", id][..], &REPLACE].concat();
    let mut command = scene.daemon.command(&scene.fixture, &arguments);
    let output = command.env("NONO_FAIL_POINT", format!("name={step}")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{step}: {told}");
}

/// A container whose first process does as a signal says.
fn serving(daemon: &'static Daemon, script: &str, options: &[&str]) -> Scene {
    let volume = daemon.unique("data");
    let mount = format!("{volume}:/data");
    let all = [&["-v", &mount][..], options].concat();
    let container = Container::run_command(daemon, "serving", &all, &["sh", "-c", script]);
    container.sh("echo first >/data/file; echo own >/own");
    Scene { daemon, fixture: Fixture::in_memory(), container, volume }
}

#[test]
fn cleanup_leaves_an_original_that_somebody_put_back_to_use() {
    let Some(daemon) = daemon() else { return };
    // Renamed and used again; used under the name that it was kept by; the only one that is left.
    for way in ["renamed", "started", "alone"] {
        let scene = Scene::new(daemon, &[]);
        let name = &*scene.container.name;
        let id = scene.snapshot();
        let old = id_of(daemon, name);
        let report = scene.restore(&id, &REPLACE);
        let kept = report["kept_as"].as_str().unwrap();
        let mut again = kept;
        match way {
            "renamed" => {
                daemon.run(&["rename", name, &format!("{name}-bad")]);
                daemon.run(&["rename", kept, name]);
                again = name;
            }
            "started" => {}
            _ => drop(daemon.run(&["rm", "-f", name])),
        }
        if way != "alone" {
            daemon.run(&["start", again]);
            daemon.sh(again, "echo work >/anonymous/work; echo work >/own");
            daemon.run(&["stop", again]);
        }
        age(&scene, &id);
        let done = cleaned(&scene);
        assert_eq!(done["kept_containers_removed"], serde_json::json!([]), "{way}");
        assert_eq!(done["kept_containers"][0]["outcome"], "in_use", "{way}");
        assert_eq!(id_of(daemon, again), old);
        if way != "alone" {
            daemon.run(&["start", again]);
            assert_eq!(daemon.sh(again, "cat /anonymous/work /own"), "work\nwork");
        }
        // It is the user's from now on.
        assert_eq!(cleaned(&scene)["kept_containers"], serde_json::json!([]), "{way}");
        daemon.docker(&["rm", "-f", "-v", &old]);
        scene.remove(&report);
    }
}

#[test]
fn cleanup_names_an_original_that_runs_again_and_would_not_remove_it() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let report = scene.restore(&id, &REPLACE);
    let kept = report["kept_as"].as_str().unwrap();
    daemon.run(&["start", kept]);
    age(&scene, &id);
    let told = daemon.nono(&scene.fixture, &["container", "cleanup", "--dry-run"]).success();
    assert!(!told.says("would remove"), "{}", told.stdout);
    assert!(told.says(&format!("container {kept} stays")), "{}{}", told.stdout, told.stderr);
    daemon.run(&["rm", "-f", "-v", kept]);
    // One that the user removed is nothing to remove.
    let done = cleaned(&scene);
    assert_eq!(done["kept_containers_removed"], serde_json::json!([]));
    scene.remove(&report);
}

#[test]
fn an_original_is_kept_for_the_greatest_age_and_recorded_before_it_goes() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    scene.change();
    scene.container.sh("echo late >/anonymous/late");
    let report = scene.restore(&id, &REPLACE);
    let kept = report["kept_as"].as_str().unwrap();
    let young = cleaned(&scene);
    assert_eq!(young["kept_containers_removed"], serde_json::json!([]));
    assert_eq!(young["kept_containers"][0]["outcome"], "young");
    assert_eq!(daemon.state(kept).as_deref(), Some("exited"));
    // No limit takes the history that the list lies with.
    let newer = Container::run(daemon, "newer", &[]);
    let taken = ["container", "snapshot", &newer.name, "--no-image"];
    daemon.nono(&scene.fixture, &taken).success();
    let tight = [&CLEANUP[..], &["--max-snapshots", "1"]].concat();
    daemon.nono(&scene.fixture, &tight).success();
    assert_eq!(cleaned(&scene)["kept_containers"][0]["outcome"], "young");
    age(&scene, &id);
    // No limit of age: it is kept.
    let unlimited = [&CLEANUP[..], &["--max-age-days", "0"]].concat();
    let unlimited = daemon.nono(&scene.fixture, &unlimited).success().json();
    assert_eq!(unlimited["kept_containers_removed"], serde_json::json!([]));
    let done = cleaned(&scene);
    assert_eq!(done["kept_containers_removed"], serde_json::json!([kept]));
    assert_eq!(daemon.state(kept), None);
    let snapshot = done["kept_containers"][0]["snapshot"].as_str().unwrap();
    let back = scene.restore(snapshot, &[]);
    // It was stopped when it was recorded.
    assert_eq!(back["not_started"]["reason"], "idle");
    daemon.run(&["start", back["name"].as_str().unwrap()]);
    let text = daemon.sh(back["name"].as_str().unwrap(), "cat /own /data/file /anonymous/late");
    assert_eq!(text, "second\nsecond\nlate");
    scene.remove(&back);
    scene.remove(&report);
}

#[test]
fn an_original_that_cannot_be_recorded_stays() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let report = scene.restore(&id, &REPLACE);
    let kept = report["kept_as"].as_str().unwrap();
    age(&scene, &id);
    let mut command = daemon.command(&scene.fixture, &CLEANUP);
    command.env("NONO_FAIL_POINT", "name=volumes:EIO");
    let failed = finished(command.output().unwrap()).fails(1, kept);
    assert_eq!(failed.json()["kept_containers_removed"], serde_json::json!([]));
    assert_eq!(daemon.state(kept).as_deref(), Some("exited"));
    daemon.run(&["rm", "-f", "-v", kept]);
    scene.remove(&report);
}

#[test]
fn a_second_replacement_replaces_the_container_that_has_the_place() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let name = &*scene.container.name;
    let id = scene.snapshot();
    let first = scene.restore(&id, &REPLACE);
    daemon.sh(name, "echo other >/own");
    let second = scene.restore(&id, &REPLACE);
    assert_eq!(second["name"], name);
    assert_eq!(second["original_id"], first["container_id"]);
    assert_eq!(id_of(daemon, name), second["container_id"].as_str().unwrap());
    assert_eq!(daemon.sh(name, "cat /own"), "own");
    let kept = |report: &Value| report["kept_as"].as_str().unwrap().to_owned();
    assert_eq!(daemon.state(&kept(&first)).as_deref(), Some("exited"));
    assert_eq!(daemon.state(&kept(&second)).as_deref(), Some("exited"));
    // The volumes in place are those of the container that has the place.
    let in_place = ["container", "restore", &id, "--volumes-only", &scene.volume];
    daemon.nono(&scene.fixture, &in_place).fails(1, &format!("container {name} is running"));
    // No container has the place: there is nothing to replace.
    daemon.run(&["rm", "-f", name]);
    let again = [&["container", "restore", &id][..], &REPLACE].concat();
    daemon.nono(&scene.fixture, &again).fails(1, &kept(&second));
    for report in [&first, &second] {
        daemon.run(&["rm", "-f", "-v", &kept(report)]);
        scene.remove(report);
    }
}

#[test]
fn a_replacement_that_has_worked_is_kept_when_the_restore_is_taken_back() {
    let Some(daemon) = daemon() else { return };
    for step in ["container-replace-health", "container-replace-note"] {
        let scene = Scene::new(daemon, &daemon.engine().policy("always"));
        let name = &*scene.container.name;
        let id = scene.snapshot();
        scene.change();
        let old = id_of(daemon, name);
        kill_at(&scene, &id, step);
        let new = id_of(daemon, name);
        assert_ne!(new, old);
        daemon.sh(name, "echo days >/data/work; echo days >/own");
        let told = daemon.nono(&scene.fixture, &["container", "resume", "--abort"]).success();
        assert_eq!(id_of(daemon, name), old);
        assert_eq!(daemon.state(name).as_deref(), Some("running"));
        is_kept(&scene, &new, &told);
        daemon.run(&["rm", "-f", "-v", &new]);
    }
}

/// The container is stopped, whole, named by nono, and would not start by itself.
#[track_caller]
fn is_kept(scene: &Scene, new: &str, told: &Finished) {
    let daemon = scene.daemon;
    let found = daemon.inspect(new);
    assert_eq!(found["State"]["Status"], "exited");
    assert_eq!(found["HostConfig"]["RestartPolicy"]["Name"], "no");
    let kept = found["Name"].as_str().unwrap().trim_start_matches('/');
    assert_ne!(kept, scene.container.name);
    assert!(told.says(kept), "{}{}", told.stdout, told.stderr);
    assert!(!told.says("all is as it was before"), "{}", told.stderr);
    daemon.run(&["start", new]);
    assert_eq!(daemon.sh(new, "cat /data/work /own"), "days\ndays");
}

#[test]
fn a_sick_replacement_that_has_worked_is_kept_by_resume() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::HealthChecks) {
        return;
    }
    let check = ["--health-cmd", "test ! -e /sick", "--health-interval", "100ms"];
    let options = [&check[..], &["--health-retries", "2"]].concat();
    let scene = Scene::new(daemon, &options);
    let name = &*scene.container.name;
    let id = scene.snapshot();
    let old = id_of(daemon, name);
    kill_at(&scene, &id, "container-replace-note");
    let new = id_of(daemon, name);
    daemon.sh(name, "echo days >/data/work; echo days >/own; touch /sick");
    let is_sick = || daemon.inspect(name)["State"]["Health"]["Status"] == "unhealthy";
    daemon.until("the new one is sick", is_sick);
    let told = daemon.nono(&scene.fixture, &["container", "resume"]).fails(1, "not healthy");
    assert_eq!(id_of(daemon, name), old);
    is_kept(&scene, &new, &told);
    daemon.run(&["rm", "-f", "-v", &new]);
}

/// A restart before the resume says nothing of the health now.
#[test]
fn a_replacement_that_was_restarted_before_the_resume_can_be_healthy() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::PolicyChanges) {
        return;
    }
    let script = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let scene = serving(daemon, script, &["--restart", "always"]);
    let name = &*scene.container.name;
    let id = scene.snapshot();
    let old = id_of(daemon, name);
    kill_at(&scene, &id, "container-replace-note");
    let new = id_of(daemon, name);
    daemon.docker(&["exec", name, "kill", "-TERM", "1"]);
    let is_restarted = || {
        let found = daemon.inspect(name);
        found["RestartCount"] == 1 && found["State"]["Status"] == "running"
    };
    daemon.until("it is restarted", is_restarted);
    let resume = ["container", "resume", "--health-seconds", "0", "--json"];
    let report = daemon.nono(&scene.fixture, &resume).success().json();
    assert_eq!(report[0]["is_finished"], true);
    assert_eq!(id_of(daemon, name), new);
    daemon.run(&["rm", "-f", "-v", &old]);
}

/// Killed while the engine waits for the original to end: it would end a moment after the abort.
#[test]
fn an_original_that_is_being_stopped_runs_on_after_an_abort() {
    let Some(daemon) = daemon() else { return };
    let script = "trap 'echo >/data/asked' TERM; while :; do sleep 0.1; done";
    let policy = daemon.engine().policy("unless-stopped");
    let options = [&["--stop-signal", "TERM", "--stop-timeout", "4"][..], &policy].concat();
    let scene = serving(daemon, script, &options);
    let name = &*scene.container.name;
    let id = scene.snapshot();
    let old = id_of(daemon, name);
    let before = daemon.inspect(name);
    let arguments = [&["container", "restore", &id][..], &REPLACE].concat();
    let mut command = daemon.command(&scene.fixture, &arguments);
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let asked: PathBuf = scene.source().join("asked");
    daemon.until("the original is asked to end", || asked.exists());
    running.kill().unwrap();
    running.wait().unwrap();
    daemon.nono(&scene.fixture, &["container", "resume", "--abort"]).success();
    let found = daemon.inspect(name);
    assert_eq!(found["Id"], old.as_str());
    assert_eq!(found["State"]["Status"], "running");
    assert_eq!(found["HostConfig"]["RestartPolicy"], before["HostConfig"]["RestartPolicy"]);
    // The process that stopped it has come to its end.
    assert_ne!(found["State"]["StartedAt"], before["State"]["StartedAt"]);
}

/// One that the user started and used beside the original is never removed.
#[test]
fn a_container_beside_the_original_that_has_worked_is_kept_by_an_abort() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let name = daemon.unique("beside");
    let arguments = ["container", "restore", &id, "--name", &name];
    let mut command = daemon.command(&scene.fixture, &arguments);
    let output = command.env("NONO_FAIL_POINT", "name=container-restore-end").output().unwrap();
    assert_eq!(output.status.signal(), Some(9));
    daemon.sh(&name, "echo days >/data/work");
    let told = daemon.nono(&scene.fixture, &["container", "resume", "--abort"]).success();
    assert!(told.says(&name), "{}", told.stderr);
    assert_eq!(daemon.state(&name).as_deref(), Some("exited"));
    daemon.run(&["start", &name]);
    assert_eq!(daemon.sh(&name, "cat /data/work"), "days");
    let volumes = ["/data", "/anonymous"].map(|place| {
        let mounts = daemon.inspect(&name)["Mounts"].clone();
        let found = mounts.as_array().unwrap().iter().find(|one| one["Destination"] == place);
        found.unwrap()["Name"].as_str().unwrap().to_owned()
    });
    daemon.run(&["rm", "-f", &name]);
    for volume in volumes {
        daemon.run(&["volume", "rm", &volume]);
    }
}

/// The new one works, so the user tidied the old one away.
#[test]
fn a_replacement_without_its_original_is_never_removed() {
    let Some(daemon) = daemon() else { return };
    for way in ["finish", "give up"] {
        let scene = Scene::new(daemon, &[]);
        let name = &*scene.container.name;
        let id = scene.snapshot();
        let session = id.split('/').next().unwrap();
        let old = id_of(daemon, name);
        kill_at(&scene, &id, "container-replace-health");
        let new = id_of(daemon, name);
        daemon.sh(name, "echo days >/data/work");
        daemon.run(&["rm", "-v", &old]);
        let nono = |arguments: &[&str]| daemon.nono(&scene.fixture, arguments);
        nono(&["container", "resume", "--abort"]).fails(1, "--give-up");
        assert_eq!(id_of(daemon, name), new);
        let end: &[&str] = match way {
            "finish" => &["container", "resume", "--health-seconds", "0"],
            _ => &["container", "resume", session, "--give-up"],
        };
        nono(end).success();
        assert_eq!(id_of(daemon, name), new);
        assert_eq!(daemon.sh(name, "cat /data/work"), "days");
        assert!(!nono(&["container", "list"]).success().says("container resume"));
    }
}

#[test]
fn volumes_with_like_names_come_back_apart() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::in_memory();
    let long = |end: &str| daemon.unique(&"v".repeat(80)) + end;
    let (one, two) = (long("-one"), long("-two"));
    let mounts = [&one, &two].map(|volume| format!("{volume}:/{}", &volume[81..]));
    let options = ["-v", "/a/b", "-v", "/a-b", "-v", &mounts[0], "-v", &mounts[1]];
    let container = Container::run(daemon, "alike", &options);
    let places = ["/a/b", "/a-b", &mounts[0][one.len() + 1..], &mounts[1][two.len() + 1..]];
    for place in places {
        container.sh(&format!("echo {place} >{place}/f"));
    }
    daemon.nono(&fixture, &["container", "snapshot", &container.name]).success();
    let restore = ["container", "restore", &container.name, "--json"];
    let report = daemon.nono(&fixture, &restore).success().json();
    let new = report["name"].as_str().unwrap();
    for place in places {
        assert_eq!(daemon.sh(new, &format!("cat {place}/f")), place);
    }
    daemon.run(&["rm", "-f", new]);
    for volume in report["volumes"].as_array().unwrap() {
        daemon.run(&["volume", "rm", volume["name"].as_str().unwrap()]);
    }
}
