//! Long files that are stored in chunks: everything that is true of other files is true of them.
//!
//! Only where the file system cannot share blocks: elsewhere the tests say that they did not run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::fixture::{Fixture, noise};
use crate::not_run::not_run;
use crate::observe::{assert_same, observe};

const LEN: usize = 6 << 20;

fn snapshot(fixture: &Fixture) -> String {
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    taken["session_id"].as_str().unwrap().to_owned()
}

/// A project with a long file that was recorded in chunks. `None`: it was not, because blocks are
/// shared here.
fn recorded() -> Option<(Fixture, Vec<u8>, String)> {
    let fixture = Fixture::new();
    let bytes = noise(LEN, 1);
    fixture.write("long", &bytes);
    fixture.write("short", "short");
    let session = snapshot(&fixture);
    let is_own = own_file(&fixture, &bytes).exists();
    if is_own {
        not_run("the file system shares blocks, so nothing is cut into chunks");
        return None;
    }
    Some((fixture, bytes, session))
}

fn own_file(fixture: &Fixture, bytes: &[u8]) -> PathBuf {
    let name = nono_engine::object::ContentHash::of(bytes).hex();
    fixture.store().join("objects").join(&name[..2]).join(&name[2..])
}

/// Bytes of all that the store has.
pub fn stored_bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => stored_bytes(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

fn flip_byte(pack: &Path, at: usize) {
    let mut bytes = fs::read(pack).unwrap();
    bytes[at] ^= 1;
    fs::set_permissions(pack, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(pack, bytes).unwrap();
}

#[test]
fn versions_of_a_long_file_share_what_did_not_change_and_all_come_back() {
    let Some((fixture, mut bytes, session)) = recorded() else { return };
    let objects = fixture.store().join("objects");
    let mut versions = vec![bytes.clone()];
    let before = stored_bytes(&objects);
    for version in 2..6 {
        bytes.splice(1000..1000, noise(100, version));
        bytes.extend(noise(10_000, version));
        fixture.write("long", &bytes);
        fixture.nono(&["snapshot", "--session", &session]).success();
        versions.push(bytes.clone());
    }
    let added = stored_bytes(&objects) - before;
    assert!(added < 4 * 600_000, "{added} bytes for four small changes");
    fixture.nono(&["rollback", "verify", &session]).success();
    for (number, version) in versions.iter().enumerate() {
        fixture.nono(&["rollback", "restore", &format!("{session}/{number}"), "--force"]).success();
        assert!(fs::read(fixture.project().join("long")).unwrap() == *version, "{number}");
    }
    let shown = fixture.nono(&["rollback", "diff", &format!("{session}/0"), &session]);
    assert!(shown.stdout.contains("long"), "{}", shown.stdout);
}

#[test]
fn the_largest_files_count_each_chunk_of_their_versions_once() {
    let Some((fixture, mut bytes, _)) = recorded() else { return };
    for at in 1..4 {
        bytes[at << 20] ^= 1;
        fixture.write("long", &bytes);
        snapshot(&fixture);
    }
    let usage = fixture.nono(&["rollback", "usage", "--json"]).success().json();
    let long = &usage["largest_paths"][0];
    assert_eq!(long["path"], fixture.project().join("long").to_str().unwrap());
    assert_eq!(long["versions"], 4);
    let plain = long["plain_bytes"].as_u64().unwrap();
    assert!((LEN as u64..2 * LEN as u64).contains(&plain), "{usage}");
    assert!(plain <= usage["plain_bytes"].as_u64().unwrap());
}

#[test]
fn a_cleanup_keeps_the_chunks_that_are_needed_and_frees_the_others() {
    let Some((fixture, first, old)) = recorded() else { return };
    let mut second = first.clone();
    second.truncate(LEN / 2);
    second.extend(noise(LEN / 2, 7));
    fixture.write("long", &second);
    let new = snapshot(&fixture);
    let objects = fixture.store().join("objects");
    let before = stored_bytes(&objects);
    fixture.nono(&["rollback", "cleanup", "--yes", &old]).success();
    fixture.nono(&["rollback", "cleanup", "--yes", "--compact"]).success();
    let after = stored_bytes(&objects);
    let freed = before - after;
    assert!(freed > LEN as u64 / 2 - 300_000 && freed < LEN as u64 / 2 + 300_000, "{freed}");
    fixture.nono(&["rollback", "verify", &new]).success();
    fs::remove_file(fixture.project().join("long")).unwrap();
    fixture.nono(&["rollback", "restore", &new]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == second);
    // The rest goes with its session.
    fixture.nono(&["rollback", "cleanup", "--yes", &new]).success();
    assert!(stored_bytes(&objects) < 100_000, "{}", stored_bytes(&objects));
}

#[test]
fn a_damaged_chunk_is_found_named_and_mended_from_the_project() {
    let Some((fixture, bytes, session)) = recorded() else { return };
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    flip_byte(pack, LEN / 2);
    let found = fixture.nono(&["rollback", "verify", &session]);
    assert!(found.says("long"), "{}", found.stdout);
    fixture.nono(&["rollback", "verify", &session]).fails(1, "");
    // A file that cannot be proved is not given back.
    fs::remove_file(fixture.project().join("long")).unwrap();
    let restored = fixture.nono(&["rollback", "restore", &session, "--force", "long"]);
    assert!(!fixture.project().join("long").exists(), "{}", restored.stderr);
    fixture.write("long", &bytes);
    fixture.nono(&["rollback", "verify", "--repair", &session]).success();
    fixture.nono(&["rollback", "verify", &session]).success();
    fs::remove_file(fixture.project().join("long")).unwrap();
    fixture.nono(&["rollback", "restore", &session]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == bytes);
}

#[test]
fn a_new_snapshot_does_not_rely_on_a_chunk_that_was_found_damaged() {
    let Some((fixture, mut bytes, session)) = recorded() else { return };
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    flip_byte(pack, LEN / 2);
    // Nothing has the old contents any more; the new ones have the chunk that is damaged.
    bytes.extend_from_slice(b"and more");
    fixture.write("long", &bytes);
    let repaired = fixture.nono(&["rollback", "verify", "--repair", &session]);
    assert!(repaired.says("long"), "{}", repaired.stdout);
    let new = snapshot(&fixture);
    fixture.nono(&["rollback", "verify", &new]).success();
    fs::remove_file(fixture.project().join("long")).unwrap();
    fixture.nono(&["rollback", "restore", &new, "--force"]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == bytes);
}

/// The short names of what is in quarantine.
fn quarantined(fixture: &Fixture) -> Vec<PathBuf> {
    let Ok(names) = fs::read_dir(fixture.store().join("objects/quarantine")) else {
        return Vec::new();
    };
    names.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_repair_takes_a_damaged_chunk_alone_and_the_next_snapshot_that_has_it_mends_the_old_version() {
    let Some((fixture, old, session)) = recorded() else { return };
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    let before = stored_bytes(&fixture.store().join("objects/packs"));
    flip_byte(pack, LEN / 2);
    fs::remove_file(fixture.project().join("long")).unwrap();
    let repaired = fixture.nono(&["rollback", "verify", "--repair", &session]);
    assert_eq!(repaired.code, 1);
    assert!(repaired.says("lost for good") && repaired.says("long"), "{}", repaired.stdout);
    // The chunk alone is set aside, with all its bytes.
    let [aside] = &quarantined(&fixture)[..] else { panic!("{:?}", quarantined(&fixture)) };
    let damaged = fs::read(aside).unwrap();
    assert!((16_000..=128 << 10).contains(&damaged.len()), "{}", damaged.len());
    let differing = |window: &[u8]| window.iter().zip(&damaged).filter(|(a, b)| a != b).count();
    assert!(
        old.windows(damaged.len())
            .any(|window| window[..32] == damaged[..32] && differing(window) == 1)
    );
    let gone = before - stored_bytes(&fixture.store().join("objects/packs"));
    assert!(gone < damaged.len() as u64 + 10_000, "{gone}");
    // Again, and the collector: nothing more goes.
    fixture.nono(&["rollback", "verify", "--repair", &session]).fails(1, "");
    fixture.nono(&["rollback", "cleanup", "--yes", "--compact"]).success();
    fixture.nono(&["rollback", "usage"]).success();
    assert_eq!(quarantined(&fixture).len(), 1);
    // Another version, that has the chunk.
    let mut new = old.clone();
    new.push(b'x');
    fixture.write("long", &new);
    snapshot(&fixture);
    fixture.nono(&["rollback", "verify", &session]).success();
    let again = fixture.nono(&["rollback", "verify", "--repair", &session]).success();
    assert!(!again.says("lost for good"), "{}", again.stdout);
    fixture.nono(&["rollback", "restore", &session, "--force"]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == old);
}

#[test]
fn an_archive_of_damaged_contents_is_refused_and_names_the_file() {
    let Some((fixture, _, session)) = recorded() else { return };
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    flip_byte(pack, LEN / 2);
    let archive = fixture.path("archive");
    let to = archive.to_str().unwrap();
    let created = fixture.nono(&["archive", "create", &session, "--output", to]);
    assert_eq!(created.code, 1, "{}", created.stderr);
    assert!(created.stderr.contains("/long"), "{}", created.stderr);
    assert!(!archive.exists());
}

#[test]
fn a_repair_takes_a_missing_chunk_from_another_version_of_the_file() {
    let Some((fixture, old, session)) = recorded() else { return };
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    flip_byte(pack, LEN / 2);
    let mut new = old.clone();
    new.push(b'x');
    fixture.write("long", &new);
    fixture.nono(&["rollback", "verify", "--repair", &session]).success();
    fixture.nono(&["rollback", "verify", &session]).success();
    assert!(!own_file(&fixture, &old).exists());
    fixture.nono(&["rollback", "restore", &session, "--force"]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == old);
}

/// A list of lost chunks may stay beside the whole one that took its place. Which of them is found
/// first depends on the names and times of the packs.
#[test]
fn a_long_list_of_names_that_a_repair_stored_anew_is_whole_in_every_copy_of_the_store() {
    let fixture = Fixture::new();
    for number in 0..1500 {
        fixture.write(&format!("{number:04}{}", "x".repeat(180)), "a file");
    }
    for name in ["first", "second", "third"] {
        fixture.write(name, name);
        fixture.nono(&["snapshot"]).success();
    }
    let copy = |to: &str| {
        let to = fixture.path(to);
        let mut copying = std::process::Command::new("cp");
        assert!(copying.arg("-a").arg(fixture.store()).arg(&to).status().unwrap().success());
        to.to_str().unwrap().to_owned()
    };
    let clean = copy("clean");
    let largest = |pack: &PathBuf| fs::metadata(pack).unwrap().len();
    let pack = fixture.packs().into_iter().max_by_key(largest).unwrap();
    flip_byte(&pack, largest(&pack) as usize / 2);
    fixture.nono(&["rollback", "verify", "--all", "--repair", "--from", &clean]).success();
    fixture.nono(&["rollback", "cleanup", "--compact", "--yes"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
    for number in 0..4 {
        let root = copy(&format!("copy{number}"));
        fixture.nono(&["--root", &root, "rollback", "verify", "--all"]).success();
    }
}

#[test]
fn a_pack_that_lost_its_index_gives_its_long_files_back() {
    let Some((fixture, _, session)) = recorded() else { return };
    let before = observe(&fixture.project());
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    let whole = fs::read(pack).unwrap();
    fs::set_permissions(pack, PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(pack, &whole[..whole.len() - 100]).unwrap();
    fs::remove_file(fixture.project().join("long")).unwrap();
    fixture.nono(&["rollback", "verify", "--repair", &session]).success();
    fixture.nono(&["rollback", "restore", &session]).success();
    assert_same(&before, &observe(&fixture.project()));
}

/// The programs in the documentation, one after the other.
#[test]
fn the_documentation_puts_a_long_file_together_without_nono() {
    let Some((fixture, bytes, _)) = recorded() else { return };
    let [pack] = &fixture.packs()[..] else { panic!("{:?}", fixture.packs()) };
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md");
    let page = fs::read_to_string(page).unwrap();
    let mut programs = page.split("```python\n").skip(1).map(|rest| rest.split("```").next());
    let target = fixture.path("taken-out");
    fs::create_dir(&target).unwrap();
    for arguments in [vec![pack, &target], vec![&target]] {
        let program = programs.next().flatten().unwrap();
        let mut python = std::process::Command::new("python3");
        assert!(python.args(["-c", program]).args(arguments).status().unwrap().success());
    }
    let name = nono_engine::object::ContentHash::of(&bytes).hex();
    assert!(fs::read(target.join(name)).unwrap() == bytes);
}

/// The store of the first run of a project, before anything was packed.
fn ran(fixture: &Fixture, script: &str) {
    let run = ["run", "--rollback", "--no-sandbox", "--no-rollback-prompt", "--", "sh", "-c"];
    fixture.nono(&[&run[..], &[script]].concat()).success();
}

#[test]
fn a_first_run_packs_long_files_while_its_command_is_at_work() {
    // Whether blocks are shared.
    let Some(_) = recorded() else { return };
    let fixture = Fixture::new();
    let bytes = noise(LEN, 2);
    fixture.write("long", &bytes);
    let own = own_file(&fixture, &bytes);
    let own = own.to_str().unwrap();
    // The command sees the file of the state before, and waits until it is packed.
    let wait = "while [ -e \"$0\" ]; do read -t 0.05 nothing < /dev/zero || :; done";
    let script = format!("echo changed > long; timeout 60 bash -c '{wait}' {own}");
    ran(&fixture, &script);
    assert!(!fixture.packs().is_empty());
    fixture.nono(&["rollback", "verify"]).success();
    fixture.nono(&["undo", "--yes"]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == bytes);
}

#[test]
fn runs_leave_a_long_file_once_however_short_they_are() {
    let Some(_) = recorded() else { return };
    // In memory each snapshot reads each file; elsewhere it reads one that was touched.
    for fixture in [Fixture::in_memory(), Fixture::new()] {
        let bytes = noise(LEN, 4);
        fixture.write("long", &bytes);
        fixture.write("long too", noise(LEN, 5));
        for _ in 0..3 {
            ran(&fixture, "touch long 'long too'");
            let stored = stored_bytes(&fixture.store().join("objects"));
            assert!(stored < 2 * LEN as u64 + (1 << 20), "{stored}");
        }
        fixture.nono(&["rollback", "verify", "--all"]).success();
        fs::remove_file(fixture.project().join("long")).unwrap();
        fixture.nono(&["rollback", "restore", "latest", "--force"]).success();
        assert!(fs::read(fixture.project().join("long")).unwrap() == bytes);
    }
}

#[test]
fn what_no_command_waited_for_is_packed_by_a_cleanup_that_compacts() {
    let Some(_) = recorded() else { return };
    let fixture = Fixture::new();
    let bytes = [noise(LEN, 3), noise(LEN, 3)].concat();
    fixture.write("long", &bytes);
    ran(&fixture, "true");
    let objects = fixture.store().join("objects");
    let before = stored_bytes(&objects);
    let cleaned = fixture.nono(&["rollback", "cleanup", "--yes", "--compact", "--json"]).success();
    let shrunk = cleaned.json()["bytes_shrunk"].as_u64().unwrap();
    let difference = before.abs_diff(stored_bytes(&objects)).abs_diff(shrunk);
    assert!(shrunk > 0 && difference < 10_000, "{shrunk}, {difference}");
    assert!(!own_file(&fixture, &bytes).exists() && !fixture.packs().is_empty());
    fs::remove_file(fixture.project().join("long")).unwrap();
    fixture.nono(&["rollback", "restore", "latest", "--force"]).success();
    assert!(fs::read(fixture.project().join("long")).unwrap() == bytes);
}

#[test]
fn a_kill_while_long_files_are_packed_loses_nothing() {
    let Some(_) = recorded() else { return };
    for round in 0..8_u64 {
        let fixture = Fixture::new();
        let contents: Vec<_> = (0..8).map(|number| noise(1 << 20, 100 + number)).collect();
        for (number, bytes) in contents.iter().enumerate() {
            fixture.write(&format!("long{number}"), bytes);
        }
        let last = own_file(&fixture, contents.last().unwrap());
        // From before anything is packed to when all is.
        let supervisor = "$(awk '/^PPid/ {print $2}' /proc/$PPID/status)";
        let kill = format!("sleep 0.{:02}; kill -KILL {supervisor}; sleep 600", 6 * round);
        let script = match round {
            7 => {
                format!("timeout 60 bash -c 'while [ -e {} ]; do :; done'; {kill}", last.display())
            }
            _ => kill,
        };
        let run = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", &script];
        assert_eq!(fixture.nono(&run).code, -1);
        for number in 0..8 {
            fs::remove_file(fixture.project().join(format!("long{number}"))).unwrap();
        }
        fixture.nono(&["rollback", "verify"]).success();
        fixture.nono(&["rollback", "restore", "latest", "--force"]).success();
        for (number, bytes) in contents.iter().enumerate() {
            let path = fixture.project().join(format!("long{number}"));
            assert!(fs::read(path).unwrap() == *bytes, "{number} in round {round}");
        }
    }
}
