//! The hint beside an error: a fact that was just looked at, or nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};
use crate::small_disk::SmallDisk;

/// By another process: a file that is open for writing here is so in every child that another test
/// is about to start, and cannot be executed ("text file busy").
fn shell(script: &str) {
    assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
}

#[test]
fn a_command_that_fails_by_itself_is_followed_by_no_guess() {
    let fixture = Fixture::new();
    let run = |command: &[&str]| fixture.nono(&[&["run", "--no-rollback", "--"], command].concat());
    // A failing test says why itself.
    let failed = run(&["sh", "-c", "echo 1 test failed >&2; exit 1"]);
    assert_eq!((failed.code, failed.stderr.as_str()), (1, "1 test failed\n"));
    // A typo.
    let missing = run(&["no-such-program"]);
    assert_eq!(missing.code, 127);
    assert_eq!(missing.stderr.lines().count(), 1, "{}", missing.stderr);
    // A shell that cannot find something gives the same code, and is not us.
    let missing = run(&["sh", "-c", "exit 127"]);
    assert_eq!((missing.code, missing.stderr.as_str()), (127, ""));
    // Ctrl-C.
    let ctrl_c = ["run", "--no-rollback", "--", "sh", "-c", "kill -INT $$"];
    let ended = finished(fixture.command_to_be_signalled(&ctrl_c).output().unwrap());
    assert_eq!((ended.code, ended.stderr.as_str()), (130, ""));
    // Neither is what was denied: the kernel tells that to the command alone.
    fs::write(fixture.path("outside"), "1").unwrap();
    let outside = fixture.path("outside");
    let denied = run(&["sh", "-c", &format!("cat {}", outside.display())]);
    assert_ne!(denied.code, 0);
    assert!(!denied.stderr.contains("nono:"), "{}", denied.stderr);
}

#[test]
fn a_command_in_quotes_is_told_to_be_one_word() {
    let fixture = Fixture::new();
    fixture.write("x", "1");
    for walls in [&[][..], &["--no-sandbox"]] {
        let run = |word: &str| fixture.nono(&[&["run", "--no-rollback"], walls, &[word]].concat());
        let told = run("rm -rf x").fails(127, "the quotes make the command one word");
        assert!(told.says("cannot run 'rm -rf x': "), "{}", told.stderr);
        assert!(told.says("nono run rm -rf x, or: nono run sh -c 'rm -rf x'"), "{}", told.stderr);
        let missing = run("nosuchcommand").fails(127, "no such command");
        assert!(!missing.says("one word"), "{}", missing.stderr);
    }
    // The offered command is the one that was meant.
    fixture.nono(&["run", "sh", "-c", "rm -rf x"]).success();
    assert!(!fixture.project().join("x").exists());
}

#[test]
fn a_missing_command_is_missing_whatever_directories_of_path_are_closed() {
    let fixture = Fixture::ordinary_user();
    let (closed, open) = (fixture.path("closed"), fixture.path("open"));
    for dir in [&closed, &open] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(open.join("plain"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(open.join("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    fixture.give_away(&closed);
    let usual = "/usr/local/bin:/usr/bin:/bin".to_owned();
    let (closed, open) = (closed.display(), open.display());
    for walls in [&["--allow-cwd"][..], &["--namespaces", "off"], &["--no-sandbox"]] {
        let run = |path: String, name: &str| {
            let arguments = [&["run", "--no-rollback"][..], walls, &["--", name]].concat();
            finished(fixture.command(&arguments).env("PATH", path).output().unwrap())
        };
        let said = "no such command in PATH";
        let missing = run(format!("{closed}:{usual}"), "nosuchcmd").fails(127, said);
        assert!(missing.says(&closed.to_string()), "{}", missing.stderr);
        assert!(!missing.says("ermission denied"), "{}", missing.stderr);
        let missing = run(format!("{open}:{usual}"), "nosuchcmd").fails(127, said);
        assert!(!missing.says("searched"), "{}", missing.stderr);
        // One that is there and may not be executed.
        let plain = run(format!("{closed}:{open}:{usual}"), "plain").fails(126, "not executable");
        assert!(plain.says(&format!("{open}/plain")), "{}", plain.stderr);
        // A later directory of the path has it.
        run(format!("{closed}:{open}:{usual}"), "true").success();
        run(usual.clone(), "./nosuchcmd").fails(127, "No such file");
    }
}

#[test]
fn a_program_that_the_grants_keep_from_starting_is_told_from_one_that_nobody_may_start() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("outside")).unwrap();
    let interpreter = fixture.path("outside/sh");
    let tool = fixture.project().join("tool");
    let (shown, place) = (interpreter.display(), tool.display());
    shell(&format!("cp /bin/sh {shown}; printf '#!{shown}\\nexit 7\\n' > {place}"));
    let run = |more: &[&str]| fixture.nono(&[&["run"], more, &["--", "./tool"]].concat());
    let not_executable = run(&[]);
    not_executable.fails(126, "Permission denied");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let kept = run(&[]).fails(126, "within its grants");
    assert!(kept.stderr.contains("--read PATH"), "{}", kept.stderr);
    let granted = run(&["--read", fixture.path("outside").to_str().unwrap()]);
    assert_eq!(granted.code, 7, "{}", granted.stderr);
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!run(&[]).says("within its grants"));
}

/// Records a script that may touch everything, the store included.
fn record_unwalled(fixture: &Fixture, script: &str) -> Finished {
    let run = ["run", "--rollback", "--no-sandbox", "--no-rollback-prompt", "--", "sh", "-c"];
    fixture.nono(&[&run[..], &[script]].concat())
}

/// Waits until the state before is a snapshot that the session's manifest names: nothing is written
/// to the record after that, until the command has ended.
const PUBLISHED: &str = "n=0; while ! grep -q '\"snapshot_count\": 1' \
    $HOME/.nono/rollbacks/$NONO_SESSION/manifest.json && test $n -lt 3000; do \
    n=$((n + 1)); sleep 0.01; done;";

/// A restore is said to be possible only where it is.
fn assert_no_restore_is_offered(said: &Finished) {
    assert!(!said.stderr.contains("nono restore"), "{}", said.stderr);
    assert!(!said.stderr.contains("is safe"), "{}", said.stderr);
    assert!(said.stderr.contains("cannot be restored now: "), "{}", said.stderr);
}

#[test]
fn no_restore_is_offered_when_the_record_is_not_there() {
    let rename = "mv $HOME/.nono/rollbacks $HOME/.nono/elsewhere";
    for damage in [
        "rm -rf $HOME/.nono/rollbacks",
        rename,
        "rm -rf $HOME/.nono/rollbacks/$NONO_SESSION",
        // The session stays, what it is made of goes.
        "rm -rf $HOME/.nono/rollbacks/objects",
        "echo x > $HOME/.nono/rollbacks/$NONO_SESSION/manifest.json",
    ] {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let said = record_unwalled(&fixture, &format!("{PUBLISHED} echo 2 > a; {damage}"));
        assert_eq!(said.code, 1, "{damage}: {}", said.stderr);
        assert_no_restore_is_offered(&said);
    }
}

#[test]
fn no_restore_is_offered_when_the_record_cannot_be_read() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    // Modes of the store itself are put back. Before and after the state before has become a
    // snapshot.
    for wait in ["", PUBLISHED] {
        let script = format!("{wait} echo 2 > a; chmod 0 $HOME/.nono");
        let said = record_unwalled(&fixture, &script);
        assert_no_restore_is_offered(&said.fails(1, "Permission denied"));
        let parent = fixture.path("home/.nono");
        fs::set_permissions(parent, fs::Permissions::from_mode(0o700)).unwrap();
        fixture.nono(&["rollback", "restore", "latest"]).success();
    }
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn a_restore_that_is_offered_after_a_failure_works() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.path("home/.nono"), 512) else { return };
    fixture.write("a", "1");
    let said = record_unwalled(&fixture, "head -c 2000000 /dev/urandom > b").fails(1, "pace");
    let offered = said.stderr.lines().find_map(|line| line.split_once("nono restore "));
    let (_, id) = offered.unwrap_or_else(|| panic!("{}", said.stderr));
    // The contents were not read, and no line says that they were.
    assert!(said.stderr.contains("not read"), "{}", said.stderr);
    disk.remount("size=16m");
    fixture.nono(&["rollback", "restore", id]).success();
    assert!(!Path::new(&fixture.project().join("b")).exists());
}

#[test]
fn what_is_offered_names_the_store_as_the_command_did() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let store = fixture.path("my store");
    let store = store.to_str().unwrap();
    let run = ["--root", store, "run", "--rollback", "--", "sh", "-c", "echo 2 > a"];
    let told = fixture.nono(&run).success();
    let offered = told.stderr.lines().find_map(|line| line.split_once("undo it: nono "));
    let (_, offered) = offered.unwrap_or_else(|| panic!("{}", told.stderr));
    let nono = fixture.command(&[]);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{} {offered} --yes", env!("CARGO_BIN_EXE_nono"))).env_clear();
    shell.envs(nono.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let shell = shell.current_dir(fixture.project());
    crate::fixture::finished(shell.output().unwrap()).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    // A variable goes on to say it.
    let mut command = fixture.command(&run[2..]);
    let told = crate::fixture::finished(command.env("NONO_ROOT", store).output().unwrap());
    assert!(!told.success().stderr.contains("--root"), "a variable was repeated as a flag");
}

#[test]
fn a_command_that_names_what_it_may_not_read_is_told_how_it_may() {
    let fixture = Fixture::new();
    let script = fixture.path("home/outside.sh");
    std::fs::write(&script, "exit 3").unwrap();
    let script = script.to_str().unwrap();
    let run = |flags: &[&str]| {
        fixture.nono(&[&["run", "--rollback"], flags, &["--", "sh", script]].concat())
    };
    let refused = run(&[]);
    assert_ne!(refused.code, 0);
    assert!(refused.says(&format!("--read {script}")), "{}", refused.stderr);
    let granted = run(&["--read", script]).fails(3, "session");
    assert!(!granted.says("outside of what"), "{}", granted.stderr);
}

/// Words with which a command begins that needs a store.
const NEED_A_STORE: [&str; 17] = [
    "rollback", "undo", "redo", "status", "diff", "log", "show", "list", "cat", "restore", "steps",
    "review", "snapshot", "mount", "verify", "cleanup", "run",
];

#[test]
fn every_offered_command_names_the_store_that_a_flag_named() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let store = fixture.path("a store").display().to_string();
    let nono = |words: &[&str]| fixture.nono(&[&["--root", &store], words].concat());
    let mut offered = 0;
    for words in [
        &["list"][..],
        &["status"],
        &["run", "--rollback", "--", "sh", "-c", "echo 1 > a; echo b > b"],
        &["list"],
        &["show"],
        &["undo"],
        &["undo", "--yes", "a"],
        &["redo"],
        &["log", "a"],
        &["restore", "latest/7"],
        &["restore", "nosuch"],
        &["cat", "latest", "nosuch"],
        &["undo", "--step", "1", "--yes"],
        &["steps"],
        &["undo", "--yes"],
        &["undo", "--yes"],
        &["redo"],
        &["diff", "latest", "nosuch"],
        &["verify"],
        &["cleanup", "--dry-run"],
    ] {
        let done = nono(words);
        for line in done.stdout.lines().chain(done.stderr.lines()) {
            for (at, _) in line.match_indices("nono ") {
                let is_word = at == 0 || !line.as_bytes()[at - 1].is_ascii_alphanumeric();
                let rest = &line[at + "nono ".len()..];
                let next = rest.split([' ', '`', ')', ',', ';']).next().unwrap();
                // A column of `log` names what made a version, and offers nothing.
                let is_column = words[0] == "log" && line[..at].ends_with("  ");
                let needs_store = is_word && !is_column && NEED_A_STORE.contains(&next);
                assert!(!needs_store, "{words:?}: {line}");
                let named = rest.strip_prefix(&format!("--root '{store}' "));
                assert!(!named.is_some_and(|it| it.starts_with("rollback")), "{words:?}: {line}");
                offered += usize::from(named.is_some());
            }
        }
    }
    assert!(offered >= 10, "{offered} commands were offered");
}
