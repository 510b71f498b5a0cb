//! The way back of containers.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nono_container::{
    Docker, Endpoint, LocalStorage, SnapshotOptions, Trigger, Watcher, take_snapshot,
};
use nono_engine::snapshot::VolumeSource;
use serde_json::Value;

use super::daemon::{Container, Daemon, daemon};
use super::engine::Ability;
use crate::fixture::Fixture;
use crate::observe::observe;

/// A container with two volumes and files of its own, and a store.
pub(super) struct Scene {
    pub(super) daemon: &'static Daemon,
    pub(super) fixture: Fixture,
    pub(super) container: Container,
    pub(super) volume: String,
}

/// Not stopped for ten seconds, as a process that ignores SIGTERM is.
const STOPS_AT_ONCE: [&str; 2] = ["--stop-signal", "KILL"];

impl Scene {
    pub(super) fn new(daemon: &'static Daemon, options: &[&str]) -> Self {
        let volume = daemon.unique("data");
        let mount = format!("{volume}:/data");
        let mut all = vec!["-v", &*mount, "-v", "/anonymous", "-e", "COLOUR=blue"];
        all.extend(STOPS_AT_ONCE);
        all.extend(options);
        let container = Container::run(daemon, "origin", &all);
        container.sh("echo first >/data/file; echo own >/own; echo first >/anonymous/file");
        fill(&daemon.volume_dir(&volume));
        Self { daemon, fixture: Fixture::in_memory(), container, volume }
    }

    /// Takes a snapshot; its id with its number.
    pub(super) fn snapshot(&self) -> String {
        self.snapshot_from(None)
    }

    pub(super) fn options(volume_source: Option<VolumeSource>) -> SnapshotOptions {
        let watcher = Watcher {
            program: "sh".into(),
            arguments: ["-c", "cat >/dev/null"].map(Into::into).to_vec(),
        };
        SnapshotOptions {
            message: None,
            trigger: Trigger::Manual,
            run_id: None,
            pauses: true,
            takes_image: true,
            takes_files: true,
            volume_source,
            watcher,
            threads: 0,
        }
    }

    pub(super) fn snapshot_from(&self, volume_source: Option<VolumeSource>) -> String {
        let endpoint = Endpoint { url: self.daemon.host(), tls_dir: None };
        let docker = Docker::connect_to(endpoint).unwrap();
        let options = Self::options(volume_source);
        let (store, name) = (LocalStorage::new(self.fixture.store()), &self.container.name);
        let progress = Arc::new(nono_engine::progress::NoProgress);
        let taken = take_snapshot(&docker, &store, name, &options, progress).unwrap();
        format!("{}/{}", taken.session_id, taken.snapshot)
    }

    /// Makes the second state, after the snapshot.
    pub(super) fn change(&self) {
        self.container.sh("echo second >/data/file; echo second >/own; rm /anonymous/file");
    }

    pub(super) fn restore(&self, id: &str, arguments: &[&str]) -> Value {
        let mut all = vec!["container", "restore", id, "--json"];
        all.extend(arguments);
        self.daemon.nono(&self.fixture, &all).success().json()
    }

    pub(super) fn source(&self) -> std::path::PathBuf {
        self.daemon.volume_dir(&self.volume)
    }

    /// Removes what a restore made.
    pub(super) fn remove(&self, report: &Value) {
        self.daemon.docker(&["rm", "-f", report["container_id"].as_str().unwrap()]);
        for volume in report["volumes"].as_array().unwrap() {
            self.daemon.docker(&["volume", "rm", volume["name"].as_str().unwrap()]);
        }
    }
}

/// Everything that a tree on Linux can have.
fn fill(dir: &Path) {
    std::fs::create_dir(dir.join("sub")).unwrap();
    std::fs::write(dir.join("sub/private"), "secret").unwrap();
    let private = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(dir.join("sub/private"), private).unwrap();
    std::os::unix::fs::chown(dir.join("sub/private"), Some(999), Some(998)).unwrap();
    symlink("sub/private", dir.join("link")).unwrap();
    std::fs::hard_link(dir.join("sub/private"), dir.join("hard")).unwrap();
    std::fs::create_dir(dir.join("empty")).unwrap();
    let long = "x".repeat(200);
    std::fs::write(dir.join(long), vec![7; 3 << 20]).unwrap();
    let status = Command::new("setfattr")
        .args(["-n", "user.origin", "-v", "here"])
        .arg(dir.join("sub/private"))
        .status();
    assert!(status.unwrap().success());
    let status = Command::new("mkfifo").arg(dir.join("pipe")).status();
    assert!(status.unwrap().success());
}

pub(super) fn volume_at(report: &Value, destination: &str) -> String {
    let volumes = report["volumes"].as_array().unwrap();
    let found = volumes.iter().find(|volume| volume["destination"] == destination).unwrap();
    found["name"].as_str().unwrap().to_owned()
}

#[test]
fn a_new_container_has_the_state_of_the_snapshot_and_the_original_stays() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let before = observe(&scene.source());
    let id = scene.snapshot();
    scene.change();
    let report = scene.restore(&id, &[]);
    let new = report["name"].as_str().unwrap();
    assert!(new.starts_with(&format!("{}-restored-2", scene.container.name)), "{new}");
    assert_eq!(daemon.state(new).as_deref(), Some("running"));
    assert_eq!(daemon.sh(new, "cat /own /anonymous/file; echo $COLOUR"), "own\nfirst\nblue");
    let volume = volume_at(&report, "/data");
    assert_eq!(volume, format!("{}-{}", scene.volume, id.replace('/', ".")));
    assert_eq!(observe(&daemon.volume_dir(&volume)), before);
    // The original is as it was.
    assert_eq!(scene.container.state().as_deref(), Some("running"));
    assert_eq!(scene.container.sh("cat /data/file /own"), "second\nsecond");
    // A second restore gets names of its own.
    let again = scene.restore(&id, &["--no-start"]);
    assert_ne!(again["name"], report["name"]);
    assert_eq!(volume_at(&again, "/data"), format!("{volume}-2"));
    assert_eq!(daemon.state(again["name"].as_str().unwrap()).as_deref(), Some("created"));
    scene.remove(&again);
    scene.remove(&report);
}

/// An engine may give a new volume an owner of its own at the first start.
#[test]
fn the_root_of_a_volume_keeps_its_owner_and_mode() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    std::os::unix::fs::chown(scene.source(), Some(999), Some(998)).unwrap();
    std::fs::set_permissions(scene.source(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let id = scene.snapshot();
    let report = scene.restore(&id, &[]);
    assert_eq!(daemon.state(report["name"].as_str().unwrap()).as_deref(), Some("running"));
    let root = std::fs::metadata(daemon.volume_dir(&volume_at(&report, "/data"))).unwrap();
    assert_eq!((root.uid(), root.gid(), root.mode() & 0o7777), (999, 998, 0o700));
    // Its next snapshot reads the volume as the first one did.
    let taken = ["container", "snapshot", report["name"].as_str().unwrap(), "--json"];
    let taken = daemon.nono(&scene.fixture, &taken).success().json();
    assert_eq!(taken["volume_source"], "directory");
    scene.remove(&report);
}

#[test]
fn a_dry_run_makes_nothing() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let report = scene.restore(&id, &["--dry-run"]);
    assert_eq!(report["container_id"], Value::Null);
    assert_eq!(daemon.state(report["name"].as_str().unwrap()), None);
    let volume = volume_at(&report, "/data");
    assert_ne!(daemon.docker(&["volume", "inspect", &volume]).code, 0);
}

#[test]
fn without_the_directory_volumes_are_filled_through_the_engine() {
    let Some(daemon) = daemon() else { return };
    let read_only = daemon.unique("read-only");
    let mount = format!("{read_only}:/read-only:ro");
    let mut scene = Scene::new(daemon, &["-v", &mount]);
    std::fs::write(daemon.volume_dir(&read_only).join("fixed"), "fixed").unwrap();
    scene.fixture = Fixture::ordinary_user();
    let before = observe(&scene.source());
    // As root, so that the snapshot has everything.
    let id = scene.snapshot();
    let store = scene.fixture.store();
    let home = store.parent().unwrap();
    let given = Command::new("chown").args(["-R", "54321"]).arg(home).status();
    assert!(given.unwrap().success());
    scene.change();
    if !daemon.engine().has(Ability::WholeStreams) {
        // Their loss is found, and nothing stays.
        let refused = daemon.nono(&scene.fixture, &["container", "restore", &id]);
        let refused = refused.fails(1, "differs from the snapshot");
        assert!(refused.says("all is as it was before"), "{}", refused.stderr);
        return;
    }
    let report = scene.restore(&id, &[]);
    let new = report["name"].as_str().unwrap();
    assert_eq!(daemon.sh(new, "cat /own /anonymous/file /read-only/fixed"), "own\nfirst\nfixed");
    assert_ne!(daemon.docker(&["exec", new, "touch", "/read-only/new"]).code, 0);
    let volume = volume_at(&report, "/data");
    assert_eq!(observe(&daemon.volume_dir(&volume)), before);
    scene.remove(&report);
    let arguments = ["container", "restore", &id, "--volumes-only", &scene.volume];
    daemon.run(&["stop", &scene.container.name]);
    let changed = observe(&scene.source());
    daemon.nono(&scene.fixture, &arguments).fails(1, "out of reach");
    assert_eq!(observe(&scene.source()), changed);
}

/// The tar stream has no sockets, no nanoseconds and few extended attributes: the comparison after
/// the filling keeps to what it has.
#[test]
fn a_snapshot_through_the_engine_comes_back_in_all_that_it_carries() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot_from(Some(VolumeSource::Archive));
    let report = scene.restore(&id, &[]);
    let whole = |dir: &Path| {
        let mut tree = observe(dir);
        for found in tree.values_mut() {
            found.mtime.1 = 0;
            found.xattrs.clear();
            if !daemon.engine().has(Ability::WholeStreams) {
                (found.uid, found.gid, found.mtime) = (0, 0, (0, 0));
            }
        }
        tree
    };
    let new = daemon.volume_dir(&volume_at(&report, "/data"));
    assert_eq!(whole(&new), whole(&scene.source()));
    scene.remove(&report);
}

#[test]
fn a_replacement_takes_the_name_and_the_original_is_kept_stopped() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &daemon.engine().policy("always"));
    let id = scene.snapshot();
    scene.change();
    let before = daemon.inspect(&scene.container.name);
    let old = before["Id"].as_str().unwrap();
    let report = scene.restore(&id, &["--replace", "--health-cmd", "test -e /own"]);
    assert_eq!(report["health"]["is_healthy"], true);
    assert_ne!(daemon.inspect(&scene.container.name)["Id"], old);
    assert_eq!(scene.container.sh("cat /own /data/file"), "own\nfirst");
    let kept = daemon.inspect(old);
    assert_eq!(kept["State"]["Status"], "exited");
    assert_eq!(kept["HostConfig"]["RestartPolicy"]["Name"], "no");
    assert_eq!(kept["Name"].as_str().unwrap()[1..], *report["kept_as"].as_str().unwrap());
    let new = daemon.inspect(&scene.container.name);
    assert_eq!(new["HostConfig"]["RestartPolicy"], before["HostConfig"]["RestartPolicy"]);
    daemon.run(&["rm", "-f", old]);
    scene.remove(&report);
}

#[test]
fn an_unhealthy_replacement_goes_and_the_original_runs_again() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &daemon.engine().policy("always"));
    let id = scene.snapshot();
    scene.change();
    let before = daemon.inspect(&scene.container.name);
    let arguments = [
        "container",
        "restore",
        &id,
        "--replace",
        "--json",
        "--health-cmd",
        "exit 3",
        "--health-seconds",
        "0",
    ];
    let report = daemon.nono(&scene.fixture, &arguments);
    assert_eq!(report.code, 1, "{}", report.stderr);
    assert_eq!(report.json()["health"]["finding"], "the command ended with 3");
    let found = daemon.inspect(&scene.container.name);
    assert_eq!(found["Id"], before["Id"]);
    assert_eq!(found["State"]["Status"], "running");
    assert_eq!(found["HostConfig"]["RestartPolicy"], before["HostConfig"]["RestartPolicy"]);
    let volume = volume_at(&report.json(), "/data");
    assert_ne!(daemon.docker(&["volume", "inspect", &volume]).code, 0);
    assert_eq!(scene.container.sh("cat /own"), "second");
}

#[test]
fn volumes_alone_come_back_in_place_after_a_safety_snapshot() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let before = observe(&scene.source());
    let id = scene.snapshot();
    scene.change();
    std::fs::write(scene.source().join("later"), "later work").unwrap();
    let arguments = ["container", "restore", &id, "--volumes-only", &scene.volume];
    daemon.nono(&scene.fixture, &arguments).fails(1, "stop it first");
    daemon.run(&["stop", &scene.container.name]);
    let changed = observe(&scene.source());
    let report = scene.restore(&id, &["--volumes-only", &scene.volume]);
    assert_eq!(observe(&scene.source()), before);
    // The state before is one restore away.
    let session = id.split('/').next().unwrap();
    let safety = format!("{session}/{}", report["safety_snapshot"]);
    scene.restore(&safety, &["--volumes-only", "/data"]);
    assert_eq!(observe(&scene.source()), changed);
}

#[test]
fn a_held_port_is_published_at_a_random_one_and_told() {
    let Some(daemon) = daemon() else { return };
    let network = daemon.unique("net");
    daemon.run(&["network", "create", &network]);
    let options = ["--network", &network, "--network-alias", "server", "-p", "127.0.0.1:18423:80"];
    let scene = Scene::new(daemon, &options);
    let id = scene.snapshot();
    let report = scene.restore(&id, &[]);
    assert_eq!(report["ports"][0]["is_random"], true);
    let place = report["published"][0][1].as_str().unwrap();
    assert!(place.starts_with("127.0.0.1:") && place != "127.0.0.1:18423", "{place}");
    let new = daemon.inspect(report["name"].as_str().unwrap());
    let aliases = &new["NetworkSettings"]["Networks"][&network]["Aliases"];
    assert!(!aliases.to_string().contains("server"), "{aliases}");
    scene.remove(&report);
    let report = scene.restore(&id, &["--replace", "--health-seconds", "0"]);
    assert_eq!(report["ports"][0]["is_random"], false);
    let new = daemon.inspect(&scene.container.name);
    let aliases = &new["NetworkSettings"]["Networks"][&network]["Aliases"];
    assert!(aliases.to_string().contains("server"), "{aliases}");
    daemon.run(&["rm", "-f", report["kept_as"].as_str().unwrap()]);
    scene.remove(&report);
    daemon.docker(&["network", "rm", &network]);
}

#[test]
fn a_failure_before_the_start_leaves_nothing() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    let plan = scene.restore(&id, &["--dry-run"]);
    let mut command = daemon.command(&scene.fixture, &["container", "restore", &id]);
    command.env("NONO_FAIL_POINT", "name=container-restore-start:EIO");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let volume = volume_at(&plan, "/data");
    assert_ne!(daemon.docker(&["volume", "inspect", &volume]).code, 0);
    let left = daemon.run(&["ps", "-a", "--format", "{{.Names}}"]);
    assert!(!left.contains(&format!("{}-restored", scene.container.name)), "{left}");
    let report = scene.restore(&id, &["--no-start"]);
    scene.remove(&report);
    let mode = std::fs::metadata(scene.source().join("sub/private")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o640);
}

/// The two states that a copy can be in, and what is said: planned and made alike.
#[track_caller]
fn restored_beside(scene: &Beside, more: &[&str], reason: Option<&str>, words: &[&str]) {
    let Beside { daemon, fixture, id } = scene;
    let arguments = [&["container", "restore", id][..], more].concat();
    let planned = [&arguments[..], &["--dry-run", "--json"]].concat();
    let planned = daemon.nono(fixture, &planned).success().json();
    let made = [&arguments[..], &["--json"]].concat();
    let made = daemon.nono(fixture, &made).success().json();
    let expected = reason.map_or(Value::Null, Value::from);
    for report in [&planned, &made] {
        assert_eq!(report["not_started"]["reason"], expected, "{more:?} {report}");
        assert_eq!(report["will_start"], reason.is_none(), "{more:?} {report}");
    }
    let name = made["name"].as_str().unwrap();
    let found = daemon.inspect(name);
    assert_eq!(made["is_started"], reason.is_none());
    assert_eq!(found["State"]["Running"], reason.is_none(), "{more:?}");
    if reason == Some("shared") {
        assert_eq!(found["HostConfig"]["RestartPolicy"]["Name"], "no");
    }
    daemon.run(&["rm", "-f", "-v", name]);
    let told = [&arguments[..], &["--dry-run"]].concat();
    let told = daemon.nono(fixture, &told).success();
    for words in words {
        assert!(told.says(words), "{words}: {}{}", told.stdout, told.stderr);
    }
}

/// A history, and the engine that has its container.
struct Beside {
    daemon: &'static Daemon,
    fixture: Fixture,
    id: String,
}

impl Beside {
    fn new(container: &Container, daemon: &'static Daemon) -> Self {
        let fixture = Fixture::new();
        let taken = ["container", "snapshot", &container.name, "--json"];
        let taken = daemon.nono(&fixture, &taken).success().json();
        let id = format!("{}/0", taken["session_id"].as_str().unwrap());
        Self { daemon, fixture, id }
    }
}

/// Two servers on one data directory destroy it.
#[test]
fn a_copy_is_not_started_where_it_would_write_among_files_of_a_container_at_work() {
    let Some(daemon) = daemon() else { return };
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("sub")).unwrap();
    let place = outside.path().display().to_string();
    let bind = format!("{place}:/data");
    let policy = daemon.engine().policy("always");
    let options = [&["-v", &bind, "-v", "/own"][..], &STOPS_AT_ONCE, &policy].concat();
    let server = Container::run(daemon, "server", &options);
    let scene = Beside::new(&server, daemon);
    let at_work = |name: &str| format!("/data is {place}, where {name} is at work");
    let told = at_work(&server.name);
    let words = ["would not be started", &*told, "--share-mounts", "--replace"];
    restored_beside(&scene, &[], Some("shared"), &words);
    restored_beside(&scene, &["--no-start"], Some("unwanted"), &[]);
    restored_beside(&scene, &["--share-mounts"], None, &["would be made"]);
    // A paused one goes on later.
    daemon.run(&["pause", &server.name]);
    restored_beside(&scene, &[], Some("shared"), &[&told]);
    daemon.run(&["unpause", &server.name]);
    daemon.run(&["stop", &server.name]);
    restored_beside(&scene, &[], None, &["would be made"]);
    // The same files by other ways: a directory in it, a link, a volume of a driver, and the mounts
    // of another container.
    let link = outside.path().with_extension("link");
    symlink(outside.path(), &link).unwrap();
    let device = format!("device={place}");
    let volume = daemon.unique("bound");
    let made = ["--opt", "type=none", "--opt", "o=bind", "--opt", &device, &volume];
    daemon.run(&[&["volume", "create"][..], &made].concat());
    for mount in [
        ["-v", &format!("{place}/sub:/x:ro")],
        ["-v", &format!("{}:/x:ro", link.display())],
        ["-v", &format!("{volume}:/x")],
        ["--volumes-from", &server.name],
    ] {
        let other = Container::run(daemon, "other", &mount);
        restored_beside(&scene, &[], Some("shared"), &[&at_work(&other.name)]);
        drop(other);
        restored_beside(&scene, &[], None, &[]);
    }
    daemon.run(&["volume", "rm", &volume]);
    std::fs::remove_file(link).unwrap();
}

#[test]
fn a_copy_that_shares_nothing_to_write_is_started_unless_the_original_was_idle() {
    let Some(daemon) = daemon() else { return };
    let outside = tempfile::tempdir().unwrap();
    let bind = format!("{}:/data:ro", outside.path().display());
    let reader = Container::run(daemon, "reader", &["-v", &bind, "-v", "/own"]);
    restored_beside(&Beside::new(&reader, daemon), &[], None, &[]);
    let created = Container::create(daemon, "created", &[]);
    let words = ["would not be started", "created", "docker start"];
    restored_beside(&Beside::new(&created, daemon), &[], Some("idle"), &words);
    let one_shot = Container::run_command(daemon, "once", &[], &["true"]);
    let is_over = || daemon.state(&one_shot.name).as_deref() == Some("exited");
    daemon.until("it has ended", is_over);
    let scene = Beside::new(&one_shot, daemon);
    restored_beside(&scene, &[], Some("idle"), &["stopped"]);
    restored_beside(&scene, &["--share-mounts"], Some("idle"), &["stopped"]);
}

/// Mounts that the mounts of another container gave the recorded one.
#[test]
fn a_copy_with_mounts_of_another_container_is_not_started_beside_it() {
    let Some(daemon) = daemon() else { return };
    let outside = tempfile::tempdir().unwrap();
    let bind = format!("{}:/data", outside.path().display());
    let server = Container::run(daemon, "server", &["-v", &bind]);
    let guest = Container::run(daemon, "guest", &["--volumes-from", &server.name]);
    let scene = Beside::new(&guest, daemon);
    daemon.run(&["rm", "-f", &guest.name]);
    restored_beside(&scene, &[], Some("shared"), &[&server.name]);
    drop(server);
    restored_beside(&scene, &[], None, &[]);
}

/// Killed between the last check and the start. The original is at work again by the resume.
#[test]
fn a_resume_starts_no_copy_beside_a_container_that_came_meanwhile() {
    let Some(daemon) = daemon() else { return };
    let outside = tempfile::tempdir().unwrap();
    let bind = format!("{}:/data", outside.path().display());
    let server = Container::run(daemon, "server", &[&["-v", &bind][..], &STOPS_AT_ONCE].concat());
    for (more, reason) in [(&[][..], Value::from("shared")), (&["--share-mounts"], Value::Null)] {
        let scene = Beside::new(&server, daemon);
        daemon.run(&["stop", &server.name]);
        let name = daemon.unique("copy");
        let arguments = [&["container", "restore", &scene.id, "--name", &name][..], more].concat();
        let mut command = daemon.command(&scene.fixture, &arguments);
        command.env("NONO_FAIL_POINT", "name=container-restore-start");
        assert_eq!(command.output().unwrap().status.signal(), Some(9));
        daemon.run(&["start", &server.name]);
        let resume = ["container", "resume", "--json"];
        let report = daemon.nono(&scene.fixture, &resume).success().json();
        assert_eq!(report[0]["is_finished"], true);
        assert_eq!(report[0]["not_started"]["reason"], reason);
        assert_eq!(daemon.inspect(&name)["State"]["Running"], reason.is_null());
        daemon.run(&["rm", "-f", &name]);
    }
}
