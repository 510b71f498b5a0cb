//! Exclusion patterns that name a path of the file system: below a recorded directory they leave
//! out this path alone; where they can leave out nothing, they are refused.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::fixture::{Finished, Fixture, finished};

/// A fixture with two directories to record, in which the same names lie.
fn two_directories() -> (Fixture, PathBuf, PathBuf) {
    let fixture = Fixture::new();
    let (one, two) = (fixture.path("home/one"), fixture.path("home/two"));
    for dir in [&one, &two] {
        for name in ["data/raw", "data.csv", "sub/data/raw", "sub/database", "x.iso"] {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1").unwrap();
        }
    }
    (fixture, one, two)
}

/// The left-out paths of a snapshot of both, from the home directory.
fn left_out(fixture: &Fixture, flags: &[&str]) -> Vec<String> {
    let (one, two) = (fixture.path("home/one"), fixture.path("home/two"));
    let paths = [one.to_str().unwrap(), two.to_str().unwrap()];
    let report = fixture.nono(&[&["snapshot", "--json"], flags, &paths].concat()).success().json();
    let inside = |left: &serde_json::Value| {
        let path = Path::new(left["path"].as_str().unwrap());
        path.strip_prefix(fixture.path("home")).unwrap().to_str().unwrap().to_owned()
    };
    report["not_captured"].as_array().unwrap().iter().map(inside).collect()
}

#[test]
fn a_path_below_a_recorded_directory_is_left_out_alone() {
    let (fixture, one, _) = two_directories();
    symlink("home", fixture.path("link")).unwrap();
    let one = one.to_str().unwrap();
    let link = fixture.path("link/one");
    let link = link.to_str().unwrap();
    for (pattern, expected) in [
        (format!("{one}/data"), &["one/data"][..]),
        (format!("{one}/data/"), &["one/data"]),
        (format!("/{one}/data"), &["one/data"]),
        (format!("{link}/sub/data"), &["one/sub/data"]),
        (format!("{one}/*.iso"), &["one/x.iso"]),
        ("~/one/data".to_owned(), &["one/data"]),
        ("~/one/sub/data".to_owned(), &["one/sub/data"]),
        ("$HOME/one/data".to_owned(), &["one/data"]),
        ("${HOME}/two/data.*".to_owned(), &["two/data.csv"]),
        // From the top of each recorded directory, as ever.
        ("/data".to_owned(), &["one/data", "two/data"]),
        (
            "/sub/data".to_owned(),
            &["one/sub/data", "one/sub/database", "two/sub/data", "two/sub/database"],
        ),
        ("./data".to_owned(), &["one/data", "two/data"]),
        ("data".to_owned(), &["one/data", "one/sub/data", "two/data", "two/sub/data"]),
    ] {
        let found = left_out(&fixture, &["--rollback-exclude", &pattern]);
        assert_eq!(found, expected, "{pattern}");
    }
    // The same below a pattern that leaves out more.
    for included in [format!("{one}/data"), "~/one/data".to_owned()] {
        let flags = ["--rollback-exclude", "data", "--rollback-include", &included];
        assert_eq!(
            left_out(&fixture, &flags),
            ["one/sub/data", "two/data", "two/sub/data"],
            "{included}"
        );
    }
}

#[test]
fn a_profile_and_the_settings_name_paths_of_one_grant() {
    let (fixture, one, two) = two_directories();
    let config = fixture.path("home/.config/nono");
    fs::create_dir_all(config.join("profiles")).unwrap();
    let profile = r#"{"allow": ["~/one", "~/two"], "rollback": {
        "exclude_patterns": ["~/one/data", "$NOT_SET/data", "~/elsewhere/data"]}}"#;
    fs::write(config.join("profiles/mine.json"), profile).unwrap();
    let settings = "[rollback]\nexclude_patterns = [\"$HOME/two/x.iso\"]\n";
    fs::write(config.join("config.toml"), settings).unwrap();
    let script = format!(
        "for d in {} {}; do echo 2 > $d/data/raw; echo 2 > $d/x.iso; done",
        one.display(),
        two.display()
    );
    let flags = ["run", "--rollback", "--profile", "mine", "--", "sh", "-c", &script];
    fixture.nono(&flags).success();
    fixture.nono(&["undo", &fixture.latest(), "--yes"]);
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    assert_eq!(read(one.join("data/raw")), "2\n");
    assert_eq!(read(two.join("data/raw")), "1");
    assert_eq!(read(one.join("x.iso")), "1");
    assert_eq!(read(two.join("x.iso")), "2\n");
    // An agent's session has the patterns of the settings.
    let mut command = fixture.command(&["hook", "codex", "--deadline-ms", "60000"]);
    command.current_dir(&two);
    let event = serde_json::json!({
        "session_id": "s", "hook_event_name": "SessionStart", "cwd": two,
    });
    crate::hooks::quiet(crate::hooks::start(command, &event.to_string()));
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let of_agent = list.as_array().unwrap().iter().find(|it| !it["agent"].is_null()).unwrap();
    let id = of_agent["session_id"].as_str().unwrap();
    let shown = fixture.nono(&["rollback", "show", id, "--json"]).success().json();
    let left = &shown["snapshots"][0]["not_captured"];
    assert_eq!(left[0]["path"], two.join("x.iso").to_str().unwrap(), "{left}");
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
}

#[test]
fn a_pattern_that_can_leave_out_nothing_is_refused_where_it_is_given() {
    let (fixture, one, _) = two_directories();
    let snapshot = |pattern: &str| -> Finished {
        let one = one.to_str().unwrap();
        let mut command = fixture.command(&["snapshot", "--rollback-exclude", pattern, one]);
        finished(command.output().unwrap())
    };
    for pattern in ["~/one", "~", "$HOME", "${HOME}/one/"] {
        snapshot(pattern).fails(2, "leaves out all of");
    }
    snapshot("~ada/x").fails(2, "only `~` alone stands for a home directory");
    snapshot("~/one/../two").fails(2, "it names no path");
    assert!(!fixture.store().exists());
    // An unset variable names nothing, and a path of another directory is not recorded.
    for pattern in ["$NOT_SET/data", "~/two/data"] {
        let told = snapshot(pattern).success();
        assert!(told.stderr.contains("left nothing out"), "{pattern}: {}", told.stderr);
    }
    assert!(!snapshot("~/one/data").success().stderr.contains("left nothing out"));
}

#[test]
fn a_profile_whose_patterns_can_leave_out_nothing_is_wrong() {
    let fixture = Fixture::new();
    let profiles = fixture.path("home/.config/nono/profiles");
    fs::create_dir_all(&profiles).unwrap();
    fs::create_dir_all(fixture.path("home/work")).unwrap();
    let check = |allow: &str, list: &str, pattern: &str| {
        let text = format!(r#"{{"allow": [{allow:?}], "rollback": {{"{list}": [{pattern:?}]}}}}"#);
        fs::write(profiles.join("mine.json"), text).unwrap();
        fixture.nono(&["profile", "check", "mine"])
    };
    for (allow, list, pattern, reason) in [
        ("~/work", "exclude_patterns", "~/work", "leaves out all of"),
        ("~/work", "exclude_patterns", "~/other/x", "leaves nothing out"),
        ("~/work", "exclude_patterns", "~ada/x", "only `~` alone"),
        (".", "exclude_patterns", "~/a/../b", "it names no path"),
        (".", "exclude_globs", "data/*.iso", "a glob is about names"),
        (".", "exclude_globs", "~/x.iso", "a glob is about names"),
        (".", "force_include", "~ada/x", "only `~` alone"),
    ] {
        let checked = check(allow, list, pattern);
        assert_eq!(checked.code, 1, "{pattern}");
        assert!(checked.stdout.contains(reason), "{pattern}: {}", checked.stdout);
    }
    for (allow, list, pattern) in [
        ("~/work", "exclude_patterns", "~/work/data"),
        ("~/work", "exclude_patterns", "/data"),
        (".", "exclude_patterns", "~/anywhere/data"),
        (".", "exclude_patterns", "$NOT_SET/data"),
        (".", "exclude_globs", "**/*.iso"),
        (".", "force_include", "~/work/.env"),
    ] {
        check(allow, list, pattern).success();
    }
    // The settings are checked where they are set.
    let wrong = fixture.nono(&["config", "set", "exclude_patterns", "[\"~ada/x\"]"]);
    assert!(wrong.code != 0 && wrong.says("only `~` alone"), "{}", wrong.stderr);
}

#[test]
fn a_place_in_the_state_of_an_agent_is_left_out_of_it() {
    let fixture = Fixture::new();
    let profiles = fixture.path("home/.config/nono/profiles");
    fs::create_dir_all(&profiles).unwrap();
    for name in ["agent/skills/good", "agent/skills/secret", "agent/skills/deep/token"] {
        let path = fixture.path("home").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "1").unwrap();
    }
    let text = r#"{"state_paths": ["~/agent/skills"],
        "state_exclude": ["~/agent/skills/secret", "~/agent/skills/deep"]}"#;
    fs::write(profiles.join("mine.json"), text).unwrap();
    let report = fixture.nono(&["snapshot", "--agent", "mine", "--json"]).success().json();
    assert_eq!(report[0]["file_count"], 1, "{report}");
    let left = report[0]["left_out"].as_array().unwrap();
    let expected =
        ["agent/skills/deep", "agent/skills/secret"].map(|it| fixture.path("home").join(it));
    let left: Vec<PathBuf> = left.iter().map(|it| it.as_str().unwrap().into()).collect();
    assert_eq!(left, expected);
}
