//! The candidates of a shell at Tab, asked in the shell itself.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::fixture::{Fixture, finished};
use crate::hooks::{Agent, steps};
use crate::not_run::not_run;
use crate::terminal::Terminal;

const NONO: &str = env!("CARGO_BIN_EXE_nono");

/// `PATH` with the program under its name.
fn search_path(fixture: &Fixture) -> String {
    let bin = fixture.path("bin");
    if !bin.join("nono").exists() {
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(NONO, bin.join("nono")).unwrap();
    }
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// The candidates of bash for a line that is being typed, one a line.
pub fn offered(fixture: &Fixture, line: &[&str]) -> Vec<String> {
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    // As readline calls it: the command, the word, the word before.
    let script = format!(
        "source <(nono completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; \
         _clap_complete_nono nono '{}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        line.len() - 1,
        line.last().unwrap()
    );
    let mut command = Command::new("bash");
    let output = command
        .args(["--norc", "--noprofile", "-c", &script])
        .current_dir(fixture.project())
        .env_clear()
        .env("PATH", search_path(fixture))
        .env("HOME", fixture.path("home"))
        .output()
        .unwrap();
    let done = finished(output).success();
    assert_eq!(done.stderr, "");
    done.stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_offers_sessions_and_their_snapshots() {
    let fixture = Fixture::new();
    fixture.write("src/a.rs", "1\n");
    fixture.record("echo 2 > src/a.rs").success();
    let first = fixture.latest();
    fixture.record("echo 3 > src/a.rs").success();
    let second = fixture.latest();
    for command in ["show", "restore", "diff", "verify", "cleanup"] {
        let all = offered(&fixture, &["nono", "rollback", command, ""]);
        let at = |id: &String| all.iter().position(|found| found == id);
        assert!(at(&second).is_some() && at(&second) < at(&first), "{command}: {all:?}");
    }
    assert_eq!(
        offered(&fixture, &["nono", "rollback", "show", &second]),
        std::slice::from_ref(&second)
    );
    let numbers = offered(&fixture, &["nono", "rollback", "show", &format!("{first}/")]);
    assert_eq!(numbers, [format!("{first}/0"), format!("{first}/1")]);
    let session = offered(&fixture, &["nono", "snapshot", "--session", &first[..8]]);
    assert_eq!(session, [second, first]);
    assert!(offered(&fixture, &["nono", "rollback", "diff", "n"]).contains(&"now".to_owned()));
}

#[test]
fn bash_offers_commands_flags_profiles_and_paths_of_snapshots() {
    let fixture = Fixture::new();
    fixture.write("src/gone.rs", "1\n");
    fixture.write("src/deep/b", "1\n");
    fixture.record("rm -r src").success();
    assert_eq!(offered(&fixture, &["nono", "rollb"]), ["rollback"]);
    let flags = offered(&fixture, &["nono", "run", "--no-rollback-p"]);
    assert_eq!(flags, ["--no-rollback-prompt"]);
    let profiles = offered(&fixture, &["nono", "run", "--profile", "cl"]);
    assert_eq!(profiles, ["claude-code"]);
    let paths = |word| offered(&fixture, &["nono", "rollback", "restore", "latest", word]);
    assert_eq!(paths("sr"), ["src/"]);
    assert_eq!(paths("src/"), ["src/deep/", "src/gone.rs"]);
    assert_eq!(paths("src/g"), ["src/gone.rs"]);
    // Nothing of a store that is not there.
    let elsewhere = fixture.path("nowhere");
    let elsewhere = elsewhere.to_str().unwrap();
    let none = offered(&fixture, &["nono", "--root", elsewhere, "rollback", "show", ""]);
    assert!(!none.iter().any(|word| word.starts_with("20")), "{none:?}");
}

#[test]
fn bash_gets_a_name_with_a_blank_as_one_word() {
    let fixture = Fixture::new();
    fixture.write("with blank", "1");
    fixture.nono(&["snapshot", "-m", "before lunch"]).success();
    let names = offered(&fixture, &["nono", "rollback", "restore", "bef"]);
    assert_eq!(names, [r"before\ lunch"]);
    let names = offered(&fixture, &["nono", "rollback", "restore", r"before\ l"]);
    assert_eq!(names, [r"before\ lunch"]);
    let paths = offered(&fixture, &["nono", "rollback", "restore", "latest", "with"]);
    assert_eq!(paths, [r"with\ blank"]);
}

#[test]
fn settings_are_offered_with_their_values() {
    let fixture = Fixture::new();
    let set = |words: &[&str]| -> Vec<String> {
        let all = offered(&fixture, &[&["nono", "config", "set"], words].concat());
        all.into_iter().filter(|word| !word.starts_with('-')).collect()
    };
    assert_eq!(set(&["max_s"]), ["max_sessions", "max_storage_gb"]);
    assert!(set(&["containers."]).contains(&"containers.max_snapshots".to_owned()));
    assert_eq!(set(&["record", ""]), ["true", "false"]);
    assert_eq!(set(&["ignored", "s"]), ["small"]);
    assert_eq!(set(&["max_sessions", ""]), ["10"]);
    // Each offered key is one that can be set.
    let keys = set(&[""]);
    assert!(keys.len() > 15, "{keys:?}");
    for key in &keys {
        let value = match key.as_str() {
            "record" | "use_gitignore" | "mcp_restore" | "name_run_later" | "tell_agents" => "true",
            "ignored" => "all",
            "compression" => "small",
            "exclude_patterns" | "exclude_globs" | "force_include" | "mcp_hidden" => "a",
            "push_after_run" => "backup",
            _ => "7",
        };
        fixture.nono(&["config", "set", key, value]).success();
    }
}

#[test]
fn remotes_are_offered_by_name_and_sessions_behind_them() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let place = fixture.path("remote");
    for name in ["backup", "attic"] {
        let url = place.join(name);
        fs::create_dir_all(&url).unwrap();
        let add = ["remote", "add", name, url.to_str().unwrap(), "--plaintext"];
        fixture.nono(&add).success();
    }
    for command in [&["remote", "show"][..], &["remote", "remove"], &["remote", "verify"]] {
        let names = offered(&fixture, &[&["nono"], command, &[""]].concat());
        assert_eq!(names[..2], ["attic", "backup"], "{command:?}: {names:?}");
    }
    for command in ["push", "pull"] {
        assert_eq!(offered(&fixture, &["nono", command, "ba"]), ["backup"]);
        let id = fixture.latest();
        assert_eq!(offered(&fixture, &["nono", command, "backup", &id[..12]]), [id]);
    }
    // A name that is to be new is none of these.
    assert!(!offered(&fixture, &["nono", "remote", "add", ""]).contains(&"attic".to_owned()));
}

#[test]
fn mounts_are_offered_where_one_is_taken_away() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let place = fixture.path("the past");
    let place = place.to_str().unwrap();
    let mounted = fixture.nono(&["mount", place]);
    if mounted.code != 0 && mounted.says("fuse") {
        not_run(format_args!("nothing can be mounted here: {}", mounted.stderr));
        return;
    }
    mounted.success();
    let escaped = place.replace(' ', r"\ ");
    let here = &place[..place.len() - 4];
    let all = offered(&fixture, &["nono", "umount", &here.replace(' ', r"\ ")]);
    fixture.nono(&["umount", place]).success();
    assert_eq!(all, [escaped]);
}

#[test]
fn steps_and_prompts_are_offered_by_number() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    for command in ["echo 2 > a", "echo 3 > a"] {
        agent.prompt("the next one");
        agent.shell(command);
        agent.turn_end();
    }
    agent.end();
    let id = fixture.latest();
    let undo = |words: &[&str]| offered(&fixture, &[&["nono", "undo"], words].concat());
    let numbers: Vec<u64> = steps(&fixture).iter().map(|(number, ..)| *number).collect();
    let [first, second] = numbers[..] else { panic!("{numbers:?}") };
    let numbers = [second.to_string(), first.to_string(), "last".to_owned()];
    assert_eq!(undo(&["--step", ""]), numbers);
    assert_eq!(undo(&["--to-step", ""]), numbers);
    assert_eq!(undo(&["--prompt", ""]), ["2", "1", "last"]);
    let named = [format!("{id}#{second}"), format!("{id}#{first}")];
    assert_eq!(offered(&fixture, &["nono", "show", &format!("{id}#")]), named);
    assert_eq!(undo(&["--step", &format!("{id}#{first}")]), [named[1].clone()]);
    // fish and zsh show the words of a step beside its number.
    let mut fish = Command::new("fish");
    let script = "nono completions fish | source; complete -C 'nono undo --step '";
    fish.args(["--no-config", "-c", script]);
    fish.env("PATH", search_path(&fixture)).env("HOME", fixture.path("home"));
    let Ok(fish) = fish.current_dir(fixture.project()).output() else {
        not_run("fish is not installed");
        return;
    };
    let lines = finished(fish).success().stdout;
    let first_line = format!("{second}\tBash · echo 3 > a");
    assert_eq!(lines.lines().next(), Some(first_line.as_str()), "{lines}");
}

/// A shell on a terminal, where the completions are loaded and a line can be typed. `None`, and
/// said so, where there is no such shell.
fn shell(fixture: &Fixture, name: &str) -> Option<Terminal> {
    let (start, load) = match name {
        "bash" => ("bash --norc --noprofile -i", ". <(nono completions bash); PS1='ready> '"),
        "zsh" => (
            "zsh -f -i",
            "autoload -Uz compinit; compinit -u -D; . <(nono completions zsh); PS1='ready> '",
        ),
        "fish" => (
            "fish --no-config -i",
            "nono completions fish | source; function fish_prompt; echo 'ready> '; end",
        ),
        other => panic!("{other}"),
    };
    if !Command::new(name).arg("--version").output().is_ok_and(|shell| shell.status.success()) {
        not_run(format_args!("{name} is not installed"));
        return None;
    }
    // A server of its own: the one before may still be ending.
    let number = (0..).find(|number| !fixture.path(&format!("{name}{number}")).exists()).unwrap();
    let [socket, home] =
        [format!("{name}{number}"), "home".to_owned()].map(|place| fixture.path(&place));
    let start = format!("env PATH='{}' {start}", search_path(fixture));
    let terminal = Terminal::start(&socket, &fixture.project(), &home, &start);
    terminal.line(load);
    // The line that was typed has a quotation mark before it.
    terminal.wait_until("ready", |screen| screen.lines().any(|line| line.starts_with("ready>")));
    Some(terminal)
}

/// Types a line with a Tab at its end, and returns the words that the shell then runs.
fn completed(terminal: &Terminal, line: &str, is_completed: &str) -> Vec<String> {
    terminal.keys(&["C-l"]);
    terminal.keys(&["-l", line]);
    terminal.keys(&["Tab"]);
    terminal.wait_for(is_completed);
    terminal.keys(&["C-a"]);
    terminal.keys(&["-l", "printf '<%s>\\n' "]);
    terminal.keys(&["C-e"]);
    terminal.keys(&["-l", " end"]);
    terminal.keys(&["Enter"]);
    terminal.wait_for("<end>");
    let screen = terminal.screen();
    let words = screen.lines().filter_map(|line| line.strip_prefix('<')?.strip_suffix('>'));
    words.map(str::to_owned).collect()
}

#[test]
fn names_with_blanks_are_completed_in_bash_fish_and_zsh() {
    let fixture = Fixture::new();
    fixture.write("with blank", "1");
    fixture.nono(&["snapshot", "-m", "before lunch: it's #1"]).success();
    for name in ["bash", "zsh", "fish"] {
        let Some(terminal) = shell(&fixture, name) else { continue };
        let words = completed(&terminal, "nono restore bef", "lunch");
        assert_eq!(words, ["nono", "restore", "before lunch: it's #1", "end"], "{name}");
        drop(terminal);
        // With the half of it typed, as this shell wants it.
        let Some(terminal) = shell(&fixture, name) else { continue };
        let words = completed(&terminal, r"nono restore before\ l", "lunch");
        assert_eq!(words, ["nono", "restore", "before lunch: it's #1", "end"], "{name}");
        drop(terminal);
        let Some(terminal) = shell(&fixture, name) else { continue };
        let words = completed(&terminal, "nono restore latest wit", "blank");
        assert_eq!(words, ["nono", "restore", "latest", "with blank", "end"], "{name}");
    }
}

#[test]
fn commands_and_settings_are_completed_in_bash_fish_and_zsh() {
    let fixture = Fixture::new();
    for name in ["bash", "zsh", "fish"] {
        let Some(terminal) = shell(&fixture, name) else { continue };
        let words = completed(&terminal, "nono config set max_ses", "max_sessions");
        assert_eq!(words, ["nono", "config", "set", "max_sessions", "end"], "{name}");
        drop(terminal);
        // Several candidates are listed.
        let Some(terminal) = shell(&fixture, name) else { continue };
        terminal.keys(&["-l", "nono re"]);
        terminal.keys(&["Tab", "Tab"]);
        for command in ["redo", "restore", "resume", "review"] {
            terminal.wait_for(command);
        }
        if name != "bash" {
            terminal.wait_for("Bring paths back to a snapshot");
        }
    }
}

#[test]
fn names_of_sessions_and_of_forks_are_offered() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.nono(&["run", "-m", "the big refactor", "sh", "-c", "echo 2 > a"]).success();
    assert_eq!(offered(&fixture, &["nono", "show", "the"]), [r"the\ big\ refactor"]);
    // A name that two sessions have means none of them.
    fixture.nono(&["run", "-m", "the big refactor", "sh", "-c", "echo 3 > a"]).success();
    assert_eq!(offered(&fixture, &["nono", "show", "the"]), [""; 0]);
    if crate::forks::has_forks(&fixture) {
        fixture.nono(&["fork", "attempt"]).success();
        for command in ["show", "enter", "merge", "discard", "diff"] {
            assert_eq!(offered(&fixture, &["nono", "fork", command, "att"]), ["attempt"]);
        }
    }
}
