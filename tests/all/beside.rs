//! Two sessions at work in one project: what either may have made is never taken back unasked.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::git_history::{git, settings};
use crate::here::{Projects, Working};
use crate::hooks::{Agent, quiet, start};

/// A path of a report below a project.
fn relative(path: &Value, project: &str) -> String {
    path.as_str().unwrap().strip_prefix(project).unwrap()[1..].to_owned()
}

/// The conflicts of a planned undo: each path with the sessions that it names.
fn conflicts(plan: &Value, project: &str) -> Vec<(String, Vec<String>)> {
    let entries = plan["conflicts"].as_array().unwrap().iter();
    let beside = |entry: &Value| {
        let ids = entry["beside"].as_array().cloned().unwrap_or_default();
        ids.iter().map(|id| id.as_str().unwrap().to_owned()).collect()
    };
    entries.map(|entry| (relative(&entry["path"], project), beside(entry))).collect()
}

fn changes(plan: &Value, project: &str) -> Vec<String> {
    plan["changes"].as_array().unwrap().iter().map(|it| relative(&it["path"], project)).collect()
}

/// A run that wrote `early` before another one, which wrote `inner` and has ended, and then `late`.
/// The ids of both.
fn nested(projects: &Projects) -> (String, String) {
    let outer = Working::start(projects, "q1", "echo o > early", "echo o > late; echo o > file");
    let first = outer.session.clone();
    let second = projects.record("q1", "echo i > inner; echo i >> sub/deep");
    outer.release().success();
    (first, second)
}

#[test]
fn a_file_that_either_of_two_runs_may_have_made_is_a_conflict_that_names_the_other() {
    let projects = Projects::new();
    let project = projects.dir("q1").display().to_string();
    let (first, second) = nested(&projects);
    let contested = |other: &str| {
        ["inner", "sub/deep"].map(|path| (path.to_owned(), vec![other.to_owned()])).to_vec()
    };
    let plan = |id: &str, flags: &[&str]| {
        let words = [&["undo", id, "--dry-run", "--json"], flags].concat();
        projects.nono("q1", &words).json()
    };
    assert_eq!(conflicts(&plan(&second, &[]), &project), contested(&first));
    assert_eq!(conflicts(&plan(&first, &[]), &project), contested(&second));
    let refused = projects.nono("q1", &["undo", &second, "--yes"]);
    let refused = refused.fails(1, "changes that another session may have made");
    let said = format!("inner may be the work of session {first} as well, at work or restored at");
    assert!(refused.says(&said), "{}", refused.stderr);
    assert_eq!(projects.read("q1/inner"), "i\n");
    // The rest of the first is its own beyond doubt.
    let own = ["early", "file", "late"];
    assert_eq!(changes(&plan(&first, &["--keep-newer"]), &project), own);
    projects.nono("q1", &["undo", &first, "--yes", "--keep-newer"]).success();
    assert!(!projects.dir("q1/early").exists() && !projects.dir("q1/late").exists());
    assert_eq!(projects.read("q1/inner"), "i\n");
    projects.nono("q1", &["redo"]).success();
    assert_eq!(projects.read("q1/early"), "o\n");
    // The flag is an answer, and the undone session is no obstacle.
    projects.nono("q1", &["undo", &second, "--yes", "--force"]).success();
    assert!(!projects.dir("q1/inner").exists());
    projects.nono("q1", &["undo", &first, "--yes"]).success();
    assert!(!projects.dir("q1/early").exists());
}

#[test]
fn sessions_one_after_the_other_are_in_no_conflict() {
    let projects = Projects::new();
    projects.record("q1", "echo 1 > made; echo 1 > file");
    let second = projects.record("q1", "echo 2 > made; echo 2 > other");
    let plan = projects.nono("q1", &["undo", "--dry-run", "--json"]).success().json();
    assert_eq!(plan["session_id"], second.as_str());
    projects.nono("q1", &["undo", "--yes"]).success();
    projects.nono("q1", &["undo", "--yes"]).success();
    assert!(!projects.dir("q1/made").exists() && !projects.dir("q1/other").exists());
}

#[test]
fn a_killed_run_may_have_made_what_changed_since_it_began_and_no_more() {
    let projects = Projects::new();
    let project = projects.dir("q1").display().to_string();
    let outer = Working::start(&projects, "q1", "echo o > early", "echo o > late");
    let first = outer.session.clone();
    let inner = Working::start(&projects, "q1/sub", "echo i > made", "true");
    let killed = inner.session.clone();
    inner.kill();
    outer.release().success();
    let plan = projects.nono("q1", &["undo", &first, "--dry-run", "--json"]).json();
    assert_eq!(conflicts(&plan, &project), [("sub/made".to_owned(), vec![killed])]);
    // One that was killed before a session began is not in its way.
    let later = projects.record("q1", "echo l > sub/made; echo l > sub/other");
    projects.nono("q1", &["undo", &later, "--yes"]).success();
    assert_eq!(projects.read("q1/sub/made"), "i\n");
}

#[test]
fn an_undo_beside_a_run_that_is_at_work_leaves_what_that_may_have_made() {
    let projects = Projects::new();
    let project = projects.dir("q1").display().to_string();
    let running = Working::start(&projects, "q1", "true", "true");
    let first = projects.record("q1", "echo 1 > made");
    let plan = projects.nono("q1", &["undo", &first, "--dry-run", "--json"]).json();
    let contested = [("made".to_owned(), vec![running.session.clone()])];
    assert_eq!(conflicts(&plan, &project), contested);
    running.release().success();
}

#[test]
fn what_a_restore_changed_while_a_run_was_at_work_is_not_the_work_of_the_run() {
    // The way in which the files got their earlier state, and whether the run ends or is killed.
    for (way, is_killed) in [("undo", false), ("paths", false), ("restore", false), ("undo", true)]
    {
        let projects = Projects::new();
        let project = projects.dir("q1").display().to_string();
        let first = projects.record("q1", "echo 1 > file; echo 1 > made; rm sub/deep");
        let running = Working::start(&projects, "q1", "echo r > ran", "echo r > late");
        let second = running.session.clone();
        let restore: &[&str] = match way {
            "undo" => &["undo", &first, "--yes", "--force"],
            "paths" => &["undo", &first, "file", "made", "--yes", "--force"],
            _ => &["restore", &first, "--yes", "--force"],
        };
        projects.nono("q1", restore).success();
        if is_killed {
            running.kill();
        } else {
            let ended = running.release().success();
            let said = format!("session {first} was restored in ~/dev/q1 meanwhile");
            assert!(ended.says(&said), "{way}: {}", ended.stderr);
        }
        let contested: &[&str] = match way {
            "paths" => &["file", "made"],
            _ => &["file", "made", "sub/deep"],
        };
        let contested: Vec<_> =
            contested.iter().map(|path| ((*path).to_owned(), vec![first.clone()])).collect();
        let plan = projects.nono("q1", &["undo", &second, "--dry-run", "--json"]).json();
        assert_eq!(conflicts(&plan, &project), contested, "{way}");
        projects.nono("q1", &["undo", &second, "--yes"]).fails(1, "at work or restored at");
        projects.nono("q1", &["undo", &second, "--yes", "--keep-newer"]).success();
        assert_eq!(projects.read("q1/file"), "q1", "{way}: the undo stands");
        assert!(!projects.dir("q1/made").exists(), "{way}");
        assert!(!projects.dir("q1/ran").exists() && !projects.dir("q1/late").exists(), "{way}");
    }
}

#[test]
fn a_restore_before_or_after_a_run_is_in_no_conflict_with_it() {
    let projects = Projects::new();
    let first = projects.record("q1", "echo 1 > file");
    projects.nono("q1", &["undo", "--yes"]).success();
    let second = projects.record("q1", "echo 2 > file; echo 2 > made");
    projects.nono("q1", &["restore", &format!("{first}/1"), "--yes", "--force"]).success();
    projects.nono("q1", &["redo", "--yes"]).success();
    projects.nono("q1", &["undo", &second, "--yes"]).success();
    assert_eq!(projects.read("q1/file"), "q1");
    assert!(!projects.dir("q1/made").exists());
}

/// Two agents: each worked alone on a file of its own, and both had a call at work when `either`
/// was made.
fn two_agents(fixture: &Fixture) -> [String; 2] {
    for name in ["ones", "twos"] {
        fixture.write(name, "0");
    }
    let [one, two] = ["claude-code", "codex"].map(|client| Agent::new(fixture, client));
    for agent in [&one, &two] {
        agent.hook("SessionStart", &json!({"source": "startup"}));
        agent.prompt("work");
    }
    one.shell("echo 1 > ones");
    two.shell("echo 2 > twos");
    let calls = [&one, &two].map(|agent| agent.call_of("Bash", json!({"command": "make"})));
    one.before(&calls[0]);
    two.before(&calls[1]);
    fixture.write("either", "whose?");
    one.after(&calls[0]);
    two.after(&calls[1]);
    for agent in [&one, &two] {
        agent.turn_end();
        agent.end();
    }
    let list = fixture.nono(&["list", "--json"]).success().json();
    ["claude-code", "codex"].map(|client| {
        let mut sessions = list.as_array().unwrap().iter();
        let session = sessions.find(|session| session["agent"]["client"] == client).unwrap();
        session["session_id"].as_str().unwrap().to_owned()
    })
}

#[test]
fn of_two_agents_each_undo_spares_the_other_and_asks_about_what_either_may_have_made() {
    let fixture = Fixture::new();
    let ids = two_agents(&fixture);
    let project = fixture.project().display().to_string();
    let text = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    for (id, other, own) in [(&ids[0], &ids[1], "ones"), (&ids[1], &ids[0], "twos")] {
        let plan = fixture.nono(&["undo", id, "--dry-run", "--json"]).fails(1, "").json();
        assert_eq!(conflicts(&plan, &project), [("either".to_owned(), vec![other.clone()])]);
        fixture.nono(&["undo", id, "--yes"]).fails(1, "either may be the work of session");
        fixture.nono(&["undo", id, "--yes", "--keep-newer"]).success();
        assert_eq!(text(own), "0", "{id}");
        assert_eq!(text("either"), "whose?");
        fixture.nono(&["redo"]).success();
    }
    assert_eq!(["ones", "twos"].map(text), ["1\n", "2\n"]);
}

#[test]
fn a_call_of_another_agent_that_is_still_at_work_may_have_made_what_changed_since() {
    let fixture = Fixture::new();
    for name in ["ones", "either", "before"] {
        fixture.write(name, "0");
    }
    let project = fixture.project().display().to_string();
    let [one, two] = ["claude-code", "codex"].map(|client| Agent::new(&fixture, client));
    two.hook("SessionStart", &json!({"source": "startup"}));
    two.prompt("work");
    one.hook("SessionStart", &json!({"source": "startup"}));
    one.prompt("work");
    one.shell("echo 1 > ones; echo 1 > before");
    let open = two.call_of("Bash", json!({"command": "make"}));
    two.before(&open);
    one.shell("echo 1 > either");
    one.turn_end();
    one.end();
    let list = fixture.nono(&["list", "--json"]).success().json();
    let id_of = |client: &str| {
        let mut sessions = list.as_array().unwrap().iter();
        let session = sessions.find(|session| session["agent"]["client"] == client).unwrap();
        session["session_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (id_of("claude-code"), id_of("codex"));
    let contested = |id: &str| {
        let plan = fixture.nono(&["undo", id, "--dry-run", "--json"]).json();
        conflicts(&plan, &project)
    };
    assert_eq!(contested(&first), [("either".to_owned(), vec![second.clone()])]);
    // The call has ended, and its state says what may be its work: the same.
    two.after(&open);
    assert_eq!(contested(&first), [("either".to_owned(), vec![second])]);
    // A call that never ends, as of an agent that was killed, is in the way of no later session.
    two.before(&two.call_of("Bash", json!({"command": "sleep"})));
    fixture.record("echo 2 > either").success();
    assert_eq!(contested(&fixture.latest()), []);
}

#[test]
fn a_call_that_was_never_heard_of_again_hides_no_later_one() {
    let fixture = Fixture::new();
    fixture.write("either", "0");
    let project = fixture.project().display().to_string();
    let [one, two] = ["claude-code", "codex"].map(|client| Agent::new(&fixture, client));
    two.hook("SessionStart", &json!({"source": "startup"}));
    two.before(&two.call_of("Bash", json!({"command": "refused"})));
    one.hook("SessionStart", &json!({"source": "startup"}));
    two.before(&two.call_of("Bash", json!({"command": "make"})));
    one.shell("echo 1 > either");
    one.end();
    let list = fixture.nono(&["list", "--all", "--json"]).success().json();
    let of = |client: &str| {
        let mut sessions = list.as_array().unwrap().iter();
        let session = sessions.find(|session| session["agent"]["client"] == client).unwrap();
        session["session_id"].as_str().unwrap().to_owned()
    };
    let plan = fixture.nono(&["undo", &of("claude-code"), "--dry-run", "--json"]).json();
    assert_eq!(conflicts(&plan, &project), [("either".to_owned(), vec![of("codex")])]);
}

#[test]
fn the_undo_of_a_step_leaves_what_another_agent_may_have_made() {
    let fixture = Fixture::new();
    let [first, second] = two_agents(&fixture);
    let step = format!("{first}#last");
    let done = fixture.nono(&["undo", "--step", &step, "--yes"]);
    let done = done.fails(1, "what step 3 did there");
    let said =
        format!("session {second}, at work or restored at the same time, may have changed it");
    assert!(done.says(&said), "{} {}", done.stdout, done.stderr);
    assert!(fixture.project().join("either").exists());
}

#[test]
fn a_killed_run_that_was_at_work_when_another_began_is_a_rival_of_that() {
    let projects = Projects::new();
    let project = projects.dir("q1").display().to_string();
    let outer = Working::start(&projects, "q1", "true", "true");
    let killed = outer.session.clone();
    let inner = Working::start(&projects, "q1/sub", "echo i > made", "true");
    let second = inner.session.clone();
    fs::write(projects.dir("q1/sub/late"), "o").unwrap();
    outer.kill();
    inner.release().success();
    let plan = projects.nono("q1", &["undo", &second, "--dry-run", "--json"]).json();
    let contested = ["sub/late", "sub/made"].map(|path| (path.to_owned(), vec![killed.clone()]));
    assert_eq!(conflicts(&plan, &project), contested);
}

#[test]
fn an_agent_in_a_linked_work_tree_works_on_the_repository_too() {
    let fixture = Fixture::new();
    settings(&fixture);
    let project = fixture.project();
    let linked = fixture.path("linked");
    git(&fixture, &project, &["init", "-q", "-b", "main"]).success();
    git(&fixture, &project, &["commit", "-q", "--allow-empty", "-m", "base"]).success();
    let add = ["worktree", "add", "-q", linked.to_str().unwrap(), "-b", "feat"];
    git(&fixture, &project, &add).success();
    let one = Agent::new(&fixture, "claude-code");
    one.hook("SessionStart", &json!({"source": "startup"}));
    one.prompt("work");
    let call = one.call_of("Bash", json!({"command": "commit"}));
    one.before(&call);
    let other = |name: &str, more: Value| {
        let mut event = json!({"session_id": "other", "cwd": linked, "hook_event_name": name});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut command = fixture.command(&["hook", "codex", "--deadline-ms", "60000"]);
        command.current_dir(&linked);
        quiet(start(command, &event.to_string()));
    };
    let work = json!({"tool_name": "Bash", "tool_use_id": "w", "tool_input": {"command": "git"}});
    other("SessionStart", json!({"source": "startup"}));
    other("UserPromptSubmit", json!({"prompt": "x"}));
    other("PreToolUse", work.clone());
    fs::write(linked.join("w"), "w").unwrap();
    git(&fixture, &linked, &["add", "w"]).success();
    git(&fixture, &linked, &["commit", "-qm", "theirs"]).success();
    other("PostToolUse", work);
    fixture.write("f", "f");
    git(&fixture, &project, &["add", "f"]).success();
    git(&fixture, &project, &["commit", "-qm", "mine"]).success();
    one.after(&call);
    one.end();
    let log = || git(&fixture, &project, &["log", "--all", "--format=%s"]).success().stdout;
    let before = log();
    let list = fixture.nono(&["list", "--path", ".", "--json"]).success().json();
    let is_mine = |session: &&Value| session["agent"]["client"] == "claude-code";
    let id = list.as_array().unwrap().iter().find(is_mine).unwrap()["session_id"].as_str().unwrap();
    fixture.nono(&["undo", id, "--yes"]).fails(1, ".git may be the work of session");
    assert_eq!(log(), before);
    // Files alone are the agent's.
    fixture.nono(&["undo", id, "--yes", "--keep-commits"]).success();
    assert!(!project.join("f").exists());
    assert_eq!(log(), before);
}
