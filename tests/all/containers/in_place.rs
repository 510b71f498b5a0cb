//! Volumes in place: nothing goes that is in no snapshot, whoever uses, mounts or freezes it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nono_engine::snapshot::VolumeSource;
use serde_json::Value;

use super::daemon::{Container, Daemon, daemon};
use super::restore::Scene;
use crate::fixture::{Finished, finished};
use crate::observe::observe;

/// Undoes with a command what a test did to the machine.
struct Undo<'a>(&'a [&'a str], PathBuf);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let _ = Command::new(self.0[0]).args(&self.0[1..]).arg(&self.1).status();
    }
}

#[track_caller]
fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status().unwrap();
    assert!(status.success(), "{program} {arguments:?} {}", path.display());
}

/// A scene with a snapshot and later work, and the container stopped; the id of the snapshot.
fn stopped(daemon: &'static Daemon) -> (Scene, String) {
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot();
    scene.change();
    daemon.run(&["stop", &scene.container.name]);
    (scene, id)
}

fn in_place(scene: &Scene, id: &str, more: &[&str]) -> Finished {
    let arguments = ["container", "restore", id, "--volumes-only", &scene.volume];
    scene.daemon.nono(&scene.fixture, &[&arguments[..], more].concat())
}

/// Refused, also when only planned; nothing has changed and nothing waits to be resumed.
#[track_caller]
fn is_refused(scene: &Scene, id: &str, words: &str) {
    let before = observe(&scene.source());
    for more in [&["--dry-run"][..], &[]] {
        let refused = in_place(scene, id, more).fails(1, words);
        assert!(refused.says(&scene.volume), "{}", refused.stderr);
    }
    assert_eq!(observe(&scene.source()), before);
    is_over(scene);
}

#[track_caller]
fn is_over(scene: &Scene) {
    let list = scene.daemon.nono(&scene.fixture, &["container", "list"]).success();
    assert!(!list.says("container resume"), "{}", list.stderr);
}

fn killed_at(scene: &Scene, id: &str, step: &str) {
    let arguments = ["container", "restore", id, "--volumes-only", &scene.volume];
    let mut command = scene.daemon.command(&scene.fixture, &arguments);
    let output = command.env("NONO_FAIL_POINT", format!("name={step}")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{step}: {told}");
}

/// A file of the volume in the snapshot that a report names.
#[track_caller]
fn recorded(scene: &Scene, snapshot: &Value, file: &str) -> String {
    let snapshot = snapshot.as_str().unwrap();
    let path = format!("/volumes/{}/{file}", scene.volume);
    scene.daemon.nono(&scene.fixture, &["rollback", "cat", snapshot, &path]).success().stdout
}

#[test]
fn resume_refuses_a_running_container_and_records_what_was_written_since_the_crash() {
    let Some(daemon) = daemon() else { return };
    for aborts in [false, true] {
        let (scene, id) = stopped(daemon);
        let second = observe(&scene.source());
        killed_at(&scene, &id, "container-volume-fill");
        daemon.run(&["start", &scene.container.name]);
        scene.container.sh("echo precious >/data/precious");
        for more in [&[][..], &["--abort"]] {
            let resume = [&["container", "resume"][..], more].concat();
            let words = format!("container {} is using volume", scene.container.name);
            daemon.nono(&scene.fixture, &resume).fails(1, &words);
            assert_eq!(scene.container.sh("cat /data/precious"), "precious");
        }
        daemon.run(&["stop", &scene.container.name]);
        let mut resume = vec!["container", "resume", "--json"];
        resume.extend(aborts.then_some("--abort"));
        let report = daemon.nono(&scene.fixture, &resume).success().json();
        assert_eq!(report[0]["is_finished"], !aborts);
        let found = &report[0]["safety_snapshot"];
        assert_eq!(recorded(&scene, found, "precious"), "precious\n");
        assert!(!scene.source().join("precious").exists());
        if aborts {
            assert_eq!(observe(&scene.source()), second);
        }
        is_over(&scene);
    }
}

#[test]
fn a_container_that_binds_the_directory_of_the_volume_uses_it() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    // The directory itself, and one in it.
    for place in ["", "/sub"] {
        let bind = format!("{}{place}:/bound", scene.source().display());
        let user = Container::run(daemon, "binder", &["-v", &bind, "--stop-signal", "KILL"]);
        is_refused(&scene, &id, &format!("container {} is using volume", user.name));
    }
    in_place(&scene, &id, &[]).success();
}

/// Holds nono at a step, works meanwhile, and lets it go on.
fn held_at(scene: &Scene, id: &str, step: &str, work: impl FnOnce()) -> Finished {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("gate");
    run("mkfifo", &[], &fifo);
    let arguments = ["container", "restore", id, "--volumes-only", &scene.volume];
    let mut command = scene.daemon.command(&scene.fixture, &arguments);
    command.env("NONO_FAIL_POINT", format!("name={step}:hold@{}", fifo.display()));
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Opens when nono is there.
    let gate = File::options().write(true).open(&fifo).unwrap();
    work();
    drop(gate);
    finished(running.wait_with_output().unwrap())
}

#[test]
fn a_container_that_is_started_before_the_clearing_keeps_its_volume() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let name = &*scene.container.name;
    let told = held_at(&scene, &id, "container-volume-clear", || {
        daemon.run(&["start", name]);
        scene.container.sh("echo live >/data/live");
    });
    told.fails(1, &format!("container {name} is using volume"));
    assert_eq!(scene.container.sh("cat /data/live /data/file"), "live\nsecond");
    // Nothing was changed, so nothing waits.
    is_over(&scene);
}

#[test]
fn a_container_that_is_started_during_the_filling_keeps_what_it_writes() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let name = &*scene.container.name;
    let second = observe(&scene.source());
    let told = held_at(&scene, &id, "container-volume-check", || {
        daemon.run(&["start", name]);
        scene.container.sh("echo live >/data/live");
    });
    let told = told.fails(1, &format!("container {name} is using volume"));
    assert!(told.says("container resume"), "{}", told.stderr);
    assert_eq!(scene.container.sh("cat /data/live"), "live");
    daemon.run(&["stop", name]);
    let resume = ["container", "resume", "--abort", "--json"];
    let report = daemon.nono(&scene.fixture, &resume).success().json();
    assert_eq!(observe(&scene.source()), second);
    assert_eq!(recorded(&scene, &report[0]["safety_snapshot"], "live"), "live\n");
}

/// It is over when nono looks again; only the comparison tells.
#[test]
fn what_a_short_container_writes_during_the_filling_is_recorded_before_the_way_back() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let second = observe(&scene.source());
    let told = held_at(&scene, &id, "container-volume-check", || {
        let mount = format!("{}:/data", scene.volume);
        let run = ["run", "--rm", "--network", "none", "-v", &mount, super::daemon::IMAGE];
        daemon.run(&[&run[..], &["sh", "-c", "echo short >/data/short"]].concat());
    });
    let told = told.fails(1, "differs from the snapshot");
    assert!(told.says("all is as it was before"), "{}", told.stderr);
    assert_eq!(observe(&scene.source()), second);
    let list = daemon.nono(&scene.fixture, &["container", "list", "--json"]).success().json();
    let last = list[0]["snapshots"].as_array().unwrap().last().unwrap()["snapshot"].clone();
    let last = format!("{}/{last}", id.split('/').next().unwrap());
    assert_eq!(recorded(&scene, &last.into(), "short"), "short\n");
}

/// A stream carries little of a file; what stands in its place now has all.
#[test]
fn the_safety_snapshot_is_whole_where_the_history_is_of_streams() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let id = scene.snapshot_from(Some(VolumeSource::Archive));
    run("setfattr", &["-n", "user.other", "-v", "here"], &scene.source().join("file"));
    daemon.run(&["stop", &scene.container.name]);
    let present = observe(&scene.source());
    let planned = in_place(&scene, &id, &["--dry-run"]).success();
    assert!(planned.says("extended attributes"), "{}", planned.stderr);
    let report = in_place(&scene, &id, &["--json"]).success().json();
    assert_ne!(observe(&scene.source()), present);
    let session = id.split('/').next().unwrap();
    let safety = format!("{session}/{}", report["safety_snapshot"]);
    in_place(&scene, &safety, &[]).success();
    assert_eq!(observe(&scene.source()), present);
    // The history keeps to its source.
    let again = ["container", "snapshot", &scene.container.name, "--json"];
    let again = daemon.nono(&scene.fixture, &again).success().json();
    assert_eq!(again["volume_source"], "archive");
}

#[test]
fn a_volume_with_another_file_system_in_it_is_not_cleared() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let precious = tempfile::tempdir().unwrap();
    std::fs::write(precious.path().join("precious"), "precious").unwrap();
    for place in ["empty", "sub/private"] {
        let place = scene.source().join(place);
        let source = match place.is_dir() {
            true => precious.path().to_owned(),
            false => precious.path().join("precious"),
        };
        run("mount", &["--bind", source.to_str().unwrap()], &place);
        let _undo = Undo(&["umount"], place);
        is_refused(&scene, &id, "mounted");
    }
    assert_eq!(std::fs::read(precious.path().join("precious")).unwrap(), b"precious");
    in_place(&scene, &id, &[]).success();
}

#[test]
fn a_volume_with_a_frozen_file_is_not_cleared() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    for (flag, place, words) in
        [("+i", "sub/private", "immutable"), ("+a", "file", "append-only"), ("+i", "", "immutable")]
    {
        let place = scene.source().join(place);
        run("chattr", &[flag], &place);
        let _undo = Undo(&["chattr", "-ia"], place);
        is_refused(&scene, &id, words);
    }
    in_place(&scene, &id, &[]).success();
}

/// Killed, and then a user freezes a file: it is told before anything is cleared.
#[test]
fn resume_clears_no_volume_with_a_frozen_file() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    killed_at(&scene, &id, "container-volume-check");
    let frozen = scene.source().join("file");
    let left = observe(&scene.source());
    run("chattr", &["+i"], &frozen);
    let undo = Undo(&["chattr", "-i"], frozen);
    daemon.nono(&scene.fixture, &["container", "resume"]).fails(1, "immutable");
    assert_eq!(observe(&scene.source()), left);
    drop(undo);
    daemon.nono(&scene.fixture, &["container", "resume"]).success();
}

#[test]
fn devices_and_sockets_of_a_volume_come_back() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let at = |name: &str| scene.source().join(name);
    let node = |name: &str, kind: &str, numbers: [&str; 2]| {
        let made = Command::new("mknod").arg(at(name)).arg(kind).args(numbers).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::chown(at(name), Some(12), Some(34)).unwrap();
    };
    node("char", "c", ["1", "3"]);
    node("block", "b", ["7", "250"]);
    drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
    std::fs::hard_link(at("char"), at("linked")).unwrap();
    let first = observe(&scene.source());
    let id = scene.snapshot();
    node("later", "c", ["1", "5"]);
    daemon.run(&["stop", &scene.container.name]);
    let second = observe(&scene.source());
    let numbers = |name: &str| std::fs::symlink_metadata(at(name)).unwrap().rdev();
    let devices = [numbers("char"), numbers("block")];
    let later = numbers("later");
    let report = in_place(&scene, &id, &["--json"]).success().json();
    assert_eq!(report["not_made"], serde_json::json!([]));
    assert_eq!(observe(&scene.source()), first);
    assert_eq!([numbers("char"), numbers("block")], devices);
    let session = id.split('/').next().unwrap();
    let safety = format!("{session}/{}", report["safety_snapshot"]);
    in_place(&scene, &safety, &[]).success();
    assert_eq!(observe(&scene.source()), second);
    assert_eq!(numbers("later"), later);
}

#[test]
fn a_planned_restore_in_place_leaves_no_trace() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let before = observe(&scene.source());
    in_place(&scene, &id, &["--dry-run"]).success();
    assert_eq!(observe(&scene.source()), before);
    // A plan refuses what a restore would refuse.
    killed_at(&scene, &id, "container-volume-fill");
    in_place(&scene, &id, &["--dry-run"]).fails(1, "container resume");
}

/// The safety snapshot would go with the volume.
#[test]
fn a_volume_that_holds_the_store_is_not_cleared() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let store = scene.source().join("home/rollbacks");
    let nono = |arguments: &[&str]| {
        let mut command = daemon.command(&scene.fixture, arguments);
        finished(command.env("NONO_ROOT", &store).output().unwrap())
    };
    let name = &*scene.container.name;
    nono(&["container", "snapshot", name, "--no-image"]).success();
    daemon.run(&["stop", name]);
    std::fs::write(scene.source().join("later"), "later").unwrap();
    let arguments = ["container", "restore", name, "--volumes-only", &scene.volume];
    for more in [&["--dry-run"][..], &[]] {
        let told = nono(&[&arguments[..], more].concat()).fails(1, "the store of nono");
        assert!(told.says("home/rollbacks"), "{}", told.stderr);
    }
    assert!(scene.source().join("later").exists());
    nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn two_restores_of_one_volume_do_not_meet() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let second = observe(&scene.source());
    let mount = format!("{}:/other", scene.volume);
    let other = Container::create(daemon, "sharing", &["-v", &mount]);
    let restore = || {
        let arguments = ["container", "restore", &other.name, "--volumes-only", &scene.volume];
        daemon.nono(&scene.fixture, &arguments)
    };
    let taken = ["container", "snapshot", &other.name, "--no-image"];
    daemon.nono(&scene.fixture, &taken).success();
    held_at(&scene, &id, "container-volume-fill", || {
        restore().fails(1, "is not at its end");
    })
    .success();
    // Another store knows nothing of the first one's journal.
    let elsewhere = crate::fixture::Fixture::in_memory();
    daemon.nono(&elsewhere, &taken).success();
    let arguments = ["container", "restore", &other.name, "--volumes-only", &scene.volume];
    held_at(&scene, &id, "container-volume-fill", || {
        daemon.nono(&elsewhere, &arguments).fails(1, "another restore is at work");
    })
    .success();
    killed_at(&scene, &id, "container-volume-fill");
    let told = restore().fails(1, "is not at its end");
    assert!(told.says(&format!("container resume {}", id.split('/').next().unwrap())));
    daemon.nono(&scene.fixture, &["container", "resume", "--abort"]).success();
    assert_ne!(observe(&scene.source()), second, "that was the state before the first of three");
    restore().success();
    assert_eq!(observe(&scene.source()), second);
}

#[test]
fn an_interrupted_restore_whose_container_is_gone_is_ended_through_another() {
    let Some(daemon) = daemon() else { return };
    let (scene, id) = stopped(daemon);
    let second = observe(&scene.source());
    killed_at(&scene, &id, "container-volume-check");
    daemon.run(&["rm", &scene.container.name]);
    let resume = ["container", "resume", "--abort"];
    let told = daemon.nono(&scene.fixture, &resume).fails(1, "docker create");
    let option = format!("--volume {}:/data", scene.volume);
    assert!(told.says(&option), "{}", told.stderr);
    let mount = format!("{}:/elsewhere", scene.volume);
    let _other = Container::create(daemon, "witness", &["-v", &mount]);
    daemon.nono(&scene.fixture, &resume).success();
    assert_eq!(observe(&scene.source()), second);
    is_over(&scene);
}

/// Fills the file system of a daemon until this much is left.
fn leave_free(daemon: &Daemon, bytes: u64, inodes: u64) {
    let dir = daemon.volume_dir("x").ancestors().nth(2).unwrap().join("filler");
    std::fs::create_dir_all(&dir).unwrap();
    let free = |format: &str| -> u64 {
        let mut stat = Command::new("stat");
        let told = stat.args(["-f", "-c", format]).arg(&dir).output().unwrap();
        String::from_utf8(told.stdout).unwrap().trim().parse().unwrap()
    };
    let mut long = File::options().append(true).create(true).open(dir.join("long")).unwrap();
    let mut count = 0;
    while free("%d") > inodes {
        count += 1;
        std::fs::write(dir.join(format!("f{count}")), "").unwrap();
    }
    while free("%f") * free("%S") > bytes {
        long.write_all(&vec![7; 1 << 20]).unwrap();
        long.sync_all().unwrap();
    }
}

/// A daemon on a small file system, and the end of it.
struct Small(&'static Daemon);

impl Small {
    fn start() -> Option<Self> {
        daemon()?;
        let own = Daemon::start_on(160 << 20, &["-N", "6000"], &[])?;
        Some(Self(Box::leak(Box::new(own))))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[test]
fn a_full_disk_of_the_engine_is_named_with_its_volume() {
    let Some(small) = Small::start() else { return };
    let daemon = small.0;
    let scene = Scene::new(daemon, &[]);
    // Not one that is surely copied: only the filling finds out.
    std::fs::write(scene.source().join("big"), crate::fixture::noise(40 << 20, 7)).unwrap();
    let id = scene.snapshot();
    std::fs::remove_file(scene.source().join("big")).unwrap();
    daemon.run(&["stop", &scene.container.name]);
    leave_free(daemon, 12 << 20, u64::MAX);
    let before = observe(&scene.source());
    let new = daemon.unique("full");
    for way in [&["--volumes-only", &*scene.volume][..], &["--name", &new], &["--replace"]] {
        let arguments = [&["container", "restore", &id][..], way].concat();
        let told = daemon.nono(&scene.fixture, &arguments).fails(1, "full");
        assert!(told.says(&scene.volume) && told.says("/_data"), "{way:?}: {}", told.stderr);
        assert!(told.says("all is as it was before"), "{way:?}: {}", told.stderr);
        assert!(!told.says("/objects/"), "{way:?}: {}", told.stderr);
        assert_eq!(observe(&scene.source()), before, "{way:?}");
        is_over(&scene);
    }
}

#[test]
fn a_volume_without_room_for_its_files_is_not_cleared_and_the_way_back_needs_none() {
    let Some(small) = Small::start() else { return };
    let daemon = small.0;
    let scene = Scene::new(daemon, &[]);
    let file = |number: usize| scene.source().join(format!("f{number}"));
    (0..1500).for_each(|number| std::fs::write(file(number), "x").unwrap());
    let id = scene.snapshot();
    (0..1500).for_each(|number| std::fs::remove_file(file(number)).unwrap());
    std::fs::write(scene.source().join("current"), "current").unwrap();
    daemon.run(&["stop", &scene.container.name]);
    let second = observe(&scene.source());
    // Others take the room when the volume is empty, and give none back.
    let told = held_at(&scene, &id, "container-volume-fill", || leave_free(daemon, 8 << 20, 100));
    let told = told.fails(1, "full");
    assert!(told.says("all is as it was before"), "{}", told.stderr);
    assert_eq!(observe(&scene.source()), second);
    is_over(&scene);
    leave_free(daemon, 8 << 20, 700);
    is_refused(&scene, &id, "inodes");
}

/// Ten restores take ten safety snapshots. They have a limit of their own and go first.
#[test]
fn safety_snapshots_evict_no_snapshot_with_a_name() {
    let Some(daemon) = daemon() else { return };
    let scene = Scene::new(daemon, &[]);
    let name = &*scene.container.name;
    let nono = |arguments: &[&str]| daemon.nono(&scene.fixture, arguments).success();
    let taken = nono(&["container", "snapshot", name, "--no-image", "-m", "KNOWN GOOD", "--json"]);
    let session = taken.json()["session_id"].as_str().unwrap().to_owned();
    daemon.run(&["stop", name]);
    let (first, last) = (format!("{session}/0"), format!("{session}/11"));
    for _ in 0..10 {
        in_place(&scene, &first, &[]).success();
    }
    let told = nono(&["container", "snapshot", name, "--no-image"]);
    for number in 1..8 {
        let gone = format!("removed {session}/{number} \"before the restore of {first}\": ");
        assert!(told.stderr.contains(&gone), "{gone}: {}", told.stderr);
    }
    let numbers = |told: &Finished| -> Vec<u64> {
        let list = told.json();
        let snapshots = list[0]["snapshots"].as_array().unwrap().iter();
        snapshots.map(|one| one["snapshot"].as_u64().unwrap()).collect()
    };
    let list = nono(&["container", "list", name, "--json"]);
    assert_eq!(numbers(&list), [0, 8, 9, 10, 11], "{}", list.stdout);
    // A name that goes is named.
    let limit = ["container", "cleanup", "--max-per-container", "1"];
    for (more, verb) in [(&["--dry-run"][..], "would remove"), (&[], "removed")] {
        let told = nono(&[&limit[..], more].concat());
        let gone = format!("{verb} {first} \"KNOWN GOOD\": too many of its container");
        assert!(told.stdout.contains(&gone), "{gone}: {}", told.stdout);
    }
    in_place(&scene, &last, &[]).success();
}
