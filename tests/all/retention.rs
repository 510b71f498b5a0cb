//! The limits of a store, and where settings come from.

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished, noise};

pub fn ids(fixture: &Fixture) -> Vec<String> {
    let list = fixture.nono(&["rollback", "list", "--all", "--json"]).success().json();
    let mut ids: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["session_id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

/// As [`ids`] gives them: of one second, process ids are compared as text.
pub fn sorted(ids: &[String]) -> Vec<String> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids
}

/// Records a change, with flags, and gives the session's id.
pub fn record(fixture: &Fixture, flags: &[&str], text: &str) -> (String, Finished) {
    let script = format!("echo '{text}' > a; echo $NONO_SESSION");
    let run = [&["run", "--rollback"], flags, &["--", "sh", "-c", &script]].concat();
    let run = fixture.nono(&run).success();
    (run.stdout.trim().to_owned(), run)
}

/// Moves all that was recorded in a session into the past.
pub fn age(fixture: &Fixture, id: &str, days: i64) {
    let session = fixture.store().join(id);
    let manifest = session.join("manifest.json");
    let mut metadata: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    for field in ["started", "ended"] {
        let Some(time) = metadata[field].as_str() else { continue };
        let time: jiff::Timestamp = time.parse().unwrap();
        let time = time - jiff::SignedDuration::from_hours(24 * days);
        metadata[field] = time.to_string().into();
    }
    fs::write(&manifest, serde_json::to_vec(&metadata).unwrap()).unwrap();
    let past = SystemTime::now() - Duration::from_secs(24 * 60 * 60 * days as u64);
    for snapshot in fs::read_dir(session.join("snapshots")).unwrap() {
        let manifest = fs::File::open(snapshot.unwrap().path().join("manifest.json")).unwrap();
        manifest.set_modified(past).unwrap();
    }
}

/// Number and bytes of the objects on the disk.
fn objects(fixture: &Fixture) -> (usize, u64) {
    let mut found = (0, 0);
    for dir in fs::read_dir(fixture.store().join("objects")).unwrap() {
        let dir = dir.unwrap();
        if dir.file_name().len() == 2 {
            for object in fs::read_dir(dir.path()).unwrap() {
                found.0 += 1;
                found.1 += object.unwrap().metadata().unwrap().len();
            }
        }
    }
    found
}

#[test]
fn a_run_removes_the_oldest_beyond_the_number_and_says_so_in_a_line() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let flags = ["--max-sessions", "3"];
    let mut all = Vec::new();
    for number in 0..5 {
        let (id, run) = record(&fixture, &flags, &format!("{number}"));
        let said = run.stderr.contains("removed 1 old session (max_sessions 3 per project)\n");
        assert_eq!(said, number >= 3, "{}", run.stderr);
        assert_eq!(run.stderr.matches("removed").count(), usize::from(said), "{}", run.stderr);
        age(&fixture, &id, 100 - number);
        all.push(id);
    }
    assert_eq!(ids(&fixture), sorted(&all[2..]));
    // The space is freed in batches, and in any case by a cleanup.
    let before = objects(&fixture);
    fixture.nono(&["rollback", "cleanup"]).success();
    assert!(objects(&fixture) < before);
    assert_eq!(ids(&fixture), sorted(&all[2..]));
    // The default is ten.
    for number in 0..9 {
        let (id, _) = record(&fixture, &[], &format!("more {number}"));
        age(&fixture, &id, 90 - number);
    }
    assert_eq!(ids(&fixture).len(), 10);
}

#[test]
fn withdrawn_sessions_are_collected_in_batches() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let withdrawn = || {
        let names = fs::read_dir(fixture.store()).unwrap();
        names
            .filter(|name| {
                name.as_ref().unwrap().file_name().to_string_lossy().starts_with(".removed-")
            })
            .count()
    };
    let mut counts = Vec::new();
    for number in 0..12 {
        let (id, run) = record(&fixture, &["--max-sessions", "1"], &format!("{number}"));
        counts.push(withdrawn());
        assert_eq!(run.stderr.contains("freed "), number == 9, "{number}: {}", run.stderr);
        age(&fixture, &id, 80 - number);
    }
    // Beside the command eight are collected, and at its end one more goes.
    assert_eq!(counts, [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3]);
}

#[test]
fn the_too_old_go_and_the_newest_of_a_project_and_running_ones_stay() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (first, _) = record(&fixture, &[], "1");
    let (second, _) = record(&fixture, &[], "2");
    fs::create_dir(fixture.path("other")).unwrap();
    let other = fixture.path("other");
    let other_run = ["run", "--rollback", "--allow", other.to_str().unwrap(), "--", "true"];
    fixture.nono(&other_run).success();
    let other_id = ids(&fixture).into_iter().find(|id| *id != first && *id != second).unwrap();
    for id in [&first, &second, &other_id] {
        age(&fixture, id, 100);
    }
    let days = ["--max-age-days", "30", "--max-sessions", "1"];
    let mut command = fixture.command(&["run", "--rollback", "--max-sessions", "0", "--", "cat"]);
    let cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut cat = cat.spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(b"x").unwrap();
    cat.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let running = fixture.latest();
    // Its baseline may still be on the way to the disk.
    drop(fixture.nono(&["rollback", "show", &running]).success());
    age(&fixture, &running, 50);
    let (last, run) = record(&fixture, &days, "3");
    assert!(run.stderr.contains("removed 2 old sessions (max_age_days 30)\n"), "{}", run.stderr);
    let mut left = vec![other_id, running.clone(), last];
    left.sort();
    assert_eq!(ids(&fixture), left);
    drop(input);
    assert!(cat.wait().unwrap().success());
    // It has ended just now.
    let clean = [&["rollback", "cleanup"][..], &days].concat();
    assert!(!fixture.nono(&clean).success().stdout.contains("removed 2"));
    assert_eq!(ids(&fixture), left);
    age(&fixture, &running, 2);
    let cleaned = fixture.nono(&clean).success();
    assert!(cleaned.stdout.contains(&format!("removed {running}")), "{}", cleaned.stdout);
}

#[test]
fn space_counts_what_deletion_really_frees() {
    let fixture = Fixture::new();
    // Shared by all sessions, so that removing one does not free it.
    fixture.write("shared", noise(3 << 20, 9));
    let mut all = Vec::new();
    for number in 0..4 {
        fixture.write("own", noise(1 << 20, number));
        all.push(record(&fixture, &[], &format!("{number}")).0);
    }
    // 3 MiB are shared, and each session needs 1 MiB more: two of them fit.
    let limit = ["--max-storage-gb", &(5.5 / 1024.0).to_string()];
    let dry = [&["rollback", "cleanup", "--dry-run", "--json"][..], &limit].concat();
    let planned = fixture.nono(&dry).success();
    assert_eq!(planned.json()["sessions_removed"], serde_json::json!(all[..2]));
    assert!(planned.json()["bytes_freed"].as_u64().unwrap() > 2 << 20);
    assert!(planned.stderr.contains("max_storage_gb"), "{}", planned.stderr);
    assert_eq!(ids(&fixture), sorted(&all));
    // A run does the same, with its own session counted.
    let (last, run) = record(&fixture, &limit, "last");
    assert!(run.stderr.contains("removed 2 old sessions (max_storage_gb 0.005"), "{}", run.stderr);
    assert!(run.stderr.contains("), freed 2."), "{}", run.stderr);
    assert_eq!(ids(&fixture), sorted(&[&all[2], &all[3], &last].map(String::clone)));
    assert!(objects(&fixture).1 < (5 << 20) + (1 << 19));
    fixture.nono(&["rollback", "verify", "--all"]).success();
    // The size is known without a look at every object: nothing is over the limit now.
    let (_, run) = record(&fixture, &limit, "again");
    assert!(!run.stderr.contains("removed"), "{}", run.stderr);
    // The newest session's objects stay, whatever the limit.
    let (last, run) = record(&fixture, &["--max-storage-gb", "0.000001"], "least");
    assert_eq!(ids(&fixture), [last], "{}", run.stderr);
    fixture.nono(&["rollback", "restore", "latest"]).success();
}

#[test]
fn a_damaged_session_stops_no_run_and_is_not_removed() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let (first, _) = record(&fixture, &[], "1");
    fs::write(fixture.store().join(&first).join("manifest.json"), "{").unwrap();
    for number in 0..3 {
        record(&fixture, &["--max-sessions", "1"], &format!("{number}"));
    }
    assert!(fixture.store().join(&first).exists());
}

fn setting(fixture: &Fixture, arguments: &[&str], variables: &[(&str, &str)], key: &str) -> Value {
    let arguments = [&["config", "show", "--json"], arguments].concat();
    let mut command = fixture.command(&arguments);
    let shown = finished(command.envs(variables.iter().copied()).output().unwrap()).success();
    let settings = shown.json()["settings"].as_array().unwrap().clone();
    let found = settings.iter().find(|setting| setting["key"] == key).unwrap();
    serde_json::json!([found["value"], found["origin"]])
}

fn configure(fixture: &Fixture, text: &str) {
    fs::create_dir_all(fixture.path("home/.config/nono")).unwrap();
    fs::write(fixture.path("home/.config/nono/config.toml"), text).unwrap();
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let fixture = Fixture::new();
    let flag: &[&str] = &["--max-sessions", "3"];
    let variable: &[(&str, &str)] = &[("NONO_MAX_SESSIONS", "4")];
    let of = |flags, variables| setting(&fixture, flags, variables, "max_sessions");
    assert_eq!(of(&[], &[]), serde_json::json!([10, "default"]));
    configure(&fixture, "[undo]\nmax_sessions = 5\nmax_storage_gb = 1\nforce_include = ['x']\n");
    assert_eq!(of(&[], &[]), serde_json::json!([5, "file"]));
    assert_eq!(of(&[], variable), serde_json::json!([4, "environment"]));
    assert_eq!(of(flag, variable), serde_json::json!([3, "flag"]));
    let other = |key| setting(&fixture, &[], &[("NONO_ROOT", "/x")], key);
    assert_eq!(other("max_storage_gb"), serde_json::json!([1.0, "file"]));
    assert_eq!(other("force_include"), serde_json::json!([["x"], "file"]));
    assert_eq!(other("root"), serde_json::json!(["/x", "environment"]));
    assert_eq!(other("max_entries"), serde_json::json!([300_000, "default"]));
    let shown = fixture.nono(&["config", "show", "--max-age-days", "7"]).success().stdout;
    assert!(shown.contains("max_sessions = 5  # file; 0: no limit\n"), "{shown}");
    assert!(shown.contains("max_age_days = 7  # --max-age-days; 0: no limit\n"), "{shown}");
    // And they are used.
    fixture.write("a", "0");
    for number in 0..3 {
        let file = format!("x{number}");
        let mut command = fixture.command(&["run", "--rollback", "--", "touch", &file]);
        command.env("NONO_MAX_SESSIONS", "2");
        finished(command.output().unwrap()).success();
        assert!(ids(&fixture).len() <= 2, "{number}");
        age(&fixture, &fixture.latest(), 100 - number);
    }
    configure(&fixture, "[rollback]\nmax_entries = 1\n");
    fixture.record("true").fails(1, "--max-entries");
    fixture.nono(&["snapshot"]).fails(1, "--max-entries");
}

#[test]
fn mistakes_in_settings_are_named_with_their_place() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    for (text, place, meant) in [
        ("[rollback]\nmax_session = 1\n", "config.toml:2:1", "did you mean \"max_sessions\"?"),
        ("[rollbak]\n", "config.toml:1:2", "did you mean \"rollback\"?"),
        ("[rollback]\nmax_sessions = -1\n", "config.toml:2:16", "-1"),
        ("[rollback]\nmax_sessions = \"many\"\n", "config.toml:2:16", "string"),
        ("[rollback]\nmax_storage_gb = -1\n", "max_storage_gb (file)", "-1"),
        ("[rollback]\nmax_sessions = 1\n[undo]\nmax_sessions = 1\n", "config.toml:", "duplicate"),
        ("[rollback\n", "config.toml:1:", ""),
    ] {
        configure(&fixture, text);
        for arguments in [&["config", "show"][..], &["run", "--rollback", "--", "touch", "ran"]] {
            let failed = fixture.nono(arguments).fails(2, place);
            assert!(failed.stderr.contains(meant), "{text}: {}", failed.stderr);
        }
        // Looking at what is there, and undoing it, needs no settings.
        fixture.nono(&["rollback", "list"]).success();
    }
    assert!(!fixture.project().join("ran").exists());
    configure(&fixture, "");
    let mut command = fixture.command(&["config", "show"]);
    finished(command.env("NONO_MAX_SESSIONS", "many").output().unwrap())
        .fails(2, "NONO_MAX_SESSIONS=many");
    fixture.nono(&["rollback", "cleanup", "--keep", "1", "--max-sessions", "1"]).fails(2, "either");
}

#[test]
fn whoever_looks_while_sessions_are_removed_sees_no_error() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "1");
    for round in 0..6 {
        for number in 0..6 {
            fixture.write("a", format!("{round} {number}"));
            fixture.nono(&["snapshot"]).success();
        }
        let commands: [&[&str]; 4] = [
            &["rollback", "cleanup", "--keep", "1", "--yes"],
            &["rollback", "verify", "--all"],
            &["rollback", "list"],
            &["rollback", "show", "latest"],
        ];
        let start = |arguments: &&[&str]| {
            let mut command = fixture.command(arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let all: Vec<_> = (0..3).flat_map(|_| commands.iter().map(start)).collect();
        for child in all {
            let done = finished(child.wait_with_output().unwrap());
            // A session that another process removes at the moment stays as far as this one is
            // concerned.
            let is_fine = done.code == 0 || done.stdout.contains("kept");
            assert!(is_fine, "{}{}", done.stdout, done.stderr);
        }
    }
}

#[test]
fn what_was_recorded_under_a_clock_that_was_ahead_is_not_the_latest() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    let wrong = fixture.latest();
    let manifest = fixture.store().join(&wrong).join("manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    let metadata: serde_json::Value = serde_json::from_str(&text).unwrap();
    let started = metadata["started"].as_str().unwrap();
    fs::write(&manifest, text.replace(started, "2999-01-01T00:00:00Z")).unwrap();
    fixture.record("echo 2 > a").success();
    let id = fixture.latest();
    assert_ne!(id, wrong);
    let shown = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(shown["session_id"], id.as_str());
    // It is the newest of the project, and stays; the other one may have been recorded just now.
    fixture.nono(&["rollback", "cleanup", "--max-sessions", "1"]).success();
    assert_eq!(ids(&fixture), sorted(&[id.clone(), wrong]));
    fixture.nono(&["rollback", "cleanup", "--keep", "1", "--yes"]).success();
    assert_eq!(ids(&fixture), [id]);
}

#[test]
fn a_cleanup_that_fails_does_not_say_what_it_did_not_do() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    let damaged = fixture.session();
    fs::write(damaged.join("manifest.json"), "").unwrap();
    let failed = fixture.nono(&["rollback", "cleanup", "--yes"]).fails(1, "verify");
    assert_eq!(failed.stdout, "");
}

#[test]
fn keep_counts_sessions_that_changed_something() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    for number in 2..=4 {
        fixture.record(&format!("echo {number} > a")).success();
    }
    let newest = fixture.latest();
    let sessions = || {
        let listed = fixture.nono(&["list", "--all", "--json"]).success().json();
        let ids = listed.as_array().expect("a list").iter();
        ids.map(|it| it["session_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    fixture.record("ls").success();
    fixture.nono(&["cleanup", "--keep", "2", "--yes"]).success();
    // The command without changes takes no place.
    assert_eq!(sessions().len(), 3);
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["cleanup", "--keep", "1", "--yes"]).success();
    assert!(sessions().contains(&newest), "{:?}", sessions());
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "3\n");
}

#[test]
fn a_name_outlives_sessions_without_one_and_is_shown_before_it_goes() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.nono(&["snapshot", "-m", "KNOWN GOOD"]).success();
    let good = fixture.latest();
    for number in 1..=3 {
        fixture.record(&format!("echo {number} > a")).success();
    }
    let kept = fixture.nono(&["rollback", "cleanup", "--keep", "1", "--yes"]).success();
    assert!(kept.says("1 session with a name stays"), "{}{}", kept.stdout, kept.stderr);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let ids = list.as_array().unwrap().iter().map(|one| one["session_id"].as_str().unwrap());
    let ids: Vec<_> = ids.collect();
    assert!(ids.len() == 2 && ids.contains(&good.as_str()), "{ids:?}");
    // Age alone takes it, and so does its id; both show the name.
    for selection in [&["--older-than", "0"][..], &[&good]] {
        let foreseen = fixture.nono(&[&["rollback", "cleanup", "--dry-run"], selection].concat());
        assert!(foreseen.success().says("KNOWN GOOD"), "{selection:?}");
    }
}

#[test]
fn rules_keep_sessions_by_days_and_months_in_place_of_a_number_and_thin_old_steps() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let days = [80, 79, 40, 20, 10, 9, 8, 7, 6, 5, 4, 3];
    let all: Vec<_> = days
        .into_iter()
        .map(|days| {
            let (id, _) = record(&fixture, &["--max-sessions", "0"], &format!("{days}"));
            age(&fixture, &id, days);
            id
        })
        .collect();
    let named = &all[0];
    fixture.nono(&["pin", &all[1]]).success();
    let (last, _) = record(&fixture, &["--max-sessions", "0"], "today");
    // The number alone would take the oldest ones. The last one is young and the newest.
    fixture.nono(&["config", "set", "keep_daily", "3"]).success();
    let dry = fixture.nono(&["cleanup", "--dry-run"]).success();
    assert!(
        dry.stderr.contains(&format!("session {named} goes: no rule keeps it")),
        "{}",
        dry.stderr
    );
    assert_eq!(ids(&fixture).len(), all.len() + 1, "a dry run removes nothing");
    fixture.nono(&["cleanup", "--keep-last", "5", "--keep-daily", "0"]).success();
    let kept = [&all[8..], &all[1..2], std::slice::from_ref(&last)].concat();
    assert_eq!(ids(&fixture), sorted(&kept), "five with the last one, and the pinned one");
    fixture.nono(&["cleanup"]).success();
    let kept = [&all[10..], &all[1..2], std::slice::from_ref(&last)].concat();
    assert_eq!(ids(&fixture), sorted(&kept), "three days");
    fixture.nono(&["cleanup", "--keep-last", "1", "--keep", "1"]).fails(2, "either limits");
}
