//! A full disk of the project or of the store: the message names it, and the offered way works.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished, noise};
use crate::observe::{assert_same, observe};
use crate::small_disk::SmallDisk;

/// Runs the command that a message offers after some words, as it stands there.
fn run_offered(fixture: &Fixture, told: &Finished, words: &str) -> Finished {
    let offered = told.stderr.lines().find_map(|line| line.split_once(words));
    let (_, offered) = offered.unwrap_or_else(|| panic!("{}", told.stderr));
    let offered = offered.strip_prefix("nono ").unwrap_or_else(|| panic!("{offered}"));
    let nono = fixture.command(&[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{} {offered}", env!("CARGO_BIN_EXE_nono"))]);
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

#[test]
fn a_full_disk_of_the_project_is_named_and_what_goes_anyway_makes_space() {
    // A file that surely cannot fit is found before it is tried, others while they are written.
    for (count, kilobytes) in [(1, 700), (40, 20)] {
        let fixture = Fixture::new();
        let Some(disk) = SmallDisk::mount(&fixture.project(), 2048) else { return };
        for number in 0..count {
            fixture.write(&format!("file{number}"), vec![number as u8 + 1; kilobytes << 10]);
        }
        fixture.write("small", "1");
        let before = observe(&fixture.project());
        fixture.record(FILLS).success();
        let full = observe(&fixture.project());
        let told = fixture.nono(&["rollback", "restore", "latest"]);
        let told = told.fails(1, "nothing was changed");
        assert_same(&full, &observe(&fixture.project()));
        assert_names(&told, disk.path());
        assert!(!told.stderr.contains("the store"), "{}", told.stderr);
        run_offered(&fixture, &told, "remove first what goes anyway: ").success();
        assert!(!fixture.project().join("logs").exists());
        assert_eq!(fs::read_to_string(fixture.project().join("small")).unwrap(), "2\n");
        fixture.nono(&["rollback", "restore", "latest"]).success();
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
