//! The manual and the help: read by the real `man`, and found by it where `nono man` installs it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::not_run;

/// All pages, in a directory of their own. `None`, and said so, where there is no `man`.
fn installed(fixture: &Fixture) -> Option<PathBuf> {
    let found = Command::new("man").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        not_run("man is not installed");
        return None;
    }
    let dir = fixture.path("man/man1");
    fixture.nono(&["man", "--install", dir.to_str().unwrap()]).success();
    Some(dir)
}

fn pages(dir: &Path) -> BTreeSet<String> {
    let listed = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    listed.map(|name| name.to_str().unwrap().strip_suffix(".1").unwrap().to_owned()).collect()
}

/// A page as `man` shows it, in lines of 80 columns.
fn shown(page: &Path) -> Finished {
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-l"]).arg(page);
    man.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8").env("MANPAGER", "cat");
    finished(man.output().unwrap()).success()
}

fn headings(text: &str) -> Vec<&str> {
    let is_heading = |line: &&str| line.starts_with(|c: char| c.is_ascii_uppercase());
    text.lines().filter(is_heading).map(str::trim).collect()
}

#[test]
fn a_synopsis_names_the_values_of_options_and_no_option_of_every_command() {
    let fixture = Fixture::new();
    let Some(dir) = installed(&fixture) else { return };
    let synopsis = |name: &str| {
        let text = shown(&dir.join(format!("{name}.1"))).stdout;
        let (_, rest) = text.split_once("SYNOPSIS\n").unwrap();
        let (synopsis, _) = rest.split_once("\n\n").unwrap();
        synopsis.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let restore = synopsis("nono-restore");
    for part in ["nono restore", "[--exclude PATH]...", "[--snapshot N]", "[--to DIR]", "[--force]"]
    {
        assert!(restore.contains(part), "{part}: {restore}");
    }
    assert!(restore.ends_with("[ID[/N] | PATH] [PATH]..."), "{restore}");
    assert!(!restore.contains("--quiet") && !restore.contains("--help"), "{restore}");
    let run = synopsis("nono-run");
    assert!(run.contains("[--allow DIR]...") && run.ends_with("CMD..."), "{run}");
    assert!(
        synopsis("nono-remote").ends_with("nono remote COMMAND"),
        "{}",
        synopsis("nono-remote")
    );
}

#[test]
fn each_page_is_read_by_man_without_a_warning_and_has_its_sections() {
    let fixture = Fixture::new();
    let Some(dir) = installed(&fixture) else { return };
    let names = pages(&dir);
    assert!(names.len() > 50, "{names:?}");
    for name in &names {
        let page = dir.join(format!("{name}.1"));
        let Finished { stdout, stderr, .. } = shown(&page);
        assert_eq!(stderr, "", "{name}");
        let found = headings(&stdout);
        let order =
            ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"];
        let places = order.map(|title| found.iter().position(|heading| *heading == title));
        assert!(places.iter().all(Option::is_some), "{name}: {found:?}");
        assert!(places.is_sorted(), "{name}: {found:?}");
        // As `mandb` reads the name for `apropos`.
        let lexgrog = Command::new("lexgrog").arg(&page).output().unwrap();
        let read = finished(lexgrog).success().stdout;
        assert!(read.contains(&format!("\"{name} - ")), "{name}: {read}");
        assert!(fs::metadata(&page).unwrap().permissions().mode() & 0o777 == 0o644, "{name}");
    }
    // A page that another one names is there.
    for name in &names {
        let text = shown(&dir.join(format!("{name}.1"))).stdout;
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        let others = words.filter_map(|word| word.strip_suffix("(1)"));
        for other in others.filter(|other| *other == "nono" || other.starts_with("nono-")) {
            assert!(names.contains(other), "{name} names {other}(1)");
        }
    }
}

#[test]
fn a_page_says_what_the_help_says_and_more() {
    let fixture = Fixture::new();
    let Some(dir) = installed(&fixture) else { return };
    let text = |name: &str| shown(&dir.join(format!("{name}.1"))).stdout;
    let nono = text("nono");
    for wanted in ["Every day", "Take back", "nono-diff(1)", "nono-restore(1)", "~/snapshots"] {
        assert!(nono.contains(wanted), "{wanted}: {nono}");
    }
    let run = text("nono-run");
    for wanted in ["128+N", "NONO_MAX_ENTRIES", "NONO_RECORD", "--profile", "nono run --profile"] {
        assert!(run.contains(wanted), "{wanted}: {run}");
    }
    let undo = text("nono-undo");
    assert!(undo.contains("The requested state is the state on the disk."), "{undo}");
    assert!(!undo.contains("nono-list(1)"), "{undo}");
    assert!(text("nono-config-edit").contains("VISUAL, EDITOR"));
    assert!(undo.contains("Manual of nono") && undo.contains("NONO_ROOT"), "{undo}");
    // The helpers of the program have no pages, and a command has one page and not two.
    let names = pages(&dir);
    assert!(!names.iter().any(|name| name.contains("__") || name.starts_with("nono-rollback-")));
    assert!(names.contains("nono-rollback") && names.contains("nono-hook"), "{names:?}");
}

#[test]
fn man_finds_the_pages_beside_the_program() {
    let fixture = Fixture::new();
    if installed(&fixture).is_none() {
        return;
    }
    // As after `cargo install`.
    let bin = fixture.path("home/.cargo/bin");
    fs::create_dir_all(&bin).unwrap();
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_nono")).arg(&bin).status().unwrap();
    assert!(copied.success());
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env_clear().env("PATH", &path).env("MANPAGER", "cat");
        shell.env("HOME", fixture.path("home")).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80");
        finished(shell.output().unwrap())
    };
    run("man -w nono-diff").fails(16, "No manual entry");
    let done = run("umask 022; nono man --install").success();
    let place = fixture.path("home/.cargo/share/man/man1");
    assert!(done.says(&format!("pages are in {}", place.display())), "{}", done.stderr);
    assert!(done.says("read them: man nono"), "{}", done.stderr);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place), mode(&fixture.path("home/.cargo/share"))), (0o755, 0o755));
    let found = run("man -w nono-diff").success().stdout;
    assert_eq!(Path::new(found.trim()), place.join("nono-diff.1"));
    assert!(run("man nono").success().stdout.contains("EXIT STATUS"));
    // Once more, over the pages that are there.
    run("nono man --install").success();
    // A program in no `bin` needs a directory.
    fixture.nono(&["man", "--install"]).fails(1, "is in no bin directory");
}

#[test]
fn man_shows_a_page_without_an_installation() {
    let fixture = Fixture::new();
    if installed(&fixture).is_none() {
        return;
    }
    let shown = |words: &[&str]| {
        let mut command = fixture.command(&[&["man"], words].concat());
        command.env("MANPAGER", "cat").env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80");
        finished(command.output().unwrap())
    };
    assert!(shown(&[]).success().stdout.contains("Every day"));
    assert!(shown(&["remote", "add"]).success().stdout.contains("nono-remote-add -"));
    assert!(shown(&["rollback", "diff"]).success().stdout.contains("nono-diff -"));
    shown(&["nope", "diff"]).fails(2, "there is no command \"nope diff\"");
    let mut without = fixture.command(&["man", "diff"]);
    without.env("PATH", fixture.path("home"));
    finished(without.output().unwrap()).fails(1, "`man` is not installed");
}

#[test]
fn the_help_is_short_with_a_letter_and_long_with_a_word() {
    let fixture = Fixture::new();
    let short = fixture.nono(&["-h"]).success().stdout;
    let long = fixture.nono(&["--help"]).success().stdout;
    assert!(short.lines().count() <= 40 && short.lines().count() < long.lines().count());
    assert!(short.starts_with("Undo for AI agents"), "{short}");
    assert!(
        short.contains(
            "\nLook:        ui, list, show, log, blame, grep, find, cat, difftool, umount\n"
        ),
        "{short}"
    );
    let daily = short.split("Every day:\n").nth(1).unwrap();
    assert!(daily.starts_with("  run          Run a command"), "{short}");
    assert!(long.contains("\nLook:\n  ui  "), "{long}");
    // Without any word, it is the short one, and wrong usage.
    let bare = fixture.nono(&[]).fails(2, "Every day:");
    assert_eq!(bare.stderr.trim(), short.trim());
    // The older words are no part of a list, and work.
    for help in [&short, &long] {
        assert!(!help.contains("\n  rollback "), "{help}");
    }
    let older = fixture.nono(&["rollback", "--help"]).success().stdout;
    assert!(older.contains("\n  diff "), "{older}");
    assert!(!fixture.nono(&["undo", "--help"]).success().stdout.contains("Commands:"));
    fixture.nono(&["undo", "list"]).success();
}
