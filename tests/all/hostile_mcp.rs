//! `nono mcp` and a client that lies: every message gets an error of the protocol, a bounded answer
//! or none, the server goes on, and nothing outside of the project changes.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::mcp::Client;

/// More than any answer has.
const MAX_BYTES: usize = 256 << 10;
/// More memory than the server ever needs.
const MAX_MEMORY: u64 = 512 << 20;

fn with_checkpoint() -> (Fixture, Client) {
    let fixture = Fixture::new();
    fixture.write("src/a.rs", "fn a() {}\n");
    fixture.write("README.md", "hello\n");
    let mut client = Client::of(&fixture);
    client.call("checkpoint", json!({"label": "before"}));
    (fixture, client)
}

fn call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[test]
fn messages_of_a_wrong_shape_are_errors_or_ignored_and_the_server_goes_on() {
    let (_fixture, mut client) = with_checkpoint();
    let nested = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"list_steps","arguments":{}1{}}}}}"#,
        r#"{"a":"#.repeat(20_000),
        "}".repeat(20_000),
    );
    for message in [
        "",
        "null",
        "1",
        "\"text\"",
        "{}",
        "[]",
        "[{}]",
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":null,"arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"diff","arguments":[]}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"diff","arguments":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"never asked","error":{"code":1,"message":"x"}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/unheard_of","params":[1,2]}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} and more",
        nested.as_str(),
    ] {
        for answer in client.answers_to(message.as_bytes()) {
            let is_refused = answer["error"].is_object() || answer["result"]["isError"] == true;
            // A wrong value may also be passed over, where nothing depends on it.
            let is_harmless = answer["result"] == json!({}) || answer["result"]["tools"].is_array();
            assert!(is_refused || is_harmless, "{message} -> {answer}");
        }
    }
    let no_text = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\xff\"}";
    client.answers_to(no_text);
    client.answers_to(&[0; 4096]);
    client.call("list_steps", json!({}));
    client.end();
}

#[test]
fn a_huge_line_costs_no_memory_and_what_comes_after_it_is_answered() {
    let (_fixture, mut client) = with_checkpoint();
    let before = client.peak_memory();
    let label = "x".repeat(64 << 20);
    let answers = client.answers_to(call(1, "checkpoint", &json!({"label": label})).as_bytes());
    assert!(answers.iter().all(|answer| answer["error"].is_object()), "{answers:?}");
    // Much less than the line has.
    assert!(client.peak_memory() < before + (32 << 20), "{}", client.peak_memory());
    // A line within the limit is read, and is wrong for what it says.
    let said = client.refused("checkpoint", json!({"label": "x".repeat(1 << 19)}));
    assert!(said.len() < 1000, "{said}");
    client.end();
}

#[test]
fn large_binary_and_unnameable_files_are_described_and_not_shown() {
    let fixture = Fixture::new();
    let project = fixture.project();
    let large = fs::File::create(project.join("large.txt")).unwrap();
    large.set_len(100_000_000).unwrap();
    let long_line = "y".repeat(10 << 20);
    fixture.write("line.txt", &long_line);
    fixture.write("latin.txt", b"caf\xe9\n");
    let name = OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(project.join(name), "text").unwrap();
    fixture.write("escape\u{1b}[2J\n.txt", "text");
    let mut client = Client::of(&fixture);
    client.call("checkpoint", json!({"label": "x"}));
    let large = client.call("read_file_at", json!({"path": "large.txt"}));
    assert_eq!((&large["size"], &large["text"]), (&json!(100_000_000), &Value::Null));
    assert!(large["not_shown"].as_str().unwrap().contains("long"), "{large}");
    let line = client.call("read_file_at", json!({"path": "line.txt", "cursor": "@5"}));
    assert!(line["text"].as_str().unwrap().len() <= 32 << 10);
    let latin = client.call("read_file_at", json!({"path": "latin.txt"}));
    assert_eq!((&latin["binary"], &latin["text"]), (&json!(true), &Value::Null));
    // The name that a list gives is one that can be read again.
    let found = client.call("find_in_history", json!({"glob": "*.txt"}));
    assert_eq!(found["match_count"], 5);
    for one in found["matches"].as_array().unwrap() {
        let path = one["path"].as_str().unwrap();
        client.call("read_file_at", json!({"path": path}));
    }
    let top = client.tool("read_file_at", json!({"path": "."}));
    let text = top["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains('\u{1b}') && text.contains("caf"), "{text}");
    // A name takes one line.
    assert!(!text.contains("\n.txt"), "{text}");
    fs::remove_file(project.join(name)).unwrap();
    fs::write(project.join("large.txt"), "short").unwrap();
    let diff = client.call("diff", json!({"from": "baseline", "to": "now"}));
    assert!(diff.to_string().len() < MAX_BYTES);
    let restored = found["matches"].as_array().unwrap().iter().map(|one| one["path"].clone());
    let paths: Vec<_> = restored.collect();
    let all =
        client.call("restore", json!({"at": "0", "paths": paths, "on_conflict": "overwrite"}));
    assert_eq!(all["is_complete"], true, "{all}");
    assert_eq!(fs::read(project.join(name)).unwrap(), b"text");
    assert!(client.peak_memory() < MAX_MEMORY, "{}", client.peak_memory());
    client.end();
}

#[test]
fn cursors_that_no_answer_gave_are_refused_or_an_empty_page() {
    let (_fixture, mut client) = with_checkpoint();
    let tools = [
        ("list_steps", json!({})),
        ("show_changes", json!({})),
        ("diff", json!({"from": "baseline", "to": "now"})),
        ("read_file_at", json!({"path": "README.md"})),
        ("read_file_at", json!({"path": "src"})),
        ("find_in_history", json!({"glob": "*"})),
        ("preview_restore", json!({"at": "0", "paths": ["src"]})),
    ];
    for (tool, arguments) in tools {
        for cursor in ["@18446744073709551615", "@18446744073709519000", "@4096", "@1"] {
            let mut arguments = arguments.clone();
            arguments["cursor"] = json!(cursor);
            let answer = client.call(tool, arguments);
            assert!(answer.to_string().len() < MAX_BYTES, "{tool} {cursor}");
        }
        for cursor in ["", "@", "@-1", "@1e3", "@ 1", "1", "@18446744073709551616", "@\u{0}1"] {
            let mut arguments = arguments.clone();
            arguments["cursor"] = json!(cursor);
            let said = client.refused(tool, arguments);
            assert!(said.contains("cursor"), "{tool} {cursor}: {said}");
        }
    }
    client.end();
}

#[test]
fn no_restore_writes_through_a_symlink_or_outside_of_the_project() {
    let (fixture, mut client) = with_checkpoint();
    let outside = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.rs"), "theirs\n").unwrap();
    // A former directory leads out of the project by now.
    fs::remove_dir_all(fixture.project().join("src")).unwrap();
    symlink(&outside, fixture.project().join("src")).unwrap();
    let escapes = |path: &str| json!({"at": "0", "paths": [path], "on_conflict": "overwrite"});
    let up = format!("../{}", outside.file_name().unwrap().to_str().unwrap());
    for path in [&*up, outside.to_str().unwrap(), "src/../../outside/a.rs", "./../outside", "~"] {
        client.refused("restore", escapes(path));
        client.refused("preview_restore", escapes(path));
    }
    client.tool("restore", escapes("src/a.rs"));
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "theirs\n");
    client.tool("restore", escapes("src"));
    assert_eq!(fs::read_to_string(outside.join("a.rs")).unwrap(), "theirs\n");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // The directory itself is one again.
    assert!(!fixture.project().join("src").is_symlink());
    let text = fs::read_to_string(fixture.project().join("src/a.rs")).unwrap();
    assert_eq!(text, "fn a() {}\n");
    client.end();
}

#[test]
fn requests_at_once_are_all_answered_and_each_under_its_id() {
    let (fixture, mut client) = with_checkpoint();
    fixture.write("README.md", "changed\n");
    let restore = json!({"at": "0", "paths": ["README.md"], "on_conflict": "overwrite"});
    let many: Vec<String> = (100..140)
        .map(|id| match id % 4 {
            0 => call(id, "restore", &restore),
            1 => call(id, "checkpoint", &json!({"label": format!("n {id}")})),
            2 => call(id, "read_file_at", &json!({"path": "README.md", "at": "0"})),
            _ => call(id, "list_steps", &json!({})),
        })
        .collect();
    // The last may be answered after the ping, so they are counted.
    client.send(&many.join("\n"));
    let mut ids: Vec<u64> = (100..140)
        .map(|_| {
            let answer = client.read();
            assert_ne!(answer["result"]["isError"], true, "{answer}");
            answer["id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (100..140).collect::<Vec<_>>());
    assert_eq!(fs::read_to_string(fixture.project().join("README.md")).unwrap(), "hello\n");
    fixture.nono(&["rollback", "verify", "--all"]).success();
    client.end();
}

#[test]
fn a_client_that_goes_in_the_middle_leaves_a_whole_store() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }});
    let begin = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let whole = call(2, "checkpoint", &json!({"label": "x"}));
    for (input, is_read) in [
        (String::new(), true),
        (hello.to_string()[..30].to_owned(), true),
        (format!("{hello}\n"), true),
        (format!("{whole}\n"), true),
        (format!("{hello}\n{begin}\n{}", &whole[..40]), true),
        (format!("{hello}\n{begin}\n{whole}\n"), true),
        (format!("{hello}\n{begin}\n{whole}\n"), false),
    ] {
        let mut command = fixture.command(&["mcp"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        if !is_read {
            drop(server.stdout.take());
        }
        // A server that has gone by then takes no more.
        let _ = server.stdin.take().unwrap().write_all(input.as_bytes());
        let done = server.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code().is_some(), "{input}: {:?}", done.status);
        assert!(!said.contains("panicked"), "{input}: {said}");
    }
    fixture.write("a", "2");
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
}
