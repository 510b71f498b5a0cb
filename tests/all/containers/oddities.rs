//! Snapshots of containers that are not plain: shared volumes, odd names, mappings, foreign images.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use nono_container::{ContainerHistory, LocalStorage};
use nono_engine::object::{ContentHash, Device, Node, TreeEntry};
use nono_engine::store::read_tree;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use serde_json::Value;

use super::daemon::{Container, Daemon, daemon};
use super::engine::Ability;
use super::proxy::{At, Proxy};
use crate::fixture::{Fixture, finished};
use crate::mapping::Mapping;

#[track_caller]
fn snapshot(daemon: &Daemon, fixture: &Fixture, name: &str, more: &[&str]) -> Value {
    let arguments = [&["container", "snapshot", name, "--json"][..], more].concat();
    daemon.nono(fixture, &arguments).success().json()
}

fn id(report: &Value) -> String {
    format!("{}/{}", report["session_id"].as_str().unwrap(), report["snapshot"])
}

/// A page that is dirty already gives its file no new time: LMDB and others write so.
#[test]
fn a_change_through_a_mapping_is_in_the_next_snapshot() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("mapped");
    let container = Container::run(daemon, "mapped", &["-v", &format!("{volume}:/data")]);
    let mut mapping = Mapping::new(&daemon.volume_dir(&volume).join("db"));
    mapping.write("ONE1");
    let first = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    mapping.write("TWO2");
    let second = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    drop(mapping);
    let held = |report: &Value| {
        let path = format!("/volumes/{volume}/db");
        let done = daemon.nono(&fixture, &["rollback", "cat", &id(report), &path]).success();
        done.stdout[..4].to_owned()
    };
    assert_eq!((&*held(&first), &*held(&second)), ("ONE1", "TWO2"));
}

#[test]
fn the_snapshot_just_taken_stays_when_it_is_over_the_limit_of_space() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "large", &["-v", "/data"]);
    let small = ["config", "set", "containers.max_storage_gb", "0.0000001"];
    fixture.nono(&small).success();
    for number in 0..2 {
        container.sh(&format!("echo {number} >/data/file"));
        let arguments = ["container", "snapshot", &container.name, "--json"];
        let done = daemon.nono(&fixture, &arguments).success();
        assert_eq!(done.json()["snapshot"], number);
        assert!(done.says("over the limit"), "{}", done.stderr);
    }
    let list = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(list[0]["snapshots"].as_array().unwrap().len(), 2);
    daemon.nono(&fixture, &["container", "cleanup"]).fails(1, "over the limit");
    daemon.nono(&fixture, &["container", "validate"]).success();
}

#[test]
fn a_name_that_two_histories_have_means_the_newest_and_removes_neither() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let [blue, green] = ["blue", "green"].map(|name| Container::run(daemon, name, &[]));
    let of_blue = snapshot(daemon, &fixture, &blue.name, &["--no-image"]);
    let of_green = snapshot(daemon, &fixture, &green.name, &["--no-image"]);
    let aside = daemon.unique("aside");
    daemon.run(&["rename", &blue.name, &aside]);
    daemon.run(&["rename", &green.name, &blue.name]);
    snapshot(daemon, &fixture, &blue.name, &["--no-image"]);
    let named = format!("{}/0", blue.name);
    let restore = ["container", "restore", &named, "--dry-run", "--json"];
    for arguments in [&["container", "show", &named, "--json"][..], &restore] {
        let meant = daemon.nono(&fixture, arguments).success().json();
        assert_eq!(meant["session_id"], of_green["session_id"], "{arguments:?}");
    }
    let delete = ["container", "delete", &named];
    let refused = daemon.nono(&fixture, &delete).fails(1, "2 histories");
    for report in [&of_blue, &of_green] {
        assert!(refused.says(report["session_id"].as_str().unwrap()), "{}", refused.stderr);
    }
    let shown = daemon.nono(&fixture, &["container", "show", &id(&of_blue), "--json"]).success();
    assert_eq!(shown.json()["record"]["name"], blue.name);
    daemon.run(&["rename", &blue.name, &green.name]);
    daemon.run(&["rename", &aside, &blue.name]);
}

#[test]
fn what_is_no_name_of_a_container_is_refused_before_the_engine_is_asked() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "plain", &[]);
    let name = &container.name;
    let [query, slash] = [format!("{name}/json?x=1"), format!("{name}/")];
    for text in [&*query, &slash, "", ".", "%77eb", "we\nb", "../images"] {
        daemon.nono(&fixture, &["container", "snapshot", text]).fails(1, "no name of a container");
    }
    // The engine itself shows names so.
    snapshot(daemon, &fixture, &format!("/{name}"), &["--no-image"]);
}

/// The labels of an image go on to all that is made of it.
#[test]
fn an_image_that_somebody_made_of_a_restored_container_is_left_alone() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "labelled", &[]);
    let taken = snapshot(daemon, &fixture, &container.name, &[]);
    let own = taken["image"]["reference"].as_str().unwrap();
    let name = daemon.unique("copy");
    let restore = ["container", "restore", &id(&taken), "--name", &name];
    daemon.nono(&fixture, &restore).success();
    daemon.sh(&name, "echo work >/own");
    let tags = ["nono/container:mybackup", "me/nono/container-tools:1"];
    for tag in tags {
        daemon.commit(&name, tag);
    }
    daemon.run(&["rm", "-f", &name]);
    daemon.nono(&fixture, &["container", "delete", &container.name, "--all"]).success();
    daemon.nono(&fixture, &["container", "validate"]).success();
    daemon.nono(&fixture, &["container", "cleanup"]).success();
    assert_ne!(daemon.docker(&["image", "inspect", own]).code, 0);
    for tag in tags {
        daemon.run(&["image", "inspect", tag]);
        daemon.run(&["rmi", tag]);
    }
}

#[test]
fn an_anonymous_volume_at_two_places_has_one_tree() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = format!("{:064x}", 0xabcd);
    daemon.run(&["volume", "create", &volume]);
    let [one, two] = ["/one", "/two"].map(|place| format!("{volume}:{place}"));
    let container = Container::run(daemon, "twice", &["-v", &one, "-v", &two]);
    container.sh("echo shared >/one/file");
    for more in [&["--no-image"][..], &["--no-image", "--through-engine"]] {
        let fixture = if more.len() == 1 { &fixture } else { &Fixture::new() };
        let taken = snapshot(daemon, fixture, &container.name, more);
        assert_eq!(taken["volume_count"], 1);
        let report = ["container", "restore", &id(&taken), "--json"];
        let report = daemon.nono(fixture, &report).success().json();
        let name = report["name"].as_str().unwrap();
        daemon.sh(name, "echo more >>/two/file");
        assert_eq!(daemon.sh(name, "cat /one/file"), "shared\nmore");
        daemon.run(&["rm", "-f", name]);
    }
    drop(container);
    daemon.docker(&["volume", "rm", &volume]);
}

#[test]
fn a_volume_that_another_running_container_writes_is_not_called_consistent() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("shared");
    let [writes, reads] = [format!("{volume}:/x"), format!("{volume}:/x:ro")];
    let container = Container::run(daemon, "shares", &["-v", &writes]);
    let reader = Container::run(daemon, "reads", &["-v", &reads]);
    let taken = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    assert_eq!(taken["is_consistent"], true, "{}", taken["warnings"]);
    let writer = Container::run(daemon, "writes", &["-v", &writes]);
    let taken = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    assert_eq!(taken["is_consistent"], false);
    let warnings = taken["warnings"].to_string();
    assert!(warnings.contains(&writer.name), "{warnings}");
    assert!(!warnings.contains(&reader.name), "{warnings}");
    daemon.run(&["pause", &writer.name]);
    let taken = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    assert_eq!(taken["is_consistent"], true, "{}", taken["warnings"]);
    // The directory of the volume, under no name.
    let place = daemon.volume_dir(&volume);
    let [writes, reads] = ["", ":ro"].map(|mode| format!("{}:/x{mode}", place.display()));
    let _reader = Container::run(daemon, "binds", &["-v", &reads]);
    let taken = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    assert_eq!(taken["is_consistent"], true, "{}", taken["warnings"]);
    let binder = Container::run(daemon, "binds", &["-v", &writes]);
    let taken = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    assert_eq!(taken["is_consistent"], false);
    assert!(taken["warnings"].to_string().contains(&binder.name), "{}", taken["warnings"]);
}

#[test]
fn volumes_are_stored_before_the_pause_and_what_changes_until_then_is_in_the_snapshot() {
    const BYTES: u64 = 32 << 20;
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("ahead");
    let container = Container::run(daemon, "ahead", &["-v", &format!("{volume}:/data")]);
    container.sh("dd if=/dev/urandom of=/data/large bs=1M count=32 2>/dev/null; echo 1 >/data/a");
    let place = daemon.volume_dir(&volume);
    let db = place.join("db");
    let mapping = Arc::new(Mutex::new(Mapping::new(&db)));
    mapping.lock().unwrap().write("ONE1");
    let stored = Arc::new(AtomicU64::new(0));
    let at_pause = {
        let (store, stored, mapping) = (fixture.store(), stored.clone(), mapping.clone());
        let place = place.clone();
        At::Do(Box::new(move || {
            stored.store(bytes_below(&store), SeqCst);
            std::fs::write(place.join("a"), "2\n").unwrap();
            std::fs::write(place.join("late"), "new\n").unwrap();
            mapping.lock().unwrap().write("TWO2");
        }))
    };
    let proxy = Proxy::start(&daemon.socket(), "/pause", at_pause);
    let arguments = ["container", "snapshot", &container.name, "--no-image", "--json"];
    let taken = finished(proxy.lead(fixture.command(&arguments)).output().unwrap());
    let taken = taken.success().json();
    assert!(proxy.is_met());
    assert!(stored.load(SeqCst) >= BYTES, "{}", stored.load(SeqCst));
    // Once in the store, and once in the report.
    let written = taken["bytes_written"].as_u64().unwrap();
    assert!((BYTES..BYTES + (1 << 20)).contains(&written), "{written}");
    assert!(bytes_below(&fixture.store()) < 2 * BYTES);
    assert_eq!(taken["is_consistent"], true);
    let cat = |name: &str| {
        let path = format!("/volumes/{volume}/{name}");
        daemon.nono(&fixture, &["rollback", "cat", &id(&taken), &path]).success().stdout
    };
    assert_eq!((&*cat("a"), &*cat("late")), ("2\n", "new\n"));
    assert!(cat("db").starts_with("TWO2"));
    daemon.nono(&fixture, &["rollback", "verify", taken["session_id"].as_str().unwrap()]).success();
}

/// The lengths of all files below a directory.
fn bytes_below(dir: &Path) -> u64 {
    let listed = std::fs::read_dir(dir).into_iter().flatten().map(Result::unwrap);
    let lengths = listed.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    lengths.sum()
}

/// The list of the engine has one character for each byte that is no text.
#[test]
fn a_changed_file_whose_name_is_no_text_is_captured() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "named", &[]);
    container.sh(
        r#"cd /etc; printf one >"$(printf 'bad\377name')"; printf two >"$(printf 'bad\376name')"
        mkdir "$(printf 'dir\377')"; printf deep >"$(printf 'dir\377')/file""#,
    );
    let taken = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    let outside = tempfile::tempdir().unwrap();
    let place = outside.path().join("out");
    let restore = ["rollback", "restore", &id(&taken), "--to", place.to_str().unwrap()];
    daemon.nono(&fixture, &restore);
    let etc = place.join("changes/etc");
    let read = |name: &[u8]| {
        use std::os::unix::ffi::OsStrExt;
        std::fs::read_to_string(etc.join(std::ffi::OsStr::from_bytes(name))).unwrap()
    };
    assert_eq!(read(b"bad\xffname"), "one");
    assert_eq!(read(b"bad\xfename"), "two");
    assert_eq!(read(b"dir\xff/file"), "deep");
}

/// A disk that is not mounted, another machine with the same engine: the path is the same.
#[test]
fn another_store_at_the_same_path_leaves_the_images_of_the_first() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "moved", &[]);
    let taken = snapshot(daemon, &fixture, &container.name, &[]);
    let image = taken["image"]["reference"].as_str().unwrap();
    let (store, aside) = (fixture.store(), fixture.store().with_extension("aside"));
    std::fs::rename(&store, &aside).unwrap();
    let other = Container::run(daemon, "other", &[]);
    for _ in 0..2 {
        daemon.nono(&fixture, &["container", "validate"]).success();
        daemon.nono(&fixture, &["container", "cleanup"]).success();
        daemon.run(&["image", "inspect", image]);
        snapshot(daemon, &fixture, &other.name, &[]);
    }
    daemon.nono(&fixture, &["container", "delete", &other.name, "--all"]).success();
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::rename(&aside, &store).unwrap();
    daemon.nono(&fixture, &["container", "validate"]).success();
    daemon.nono(&fixture, &["container", "delete", &container.name, "--all"]).success();
    assert_ne!(daemon.docker(&["image", "inspect", image]).code, 0);
}

#[test]
fn a_damaged_history_is_named_and_keeps_its_images_until_it_is_repaired() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "damaged", &[]);
    let taken = snapshot(daemon, &fixture, &container.name, &[]);
    let session = taken["session_id"].as_str().unwrap();
    let manifest = fixture.store().join(session).join("manifest.json");
    let whole = std::fs::read(&manifest).unwrap();
    std::fs::write(&manifest, &whole[..whole.len() - 20]).unwrap();
    for command in ["list", "validate", "cleanup"] {
        let told = daemon.nono(&fixture, &["container", command]);
        assert_eq!(told.code, 1, "{command}: {}{}", told.stdout, told.stderr);
        assert!(
            [&told.stdout, &told.stderr].iter().any(|text| text.contains(session)),
            "{command}"
        );
    }
    // The container has a second history now, and knows why.
    let second = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    let warnings = second["warnings"].to_string();
    assert!(warnings.contains("a new history") && warnings.contains(session), "{warnings}");
    daemon.nono(&fixture, &["container", "delete", &id(&second)]).success();
    daemon.nono(&fixture, &["rollback", "verify", "--repair", session]);
    daemon.nono(&fixture, &["container", "validate"]).success();
    let listed = daemon.nono(&fixture, &["container", "list", "--json"]).success().json();
    assert_eq!(listed[0]["snapshots"][0]["has_image"], true);
}

#[test]
fn a_cleanup_of_sessions_leaves_the_histories_of_containers() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "aged", &[]);
    let taken = snapshot(daemon, &fixture, &container.name, &[]);
    for arguments in [["--keep", "0"], ["--older-than", "0"]] {
        let arguments = [&["rollback", "cleanup", "--yes"][..], &arguments].concat();
        let done = daemon.nono(&fixture, &arguments).success();
        assert!(done.says("histories of containers stay"), "{}", done.stderr);
    }
    daemon.nono(&fixture, &["container", "show", &id(&taken)]).success();
    let session = taken["session_id"].as_str().unwrap();
    daemon.nono(&fixture, &["container", "delete", &session[..1], "--all"]).fails(1, "there is no");
    daemon.nono(&fixture, &["container", "validate"]).success();
}

#[test]
fn a_volume_at_a_path_that_is_written_oddly_comes_back() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let [one, two, three] = ["one", "two", "three"].map(|name| daemon.unique(name));
    let (slash, dots) = (format!("{one}:/data/"), format!("{two}:/x/../more"));
    let mount = format!("type=volume,source={three},target=/third/");
    let options = ["-v", &slash, "-v", &dots, "--mount", &mount];
    let container = Container::run(daemon, "slashed", &options);
    container.sh("echo 1 >/data/f; echo 2 >/more/f; echo 3 >/third/f");
    let taken = snapshot(daemon, &fixture, &container.name, &[]);
    container.sh("echo changed | tee /data/f /more/f >/third/f");
    let report = daemon.nono(&fixture, &["container", "restore", &id(&taken), "--json"]);
    let report = report.success().json();
    let name = report["name"].as_str().unwrap();
    assert_eq!(daemon.sh(name, "cat /data/f /more/f /third/f"), "1\n2\n3");
    daemon.run(&["rm", "-f", name]);
}

/// Another program lets the container go on in the middle.
#[test]
fn a_pause_that_was_broken_is_not_called_consistent() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "woken", &[]);
    let name = container.name.clone();
    let wake = At::Do(Box::new(move || drop(daemon.run(&["unpause", &name]))));
    let proxy = Proxy::start(&daemon.socket(), "/changes", wake);
    let arguments = ["container", "snapshot", &container.name, "--json"];
    let command = proxy.lead(fixture.command(&arguments)).output().unwrap();
    let taken = finished(command).success().json();
    assert!(proxy.is_met());
    assert_eq!(taken["is_consistent"], false);
    assert!(taken["warnings"].to_string().contains("different moments"));
}

/// A container that stands still before nono comes does not belong to nono.
#[test]
fn a_stopped_container_that_is_started_during_its_snapshot_is_not_called_consistent() {
    let Some(daemon) = daemon() else { return };
    for (verb, words) in [("stop", ["start"]), ("pause", ["unpause"])] {
        let fixture = Fixture::new();
        let options = ["-v", "/data", "--stop-signal", "KILL"];
        let container = Container::run(daemon, "awake", &options);
        daemon.run(&[verb, &container.name]);
        let name = container.name.clone();
        let wake = At::Do(Box::new(move || drop(daemon.run(&[words[0], &name]))));
        let proxy = Proxy::start(&daemon.socket(), "/changes", wake);
        let arguments = ["container", "snapshot", &container.name, "--json"];
        let command = proxy.lead(fixture.command(&arguments)).output().unwrap();
        let taken = finished(command).success().json();
        assert!(proxy.is_met());
        assert_eq!(taken["is_consistent"], false, "{verb}");
        let again = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
        assert_eq!(again["is_consistent"], true, "{verb}: {}", again["warnings"]);
    }
}

/// The store would grow by itself with each snapshot.
#[test]
fn a_store_in_a_volume_is_no_part_of_its_snapshots() {
    let Some(daemon) = daemon() else { return };
    for more in [&["--no-image"][..], &["--no-image", "--through-engine"]] {
        let fixture = Fixture::new();
        let volume = daemon.unique("home");
        let container = Container::run(daemon, "home", &["-v", &format!("{volume}:/home")]);
        container.sh("mkdir -p /home/.nono; echo mine >/home/.nono/mine");
        let place = daemon.volume_dir(&volume);
        let nono = |root: &std::path::Path, arguments: &[&str]| {
            let mut command = daemon.command(&fixture, arguments);
            finished(command.env("NONO_ROOT", root).output().unwrap())
        };
        let store = place.join(".nono/rollbacks");
        let arguments = [&["container", "snapshot", &container.name, "--json"][..], more].concat();
        for number in 0..2 {
            let taken = nono(&store, &arguments).success().json();
            assert_eq!((&taken["snapshot"], &taken["file_count"]), (&number.into(), &2.into()));
            let gaps = taken["not_captured"].to_string();
            assert!(gaps.contains(&format!("/volumes/{volume}/.nono/rollbacks")), "{gaps}");
        }
        // A volume that is the store, or lies in it, has nothing else.
        let refused = nono(&place, &arguments).fails(1, "the store");
        assert!(refused.says("no snapshot of"), "{}", refused.stderr);
        assert_eq!(container.state().as_deref(), Some("running"));
    }
}

/// Its first process may take its time, and write.
#[test]
fn a_container_that_is_being_stopped_still_uses_its_volumes() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("shared");
    let mount = format!("{volume}:/data");
    let container = Container::run(daemon, "quiet", &["-v", &mount, "--stop-signal", "KILL"]);
    let script = "trap 'echo >/data/asked' TERM; while :; do sleep 0.1; done";
    let options = ["-v", &mount, "--stop-signal", "TERM", "--stop-timeout", "600"];
    let slow = Container::run_command(daemon, "slow", &options, &["sh", "-c", script]);
    daemon.run(&["stop", &container.name]);
    let stopping = daemon.docker_command(&["stop", &slow.name]).stdout(Stdio::null()).spawn();
    let asked = daemon.volume_dir(&volume).join("asked");
    daemon.until("it is asked to end", || asked.exists());
    let taken = snapshot(daemon, &fixture, &container.name, &[]);
    assert_eq!(taken["is_consistent"], false);
    assert!(taken["warnings"].to_string().contains(&slow.name), "{}", taken["warnings"]);
    let restore = ["container", "restore", &id(&taken), "--volumes-only", "/data"];
    daemon.nono(&fixture, &restore).fails(1, &slow.name);
    daemon.run(&["kill", &slow.name]);
    stopping.unwrap().wait().unwrap();
}

/// The engine mounts it at its place only while its container runs.
#[test]
fn a_volume_that_binds_a_directory_is_captured_while_its_container_is_stopped() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let (volume, place) = (daemon.unique("bound"), tempfile::tempdir().unwrap());
    std::fs::write(place.path().join("file"), "bound").unwrap();
    let device = format!("device={}", place.path().display());
    let options = ["--driver", "local", "-o", "type=none", "-o", "o=bind", "-o", &device];
    daemon.run(&[&["volume", "create"][..], &options, &[&*volume]].concat());
    let mount = format!("{volume}:/data");
    let options = ["-v", &*mount, "--stop-signal", "KILL"];
    let container = Container::run(daemon, "bound", &options);
    let running = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    daemon.run(&["stop", &container.name]);
    let mut all = vec![running];
    if daemon.engine().has(Ability::MountsToLook) {
        all.push(snapshot(daemon, &fixture, &container.name, &["--no-image"]));
    } else {
        for more in [&[][..], &["--through-engine"]] {
            let arguments = [&["container", "snapshot", &container.name][..], more].concat();
            daemon.nono(&fixture, &arguments).fails(1, "options of its own");
        }
    }
    for taken in all {
        assert_eq!(taken["volume_source"], "directory");
        let path = format!("/volumes/{volume}/file");
        let cat = daemon.nono(&fixture, &["rollback", "cat", &id(&taken), &path]).success();
        assert_eq!(cat.stdout, "bound");
    }
    drop(container);
    daemon.run(&["volume", "rm", &volume]);
}

const CAPABILITY: &str = "security.capability";

/// Rights 1 and 3 of a program. Their byte is the end of a line.
const RIGHTS: [u8; 20] = [1, 0, 0, 2, 10, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Makes a member of a kind that few programs make.
type Make = fn(&Path);

fn node(path: &Path, kind: FileType) {
    let device = rustix::fs::makedev(1, 7);
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device).unwrap();
}

fn is_file(entry: &TreeEntry, bytes: &[u8]) -> bool {
    let (size, hash) = (bytes.len() as u64, ContentHash::of(bytes));
    matches!(entry.node, Node::File { size: s, hash: h, .. } if (s, h) == (size, hash))
}

fn long_name() -> String {
    format!("{}\n7 a=b\nend", "n".repeat(150))
}

fn long_target() -> String {
    format!("{}\n7 a=b\nend", "t/".repeat(100))
}

/// Whether an entry of a tree is such a member.
type IsRight = fn(&TreeEntry) -> bool;

fn odd_members() -> Vec<(String, Make, IsRight)> {
    vec![
        (
            "socket".to_owned(),
            |path| {
                UnixListener::bind(path).unwrap();
                rustix::fs::chmod(path, Mode::from_raw_mode(0o750)).unwrap();
            },
            |entry| entry.node == Node::Socket && entry.attributes.mode == 0o750,
        ),
        ("fifo".to_owned(), |path| node(path, FileType::Fifo), |entry| entry.node == Node::Fifo),
        (
            "character".to_owned(),
            |path| node(path, FileType::CharacterDevice),
            |entry| entry.node == Node::CharDevice(Device { major: 1, minor: 7 }),
        ),
        (
            "block".to_owned(),
            |path| node(path, FileType::BlockDevice),
            |entry| entry.node == Node::BlockDevice(Device { major: 1, minor: 7 }),
        ),
        (
            "sparse".to_owned(),
            |path| std::fs::File::create_new(path).unwrap().set_len(3 << 20).unwrap(),
            |entry| is_file(entry, &vec![0; 3 << 20]),
        ),
        (
            "two\nlines".to_owned(),
            |path| std::fs::write(path, "two").unwrap(),
            |entry| is_file(entry, b"two"),
        ),
        (
            long_name(),
            |path| std::fs::write(path, "long").unwrap(),
            |entry| is_file(entry, b"long"),
        ),
        (
            "link".to_owned(),
            |path| std::os::unix::fs::symlink(long_target(), path).unwrap(),
            |entry| entry.node == Node::Symlink { target: long_target().into_bytes().into() },
        ),
        (
            "able".to_owned(),
            |path| {
                std::fs::write(path, "able").unwrap();
                rustix::fs::setxattr(path, CAPABILITY, &RIGHTS, XattrFlags::empty()).unwrap();
            },
            |entry| {
                let rights = entry.attributes.xattrs.get(CAPABILITY.as_bytes());
                is_file(entry, b"able") && rights == Some(&RIGHTS[..])
            },
        ),
    ]
}

/// A directory of the image, one that the container added, and a volume.
#[test]
fn odd_members_are_in_a_snapshot_and_fail_nothing() {
    let Some(daemon) = daemon() else { return };
    if !daemon.engine().has_or_notes(Ability::WholeStreams) {
        return;
    }
    let fixture = Fixture::new();
    let volume = daemon.unique("odd");
    let container = Container::run(daemon, "odd", &["-v", &format!("{volume}:/data")]);
    container.sh("mkdir /added /added/deep");
    let members = odd_members();
    for place in ["etc", "added", "added/deep", "data"] {
        let place = container.root().join(place);
        members.iter().for_each(|(name, make, _)| make(&place.join(name)));
    }
    let report = snapshot(daemon, &fixture, &container.name, &["--through-engine"]);
    let gaps = report["not_captured"].as_array().unwrap();
    assert!(gaps.contains(&"owners of the sockets among the changed files".into()), "{report}");
    assert_eq!(report["unreadable"], serde_json::json!([]));
    let storage = LocalStorage::new(fixture.store());
    let picked = ContainerHistory::find(&storage, &id(&report)).unwrap();
    let history = &picked.history;
    let inner = |tree: &ContentHash, name: &str| {
        let tree = read_tree(history.objects(), tree).unwrap();
        let entry = tree.get(name.as_bytes()).unwrap_or_else(|| panic!("{name:?}"));
        let Node::Directory { tree } = entry.node else { panic!("{name:?}") };
        tree
    };
    let changes = history.changes(picked.number).unwrap();
    let added = inner(&changes, "added");
    let (_, data) = history.volume(picked.number, &volume).unwrap();
    let places = [inner(&changes, "etc"), added, inner(&added, "deep"), data];
    for (at, place) in places.iter().enumerate() {
        let tree = read_tree(history.objects(), place).unwrap();
        for (name, _, is_right) in &members {
            // The stream of a volume has no sockets, and its directory is not in question here.
            if at == 3 && name == "socket" {
                assert!(tree.get(b"socket").is_none());
                continue;
            }
            let entry = tree.get(name.as_bytes()).unwrap_or_else(|| panic!("{at} {name:?}"));
            assert!(is_right(entry), "{at} {name:?}: {entry:?}");
        }
    }
}
