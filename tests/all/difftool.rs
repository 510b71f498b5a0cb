//! `nono difftool`: two states in another program. `nono diff --word-diff` and `-M`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};

/// A program that prints its words, and the files below them with contents and modes.
const SHOW: &str = "#!/bin/sh\necho called: $#\nfor it; do\n  find \"$it\" -type f | sort | \
                    while read -r f; do echo \"$(basename \"$it\")|${f#\"$it\"}|$(stat -c %a \
                    \"$f\")|$(cat \"$f\")\"; done\ndone\n";

/// Runs nono with these programs in front of all others.
fn with_tools(fixture: &Fixture, tools: &[(&str, &str)], arguments: &[&str]) -> Finished {
    let bin = fixture.path("bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, script) in tools {
        let path = bin.join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = fixture.command(arguments);
    command.env("PATH", path).env("TMPDIR", fixture.path("tmp"));
    finished(command.output().unwrap())
}

fn changed() -> Fixture {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("tmp")).unwrap();
    fixture.write("src/a.rs", "old a\n");
    fixture.write("gone", "was here\n");
    fixture.write("same", "same\n");
    fixture.record("echo new a > src/a.rs; rm gone; echo made > made").success();
    fixture
}

#[test]
fn a_tool_for_folders_gets_the_changed_files_of_both_states_and_nothing_stays() {
    let fixture = changed();
    for tool in ["meld", "kdiff3"] {
        let shown = with_tools(&fixture, &[(tool, SHOW)], &["difftool", "--tool", tool]).success();
        assert_eq!(
            shown.stdout,
            "called: 2\nold|/gone|400|was here\nold|/src/a.rs|400|old a\nnew|/made|400|made\n\
             new|/src/a.rs|400|new a\n"
        );
        let left: Vec<_> = fs::read_dir(fixture.path("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    // Paths limit it, and now is a state.
    fixture.write("src/a.rs", "newer a\n");
    let arguments = ["difftool", "-t", "meld", "now", "src"];
    let shown = with_tools(&fixture, &[("meld", SHOW)], &arguments).success();
    assert_eq!(shown.stdout, "called: 2\nold|/src/a.rs|400|new a\nnew|/src/a.rs|400|newer a\n");
}

#[test]
fn a_tool_for_files_is_started_for_each_and_its_failure_is_passed_on() {
    let fixture = changed();
    let show =
        "#!/bin/sh\n[ \"$1\" = -d ] || exit 9\nshift\necho \"$(cat \"$1\")|$(cat \"$2\")\"\n";
    let shown =
        with_tools(&fixture, &[("vim", show)], &["difftool", "--tool", "vimdiff"]).success();
    assert_eq!(shown.stdout, "was here|\n|made\nold a|new a\n");
    let code = "#!/bin/sh\n[ \"$1 $2\" = '--wait --diff' ] || exit 9\nexit 3\n";
    let failed = with_tools(&fixture, &[("code", code)], &["difftool", "--tool", "code"]);
    assert_eq!(failed.code, 3, "{}", failed.stderr);
    let missing = with_tools(&fixture, &[], &["difftool", "--tool", "kompare"]);
    missing.fails(1, "cannot start kompare");
}

#[test]
fn the_tool_of_gits_settings_is_the_users_and_never_the_projects() {
    let fixture = changed();
    with_tools(&fixture, &[], &["difftool"]).fails(2, "git's settings name no program");
    with_tools(&fixture, &[], &["difftool", "--tool", "mine"])
        .fails(2, "no program is known as mine");
    let settings = fixture.path("home/.gitconfig");
    fs::write(&settings, "[diff]\ntool = meld\n").unwrap();
    let shown = with_tools(&fixture, &[("meld", SHOW)], &["difftool"]).success();
    assert!(shown.stdout.starts_with("called: 2\n"), "{}", shown.stdout);
    let cmd =
        "[difftool \"mine\"]\ncmd = echo \\\"$(cat \\\"$LOCAL\\\") to $(cat \\\"$REMOTE\\\")\\\"\n";
    fs::write(&settings, cmd).unwrap();
    let shown = with_tools(&fixture, &[], &["difftool", "--tool", "mine", "--", "src"]).success();
    assert_eq!(shown.stdout, "old a to new a\n");
    // A project that brings a tool of its own.
    fs::remove_file(&settings).unwrap();
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(fixture.project());
        assert!(command.output().unwrap().status.success());
    };
    git(&["init", "-q"]);
    git(&["config", "diff.tool", "evil"]);
    git(&["config", "difftool.evil.cmd", "touch /tmp/evil-of-nono"]);
    with_tools(&fixture, &[], &["difftool"]).fails(2, "git's settings name no program");
    with_tools(&fixture, &[], &["difftool", "--tool", "evil"]).fails(2, "no program is known");
    assert!(!Path::new("/tmp/evil-of-nono").exists());
}

#[test]
fn words_and_renames_are_shown_as_git_shows_them() {
    let fixture = Fixture::new();
    let numbers: String = (0..30).map(|n| format!("line number {n}\n")).collect();
    fixture.write("old/name.txt", &numbers);
    fixture.write("kept.txt", "one two three\n");
    fixture.write("exact", "the very same contents\n");
    fixture.nono(&["snapshot"]).success();
    fs::create_dir(fixture.path("before")).unwrap();
    fixture.copy_state("", "before");
    fs::create_dir(fixture.project().join("new")).unwrap();
    fs::rename(fixture.project().join("old/name.txt"), fixture.project().join("new/name.txt"))
        .unwrap();
    fs::remove_dir(fixture.project().join("old")).unwrap();
    fixture.write("new/name.txt", numbers.replace("number 7\n", "number seven\n"));
    fs::rename(fixture.project().join("exact"), fixture.project().join("moved")).unwrap();
    fixture.write("kept.txt", "one 2 three\n");
    let words = fixture.nono(&["diff", "--word-diff", "now", "kept.txt"]).success();
    assert!(words.stdout.contains("\none [-two-]{+2+} three\n"), "{}", words.stdout);
    let patch = fixture.nono(&["diff", "-M", "now"]).success().stdout;
    assert!(patch.contains("rename from old/name.txt\nrename to new/name.txt\n"), "{patch}");
    assert!(
        patch.contains("similarity index 100%\nrename from exact\nrename to moved\n"),
        "{patch}"
    );
    let stat = fixture.nono(&["diff", "-M", "--stat", "now"]).success().stdout;
    assert!(stat.contains("exact => moved") && stat.contains("3 files changed"), "{stat}");
    // Below the likeness, and without the flag, they are two files.
    let strict = fixture.nono(&["diff", "-M=99", "now"]).success().stdout;
    assert!(
        !strict.contains("rename from old") && strict.contains("rename from exact"),
        "{strict}"
    );
    assert!(!fixture.nono(&["diff", "now"]).success().stdout.contains("rename"));
    fixture.nono(&["diff", "-M=0", "now"]).fails(2, "percent");
    // Both programs that take patches make the new state of the old one.
    fs::write(fixture.path("patch"), &patch).unwrap();
    let input = fixture.path("patch").to_str().unwrap().to_owned();
    for program in [&["git", "apply", &input][..], &["patch", "-s", "-p1", "-i", &input]] {
        let at = fixture.path(&format!("applied-{}", program[0]));
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(fixture.path("before/project")).arg(&at);
        assert!(copy.status().unwrap().success());
        let mut apply = Command::new(program[0]);
        let done = finished(apply.args(&program[1..]).current_dir(&at).output().unwrap());
        assert_eq!(done.code, 0, "{}: {} {}", program[0], done.stdout, done.stderr);
        let same = Command::new("diff").arg("-r").arg(&at).arg(fixture.project()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&same.stdout), "", "{}", program[0]);
    }
}
