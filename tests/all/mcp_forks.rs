//! Forks as tools of an agent: the real server makes, lists, merges and discards real forks.

use std::fs;

use serde_json::json;

use crate::fixture::Fixture;
use crate::forks::has_forks;
use crate::mcp::Client;

/// Both kinds of users, each with a small project.
fn users() -> impl Iterator<Item = Fixture> {
    let root = rustix::process::geteuid().is_root();
    let fixtures = [Some(Fixture::ordinary_user()), root.then(Fixture::new)];
    fixtures.into_iter().flatten().filter(has_forks).inspect(|fixture| {
        fixture.write("a.txt", "one\n");
        fixture.write("b.txt", "one\n");
    })
}

fn inside(fixture: &Fixture, fork: &str, script: &str) {
    fixture.nono(&["fork", "enter", fork, "--", "sh", "-c", script]).success();
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

#[test]
fn an_agent_makes_lists_merges_and_discards_forks_of_its_project() {
    for fixture in users() {
        let mut client = Client::of(&fixture);
        assert_eq!(client.call("list_forks", json!({}))["fork_count"], 0);
        let made = client.call("fork", json!({"name": "idea"}));
        assert_eq!((&made["name"], &made["from"]), (&json!("idea"), &json!("now")));
        assert_eq!(made["enter"], "nono fork enter idea -- CMD");
        inside(&fixture, "idea", "echo two > a.txt; echo new > n.txt");
        fixture.write("a.txt", "three\n");
        let listed = client.call("list_forks", json!({}));
        let fork = &listed["forks"][0];
        assert_eq!((&fork["name"], &fork["session_id"]), (&json!("idea"), &made["session_id"]));
        assert_eq!(
            (&fork["changes"]["created"], &fork["changes"]["modified"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(fork["collisions"][0]["path"], "a.txt");
        let planned = client.call("merge", json!({"name": "idea", "dry_run": true}));
        assert_eq!(
            (&planned["change_count"], &planned["merge_session"]),
            (&json!(1), &json!(null))
        );
        assert!(!fixture.project().join("n.txt").exists());
        let merged = client.call("merge", json!({"name": "idea"}));
        assert_eq!(merged["is_complete"], false, "{merged}");
        assert_eq!(merged["conflicts"][0]["path"], "a.txt");
        assert_eq!(merged["changes"][0]["path"], "n.txt");
        assert_eq!(
            (read(&fixture, "a.txt"), read(&fixture, "n.txt")),
            ("three\n".into(), "new\n".into())
        );
        fixture.nono(&["undo", "--yes", merged["merge_session"].as_str().unwrap()]).success();
        assert!(!fixture.project().join("n.txt").exists());
        let asked = json!({"name": "idea", "paths": ["a.txt"], "on_conflict": "theirs"});
        assert_eq!(client.call("merge", asked)["is_complete"], true);
        assert_eq!(read(&fixture, "a.txt"), "two\n");
        let gone = client.call("discard", json!({"names": ["idea", "idea"]}));
        assert_eq!(gone["discarded"].as_array().unwrap().len(), 1, "{gone}");
        assert_eq!(client.call("list_forks", json!({}))["fork_count"], 0);
        assert!(client.refused("discard", json!({"names": ["idea"]})).contains("no fork idea"));
        client.end();
    }
}

#[test]
fn a_fork_begins_from_a_state_that_an_agent_names() {
    for fixture in users() {
        let mut client = Client::of(&fixture);
        let first = client.call("checkpoint", json!({"label": "first"}));
        fixture.write("a.txt", "two\n");
        let made = client.call("fork", json!({"name": "old", "from": first["at"]}));
        assert_eq!(made["from"], first["at"]);
        let shown = fixture.nono(&["fork", "enter", "old", "--", "cat", "a.txt"]).success();
        assert_eq!(shown.stdout, "one\n");
        client.refused("fork", json!({"name": "none", "from": "20000101-000000-1/0"}));
        assert_eq!(client.call("list_forks", json!({}))["fork_count"], 1);
    }
}

#[test]
fn no_tool_reaches_a_fork_of_another_project_or_another_command() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("a.txt", "one\n");
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    let made = fixture.command(&["fork", "theirs", "--json"]).current_dir(&other).output().unwrap();
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let id = made["session_id"].as_str().unwrap();
    let mut client = Client::of(&fixture);
    assert_eq!(client.call("list_forks", json!({}))["fork_count"], 0);
    for name in [id, "theirs"] {
        for tool in ["merge", "discard"] {
            let arguments = match tool {
                "merge" => json!({"name": name}),
                _ => json!({"names": [name]}),
            };
            let said = client.refused(tool, arguments);
            assert!(said.contains("project"), "{said}");
        }
    }
    for name in ["enter", "list", "discard", "--help", "-x", "", "a/b", "../x", "trial-1"] {
        client.refused("fork", json!({"name": name}));
        client.refused("merge", json!({"name": name}));
    }
    client.refused("merge", json!({"name": "theirs", "paths": ["../other"]}));
    client.refused("discard", json!({"names": []}));
    let listed = fixture.nono(&["forks", "--json"]).success().json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_setting_switches_merges_and_discards_off() {
    let fixture = Fixture::new();
    if !has_forks(&fixture) {
        return;
    }
    fixture.write("a.txt", "one\n");
    let mut client = Client::start(fixture.command(&["mcp", "--no-restore"]));
    client.call("fork", json!({"name": "idea"}));
    inside(&fixture, "idea", "echo two > a.txt");
    let planned = client.call("merge", json!({"name": "idea", "dry_run": true}));
    assert_eq!(planned["change_count"], 1);
    for (tool, arguments) in
        [("merge", json!({"name": "idea"})), ("discard", json!({"names": ["idea"]}))]
    {
        assert!(client.refused(tool, arguments).contains("mcp_restore"), "{tool}");
    }
    assert_eq!(read(&fixture, "a.txt"), "one\n");
}
