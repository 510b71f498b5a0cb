//! One damaged session, and every command: the others work as before, and the damaged one is named
//! where it matters.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::fixture::{Fixture, finished};
use crate::not_run::needs_root;
use crate::terminal::eventually;

/// A store with a session of this project and an older one of another, and a copy of both.
struct Store {
    fixture: Fixture,
    good: String,
    other: PathBuf,
}

impl Store {
    fn new() -> Self {
        let fixture = Fixture::ordinary_user();
        fixture.write("a", "before");
        let elsewhere = fixture.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::write(elsewhere.join("a"), "before").unwrap();
        let elsewhere = elsewhere.to_str().unwrap();
        let taken = fixture.nono(&["snapshot", elsewhere, "--json"]).success().json();
        let other = fixture.store().join(taken["session_id"].as_str().unwrap());
        // An unreadable session may have begun a tick of the kernel after its directory changed.
        let changed = fs::metadata(&other).unwrap().modified().unwrap();
        let is_past = || changed.elapsed().is_ok_and(|since| since > Duration::from_millis(20));
        eventually("a tick of the clock of files", is_past);
        fixture.record("echo after > a; echo new > b").success();
        let store = Self { good: fixture.latest(), fixture, other };
        store.fixture.copy_state("", "keep");
        store
    }
}

fn fifo(path: &Path) {
    let _ = fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
}

fn shut(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// Damages a session, whose directory it is given.
type Damage = fn(&Path);

/// The damages, and whether `doctor` has to name the session.
const DAMAGES: [(&str, bool, Damage); 12] = [
    ("a directory that cannot be looked into", true, |it| shut(it)),
    ("a manifest that cannot be read", true, |it| shut(&it.join("manifest.json"))),
    ("snapshots that cannot be read", false, |it| shut(&it.join("snapshots"))),
    ("no manifest", true, |it| fs::remove_file(it.join("manifest.json")).unwrap()),
    ("an empty manifest", true, |it| fs::write(it.join("manifest.json"), "").unwrap()),
    ("an empty manifest of a snapshot", false, |it| {
        fs::write(it.join("snapshots/0/manifest.json"), "").unwrap();
    }),
    ("a FIFO as manifest", true, |it| fifo(&it.join("manifest.json"))),
    ("a FIFO as manifest of a snapshot", false, |it| fifo(&it.join("snapshots/0/manifest.json"))),
    ("a FIFO as journal", true, |it| fifo(&it.join("restore.journal"))),
    ("a FIFO as lock", false, |it| fifo(&it.join(".lock"))),
    ("a link that leads nowhere", false, |it| {
        fs::remove_dir_all(it).unwrap();
        symlink("nowhere", it).unwrap();
    }),
    ("no objects", false, |it| {
        fs::remove_file(it.join("objects")).unwrap();
        symlink("nowhere", it.join("objects")).unwrap();
    }),
];

#[test]
fn a_damaged_session_is_in_the_way_of_no_other() {
    let store = Store::new();
    let (fixture, good) = (&store.fixture, store.good.as_str());
    let state = format!("{good}/0");
    let about_the_good: [&[&str]; 12] = [
        &["status"],
        &["rollback", "show"],
        &["rollback", "show", good],
        &["diff"],
        &["rollback", "cat", &state, "a"],
        &["rollback", "verify"],
        &["rollback", "verify", good],
        &["steps"],
        &["rollback", "restore", &state, "--dry-run"],
        &["rollback", "pin", good],
        &["rollback", "unpin", good],
        &["undo", "--dry-run"],
    ];
    let about_all: [&[&str]; 6] = [
        &["rollback", "list", "--all"],
        &["log"],
        &["rollback", "find", "b"],
        &["rollback", "usage"],
        &["rollback", "verify", "--all"],
        &["status", "--json"],
    ];
    for (name, is_named, damage) in DAMAGES {
        store.fixture.copy_state("keep", "");
        damage(&store.other);
        for arguments in about_the_good {
            let done = fixture.nono(arguments);
            let said = format!("{name}, {arguments:?}: {}{}", done.stdout, done.stderr);
            assert_eq!(done.code, 0, "{said}");
            assert!(!done.stderr.contains("WARN"), "{said}");
        }
        for arguments in about_all {
            let done = fixture.nono(arguments);
            let said = format!("{name}, {arguments:?}: {}{}", done.stdout, done.stderr);
            assert!(done.code <= 1 && done.stdout.contains(good), "{said}");
            assert!(!done.stderr.contains("WARN"), "{said}");
        }
        let doctor = fixture.nono(&["doctor"]);
        let id = store.other.file_name().unwrap().to_str().unwrap();
        assert!(!is_named || doctor.stdout.contains(id), "{name}: {}", doctor.stdout);
        // The needs of a damaged session cannot be told: nothing goes, or all of them are known.
        let cleaned = fixture.nono(&["rollback", "cleanup"]);
        assert!(cleaned.code == 0 || cleaned.says(id), "{name}: {}", cleaned.stderr);
        fixture.nono(&["snapshot"]).success();
        fixture.nono(&["undo", "--yes", good]).success();
        assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"before", "{name}");
        assert!(!fixture.project().join("b").exists(), "{name}");
        let _ = fs::set_permissions(&store.other, Permissions::from_mode(0o700));
        let _ = fs::set_permissions(store.other.join("snapshots"), Permissions::from_mode(0o700));
    }
}

#[test]
fn a_session_that_may_be_the_newest_here_and_cannot_be_read_is_never_passed_over() {
    let store = Store::new();
    let fixture = &store.fixture;
    fixture.record("echo newest > a").success();
    let newest = fixture.session();
    shut(&newest);
    let id = newest.file_name().unwrap().to_str().unwrap();
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, id);
    assert!(refused.says("chmod -R u+rwX"), "{}", refused.stderr);
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"newest\n");
    fixture.nono(&["undo", "--yes", &store.good, "--force"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"before");
    fs::set_permissions(&newest, Permissions::from_mode(0o700)).unwrap();
}

/// Runs nono as root, in the home of the fixture's user.
fn as_root(fixture: &Fixture, arguments: &[&str]) -> crate::fixture::Finished {
    use std::os::unix::process::CommandExt;
    finished(fixture.command(arguments).uid(0).gid(0).output().unwrap())
}

/// The paths of root below a directory.
fn of_root(place: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            found.append(&mut of_root(&path));
        }
        found.extend((metadata.uid() == 0).then_some(path));
    }
    found
}

#[test]
fn root_leaves_nothing_in_the_store_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        needs_root("can write in the store of another user");
        return;
    }
    let store = Store::new();
    let (fixture, good) = (&store.fixture, store.good.as_str());
    let run = ["run", "--rollback", "--no-rollback-prompt", "--", "true"];
    let writing: [&[&str]; 9] = [
        &["config", "set", "record", "true"],
        &["agent", "install", "codex"],
        &["remote", "add", "r", "/var/tmp/r", "--plaintext", "--no-check"],
        &["snapshot"],
        &run,
        &["undo", "--yes"],
        &["rollback", "restore", &format!("{good}/0")],
        &["rollback", "cleanup"],
        &["rollback", "pin", good],
    ];
    for arguments in writing {
        as_root(fixture, arguments).fails(1, "belongs to user");
        assert_eq!(of_root(&fixture.path("home")), Vec::<PathBuf>::new(), "{arguments:?}");
    }
    for looking in [&["status"][..], &["rollback", "list"], &["rollback", "verify", good]] {
        as_root(fixture, looking).success();
        assert_eq!(of_root(&fixture.path("home")), Vec::<PathBuf>::new(), "{looking:?}");
    }
    fixture.nono(&["undo", "--yes"]).success();
    // Neither does root make a store for the user.
    fs::remove_dir_all(fixture.path("home/.nono")).unwrap();
    as_root(fixture, &["snapshot"]).fails(1, "belongs to user");
    assert_eq!(of_root(&fixture.path("home")), Vec::<PathBuf>::new());
}
