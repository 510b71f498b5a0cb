//! Default exclusions are named, stay untouched, and can be switched off.

use std::fs;

use crate::fixture::Fixture;

fn project() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let lock = r#"{"packages": {"node_modules/x": {}, "node_modules/y": {}}}"#;
    fixture.write("node_modules/.package-lock.json", lock);
    fixture.write("web/node_modules/.package-lock.json", lock);
    fixture.write("web/node_modules/x/index.js", "x");
    fixture.write("node_modules/y/index.js", "y");
    // A name proves nothing, and a file of such a name is a file.
    fixture.write("build/main.c", "1");
    fixture.write("dist", "1");
    fixture
}

const CHANGE: &str =
    "for f in a build/main.c web/node_modules/x/index.js dist; do echo 2 > $f; done";

#[test]
fn what_is_made_again_is_left_out_and_named_and_never_touched() {
    let fixture = project();
    let run = fixture.record(CHANGE).success();
    let lines: Vec<&str> = run.stderr.lines().filter(|line| line.contains("left out")).collect();
    assert_eq!(lines.len(), 1, "{}", run.stderr);
    assert!(lines[0].contains("node_modules and 1 more, installed packages"), "{}", run.stderr);
    assert!(lines[0].contains("(--rollback-include node_modules records it)"), "{}", run.stderr);
    fixture.nono(&["rollback", "restore", "latest"]).success();
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!([read("a"), read("dist"), read("build/main.c")], ["1", "1", "1"]);
    assert_eq!(read("web/node_modules/x/index.js"), "2\n");
    assert_eq!(read("node_modules/y/index.js"), "y");
}

#[test]
fn a_reason_is_named_once_for_each_project() {
    let fixture = project();
    let said = |flags: &[&str]| {
        let run = fixture.nono(&[&["run"], flags, &["--", "true"]].concat()).success();
        run.stderr.lines().filter(|line| line.contains("left out")).count()
    };
    assert_eq!(said(&[]), 1);
    assert_eq!(said(&[]), 0);
    // Details on request, and by hand as often as it is asked for.
    assert_eq!(said(&["-v"]), 1);
    assert!(fixture.nono(&["snapshot"]).success().says("left out: "));
    // Another reason.
    fixture.write("old/pyvenv.cfg", "home\n");
    fixture.write("old/bin/python", "1");
    let flags = ["--rollback-exclude", "dist"];
    assert_eq!(said(&flags), 2);
    assert_eq!(said(&flags), 0);
    // Another project of the same store.
    fixture
        .write("other/node_modules/.package-lock.json", "{\"packages\": {\"node_modules/x\": {}}}");
    fixture.write("other/node_modules/x/index.js", "x");
    fixture.write("other/a", "1");
    let other = fixture.project().join("other");
    assert_eq!(said(&["--allow", other.to_str().unwrap()]), 1);
}

#[test]
fn they_are_recorded_on_request() {
    for flags in [&["--rollback-include", "node_modules"][..], &["--rollback-all"]] {
        let fixture = project();
        let run = [&["run", "--rollback"], flags, &["--", "sh", "-c", CHANGE]].concat();
        fixture.nono(&run).success();
        fixture.nono(&["rollback", "restore", "latest"]).success();
        let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
        assert_eq!(read("web/node_modules/x/index.js"), "x", "{flags:?}");
    }
    let fixture = project();
    let taken = fixture.nono(&["snapshot"]).success();
    assert!(taken.stderr.contains("--rollback-include node_modules"), "{}", taken.stderr);
}

#[test]
fn a_recording_of_nothing_is_told_loudly() {
    let fixture = Fixture::new().ignored("none");
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
    // Blocks without a byte written: they take space, unlike a hole.
    let nothing = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&large, nothing, 0, 1 << 30).unwrap();
    let hole = std::fs::File::create(fixture.project().join("hole")).unwrap();
    hole.set_len(1 << 40).unwrap();
    fixture.write("small", "1");
    let snapshot = ["snapshot", "--rollback-exclude", "small"];
    let first = fixture.nono(&snapshot).success();
    assert!(first.stderr.contains("first recording of "), "{}", first.stderr);
    assert!(first.stderr.contains("about 2 entries, 1.0 GiB"), "{}", first.stderr);
    assert!(!fixture.nono(&snapshot).success().stderr.contains("first recording"));
}
