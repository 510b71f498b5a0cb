//! `nono events`: every fact of a store as a line, followed and resumed. `nono usage --prometheus`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::fixture::Fixture;

fn events(fixture: &Fixture, arguments: &[&str]) -> Vec<Value> {
    let done = fixture.nono(&[&["events"], arguments].concat()).success();
    done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// `nono events --follow`, which ends with the value.
struct Following {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Following {
    fn new(fixture: &Fixture, arguments: &[&str]) -> Self {
        let mut command = fixture.command(&["events", "--follow"]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = child.stdout.take().map(BufReader::new);
        Self { child, lines }
    }

    /// The next facts up to one of this kind.
    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut found: Vec<Value> = Vec::new();
        while found.last().is_none_or(|event| event["event"] != kind) {
            let mut line = String::new();
            let lines = self.lines.as_mut().unwrap();
            assert!(lines.read_line(&mut line).unwrap() > 0, "ended after {found:?}");
            found.push(serde_json::from_str(&line).unwrap());
        }
        found
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_its_undo_and_its_redo_are_followed_and_told_again_from_any_cursor() {
    let fixture = Fixture::new();
    fixture.write("kept", "one");
    // Before there is a store.
    let mut following = Following::new(&fixture, &[]);
    fixture.record("echo two > kept; echo new > made").success();
    let id = fixture.latest();
    let mut all = following.until("session_ended");
    assert_eq!(kinds(&all), ["session_began", "snapshot", "snapshot", "session_ended"]);
    assert!(all.iter().all(|event| event["session"] == id.as_str()));
    assert_eq!(all[0]["origin"], "run");
    assert_eq!(all[0]["tracked_paths"][0], fixture.project().to_str().unwrap());
    let changes = &all[3]["changes"];
    assert_eq!((&changes["created"], &changes["modified"]), (&1.into(), &1.into()));
    assert_eq!(all[3]["exit_code"], 0);
    fixture.nono(&["undo", "--yes"]).success();
    let undo = following.until("undo");
    let last = undo.last().unwrap();
    assert_eq!((&last["restore"], &last["snapshot"]), (&0.into(), &0.into()));
    fixture.nono(&["redo", "--yes"]).success();
    let redo = following.until("redo");
    assert_eq!(redo.last().unwrap()["snapshot"], last["safety_snapshot"]);
    fixture.nono(&["restore", &id, "kept", "--yes"]).success();
    let part = following.until("restore");
    assert_eq!(part.last().unwrap()["partial"], true);
    fixture.nono(&["cleanup", &id, "--yes"]).success();
    let gone = following.until("session_removed");
    all.extend([undo, redo, part, gone].concat());
    // Another reader finds the same order, also from the middle.
    assert_eq!(events(&fixture, &[]), all);
    let middle = all[4]["cursor"].as_str().unwrap();
    assert_eq!(events(&fixture, &["--since", middle]), all[5..]);
    let end = all.last().unwrap()["cursor"].as_str().unwrap();
    assert!(events(&fixture, &["--since", end]).is_empty());
    let mut resumed = Following::new(&fixture, &["--since", end]);
    fixture.nono(&["snapshot", "-m", "by hand"]).success();
    let snapshot = resumed.until("snapshot");
    assert_eq!(kinds(&snapshot), ["session_began", "snapshot"]);
    assert_eq!(snapshot[1]["label"], "by hand");
}

#[test]
fn without_a_store_there_are_no_facts_and_the_way_to_one_is_said() {
    let fixture = Fixture::new();
    let none = fixture.nono(&["events"]).success();
    assert!(none.stdout.is_empty() && none.says("no sessions; record one"), "{}", none.stderr);
    let missing = fixture.path("missing");
    let words = ["--root", missing.to_str().unwrap(), "events"];
    fixture.nono(&words).fails(1, "there is no store at");
}

#[test]
fn a_killed_run_and_a_push_are_facts() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let mut following = Following::new(&fixture, &[]);
    let mut run = fixture.command(&["run", "--rollback", "--", "sleep", "1000"]).spawn().unwrap();
    let id = following.until("snapshot")[0]["session"].as_str().unwrap().to_owned();
    run.kill().unwrap();
    run.wait().unwrap();
    let interrupted = following.until("session_interrupted");
    assert_eq!(interrupted[0]["session"], id.as_str());
    let place = fixture.path("place");
    fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    fixture.nono(&["push", place, &id, "--plaintext"]).success();
    let push = following.until("push");
    let push = push.last().unwrap();
    assert_eq!((&push["number"], &push["session"]), (&0.into(), &id.as_str().into()));
    let archive = push["archive"].as_str().unwrap();
    let stored = fs::read_dir(place).unwrap().flat_map(|entry| {
        let entry = entry.unwrap();
        let inner = fs::read_dir(entry.path()).into_iter().flatten();
        inner.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    });
    assert!(stored.into_iter().any(|name| archive.ends_with(&name)), "{archive}");
}

#[test]
fn a_reader_that_goes_ends_the_following_and_a_wrong_cursor_is_refused() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let none = fixture.nono(&["events"]).success();
    assert!(none.stdout.is_empty() && none.says("no sessions; record one"), "{}", none.stderr);
    fixture.nono(&["--root", "elsewhere", "events"]).fails(1, "there is no store at elsewhere");
    fixture.nono(&["snapshot"]).success();
    let mut following = Following::new(&fixture, &[]);
    following.until("snapshot");
    // Its output is closed on this side.
    let Following { child, lines } = &mut following;
    *lines = None;
    assert!(child.wait().unwrap().success());
    fixture.nono(&["events", "--since", "yesterday"]).fails(2, "is no cursor");
}

/// Families → samples, by label. Fails on a text that is not of the format.
fn parsed(text: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let mut families: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(is_name(name) && words.ends_with('.'), "{line}");
            name.clone_into(&mut helped);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!((name, kind), (helped.as_str(), "gauge"));
            assert!(families.insert(name.to_owned(), BTreeMap::new()).is_none(), "{name} twice");
            name.clone_into(&mut current);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, label) = match series.split_once('{') {
                Some((name, rest)) => {
                    let (key, quoted) = rest.strip_suffix('}').unwrap().split_once('=').unwrap();
                    assert!(is_name(key), "{line}");
                    let inner = quoted.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
                    (name, unescaped(inner))
                }
                None => (series, String::new()),
            };
            assert_eq!(name, current, "a sample without its type");
            let value: f64 = value.parse().unwrap();
            assert!(families.get_mut(name).unwrap().insert(label, value).is_none(), "{line} twice");
        }
    }
    assert!(text.ends_with('\n'));
    families
}

/// The value of a label; an unescaped quotation mark is a failure.
fn unescaped(label: &str) -> String {
    let mut text = String::new();
    let mut chars = label.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => text.push(match chars.next().unwrap() {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                other => panic!("\\{other}"),
            }),
            '"' => panic!("a quotation mark in {label}"),
            other => text.push(other),
        }
    }
    text
}

#[test]
fn the_numbers_of_a_store_have_the_format_of_prometheus() {
    let fixture = Fixture::new();
    fixture.write("file", "contents");
    // A project whose name has all that means something in a label.
    let odd = fixture.project().join("a \"b\" \\ {x}=1 \n# c");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("file"), "more").unwrap();
    fixture.nono(&["snapshot"]).success();
    let pinned = fixture.latest();
    fixture.nono(&["pin", &pinned]).success();
    fixture.record("echo two > file").success();
    fixture.nono(&["snapshot", odd.to_str().unwrap()]).success();
    let text = fixture.nono(&["usage", "--prometheus"]).success().stdout;
    let families = parsed(&text);
    let report = fixture.nono(&["usage", "--json"]).success().json();
    for (name, field) in [
        ("nono_store_object_bytes", "total_bytes"),
        ("nono_store_plain_bytes", "plain_bytes"),
        ("nono_store_unneeded_bytes", "unneeded_bytes"),
    ] {
        assert_eq!(families[name][""], report[field].as_f64().unwrap(), "{name}");
    }
    let project = fixture.project().to_str().unwrap().to_owned();
    assert_eq!(families["nono_sessions"][&project], 2.0);
    assert_eq!(families["nono_pinned_sessions"][&project], 1.0);
    assert_eq!(families["nono_sessions"].len(), 2);
    assert!(families["nono_last_session_timestamp_seconds"][&project] > 1.7e9);
    let document = include_str!("../../docs/events.md");
    for name in families.keys() {
        assert!(document.contains(name), "{name} is not described");
    }
    fixture.nono(&["usage", "--prometheus", "--json"]).fails(2, "cannot be used with");
}

#[test]
fn the_document_has_every_kind_of_event() {
    let document = include_str!("../../docs/events.md");
    let source = include_str!("../../engine/src/events/fact.rs");
    let facts = source.split("pub enum Fact {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let mut count = 0;
    for line in facts.lines() {
        let Some(name) = line.strip_prefix("    ").filter(|it| it.starts_with(char::is_uppercase))
        else {
            continue;
        };
        let name: String = name.chars().take_while(char::is_ascii_alphanumeric).collect();
        let mut snake = String::new();
        for (at, c) in name.char_indices() {
            if at > 0 && c.is_uppercase() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        assert!(document.contains(&format!("| `{snake}` |")), "{snake} is not described");
        count += 1;
    }
    assert!(count > 12, "{count}");
}
