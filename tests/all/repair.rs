//! `nono verify --repair`: damaged objects are kept aside, existing copies are put back,
//! and losses are named.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nono_engine::object::ContentHash;
use nono_engine::store::{FoundObject, LocalStore, ObjectSource, StoreError};
use serde_json::Value;

use crate::fixture::{Finished, Fixture, settle};
use crate::not_run::needs_root;
use crate::observe::{assert_same, observe};

fn object_in(objects: &Path, hash: &str) -> PathBuf {
    objects.join(&hash[..2]).join(&hash[2..])
}

fn contents(fixture: &Fixture, bytes: &[u8]) -> PathBuf {
    object_in(&fixture.store().join("objects"), &ContentHash::of(bytes).hex())
}

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn repair(fixture: &Fixture, code: i32, more: &[&str]) -> Value {
    let arguments = ["rollback", "verify", "latest", "--repair", "--json"];
    let finished = fixture.nono(&[&arguments[..], more].concat());
    assert_eq!(finished.code, code, "{}{}", finished.stdout, finished.stderr);
    finished.json()
}

fn quarantine(fixture: &Fixture) -> Vec<Vec<u8>> {
    let Ok(names) = fs::read_dir(fixture.store().join("objects/quarantine")) else {
        return Vec::new();
    };
    let mut files: Vec<_> = names.map(|name| fs::read(name.unwrap().path()).unwrap()).collect();
    files.sort();
    files
}

#[test]
fn a_file_that_still_has_the_bytes_mends_its_object_and_the_damaged_one_is_kept() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.write("b", "beta");
    fixture.nono(&["snapshot"]).success();
    overwrite(&contents(&fixture, b"alpha"), b"alphA");
    fs::remove_file(contents(&fixture, b"beta")).unwrap();
    fixture.nono(&["rollback", "verify", "latest"]).fails(1, "");
    let report = repair(&fixture, 0, &[]);
    assert_eq!(report["ok"], true);
    let repaired = report["repair"]["repaired"].as_array().unwrap();
    assert_eq!(repaired.len(), 2);
    assert!(repaired.iter().all(|one| one["from"]["source"] == "file"), "{repaired:?}");
    assert_eq!(report["repair"]["lost"].as_array().unwrap().len(), 0);
    assert_eq!(fs::read(contents(&fixture, b"alpha")).unwrap(), b"alpha");
    assert_eq!(quarantine(&fixture), [b"alphA".to_vec()]);
    fixture.nono(&["rollback", "verify", "latest"]).success();
    // Nothing is left to do, and nothing is done.
    assert!(repair(&fixture, 0, &[]).get("repair").is_none());
}

#[test]
fn what_no_file_has_any_more_is_lost_and_named_with_every_snapshot_and_path() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.write("sub/same", "alpha");
    fixture.nono(&["snapshot"]).success();
    fixture.write("other", "x");
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture.write("a", "now something else");
    fixture.write("sub/same", "and here");
    overwrite(&contents(&fixture, b"alpha"), b"alphA");
    let report = repair(&fixture, 1, &[]);
    assert_eq!(report["ok"], false);
    let [lost] = &report["repair"]["lost"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(lost["object"], ContentHash::of(b"alpha").hex());
    assert_eq!(lost["snapshots"], serde_json::json!([0, 1]));
    let paths = ["a", "sub/same"].map(|name| fixture.project().join(name));
    assert_eq!(lost["paths"], serde_json::json!(paths));
    assert_eq!(quarantine(&fixture), [b"alphA".to_vec()]);
    let told = fixture.nono(&["rollback", "verify", "latest", "--repair"]);
    assert_eq!(told.code, 1);
    assert!(told.stdout.contains("lost for good: the contents of a file"), "{}", told.stdout);
    // The same bytes somewhere else in the project, under another name, bring it back.
    fixture.write("moved/elsewhere", "alpha");
    let report = repair(&fixture, 0, &[]);
    assert_eq!(report["repair"]["repaired"][0]["from"]["source"], "recaptured");
    // After a loss, a snapshot does not count on what the stat cache remembers.
    fixture.nono(&["snapshot", "--session", "latest"]).success();
    fixture.nono(&["rollback", "verify", "latest"]).success();
}

#[test]
fn a_snapshot_after_a_loss_does_not_name_what_is_lost() {
    let fixture = Fixture::new();
    fixture.write("dir/a", "alpha");
    // Until the file is old enough for the stat cache to know it.
    settle();
    for _ in 0..2 {
        fixture.nono(&["snapshot"]).success();
    }
    fs::remove_file(contents(&fixture, b"alpha")).unwrap();
    // Out of reach while it is repaired, and back as it was.
    let hidden = fixture.path("hidden");
    // (Of the directory, so that nothing about the file itself changes.)
    fs::rename(fixture.project().join("dir"), &hidden).unwrap();
    repair(&fixture, 1, &[]);
    fs::rename(&hidden, fixture.project().join("dir")).unwrap();
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["rollback", "verify", "latest"]).success();
}

#[test]
fn the_list_of_a_directory_is_made_again_from_a_directory_in_the_same_state() {
    let fixture = Fixture::new();
    fixture.write("sub/deep/a", "alpha");
    fixture.write("sub/b", "beta");
    let linked = fixture.write("linked", "linked");
    fs::hard_link(&linked, fixture.project().join("second")).unwrap();
    let before = observe(&fixture.project());
    fixture.nono(&["snapshot"]).success();
    // Every object that is a list, the root of all included.
    let objects = fixture.store().join("objects");
    let mut lists = 0;
    for prefix in fs::read_dir(&objects).unwrap().map(|name| name.unwrap().path()) {
        let Ok(names) = fs::read_dir(&prefix) else { continue };
        for path in names.map(|name| name.unwrap().path()) {
            let bytes = fs::read(&path).unwrap();
            if [&b"nonotree"[..], b"nonoroot", b"nonolink"].iter().any(|m| bytes.starts_with(m)) {
                lists += 1;
                overwrite(&path, b"garbage");
            }
        }
    }
    assert_eq!(lists, 5);
    let report = repair(&fixture, 0, &[]);
    assert!(report["repair"]["lost"].as_array().unwrap().is_empty(), "{report}");
    assert_eq!(quarantine(&fixture).len(), 5);
    fs::remove_dir_all(fixture.project().join("sub")).unwrap();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
}

/// Objects of their own that begin with these bytes.
fn objects_that_begin(fixture: &Fixture, magic: &[u8]) -> Vec<PathBuf> {
    let prefixes = fs::read_dir(fixture.store().join("objects")).unwrap();
    let names = prefixes.filter_map(|prefix| fs::read_dir(prefix.unwrap().path()).ok()).flatten();
    let paths = names.map(|name| name.unwrap().path());
    paths.filter(|path| fs::read(path).unwrap().starts_with(magic)).collect()
}

/// A file that is verified piece by piece.
fn long(byte: u8) -> Vec<u8> {
    vec![byte; (5 << 20) + 1]
}

/// Gives all objects files of their own, as where blocks are shared.
fn unpack(fixture: &Fixture) {
    let objects = fixture.store().join("objects");
    let store = LocalStore::open(&objects).unwrap();
    let mut all = Vec::new();
    let note = |found: FoundObject| {
        all.push(found.hash);
        Ok::<_, StoreError>(())
    };
    store.for_each_object(note).unwrap();
    for hash in all {
        let (name, bytes) = (hash.hex(), store.read(&hash, 1 << 30).unwrap());
        fs::create_dir_all(objects.join(&name[..2])).unwrap();
        fs::write(objects.join(&name[..2]).join(&name[2..]), bytes).unwrap();
    }
    fixture.packs().iter().for_each(|pack| fs::remove_file(pack).unwrap());
}

#[test]
fn midstates_are_made_again_from_the_contents() {
    let fixture = Fixture::new();
    fixture.write("long", long(1));
    fixture.nono(&["snapshot"]).success();
    fixture.write("long", "short");
    unpack(&fixture);
    let [midstates] = &objects_that_begin(&fixture, b"nonomids")[..] else { panic!() };
    let right = fs::read(midstates).unwrap();
    for damage in [None, Some(b"nonomids".as_slice())] {
        fs::remove_file(midstates).unwrap();
        damage.iter().for_each(|bytes| fs::write(midstates, bytes).unwrap());
        let damaged = fixture.nono(&["rollback", "verify", "latest", "--json"]);
        assert_eq!(damaged.json()["problems"][0]["used_as"], "midstates");
        let report = repair(&fixture, 0, &[]);
        assert_eq!(report["ok"], true);
        let repaired = report["repair"]["repaired"].as_array().unwrap();
        assert_eq!(repaired.len(), 1);
        assert_eq!(repaired[0]["from"]["source"], "store");
        assert_eq!(fs::read(midstates).unwrap(), right);
    }
    assert_eq!(quarantine(&fixture), [b"nonomids".to_vec()]);
}

#[test]
fn midstates_that_are_gone_are_stored_again_by_the_next_snapshot() {
    let fixture = Fixture::new();
    fixture.write("long", long(1));
    settle();
    fixture.nono(&["snapshot"]).success();
    fixture.nono(&["snapshot"]).success();
    unpack(&fixture);
    let [midstates] = &objects_that_begin(&fixture, b"nonomids")[..] else { panic!() };
    fs::remove_file(midstates).unwrap();
    let taken = fixture.nono(&["snapshot"]).success();
    assert!(taken.stderr.contains("missing from the store"), "{}", taken.stderr);
    // In a file of their own, or in the pack of the list that the long file has now.
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn midstates_go_with_the_last_session_that_needs_them() {
    let fixture = Fixture::new();
    for byte in 1..=2 {
        fixture.write("long", long(byte));
        fixture.nono(&["snapshot"]).success();
    }
    unpack(&fixture);
    assert_eq!(objects_that_begin(&fixture, b"nonomids").len(), 2);
    fixture.nono(&["rollback", "cleanup", "--keep", "1", "--yes"]).success();
    assert_eq!(objects_that_begin(&fixture, b"nonomids").len(), 1);
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn another_store_has_a_good_copy_and_is_not_trusted() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.write("b", "beta");
    fixture.nono(&["snapshot"]).success();
    let backup = fixture.path("backup");
    let copied = Command::new("cp").arg("-a").arg(fixture.store()).arg(&backup).status().unwrap();
    assert!(copied.success());
    let report_of = |from: &Path| {
        fs::write(fixture.project().join("a"), "1").unwrap();
        fs::write(fixture.project().join("b"), "2").unwrap();
        overwrite(&contents(&fixture, b"alpha"), b"alphA");
        fs::remove_file(contents(&fixture, b"beta")).unwrap();
        let from = from.to_str().unwrap();
        let arguments = ["rollback", "verify", "latest", "--repair", "--json", "--from", from];
        fixture.nono(&arguments)
    };
    let session = backup.join(fixture.latest());
    for from in [&backup, &session, &backup.join("objects")] {
        let report = report_of(from).success().json();
        let repaired = report["repair"]["repaired"].as_array().unwrap();
        assert!(repaired.iter().all(|one| one["from"]["source"] == "store"), "{repaired:?}");
    }
    // Now the copies lie: one has other bytes of the same length, the other is a link.
    let objects = backup.join("objects");
    overwrite(&object_in(&objects, &ContentHash::of(b"alpha").hex()), b"evil!");
    let beta = object_in(&objects, &ContentHash::of(b"beta").hex());
    fs::remove_file(&beta).unwrap();
    symlink("/dev/zero", &beta).unwrap();
    let refused = report_of(&backup);
    assert_eq!(refused.code, 1);
    assert_eq!(refused.json()["repair"]["lost"].as_array().unwrap().len(), 2);
    fixture
        .nono(&["rollback", "verify", "latest", "--repair", "--from", "/nowhere"])
        .fails(1, "/nowhere");
}

/// Such a file takes no space, and no reader comes to the end of it.
fn claim_petabytes(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::File::create(path).unwrap().set_len(1 << 50).unwrap();
}

#[test]
fn an_object_and_a_copy_that_claim_petabytes_are_not_read() {
    // On tmpfs, which lets a file be that long.
    let fixture = Fixture::in_memory();
    fixture.write("a", "alpha");
    fixture.nono(&["snapshot"]).success();
    let backup = fixture.path("backup");
    let copied = Command::new("cp").arg("-a").arg(fixture.store()).arg(&backup).status().unwrap();
    assert!(copied.success());
    claim_petabytes(&object_in(&backup.join("objects"), &ContentHash::of(b"alpha").hex()));
    claim_petabytes(&contents(&fixture, b"alpha"));
    let checked = fixture.nono(&["rollback", "verify", "latest"]);
    checked.fails(1, "");
    let from = backup.to_str().unwrap();
    // The file itself still has the bytes.
    let report = repair(&fixture, 0, &["--from", from]);
    assert_eq!(report["repair"]["repaired"].as_array().unwrap().len(), 1, "{report}");
    claim_petabytes(&contents(&fixture, b"alpha"));
    fixture.write("a", "changed");
    // A restore keeps nothing that it cannot bring back, and says so.
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "");
    let report = repair(&fixture, 1, &["--from", from]);
    assert_eq!(report["repair"]["lost"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn sessions_of_the_older_place_are_looked_at_too() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    let legacy = fixture.path("home/.nono/undo");
    let legacy = legacy.to_str().unwrap();
    fixture.nono(&["snapshot", "--root", legacy]).success();
    fixture.nono(&["snapshot"]).success();
    let id = fs::read_dir(fixture.store())
        .unwrap()
        .map(|name| name.unwrap().file_name().into_string().unwrap())
        .find(|name| name.starts_with("20"))
        .unwrap();
    fixture.write("a", "something else");
    overwrite(&contents(&fixture, b"alpha"), b"");
    let report = fixture.nono(&["rollback", "verify", &id, "--repair", "--json"]).success().json();
    let from = report["repair"]["repaired"][0]["from"]["path"].as_str().unwrap();
    assert!(from.contains("/.nono/undo/"), "{from}");
}

#[test]
fn damaged_manifests_are_replaced_made_again_or_kept_aside() {
    let fixture = Fixture::new();
    for content in ["1", "2", "3"] {
        fixture.write("a", content);
        let arguments: &[&str] =
            if content == "1" { &["snapshot"] } else { &["snapshot", "--session", "latest"] };
        fixture.nono(arguments).success();
    }
    let id = fixture.latest();
    let session = fixture.session();
    let backup = fixture.path("backup");
    let copied = Command::new("cp").arg("-a").arg(fixture.store()).arg(&backup).status().unwrap();
    assert!(copied.success());
    let verify = |more: &[&str]| fixture.nono(&[&["rollback", "verify", &id], more].concat());
    // By hash, from another store.
    let middle = session.join("snapshots/1/manifest.json");
    overwrite(&middle, b"{");
    let from = backup.to_str().unwrap();
    verify(&["--repair", "--from", from]).success();
    // The session's own manifest, from its snapshots.
    overwrite(&session.join("manifest.json"), b"{");
    verify(&["--repair"]).success();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["snapshot_count"], 3);
    fixture.nono(&["rollback", "restore", &id, "--snapshot", "0", "--force"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    // A readable file that is not the noted one stays: it is unknown which of them is right.
    let good = fs::read(&middle).unwrap();
    let edited = String::from_utf8(good.clone())
        .unwrap()
        .replace("\"total_bytes\": 1", "\"total_bytes\": 2");
    overwrite(&middle, edited.as_bytes());
    let kept = verify(&["--repair", "--json"]);
    assert_eq!(kept.code, 1);
    assert_eq!(kept.json()["repair"]["lost"][0]["what"], "the manifest of snapshot 1");
    assert_eq!(fs::read(&middle).unwrap(), edited.as_bytes());
    // A file that cannot be read, and that no other store has, is moved.
    overwrite(&middle, b"\0");
    assert_eq!(verify(&["--repair"]).code, 1);
    assert!(!middle.exists());
    let aside = fs::read_dir(session.join("quarantine")).unwrap().count();
    assert_eq!(aside, 3);
    verify(&["--repair", "--from", from]).success();
    assert_eq!(fs::read(&middle).unwrap(), good);
}

#[test]
fn an_object_that_merely_may_not_be_read_is_not_moved() {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes files of two users");
        return;
    }
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "alpha");
    fixture.nono(&["snapshot"]).success();
    let object = contents(&fixture, b"alpha");
    std::os::unix::fs::chown(&object, Some(0), Some(0)).unwrap();
    let report = repair(&fixture, 1, &[]);
    assert!(report["repair"]["quarantined"].as_array().unwrap().is_empty(), "{report}");
    assert!(object.exists());
    let reason = report["repair"]["lost"][0]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("ermission"), "{reason}");
    assert_eq!(report["repair"]["lost"][0]["is_unreadable"], true);
    let told = fixture.nono(&["rollback", "verify", "latest", "--repair"]).fails(1, "");
    assert!(told.stdout.contains("cannot be read: the contents of a file"), "{}", told.stdout);
}

/// Runs nono with a disk that gives nothing of a file. `None`, and said so, where that cannot be
/// arranged.
fn on_bad_disk(fixture: &Fixture, file: &Path, arguments: &[&str]) -> Option<Finished> {
    let file = file.to_str().unwrap();
    let inject = ["-e", "trace=pread64,read", "-e", "inject=pread64,read:error=EIO", "-P", file];
    fixture.nono_with_failing_calls(&inject, arguments)
}

#[test]
fn an_object_that_the_disk_does_not_give_is_not_lost() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "omega");
    let object = contents(&fixture, b"alpha");
    let arguments = ["rollback", "verify", "--all", "--repair"];
    let Some(told) = on_bad_disk(&fixture, &object, &arguments) else { return };
    let told = told.fails(1, "").stdout;
    assert!(told.contains("cannot be read: the contents of a file"), "{told}");
    assert!(told.contains("no good copy of it was found"), "{told}");
    assert!(object.exists() && quarantine(&fixture).is_empty());
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn an_object_that_the_disk_does_not_give_is_replaced_by_a_good_copy() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.nono(&["snapshot"]).success();
    let object = contents(&fixture, b"alpha");
    let arguments = ["rollback", "verify", "--all", "--repair"];
    let Some(told) = on_bad_disk(&fixture, &object, &arguments) else { return };
    // The copy has the name by which the disk is told to be bad, and it ends all the same.
    assert!(told.stdout.contains("repaired: object"), "{}{}", told.stdout, told.stderr);
    assert!(told.stdout.contains("quarantined: "), "{}", told.stdout);
    assert!(quarantine(&fixture).iter().all(|kept| kept == b"alpha"));
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

/// A session with a pack of two hundred files, which are different now, and the pack.
fn packed() -> (Fixture, PathBuf) {
    let fixture = Fixture::new().packed();
    for n in 0..200 {
        fixture.write(&format!("d{}/{n}", n % 3), format!("number {n}"));
    }
    fixture.nono(&["snapshot"]).success();
    for n in 0..200 {
        fixture.write(&format!("d{}/{n}", n % 3), format!("not {n}"));
    }
    let pack = fixture.packs().remove(0);
    (fixture, pack)
}

#[test]
fn what_the_disk_did_not_give_of_a_pack_is_found_by_the_next_repair() {
    let (fixture, pack) = packed();
    let arguments = ["rollback", "verify", "--all", "--repair"];
    let Some(told) = on_bad_disk(&fixture, &pack, &arguments) else { return };
    let told = told.fails(1, "").stdout;
    assert!(
        told.contains("the disk does not give all of") && told.contains("/quarantine/pack-"),
        "{told}"
    );
    assert!(!told.contains("lost for good"), "{told}");
    assert!(!pack.exists());
    let report = repair(&fixture, 0, &[]);
    assert!(report["repair"]["lost"].as_array().unwrap().is_empty(), "{report}");
    assert!(!pack.exists() && fixture.packs().len() == 1);
    fixture.nono(&["rollback", "verify", "--all"]).success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read(fixture.project().join("d2/5")).unwrap(), b"number 5");
}

#[test]
fn a_pack_in_quarantine_that_is_still_damaged_is_salvaged_once_and_what_it_has_not_is_lost() {
    let (fixture, pack) = packed();
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(10).position(|window| window == b"number 150").unwrap();
    bytes[at] ^= 1;
    bytes.truncate(bytes.len() - 7);
    overwrite(&pack, &bytes);
    for _ in 0..2 {
        let report = repair(&fixture, 1, &[]);
        let [lost] = &report["repair"]["lost"].as_array().unwrap()[..] else { panic!("{report}") };
        assert_eq!(lost["object"], ContentHash::of(b"number 150").hex());
        assert_eq!(lost["is_unreadable"], false);
        assert_eq!(quarantine(&fixture), [&*bytes]);
        // The rest is in one other, and no third.
        assert_eq!(fixture.packs().len(), 1);
    }
}

#[test]
fn what_was_put_aside_and_is_intact_is_taken_back() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.write("b", "beta");
    fixture.nono(&["snapshot"]).success();
    fixture.write("a", "omega");
    fixture.write("b", "omega");
    let aside = fixture.store().join("objects/quarantine");
    fs::create_dir(&aside).unwrap();
    for (content, kept) in [("alpha", "alpha"), ("beta", "betA")] {
        let object = contents(&fixture, content.as_bytes());
        overwrite(&object, kept.as_bytes());
        let hash = ContentHash::of(content.as_bytes()).hex();
        fs::rename(&object, aside.join(format!("{hash}-0123456789abcdef"))).unwrap();
    }
    let report = repair(&fixture, 1, &[]);
    let [repaired] = &report["repair"]["repaired"].as_array().unwrap()[..] else {
        panic!("{report}")
    };
    assert!(repaired["from"]["path"].as_str().unwrap().contains("/quarantine/"), "{report}");
    let [lost] = &report["repair"]["lost"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(lost["object"], ContentHash::of(b"beta").hex());
    assert_eq!(fs::read(contents(&fixture, b"alpha")).unwrap(), b"alpha");
    assert_eq!(quarantine(&fixture), [b"alpha".to_vec(), b"betA".to_vec()]);
}

#[test]
fn cleanup_keeps_what_is_in_quarantine_as_long_as_a_session_needs_the_object() {
    let fixture = Fixture::new();
    fixture.write("a", "alpha");
    fixture.nono(&["snapshot"]).success();
    overwrite(&contents(&fixture, b"alpha"), b"alphA");
    repair(&fixture, 0, &[]);
    fixture.nono(&["rollback", "cleanup", "--yes"]).success();
    assert_eq!(quarantine(&fixture).len(), 1);
    fixture.nono(&["rollback", "cleanup", "--yes", &fixture.latest()]).success();
    assert_eq!(quarantine(&fixture).len(), 0);
}

#[test]
fn a_repair_killed_at_any_point_is_done_by_the_next_one() {
    let fixture = Fixture::in_memory();
    fixture.write("sub/a", "alpha");
    fixture.write("b", "beta");
    fixture.nono(&["snapshot"]).success();
    let objects = fixture.store().join("objects");
    let id = fixture.latest();
    overwrite(&contents(&fixture, b"alpha"), b"alphA");
    overwrite(&contents(&fixture, b"beta"), b"");
    for prefix in fs::read_dir(&objects).unwrap().map(|name| name.unwrap().path()) {
        let Ok(names) = fs::read_dir(&prefix) else { continue };
        for path in names.map(|name| name.unwrap().path()) {
            if fs::read(&path).unwrap().starts_with(b"nonotree") {
                overwrite(&path, b"garbage");
            }
        }
    }
    overwrite(&fixture.session().join("manifest.json"), b"{");
    let pristine = fixture.path("pristine");
    let copy = |from: &Path, to: &Path| {
        if to.exists() {
            fs::remove_dir_all(to).unwrap();
        }
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&fixture.store(), &pristine);
    let arguments = ["rollback", "verify", &id, "--repair"];
    let mut point = 1;
    loop {
        copy(&pristine, &fixture.store());
        let mut command = fixture.command(&arguments);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal() != Some(9) {
            assert!(output.status.success(), "at point {point}: {output:?}");
            break;
        }
        // The session is there at any time, and nothing damaged is lost.
        assert!(fixture.store().join(&id).join("manifest.json").exists(), "at point {point}");
        fixture.nono(&arguments).success();
        for bytes in [&b"alphA"[..], b"", b"garbage"] {
            assert!(quarantine(&fixture).iter().any(|kept| kept == bytes), "at point {point}");
        }
        point += 1;
    }
    assert!(point > 30, "{point}");
    eprintln!("repair: killed at {} points", point - 1);
}
