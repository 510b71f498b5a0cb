//! The user's edits between the prompts of an agent: an undo of the agent's session leaves them.

use std::fs;
use std::process::Command;

use nono_engine::gc::remove_snapshots;
use nono_engine::snapshot::{RemovalReason, SessionDir};
use serde_json::{Value, json};

use crate::fixture::{Finished, Fixture};
use crate::hooks::{Agent, steps};

fn text(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

fn remove(fixture: &Fixture, name: &str) {
    fs::remove_file(fixture.project().join(name)).unwrap();
}

/// Relative paths in a list of a report.
fn named(fixture: &Fixture, report: &Value, list: &str) -> Vec<String> {
    let entries = report[list].as_array().unwrap_or_else(|| panic!("no {list} in {report}")).iter();
    let paths = entries.map(|entry| entry["path"].as_str().or(entry.as_str()).unwrap());
    let project = format!("{}/", fixture.project().display());
    paths.map(|path| path.strip_prefix(&project).unwrap().to_owned()).collect()
}

fn kinds(fixture: &Fixture) -> Vec<String> {
    steps(fixture).into_iter().map(|(_, _, kind)| kind).collect()
}

fn undo(fixture: &Fixture, flags: &[&str]) -> Finished {
    fixture.nono(&[&["undo", "--yes"], flags].concat())
}

fn started<'a>(fixture: &'a Fixture) -> Agent<'a> {
    let agent = Agent::new(fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("one");
    agent
}

/// The agent works on `agents`, the user on everything else.
fn apart(fixture: &Fixture) -> Agent<'_> {
    for name in ["agents", "edited", "gone", "later"] {
        fixture.write(name, "0");
    }
    let agent = started(fixture);
    agent.shell("echo 1 > agents; mkdir made; echo 1 > made/one");
    agent.turn_end();
    fixture.write("edited", "mine");
    fixture.write("notes/mine", "mine");
    fixture.write("made/mine", "mine");
    remove(fixture, "gone");
    agent.prompt("two");
    agent.shell("echo 2 > agents; echo 2 > notes/two");
    agent.turn_end();
    assert_eq!(kinds(fixture), ["tool", "user_edits", "tool"]);
    agent
}

#[test]
fn what_only_the_user_edited_between_the_prompts_stays_and_is_named() {
    for ends in [true, false] {
        let fixture = Fixture::new();
        let agent = apart(&fixture);
        if ends {
            agent.end();
        }
        // After the last call: no step holds it.
        fixture.write("later", "mine");
        let planned = fixture.nono(&["undo", "--dry-run", "--json"]).success().json();
        let spared = ["edited", "gone", "later", "made/mine", "notes", "notes/mine"];
        assert_eq!(named(&fixture, &planned, "spared"), spared, "{planned}");
        assert_eq!(planned["conflicts"], json!([]), "{planned}");
        let changes = ["agents", "made/one", "notes/two"];
        assert_eq!(named(&fixture, &planned, "changes"), changes, "{planned}");
        let done = undo(&fixture, &[]).success();
        assert!(done.says("not by the session, so it stays: edited"), "{}", done.stderr);
        assert_eq!(text(&fixture, "agents").unwrap(), "0");
        for name in ["edited", "later", "made/mine", "notes/mine"] {
            assert_eq!(text(&fixture, name).unwrap(), "mine", "{name}");
        }
        for name in ["gone", "made/one", "notes/two"] {
            assert_eq!(text(&fixture, name), None, "{name}");
        }
        fixture.nono(&["undo", "--yes"]).fails(1, "nothing is left to undo here");
        fixture.nono(&["redo"]).success();
        assert_eq!(text(&fixture, "agents").unwrap(), "2\n");
        assert_eq!(text(&fixture, "notes/two").unwrap(), "2\n");
        assert_eq!(text(&fixture, "gone"), None);
        // The same after the redo, which is no user's edit.
        let planned = fixture.nono(&["undo", "--dry-run", "--json"]).success().json();
        assert_eq!(named(&fixture, &planned, "spared"), spared, "{planned}");
        // The state is another thing.
        fixture.nono(&["restore", "latest", "--force"]).success();
        for name in ["agents", "edited", "gone", "later"] {
            assert_eq!(text(&fixture, name).unwrap(), "0", "{name}");
        }
        assert!(!fixture.project().join("notes").exists());
        fixture.nono(&["rollback", "verify"]).success();
    }
}

/// Both worked on `shared`, the agent alone on `agents`, the user alone on `mine`.
fn together(fixture: &Fixture) {
    for name in ["shared", "agents", "mine"] {
        fixture.write(name, "0");
    }
    let agent = started(fixture);
    agent.shell("echo 1 > shared; echo 1 > agents");
    agent.turn_end();
    fixture.write("shared", "mine");
    fixture.write("mine", "mine");
    agent.prompt("two");
    agent.shell("echo 3 > shared");
    agent.end();
    assert_eq!(kinds(fixture), ["tool", "user_edits", "tool"]);
}

fn three(fixture: &Fixture) -> [String; 3] {
    ["shared", "agents", "mine"].map(|name| text(fixture, name).unwrap())
}

#[test]
fn what_both_changed_is_a_conflict_that_names_the_step() {
    let fixture = Fixture::new();
    together(&fixture);
    let planned = fixture.nono(&["undo", "--dry-run"]).fails(1, "you edited it, too, in step 2");
    assert!(planned.says("shared: you edited it"), "{}", planned.stderr);
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).fails(1, "").json();
    assert_eq!(named(&fixture, &planned, "conflicts"), ["shared"], "{planned}");
    let edit = json!({"step": 2, "is_certain": true});
    assert_eq!(planned["conflicts"][0]["user_edit"], edit, "{planned}");
    assert_eq!(named(&fixture, &planned, "spared"), ["mine"], "{planned}");
    undo(&fixture, &[]).fails(1, "edits of yours would be undone as well");
    assert_eq!(three(&fixture), ["3\n", "1\n", "mine"]);
    undo(&fixture, &["--keep-newer"]).success();
    assert_eq!(three(&fixture), ["3\n", "0", "mine"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(three(&fixture), ["3\n", "1\n", "mine"]);
    // To force it is an answer about the conflict alone.
    undo(&fixture, &["--force"]).success();
    assert_eq!(three(&fixture), ["0", "0", "mine"]);
    fixture.nono(&["redo"]).success();
    assert_eq!(three(&fixture), ["3\n", "1\n", "mine"]);
    undo(&fixture, &["agents"]).success();
    assert_eq!(three(&fixture), ["3\n", "0", "mine"]);
}

#[test]
fn lists_and_counts_tell_the_users_edits_apart() {
    let fixture = Fixture::new();
    together(&fixture);
    let list = fixture.nono(&["list", "--json"]).success().json();
    let count =
        |session: &Value| (session["changes"]["modified"].clone(), session["user_changes"].clone());
    assert_eq!(count(&list[0]), (json!(2), json!(1)), "{list}");
    let status = fixture.nono(&["status", "--json"]).success().json();
    assert_eq!(count(&status["session"]), (json!(2), json!(1)), "{status}");
    let show = fixture.nono(&["show", "--json"]).success().json();
    assert_eq!(count(&show), (json!(2), json!(1)), "{show}");
    for words in [&["list"][..], &["status"]] {
        let said = fixture.nono(words).success();
        assert!(said.says("~2 modified  (1 more by you)"), "{}", said.stdout);
    }
    let asked = fixture.nono(&["undo", "--dry-run"]).fails(1, "all of its 2 steps");
    assert!(asked.says("the undo would do this: ~2 modified"), "{}", asked.stdout);
}

#[test]
fn a_deletion_by_hand_is_not_the_work_of_an_older_session_that_is_open() {
    let fixture = Fixture::new();
    for name in ["both", "mine"] {
        fixture.write(name, "0");
    }
    let agent = started(&fixture);
    agent.shell("echo 1 > both");
    agent.turn_end();
    fixture.record("echo 2 > both; echo 2 > other").success();
    remove(&fixture, "both");
    let refused =
        undo(&fixture, &["both"]).fails(1, "both was changed after the session (deleted)");
    assert!(!refused.says("by session"), "{}", refused.stderr);
    // Later work of an agent is named as the agent's.
    agent.prompt("two");
    agent.shell("echo 3 > other");
    let agents = fixture.nono(&["list", "--json"]).success().json();
    let agents = agents.as_array().unwrap().iter().find(|it| it["agent"].is_object()).unwrap();
    let said = format!("(modified, by session {})", agents["session_id"].as_str().unwrap());
    undo(&fixture, &["other"]).fails(1, &said);
    remove(&fixture, "mine");
    agent.prompt("three");
    let error = undo(&fixture, &["mine"]).fails(1, "you or others changed it");
    assert!(error.says("nono restore"), "{}", error.stderr);
}

#[test]
fn an_agent_that_changed_nothing_owns_nothing_of_what_came_later() {
    for is_killed in [false, true] {
        let fixture = Fixture::new();
        fixture.write("edited", "0");
        let agent = started(&fixture);
        if is_killed {
            agent.before(&agent.call_of("Bash", json!({"command": "make"})));
        } else {
            agent.shell("ls");
            agent.turn_end();
        }
        fixture.write("edited", "mine");
        fixture.write("made", "mine");
        undo(&fixture, &[]).fails(1, "nothing is left to undo");
        assert_eq!(["edited", "made"].map(|name| text(&fixture, name).unwrap()), ["mine", "mine"]);
    }
}

#[test]
fn where_thinning_hides_whose_a_change_is_it_is_a_conflict() {
    let fixture = Fixture::new();
    together(&fixture);
    let session = SessionDir::open(&fixture.session()).unwrap();
    remove_snapshots(&session, &[2], RemovalReason::Thinning).unwrap();
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).fails(1, "").json();
    assert_eq!(named(&fixture, &planned, "conflicts"), ["mine", "shared"], "{planned}");
    let edit = json!({"step": 2, "is_certain": false});
    assert_eq!(planned["conflicts"][0]["user_edit"], edit, "{planned}");
    undo(&fixture, &[]).fails(1, "mine: you may have edited it, too, up to step 2");
    assert_eq!(three(&fixture), ["3\n", "1\n", "mine"]);
    undo(&fixture, &["--keep-newer"]).success();
    assert_eq!(three(&fixture), ["3\n", "0", "mine"]);
}

#[test]
fn thinned_steps_of_one_maker_leave_no_doubt() {
    let fixture = Fixture::new();
    for name in ["agents", "mine"] {
        fixture.write(name, "0");
    }
    let agent = started(&fixture);
    agent.shell("echo 1 > agents");
    agent.shell("echo 2 > agents");
    agent.turn_end();
    fixture.write("mine", "mine");
    agent.end();
    assert_eq!(kinds(&fixture), ["tool", "tool", "user_edits"]);
    let session = SessionDir::open(&fixture.session()).unwrap();
    remove_snapshots(&session, &[1], RemovalReason::Thinning).unwrap();
    undo(&fixture, &[]).success();
    assert_eq!(["agents", "mine"].map(|name| text(&fixture, name).unwrap()), ["0", "mine"]);
}

#[test]
fn a_directory_that_the_user_removed_is_a_conflict_where_the_agent_worked_in_it() {
    let fixture = Fixture::new();
    fixture.write("dir/agents", "0");
    fixture.write("dir/mine", "0");
    fixture.write("own/mine", "0");
    let agent = started(&fixture);
    agent.shell("rm dir/agents");
    agent.turn_end();
    for dir in ["dir", "own"] {
        fs::remove_dir_all(fixture.project().join(dir)).unwrap();
    }
    agent.end();
    assert_eq!(kinds(&fixture), ["tool", "user_edits"]);
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).fails(1, "").json();
    assert_eq!(named(&fixture, &planned, "conflicts"), ["dir"], "{planned}");
    assert_eq!(named(&fixture, &planned, "spared"), ["dir/mine", "own", "own/mine"], "{planned}");
    undo(&fixture, &["--force"]).success();
    assert_eq!(text(&fixture, "dir/agents").unwrap(), "0");
    for name in ["dir/mine", "own"] {
        assert!(!fixture.project().join(name).exists(), "{name}");
    }
}

#[test]
fn a_session_in_which_only_the_user_changed_something_is_passed_over() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.record("echo 1 > a").success();
    let agent = started(&fixture);
    agent.shell("true");
    agent.turn_end();
    fixture.write("b", "mine");
    agent.end();
    assert_eq!(kinds(&fixture), ["user_edits"]);
    undo(&fixture, &[]).success();
    assert_eq!(["a", "b"].map(|name| text(&fixture, name).unwrap()), ["0", "mine"]);
}

#[test]
fn what_a_command_in_the_background_may_have_written_is_a_conflict() {
    let fixture = Fixture::new();
    for name in ["agents", "late", "mine"] {
        fixture.write(name, "0");
    }
    let agent = started(&fixture);
    let watch = json!({"command": "make watch", "run_in_background": true});
    agent.call("Bash", watch, || {});
    fixture.write("late", "whose?");
    agent.shell("echo 1 > agents");
    agent.turn_end();
    fixture.write("mine", "mine");
    agent.end();
    assert_eq!(kinds(&fixture), ["late", "tool", "user_edits"]);
    undo(&fixture, &[]).fails(1, "late: you may have edited it, too, up to step 1");
    let state = || ["agents", "late", "mine"].map(|name| text(&fixture, name).unwrap());
    undo(&fixture, &["--keep-newer"]).success();
    assert_eq!(state(), ["0", "whose?", "mine"]);
    undo(&fixture, &["--force"]).success();
    assert_eq!(state(), ["0", "0", "mine"]);
}

#[test]
fn what_an_undo_brought_back_is_nobodys_edit() {
    let fixture = Fixture::new();
    for name in ["one", "two", "mine"] {
        fixture.write(name, "0");
    }
    let agent = started(&fixture);
    agent.shell("echo 1 > one");
    agent.shell("echo 1 > two");
    agent.turn_end();
    // No step holds it, and the state before the undo of a step does.
    fixture.write("mine", "mine");
    fixture.nono(&["undo", "--step", "1", "--yes"]).success();
    agent.prompt_after_undo("two");
    agent.shell("echo 5 > one");
    agent.turn_end();
    let state = || ["one", "two", "mine"].map(|name| text(&fixture, name).unwrap());
    assert_eq!(state(), ["5\n", "1\n", "mine"]);
    undo(&fixture, &[]).success();
    assert_eq!(state(), ["0", "0", "mine"]);
    // The agent goes on after the undo of all.
    agent.prompt_after_undo("three");
    agent.shell("echo 7 > two");
    agent.turn_end();
    assert_eq!(state(), ["0", "7\n", "mine"]);
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).success().json();
    assert_eq!(named(&fixture, &planned, "spared"), ["mine"], "{planned}");
    undo(&fixture, &[]).success();
    assert_eq!(state(), ["0", "0", "mine"]);
}

#[test]
fn where_a_state_in_between_is_damaged_every_path_is_a_conflict() {
    let fixture = Fixture::new();
    together(&fixture);
    let manifest = fixture.session().join("snapshots/2/manifest.json");
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let root = manifest["merkle_root"].as_str().unwrap();
    fs::remove_file(fixture.store().join("objects").join(&root[..2]).join(&root[2..])).unwrap();
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).fails(1, "").json();
    let conflicts = ["agents", "mine", "shared"];
    assert_eq!(named(&fixture, &planned, "conflicts"), conflicts, "{planned}");
    undo(&fixture, &["--force"]).success();
    assert_eq!(three(&fixture), ["0", "0", "0"]);
}

fn git(fixture: &Fixture, words: &[&str]) -> String {
    let name = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "gc.auto=0"];
    let mut git = Command::new("git");
    git.args(name).args(words).current_dir(fixture.project());
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = git.output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// A repository in which the user commits between two prompts, and the agent as well if it is told
/// to.
fn committed(fixture: &Fixture, agent_commits: bool) {
    git(fixture, &["init", "-q"]);
    fixture.write("agents", "0");
    git(fixture, &["add", "-A"]);
    git(fixture, &["commit", "-qm", "first"]);
    let agent = started(fixture);
    agent.shell("echo 1 > agents; git status --short >/dev/null");
    if agent_commits {
        agent.shell("git -c user.name=a -c user.email=a@b commit -qam agents");
    }
    agent.turn_end();
    fixture.write("mine", "mine");
    git(fixture, &["add", "mine"]);
    git(fixture, &["commit", "-qm", "mine"]);
    agent.prompt("two");
    agent.shell("echo 2 > agents");
    agent.end();
}

#[test]
fn what_the_user_committed_between_the_prompts_stays() {
    let fixture = Fixture::new();
    committed(&fixture, false);
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).success().json();
    assert_eq!(named(&fixture, &planned, "spared"), [".git", "mine"], "{planned}");
    undo(&fixture, &[]).success();
    assert_eq!(text(&fixture, "agents").unwrap(), "0");
    assert_eq!(git(&fixture, &["log", "--format=%s"]), "mine\nfirst\n");
    assert_eq!(git(&fixture, &["status", "--short"]), "");
}

#[test]
fn a_repository_in_which_both_committed_is_one_conflict() {
    let fixture = Fixture::new();
    committed(&fixture, true);
    let refused = undo(&fixture, &[]).fails(1, ".git: you edited it, too, in step");
    assert!(!refused.says(".git/"), "{}", refused.stderr);
    assert_eq!(text(&fixture, "agents").unwrap(), "2\n");
    undo(&fixture, &["--keep-newer"]).success();
    assert_eq!(text(&fixture, "agents").unwrap(), "0");
    assert_eq!(git(&fixture, &["log", "--format=%s"]), "mine\nagents\nfirst\n");
}

#[test]
fn a_git_status_after_an_undo_is_nobodys_work() {
    let fixture = Fixture::new();
    git(&fixture, &["init", "-q"]);
    fixture.write("agents", "0");
    git(&fixture, &["add", "-A"]);
    git(&fixture, &["commit", "-qm", "first"]);
    let agent = started(&fixture);
    agent.shell("echo 1 > agents; git -c user.name=a -c user.email=a@b commit -qam agents");
    agent.turn_end();
    for redoes in [false, true] {
        undo(&fixture, &[]).success();
        if redoes {
            fixture.nono(&["redo"]).success();
        }
        git(&fixture, &["status", "--short"]);
        agent.prompt_after_undo("more");
        agent.shell("echo 2 > agents");
        agent.turn_end();
        undo(&fixture, &[]).success();
        assert_eq!(text(&fixture, "agents").unwrap(), "0");
        assert_eq!(git(&fixture, &["log", "--format=%s"]), "first\n");
        agent.prompt_after_undo("again");
        agent.shell("echo 3 > agents; git -c user.name=a -c user.email=a@b commit -qam agents");
        agent.turn_end();
    }
}

#[test]
fn an_edit_of_the_user_that_the_agent_destroyed_is_named_with_the_way_to_it() {
    let fixture = Fixture::new();
    git(&fixture, &["init", "-q"]);
    for name in ["b", "c", "agents"] {
        fixture.write(name, "0");
    }
    git(&fixture, &["add", "-A"]);
    git(&fixture, &["commit", "-qm", "first"]);
    let agent = started(&fixture);
    agent.shell("echo 1 > agents");
    agent.turn_end();
    fixture.write("b", "mine");
    fixture.write("own", "mine");
    // The user takes this back by hand: no edit was destroyed.
    fixture.write("c", "mine");
    agent.prompt("two");
    agent.shell("git checkout -q b; rm own");
    agent.turn_end();
    fixture.write("c", "0");
    agent.prompt("three");
    agent.shell("echo 2 > agents");
    agent.end();
    let planned = fixture.nono(&["undo", "--dry-run", "--json"]).success().json();
    assert_eq!(named(&fixture, &planned, "overwritten"), ["b", "own"], "{planned}");
    let undone = undo(&fixture, &[]).success();
    assert_eq!(text(&fixture, "agents").unwrap(), "0");
    for way in undone.stderr.lines().filter(|line| line.contains("bring it back: ")) {
        let words: Vec<_> = way.rsplit("nono ").next().unwrap().split_whitespace().collect();
        fixture.nono(&words).success();
    }
    let state = ["b", "own", "c"].map(|name| text(&fixture, name).unwrap());
    assert_eq!(state, ["mine", "mine", "0"]);
}

#[test]
fn going_back_to_a_step_names_the_users_own_edits() {
    for ends in [true, false] {
        let fixture = Fixture::new();
        let agent = apart(&fixture);
        if ends {
            agent.end();
        }
        let said = "changed by you or others, and goes too: edited, gone, made/mine and 1 more";
        let planned = fixture.nono(&["undo", "--to-step", "1", "--dry-run"]).success();
        assert!(planned.says(said), "{}", planned.stderr);
        let done = fixture.nono(&["undo", "--to-step", "1", "--yes"]).success();
        assert!(done.says(said), "{}", done.stderr);
        assert_eq!(text(&fixture, "edited").unwrap(), "0");
        fixture.nono(&["redo"]).success();
        assert_eq!(text(&fixture, "edited").unwrap(), "mine");
        // Nothing of the user's is newer.
        let later = fixture.nono(&["undo", "--to-step", "2", "--dry-run"]).success();
        assert!(later.stdout.contains("agents") && !later.says("goes too"), "{}", later.stderr);
    }
}

#[test]
fn what_an_undo_and_its_redo_brought_is_no_edit_that_going_back_takes() {
    let fixture = Fixture::new();
    fixture.write("agents", "0");
    let agent = started(&fixture);
    agent.shell("echo 1 > agents");
    agent.shell("echo 2 > agents; echo 2 > made");
    undo(&fixture, &[]).success();
    fixture.nono(&["redo"]).success();
    agent.prompt_after_undo("two");
    agent.shell("echo 3 > agents");
    let back = ["undo", "--to-step", "1", "--dry-run"];
    let planned = fixture.nono(&back).success();
    assert!(planned.stdout.contains("made"), "{}", planned.stdout);
    assert!(!planned.says("goes too"), "{}", planned.stderr);
    // After the last call: no step holds it.
    fixture.write("agents", "mine");
    let planned = fixture.nono(&back).success();
    assert!(planned.says("changed by you or others, and goes too: agents\n"), "{}", planned.stderr);
}
