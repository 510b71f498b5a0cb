//! Checkpoints that an agent takes by `nono mcp`: each is a step of the prompt for which the agent
//! took it.

use std::fs;

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::hooks::{Agent, quiet};
use crate::mcp::Client;

/// The prompts of a session as `nono steps` tells them: number, text, and of each step number, kind
/// and title.
fn prompts(fixture: &Fixture, id: &str) -> Value {
    let report = fixture.nono(&["steps", id, "--json"]).success().json();
    let prompts = report["prompts"].as_array().unwrap().iter().map(|prompt| {
        let steps = prompt["steps"].as_array().unwrap().iter();
        let steps: Vec<_> =
            steps.map(|step| json!([step["number"], step["kind"], step["title"]])).collect();
        json!([prompt["number"], prompt["text"], steps])
    });
    Value::Array(prompts.collect())
}

/// A call of our own tool, as the hooks announce it.
fn checkpoint(agent: &Agent<'_>, client: &mut Client, label: &str) -> Value {
    let mut at = Value::Null;
    agent.call("mcp__nono__checkpoint", json!({"label": label}), || {
        at = client.call("checkpoint", json!({"label": label}));
    });
    at
}

#[test]
fn a_checkpoint_is_a_step_of_the_prompt_in_which_it_was_called() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let agent = Agent::new(&fixture, "claude-code");
    let mut client = Client::of(&fixture);
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("first");
    agent.shell("echo 1 > a");
    agent.turn_end();
    agent.prompt("second");
    // The prompt has no step yet, and nothing has changed since the last one.
    let at = checkpoint(&agent, &mut client, "before the risk");
    assert_eq!(at["number"], 2);
    agent.shell("echo 2 > a");
    agent.turn_end();
    agent.prompt("third");
    fixture.write("a", "mine");
    checkpoint(&agent, &mut client, "again");
    agent.end();
    assert_eq!(
        prompts(&fixture, "latest"),
        json!([
            [1, "first", [[1, "tool", "echo 1 > a"]]],
            [2, "second", [[2, "checkpoint", "before the risk"], [3, "tool", "echo 2 > a"]]],
            [3, "third", [[4, "user_edits", null], [5, "checkpoint", "again"]]],
        ])
    );
    let report = fixture.nono(&["steps", "--json"]).success().json();
    let step = &report["prompts"][1]["steps"][0];
    assert_eq!(step["call_id"], "call_2");
    assert_eq!((&step["changes"]["modified"], &step["overlapped"]), (&json!(0), &Value::Null));
    fixture.nono(&["rollback", "verify"]).success();
    client.end();
}

#[test]
fn a_client_that_announces_no_call_gets_the_checkpoint_under_its_last_prompt() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let agent = Agent::new(&fixture, "opencode");
    let mut client = Client::of(&fixture);
    agent.hook("SessionStart", &json!({"source": "startup"}));
    client.call("checkpoint", json!({"label": "early"}));
    agent.prompt("first");
    agent.shell("echo 1 > a");
    agent.prompt("second");
    client.call("checkpoint", json!({"label": "late"}));
    agent.end();
    assert_eq!(
        prompts(&fixture, "latest"),
        json!([
            [null, null, [[1, "checkpoint", "early"]]],
            [1, "first", [[2, "tool", "echo 1 > a"]]],
            [2, "second", [[3, "checkpoint", "late"]]],
        ])
    );
    client.end();
}

#[test]
fn of_two_agents_in_one_project_the_one_that_announced_the_call_has_the_checkpoint() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (first, second) = (Agent::new(&fixture, "claude-code"), Agent::new(&fixture, "codex"));
    let mut client = Client::of(&fixture);
    let id_of = |client: &str| {
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        let list = list.as_array().unwrap();
        let found = list.iter().find(|session| session["agent"]["client"] == client);
        found.unwrap()["session_id"].as_str().unwrap().to_owned()
    };
    first.hook("SessionStart", &json!({"source": "startup"}));
    first.prompt("of claude");
    second.hook("SessionStart", &json!({"source": "startup"}));
    second.prompt("of codex");
    let at = checkpoint(&first, &mut client, "one");
    assert_eq!(at["session_id"], id_of("claude-code"));
    let at = checkpoint(&second, &mut client, "two");
    assert_eq!(at["session_id"], id_of("codex"));
    // No agent announced it: the newest session.
    let at = client.call("checkpoint", json!({"label": "three"}));
    assert_eq!(at["session_id"], id_of("codex"));
    let of = |client: &str| prompts(&fixture, &id_of(client));
    assert_eq!(of("claude-code"), json!([[1, "of claude", [[1, "checkpoint", "one"]]]]));
    assert_eq!(
        of("codex"),
        json!([[1, "of codex", [[1, "checkpoint", "two"], [2, "checkpoint", "three"]]]])
    );
    client.end();
}

#[test]
fn a_prompt_whose_event_still_waits_counts() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("first");
    agent.shell("echo 1 > a");
    let spool = fs::read_dir(fixture.store().join(".agents")).unwrap();
    let spool = spool.map(|entry| entry.unwrap()).find(|it| it.path().is_dir()).unwrap().path();
    let lock = fs::File::options().write(true).open(spool.join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    // The worker cannot begin, and the client does not wait.
    quiet(agent.start_hook(
        "UserPromptSubmit",
        &json!({"prompt": "second"}),
        &["--deadline-ms", "0"],
    ));
    let mut client = Client::of(&fixture);
    client.call("checkpoint", json!({"label": "now"}));
    client.end();
    drop(lock);
    agent.end();
    assert_eq!(
        prompts(&fixture, "latest"),
        json!([
            [1, "first", [[1, "tool", "echo 1 > a"]]],
            [2, "second", [[2, "checkpoint", "now"]]],
        ])
    );
}

#[test]
fn inside_a_run_a_checkpoint_belongs_to_the_prompt_of_the_agent_that_calls() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    let program = env!("CARGO_BIN_EXE_nono");
    let hook = |client: &str, name: &str, more: Value| {
        let mut event =
            json!({"session_id": client, "cwd": fixture.project(), "hook_event_name": name});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("printf '%s' '{event}' | {program} hook {client} --deadline-ms 60000\n")
    };
    let prompt =
        |client: &str, text: &str| hook(client, "UserPromptSubmit", json!({"prompt": text}));
    let call = json!({
        "tool_name": "mcp__nono__checkpoint", "tool_use_id": "c7",
        "tool_input": {"label": "inside"},
    });
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    let begin = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let ask = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "checkpoint", "arguments": {"label": "inside"},
    }});
    // A server ends when its input does, so the input stays open until the answer is there.
    let serve = format!(
        "mkfifo in out; {program} mcp < in > out & exec 3> in 4< out; rm in out\n\
         printf '%s\\n' '{hello}' >&3; read -r line <&4\n\
         printf '%s\\n' '{begin}' '{ask}' >&3; read -r line <&4; exec 3>&-; wait\n"
    );
    let script = [
        hook("claude-code", "SessionStart", json!({})),
        prompt("claude-code", "one"),
        prompt("claude-code", "two"),
        hook("codex", "SessionStart", json!({})),
        hook("claude-code", "PreToolUse", call.clone()),
        prompt("codex", "of another"),
        serve,
        hook("claude-code", "PostToolUse", call),
    ]
    .concat();
    fixture.write("drive", script);
    fixture.nono(&["run", "--rollback", "--", "sh", "drive"]).success();
    let report = fixture.nono(&["steps", "--json"]).success().json();
    let [prompt] = &report["prompts"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&prompt["number"], &prompt["text"]), (&json!(2), &json!("two")));
    let [step] = &prompt["steps"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!((&step["kind"], &step["title"]), (&json!("checkpoint"), &json!("inside")));
    assert_eq!((&step["agent"], &step["call_id"]), (&json!("claude-code"), &json!("c7")));
}
