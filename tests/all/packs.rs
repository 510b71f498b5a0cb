//! Stores with packs: everything that is true of single objects is true of those that share a file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::fixture::{Fixture, finished, settle};
use crate::observe::{assert_same, observe};

const FILES: usize = 20;

/// A project of files that are all different.
fn project(fixture: &Fixture) {
    for n in 0..FILES {
        fixture.write(&format!("dir{}/file{n}", n % 4), text(n, "first"));
    }
}

fn text(n: usize, state: &str) -> String {
    format!("{state} contents of the file number {n}\n").repeat(10)
}

fn snapshot(fixture: &Fixture) -> String {
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    taken["session_id"].as_str().unwrap().to_owned()
}

fn cleanup(fixture: &Fixture, arguments: &[&str]) -> Value {
    let arguments = [&["rollback", "cleanup", "--yes", "--json"], arguments].concat();
    fixture.nono(&arguments).success().json()
}

/// Changes the contents of a file, behind the back of whoever wrote it.
fn tamper(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Changes a byte of the contents of a file of the project.
fn damage(pack: &Path, n: usize) {
    tamper(pack, |bytes| {
        let wanted = text(n, "first").into_bytes();
        let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
        bytes[at + 5] ^= 1;
    });
}

#[test]
fn a_snapshot_of_many_small_files_is_one_pack_and_comes_back_from_it() {
    // As it is by default: this many are packed.
    let fixture = Fixture::ordinary_user();
    for n in 0..400 {
        fixture.write(&format!("dir{}/file{n}", n % 7), text(n, "first"));
    }
    let before = observe(&fixture.project());
    snapshot(&fixture);
    assert_eq!(fixture.packs().len(), 1);
    let objects = fs::read_dir(fixture.store().join("objects")).unwrap();
    let single = objects.filter(|entry| entry.as_ref().unwrap().file_name().len() == 2).count();
    assert_eq!(single, 0);
    // Few changes are stored one by one.
    fixture.write("dir1/file1", "changed");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    assert_eq!(fixture.packs().len(), 1);
    fixture.nono(&["rollback", "verify", "latest"]).success();
    for n in 0..7 {
        fs::remove_dir_all(fixture.project().join(format!("dir{n}"))).unwrap();
    }
    fixture.nono(&["rollback", "restore", "latest/0"]).success();
    assert_same(&before, &observe(&fixture.project()));
    let shown = fixture.nono(&["rollback", "cat", "latest", "dir3/file3"]).success();
    assert_eq!(shown.stdout, text(3, "first"));
}

#[test]
fn what_is_unneeded_in_a_pack_goes_when_it_is_a_fifth_of_it_or_at_once_where_that_is_asked_for() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    let first = snapshot(&fixture);
    fixture.write("dir1/file1", text(1, "second"));
    let second = snapshot(&fixture);
    let state = observe(&fixture.project());
    assert_eq!(fixture.packs().len(), 2);

    // One file of twenty, and a few lists.
    let planned = cleanup(&fixture, &[&first, "--dry-run"]);
    assert_eq!(planned["objects_removed"], 0);
    let left = planned["objects_kept_packed"].as_u64().unwrap();
    assert!(left >= 2, "{planned}");
    let told = fixture.nono(&["rollback", "cleanup", &first, "--dry-run"]).success();
    assert!(told.stdout.contains("--compact frees them"), "{}", told.stdout);

    let planned = cleanup(&fixture, &[&first, "--dry-run", "--compact"]);
    assert_eq!(fixture.packs().len(), 2);
    let report = cleanup(&fixture, &[&first, "--compact"]);
    for (field, value) in report.as_object().unwrap() {
        let is_of_one = ["dry_run", "bytes_shrunk"].contains(&field.as_str());
        assert!(is_of_one || planned[field] == *value, "{planned} {report}");
    }
    assert_eq!(report["objects_removed"], left, "{report}");
    assert_eq!(report["objects_kept_packed"], 0);
    let gone = text(1, "first").into_bytes();
    for pack in fixture.packs() {
        let bytes = fs::read(pack).unwrap();
        assert!(!bytes.windows(gone.len()).any(|window| window == gone));
    }
    let verified = fixture.nono(&["rollback", "verify", "--all", "--json"]).success().json();
    assert_eq!(verified[0]["session_id"], second, "{verified}");
    for n in 0..4 {
        fs::remove_dir_all(fixture.project().join(format!("dir{n}"))).unwrap();
    }
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&state, &observe(&fixture.project()));

    // Nothing needs a pack any more.
    cleanup(&fixture, &["--all"]);
    assert_eq!(fixture.packs().len(), 0);
}

#[test]
fn a_cleanup_that_rewrites_packs_killed_at_any_point_loses_nothing() {
    let fixture = Fixture::in_memory().packed();
    project(&fixture);
    let first = snapshot(&fixture);
    for n in 0..FILES / 2 {
        fixture.write(&format!("dir{}/file{n}", n % 4), text(n, "second"));
    }
    snapshot(&fixture);
    let state = observe(&fixture.project());
    let store = fixture.store();
    let pristine = fixture.path("pristine");
    copy(&store, &pristine);
    let mut point = 1;
    loop {
        fs::remove_dir_all(&store).unwrap();
        copy(&pristine, &store);
        let mut command = fixture.command(&["rollback", "cleanup", "--yes", &first]);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal() != Some(9) {
            assert!(output.status.success(), "{output:?}");
            break;
        }
        fixture.nono(&["rollback", "verify", "--all"]).success();
        cleanup(&fixture, &[]);
        let report = cleanup(&fixture, &["--compact"]);
        assert_eq!(report["objects_removed"], 0, "at point {point}: {report}");
        fixture.nono(&["rollback", "verify", "--all"]).success();
        fs::remove_dir_all(fixture.project().join("dir1")).unwrap();
        fixture.nono(&["rollback", "restore", "latest"]).success();
        assert_same(&state, &observe(&fixture.project()));
        point += 1;
    }
    assert!(point > 15, "{point}");
    eprintln!("cleanup with packs: killed at {} points", point - 1);
}

fn copy(from: &Path, to: &Path) {
    let mut command = std::process::Command::new("cp");
    assert!(command.arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_damaged_object_in_a_pack_is_named_and_mended_and_its_neighbours_stay() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let [pack] = &fixture.packs()[..] else { panic!() };
    damage(pack, 7);
    damage(pack, 8);
    let verified = fixture.nono(&["rollback", "verify", "latest", "--json"]);
    assert_eq!(verified.code, 1);
    let problems = verified.json()["problems"].as_array().unwrap().clone();
    assert_eq!(problems.len(), 2, "{problems:?}");
    for (problem, name) in problems.iter().zip(["dir0/file8", "dir3/file7"]) {
        assert_eq!(problem["kind"], "corrupt_object");
        assert_eq!(problem["path"], fixture.project().join(name).to_str().unwrap());
        assert_eq!(problem["on_disk"], pack.to_str().unwrap());
    }
    // A restore that needs one of them changes nothing.
    fixture.write("dir3/file7", "changed");
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "is damaged");
    assert_eq!(fs::read_to_string(fixture.project().join("dir3/file7")).unwrap(), "changed");

    // One file still has the bytes, the other has not.
    let repair = ["rollback", "verify", "latest", "--repair", "--json"];
    let report = fixture.nono(&repair);
    assert_eq!(report.code, 1, "{}", report.stderr);
    let report = report.json()["repair"].clone();
    assert_eq!(report["repaired"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["lost"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["quarantined"].as_array().unwrap().len(), 2, "{report}");
    assert!(!pack.exists());
    fixture.write("dir3/file7", text(7, "first"));
    let report = fixture.nono(&repair).success().json()["repair"].clone();
    assert_eq!(report["repaired"].as_array().unwrap().len(), 1, "{report}");
    fixture.nono(&["rollback", "verify", "latest"]).success();
}

#[test]
fn a_pack_without_its_end_gives_back_what_it_has() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let state = observe(&fixture.project());
    let [pack] = &fixture.packs()[..] else { panic!() };
    // One file is nowhere else, and another one comes after the cut.
    fs::remove_file(fixture.project().join("dir1/file1")).unwrap();
    tamper(pack, |bytes| bytes.truncate(bytes.len() - 100));
    fixture.nono(&["rollback", "verify", "latest"]).fails(1, "is damaged: it was cut short");
    // A snapshot is possible all the same, and stores what it cannot find.
    snapshot(&fixture);
    fixture.nono(&["rollback", "verify", "latest"]).success();
    let sessions = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let first = sessions[1]["session_id"].as_str().unwrap().to_owned();
    fixture.nono(&["rollback", "verify", &first, "--repair"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
    fixture.nono(&["rollback", "restore", &first]).success();
    assert_same(&state, &observe(&fixture.project()));
}

#[test]
fn what_was_in_a_pack_that_is_gone_is_captured_again() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    fixture.packs().iter().for_each(|pack| fs::remove_file(pack).unwrap());
    let told = fixture.nono(&["rollback", "verify", "latest"]).fails(1, "");
    assert!(told.stdout.contains("is missing"), "{}", told.stdout);
    fixture.nono(&["rollback", "verify", "latest", "--repair"]).success();
    fixture.nono(&["rollback", "verify", "latest"]).success();
}

/// The objects in the fan-out directories.
fn objects_of_their_own(fixture: &Fixture) -> Vec<PathBuf> {
    let listed = |path: &Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
        entries.collect::<Vec<_>>()
    };
    let mut fan_out = listed(&fixture.store().join("objects"));
    fan_out.retain(|path| path.file_name().unwrap().len() == 2);
    let mut objects: Vec<_> = fan_out.iter().flat_map(|path| listed(path)).collect();
    objects.sort();
    objects
}

#[test]
fn when_an_object_is_gone_the_next_snapshot_stores_it_again() {
    let fixture = Fixture::new();
    project(&fixture);
    settle();
    let snapshot = || {
        // Fan-out directories of which the clock can tell that they did not change since.
        settle();
        let said = fixture.nono(&["snapshot"]).success().stderr;
        let manifest = fs::read(fixture.session().join("snapshots/0/manifest.json")).unwrap();
        let manifest = serde_json::from_slice::<Value>(&manifest).unwrap();
        (manifest["files_read"].as_u64().unwrap(), said.contains("missing from the store"))
    };
    snapshot();
    assert_eq!(snapshot(), (0, false));
    let objects = objects_of_their_own(&fixture);
    assert!(objects.len() >= FILES + 5, "{objects:?}");
    let mut read = 0;
    for object in &objects {
        fs::remove_file(object).unwrap();
        let (files_read, is_said) = snapshot();
        assert!(files_read <= u64::from(is_said), "what is stored is not read");
        read += files_read;
        // Older root trees are named by older snapshots alone.
        if is_said {
            assert!(object.exists(), "{object:?}");
        }
        fixture.nono(&["rollback", "verify", "latest"]).success();
    }
    assert_eq!(read, FILES as u64);
    assert_eq!(snapshot(), (0, false));
}

#[test]
fn after_a_command_that_removes_objects_its_last_state_is_recorded_and_the_older_one_is_not_safe() {
    let fixture = Fixture::new();
    project(&fixture);
    settle();
    let objects = fixture.store().join("objects");
    let script = format!("rm -r '{}'/??; echo new > new", objects.display());
    let run = ["run", "--rollback", "--no-sandbox", "--no-rollback-prompt", "--"];
    let told = fixture.nono(&[&run[..], &["sh", "-c", &script]].concat()).fails(1, "--repair");
    assert!(!told.stderr.contains("is safe"), "{}", told.stderr);
    let copy = fixture.path("copy");
    let to = ["rollback", "restore", "latest/1", "--to", copy.to_str().unwrap()];
    fixture.nono(&to).success();
    for n in 0..FILES {
        let file = format!("dir{}/file{n}", n % 4);
        assert_eq!(fs::read(copy.join(file)).unwrap(), text(n, "first").into_bytes());
    }
    assert_eq!(fs::read(copy.join("new")).unwrap(), b"new\n");
}

#[test]
fn when_a_pack_is_gone_the_next_snapshot_captures_again_what_was_in_it() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    settle();
    let files_read = || {
        fixture.nono(&["snapshot"]).success();
        let manifest = fs::read(fixture.session().join("snapshots/0/manifest.json")).unwrap();
        serde_json::from_slice::<Value>(&manifest).unwrap()["files_read"].as_u64().unwrap()
    };
    files_read();
    assert_eq!(files_read(), 0, "the stat cache is in use");
    fixture.packs().iter().for_each(|pack| fs::remove_file(pack).unwrap());
    assert_eq!(files_read(), FILES as u64);
    fixture.nono(&["rollback", "verify", "--all"]).success();
    assert_eq!(files_read(), 0, "the stat cache is in use again");
    // As after packs were merged: another name, and all that was there.
    for pack in fixture.packs() {
        fs::rename(&pack, pack.with_file_name("5".repeat(32))).unwrap();
    }
    assert_eq!(files_read(), 0, "the stat cache is still in use");
    // A pack in which nothing is found any more.
    for pack in fixture.packs() {
        tamper(&pack, |bytes| {
            let trailer = bytes.len() - 64;
            let index = u64::from_le_bytes(bytes[trailer..trailer + 8].try_into().unwrap());
            bytes[index as usize..trailer].fill(0);
        });
    }
    assert_eq!(files_read(), FILES as u64);
    let before = observe(&fixture.project());
    for n in 0..FILES {
        fixture.write(&format!("dir{}/file{n}", n % 4), "lost");
    }
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

#[test]
fn a_repair_of_packs_killed_at_any_point_is_done_by_the_next_one() {
    let fixture = Fixture::in_memory().packed();
    project(&fixture);
    let first = snapshot(&fixture);
    fixture.write("dir2/new", "new in the second");
    let second = snapshot(&fixture);
    let (store, pristine) = (fixture.store(), fixture.path("pristine"));
    // A byte in one, and the end of the other.
    let (large, small) = {
        let mut packs = fixture.packs();
        packs.sort_by_key(|pack| fs::metadata(pack).unwrap().len());
        (packs[1].clone(), packs[0].clone())
    };
    damage(&large, 3);
    tamper(&small, |bytes| bytes.truncate(bytes.len() - 3));
    copy(&store, &pristine);
    let mut point = 1;
    loop {
        fs::remove_dir_all(&store).unwrap();
        copy(&pristine, &store);
        let mut command = fixture.command(&["rollback", "verify", "--all", "--repair"]);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        let is_killed = output.status.signal() == Some(9);
        assert!(is_killed || output.status.success(), "at point {point}: {output:?}");
        fixture.nono(&["rollback", "verify", "--all", "--repair"]).success();
        for session in [&first, &second] {
            fixture.nono(&["rollback", "verify", session]).success();
        }
        if !is_killed {
            break;
        }
        point += 1;
    }
    assert!(point > 20, "{point}");
    eprintln!("repair with packs: killed at {} points", point - 1);
}

#[test]
fn what_was_packed_plain_is_packed_small_by_a_cleanup_and_usage_says_what_that_spares() {
    let fixture = Fixture::ordinary_user();
    for n in 0..400 {
        fixture.write(&format!("dir{}/file{n}", n % 7), text(n, "first"));
    }
    let before = observe(&fixture.project());
    let with = |setting: &str, arguments: &[&str]| {
        finished(fixture.command(arguments).env("NONO_COMPRESSION", setting).output().unwrap())
    };
    let wrong = with("tiny", &["snapshot"]);
    wrong.fails(2, "fast, small, off");
    with("off", &["snapshot"]).success();
    let bytes =
        || fixture.packs().iter().map(|pack| fs::metadata(pack).unwrap().len()).sum::<u64>();
    let usage = || fixture.nono(&["rollback", "usage", "--json"]).success().json();
    let plain = bytes();
    assert_eq!(usage()["plain_bytes"], usage()["total_bytes"]);
    with("off", &["rollback", "cleanup", "--yes", "--compact"]).success();
    assert_eq!(bytes(), plain);
    cleanup(&fixture, &["--compact"]);
    assert!(bytes() < plain / 3, "{} of {plain}", bytes());
    let number = |field: &str| usage()[field].as_u64().unwrap();
    assert!(number("plain_bytes") > 3 * number("total_bytes"), "{}", usage());
    let shown = fixture.nono(&["rollback", "usage"]).success().stdout;
    assert!(shown.contains("uncompressed ("), "{shown}");
    fixture.nono(&["rollback", "verify", "--all"]).success();
    fs::remove_dir_all(fixture.project().join("dir3")).unwrap();
    fixture.nono(&["rollback", "restore", "latest", "--force"]).success();
    assert_same(&before, &observe(&fixture.project()));
    let small = bytes();
    // A new store is small at once.
    fs::remove_dir_all(fixture.store()).unwrap();
    fixture.nono(&["snapshot"]).success();
    assert!(bytes() <= small + small / 10, "{} and {small}", bytes());
}

#[test]
fn a_damaged_object_in_a_pack_is_replaced_before_a_restore_overwrites_the_only_good_copy() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    let session = snapshot(&fixture);
    fixture.write("dir1/file1", text(1, "second"));
    fixture.nono(&["snapshot", "--session", &session]).success();
    // The second state is in the second pack; it gets damaged, and the file is the only good copy.
    let wanted = text(1, "second").into_bytes();
    for pack in fixture.packs() {
        tamper(&pack, |bytes| {
            let found = bytes.windows(wanted.len()).position(|window| window == wanted);
            found.into_iter().for_each(|at| bytes[at] ^= 1);
        });
    }
    fixture.nono(&["rollback", "restore", &format!("{session}/0")]).success();
    let restored = fs::read_to_string(fixture.project().join("dir1/file1")).unwrap();
    assert_eq!(restored, text(1, "first"));
    fixture.nono(&["rollback", "verify", &session]).success();
    fixture.nono(&["rollback", "restore", &format!("{session}/1"), "--force"]).success();
    let restored = fs::read_to_string(fixture.project().join("dir1/file1")).unwrap();
    assert_eq!(restored, text(1, "second"));
}

#[test]
fn the_program_in_the_documentation_takes_everything_out_of_a_pack() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let [pack] = &fixture.packs()[..] else { panic!() };
    let format = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md");
    let text_of_page = fs::read_to_string(format).unwrap();
    let program = text_of_page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let target = fixture.path("taken-out");
    fs::create_dir(&target).unwrap();
    let status = std::process::Command::new("python3")
        .args(["-c", program])
        .args([pack, &target])
        .status()
        .unwrap();
    assert!(status.success());
    for n in 0..FILES {
        let name = nono_engine::object::ContentHash::of(text(n, "first").as_bytes()).hex();
        assert_eq!(fs::read_to_string(target.join(name)).unwrap(), text(n, "first"));
    }
    // The lists too, and the root.
    let manifest: Value = serde_json::from_slice(
        &fs::read(fixture.session().join("snapshots/0/manifest.json")).unwrap(),
    )
    .unwrap();
    assert!(target.join(manifest["merkle_root"].as_str().unwrap()).exists());
}

#[test]
fn what_two_snapshots_packed_at_the_same_time_is_kept_once_and_intact() {
    for is_first_damaged in [false, true] {
        let fixture = Fixture::new().packed();
        project(&fixture);
        snapshot(&fixture);
        let [pack] = &fixture.packs()[..] else { panic!() };
        let good = fs::read(pack).unwrap();
        if is_first_damaged {
            damage(pack, 4);
        }
        fs::write(pack.with_file_name("0".repeat(32)), &good).unwrap();
        cleanup(&fixture, &["--compact"]);
        let packs = fixture.packs();
        let bytes: u64 = packs.iter().map(|pack| fs::metadata(pack).unwrap().len()).sum();
        // The intact copy of the damaged one stays.
        assert!(bytes < good.len() as u64 * 3 / 2, "{bytes}");
        fixture.nono(&["rollback", "verify", "latest"]).success();
        fs::remove_file(fixture.project().join("dir0/file4")).unwrap();
        fixture.nono(&["rollback", "restore", "latest"]).success();
        let restored = fs::read_to_string(fixture.project().join("dir0/file4")).unwrap();
        assert_eq!(restored, text(4, "first"));
    }
}

#[test]
fn what_is_no_pack_is_named_and_a_cleanup_moves_it_aside() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let packs = fixture.store().join("objects/packs");
    // The same name twice, as when a user puts a backup back.
    for round in 1..3 {
        fs::write(packs.join("a".repeat(32)), "cut short").unwrap();
        // A power failure leaves such a thing: no snapshot needs it, so nothing is damaged.
        let verified = fixture.nono(&["rollback", "verify", "latest"]).success();
        assert!(verified.stderr.contains("is damaged"), "{}", verified.stderr);
        snapshot(&fixture);
        cleanup(&fixture, &[]);
        fixture.nono(&["rollback", "verify", "latest"]).success();
        let quarantine = fs::read_dir(fixture.store().join("objects/quarantine")).unwrap();
        assert_eq!(quarantine.count(), round);
    }
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

/// Lets the reads of a pack fail, one after the other, in a cleanup of one session, and looks at
/// the others each time.
#[test]
fn one_error_of_the_disk_in_a_cleanup_takes_nothing_from_other_sessions() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    let kept = snapshot(&fixture);
    let pack = fixture.packs().remove(0);
    // Two snapshots at the same time store some objects in two packs.
    fs::copy(&pack, pack.with_file_name("f".repeat(32))).unwrap();
    fixture.write("dir0/file0", "for another session");
    let unneeded = snapshot(&fixture);
    let store = fixture.store();
    let before = fixture.path("before");
    copy(&store, &before);
    let trace = fixture.path("trace");
    for pack in fixture.packs() {
        for number in 1.. {
            assert!(number < 1000);
            fs::remove_dir_all(&store).unwrap();
            copy(&before, &store);
            let inject = format!("inject=pread64:error=EIO:when={number}");
            let (trace_path, pack) = (trace.to_str().unwrap(), pack.to_str().unwrap());
            let inject = ["-o", trace_path, "-P", pack, "-e", "trace=pread64", "-e", &inject];
            let arguments = ["rollback", "cleanup", &unneeded, "--yes", "--threads", "1"];
            let Some(done) = fixture.nono_with_failing_calls(&inject, &arguments) else { return };
            if !fs::read_to_string(&trace).unwrap().contains("INJECTED") {
                assert!(number > 5);
                done.success();
                break;
            }
            let told = format!("{number}: {}{}", done.stdout, done.stderr);
            let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
            // Done, or said that it is not. Strace counts for each thread, so there may be more
            // than one error.
            assert_eq!(
                list.as_array().unwrap().len(),
                if done.code == 0 { 1 } else { 2 },
                "{told}"
            );
            let verified = fixture.nono(&["rollback", "verify", "--all"]);
            assert_eq!(verified.code, 0, "{told}\n{}", verified.stdout);
            assert!(!store.join("objects/quarantine").exists(), "{told}");
            let out = fixture.path(&format!("out{number}"));
            fixture.nono(&["rollback", "restore", &kept, "--to", out.to_str().unwrap()]).success();
            assert_eq!(
                fs::read_to_string(out.join("dir0/file0")).unwrap(),
                text(0, "first"),
                "{told}"
            );
            fs::remove_dir_all(&out).unwrap();
        }
    }
}

#[test]
fn a_cleanup_removes_nothing_when_the_disk_does_not_give_a_pack() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let pack = fixture.packs().remove(0);
    fixture.write("dir0/file0", "for another session");
    let unneeded = snapshot(&fixture);
    let pack = pack.to_str().unwrap();
    let inject = ["-P", pack, "-e", "trace=pread64", "-e", "inject=pread64:error=EIO"];
    for how in ["--dry-run", "--yes"] {
        let arguments = ["rollback", "cleanup", &unneeded, how];
        let Some(done) = fixture.nono_with_failing_calls(&inject, &arguments) else { return };
        let told = done.fails(1, "verify --all --repair");
        assert!(told.stderr.contains("Input/output error"), "{}", told.stderr);
    }
    assert_eq!(fixture.packs().len(), 2);
    fixture.nono(&["rollback", "cleanup", &unneeded, "--yes"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn what_is_rotten_in_a_pack_in_quarantine_does_not_count_as_stored() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let pack = fixture.packs().remove(0);
    fs::copy(&pack, pack.with_file_name("f".repeat(32))).unwrap();
    damage(&pack, 3);
    let name = pack.file_name().unwrap().to_str().unwrap();
    let aside = fixture.store().join("objects/quarantine");
    fs::create_dir(&aside).unwrap();
    fs::rename(&pack, aside.join(format!("pack-{name}-0123456789abcdef"))).unwrap();
    // Damage in any session brings it back.
    fixture.write("other", "other");
    snapshot(&fixture);
    let names = fixture.packs();
    let other = names.iter().find(|path| !path.ends_with("f".repeat(32))).unwrap();
    tamper(other, |bytes| {
        let at = bytes.windows(5).position(|window| window == b"other").unwrap();
        bytes[at] ^= 1;
    });
    fixture.nono(&["rollback", "verify", "--all", "--repair"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
    // Nor when nothing else has it.
    fs::remove_file(pack.with_file_name("f".repeat(32))).unwrap();
    fixture.nono(&["rollback", "verify", "--all", "--repair"]).success();
    snapshot(&fixture);
    fixture.nono(&["rollback", "verify", "--all"]).success();
    assert_eq!(
        fs::read_dir(&aside)
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("pack-")
            })
            .count(),
        1
    );
}

#[test]
fn a_damaged_index_is_a_problem_even_if_everything_is_still_found() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let [pack] = &fixture.packs()[..] else { panic!() };
    tamper(pack, |bytes| {
        let checksum = bytes.len() - 5;
        bytes[checksum] ^= 0x11;
    });
    let verified = fixture.nono(&["rollback", "verify", "latest", "--json"]);
    assert_eq!(verified.code, 1);
    let problems = verified.json()["problems"].clone();
    assert_eq!(problems.as_array().unwrap().len(), 1, "{problems}");
    assert_eq!(problems[0]["kind"], "corrupt_pack", "{problems}");
    assert_eq!(problems[0]["on_disk"], pack.to_str().unwrap());
    fixture.nono(&["rollback", "verify", "latest", "--repair"]).success();
    fixture.nono(&["rollback", "verify", "latest"]).success();
    assert!(!pack.exists() && fixture.packs().len() == 1);
}

#[test]
fn what_stands_between_the_objects_of_a_pack_is_verified_and_made_right_again() {
    let fixture = Fixture::new().packed();
    project(&fixture);
    snapshot(&fixture);
    let state = observe(&fixture.project());
    let [pack] = &fixture.packs()[..] else { panic!() };
    let good = fs::read(pack).unwrap();
    let contents = text(7, "first");
    let found = |window: &[u8]| window == contents.as_bytes();
    let object = good.windows(contents.len()).position(found).unwrap();
    // Its name, and its length.
    for at in [object - 36, object - 1] {
        let [pack] = &fixture.packs()[..] else { panic!() };
        tamper(pack, |bytes| {
            bytes.clone_from(&good);
            bytes[at] ^= 0x10;
        });
        let verified = fixture.nono(&["rollback", "verify", "latest", "--json"]);
        assert_eq!(verified.code, 1);
        let problems = verified.json()["problems"].clone();
        assert_eq!(problems.as_array().unwrap().len(), 1, "{problems}");
        assert_eq!(problems[0]["kind"], "corrupt_pack", "{problems}");
        assert!(
            problems[0]["reason"].as_str().unwrap().contains("between its objects"),
            "{problems}"
        );
        // Nothing is lost, and what was damaged is kept.
        let told = fixture.nono(&["rollback", "verify", "latest", "--repair"]).success();
        assert!(told.says("quarantined: ") && !told.says("lost"), "{}", told.stdout);
        assert!(!pack.exists());
        fixture.nono(&["rollback", "verify", "latest"]).success();
    }
    // The new pack gives back everything without its index, too.
    let [pack] = &fixture.packs()[..] else { panic!() };
    fs::remove_dir_all(fixture.store().join("objects/quarantine")).unwrap();
    tamper(pack, |bytes| bytes.truncate(bytes.len() - 100));
    fs::remove_dir_all(fixture.project()).unwrap();
    fs::create_dir(fixture.project()).unwrap();
    fixture.nono(&["rollback", "verify", "latest", "--repair"]).success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&state, &observe(&fixture.project()));
}
