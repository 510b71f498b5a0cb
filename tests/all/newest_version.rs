//! A path by itself means its newest version that differs from what is there now; a step and a
//! number of places name a state without its id.

use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::git_history::{git, settings};
use crate::here::Projects;
use crate::hooks::Agent;

/// `a` was changed by a run, `gone` removed, `made` created, `edited` changed by a run and then by
/// hand, `old` changed by a run before and then left alone.
fn worked() -> Fixture {
    let fixture = Fixture::new();
    for name in ["a", "gone", "edited", "old", "dir/gone", "still"] {
        fixture.write(name, "1\n");
    }
    fixture.record("echo 2 > old").success();
    fixture.record("echo 2 > a; rm gone; echo 2 > edited; echo 2 > made; rm -r dir").success();
    fixture.write("edited", "mine\n");
    fixture
}

/// Each path with its newest different version.
const VERSIONS: [(&str, &str); 5] =
    [("a", "1\n"), ("gone", "1\n"), ("edited", "2\n"), ("old", "1\n"), ("dir/gone", "1\n")];

#[test]
fn a_path_alone_is_printed_shown_and_compared() {
    let fixture = worked();
    for (path, text) in VERSIONS {
        assert_eq!(fixture.nono(&["cat", path]).success().stdout, text, "{path}");
        let shown = fixture.nono(&["show", path]).success();
        let name = fixture.path("project").join(path).display().to_string();
        assert!(shown.stdout.starts_with(&name), "{path}: {}", shown.stdout);
        let version = fixture.nono(&["show", path, "--json"]).success().json();
        assert_eq!(version["size"], text.len(), "{path}: {version}");
        let patch = fixture.nono(&["diff", path]).success().stdout;
        assert!(patch.contains(&format!("\n-{text}")), "{path}: {patch}");
        let now = fs::read_to_string(fixture.project().join(path));
        let line = now.map(|now| format!("\n+{now}"));
        assert!(line.is_err() || patch.contains(&line.unwrap()), "{path}: {patch}");
    }
    // A path that is as in all of its versions.
    assert!(!fixture.nono(&["cat", "still"]).success().stdout.is_empty());
    fixture
        .nono(&["restore", "still"])
        .fails(1, "no version of still that was recorded here differs from now");
    assert_eq!(fixture.nono(&["diff", "still"]).success().stdout, "");
    // All that the last session did with a file that it made.
    assert!(fixture.nono(&["diff", "made"]).success().stdout.contains("\n+2\n"));
    for command in ["cat", "show", "restore", "diff"] {
        fixture.nono(&[command, "never"]).fails(1, "never");
    }
}

#[test]
fn a_path_alone_comes_back_and_a_redo_takes_that_back() {
    for (path, text) in VERSIONS.into_iter().chain([("dir", "")]) {
        let fixture = worked();
        let place = fixture.project().join(path);
        let read = || fs::read_to_string(&place).ok();
        let (before, was_there) = (read(), place.exists());
        let planned = fixture.nono(&["restore", path, "--dry-run"]).success();
        assert!(planned.stdout.contains(path), "{}", planned.stdout);
        assert_eq!((read(), place.exists()), (before.clone(), was_there), "{path}");
        fixture.nono(&["restore", path]).success();
        match path {
            "dir" => assert_eq!(fs::read(place.join("gone")).unwrap(), b"1\n"),
            _ => assert_eq!(read().as_deref(), Some(text), "{path}"),
        }
        let others = VERSIONS.iter().filter(|(other, _)| !other.starts_with(path));
        for (other, _) in others.filter(|(other, _)| *other == "edited") {
            assert_eq!(fs::read(fixture.project().join(other)).unwrap(), b"mine\n", "{path}");
        }
        fixture.nono(&["redo"]).success();
        assert_eq!((read(), place.exists()), (before, was_there), "{path}");
    }
}

#[test]
fn paths_of_one_snapshot_come_back_together_and_those_of_several_are_refused() {
    let fixture = worked();
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).ok();
    fixture.nono(&["restore", "a", "gone"]).success();
    assert_eq!(["a", "gone"].map(read), [Some("1\n".to_owned()), Some("1\n".to_owned())]);
    fixture.nono(&["redo"]).success();
    let before = ["a", "edited", "gone", "old"].map(read);
    let refused = fixture.nono(&["restore", "a", "edited", "old"]);
    refused.fails(2, "a and edited were last different in two snapshots");
    assert_eq!(["a", "edited", "gone", "old"].map(read), before);
}

#[test]
fn nothing_goes_without_force_that_is_not_one_file_and_kept() {
    let fixture = Fixture::new();
    settings(&fixture);
    let git = |words: &[&str]| git(&fixture, &fixture.project(), words).success();
    git(&["init", "-q", "-b", "main"]);
    for name in ["file", "dir"] {
        fixture.write(name, "1\n");
    }
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    fixture.record("echo 2 > file; git commit -qam two").success();
    fixture.write("file", "mine\n");
    git(&["commit", "-qam", "three"]);
    fs::remove_file(fixture.project().join("dir")).unwrap();
    fixture.write("dir/mine", "mine\n");
    let log = || git(&["log", "--format=%s"]).stdout;
    let before = log();
    let unkept = ["restore", "--no-safety-snapshot", "file"];
    fixture.nono(&unkept).fails(1, "file was changed after the session");
    fixture.nono(&["restore", "dir"]).fails(1, "dir was changed after the session");
    fixture.nono(&["restore", ".git/refs/heads/main"]).fails(1, "nothing was changed");
    assert_eq!(log(), before);
    assert_eq!(fs::read(fixture.project().join("file")).unwrap(), b"mine\n");
    assert_eq!(fs::read(fixture.project().join("dir/mine")).unwrap(), b"mine\n");
    for command in ["restore", "show", "cat", "diff"] {
        fixture.nono(&[command, ""]).fails(2, "an empty word");
    }
}

#[test]
fn no_version_of_an_archive_is_meant_and_none_is_passed_over_in_silence() {
    let fixture = Fixture::new();
    let there = fixture.path("there").display().to_string();
    let file = fixture.path("archive").display().to_string();
    fixture.write("a", "theirs\n");
    fixture.nono(&["--root", &there, "snapshot"]).success();
    let create = ["--root", &there, "archive", "create", "latest", "-o", &file];
    fixture.nono(&create).success();
    fixture.write("a", "1\n");
    fixture.nono(&["archive", "import", &file]).success();
    let said = "no version of a that was recorded here differs from now";
    for command in ["cat", "restore", "show"] {
        fixture.nono(&[command, "a"]).fails(1, said);
    }
    for text in ["2", "3"] {
        fixture.record(&format!("echo {text} > a")).success();
    }
    fs::write(fixture.session().join("manifest.json"), "{").unwrap();
    fixture.write("a", "4\n");
    let printed = fixture.nono(&["cat", "a"]).fails(1, "nono verify");
    assert_eq!(printed.stdout, "2\n");
    fixture.nono(&["restore", "a"]).fails(1, "a session that cannot be read may hold a newer");
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"4\n");
}

#[test]
fn a_path_is_meant_from_where_one_stands_and_comes_before_names_of_sessions() {
    let fixture = Fixture::new();
    fixture.write("sub/file", "1\n");
    fixture.write("named", "1\n");
    fixture.record("echo 2 > sub/file; echo 2 > named").success();
    let inside = fixture.path("project/sub");
    let printed = crate::fixture::finished(
        fixture.command(&["cat", "file"]).current_dir(&inside).output().unwrap(),
    );
    assert_eq!(printed.success().stdout, "1\n");
    // An existing path is a path, also where a session has its name.
    fixture.nono(&["snapshot", "-m", "named"]).success();
    assert_eq!(fixture.nono(&["cat", "named"]).success().stdout, "1\n");
    let id = fixture.latest();
    fixture.write(&id, "a file");
    let shown = fixture.nono(&["show", &id, "--json"]).success().json();
    assert_eq!(shown["session_id"], id.as_str());
    fixture.nono(&["cat", "latest"]).fails(2, "which file is to be printed?");
    fixture.nono(&["restore", "never/was"]).fails(1, "nothing is recorded at never/was");
}

#[test]
fn a_step_is_shown_and_compared_by_itself() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("work");
    for number in 1..=3 {
        agent.shell(&format!("echo {number} > a; echo {number} > made{number}"));
    }
    let only = |patch: &str, number: usize| {
        for step in 1..=3 {
            let has = patch.contains(&format!("made{step}"));
            assert_eq!(has, step == number, "{number}: {patch}");
        }
        assert!(patch.contains(&format!("-{}\n+{number}\n", number - 1)), "{number}: {patch}");
    };
    for number in 1..=3 {
        let step = format!("latest#{number}");
        only(&fixture.nono(&["diff", &step]).success().stdout, number);
        let shown = fixture.nono(&["show", &step]).success().stdout;
        assert!(shown.contains(&format!("snapshot {number}")), "{shown}");
        only(&shown, number);
    }
    // A snapshot is a state: all that came after it.
    let since = fixture.nono(&["diff", "latest/1"]).success().stdout;
    assert!(since.contains("made2") && since.contains("made3"), "{since}");
}

#[test]
fn a_number_of_places_names_a_session_before_the_latest_here() {
    let projects = Projects::new();
    let ids: Vec<String> =
        ["1", "2", "3"].map(|text| projects.record("q1", &format!("echo {text} > file"))).into();
    projects.record("q2", "echo 4 > file");
    // Runs that changed nothing are no places.
    projects.record("q1", "true");
    let shown = |word: &str| projects.nono("q1", &["show", word, "--json"]).success().json();
    assert_eq!(shown("latest")["session_id"], ids[2].as_str());
    assert_eq!(shown("-1")["session_id"], ids[1].as_str());
    assert_eq!(shown("-2")["session_id"], ids[0].as_str());
    assert_eq!(shown("latest~2/0")["session_id"], ids[0].as_str());
    assert_eq!(shown("latest~1#1")["snapshots"][0]["number"], 1);
    projects.nono("q1", &["show", "-3"]).fails(1, "there is no session \"-3\"");
    assert_eq!(projects.nono("q1", &["cat", "-1", "file"]).success().stdout, "1\n");
    assert!(projects.nono("q1", &["diff", "-1"]).success().stdout.contains("+2"));
    projects.nono("q1", &["restore", "-1", "--force"]).success();
    assert_eq!(projects.read("q1/file"), "1\n");
    projects.nono("q1", &["undo", "-2", "--yes", "--force"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
}
