//! An engine that is absent, slow, refuses, or is started again in the middle.

use serde_json::{Value, json};

use super::daemon::{Container, Daemon, daemon};
use super::engine::Engine;
use super::proxy::{At, Proxy};
use crate::fixture::{Finished, Fixture, finished};

/// Runs nono, for which a silent engine has failed soon, and not after 30 seconds.
fn through(proxy: &Proxy, fixture: &Fixture, arguments: &[&str]) -> Finished {
    let mut command = proxy.lead(fixture.command(arguments));
    let seconds = Engine::chosen().answers_within_seconds();
    finished(command.env("NONO_ENGINE_TIMEOUT", seconds.to_string()).output().unwrap())
}

#[track_caller]
fn holds_nothing(daemon: &Daemon, fixture: &Fixture) {
    let list = daemon.nono(fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list, json!([]));
}

#[test]
fn an_absent_engine_is_named_with_its_socket_and_nothing_is_listed() {
    let fixture = Fixture::new();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("none.sock");
    let nono = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        finished(command.output().unwrap())
    };
    let absent = nono(&["container", "snapshot", "web"]).fails(1, "there is no such socket");
    assert!(absent.says("DOCKER_HOST"), "{}", absent.stderr);
    // A daemon that was killed leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let dead = nono(&["container", "snapshot", "web"]).fails(1, "cannot be reached");
    assert!(dead.says(socket.to_str().unwrap()), "{}", dead.stderr);
    assert_eq!(nono(&["container", "list", "--json"]).success().json(), json!([]));
}

/// Refused at each request of a snapshot: it is told, nothing is left, the container runs.
#[test]
fn a_refusal_at_any_request_of_a_snapshot_leaves_nothing() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "refused", &["-v", "/data"]);
    container.sh("echo x >/data/x; echo y >/etc/y");
    for request in ["/pause", "/commit", "/archive?path=%2Fdata", "/changes"] {
        let fixture = Fixture::new();
        let proxy = Proxy::start(&daemon.socket(), request, At::Refuse("not today"));
        let arguments = ["container", "snapshot", &container.name, "--through-engine"];
        let done = through(&proxy, &fixture, &arguments).fails(1, "answers 500");
        assert!(done.says(&format!("no snapshot of {} was recorded", container.name)));
        assert!(!done.says("may be paused"), "{request}: {}", done.stderr);
        assert_eq!(container.state().as_deref(), Some("running"), "{request}");
        holds_nothing(daemon, &fixture);
        daemon.nono(&fixture, &["container", "validate"]).success();
    }
}

/// The container is paused when the engine falls silent: the error says so, and the watcher ends
/// the pause as soon as the engine answers.
#[test]
fn a_container_goes_on_after_an_engine_that_stalls_at_any_request() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "stalled", &["-v", "/data"]);
    container.sh("echo x >/data/x; echo y >/etc/y");
    for request in ["/pause", "/commit", "/archive?path=%2Fdata", "/changes", "/unpause"] {
        let fixture = Fixture::new();
        let proxy = Proxy::start(&daemon.socket(), request, At::Stall);
        let arguments = ["container", "snapshot", &container.name, "--through-engine"];
        let done = through(&proxy, &fixture, &arguments).fails(1, "gave no answer within");
        assert!(done.says("no snapshot of"), "{request}: {}", done.stderr);
        assert!(
            done.says("it may be paused: a process of nono waits"),
            "{request}: {}",
            done.stderr
        );
        proxy.release();
        daemon.until(request, || container.state().as_deref() == Some("running"));
        let paused = fixture.store().join(".containers");
        let is_over = || {
            let names = std::fs::read_dir(&paused).unwrap();
            !names.flatten().any(|entry| entry.path().extension().is_some_and(|e| e == "paused"))
        };
        daemon.until("the journal is gone", is_over);
        holds_nothing(daemon, &fixture);
        if request == "/commit" && daemon.engine() == Engine::Docker {
            // The engine makes it, although no client waits for it any more.
            let is_found = || daemon.nono(&fixture, &["container", "validate"]).code == 1;
            daemon.until("the late image is there", is_found);
        }
        daemon.nono(&fixture, &["container", "cleanup"]).success();
        daemon.nono(&fixture, &["container", "validate"]).success();
    }
}

/// Killed when the container is paused, and started again after nono has ended: with
/// `--live-restore` the container lives on in between, and paused.
#[test]
fn a_container_goes_on_after_an_engine_that_was_killed_and_started_again() {
    if daemon().is_none() {
        return;
    }
    let Some(own) = Daemon::start_with(Engine::chosen().live_restore()) else { return };
    let own: &'static Daemon = Box::leak(Box::new(own));
    let container = Container::run(own, "restarted", &["-v", "/data"]);
    container.sh("echo x >/data/x");
    let fixture = Fixture::new();
    let proxy = Proxy::start(&own.socket(), "/commit", At::Do(Box::new(|| own.kill())));
    let arguments = ["container", "snapshot", &container.name];
    let done = through(&proxy, &fixture, &arguments).fails(1, "cannot make an image of container");
    assert!(done.says("no snapshot of"), "{}", done.stderr);
    assert!(done.says("it may be paused: a process of nono waits"), "{}", done.stderr);
    own.restart();
    own.until("it goes on", || container.state().as_deref() == Some("running"));
    holds_nothing(own, &fixture);
    let taken = own.nono(&fixture, &["container", "snapshot", &container.name, "--json"]);
    assert_eq!(taken.success().json()["snapshot"], 0);
    // Killed in the middle of a restore: it says how to take it back, and that works.
    let id = format!("{}/0", container.name);
    let plan = own.nono(&fixture, &["container", "restore", &id, "--dry-run", "--json"]).json();
    let kill = At::Do(Box::new(|| own.kill()));
    let proxy = Proxy::start(&own.socket(), "/containers/create", kill);
    let done = through(&proxy, &fixture, &["container", "restore", &id]);
    done.fails(1, "container resume");
    own.restart();
    assert_eq!(container.state().as_deref(), Some("running"));
    own.nono(&fixture, &["container", "resume", "--abort"]).success();
    for volume in plan["volumes"].as_array().unwrap() {
        let name = volume["name"].as_str().unwrap();
        assert_ne!(own.docker(&["volume", "inspect", name]).code, 0, "{name}");
    }
    assert_eq!(own.docker(&["ps", "-aq", "--filter", "name=restored"]).stdout, "");
    drop(container);
    own.end();
}

/// Without the watcher, which died too, the next command lets the container go on; while the engine
/// is silent it says that it cannot.
#[test]
fn the_next_command_lets_a_container_go_on_when_the_watcher_is_dead_too() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "unwatched", &[]);
    let fixture = Fixture::new();
    let store = fixture.store().display().to_string();
    let kill_watcher = move || {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if line.contains("__container-watch") && line.contains(&store) {
                let pid = rustix::process::Pid::from_raw(pid.unwrap()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
        }
    };
    let proxy = Proxy::start(&daemon.socket(), "/commit", At::Do(Box::new(kill_watcher)));
    let mut command = proxy.lead(fixture.command(&["container", "snapshot", &container.name]));
    command.env("NONO_FAIL_POINT", "name=changes");
    assert_eq!(command.output().unwrap().status.code(), None, "killed");
    assert!(proxy.is_met());
    assert_eq!(container.state().as_deref(), Some("paused"));
    let next = daemon.nono(&fixture, &["container", "list", "--json"]).success();
    assert!(next.says("was left paused by an interrupted nono, and goes on now"));
    assert_eq!(next.json(), Value::Array(Vec::new()));
    assert_eq!(container.state().as_deref(), Some("running"));
}

/// A user removes the store while the container is paused, and nono is killed: the watcher knows
/// what it read at its start.
#[test]
fn a_container_goes_on_when_its_store_is_removed_and_nono_killed() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "bereft", &[]);
    let fixture = Fixture::new();
    let journals = fixture.store().join(".containers");
    let remove = At::Do(Box::new(move || std::fs::remove_dir_all(&journals).unwrap()));
    let proxy = Proxy::start(&daemon.socket(), "/commit", remove);
    let mut command = proxy.lead(fixture.command(&["container", "snapshot", &container.name]));
    command.env("NONO_FAIL_POINT", "name=volumes");
    assert_eq!(command.output().unwrap().status.code(), None, "killed");
    assert!(proxy.is_met());
    daemon.until("it goes on", || container.state().as_deref() == Some("running"));
}

/// A store that fails at any of its calls: no snapshot is half there, and the container runs.
#[test]
fn an_error_of_the_disk_at_any_step_leaves_a_whole_snapshot_or_none() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "failing", &["-v", "/data"]);
    container.sh("echo x >/data/x; echo y >/etc/y");
    let run = |point: &str| {
        let fixture = Fixture::in_memory();
        let arguments = ["container", "snapshot", &container.name, "--no-image"];
        let mut command = daemon.command(&fixture, &arguments);
        let output = command.env("NONO_FAIL_POINT", point).output().unwrap();
        (fixture, output)
    };
    let is_there = |point: u32| {
        // The store stays until the watcher needs it no more.
        let (_fixture, output) = run(&point.to_string());
        daemon.until("it goes on", || container.state().as_deref() == Some("running"));
        output.status.code().is_none()
    };
    let mut last = 1;
    while is_there(last * 2) {
        last *= 2;
    }
    let mut failed = 0;
    // Every call has a point before it and one after it.
    for point in (1..last * 2).step_by(2) {
        let (fixture, output) = run(&format!("{point}:EIO"));
        let code = output.status.code().expect("it ends by itself");
        daemon.until("it runs", || container.state().as_deref() == Some("running"));
        let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
        let held = list.as_array().unwrap().iter();
        let held: usize = held.map(|one| one["snapshots"].as_array().unwrap().len()).sum();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(held, usize::from(code == 0), "{point}: {code} {told}");
        daemon.nono(&fixture, &["rollback", "verify", "--all"]).success();
        if code != 0 {
            failed += 1;
            assert!(told.contains("error"), "{point}: {told}");
        }
    }
    assert!(failed > 5, "only {failed} of {last} points failed");
}
