//! What `nono undo` is about: what the session did, and nothing that somebody else did later.

use std::fs;

use crate::fixture::Fixture;

fn text(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

fn git(fixture: &Fixture, words: &[&str]) {
    let name = ["-c", "user.name=n", "-c", "user.email=n@example.org"];
    let mut git = std::process::Command::new("git");
    let done = git.args(name).args(words).current_dir(fixture.project()).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn what_others_changed_later_stays_is_named_and_is_no_obstacle() {
    let fixture = Fixture::new();
    for name in ["of_session", "edited", "gone", "sub/deep"] {
        fixture.write(name, "before");
    }
    fixture
        .record("echo after > of_session; echo new > made; mkdir own; echo 1 > own/one")
        .success();
    fixture.write("edited", "mine");
    fs::remove_file(fixture.project().join("gone")).unwrap();
    fixture.write("new/mine", "mine");
    fixture.write("own/mine", "mine");
    let planned = fixture.nono(&["undo", "--dry-run"]);
    assert!(planned.says("not by the session") && !planned.says("--force"), "{}", planned.stderr);
    let done = fixture.nono(&["undo", "--yes"]);
    assert!(done.says("changed later, and not by the session, so it stays"), "{}", done.stderr);
    assert_eq!(text(&fixture, "of_session").unwrap(), "before");
    assert_eq!(text(&fixture, "made"), None);
    assert_eq!(text(&fixture, "own/one"), None);
    for name in ["edited", "new/mine", "own/mine"] {
        assert_eq!(text(&fixture, name).unwrap(), "mine", "{name}");
    }
    assert_eq!(text(&fixture, "gone"), None);
    fixture.nono(&["redo"]).success();
    assert_eq!(text(&fixture, "of_session").unwrap(), "after\n");
    assert_eq!(text(&fixture, "own/one").unwrap(), "1\n");
    assert_eq!(text(&fixture, "edited").unwrap(), "mine");
    assert_eq!(text(&fixture, "gone"), None);
    // The state of the snapshot is another thing, and asked for by its number.
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "edited was changed after");
}

#[test]
fn later_changes_do_not_stop_the_undo_of_an_earlier_session() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.record("echo 1 > a").success();
    fixture.record("echo 2 > a").success();
    fixture.write("b", "mine");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(text(&fixture, "a").unwrap(), "1\n");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(text(&fixture, "a").unwrap(), "0");
    assert_eq!(text(&fixture, "b").unwrap(), "mine");
}

#[test]
fn a_later_change_of_what_the_session_changed_is_refused_and_nothing_is_half_done() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.write("other", "0");
    fixture.record("echo 1 > a; echo 1 > b").success();
    fixture.write("a", "mine");
    fixture.write("other", "mine");
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "a was changed after the session");
    assert!(!refused.says("other was changed"), "{}", refused.stderr);
    assert_eq!(text(&fixture, "b").unwrap(), "1\n");
    // All of the state before is what `--force` asks for.
    fixture.nono(&["undo", "--yes", "--force"]).success();
    for name in ["a", "b", "other"] {
        assert_eq!(text(&fixture, name).unwrap(), "0", "{name}");
    }
    fixture.nono(&["redo"]).success();
    assert_eq!(text(&fixture, "other").unwrap(), "mine");
}

#[test]
fn commits_of_a_user_stay_where_the_session_made_none() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    git(&fixture, &["init", "-q"]);
    git(&fixture, &["add", "."]);
    git(&fixture, &["commit", "-qm", "first"]);
    fixture.record("echo 1 > a").success();
    fixture.write("b", "mine");
    git(&fixture, &["add", "b"]);
    git(&fixture, &["commit", "-qm", "mine"]);
    let head = fs::read(fixture.project().join(".git/HEAD")).unwrap();
    let tip = || fs::read(fixture.project().join(".git/logs/HEAD")).unwrap();
    let before = tip();
    let done = fixture.nono(&["undo", "--yes"]).success();
    assert!(done.says(".git"), "{}", done.stderr);
    assert_eq!((fs::read(fixture.project().join(".git/HEAD")).unwrap(), tip()), (head, before));
    assert_eq!(text(&fixture, "a").unwrap(), "0");
    assert_eq!(text(&fixture, "b").unwrap(), "mine");
    git(&fixture, &["fsck"]);
}

#[test]
fn an_undo_of_snapshots_guards_what_none_of_them_holds() {
    let fixture = Fixture::new();
    fixture.write("essay", "one");
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    let id = taken["session_id"].as_str().unwrap();
    // With one snapshot, all that came later is undone.
    fixture.write("essay", "draft");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(text(&fixture, "essay").unwrap(), "one");
    fixture.write("essay", "two");
    fixture.nono(&["snapshot", "--session", id]).success();
    fixture.write("essay", "unsaved");
    let last = format!("nono rollback restore {id}/");
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, &last);
    assert_eq!(text(&fixture, "essay").unwrap(), "unsaved");
    let offered = refused.stderr.lines().find_map(|line| line.split_once(&last)).unwrap().1;
    fixture.nono(&["rollback", "restore", &format!("{id}/{offered}")]).success();
    assert_eq!(text(&fixture, "essay").unwrap(), "two");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(text(&fixture, "essay").unwrap(), "one");
}

#[test]
fn a_later_change_is_not_laid_to_a_session_that_ended_before_the_last_snapshot() {
    let fixture = Fixture::new();
    fixture.write("a", "aaa");
    fixture.record("rm a").success();
    let earlier = fixture.latest();
    fixture.nono(&["undo", "--yes"]).success();
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "mine");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture.write("a", "mine again");
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "a was changed after the session");
    assert!(!refused.says(&earlier), "{}", refused.stderr);
}
