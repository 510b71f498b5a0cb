//! Sessions with steps: the last of each prompt is pushed, or all.

use serde_json::Value;

use crate::fixture::Fixture;
use crate::hooks::{Agent, steps};

/// The numbers of the snapshots that a push sent.
fn sent(report: &Value) -> Vec<u64> {
    let pushed = report["snapshots"].as_array().unwrap().iter();
    let stored = pushed.filter(|one| one["outcome"] == "stored");
    stored.map(|one| one["snapshot"].as_u64().unwrap()).collect()
}

#[test]
fn the_last_step_of_each_prompt_is_pushed_and_with_steps_all_of_them() {
    let fixture = Fixture::new();
    for file in 0..20 {
        fixture.write(&format!("{file}"), "0\n");
    }
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &serde_json::json!({"source": "startup"}));
    for (prompt, steps) in [("one", 3), ("two", 2), ("three", 1)] {
        agent.prompt(prompt);
        (0..steps).for_each(|step| agent.shell(&format!("echo {prompt} {step} >> 0")));
        agent.turn_end();
    }
    agent.end();
    let numbers: Vec<_> = steps(&fixture).into_iter().map(|(number, ..)| number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    // A snapshot that is no step.
    let session = fixture.latest();
    let place = fixture.path("remote").to_str().unwrap().to_owned();
    let push = |more: &[&str]| {
        let push = ["push", &place, &session, "--plaintext", "--json"];
        fixture.nono(&[&push[..], more].concat()).success().json()
    };
    assert_eq!(sent(&push(&[])), [0, 3, 5, 6]);
    assert_eq!(sent(&push(&[])), [] as [u64; 0]);
    assert_eq!(sent(&push(&["--steps"])), [1, 2, 4]);
    // All of them come back, as steps.
    let root = fixture.path("store").to_str().unwrap().to_owned();
    fixture.nono(&["--root", &root, "pull", &place, &session]).success();
    fixture.nono(&["--root", &root, "rollback", "verify", &session]).success();
    let told = |root: &str| {
        let steps = fixture.nono(&["--root", root, "steps", &session, "--json"]).success().json();
        steps["prompts"].clone()
    };
    assert_eq!(told(&root), told(fixture.store().to_str().unwrap()));
    assert_ne!(told(&root), Value::Null);
}
