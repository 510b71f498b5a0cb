//! A whole review by keys, on a real terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;

use crate::fixture::Fixture;
use crate::hooks::Agent;
use crate::terminal::{Terminal, eventually};

const NONO: &str = env!("CARGO_BIN_EXE_nono");
/// Creates two files in a directory, changes one, deletes one.
const WORK: &str =
    "mkdir new; echo 1 > new/one; echo 2 > new/two; echo later > changed; rm deleted";
/// The rows of the list, from top to bottom.
const ROWS: [&str; 5] = ["changed", "deleted", "new/", "one", "two"];

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("changed", "before\n");
    fixture.write("deleted", "still here\n");
    fixture
}

fn shell(fixture: &Fixture, environment: &str) -> Terminal {
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("env {environment} PS1='ready> ' bash --norc --noprofile -i"),
    );
    terminal.wait_for("ready>");
    terminal
}

/// Runs a script in a terminal, up to the review of what it did.
fn review_of(fixture: &Fixture, environment: &str, script: &str) -> Terminal {
    let terminal = shell(fixture, environment);
    terminal.line(&format!("{NONO} run --rollback -- sh -c '{script}'"));
    terminal.wait_for("Enter keep everything");
    terminal
}

/// Ends the review with these keys, and returns when the shell has the terminal again, in its usual
/// modes.
#[track_caller]
fn end(terminal: &Terminal, keys: &[&str]) {
    terminal.keys(keys);
    // Not typed into the review: the program that has the terminal is the shell again.
    terminal.wait_for_program("bash");
    terminal.line("echo \"ended with $?\"; stty -a | tr \" \" \"\\n\" | grep -x -e -*icanon");
    terminal.wait_until("the usual modes", |screen| screen.contains("\nicanon"));
}

#[track_caller]
fn assert_untouched(fixture: &Fixture) {
    assert_eq!(fs::read_to_string(fixture.project().join("changed")).unwrap(), "later\n");
    assert!(!fixture.project().join("deleted").exists());
    assert!(fixture.project().join("new/two").exists());
    assert_eq!(snapshots(fixture), 2);
}

fn snapshots(fixture: &Fixture) -> usize {
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    show["snapshots"].as_array().unwrap().len()
}

#[test]
fn the_review_shows_what_changed_and_enter_keeps_it() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", &format!("{WORK}; exit 7"));
    let screen = terminal.screen();
    for row in ROWS {
        assert!(screen.lines().any(|line| line.contains(&format!(" {row}"))), "{row}:\n{screen}");
    }
    assert!(
        screen.contains("+2 files +1 directory (+4 B)  ~1 modified (-1 B)  -1 deleted (-11 B)")
    );
    end(&terminal, &["Enter"]);
    terminal.wait_for("everything is kept");
    terminal.wait_for("undo it:    nono undo");
    terminal.wait_for("ended with 7");
    assert_untouched(&fixture);
}

#[test]
fn the_review_names_the_step_that_changed_the_path_at_the_cursor_last() {
    let fixture = fixture();
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("tidy up");
    agent.shell("echo 1 > changed");
    agent.shell("rm deleted");
    agent.shell("echo 2 > changed");
    agent.end();
    let terminal = shell(&fixture, "");
    terminal.line(&format!("{NONO} review latest"));
    terminal.wait_for("step 3 · Bash · echo 2 > changed");
    terminal.keys(&["Down"]);
    terminal.wait_for("step 2 · Bash · rm deleted");
    end(&terminal, &["Enter"]);
    assert_eq!(fs::read_to_string(fixture.project().join("changed")).unwrap(), "2\n");
}

#[test]
fn the_review_of_an_agents_session_spares_what_the_user_edited() {
    let fixture = fixture();
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("tidy up");
    agent.shell("echo 1 > changed");
    agent.turn_end();
    fixture.write("mine", "by hand\n");
    agent.prompt("go on");
    agent.shell("rm deleted");
    agent.end();
    let terminal = shell(&fixture, "");
    terminal.line(&format!("{NONO} review latest"));
    terminal.wait_for("mine");
    terminal.keys(&["R"]);
    terminal.wait_for("[y/N/?]");
    end(&terminal, &["y"]);
    terminal.wait_for("not by the session, so it stays: mine");
    let text = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!(["changed", "deleted", "mine"].map(text), ["before\n", "still here\n", "by hand\n"]);
}

#[test]
fn ctrl_c_in_the_review_keeps_everything_even_when_asked() {
    for keys in [&["C-c"][..], &["a", "r", "C-c"], &["R", "C-c"], &["C-d"], &["/", "x", "C-c"]] {
        let fixture = fixture();
        let terminal = review_of(&fixture, "", WORK);
        end(&terminal, keys);
        terminal.wait_for("ended with 0");
        assert_untouched(&fixture);
    }
}

#[test]
fn marked_paths_are_restored_and_nothing_else() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", &format!("{WORK}; exit 3"));
    // The changed file, and one of the two new ones.
    terminal.keys(&["Space", "G", "Space"]);
    terminal.wait_for("2 marked");
    terminal.keys(&["r"]);
    terminal.wait_for("restore 2 marked paths? [y/N/?]");
    end(&terminal, &["y"]);
    terminal.wait_for("take this back: nono redo");
    terminal.wait_for("ended with 3");
    assert_eq!(fs::read_to_string(fixture.project().join("changed")).unwrap(), "before\n");
    assert!(!fixture.project().join("deleted").exists());
    assert!(fixture.project().join("new/one").exists());
    assert!(!fixture.project().join("new/two").exists());
    // The way back that was printed.
    fixture.nono(&["rollback", "restore", "latest/2"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("changed")).unwrap(), "later\n");
    assert!(fixture.project().join("new/two").exists());
}

#[test]
fn a_renamed_file_is_one_row_and_comes_back_under_its_former_name() {
    let fixture = fixture();
    let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
    fixture.write("long", before);
    let terminal = review_of(&fixture, "", "mv deleted moved; sed s/9/nine/ long >new; rm long");
    let screen = terminal.screen();
    // One with the same contents, and one with similar ones.
    for row in ["moved ← deleted", "new ← long"] {
        assert!(screen.lines().any(|line| line.contains(row)), "{row}:\n{screen}");
    }
    terminal.keys(&["Space", "G", "Space"]);
    terminal.wait_for("marked");
    terminal.keys(&["r"]);
    terminal.wait_for("[y/N/?]");
    end(&terminal, &["y"]);
    terminal.wait_for("take this back: nono redo");
    let project = fixture.project();
    assert_eq!(fs::read_to_string(project.join("long")).unwrap(), before);
    assert_eq!(fs::read_to_string(project.join("deleted")).unwrap(), "still here\n");
    assert!(!project.join("moved").exists() && !project.join("new").exists());
}

#[test]
fn a_directory_is_restored_with_what_is_in_it_or_a_part_of_it() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", WORK);
    terminal.keys(&["j", "j", "Space"]);
    terminal.wait_for("3 marked");
    terminal.keys(&["r"]);
    terminal.wait_for("[y/N/?]");
    end(&terminal, &["y"]);
    terminal.wait_for("take this back:");
    assert!(!fixture.project().join("new").exists());
    assert!(!fixture.project().join("deleted").exists());
}

#[test]
fn everything_is_restored_after_a_yes() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", WORK);
    terminal.keys(&["R"]);
    terminal.wait_for("restore all 5 paths? [y/N/?]");
    terminal.keys(&["n"]);
    terminal.wait_for("1 of 5");
    terminal.keys(&["R"]);
    terminal.wait_for("[y/N/?]");
    end(&terminal, &["y"]);
    terminal.wait_for("take this back:");
    assert_eq!(fs::read_to_string(fixture.project().join("changed")).unwrap(), "before\n");
    assert!(fixture.project().join("deleted").exists());
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn a_filter_narrows_the_list() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", WORK);
    terminal.keys(&["/", "n", "e", "w", "/"]);
    terminal.wait_for("2 of 5 contain new/");
    terminal.keys(&["Enter", "a"]);
    terminal.wait_for("2 marked");
    terminal.keys(&["Escape"]);
    terminal.wait_until("all again", |screen| screen.contains("[ ] ~ modified    changed"));
    terminal.wait_for("2 marked");
    // With marks, Enter is asked about; a second one keeps everything.
    terminal.keys(&["Enter"]);
    terminal.wait_for("keep everything, also the 2 marked?");
    end(&terminal, &["Enter"]);
    assert_untouched(&fixture);
}

#[test]
fn differences_are_shown_in_the_pager_in_colour() {
    let fixture = fixture();
    let pager = fixture.path("pager");
    // Keeps what it is given, and stays until a key is pressed, as a pager does.
    let script = format!(
        "#!/bin/sh\ncat > {}\necho the pager has it\nread key < /dev/tty\n",
        fixture.path("paged").display()
    );
    fs::write(&pager, script).unwrap();
    fs::set_permissions(&pager, fs::Permissions::from_mode(0o755)).unwrap();
    for (environment, is_coloured) in [("", true), ("NO_COLOR=1", false)] {
        let environment = format!("{environment} PAGER={}", pager.display());
        let terminal = review_of(&fixture, &environment, "echo later >> changed");
        terminal.keys(&["d"]);
        terminal.wait_for("the pager has it");
        // A key for the pager is none for the review.
        terminal.keys(&["q", "Enter"]);
        terminal.wait_for("Enter keep everything");
        let paged = fs::read_to_string(fixture.path("paged")).unwrap();
        assert!(paged.contains("+later"), "{paged}");
        assert_eq!(paged.contains("\u{1b}["), is_coloured, "{paged}");
        end(&terminal, &["q"]);
        terminal.line("exit");
        eventually("the terminal stays", || !terminal.tmux(&["has-session"]).status.success());
    }
}

#[test]
fn the_commits_of_a_repository_are_its_difference() {
    let fixture = Fixture::new();
    fixture.write("f", "1");
    let git = "git -c user.name=n -c user.email=n@example.org";
    let init = format!("git init -qb main; git add f; {git} commit -qm one");
    let place = fixture.project();
    let made = std::process::Command::new("sh").args(["-ec", &init]).current_dir(place).status();
    assert!(made.unwrap().success());
    let terminal = review_of(&fixture, "PAGER=cat", &format!("echo 2 > f; {git} commit -qam two"));
    terminal.keys(&["d"]);
    terminal.wait_for("# the command made 1 commit on main");
    assert!(!terminal.screen().contains("linked to other names"), "{}", terminal.screen());
    terminal.keys(&["Enter"]);
    terminal.wait_for("Enter keep everything");
    end(&terminal, &["q"]);
}

#[test]
fn the_usual_pager_and_none_at_all_work_too() {
    let fixture = fixture();
    fixture.write("name\u{1b}[31m", "x");
    let terminal = review_of(
        &fixture,
        "-u PAGER",
        "echo later >> changed; for f in name*; do echo y > \"$f\"; done",
    );
    terminal.keys(&["d"]);
    terminal.wait_for("+later");
    terminal.wait_until("the end", |screen| screen.contains("(END)"));
    // Stopped in the pager and woken again, all of it.
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.line("fg");
    terminal.wait_until("the pager again", |screen| screen.trim_end().ends_with("(END)"));
    terminal.keys(&["q"]);
    terminal.wait_for("Enter keep everything");
    assert!(terminal.screen().contains("name\\u{1b}[31m"), "{}", terminal.screen());
    end(&terminal, &["q"]);
    terminal.line("export PAGER=cat");
    terminal.line("clear");
    terminal.line(&format!("{NONO} review"));
    terminal.wait_for("Enter keep everything");
    terminal.keys(&["d"]);
    terminal.wait_for("Enter goes back");
    terminal.keys(&["Enter"]);
    terminal.wait_for("Enter keep everything");
    end(&terminal, &["q"]);
    terminal.line("export PAGER=nono-no-such-pager");
    terminal.line("clear");
    terminal.line(&format!("{NONO} review"));
    terminal.wait_for("Enter keep everything");
    terminal.keys(&["d"]);
    terminal.wait_for("cannot run the pager");
    end(&terminal, &["q"]);
    terminal.line("clear");
    terminal.line(&format!("NONO_FAIL_POINT=name=pager:EAGAIN {NONO} review"));
    terminal.wait_for("Enter keep everything");
    terminal.keys(&["d"]);
    terminal.wait_for("cannot start a thread for pager");
    assert!(!terminal.screen().contains("cannot write the output"));
    end(&terminal, &["q"]);
}

#[test]
fn the_review_follows_the_size_of_the_terminal() {
    let fixture = fixture();
    let script = "for n in $(seq 200); do echo $n > f$n; done";
    let terminal = review_of(&fixture, "", script);
    let rows = |screen: &str| screen.lines().filter(|line| line.contains("[ ] +")).count();
    assert_eq!(rows(&terminal.screen()), 18);
    terminal.tmux(&["resize-window", "-x", "60", "-y", "40"]);
    terminal.wait_until("more rows", |screen| rows(screen) == 34);
    terminal.tmux(&["resize-window", "-x", "30", "-y", "8"]);
    terminal.wait_until("fewer rows", |screen| rows(screen) == 5);
    terminal.keys(&["NPage", "NPage", "j"]);
    terminal.wait_for("12 of 200");
    end(&terminal, &["q"]);
    // Nothing of it stays, on the screen or above it.
    let screen = terminal.screen();
    assert!(!screen.contains("[ ] +") && !screen.contains("of 200"), "{screen}");
}

#[test]
fn nothing_of_the_review_stays_on_a_terminal_that_grew() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", "for n in $(seq 200); do echo $n > f$n; done");
    terminal.tmux(&["resize-window", "-x", "200", "-y", "50"]);
    terminal.wait_for("│");
    end(&terminal, &["q"]);
    let screen = terminal.screen();
    assert!(!screen.contains("[ ] +") && !screen.contains('│'), "{screen}");
}

#[test]
fn ctrl_z_gives_the_terminal_back_and_fg_returns_to_the_review() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", WORK);
    terminal.keys(&["Space"]);
    terminal.wait_for("1 marked");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.line("echo in $((1 + 1)) shells");
    terminal.wait_for("in 2 shells");
    terminal.line("fg");
    terminal.wait_for("1 marked");
    end(&terminal, &["q", "q"]);
    assert_untouched(&fixture);
}

#[test]
fn a_closed_terminal_and_signals_keep_everything() {
    for signal in [None, Some("-TERM"), Some("-HUP"), Some("-INT")] {
        let fixture = fixture();
        let terminal = review_of(&fixture, "", WORK);
        terminal.keys(&["a", "r"]);
        terminal.wait_for("[y/N/?]");
        let pid = supervisor(&fixture);
        match signal {
            None => terminal.close(),
            Some(signal) => {
                Command::new("kill").args([signal, &pid]).status().unwrap();
                terminal.wait_for_program("bash");
                terminal.line("stty -a | tr \" \" \"\\n\" | grep -x -e -*icanon");
                terminal.wait_until("the usual modes", |screen| screen.contains("\nicanon"));
            }
        }
        let process = std::path::Path::new("/proc").join(&pid);
        eventually("the supervisor stays", || !process.exists());
        assert_untouched(&fixture);
    }
}

#[test]
fn after_a_closed_terminal_the_exit_code_is_still_the_commands() {
    let fixture = fixture();
    let terminal = shell(&fixture, "");
    // The shell around it lives on to see how it ends.
    let script = format!(
        "trap \"\" HUP; {NONO} run --rollback -- sh -c \"{WORK}; exit 7\"; echo $? > ../code"
    );
    terminal.line(&format!("sh -c '{script}'"));
    terminal.wait_for("Enter keep everything");
    terminal.close();
    let code = fixture.path("code");
    eventually("it ends", || fs::read_to_string(&code).is_ok_and(|code| !code.is_empty()));
    assert_eq!(fs::read_to_string(&code).unwrap(), "7\n");
    assert_untouched(&fixture);
}

/// The process that is in the review: the one that made the session.
fn supervisor(fixture: &Fixture) -> String {
    fixture.latest().rsplit('-').next().unwrap().to_owned()
}

#[test]
fn what_was_typed_at_the_command_is_no_answer() {
    let fixture = fixture();
    let terminal = shell(&fixture, "");
    let script = format!("echo waiting; {WORK}; while [ ! -e go ]; do sleep 0.05; done; rm go");
    terminal.line(&format!("{NONO} run --rollback -- sh -c '{script}'"));
    terminal.wait_for("\nwaiting");
    terminal.keys(&["R", "y", "Enter"]);
    terminal.wait_for("Ry");
    fs::write(fixture.project().join("go"), "").unwrap();
    terminal.wait_for("Enter keep everything");
    end(&terminal, &["q"]);
    assert_untouched(&fixture);
}

#[test]
fn later_changes_are_asked_about_before_they_are_undone() {
    let fixture = fixture();
    let terminal = review_of(&fixture, "", WORK);
    fs::write(fixture.project().join("changed"), "meanwhile\n").unwrap();
    terminal.keys(&["R"]);
    terminal.wait_for("[y/N/?]");
    terminal.keys(&["y"]);
    terminal.wait_for("undo these later changes as well (o)");
    terminal.keys(&["k", "Enter"]);
    terminal.wait_for("take this back:");
    terminal.wait_for_program("bash");
    assert_eq!(fs::read_to_string(fixture.project().join("changed")).unwrap(), "meanwhile\n");
    assert!(fixture.project().join("deleted").exists());
}

#[test]
fn no_question_comes_without_a_terminal_or_a_change_or_when_not_wanted() {
    let fixture = fixture();
    let run = fixture.record("echo later > changed").success();
    assert!(run.stderr.contains("undo it:"), "{}", run.stderr);
    fixture.nono(&["rollback", "review"]).fails(1, "needs a terminal");
    let terminal = shell(&fixture, "");
    for (arguments, said) in [
        ("--no-rollback-prompt -- sh -c 'echo 1 >> changed'", "undo it:"),
        ("--no-undo-prompt -- sh -c 'echo 2 >> changed'", "undo it:"),
        ("-- true", "nothing changed"),
    ] {
        terminal.line("clear");
        terminal.line(&format!("{NONO} run --rollback {arguments}; echo code $?"));
        terminal.wait_for(said);
        terminal.wait_for("code 0");
    }
    terminal.line("clear");
    // In the background no program may take the terminal.
    terminal.line(&format!(
        "{NONO} run --rollback -- sh -c 'echo 3 >> changed' & wait $!; echo code $?"
    ));
    terminal.wait_for("code 0");
}

#[test]
fn output_that_goes_elsewhere_is_no_reason_not_to_ask() {
    let fixture = fixture();
    let terminal = shell(&fixture, "");
    let out = fixture.path("out");
    let script =
        format!("{NONO} run --rollback -- sh -c 'echo output; {WORK}' > {}", out.display());
    terminal.line(&script);
    terminal.wait_for("Enter keep everything");
    end(&terminal, &["q"]);
    assert_eq!(fs::read_to_string(out).unwrap(), "output\n");
}
