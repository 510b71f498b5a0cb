//! Restoring a part, to another place, and in spite of later changes; and the obstacles.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Finished, Fixture};
use crate::not_run::needs_root;
use crate::observe::{assert_same, observe};

fn read(fixture: &Fixture, name: &str) -> Option<String> {
    fs::read_to_string(fixture.project().join(name)).ok()
}

fn restore(fixture: &Fixture, arguments: &[&str]) -> Finished {
    fixture.nono(&[&["rollback", "restore", "--json"], arguments].concat())
}

fn names(list: &Value) -> Vec<String> {
    let paths = list.as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap());
    paths.map(|path| path.rsplit('/').next().unwrap().to_owned()).collect()
}

fn edited() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("ours", "1");
    fixture.write("theirs", "1");
    fixture.write("other", "1");
    fixture.record("echo 2 > ours; echo 2 > theirs; echo 2 > new; rm other").success();
    fixture
}

#[test]
fn what_cannot_be_looked_at_above_a_selected_path_is_skipped_and_said() {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes files of two users");
        return;
    }
    let fixture = Fixture::ordinary_user();
    fixture.write("d/a/f", "first");
    fixture.write("d/a/gone", "first");
    fixture.write("other.rs", "first");
    fixture.nono(&["snapshot"]).success();
    fixture.write("d/a/f", "second");
    fs::remove_file(fixture.project().join("d/a/gone")).unwrap();
    let (above, dir) = (fixture.project().join("d"), fixture.project().join("d/a"));
    for closed in [&above, &dir] {
        let mode = |mode| fs::set_permissions(closed, PermissionsExt::from_mode(mode)).unwrap();
        let path = closed.to_str().unwrap();
        let named = [&["d/a/f"][..], &["**/*f"]];
        for selected in [named[0], &["--only", "modified"], &["--only", "deleted"], named[1]] {
            let restore = ["rollback", "restore", "latest", "--force"];
            for dry in [&["--dry-run"][..], &[]] {
                // The target of a restore may be that, too.
                mode(0);
                let told = fixture.nono(&[&restore[..], selected, dry].concat());
                assert!(told.code == 1, "{selected:?} {}{}", told.stdout, told.stderr);
                assert!([&told.stdout, &told.stderr].iter().any(|text| text.contains(path)));
            }
        }
        // Paths elsewhere have nothing to do with it.
        mode(0);
        fixture.nono(&["rollback", "restore", "latest", "other.rs"]).success();
        fixture.nono(&["rollback", "restore", "latest", "--exclude", "d"]).success();
        mode(0o755);
        assert_eq!(fs::read(fixture.project().join("d/a/f")).unwrap(), b"second");
    }
    fixture.nono(&["rollback", "restore", "latest", "d/a/f"]).success();
    assert_eq!(fs::read(fixture.project().join("d/a/f")).unwrap(), b"first");
}

#[test]
fn a_later_edit_stops_a_restore_of_a_completed_session_that_then_changes_nothing() {
    let fixture = edited();
    fixture.write("theirs", "edited by me");
    fixture.write("other", "made again by me");
    let before = observe(&fixture.project());
    let refused = restore(&fixture, &["latest"]).fails(1, "");
    let report = refused.json();
    assert_eq!(names(&report["conflicts"]), ["other", "theirs"]);
    assert_eq!(report["conflicts"][0]["change_type"], "created");
    assert_eq!(report["changes"].as_array().unwrap().len(), 0);
    assert_eq!(report["safety_snapshot"], Value::Null);
    assert_same(&before, &observe(&fixture.project()));
    let said = fixture.nono(&["rollback", "restore", "latest"]).fails(1, "nothing was changed");
    assert!(said.stderr.contains("--force") && said.stderr.contains("--keep-newer"));
    let dry = restore(&fixture, &["latest", "--dry-run"]).fails(1, "").json();
    assert_eq!(names(&dry["conflicts"]), ["other", "theirs"]);
    assert_eq!(fixture.nono(&["rollback", "show", "latest", "--json"]).json()["snapshot_count"], 2);
}

#[test]
fn newer_paths_are_kept_or_taken_back_as_asked() {
    let fixture = edited();
    let id = fixture.latest();
    fixture.write("theirs", "edited by me");
    let kept = restore(&fixture, &[&id, "--keep-newer"]).success().json();
    assert_eq!(names(&kept["conflicts"]), ["theirs"]);
    assert_eq!(read(&fixture, "ours").as_deref(), Some("1"));
    assert_eq!(read(&fixture, "theirs").as_deref(), Some("edited by me"));
    assert_eq!(read(&fixture, "new"), None);
    // Its presence in a safety snapshot does not give it away.
    let again = restore(&fixture, &[&id]).fails(1, "").json();
    assert_eq!(names(&again["conflicts"]), ["theirs"]);
    let forced = restore(&fixture, &[&id, "--force"]).success().json();
    assert_eq!(read(&fixture, "theirs").as_deref(), Some("1"));
    // The edit can be had again, and that is no conflict.
    let safety = format!("{id}/{}", forced["safety_snapshot"]);
    restore(&fixture, &[&safety]).success();
    assert_eq!(read(&fixture, "theirs").as_deref(), Some("edited by me"));
}

#[test]
fn where_all_that_differs_is_newer_nothing_is_restored_and_that_is_no_success() {
    let fixture = Fixture::new();
    fixture.write("file", "1");
    fixture.record("echo 2 > file").success();
    fixture.write("file", "mine");
    for flags in [&["--yes"][..], &["--dry-run"]] {
        let words = [&["restore", "latest", "--keep-newer"], flags].concat();
        fixture.nono(&words).fails(1, "nothing was restored in");
        restore(&fixture, &["latest", "--keep-newer"]).fails(1, "");
        assert_eq!(read(&fixture, "file").as_deref(), Some("mine"));
    }
}

#[test]
fn restoring_twice_and_undoing_the_undo_are_no_conflicts() {
    let fixture = edited();
    let id = fixture.latest();
    let after = observe(&fixture.project());
    for _ in 0..2 {
        let done = restore(&fixture, &[&id]).success().json();
        assert_eq!(done["conflicts"].as_array().unwrap().len(), 0);
        let safety = format!("{id}/{}", done["safety_snapshot"]);
        restore(&fixture, &[&safety]).success();
        assert_same(&after, &observe(&fixture.project()));
    }
    restore(&fixture, &[&id, "ours"]).success();
    restore(&fixture, &[&format!("{id}/1")]).success();
    assert_same(&after, &observe(&fixture.project()));
}

#[test]
fn later_changes_of_an_open_session_are_its_own() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "2");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture.write("a", "3");
    let done = restore(&fixture, &["latest"]).success().json();
    assert_eq!(done["conflicts"].as_array().unwrap().len(), 0);
    assert_eq!(read(&fixture, "a").as_deref(), Some("1"));
}

#[test]
fn the_session_that_changed_a_path_later_is_named() {
    let fixture = edited();
    let first = fixture.latest();
    fixture.record("echo 3 > ours").success();
    let list = fixture.nono(&["rollback", "list", "--json"]).json();
    let ids = list.as_array().unwrap().iter().map(|s| s["session_id"].as_str().unwrap());
    let second = ids.into_iter().find(|id| *id != first).unwrap().to_owned();
    let refused = restore(&fixture, &[&first]).fails(1, "").json();
    assert_eq!(refused["conflicts"][0]["sessions"], serde_json::json!([second]));
    let said = fixture.nono(&["rollback", "restore", &first]).fails(1, &second);
    assert!(said.stderr.contains("ours"), "{}", said.stderr);
}

#[test]
fn a_directory_with_a_newer_file_in_it_stays_with_that_file() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("mkdir -p new/deep; echo 2 > new/deep/file; echo 2 > new/other").success();
    fixture.write("new/deep/mine", "mine");
    restore(&fixture, &["latest"]).fails(1, "");
    let kept = restore(&fixture, &["latest", "--keep-newer"]).success().json();
    assert_eq!(names(&kept["conflicts"]), ["mine"]);
    assert_eq!(read(&fixture, "new/deep/mine").as_deref(), Some("mine"));
    assert_eq!(read(&fixture, "new/deep/file"), None);
    assert_eq!(read(&fixture, "new/other"), None);
}

#[test]
fn files_directories_globs_and_kinds_of_change_are_restored_alone() {
    let changed = || {
        let fixture = Fixture::new();
        fixture.write("src/main.rs", "1");
        fixture.write("src/deep/lib.rs", "1");
        fixture.write("gone/deep/file", "1");
        fixture.write("notes.txt", "1");
        fixture
            .record(
                "echo 2 > src/main.rs; echo 2 > src/deep/lib.rs; rm -r gone; echo 2 > notes.txt; \
                 echo new > new.txt",
            )
            .success();
        fixture
    };
    let restored = |arguments: &[&str], expected: &[&str]| {
        let fixture = changed();
        let before = observe(&fixture.project());
        let done = restore(&fixture, &[&["latest"], arguments].concat()).success().json();
        assert_eq!(names(&done["changes"]), expected, "{arguments:?}");
        let after = observe(&fixture.project());
        // Nothing else has changed, directories above included.
        let touched: Vec<&str> = done["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| change["path"].as_str().unwrap())
            .collect();
        for (path, state) in &before {
            let absolute = fixture.project().join(path);
            let absolute = absolute.to_str().unwrap().trim_end_matches('/');
            if !touched.contains(&absolute) {
                assert_eq!(after.get(path), Some(state), "{arguments:?}: {}", path.display());
            }
        }
        let safety = format!("latest/{}", done["safety_snapshot"]);
        restore(&fixture, &[&safety]).success();
        assert_same(&before, &observe(&fixture.project()));
    };
    restored(&["src/main.rs"], &["main.rs"]);
    restored(&["./src"], &["lib.rs", "main.rs"]);
    restored(&["**/*.rs", "--exclude", "src/deep"], &["main.rs"]);
    restored(&["src/*.rs"], &["main.rs"]);
    restored(&["gone/deep/file"], &["gone", "deep", "file"]);
    restored(&["--only", "deleted"], &["gone", "deep", "file"]);
    restored(&["--only", "created"], &["new.txt"]);
    restored(&["--only", "modified", "--exclude", "*.txt"], &["lib.rs", "main.rs"]);
    let fixture = changed();
    restore(&fixture, &["latest", "no/such"]).fails(1, "no/such, neither in snapshot 0 nor now");
    restore(&fixture, &["latest", "a[z-a]"]).fails(2, "invalid glob");
    restore(&fixture, &["latest", "a[[:alpha:]]"]).fails(2, "invalid glob");
    // An open bracket is one, as in a shell.
    restore(&fixture, &["latest", "a[b"]).fails(1, "matches");
    restore(&fixture, &["latest", "--only", "renamed"]).fails(2, "renamed");
}

#[test]
fn a_selected_path_whose_directory_is_a_file_now_is_skipped_and_said_so() {
    let fixture = Fixture::new();
    fixture.write("dir/file", "1");
    fixture.record("rm -r dir; echo x > dir").success();
    let report = restore(&fixture, &["latest", "dir/file"]).fails(1, "").json();
    assert_eq!(names(&report["skipped"]), ["file"]);
    assert_eq!(read(&fixture, "dir").as_deref(), Some("x\n"));
    restore(&fixture, &["latest", "dir"]).success();
    assert_eq!(read(&fixture, "dir/file").as_deref(), Some("1"));
}

#[test]
fn a_copy_is_written_elsewhere_without_the_original_and_overwrites_nothing() {
    let fixture = Fixture::new();
    fixture.write("dir/file", "1");
    fixture.write("a", "a");
    fs::hard_link(fixture.project().join("a"), fixture.project().join("b")).unwrap();
    symlink("a", fixture.project().join("link")).unwrap();
    fs::create_dir(fixture.project().join("empty")).unwrap();
    fs::set_permissions(fixture.project().join("dir"), PermissionsExt::from_mode(0o500)).unwrap();
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    fs::set_permissions(fixture.project().join("dir"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::rename(fixture.project(), fixture.path("moved")).unwrap();
    let copy = fixture.path("home/copy");
    let home = fixture.path("home");
    let run = |arguments: &[&str]| {
        let mut command = fixture.command(&[&["rollback", "restore", &id][..], arguments].concat());
        crate::fixture::finished(command.current_dir(&home).output().unwrap())
    };
    let done = run(&["--to", "copy", "--json"]).success().json();
    assert_eq!((&done["written_count"], &done["written_bytes"]), (&4.into(), &3.into()));
    let mut copied = observe(&copy);
    // The directory itself was made as it is wanted, but for its own mode and time.
    copied.insert("".into(), before[Path::new("")].clone());
    assert_same(&before, &copied);
    fs::write(copy.join("a"), "mine").unwrap();
    run(&["--to", "copy"]).fails(1, "not copied as recorded");
    assert_eq!(fs::read(copy.join("a")).unwrap(), b"mine");
    let forced = run(&["--to", "copy", "a", "--force"]).success();
    assert!(forced.says("1 of them took the place of another file"), "{}", forced.stderr);
    assert_eq!(fs::read(copy.join("a")).unwrap(), b"a");
    run(&["--to", "part", "dir/file"]).success();
    assert_eq!(fs::read(home.join("part/dir/file")).unwrap(), b"1");
    assert_eq!(fs::read_dir(home.join("part")).unwrap().count(), 1);
    // Not through a symlink that stands in the copy's place.
    fs::create_dir(home.join("elsewhere")).unwrap();
    fs::create_dir(home.join("trap")).unwrap();
    symlink("../elsewhere", home.join("trap/dir")).unwrap();
    run(&["--to", "trap", "dir", "--force"]).fails(1, "not copied");
    assert_eq!(fs::read_dir(home.join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn one_file_of_a_snapshot_is_printed() {
    let fixture = Fixture::new();
    fixture.write("dir/file", "first\0\n");
    fixture.record("echo second > dir/file").success();
    let cat = |id: &str, path: &str| fixture.nono(&["rollback", "cat", id, path]);
    assert_eq!(cat("latest/0", "dir/file").success().stdout, "first\0\n");
    assert_eq!(cat("latest/1", "./dir/file").success().stdout, "second\n");
    cat("latest/0", "dir").fails(1, "is a directory");
    cat("latest/0", "nothing").fails(1, "nothing, neither in snapshot 0");
}

#[test]
fn a_symlink_planted_in_a_path_leads_nowhere() {
    for script in [
        "rm -r dir; ln -s ../outside dir",
        "rm dir/file; ln -s ../../outside/file dir/file",
        "mv dir old; ln -s ../outside dir; ln -s ../outside/file other",
    ] {
        let fixture = Fixture::new();
        let outside = fixture.path("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "outside").unwrap();
        fixture.write("dir/file", "1");
        let before = observe(&fixture.project());
        let elsewhere = observe(&outside);
        fixture.record(script).success();
        fixture.nono(&["rollback", "restore", "latest"]).success();
        assert_same(&before, &observe(&fixture.project()));
        assert_same(&elsewhere, &observe(&outside));
    }
}

#[test]
fn a_directory_in_which_only_a_hard_link_is_made_anew_keeps_its_time() {
    let fixture = Fixture::new();
    fixture.write("dir/a", "1");
    fs::hard_link(fixture.project().join("dir/a"), fixture.project().join("b")).unwrap();
    let before = observe(&fixture.project());
    fixture.record("rm b; echo 2 > b").success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_file_with_several_names_of_which_only_the_attributes_changed_gets_them_back() {
    for script in ["touch -d 2001-01-01 a", "touch -d 2001-01-01 a; chmod 600 b; chmod 700 dir"] {
        let fixture = Fixture::new();
        fixture.write("dir/c", "1");
        for name in ["a", "b"] {
            fs::hard_link(fixture.project().join("dir/c"), fixture.project().join(name)).unwrap();
        }
        let before = observe(&fixture.project());
        fixture.record(script).success();
        fixture.nono(&["rollback", "restore", "latest"]).success();
        assert_same(&before, &observe(&fixture.project()));
    }
}

#[test]
fn a_directory_in_which_a_name_gets_an_inode_of_its_own_keeps_its_time() {
    // The other name lies outside of the selection, or outside of the project.
    for (other, is_part) in [("b/other", true), ("../outside", false)] {
        let fixture = Fixture::new();
        let path = |name: &str| fixture.project().join(name);
        fixture.write("dir/sub/a", "1");
        fixture.write("b/c", "1");
        fs::hard_link(path("dir/sub/a"), path(other)).unwrap();
        let before = observe(&fixture.project());
        fixture.record("chmod 600 dir/sub/a").success();
        let changed = observe(&fixture.project());
        let mut undo = vec!["undo", "--yes"];
        undo.extend(is_part.then_some("dir/sub/a"));
        fixture.nono(&undo);
        let now = observe(&fixture.project());
        let file = Path::new("dir/sub/a");
        assert_eq!(now[file].mode, before[file].mode, "{other}");
        assert_ne!(now[file].mode, changed[file].mode, "{other}");
        for name in ["", "b", "dir", "dir/sub"] {
            let name = Path::new(name);
            assert_eq!(now[name].mtime, before[name].mtime, "{other}: {}", name.display());
        }
    }
}

#[test]
fn in_a_directory_of_somebody_else_all_is_restored_but_its_time() {
    let fixture = Fixture::ordinary_user();
    let shared = fixture.project().join("shared");
    let file = fixture.write("shared/file", "1");
    if !rustix::process::geteuid().is_root() {
        needs_root("can make a directory of another user");
        return;
    }
    chown(&shared, Some(0), Some(0)).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let old = fs::File::open(&shared).unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let run = ["run", "--rollback", "--no-sandbox", "--allow", shared.to_str().unwrap()];
    fixture.nono(&[&run[..], &["--", "sh", "-c", "echo 2 > shared/file"]].concat()).success();
    let restored = fixture.nono(&["rollback", "restore", &fixture.latest()]);
    let shown = restored.stdout.clone();
    assert!(shown.contains("the time could not be set: not the owner"), "{shown}");
    restored.fails(1, "1 path is not as it was");
    assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    // Nothing is left of it, and nothing in the way of the next one.
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
    assert!(fixture.nono(&["rollback", "resume"]).success().says("no restore was interrupted"));
    fixture.nono(&["rollback", "restore", &format!("{}/1", fixture.latest()), "--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "2\n");
}

#[test]
fn what_taking_back_may_not_set_is_said() {
    if !rustix::process::geteuid().is_root() {
        needs_root("can make a directory of another user");
        return;
    }
    let mut taken_back = 0;
    for point in (1..).step_by(3) {
        let fixture = Fixture::ordinary_user();
        fixture.write("shared/file", "1");
        let shared = fixture.project().join("shared");
        let epoch = std::time::SystemTime::UNIX_EPOCH;
        chown(&shared, Some(0), Some(0)).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        fixture.record("echo 2 > shared/new").success();
        fs::File::open(&shared).unwrap().set_modified(epoch).unwrap();
        let mut restore = fixture.command(&["rollback", "restore", "latest", "--force"]);
        let killed = restore.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if killed.status.code().is_some() {
            break;
        }
        let aborted = fixture.nono(&["rollback", "resume", "--abort"]);
        if aborted.says("everything is as before") {
            let time = fs::metadata(&shared).unwrap().modified().unwrap();
            assert_eq!(time, epoch, "at point {point}: {}", aborted.stderr);
        } else if aborted.says("the time could not be set: not the owner") {
            assert_eq!(aborted.code, 1, "at point {point}");
            taken_back += 1;
        }
    }
    assert!(taken_back > 0);
}

#[test]
fn a_root_noted_elsewhere_proves_a_session() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    let root = taken["merkle_root"].as_str().unwrap();
    let verify = |root: &str| {
        fixture.nono(&["rollback", "verify", "latest", "--expect-root", root, "--json"])
    };
    verify(root).success();
    let other = verify(&root.chars().rev().collect::<String>()).fails(1, "").json();
    assert_eq!(other["problems"][0]["kind"], "merkle_mismatch");
    verify("12ab").fails(2, "not a SHA-256");
}

#[test]
fn a_selection_that_means_nothing_is_no_success_and_one_that_is_restored_is_not_everything() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "1");
    fixture.record("echo 2 > a").success();
    for selected in ["*.sr", "src/*", "/nowhere/*"] {
        for more in [&[][..], &["--dry-run"], &["--to", "copy"]] {
            let arguments = [&["rollback", "restore", "latest", selected], more].concat();
            fixture.nono(&arguments).fails(1, "matches");
        }
    }
    for arguments in [&["b"][..], &["b*"], &["--only", "created"]] {
        let arguments = [&["rollback", "restore", "latest"], arguments].concat();
        let said = fixture.nono(&arguments).success().stderr;
        assert!(said.contains("everything selected that is recorded is as in"), "{said}");
    }
    fixture.nono(&["rollback", "restore", "latest", "a*"]).success();
    let said = fixture.nono(&["rollback", "restore", "latest"]).success().stderr;
    assert!(said.contains("everything that is recorded is as in"), "{said}");
}

#[test]
fn a_copy_of_more_directories_than_may_be_open_is_complete() {
    let fixture = Fixture::new();
    for number in 0..200 {
        fixture.write(&format!("d{number}/f"), number.to_string());
    }
    fs::hard_link(fixture.project().join("d0/f"), fixture.project().join("d199/g")).unwrap();
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    let mut command = fixture.command(&[]);
    let program = command.get_program().to_owned();
    let script = "ulimit -n 100; exec \"$0\" rollback restore latest --to ../copy";
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", script]).arg(program).current_dir(fixture.project()).env_clear();
    limited.envs(command.env("LC_ALL", "C").get_envs().filter_map(|(k, v)| Some((k, v?))));
    crate::fixture::finished(limited.output().unwrap()).success();
    let mut copied = observe(&fixture.path("copy"));
    // The directory itself is not part of the copy.
    copied.remove(std::path::Path::new(""));
    let mut before = before;
    before.remove(std::path::Path::new(""));
    assert_same(&before, &copied);
}

#[test]
fn a_copy_is_not_written_into_the_store_and_goes_on_behind_a_damaged_file() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "2");
    fixture.write("c/c", "3");
    fixture.nono(&["snapshot"]).success();
    symlink(fixture.store(), fixture.path("link")).unwrap();
    let (store, session) = (fixture.store(), fixture.session());
    for place in [store.join("copy"), store.clone(), session, fixture.path("link/objects/ab")] {
        let place = place.to_str().unwrap();
        let arguments = ["rollback", "restore", "latest", "--to", place, "--force"];
        fixture.nono(&arguments).fails(1, "lies in the store");
    }
    assert!(!store.join("copy").exists());
    let hash = nono_engine::object::ContentHash::of(b"1").hex();
    fs::remove_file(store.join("objects").join(&hash[..2]).join(&hash[2..])).unwrap();
    let failed = fixture.nono(&["rollback", "restore", "latest", "--to", "../copy"]);
    let failed = failed.fails(1, "copied 2 files");
    assert!(failed.says("copy/a") && failed.says("missing"), "{}{}", failed.stdout, failed.stderr);
    let copy = fixture.path("copy");
    assert_eq!(fs::read(copy.join("b")).unwrap(), b"2");
    assert_eq!(fs::read(copy.join("c/c")).unwrap(), b"3");
    assert!(!copy.join("a").exists());
}

#[test]
fn a_copy_that_failed_anywhere_is_completed_by_the_next_one() {
    let fixture = Fixture::ordinary_user();
    let read_only = ["d/e", "d", "f"];
    for dir in read_only {
        fixture.write(&format!("{dir}/file"), "1");
    }
    for dir in read_only {
        let mode = PermissionsExt::from_mode(0o555);
        fs::set_permissions(fixture.project().join(dir), mode).unwrap();
    }
    let mut before = observe(&fixture.project());
    before.remove(Path::new(""));
    fixture.nono(&["snapshot"]).success();
    let place = fixture.path("home/copy");
    let arguments = ["rollback", "restore", "latest", "--to", place.to_str().unwrap()];
    let (mut failures, mut in_a_row) = (0, 0);
    for point in (1..).step_by(2) {
        let mut command = fixture.command(&arguments);
        let failed = command.env("NONO_FAIL_POINT", format!("{point}:EIO")).output().unwrap();
        // Some failures are in the way of nothing.
        in_a_row = if failed.status.success() { in_a_row + 1 } else { 0 };
        if in_a_row == 20 {
            break;
        }
        failures += i32::from(!failed.status.success());
        fixture.nono(&[&arguments[..], &["--force"]].concat()).success();
        let mut copied = observe(&place);
        copied.remove(Path::new(""));
        assert_same(&before, &copied);
        fs::remove_dir_all(&place).unwrap();
    }
    assert!(failures > 5, "{failures}");
}

#[test]
fn a_directory_of_a_copy_that_cannot_be_finished_keeps_no_other_from_it() {
    let fixture = Fixture::new();
    for dir in ["a", "b", "c"] {
        fixture.write(&format!("{dir}/file"), "1");
        let mode = PermissionsExt::from_mode(0o755);
        fs::set_permissions(fixture.project().join(dir), mode).unwrap();
    }
    fixture.nono(&["snapshot"]).success();
    let mut is_seen = false;
    for point in (1..100).step_by(2) {
        let place = fixture.path(&format!("copy{point}"));
        let arguments = ["rollback", "restore", "latest", "--to", place.to_str().unwrap()];
        let mut command = fixture.command(&arguments);
        let done = command.env("NONO_FAIL_POINT", format!("{point}:EIO")).output().unwrap();
        let done = crate::fixture::finished(done);
        let told = format!("{point}: {}{}", done.stdout, done.stderr);
        if told.contains("its attributes could not be set") {
            is_seen = true;
            assert_eq!(done.code, 1, "{told}");
            let made =
                fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
            let finished = made.filter(|made| made.permissions().mode() & 0o777 == 0o755).count();
            assert!(finished >= 2, "{told}");
        }
    }
    assert!(is_seen);
}

/// A program cannot be written to while it runs (ETXTBSY); it is replaced, and runs on.
#[test]
fn programs_that_run_are_restored_and_run_on() {
    let fixture = Fixture::new();
    // By another process: a program that this one writes may be open for writing in a child that
    // another test starts at that moment.
    let shell = |script: &str| {
        let status =
            Command::new("sh").args(["-c", script]).current_dir(fixture.project()).status();
        assert!(status.unwrap().success());
    };
    shell("cp /bin/sleep changed; cp /bin/sleep mode; chmod 755 changed mode");
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    shell("printf appended >> changed; chmod 700 mode");
    let mut running = ["changed", "mode"].map(|name| {
        let program = fixture.project().join(name);
        let started = Command::new(&program).arg("1000").spawn().unwrap();
        let refused = fs::OpenOptions::new().write(true).open(&program).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ExecutableFileBusy);
        started
    });
    fixture.nono(&["rollback", "restore", "latest/0"]).success();
    assert_same(&before, &observe(&fixture.project()));
    for child in &mut running {
        assert!(child.try_wait().unwrap().is_none(), "it runs on");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_copy_overwrites_nothing_in_the_project_because_it_keeps_nothing() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fixture.write("a", "precious");
    symlink(fixture.project(), fixture.path("link")).unwrap();
    for place in [".", "sub", "../link"] {
        let arguments = ["rollback", "restore", "latest", "--to", place, "--force"];
        fixture.nono(&arguments).fails(1, "a copy keeps nothing that it overwrites");
    }
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"precious");
    assert!(!fixture.project().join("sub").exists());
    fixture.nono(&["rollback", "restore", "latest", "--to", "old"]).success();
    assert_eq!(fs::read(fixture.project().join("old/a")).unwrap(), b"1");
}

#[test]
fn a_copy_into_a_place_with_many_of_its_paths_names_a_few() {
    let fixture = Fixture::new();
    for number in 0..30 {
        fixture.write(&number.to_string(), "x");
    }
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["rollback", "restore", "--to", "../copy"]).success();
    let again = fixture.nono(&["rollback", "restore", "--to", "../copy"]).fails(1, "30 paths");
    assert_eq!(again.stdout.lines().count(), 21, "{}", again.stdout);
    assert!(again.says("10 more"), "{}", again.stdout);
}

#[test]
fn directories_that_their_owner_cannot_write_keep_their_mode_through_undo_and_redo() {
    let scripts = [
        "rm b",
        "echo 2 > b",
        "chmod 600 b",
        "echo 2 > d/e/own",
        "rm d/e/own",
        "chmod 600 d/e/own",
        "touch d/e/own; chmod 700 d/e",
        "mkdir d/e/new; echo 1 > d/e/new/file",
        "chmod 755 d; rm -r d/e; chmod 555 d",
    ];
    for script in scripts {
        let fixture = Fixture::ordinary_user();
        fixture.write("b", "1");
        fixture.write("d/e/own", "1");
        fs::hard_link(fixture.project().join("b"), fixture.project().join("d/e/linked")).unwrap();
        fs::set_permissions(fixture.project().join("d"), PermissionsExt::from_mode(0o555)).unwrap();
        let before = observe(&fixture.project());
        fixture.record(script).success();
        let after = observe(&fixture.project());
        fixture.nono(&["undo", "--yes"]).success();
        assert_same(&before, &observe(&fixture.project()));
        fixture.nono(&["redo", "--yes"]).success();
        assert_same(&after, &observe(&fixture.project()));
    }
}

#[test]
fn a_hard_link_that_a_selection_cuts_is_named() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "1");
    let path = |name: &str| fixture.project().join(name);
    fs::hard_link(path("a"), path("l")).unwrap();
    fixture.record("rm l").success();
    let cut = fixture.nono(&["undo", "--yes", "l"]);
    assert!(cut.code == 1 && cut.stdout.contains("file of its own"), "{}", cut.stdout);
    assert_eq!(fs::read(path("l")).unwrap(), b"1");
    // With both names the link is there again.
    fixture.nono(&["redo", "--yes"]).success();
    let before_link = observe(&fixture.project());
    fixture.nono(&["undo", "--yes", "a", "l"]).success();
    let now = observe(&fixture.project());
    assert_ne!(before_link, now);
    assert!(now.values().any(|it| it.linked_to.is_some()), "{now:?}");
}
