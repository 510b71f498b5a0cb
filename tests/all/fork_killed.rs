//! Merges that were killed when their files were in the project: what is undone stays undone, and
//! what is interrupted elsewhere is left. And the entering of a fork that was killed.

use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{Fixture, finished};
use crate::forks::has_forks;
use crate::observe::observe;

/// A project with a repository and a fork with a commit, whose merge was killed before its branch.
fn killed_before_its_branch() -> Option<(Fixture, String)> {
    let fixture = Fixture::in_memory();
    if !has_forks(&fixture) {
        return None;
    }
    fixture.write("text", "0\n");
    let git = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(fixture.project());
        for (key, value) in [("GIT_CONFIG_GLOBAL", "/dev/null"), ("HOME", "/nonexistent")] {
            command.env(key, value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let who = "git -c user.name=a -c user.email=a@b.c";
    git(&format!("git init -q && git add . && {who} commit -qm first"));
    fixture.nono(&["fork", "idea"]).success();
    let script = format!("echo there > text; {who} commit -qam of-idea");
    fixture.nono(&["fork", "enter", "idea", "--", "sh", "-c", &script]).success();
    fixture.copy_state("", "pristine");
    let mut point = 1;
    loop {
        fixture.copy_state("pristine", "");
        let mut command = fixture.command(&["fork", "merge", "idea"]);
        let done = finished(command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap());
        assert_ne!(done.code, 0, "no point lies between the files and the branch");
        if read(&fixture, "text") != "there\n" {
            point += 4;
            continue;
        }
        let list = fixture.nono(&["list", "--all", "--json"]).success().json();
        let merge = list.as_array().unwrap().iter().find(|it| it["command"][1] == "fork");
        let is_open = merge.is_some_and(|it| it["ended"].is_null());
        let is_half_way = fixture.nono(&["status"]).says("nono resume");
        if is_open && !is_half_way && branches(&fixture).is_empty() {
            let id = merge.unwrap()["session_id"].as_str().unwrap().to_owned();
            return Some((fixture, id));
        }
        point += 1;
    }
}

fn read(fixture: &Fixture, name: &str) -> String {
    std::fs::read_to_string(fixture.project().join(name)).unwrap()
}

fn branches(fixture: &Fixture) -> Vec<PathBuf> {
    let place = fixture.project().join(".git/refs/heads/fork");
    let listed = std::fs::read_dir(place).into_iter().flatten();
    listed.map(|entry| entry.unwrap().path()).collect()
}

fn word(fixture: &Fixture, id: &str) -> bool {
    let list = fixture.nono(&["list", "--all", "--json"]).success().json();
    let found = list.as_array().unwrap().iter().find(|it| it["session_id"] == id).cloned();
    found.unwrap()["undone"] == true
}

#[test]
fn a_killed_merge_that_was_undone_stays_undone_and_gets_no_branch() {
    let Some((fixture, id)) = killed_before_its_branch() else { return };
    fixture.nono(&["undo", "--yes", &id]).success();
    assert_eq!(read(&fixture, "text"), "0\n");
    assert!(word(&fixture, &id));
    let told = fixture.nono(&["resume"]).success();
    assert!(told.says("is undone: no branch is made"), "{}", told.stderr);
    assert_eq!(branches(&fixture), [] as [PathBuf; 0]);
    assert!(word(&fixture, &id), "the word is lost");
    assert!(fixture.nono(&["resume"]).success().says("no restore was interrupted"));
}

#[test]
fn a_killed_merge_of_another_project_is_ended_by_its_id_alone() {
    let Some((fixture, id)) = killed_before_its_branch() else { return };
    let other = fixture.path("other");
    std::fs::create_dir(&other).unwrap();
    for way in [&["resume"][..], &["resume", "--abort"]] {
        let output = fixture.command(way).current_dir(&other).output().unwrap();
        let told = finished(output).success();
        assert!(told.says("no restore was interrupted here"), "{}", told.stderr);
        assert!(told.says(&format!("resume {id}")), "{}", told.stderr);
        assert_eq!(branches(&fixture), [] as [PathBuf; 0]);
    }
    let output = fixture.command(&["resume", &id]).current_dir(&other).output().unwrap();
    let told = finished(output).success();
    assert!(told.says(&format!("merge of session {id} into ")), "{}", told.stderr);
    assert_eq!(branches(&fixture).len(), 1);
}

#[test]
fn entering_a_fork_that_is_killed_at_any_point_leaves_a_fork_that_can_be_entered() {
    let fixture = Fixture::in_memory();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("file", "below\n");
    fixture.nono(&["fork", "one", "--", "sh", "-c", "echo layer > mine"]).success();
    let before = observe(&fixture.project());
    let (mut point, mut killed) = (1, 0);
    loop {
        let script = format!("echo {point} > at");
        let mut command = fixture.command(&["fork", "enter", "one", "--", "sh", "-c", &script]);
        // The holder of the mounts and the keeper of the command are killed at theirs as well.
        let ended = finished(command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap());
        assert_eq!(observe(&fixture.project()), before, "at point {point}");
        let again = fixture.nono(&["fork", "enter", "one", "--", "cat", "file", "mine"]);
        assert_eq!(again.stdout, "below\nlayer\n", "at point {point}: {}", again.stderr);
        if ended.code == 0 {
            break;
        }
        killed += 1;
        point += 1;
    }
    assert!(killed > 5, "{killed} points");
    fixture.nono(&["rollback", "verify", "--all"]).success();
    let listed = fixture.nono(&["forks", "--json"]).success().json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}
