//! The question of `nono restore`, and the choice among what an undo or a restore would do.

use std::fs;
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};
use crate::observe::{assert_same, observe};
use crate::terminal::Terminal;

/// A completed session that changed one file, deleted one, and made a directory with two.
fn recorded() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("changed", "before\n");
    fixture.write("deleted", "still here\n");
    fixture.write("old/a", "a\n");
    fixture.write("old/b", "b\n");
    let script =
        "mkdir new; echo 1 >new/one; echo 2 >new/two; echo later >changed; rm -r deleted old";
    fixture.record(script).success();
    fixture
}

fn on_terminal(fixture: &Fixture, command: &str) -> Terminal {
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let command = format!("{program} {command}; echo ended with $?; exec cat");
    Terminal::start(&fixture.path("tmux"), &fixture.project(), &fixture.path("home"), &command)
}

/// nono without a terminal, and without the flag that tests add.
fn nono(fixture: &Fixture, arguments: &[&str]) -> Finished {
    let usual = fixture.command(&[]);
    let mut command = Command::new(usual.get_program());
    command.args(arguments).current_dir(fixture.project()).env_clear();
    command.envs(usual.get_envs().filter_map(|(key, value)| Some((key, value?))));
    finished(command.output().unwrap())
}

fn read(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

#[test]
fn a_restore_says_what_it_would_do_and_asks() {
    let fixture = recorded();
    let before = observe(&fixture.project());
    for (keys, code) in [(&["n", "Enter"][..], 1), (&["Enter"], 1), (&["y", "Enter"], 0)] {
        let terminal = on_terminal(&fixture, "restore latest/0");
        terminal.wait_for_question(1);
        let screen = terminal.screen();
        assert!(screen.contains("the restore would do this: +3 files +1 directory"), "{screen}");
        assert!(screen.contains("- deleted     new/one"), "{screen}");
        // A directory that comes back is one line, and each path that goes has its name.
        assert!(screen.contains("+ created     old/  +2 files"), "{screen}");
        assert!(!screen.contains("old/a"), "{screen}");
        assert_same(&before, &observe(&fixture.project()));
        terminal.keys(keys);
        terminal.wait_for(&format!("ended with {code}"));
    }
    assert_eq!(read(&fixture, "changed").unwrap(), "before\n");
    assert_eq!(read(&fixture, "old/a").unwrap(), "a\n");
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn a_restore_without_a_terminal_needs_yes_and_a_plan_or_a_copy_does_not() {
    let fixture = recorded();
    let before = observe(&fixture.project());
    for arguments in [&["restore", "latest"][..], &["rollback", "restore", "latest", "--json"]] {
        let refused = nono(&fixture, arguments).fails(2, "restore asks first");
        assert!(refused.says("--yes restores without a question"), "{}", refused.stderr);
    }
    nono(&fixture, &["restore", "latest", "--dry-run"]).success();
    let copy = fixture.path("copy");
    nono(&fixture, &["restore", "latest", "--to", copy.to_str().unwrap()]).success();
    assert_same(&before, &observe(&fixture.project()));
    nono(&fixture, &["restore", "latest", "-y"]).success();
    assert_eq!(read(&fixture, "changed").unwrap(), "before\n");
    let again = nono(&fixture, &["redo"]).success();
    assert_eq!(read(&fixture, "changed").unwrap(), "later\n", "{}", again.stderr);
}

#[test]
fn yes_answers_no_question_about_later_changes() {
    let fixture = recorded();
    fixture.write("changed", "mine\n");
    let terminal = on_terminal(&fixture, "restore latest --yes");
    terminal.wait_for("ended with 1");
    assert_eq!(read(&fixture, "changed").unwrap(), "mine\n");
    assert!(fixture.project().join("new").exists());
}

#[test]
fn s_chooses_among_the_changes_of_an_undo() {
    let fixture = recorded();
    let terminal = on_terminal(&fixture, "undo");
    terminal.wait_for_question(1);
    // A look that ends with nothing is no answer.
    terminal.keys(&["s", "Enter"]);
    terminal.wait_for("Enter keep everything");
    terminal.keys(&["q"]);
    terminal.wait_for_question(2);
    terminal.keys(&["s", "Enter"]);
    terminal.wait_for("Enter keep everything");
    // The first row is the changed file, the last one is in the old directory.
    terminal.keys(&["Space"]);
    terminal.wait_for("1 marked");
    terminal.keys(&["r"]);
    terminal.wait_for("[y/N/?]");
    terminal.keys(&["y"]);
    terminal.wait_for("ended with 0");
    assert_eq!(read(&fixture, "changed").unwrap(), "before\n");
    assert!(fixture.project().join("new/one").exists());
    assert!(!fixture.project().join("deleted").exists());
    let screen = terminal.screen();
    assert!(screen.contains("~ modified    changed"), "{screen}");
    assert!(screen.contains("take this back: nono redo"), "{screen}");
}

#[test]
fn s_with_everything_is_a_yes() {
    let fixture = recorded();
    let terminal = on_terminal(&fixture, "restore");
    terminal.wait_for_question(1);
    terminal.keys(&["s", "Enter"]);
    terminal.wait_for("Enter keep everything");
    terminal.keys(&["R"]);
    terminal.wait_for("[y/N/?]");
    terminal.keys(&["y"]);
    terminal.wait_for("ended with 0");
    assert_eq!(read(&fixture, "deleted").unwrap(), "still here\n");
    assert!(!fixture.project().join("new").exists());
}
