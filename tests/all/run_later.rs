//! Files and settings that run by themselves later are named after a run, and in `nono status`.

use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::git_history::{git, settings};

fn repository() -> Fixture {
    let fixture = Fixture::new();
    settings(&fixture);
    fixture.write("package.json", r#"{"name": "x", "scripts": {"test": "true"}}"#);
    fixture.write("Makefile", "all:\n");
    git(&fixture, &fixture.project(), &["init", "-q"]).success();
    fixture
}

#[test]
fn what_a_command_planted_is_named_in_words() {
    let fixture = repository();
    let script = "printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
        git config core.fsmonitor .git/x; git config alias.st '!x'; git config user.name n
        echo 'export A=1' > .envrc; mkdir -p .github/workflows
        echo on: push > .github/workflows/ci.yml
        sed -i s/true/x/ package.json; echo 1 > plain; echo '#' > .git/hooks/new.sample";
    let run = fixture.record(script).success();
    let names = [
        ".envrc",
        "core.fsmonitor in .git/config",
        "alias.st in .git/config",
        ".git/hooks/pre-commit",
        ".github/workflows/ci.yml",
        "scripts in package.json",
    ];
    let line = |text: &str| {
        let line = text.lines().find(|line| line.contains("run by themselves later")).unwrap();
        let (_, named) = line.split_once("later: ").unwrap();
        let mut named: Vec<_> = named.split(", ").map(str::to_owned).collect();
        named.sort();
        named
    };
    let mut expected = names.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(line(&run.stderr), expected);
    let status = fixture.nono(&["status"]).success();
    assert_eq!(line(&status.stdout), expected);
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert_eq!(status["since"]["run_later"].as_array().unwrap().len(), names.len());
    fixture.nono(&["undo", "--yes"]).success();
    assert!(!fixture.nono(&["status"]).success().says("run by themselves"));
}

#[test]
fn ordinary_work_is_not_named_and_the_line_can_be_switched_off() {
    let fixture = repository();
    let quiet = |script: &str| {
        let run = fixture.record(script).success();
        assert!(!run.says("run by themselves"), "{script}: {}", run.stderr);
    };
    quiet("git add . && git -c user.name=n -c user.email=e commit -qm x; git config user.name m");
    quiet("sed -i s/name/NAME/ package.json; rm Makefile");
    quiet("git config core.fsmonitor true; git branch b");
    // A value that makes no settings of it is named itself.
    let named = fixture.record("echo '[core' > .git/config").success();
    assert!(named.says("later: .git/config"), "{}", named.stderr);
    fs::write(fixture.project().join(".git/config"), "").unwrap();
    fixture.nono(&["config", "set", "name_run_later", "false"]).success();
    quiet("echo all: > Makefile; git config core.pager x");
    assert!(!fixture.nono(&["status"]).success().says("run by themselves"));
}

#[test]
fn the_report_of_a_run_lists_them() {
    let fixture = repository();
    let words = ["run", "--rollback", "--json", "--", "sh", "-c", "echo b: > Makefile"];
    let run = fixture.nono(&words).success();
    let report: serde_json::Value =
        serde_json::from_str(run.stderr.lines().last().unwrap()).unwrap();
    assert_eq!(report["run_later"], json!(["Makefile"]), "{report}");
}
