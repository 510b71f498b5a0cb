//! The fixture itself: what the other tests of containers rely on.

use super::daemon::{Container, Daemon, daemon};

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
    own.run(&[
        "run",
        "-d",
        "--name",
        "one",
        "--network",
        "none",
        super::daemon::IMAGE,
        "sleep",
        "9",
    ]);
    let socket = own.socket();
    let dir = socket.parent().unwrap().to_owned();
    assert!(socket.exists());
    drop(own);
    assert!(!dir.exists());
}
