//! The candidates of a shell at Tab, asked in the shell itself.

use std::fs;
use std::process::Command;

use crate::fixture::{Fixture, finished};

const NONO: &str = env!("CARGO_BIN_EXE_nono");

/// The candidates of bash for a line that is being typed, one a line.
fn offered(fixture: &Fixture, line: &[&str]) -> Vec<String> {
    let bin = fixture.path("bin");
    if !bin.join("nono").exists() {
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(NONO, bin.join("nono")).unwrap();
    }
    let words: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    // As readline calls it: the command, the word, the word before.
    let script = format!(
        "source <(nono completions bash); COMP_WORDS=({}); COMP_CWORD={}; COMP_TYPE=9; \
         _clap_complete_nono nono '{}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        line.len() - 1,
        line.last().unwrap()
    );
    let mut command = Command::new("bash");
    let output = command
        .args(["--norc", "--noprofile", "-c", &script])
        .current_dir(fixture.project())
        .env_clear()
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()))
        .env("HOME", fixture.path("home"))
        .output()
        .unwrap();
    let done = finished(output).success();
    assert_eq!(done.stderr, "");
    done.stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_offers_sessions_and_their_snapshots() {
    let fixture = Fixture::new();
    fixture.write("src/a.rs", "1\n");
    fixture.record("echo 2 > src/a.rs").success();
    let first = fixture.latest();
    fixture.record("echo 3 > src/a.rs").success();
    let second = fixture.latest();
    for command in ["show", "restore", "diff", "verify", "cleanup"] {
        let all = offered(&fixture, &["nono", "rollback", command, ""]);
        let at = |id: &String| all.iter().position(|found| found == id);
        assert!(at(&second).is_some() && at(&second) < at(&first), "{command}: {all:?}");
    }
    assert_eq!(
        offered(&fixture, &["nono", "rollback", "show", &second]),
        std::slice::from_ref(&second)
    );
    let numbers = offered(&fixture, &["nono", "rollback", "show", &format!("{first}/")]);
    assert_eq!(numbers, [format!("{first}/0"), format!("{first}/1")]);
    let session = offered(&fixture, &["nono", "snapshot", "--session", &first[..8]]);
    assert_eq!(session, [second, first]);
    assert!(offered(&fixture, &["nono", "rollback", "diff", "n"]).contains(&"now".to_owned()));
}

#[test]
fn bash_offers_commands_flags_profiles_and_paths_of_snapshots() {
    let fixture = Fixture::new();
    fixture.write("src/gone.rs", "1\n");
    fixture.write("src/deep/b", "1\n");
    fixture.record("rm -r src").success();
    assert_eq!(offered(&fixture, &["nono", "rollb"]), ["rollback"]);
    let flags = offered(&fixture, &["nono", "run", "--no-rollback-p"]);
    assert_eq!(flags, ["--no-rollback-prompt"]);
    let profiles = offered(&fixture, &["nono", "run", "--profile", "cl"]);
    assert_eq!(profiles, ["claude-code"]);
    let paths = |word| offered(&fixture, &["nono", "rollback", "restore", "latest", word]);
    assert_eq!(paths("sr"), ["src/"]);
    assert_eq!(paths("src/"), ["src/deep/", "src/gone.rs"]);
    assert_eq!(paths("src/g"), ["src/gone.rs"]);
    // Nothing of a store that is not there.
    let elsewhere = fixture.path("nowhere");
    let elsewhere = elsewhere.to_str().unwrap();
    let none = offered(&fixture, &["nono", "--root", elsewhere, "rollback", "show", ""]);
    assert!(!none.iter().any(|word| word.starts_with("20")), "{none:?}");
}

#[test]
fn bash_gets_a_name_with_a_blank_as_one_word() {
    let fixture = Fixture::new();
    fixture.write("with blank", "1");
    fixture.nono(&["snapshot", "-m", "before lunch"]).success();
    let names = offered(&fixture, &["nono", "rollback", "restore", "bef"]);
    assert_eq!(names, [r"before\ lunch"]);
    let names = offered(&fixture, &["nono", "rollback", "restore", r"before\ l"]);
    assert_eq!(names, [r"before\ lunch"]);
    let paths = offered(&fixture, &["nono", "rollback", "restore", "latest", "with"]);
    assert_eq!(paths, [r"with\ blank"]);
}
