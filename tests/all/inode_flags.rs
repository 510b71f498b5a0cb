//! Flags of files (`chattr`) come back with an undo, or are named.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Fixture, finished};
use crate::trouble::chattr;

/// The flags of a path as letters, without those that the file system sets by itself.
fn flags(path: &Path) -> String {
    let listed = finished(Command::new("lsattr").arg("-d").arg(path).output().unwrap()).success();
    let word = listed.stdout.split_whitespace().next().unwrap().to_owned();
    word.chars().filter(|letter| !"-eI".contains(*letter)).collect()
}

#[test]
fn flags_are_a_part_of_the_state_that_comes_back() {
    let fixture = Fixture::new();
    let file = fixture.write("file", "1");
    let lone = fixture.write("lone", "1");
    let below = fixture.write("dir/below", "1");
    let dir = fixture.project().join("dir");
    let is_set = chattr("+dA", &file) && chattr("+S", &below) && chattr("+DA", &dir);
    if !is_set {
        return;
    }
    let before = [&file, &lone, &below, &dir].map(|path| flags(path));
    assert!(before[0].contains('d') && before[0].contains('A') && before[1].is_empty());
    // Replaced, removed as a whole, and the flags alone.
    fixture.record("echo 2 > new; mv new file; rm -r dir; chattr +d lone").success();
    assert_eq!((flags(&file), flags(&lone)), (String::new(), "d".to_owned()));
    let shown = fixture.nono(&["show", "--json"]).success();
    assert!(shown.stdout.contains("lone"), "{}", shown.stdout);
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!([&file, &lone, &below, &dir].map(|path| flags(path)), before);
    fixture.nono(&["redo", "--yes"]).success();
    assert_eq!((flags(&file), flags(&lone)), (String::new(), "d".to_owned()));
    assert!(!dir.exists());
}

#[test]
fn a_flag_that_cannot_be_set_is_named() {
    let fixture = Fixture::new();
    let file = fixture.write("file", "1");
    if !chattr("+S", &file) {
        return;
    }
    fixture.record("echo 2 > file").success();
    // A tmpfs has no such flag.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let there = memory.path().join("copy");
    let copied = fixture.nono(&["restore", "latest/0", "--to", there.to_str().unwrap()]);
    assert_eq!(copied.code, 1, "{}{}", copied.stdout, copied.stderr);
    assert!(copied.says("flags") && copied.says("chattr"), "{}{}", copied.stdout, copied.stderr);
    assert_eq!(fs::read_to_string(there.join("file")).unwrap(), "1");
}
