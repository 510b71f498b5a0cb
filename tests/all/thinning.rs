//! Steps that go when a store is over its limit: which ones stay, and what the commands say of
//! those that went.

use std::fs;

use jiff::{SignedDuration, Timestamp};
use nono_engine::gc::remove_snapshots;
use nono_engine::object::ContentHash;
use nono_engine::snapshot::{RemovalReason, SessionDir};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::hooks::{Agent, steps};
use crate::mcp::Client;

/// Number of steps in [`three_prompts`].
const LAST: u64 = 8;

/// A session of three prompts. In the first one, three steps add a line each to one file. The
/// second one begins with the user's own edits. The third one is of today.
fn three_prompts(fixture: &Fixture) -> Agent<'_> {
    fixture.write("log", "0\n");
    // A file that takes the store over its limit and is in every state.
    fixture.write("large", noise(64 << 10));
    let agent = Agent::new(fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("one");
    for number in 1..=3 {
        agent.shell(&format!("echo {number} >> first; seq {number}0000 > data"));
    }
    agent.turn_end();
    agent.prompt("two");
    fixture.write("mine", "by hand\n");
    agent.shell("echo 5 >> log");
    agent.shell("echo 6 >> log");
    agent.turn_end();
    agent.prompt("three");
    agent.shell("echo 7 >> log");
    agent.shell("echo 8 >> log");
    agent.turn_end();
    let kinds: Vec<_> =
        steps(fixture).into_iter().map(|(number, _, kind)| (number, kind)).collect();
    let tool = "tool".to_owned();
    let expected: Vec<_> = (1..=LAST)
        .map(|number| (number, if number == 4 { "user_edits".to_owned() } else { tool.clone() }))
        .collect();
    assert_eq!(kinds, expected);
    agent
}

/// Bytes that no compression shortens, the same each time.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

/// Moves snapshots of a session into the past, as if they had been taken then: times and the chain
/// of hashes are those of a session that nono wrote.
pub fn age(session: &std::path::Path, hours: impl Fn(u64) -> i64) {
    let read = |path: &std::path::Path| fs::read_to_string(path).unwrap();
    let of_session = session.join("manifest.json");
    let mut told = read(&of_session);
    let mut hashes: Vec<(String, String)> = Vec::new();
    for number in 0.. {
        let path = session.join(format!("snapshots/{number}/manifest.json"));
        if !path.exists() {
            break;
        }
        let mut text = read(&path);
        let before = ContentHash::of(text.as_bytes()).to_string();
        let value: Value = serde_json::from_str(&text).unwrap();
        let time: Timestamp = value["timestamp"].as_str().unwrap().parse().unwrap();
        let aged = (time - SignedDuration::from_hours(hours(number))).to_string();
        let written = value["timestamp"].as_str().unwrap();
        text = text.replace(written, &aged);
        told = told.replace(written, &aged);
        if let Some((old, new)) = hashes.last() {
            text = text.replace(old.as_str(), new);
        }
        hashes.push((before, ContentHash::of(text.as_bytes()).to_string()));
        fs::write(&path, text).unwrap();
    }
    for (old, new) in hashes {
        told = told.replace(&old, &new);
    }
    // The last field is the hash of what comes before it.
    let end = told.find("  \"checksum\"").unwrap();
    told.truncate(end);
    let checksum = ContentHash::of(told.as_bytes());
    told.push_str(&format!("  \"checksum\": \"{checksum}\"\n}}\n"));
    fs::write(&of_session, told).unwrap();
}

/// All but the last prompt is older than a day.
fn hours(number: u64) -> i64 {
    if number < 7 { 48 - i64::try_from(number).unwrap() } else { 0 }
}

/// A session of which the steps 1, 2, 4 and 5 were thinned.
fn thinned(fixture: &Fixture) -> Agent<'_> {
    let agent = three_prompts(fixture);
    agent.end();
    age(&fixture.session(), hours);
    fixture.nono(&["rollback", "verify"]).success();
    limit(fixture, "0.00001");
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.end();
    assert_eq!(removed(fixture), [1, 2, 4, 5]);
    agent
}

fn limit(fixture: &Fixture, gigabytes: &str) {
    fixture.nono(&["config", "set", "max_storage_gb", gigabytes]).success();
}

fn removed(fixture: &Fixture) -> Vec<u64> {
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let removed = list[0]["removed"].as_array().unwrap().iter();
    removed
        .map(|removed| {
            assert_eq!(removed["reason"], "thinning");
            removed["number"].as_u64().unwrap()
        })
        .collect()
}

fn log(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.project().join("log")).unwrap()
}

#[test]
fn a_store_within_its_limit_keeps_every_step() {
    let fixture = Fixture::new();
    let agent = three_prompts(&fixture);
    agent.end();
    age(&fixture.session(), hours);
    limit(&fixture, "1");
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.end();
    assert_eq!(removed(&fixture), [] as [u64; 0]);
}

#[test]
fn steps_of_the_last_day_stay_whatever_the_limit_is() {
    let fixture = Fixture::new();
    let agent = three_prompts(&fixture);
    limit(&fixture, "0.00001");
    agent.end();
    assert_eq!(removed(&fixture), [] as [u64; 0]);
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn of_older_prompts_the_last_step_stays_and_the_first_and_the_newest_state_in_any_case() {
    let fixture = Fixture::new();
    let agent = three_prompts(&fixture);
    agent.end();
    // Now the third prompt is old as well.
    age(&fixture.session(), |number| 60 - i64::try_from(number).unwrap());
    limit(&fixture, "0.00001");
    let manifest = |number: u64| {
        fs::read(fixture.session().join(format!("snapshots/{number}/manifest.json"))).unwrap()
    };
    let before: Vec<_> = (0..=LAST).map(manifest).collect();
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.end();
    assert_eq!(removed(&fixture), [1, 2, 4, 5, 7]);
    // The manifests of those that went are there, byte for byte, and the chain holds.
    assert_eq!((0..=LAST).map(manifest).collect::<Vec<_>>(), before);
    fixture.nono(&["rollback", "cleanup", "--yes", "--keep", "9", "--compact"]).success();
    let verified = fixture.nono(&["rollback", "verify", "--json"]).success().json();
    let numbers = verified["snapshots"].as_array().unwrap().iter().map(|it| &it["number"]);
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let contents = ["0", "0", "0 5 6", "0 5 6 7 8"];
    for (number, expected) in [0, 3, 6, 8].into_iter().zip(contents) {
        let read = fixture.nono(&["rollback", "cat", &format!("latest#{number}"), "log"]);
        assert_eq!(
            read.success().stdout.split_whitespace().collect::<Vec<_>>().join(" "),
            expected
        );
    }
    // The session goes on with the next number.
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.prompt("four");
    agent.shell("echo 9 >> log");
    agent.end();
    assert_eq!(steps(&fixture).last().unwrap().0, 9);
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn what_only_thinned_steps_needed_is_freed() {
    let fixture = Fixture::new();
    three_prompts(&fixture).end();
    let stored = || {
        let cleanup = ["rollback", "cleanup", "--yes", "--keep", "9", "--compact"];
        fixture.nono(&cleanup).success();
        let usage = fixture.nono(&["rollback", "usage", "--json"]).success().json();
        usage["total_bytes"].as_u64().unwrap()
    };
    let before = stored();
    age(&fixture.session(), hours);
    limit(&fixture, "0.00001");
    // Any run thins, too.
    fixture.record("true").success();
    let after = stored();
    assert!(after < before, "{after} of {before}");
}

#[test]
fn a_pinned_session_keeps_its_steps() {
    let fixture = Fixture::new();
    let agent = three_prompts(&fixture);
    agent.end();
    age(&fixture.session(), hours);
    limit(&fixture, "0.00001");
    fixture.nono(&["rollback", "pin", "latest"]).success();
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.end();
    assert_eq!(removed(&fixture), [] as [u64; 0]);
    fixture.nono(&["rollback", "unpin", "latest"]).success();
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.end();
    assert_eq!(removed(&fixture), [1, 2, 4, 5]);
}

#[test]
fn a_state_with_a_name_stays_where_its_neighbours_go() {
    let fixture = Fixture::new();
    fixture.write("log", "0\n");
    fixture.write("large", noise(64 << 10));
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("one");
    agent.shell("echo 1 >> log");
    let id = fixture.latest();
    fixture.nono(&["snapshot", "--session", &id, "-m", "works"]).success();
    agent.shell("echo 3 >> log");
    agent.shell("echo 4 >> log");
    agent.turn_end();
    agent.prompt("two");
    agent.shell("echo 5 >> log");
    agent.end();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["labels"], json!([{"number": 2, "label": "works"}]));
    age(&fixture.session(), hours);
    limit(&fixture, "0.00001");
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.end();
    assert_eq!(removed(&fixture), [1, 3]);
    let read = fixture.nono(&["rollback", "cat", "works", "log"]);
    assert_eq!(read.success().stdout, "0\n1\n");
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn the_list_of_steps_says_which_were_removed_and_how() {
    let fixture = Fixture::new();
    thinned(&fixture);
    let shown = fixture.nono(&["steps"]).success().stdout;
    let of = |number: u64| {
        let begin = format!("  #{number}  ");
        let line = shown.lines().find(|line| line.starts_with(&begin));
        line.unwrap_or_else(|| panic!("{number}: {shown}")).contains("removed by thinning on 20")
    };
    let gone: Vec<u64> = (1..=LAST).filter(|number| of(*number)).collect();
    assert_eq!(gone, [1, 2, 4, 5]);
    let report = fixture.nono(&["steps", "--json"]).success().json();
    let numbers: Vec<_> =
        report["removed"].as_array().unwrap().iter().map(|it| &it["number"]).collect();
    assert_eq!(numbers, [1, 2, 4, 5]);
    for command in [&["rollback", "show", "latest#2"][..], &["rollback", "diff", "latest#2"]] {
        fixture.nono(command).fails(1, "was removed by thinning on");
    }
}

#[test]
fn a_prompt_is_undone_as_a_whole_after_thinning() {
    let fixture = Fixture::new();
    thinned(&fixture);
    let before = log(&fixture);
    let undone = fixture.nono(&["undo", "--prompt", "1", "--yes", "--json"]).success().json();
    assert_eq!(undone["steps"], json!([1, 2, 3]));
    let exists = |name: &str| fixture.project().join(name).exists();
    assert!(!exists("first") && !exists("data") && exists("mine"));
    assert_eq!(log(&fixture), before);
    fixture.nono(&["redo"]).success();
    let first = fs::read_to_string(fixture.project().join("first")).unwrap();
    assert_eq!(first, "1\n2\n3\n");
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn an_undo_that_would_take_edits_of_the_user_along_says_why_it_does_nothing() {
    let fixture = Fixture::new();
    thinned(&fixture);
    let before = log(&fixture);
    let why = "cannot be told from what came before it";
    // Between the states that are left of the second prompt are the user's own edits.
    for flags in [["--prompt", "2"], ["--step", "6"], ["--step", "3"]] {
        let undone = fixture.nono(&["undo", flags[0], flags[1], "--yes"]).fails(1, why);
        assert!(undone.stderr.contains("removed by thinning on"), "{}", undone.stderr);
        assert!(undone.stderr.contains("--to-step"), "{}", undone.stderr);
    }
    fixture.nono(&["undo", "--step", "2", "--yes"]).fails(1, "was removed by thinning on");
    assert_eq!(log(&fixture), before);
    // Every state of today is there.
    fixture.nono(&["undo", "--step", "8", "--yes"]).success();
    assert_eq!(log(&fixture), before.replace("8\n", ""));
    fixture.nono(&["undo", "--to-step", "3", "--yes"]).success();
    assert_eq!(log(&fixture), "0\n");
}

#[test]
fn an_agent_gets_changes_since_the_nearest_state_that_is_there() {
    let fixture = Fixture::new();
    thinned(&fixture);
    let id = fixture.latest();
    let mut client = Client::of(&fixture);
    let changes = client.tool("show_changes", json!({"at": "3"}));
    let told = &changes["structuredContent"];
    assert_eq!(told["from"], format!("{id}/0"));
    assert_eq!(told["removed_state"]["number"], 2);
    assert_eq!(told["removed_state"]["reason"], "thinning");
    let paths: Vec<_> =
        told["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["data", "first"]);
    let said = changes["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("State 2 was removed by thinning on"), "{said}");
    assert!(said.contains(&format!("{id}/0 is the nearest state before it")), "{said}");
    let diff = client.call("diff", json!({"to": "6", "paths": ["log"]}));
    assert_eq!(diff["from"], format!("{id}/3"));
    assert!(diff["diff"].as_str().unwrap().contains("+5\n+6\n"), "{diff}");
    // A state is compared with the present one before it, and nothing is said of removed ones.
    let changes = client.call("show_changes", json!({"at": "8"}));
    assert_eq!(changes["from"], format!("{id}/7"));
    assert!(changes["removed_state"].is_null());
    // A state that is gone says so itself.
    for tool in ["show_changes", "diff"] {
        let field = if tool == "diff" { "to" } else { "at" };
        let said = client.refused(tool, json!({field: "4"}));
        assert!(said.contains("was removed by thinning on"), "{said}");
    }
    client.refused("read_file_at", json!({"path": "log", "at": format!("{id}/1")}));
    client.end();
}

#[test]
fn without_any_state_before_there_is_an_answer_too() {
    let fixture = Fixture::new();
    three_prompts(&fixture).end();
    let session = SessionDir::open(&fixture.session()).unwrap();
    remove_snapshots(&session, &[0, 1], RemovalReason::Asked).unwrap();
    let mut client = Client::of(&fixture);
    let result = client.tool("show_changes", json!({"at": "2"}));
    let said = result["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("Nothing is left to compare"), "{said}");
    assert_eq!(result["structuredContent"]["changes"], json!([]));
    let result = client.tool("diff", json!({"to": "2"}));
    assert_eq!(result["structuredContent"]["removed_state"]["number"], 1);
    client.end();
}

#[test]
fn a_mount_shows_the_steps_that_are_there() {
    let fixture = Fixture::new();
    thinned(&fixture);
    let point = fixture.path("point");
    fs::create_dir(&point).unwrap();
    let Some(_mount) = crate::mount::mount(&fixture.store(), &point) else { return };
    let listed = fs::read_dir(point.join(fixture.latest()).join("steps")).unwrap();
    let mut names: Vec<_> =
        listed.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let numbers: Vec<_> = names.iter().map(|name| &name[..4]).collect();
    assert_eq!(numbers, ["0003", "0006", "0007", "0008"]);
}
