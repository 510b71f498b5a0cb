//! `nono bisect`: the state, the step and the prompt at which a command began to fail.

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::forks::has_forks;
use crate::hooks::Agent;
use crate::observe::{assert_same, observe};

/// A session of an agent: two prompts, nine steps, of which the sixth breaks something.
fn broken_by_the_sixth_step(fixture: &Fixture) {
    fixture.write("code", "works\n");
    let agent = Agent::new(fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("tidy up");
    for step in 1..=9 {
        if step == 5 {
            agent.prompt("update the packages");
        }
        let command = format!("work {step}");
        agent.call("Bash", json!({"command": command}), || {
            fixture.write(&format!("file-{step}"), format!("{step}\n"));
            if step == 6 {
                fixture.write("code", "broken\n");
            }
        });
    }
    agent.end();
}

const WORKS: &str = "echo tried > trace; grep -q works code";

fn forks(fixture: &Fixture) -> Value {
    fixture.nono(&["forks", "--json"]).success().json()
}

#[test]
fn the_step_and_the_prompt_that_broke_it_are_found_and_nothing_is_left() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    broken_by_the_sixth_step(&fixture);
    let before = observe(&fixture.project());
    let sessions = fixture.nono(&["list", "--json"]).success().json();
    let told = fixture.nono(&["bisect", "--", "sh", "-c", WORKS]).success();
    assert!(told.says("step 6, Bash"), "{}{}", told.stdout, told.stderr);
    assert!(told.says("work 6"), "{}", told.stdout);
    assert!(told.says("update the packages"), "{}", told.stdout);
    assert!(told.says("code"), "{}", told.stdout);
    assert!(told.says("see the change: nono diff"), "{}", told.stderr);
    assert_same(&before, &observe(&fixture.project()));
    assert_eq!(forks(&fixture), json!([]));
    let after = fixture.nono(&["list", "--json"]).success().json();
    assert_eq!(after.as_array().unwrap().len(), sessions.as_array().unwrap().len());

    let id = fixture.latest();
    let (good, bad) = (format!("{id}/1"), format!("{id}/8"));
    let words = ["bisect", "--good", &good, "--bad", &bad, "--jobs", "3", "--json", "--", "sh"];
    let report = fixture.nono(&[&words[..], &["-c", WORKS]].concat()).success().json();
    assert_eq!(report["bad"]["number"], json!(6), "{report}");
    assert_eq!(report["good"]["number"], json!(5), "{report}");
    assert_eq!(report["bad"]["step"]["prompt"]["text"], json!("update the packages"), "{report}");
    assert!(report["tries"].as_u64().unwrap() <= 8, "{report}");
    let changed = report["changes"].to_string();
    assert!(changed.contains("code") && changed.contains("file-6"), "{report}");
    assert_eq!(forks(&fixture), json!([]));
}

#[test]
fn states_that_cannot_be_tried_are_skipped_and_named() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    broken_by_the_sixth_step(&fixture);
    let script = "test -e file-5 && ! test -e file-7 && exit 125; grep -q works code";
    let report = fixture.nono(&["bisect", "--json", "--", "sh", "-c", script]).success().json();
    assert_eq!(report["good"]["number"], json!(4), "{report}");
    assert_eq!(report["bad"]["number"], json!(7), "{report}");
    assert_eq!(report["skipped"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn without_a_good_or_a_bad_state_nothing_is_claimed() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    let bisect = |words: &[&str], script: &str| {
        fixture.nono(&[&["bisect"], words, &["--", "sh", "-c", script]].concat())
    };
    bisect(&[], "true").fails(1, "no session is here");
    fixture.write("code", "works\n");
    fixture.record("echo broken > code").success();
    bisect(&[], "true").fails(1, "it is no bad state");
    bisect(&[], "false").fails(1, "succeeds at no state that is recorded here");
    bisect(&["--good", "latest/1"], "grep -q works code").fails(1, "does not succeed at");
    bisect(&["--good", "now", "--bad", "latest/0"], "true").fails(2, "not older");
    fixture.nono(&["bisect"]).fails(2, "needs a command");
    // A later change by hand is found, too.
    fixture.write("code", "works\n");
    fixture.record("echo more > other").success();
    fixture.write("code", "broken\n");
    let told = bisect(&[], "grep -q works code").success();
    assert!(told.stdout.starts_with("now"), "{}", told.stdout);
    assert_eq!(forks(&fixture), json!([]));
}
