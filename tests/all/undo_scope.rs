//! The scope of `nono undo`: the changes of the session, and no later change of another origin.

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
    assert!(
        done.says("changed by you or others, and not by the session, so it stays"),
        "{}",
        done.stderr
    );
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
    // `--force` is about the conflicts, and no answer about what the session never touched.
    let forced = fixture.nono(&["undo", "--yes", "--force"]).success();
    assert!(forced.says("not by the session, so it stays: other"), "{}", forced.stderr);
    let texts = |names: [&str; 3]| names.map(|name| text(&fixture, name).unwrap());
    assert_eq!(texts(["a", "b", "other"]), ["0", "0", "mine"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(texts(["a", "b", "other"]), ["mine", "1\n", "mine"]);
}

/// A session that changed `a`, and later work on `a`, on `b` and on a new file.
fn worked_on() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "a");
    fixture.write("b", "b");
    fixture.record("echo x >> a").success();
    fixture.write("a", "my a");
    fixture.write("b", "my b");
    fixture.write("mynew", "new");
    fixture
}

#[test]
fn a_forced_undo_leaves_what_the_session_never_touched() {
    let fixture = worked_on();
    let of_all = |force: &[&str]| {
        let words = [&["undo", "--dry-run", "--json"], force].concat();
        fixture.nono(&words).json()
    };
    let (plain, forced) = (of_all(&[]), of_all(&["--force"]));
    assert_eq!(plain["spared"].as_array().unwrap().len(), 2, "{plain}");
    assert_eq!(plain["spared"], forced["spared"]);
    assert_eq!(plain["conflicts"], forced["conflicts"]);
    fixture.nono(&["undo", "--yes", "--force"]).success();
    let texts = ["a", "b", "mynew"].map(|name| text(&fixture, name));
    assert_eq!(texts, ["a", "my b", "new"].map(|text| Some(text.to_owned())));
}

#[test]
fn work_that_a_redo_brought_back_is_as_much_the_users_as_before() {
    let fixture = worked_on();
    let mine = || ["a", "b", "mynew"].map(|name| text(&fixture, name).unwrap_or_default());
    fixture.nono(&["undo", "--yes"]).fails(1, "a was changed after the session");
    fixture.nono(&["undo", "--yes", "--force"]).success();
    fixture.nono(&["redo"]).success();
    assert_eq!(mine(), ["my a", "my b", "new"]);
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "a was changed after the session");
    assert!(!refused.says("b was changed"), "{}", refused.stderr);
    fixture.nono(&["undo", "--yes", "--keep-newer"]);
    assert_eq!(mine(), ["my a", "my b", "new"]);
    // So it is with work that a restore of the state before took away.
    let restore = ["rollback", "restore", "latest/0", "--force"];
    fixture.nono(&restore).success();
    assert_eq!(mine(), ["a", "b", ""]);
    fixture.nono(&["redo"]).success();
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).json();
    assert_eq!(planned["conflicts"].as_array().unwrap().len(), 1, "{planned}");
    assert_eq!(planned["spared"].as_array().unwrap().len(), 2, "{planned}");
}

#[test]
fn a_state_of_the_session_that_a_redo_brought_back_is_no_conflict() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.record("echo 1 > a").success();
    for _ in 0..2 {
        fixture.nono(&["undo", "--yes"]).success();
        fixture.nono(&["redo"]).success();
        assert_eq!(text(&fixture, "a").unwrap(), "1\n");
    }
}

#[test]
fn commits_that_a_redo_brought_back_are_a_conflict_again() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    git(&fixture, &["init", "-q"]);
    git(&fixture, &["add", "."]);
    git(&fixture, &["commit", "-qm", "first"]);
    let commit = "git -c user.name=n -c user.email=n@example.org commit -qam agent";
    fixture.record(&format!("echo 1 > a; {commit}")).success();
    fixture.write("b", "mine");
    git(&fixture, &["add", "b"]);
    git(&fixture, &["commit", "-qm", "mine"]);
    fixture.nono(&["undo", "--yes"]).fails(1, "the repository has moved on");
    fixture.nono(&["undo", "--yes", "--force"]).success();
    fixture.nono(&["redo"]).success();
    fixture.nono(&["undo", "--yes"]).fails(1, "the repository has moved on");
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
    let last = format!("nono restore {id}/");
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
