//! An argument that is a path is that path. A glob is meant only where no such path is, and means
//! what it means to a shell.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use crate::fixture::Fixture;

/// Names that could be patterns, each with a neighbour that the pattern would mean too.
const HOSTILE: [(&str, &str); 9] = [
    ("p[1].txt", "p1.txt"),
    ("app/[id]/page.tsx", "app/i/page.tsx"),
    ("what?.md", "whats.md"),
    ("star*.c", "starfish.c"),
    ("{a,b}.rs", "a.rs"),
    ("a[b.txt", "ab.txt"),
    ("[!x]/y", "z/y"),
    ("b\\*", "b*"),
    ("**/deep", "x/deep"),
];

fn contents(fixture: &Fixture) -> BTreeMap<&'static str, Option<String>> {
    let names = HOSTILE.into_iter().flat_map(|(name, neighbour)| [name, neighbour]);
    names.map(|name| (name, fs::read_to_string(fixture.project().join(name)).ok())).collect()
}

/// A recorded change of all of these names: changed, or removed.
fn changed(removes: bool) -> Fixture {
    let fixture = Fixture::new();
    for (name, neighbour) in HOSTILE {
        fixture.write(name, "before");
        fixture.write(neighbour, "before");
    }
    let work = if removes { "rm {}" } else { "echo after > {}" };
    let script: Vec<String> = HOSTILE
        .into_iter()
        .flat_map(|(name, neighbour)| [name, neighbour])
        .map(|name| work.replace("{}", &format!("'./{name}'")))
        .collect();
    fixture.record(&script.join("; ")).success();
    fixture
}

#[test]
fn undo_of_a_name_with_characters_of_a_pattern_leaves_its_neighbours_alone() {
    for removes in [false, true] {
        let fixture = changed(removes);
        let mut expected = contents(&fixture);
        for (name, _) in HOSTILE {
            fixture.nono(&["undo", "--yes", "--", name]).success();
            expected.insert(name, Some("before".to_owned()));
            assert_eq!(contents(&fixture), expected, "{name}, {removes}");
        }
    }
}

#[test]
fn reading_commands_take_such_a_name_as_that_path() {
    for removes in [false, true] {
        let fixture = changed(removes);
        for (name, _) in HOSTILE {
            let shown = fixture.nono(&["rollback", "cat", "latest/0", name]).success();
            assert_eq!(shown.stdout, "before", "{name}");
            let log = fixture.nono(&["log", "--", name]).success();
            assert!(log.stdout.lines().count() >= 2, "{name}: {}", log.stdout);
            let diff = fixture.nono(&["rollback", "diff", "latest", "--name-only", "--", name]);
            assert_eq!(diff.success().stdout.lines().count(), 1, "{name}");
            let to = fixture.path("copy");
            let copy =
                ["rollback", "restore", "latest/0", "--to", to.to_str().unwrap(), "--", name];
            fixture.nono(&copy).success();
            assert_eq!(walk(&to).iter().filter(|path| path.is_file()).count(), 1, "{name}");
            fs::remove_dir_all(to).unwrap();
        }
    }
}

#[test]
fn a_search_finds_a_path_that_is_written_as_its_glob_and_hidden_names() {
    let fixture = changed(true);
    let found = |glob: &str| -> Vec<String> {
        let found = fixture.nono(&["rollback", "find", "--json", "--", glob]).success().json();
        let paths = found.as_array().unwrap().iter();
        let project = fixture.project();
        paths
            .map(|found| Path::new(found["path"].as_str().unwrap()).strip_prefix(&project).unwrap())
            .map(|path| path.to_str().unwrap().to_owned())
            .collect()
    };
    for (name, _) in HOSTILE {
        assert!(found(name).contains(&name.to_owned()), "{name}");
    }
    fixture.write(".env", "1");
    fixture.write(".d/x.toml", "1");
    fixture.record("true").success();
    assert_eq!(found("*env"), [".env"]);
    assert_eq!(found("**/*.toml"), [".d/x.toml"]);
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(walk(&path));
        }
        found.push(path);
    }
    found
}

#[test]
fn a_glob_means_what_it_means_to_a_shell_in_the_current_directory() {
    let fixture = Fixture::new();
    let names = ["a.c", "d/a.c", "d/e/a.c", "[x]/a.c", "[x]/b.c", "x/a.c"];
    for name in names {
        fixture.write(name, "before");
    }
    let work: Vec<String> = names.iter().map(|name| format!("echo after > '{name}'")).collect();
    fixture.record(&work.join("; ")).success();
    for (place, glob, meant) in [
        ("", "*.c", &["a.c"][..]),
        ("", "d/*.c", &["d/a.c"]),
        ("d", "*.c", &["d/a.c"]),
        ("", "d/**/*.c", &["d/a.c", "d/e/a.c"]),
        // The directory's own name is no pattern.
        ("[x]", "*.c", &["[x]/a.c", "[x]/b.c"]),
        ("[x]", "?.c", &["[x]/a.c", "[x]/b.c"]),
        ("", "[dx]/a.c", &["d/a.c", "x/a.c"]),
    ] {
        let mut undo = fixture.command(&["undo", "--dry-run", "--json", glob]);
        let output = undo.current_dir(fixture.project().join(place)).output().unwrap();
        let expected: Vec<_> =
            meant.iter().map(|name| fixture.project().join(name).display().to_string()).collect();
        assert_eq!(paths_of_changes(&output), expected, "{glob} in {place:?}");
    }
}

#[test]
fn a_hidden_name_is_meant_by_a_dot_alone() {
    let fixture = Fixture::new();
    let names = [".d/.f", ".d/a", ".env", "a", "d/.e/a", "d/.f", "d/a"];
    for name in names {
        fixture.write(name, "before");
    }
    let work = names.map(|name| format!("echo after > {name}"));
    fixture.record(&work.join("; ")).success();
    for (place, glob, meant) in [
        ("", "*", &["a", "d/.e/a", "d/.f", "d/a"][..]),
        ("", ".*", &[".d/.f", ".d/a", ".env"]),
        ("", "?env", &[]),
        ("", "[.]env", &[]),
        ("", "[!a]env", &[]),
        ("", "*/a", &["d/a"]),
        ("", ".*/a", &[".d/a"]),
        ("", "**/a", &["a", "d/a"]),
        ("", "**/.e/*", &["d/.e/a"]),
        ("", "d/**", &["d/a"]),
        ("", "{.env,?}", &[".env", "a", "d/.e/a", "d/.f", "d/a"]),
        (".d", "*", &[".d/a"]),
        ("d", ".*", &["d/.e/a", "d/.f"]),
    ] {
        let expected: Vec<_> =
            meant.iter().map(|name| fixture.project().join(name).display().to_string()).collect();
        for command in [&["undo"][..], &["rollback", "restore", "latest/0"]] {
            let arguments = [command, &["--dry-run", "--json", "--", glob]].concat();
            let mut command = fixture.command(&arguments);
            let output = command.current_dir(fixture.project().join(place)).output().unwrap();
            if meant.is_empty() {
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(!output.status.success() && said.contains("matches"), "{glob}: {said}");
                continue;
            }
            assert_eq!(paths_of_changes(&output), expected, "{glob} in {place:?}");
        }
    }
}

#[test]
fn a_glob_from_elsewhere_is_not_about_subdirectories() {
    let fixture = Fixture::new();
    for name in ["a.c", "d/a.c"] {
        fixture.write(name, "before");
    }
    fixture.record("echo after > a.c; echo after > d/a.c").success();
    let mut undo = fixture.command(&["undo", &fixture.latest(), "--dry-run", "--json", "*.c"]);
    let output = undo.current_dir(fixture.path("home")).output().unwrap();
    assert_eq!(paths_of_changes(&output), [fixture.project().join("a.c").display().to_string()]);
}

fn paths_of_changes(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let changes = plan["changes"].as_array().unwrap().iter();
    changes.map(|change| change["path"].as_str().unwrap().to_owned()).collect()
}
