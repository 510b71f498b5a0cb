//! Snapshots of containers that are not plain: shared volumes, odd names, mappings, foreign images.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::daemon::{Container, Daemon, daemon};
use crate::fixture::Fixture;

#[track_caller]
fn snapshot(daemon: &Daemon, fixture: &Fixture, name: &str, more: &[&str]) -> Value {
    let arguments = [&["container", "snapshot", name, "--json"][..], more].concat();
    daemon.nono(fixture, &arguments).success().json()
}

fn id(report: &Value) -> String {
    format!("{}/{}", report["session_id"].as_str().unwrap(), report["snapshot"])
}

/// Maps a file and changes its first bytes at each line of its input.
const MAPPING: &str = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 4096)
for line in sys.stdin:
    m[0:4] = line.strip().encode()
    print('done', flush=True)
";

/// A page that is dirty already gives its file no new time: LMDB and others write so.
#[test]
fn a_change_through_a_mapping_is_in_the_next_snapshot() {
    use std::io::{BufRead, BufReader};
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let volume = daemon.unique("mapped");
    let container = Container::run(daemon, "mapped", &["-v", &format!("{volume}:/data")]);
    let file = daemon.volume_dir(&volume).join("db");
    File::create(&file).unwrap().write_all(&[0; 4096]).unwrap();
    let mut program = Command::new("python3");
    program.args(["-c", MAPPING]).arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut write = |text: &str| {
        writeln!(program.stdin.as_mut().unwrap(), "{text}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
    };
    write("ONE1");
    let first = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    write("TWO2");
    let second = snapshot(daemon, &fixture, &container.name, &["--no-image"]);
    program.kill().unwrap();
    program.wait().unwrap();
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
fn a_name_that_two_histories_have_means_none_of_them() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let [blue, green] = ["blue", "green"].map(|name| Container::run(daemon, name, &[]));
    let of_blue = snapshot(daemon, &fixture, &blue.name, &["--no-image"]);
    let of_green = snapshot(daemon, &fixture, &green.name, &["--no-image"]);
    let aside = daemon.unique("aside");
    daemon.run(&["rename", &blue.name, &aside]);
    daemon.run(&["rename", &green.name, &blue.name]);
    snapshot(daemon, &fixture, &blue.name, &["--no-image"]);
    for command in ["show", "delete", "restore", "validate"] {
        let arguments = ["container", command, &format!("{}/0", blue.name)];
        let refused = daemon.nono(&fixture, &arguments).fails(1, "2 histories");
        for report in [&of_blue, &of_green] {
            assert!(refused.says(report["session_id"].as_str().unwrap()), "{}", refused.stderr);
        }
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
        daemon.run(&["commit", &name, tag]);
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
