//! Long output on a real terminal: in a pager, as git does it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::Fixture;
use crate::terminal::{Terminal, eventually};

const NONO: &str = env!("CARGO_BIN_EXE_nono");
const PROMPT: &str = "ready>";

/// A session that changed a file of many lines.
fn long() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("many", "x\n");
    fixture.record("seq 500 > many").success();
    fixture
}

fn shell(fixture: &Fixture, environment: &str) -> Terminal {
    let command = format!("env {environment} PS1='{PROMPT} ' bash --norc --noprofile -i");
    let terminal =
        Terminal::start(&fixture.path("tmux"), &fixture.project(), &fixture.path("home"), &command);
    terminal.wait_for(PROMPT);
    terminal
}

/// A program that can be a pager, below the fixture's directory.
fn pager(fixture: &Fixture, script: &str) -> String {
    let path = fixture.path("my-pager");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Takes away what was shown before.
fn clear(terminal: &Terminal) {
    terminal.line("clear");
    eventually("the screen is not clear", || {
        terminal.tmux(&["clear-history"]);
        terminal.screen().trim_end() == PROMPT
    });
}

/// Runs a line and waits until it has ended with this code.
#[track_caller]
fn ends(terminal: &Terminal, line: &str, code: u8) {
    terminal.line(&format!("{line}; echo \"ended with\" $?"));
    terminal.wait_for(&format!("ended with {code}"));
}

#[test]
fn less_shows_what_is_long_and_lets_go_of_it() {
    let fixture = long();
    let terminal = shell(&fixture, "-u NONO_PAGER -u PAGER -u LESS");
    terminal.line(&format!("{NONO} diff; echo \"ended with\" $?"));
    // The pager belongs to our job, which goes by our name.
    terminal.wait_for_program("nono");
    terminal.wait_for("+10");
    assert!(!terminal.screen().contains("+100"), "{}", terminal.screen());
    // Ctrl-C is for the pager, which draws its screen again.
    terminal.keys(&["C-c"]);
    terminal.wait_until("less goes on", |screen| screen.matches("diff --git").count() == 2);
    terminal.keys(&["q"]);
    terminal.wait_for("ended with 0");
    terminal.wait_for_program("bash");
}

#[test]
fn what_fits_on_the_screen_stays_on_it_without_a_key() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.record("echo 2 > a").success();
    let terminal = shell(&fixture, "-u NONO_PAGER -u PAGER -u LESS");
    for (command, expected) in [
        ("rollback diff", "+2"),
        ("rollback list", "~1 modified"),
        ("rollback find a", "2 B"),
        ("rollback show latest", "snapshot 1"),
        ("log a", "2 versions"),
        ("log", "~ modified    a"),
    ] {
        clear(&terminal);
        ends(&terminal, &format!("{NONO} {command}"), 0);
        terminal.wait_for(expected);
    }
}

#[test]
fn the_pager_is_the_one_that_is_named_and_gets_colours() {
    let fixture = long();
    let seen = fixture.path("seen");
    let named = pager(&fixture, &format!("cat > {}; echo \"LESS=$LESS\" >> {0}", seen.display()));
    let other = "PAGER=false";
    let terminal = shell(&fixture, &format!("-u LESS {other} NONO_PAGER={named}"));
    ends(&terminal, &format!("{NONO} diff"), 0);
    let text = fs::read_to_string(&seen).unwrap();
    assert!(text.contains("\x1b[32m+500\x1b[0m"), "{text}");
    assert!(text.ends_with("LESS=FRX\n"));
    fs::remove_file(&seen).unwrap();
    for quiet in ["--no-pager rollback diff", "rollback diff > /dev/null", "rollback list --json"] {
        clear(&terminal);
        ends(&terminal, &format!("{NONO} {quiet}"), 0);
        assert!(!seen.exists(), "{quiet}");
    }
    clear(&terminal);
    ends(&terminal, &format!("NONO_PAGER=cat {NONO} diff"), 0);
    assert!(!seen.exists());
    assert!(terminal.screen().contains("+500"));
    clear(&terminal);
    ends(&terminal, &format!("NONO_PAGER= {NONO} diff"), 0);
    assert!(terminal.screen().contains("+500"));
}

#[test]
fn a_pager_that_is_missing_or_ends_early_is_no_failure() {
    let fixture = long();
    let terminal = shell(&fixture, "NONO_PAGER=nowhere-to-be-found");
    ends(&terminal, &format!("{NONO} diff"), 0);
    assert!(terminal.screen().contains("+500"));
    assert!(!terminal.screen().contains("nowhere"), "{}", terminal.screen());
    clear(&terminal);
    ends(&terminal, &format!("NONO_PAGER=true {NONO} diff"), 0);
    assert!(!terminal.screen().contains("error"), "{}", terminal.screen());
    clear(&terminal);
    // Only a shell finds out that there is none.
    ends(&terminal, &format!("NONO_PAGER='nowhere | cat' {NONO} diff"), 0);
    ends(&terminal, &format!("NONO_PAGER='(nowhere)' {NONO} diff"), 1);
    terminal.wait_for("cannot run the pager");
}

#[test]
fn ctrl_c_ends_a_pager_that_does_not_take_it_and_the_shell_goes_on() {
    let fixture = long();
    let started = fixture.path("started");
    let named = pager(&fixture, &format!("touch {}; exec sleep 600", started.display()));
    let terminal = shell(&fixture, &format!("NONO_PAGER={named}"));
    terminal.line(&format!("{NONO} diff"));
    eventually("the pager does not start", || started.exists());
    terminal.keys(&["C-c"]);
    terminal.wait_for_program("bash");
    terminal.line("echo still $((40 + 2))");
    terminal.wait_for("still 42");
}

#[test]
fn ctrl_z_stops_the_pager_and_fg_comes_back_to_it() {
    let fixture = long();
    let terminal = shell(&fixture, "-u NONO_PAGER -u PAGER -u LESS");
    terminal.line(&format!("{NONO} diff; echo \"ended with\" $?"));
    // The pager belongs to our job, which goes by our name.
    terminal.wait_for_program("nono");
    terminal.wait_for("+10");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.wait_for_program("bash");
    terminal.line("fg");
    terminal.wait_for_program("nono");
    terminal.keys(&["q"]);
    terminal.wait_for_program("bash");
    terminal.line("echo still $((40 + 2))");
    terminal.wait_for("still 42");
}

#[test]
fn a_wide_terminal_shows_the_difference_beside_the_review() {
    let fixture = Fixture::new();
    fixture.write("a", "before\n");
    fixture.write("b", "old\n");
    fixture.record("echo after > a; printf 'new\\tone\\n' > b; seq 100000 > long").success();
    let terminal = shell(&fixture, "");
    terminal.tmux(&["resize-window", "-x", "120", "-y", "24"]);
    terminal.line(&format!("{NONO} review"));
    terminal.wait_for("Enter keep everything");
    terminal.wait_for("│ -before");
    terminal.wait_for("│ +after");
    terminal.keys(&["j"]);
    terminal.wait_for("│ +new one");
    assert!(!terminal.screen().contains("+after"), "{}", terminal.screen());
    terminal.keys(&["j"]);
    terminal.wait_for("│ +1");
    // Narrower, the list has all columns.
    terminal.tmux(&["resize-window", "-x", "90"]);
    terminal.wait_until("no difference", |screen| !screen.contains('│'));
    terminal.keys(&["Enter"]);
    terminal.wait_for("everything is kept");
}
