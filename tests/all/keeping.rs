//! The sessions that retention keeps: changes rather than idle runs, the last day, and pinned ones.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::{Fixture, finished, noise};
use crate::retention::{age, ids, record, sorted};
use crate::terminal::Terminal;

/// Records a run that changes nothing, and gives its id.
fn idle(fixture: &Fixture, flags: &[&str]) -> String {
    let run = [&["run", "--rollback"], flags, &["--", "sh", "-c", "echo $NONO_SESSION"]].concat();
    fixture.nono(&run).success().stdout.trim().to_owned()
}

fn metadata(fixture: &Fixture, id: &str) -> Value {
    fixture.nono(&["rollback", "show", id, "--json"]).success().json()
}

#[test]
fn runs_that_change_nothing_push_no_change_out_and_go_first() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let flags = ["--max-sessions", "3"];
    let useful: Vec<_> = (0..2)
        .map(|number| {
            let (id, _) = record(&fixture, &flags, &format!("{number}"));
            age(&fixture, &id, 100 - number);
            id
        })
        .collect();
    let mut idles = Vec::new();
    for number in 0..5 {
        let id = idle(&fixture, &flags);
        age(&fixture, &id, 50 - number);
        idles.push(id);
    }
    let left = ids(&fixture);
    assert!(useful.iter().all(|id| left.contains(id)), "{left:?}");
    assert_eq!(left.len(), 3, "the newest stays: {left:?}");
    assert!(left.contains(idles.last().unwrap()));
    // A start that fails is no reason for anything to go.
    for id in &left {
        age(&fixture, id, 1);
    }
    let failed = fixture.nono(&["run", "--rollback", "--max-sessions", "1", "--", "/no/such"]);
    assert_eq!(failed.code, 127, "{}", failed.stderr);
    assert!(!failed.stderr.contains("removed"), "{}", failed.stderr);
    assert!(left.iter().all(|id| ids(&fixture).contains(id)));
}

#[test]
fn projects_do_not_push_each_other_out_and_nothing_of_the_last_day_goes() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let flags = ["--max-sessions", "1"];
    let (here, _) = record(&fixture, &flags, "1");
    age(&fixture, &here, 100);
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    for number in 0..3 {
        let script = format!("echo {number} > b");
        let mut run = fixture.command(&["run", "--rollback"]);
        run.args(flags).args(["--", "sh", "-c", &script]).current_dir(&other);
        let run = finished(run.output().unwrap()).success();
        assert!(!run.stderr.contains("removed"), "{}", run.stderr);
    }
    assert_eq!(ids(&fixture).len(), 4);
    let clean = ["rollback", "cleanup", "--max-sessions", "1", "--max-age-days", "1"];
    fixture.nono(&clean).success();
    assert_eq!(ids(&fixture).len(), 4);
}

#[test]
fn a_pinned_session_stays_until_it_is_unpinned_or_named() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (id, _) = record(&fixture, &[], "1");
    let root = metadata(&fixture, &id)["session_root"].clone();
    let told = fixture.nono(&["rollback", "pin", &id]).success();
    assert!(told.stderr.contains(&format!("session {id} is pinned")), "{}", told.stderr);
    fixture.nono(&["rollback", "pin", &id]).success();
    // The root that was noted before is still the session's, and the manifest proves itself.
    let shown = metadata(&fixture, &id);
    assert_eq!((&shown["pinned"], &shown["session_root"]), (&json!(true), &root));
    let root = root.as_str().unwrap();
    fixture.nono(&["rollback", "verify", &id, "--expect-root", root]).success();
    assert!(fixture.nono(&["rollback", "list"]).success().stdout.contains("  pinned"));
    assert!(fixture.nono(&["rollback", "show", &id]).success().stdout.contains(", pinned"));

    age(&fixture, &id, 100);
    record(&fixture, &["--max-sessions", "1", "--max-age-days", "1"], "2");
    assert!(ids(&fixture).contains(&id));
    fixture.nono(&["rollback", "cleanup", "--max-storage-gb", "0.000001"]).success();
    assert!(ids(&fixture).contains(&id));
    for selection in [&["--all"][..], &["--keep", "0"], &["--older-than", "1"]] {
        let cleanup = [&["rollback", "cleanup", "--yes"], selection].concat();
        let told = fixture.nono(&cleanup).success();
        assert!(told.stderr.contains("1 pinned session stays"), "{}", told.stderr);
        assert_eq!(ids(&fixture), [id.clone()][..], "{selection:?}");
        let (other, _) = record(&fixture, &[], &format!("{selection:?}").replace('"', ""));
        age(&fixture, &other, 50);
    }
    // By its name it goes, and the answer says what it is.
    let refused = fixture.nono(&["rollback", "cleanup", &id]).fails(2, "nothing was removed");
    assert!(refused.stderr.contains(&format!("{id} is pinned.")), "{}", refused.stderr);
    fixture.nono(&["rollback", "cleanup", &id, "--yes"]).success();
    assert!(!ids(&fixture).contains(&id));
}

#[test]
fn an_unpinned_session_goes_as_any_other() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (id, _) = record(&fixture, &[], "1");
    fixture.nono(&["rollback", "pin", &id]).success();
    fixture.nono(&["rollback", "unpin", &id]).success();
    let manifest = fs::read_to_string(fixture.store().join(&id).join("manifest.json")).unwrap();
    assert!(!manifest.contains("pinned"), "what is not pinned is as if there were no pins");
    age(&fixture, &id, 50);
    let (last, _) = record(&fixture, &["--max-sessions", "1"], "2");
    assert_eq!(ids(&fixture), [last]);
    fixture.nono(&["rollback", "pin", "no-such"]).fails(1, "there is no session");
}

#[test]
fn a_session_is_pinned_while_it_runs() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let mut command = fixture.command(&["run", "--rollback", "--", "cat"]);
    let cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut cat = cat.spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(b"x").unwrap();
    cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let id = fixture.latest();
    fixture.nono(&["rollback", "pin", &id]).success();
    drop(input);
    assert!(cat.wait().unwrap().success());
    let shown = metadata(&fixture, &id);
    assert_eq!((&shown["pinned"], &shown["status"]), (&json!(true), &json!("completed")));
    fixture.nono(&["rollback", "verify", &id]).success();
}

#[test]
fn a_manifest_that_was_edited_or_made_again_keeps_its_session() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (id, _) = record(&fixture, &[], "1");
    let manifest = fixture.store().join(&id).join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"echo", "\"ECHO").replace("sh", "SH")).unwrap();
    fixture.nono(&["rollback", "pin", &id]).success();
    assert_eq!(metadata(&fixture, &id)["pinned"], true);
    // A pin vouches for nothing: the edit is still found.
    fixture.nono(&["rollback", "verify", &id]).fails(1, "");

    fs::write(&manifest, "{").unwrap();
    fixture.nono(&["rollback", "unpin", &id]).fails(1, "damaged");
    fixture.nono(&["rollback", "verify", &id, "--repair"]);
    // Whether it was pinned is not known, so it is.
    assert_eq!(metadata(&fixture, &id)["pinned"], true);
    age(&fixture, &id, 100);
    record(&fixture, &["--max-sessions", "1"], "2");
    assert!(ids(&fixture).contains(&id));
}

#[test]
fn a_question_that_is_declined_is_no_error() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (id, _) = record(&fixture, &[], "1");
    let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!("{program} rollback cleanup --all; echo ended with $?; exec cat"),
    );
    terminal.wait_for("[y/N/?]");
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("ended with 1");
    assert!(terminal.screen().contains("nothing was removed"), "{}", terminal.screen());
    assert_eq!(ids(&fixture), [id]);
    // The user was not asked, and it was not done.
    fixture.nono(&["rollback", "cleanup", "--all"]).fails(2, "nothing was removed");
}

#[test]
fn usage_counts_every_byte_once() {
    let fixture = Fixture::new();
    fixture.write("shared", noise(1 << 20, 1));
    let mut all = Vec::new();
    for number in 0..2u8 {
        fixture.write("own", noise(1 << 19, 2 + u64::from(number)));
        all.push(record(&fixture, &[], &format!("{number}")).0);
    }
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    fs::copy(fixture.project().join("shared"), other.join("copy")).unwrap();
    fs::write(other.join("big"), noise(2 << 20, 9)).unwrap();
    fixture.nono(&["snapshot", other.to_str().unwrap()]).success();
    let usage = fixture.nono(&["rollback", "usage", "--json"]).success().json();
    let number = |value: &Value| value.as_u64().unwrap();
    let projects = usage["projects"].as_array().unwrap();
    let held: u64 = projects.iter().map(|project| number(&project["bytes"])).sum();
    assert_eq!(
        held + number(&usage["shared_bytes"]) + number(&usage["unneeded_bytes"]),
        number(&usage["total_bytes"])
    );
    assert!(number(&usage["shared_bytes"]) >= 1 << 20, "{usage}");
    assert_eq!(projects[0]["tracked_paths"], json!([other.to_str().unwrap()]));
    assert!(number(&projects[0]["bytes"]) > 2 << 20);
    let sessions = projects[1]["sessions"].as_array().unwrap();
    let named = sessions.iter().map(|it| it["session_id"].as_str().unwrap().to_owned());
    assert_eq!(sorted(&named.collect::<Vec<_>>()), sorted(&all));
    assert!(
        sessions.iter().all(|it| (1 << 19..1 << 20).contains(&number(&it["bytes"]))),
        "{usage}"
    );
    let shown = fixture.nono(&["rollback", "usage"]).success().stdout;
    assert!(shown.contains("several projects need") && shown.contains("in all "), "{shown}");
    // The promised space of a session is the space that its removal frees.
    let first = sessions.iter().find(|it| it["session_id"] == *all[0]).unwrap();
    let cleaned = fixture.nono(&["rollback", "cleanup", &all[0], "--yes", "--json"]).success();
    assert_eq!(cleaned.json()["bytes_freed"], first["bytes"]);
}

#[test]
fn a_cleanup_names_the_session_of_a_watcher_as_the_list_does() {
    let fixture = Fixture::new();
    fixture.write("file", "0");
    let project = fixture.project();
    fixture.nono(&["watch", "--detach", project.to_str().unwrap()]).success();
    fixture.write("file", "1");
    fixture.nono(&["watch", "stop", project.to_str().unwrap()]).success();
    let told = fixture.nono(&["cleanup", "--all", "--dry-run"]).success().stdout;
    assert!(told.contains("(you or another program)"), "{told}");
}

#[test]
fn without_an_id_the_newest_session_here_is_pinned() {
    let fixture = Fixture::new();
    fixture.write("file", "0");
    fixture.record("echo 1 > file").success();
    let id = fixture.latest();
    fixture.nono(&["pin"]).success();
    assert_eq!(metadata(&fixture, &id)["pinned"], true);
    fixture.nono(&["unpin"]).success();
    assert_ne!(metadata(&fixture, &id)["pinned"], true);
}
