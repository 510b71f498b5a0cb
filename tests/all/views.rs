//! Differences shown in other ways than as a patch: the whole of each file, and two columns.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::fixture::Fixture;
use crate::terminal::Terminal;

/// A session with two snapshots, between which every kind of change happened.
fn changed() -> Fixture {
    let fixture = Fixture::new();
    let project = fixture.project();
    fixture.write("a", "one\ntwo\nthree\n");
    fixture.write("binary", "\0old");
    fixture.write("gone", "same\n");
    fixture.write("untouched", "x\n");
    symlink("a", project.join("link")).unwrap();
    for name in ["a", "binary", "gone"] {
        fs::set_permissions(project.join(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "one\n2\nthree\nfour\n");
    fs::set_permissions(project.join("a"), PermissionsExt::from_mode(0o600)).unwrap();
    fixture.write("binary", "\0new");
    fs::remove_file(project.join("gone")).unwrap();
    fs::remove_file(project.join("link")).unwrap();
    symlink("new", project.join("link")).unwrap();
    fixture.write("new", "x\twide 語\n");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture
}

#[test]
fn the_whole_of_each_changed_file_is_shown() {
    let fixture = changed();
    let expected = "permissions 0644 -> 0600: a\n\n\
        ~ modified a\n one\n-two\n+2\n three\n+four\n\n\
        ~ modified binary\n(binary)\n\n\
        - deleted gone\n-same\n\n\
        ~ modified link\n-a\n\\ No newline at end of file\n+new\n\\ No newline at end of file\n\n\
        + created new\n+x\twide 語\n";
    for arguments in
        [["rollback", "show", "latest", "--full"], ["rollback", "diff", "latest", "--full"]]
    {
        assert_eq!(fixture.nono(&arguments).success().stdout, expected, "{arguments:?}");
    }
}

#[test]
fn both_states_stand_beside_each_other() {
    let fixture = changed();
    let show = fixture.nono(&["rollback", "show", "latest", "--side-by-side"]).success().stdout;
    let diff = fixture.nono(&["rollback", "diff", "latest", "--side-by-side"]).success().stdout;
    assert_eq!(show, diff);
    // The columns without the space between them.
    let lines: Vec<Vec<&str>> =
        show.lines().map(|line| line.split_whitespace().collect()).collect();
    let has =
        |line: &[&str]| assert!(lines.iter().any(|found| found == line), "{line:?} in\n{show}");
    has(&["~", "modified", "a"]);
    has(&["1", "one", "1", "one"]);
    has(&["2", "two", "|", "2", "2"]);
    has(&[">", "4", "four"]);
    has(&["1", "same", "<"]);
    has(&["1", "a", "|", "1", "new"]);
    has(&["(binary)"]);
    has(&["permissions", "0644", "->", "0600:", "a"]);
    assert!(!show.contains("untouched"), "{show}");
}

#[test]
fn the_columns_fit_the_terminal() {
    let fixture = changed();
    fixture.write("a", "long ".repeat(100));
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    let program = env!("CARGO_BIN_EXE_nono");
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} rollback show latest/2 --side-by-side; echo the end; exec cat"),
    );
    terminal.wait_for("the end");
    let screen = terminal.screen();
    // A line of the file is one of the screen, cut where the column ends.
    assert_eq!(screen.lines().filter(|line| line.contains("long long")).count(), 1, "{screen}");
}

#[test]
fn one_way_to_show_differences_is_chosen() {
    let fixture = changed();
    for more in ["--side-by-side", "--diff", "--json"] {
        fixture
            .nono(&["rollback", "show", "latest", "--full", more])
            .fails(2, "cannot be used with");
    }
    fixture
        .nono(&["rollback", "diff", "latest", "--full", "--json"])
        .fails(2, "cannot be used with");
}
