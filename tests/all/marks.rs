//! A maker's mark covers what its maker makes; a person's work beside that is recorded. With the
//! environments that Python makes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Finished, Fixture};

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";
const AGAIN: &str = "can be made again";

/// Has Python make a virtual environment in the project.
fn make_environment(fixture: &Fixture, name: &str) {
    let environment = fixture.project().join(name);
    let mut python = Command::new("python3");
    let done = python.args(["-m", "venv", "--without-pip"]).arg(&environment).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Where packages lie in an environment.
fn packages(fixture: &Fixture, name: &str) -> String {
    let lib = fixture.project().join(name).join("lib");
    let python = fs::read_dir(lib).unwrap().next().unwrap().unwrap().file_name();
    format!("{name}/lib/{}/site-packages", python.to_str().unwrap())
}

fn relative(fixture: &Fixture, report: &Value, list: &str) -> BTreeSet<String> {
    let entries = report[list].as_array().unwrap_or_else(|| panic!("no {list} in {report}")).iter();
    let inside = |path: &str| {
        let path = Path::new(path).strip_prefix(fixture.project()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    entries.map(|entry| inside(entry["path"].as_str().or(entry.as_str()).unwrap())).collect()
}

/// The paths that a snapshot of the moment leaves out.
fn left_out(fixture: &Fixture) -> BTreeSet<String> {
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    relative(fixture, &taken, "not_captured")
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Runs the command as an agent's supervisor does.
fn run(fixture: &Fixture, command: &[&str]) -> Finished {
    fixture.nono(&[&["run", "--rollback", "--no-rollback-prompt", "--"], command].concat())
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap_or_default()
}

/// Restores the last session, as a plan, in earnest and again: each answer is complete.
#[track_caller]
fn restores(fixture: &Fixture) {
    for flags in [&["--dry-run"][..], &[], &["--dry-run"], &[]] {
        let asked = [&["rollback", "restore", "latest", "--json"], flags].concat();
        let report = fixture.nono(&asked).success().json();
        assert_eq!(relative(fixture, &report, "skipped"), set(&[]), "{report}");
    }
}

#[test]
fn a_persons_files_in_an_environment_come_back() {
    for rules in ["", "proj/\n", "/proj/*\n"] {
        let fixture = Fixture::new();
        fixture.write(".gitignore", rules);
        make_environment(&fixture, "proj");
        assert_eq!(left_out(&fixture).iter().filter(|it| !it.starts_with("proj")).count(), 0);
        let site = packages(&fixture, "proj");
        let mine = ["proj/src/main.py", "proj/bin/mine", "proj/lib/mine.py", "proj/notes"];
        let mine = mine.map(str::to_owned).into_iter().chain([format!("{site}/mine/x.py")]);
        let mine: Vec<_> = mine.collect();
        for name in &mine {
            fixture.write(name, "code");
        }
        let done = run(&fixture, &["rm", "-rf", "proj/src"]).success();
        assert!(!done.says(AGAIN) && !done.says("not recorded"), "{rules:?}: {}", done.stderr);
        restores(&fixture);
        assert_eq!(read(&fixture, "proj/src/main.py"), "code", "{rules:?}");
        // The environment is no loss, and the work in it comes back.
        let done = run(&fixture, &["rm", "-rf", "proj"]).success();
        assert!(done.says(AGAIN) && !done.says("warning"), "{}", done.stderr);
        restores(&fixture);
        for name in &mine {
            assert_eq!(read(&fixture, name), "code", "{rules:?}: {name}");
        }
        assert!(!fixture.project().join("proj/bin/python3").exists());
    }
}

#[test]
fn an_environment_without_a_persons_files_is_left_out_as_one() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    make_environment(&fixture, "env");
    let site = packages(&fixture, "env");
    fixture.write(&format!("{site}/six.py"), "1");
    fixture.write(&format!("{site}/six-1.dist-info/RECORD"), "six.py,,\n../../../bin/six,,\n");
    fixture.write("env/bin/six", "1");
    assert_eq!(left_out(&fixture), set(&["env"]));
    let done = run(&fixture, &["rm", "-rf", "env", "a"]).success();
    assert!(done.says(AGAIN), "{}", done.stderr);
}

#[test]
fn an_environment_that_a_command_makes_stays_and_its_other_files_go() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = "/usr/bin/python3 -m venv --without-pip proj && mkdir proj/src &&
        echo 1 >proj/src/x && echo 2 >a";
    let done = run(&fixture, &["sh", "-c", script]).success();
    assert!(done.says(AGAIN) && !done.says("warning"), "{}", done.stderr);
    restores(&fixture);
    assert!(!fixture.project().join("proj/src").exists());
    assert!(fixture.project().join("proj/bin/python3").exists());
    assert_eq!(read(&fixture, "a"), "1");
}

#[test]
fn a_tag_beside_results_hides_no_results() {
    for rules in ["", "results/\n"] {
        let fixture = Fixture::new();
        fixture.write(".gitignore", rules);
        fixture.write("results/CACHEDIR.TAG", TAG);
        fixture.write("results/1.csv", "1");
        assert_eq!(left_out(&fixture), set(&[]), "{rules:?}");
        run(&fixture, &["rm", "-rf", "results"]).success();
        restores(&fixture);
        assert_eq!(read(&fixture, "results/1.csv"), "1", "{rules:?}");
    }
    // A file that is too large is named.
    let fixture = Fixture::new();
    fixture.write(".gitignore", "results/\n");
    fixture.write("results/CACHEDIR.TAG", TAG);
    for number in 0..65 {
        fixture.write(&format!("results/{number}"), vec![1; 1 << 20]);
    }
    assert_eq!(left_out(&fixture), set(&["results"]));
    let done = run(&fixture, &["rm", "-rf", "results"]);
    assert!(done.says("not recorded and gone: ") && !done.says(AGAIN), "{}", done.stderr);
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "cannot come back");
}

#[test]
fn packages_that_no_lock_lists_are_recorded() {
    let locks = [
        (Some("node_modules/.package-lock.json"), r#"{"packages":{"node_modules/a":{}}}"#),
        (Some("node_modules/.yarn-integrity"), r#"{"lockfileEntries":{"a@^1":"x"}}"#),
        (Some("node_modules/.yarn-state.yml"), "a:\n  - \"node_modules/a\"\n"),
        (Some("bun.lock"), r#"{"packages":{"a":["a@1"]}}"#),
        (None, ""),
    ];
    for (lock, text) in locks {
        for rules in ["", "node_modules\n"] {
            let fixture = Fixture::new();
            fixture.write(".gitignore", rules);
            fixture.write("package.json", "{}");
            fixture.write("node_modules/a/index.js", "1");
            lock.inspect(|lock| drop(fixture.write(lock, text)));
            // One that git ignores and that is small is recorded where nothing proves it.
            let whole = if lock.is_some() { set(&["node_modules"]) } else { set(&[]) };
            let is_bun_alone = lock == Some("bun.lock") && rules.is_empty();
            assert_eq!(left_out(&fixture), whole, "{lock:?} {rules:?} {is_bun_alone}");
            fixture.write("node_modules/mine/index.js", "mine");
            fixture.write("node_modules/@s/mine/index.js", "mine");
            let done = run(&fixture, &["rm", "-rf", "node_modules"]).success();
            assert_eq!(done.says(AGAIN), lock.is_some(), "{lock:?}: {}", done.stderr);
            restores(&fixture);
            assert_eq!(read(&fixture, "node_modules/mine/index.js"), "mine", "{lock:?}");
            assert_eq!(read(&fixture, "node_modules/@s/mine/index.js"), "mine", "{lock:?}");
        }
    }
}

#[test]
fn a_mark_that_a_command_plants_changes_nothing_for_the_next_session() {
    let fixture = Fixture::new();
    let mine = ["src/main.py", "src/bin/tool", "src/lib/x.py", ".notes-cache/1", "target/debug/1"];
    let listed = ["node_modules/mine/x.js", "node_modules/one.js", "lib/main.py"];
    for name in mine.into_iter().chain(listed) {
        fixture.write(name, "mine");
    }
    let script = format!(
        "echo home >src/pyvenv.cfg
        for dir in src src/bin .notes-cache target .; do printf '{}' >$dir/CACHEDIR.TAG; done
        echo '{{\"packages\":{{\"node_modules/mine\":{{}},\"node_modules/one.js\":{{}}}}}}' \
            >node_modules/.package-lock.json
        info=lib/lib/python3/site-packages/x.dist-info; mkdir -p $info; touch lib/pyvenv.cfg
        echo '../../../main.py,,' >$info/RECORD",
        TAG.trim()
    );
    run(&fixture, &["sh", "-c", &script]).success();
    fixture.write("target/debug/2", "mine");
    fixture.write(".notes-cache/2", "mine");
    let gone = ["rm", "-rf", "src", ".notes-cache", "target", "node_modules", "lib/main.py"];
    let done = run(&fixture, &gone);
    let done = done.success();
    assert!(!done.says("not recorded and"), "{}", done.stderr);
    restores(&fixture);
    for name in mine.into_iter().chain(listed).chain(["target/debug/2"]) {
        assert_eq!(read(&fixture, name), "mine", "{name}");
    }
    assert_eq!(read(&fixture, ".notes-cache/2"), "mine");
}

#[test]
fn a_part_that_is_left_out_is_one_line() {
    let fixture = Fixture::new();
    make_environment(&fixture, "proj");
    fixture.write("proj/src/main.py", "1");
    let done = run(&fixture, &["true"]).success();
    let lines: Vec<_> = done.stderr.lines().filter(|line| line.contains("left out: ")).collect();
    assert_eq!(lines.len(), 1, "{}", done.stderr);
    let told =
        format!("a part of {}, made again by a program", fixture.path("project/proj").display());
    assert!(lines[0].contains(&told), "{}", done.stderr);
    assert!(lines[0].contains("(--rollback-include proj records all of it)"), "{}", done.stderr);
}
