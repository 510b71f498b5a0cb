//! Bad input: a clear error with the right exit code, and nothing lost.

use std::fs;
use std::os::unix::fs::symlink;

use crate::fixture::Fixture;

#[test]
fn unknown_and_ambiguous_ids_are_named() {
    let fixture = Fixture::new();
    fixture.nono(&["rollback", "show", "latest"]).fails(1, "no sessions");
    fixture.nono(&["rollback", "list"]).success();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["rollback", "show", "nothing"]).fails(1, "no session \"nothing\"");
    fixture.nono(&["rollback", "show", "2"]).fails(1, "could be any of");
    fixture.nono(&["rollback", "restore", "latest", "--snapshot", "9"]).fails(1, "no snapshot 9");
    fixture.nono(&["rollback", "restore", "latest/x"]).fails(1, "no snapshot \"x\"");
    fixture.nono(&["rollback", "show", &fixture.latest()]).success();
    fixture.nono(&["rollback"]).fails(2, "");
    fixture.nono(&["rollback", "restore", "latest", "--snapshot", "-1"]).fails(2, "");
    fixture.nono(&["run", "--no-such-flag", "--", "true"]).fails(2, "--no-such-flag");
}

#[test]
fn paths_that_cannot_be_tracked_are_refused_before_anything_is_made() {
    let fixture = Fixture::new();
    fixture.write("file", "1");
    symlink("file", fixture.project().join("link")).unwrap();
    fixture.nono(&["snapshot", "missing"]).fails(1, "missing");
    fixture.nono(&["snapshot", "link"]).fails(1, "it is a symlink");
    fixture.nono(&["snapshot", "/dev/null"]).fails(1, "neither a directory nor a regular file");
    fixture.nono(&["snapshot", "/"]).fails(1, "cannot track /");
    fixture.nono(&["snapshot", "--rollback-exclude", "a/../b"]).fails(2, "a/../b");
    let home = fixture.path("home");
    fixture.nono(&["snapshot", home.to_str().unwrap()]).fails(1, "contains the store");
    assert!(!fixture.store().exists(), "a refusal left a store behind");
    fixture.nono(&["snapshot"]).success();
    let session = fixture.session();
    fixture.nono(&["snapshot", session.to_str().unwrap()]).fails(1, "lies in the store");
    let in_home = fixture.command(&["run", "--rollback", "--", "true"]).current_dir(home).output();
    crate::fixture::finished(in_home.unwrap()).fails(2, "home directory");
}

#[test]
fn a_command_that_cannot_start_is_told_as_a_shell_tells_it() {
    let fixture = Fixture::new();
    fixture.write("not-executable", "1");
    fixture.nono(&["run", "--rollback", "--", "no-such-command-here"]).fails(127, "cannot run");
    fixture.nono(&["run", "--rollback", "--", "./not-executable"]).fails(126, "cannot run");
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["exit_code"], 126);
}

#[test]
fn a_baseline_over_budget_says_what_is_large_and_leaves_nothing() {
    let fixture = Fixture::new();
    for number in 0..40 {
        fixture.write(&format!("big/f{number}"), "12345");
    }
    fixture.write("small", "1");
    let over = fixture.nono(&["snapshot", "--max-entries", "20"]).fails(1, "max_entries");
    assert!(over.stderr.contains("/big (41 entries"), "{}", over.stderr);
    assert!(over.stderr.contains("--rollback-exclude big"), "{}", over.stderr);
    fixture.nono(&["snapshot", "--max-bytes", "100"]).fails(1, "max_bytes");
    assert_eq!(fixture.nono(&["rollback", "list", "--json"]).json().as_array().unwrap().len(), 0);
    fixture.nono(&["snapshot", "--max-entries", "20", "--rollback-exclude", "big"]).success();
    fixture.nono(&["snapshot", "--max-entries", "0", "--max-bytes", "0"]).success();
}

#[test]
fn a_later_snapshot_over_budget_keeps_known_paths_and_says_what_it_left_out() {
    let fixture = Fixture::new();
    fixture.write("z", "known");
    fixture.nono(&["snapshot", "--max-entries", "4"]).success();
    for number in 0..9 {
        fixture.write(&format!("new{number}"), "1");
    }
    fixture.write("z", "changed");
    let arguments = ["snapshot", "--session", "latest", "--max-entries", "4", "--json"];
    let taken = fixture.nono(&arguments).fails(1, "over the budget");
    assert!(taken.stderr.contains("not captured"), "{}", taken.stderr);
    let changes = taken.json()["changes"].to_string();
    assert!(changes.contains("/z\"") && changes.contains("/new1\""), "{changes}");
    assert!(!changes.contains("/new2\""), "{changes}");
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let left_out = show["snapshots"][1]["not_captured"].as_array().unwrap();
    assert_eq!(left_out.len(), 7);
    assert_eq!(left_out[0]["reason"], "over_budget");
    // They are not the snapshot's, so going back to it leaves them alone.
    let restored = fixture.nono(&["rollback", "restore", "latest/1"]).success();
    assert!(restored.stderr.contains("already"), "{}", restored.stderr);
    assert!(fixture.project().join("new8").exists());
}

#[test]
fn damaged_manifests_are_errors_and_restore_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let id = fixture.latest();
    let path = fixture.session().join("snapshots/0/manifest.json");
    let good = fs::read_to_string(&path).unwrap();
    let root = fixture.project().to_str().unwrap().to_owned();
    let damages: [(&str, String); 6] = [
        ("truncated", good[..good.len() / 2].to_owned()),
        ("empty", String::new()),
        (
            "another root",
            good.replace("\"merkle_root\": \"", "\"merkle_root\": \"00").replace("00", "0"),
        ),
        ("edited", good.replace("\"file_count\": 1", "\"file_count\": 2")),
        ("dot dot", good.replace(&root, &format!("{root}/../../etc"))),
        ("the future", good.replace("\"format_version\": 1", "\"format_version\": 99")),
    ];
    for (name, damage) in damages {
        assert_ne!(damage, good, "{name}");
        fs::write(&path, &damage).unwrap();
        let restored = fixture.nono(&["rollback", "restore", &id]).fails(1, "manifest");
        if name == "the future" {
            assert!(restored.stderr.contains("newer nono"), "{}", restored.stderr);
        }
        let verified = fixture.nono(&["rollback", "verify", &id, "--json"]).fails(1, "");
        assert_eq!(verified.json()["ok"], false, "{name}");
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n", "{name}");
    }
    fs::write(&path, good).unwrap();
    fixture.nono(&["rollback", "restore", &id]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn missing_and_changed_objects_stop_a_restore_before_it_changes_anything() {
    let fixture = Fixture::new();
    fixture.write("a", "first");
    fixture.write("b", "second");
    fixture.record("echo x > a; echo y > b").success();
    let hash = nono_engine::object::ContentHash::of(b"second").hex();
    let object = fixture.store().join("objects").join(&hash[..2]).join(&hash[2..]);
    fs::remove_file(&object).unwrap();
    let verified = fixture.nono(&["rollback", "verify", "latest", "--json"]).fails(1, "").json();
    assert_eq!(verified["problems"][0]["kind"], "missing_object");
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "missing");
    fs::write(&object, b"sec0nd").unwrap();
    let verified = fixture.nono(&["rollback", "verify", "latest", "--json"]).fails(1, "").json();
    assert_eq!(verified["problems"][0]["kind"], "corrupt_object");
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "damaged");
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "x\n");
    assert_eq!(fs::read_to_string(fixture.project().join("b")).unwrap(), "y\n");
    assert_eq!(fs::read_dir(fixture.project()).unwrap().count(), 2, "something was left behind");
    // The live file does not help any more, but the right bytes do.
    fs::remove_file(&object).unwrap();
    fs::write(&object, b"second").unwrap();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("b")).unwrap(), "second");
}

#[test]
fn a_store_that_cannot_be_written_stops_a_run_before_its_command() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    let marker = fixture.project().join("marker");
    let arguments = ["run", "--rollback", "--root", "/proc/nowhere", "--", "touch", "marker"];
    fixture.nono(&arguments).fails(1, "/proc/nowhere");
    assert!(!marker.exists(), "the command ran without a record");
    let arguments = ["run", "--rollback", "--root", "", "--", "touch", "marker"];
    fixture.nono(&arguments).fails(2, "--root");
    assert!(!marker.exists());
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    let fixture = Fixture::new();
    fixture.record("touch \"$(printf 'a\\033[31mred\\nline')\"").success();
    let show = fixture.nono(&["rollback", "show", "latest"]).success();
    assert!(!show.stdout.contains("\x1b[31m") && show.stdout.contains("\\u{1b}[31mred\\nline"));
    let json = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    let path = json["snapshots"][1]["changes"][0]["path"].as_str().unwrap().to_owned();
    assert!(path.ends_with("a\x1b[31mred\nline"), "{path:?}");
}

#[test]
fn json_has_no_control_characters_of_any_kind() {
    let fixture = Fixture::new();
    let name = "a\u{7f}b\u{9b}31m\u{202e}c";
    fixture.record(&format!("touch '{name}'")).success();
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success();
    let moves = |c: char| c != '\n' && nono_engine::path_text::moves_text(c);
    assert!(!show.stdout.contains(moves), "{:?}", show.stdout);
    let json = show.json();
    let path = json["snapshots"][1]["changes"][0]["path"].as_str().unwrap();
    assert!(path.ends_with(name), "{path:?}");
}

#[test]
fn control_characters_of_an_argument_do_not_reach_the_terminal() {
    let fixture = Fixture::in_memory();
    let evil = "\x1b[31m\x1b]0;title\x07\r\u{9b}x";
    let flag = format!("--{evil}");
    let wrong: [&[&str]; 7] = [
        &[evil],
        &[&flag],
        &["rollback", evil],
        &["undo", &flag],
        &["rollback", "cleanup", "--keep", evil],
        &["rollback", "restore", evil, "--only", evil],
        &["snapshot", "-m", evil],
    ];
    for arguments in wrong {
        let told = fixture.nono(arguments);
        assert!(told.code != 0 && !told.stderr.is_empty(), "{arguments:?}");
        let is_raw = |c: char| c.is_control() && c != '\n';
        let raw = told.stdout.chars().chain(told.stderr.chars()).find(|c| is_raw(*c));
        assert_eq!(raw, None, "{arguments:?}: {:?}", told.stderr);
    }
    // On a terminal, where messages have colours of their own.
    let terminal = fixture.command(&[]);
    let program = terminal.get_program().to_str().unwrap().to_owned();
    let words = format!("'{program}' \"$(printf '\\033]0;title\\007')\"");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &words, "/dev/null"]).current_dir(fixture.project());
    script.envs(terminal.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let shown = script.stdin(std::process::Stdio::null()).output().unwrap().stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("unrecognized subcommand"), "{shown:?}");
    assert!(!shown.contains("\x1b]0;") && !shown.contains('\x07'), "{shown:?}");
}
