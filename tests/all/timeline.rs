//! `nono` alone, on a real terminal: keys, the mouse, sizes, and what stays behind.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::fixture::Fixture;
use crate::hooks::Agent;
use crate::terminal::{Terminal, eventually};

const NONO: &str = env!("CARGO_BIN_EXE_nono");

/// A session of an agent with two prompts and three steps, and a run after it.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("src/cart.py", "def total(prices):\n    return sum(prices)\n");
    fixture.write("notes", "one\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("add the tax");
    agent.shell("sed -i 's/sum(prices)/sum(prices) * 2/' src/cart.py");
    agent.prompt("tidy up");
    agent.shell("mv notes notes.md");
    agent.shell("echo wrong > src/junk.py");
    agent.end();
    fixture.record("echo two >> notes.md").success();
    fixture
}

fn shell(fixture: &Fixture, environment: &str, size: (u16, u16)) -> Terminal {
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("env {environment} PS1='ready> ' bash --norc --noprofile -i"),
    );
    terminal.wait_for("ready>");
    resize(&terminal, size);
    terminal
}

fn resize(terminal: &Terminal, (columns, rows): (u16, u16)) {
    let (columns, rows) = (columns.to_string(), rows.to_string());
    terminal.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
}

/// The timeline, on a terminal of this size.
fn timeline(fixture: &Fixture, environment: &str, size: (u16, u16)) -> Terminal {
    let terminal = shell(fixture, environment, size);
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("2 sessions");
    terminal
}

/// Waits until the shell has the terminal again, in its usual modes, with nothing of the timeline.
#[track_caller]
fn assert_clean(terminal: &Terminal) {
    terminal.wait_for_program("bash");
    terminal.line("echo \"ended with $?\"; stty -a | tr \" \" \"\\n\" | grep -x -e -*icanon");
    terminal.wait_until("the usual modes", |screen| screen.contains("\nicanon"));
    let mouse = terminal.tmux(&["display-message", "-p", "#{mouse_any_flag}#{alternate_on}"]);
    assert_eq!(String::from_utf8_lossy(&mouse.stdout).trim(), "00");
    let screen = terminal.screen();
    for part in ["2 sessions", "add the tax", "? help"] {
        assert!(!screen.contains(part), "{part}:\n{screen}");
    }
}

/// Waits for the cursor at a row and for the difference of this row, which lacks a text of others.
#[track_caller]
fn wait_for_row(terminal: &Terminal, place: &str, parts: &[&str], foreign: &str) {
    terminal.wait_until(place, |screen| {
        screen.contains(place)
            && parts.iter().all(|part| screen.contains(part))
            && !screen.contains(foreign)
    });
}

/// Presses and releases the left button on a cell, counted from 1.
fn click(terminal: &Terminal, column: usize, row: usize) {
    let text = format!("\u{1b}[<0;{column};{row}M\u{1b}[<0;{column};{row}m");
    terminal.keys(&["-l", &text]);
}

/// The row of the screen, from 1, that has a text.
#[track_caller]
fn row_of(terminal: &Terminal, text: &str) -> usize {
    let screen = terminal.screen();
    let at = screen.lines().position(|line| line.contains(text));
    at.unwrap_or_else(|| panic!("{text:?} is not on the screen:\n{screen}")) + 1
}

#[test]
fn sessions_prompts_and_steps_are_listed_newest_first_with_the_difference_beside() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (120, 30));
    terminal.wait_for("+two");
    terminal.keys(&["j", "Right"]);
    terminal.wait_for("❯ tidy up");
    let rows =
        ["echo two", "claude-code", "❯ tidy up", "#3 Bash", "#2 Bash", "❯ add the tax", "#1"];
    let places = rows.map(|text| row_of(&terminal, text));
    assert!(places.is_sorted(), "{places:?}\n{}", terminal.screen());
    // Every row has its own difference: that of a step is what the step did.
    // The session above has all of these lines, so each row is awaited with its own alone.
    terminal.keys(&["j", "j"]);
    wait_for_row(&terminal, "4 of 7", &["│ +wrong"], "sum(prices) * 2");
    terminal.keys(&["j"]);
    wait_for_row(&terminal, "5 of 7", &["notes → notes.md"], "+wrong");
    terminal.keys(&["G"]);
    let of_step = ["│ -    return sum(prices)", "│ ❯ add the tax"];
    wait_for_row(&terminal, "7 of 7", &of_step, "notes → notes.md");
    terminal.keys(&["q"]);
    assert_clean(&terminal);
}

#[test]
fn a_search_finds_prompts_and_commands_of_folded_sessions() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (100, 24));
    terminal.keys(&["/", "t", "a", "x"]);
    terminal.wait_for("contain tax");
    terminal.wait_for("❯ add the tax");
    assert!(!terminal.screen().contains("❯ tidy up"), "{}", terminal.screen());
    terminal.keys(&["Enter"]);
    // The found row is at the cursor, so its difference is shown.
    terminal.wait_for("sum(prices) * 2");
    terminal.keys(&["Escape"]);
    terminal.wait_for("❯ tidy up");
    terminal.keys(&["C-c"]);
    assert_clean(&terminal);
}

#[test]
fn enter_opens_the_changed_files_and_a_file_is_restored() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (100, 24));
    terminal.keys(&["j", "Enter"]);
    terminal.wait_for("src/");
    terminal.wait_for("notes.md ← notes");
    terminal.keys(&["/"]);
    terminal.keys(&["-l", "junk"]);
    terminal.wait_for("1 of 4 contain junk");
    terminal.keys(&["Enter", "r"]);
    terminal.wait_for("restore src/junk.py? [y/N/?]");
    terminal.keys(&["y"]);
    terminal.wait_for("take this back: nono redo");
    assert!(!fixture.project().join("src/junk.py").exists());
    assert!(fixture.project().join("notes.md").exists());
    terminal.wait_for("Enter goes back to the timeline");
    terminal.keys(&["Enter"]);
    terminal.wait_for("2 sessions");
    terminal.keys(&["q"]);
    assert_clean(&terminal);
}

#[test]
fn marked_paths_of_a_session_are_restored_and_its_renames_go_back_to_their_names() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (120, 24));
    terminal.keys(&["j", "Enter"]);
    terminal.wait_for("notes.md ← notes");
    terminal.keys(&["Space"]);
    terminal.wait_for("2 marked");
    terminal.keys(&["r"]);
    terminal.wait_for("restore 2 marked paths? [y/N/?]");
    terminal.keys(&["n"]);
    terminal.wait_for("space mark");
    assert!(fixture.project().join("notes.md").exists());
    // Marks are not lost by a key that leaves.
    terminal.keys(&["Escape"]);
    terminal.wait_for("2 marked: r restores them");
    terminal.keys(&["q"]);
    assert_clean(&terminal);
}

#[test]
fn a_step_is_taken_back_after_the_question_of_undo() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (80, 24));
    terminal.keys(&["j", "Right", "j", "j", "u"]);
    terminal.wait_for("undo step 3 of");
    terminal.wait_for("[y/N/?]");
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("nothing was changed");
    assert!(fixture.project().join("src/junk.py").exists());
    terminal.keys(&["Enter"]);
    terminal.wait_for("#3 Bash");
    terminal.keys(&["u"]);
    terminal.wait_until("the second question", |screen| screen.matches("[y/N/?]").count() == 2);
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("take this back:");
    terminal.keys(&["Enter"]);
    terminal.wait_for("2 sessions");
    assert!(!fixture.project().join("src/junk.py").exists());
    assert!(fixture.project().join("notes.md").exists());
    terminal.keys(&["q"]);
    terminal.wait_for_program("bash");
}

#[test]
fn a_session_is_taken_back_and_ctrl_c_at_the_question_ends_the_program() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (80, 24));
    terminal.keys(&["u"]);
    terminal.wait_for_question(1);
    terminal.keys(&["y", "Enter"]);
    terminal.wait_for("Enter goes back");
    assert_eq!(fs::read_to_string(fixture.project().join("notes.md")).unwrap(), "one\n");
    terminal.keys(&["Enter"]);
    terminal.wait_for("undone");
    terminal.keys(&["j", "u"]);
    terminal.wait_for_question(2);
    terminal.keys(&["C-c"]);
    terminal.wait_for_program("bash");
    terminal.line("echo \"ended with $?\"; stty -a | tr \" \" \"\\n\" | grep -x -e -*icanon");
    terminal.wait_for("ended with 130");
    terminal.wait_until("the usual modes", |screen| screen.contains("\nicanon"));
    assert!(fixture.project().join("src/junk.py").exists());
}

#[test]
fn the_mouse_selects_opens_and_scrolls() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (120, 30));
    let row = row_of(&terminal, "claude-code");
    click(&terminal, 20, row);
    terminal.wait_for("notes → notes.md");
    // The mark of folding, and a second click on a row.
    click(&terminal, 1, row);
    terminal.wait_for("❯ tidy up");
    let row = row_of(&terminal, "#3 Bash");
    click(&terminal, 20, row);
    terminal.wait_for("│ +wrong");
    click(&terminal, 20, row);
    terminal.wait_for("src/junk.py");
    terminal.wait_for("1 of 1");
    terminal.keys(&["Escape"]);
    terminal.wait_for("2 sessions");
    // The wheel, over the list.
    terminal.keys(&["-l", "\u{1b}[<65;20;9M"]);
    terminal.wait_for("❯ add the tax");
    terminal.keys(&["q"]);
    assert_clean(&terminal);
}

#[test]
fn it_follows_the_size_of_the_terminal_and_leaves_it_clean() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (80, 24));
    for size in [(30, 8), (200, 50), (20, 4), (80, 24), (30, 8)] {
        resize(&terminal, size);
        let is_so = |screen: &str| {
            // Lines above the screen are not part of it.
            let lines: Vec<&str> = screen.lines().collect();
            let shown = &lines[lines.len().saturating_sub(size.1.into())..];
            shown.iter().any(|line| line.contains("just now")) && shown.len() >= usize::from(size.1)
        };
        terminal.wait_until(&format!("{size:?}"), is_so);
        let beside = size.0 >= 80;
        terminal.wait_until("the difference", |screen| screen.contains('│') == beside);
    }
    terminal.keys(&["?"]);
    terminal.wait_for("Enter ");
    terminal.keys(&["q", "j", "Enter", "Right", "q"]);
    resize(&terminal, (80, 24));
    assert_clean(&terminal);
}

#[test]
fn on_a_narrow_terminal_the_difference_has_the_whole_screen() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (40, 10));
    terminal.keys(&["Enter"]);
    terminal.wait_for("notes.md");
    terminal.keys(&["Enter"]);
    terminal.wait_for("+two");
    assert!(!terminal.screen().contains("[ ]"), "{}", terminal.screen());
    terminal.wait_for("hunk 1 of 1");
    terminal.keys(&["Escape"]);
    terminal.wait_for("[ ] ~ notes.md");
    terminal.keys(&["q"]);
    assert_clean(&terminal);
}

#[test]
fn no_colour_is_used_where_none_is_wanted() {
    for (environment, is_coloured) in [("", true), ("NO_COLOR=1", false)] {
        let fixture = fixture();
        let terminal = timeline(&fixture, environment, (120, 24));
        terminal.wait_for("+two");
        let drawn = terminal.tmux(&["capture-pane", "-p", "-e"]);
        let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
        let has_colour = ["\u{1b}[3", "\u{1b}[9"].iter().any(|begin| {
            drawn.split(begin).skip(1).any(|rest| {
                rest.as_bytes().first().is_some_and(u8::is_ascii_digit) && !rest.starts_with("9m")
            })
        });
        assert_eq!(has_colour, is_coloured, "{drawn:?}");
        terminal.keys(&["q"]);
        terminal.wait_for_program("bash");
    }
}

#[test]
fn hostile_names_prompts_and_lines_do_nothing_to_the_terminal() {
    let fixture = Fixture::new();
    let marks = "e\u{301}\u{301}\u{301}\u{301}";
    let evil = format!("\u{1b}]2;owned\u{7}\u{1b}[2J\r\n\u{202e}\u{200b}{marks}你好");
    fixture.write("base", "x");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt(&format!("prompt {evil} end"));
    let call = agent.call_of("Bash", json!({"command": format!("echo {evil} end")}));
    agent.before(&call);
    fixture.write(&format!("name {evil} end"), format!("line {evil} end\n"));
    agent.after(&call);
    agent.end();
    let terminal = shell(&fixture, "", (200, 50));
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("1 session");
    terminal.wait_for("❯ prompt");
    terminal.keys(&["j", "j", "Enter"]);
    terminal.wait_for("│ name \\u{1b}]2;owned\\u{7}\\u{1b}[2J\\r\\n\\u{202e}\\u{200b}");
    terminal.wait_for("+line \\u{1b}]2;owned");
    let drawn = terminal.tmux(&["capture-pane", "-p", "-e"]);
    let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
    for c in ['\u{202e}', '\u{200b}', '\u{7}'] {
        assert!(!drawn.contains(c), "{c:?}: {drawn}");
    }
    assert!(!drawn.contains("e\u{301}\u{301}\u{301}"), "{drawn}");
    let title = terminal.tmux(&["display-message", "-p", "#{pane_title}"]);
    assert!(!String::from_utf8_lossy(&title.stdout).contains("owned"));
    terminal.keys(&["q"]);
    terminal.wait_for_program("bash");
}

#[test]
fn elsewhere_than_on_a_terminal_the_help_is_shown_as_ever() {
    let fixture = fixture();
    let alone = fixture.nono(&[]);
    assert_eq!(alone.code, 2);
    assert!(alone.stderr.contains("Usage: nono"), "{}", alone.stderr);
    let terminal = shell(&fixture, "", (80, 24));
    terminal.line(&format!("clear; {NONO} 2>&1 | grep -c Usage:; {NONO} agent; echo code $?"));
    terminal.wait_for("code 2");
    terminal.wait_for("Usage: nono agent");
    terminal.wait_until("one usage", |screen| screen.starts_with("1\n"));
    // A store without sessions has nothing to show.
    terminal.line(&format!(
        "clear; {NONO} --root {} | cat; {NONO} --root {}; echo code $?",
        fixture.path("none").display(),
        fixture.path("none").display()
    ));
    terminal.wait_for("nothing is recorded yet: nono run COMMAND");
    terminal.wait_for("code 0");
}

#[test]
fn the_review_after_a_run_leads_to_the_timeline() {
    let fixture = fixture();
    let terminal = shell(&fixture, "", (80, 24));
    terminal.line(&format!("clear; {NONO} run --rollback -- sh -c 'echo 3 > notes.md'"));
    terminal.wait_for("Enter keep everything");
    terminal.keys(&["Escape"]);
    terminal.wait_for("3 sessions");
    terminal.wait_for("claude-code");
    terminal.keys(&["q"]);
    terminal.wait_for_program("bash");
    assert_eq!(fs::read_to_string(fixture.project().join("notes.md")).unwrap(), "3\n");
}

#[test]
fn commits_and_the_command_are_named_above_the_changes() {
    let fixture = Fixture::new();
    fixture.write("f", "1");
    let git = "git -c user.name=n -c user.email=n@example.org";
    let init = format!("git init -qb main; git add f; {git} commit -qm one");
    let made = Command::new("sh").args(["-ec", &init]).current_dir(fixture.project()).status();
    assert!(made.unwrap().success());
    fixture.record(&format!("echo 2 > f; {git} commit -qam two")).success();
    let terminal = shell(&fixture, "", (100, 24));
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("│ the command made 1 commit on main");
    terminal.keys(&["Enter"]);
    terminal.wait_for("\n$ sh -c 'echo 2 > f");
    terminal.wait_for("\nthe command made 1 commit on main");
    terminal.keys(&["q"]);
    terminal.wait_for_program("bash");
}

#[test]
fn code_has_the_colours_of_its_language() {
    let fixture = fixture();
    let terminal = timeline(&fixture, "", (120, 24));
    terminal.keys(&["j"]);
    terminal.wait_for("│  def total(prices):");
    let drawn = || {
        let drawn = terminal.tmux(&["capture-pane", "-p", "-e"]);
        String::from_utf8_lossy(&drawn.stdout).into_owned()
    };
    let (magenta, blue) = ("\u{1b}[38;5;5m", "\u{1b}[38;5;4m");
    eventually("keywords have no colour", || drawn().contains(&format!("{magenta}def")));
    assert!(drawn().contains(&format!("{blue}total")), "{:?}", drawn());
    // The words that changed are marked.
    terminal.wait_for("sum(prices) * 2");
    assert!(drawn().contains("7m * 2"), "{:?}", drawn());
    terminal.keys(&["q"]);
    assert_clean(&terminal);
}

#[test]
fn one_hunk_of_a_file_is_restored_and_comes_back() {
    let fixture = Fixture::new();
    let text = |changed: &[usize]| -> String {
        let line = |n| if changed.contains(&n) { format!("new {n}\n") } else { format!("{n}\n") };
        (1..=60).map(line).collect()
    };
    fixture.write("many", text(&[]));
    fixture.write("other", "1\n");
    fixture
        .record(
            "sed -i -e 's/^5$/new 5/' -e 's/^30$/new 30/' -e 's/^55$/new 55/' many; echo 2 > other",
        )
        .success();
    // A later change of other lines stays.
    let mine = text(&[5, 30, 55]).replace("\n10\n", "\nmine\n");
    fixture.write("many", &mine);
    let terminal = shell(&fixture, "", (120, 30));
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("1 session");
    terminal.keys(&["Enter"]);
    terminal.wait_for("many");
    terminal.keys(&["Tab"]);
    terminal.wait_for("hunk 1 of 3");
    terminal.keys(&["n", "n"]);
    terminal.wait_for("hunk 2 of 3");
    terminal.keys(&["r"]);
    terminal.wait_for("restore hunk 2 of 3 of many? [y/N/?]");
    terminal.keys(&["y"]);
    terminal.wait_for("hunk 2 of many is restored");
    let file = fixture.project().join("many");
    let without = mine.replace("new 30\n", "30\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), without);
    // The same hunk once more is nothing.
    terminal.keys(&["r", "y"]);
    terminal.wait_for("many has this hunk no more");
    terminal.keys(&["q"]);
    assert_eq!(fs::read_to_string(fixture.project().join("other")).unwrap(), "2\n");
    fixture.nono(&["redo"]).success();
    assert_eq!(fs::read_to_string(&file).unwrap(), mine);
    fixture.nono(&["undo", "--yes", "other"]).success();
    fixture.nono(&["redo"]).success();
    // All of the session can be undone after a part of it was.
    fixture.write("many", &without);
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(&file).unwrap(), text(&[]).replace("\n10\n", "\nmine\n"));
    fixture.nono(&["verify", "--all"]).success();
}

#[test]
fn an_undone_session_says_so_at_80_columns_and_offers_a_redo() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.record("echo 2 > a; : some words that make the command of this session long").success();
    fixture.nono(&["undo", "--yes"]).success();
    for size in [(80, 24), (60, 20)] {
        let terminal = shell(&fixture, "", size);
        terminal.line(&format!("clear; {NONO}"));
        terminal.wait_until("undone", |screen| {
            screen.lines().any(|line| line.contains("echo 2") && line.contains("undone"))
        });
        terminal.keys(&["C-c"]);
    }
    let terminal = shell(&fixture, "", (80, 24));
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("undone");
    terminal.keys(&["u"]);
    terminal.wait_for("is undone already");
    terminal.line("y");
    terminal.wait_for("Enter goes back to the timeline");
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
    terminal.line("");
    terminal.wait_for("1 session");
    terminal.keys(&["q"]);
}

#[test]
fn long_lines_move_sideways_and_the_help_fits_30_columns() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    let long: String = (0..60).map(|n| format!("w{n:02} ")).collect();
    fixture.record(&format!("echo '{long}' > a")).success();
    let terminal = shell(&fixture, "", (80, 24));
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("+w00");
    assert!(!terminal.screen().contains("w20"), "{}", terminal.screen());
    for _ in 0..4 {
        terminal.keys(&[">"]);
    }
    terminal.wait_for("w20");
    assert!(!terminal.screen().contains("+w00"), "{}", terminal.screen());
    for _ in 0..4 {
        terminal.keys(&["<"]);
    }
    terminal.wait_for("+w00");
    drop(terminal);
    let terminal = shell(&fixture, "", (30, 8));
    terminal.line(&format!("clear; {NONO}"));
    terminal.wait_for("1 session");
    terminal.keys(&["?"]);
    let mut seen = String::new();
    for _ in 0..60 {
        seen.push_str(&terminal.screen());
        terminal.keys(&["j"]);
    }
    let words = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["take a session, a", "with a question", "so it can be undone as", "any other key:"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    terminal.keys(&["C-c"]);
}
