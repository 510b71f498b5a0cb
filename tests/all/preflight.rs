//! What is left out by default is named, stays untouched, and can be had.

use std::fs;

use crate::fixture::Fixture;

fn project() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write(".git/HEAD", "main");
    fixture.write("web/node_modules/x/index.js", "x");
    fixture.write("node_modules/y/index.js", "y");
    // A file of such a name is a file.
    fixture.write("dist", "1");
    fixture
}

const CHANGE: &str = "for f in a .git/HEAD web/node_modules/x/index.js dist; do echo 2 > $f; done";

#[test]
fn well_known_directories_are_left_out_by_name_and_never_touched() {
    let fixture = project();
    let run = fixture.record(CHANGE).success();
    let lines: Vec<&str> = run.stderr.lines().filter(|line| line.contains("left out")).collect();
    assert_eq!(lines.len(), 1, "{}", run.stderr);
    assert!(lines[0].contains("node_modules and 1 more"), "{}", run.stderr);
    fixture.nono(&["rollback", "restore", "latest"]).success();
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!((read("a").as_str(), read("dist").as_str()), ("1", "1"));
    assert_eq!(read(".git/HEAD"), "main", "a repository is recorded");
    assert_eq!(read("node_modules/y/index.js"), "y");
}

#[test]
fn they_are_recorded_on_request() {
    for (flags, git, modules) in [
        (&["--rollback-exclude", ".git"][..], "2\n", "2\n"),
        (&["--rollback-include", "node_modules"], "main", "x"),
        (&["--rollback-all"], "main", "x"),
    ] {
        let fixture = project();
        let run = [&["run", "--rollback"], flags, &["--", "sh", "-c", CHANGE]].concat();
        fixture.nono(&run).success();
        fixture.nono(&["rollback", "restore", "latest"]).success();
        let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
        assert_eq!(read(".git/HEAD"), git, "{flags:?}");
        assert_eq!(read("web/node_modules/x/index.js"), modules, "{flags:?}");
    }
    let fixture = project();
    let taken = fixture.nono(&["snapshot"]).success();
    assert!(taken.stderr.contains("--rollback-include node_modules"), "{}", taken.stderr);
}

#[test]
fn a_recording_of_nothing_is_told_loudly() {
    let fixture = Fixture::new();
    fixture.record("true").success();
    fixture.write(".gitignore", "*\n");
    fixture.write("a", "1");
    fixture.write("node_modules/x", "1");
    for arguments in [&["run", "--rollback", "--", "true"][..], &["snapshot"]] {
        let taken = fixture.nono(arguments).success();
        assert!(taken.stderr.contains("warning: NOTHING IS RECORDED"), "{}", taken.stderr);
    }
    let all = fixture.nono(&["run", "--rollback", "--rollback-all", "--", "true"]).success();
    assert!(!all.stderr.contains("NOTHING"), "{}", all.stderr);
    // An empty directory is recorded as what it is.
    std::fs::create_dir(fixture.path("empty")).unwrap();
    let empty = fixture.path("empty");
    let run = ["run", "--rollback", "--allow", empty.to_str().unwrap(), "--", "true"];
    assert!(!fixture.nono(&run).success().stderr.contains("NOTHING"));
}

#[test]
fn the_first_recording_of_a_large_tree_is_announced_and_later_ones_are_not() {
    let fixture = Fixture::new();
    let large = std::fs::File::create(fixture.project().join("large")).unwrap();
    // All hole: it takes no space, and its length is what is announced.
    large.set_len(1 << 30).unwrap();
    fixture.write("small", "1");
    let snapshot = ["snapshot", "--rollback-exclude", "small"];
    let first = fixture.nono(&snapshot).success();
    assert!(first.stderr.contains("first recording of "), "{}", first.stderr);
    assert!(first.stderr.contains("about 1 entries, 1.0 GiB"), "{}", first.stderr);
    assert!(!fixture.nono(&snapshot).success().stderr.contains("first recording"));
}
