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

/// The last line of what a command said.
fn report(finished: &Finished) -> Value {
    serde_json::from_str(finished.stderr.lines().last().unwrap()).unwrap()
}

#[test]
fn the_end_of_a_command_in_a_fork_is_a_line_of_json_for_a_program() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("a", "1\n");
    fixture.nono(&["fork", "one"]).success();
    let script = "echo out; echo new > b; exit 3";
    let ended = fixture.nono(&["fork", "enter", "one", "--json", "--", "sh", "-c", script]);
    assert_eq!((ended.code, &*ended.stdout), (3, "out\n"));
    let entered = report(&ended);
    assert_eq!((&entered["name"], &entered["exit_code"]), (&"one".into(), &3.into()));
    assert_eq!(entered["changes"]["created"], 1, "{entered}");

    let tried = |flags: &[&str], script: &str| {
        let words = [&["try", "--json"], flags, &["--", "sh", "-c", script]].concat();
        let ended = fixture.nono(&words);
        let count = fixture.nono(&["forks", "--json"]).success().json().as_array().unwrap().len();
        (ended.code, report(&ended), count - 1)
    };
    let (code, kept, count) = tried(&["--keep"], "echo out; echo 2 > a");
    assert_eq!((code, count), (0, 0), "{kept}");
    assert_eq!((&kept["end"], &kept["is_left"]), (&"kept".into(), &false.into()), "{kept}");
    assert_eq!(kept["changes"]["modified"], 1, "{kept}");
    assert!(kept["merge"]["merge_session"].is_string(), "{kept}");
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
    let (_, discarded, count) = tried(&["--discard"], "echo 3 > a");
    assert_eq!((&discarded["end"], count), (&"discarded".into(), 0), "{discarded}");
    let (code, left, count) = tried(&["--keep"], "echo 3 > a; exit 5");
    assert_eq!((code, &left["end"], count), (5, &"left".into(), 1), "{left}");
    assert_eq!((&left["exit_code"], &left["is_left"]), (&5.into(), &true.into()), "{left}");
}
