//! Restores that are killed at each of their steps: a usable container is always there, and
//! `resume` finishes the restore or takes it back.

use serde_json::Value;

use super::daemon::{Daemon, daemon};
use super::restore::Scene;
use crate::observe::observe;

/// Killed before each request of a replacement: one of the two containers is always usable, and
/// `resume` finishes or takes back.
#[test]
fn a_killed_replacement_is_finished_or_taken_back_from_every_step() {
    let Some(daemon) = daemon() else { return };
    for step in [
        "container-restore-volume",
        "container-restore-fill",
        "container-restore-create",
        "container-restore-check",
        "container-replace-policy",
        "container-replace-park",
        "container-replace-stop",
        "container-replace-name",
        "container-replace-start",
        "container-replace-health",
        "container-replace-note",
    ] {
        for aborts in [false, true] {
            killed_at(daemon, step, aborts);
        }
    }
}

fn policy_of(container: &Value) -> &Value {
    &container["HostConfig"]["RestartPolicy"]
}

fn killed_at(daemon: &'static Daemon, step: &str, aborts: bool) {
    let scene = Scene::new(daemon, &daemon.engine().policy("always"));
    let id = scene.snapshot();
    scene.change();
    let name = &scene.container.name;
    let before = daemon.inspect(name);
    let old = before["Id"].as_str().unwrap();
    let arguments = ["container", "restore", &id, "--replace", "--health-seconds", "0"];
    let mut command = daemon.command(&scene.fixture, &arguments);
    command.env("NONO_FAIL_POINT", format!("name={step}"));
    let output = command.output().unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(killed, Some(9), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    // The original is there, with its volumes, and can be started if it does not run.
    let found = daemon.inspect(old);
    let state = found["State"]["Status"].as_str().unwrap();
    assert!(matches!(state, "running" | "exited"), "{step}: {state}");
    daemon.nono(&scene.fixture, &["container", "restore", &id, "--replace"]).fails(1, "resume");
    let mut resume = vec!["container", "resume", "--json", "--health-seconds", "0"];
    if aborts {
        resume.push("--abort");
    }
    let done = daemon.nono(&scene.fixture, &resume);
    let report = done.json();
    let is_made = step.starts_with("container-replace");
    let is_finished = is_made && !aborts;
    assert_eq!(report[0]["is_finished"], is_finished, "{step}: {}", done.stderr);
    let now = daemon.inspect(name);
    assert_eq!(now["State"]["Status"], "running", "{step}");
    assert_eq!(policy_of(&now), policy_of(&before), "{step}");
    assert_eq!(now["Id"] == old, !is_finished, "{step}");
    let own = if is_finished { "own\nfirst" } else { "second\nsecond" };
    assert_eq!(scene.container.sh("cat /own /data/file"), own, "{step}");
    // A new container that had run may have worked: an abort keeps it, and removes no other.
    let has_run = matches!(step, "container-replace-health" | "container-replace-note");
    let filter = format!("name={name}-restored");
    let left = daemon.run(&["ps", "-a", "--format", "{{.Names}} {{.State}}", "--filter", &filter]);
    let kept = report[0]["kept_as"].as_str().map(|kept| format!("{kept} exited"));
    assert_eq!(kept.is_some(), has_run && aborts, "{step}: {report}");
    assert_eq!(left, kept.unwrap_or_default(), "{step}");
    assert!(!done.says("panicked"));
    daemon.docker(&["rm", "-f", "-v", old]);
}

/// After its journal is gone nothing is left to do.
#[test]
fn a_replacement_that_is_killed_at_its_very_end_is_complete() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    scene.change();
    let arguments = ["container", "restore", &id, "--replace", "--health-seconds", "0"];
    let mut command = daemon.command(&scene.fixture, &arguments);
    let output = command.env("NONO_FAIL_POINT", "name=container-replace-end").output().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9));
    assert_eq!(scene.container.sh("cat /own /data/file"), "own\nfirst");
    let resumed = daemon.nono(&scene.fixture, &["container", "resume", "--json"]).success();
    assert_eq!(resumed.json(), serde_json::json!([]));
    let list = daemon.nono(&scene.fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list[0]["restorations"][0]["mode"], "replace");
    let filter = format!("name={}-before", scene.container.name);
    let kept = daemon.run(&["ps", "-aq", "--filter", &filter]);
    daemon.run(&["rm", "-f", "-v", &kept]);
}

/// Killed on the way back: the way back goes on.
#[test]
fn a_killed_way_back_is_taken_again() {
    let Some(daemon) = daemon() else { return };
    let steps = [
        "container-back-remove",
        "container-back-name",
        "container-back-policy",
        "container-back-start",
    ];
    for step in steps {
        let scene = Scene::new(daemon, &daemon.engine().policy("always"));
        let id = scene.snapshot();
        scene.change();
        let before = daemon.inspect(&scene.container.name);
        let killed = |arguments: &[&str], step: &str| {
            let mut command = daemon.command(&scene.fixture, arguments);
            let output = command.env("NONO_FAIL_POINT", format!("name={step}")).output().unwrap();
            let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
            assert_eq!(signal, Some(9), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        };
        killed(&["container", "restore", &id, "--replace"], "container-replace-health");
        killed(&["container", "resume", "--abort"], step);
        daemon.nono(&scene.fixture, &["container", "resume", "--abort"]).success();
        let now = daemon.inspect(&scene.container.name);
        assert_eq!(now["Id"], before["Id"], "{step}");
        assert_eq!(now["State"]["Status"], "running", "{step}");
        assert_eq!(policy_of(&now), policy_of(&before), "{step}");
        assert_eq!(scene.container.sh("cat /own"), "second", "{step}");
    }
}

/// Killed beside the original: the new container is whole or gone, the original never touched.
#[test]
fn a_killed_restore_beside_the_original_is_finished_or_taken_back() {
    let Some(daemon) = daemon() else { return };
    for step in ["container-restore-fill", "container-restore-check", "container-restore-start"] {
        let scene = Scene::new(daemon, &[]);
        let id = scene.snapshot();
        let arguments = ["container", "restore", &id, "--name", &daemon.unique("beside")];
        let mut command = daemon.command(&scene.fixture, &arguments);
        let output = command.env("NONO_FAIL_POINT", format!("name={step}")).output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9));
        assert_eq!(scene.container.state().as_deref(), Some("running"), "{step}");
        let resumed = daemon.nono(&scene.fixture, &["container", "resume", "--json"]);
        let is_finished = step == "container-restore-start";
        assert_eq!(resumed.json()[0]["is_finished"], is_finished, "{step}: {}", resumed.stderr);
        let state = daemon.state(arguments[4]);
        assert_eq!(state.as_deref(), is_finished.then_some("running"), "{step}");
        let volume = format!("{}-{}", scene.volume, id.replace('/', "."));
        let volumes = daemon.docker(&["volume", "inspect", &volume]);
        assert_eq!(volumes.code == 0, is_finished, "{step}");
        daemon.docker(&["rm", "-f", arguments[4]]);
    }
}

/// Killed while volumes change in place: both directions lead to a whole state.
#[test]
fn a_killed_restore_of_volumes_is_finished_or_taken_back() {
    let Some(daemon) = daemon() else { return };
    for step in ["container-volume-clear", "container-volume-fill", "container-volume-check"] {
        for aborts in [false, true] {
            let scene = Scene::new(daemon, &[]);
            let first = observe(&scene.source());
            let id = scene.snapshot();
            scene.change();
            daemon.run(&["stop", &scene.container.name]);
            let second = observe(&scene.source());
            let arguments = ["container", "restore", &id, "--volumes-only", "/data"];
            let mut command = daemon.command(&scene.fixture, &arguments);
            command.env("NONO_FAIL_POINT", format!("name={step}"));
            let output = command.output().unwrap();
            let killed = std::os::unix::process::ExitStatusExt::signal(&output.status);
            assert_eq!(killed, Some(9), "{step}: {}", String::from_utf8_lossy(&output.stderr));
            let way: &[&str] = if aborts { &["--abort"] } else { &[] };
            let arguments = [&["container", "resume"], way].concat();
            daemon.nono(&scene.fixture, &arguments).success();
            let expected = if aborts { &second } else { &first };
            assert_eq!(observe(&scene.source()), *expected, "{step}");
        }
    }
}
