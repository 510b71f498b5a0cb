//! Changes that no snapshot of an agent's session holds: outside of the project, and of left-out
//! files. Each is named.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::hooks::{Agent, quiet};

const MEBIBYTE: usize = 1 << 20;

/// The lists of unrecorded paths of all steps: number, path below the fixture, fate.
fn unrecorded(fixture: &Fixture) -> Vec<(u64, String, String)> {
    let report = fixture.nono(&["steps", "--json"]).success().json();
    let of = |prompt: &Value| prompt["steps"].as_array().unwrap().clone();
    let steps = report["prompts"].as_array().unwrap().iter().flat_map(of);
    let top = fixture.path("");
    let inside = |path: &Value| {
        let path = Path::new(path.as_str().unwrap());
        path.strip_prefix(&top).unwrap_or(path).to_str().unwrap().to_owned()
    };
    let told = |step: Value| {
        let number = step["number"].as_u64().unwrap();
        let list = |name: &str| step[name].as_array().cloned().unwrap_or_default();
        let outside = list("outside").into_iter();
        let outside =
            outside.map(|it| (inside(&it["path"]), it["what"].as_str().unwrap().to_owned()));
        let gone = list("gone").into_iter().map(|path| (inside(&path), "lost".to_owned()));
        outside.chain(gone).map(move |(path, what)| (number, path, what)).collect::<Vec<_>>()
    };
    steps.flat_map(told).collect()
}

fn said(number: u64, path: &str, what: &str) -> (u64, String, String) {
    (number, path.to_owned(), what.to_owned())
}

/// A command of a shell in a directory of the fixture.
fn shell_in(agent: &Agent<'_>, place: &str, command: &str) {
    let fixture = agent.fixture;
    let mut call = agent.call_of("Bash", json!({"command": command}));
    call["cwd"] = json!(fixture.path(place));
    agent.before(&call);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(fixture.path(place)).env("HOME", fixture.path("home"));
    assert!(shell.status().unwrap().success());
    agent.after(&call);
}

#[test]
fn every_change_outside_of_the_project_that_a_call_names_is_told() {
    let fixture = Fixture::ordinary_user();
    fixture.write("README.md", "1");
    for name in ["edited", "kept", "copy/a", "via", "other/x"] {
        let path = fixture.path("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fixture.give_away(path.parent().unwrap());
        fs::write(&path, "1").unwrap();
        fixture.give_away(&path);
    }
    symlink(fixture.path("home/via"), fixture.project().join("link")).unwrap();
    let home = |name: &str| fixture.path("home").join(name);
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("work outside");
    agent.call("Edit", json!({"file_path": home("edited")}), || {
        fs::write(home("edited"), "22").unwrap();
    });
    // One that failed, one that reads, and one that changes nothing leave no step.
    agent.call("Edit", json!({"file_path": home("kept")}), || {});
    shell_in(&agent, "project", "cat ~/kept /etc/passwd >/dev/null");
    shell_in(&agent, "project", "rm -rf \"$HOME/copy\"");
    agent.call("Write", json!({"file_path": fixture.project().join("link")}), || {
        fs::write(home("via"), "22").unwrap();
    });
    shell_in(&agent, "home/other", "echo 2 > x");
    shell_in(&agent, "home/other", "true");
    shell_in(&agent, "project", "echo 2 > README.md");
    agent.turn_end();
    let told = [
        said(1, "home/edited", "changed"),
        said(2, "home/copy", "gone"),
        said(3, "home/via", "changed"),
        said(4, "home/other/x", "changed"),
        said(4, "home/other", "entered"),
    ];
    assert_eq!(unrecorded(&fixture), told);
    let id = fixture.latest();
    for arguments in [&["steps"][..], &["status"], &["log"], &["show"]] {
        let told = fixture.nono(arguments).success().stdout;
        let line = format!("outside of the project, not recorded: {}", home("copy").display());
        assert!(told.contains(&format!("{line} (gone)")), "{arguments:?}: {told}");
    }
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert_eq!(status["session"]["unrecorded"][0]["step"], 1, "{status}");
    let log = fixture.nono(&["log", "--json"]).success().json();
    assert_eq!(log[0]["unrecorded"][1]["outside"][0]["what"], "gone", "{log}");
    let journal = fixture.nono(&["agent", "status"]).stdout;
    assert!(journal.contains("outside of the project, not recorded: "), "{journal}");
    // An undo says that it does not bring it back.
    let undone = fixture.nono(&["undo", "--step", "2", "--yes"]);
    undone.fails(1, "outside of the project, not recorded: ");
    fixture.nono(&["rollback", "verify", &id]).success();
}

#[test]
fn an_agent_session_that_changed_nothing_else_is_named_by_status_and_log() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fs::write(fixture.path("home/x"), "1").unwrap();
    let agent = Agent::new(&fixture, "gemini");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.call("write_file", json!({"file_path": fixture.path("home/x")}), || {
        fs::write(fixture.path("home/x"), "22").unwrap();
    });
    agent.end();
    for command in ["status", "log"] {
        let told = fixture.nono(&[command]).success().stdout;
        assert!(told.contains("outside of the project, not recorded: "), "{command}: {told}");
    }
}

#[test]
fn hostile_paths_in_events_are_harmless() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let fifo = fixture.path("home/fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    symlink("loop", fixture.path("home/loop")).unwrap();
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    let long = "/x".repeat(5000);
    for path in [
        json!(fifo),
        json!(fixture.path("home/loop/x")),
        json!("/dev/zero"),
        json!("/proc/self/mem"),
        json!("nul\u{0}/x"),
        json!(long),
        json!(["..", 1, null, {}]),
        json!({"a": "b"}),
        json!("../../../../../../../../../etc/passwd"),
        json!("/"),
    ] {
        agent.call("Write", json!({"file_path": path, "command": path}), || {});
    }
    let words = "/a".repeat(1 << 19);
    agent.call("Bash", json!({"command": format!("{words} {}", "~/x ".repeat(1 << 16))}), || {
        fixture.write("a", "2");
    });
    let evil = fixture.path("home/\u{1b}[2J\u{202e}\nx");
    agent.call("Write", json!({"file_path": evil}), || fs::write(&evil, "1").unwrap());
    assert_eq!(unrecorded(&fixture).len(), 1);
    for command in ["steps", "status", "log"] {
        let told = fixture.nono(&[command]).success();
        assert!(!told.stdout.contains(['\u{1b}', '\u{202e}']), "{:?}", told.stdout);
    }
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn a_step_that_removes_a_left_out_file_is_listed() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "*.iso\nout/\n");
    fixture.write("big.iso", vec![1; 3 * MEBIBYTE]);
    fixture.write("out/large", vec![1; 65 * MEBIBYTE]);
    fixture.write("a", "1");
    let agent = Agent::new(&fixture, "codex");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("clean up");
    // A change in a left-out directory is no step: each build would be one.
    agent.shell("echo 2 > out/new");
    agent.shell("rm big.iso");
    agent.shell("rm -r out; echo 2 > a");
    agent.shell("true");
    assert_eq!(
        unrecorded(&fixture),
        [said(1, "project/big.iso", "lost"), said(2, "project/out", "lost")]
    );
    for command in ["steps", "status", "log"] {
        let told = fixture.nono(&[command]).success().stdout;
        assert!(told.contains("not recorded and gone: big.iso"), "{command}: {told}");
    }
    fixture.nono(&["undo", "--step", "1", "--yes"]).fails(1, "not recorded and gone: big.iso");
    let undone = fixture.nono(&["undo", "--step", "2", "--yes"]).success();
    assert!(undone.stderr.contains("not recorded and gone: out"), "{}", undone.stderr);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn a_session_with_databases_that_are_not_recorded_says_so_once() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "*.db\n*.sqlite\n*.iso\n");
    for name in ["big.db", "sub/app.sqlite", "other.iso"] {
        fixture.write(name, "");
        let file = fs::File::options().write(true).open(fixture.project().join(name)).unwrap();
        file.set_len(17 * MEBIBYTE as u64).unwrap();
    }
    fixture.write("small.db", "1");
    let agent = Agent::new(&fixture, "claude-code");
    let start = |name: &str, more: &Value| {
        let hook = agent.start_hook(name, more, &["--deadline-ms", "60000"]);
        crate::fixture::finished(hook.wait_with_output().unwrap())
    };
    let told = start("SessionStart", &json!({"source": "startup"})).success();
    assert_eq!(told.stderr, "");
    let notice = told.json();
    let notice = notice["systemMessage"].as_str().unwrap();
    assert!(notice.contains("big.db (") && notice.contains("sub/app.sqlite ("), "{notice}");
    assert!(!notice.contains("small.db") && !notice.contains("iso ("), "{notice}");
    quiet(agent.start_hook(
        "SessionStart",
        &json!({"source": "resume"}),
        &["--deadline-ms", "60000"],
    ));
    agent.prompt("more");
    let journal = fixture.nono(&["agent", "status"]).stdout;
    assert!(journal.contains("big.db"), "{journal}");
    fixture.nono(&["doctor"]);
}

#[test]
fn precious_ignored_files_are_recorded_up_to_a_larger_limit_and_cost_only_their_changes() {
    let fixture = Fixture::new();
    fixture.write(".gitignore", "*\n!.gitignore\n");
    let precious = ["a.db", "b.sqlite", "c.sqlite3", ".env.dump", "n.ipynb"];
    for (seed, name) in precious.iter().enumerate() {
        fixture.write(name, crate::fixture::noise(2 * MEBIBYTE, seed as u64));
        fixture.write(&format!("large/{name}"), vec![1; 16 * MEBIBYTE + 1]);
    }
    fixture.write("plain.bin", vec![1; MEBIBYTE + 1]);
    fixture.write("full.db", crate::fixture::noise(16 * MEBIBYTE, 99));
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    let left: Vec<&str> = taken["not_captured"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| Path::new(it["path"].as_str().unwrap()))
        .map(|path| path.strip_prefix(fixture.project()).unwrap().to_str().unwrap())
        .collect();
    // The directory is larger than 64 MiB.
    assert_eq!(left, ["large", "plain.bin"]);
    // The work of a further snapshot: counted, and not timed.
    let id = fixture.latest();
    let again = || {
        crate::fixture::settle();
        fixture.nono(&["snapshot", "--session", &id, "--json"]).success().json();
        let manifest = fs::read_dir(fixture.session().join("snapshots")).unwrap();
        let newest = manifest.map(|it| it.unwrap().path()).max().unwrap();
        let text = fs::read_to_string(newest.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_str(&text).unwrap();
        ["files_read", "bytes_written"].map(|field| manifest[field].as_u64().unwrap())
    };
    again();
    let [read, written] = again();
    assert_eq!((read, written), (0, 0), "an unchanged file is not opened");
    let path = fixture.project().join("full.db");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8 * MEBIBYTE] ^= 1;
    fs::write(&path, bytes).unwrap();
    let [read, written] = again();
    assert_eq!(read, 1);
    assert!(written < MEBIBYTE as u64, "{written} bytes for one changed byte");
    fs::remove_file(&path).unwrap();
    fixture.nono(&["rollback", "restore", &format!("{id}/0"), "--force"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 16 * MEBIBYTE as u64);
}
