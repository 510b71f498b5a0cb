//! An undo that left something: the rest is still there to be undone, and nothing else is touched.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::Fixture;

fn text(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

fn git(fixture: &Fixture, words: &[&str]) -> String {
    let name = ["-c", "user.name=n", "-c", "user.email=n@example.org"];
    let mut git = Command::new("git");
    let done = git.args(name).args(words).current_dir(fixture.project()).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn with_commit(fixture: &Fixture) {
    git(fixture, &["init", "-q"]);
    git(fixture, &["add", "."]);
    git(fixture, &["commit", "-qm", "first"]);
}

/// Whether the last session is undone, and whether a part of it is.
fn undone(fixture: &Fixture) -> (Value, Value) {
    let session = fixture.nono(&["status", "--json"]).success().json()["session"].clone();
    (session["undone"].clone(), session["partly_undone"].clone())
}

/// A session that changed `a` and `b`, and a later change of `a`.
fn edited_later() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.record("echo 1 > a; echo 1 > b").success();
    fixture.write("a", "mine");
    fixture
}

#[test]
fn a_newer_change_that_an_undo_kept_can_still_be_undone() {
    let fixture = edited_later();
    let kept = fixture.nono(&["undo", "--yes", "--keep-newer"]).success();
    assert!(kept.says("nono undo --force"), "{}", kept.stderr);
    assert_eq!((text(&fixture, "a"), text(&fixture, "b")), ("mine".into(), "0".into()));
    assert_eq!(undone(&fixture), (false.into(), true.into()));
    let status = fixture.nono(&["status"]).success();
    assert!(status.says("(partly undone)") && status.says("modified    a"), "{}", status.stdout);
    assert!(fixture.nono(&["rollback", "list"]).says("partly undone"));
    fixture.nono(&["undo", "--yes"]).fails(1, "a was changed after the session");
    fixture.nono(&["undo", "--yes", "--force"]).success();
    assert_eq!(text(&fixture, "a"), "0");
    assert_eq!(undone(&fixture), (true.into(), false.into()));
    fixture.nono(&["redo"]).success();
    assert_eq!((text(&fixture, "a"), text(&fixture, "b")), ("mine".into(), "0".into()));
    fixture.nono(&["redo"]).success();
    assert_eq!((text(&fixture, "a"), text(&fixture, "b")), ("mine".into(), "1\n".into()));
}

#[test]
fn keeping_newer_changes_again_goes_on_to_the_session_before() {
    let fixture = Fixture::new();
    fixture.write("old", "0");
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.record("echo 1 > old").success();
    fixture.record("echo 1 > a; echo 1 > b").success();
    fixture.write("a", "mine");
    fixture.nono(&["undo", "--yes", "--keep-newer"]).success();
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "the session before");
    assert!(refused.says("nono undo --keep-newer"), "{}", refused.stderr);
    assert_eq!(text(&fixture, "old"), "1\n");
    fixture.nono(&["undo", "--yes", "--keep-newer"]).success();
    assert_eq!((text(&fixture, "old"), text(&fixture, "a")), ("0".into(), "mine".into()));
}

#[test]
fn a_session_of_which_every_change_was_changed_later_is_not_passed_over() {
    let fixture = Fixture::new();
    fixture.write("old", "0");
    fixture.write("a", "0");
    fixture.record("echo 1 > old").success();
    fixture.record("echo 1 > a").success();
    fixture.write("a", "mine");
    fixture.nono(&["undo", "--yes", "--keep-newer"]);
    assert_eq!((text(&fixture, "old"), text(&fixture, "a")), ("1\n".into(), "mine".into()));
}

#[test]
fn commits_that_an_undo_kept_can_still_be_undone() {
    let fixture = Fixture::new();
    fixture.write("b", "0");
    with_commit(&fixture);
    let first = git(&fixture, &["rev-parse", "HEAD"]);
    let script = "echo 1 > b; git -c user.name=n -c user.email=n@example.org commit -qam agent";
    fixture.record(script).success();
    fixture.write("own", "mine");
    git(&fixture, &["add", "own"]);
    git(&fixture, &["commit", "-qm", "own"]);
    let own = git(&fixture, &["rev-parse", "HEAD"]);
    fixture.nono(&["undo", "--yes", "--keep-newer"]).success();
    assert_eq!(text(&fixture, "b"), "0");
    assert_eq!(git(&fixture, &["rev-parse", "HEAD"]), own);
    fixture.nono(&["undo", "--yes"]).fails(1, "the repository has moved on");
    // The redo is about what the undo changed: git's index is another one now.
    git(&fixture, &["status"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(text(&fixture, "b"), "1\n");
    assert_eq!(git(&fixture, &["rev-parse", "HEAD"]), own);
    fixture.nono(&["undo", "--yes", "--keep-commits"]).success();
    git(&fixture, &["status"]);
    fixture.nono(&["redo"]).success();
    assert_eq!((text(&fixture, "b"), text(&fixture, "own")), ("1\n".into(), "mine".into()));
    fixture.nono(&["undo", "--yes", "--force"]).success();
    assert_eq!(git(&fixture, &["rev-parse", "HEAD"]), first);
}

#[test]
fn what_a_user_staged_stays_where_the_session_did_not_touch_the_repository() {
    let fixture = Fixture::new();
    fixture.write("a", "a\n");
    fixture.write("b", "b\n");
    with_commit(&fixture);
    fixture.record("echo agent >> b").success();
    fixture.write("a", "staged\n");
    git(&fixture, &["add", "a"]);
    fixture.write("a", "later\n");
    let staged = git(&fixture, &["diff", "--cached"]);
    assert!(staged.contains("+staged"));
    let done = fixture.nono(&["undo", "--yes"]).success();
    assert!(!done.says(".git"), "{}{}", done.stdout, done.stderr);
    assert_eq!((text(&fixture, "a"), text(&fixture, "b")), ("later\n".into(), "b\n".into()));
    assert_eq!(git(&fixture, &["diff", "--cached"]), staged);
    assert_eq!(undone(&fixture), (true.into(), false.into()));
}

#[test]
fn an_own_new_file_is_no_newer_version_of_what_the_session_did() {
    let fixture = edited_later();
    fixture.write("own", "mine");
    let kept = fixture.nono(&["undo", "--yes", "--keep-newer"]).success();
    assert!(kept.says("1 newer path was left as it is"), "{}", kept.stderr);
    assert!(!kept.says("own was changed after"), "{}", kept.stderr);
    assert!(kept.says("not by the session, so it stays: own"), "{}", kept.stderr);
}

#[test]
fn a_path_that_could_not_be_undone_is_offered_again_with_the_command_that_helps() {
    let fixture = Fixture::ordinary_user();
    fixture.write("src/s", "1");
    fixture.write("a", "0");
    fixture.record("echo 1 > a; chmod 0 src");
    let done = fixture.nono(&["undo", "--yes"]).fails(1, "1 path is not as it was");
    let command = format!("chmod u+rwX {}", fixture.project().join("src").display());
    assert!(done.says(&command), "{}{}", done.stdout, done.stderr);
    assert_eq!(text(&fixture, "a"), "0");
    assert_eq!(undone(&fixture), (false.into(), true.into()));
    let again = fixture.nono(&["undo", "--yes"]).fails(1, "can be undone now");
    assert!(again.says("src"), "{}", again.stderr);
    fs::set_permissions(fixture.project().join("src"), PermissionsExt::from_mode(0o700)).unwrap();
    fixture.nono(&["undo", "--yes"]).success();
    let mode = fs::metadata(fixture.project().join("src")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    assert_eq!(undone(&fixture), (true.into(), false.into()));
}

#[test]
fn a_new_path_without_a_record_does_not_make_an_undone_session_come_back() {
    let fixture = Fixture::new().ignored("none");
    fixture.write("old", "0");
    fixture.write("a", "0");
    fixture.write(".gitignore", "*.log\n");
    fixture.record("echo 1 > old").success();
    fixture.record("echo 1 > a; echo 1 > x.log").success();
    fixture.nono(&["undo", "--yes"]).fails(1, "1 path is not as it was");
    assert_eq!(undone(&fixture), (true.into(), false.into()));
    let before = fixture.nono(&["undo", "--yes"]).fails(1, "1 path is not as it was");
    assert!(before.says("skipped") && before.says("x.log"), "{}", before.stdout);
    assert_eq!(text(&fixture, "old"), "0");
}

#[test]
fn a_file_that_cannot_be_read_any_more_is_a_change_that_an_undo_offers() {
    let fixture = Fixture::ordinary_user();
    fixture.write("t", "1");
    let run = fixture.record("chmod 0 t");
    assert!(run.says("±1 permission"), "{}", run.stderr);
    assert!(run.says("a restore will leave it as it is"), "{}", run.stderr);
    let file = fixture.project().join("t");
    let command = format!("chmod u+rwX {}", file.display());
    let told = fixture.nono(&["undo", "--yes"]).fails(1, "can be undone now");
    assert!(told.says(&command), "{}{}", told.stdout, told.stderr);
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn the_ways_on_after_an_undo_by_name_mean_the_same_session() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.record("echo 1 > a; echo 1 > b").success();
    let first = fixture.latest();
    fixture.record("echo 1 > c").success();
    fixture.write("a", "mine");
    let kept = fixture.nono(&["undo", &first, "--yes", "--keep-newer"]).success();
    assert!(kept.says(&format!("nono undo {first} --force")), "{}", kept.stderr);
    let redone = fixture.nono(&["redo"]).success();
    assert!(redone.says(&format!("undo it again: nono undo {first}\n")), "{}", redone.stderr);
    // The last session needs no name.
    fixture.nono(&["undo", "--yes"]).success();
    let redone = fixture.nono(&["redo"]).success();
    assert!(redone.says("undo it again: nono undo\n"), "{}", redone.stderr);
    fixture.nono(&["undo", "--yes"]).success();
    let kept = fixture.nono(&["undo", "--yes", "--keep-newer"]).success();
    assert!(kept.says("nono undo --force"), "{}", kept.stderr);
}

#[test]
fn what_a_restore_brought_again_after_an_undo_in_part_is_undone_with_the_rest() {
    for again in [&["restore", "latest/1", "--force"][..], &["restore", "latest/1", "--force", "a"]]
    {
        let fixture = Fixture::new();
        fixture.write("a", "0");
        fixture.write("b", "0");
        fixture.record("echo 1 > a; echo 1 > b").success();
        fixture.nono(&["undo", "--yes", "a"]).success();
        fixture.write("a", "mine");
        fixture.nono(again).success();
        assert_eq!(text(&fixture, "a"), "1\n");
        fixture.nono(&["undo", "--yes"]).success();
        assert_eq!(
            (text(&fixture, "a"), text(&fixture, "b")),
            ("0".into(), "0".into()),
            "{again:?}"
        );
    }
}

#[test]
fn the_mode_of_one_name_comes_back_and_the_other_name_of_the_file_keeps_its_own() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.write("a/one", "1"), fixture.project().join("two"));
    fs::hard_link(&one, &two).unwrap();
    fixture.record("chmod 600 two").success();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let undone = fixture.nono(&["undo", "--yes", "a/one"]);
    assert_eq!(undone.code, 1, "{}", undone.stderr);
    assert!(undone.says("a file of its own now"), "{}{}", undone.stdout, undone.stderr);
    assert_eq!((mode(&one), mode(&two)), (0o644, 0o600));
    // With both names, they are one file again.
    fixture.nono(&["undo", "--yes", "--force"]).success();
    assert_eq!((mode(&one), mode(&two)), (0o644, 0o644));
    assert_eq!(fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
}

#[test]
fn the_times_of_directories_come_back_with_the_redo_of_a_part() {
    let fixture = Fixture::new();
    fixture.write("d/old", "1");
    let times = || {
        let time = |name: &str| {
            let metadata = fs::metadata(fixture.project().join(name)).unwrap();
            (metadata.mtime(), metadata.mtime_nsec())
        };
        ["d", "made"].map(time)
    };
    fixture.record("echo 2 > d/new; mkdir made; echo 2 > made/one; echo 2 > made/two").success();
    let changed = times();
    // A directory that is not selected keeps its time, also one that was not there before.
    fixture.nono(&["undo", "--yes", "d", "made/one"]).success();
    assert_eq!(times()[1], changed[1]);
    assert_ne!(times()[0], changed[0]);
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(times(), changed);
}

#[test]
fn a_directory_that_is_gone_again_comes_back_for_what_was_not_undone_before() {
    let fixture = Fixture::new();
    fixture.write("src/x", "0");
    fixture.write("src/y", "0");
    // By renames, which move the time of the directory.
    fixture.record("for f in x y; do echo 1 > src/n; mv src/n src/$f; done; echo 1 > z").success();
    fixture.nono(&["undo", "--yes", "--exclude", "src/y", "--exclude", "z"]).success();
    fs::remove_dir_all(fixture.project().join("src")).unwrap();
    // The later deletion of src/y is a conflict, and not passed over.
    fixture.nono(&["undo", "--yes"]).fails(1, "src/y was changed after the session (deleted)");
    fixture.nono(&["undo", "--yes", "--force"]).success();
    assert_eq!(text(&fixture, "src/y"), "0");
    assert!(!fixture.project().join("z").exists());
}
