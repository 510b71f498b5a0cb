//! The meaning of commands for a user who has read no manual.

use std::fs;
use std::process::Stdio;

use serde_json::json;

use crate::fixture::{Fixture, finished};
use crate::here::Projects;
use crate::hooks::Agent;

fn text(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

#[test]
fn a_cleanup_of_the_latest_session_removes_none_of_another_project() {
    let projects = Projects::new();
    let first = projects.record("q1", "touch a");
    let second = projects.record("q2", "touch b");
    let foreseen = projects.nono("q1", &["cleanup", "latest", "--dry-run"]).success();
    assert!(foreseen.says(&first) && !foreseen.says(&second), "{}", foreseen.stdout);
    projects.nono("q1", &["rollback", "cleanup", "latest", "--yes"]).success();
    assert_eq!(projects.fixture.latest(), second);
    let home = projects.fixture.path("home");
    projects.nono_at(&home, &["cleanup", "latest", "--yes"]).fails(1, "no session has recorded");
}

#[test]
fn a_copy_overwrites_no_file_of_any_recorded_project() {
    let projects = Projects::new();
    let first = projects.record("q1", "echo 2 > file");
    projects.record("q2", "echo 2 > file");
    fs::write(projects.dir("q2/file"), "precious").unwrap();
    let home = projects.dir("");
    let to = |dir: &str| ["restore", &first, "--to", dir, "--force"].map(str::to_owned);
    let copy = |dir: &str| {
        let words = to(dir);
        projects.nono_at(&home, &words.each_ref().map(String::as_str))
    };
    for place in ["q1", "q2", "q2/sub", "q2/new"] {
        copy(place).fails(1, "keeps nothing that it overwrites");
    }
    assert_eq!(projects.read("q2/file"), "precious");
    copy("elsewhere").success();
    let again = copy("elsewhere").success();
    assert!(again.says("kept nowhere"), "{}", again.stderr);
}

#[test]
fn a_session_of_files_is_here_where_they_lie() {
    let fixture = Fixture::new();
    fixture.write("f", "1");
    fixture.write("g", "1");
    let run = ["run", "--rollback", "--allow", "f", "--", "sh", "-c", "echo 9 > f"];
    fixture.nono(&run).success();
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(text(&fixture, "f").unwrap(), "1");
    fixture.nono(&["redo"]).success();
    fixture.nono(&["undo", "--yes", "f"]).success();
    assert_eq!(text(&fixture, "f").unwrap(), "1");
    fixture.nono(&["snapshot", "f", "g"]).success();
    fs::remove_file(fixture.project().join("g")).unwrap();
    fixture.nono(&["undo", "--yes", "g"]).success();
    assert_eq!(text(&fixture, "g").unwrap(), "1");
    let mut above = fixture.command(&["undo", "--yes"]);
    let above = above.current_dir(fixture.path("")).stdin(Stdio::null());
    finished(above.output().unwrap()).fails(1, "no session has recorded");
}

#[test]
fn redo_takes_back_the_last_restore_whatever_it_restored_and_then_the_one_before() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    for content in ["2", "3"] {
        fixture.write("a", content);
        fixture.nono(&["snapshot", "--session", "latest"]).success();
    }
    let restored = fixture.nono(&["restore", "latest/1"]).success();
    assert!(restored.says("take this back: nono redo"), "{}", restored.stderr);
    fixture.nono(&["restore", "latest/0"]).success();
    for content in ["2", "3"] {
        fixture.nono(&["redo"]).success();
        assert_eq!(text(&fixture, "a").unwrap(), content);
    }
    fixture.nono(&["redo"]).fails(1, "nothing to redo");
}

/// A session of three steps of two prompts.
fn three_steps(fixture: &Fixture) {
    for name in ["a", "b", "c"] {
        fixture.write(name, "0");
    }
    let agent = Agent::new(fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    for (prompt, names) in [("first", &["a", "b"][..]), ("second", &["c"])] {
        agent.prompt(prompt);
        for name in names {
            agent.call("Edit", json!({"file_path": name}), || {
                fixture.write(name, "1");
            });
        }
    }
    agent.end();
}

#[test]
fn undone_steps_come_back_one_after_the_other_and_are_listed_where_they_belong() {
    let fixture = Fixture::new();
    three_steps(&fixture);
    let state = || ["a", "b", "c"].map(|name| text(&fixture, name).unwrap());
    fixture.nono(&["undo", "--step", "1", "--yes"]).success();
    fixture.nono(&["undo", "--step", "last", "--yes"]).success();
    assert_eq!(state(), ["0", "1", "0"]);
    let listed = fixture.nono(&["steps"]).success();
    let said = &listed.stdout;
    assert!(said.contains("after prompt 2") && said.contains("undo of step 1"), "{said}");
    assert!(!said.contains("before the first prompt") && !said.contains("between"), "{said}");
    assert!(listed.says("nono undo --step 3"), "{}", listed.stderr);
    fixture.nono(&["redo"]).success();
    assert_eq!(state(), ["0", "1", "1"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(state(), ["1", "1", "1"]);
    fixture.nono(&["undo", "--prompt", "last", "--yes"]).success();
    assert_eq!(state(), ["1", "1", "0"]);
    fixture.nono(&["redo"]).success();
    let back = fixture.nono(&["undo", "--to-step", "1", "--yes"]).success();
    assert!(back.says("nono redo"), "{}", back.stderr);
    assert_eq!(state(), ["1", "0", "0"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(state(), ["1", "1", "1"]);
    fixture.nono(&["undo", "--to-step", "77", "--yes"]).fails(1, "has no step 77");
    let asked = fixture.nono(&["undo", "--dry-run"]).success();
    assert!(asked.says("nono undo --step") && asked.says("#last"), "{}", asked.stderr);
}

#[test]
fn undo_with_an_id_takes_back_what_that_session_did() {
    let fixture = Fixture::new();
    fixture.write("one", "0");
    fixture.write("two", "0");
    fixture.record("echo 1 > one").success();
    let first = fixture.latest();
    fixture.record("echo 1 > two; touch new").success();
    fixture.nono(&["undo", &format!("{first}/0"), "--yes"]).fails(2, "nono restore");
    fixture.nono(&["undo", &first, "--yes"]).success();
    assert_eq!(text(&fixture, "one").unwrap(), "0");
    assert_eq!(text(&fixture, "two").unwrap(), "1\n");
    assert!(fixture.project().join("new").exists());
    fixture.nono(&["undo", &first, "--yes"]).fails(1, "is left to undo");
    fixture.nono(&["redo"]).success();
    assert_eq!(text(&fixture, "one").unwrap(), "1\n");
    fixture.nono(&["undo", "latest", "two", "--yes"]).success();
    assert_eq!(text(&fixture, "two").unwrap(), "0");
    assert!(fixture.project().join("new").exists());
    // A file is a file, whatever it is called.
    fixture.write(&first, "mine");
    fixture.nono(&["undo", &first, "--yes"]);
    assert_eq!(text(&fixture, "one").unwrap(), "1\n");
}

#[test]
fn the_log_of_a_file_has_a_line_whenever_its_contents_changed() {
    let fixture = Fixture::new();
    fixture.write("a", "aaa");
    fixture.record("rm a; echo c > c").success();
    fixture.nono(&["undo", "--yes"]).success();
    let versions = |name: &str| {
        let log = fixture.nono(&["log", name, "--json"]).success().json();
        let versions = log["versions"].as_array().unwrap().clone();
        let word = |version: &serde_json::Value| {
            let [kind, origin] = ["kind", "origin"].map(|key| version[key].as_str().unwrap());
            let now = if version["is_now"] == true { " now" } else { "" };
            format!("{kind} {origin}{now}")
        };
        versions.iter().map(word).collect::<Vec<_>>()
    };
    assert_eq!(versions("a"), ["file restored now", "gone command", "file first"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(versions("c"), ["file restored now", "gone restored", "file command"]);
    let shown = fixture.nono(&["log", "a"]).success();
    assert!(shown.says("nono undo") && shown.says("nono redo"), "{}", shown.stdout);
}

#[test]
fn a_conflict_names_no_session_that_is_undone_or_older_than_the_snapshot() {
    let fixture = Fixture::new();
    fixture.write("a", "aaa");
    fixture.record("rm a").success();
    let run = fixture.latest();
    fixture.nono(&["undo", "--yes"]).success();
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "mine");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture.write("a", "mine again");
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "a was changed after the session");
    assert!(!refused.says(&run), "{}", refused.stderr);
}

#[test]
fn a_run_is_recorded_unless_it_is_told_not_to() {
    let fixture = Fixture::new();
    let said = "not recorded, so it cannot be undone";
    let list = || fixture.nono(&["list", "--json"]).success().json().as_array().unwrap().len();
    // The flags of the command are its own, and nothing has to stand before it.
    assert!(!fixture.nono(&["run", "touch", "a"]).success().says(said));
    assert!(!fixture.nono(&["run", "--rollback", "touch", "b"]).success().says(said));
    fixture.nono(&["run", "touch", "-m", "-c", "c"]).success();
    assert!(!fixture.project().join("c").exists(), "-c makes nothing");
    assert_eq!(list(), 3);
    fixture.nono(&["undo", "--yes"]).success();
    fixture.nono(&["undo", "--yes"]).success();
    assert!(!fixture.project().join("a").exists() && !fixture.project().join("b").exists());
    assert!(!fixture.nono(&["run", "--no-rollback", "--", "true"]).success().says(said));
    fixture.nono(&["config", "set", "record", "false"]).success();
    assert!(fixture.nono(&["run", "--", "true"]).success().says(said));
    assert!(!fixture.nono(&["-q", "run", "--", "true"]).success().says(said));
    assert_eq!(list(), 3);
    fixture.nono(&["run", "--rollback", "--", "true"]).success();
    assert_eq!(list(), 4);
    fixture.nono(&["run", "--rolback", "--", "true"]).fails(2, "--rolback");
}

#[test]
fn a_run_inside_of_another_one_says_who_records() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let nono = env!("CARGO_BIN_EXE_nono");
    let inner = |name: &str| format!("{nono} run touch {name}");
    let recorded = fixture.nono(&["run", "sh", "-c", &inner("b")]).success();
    assert!(recorded.says("the run around it records"), "{}", recorded.stderr);
    let unrecorded = ["run", "--no-rollback", "sh", "-c", &inner("c")];
    let unrecorded = fixture.nono(&unrecorded).success();
    assert!(unrecorded.says("not recorded, so it cannot be undone"), "{}", unrecorded.stderr);
    assert!(fixture.project().join("b").exists() && fixture.project().join("c").exists());
    let list = fixture.nono(&["list", "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
}

#[test]
fn a_run_beyond_the_limits_stops_before_its_command_with_the_ways_on() {
    let fixture = Fixture::new();
    fixture.write("one", "1");
    fixture.write("two", "2");
    let run = |more: &[&str]| fixture.nono(&[&["run"], more, &["--", "touch", "ran"]].concat());
    let stopped = run(&["--max-entries", "2"]).fails(1, "--max-entries N");
    assert!(stopped.says("--no-rollback records nothing"), "{}", stopped.stderr);
    assert!(!fixture.project().join("ran").exists());
    run(&["--max-entries", "2", "--no-rollback"]).success();
    assert!(fixture.project().join("ran").exists());
}

#[test]
fn the_commands_of_rollback_need_not_be_told_that_they_are() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let ran = fixture.record("echo 2 > a").success();
    assert!(ran.says("see it:  nono diff") && ran.says("undo it: nono undo"), "{}", ran.stderr);
    assert!(fixture.nono(&["list"]).success().says(&fixture.latest()));
    for words in [&["show"][..], &["diff"], &["usage"], &["verify"], &["find", "a"]] {
        fixture.nono(words).success();
    }
    assert_eq!(fixture.nono(&["cat", "latest", "a"]).success().stdout, "1");
    fixture.nono(&["pin", "latest"]).success();
    fixture.nono(&["restore", "latest"]).success();
    assert_eq!(text(&fixture, "a").unwrap(), "1");
    let help = fixture.nono(&["--help"]).success();
    let lists = help.stdout.lines().filter(|line| line.trim_start().starts_with("restore "));
    assert_eq!(lists.count(), 1, "{}", help.stdout);
    let words: Vec<_> = help.stdout.split_whitespace().collect();
    let said = "Each command of `nono rollback` works without that word";
    assert!(words.join(" ").contains(said), "{}", help.stdout);
}

#[test]
fn paths_of_several_places_are_told_apart() {
    let projects = Projects::new();
    let q2 = projects.dir("q2");
    let words = ["run", "--rollback", "--allow", ".", "--allow", q2.to_str().unwrap(), "--", "sh"];
    let script = format!("echo x > new; echo x > {}/new", q2.display());
    projects.nono("q1", &[&words[..], &["-c", &script]].concat()).success();
    let planned = projects.nono("q1", &["undo", "--dry-run"]).success();
    assert!(planned.says("q1/new") && planned.says("q2/new"), "{}", planned.stdout);
}

#[test]
fn after_a_snapshot_by_hand_a_second_undo_means_the_run_before() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fixture.record("echo 3 > a").success();
    fixture.nono(&["snapshot", "-m", "checked"]).success();
    let undo = || fixture.nono(&["undo", "--yes"]);
    let a = || fs::read_to_string(fixture.project().join("a")).unwrap();
    undo().success();
    assert_eq!(a(), "2\n");
    undo().success();
    assert_eq!(a(), "1");
    undo().fails(1, "nothing is left to undo here");
    assert_eq!(a(), "1");
    // The way forward is open, and after it the snapshot is what was there last.
    fixture.nono(&["redo"]).success();
    fixture.nono(&["redo"]).success();
    assert_eq!(a(), "3\n");
    fixture.write("a", "mine");
    undo().success();
    assert_eq!(a(), "3\n");
}

#[test]
fn an_undo_says_that_the_last_run_changed_nothing_recorded() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let undo = fixture.nono(&["undo", "--dry-run"]).success();
    assert!(!undo.says("changed nothing that is recorded"), "{}", undo.stderr);
    fixture.record("ls").success();
    let undo = fixture.nono(&["undo", "--yes"]).success();
    assert!(undo.says("the last run here, `sh -c ls`, changed nothing"), "{}", undo.stderr);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn an_undo_of_a_path_that_no_session_changed_says_so() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "1");
    fixture.record("echo 2 > a").success();
    fixture.nono(&["undo", "--yes", "b"]).fails(1, "nothing of b is left to undo");
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
}

#[test]
fn work_that_was_undone_before_a_later_state_by_hand_does_not_come_back() {
    let fixture = Fixture::new();
    let nono = |place: &str, arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        finished(command.current_dir(fixture.project().join(place)).output().unwrap())
    };
    let read = |path: &str| fs::read_to_string(fixture.project().join(path)).unwrap();
    fixture.write("shared", "base\n");
    fixture.write("sub/s", "base\n");
    fixture.write("sub/.git/HEAD", "ref: refs/heads/main\n");
    // The first state has the work of the run, the second one is after its undo.
    fixture.record("echo A >> shared").success();
    nono("", &["snapshot"]).success();
    nono("", &["undo", "--yes"]).success();
    fixture.write("mine", "w");
    nono("", &["snapshot", "--session", "latest"]).success();
    nono("", &["undo", "--yes"]);
    assert_eq!((read("shared").as_str(), read("mine").as_str()), ("base\n", "w"));
    // The run was in a project inside.
    let run = ["run", "--rollback", "--", "sh", "-c", "echo A >> s"];
    nono("sub", &run).success();
    nono("", &["snapshot"]).success();
    nono("sub", &["undo", "--yes"]).success();
    nono("", &["undo", "--yes"]);
    assert_eq!(read("sub/s"), "base\n");
}

#[test]
fn a_run_that_was_done_again_after_a_snapshot_is_undone_as_itself() {
    let fixture = Fixture::new();
    for file in ["f1", "f2", "f3"] {
        fixture.write(file, "o\n");
    }
    fixture.record("echo r0 >> f1").success();
    fixture.record("echo r1 >> f2").success();
    fixture.record("echo r2 >> f2; echo r2 >> f3").success();
    let nono = |arguments: &[&str]| fixture.nono(arguments).success();
    nono(&["undo", "--yes"]);
    nono(&["snapshot"]);
    nono(&["redo", "--yes"]);
    let read = |path: &str| fs::read_to_string(fixture.project().join(path)).unwrap();
    assert_eq!(read("f3"), "o\nr2\n");
    for _ in 0..3 {
        nono(&["undo", "--yes"]);
    }
    assert_eq!([read("f1"), read("f2"), read("f3")], ["o\n", "o\n", "o\n"]);
}

#[test]
fn a_redo_of_snapshots_by_hand_guards_what_came_after_the_undo() {
    let fixture = Fixture::new();
    fixture.write("shared", "base\n");
    fixture.nono(&["snapshot"]).success();
    fixture.write("shared", "base\nx\n");
    fixture.nono(&["undo", "--yes"]).success();
    fixture.write("shared", "base\nmine\n");
    fixture.nono(&["redo", "--yes"]).fails(1, "changed after");
    let read = || fs::read_to_string(fixture.project().join("shared")).unwrap();
    assert_eq!(read(), "base\nmine\n");
    fixture.write("shared", "base\n");
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(read(), "base\nx\n");
}

#[test]
fn a_redo_that_failed_leaves_the_session_undone() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fixture.record("echo 3 > a").success();
    fixture.nono(&["undo", "--yes"]).success();
    let mut redo = fixture.command(&["redo", "--yes"]);
    redo.env("NONO_FAIL_POINT", "name=.nono-restore-:EIO");
    finished(redo.output().unwrap()).fails(1, "Input/output error");
    assert_eq!(text(&fixture, "a").unwrap(), "2\n");
    let listed = fixture.nono(&["list", "--json"]).success().json();
    let undone: Vec<_> = listed.as_array().unwrap().iter().map(|it| &it["undone"]).collect();
    assert_eq!(undone, [&json!(true), &json!(false)]);
    // So the next undo means the session before.
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(text(&fixture, "a").unwrap(), "1");
    fixture.nono(&["redo", "--yes"]).success();
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(text(&fixture, "a").unwrap(), "3\n");
}

#[test]
fn an_undo_of_a_file_goes_on_to_sessions_whose_changes_are_not_taken_back_yet() {
    let fixture = Fixture::new();
    fixture.write("f", "0\n");
    fixture.write("g", "0\n");
    for script in ["echo z >> f", "echo a >> f; echo a > g", "rm f"] {
        fixture.record(script).success();
    }
    for expected in ["0\nz\na\n", "0\nz\n", "0\n"] {
        fixture.nono(&["undo", "--yes", "f"]).success();
        assert_eq!(text(&fixture, "f").unwrap(), expected);
    }
    fixture.nono(&["undo", "--yes", "f"]).fails(1, "nothing of f is left to undo");
    // Only the changes of sessions that are not taken back yet.
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!([text(&fixture, "f").unwrap(), text(&fixture, "g").unwrap()], ["0\n", "0\n"]);
    fixture.nono(&["undo", "--yes"]).fails(1, "nothing is left to undo");
    // And back again, one after the other.
    for (f, g) in [("0\n", "a\n"), ("0\nz\n", "a\n"), ("0\nz\na\n", "a\n")] {
        fixture.nono(&["redo"]).success();
        assert_eq!([text(&fixture, "f").unwrap(), text(&fixture, "g").unwrap()], [f, g]);
    }
    fixture.nono(&["redo"]).success();
    assert_eq!(text(&fixture, "f"), None);
}

#[test]
fn a_file_that_was_changed_after_its_undo_is_no_work_of_the_session() {
    let fixture = Fixture::new();
    fixture.write("f", "0");
    fixture.write("g", "0");
    fixture.record("echo 1 > f; echo 1 > g").success();
    fixture.nono(&["undo", "--yes", "f"]).success();
    fixture.write("f", "mine");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!([text(&fixture, "f").unwrap(), text(&fixture, "g").unwrap()], ["mine", "0"]);
    fixture.nono(&["redo"]).success();
    assert_eq!([text(&fixture, "f").unwrap(), text(&fixture, "g").unwrap()], ["mine", "1\n"]);
}

#[test]
fn an_undo_that_can_do_nothing_fails() {
    let fixture = Fixture::new();
    fixture.write("f", "0");
    fixture.record("echo 1 > f").success();
    fixture.write("f", "mine");
    fixture.nono(&["undo", "--yes", "--keep-newer"]).fails(1, "can be undone now");
    assert_eq!(text(&fixture, "f").unwrap(), "mine");
}

#[test]
fn an_undo_to_a_snapshot_by_hand_means_the_file_each_time() {
    let fixture = Fixture::new();
    fixture.write("f", "0");
    fixture.write("g", "0");
    fixture.nono(&["snapshot"]).success();
    fixture.write("g", "mine");
    for content in ["1", "2"] {
        fixture.write("f", content);
        fixture.nono(&["undo", "--yes", "f"]).success();
        assert_eq!([text(&fixture, "f").unwrap(), text(&fixture, "g").unwrap()], ["0", "mine"]);
    }
}
