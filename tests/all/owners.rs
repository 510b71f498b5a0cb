//! Owners that only root can set: the files come back as the user's own, and that is all that an
//! undo or a redo finds out about them.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::PathBuf;

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
