//! Full disks, read-only disks, missing rights, and several at once: a restore is complete or has
//! changed nothing, and says which.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::fixture::{Fixture, finished, noise};
use crate::not_run::{needs_root, not_run};
use crate::observe::{assert_same, observe};
use crate::small_disk::SmallDisk;

#[test]
fn a_symlink_that_a_broken_disk_gives_no_target_of_is_not_captured_and_left_alone() {
    let fixture = Fixture::new();
    fixture.write("file", "first");
    std::os::unix::fs::symlink("target", fixture.project().join("link")).unwrap();
    let inject = ["-e", "inject=readlinkat:retval=0"];
    let Some(taken) = fixture.nono_with_failing_calls(&inject, &["snapshot"]) else { return };
    taken.fails(1, "cannot read the link");
    fixture.nono(&["rollback", "verify", "--all"]).success();
    fixture.write("file", "second");
    fixture.nono(&["rollback", "restore", "latest"]);
    assert_eq!(fs::read(fixture.project().join("file")).unwrap(), b"first");
    assert_eq!(fs::read_link(fixture.project().join("link")).unwrap(), Path::new("target"));
}

#[test]
fn a_restore_that_may_not_write_such_long_files_changes_nothing_and_says_why() {
    let fixture = Fixture::new();
    fixture.write("long", vec![7; 3 << 20]);
    fixture.write("short", "first");
    fixture.nono(&["snapshot"]).success();
    fs::remove_file(fixture.project().join("long")).unwrap();
    fixture.write("short", "second");
    let before = observe(&fixture.project());
    let nono = fixture.command(&[]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 2000; exec \"$0\" rollback restore latest --yes"]);
    limited.arg(nono.get_program()).current_dir(fixture.project());
    limited.envs(nono.get_envs().filter_map(|(key, value)| Some((key, value?))));
    finished(limited.output().unwrap()).fails(1, "File too large");
    assert_same(&before, &observe(&fixture.project()));
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::metadata(fixture.project().join("long")).unwrap().len(), 3 << 20);
}

#[test]
fn a_full_disk_stops_a_restore_before_it_changes_anything() {
    for (count, kilobytes) in [(1, 700), (40, 20)] {
        let fixture = Fixture::new();
        let Some(_disk) = SmallDisk::mount(&fixture.project(), 2048) else { return };
        for number in 0..count {
            let content = vec![number as u8 + 1; kilobytes << 10];
            fixture.write(&format!("file{number}"), content);
        }
        let before = observe(&fixture.project());
        let script = "rm file*; head -c 1900000 /dev/zero | tr '\\0' x > filler";
        fixture.record(script).success();
        let full = observe(&fixture.project());
        // The filler is not meant, so nothing goes that would make space.
        let failed = fixture.nono(&["rollback", "restore", "latest", "file*"]).fails(1, "pace");
        assert!(failed.stderr.contains("nothing was changed"), "{}", failed.stderr);
        assert_same(&full, &observe(&fixture.project()));
        fixture.nono(&["rollback", "verify", "--all"]).success();
        // The filler is in the safety snapshot; without it there is room.
        fs::remove_file(fixture.project().join("filler")).unwrap();
        fixture.nono(&["rollback", "restore", "latest", "--force"]).success();
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn a_read_only_disk_stops_a_restore_before_it_changes_anything() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.project(), 2048) else { return };
    fixture.write("a", "1");
    let before = observe(&fixture.project());
    fixture.record("echo 2 > a; echo 3 > b").success();
    let changed = observe(&fixture.project());
    disk.remount("ro");
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "nothing was changed");
    assert_same(&changed, &observe(&fixture.project()));
    disk.remount("rw");
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_restore_that_fills_the_disk_of_its_store_leaves_nothing_that_fills_it() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.path("disk"), 16 << 10) else { return };
    let (project, store) = (disk.path().join("project"), disk.path().join("store"));
    fs::create_dir(&project).unwrap();
    let on_disk = |arguments: &[&str]| {
        fixture.nono(&[arguments, &["--root", store.to_str().unwrap()]].concat())
    };
    fs::write(project.join("big"), vec![7; 2_000_000]).unwrap();
    fs::write(project.join("small"), "1").unwrap();
    on_disk(&["snapshot", project.to_str().unwrap()]).success();
    fs::write(project.join("big"), "").unwrap();
    fs::write(project.join("small"), "2").unwrap();
    let list = on_disk(&["rollback", "list", "--json"]).success().json();
    let id = list[0]["session_id"].as_str().unwrap();
    on_disk(&["snapshot", "--session", id]).success();
    let filler = disk.path().join("filler");
    let mut full = 0;
    for free in (0..2_400).step_by(100) {
        fs::write(&filler, "").unwrap();
        let space = rustix::fs::statvfs(disk.path()).unwrap();
        let left = space.f_bavail * space.f_frsize - free * 1024;
        fs::File::create(&filler).unwrap().write_all(&vec![1; left as usize]).unwrap();
        let before = observe(&project);
        let restored = on_disk(&["rollback", "restore", id]);
        if restored.code == 0 {
            assert_eq!(fs::metadata(project.join("big")).unwrap().len(), 2_000_000);
            break;
        }
        full += 1;
        restored.fails(1, "No space left on device");
        assert_same(&before, &observe(&project));
        let resumed = on_disk(&["rollback", "resume"]).success();
        assert!(resumed.says("no restore was interrupted"), "{}", resumed.stderr);
    }
    assert!(full > 10, "{full}");
}

#[test]
fn a_full_store_stops_a_restore_before_it_changes_anything() {
    let fixture = Fixture::new();
    let store = fixture.path("home/.nono");
    let Some(disk) = SmallDisk::mount(&store, 1024) else { return };
    fixture.write("a", "1");
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    // The present state does not fit into the safety snapshot.
    fixture.write("a", noise(3 << 20, 7));
    let changed = observe(&fixture.project());
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "pace");
    fixture.nono(&["snapshot", "--session", "latest"]).fails(1, "pace");
    assert_same(&changed, &observe(&fixture.project()));
    disk.remount("size=16m");
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

/// Paths that an unreadable ignore file may name are neither removed nor recorded. Its rules at the
/// session's beginning are known.
#[test]
fn an_ignore_file_that_cannot_be_read_is_not_an_empty_one() {
    let fixture = Fixture::ordinary_user().ignored("none");
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    let set_mode = |name: &str, mode| {
        fs::set_permissions(fixture.project().join(name), fs::Permissions::from_mode(mode))
            .unwrap();
    };
    fixture.write(".gitignore", "out/\n.env\n");
    fixture.write("sub/.gitignore", "*.key\n");
    for known in ["f", "gone", "sub/f"] {
        fixture.write(known, "one");
    }
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    fixture.write("f", "two");
    fixture.write("sub/f", "two");
    fs::remove_file(fixture.project().join("gone")).unwrap();
    let unknown = [".env", "out/x", "sub/a.key", "sub/deeper/b.key"];
    for name in unknown {
        fixture.write(name, "precious");
    }
    fixture.write("new", "new");
    set_mode(".gitignore", 0o000);
    set_mode("sub/.gitignore", 0o000);
    let secret = b"precious".as_slice();
    for arguments in [&["--dry-run"][..], &[]] {
        let restored = fixture.nono(&[&["rollback", "restore", &id, "--json"], arguments].concat());
        assert_eq!(restored.code, 1, "{}", restored.stderr);
        let skipped = restored.json()["skipped"].to_string();
        for name in [".env", "out", "sub/a.key", "sub/deeper", "sub/deeper/b.key"] {
            let path = fixture.project().join(name);
            assert!(skipped.contains(&format!("{path:?}")), "{name}: {skipped}");
        }
        assert!(!skipped.contains("/new"), "{skipped}");
    }
    assert!(!fixture.project().join("new").exists());
    fixture.write("new", "precious");
    for name in unknown {
        assert_eq!(read(name), "precious", "{name}");
    }
    // A recorded path is brought back whatever an ignore file says.
    for known in ["f", "gone", "sub/f"] {
        assert_eq!(read(known), "one", "{known}");
    }
    // A first snapshot records nothing of what it may not know, and says so.
    let taken = fixture.nono(&["snapshot"]).fails(1, "");
    assert!(taken.stderr.contains("it may be ignored"), "{}{}", taken.stdout, taken.stderr);
    assert!(!holds_object(&fixture, secret));
    // The record of them is as it was.
    fixture.nono(&["rollback", "restore", "latest"]).success();
    // Nor does it make a later restore remove anything. No snapshot holds the old modes.
    set_mode(".gitignore", 0o644);
    set_mode("sub/.gitignore", 0o644);
    let restored = fixture.nono(&["rollback", "restore", "latest", "--json"]).fails(1, "").json();
    let lost = restored["lost"].as_array().unwrap().iter();
    let lost: Vec<_> = lost.map(|lost| lost["path"].as_str().unwrap()).collect();
    let project = fixture.project().display().to_string();
    assert_eq!(lost, [format!("{project}/.gitignore"), format!("{project}/sub")], "{restored}");
    for name in unknown.into_iter().chain(["new"]) {
        assert_eq!(read(name), "precious", "{name}");
    }
}

/// A node that git takes for no ignore file has no rules.
#[test]
fn what_is_no_regular_ignore_file_is_captured_as_what_it_is() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a/f", "1");
    fixture.write("b/.gitignore/f", "1");
    std::os::unix::fs::symlink("nowhere", fixture.project().join("a/.gitignore")).unwrap();
    let odd = fixture.project().join("b/.gitignore");
    fs::set_permissions(&odd, fs::Permissions::from_mode(0o000)).unwrap();
    fixture.write("b/g", "1");
    fixture.write("c/g", "1");
    let pipe = fixture.project().join("c/.gitignore");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fixture.nono(&["snapshot"]).fails(1, "");
    for name in ["a/f", "b/g", "c/g"] {
        fixture.nono(&["rollback", "cat", "latest", name]).success();
    }
}

fn holds_object(fixture: &Fixture, content: &[u8]) -> bool {
    let hash = nono_engine::object::ContentHash::of(content).hex();
    fixture.store().join("objects").join(&hash[..2]).join(&hash[2..]).exists()
}

#[test]
fn a_directory_that_may_not_be_written_takes_the_whole_restore_back() {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes files of two users");
        return;
    }
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    fixture.write("theirs/b", "1");
    fixture.write("z", "1");
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "22");
    fixture.write("z", "22");
    fs::write(fixture.project().join("theirs/b"), "22").unwrap();
    let theirs = fixture.project().join("theirs");
    std::os::unix::fs::chown(&theirs, Some(0), Some(0)).unwrap();
    fs::set_permissions(&theirs, PermissionsExt::from_mode(0o755)).unwrap();
    let before = observe(&fixture.project());
    let failed = fixture.nono(&["rollback", "restore", "latest"]).fails(1, "theirs");
    assert!(failed.stderr.contains("nothing was changed"), "{}", failed.stderr);
    assert_same(&before, &observe(&fixture.project()));
    // The rest can be had.
    let arguments = ["rollback", "restore", "latest", "--exclude", "theirs"];
    fixture.nono(&arguments).success();
    assert_eq!(fs::read_to_string(fixture.project().join("z")).unwrap(), "1");
}

#[test]
fn few_open_files_and_a_running_program_are_no_obstacle() {
    let fixture = Fixture::new();
    fixture.write("deep/er/and/deeper/file", "1");
    fixture.write("other/dir/file", "1");
    let program = fixture.project().join("program");
    fs::copy("/bin/sleep", &program).unwrap();
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    fs::remove_file(&program).unwrap();
    fs::copy("/bin/cat", &program).unwrap();
    fs::remove_dir_all(fixture.project().join("deep")).unwrap();
    fixture.write("other/dir/file", "2");
    let mut running = Command::new(&program).stdin(Stdio::piped()).spawn().unwrap();
    let nono = fixture.command(&[]).get_program().to_owned();
    let script = format!("ulimit -n 32; exec {} restore latest --yes", nono.to_str().unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(fixture.project());
    shell.env("HOME", fixture.path("home"));
    let done = finished(shell.output().unwrap());
    running.kill().unwrap();
    running.wait().unwrap();
    done.success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn without_a_thread_that_flushes_early_all_is_flushed_at_the_end() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let without = |arguments: &[&str]| {
        let (log, mut command) = (tempfile::tempdir().unwrap(), fixture.command(arguments));
        command.env("NONO_FAIL_POINT", "name=early-flush+:EAGAIN");
        command.env("NONO_OPERATION_LOG", log.path());
        finished(command.output().unwrap()).success();
        let log = fs::read_to_string(log.path().join("log")).unwrap();
        assert!(log.contains("sync-all"), "{log}");
    };
    let before = observe(&fixture.project());
    without(&["run", "--rollback", "--no-sandbox", "--", "rm", "a"]);
    without(&["rollback", "restore", "latest"]);
    assert_same(&before, &observe(&fixture.project()));
    fixture.write("a", "22");
    without(&["snapshot"]);
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

/// The objects with a file of their own, which all have here.
fn remove_objects(fixture: &Fixture) {
    for listed in fs::read_dir(fixture.store().join("objects")).unwrap() {
        let listed = listed.unwrap();
        if listed.file_name().len() == 2 {
            fs::remove_dir_all(listed.path()).unwrap();
        }
    }
}

#[test]
fn a_warning_that_cannot_be_written_ends_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    remove_objects(&fixture);
    let warned = fixture.nono(&["snapshot"]).success().stderr;
    assert!(warned.contains("WARN objects"), "{warned}");
    remove_objects(&fixture);
    let run = ["run", "--rollback", "--no-sandbox", "--", "touch", "started"];
    let mut command = fixture.command(&run);
    command.stderr(fs::File::options().write(true).open("/dev/full").unwrap());
    assert!(command.status().unwrap().success());
    assert!(fixture.project().join("started").exists());
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "completed");
}

fn start(fixture: &Fixture, arguments: &[&str]) -> Child {
    let mut command = fixture.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(child: Child) {
    finished(child.wait_with_output().unwrap()).success();
}

#[test]
fn restores_snapshots_and_cleanups_at_the_same_time_are_never_mixed() {
    let fixture = Fixture::in_memory();
    let fill = |content: &str| {
        for number in 0..150 {
            fixture.write(&format!("dir{}/file{number}", number % 7), content);
        }
    };
    fill("first");
    let first = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    fill("second, and longer");
    let second = observe(&fixture.project());
    fixture.nono(&["snapshot", "--session", &id]).success();
    for round in 0..4 {
        let other = fixture.nono(&["snapshot", "--json"]).success().json();
        let other = other["session_id"].as_str().unwrap().to_owned();
        let (to_first, to_second) = (format!("{id}/0"), format!("{id}/1"));
        let children = [
            start(&fixture, &["rollback", "restore", &to_first]),
            start(&fixture, &["rollback", "restore", &to_second]),
            start(&fixture, &["snapshot", "--session", &id]),
            start(&fixture, &["rollback", "cleanup", "--yes", &other]),
        ];
        children.into_iter().for_each(end);
        let now = observe(&fixture.project());
        assert!(now == first || now == second, "round {round}: a mixture");
        // Every state that was recorded under the session's lock is one of the two as well.
        let show = fixture.nono(&["rollback", "show", &id, "--json"]).success().json();
        let snapshots = show["snapshots"].as_array().unwrap();
        let roots: std::collections::BTreeSet<&str> =
            snapshots.iter().map(|s| s["merkle_root"].as_str().unwrap()).collect();
        assert_eq!(roots.len(), 2, "round {round}");
        fixture.nono(&["rollback", "verify", "--all"]).success();
    }
}

/// `chattr` on a file; `false`, and said loudly, where that is not possible.
pub fn chattr(change: &str, path: &std::path::Path) -> bool {
    let done = std::process::Command::new("chattr").arg(change).arg(path).output();
    let is_done = done.is_ok_and(|output| output.status.success());
    if !is_done {
        not_run(format_args!("no immutable files: chattr {change} does not work here"));
    }
    is_done
}

#[test]
fn that_a_file_is_immutable_is_said_and_not_that_somebody_else_owns_it() {
    let fixture = Fixture::new();
    let content = fixture.write("content", "1");
    let mode = fixture.write("mode", "1");
    let below = fixture.write("dir/below", "1");
    fixture.record("echo 2 > content; chmod 600 mode; echo 2 > dir/below").success();
    let restore = |path: &str| fixture.nono(&["rollback", "restore", "latest", path]);
    if !chattr("+i", &content) || !chattr("+i", &mode) || !chattr("+a", below.parent().unwrap()) {
        return;
    }
    let (of_content, of_mode, of_dir) = (restore("content"), restore("mode"), restore("dir/below"));
    chattr("-i", &content);
    chattr("-i", &mode);
    chattr("-a", below.parent().unwrap());
    of_content.fails(1, "content: it is immutable (chattr -i changes that)");
    of_dir.fails(1, "its directory is append-only");
    assert_eq!(of_mode.code, 1, "{}", of_mode.stderr);
    let said = of_mode.stdout + &of_mode.stderr;
    assert!(said.contains("its attributes could not be set: it is immutable"), "{said}");
    fixture.nono(&["rollback", "restore", "latest"]).success();
}

#[test]
fn a_pattern_that_left_nothing_out_is_named() {
    let fixture = Fixture::new();
    fixture.write("kept", "1");
    fixture.write("node_modules/x", "1");
    fixture.write("out/x", "1");
    let warning = |pattern: &str| format!("--rollback-exclude {pattern} left nothing out");
    let flags = ["out/", "*.o", "node_modules", "later", "otu"];
    let flags: Vec<String> =
        flags.iter().map(|flag| format!("--rollback-exclude={flag}")).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let snapshot = fixture.nono(&[&["snapshot"], &flags[..]].concat()).success();
    for (pattern, is_idle) in
        [("out/", false), ("*.o", true), ("node_modules", false), ("later", true), ("otu", true)]
    {
        assert_eq!(snapshot.stderr.contains(&warning(pattern)), is_idle, "{}", snapshot.stderr);
    }
    // The command's own files count.
    let command = ["--", "sh", "-c", "echo > later; echo > kept"];
    let run = [&["run", "--rollback"], &flags[..], &command].concat();
    let run = fixture.nono(&run).success();
    assert!(!run.stderr.contains(&warning("later")), "{}", run.stderr);
    assert!(run.stderr.contains(&warning("otu")), "{}", run.stderr);
}
