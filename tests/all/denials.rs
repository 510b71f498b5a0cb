//! Paths that a command cannot reach are named: arguments before the start, caches after a failure.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};

const RUN: [&str; 2] = ["run", "--no-rollback"];

fn run(fixture: &Fixture, words: &[&str]) -> Finished {
    fixture.nono(&[&RUN, words].concat())
}

/// A program of this name in a directory of `PATH`. Another process writes it, because a file that
/// is open for writing in a child of another test cannot be executed.
fn program(fixture: &Fixture, name: &str, script: &str) -> PathBuf {
    let dir = fixture.path("bin");
    fs::create_dir_all(&dir).unwrap();
    let made = Command::new("sh")
        .args([
            "-c",
            "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"",
            "sh",
            script,
        ])
        .arg(dir.join(name))
        .status();
    assert!(made.unwrap().success());
    dir
}

/// nono with programs of our own before those of the machine.
fn run_with(fixture: &Fixture, dir: &Path, words: &[&str]) -> Finished {
    let mut search = dir.as_os_str().to_owned();
    search.push(":/usr/bin:/bin");
    let mut command = fixture.command(&[&RUN, words].concat());
    finished(command.env("PATH", search).output().unwrap())
}

#[test]
fn an_argument_outside_of_the_grants_is_named_before_the_start() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fs::write(fixture.path("home/b"), "1").unwrap();
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    let [b, other] = [fixture.path("home/b"), other].map(|path| path.display().to_string());
    let read = run(&fixture, &["--", "cat", "a", &b]);
    assert_ne!(read.code, 0);
    let told = format!("nono: {b} is outside of what the command may read: --read {b}, or --write");
    // The command says itself what it could not read, and comes second.
    assert!(read.stderr.starts_with(&told), "{}", read.stderr);
    assert_eq!(read.stderr.matches("is outside of").count(), 1, "{}", read.stderr);
    let granted = run(&fixture, &["--read", &b, "--", "cat", "a", &b]).success();
    assert_eq!((granted.stdout.as_str(), granted.stderr.as_str()), ("11", ""));
    // Also outside of the home directory, in the value of a flag, and by a relative path.
    assert!(run(&fixture, &["--", "true", &other]).success().says(&format!("nono: {other} is")));
    let flag = format!("--into={other}");
    assert!(run(&fixture, &["--", "true", &flag]).success().says(&format!("nono: {other} is")));
    assert!(run(&fixture, &["--", "true", "../home/b"]).success().says(&format!("--read {b}")));
    // A file that is to be made there.
    fs::create_dir(fixture.path("home/out")).unwrap();
    let made = fixture.path("home/out/made").display().to_string();
    let out = fixture.path("home/out").display().to_string();
    let made = run(&fixture, &["--", "cp", "a", &made]);
    assert_ne!(made.code, 0);
    assert!(made.says(&format!("may write: --write {out}\n")), "{}", made.stderr);
}

#[test]
fn an_argument_that_is_within_the_grants_or_no_path_is_not_named() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for words in [
        &["true", "a", ".", "./a", "new", "sub/new", "-x", "--", "/usr/bin/env", "/etc/passwd"][..],
        &["true", "/tmp", "/dev/null", "/proc/self", "s/a/b/", "https://example.org/x", "A=b"],
        &["true", "/no/such/place", "origin/main", "", "=", "a=b"],
        &["sh", "-c", "true /root ~/.ssh"],
    ] {
        let ran = run(&fixture, &[&["--"], words].concat()).success();
        assert_eq!(ran.stderr, "", "{words:?}");
    }
}

#[test]
fn no_grant_of_the_record_is_offered() {
    let fixture = Fixture::new();
    fixture.record("true").success();
    for place in ["home", "home/.nono", "home/.nono/rollbacks"] {
        let place = fixture.path(place).display().to_string();
        let told = run(&fixture, &["--", "true", &place]).success();
        assert_eq!(told.stderr, format!("nono: {place} is outside of what the command may read\n"));
    }
}

#[test]
fn a_command_that_failed_is_told_which_cache_its_grants_leave_out() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let dir = program(&fixture, "npm", "echo x > ~/.npm/_cacache/x || exit 243");
    let not_granted =
        "nono: not granted: write ~/.npm/_cacache, the cache of npm; `--profile generic` grants it";
    for words in [&["npm", "ci"][..], &["sh", "-c", "npm ci"], &["env", "CI=1", "npm", "install"]] {
        let failed = run_with(&fixture, &dir, &[&["--"], words].concat());
        assert_ne!(failed.code, 0, "{words:?}");
        assert_eq!(failed.stderr.matches(not_granted).count(), 1, "{words:?}: {}", failed.stderr);
    }
    // The offer works.
    let granted = ["--profile", "generic", "--", "npm", "ci"];
    assert_eq!(run_with(&fixture, &dir, &granted).success().stderr, "");
    assert!(fixture.path("home/.npm/_cacache/x").exists());
    // A failure of another kind, below the same grants.
    for words in [&["npm", "test"][..], &["sh", "-c", "exit 1"], &["false"]] {
        let failed = run_with(&fixture, &dir, &[&["--"], words].concat());
        assert_ne!(failed.code, 0);
        assert!(!failed.says("not granted"), "{words:?}: {}", failed.stderr);
    }
    // And a success.
    let dir = program(&fixture, "npm", "true");
    assert_eq!(run_with(&fixture, &dir, &["--", "npm", "ci"]).success().stderr, "");
}

#[test]
fn settings_with_tokens_are_offered_alone_and_only_where_they_are() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let dir = program(&fixture, "gh", "cat ~/.config/gh/hosts.yml");
    let failed = run_with(&fixture, &dir, &["--", "gh", "pr", "list"]);
    assert!(failed.code != 0 && !failed.says("not granted"), "{}", failed.stderr);
    fs::create_dir_all(fixture.path("home/.config/gh")).unwrap();
    fs::write(fixture.path("home/.config/gh/hosts.yml"), "token").unwrap();
    let failed = run_with(&fixture, &dir, &["--", "gh", "pr", "list"]);
    let offered =
        "not granted: read ~/.config/gh, the settings of gh; `--read ~/.config/gh` grants it";
    assert!(failed.code != 0 && failed.says(offered), "{}", failed.stderr);
    let place = fixture.path("home/.config/gh").display().to_string();
    let granted = run_with(&fixture, &dir, &["--read", &place, "--", "gh", "pr", "list"]);
    assert_eq!(granted.success().stdout, "token");
}

#[test]
fn an_agent_behind_other_programs_is_found_as_by_itself() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let package = fixture.path("home/lib/node_modules/@maker/agent");
    fs::create_dir_all(&package).unwrap();
    fs::create_dir_all(fixture.path("home/lib/node_modules/part")).unwrap();
    fs::write(fixture.path("home/lib/node_modules/part/text"), "works\n").unwrap();
    let script = "cat \"$(dirname \"$(readlink -f \"$0\")\")/../../part/text\"";
    let dir = program(&fixture, "cli", script);
    fs::rename(dir.join("cli"), package.join("cli")).unwrap();
    std::os::unix::fs::symlink(package.join("cli"), dir.join("claude")).unwrap();
    for words in [
        &["claude"][..],
        &["env", "X=1", "claude"],
        &["sh", "-c", "claude"],
        &["timeout", "60", "claude"],
        &["bash", "-c", "cd . && exec claude"],
    ] {
        let run = |profile: &[&str]| run_with(&fixture, &dir, &[profile, &["--"], words].concat());
        let ran = run(&["--profile", "claude-code"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "works\n"), "{words:?}: {}", ran.stderr);
        let kept = run(&["--profile", "generic"]);
        assert!(kept.code != 0 && kept.stdout.is_empty(), "{words:?}: {}", kept.stdout);
    }
    // Words of a script that no program can be are not granted.
    let secret = fixture.path("home/secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let script = format!("{0}; cat {0}", secret.display());
    let kept = run_with(&fixture, &dir, &["--profile", "claude-code", "--", "sh", "-c", &script]);
    assert!(kept.code != 0 && !kept.stdout.contains("secret"), "{}", kept.stdout);
}

#[test]
fn a_current_directory_that_is_not_granted_is_named_with_its_flag() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    let other = other.display().to_string();
    let closed = run(&fixture, &["--allow", &other, "--", "ls"]);
    assert_ne!(closed.code, 0);
    assert!(closed.says("the current directory, is outside of"), "{}", closed.stderr);
    let granted = run(&fixture, &["--allow", &other, "--allow-cwd", "--", "ls"]).success();
    assert_eq!((granted.stdout.as_str(), granted.stderr.as_str()), ("a\n", ""));
}
