//! Settings that are shown as a file, set and edited.

use std::fs;
use std::os::unix::fs::symlink;

use crate::fixture::{Finished, Fixture, finished};

fn config(fixture: &Fixture) -> std::path::PathBuf {
    fixture.path("home/.config/nono/config.toml")
}

fn set(fixture: &Fixture, arguments: &[&str]) -> Finished {
    fixture.nono(&[&["config", "set"], arguments].concat())
}

/// Edits the configuration with a shell script that finds the file in `$1`.
fn edit(fixture: &Fixture, script: &str) -> Finished {
    let editor = fixture.path("editor");
    fs::write(&editor, format!("set -e\n{script}\n")).unwrap();
    let mut command = fixture.command(&["config", "edit"]);
    command.env("EDITOR", format!("sh '{}'", editor.display()));
    finished(command.output().unwrap())
}

/// The names in the directory of the configuration.
fn names(fixture: &Fixture) -> Vec<String> {
    let listed = fs::read_dir(config(fixture).parent().unwrap()).unwrap();
    let mut names: Vec<_> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_show_prints_is_a_configuration_file() {
    let fixture = Fixture::new();
    set(&fixture, &["exclude_patterns", "node_modules", "it's \"mine\""]).success();
    set(&fixture, &["max_storage_gb", "2.5"]).success();
    let shown = fixture.nono(&["config", "show", "--max-sessions", "7"]).success().stdout;
    assert!(shown.contains("\n[rollback]\nmax_sessions = 7  # --max-sessions; 0: no limit\n"));
    assert!(shown.contains("max_storage_gb = 2.5  # file; 0: no limit\n"), "{shown}");
    assert!(shown.contains("threads = 0  # default; 0: one for each core\n"), "{shown}");
    let json = |arguments: &[&str]| {
        let shown = fixture.nono(&[&["config", "show", "--json"], arguments].concat()).success();
        let settings = shown.json()["settings"].as_array().unwrap().clone();
        let values = settings.iter().map(|it| (it["key"].to_string(), it["value"].clone()));
        values.collect::<Vec<_>>()
    };
    let before = json(&["--max-sessions", "7"]);
    fs::write(config(&fixture), &shown).unwrap();
    assert_eq!(json(&[]), before);
    for command in [&["run", "--help"][..], &["rollback", "cleanup", "--help"]] {
        assert!(fixture.nono(command).success().stdout.contains("0 is no limit"));
    }
}

#[test]
fn a_setting_is_changed_and_comments_stay() {
    let fixture = Fixture::new();
    let told = set(&fixture, &["max_sessions", "20"]).success();
    assert!(told.stderr.contains("max_sessions = 20"), "{}", told.stderr);
    assert_eq!(fs::read_to_string(config(&fixture)).unwrap(), "[rollback]\nmax_sessions = 20\n");
    // A link to where the user keeps such files stays one.
    let kept = fixture.path("dotfiles.toml");
    fs::write(&kept, "# mine\n[undo]\nthreads = 1 # slow\n").unwrap();
    fs::remove_file(config(&fixture)).unwrap();
    symlink(&kept, config(&fixture)).unwrap();
    set(&fixture, &["threads", "2"]).success();
    assert_eq!(fs::read_to_string(&kept).unwrap(), "# mine\n[undo]\nthreads = 2 # slow\n");
    assert!(fs::symlink_metadata(config(&fixture)).unwrap().is_symlink());
    let before = fs::read_to_string(&kept).unwrap();
    for (arguments, reason) in [
        (&["max_session", "1"][..], "did you mean \"max_sessions\"?"),
        (&["max_sessions", "many"], "string"),
        (&["max_sessions", "-1"], "-1"),
        (&["threads", "5000"], "more than 1024"),
    ] {
        set(&fixture, arguments).fails(2, reason);
        assert_eq!(fs::read_to_string(&kept).unwrap(), before);
    }
    set(&fixture, &["max_sessions"]).fails(2, "");
    let mut command = fixture.command(&["config", "set", "max_sessions", "3"]);
    let told = finished(command.env("NONO_MAX_SESSIONS", "4").output().unwrap()).success();
    assert!(told.stderr.contains("NONO_MAX_SESSIONS is set"), "{}", told.stderr);
}

#[test]
fn a_setting_is_read_alone_and_taken_out_again() {
    let fixture = Fixture::new();
    let get = |key: &str| fixture.nono(&["config", "get", key]).success().stdout;
    let default = get("max_sessions");
    set(&fixture, &["max_sessions", "7"]).success();
    set(&fixture, &["exclude_patterns", "a", "b c"]).success();
    assert_eq!((get("max_sessions"), get("exclude_patterns")), ("7\n".into(), "a\nb c\n".into()));
    let with_origin = fixture.nono(&["config", "get", "max_sessions", "--json"]).success().json();
    assert_eq!(with_origin["value"], 7);
    let unset = fixture.nono(&["config", "unset", "rollback.max_sessions"]).success();
    assert!(unset.says("# default"), "{}", unset.stderr);
    assert_eq!(get("max_sessions"), default);
    assert!(!fs::read_to_string(config(&fixture)).unwrap().contains("max_sessions"));
    fixture.nono(&["config", "unset", "max_sessions"]).success();
    for command in ["get", "unset"] {
        fixture
            .nono(&["config", command, "max_session"])
            .fails(2, "did you mean \"max_sessions\"?");
    }
    let listed = fixture.nono(&["config", "list"]).success().stdout;
    assert_eq!(listed, fixture.nono(&["config", "show"]).success().stdout);
}

#[test]
fn limits_of_containers_are_shown_and_set() {
    let fixture = Fixture::new();
    let shown = fixture.nono(&["config", "show"]).success().stdout;
    let (_, limits) = shown.split_once("\n[containers]\n").unwrap();
    let usual: Vec<_> = limits.lines().map(|line| line.split("  #").next().unwrap()).collect();
    let expected = [
        "max_age_days = 7",
        "max_per_container = 10",
        "max_snapshots = 100",
        "max_storage_gb = 10.0",
    ];
    assert_eq!(usual, expected);
    set(&fixture, &["max_age_days", "30"]).success();
    for (key, value) in [
        ("containers.max_age_days", "3"),
        ("containers.max_per_container", "4"),
        ("containers.max_snapshots", "50"),
        ("containers.max_storage_gb", "2.5"),
    ] {
        let told = set(&fixture, &[key, value]).success();
        let line = format!("{} = {value}", key.strip_prefix("containers.").unwrap());
        assert!(told.stderr.contains(&line), "{}", told.stderr);
    }
    let text = fs::read_to_string(config(&fixture)).unwrap();
    assert_eq!(
        text,
        "[rollback]\nmax_age_days = 30\n\n[containers]\nmax_age_days = 3\n\
         max_per_container = 4\nmax_snapshots = 50\nmax_storage_gb = 2.5\n"
    );
    let shown = fixture.nono(&["config", "show"]).success().stdout;
    assert!(shown.contains("\nmax_storage_gb = 2.5  # file; 0: no limit\n"), "{shown}");
    let settings = fixture.nono(&["config", "show", "--json"]).success().json();
    let settings = settings["settings"].as_array().unwrap();
    let of = |key: &str| settings.iter().find(|one| one["key"] == key).unwrap().clone();
    assert_eq!(of("containers.max_age_days")["value"], 3);
    assert_eq!(of("containers.max_age_days")["origin"], "file");
    assert_eq!(of("max_age_days")["value"], 30);
    // The shown text can be the file.
    fs::write(config(&fixture), &shown).unwrap();
    assert!(fixture.nono(&["config", "show"]).success().stdout.contains("max_snapshots = 50"));
    set(&fixture, &["containers.max_storage_gb", "-1"]).fails(2, "no size");
    set(&fixture, &["containers.max_snapshot", "1"]).fails(2, "did you mean \"max_snapshots\"?");
}

#[test]
fn an_edit_is_checked_before_it_counts() {
    let fixture = Fixture::new();
    // All settings are there to be uncommented.
    edit(&fixture, "sed -i 's/^# max_sessions = 10 /max_sessions = 4 /' \"$1\"").success();
    let text = fs::read_to_string(config(&fixture)).unwrap();
    assert!(text.contains("\nmax_sessions = 4  #"), "{text}");
    assert!(
        fixture.nono(&["config", "show"]).success().stdout.contains("max_sessions = 4  # file")
    );
    let told = edit(&fixture, "true").success();
    assert!(told.stderr.contains("was not changed"), "{}", told.stderr);
    assert_eq!(names(&fixture), ["config.toml"]);
    let told = edit(&fixture, "echo 'no_such = 1' >> \"$1\"").fails(2, "unknown key \"no_such\"");
    assert_eq!(fs::read_to_string(config(&fixture)).unwrap(), text);
    let aside = names(&fixture).into_iter().find(|name| name.starts_with("config-edit-")).unwrap();
    assert!(told.stderr.contains(&aside), "{}", told.stderr);
    let aside = config(&fixture).with_file_name(aside);
    assert!(fs::read_to_string(&aside).unwrap().ends_with("no_such = 1\n"));
    fs::remove_file(aside).unwrap();
    edit(&fixture, "echo 'threads = 3' >> \"$1\"; exit 7").fails(1, "the editor");
    assert_eq!(fs::read_to_string(config(&fixture)).unwrap(), text);
    assert_eq!(names(&fixture).len(), 2, "what was typed is not lost");
}
