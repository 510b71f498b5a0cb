//! The fixture itself: what the other tests of containers rely on.

use super::daemon::{Container, Daemon, IMAGE, daemon};
use super::engine::Ability;

#[test]
fn a_container_runs_writes_its_volumes_is_paused_and_goes_on() {
    let Some(daemon) = daemon() else { return };
    let volume = daemon.unique("fixture");
    let mount = format!("{volume}:/data");
    let container = Container::run(daemon, "fixture", &["-v", &mount, "-v", "/anonymous"]);
    container.sh("echo here >/data/file; touch /anonymous/file");
    let file = daemon.volume_dir(&volume).join("file");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "here\n");
    daemon.run(&["pause", &container.name]);
    assert_eq!(container.state().as_deref(), Some("paused"));
    daemon.run(&["unpause", &container.name]);
    assert_eq!(container.state().as_deref(), Some("running"));
    let name = container.name.clone();
    drop(container);
    assert_eq!(daemon.state(&name), None);
}

#[test]
fn a_health_check_reports_a_healthy_and_an_unhealthy_container() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::HealthChecks) {
        return;
    }
    let options =
        ["--health-cmd", "test -e /ok", "--health-interval", "100ms", "--health-retries", "2"];
    let container = Container::run(daemon, "health", &options);
    let is = |health: &str| daemon.inspect(&container.name)["State"]["Health"]["Status"] == health;
    daemon.until("unhealthy", || is("unhealthy"));
    container.sh("touch /ok");
    daemon.until("healthy", || is("healthy"));
}

#[test]
fn a_daemon_and_its_containers_end_with_their_value() {
    if daemon().is_none() {
        return;
    }
    let own = Daemon::start().unwrap();
    own.run(&["run", "-d", "--name", "one", "--network", "none", IMAGE, "sleep", "9"]);
    let socket = own.socket();
    let dir = socket.parent().unwrap().to_owned();
    assert!(socket.exists());
    drop(own);
    assert!(!dir.exists());
}

/// With version 1 of control groups a process that stands still does not die: a warden that only
/// killed would wait for ever, and the process would stay.
#[test]
fn a_paused_container_ends_with_its_daemon_too() {
    if daemon().is_none() {
        return;
    }
    let own = Daemon::start().unwrap();
    let paused = ["run", "-d", "--name", "still", "--network", "none", IMAGE, "sleep", "1000000"];
    let id = own.run(&paused);
    own.run(&["pause", "still"]);
    let processes = || -> Vec<String> {
        let of_container = |entry: &std::fs::DirEntry| {
            let groups = std::fs::read_to_string(entry.path().join("cgroup"));
            groups.is_ok_and(|groups| groups.contains(&id))
        };
        let listed = std::fs::read_dir("/proc").unwrap().flatten().filter(of_container);
        listed.map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    assert!(!processes().is_empty());
    let dir = own.socket().parent().unwrap().to_owned();
    drop(own);
    assert!(!dir.exists());
    assert_eq!(processes(), Vec::<String>::new());
}
