//! Names that people give to sessions and snapshots, and that stand for ids.

use std::fs;
use std::path::Path;

use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;
use serde_json::json;

use crate::fixture::{Fixture, finished};
use crate::terminal::Terminal;

fn show(fixture: &Fixture, id: &str) -> serde_json::Value {
    fixture.nono(&["rollback", "show", id, "--json"]).success().json()
}

fn named(fixture: &Fixture, name: &str, script: &str) -> String {
    fixture.nono(&["run", "--rollback", "-m", name, "--", "sh", "-c", script]).success();
    fixture.latest()
}

#[test]
fn a_run_has_a_name_and_is_found_by_it() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let id = named(&fixture, " before the refactoring ", "echo 2 > a");
    fixture.record("echo 3 > a").success();
    let name = "before the refactoring";
    let shown = show(&fixture, name);
    assert_eq!((&shown["session_id"], &shown["label"]), (&json!(id), &json!(name)));
    let listed = fixture.nono(&["rollback", "list"]).success().stdout;
    assert!(listed.contains(&format!("  “{name}”\n")), "{listed}");
    let text = fixture.nono(&["rollback", "show", name]).success().stdout;
    assert!(text.starts_with(&format!("{id} “{name}”  completed")), "{text}");
    let one = show(&fixture, &format!("{name}/1"));
    assert_eq!(one["snapshots"].as_array().unwrap().len(), 1);
    assert_eq!(show(&fixture, &format!("{name}/latest"))["snapshots"][0]["number"], 1);
    fixture.nono(&["rollback", "restore", name, "--force"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"1");
    fixture.nono(&["rollback", "show", &format!("{name}/9")]).fails(1, "no snapshot \"9\"");
    fixture.nono(&["rollback", "show", "before"]).fails(1, "there is no session");
    // A fact of the session, so its root commits to it.
    fixture.nono(&["rollback", "verify", name]).success();
    fixture.nono(&["rollback", "cleanup", name, "--yes"]).success();
    fixture.nono(&["rollback", "show", name]).fails(1, "there is no session");
}

#[test]
fn a_snapshot_has_a_name_that_stands_for_it_alone() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot", "-m", "first"]).success();
    let id = fixture.latest();
    fixture.write("a", "2");
    fixture.nono(&["snapshot", "--session", "first", "-m", "feature/two"]).success();
    fixture.write("a", "3");
    fixture.nono(&["snapshot", "--session", &id]).success();
    let labels = json!([{"number": 0, "label": "first"}, {"number": 1, "label": "feature/two"}]);
    assert_eq!(show(&fixture, &id)["labels"], labels);
    // The name means the snapshot, `NAME/N` another one of its session.
    for (name, number) in [("first", 0), ("feature/two", 1), ("first/2", 2), ("feature/two/0", 0)] {
        let snapshots = &show(&fixture, name)["snapshots"];
        let numbers: Vec<_> =
            snapshots.as_array().unwrap().iter().map(|it| &it["number"]).collect();
        assert_eq!(numbers, [&json!(number)], "{name}");
    }
    fixture.nono(&["rollback", "restore", "feature/two"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"2");
    fixture.nono(&["rollback", "show", "feature"]).fails(1, "there is no session");
    fixture.nono(&["rollback", "verify", "first"]).success();
}

#[test]
fn a_name_hides_no_id() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let real = fixture.latest();
    let liar = named(&fixture, &real, "echo 3 > a");
    assert_eq!(show(&fixture, &real)["session_id"], real.as_str());
    let latest = named(&fixture, "latest", "echo 4 > a");
    let newest = {
        fixture.record("echo 5 > a").success();
        fixture.latest()
    };
    assert_eq!(show(&fixture, "latest")["session_id"], newest.as_str());
    assert_eq!(show(&fixture, &latest)["label"], "latest");
    // The beginning of an id neither, whoever has it as a name.
    let all: Vec<_> = [&real, &liar, &latest, &newest].into_iter().collect();
    let prefix = (1..real.len())
        .map(|end| &real[..end])
        .find(|prefix| all.iter().filter(|id| id.starts_with(prefix)).count() == 1)
        .unwrap_or(&real);
    named(&fixture, prefix, "echo 6 > a");
    let found = show(&fixture, &real);
    assert_eq!(found["session_id"], real.as_str());
}

#[test]
fn a_name_that_several_have_is_an_error_that_lists_them() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let first = named(&fixture, "twice", "echo 2 > a");
    fixture.nono(&["snapshot", "-m", "twice"]).success();
    let second = fixture.latest();
    let told = fixture.nono(&["rollback", "restore", "twice"]).fails(1, "is the name of");
    assert!(told.stderr.contains(&first) && told.stderr.contains(&format!("{second}/0")));
    assert!(told.stderr.contains("give one of these ids"), "{}", told.stderr);
    // The newest comes first.
    assert!(told.stderr.find(&second) < told.stderr.find(&first), "{}", told.stderr);
}

#[test]
fn a_name_of_two_projects_means_the_one_here() {
    let fixture = Fixture::new();
    let told = |place: &Path, words: &[&str]| {
        finished(fixture.command(words).current_dir(place).output().unwrap())
    };
    let projects = ["one", "two"].map(|name| fixture.path(name));
    let ids = projects.clone().map(|project| {
        fs::create_dir_all(project.join("below")).unwrap();
        fs::write(project.join("a"), project.as_os_str().as_encoded_bytes()).unwrap();
        let taken = told(&project, &["snapshot", "-m", "before the move", "--json"]).success();
        taken.json()["session_id"].as_str().unwrap().to_owned()
    });
    for (project, id) in projects.iter().zip(&ids) {
        for place in [project.clone(), project.join("below")] {
            let shown = told(&place, &["rollback", "show", "--json", "before the move"]).success();
            assert_eq!(shown.json()["session_id"], id.as_str());
            let file = project.join("a");
            let cat = ["rollback", "cat", "before the move", file.to_str().unwrap()];
            assert_eq!(told(&place, &cat).success().stdout, project.to_str().unwrap());
        }
    }
    // Elsewhere it is ambiguous, and the newest is named first, with its date and its project.
    let refused = told(&fixture.path("home"), &["rollback", "show", "before the move"]);
    let refused = refused.fails(1, "is the name of");
    let places = [&ids[1], &ids[0]].map(|id| refused.stderr.find(&**id).unwrap());
    assert!(places[0] < places[1], "{}", refused.stderr);
    for project in &projects {
        assert!(refused.stderr.contains(project.to_str().unwrap()), "{}", refused.stderr);
    }
    let year = jiff::Zoned::now().year().to_string();
    assert!(refused.stderr.matches(&format!("({year}-")).count() == 2, "{}", refused.stderr);
}

#[test]
fn a_name_is_short_and_harmless() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for wrong in ["", " ", "a\nb", "a\u{1b}[2J", &"x".repeat(201)] {
        fixture.nono(&["snapshot", "-m", wrong]).fails(2, "a name");
        fixture.nono(&["run", "--rollback", "-m", wrong, "--", "true"]).fails(2, "a name");
    }
    let unrecorded = ["run", "--no-rollback", "-m", "x", "--", "true"];
    fixture.nono(&unrecorded).fails(2, "this run is not recorded");
    assert!(!fixture.store().exists());
    // Through the library a name is any text, and whoever made it may be the agent.
    let session = nono_engine::session::new_session_dir(&fixture.store()).unwrap();
    let tracked = [fixture.project()];
    let manager =
        SnapshotManager::new(&session, &tracked, ExclusionConfig::nothing(), Budget::default());
    let manager = manager.unwrap();
    let hostile = format!("\u{202e}evil\u{1b}]0;x\u{7}{}", "y".repeat(5000));
    manager.checkpoint(&hostile).unwrap();
    for command in [&["rollback", "list"][..], &["rollback", "show", "latest"]] {
        let shown = fixture.nono(command).success().stdout;
        assert!(shown.contains("\\u{202e}evil\\u{1b}"), "{shown}");
        assert!(shown.lines().all(|line| line.len() < 400), "{shown}");
        assert!(!shown.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{shown}");
    }
    assert_eq!(show(&fixture, &hostile)["snapshots"][0]["number"], 0);
}

#[test]
fn a_command_names_the_snapshots_that_it_asks_for() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let script = format!(
        "echo 2 > a; {program} snapshot -m half-way; echo 3 > a; {program} snapshot -m '' && exit \
         9; true"
    );
    fixture.record(&script).success();
    let id = fixture.latest();
    assert_eq!(show(&fixture, &id)["labels"], json!([{"number": 1, "label": "half-way"}]));
    fixture.nono(&["rollback", "restore", "half-way"]).success();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"2\n");
}

#[test]
fn a_mount_says_the_name_of_its_session() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let id = named(&fixture, "mine", "echo 2 > a");
    let at = fixture.path("mnt");
    let at = at.to_str().unwrap();
    fixture.nono(&["mount", at, "--session", "mine"]).success();
    let status = fixture.nono(&["mount", "--status"]);
    let json = fixture.nono(&["mount", "--status", "--json"]);
    fixture.nono(&["umount", at]).success();
    let line = status.success().stdout;
    let line = line.lines().find(|line| line.starts_with(at)).unwrap().to_owned();
    assert!(line.contains(&format!("session {id}")) && line.ends_with(" “mine”"), "{line}");
    let json = json.success().json();
    let mount = json.as_array().unwrap().iter().find(|it| it["directory"] == at).unwrap();
    assert_eq!((&mount["session"], &mount["label"]), (&json!(id), &json!("mine")));
}

#[test]
fn a_review_has_the_name_in_its_title_and_what_it_did_is_not_offered_again() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write(".gitignore", "*.log\n");
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    // A new unrecorded path stays, so the restore is not complete.
    let run = format!("{program} run --rollback -m mine -- sh -c 'echo 2 > a; echo 3 > x.log'");
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{run}; echo ended with $?; exec cat"),
    );
    terminal.wait_for("Enter keep everything");
    assert!(terminal.screen().contains("“mine”"), "{}", terminal.screen());
    terminal.keys(&["R", "y"]);
    terminal.wait_for("ended with 0");
    let screen = terminal.screen();
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"1", "{screen}");
    assert!(screen.contains("take this back: nono redo"), "{screen}");
    assert!(!screen.contains("undo it:") && !screen.contains("see it:"), "{screen}");
}
