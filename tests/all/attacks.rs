//! Hostile commands, bad disks and unlucky moments, and the promised outcome of each.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;

use crate::faults::at_point;
use crate::fixture::{Fixture, settle};
use crate::not_run::not_run;
use crate::observe::{assert_same, observe};

fn object(fixture: &Fixture, bytes: &[u8]) -> PathBuf {
    let hash = nono_engine::object::ContentHash::of(bytes).hex();
    fixture.store().join("objects").join(&hash[..2]).join(&hash[2..])
}

/// Two snapshots, so that the file is settled and the stat cache knows it.
fn record_settled(fixture: &Fixture) -> String {
    fixture.nono(&["snapshot"]).success();
    let id = fixture.latest();
    fixture.write("f", "precious");
    settle();
    fixture.nono(&["snapshot", "--session", &id]).success();
    fixture.nono(&["snapshot", "--session", &id]).success();
    id
}

#[test]
fn a_restore_never_overwrites_the_only_good_copy() {
    for damage in ["missing", "changed", "directory", "link"] {
        let fixture = Fixture::new();
        fixture.write("f", "base");
        let id = record_settled(&fixture);
        let path = object(&fixture, b"precious");
        fs::remove_file(&path).unwrap();
        match damage {
            "changed" => fs::write(&path, "pReciOus").unwrap(),
            "directory" => fs::create_dir(&path).unwrap(),
            "link" => symlink("/dev/zero", &path).unwrap(),
            _ => {}
        }
        let restored = fixture.nono(&["rollback", "restore", &id, "--json"]);
        if restored.code != 0 {
            // Refusing is fine; losing is not.
            let content = fs::read_to_string(fixture.project().join("f")).unwrap();
            assert_eq!((damage, content.as_str()), ("directory", "precious"));
            continue;
        }
        assert_eq!(fs::read_to_string(fixture.project().join("f")).unwrap(), "base");
        let safety = restored.json()["safety_snapshot"].to_string();
        fixture.nono(&["rollback", "restore", &id, "--snapshot", &safety]).success();
        let content = fs::read_to_string(fixture.project().join("f")).unwrap();
        assert_eq!(content, "precious", "{damage}");
    }
}

#[test]
fn a_link_to_a_file_outside_gives_nobody_its_rights() {
    let fixture = Fixture::new();
    let inside = fixture.write("f", "same");
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).unwrap();
    let victim = fixture.path("victim");
    fs::write(&victim, "same").unwrap();
    fs::set_permissions(&victim, fs::Permissions::from_mode(0o600)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&inside, Some(1234), Some(1234)).unwrap();
    }
    let before = observe(&fixture.project());
    let outside = fs::metadata(&victim).unwrap();
    let run = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", "rm f; ln ../victim f"];
    fixture.nono(&run).success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
    let after = fs::metadata(&victim).unwrap();
    let key = |m: &fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
    assert_eq!(key(&after), key(&outside));
}

#[test]
fn a_directory_in_which_names_are_replaced_all_the_time_gives_valid_trees() {
    let Ok(temp) = tempfile::tempdir_in("/dev/shm") else {
        not_run("there is no tmpfs at /dev/shm");
        return;
    };
    let project = temp.path().join("project");
    fs::create_dir(&project).unwrap();
    for number in 0..800 {
        fs::write(project.join(format!("f{number}")), "x").unwrap();
    }
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..800).cycle() {
                if is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                let temporary = project.join(".tmp");
                fs::write(&temporary, number.to_string()).unwrap();
                fs::rename(&temporary, project.join(format!("f{number}"))).unwrap();
            }
        });
        let manager = nono_engine::snapshot::SnapshotManager::new(
            &temp.path().join("session"),
            std::slice::from_ref(&project),
            nono_engine::walk::ExclusionConfig::nothing(),
            nono_engine::snapshot::Budget::default(),
        )
        .unwrap();
        manager.create_baseline().unwrap();
        for _ in 0..25 {
            manager.create_incremental().unwrap();
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        let options = nono_engine::verify::VerifyOptions::default();
        let report =
            nono_engine::verify::verify_session(manager.session(), manager.store(), &options)
                .unwrap();
        assert_eq!(report.problems, []);
    });
}

#[test]
fn a_session_with_a_missing_or_edited_snapshot_takes_no_further_one() {
    let fixture = Fixture::new();
    for content in ["1", "2", "3"] {
        fixture.write("a", content);
        let arguments: &[&str] =
            if content == "1" { &["snapshot"] } else { &["snapshot", "--session", "latest"] };
        fixture.nono(arguments).success();
    }
    let snapshots = fixture.session().join("snapshots");
    let id = fixture.latest();
    // A snapshot that is damaged is no reason not to go back to another one.
    let manifest = snapshots.join("1/manifest.json");
    let good = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, good.replace("\"file_count\": 1", "\"file_count\": 7")).unwrap();
    fixture.nono(&["rollback", "restore", &id, "--snapshot", "1"]).fails(1, "manifest");
    fixture.nono(&["rollback", "restore", &id, "--snapshot", "0"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    fs::remove_dir_all(snapshots.join("1")).unwrap();
    fixture.nono(&["snapshot", "--session", &id]).fails(1, "no manifest");
    fixture.nono(&["rollback", "verify", &id]).fails(1, "");
}

#[test]
fn what_a_restore_is_working_on_is_no_content() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write(".nono-restore-0123456789abcdef/left", "behind");
    fixture.write(".nono-restore-mine/kept", "content");
    fixture.nono(&["snapshot"]).success();
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(show["snapshots"][0]["file_count"], 2);
    let left_out = show["snapshots"][0]["not_captured"][0]["path"].as_str().unwrap().to_owned();
    assert!(left_out.ends_with("/.nono-restore-0123456789abcdef"), "{left_out}");
}

#[test]
fn when_the_directory_above_is_gone_the_plan_says_so_like_the_restore() {
    let fixture = Fixture::new();
    fixture.write("deep/project/a", "1");
    let tracked = fixture.project().join("deep/project");
    let tracked = tracked.to_str().unwrap();
    let run = ["run", "--rollback", "--no-sandbox", "--allow", tracked];
    fixture.nono(&[&run[..], &["--", "rm", "-r", "deep"]].concat()).success();
    for dry in [&["--dry-run"][..], &[]] {
        let id = fixture.latest();
        let arguments = [&["rollback", "restore", id.as_str()], dry].concat();
        fixture.nono(&arguments).fails(1, "the directory that held it is gone");
    }
    fs::create_dir(fixture.project().join("deep")).unwrap();
    fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("deep/project/a")).unwrap(), "1");
}

#[test]
fn what_lies_behind_a_symlink_that_replaced_a_directory_above_is_not_called_deleted() {
    for above in ["a/b", "a"] {
        let fixture = Fixture::new();
        let file = fixture.write("a/b/project/file", "1");
        let tracked = fixture.project().join("a/b/project");
        let run = ["run", "--rollback", "--no-sandbox", "--allow", tracked.to_str().unwrap()];
        let command =
            format!("mv {above} aside; ln -s $PWD/aside {above}; echo 2 > a/b/project/file");
        fixture.nono(&[&run[..], &["--", "sh", "-c", &command]].concat()).success();
        let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
        assert_eq!(show["snapshots"][1]["not_captured"][0]["path"], tracked.to_str().unwrap());
        assert_eq!(show["snapshots"][1]["changes"], serde_json::json!([]), "{above}");
        fixture
            .nono(&["rollback", "restore", &fixture.latest()])
            .fails(1, "1 path is not as it was");
        assert_eq!(fs::read_to_string(&file).unwrap(), "2\n");
        fs::remove_file(fixture.project().join(above)).unwrap();
        fs::rename(fixture.project().join("aside"), fixture.project().join(above)).unwrap();
        fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
        assert_eq!(fs::read_to_string(&file).unwrap(), "1");
    }
}

#[test]
fn an_excluded_directory_where_a_file_was_is_named_and_the_rest_is_restored() {
    let fixture = Fixture::new();
    fixture.write("build", "a file");
    fixture.write("a", "1");
    let arguments = [
        "run",
        "--rollback",
        "--rollback-exclude",
        "build/",
        "--rollback-include",
        "build/keep",
        "--",
        "sh",
        "-c",
        "rm build; mkdir build; echo k > build/keep; echo o > build/other; echo 2 > a",
    ];
    fixture.nono(&arguments).success();
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "not as it was");
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!((read("a"), read("build/other")), ("1".to_owned(), "o\n".to_owned()));
}

#[test]
fn a_restore_that_fails_again_and_again_records_the_state_once() {
    let fixture = Fixture::new();
    fixture.write("a", "first");
    fixture.write("b", "other");
    fixture.record("echo x > a; echo y > b").success();
    let first = object(&fixture, b"first");
    fs::remove_file(&first).unwrap();
    for _ in 0..3 {
        fixture.nono(&["rollback", "restore", "latest"]).fails(1, "missing");
    }
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["snapshot_count"], 3);
    fs::write(&first, "first").unwrap();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "first");
}

#[test]
fn a_damaged_journal_can_be_given_up_and_nothing_is_lost() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let id = fixture.latest();
    fs::write(fixture.session().join("restore.journal"), "nonorest\x01 garbage").unwrap();
    fixture.nono(&["rollback", "restore", &id]).fails(1, "interrupted");
    fixture.nono(&["rollback", "resume", &id]).fails(1, "--discard");
    fixture.nono(&["rollback", "resume", &id, "--abort"]).fails(1, "--discard");
    fixture.nono(&["rollback", "resume", &id, "--discard"]).success();
    assert!(fixture.session().join("restore.journal.discarded").exists());
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
    fixture.nono(&["rollback", "restore", &id]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

fn staging(fixture: &Fixture) -> Vec<PathBuf> {
    let names = fs::read_dir(fixture.project()).unwrap().map(|name| name.unwrap().path());
    names.filter(|path| path.to_string_lossy().contains("/.nono-restore-")).collect()
}

/// A restore killed in its commit, its journal damaged afterwards.
fn damaged_half_way() -> (Fixture, String) {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write("b", "1");
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "22");
    fixture.write("b", "22");
    let id = fixture.latest();
    for point in 1.. {
        let mut command = fixture.command(&["rollback", "restore", &id]);
        let status = command.env("NONO_FAIL_POINT", point.to_string()).status().unwrap();
        assert!(!status.success(), "no point is in the commit");
        let now = ["a", "b"].map(|name| fs::read(fixture.project().join(name)).unwrap());
        if now[0] != now[1] {
            break;
        }
        fixture.nono(&["rollback", "resume", &id, "--abort"]).success();
    }
    let journal = fixture.session().join("restore.journal");
    let mut bytes = fs::read(&journal).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&journal, bytes).unwrap();
    (fixture, id)
}

#[test]
fn what_a_restore_had_staged_goes_with_its_journal_when_all_of_it_is_in_the_store() {
    let (fixture, id) = damaged_half_way();
    assert_eq!(staging(&fixture).len(), 1);
    // Another user's, or made to look like it: named, and left.
    let foreign = fixture.write(".nono-restore-0123456789abcdef/x", "mine");
    let told = fixture.nono(&["rollback", "resume", &id, "--discard"]).success();
    assert!(told.stderr.contains("removed what it had staged"), "{}", told.stderr);
    assert!(told.stderr.contains("then: rm -r /"), "{}", told.stderr);
    assert_eq!(staging(&fixture), [foreign.parent().unwrap()]);
    assert!(foreign.exists());
    // Nothing is hidden under such a name either.
    let restored = fixture.nono(&["rollback", "restore", &id]).fails(1, "1 path is not");
    assert!(restored.stdout.contains("0123456789abcdef: it is new and was not recorded"));
    assert_eq!(fs::read(fixture.project().join("a")).unwrap(), b"1");
}

#[test]
fn what_is_nowhere_else_is_not_removed_with_a_journal() {
    let (fixture, id) = damaged_half_way();
    let [staged] = &staging(&fixture)[..] else { panic!() };
    fs::write(staged.join("0"), "the only copy").unwrap();
    let told = fixture.nono(&["rollback", "resume", &id, "--discard"]).success();
    assert!(told.stderr.contains("is in no snapshot"), "{}", told.stderr);
    assert_eq!(fs::read(staged.join("0")).unwrap(), b"the only copy");
}

#[test]
fn a_parent_that_becomes_a_symlink_while_a_session_begins_has_nothing_else_recorded_or_restored() {
    for inner in ["p", "deep/p"] {
        assert!(swap_a_parent_at_every_point(inner) > 0);
    }
}

/// The name of the tracked directory below the one that is swapped. Returns how often the session
/// was refused.
fn swap_a_parent_at_every_point(inner: &str) -> u32 {
    let mut refused = 0;
    for point in 1.. {
        let fixture = Fixture::in_memory();
        let (parent, aside) = (fixture.path("parent"), fixture.path("aside"));
        let (tracked, victim) =
            (parent.join(inner).join("f"), fixture.path("victim").join(inner).join("f"));
        for file in [&tracked, &victim] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        fs::write(&tracked, "tracked").unwrap();
        fs::write(&victim, "victim").unwrap();
        let swap = || {
            fs::rename(&parent, &aside).unwrap();
            symlink("victim", &parent).unwrap();
        };
        let project = parent.join(inner);
        let begun = at_point(&fixture, point, &["snapshot", project.to_str().unwrap()], swap);
        let Some(begun) = begun else { break };
        fs::remove_file(&parent).unwrap();
        fs::rename(&aside, &parent).unwrap();
        fs::write(&tracked, "edited").unwrap();
        fs::write(&victim, "not to be touched").unwrap();
        if begun.code == 0 {
            fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
            assert_eq!(fs::read_to_string(&tracked).unwrap(), "tracked", "point {point}");
        } else {
            refused += 1;
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "not to be touched", "point {point}");
    }
    refused
}

#[test]
fn of_two_paths_the_inner_one_is_not_another_place_when_its_session_begins() {
    for point in 1.. {
        let fixture = Fixture::in_memory();
        let (parent, aside) = (fixture.path("outer/parent"), fixture.path("outer/aside"));
        let victim = fixture.path("victim/p/f");
        fs::create_dir_all(parent.join("p")).unwrap();
        fs::create_dir_all(victim.parent().unwrap()).unwrap();
        fs::write(parent.join("p/f"), "tracked").unwrap();
        fs::write(&victim, "victim").unwrap();
        let swap = || {
            fs::rename(&parent, &aside).unwrap();
            symlink("../victim", &parent).unwrap();
        };
        let tracked = [fixture.path("outer"), parent.join("p")];
        let arguments = ["snapshot", tracked[0].to_str().unwrap(), tracked[1].to_str().unwrap()];
        let Some(begun) = at_point(&fixture, point, &arguments, swap) else { break };
        if begun.code == 0 {
            fs::write(&victim, "not to be touched").unwrap();
            fixture.nono(&["rollback", "restore", &fixture.latest()]);
            assert_eq!(fs::read_to_string(&victim).unwrap(), "not to be touched", "point {point}");
        }
    }
}
