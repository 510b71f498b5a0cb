//! The state of an agent: recorded without credentials, and brought back.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixture::{Fixture, finished};

/// Files of each client as they lie in a home directory: the state, and what must never be
/// recorded.
const CLIENTS: &[(&str, &[&str], &[&str])] = &[
    (
        "claude-code",
        &[
            ".claude/CLAUDE.md",
            ".claude/settings.json",
            ".claude/commands/review.md",
            ".claude/agents/tester.md",
            ".claude/skills/pdf/SKILL.md",
            ".claude/plans/next.md",
            ".claude/plugins/installed_plugins.json",
            ".claude/plugins/mine/plugin.json",
            ".claude/projects/-home-ada-shop/memory/MEMORY.md",
        ],
        &[
            ".claude/.credentials.json",
            ".claude.json",
            ".claude/history.jsonl",
            ".claude/todos/1.json",
            ".claude/shell-snapshots/1.sh",
            ".claude/projects/-home-ada-shop/transcript.jsonl",
            ".claude/plugins/cache/market/x/index.js",
            ".claude/plugins/marketplaces/market/README.md",
            ".claude/plugins/mine/.env",
            ".claude/skills/pdf/.env",
            ".claude/skills/pdf/node_modules/a/index.js",
        ],
    ),
    (
        "codex",
        &[
            ".codex/AGENTS.md",
            ".codex/config.toml",
            ".codex/hooks.json",
            ".codex/plugins/mine/plugin.toml",
            ".codex/prompts/fix.md",
            ".codex/skills/x/SKILL.md",
        ],
        &[
            ".codex/auth.json",
            ".codex/history.jsonl",
            ".codex/sessions/1.jsonl",
            ".codex/log/x.log",
            ".codex/plugins/cache/x",
        ],
    ),
    (
        "gemini",
        &[
            ".gemini/GEMINI.md",
            ".gemini/settings.json",
            ".gemini/commands/a.toml",
            ".gemini/extensions/e/gemini-extension.json",
        ],
        &[
            ".gemini/oauth_creds.json",
            ".gemini/google_accounts.json",
            ".gemini/mcp-oauth-tokens.json",
            ".gemini/tmp/x",
            ".gemini/extensions/e/auth.json",
        ],
    ),
    (
        "opencode",
        &[
            ".config/opencode/AGENTS.md",
            ".config/opencode/opencode.json",
            ".config/opencode/agent/a.md",
            ".config/opencode/command/c.md",
            ".config/opencode/skills/s/SKILL.md",
        ],
        &[
            ".local/share/opencode/auth.json",
            ".local/share/opencode/log/x.log",
            ".config/opencode/node_modules/p/index.js",
        ],
    ),
];

fn home(fixture: &Fixture) -> PathBuf {
    fixture.path("home")
}

fn put(home: &Path, name: &str) {
    let path = home.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("contents of {name}\n")).unwrap();
}

fn with_client(client: usize) -> Fixture {
    let fixture = Fixture::new();
    let (_, state, secret) = CLIENTS[client];
    for name in state.iter().chain(secret) {
        put(&home(&fixture), name);
    }
    fixture
}

fn recorded(fixture: &Fixture, id: &str) -> Vec<String> {
    let copy = fixture.path(&format!("copy-{id}"));
    fixture.nono(&["rollback", "restore", id, "--to", copy.to_str().unwrap()]).success();
    let mut found = Vec::new();
    let mut pending = vec![copy.clone()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                // Below the copy, whole paths stand.
                let full = Path::new("/").join(path.strip_prefix(&copy).unwrap());
                found.push(full.strip_prefix(home(fixture)).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn snapshot(fixture: &Fixture, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["snapshot", "--agent"], arguments, &["--json"]].concat();
    let done = fixture.nono(&arguments).success();
    assert!(done.stderr.contains("Platform detected: "), "{}", done.stderr);
    done.json().as_array().unwrap().clone()
}

#[test]
fn the_state_of_each_client_is_recorded_and_its_credentials_are_named_and_left_out() {
    for (client, (name, state, secret)) in CLIENTS.iter().enumerate() {
        let fixture = with_client(client);
        let reports = snapshot(&fixture, &[]);
        assert_eq!(reports.len(), 1, "{name}: {reports:?}");
        assert_eq!(reports[0]["agent"], *name);
        let mut expected: Vec<&str> = state.to_vec();
        expected.sort_unstable();
        assert_eq!(recorded(&fixture, reports[0]["session_id"].as_str().unwrap()), expected);
        let left_out: Vec<PathBuf> = reports[0]["left_out"]
            .as_array()
            .unwrap()
            .iter()
            .map(|path| path.as_str().unwrap().into())
            .collect();
        for name in *secret {
            let path = home(&fixture).join(name);
            let is_named = left_out.iter().any(|left| path.starts_with(left));
            assert!(is_named, "{name} is not in {left_out:?}");
        }
    }
}

#[test]
fn the_state_is_where_a_variable_of_the_client_says() {
    for (client, variable, usual, secret) in [
        (0, "CLAUDE_CONFIG_DIR", ".claude", ".claude.json"),
        (1, "CODEX_HOME", ".codex", "auth.json"),
        (2, "GEMINI_CLI_HOME", "", ".gemini/oauth_creds.json"),
        (3, "XDG_CONFIG_HOME", ".config", "opencode/node_modules/p/index.js"),
    ] {
        let fixture = with_client(client);
        let (name, state, _) = CLIENTS[client];
        // One that is not in use has other files.
        put(&home(&fixture), &format!("moved/{secret}"));
        let moved: Vec<String> = state
            .iter()
            .map(|path| {
                format!("moved/{}", path.strip_prefix(usual).unwrap().trim_start_matches('/'))
            })
            .collect();
        for path in &moved {
            put(&home(&fixture), path);
        }
        let run = |value: &str| {
            let mut command = fixture.command(&["snapshot", "--agent", name, "--json"]);
            finished(command.env(variable, value).output().unwrap())
        };
        let report = run(home(&fixture).join("moved").to_str().unwrap()).success().json();
        let id = report[0]["session_id"].as_str().unwrap();
        let mut expected = moved.clone();
        expected.sort();
        assert_eq!(recorded(&fixture, id), expected);
        run("moved").fails(1, "relative");
    }
}

#[test]
fn a_restore_brings_the_state_back_also_where_nothing_of_it_is_left() {
    let fixture = with_client(0);
    let id = snapshot(&fixture, &["claude-code"])[0]["session_id"].as_str().unwrap().to_owned();
    fs::write(home(&fixture).join(".claude/CLAUDE.md"), "overwritten\n").unwrap();
    fs::remove_file(home(&fixture).join(".claude/skills/pdf/SKILL.md")).unwrap();
    let read = |name: &str| fs::read_to_string(home(&fixture).join(name)).unwrap();
    fixture.nono(&["rollback", "restore", &id]).success();
    assert_eq!(read(".claude/CLAUDE.md"), "contents of .claude/CLAUDE.md\n");
    assert_eq!(read(".claude/skills/pdf/SKILL.md"), "contents of .claude/skills/pdf/SKILL.md\n");
    assert_eq!(read(".claude/.credentials.json"), "contents of .claude/.credentials.json\n");

    // As on a new machine.
    fs::remove_dir_all(home(&fixture).join(".claude")).unwrap();
    fixture.nono(&["rollback", "restore", &id]);
    for name in CLIENTS[0].1 {
        assert_eq!(read(name), format!("contents of {name}\n"));
    }
}

#[test]
fn an_agents_state_is_meant_by_its_id_and_never_by_a_place() {
    let fixture = with_client(1);
    fixture.write("a", "1\n");
    fixture.record("echo 2 > a").success();
    let run = fixture.latest();
    let agent = snapshot(&fixture, &[])[0]["session_id"].as_str().unwrap().to_owned();
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert!(status.to_string().contains(&run), "{status}");
    // From the home directory, the project is still the only one below.
    let mut command = fixture.command(&["rollback", "show", "latest", "--json"]);
    let shown = command.current_dir(fixture.path("")).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&run) && !shown.contains(&agent), "{shown}");
    let mut command = fixture.command(&["undo", "--yes"]);
    let undone = command.current_dir(home(&fixture).join(".codex")).output().unwrap();
    assert_eq!(undone.status.code(), Some(1));
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1\n");
}

#[test]
fn several_agents_get_a_session_each_and_a_name_chooses_one() {
    let fixture = with_client(1);
    for name in CLIENTS[2].1 {
        put(&home(&fixture), name);
    }
    let names = |reports: &[Value]| -> Vec<String> {
        reports.iter().map(|report| report["agent"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&snapshot(&fixture, &[])), ["codex", "gemini"]);
    assert_eq!(names(&snapshot(&fixture, &["gemini"])), ["gemini"]);
    fixture.nono(&["snapshot", "--agent", "claude-code"]).fails(1, "no state of claude-code");
    fixture.nono(&["snapshot", "--agent", "cloude"]).fails(2, "cloude");
    // Credentials are left out whatever is asked for.
    fixture.nono(&["snapshot", "--agent", "--rollback-all"]).fails(2, "cannot be used with");
}

#[test]
fn a_symlink_of_a_dotfile_manager_stands_for_its_target() {
    let fixture = Fixture::new();
    put(&home(&fixture), "dotfiles/CLAUDE.md");
    fs::create_dir(home(&fixture).join(".claude")).unwrap();
    symlink("../dotfiles/CLAUDE.md", home(&fixture).join(".claude/CLAUDE.md")).unwrap();
    // A path that cannot be recorded stops nothing, and is named.
    symlink("nowhere", home(&fixture).join(".claude/commands")).unwrap();
    let pipe = home(&fixture).join(".claude/agents");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    let told = fixture.nono(&["snapshot", "--agent"]).success();
    for what in ["the symlink", "a symlink that leads nowhere", "neither a directory nor"] {
        assert!(told.says(what), "{}", told.stderr);
    }
    let id = snapshot(&fixture, &[])[0]["session_id"].as_str().unwrap().to_owned();
    fs::write(home(&fixture).join("dotfiles/CLAUDE.md"), "overwritten\n").unwrap();
    fixture.nono(&["rollback", "restore", &id]).success();
    assert!(home(&fixture).join(".claude/CLAUDE.md").is_symlink());
    let text = fs::read_to_string(home(&fixture).join(".claude/CLAUDE.md")).unwrap();
    assert_eq!(text, "contents of dotfiles/CLAUDE.md\n");
}

#[test]
fn a_machine_without_agents_says_so() {
    let fixture = Fixture::new();
    fixture.nono(&["snapshot", "--agent"]).fails(1, "no agent is detected here");
}

/// Runs the program with another home directory, and the store of the fixture.
fn at_home(fixture: &Fixture, home: &str, arguments: &[&str]) -> crate::fixture::Finished {
    let store = fixture.store();
    let arguments = [&["--root", store.to_str().unwrap()], arguments].concat();
    finished(fixture.command(&arguments).env("HOME", fixture.path(home)).output().unwrap())
}

#[test]
fn a_restore_in_another_home_brings_the_state_there_and_says_so_before() {
    for (client, (name, state, _)) in CLIENTS.iter().enumerate() {
        let fixture = with_client(client);
        let id = snapshot(&fixture, &[name])[0]["session_id"].as_str().unwrap().to_owned();
        fs::create_dir(fixture.path("other")).unwrap();
        let restore = |flags: &[&str]| {
            let arguments = [&["rollback", "restore", &id], flags].concat();
            at_home(&fixture, "other", &arguments)
        };
        let planned = restore(&["--dry-run", "--json"]).success().json();
        assert_eq!(planned["dry_run"], true);
        assert!(fs::read_dir(fixture.path("other")).unwrap().next().is_none(), "{name}");
        let said = restore(&["--dry-run"]).success();
        assert!(said.stderr.contains("would be restored in"), "{}", said.stderr);
        let done = restore(&["--json"]).success().json();
        let created = |report: &Value| -> Vec<PathBuf> {
            let created = report["created"].as_array().unwrap().iter();
            created.map(|path| path.as_str().unwrap().into()).collect()
        };
        let mut expected: Vec<_> = state.iter().map(|it| fixture.path("other").join(it)).collect();
        expected.sort();
        assert_eq!(created(&planned), expected, "{name}");
        assert_eq!(created(&done), expected, "{name}");
        for path in *state {
            let text = fs::read_to_string(fixture.path("other").join(path)).unwrap();
            assert_eq!(text, format!("contents of {path}\n"));
        }
        // The first home is as it was, and a second restore finds all in its place.
        let again = restore(&["--json"]).success().json();
        assert_eq!(again["unchanged_count"], state.len(), "{again}");
        assert!(created(&again).is_empty());
    }
}

#[test]
fn what_stands_in_another_home_is_overwritten_on_demand_alone_and_comes_back() {
    let fixture = with_client(0);
    let id = snapshot(&fixture, &["claude-code"])[0]["session_id"].as_str().unwrap().to_owned();
    let own = fixture.path("other/.claude/CLAUDE.md");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, "my own\n").unwrap();
    let restore = |flags: &[&str]| {
        let arguments = [&["rollback", "restore", &id], flags].concat();
        at_home(&fixture, "other", &arguments)
    };
    let settings = fixture.path("other/.claude/settings.json");
    for flags in [&[][..], &["--dry-run"]] {
        restore(flags).fails(1, "--keep-newer");
        assert!(!settings.exists());
    }
    restore(&["--keep-newer"]).success();
    assert!(settings.exists());
    assert_eq!(fs::read_to_string(&own).unwrap(), "my own\n");
    let done = restore(&["--force", "--json"]).success().json();
    assert_eq!(fs::read_to_string(&own).unwrap(), "contents of .claude/CLAUDE.md\n");
    assert_eq!(done["overwritten"][0], own.to_str().unwrap());
    let before = done["state_before"].as_str().unwrap();
    at_home(&fixture, "other", &["rollback", "restore", before, "--force"]).success();
    assert_eq!(fs::read_to_string(&own).unwrap(), "my own\n");
    at_home(&fixture, "other", &["rollback", "verify", "--all"]).success();
}

#[test]
fn an_archive_takes_the_state_to_the_home_of_another_machine() {
    let fixture = with_client(1);
    let id = snapshot(&fixture, &["codex"])[0]["session_id"].as_str().unwrap().to_owned();
    let file = fixture.path("state.archive");
    let file = file.to_str().unwrap();
    fixture.nono(&["archive", "create", &id, "-o", file]).success();
    fs::create_dir(fixture.path("other")).unwrap();
    // Nothing of the first home is there.
    fs::rename(home(&fixture), fixture.path("away")).unwrap();
    let run = |arguments: &[&str]| {
        finished(fixture.command(arguments).env("HOME", fixture.path("other")).output().unwrap())
    };
    run(&["archive", "import", file]).success();
    run(&["rollback", "restore", &id]).success();
    for path in CLIENTS[1].1 {
        let text = fs::read_to_string(fixture.path("other").join(path)).unwrap();
        assert_eq!(text, format!("contents of {path}\n"));
    }
    assert!(!home(&fixture).exists());
}

#[test]
fn a_dry_run_says_what_the_restore_does_also_where_directories_are_missing() {
    let fixture = with_client(0);
    let id = snapshot(&fixture, &["claude-code"])[0]["session_id"].as_str().unwrap().to_owned();
    fs::remove_dir_all(home(&fixture).join(".claude")).unwrap();
    let restore = ["rollback", "restore", &id, "--json"];
    let planned = fixture.nono(&[&restore[..], &["--dry-run"]].concat());
    assert!(!home(&fixture).join(".claude").exists(), "a dry run makes nothing");
    let done = fixture.nono(&restore);
    assert_eq!(planned.code, done.code, "{}", planned.stderr);
    assert_eq!(planned.json()["changes"], done.json()["changes"]);
}
