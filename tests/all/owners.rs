//! Owners that only root can set: the files come back as the user's own, and that is all that an
//! undo or a redo finds out about them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use serde_json::json;

use crate::fixture::Fixture;
use crate::not_run::needs_root;

/// A project of an ordinary user, with a file and a directory of root.
fn with_files_of_root() -> Option<(Fixture, [PathBuf; 2])> {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes files of two users");
        return None;
    }
    let fixture = Fixture::ordinary_user();
    let file = fixture.write("theirs", "1");
    let dir = fixture.project().join("dir");
    fs::create_dir(&dir).unwrap();
    for path in [&file, &dir] {
        chown(path, Some(0), Some(0)).unwrap();
    }
    fixture.write("own", "1");
    Some((fixture, [file, dir]))
}

fn owner(path: &PathBuf) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

const DENIED: &str = "the owner 0:0 could not be set";
const WAY_BACK: &str = "nono redo";

#[test]
fn an_owner_that_a_restore_could_not_set_is_no_later_change() {
    let Some((fixture, [file, dir])) = with_files_of_root() else { return };
    fixture.record("rm -f theirs; rmdir dir; echo 2 > own").success();
    let user = owner(&fixture.project());
    for _ in 0..2 {
        let undone = fixture.nono(&["undo", "--yes"]).fails(1, "2 paths are not as they were");
        assert!(undone.stdout.contains(DENIED), "{}", undone.stdout);
        assert!(undone.says(WAY_BACK), "{}", undone.stderr);
        assert_eq!([owner(&file), owner(&dir)], [user, user]);
        assert_eq!(fs::read(&file).unwrap(), b"1");
        // Nothing more can be done about it, and there is nothing to take back.
        let id = fixture.latest();
        let again = fixture.nono(&["rollback", "restore", &format!("{id}/0")]);
        let again = again.fails(1, "nothing was changed");
        assert!(again.says(DENIED) && !again.says(WAY_BACK), "{}", again.stderr);
        fixture.nono(&["redo", "--yes"]).success();
        fixture.nono(&["redo", "--yes"]);
        assert!(!file.exists() && !dir.exists());
        assert_eq!(fs::read(fixture.project().join("own")).unwrap(), b"2\n");
    }
}

#[test]
fn in_an_open_session_too() {
    let Some((fixture, [file, dir])) = with_files_of_root() else { return };
    fixture.nono(&["snapshot"]).success();
    fs::remove_file(&file).unwrap();
    fs::remove_dir(&dir).unwrap();
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    let id = fixture.latest();
    fixture.nono(&["rollback", "restore", &format!("{id}/0")]).fails(1, "not as they were");
    assert!(file.exists() && dir.exists());
    fixture.nono(&["redo", "--yes"]).success();
    assert!(!file.exists() && !dir.exists());
    fixture.nono(&["undo", "--yes"]).fails(1, "not as they were");
    assert!(file.exists() && dir.exists());
    // Another owner than that is a later change.
    chown(&file, Some(12_345), Some(12_345)).unwrap();
    fixture.nono(&["redo", "--yes"]).fails(1, "theirs was changed after the session");
}

#[test]
fn a_copy_of_another_users_files_is_whole_and_says_whose_it_is() {
    let Some((fixture, _)) = with_files_of_root() else { return };
    fixture.nono(&["snapshot"]).success();
    let copy = |name: &str, flags: &[&str]| {
        let to = fixture.path("home").join(name);
        let to = to.to_str().unwrap();
        fixture.nono(&[&["rollback", "restore", "latest", "--to", to][..], flags].concat())
    };
    let done = copy("said", &[]).success();
    assert!(done.says("2 paths are yours now (recorded owner 0:0)"), "{}", done.stderr);
    assert!(!done.says("not copied") && done.stdout.is_empty(), "{} {}", done.stdout, done.stderr);
    let report = copy("json", &["--json"]).success().json();
    let left = json!({"path_count": 2, "owners": [{"uid": 0, "gid": 0}]});
    assert_eq!((&report["owners_left"], &report["skipped"]), (&left, &json!([])));
    // Other differences from the record are still named.
    fs::set_permissions(fixture.project().join("theirs"), PermissionsExt::from_mode(0o4755))
        .unwrap();
    fixture.nono(&["snapshot"]).success();
    let done = copy("setuid", &[]).fails(1, "1 path was not copied as recorded");
    assert!(done.stdout.contains("setuid and setgid were left off"), "{}", done.stdout);
    assert!(done.says("2 paths are yours now") && !done.says(DENIED), "{}", done.stderr);
}

#[test]
fn a_copy_of_a_received_session_is_whole() {
    if !rustix::process::geteuid().is_root() {
        needs_root("records as root what another user copies");
        return;
    }
    let fixture = Fixture::new();
    fixture.write("dir/a", "1");
    fixture.nono(&["snapshot"]).success();
    let archive = fixture.path("archive.tar.zst");
    let archive = archive.to_str().unwrap();
    let session = fixture.latest();
    fixture.nono(&["archive", "create", &session, "-o", archive]).success();
    fs::set_permissions(archive, PermissionsExt::from_mode(0o644)).unwrap();
    let fixture = fixture.by_ordinary_user();
    let (root, to) = (fixture.path("home/received"), fixture.path("home/copy"));
    let nono = |words: &[&str]| {
        fixture.nono(&[&["--root", root.to_str().unwrap()], words].concat()).success()
    };
    nono(&["archive", "import", archive]);
    let done = nono(&["rollback", "restore", &session, "--to", to.to_str().unwrap()]);
    assert!(done.says("2 paths are yours now (recorded owner 0:0)"), "{}", done.stderr);
    assert_eq!(fs::read(to.join("dir/a")).unwrap(), b"1");
}
