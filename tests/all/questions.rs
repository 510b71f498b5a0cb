//! All questions on a terminal: `?` explains each letter of the question, another answer is told,
//! and the letter that does nothing does nothing.

use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::forks::has_forks;
use crate::hooks::Agent;
use crate::observe::{assert_same, observe};
use crate::terminal::Terminal;

/// A session that changed two files.
fn recorded() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    fixture.write("b", "0\n");
    fixture.record("echo 1 > a; echo 1 > b").success();
    fixture
}

/// The same, and a later change of one line that it changed.
fn in_conflict() -> Fixture {
    let fixture = recorded();
    fixture.write("a", "mine\n");
    fixture
}

fn stepped() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    fixture.write("b", "0\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("work");
    agent.shell("echo 1 > a");
    agent.shell("echo 2 > a; echo 2 > b");
    fixture
}

fn forked() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    if has_forks(&fixture) {
        fixture.nono(&["fork", "idea", "--", "sh", "-c", "echo there > a"]).success();
        fixture.write("a", "here\n");
    }
    fixture
}

/// A question: what comes before it, the command, the answers that lead to it, its letters, and the
/// letter that does nothing.
struct Asked {
    before: fn() -> Fixture,
    command: &'static str,
    way: &'static [&'static str],
    letters: &'static str,
    nothing: &'static str,
    of_forks: bool,
}

impl Asked {
    const fn of(
        before: fn() -> Fixture,
        command: &'static str,
        way: &'static [&'static str],
        letters: &'static str,
    ) -> Self {
        Self { before, command, way, letters, nothing: "n", of_forks: false }
    }
}

const QUESTIONS: [Asked; 12] = [
    Asked::of(recorded, "undo", &[], "y/N/d/s"),
    Asked::of(recorded, "undo a", &[], "y/N/d"),
    Asked::of(recorded, "restore latest/0", &[], "y/N/d/s"),
    Asked::of(recorded, "undo --since 1h", &[], "y/N"),
    Asked::of(recorded, "cleanup --all", &[], "y/N"),
    Asked::of(in_conflict, "undo", &[], "d/m/k/o/N"),
    Asked::of(in_conflict, "undo", &["m"], "k/o/b/N"),
    Asked::of(stepped, "undo --step last", &[], "y/N"),
    Asked::of(stepped, "undo --to-step 1", &[], "y/N/d/s"),
    Asked { of_forks: true, ..Asked::of(forked, "fork merge idea", &[], "d/m/k/o/L/n") },
    Asked { of_forks: true, ..Asked::of(forked, "cleanup --fork idea", &[], "y/N") },
    Asked {
        of_forks: true,
        nothing: "l",
        ..Asked::of(forked, "try sh -c 'echo tried > a'", &[], "k/s/L/x/d")
    },
];

fn unwrapped(screen: &str) -> String {
    screen.replace([' ', '\n'], "")
}

/// Waits until a question with these letters was asked so many times.
fn wait_for(terminal: &Terminal, letters: &str, times: usize) {
    let question = format!("[{letters}/?]");
    terminal.wait_until(&question, |screen| unwrapped(screen).matches(&question).count() == times);
}

#[test]
fn each_letter_is_explained_and_another_answer_is_asked_again() {
    for asked in &QUESTIONS {
        let fixture = (asked.before)();
        if asked.of_forks && !has_forks(&fixture) {
            continue;
        }
        let before = observe(&fixture.project());
        let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let command = format!("{program} {}; echo ended with $?; exec cat", asked.command);
        let home = fixture.path("home");
        let terminal = Terminal::start(&fixture.path("tmux"), &fixture.project(), &home, &command);
        for key in asked.way {
            terminal.wait_for("/?]");
            terminal.keys(&[key, "Enter"]);
        }
        wait_for(&terminal, asked.letters, 1);
        terminal.keys(&["?", "Enter"]);
        wait_for(&terminal, asked.letters, 2);
        let screen = terminal.screen();
        let keys: Vec<String> = asked.letters.split('/').map(str::to_lowercase).collect();
        for key in &keys {
            let explained = format!("nono:   {key}  ");
            assert_eq!(screen.matches(&explained).count(), 1, "{}: {screen}", asked.command);
        }
        assert_eq!(screen.matches("(Enter)").count(), 1, "{}: {screen}", asked.command);
        terminal.keys(&["zz", "Enter"]);
        wait_for(&terminal, asked.letters, 3);
        let told = format!("the answer is one of {}; ? explains them", keys.join(", "));
        let screen = terminal.screen();
        assert!(unwrapped(&screen).contains(&unwrapped(&told)), "{}: {screen}", asked.command);
        assert_same(&before, &observe(&fixture.project()));
        // From a question behind another one, back through that.
        for _ in 0..=asked.way.len() {
            terminal.keys(&[asked.nothing, "Enter"]);
        }
        terminal.wait_for("ended with ");
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn a_question_of_a_restore_says_the_state_and_the_paths() {
    let fixture = recorded();
    let id = fixture.latest();
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let home = fixture.path("home");
    for (words, question, change) in [
        ("restore a", "restore a to the state before `sh -c 'echo 1 > a; echo 1 > b'`, ", "a"),
        ("restore latest/0", "to the state before `sh -c 'echo 1 > a; echo 1 > b'`, ", "b"),
    ] {
        let command = format!("{program} {words}; echo ended with $?; exec cat");
        let terminal = Terminal::start(&fixture.path("tmux"), &fixture.project(), &home, &command);
        terminal.wait_for_question(1);
        let screen = terminal.screen();
        let text = unwrapped(&screen);
        for expected in [question, &format!("{id}/0, "), &format!("~ modified    {change}")] {
            assert!(text.contains(&unwrapped(expected)), "{expected}: {screen}");
        }
        terminal.keys(&["n", "Enter"]);
        terminal.wait_for("ended with 1");
    }
}

/// Questions have one home: no other file writes letters of answers, or reads an answer.
#[test]
fn no_other_part_of_the_program_asks() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    // On the screen of the timeline, a key answers.
    let allowed =
        ["cli/questions.rs", "cli/context.rs", "cli/timeline", "cli/commands/fork/attempt.rs"];
    let mut looked_at = 0;
    let mut directories = vec![source.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let inside = path.strip_prefix(&source).unwrap();
            if allowed.iter().any(|allowed| inside.starts_with(allowed)) {
                continue;
            }
            looked_at += 1;
            let text = fs::read_to_string(&path).unwrap_or_default();
            for asking in ["[y/N", "/N]", ".answer(\"", "context.answer("] {
                let is_other = asking == "/N]" && text.contains("ID[/N]");
                assert!(!text.contains(asking) || is_other, "{}: {asking}", path.display());
            }
        }
    }
    assert!(looked_at > 200, "{looked_at}");
}
