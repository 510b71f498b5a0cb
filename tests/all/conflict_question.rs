//! The question of a restore about later changes, on a real terminal, by keys.

use std::fs;

use crate::fixture::Fixture;
use crate::observe::{assert_same, observe};
use crate::terminal::Terminal;

/// A completed session after which one path was edited, and a terminal that asks about it.
fn asked() -> (Fixture, Terminal) {
    let fixture = Fixture::new();
    fixture.write("ours", "1");
    fixture.write("theirs", "1");
    fixture.record("echo 2 > ours; echo 2 > theirs").success();
    fixture.write("theirs", "edited by me");
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} rollback restore latest; echo ended with $?; exec cat"),
    );
    terminal.wait_for("theirs");
    terminal.wait_for("[d/k/o/N/?]");
    (fixture, terminal)
}

fn read(fixture: &Fixture) -> [String; 2] {
    ["ours", "theirs"].map(|name| fs::read_to_string(fixture.project().join(name)).unwrap())
}

#[test]
fn o_takes_the_version_of_the_snapshot() {
    let (fixture, terminal) = asked();
    terminal.keys(&["o", "Enter"]);
    terminal.wait_for("ended with 0");
    assert_eq!(read(&fixture), ["1", "1"]);
    let screen = terminal.screen();
    assert!(screen.contains("take this back: nono redo"), "{screen}");
    assert_eq!(screen.matches("was changed after the session").count(), 1, "{screen}");
}

#[test]
fn an_undo_that_was_answered_names_each_later_change_once() {
    let fixture = Fixture::new();
    fixture.write("theirs", "1");
    fixture.record("echo 2 > theirs").success();
    fixture.write("theirs", "edited by me");
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} undo; echo ended with $?; exec cat"),
    );
    terminal.wait_for("[d/m/k/o/N/?]");
    terminal.keys(&["o", "Enter"]);
    terminal.wait_for("ended with 0");
    let screen = terminal.screen();
    assert!(screen.contains("take this back: nono redo"), "{screen}");
    assert_eq!(screen.matches("was changed after the session").count(), 1, "{screen}");
}

#[test]
fn k_keeps_what_was_changed_later_and_restores_the_rest() {
    let (fixture, terminal) = asked();
    terminal.keys(&["k", "Enter"]);
    terminal.wait_for("ended with 0");
    assert_eq!(read(&fixture), ["1", "edited by me"]);
}

#[test]
fn every_other_key_and_the_end_of_input_and_an_interrupt_change_nothing() {
    for (keys, code) in [
        (&["n", "Enter"][..], Some(1)),
        (&["Enter"], Some(1)),
        (&["y", "e", "s", "Enter", "n", "Enter"], Some(1)),
        (&["C-d"], Some(1)),
        (&["C-c"], None),
    ] {
        let (fixture, terminal) = asked();
        let before = observe(&fixture.project());
        terminal.keys(keys);
        match code {
            Some(code) => terminal.wait_for(&format!("ended with {code}")),
            // The shell that started it may end as well.
            None => crate::terminal::eventually("the restore goes on after an interrupt", || {
                let shown = terminal.tmux(&["list-panes", "-F", "#{pane_current_command}"]);
                !String::from_utf8_lossy(&shown.stdout).contains("nono")
            }),
        }
        assert_same(&before, &observe(&fixture.project()));
        let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
        assert_eq!(show["snapshot_count"], 2, "{keys:?}");
    }
}

#[test]
fn many_later_changes_are_summed_up_by_directory() {
    let fixture = Fixture::new();
    let names: Vec<String> = (0..40).map(|number| format!("src/file{number}")).collect();
    let write = |text: &str| names.iter().for_each(|name| drop(fixture.write(name, text)));
    write("0\n");
    fixture.write("top", "0\n");
    fixture.record("for file in src/*; do echo 1 > $file; done; echo 1 > top").success();
    write("mine\n");
    fixture.write("top", "mine\n");
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "src/ (40 paths) was changed after");
    assert!(refused.says("top was changed after") && !refused.says("file3"), "{}", refused.stderr);
    let wordy = fixture.nono(&["undo", "--yes", "-v"]).fails(1, "src/file39 was changed after");
    assert!(!wordy.says("(40 paths)"), "{}", wordy.stderr);
}
