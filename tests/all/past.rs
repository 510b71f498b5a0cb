//! Asking the past: every version of a path, states compared, paths found in snapshots.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::Value;

use crate::fixture::{Finished, Fixture};

fn log(fixture: &Fixture, path: &str) -> Vec<Value> {
    let report = fixture.nono(&["log", path, "--json"]).success().json();
    report["versions"].as_array().unwrap().clone()
}

fn texts<'a>(versions: &'a [Value], field: &str) -> Vec<&'a str> {
    versions.iter().map(|version| version[field].as_str().unwrap()).collect()
}

/// Ids as the first word of lines that have one.
fn printed_ids(finished: &Finished) -> Vec<String> {
    let words = finished.stdout.lines().filter_map(|line| {
        line.trim_start_matches('*').split_whitespace().find(|word| word.contains('/'))
    });
    words.filter(|word| word.starts_with("20")).map(str::to_owned).collect()
}

/// A file with three versions by three sessions, one of which wrote it twice.
fn three_versions() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("src/a.rs", "one\n");
    fixture.record("echo two > src/a.rs").success();
    fixture.record("echo other > src/b.rs").success();
    fixture.record("echo three and more > src/a.rs").success();
    fixture
}

#[test]
fn the_log_of_a_file_has_every_version_once_newest_first() {
    let fixture = three_versions();
    let versions = log(&fixture, "src/a.rs");
    assert_eq!(texts(&versions, "origin"), ["command", "command", "first"]);
    let deltas: Vec<_> = versions.iter().map(|v| v["size_delta"].as_i64().unwrap()).collect();
    assert_eq!(deltas, [11, 0, 4]);
    let now: Vec<_> = versions.iter().map(|v| v["is_now"].as_bool().unwrap()).collect();
    assert_eq!(now, [true, false, false]);
    assert_eq!(versions[0]["command"][2], "echo three and more > src/a.rs");
    // Held by the end of the first session, both ends of the second, and the beginning of the
    // third.
    assert_eq!(versions[1]["snapshots"].as_array().unwrap().len(), 4);
    let shown = fixture.nono(&["log", "src/a.rs"]).success();
    assert!(shown.stdout.contains("3 versions"), "{}", shown.stdout);
    assert!(shown.stdout.lines().nth(1).unwrap().starts_with("* 20"), "{}", shown.stdout);
}

#[test]
fn a_restore_takes_what_the_log_prints() {
    let fixture = three_versions();
    let ids = printed_ids(&fixture.nono(&["log", "src/a.rs"]).success());
    assert_eq!(ids.len(), 3);
    for (id, content) in ids.iter().zip(["three and more\n", "two\n", "one\n"]) {
        fixture.nono(&["rollback", "restore", id, "src/a.rs", "--force"]).success();
        let path = fixture.project().join("src/a.rs");
        assert_eq!(fs::read_to_string(path).unwrap(), content);
        // The work of other sessions stays.
        assert!(fixture.project().join("src/b.rs").exists());
        let now = log(&fixture, "src/a.rs").into_iter().find(|v| v["is_now"] == true).unwrap();
        assert_eq!(now["size"].as_u64(), Some(content.len() as u64));
    }
}

#[test]
fn the_command_that_the_log_offers_restores_an_old_version() {
    let fixture = Fixture::new();
    fixture.write("a", "0\n");
    for number in 1..=6 {
        fixture.record(&format!("echo {number} > a")).success();
    }
    let shown = fixture.nono(&["log", "a"]).success();
    let ids = printed_ids(&shown);
    let oldest = ids.last().unwrap();
    let offered = shown.stderr.lines().find_map(|line| line.split_once("bring one back: nono "));
    let (command, way_back) = offered.unwrap().1.split_once(" (").unwrap();
    assert_eq!(way_back, "nono redo takes it back)");
    let words: Vec<&str> =
        command.split(' ').map(|word| if word == "ID/N" { oldest } else { word }).collect();
    fixture.nono(&words).success();
    let read = || fs::read_to_string(fixture.project().join("a")).unwrap();
    assert_eq!(read(), "0\n");
    fixture.nono(&["redo"]).success();
    assert_eq!(read(), "6\n");
    // Without the flag the later changes are a conflict, whose line is not endless.
    let refused = fixture.nono(&["rollback", "restore", oldest, "a"]).fails(1, "and 2 more)");
    let line = refused.stderr.lines().find(|line| line.contains("by session")).unwrap();
    assert_eq!(line.split(", by session ").nth(1).unwrap().split(", ").count(), 3, "{line}");
}

#[test]
fn what_was_deleted_has_a_log_and_so_has_what_changed_outside() {
    let fixture = Fixture::new();
    fixture.write("d/a", "1\n");
    fixture.record("rm -r d").success();
    let versions = log(&fixture, "d/a");
    assert_eq!(texts(&versions, "kind"), ["gone", "file"]);
    assert_eq!(versions[0]["is_now"], true);
    assert_eq!(versions[0]["size_delta"], -2);
    let ids = printed_ids(&fixture.nono(&["log", "d/a"]).success());
    fixture.nono(&["rollback", "restore", &ids[1], "d/a"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("d/a")).unwrap(), "1\n");

    fixture.write("d/a", "by hand\n");
    let report = fixture.nono(&["log", "d/a", "--json"]).success().json();
    assert_eq!(report["now_is_unrecorded"], true);
    let shown = fixture.nono(&["log", "d/a"]).success().stdout;
    assert!(shown.contains("* now, in no snapshot  8 B"), "{shown}");
    fixture.record("true").success();
    let versions = log(&fixture, "d/a");
    assert_eq!(texts(&versions, "origin")[0], "outside");
    assert_eq!(versions[0]["is_now"], true);
    fixture.nono(&["log", "nowhere"]).fails(1, "no session holds");
}

#[test]
fn a_moved_time_is_no_version_and_other_permissions_are_one() {
    let fixture = Fixture::new();
    let path = fixture.write("a", "1\n");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    fixture.record("touch -d 2001-01-01 a").success();
    assert_eq!(log(&fixture, "a").len(), 1);
    fixture.record("chmod 600 a").success();
    let versions = log(&fixture, "a");
    let modes: Vec<_> = versions.iter().map(|v| v["mode"].as_u64().unwrap()).collect();
    assert_eq!(modes, [0o600, 0o644]);
}

#[test]
fn the_log_of_a_directory_has_its_versions_by_what_is_in_it() {
    let fixture = Fixture::new();
    fixture.write("src/deep/a", "1\n");
    fixture.write("other", "1\n");
    fixture.record("echo 2 > src/deep/a; echo 3 > src/deep/new").success();
    fixture.record("echo 2 > other").success();
    fixture.record("touch src/deep/a").success();
    let shown = fixture.nono(&["log", "src"]).success().stdout;
    assert!(shown.contains("2 versions") && shown.contains("+1 file ~1 modified"), "{shown}");
    assert!(shown.lines().nth(1).unwrap().starts_with('*'), "{shown}");
    fixture.write("src/deep/a", "unknown\n");
    let report = fixture.nono(&["log", "src", "--json"]).success().json();
    assert_eq!(report["now_is_unrecorded"], true);
}

#[test]
fn the_log_shows_what_each_version_changed() {
    let fixture = three_versions();
    let shown = fixture.nono(&["log", "-p", "src/a.rs"]).success().stdout;
    let changed: Vec<&str> = shown
        .lines()
        .filter(|line| {
            line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---")
        })
        .collect();
    assert_eq!(changed, ["-two", "+three and more", "-one", "+two", "+one"]);
}

#[test]
fn a_path_is_meant_as_its_parents_links_lead() {
    let fixture = three_versions();
    symlink(fixture.project(), fixture.path("elsewhere")).unwrap();
    symlink("src", fixture.project().join("link")).unwrap();
    let expected = texts(&log(&fixture, "src/a.rs"), "snapshot").join(" ");
    let outside = fixture.path("elsewhere/src/a.rs");
    for path in [outside.to_str().unwrap(), "link/a.rs", "./src/../src/a.rs"] {
        assert_eq!(texts(&log(&fixture, path), "snapshot").join(" "), expected, "{path}");
    }
}

#[test]
fn without_a_path_the_log_has_the_sessions_here() {
    let fixture = three_versions();
    fixture.record("true").success();
    let elsewhere = fixture.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("x"), "1").unwrap();
    let script = ["run", "--rollback", "--", "sh", "-c", "echo 2 > x"];
    let mut command = fixture.command(&script);
    assert!(command.current_dir(&elsewhere).output().unwrap().status.success());

    let shown = fixture.nono(&["log"]).success();
    let ids = shown.stdout.lines().filter(|line| line.starts_with("20")).count();
    assert_eq!(ids, 3, "{}", shown.stdout);
    assert!(shown.stdout.contains("~ modified    src/a.rs"), "{}", shown.stdout);
    assert!(shown.says("1 session without changes not shown"));
    assert!(!shown.says(" x\n"));
    // None of several projects below is meant.
    let above = fixture.path("").to_str().unwrap().to_owned();
    fixture.nono(&["log", &above, "--json"]).fails(1, "several projects are below");
    let patch = fixture.nono(&["log", "-p"]).success().stdout;
    assert!(patch.contains("+three and more"), "{patch}");
}

#[test]
fn a_damaged_session_is_named_and_the_others_are_asked() {
    let fixture = three_versions();
    let damaged = fixture.session();
    fs::write(damaged.join("snapshots/1/manifest.json"), "{").unwrap();
    let id = damaged.file_name().unwrap().to_str().unwrap().to_owned();
    let done = fixture.nono(&["log", "src/a.rs", "--json"]).fails(1, &id);
    let report = done.json();
    assert_eq!(report["versions"].as_array().unwrap().len(), 2);
    assert_eq!(report["damaged"][0]["session_id"], id.as_str());
    fs::write(damaged.join("manifest.json"), "{").unwrap();
    fixture.nono(&["log", "src/a.rs"]).fails(1, &id);
    fixture.nono(&["log"]).fails(1, &id);
    fixture.nono(&["rollback", "find", "a.rs"]).fails(1, &id);
}

#[test]
fn two_states_are_compared_and_now_is_one() {
    let fixture = three_versions();
    let changed = |arguments: &[&str]| {
        let all = [&["rollback", "diff", "--json"], arguments].concat();
        let report = fixture.nono(&all).success().json();
        let changes = report["changes"].as_array().unwrap().iter();
        let name = |change: &Value| {
            let path = change["path"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            format!("{} {path}", change["change_type"].as_str().unwrap())
        };
        let names: Vec<_> = changes.map(name).filter(|name| !name.ends_with(" src")).collect();
        names.join(", ")
    };
    // The last session.
    assert_eq!(changed(&[]), "modified a.rs");
    let ids = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let id = |at: usize| ids[at]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(changed(&[&id(1)]), "created b.rs");
    assert_eq!(changed(&[&id(2), &id(0)]), "modified a.rs, created b.rs");
    assert_eq!(changed(&[&format!("{}/1", id(2)), &format!("{}/0", id(1))]), "");
    assert_eq!(changed(&["now"]), "");
    fixture.write("src/new", "1\n");
    assert_eq!(changed(&["now"]), "created new");
    assert_eq!(changed(&["now", "latest/1"]), "deleted new");
    assert_eq!(changed(&[&id(2), "now"]), "modified a.rs, created b.rs, created new");
    fixture.nono(&["rollback", "diff", "now", "now"]).fails(2, "same state");
    // Contents that no store has.
    let patch = fixture.nono(&["rollback", "diff", "now"]).success().stdout;
    assert!(patch.contains("+++ b/src/new\n@@ -0,0 +1 @@\n+1\n"), "{patch}");
}

#[test]
fn a_comparison_is_limited_to_paths() {
    let fixture = Fixture::new();
    for name in ["a", "gone", "dir/b", "dir/c", "now"] {
        fixture.write(name, "1\n");
    }
    fixture.record("for f in a dir/b dir/c now; do echo 2 > $f; done; rm gone").success();
    let id = fixture.latest();
    let names = |arguments: &[&str]| {
        let all = [&["rollback", "diff", "--name-only"], arguments].concat();
        fixture.nono(&all).success().stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["a", "dir/b", "dir/c", "gone", "now"]);
    assert_eq!(names(&[&id, "dir"]), ["dir/b", "dir/c"]);
    assert_eq!(names(&["dir/b", "a"]), ["a", "dir/b"]);
    // It is in no directory any more.
    assert_eq!(names(&["gone"]), ["gone"]);
    // An id wins over a name, and a path over a word.
    assert_eq!(names(&["./now"]), ["now"]);
    assert_eq!(names(&["--", "now"]), ["now"]);
    fixture.write(&id, "x");
    assert_eq!(names(&[&id, "a"]), ["a"]);
    fixture.nono(&["rollback", "diff", "nothing"]).fails(1, "there is no session \"nothing\"");
    fixture.nono(&["rollback", "diff", &format!("{id}/9")]).fails(1, "no snapshot");

    let mut inside = fixture.command(&["rollback", "diff", "--name-only", "b"]);
    let inside = inside.current_dir(fixture.project().join("dir")).output().unwrap();
    assert_eq!(inside.stdout, b"b\n");
}

#[test]
fn a_comparison_is_counted_or_named() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n2\n");
    fixture.write("new\nline", "1\n");
    fixture.record("printf '1\\n3\\n4\\n' > a; echo 2 > \"$(printf 'new\\nline')\"").success();
    let stat = fixture.nono(&["rollback", "diff", "--stat"]).success().stdout;
    assert_eq!(
        stat,
        " a         | 3 ++-\n new\\nline | 2 +-\n 2 files changed, 3 insertions(+), 2 deletions(-)\n"
    );
    let names = fixture.nono(&["rollback", "diff", "--name-only"]).success().stdout;
    assert_eq!(names, "a\n\"new\\nline\"\n");
    let names = fixture.nono(&["rollback", "diff", "--name-only", "-z"]).success().stdout;
    assert_eq!(names, "a\0new\nline\0");
    fixture.nono(&["rollback", "diff", "-z"]).fails(2, "--name-only");
    fixture.nono(&["rollback", "diff", "--stat", "--full"]).fails(2, "cannot be used");
}

#[test]
fn paths_are_found_by_a_glob_and_a_restore_takes_what_is_printed() {
    let fixture = three_versions();
    fixture.record("rm src/a.rs").success();
    let found = fixture.nono(&["rollback", "find", "*.rs"]).success();
    let rows: Vec<&str> = found.stdout.lines().collect();
    assert_eq!(rows.len(), 2, "{}", found.stdout);
    let words: Vec<&str> = rows[0].split_whitespace().collect();
    let path = words.iter().find(|word| word.ends_with("a.rs")).unwrap();
    fixture.nono(&["rollback", "restore", words[0], path, "--force"]).success();
    let content = fs::read_to_string(fixture.project().join("src/a.rs")).unwrap();
    assert_eq!(content, "three and more\n");

    let report = fixture.nono(&["rollback", "find", "b.rs", "--json"]).success().json();
    assert_eq!(report.as_array().unwrap().len(), 1);
    assert_eq!(report[0]["kind"], "file");
    // Made by the second session, and there in all snapshots since: the restore took one, too.
    assert_eq!(report[0]["snapshot_count"], 6);
    assert!(report[0]["first"].as_str().unwrap().ends_with("/1"));
}

#[test]
fn a_glob_is_for_names_or_for_paths() {
    let fixture = Fixture::new();
    for name in ["src/a.rs", "src/deep/b.rs", "c.rs", "src/rs"] {
        fixture.write(name, "1\n");
    }
    fixture.record("true").success();
    let found = |glob: &str, dir: &str| {
        let mut command = fixture.command(&["rollback", "find", glob]);
        let output = command.current_dir(fixture.project().join(dir)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let path = |line: &str| {
            line.split_whitespace()
                .find(|w| w.contains("rs") && !w.starts_with("20"))
                .map(str::to_owned)
        };
        text.lines().filter_map(path).collect::<Vec<_>>()
    };
    assert_eq!(found("*.rs", ""), ["c.rs", "src/a.rs", "src/deep/b.rs"]);
    assert_eq!(found("src/*.rs", ""), ["src/a.rs"]);
    assert_eq!(found("src/**/*.rs", ""), ["src/a.rs", "src/deep/b.rs"]);
    assert_eq!(found("./*.rs", "src"), ["a.rs"]);
    assert_eq!(found("deep/*", "src"), ["deep/b.rs"]);
    assert_eq!(found(&format!("{}/*.rs", fixture.project().display()), ""), ["c.rs"]);
    fixture.nono(&["rollback", "find", "a[z-a]"]).fails(2, "is no glob");
    fixture.nono(&["rollback", "find", "nothing"]).fails(1, "nothing matches");
}

#[test]
fn a_search_is_for_here_unless_the_whole_store_is_meant() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.record("true").success();
    let here = fixture.latest();
    let elsewhere = fixture.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let found = |arguments: &[&str]| {
        let all = [&["rollback", "find", "a", "--json"], arguments].concat();
        let output = fixture.command(&all).current_dir(&elsewhere).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap().as_array().unwrap().len()
    };
    assert_eq!(found(&[]), 0);
    assert_eq!(found(&["--all"]), 1);
    assert_eq!(found(&["--session", &here]), 1);
}

#[test]
fn less_or_more_is_said_by_wish() {
    let fixture = three_versions();
    let quiet = fixture.nono(&["-q", "log"]).success();
    assert_eq!(quiet.stderr, "");
    assert!(!quiet.stdout.is_empty());
    let run = ["run", "--rollback", "-q", "--", "sh", "-c", "echo 4 > src/a.rs"];
    assert_eq!(fixture.nono(&run).success().stderr, "");
    fixture.nono(&["-q", "log", "nowhere"]).fails(1, "no session holds");
    fixture.nono(&["-q", "-v", "log"]).fails(2, "cannot be used");
    let verbose = ["run", "--rollback", "-v", "--", "true"];
    assert!(fixture.nono(&verbose).success().stderr.contains("DEBUG"));
}

#[test]
fn colours_are_used_when_they_are_wanted() {
    let fixture = three_versions();
    for command in [&["log"][..], &["rollback", "diff"], &["rollback", "list"]] {
        let coloured = |when: &str| {
            fixture.nono(&[&["--color", when], command].concat()).success().stdout.contains('\x1b')
        };
        assert!(!coloured("auto") && !coloured("never"), "{command:?}");
        assert!(coloured("always"), "{command:?}");
    }
}
