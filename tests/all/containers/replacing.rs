//! Replacements: the proof that the new container works, its place in the network, and the original
//! as it was.

use serde_json::Value;

use super::daemon::daemon;
use super::engine::Ability;
use super::restore::{Scene, volume_at};

const CHECK_OFTEN: [&str; 4] = ["--health-interval", "100ms", "--health-retries", "2"];

#[test]
fn a_replacement_is_proved_by_the_health_check_of_the_container() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::HealthChecks) {
        return;
    }
    let options = [&["--health-cmd", "grep -q own /own"][..], &CHECK_OFTEN].concat();
    let scene = Scene::new(daemon, &options);
    let id = scene.snapshot();
    scene.change();
    let old = daemon.inspect(&scene.container.name)["Id"].as_str().unwrap().to_owned();
    let report = scene.restore(&id, &["--replace"]);
    assert_eq!(report["health"]["check"], "its health check");
    assert_eq!(report["health"]["is_healthy"], true);
    assert_ne!(daemon.inspect(&scene.container.name)["Id"], old.as_str());
    daemon.run(&["rm", "-f", &old]);
    scene.remove(&report);
}

/// The check needs a file in memory, which no snapshot has.
#[test]
fn a_failing_health_check_brings_the_original_back() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::HealthChecks) {
        return;
    }
    let check = ["--health-cmd", "test -e /memory/ready", "--tmpfs", "/memory"];
    let options = [&check[..], &CHECK_OFTEN, &["--restart", "always"]].concat();
    let scene = Scene::new(daemon, &options);
    scene.container.sh("touch /memory/ready");
    let is_healthy =
        || daemon.inspect(&scene.container.name)["State"]["Health"]["Status"] == "healthy";
    daemon.until("the original is healthy", is_healthy);
    let id = scene.snapshot();
    scene.change();
    let before = daemon.inspect(&scene.container.name);
    let done = daemon.nono(&scene.fixture, &["container", "restore", &id, "--replace", "--json"]);
    assert_eq!(done.code, 1, "{}", done.stderr);
    let report = done.json();
    assert_eq!(report["health"]["check"], "its health check");
    assert_eq!(report["health"]["is_healthy"], false);
    assert_eq!(report["container_id"], Value::Null);
    let now = daemon.inspect(&scene.container.name);
    assert_eq!(now["Id"], before["Id"]);
    assert_eq!(now["Name"], before["Name"]);
    assert_eq!(now["State"]["Status"], "running");
    assert_eq!(now["HostConfig"]["RestartPolicy"], before["HostConfig"]["RestartPolicy"]);
    assert_eq!(scene.container.sh("cat /own /data/file"), "second\nsecond");
    let volume = volume_at(&report, "/data");
    assert_ne!(daemon.docker(&["volume", "inspect", &volume]).code, 0);
    let left = daemon.run(&["ps", "-a", "--format", "{{.Names}}"]);
    let of_scene = left.lines().filter(|name| name.starts_with(&scene.container.name));
    assert_eq!(of_scene.collect::<Vec<_>>(), [scene.container.name.as_str()]);
}

#[test]
fn a_paused_original_that_comes_back_is_paused_again() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    daemon.run(&["pause", &scene.container.name]);
    let old = daemon.inspect(&scene.container.name)["Id"].clone();
    let unhealthy = ["--health-cmd", "exit 1", "--health-seconds", "0"];
    let arguments = [&["container", "restore", &id, "--replace"][..], &unhealthy].concat();
    daemon.nono(&scene.fixture, &arguments).fails(1, "not healthy");
    assert_eq!(daemon.inspect(&scene.container.name)["Id"], old);
    assert_eq!(scene.container.state().as_deref(), Some("paused"));
}

/// Two containers with one address or one alias would share the traffic of the original.
#[test]
fn aliases_and_static_addresses_go_with_a_replacement_alone() {
    let Some(daemon) = daemon() else { return };
    let network = daemon.unique("addresses");
    let address = "172.31.77.9";
    daemon.run(&["network", "create", "--subnet", "172.31.77.0/24", &network]);
    let options = ["--network", &network, "--ip", address, "--network-alias", "server"];
    let scene = Scene::new(daemon, &options);
    let in_network = |container: &str| -> Value {
        daemon.inspect(container)["NetworkSettings"]["Networks"][&network].clone()
    };
    let before = in_network(&scene.container.name);
    assert_eq!(before["IPAddress"], address);
    let id = scene.snapshot();
    let report = scene.restore(&id, &[]);
    let beside = in_network(report["name"].as_str().unwrap());
    assert!(beside["IPAddress"].as_str().unwrap().starts_with("172.31.77."), "{beside}");
    assert_ne!(beside["IPAddress"], address);
    assert!(!beside["IPAMConfig"].to_string().contains(address), "{beside}");
    assert!(!beside["Aliases"].to_string().contains("server"), "{beside}");
    // The traffic stays with the original.
    assert_eq!(in_network(&scene.container.name)["IPAddress"], address);
    scene.remove(&report);
    let report = scene.restore(&id, &["--replace", "--health-seconds", "0"]);
    let instead = in_network(&scene.container.name);
    if daemon.engine().has_or_notes(Ability::ToldAddresses) {
        assert_eq!(instead["IPAddress"], address);
        assert_eq!(instead["IPAMConfig"]["IPv4Address"], address);
    }
    assert!(instead["Aliases"].to_string().contains("server"), "{instead}");
    daemon.run(&["rm", "-f", report["kept_as"].as_str().unwrap()]);
    scene.remove(&report);
    daemon.run(&["network", "rm", &network]);
}

/// A command that hangs has the time that was asked for, and no second try after it.
#[test]
fn a_health_command_that_hangs_is_tried_once() {
    let Some(daemon) = daemon() else { return };
    let outside = tempfile::tempdir().unwrap();
    let mount = format!("{}:/outside", outside.path().display());
    let scene = Scene::new(daemon, &["-v", &mount]);
    let id = scene.snapshot();
    let command = "echo try >>/outside/tries; sleep 1000";
    let options = ["--replace", "--health-seconds", "0", "--health-cmd", command, "--json"];
    let arguments = [&["container", "restore", &id][..], &options].concat();
    let done = daemon.nono(&scene.fixture, &arguments);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert_eq!(done.json()["health"]["finding"], "the command ended with nothing in time");
    assert_eq!(std::fs::read_to_string(outside.path().join("tries")).unwrap(), "try\n");
    assert_eq!(scene.container.state().as_deref(), Some("running"));
}
