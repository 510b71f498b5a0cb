//! `nono undo` and `nono redo`: the changes of the last session here, reverted and brought back.

use std::fs;
use std::process::{Command, Stdio};

use nono_engine::object::ContentHash;

use crate::fixture::{Fixture, finished};
use crate::here::{Projects, Working};
use crate::observe::{assert_same, observe};
use crate::terminal::Terminal;

/// Two sessions in `q1`, and the three states that they go through.
fn twice() -> (Projects, [String; 2]) {
    let projects = Projects::new();
    let first = projects.record("q1", "echo 1 > file; echo 1 > one");
    let second = projects.record("q1", "echo 2 > file; mkdir new; echo 2 > new/two; rm sub/deep");
    projects.record("q2", "rm file");
    (projects, [first, second])
}

#[test]
fn a_session_that_cannot_be_undone_is_not_passed_over_for_an_earlier_one() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "0");
    fixture.write("src/s", "1");
    fixture.record("echo good > a").success();
    fixture.record("chmod 0 src");
    let done = fixture.nono(&["undo", "--yes"]).fails(1, "can be undone now");
    assert!(done.says("src"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "good\n");
}

#[test]
fn a_redo_takes_no_later_change_for_the_state_that_the_session_left() {
    // A command, an edit after it, and an edit after the undo that makes the command's state again.
    let cases = [
        ("rm a", "echo 1 > a", "rm a"),
        ("echo 2 > a", "echo 3 > a", "echo 2 > a"),
        ("rm a", "mkdir a", "rm -r a; echo 1 > a; rm a"),
        ("ln -s b a2", "rm a2; echo 3 > a2", "rm -f a2; ln -s b a2"),
    ];
    for (command, edit, later) in cases {
        let fixture = Fixture::new();
        fixture.write("a", "1\n");
        fixture.write("b", "1\n");
        let shell = |script| {
            let mut shell = Command::new("sh");
            assert!(
                shell
                    .args(["-c", script])
                    .current_dir(fixture.project())
                    .status()
                    .unwrap()
                    .success()
            );
        };
        fixture.record(&format!("{command}; echo 2 > b")).success();
        shell(edit);
        let before = observe(&fixture.project());
        fixture.nono(&["undo", "--yes", "--force"]).success();
        shell(later);
        let edited = observe(&fixture.project());
        let place = format!("{command}, {edit}, {later}");
        let refused = fixture.nono(&["redo", "--yes"]);
        assert_eq!(refused.code, 1, "{place}: {}", refused.stderr);
        assert!(refused.says("was changed after the session"), "{place}: {}", refused.stderr);
        assert_same(&edited, &observe(&fixture.project()));
        fixture.nono(&["redo", "--yes", "--force"]).success();
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn each_restore_of_one_file_is_taken_back_in_turn() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("printf 2 > a").success();
    fixture.write("a", "3");
    let read = || fs::read_to_string(fixture.project().join("a")).unwrap();
    let mut seen = vec![read()];
    // The version of the command stood before the edit, and the first one before that.
    for _ in 0..2 {
        fixture.nono(&["restore", "a"]).success();
        seen.push(read());
    }
    assert_eq!(seen, ["3", "2", "1"]);
    for expected in ["2", "3"] {
        fixture.nono(&["redo", "--yes"]).success();
        assert_eq!(read(), expected);
    }
    fixture.nono(&["redo", "--yes"]).fails(1, "nothing here is undone");
}

#[test]
fn undo_again_takes_the_session_before_and_redo_goes_the_same_way_back() {
    let projects = Projects::new();
    let mut states = vec![observe(&projects.dir("q1"))];
    projects.record("q1", "echo 1 > file; echo 1 > one");
    states.push(observe(&projects.dir("q1")));
    projects.record("q1", "echo 2 > file; mkdir new; echo 2 > new/two; rm sub/deep");
    states.push(observe(&projects.dir("q1")));
    projects.record("q2", "rm file");
    let other = observe(&projects.dir("q2"));
    let is = |state: usize| assert_same(&states[state], &observe(&projects.dir("q1")));

    let done = projects.nono("q1/sub", &["undo", "--yes"]).success();
    is(1);
    assert!(done.stderr.lines().next().unwrap().contains("~/dev/q1"), "{}", done.stderr);
    let last = done.stderr.lines().last().unwrap();
    assert!(last.contains("nono redo") && last.contains("~/dev/q1"), "{}", done.stderr);
    projects.nono("q1", &["undo", "--yes"]).success();
    is(0);
    projects.nono("q1", &["undo", "--yes"]).fails(1, "nothing is left to undo here");
    is(0);
    let done = projects.nono("q1/sub", &["redo"]).success();
    is(1);
    assert!(done.stderr.lines().last().unwrap().contains("nono undo"), "{}", done.stderr);
    projects.nono("q1", &["redo"]).success();
    is(2);
    projects.nono("q1", &["redo"]).fails(1, "nothing here is undone");
    projects.nono("q1", &["undo", "--yes"]).success();
    is(1);
    projects.nono("q1", &["redo", "--yes"]).success();
    is(2);
    assert_same(&other, &observe(&projects.dir("q2")));
    projects.nono("q1", &["rollback", "verify", "--all"]).success();
}

#[test]
fn a_new_run_clears_the_redo_and_names_the_way_back() {
    let (projects, [_, second]) = twice();
    projects.nono("q1", &["undo", "--yes"]).success();
    let third = projects.record("q1", "echo 3 > three");
    let refused = projects.nono("q1", &["redo"]).fails(1, &format!("session {third} came after"));
    assert!(refused.says(&format!("nono restore {second}/2")), "{}", refused.stderr);
    // The new one is the next to be undone, and what was undone before stays so.
    projects.nono("q1", &["undo", "--yes"]).success();
    assert!(!projects.dir("q1/three").exists());
    projects.nono("q1", &["undo", "--yes"]).success();
    assert!(!projects.dir("q1/one").exists());
    projects.nono("q1", &["redo"]).success();
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/three"), "3\n");
    projects.nono("q1", &["redo"]).fails(1, "came after the last undo");
    // A run elsewhere clears nothing.
    projects.nono("q1", &["undo", "--yes"]).success();
    projects.record("q2", "echo x > x");
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/three"), "3\n");
}

#[test]
fn a_snapshot_with_changes_clears_the_redo_and_one_without_does_not() {
    let projects = Projects::new();
    projects.nono("q1", &["snapshot"]).success();
    fs::write(projects.dir("q1/file"), "edited").unwrap();
    projects.nono("q1", &["snapshot", "--session", "latest"]).success();
    projects.nono("q1", &["undo", "--yes"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
    projects.nono("q1", &["snapshot", "--session", "latest"]).success();
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/file"), "edited");
    projects.nono("q1", &["undo", "--yes"]).success();
    fs::write(projects.dir("q1/file"), "something else").unwrap();
    projects.nono("q1", &["snapshot", "--session", "latest"]).success();
    projects.nono("q1", &["redo"]).fails(1, "came after the last undo");
    assert_eq!(projects.read("q1/file"), "something else");
}

#[test]
fn paths_are_undone_alone_and_redo_takes_that_back_and_nothing_else() {
    let (projects, _) = twice();
    projects.nono("q1/sub", &["undo", "../new", "deep", "--yes"]).success();
    assert!(!projects.dir("q1/new").exists());
    assert_eq!(projects.read("q1/sub/deep"), "q1");
    assert_eq!(projects.read("q1/file"), "2\n");
    fs::write(projects.dir("q1/mine"), "later").unwrap();
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/new/two"), "2\n");
    assert!(!projects.dir("q1/sub/deep").exists());
    assert_eq!(projects.read("q1/mine"), "later");
    // The session still counts: it is the one that a bare undo means.
    projects.nono("q1", &["undo", "file", "--yes"]).success();
    assert_eq!(projects.read("q1/file"), "1\n");
    // Its change of the path is undone, so the path alone goes on to the session before.
    projects.nono("q1", &["undo", "file", "--yes"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
    projects.nono("q1", &["undo", "nowhere", "--yes"]).fails(1, "nowhere");
    assert_eq!(projects.read("q1/new/two"), "2\n");
}

#[test]
fn a_word_that_is_a_subcommand_is_the_subcommand_and_dot_slash_makes_it_a_path() {
    let projects = Projects::new();
    let words = ["list", "show", "review", "diff", "restore", "cat", "resume", "verify", "cleanup"];
    for word in words {
        fs::write(projects.dir("q1").join(word), "before").unwrap();
    }
    projects.record("q1", &format!("for f in {}; do echo after > $f; done", words.join(" ")));
    let list = projects.nono("q1", &["undo", "list", "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    projects.nono("q1", &["undo", "verify"]).success();
    projects.nono("q1", &["undo", "show"]).success();
    projects.nono("q1", &["undo", "resume"]).success();
    for word in words {
        let refused = projects.nono("q1", &["undo", "--yes", word]).fails(2, "is a command");
        assert!(refused.says(&format!("./{word}")), "{}", refused.stderr);
        assert_eq!(projects.read(&format!("q1/{word}")), "after\n");
        projects.nono("q1", &["undo", &format!("./{word}"), "--yes"]).success();
        assert_eq!(projects.read(&format!("q1/{word}")), "before");
    }
}

#[test]
fn without_a_terminal_a_yes_is_needed_and_a_dry_run_changes_nothing() {
    let (projects, [_, second]) = twice();
    let before = observe(&projects.dir("q1"));
    let refused = projects.nono("q1", &["undo"]).fails(2, "no terminal");
    assert!(refused.says("--yes") && refused.says("--dry-run"), "{}", refused.stderr);
    projects.nono("q1", &["undo", "--json"]).fails(2, "no terminal");
    let shown = projects.nono("q1", &["undo", "--dry-run"]).success();
    for text in ["- deleted     new/two", "+ created     sub/deep", "~ modified    file", &second] {
        assert!(shown.says(text), "{text}: {}{}", shown.stdout, shown.stderr);
    }
    let report = projects.nono("q1", &["undo", "--dry-run", "--json"]).success().json();
    assert_eq!(report["dry_run"], true);
    projects.nono("q1", &["undo", "--yes", "--json"]).success();
    let report = projects.nono("q1", &["redo", "--dry-run", "--json"]).success().json();
    assert_eq!(report["changes"].as_array().unwrap().len(), 4, "{report}");
    projects.nono("q1", &["redo"]).success();
    assert_same(&before, &observe(&projects.dir("q1")));
}

#[test]
fn later_changes_are_conflicts_of_an_undo_and_of_a_redo() {
    let (projects, _) = twice();
    fs::write(projects.dir("q1/file"), "edited").unwrap();
    let refused = projects.nono("q1", &["undo", "--yes"]).fails(1, "later changes would be undone");
    assert!(refused.says("file was changed after the session"), "{}", refused.stderr);
    assert_eq!(projects.read("q1/new/two"), "2\n");
    projects.nono("q1", &["undo", "--yes", "--keep-newer"]).success();
    assert_eq!(projects.read("q1/file"), "edited");
    assert!(!projects.dir("q1/new").exists());

    fs::write(projects.dir("q1/sub/deep"), "edited again").unwrap();
    projects.nono("q1", &["redo"]).fails(1, "later changes would be undone");
    assert_eq!(projects.read("q1/sub/deep"), "edited again");
    projects.nono("q1", &["redo", "--force"]).success();
    assert!(!projects.dir("q1/sub/deep").exists());
    projects.nono("q1", &["undo", "--yes", "--force"]).success();
    assert_eq!(projects.read("q1/file"), "1\n");
}

#[test]
fn restores_by_other_commands_count() {
    let (projects, [first, second]) = twice();
    projects.nono("q2", &["rollback", "restore", &second]).success();
    projects.nono("q1", &["undo", "--yes"]).success();
    assert_eq!(projects.read("q1/file"), "q1", "the session before");
    projects.nono("q1", &["rollback", "restore", &format!("{first}/2")]).success();
    assert_eq!(projects.read("q1/file"), "1\n");
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/file"), "2\n", "the restore is taken back as an undo is");
}

#[test]
fn a_restore_that_fails_undoes_nothing() {
    let (projects, [_, id]) = twice();
    let before = observe(&projects.dir("q1"));
    // An object that the undo needs is gone: it fails while it stages, after the safety snapshot.
    let hash = ContentHash::of(b"q1").hex();
    let object = projects.fixture.store().join("objects").join(&hash[..2]).join(&hash[2..]);
    fs::remove_file(object).unwrap();
    projects.nono("q1", &["undo", "--yes"]).fails(1, "");
    assert!(projects.fixture.store().join(&id).join("snapshots/2").exists());
    assert_same(&before, &observe(&projects.dir("q1")));
    let status = projects.nono("q1", &["status", "--json"]).success().json();
    assert_eq!(status["session"]["session_id"], *id);
    assert_eq!(status["session"]["undone"], false);
    projects.nono("q1", &["redo"]).fails(1, "nothing here is undone");
}

#[test]
fn an_interrupted_run_is_undone_too() {
    let projects = Projects::new();
    let before = observe(&projects.dir("q1"));
    let working = Working::start(&projects, "q1", "echo half > file; echo half > half", "true");
    let id = working.session.clone();
    working.kill();
    let status = projects.nono("q1", &["status", "--json"]).success().json();
    assert_eq!(status["interrupted"]["runs"][0], *id);
    assert_eq!(status["session"]["status"], "interrupted");
    let shown = projects.nono("q1", &["undo", "--dry-run"]).success();
    assert!(shown.says("- deleted     half"), "{}", shown.stdout);
    projects.nono("q1", &["undo", "--yes"]).success();
    assert_same(&before, &observe(&projects.dir("q1")));
    let status = projects.nono("q1", &["status", "--json"]).success().json();
    assert_eq!(status["interrupted"]["runs"].as_array().unwrap().len(), 0, "it is settled");
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/half"), "half\n");
}

#[test]
fn an_undo_may_remove_the_directory_in_which_it_is_typed() {
    let (projects, _) = twice();
    let done = projects.nono("q1/new", &["undo", "--yes"]).success();
    assert!(!projects.dir("q1/new").exists());
    let project = projects.dir("q1");
    assert!(done.says(&format!("gone with it: cd {}", project.display())), "{}", done.stderr);
    // A shell that stays there can still take it back.
    let program = projects.fixture.command(&[]).get_program().to_owned();
    projects.nono("q1", &["redo"]).success();
    let script = "cd new && $0 undo --yes && test ! -e ../new && $0 redo && $0 status";
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(program).env("HOME", projects.fixture.path("home"));
    let done = shell.current_dir(&project).stdin(Stdio::null()).output().unwrap();
    let done = finished(done).success();
    assert!(done.says("~/dev/q1"), "{}", done.stdout);
    assert_eq!(projects.read("q1/new/two"), "2\n");
}

#[test]
fn a_long_undo_is_summed_up_by_directory() {
    let projects = Projects::new();
    projects.record("q1", "mkdir -p a/b; for n in $(seq 40); do echo x > a/b/$n; done; echo x > c");
    let shown = projects.nono("q1", &["undo", "--dry-run"]).success();
    assert!(shown.stdout.lines().count() <= 20, "{}", shown.stdout);
    assert!(shown.says("a/b/  -40 deleted"), "{}", shown.stdout);
}

/// A terminal in `q1` that asks whether to undo.
fn asked(projects: &Projects, socket: &str) -> Terminal {
    let program = projects.fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &projects.fixture.path(socket),
        &projects.dir("q1/sub"),
        &projects.fixture.path("home"),
        &format!("{program} undo; echo ended with $?; exec cat"),
    );
    terminal.wait_for_question(1);
    terminal
}

#[test]
fn on_a_terminal_it_shows_what_it_would_do_and_a_clear_yes_undoes_it() {
    let (projects, [_, second]) = twice();
    let terminal = asked(&projects, "tmux");
    let screen = terminal.screen();
    for text in ["~/dev/q1", &second, "- deleted     new/two", "+ created     sub/deep"] {
        assert!(screen.contains(text), "{text}:\n{screen}");
    }
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("ended with 0");
    assert_eq!(projects.read("q1/file"), "1\n");
    assert!(terminal.screen().contains("nono redo"), "{}", terminal.screen());
}

#[test]
fn on_a_terminal_everything_but_a_yes_changes_nothing() {
    let (projects, _) = twice();
    let before = observe(&projects.dir("q1"));
    let answers = [&["n", "Enter"][..], &["Enter"], &["x", "Enter", "n", "Enter"], &["C-d"]];
    for (number, keys) in answers.into_iter().enumerate() {
        let terminal = asked(&projects, &format!("tmux{number}"));
        terminal.keys(keys);
        terminal.wait_for("ended with 1");
        // A line may go on in the next one.
        let screen = terminal.screen().replace([' ', '\n'], "");
        assert!(screen.contains("nothingwaschanged"), "{screen}");
        assert_same(&before, &observe(&projects.dir("q1")));
    }
}

#[test]
fn on_a_terminal_a_run_at_work_is_asked_about() {
    let projects = Projects::new();
    let working = Working::start(&projects, "q1", "echo half > file", "true");
    let terminal = asked(&projects, "tmux");
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("Restore all the same? [y/N/?]");
    assert_eq!(projects.read("q1/file"), "half\n");
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("ended with 1");
    assert_eq!(projects.read("q1/file"), "half\n");
    drop(terminal);
    let program = projects.fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &projects.fixture.path("second"),
        &projects.dir("q1"),
        &projects.fixture.path("home"),
        &format!("{program} rollback restore; echo ended with $?; exec cat"),
    );
    terminal.wait_for_question(1);
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("Restore all the same? [y/N/?]");
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("ended with 0");
    assert_eq!(projects.read("q1/file"), "q1");
    working.release();
}

#[test]
fn a_run_that_changed_nothing_does_not_clear_the_redo() {
    let (projects, _) = twice();
    let done = observe(&projects.dir("q1"));
    projects.nono("q1", &["undo", "--yes"]).success();
    projects.nono("q1", &["undo", "--yes"]).success();
    projects.record("q1", "true");
    // Times are no changes.
    projects.record("q1", "touch -d 2001-01-01 file");
    projects.nono("q1", &["redo"]).success();
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/one"), "1\n");
    assert_eq!(observe(&projects.dir("q1")).len(), done.len());
    projects.nono("q1", &["undo", "--yes"]).success();
    // A run at work may change something yet.
    let working = Working::start(&projects, "q1", "true", "true");
    projects.nono("q1", &["redo"]).fails(1, "came after the last undo");
    working.release().success();
    projects.nono("q1", &["redo"]).success();
    assert_same(&done, &observe(&projects.dir("q1")));
}
