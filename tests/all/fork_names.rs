//! Forks by their names: whose they are, and what the reports of their commands say.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::fixture::{Finished, Fixture, finished};
use crate::forks::has_forks;

fn at(fixture: &Fixture, dir: &Path, words: &[&str]) -> Finished {
    finished(fixture.command(words).current_dir(dir).output().unwrap())
}

fn count(fixture: &Fixture) -> usize {
    fixture.nono(&["forks", "--json"]).success().json().as_array().unwrap().len()
}

#[test]
fn a_name_in_a_project_inside_of_another_never_means_the_fork_of_the_outer_one() {
    for has_git in [false, true] {
        let fixture = Fixture::new();
        if !has_forks(&fixture) {
            return;
        }
        fixture.write("file", "outer\n");
        fixture.write("inner/file", "inner\n");
        let inner = fixture.project().join("inner");
        if has_git {
            fs::create_dir(inner.join(".git")).unwrap();
        }
        fixture.nono(&["fork", "x"]).success();
        at(&fixture, &inner, &["fork", "x"]).success();
        at(&fixture, &inner, &["fork", "discard", "x"]).success();
        let words = ["fork", "discard", "x"];
        let refused = at(&fixture, &inner, &words);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.says(fixture.project().to_str().unwrap()), "{}", refused.stderr);
        at(&fixture, &inner, &["cleanup", "--yes", "--fork", "x"]).fails(1, "fork x");
        assert_eq!(count(&fixture), 1);
        if has_git {
            at(&fixture, &inner, &["fork", "merge", "x"]).fails(1, "no fork x of this project");
        }
        fixture.nono(&words).success();
        assert_eq!(count(&fixture), 0);
    }
}

#[test]
fn a_fork_is_discarded_from_a_directory_of_its_work_tree() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("src/file", "0\n");
    fs::create_dir(fixture.project().join(".git")).unwrap();
    fixture.nono(&["fork", "x"]).success();
    at(&fixture, &fixture.project().join("src"), &["fork", "discard", "x"]).success();
}

#[test]
fn a_fork_that_is_named_twice_is_discarded_once() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.nono(&["fork", "zy"]).success();
    let told = fixture.nono(&["fork", "discard", "zy", "zy"]).success();
    assert_eq!(told.stderr.matches("fork zy is discarded").count(), 1, "{}", told.stderr);
    assert!(!told.says("error"), "{}", told.stderr);
}

#[test]
fn each_command_that_reports_a_fork_has_its_facts_in_json() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("file", "0\n");
    let made = fixture.nono(&["fork", "one", "--json"]).success().json();
    let facts = |report: &Value| {
        ["session_id", "from", "created", "tracked_paths", "live_paths"]
            .map(|key| report.get(key).unwrap_or_else(|| panic!("no {key} in {report}")).clone())
    };
    assert_eq!((&made["name"], &made["not_in_fork"]), (&json!("one"), &json!([])));
    let renamed = fixture.nono(&["fork", "rename", "one", "two", "--json"]).success().json();
    assert_eq!((&renamed["name"], &renamed["was"]), (&json!("two"), &json!("one")));
    let shown = fixture.nono(&["fork", "show", "two", "--json"]).success().json();
    let listed = fixture.nono(&["fork", "list", "--json"]).success().json();
    fixture.nono(&["fork", "discard", "none", "two", "--json"]).fails(1, "there is no fork none");
    let gone = fixture.nono(&["fork", "discard", "two", "--json"]).success().json();
    assert_eq!(gone["left"], json!([]));
    for report in [&renamed, &shown, &listed[0], &gone["discarded"][0]] {
        assert_eq!(facts(report), facts(&made));
    }
    fixture.nono(&["fork", "one", "--json", "--", "true"]).fails(2, "--json");
}

#[test]
fn a_run_in_a_fork_names_no_process_of_its_own() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("file", "0\n");
    fixture.nono(&["fork", "one"]).success();
    let ran = fixture.nono(&["run", "--fork", "one", "--rollback", "--", "true"]).success();
    assert!(!ran.says("still running") && !ran.says("__fork-hold"), "{}", ran.stderr);
    let script = "sleep 100 > /dev/null 2>&1 & echo $!";
    let ran = fixture.nono(&["run", "--fork", "one", "--rollback", "--", "sh", "-c", script]);
    assert!(ran.says("1 process that the command started is still running"), "{}", ran.stderr);
    assert!(ran.says("sleep 100"), "{}", ran.stderr);
}
