//! A store that cannot be written: everything that only reads works, and what changes it says why
//! not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::fixture::{Finished, Fixture, finished};

use crate::not_run::{needs_root, not_run};

/// Everything below a directory, itself included.
fn all_below(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut at = 0;
    while at < found.len() {
        if fs::symlink_metadata(&found[at]).unwrap().is_dir() {
            let names = fs::read_dir(&found[at]).unwrap();
            found.extend(names.map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    found
}

/// A run that changed a file and made a directory.
fn recorded(fixture: &Fixture) {
    fixture.write("dir/file", "before");
    fixture.record("echo after > dir/file; mkdir new; echo x > new/file").success();
}

/// All that reads, on a store that `call` makes the program find read-only.
fn everything_can_be_read(fixture: &Fixture, call: impl Fn(&[&str]) -> Finished) {
    let file = fixture.project().join("dir/file");
    let file = file.to_str().unwrap();
    let list = call(&["rollback", "list", "--json"]).success().json();
    let id = list[0]["session_id"].as_str().unwrap();
    assert_eq!(list[0]["status"], "completed");
    assert_eq!(call(&["rollback", "cat", "latest", file]).success().stdout, "before");
    assert_eq!(call(&["rollback", "cat", &format!("{id}/1"), file]).success().stdout, "after\n");
    assert!(call(&["rollback", "show", "latest"]).success().stdout.contains("~ modified"));
    assert!(call(&["rollback", "show", "--diff", "latest"]).success().stdout.contains("-before"));
    let (old, new) = (format!("{id}/0"), format!("{id}/1"));
    assert!(call(&["rollback", "diff", &old, &new]).success().stdout.contains("+after"));
    call(&["rollback", "verify", "--all"]).success();
    let copy = fixture.path("home/copy");
    let to = copy.to_str().unwrap();
    call(&["rollback", "restore", &new, "--to", to]).success();
    assert_eq!(fs::read_to_string(copy.join("dir/file")).unwrap(), "after\n");
    assert_eq!(fs::read_to_string(copy.join("new/file")).unwrap(), "x\n");
    call(&["rollback", "restore", "latest", "--dry-run"]).success();
    // A writing command says that it cannot, and changes nothing.
    for arguments in [&["rollback", "restore", "latest"][..], &["snapshot"]] {
        let refused = call(arguments);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        let (store, stderr) = (fixture.store(), &refused.stderr);
        assert!(stderr.contains(store.to_str().unwrap()), "{stderr}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "after\n");
}

#[test]
fn a_store_without_the_right_to_write_can_be_read() {
    let fixture = Fixture::ordinary_user();
    recorded(&fixture);
    let store = fixture.store();
    let set_rights = |of_directory, of_file| {
        for path in all_below(&store) {
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            if !kind.is_symlink() {
                let mode = if kind.is_dir() { of_directory } else { of_file };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    };
    for lock_is_there in [true, false] {
        if !lock_is_there {
            for path in all_below(&store) {
                if path.file_name().is_some_and(|name| name == ".lock" || name == ".running") {
                    fs::remove_file(path).unwrap();
                }
            }
        }
        set_rights(0o500, 0o400);
        everything_can_be_read(&fixture, |arguments| fixture.nono(arguments));
        set_rights(0o700, 0o600);
        fs::remove_dir_all(fixture.path("home/copy")).unwrap();
    }
}

/// The program where the store is mounted read-only.
fn where_the_store_is_read_only(fixture: &Fixture, script: &str, arguments: &[&str]) -> Finished {
    let nono = fixture.command(arguments);
    let mut command = Command::new("unshare");
    let bind = "mount --bind \"$STORE\" \"$STORE\" && mount -o remount,ro,bind \"$STORE\"";
    command.args(["-m", "sh", "-c", &format!("{bind} || exit 77; {script}"), "sh"]);
    command.arg(nono.get_program()).args(nono.get_args()).current_dir(fixture.project());
    command.env_clear().envs(nono.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.env("STORE", fixture.store());
    finished(command.output().unwrap())
}

fn can_mount(fixture: &Fixture) -> bool {
    if !rustix::process::geteuid().is_root() {
        // In a user namespace, the owners of the project could not be set.
        needs_root("mounts a store without another owner");
        return false;
    }
    let can = where_the_store_is_read_only(fixture, "exit 0", &[]).code == 0;
    if !can {
        not_run("no mount namespace");
    }
    can
}

#[test]
fn a_store_on_a_read_only_file_system_can_be_read() {
    for fixture in [Fixture::new(), Fixture::new().packed()] {
        recorded(&fixture);
        if !can_mount(&fixture) {
            return;
        }
        let run =
            |arguments: &[&str]| where_the_store_is_read_only(&fixture, "exec \"$@\"", arguments);
        everything_can_be_read(&fixture, run);
    }
}

#[test]
fn a_store_on_a_read_only_file_system_can_be_mounted() {
    let fixture = Fixture::new();
    recorded(&fixture);
    // It says itself why not.
    if !can_mount(&fixture) {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        not_run("no /dev/fuse");
        return;
    }
    let at = fixture.path("home/at");
    let place = at.to_str().unwrap();
    let script = "\"$@\" >&2 && cat \"$3/latest/0$PWD/dir/file\" && \"$1\" umount \"$3\" >&2";
    let shown = where_the_store_is_read_only(&fixture, script, &["mount", place]);
    assert_eq!(shown.success().stdout, "before");
}

#[test]
fn a_read_only_mount_of_a_store_still_waits_for_the_collector() {
    let fixture = Fixture::new();
    recorded(&fixture);
    if !can_mount(&fixture) {
        return;
    }
    // The collector holds the lock exclusively, on the writable side.
    let store = nono_engine::store::LocalStore::open(&fixture.store().join("objects")).unwrap();
    let collector = store.lock_exclusive().unwrap();
    let to = fixture.path("home/copy");
    let script = "timeout 2 \"$@\"";
    let arguments = ["rollback", "restore", "latest", "--to", to.to_str().unwrap()];
    let waited = where_the_store_is_read_only(&fixture, script, &arguments);
    assert_eq!(waited.code, 124, "{}", waited.stderr);
    drop(collector);
    where_the_store_is_read_only(&fixture, "exec \"$@\"", &arguments).success();
}

#[test]
fn an_object_that_vanished_is_named_where_nobody_can_lock() {
    let fixture = Fixture::new();
    recorded(&fixture);
    if !can_mount(&fixture) {
        return;
    }
    let object = nono_engine::object::ContentHash::of(b"before").to_string();
    let (first, rest) = object.split_at(2);
    fs::remove_file(fixture.store().join("objects").join(first).join(rest)).unwrap();
    fs::remove_file(fixture.store().join("objects/.lock")).unwrap();
    let to = fixture.path("home/copy");
    let run = |arguments: &[&str]| where_the_store_is_read_only(&fixture, "exec \"$@\"", arguments);
    let copied = run(&["rollback", "restore", "latest", "--to", to.to_str().unwrap()]);
    assert!(copied.fails(1, "not copied").says(&object));
    run(&["rollback", "cat", "latest", "dir/file"]).fails(1, &object);
    assert!(!to.join("dir/file").exists());
}
