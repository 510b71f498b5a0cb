//! The record of a container in a snapshot, how it is taken, and that a restored container is the
//! same.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use nono_container::{Docker, Endpoint, LocalStorage, take_snapshot};
use nono_engine::progress::Progress;
use nono_engine::snapshot::VolumeSource;
use serde_json::{Value, json};

use super::daemon::{Container, Daemon, IMAGE, daemon};
use super::engine::Ability;
use super::proxy::{At, Proxy};
use super::restore::{Scene, volume_at};
use crate::fixture::{Fixture, finished};

#[track_caller]
fn snapshot(daemon: &Daemon, fixture: &Fixture, name: &str, more: &[&str]) -> Value {
    let arguments = [&["container", "snapshot", name, "--json"][..], more].concat();
    daemon.nono(fixture, &arguments).success().json()
}

fn id(report: &Value) -> String {
    format!("{}/{}", report["session_id"].as_str().unwrap(), report["snapshot"])
}

/// Parts of what the engine says of a container.
const CONFIG: [&str; 9] = [
    "Env",
    "WorkingDir",
    "User",
    "Cmd",
    "Entrypoint",
    "Healthcheck",
    "StopSignal",
    "ExposedPorts",
    "Tty",
];
const HOST: [&str; 8] = [
    "RestartPolicy",
    "Memory",
    "CpuShares",
    "PidsLimit",
    "CapAdd",
    "Ulimits",
    "ReadonlyRootfs",
    "ShmSize",
];

#[test]
fn a_restored_container_has_the_whole_configuration_of_the_original() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside\n").unwrap();
    let bind = format!("{}:/bound:ro", outside.path().display());
    let network = daemon.unique("net");
    daemon.run(&["network", "create", &network]);
    let options = [
        &["-e", "A=b c", "--workdir", "/tmp", "--user", "12:34", "--entrypoint", "sleep"][..],
        &["--health-cmd", "true", "--health-interval", "1h", "--label", "project=ours"],
        &["--restart", "on-failure:3", "--memory", "64m", "--cpu-shares", "512"],
        &["--pids-limit", "50", "--cap-add", "NET_ADMIN", "--ulimit", "nofile=100:200"],
        // Podman asks for more than every test machine grants.
        &["--ulimit", "nproc=4096:4096"],
        &["--shm-size", "32m", "-v", &bind, "-v", "/data", "--tmpfs", "/quick"],
        &["--network", &network, "--network-alias", "server", "-p", "127.0.0.1::8080"],
        &["--stop-signal", "KILL"],
    ];
    let container = Container::run_command(daemon, "configured", &options.concat(), &["1000000"]);
    let before = daemon.inspect(&container.name);
    let taken = snapshot(daemon, &fixture, &container.name, &["-m", "as it is"]);
    let shown = daemon.nono(&fixture, &["container", "show", &id(&taken), "--json"]).success();
    let record = &shown.json()["record"];
    for key in CONFIG {
        let said = record["config"].get(key).unwrap_or(&Value::Null);
        assert_eq!(said, &before["Config"][key], "{key}");
    }
    assert_eq!(record["config"]["Labels"]["project"], "ours");
    assert!(record["image"]["reference"].as_str().unwrap().contains(IMAGE));
    assert!(before["Image"].as_str().unwrap().contains(record["image"]["id"].as_str().unwrap()));
    assert!(record["image"]["digests"].is_array());
    assert!(!record["ports"].as_object().unwrap().is_empty());
    let of_network = record["networks"].as_array().unwrap();
    let of_network = of_network.iter().find(|it| it["name"] == network.as_str()).unwrap();
    assert!(of_network.to_string().contains("server"), "{of_network}");
    let gaps = record["not_captured"].to_string();
    for gap in ["memory", "connections", "/quick", "/bound", "chattr"] {
        assert!(gaps.contains(gap), "{gap}: {gaps}");
    }
    let warnings = record["warnings"].to_string();
    assert!(warnings.contains("/bound") && warnings.contains("not portable"), "{warnings}");
    let report = ["container", "restore", &id(&taken), "--json"];
    let report = daemon.nono(&fixture, &report).success().json();
    let name = report["name"].as_str().unwrap();
    let after = daemon.inspect(name);
    for key in CONFIG {
        let (mut now, then) = (after["Config"][key].clone(), &before["Config"][key]);
        if key == "Env" {
            // Podman adds some of its own, and sorts them.
            let mut all = then.as_array().unwrap().clone();
            all.retain(|variable| now.as_array().unwrap().contains(variable));
            now = Value::Array(all);
        }
        assert_eq!(now, *then, "{key}");
    }
    for key in HOST {
        assert_eq!(after["HostConfig"][key], before["HostConfig"][key], "{key}");
    }
    assert_eq!(after["Config"]["Labels"]["project"], "ours");
    assert_eq!(after["State"]["Status"], "running");
    assert_eq!(daemon.sh(name, "cat /bound/file; pwd; id -u"), "outside\n/tmp\n12");
    assert_ne!(daemon.docker(&["exec", "--user", "0", name, "touch", "/bound/new"]).code, 0);
    // Which came from which, and when, both sides know.
    let list = daemon.nono(&fixture, &["container", "list", &container.name, "--json"]);
    let noted = &list.success().json()[0]["restorations"][0];
    assert_eq!(
        (&noted["snapshot"], &noted["name"], &noted["mode"]),
        (&json!(0), &json!(name), &json!("new"))
    );
    assert_eq!(noted["container_id"], after["Id"]);
    assert!(noted["at"].is_string());
    snapshot(daemon, &fixture, name, &["--no-image"]);
    let list = daemon.nono(&fixture, &["container", "list", name, "--json"]).success().json();
    assert_eq!(list[0]["restored_from"], id(&taken));
    daemon.run(&["rm", "-f", "-v", name]);
    drop(container);
    daemon.run(&["network", "rm", &network]);
}

#[test]
fn a_container_stands_still_from_the_image_to_the_last_changed_file() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "still", &["-v", "/data"]);
    container.sh("echo x >/data/x; echo y >/etc/y");
    for request in ["/commit", "/archive?path=%2Fdata", "/changes", "/archive?path=%2Fetc"] {
        let fixture = Fixture::new();
        let seen = Arc::new(Mutex::new(None));
        let (noted, name) = (Arc::clone(&seen), container.name.clone());
        let look = At::Do(Box::new(move || *noted.lock().unwrap() = daemon.state(&name)));
        let proxy = Proxy::start(&daemon.socket(), request, look);
        let arguments = ["container", "snapshot", &container.name, "--through-engine"];
        finished(proxy.lead(fixture.command(&arguments)).output().unwrap()).success();
        assert_eq!(seen.lock().unwrap().as_deref(), Some("paused"), "{request}");
        assert_eq!(container.state().as_deref(), Some("running"));
    }
    // The engine itself does not pause it once more for the image.
    let proxy = Proxy::start(&daemon.socket(), "pause=false", At::Refuse("seen"));
    let (fixture, arguments) = (Fixture::new(), ["container", "snapshot", &container.name]);
    finished(proxy.lead(fixture.command(&arguments)).output().unwrap()).fails(1, "make an image");
}

#[test]
fn without_a_pause_the_container_runs_on_and_its_snapshot_is_not_called_consistent() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "unpaused", &["-v", "/data"]);
    container.sh("echo x >/data/x");
    let proxy = Proxy::start(&daemon.socket(), "/pause", At::Refuse("never"));
    let arguments = ["container", "snapshot", &container.name, "--no-pause", "--json"];
    let taken = finished(proxy.lead(fixture.command(&arguments)).output().unwrap());
    let taken = taken.success().json();
    assert!(!proxy.is_met());
    assert_eq!(taken["is_consistent"], false);
    assert!(taken["warnings"].to_string().contains("different moments"), "{taken}");
}

#[test]
fn every_command_that_names_an_inconsistent_snapshot_says_so() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "marked", &["-v", "/data"]);
    for (number, more, is_consistent) in [(0, "--json", true), (1, "--no-pause", false)] {
        daemon.nono(&fixture, &["container", "snapshot", &container.name, more]).success();
        let id = format!("{}/{number}", container.name);
        let nono = |arguments: &[&str]| {
            daemon.nono(&fixture, &[&["container"], arguments].concat()).success()
        };
        let list = nono(&["list", &container.name, "--json"]).json();
        assert_eq!(list[0]["snapshots"][number]["is_consistent"], is_consistent);
        let list = nono(&["list", &container.name]).stdout;
        let line = list.lines().nth(number + 1).unwrap();
        assert_eq!(line.contains("inconsistent"), !is_consistent, "{list}");
        // No defect: the command succeeds.
        let validated = nono(&["validate", &id, "--json"]).json();
        let inconsistent = validated["inconsistent"].as_array().unwrap().len();
        assert_eq!(inconsistent, usize::from(!is_consistent));
        let validated = nono(&["validate", &id]).stdout;
        assert_eq!(validated.contains("inconsistent"), !is_consistent, "{validated}");
        for way in [&["--dry-run"][..], &["--no-start"]] {
            let restored = nono(&[&["restore", &id], way].concat());
            assert_eq!(restored.stderr.contains("inconsistent"), !is_consistent, "{way:?}");
            let report = nono(&[&["restore", &id, "--json"], way].concat()).json();
            assert_eq!(report["is_consistent"], is_consistent, "{report}");
            for name in [&report["name"], &Value::from(name_of_new(&restored.stdout))] {
                daemon.docker(&["rm", "-f", "-v", name.as_str().unwrap()]);
            }
        }
    }
}

/// The name in "NAME made from …", the last line of a restore.
fn name_of_new(said: &str) -> String {
    said.lines().last().unwrap().split(' ').next().unwrap().to_owned()
}

#[test]
fn an_image_with_too_many_layers_is_said_with_the_ways_on() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "layers", &[]);
    let proxy = Proxy::start(&daemon.socket(), "/commit", At::Refuse("max depth exceeded"));
    let arguments = ["container", "snapshot", &container.name];
    let refused = finished(proxy.lead(fixture.command(&arguments)).output().unwrap());
    let refused = refused.fails(1, "the largest number of layers");
    assert!(refused.says("--no-image") && refused.says("docker import"), "{}", refused.stderr);
    assert_eq!(container.state().as_deref(), Some("running"));
    daemon.nono(&fixture, &["container", "snapshot", &container.name, "--no-image"]).success();
}

#[test]
fn a_restarting_container_is_refused() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::RestartingState) {
        return;
    }
    let fixture = Fixture::new();
    let container = Container::run_command(daemon, "again", &["--restart", "always"], &["false"]);
    // From then on the engine waits for seconds between two starts.
    daemon.until("it is restarting", || {
        let found = daemon.inspect(&container.name);
        found["State"]["Status"] == "restarting" && found["RestartCount"].as_u64() >= Some(6)
    });
    let refused = daemon.nono(&fixture, &["container", "snapshot", &container.name]);
    refused.fails(1, "is restarting, so no snapshot");
    let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list, json!([]));
}

#[test]
fn a_history_keeps_to_its_first_source_of_volumes() {
    let Some(daemon) = daemon() else { return };
    let container = Container::run(daemon, "source", &["-v", "/data"]);
    for (first, second, source) in
        [(&["--through-engine"][..], &[][..], "archive"), (&[], &["--through-engine"], "directory")]
    {
        let fixture = Fixture::new();
        for more in [first, second] {
            let more = [&["--no-image", "--no-files"][..], more].concat();
            let taken = snapshot(daemon, &fixture, &container.name, &more);
            assert_eq!(taken["volume_source"], source);
            let gaps = taken["not_captured"].to_string();
            for gap in ["times below a second", "sockets of the files", "holes", "attributes"] {
                assert_eq!(gaps.contains(gap), source == "archive", "{gap}: {gaps}");
            }
        }
    }
}

#[test]
fn a_sparse_file_of_a_volume_comes_back_sparse() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let sparse = fs::File::create(scene.source().join("sparse")).unwrap();
    sparse.set_len(256 << 20).unwrap();
    sparse.write_all_at(b"end", (256 << 20) - 3).unwrap();
    let report = scene.restore(&scene.snapshot(), &["--no-start"]);
    let place = daemon.volume_dir(&volume_at(&report, "/data")).join("sparse");
    let found = fs::metadata(&place).unwrap();
    assert_eq!(found.len(), 256 << 20);
    assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    let mut end = [0; 3];
    fs::File::open(&place).unwrap().read_exact_at(&mut end, (256 << 20) - 3).unwrap();
    assert_eq!(&end, b"end");
    scene.remove(&report);
}

#[test]
fn every_report_about_containers_can_be_had_as_json() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let fixture = &scene.fixture;
    let name = &*scene.container.name;
    let taken = snapshot(daemon, fixture, name, &["--trigger", "before_action", "--run-id", "r7"]);
    scene.change();
    let newer = snapshot(daemon, fixture, name, &["--trigger", "after_action"]);
    let report = |arguments: &[&str]| {
        let arguments = [&["container"][..], arguments, &["--json"]].concat();
        daemon.nono(fixture, &arguments).success().json()
    };
    let list = report(&["list", name]);
    let first = &list[0]["snapshots"][0];
    assert_eq!((&first["trigger"], &first["run_id"]), (&json!("before_action"), &json!("r7")));
    assert_eq!(report(&["show", &id(&taken)])["record"]["trigger"], "before_action");
    // An id alone is the latest snapshot, and so is the newer side of a comparison.
    assert_eq!(report(&["show", name])["snapshot"], newer["snapshot"]);
    let diff = report(&["diff", &id(&taken)]);
    assert_eq!(diff, report(&["diff", &id(&taken), &id(&newer)]));
    assert!(!diff["changes"].as_array().unwrap().is_empty());
    let stats = report(&["stats"]);
    assert_eq!((&stats["container_count"], &stats["snapshot_count"]), (&json!(1), &json!(2)));
    assert!(stats["store_bytes"].as_u64() > Some(0));
    assert_eq!(report(&["validate", name])["snapshots_checked"], 2);
    assert_eq!(report(&["validate", &id(&taken)])["snapshots_checked"], 1);
    assert_eq!(report(&["restore", name, "--dry-run"])["dry_run"], true);
    assert_eq!(report(&["resume"]), json!([]));
    assert_eq!(report(&["cleanup", "--dry-run"])["removed"], json!([]));
    let sessions = daemon.nono(fixture, &["rollback", "list", "--json"]).success().json();
    assert_eq!(sessions[0]["session_id"], taken["session_id"]);
    assert_eq!(report(&["delete", &id(&taken)])["removed"][0]["snapshot"], 0);
}

/// The image of a snapshot stays as long as a container needs it.
#[test]
fn an_image_that_a_container_uses_outlives_its_snapshot() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let report = scene.restore(&id, &[]);
    let delete = ["container", "delete", &id, "--json"];
    let done = daemon.nono(&scene.fixture, &delete).success().json();
    assert_eq!(done["removed"][0]["image_removal"], "in_use");
    let image = done["removed"][0]["image"].as_str().unwrap();
    daemon.run(&["image", "inspect", image]);
    scene.remove(&report);
    daemon.nono(&scene.fixture, &["container", "cleanup"]).success();
    assert_ne!(daemon.docker(&["image", "inspect", image]).code, 0);
}

/// Counts, and stops the work after so many bytes.
#[derive(Default)]
struct Told {
    entries: AtomicU64,
    bytes: AtomicU64,
    stop_after: Option<u64>,
}

impl Progress for Told {
    fn advance(&self, entries: u64, bytes: u64) {
        self.entries.fetch_add(entries, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.stop_after.is_some_and(|most| self.bytes.load(Relaxed) >= most)
    }
}

#[test]
fn a_long_snapshot_tells_how_far_it_is_and_can_be_stopped_from_either_source() {
    let Some(daemon) = daemon() else { return };
    for source in [VolumeSource::Directory, VolumeSource::Archive] {
        let scene = Scene::new(daemon, &[]);
        scene.container.sh("dd if=/dev/zero of=/data/long bs=1048576 count=40 2>/dev/null");
        let endpoint = Endpoint { url: daemon.host(), tls_dir: None };
        let docker = Docker::connect_to(endpoint).unwrap();
        let store = LocalStorage::new(scene.fixture.store());
        let options = Scene::options(Some(source));
        let take = |told: &Arc<Told>| {
            let told = Arc::clone(told);
            take_snapshot(&docker, &store, &scene.container.name, &options, told)
        };
        let stopped = Arc::new(Told { stop_after: Some(1 << 20), ..Told::default() });
        let error = take(&stopped).unwrap_err();
        assert!(error.to_string().contains("nothing was recorded"), "{source:?}: {error}");
        assert!(stopped.bytes.load(Relaxed) < 40 << 20, "{source:?}");
        assert_eq!(scene.container.state().as_deref(), Some("running"));
        daemon.nono(&scene.fixture, &["container", "validate"]).success();
        let whole = Arc::new(Told::default());
        take(&whole).unwrap();
        assert!(whole.bytes.load(Relaxed) >= 40 << 20, "{source:?}");
        assert!(whole.entries.load(Relaxed) >= 5, "{source:?}");
    }
}
