//! Hooks of agents among hostile events, in a spool with foreign things, and their configuration
//! while others write it.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::json;

use crate::fixture::{Fixture, finished};
use crate::hooks::{Agent, quiet, start, steps, told};

/// The directory of the only agent session.
fn spool(fixture: &Fixture) -> PathBuf {
    let entries = fs::read_dir(fixture.store().join(".agents")).unwrap();
    entries.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
}

#[test]
fn an_event_that_is_too_long_is_read_to_its_end_and_noted() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["hook", "claude-code", "--deadline-ms", "60000"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let piece = vec![b' '; 1 << 20];
    // A client whose write fails would tell its user.
    for _ in 0..70 {
        input.write_all(&piece).unwrap();
    }
    drop(input);
    quiet(child);
    let log = fs::read_to_string(fixture.store().join(".agents/log")).unwrap();
    assert!(log.contains("longer than any"), "{log}");
}

#[test]
fn foreign_things_in_a_spool_stop_no_event() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    let spool = spool(&fixture);
    fs::create_dir(spool.join("0.event")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(spool.join("1.event")).status();
    assert!(fifo.unwrap().success());
    symlink(fixture.project().join("a"), spool.join("2.event")).unwrap();
    fs::write(spool.join("3.event"), "{").unwrap();
    fs::write(spool.join("4.event"), vec![b'['; 2 << 20]).unwrap();
    agent.shell("echo 2 > a");
    assert_eq!(steps(&fixture), [told(1, "Bash echo 2 > a", "tool")]);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
}

#[test]
fn a_state_that_was_tampered_with_is_found_again() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    for state in ["", "{\"session\":\"../../../etc\"}", "{\"session\":\"20200101-000000-1\"}"] {
        fs::write(spool(&fixture).join("state.json"), state).unwrap();
        agent.shell("date +%N >> a");
    }
    assert_eq!(steps(&fixture).len(), 3);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[test]
fn hostile_names_are_harmless_on_terminals_and_in_a_mount() {
    let fixture = Fixture::new();
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("\u{1b}]0;title\u{7} \n\u{202e}prompt");
    let evil = "../../etc/passwd\u{0}\n\u{1b}[2J";
    agent.call(evil, json!({"command": "\u{1b}[31mred\r\n/../x"}), || {
        fixture.write("a", "1");
    });
    let long = json!({"command": "x".repeat(1 << 20)});
    agent.call("Bash", long, || {
        fixture.write("b", "1");
    });
    for arguments in [&["steps"][..], &["show", "latest#1"], &["log", "a"], &["rollback", "list"]] {
        let said = fixture.nono(arguments).success();
        let is_harmless = |text: &str| !text.contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']);
        assert!(is_harmless(&said.stdout) && is_harmless(&said.stderr), "{:?}", said.stdout);
    }
    assert_eq!(steps(&fixture).len(), 2);
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn a_hook_without_a_home_or_with_a_wrong_store_says_nothing() {
    let fixture = Fixture::new();
    let event = json!({"session_id": "s", "hook_event_name": "SessionStart", "cwd": "/nowhere"});
    let mut homeless = fixture.command(&["hook", "claude-code"]);
    homeless.env_remove("HOME").env_remove("NONO_ROOT");
    quiet(start(homeless, &event.to_string()));
    fs::write(fixture.path("file"), "").unwrap();
    for root in [fixture.path("file"), "/proc/nowhere".into(), "".into()] {
        let mut command = fixture.command(&["hook", "claude-code"]);
        command.env("NONO_ROOT", root);
        quiet(start(command, &event.to_string()));
    }
}

#[test]
fn what_a_shell_left_behind_writes_late_and_a_restore_of_the_agent_is_a_step() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let agent = Agent::new(&fixture, "codex");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("build");
    agent.call("Bash", json!({"command": "make watch >log 2>&1 &"}), || {});
    fixture.write("built", "1");
    agent.call("mcp__nono__restore", json!({"at": "0", "paths": ["a"]}), || {
        fixture.write("a", "back");
    });
    agent.turn_end();
    fixture.write("mine", "1");
    agent.prompt("more");
    agent.call("mcp__nono__list_steps", json!({}), || {});
    agent.shell("true");
    assert_eq!(
        steps(&fixture),
        [
            told(1, "make watch >log 2>&1 &", "late"),
            told(2, "mcp__nono__restore a", "tool"),
            told(3, "", "user_edits"),
        ]
    );
}

#[test]
fn a_project_that_is_too_large_is_looked_at_once_and_the_log_says_so() {
    let fixture = Fixture::new();
    for number in 0..50 {
        fixture.write(&format!("file-{number}"), "x");
    }
    fixture.nono(&["config", "set", "max_entries", "20"]).success();
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    for number in 0..5 {
        agent.shell(&format!("echo {number} > file-0"));
    }
    agent.end();
    // Each try would list the whole project again.
    let log = fs::read_to_string(fixture.store().join(".agents/log")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("max_entries") && log.contains("project"), "{log}");
    for command in [&["status"][..], &["doctor"], &["agent", "status"]] {
        let said = fixture.nono(command);
        assert!(said.says("max_entries"), "{command:?}: {} {}", said.stdout, said.stderr);
    }
    // With more room, the next session is recorded.
    fixture.nono(&["config", "set", "max_entries", "1000"]).success();
    let agent = Agent::new(&fixture, "codex");
    agent.hook("SessionStart", &json!({}));
    agent.shell("echo more > file-0");
    assert_eq!(steps(&fixture).len(), 1);
}

#[test]
fn a_project_is_the_top_of_the_work_tree_and_never_a_home_directory() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.project().join(".git/info")).unwrap();
    fs::create_dir_all(fixture.project().join("deep/er")).unwrap();
    let install = |dir: PathBuf, flags: &[&str]| {
        let mut command = fixture.command(&[&["agent", "install", "claude-code"], flags].concat());
        finished(command.current_dir(dir).output().unwrap())
    };
    let file = fixture.project().join(".claude/settings.local.json");
    let said = install(fixture.project().join("deep/er"), &["--project"]).success();
    assert!(file.exists(), "{}", said.stderr);
    assert!(said.stderr.contains("git does not ignore .claude/settings.local.json"));
    assert!(!said.stderr.contains(".mcp.json"), "{}", said.stderr);
    let mut uninstall = fixture.command(&["agent", "uninstall", "claude-code", "--project"]);
    uninstall.current_dir(fixture.project().join("deep"));
    finished(uninstall.output().unwrap()).success();
    assert!(!file.exists());
    let exclude = fixture.project().join(".git/info/exclude");
    fs::write(exclude, ".claude/settings.local.json\n").unwrap();
    let said = install(fixture.project(), &["--project"]).success();
    assert!(!said.stderr.contains("git does not ignore"), "{}", said.stderr);
    for place in [fixture.path("home"), "/".into()] {
        install(place, &["--project"]).fails(1, "your home directory");
    }
    assert!(!fixture.path("home/.claude").exists());
}

#[test]
fn installs_at_the_same_time_leave_one_set_of_hooks() {
    let fixture = Fixture::new();
    let path = fixture.path("home/.claude/settings.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let before = "{\n  // mine\n  \"model\": \"opus\",\n}\n";
    fs::write(&path, before).unwrap();
    let install = |_| {
        let mut command = fixture.command(&["agent", "install", "claude-code"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(install).collect();
    for child in children {
        let done = finished(child.wait_with_output().unwrap());
        assert!(done.code == 0 || done.stderr.contains("changed meanwhile"), "{}", done.stderr);
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("hook claude-code").count(), 8, "{text}");
    fixture.nono(&["agent", "uninstall", "claude-code"]).success();
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
}
