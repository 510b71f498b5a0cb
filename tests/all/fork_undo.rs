//! Undo of the runs and steps of a fork, typed outside and inside: the project stays. And other
//! commands that mean the fork when they are typed in it.

use std::fs;

use crate::fixture::{Finished, Fixture};
use crate::forks::has_forks;
use crate::observe::observe;

fn users() -> impl Iterator<Item = Fixture> {
    let root = rustix::process::geteuid().is_root();
    let fixtures = [Some(Fixture::ordinary_user()), root.then(Fixture::new)];
    fixtures.into_iter().flatten().filter(has_forks).inspect(|fixture| {
        for (name, text) in [("edited", "old\n"), ("gone", "gone\n"), ("dir/a", "a\n")] {
            fixture.write(name, text);
        }
    })
}

fn inside(fixture: &Fixture, script: &str) -> Finished {
    fixture.nono(&["fork", "enter", "one", "--", "sh", "-c", script])
}

fn run(fixture: &Fixture, script: &str) {
    fixture.nono(&["run", "--fork", "one", "--rollback", "--", "sh", "-ec", script]).success();
}

fn session(fixture: &Fixture) -> String {
    let shown = fixture.nono(&["fork", "show", "one", "--json"]).success().json();
    shown["session_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_run_in_a_fork_is_undone_in_the_fork_and_the_undo_is_undone_as_well() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        run(&fixture, "echo first > edited; rm gone; mkdir new; echo n > new/file");
        run(&fixture, "echo second > other; rm -r dir");
        let before = observe(&fixture.project());
        let id = session(&fixture);
        let planned = fixture.nono(&["undo", "--dry-run", &id]).success();
        assert!(planned.says("would be undone in fork one"), "{}", planned.stderr);
        let undone = fixture.nono(&["undo", "--yes", &id]).success();
        let way_back = undone.stderr.split_once("take this back: nono undo ").unwrap().1;
        let way_back = way_back.lines().next().unwrap().trim().to_owned();
        assert_eq!(inside(&fixture, "cat edited dir/a; ls").stdout, "first\na\ndir\nedited\nnew\n");
        // The next one is the run before.
        fixture.nono(&["undo", "--yes", &id]).success();
        assert_eq!(
            inside(&fixture, "cat edited gone; ls").stdout,
            "old\ngone\ndir\nedited\ngone\n"
        );
        fixture.nono(&["undo", "--yes", &id]).fails(1, "nothing that is recorded in fork one");
        fixture.nono(&["undo", "--yes", &way_back]).success();
        assert_eq!(inside(&fixture, "cat other; ls").stdout, "second\nedited\ngone\nother\n");
        assert_eq!(observe(&fixture.project()), before);
        fixture.nono(&["undo", &id]).fails(2, "no terminal");
        fixture.nono(&["rollback", "verify", &id]).success();
    }
}

#[test]
fn later_changes_stay_when_an_older_run_of_a_fork_is_undone() {
    for fixture in users() {
        let lines = |first: &str, last: &str| format!("{first}\n1\n2\n3\n{last}\n");
        fixture.write("edited", lines("0", "0"));
        fixture.nono(&["fork", "one"]).success();
        run(&fixture, "sed -i '1s/.*/first/' edited; echo 1 > gone");
        run(&fixture, "sed -i '5s/.*/second/' edited; echo 2 > gone");
        let id = session(&fixture);
        let undone = fixture.nono(&["undo", "--yes", &format!("{id}/1")]);
        assert_eq!(undone.code, 1, "{}{}", undone.stdout, undone.stderr);
        assert!(undone.says("left  gone"), "{}{}", undone.stdout, undone.stderr);
        assert_eq!(inside(&fixture, "cat edited gone").stdout, lines("0", "second") + "2\n");
        fixture.nono(&["undo", "--yes", &format!("{id}/0")]).fails(2, "snapshot 0");
        fixture.nono(&["undo", "--yes", &id, "edited"]).fails(2, "select nothing");
    }
}

#[test]
fn an_undo_typed_in_a_fork_takes_back_what_the_fork_recorded() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let before = observe(&fixture.project());
        let nono = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let script = format!(
            "set -e; echo 1 > edited; {nono} snapshot >/dev/null; echo 2 > edited; rm gone; \
             {nono} snapshot >/dev/null; {nono} undo --yes >/dev/null; cat edited gone; \
             {nono} undo --yes --step 1 >/dev/null; cat edited"
        );
        for sandbox in [&[][..], &["--no-sandbox"]] {
            let words = [&["fork", "enter", "one"], sandbox, &["--", "sh", "-c", &script]].concat();
            let ended = fixture.nono(&words).success();
            assert_eq!(ended.stdout, "1\ngone\nold\n", "{}", ended.stderr);
            assert!(ended.says("undone in fork one"), "{}", ended.stderr);
            fixture.nono(&["fork", "discard", "one"]).success();
            fixture.nono(&["fork", "one"]).success();
        }
        assert_eq!(observe(&fixture.project()), before);
        let refused = inside(&fixture, &format!("{nono} undo; echo $?"));
        assert!(refused.says("no terminal") && refused.stdout == "2\n", "{}", refused.stderr);
        assert_eq!(fs::read_to_string(fixture.project().join("edited")).unwrap(), "old\n");
    }
}

#[test]
fn a_killed_undo_in_a_fork_is_finished_there_and_never_in_the_project() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    for (name, text) in [("edited", "old\n"), ("gone", "gone\n")] {
        fixture.write(name, text);
    }
    fixture.nono(&["fork", "one"]).success();
    run(&fixture, "echo new > edited; rm gone");
    let id = session(&fixture);
    fixture.write("edited", "of the project\n");
    let before = observe(&fixture.project());
    let (mut point, mut interrupted) = (1, 0);
    loop {
        let number = format!("{id}/1");
        let mut command = fixture.command(&["undo", "--yes", &number]);
        let ended = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        fixture.nono(&["resume"]);
        assert_eq!(observe(&fixture.project()), before, "at point {point}");
        if ended.status.success() {
            break;
        }
        let again = match point % 2 {
            0 => fixture.nono(&["resume", &id]).success(),
            _ => fixture.nono(&["undo", "--yes", &number]),
        };
        fixture.nono(&["undo", "--yes", &number]);
        interrupted += usize::from(again.says("was interrupted, and is finished"));
        let now = inside(&fixture, "cat edited gone").stdout;
        assert_eq!(now, "old\ngone\n", "at point {point}: {}", again.stderr);
        assert_eq!(observe(&fixture.project()), before, "at point {point}");
        inside(&fixture, "echo new > edited; rm gone").success();
        point += 5;
    }
    assert!(interrupted > 1, "{interrupted} of {point} points left a journal");
    fixture.nono(&["rollback", "verify", &id]).success();
}

#[test]
fn an_undone_step_of_a_fork_is_not_named_again_where_a_later_undo_took_its_file() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        run(&fixture, "echo first > new");
        run(&fixture, "echo second > new");
        let id = session(&fixture);
        fixture.nono(&["undo", "--yes", &id]).success();
        fixture.nono(&["undo", "--yes", &id]).success();
        assert_eq!(inside(&fixture, "ls new").stdout, "");
        let third = fixture.nono(&["undo", "--yes", &id]);
        third.fails(1, "nothing that is recorded in fork one is left to undo");
    }
}

#[test]
fn redo_typed_in_a_fork_takes_the_last_undo_of_the_fork_back() {
    for fixture in users() {
        fixture.nono(&["fork", "one"]).success();
        let before = observe(&fixture.project());
        let nono = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let script = format!(
            "set -e; echo 1 > edited; {nono} snapshot >/dev/null; echo 2 > gone; \
             {nono} snapshot >/dev/null; {nono} undo --yes >/dev/null; \
             {nono} undo --yes >/dev/null; cat edited gone; \
             {nono} redo --yes >/dev/null; cat edited gone; \
             {nono} redo --yes >/dev/null; cat edited gone; {nono} redo --yes; echo $?"
        );
        let ended = inside(&fixture, &script);
        let expected = "old\ngone\n1\ngone\n1\n2\n";
        assert_eq!(ended.stdout, expected, "{}", ended.stderr);
        assert!(ended.says("there is nothing to redo: nothing in fork one is undone"));
        assert!(!ended.says("--root"), "{}", ended.stderr);
        assert_eq!(observe(&fixture.project()), before);
    }
}

#[test]
fn commands_that_look_mean_the_fork_when_they_are_typed_in_it() {
    for fixture in users() {
        fixture.record("echo of-the-project > secret").success();
        let other = fixture.latest();
        fs::remove_file(fixture.project().join("secret")).unwrap();
        fixture.nono(&["fork", "one"]).success();
        let nono = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let prepared = format!("echo findme > edited; {nono} snapshot >/dev/null");
        inside(&fixture, &prepared).success();
        let look = |words: &str| inside(&fixture, &format!("{nono} {words}"));
        let status = look("status").success();
        assert!(status.stdout.starts_with("fork one: "), "{}", status.stdout);
        assert!(status.stdout.contains("edited"), "{}", status.stdout);
        let diff = look("diff edited").success().stdout;
        assert!(diff.contains("-old\n+findme\n"), "{diff}");
        assert_eq!(look("diff --name-only").success().stdout, "edited\n");
        assert_eq!(look("cat edited").success().stdout, "findme\n");
        assert_eq!(look("cat 0 edited").success().stdout, "old\n");
        let found = look("grep findme").success().stdout;
        assert!(found.contains("edited") && found.contains("findme"), "{found}");
        let log = look("log").success().stdout;
        assert!(log.contains(&session(&fixture)), "{log}");
        // No session but its own.
        look(&format!("grep --session {other} of-the-project")).fails(2, "means nothing here");
        look("grep --all of-the-project").fails(2, "means nothing here");
        assert_eq!(look("grep of-the-project").code, 1);
        look(&format!("cat {other}/1 secret")).fails(1, "is no number of a snapshot of this fork");
        for words in ["status", "diff", "log"] {
            let said = look(words);
            assert!(!said.stderr.contains("--root"), "{}", said.stderr);
        }
    }
}
