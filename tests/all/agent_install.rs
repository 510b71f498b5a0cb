//! `nono agent`: hooks in the configuration of clients, put in and taken out.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished};
use crate::hooks::{quiet, start};

const CLAUDE: &str = ".claude/settings.json";

/// A file of a user's home directory.
fn home_file(fixture: &Fixture, name: &str, text: &str) -> PathBuf {
    let path = fixture.path("home").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// Everything below the home directory but the store, with contents.
fn home(fixture: &Fixture) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut left = vec![fixture.path("home")];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true if entry.ends_with(".nono") => {}
                true => left.push(entry),
                false => files.push((entry.clone(), fs::read(&entry).unwrap())),
            }
        }
    }
    files.sort();
    files
}

#[test]
fn installing_twice_changes_nothing_and_uninstalling_gives_back_every_byte() {
    let odd = "{\n   \"model\":\"opus\",\n\t\"hooks\" : { \"Stop\": [ {\"hooks\":[{\"type\":\"command\",\"command\":\"say done\"}]} ] }\n\n}";
    let toml = "# mine\nmodel = \"gpt-5.5\"   # best\n\n[mcp_servers.other]\ncommand = \"x\"\n";
    let commented = "{\n  // my theme\n  \"theme\": \"dark\",\n}\n";
    for mcp in [&[][..], &["--mcp"]] {
        let fixture = Fixture::new();
        home_file(&fixture, CLAUDE, odd);
        home_file(&fixture, ".claude.json", "{\"numStartups\": 3}");
        home_file(&fixture, ".codex/config.toml", toml);
        home_file(&fixture, ".gemini/settings.json", "");
        home_file(&fixture, ".config/opencode/opencode.jsonc", commented);
        fs::set_permissions(fixture.path("home/.claude.json"), fs::Permissions::from_mode(0o600))
            .unwrap();
        let before = home(&fixture);
        let all = ["claude-code", "codex", "gemini", "opencode"];
        let run = |verb: &str, flags: &[&str]| {
            let mcp = if verb == "install" { mcp } else { &[] };
            fixture.nono(&[&["agent", verb], &all[..], mcp, flags].concat()).success()
        };
        let dry = run("install", &["--dry-run"]);
        assert!(dry.stderr.contains("would be"), "{}", dry.stderr);
        assert_eq!(home(&fixture), before);
        run("install", &[]);
        let installed = home(&fixture);
        assert_ne!(installed, before);
        let again = run("install", &[]);
        assert!(again.stderr.contains("nothing to change"), "{}", again.stderr);
        assert_eq!(home(&fixture), installed);
        // The user's own hooks are there still, and so are the events of all clients.
        let settings = fs::read_to_string(fixture.path("home").join(CLAUDE)).unwrap();
        assert!(settings.contains("say done"), "{settings}");
        let parsed: Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(parsed["hooks"]["Stop"].as_array().unwrap().len(), 2);
        assert_eq!(parsed["hooks"]["PreToolUse"].as_array().unwrap().len(), 1);
        let theme =
            fs::read_to_string(fixture.path("home/.config/opencode/opencode.jsonc")).unwrap();
        assert!(theme.contains("// my theme"), "{theme}");
        assert_eq!(theme.contains("\"nono\""), !mcp.is_empty());
        let codex = fs::read_to_string(fixture.path("home/.codex/config.toml")).unwrap();
        assert_eq!(
            codex.contains("env_vars = [\"NONO_SOCKET\", \"NONO_SESSION\"]"),
            !mcp.is_empty()
        );
        let status = fixture.nono(&["agent", "status", "--json"]).success().json();
        for agent in status["agents"].as_array().unwrap() {
            assert_eq!(agent["files"][0]["state"], "installed", "{agent}");
        }
        let mode = fs::metadata(fixture.path("home/.claude.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        run("uninstall", &[]);
        assert_eq!(home(&fixture), before);
    }
}

#[test]
fn without_a_name_the_agents_that_are_used_here_get_hooks() {
    let fixture = Fixture::new();
    // No client of this machine is found.
    let run = |arguments: &[&str]| nono_with(&fixture, "PATH", "/nowhere", arguments);
    run(&["agent", "install"]).fails(1, "no coding agent was found here");
    fs::create_dir_all(fixture.path("home/.codex")).unwrap();
    fs::create_dir_all(fixture.path("home/.config/opencode")).unwrap();
    run(&["agent", "install"]).success();
    let made: Vec<_> = home(&fixture).into_iter().map(|(path, _)| path).collect();
    let expected = [".codex/hooks.json", ".config/opencode/plugin/nono.js"];
    assert_eq!(made, expected.map(|name| fixture.path("home").join(name)));
    run(&["agent", "uninstall"]).success();
    assert_eq!(home(&fixture), []);
}

#[test]
fn uninstalling_from_a_project_leaves_no_empty_directories() {
    let fixture = Fixture::new();
    let agents = ["claude-code", "codex", "gemini", "opencode"];
    let run = |verb: &str| fixture.nono(&[&["agent", verb, "--project"], &agents[..]].concat());
    run("install").success();
    assert!(fixture.project().join(".opencode/plugin/nono.js").exists());
    run("uninstall").success();
    assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 0);
    // A directory in which something else lies stays.
    run("install").success();
    fixture.write(".claude/mine.md", "1");
    fs::create_dir(fixture.project().join(".gemini/empty")).unwrap();
    run("uninstall").success();
    assert!(fixture.project().join(".claude/mine.md").exists());
    assert!(fixture.project().join(".gemini/empty").exists());
    assert!(!fixture.project().join(".opencode").exists());
}

#[test]
fn an_agent_is_meant_by_each_of_its_names() {
    for name in ["claude-code", "claude", "Claude", "claude_code"] {
        let fixture = Fixture::new();
        fixture.nono(&["agent", "install", name]).success();
        let made: Vec<_> = home(&fixture).into_iter().map(|(path, _)| path).collect();
        assert_eq!(made, [fixture.path("home").join(CLAUDE)], "{name}");
        fixture.nono(&["agent", "uninstall", name]).success();
    }
    let fixture = Fixture::new();
    fixture.nono(&["agent", "install", "clod"]).fails(2, "claude-code");
}

/// nono with a variable of a client.
fn nono_with(fixture: &Fixture, variable: &str, value: &str, arguments: &[&str]) -> Finished {
    finished(fixture.command(arguments).env(variable, value).output().unwrap())
}

#[test]
fn the_variables_of_the_clients_are_followed() {
    for (client, variable, hooks, servers) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", "settings.json", ".claude.json"),
        ("codex", "CODEX_HOME", "hooks.json", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json", ".gemini/settings.json"),
        ("opencode", "XDG_CONFIG_HOME", "opencode/plugin/nono.js", "opencode/opencode.json"),
    ] {
        let fixture = Fixture::new();
        let other = fixture.path("home/other/place");
        let run =
            |arguments: &[&str]| nono_with(&fixture, variable, other.to_str().unwrap(), arguments);
        if client == "codex" {
            run(&["agent", "install", client]).fails(1, "codex does not start without it");
            fs::create_dir_all(&other).unwrap();
        }
        run(&["agent", "install", client, "--mcp", "--dry-run"]).success();
        assert_eq!(home(&fixture), []);
        run(&["agent", "install", client, "--mcp"]).success();
        let mut made: Vec<_> = home(&fixture).into_iter().map(|(path, _)| path).collect();
        let mut expected = vec![other.join(hooks), other.join(servers)];
        expected.dedup();
        made.sort();
        expected.sort();
        assert_eq!(made, expected);
        let status = run(&["agent", "status", "--json"]).success().json();
        let agents = status["agents"].as_array().unwrap();
        let agent = agents.iter().find(|agent| agent["client"] == client).unwrap();
        assert_eq!(agent["present"], true);
        assert_eq!(agent["files"][0]["path"], expected_path(&other.join(hooks)), "{agent}");
        assert_eq!(agent["files"][0]["state"], "installed", "{agent}");
        assert!(run(&["doctor"]).stdout.contains(&format!("{client} with hooks")));
        // Without the variable, these files are no client's.
        let elsewhere = fixture.nono(&["agent", "uninstall", client]).success();
        assert!(elsewhere.stderr.contains("nothing to change"), "{}", elsewhere.stderr);
        run(&["agent", "uninstall", client]).success();
        assert_eq!(home(&fixture), []);
    }
}

fn expected_path(path: &std::path::Path) -> Value {
    path.to_str().unwrap().into()
}

#[test]
fn a_variable_that_names_no_directory_is_refused_and_told() {
    let fixture = Fixture::new();
    let program = fixture.path("bin/codex");
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for (client, variable, value, why) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", "", "unset it"),
        ("claude-code", "CLAUDE_CONFIG_DIR", "~/other", "relative"),
        ("codex", "CODEX_HOME", "other", "relative"),
        ("gemini", "GEMINI_CLI_HOME", "./other", "relative"),
        ("opencode", "XDG_CONFIG_HOME", "other", "relative"),
    ] {
        nono_with(&fixture, variable, value, &["agent", "install", client]).fails(1, why);
        nono_with(&fixture, variable, value, &["agent", "uninstall", client]).fails(1, variable);
        // The files of a project do not depend on it.
        let project = ["agent", "install", client, "--project", "--dry-run"];
        nono_with(&fixture, variable, value, &project).success();
    }
    for client in ["codex", "gemini", "opencode"] {
        let variable = match client {
            "codex" => "CODEX_HOME",
            "gemini" => "GEMINI_CLI_HOME",
            _ => "XDG_CONFIG_HOME",
        };
        nono_with(&fixture, variable, "", &["agent", "install", client]).success();
        assert!(home(&fixture).iter().any(|(path, _)| path.to_str().unwrap().contains(client)));
    }
    let path = std::env::join_paths([program.parent().unwrap(), "/usr/bin".as_ref()]).unwrap();
    let told = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        finished(command.env("PATH", &path).env("CODEX_HOME", "/nowhere").output().unwrap())
    };
    let status = told(&["agent", "status"]);
    assert_eq!(status.code, 1);
    assert!(status.stdout.contains("CODEX_HOME"), "{}", status.stdout);
    assert!(told(&["doctor"]).stdout.contains("CODEX_HOME"));
}

#[test]
fn the_server_goes_into_the_file_that_claude_code_reads_and_leaves_the_other_one_too() {
    let fixture = Fixture::new();
    let old = home_file(&fixture, ".claude.json", "{}");
    fixture.nono(&["agent", "install", "claude-code", "--mcp"]).success();
    assert!(fs::read_to_string(&old).unwrap().contains("\"nono\""));
    // Where this file is, the client reads no other.
    let new = home_file(&fixture, ".claude/.config.json", "{\"numStartups\": 3}");
    fixture.nono(&["agent", "install", "claude-code", "--mcp"]).success();
    assert!(fs::read_to_string(&new).unwrap().contains("\"nono\""));
    fixture.nono(&["agent", "uninstall", "claude-code"]).success();
    assert_eq!(fs::read_to_string(&old).unwrap(), "{}");
    assert_eq!(fs::read_to_string(&new).unwrap(), "{\"numStartups\": 3}");
}

#[test]
fn what_somebody_wrote_since_stays_and_exactly_ours_goes() {
    let fixture = Fixture::new();
    let path = home_file(&fixture, CLAUDE, "{\n  \"model\": \"opus\"\n}\n");
    fixture.nono(&["agent", "install", "claude-code", "--mcp"]).success();
    let text = fs::read_to_string(&path).unwrap().replace("opus", "sonnet");
    fs::write(&path, text).unwrap();
    fixture.nono(&["agent", "uninstall", "claude-code"]).success();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\n  \"model\": \"sonnet\"\n}\n");
    let names: Vec<_> = home(&fixture).into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, [path]);
}

#[test]
fn the_hooks_of_another_program_of_ours_are_replaced() {
    let fixture = Fixture::new();
    let old = r#"{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "/old/nono hook claude-code", "timeout": 10}]}]}}"#;
    let path = home_file(&fixture, CLAUDE, old);
    let status = fixture.nono(&["agent", "status", "--json"]);
    assert_eq!(status.code, 1);
    assert_eq!(status.json()["agents"][0]["files"][0]["state"], "outdated");
    let doctor = fixture.nono(&["doctor"]);
    assert!(doctor.stdout.contains("nono agent install claude-code"), "{}", doctor.stdout);
    fixture.nono(&["agent", "install", "claude-code"]).success();
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("/old/nono"), "{text}");
    fixture.nono(&["agent", "status"]).success();
}

#[test]
fn the_hook_that_is_written_is_one_that_takes_steps() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["agent", "install", "claude-code", "--project"]).success();
    let path = fixture.project().join(".claude/settings.local.json");
    let settings: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let command = settings["hooks"]["SessionStart"][0]["hooks"][0]["command"].as_str().unwrap();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", command]).current_dir(fixture.project()).env("HOME", fixture.path("home"));
    let event = format!(
        r#"{{"session_id":"s","hook_event_name":"SessionStart","cwd":{:?}}}"#,
        fixture.project()
    );
    quiet(start(shell, &event));
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["agent"]["client"], "claude-code");
}

#[test]
fn a_symlink_is_not_followed_and_what_is_no_json_is_not_touched() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.project().join(".claude")).unwrap();
    let target = fixture.path("target.json");
    fs::write(&target, "{}").unwrap();
    symlink(&target, fixture.project().join(".claude/settings.local.json")).unwrap();
    fixture.nono(&["agent", "install", "claude-code", "--project"]).fails(1, "symlink");
    fs::remove_dir_all(fixture.project().join(".claude")).unwrap();
    symlink(fixture.path("home"), fixture.project().join(".claude")).unwrap();
    fixture.nono(&["agent", "install", "claude-code", "--project"]).fails(1, "symlink");
    assert_eq!(fs::read_to_string(&target).unwrap(), "{}");
    let broken = home_file(&fixture, CLAUDE, "{\n  \"a\": 1,\n  oops\n}\n");
    let gemini = home_file(&fixture, ".gemini/settings.json", "{}");
    fixture.nono(&["agent", "install", "gemini", "claude-code"]).fails(1, "line 3 is no JSON");
    assert_eq!(fs::read_to_string(broken).unwrap(), "{\n  \"a\": 1,\n  oops\n}\n");
    assert_eq!(fs::read_to_string(gemini).unwrap(), "{}");
}

#[test]
fn a_dry_run_shows_what_would_be_written_as_a_patch_that_makes_it() {
    let fixture = Fixture::new();
    home_file(&fixture, CLAUDE, "{\n  \"model\": \"opus\"\n}\n");
    let dry = fixture.nono(&["agent", "install", "claude-code", "gemini", "--dry-run"]).success();
    assert!(dry.stdout.contains("-  \"model\": \"opus\""), "{}", dry.stdout);
    assert!(
        dry.stdout.contains("+++ b/") && dry.stdout.contains("--- /dev/null"),
        "{}",
        dry.stdout
    );
    let patch = fixture.path("patch");
    fs::write(&patch, &dry.stdout).unwrap();
    let mut apply = Command::new("patch");
    apply.args(["-s", "-p1", "-d", "/", "-i"]).arg(&patch);
    assert!(apply.status().unwrap().success());
    let by_patch = home(&fixture);
    fixture.nono(&["agent", "install", "claude-code", "gemini"]).fails(0, "nothing to change");
    assert_eq!(home(&fixture), by_patch);
    let removal = fixture.nono(&["agent", "uninstall", "gemini", "--dry-run"]).success();
    assert!(removal.stdout.contains("-{"), "{}", removal.stdout);
    assert_eq!(home(&fixture), by_patch);
    let json = fixture.nono(&["agent", "uninstall", "gemini", "--dry-run", "--json"]).success();
    assert_eq!(json.json()["dry_run"], true);
}
