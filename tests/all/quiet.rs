//! `-q`: nothing but errors, and what was asked for by name.

use std::fs;

use crate::fixture::Fixture;

/// A session that changed `a` and `b`.
fn recorded() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fixture.write("b", "0");
    fixture.record("echo 1 > a; echo 1 > b").success();
    fixture
}

#[test]
fn a_command_that_did_what_it_was_told_says_nothing() {
    let fixture = recorded();
    for arguments in [
        &["undo", "-q", "--yes"][..],
        &["redo", "-q"],
        &["undo", "-q", "--yes", "a"],
        &["redo", "-q"],
        &["rollback", "restore", "-q"],
        &["rollback", "restore", "-q", "--to", "copy"],
        &["snapshot", "-q"],
        &["snapshot", "-q", "--session", "latest", "--if-changed"],
        &["run", "-q", "--rollback", "--", "true"],
        &["rollback", "verify", "-q"],
        &["rollback", "pin", "-q", "latest"],
        &["rollback", "unpin", "-q", "latest"],
        &["rollback", "cleanup", "-q"],
        &["agent", "install", "claude-code", "--project", "-q"],
        &["agent", "uninstall", "claude-code", "--project", "-q"],
        &["config", "set", "-q", "max_sessions", "7"],
        &["rollback", "cleanup", "-q", "--all", "--yes"],
    ] {
        let done = fixture.nono(arguments).success();
        assert_eq!((&*done.stdout, &*done.stderr), ("", ""), "{arguments:?}");
    }
}

#[test]
fn what_was_asked_for_is_printed() {
    let fixture = recorded();
    for arguments in [
        &["undo", "-q", "--dry-run"][..],
        &["rollback", "restore", "-q", "--dry-run"],
        &["rollback", "cleanup", "-q", "--all", "--dry-run"],
        &["undo", "-q", "--yes", "--json"],
        &["redo", "-q", "--json"],
        &["snapshot", "-q", "--json"],
        &["rollback", "list", "-q"],
        &["rollback", "show", "-q"],
        &["status", "-q"],
    ] {
        let done = fixture.nono(arguments).success();
        assert_ne!(done.stdout, "", "{arguments:?}");
        assert_eq!(done.stderr, "", "{arguments:?}");
    }
}

#[test]
fn a_result_that_is_not_what_was_asked_for_is_an_error_and_says_why() {
    let fixture = recorded();
    fixture.write("a", "mine");
    let refused =
        fixture.nono(&["undo", "-q", "--yes"]).fails(1, "a was changed after the session");
    assert!(refused.says("error: "), "{}", refused.stderr);
    assert!(refused.says("--force") && refused.says("--keep-newer"), "{}", refused.stderr);
    assert_eq!(refused.stdout, "");
    let fixture = Fixture::new().ignored("none");
    fixture.write(".gitignore", "*.log\n");
    fixture.write("a", "0");
    fixture.record("echo 1 > a; echo 1 > x.log").success();
    let partly = fixture.nono(&["undo", "-q", "--yes"]).fails(1, "x.log: it is new");
    assert_eq!(partly.stdout, "");
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "0");
}
