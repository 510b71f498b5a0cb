//! A full disk of the project or of the store: the message names it, and the offered way works.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished, noise};
use crate::observe::{Observed, assert_same, observe};
use crate::small_disk::SmallDisk;

/// Runs the command that a message offers after some words, as it stands there.
fn run_offered(fixture: &Fixture, told: &Finished, words: &str) -> Finished {
    let offered = told.stderr.lines().find_map(|line| line.split_once(words));
    let (_, offered) = offered.unwrap_or_else(|| panic!("{}", told.stderr));
    let offered = offered.strip_prefix("nono ").unwrap_or_else(|| panic!("{offered}"));
    let nono = fixture.command(&[]);
    let mut shell = Command::new("sh");
    // No person is there to answer.
    let answer = if offered.split(' ').any(|word| word == "restore") { " --yes" } else { "" };
    shell.args(["-c", &format!("{} {offered}{answer}", env!("CARGO_BIN_EXE_nono"))]);
    shell.current_dir(fixture.project()).env_clear();
    shell.envs(nono.get_envs().filter_map(|(key, value)| Some((key, value?))));
    finished(shell.output().unwrap())
}

fn assert_names(told: &Finished, mount_point: &Path) {
    let named = format!("mounted at {}", mount_point.display());
    assert!(told.stderr.contains(&named), "{named}: {}", told.stderr);
}

/// A command that replaces files by others that fill the disk of the project.
const FILLS: &str = "rm file*; mkdir logs; head -c 1000000 /dev/zero | tr '\\0' x > logs/first; \
                     head -c 900000 /dev/zero | tr '\\0' y > logs/second; echo 2 > small";

/// Every path of a project.
type State = BTreeMap<PathBuf, Observed>;

/// A project on a disk of its own, which [`FILLS`] has filled. A file that surely cannot fit is
/// found before it is tried, others while they are written.
fn filled(count: usize, kilobytes: usize) -> Option<(Fixture, SmallDisk, [State; 2])> {
    let fixture = Fixture::new();
    let disk = SmallDisk::mount(&fixture.project(), 2048)?;
    for number in 0..count {
        fixture.write(&format!("file{number}"), vec![number as u8 + 1; kilobytes << 10]);
    }
    fixture.write("small", "1");
    let before = observe(&fixture.project());
    fixture.record(FILLS).success();
    let full = observe(&fixture.project());
    Some((fixture, disk, [before, full]))
}

/// Files of the project, and the kilobytes of each.
const FILES: [(usize, usize); 2] = [(1, 700), (40, 20)];

#[test]
fn on_a_full_disk_of_the_project_what_an_undo_removes_makes_space_for_what_it_brings_back() {
    for (count, kilobytes) in FILES {
        for arguments in [&["undo", "--yes"][..], &["rollback", "restore", "latest"]] {
            let Some((fixture, _disk, [before, full])) = filled(count, kilobytes) else { return };
            let done = fixture.nono(&[arguments, &["--json"]].concat()).success().json();
            assert_same(&before, &observe(&fixture.project()));
            let changed = done["changes"].as_array().unwrap().iter();
            let changed: Vec<_> = changed.map(|it| it["path"].as_str().unwrap()).collect();
            assert!(changed.is_sorted(), "{changed:?}");
            // Both files of the logs with their directory, and the small one.
            assert_eq!(changed.len(), count + 4, "{changed:?}");
            fixture.nono(&["redo", "--yes"]).success();
            assert_same(&full, &observe(&fixture.project()));
            fixture.nono(&["redo", "--yes"]).fails(1, "nothing here is undone");
            fixture.nono(arguments).success();
            assert_same(&before, &observe(&fixture.project()));
            fixture.nono(&["rollback", "verify", "--all"]).success();
        }
    }
}

#[test]
fn an_undo_on_a_full_disk_that_is_killed_is_done_by_the_next() {
    let Some((fixture, disk, [before, full])) = filled(1, 700) else { return };
    fixture.copy_state("", "keep");
    let (mut point, mut between) = (1, 0);
    loop {
        fixture.copy_state("keep", "");
        let mut undo = fixture.command(&["undo", "--yes"]);
        let output = undo.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal().is_none() {
            assert!(output.status.success(), "{output:?}");
            break;
        }
        // It may not have begun, or be over.
        fixture.nono(&["rollback", "resume"]);
        let project = fixture.project();
        let has = |name| project.join(name).exists();
        between += u64::from(!has("logs") && !has("file0"));
        if observe(&project) != before {
            fixture.nono(&["undo", "--yes"]).success();
        }
        assert_same(&before, &observe(&project));
        // The parts may be two restores now.
        fixture.nono(&["redo", "--yes"]).success();
        if observe(&project) != full {
            fixture.nono(&["redo", "--yes"]).success();
        }
        assert_same(&full, &observe(&project));
        // Neighbouring points leave the same state more often than not.
        point += 3;
    }
    assert!(point > 60 && between > 3, "{point}, {between}");
    drop(disk);
}

#[test]
fn without_a_safety_snapshot_a_full_disk_of_the_project_is_named_and_nothing_goes_first() {
    for (count, kilobytes) in FILES {
        let Some((fixture, disk, [before, full])) = filled(count, kilobytes) else { return };
        let restore = ["rollback", "restore", "latest", "--no-safety-snapshot"];
        let told = fixture.nono(&restore).fails(1, "nothing was changed");
        assert_same(&full, &observe(&fixture.project()));
        assert_names(&told, disk.path());
        assert!(!told.stderr.contains("the store"), "{}", told.stderr);
        run_offered(&fixture, &told, "remove first what goes anyway: ").success();
        assert!(!fixture.project().join("logs").exists());
        assert_eq!(fs::read_to_string(fixture.project().join("small")).unwrap(), "2\n");
        fixture.nono(&restore).success();
        assert_same(&before, &observe(&fixture.project()));
        fixture.nono(&["rollback", "verify", "--all"]).success();
    }
}

#[test]
fn an_undo_that_has_nothing_to_remove_names_the_full_disk_of_the_project() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.project(), 2048) else { return };
    fixture.write("file", vec![1; 700 << 10]);
    let before = observe(&fixture.project());
    fixture.record("rm file").success();
    disk.fill();
    let told = fixture.nono(&["undo", "--yes", "--keep-newer"]).fails(1, "nothing was changed");
    assert_names(&told, disk.path());
    assert!(told.stderr.contains("make space on that disk"), "{}", told.stderr);
    assert!(!told.stderr.contains("goes anyway"), "{}", told.stderr);
    fs::remove_file(disk.filler()).unwrap();
    fixture.nono(&["undo", "--yes"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_full_disk_of_the_store_is_named_and_not_that_of_the_project() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.path("home/.nono"), 2048) else { return };
    fixture.write("edited", "1");
    let before = observe(&fixture.project());
    fixture.record("echo 2 > edited").success();
    fixture.write("edited", noise(100_000, 7));
    disk.fill();
    let told = fixture.nono(&["rollback", "restore", "latest", "--force"]);
    let told = told.fails(1, "no space to keep what is there now: 1 path stays as it is");
    assert_names(&told, disk.path());
    assert!(!told.stderr.contains("the project is on it"), "{}", told.stderr);
    run_offered(&fixture, &told, "to lose it: ").success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_full_disk_of_both_is_named_as_that_of_both() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.path("disk"), 6 << 10) else { return };
    let (project, store) = (disk.path().join("project"), disk.path().join("store"));
    let on_disk = |arguments: &[&str]| {
        fixture.nono(&[arguments, &["--root", store.to_str().unwrap()]].concat())
    };
    fs::create_dir(&project).unwrap();
    fs::write(project.join("edited"), "1").unwrap();
    let before = observe(&project);
    on_disk(&["snapshot", project.to_str().unwrap()]).success();
    let list = on_disk(&["rollback", "list", "--json"]).success().json();
    let id = list[0]["session_id"].as_str().unwrap();
    fs::write(project.join("edited"), noise(100_000, 1)).unwrap();
    // No snapshot has room for it.
    let mut length = 0;
    let mut log = fs::File::create(project.join("log")).unwrap();
    while std::io::Write::write_all(&mut log, &noise(1 << 16, length)).is_ok() {
        length += 1;
    }
    disk.fill();
    let told = on_disk(&["rollback", "restore", id, "--force"]);
    let told = told.fails(1, "no space to keep what is there now: 2 paths stay as they are");
    assert_names(&told, disk.path());
    assert!(told.stderr.contains("the project is on it, too"), "{}", told.stderr);
    run_offered(&fixture, &told, "to lose it: ").success();
    on_disk(&["rollback", "restore", id, "--force"]).success();
    assert_same(&before, &observe(&project));
    on_disk(&["rollback", "verify", "--all"]).success();
}
