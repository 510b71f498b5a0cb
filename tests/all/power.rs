//! Power failures, as far as they can be had without one.
//!
//! The program is killed at a point, and then some of its unflushed work is reverted, chosen at
//! random: new names go, removed names return (as the same inodes), and new files with unflushed
//! contents lose some or all of them. A disk may hold exactly that when the power fails at that
//! moment: everything flushed, and any part of the rest. Not every part is possible: the
//! preconditions of a kept operation are kept.
//!
//! Then the store must verify (no manifest names an object that is missing or cut short), and the
//! tree must be in one of its two states, or be brought there by the journal.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};

use crate::fixture::{Fixture, finished, noise};
use crate::forks::has_forks;
use crate::observe::observe;
use crate::scene::{Scene, as_strs, contents};

/// An operation of the log.
#[derive(Debug, Clone)]
struct Operation {
    word: String,
    paths: Vec<PathBuf>,
}

impl Operation {
    /// The paths that it gives to something or takes away from it.
    fn names(&self) -> &[PathBuf] {
        match self.word.as_str() {
            "rename" | "exchange" => &self.paths[..2],
            "sync-all" | "sync-dir" | "sync-file" => &[],
            _ => &self.paths[..1],
        }
    }

    /// Takes it back, if nothing stands in the way.
    fn take_back(&self, paths: &[PathBuf]) -> bool {
        let kept = self.paths.get(self.names().len());
        match self.word.as_str() {
            "create" | "link" => fs::remove_file(&paths[0]).is_ok(),
            "mkdir" => fs::remove_dir(&paths[0]).is_ok(),
            "rmdir" => fs::create_dir(&paths[0]).is_ok(),
            "remove" => kept.is_some_and(|kept| fs::hard_link(kept, &paths[0]).is_ok()),
            "rename" => {
                let flags = RenameFlags::NOREPLACE;
                rustix::fs::renameat_with(CWD, &paths[1], CWD, &paths[0], flags).is_ok()
                    && kept.is_none_or(|kept| fs::hard_link(kept, &paths[1]).is_ok())
            }
            "exchange" => {
                let flags = RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &paths[0], CWD, &paths[1], flags).is_ok()
            }
            _ => false,
        }
    }
}

/// A generator that can be repeated from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// Which flushes are believed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushes {
    All,
    /// As if the program left this kind out: a test of this test.
    Without(&'static str),
}

/// The unflushed operations.
struct Unflushed {
    operations: Vec<Operation>,
    /// New files whose contents may be gone.
    contents: Vec<PathBuf>,
}

impl Unflushed {
    fn read(log: &Path, flushes: Flushes) -> Self {
        let text = fs::read_to_string(log.join("log")).unwrap_or_default();
        let mut operations: Vec<(Operation, bool)> = Vec::new();
        let mut contents: BTreeMap<PathBuf, bool> = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.split('\t');
            let word = fields.next().unwrap().to_owned();
            let operation = Operation { word, paths: fields.map(PathBuf::from).collect() };
            if flushes
                == Flushes::Without(match operation.word.as_str() {
                    "sync-all" => "sync-all",
                    "sync-file" => "sync-file",
                    _ => "",
                })
            {
                continue;
            }
            match operation.word.as_str() {
                "sync-all" => {
                    operations.iter_mut().for_each(|(_, is_flushed)| *is_flushed = true);
                    contents.clear();
                }
                "sync-dir" => {
                    let is_in = |path: &PathBuf| path.parent() == Some(&operation.paths[0]);
                    for (earlier, is_flushed) in &mut operations {
                        *is_flushed |= earlier.names().iter().any(is_in);
                    }
                }
                "sync-file" => drop(contents.remove(&operation.paths[0])),
                "create" => drop(contents.insert(operation.paths[0].clone(), true)),
                "rename" | "exchange" => {
                    let (from, to) = (&operation.paths[0], &operation.paths[1]);
                    let (moved, other) = (contents.remove(from), contents.remove(to));
                    moved.map(|new| contents.insert(to.clone(), new));
                    if operation.word == "exchange" {
                        other.map(|new| contents.insert(from.clone(), new));
                    }
                    let below: Vec<_> =
                        contents.keys().filter(|path| path.starts_with(from)).cloned().collect();
                    for path in below {
                        contents.remove(&path);
                        contents.insert(moved_path(&path, from, to), true);
                    }
                }
                _ => {}
            }
            operations.push((operation, false));
        }
        let unflushed = operations.into_iter().filter(|(_, is_flushed)| !is_flushed);
        Self {
            operations: unflushed.map(|(operation, _)| operation).collect(),
            contents: contents.into_keys().collect(),
        }
    }

    /// Loses a part of it; says how much.
    fn lose(&self, random: &mut Random) -> usize {
        let mut lost = 0;
        for path in &self.contents {
            let is_file = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
            if is_file && random.chance(40) {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                let left = if random.chance(50) { 0 } else { file.metadata().unwrap().len() / 2 };
                file.set_len(left).unwrap();
                lost += 1;
            }
        }
        // In some failures nearly everything is lost, in others hardly anything.
        let share = [10, 50, 90][(random.next() % 3) as usize];
        let mut kept: Vec<&Operation> = Vec::new();
        for operation in self.operations.iter().rev() {
            let names = operation.names();
            let is_needed = kept.iter().any(|kept| kept.names().iter().any(|n| names.contains(n)));
            if !is_needed && random.chance(share) {
                let paths = operation.paths.iter().map(|path| where_it_is_now(path, &kept));
                if operation.take_back(&paths.collect::<Vec<_>>()) {
                    lost += 1;
                    continue;
                }
            }
            kept.push(operation);
        }
        lost
    }
}

fn moved_path(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
        Ok(rest) => to.join(rest),
        Err(_) => path.to_owned(),
    }
}

/// Where a path has gone by later renames of directories above it, given latest first.
fn where_it_is_now(path: &Path, later: &[&Operation]) -> PathBuf {
    let renames = later.iter().rev().filter(|operation| operation.word == "rename");
    renames
        .fold(path.to_owned(), |path, rename| moved_path(&path, &rename.paths[0], &rename.paths[1]))
}

impl Scene {
    /// Runs the program up to a point, then lets the power fail. `None`: it ended before.
    fn power_fails_at(
        &self,
        point: u64,
        arguments: &[&str],
        flushes: Flushes,
        seed: u64,
    ) -> Option<usize> {
        let log = self.fixture.path("operations");
        let _ = fs::remove_dir_all(&log);
        fs::create_dir(&log).unwrap();
        let mut command = self.fixture.command(arguments);
        command.env("NONO_FAIL_POINT", point.to_string()).env("NONO_OPERATION_LOG", &log);
        let output = command.output().unwrap();
        if output.status.signal() != Some(9) {
            assert!(output.status.success(), "at point {point}: {output:?}");
            return None;
        }
        Some(Unflushed::read(&log, flushes).lose(&mut Random(seed)))
    }

    /// The defects after a power failure.
    fn trouble(&self, way_out: &[&str]) -> Result<(), String> {
        if self.has_journal() && self.has_work() {
            let done = self.fixture.nono(way_out);
            if done.code != 0 {
                return Err(format!("{way_out:?}: {}", done.stderr));
            }
        }
        let listed = self.fixture.nono(&["rollback", "list", "--json"]);
        let verified = self.fixture.nono(&["rollback", "verify", "--all"]);
        for finished in [listed, verified] {
            if finished.code != 0 {
                return Err(format!("{}{}", finished.stdout, finished.stderr));
            }
        }
        let now = contents(&self.tree());
        if now != contents(&self.old) && now != contents(&self.new) {
            return Err(format!("neither state: {now:#?}"));
        }
        Ok(())
    }

    /// Goes through all points, with a few seeds for each. Gives the first trouble.
    fn go_through(
        &self,
        name: &str,
        arguments: &[&str],
        flushes: Flushes,
        way_out: &[&str],
        seeds: u64,
    ) -> Result<(), String> {
        let (mut failures, mut lost) = (0, 0);
        for point in 1.. {
            for round in 0..seeds {
                let seed = point * 1000 + round;
                self.reset();
                let Some(count) = self.power_fails_at(point, arguments, flushes, seed) else {
                    eprintln!("{name}: {failures} power failures lost {lost} operations");
                    assert!(lost > 0, "nothing was lost: this test tests nothing");
                    return Ok(());
                };
                failures += 1;
                lost += count;
                self.trouble(way_out).map_err(|trouble| {
                    format!("{name}, at point {point}, with seed {seed}: {trouble}")
                })?;
            }
        }
        unreachable!()
    }
}

const RESUME: [&str; 2] = ["rollback", "resume"];
const ABORT: [&str; 3] = ["rollback", "resume", "--abort"];

#[test]
fn after_a_power_failure_in_a_capture_every_manifest_has_all_its_objects() {
    let scene = Scene::new();
    let further = ["snapshot", "--session", &scene.session];
    for (name, arguments) in [("new session", &["snapshot"][..]), ("further snapshot", &further)] {
        scene.go_through(name, arguments, Flushes::All, &RESUME, 2).unwrap();
    }
}

#[test]
fn after_a_power_failure_in_a_capture_that_packs_every_manifest_has_all_its_objects() {
    let scene = Scene::in_fixture(Fixture::in_memory().packed());
    let further = ["snapshot", "--session", &scene.session];
    for (name, arguments) in [("new session", &["snapshot"][..]), ("further snapshot", &further)] {
        scene.go_through(name, arguments, Flushes::All, &RESUME, 3).unwrap();
    }
}

#[test]
fn after_a_power_failure_in_a_restore_the_tree_is_brought_to_either_state() {
    let scene = Scene::new();
    let restore = scene.restore(0);
    for (name, way_out) in [("restore, resume", &RESUME[..]), ("restore, abort", &ABORT)] {
        scene.go_through(name, &as_strs(&restore), Flushes::All, way_out, 1).unwrap();
    }
}

#[test]
fn after_a_power_failure_in_a_cleanup_the_other_sessions_are_whole() {
    let scene = Scene::new();
    scene.fixture.write("only here", "for a while");
    let other = scene.fixture.nono(&["snapshot", "--json"]).success().json();
    let other = other["session_id"].as_str().unwrap().to_owned();
    fs::remove_file(scene.fixture.project().join("only here")).unwrap();
    let mut scene = scene;
    scene.old = scene.tree();
    scene.keep();
    let cleanup = ["rollback", "cleanup", "--yes", &other];
    scene.go_through("cleanup", &cleanup, Flushes::All, &RESUME, 2).unwrap();
}

/// A session that shares a pack with another one, and the cleanup that takes it out of there.
fn shared_pack() -> (Scene, String) {
    let mut scene = Scene::in_fixture(Fixture::in_memory().packed());
    for name in ["shared", "only here"] {
        scene.fixture.write(name, format!("{name} for a while"));
    }
    let other = scene.fixture.nono(&["snapshot", "--json"]).success().json();
    fs::remove_file(scene.fixture.project().join("only here")).unwrap();
    scene.fixture.nono(&["snapshot"]).success();
    scene.old = scene.tree();
    scene.keep();
    (scene, other["session_id"].as_str().unwrap().to_owned())
}

#[test]
fn after_a_power_failure_while_packs_are_rewritten_the_other_sessions_are_whole() {
    let (scene, other) = shared_pack();
    let cleanup = ["rollback", "cleanup", "--compact", "--yes", &other];
    scene.go_through("cleanup of packs", &cleanup, Flushes::All, &RESUME, 3).unwrap();
}

/// Two versions of a file that is stored in chunks, and the session of the first one.
fn two_versions_of_a_long_file() -> (Scene, String) {
    let mut scene = Scene::in_fixture(Fixture::in_memory());
    let mut bytes = noise(400 << 10, 5);
    scene.fixture.write("long", &bytes);
    let first = scene.fixture.nono(&["snapshot", "--json"]).success().json();
    bytes[200 << 10] ^= 1;
    scene.fixture.write("long", &bytes);
    scene.fixture.nono(&["snapshot"]).success();
    assert!(!scene.fixture.packs().is_empty());
    scene.old = scene.tree();
    scene.keep();
    (scene, first["session_id"].as_str().unwrap().to_owned())
}

#[test]
fn after_a_power_failure_in_a_capture_of_a_long_file_no_list_lacks_a_chunk() {
    let (mut scene, _) = two_versions_of_a_long_file();
    scene.fixture.write("long", noise(500 << 10, 5));
    scene.old = scene.tree();
    scene.keep();
    scene.go_through("long file", &["snapshot"], Flushes::All, &RESUME, 3).unwrap();
}

#[test]
fn after_a_power_failure_while_chunks_are_removed_the_other_version_is_whole() {
    let (scene, first) = two_versions_of_a_long_file();
    let cleanup = ["rollback", "cleanup", "--compact", "--yes", &first];
    scene.go_through("cleanup of chunks", &cleanup, Flushes::All, &RESUME, 3).unwrap();
}

/// A session of so many snapshots, which an archive has and the store not.
fn session_in_an_archive(snapshots: usize) -> (Scene, String) {
    let scene = Scene::new();
    scene.fixture.nono(&["snapshot"]).success();
    let session = scene.fixture.latest();
    for _ in 1..snapshots {
        scene.fixture.nono(&["snapshot", "--session", &session]).success();
    }
    let archive = scene.fixture.path("archive").to_str().unwrap().to_owned();
    scene.fixture.nono(&["archive", "create", &session, "-o", &archive]).success();
    scene.fixture.nono(&["rollback", "cleanup", "--yes", &session]).success();
    scene.keep();
    (scene, archive)
}

#[test]
fn after_a_power_failure_in_an_import_of_an_archive_its_session_is_whole_or_not_there() {
    let (scene, archive) = session_in_an_archive(4);
    let import = ["archive", "import", &archive];
    scene.go_through("import of an archive", &import, Flushes::All, &RESUME, 4).unwrap();
}

#[test]
fn an_import_flushes_as_often_for_many_snapshots_as_for_one() {
    let flushes = |snapshots| {
        let (scene, archive) = session_in_an_archive(snapshots);
        let log = scene.fixture.path("operations");
        fs::create_dir(&log).unwrap();
        let mut command = scene.fixture.command(&["archive", "import", &archive]);
        command.env("NONO_OPERATION_LOG", &log);
        finished(command.output().unwrap()).success();
        let text = fs::read_to_string(log.join("log")).unwrap();
        let words = text.lines().map(|line| line.split('\t').next().unwrap());
        let count = |word: &str| words.clone().filter(|it| *it == word).count();
        // Each snapshot has a directory, so they were made.
        assert!(count("mkdir") >= snapshots, "{text}");
        ["sync-all", "sync-file", "sync-dir"].map(count)
    };
    assert_eq!(flushes(12), flushes(1));
}

/// A project with a fork in which work was done, as every attempt begins with it.
fn forked() -> Option<Scene> {
    let fixture = Fixture::in_memory();
    if !has_forks(&fixture) {
        return None;
    }
    for (name, text) in [("text", "1\n2\n3\n"), ("gone/file", "gone"), ("kept", "kept")] {
        fixture.write(name, text);
    }
    let script = "echo 4 >> text; rm -r gone; mkdir new; echo new > new/file";
    fixture.nono(&["fork", "idea", "--", "sh", "-ec", script]).success();
    fixture.write("text", "0\n1\n2\n3\n");
    let old = observe(&fixture.project());
    let scene = Scene { fixture, session: String::new(), new: old.clone(), old };
    scene.keep();
    Some(scene)
}

#[test]
fn after_a_power_failure_in_a_merge_the_project_is_brought_to_either_state() {
    let Some(mut scene) = forked() else { return };
    scene.fixture.nono(&["fork", "merge", "idea"]).success();
    scene.new = scene.tree();
    assert_ne!(contents(&scene.old), contents(&scene.new));
    // Each way looks at every third point, and at all of them where `scripts/fuzz kills` asks.
    let step = if std::env::var_os("NONO_EVERY_POINT").is_some() { 1 } else { 3 };
    for (first, way_out) in [(1, &RESUME[..]), (2, &ABORT)] {
        let (mut failures, mut lost) = (0, 0);
        for point in (first..).step_by(step) {
            scene.reset();
            let merge = ["fork", "merge", "idea"];
            let Some(count) = scene.power_fails_at(point, &merge, Flushes::All, point) else {
                break;
            };
            (failures, lost) = (failures + 1, lost + count);
            let said = scene.fixture.nono(way_out);
            assert!(!said.says("error:"), "at point {point}: {}", said.stderr);
            scene.trouble(way_out).unwrap_or_else(|trouble| panic!("at point {point}: {trouble}"));
            // The fork is as it was, whatever became of its merge.
            let fork = scene.fixture.nono(&["fork", "enter", "idea", "--", "cat", "text"]);
            assert_eq!(fork.stdout, "1\n2\n3\n4\n", "at point {point}: {}", fork.stderr);
            assert_eq!(scene.fixture.nono(&["fork", "merge", "idea"]).code, 0, "at point {point}");
            assert_eq!(contents(&scene.tree()), contents(&scene.new), "at point {point}");
        }
        assert!(failures > 20 && lost > 0, "{failures} power failures lost {lost} operations");
    }
}

#[test]
fn after_a_power_failure_while_a_fork_is_made_it_is_whole_or_not_there() {
    let Some(scene) = forked() else { return };
    let (mut made, mut lost) = (0, 0);
    for point in 1.. {
        scene.reset();
        let log = scene.fixture.path("operations");
        let _ = fs::remove_dir_all(&log);
        fs::create_dir(&log).unwrap();
        let mut command = scene.fixture.command(&["fork", "other"]);
        command.env("NONO_FAIL_POINT", point.to_string()).env("NONO_OPERATION_LOG", &log);
        let output = command.output().unwrap();
        if output.status.success() {
            break;
        }
        // A helper of the command may be the one that is killed.
        lost += Unflushed::read(&log, Flushes::All).lose(&mut Random(point));
        assert_eq!(scene.tree(), scene.old, "at point {point}");
        let listed = scene.fixture.nono(&["forks", "--json"]);
        assert_eq!(listed.code, 0, "at point {point}: {}", listed.stderr);
        let is_there = listed.stdout.contains("\"other\"");
        made += usize::from(is_there);
        if !is_there {
            scene.fixture.nono(&["fork", "other"]).success();
        }
        let fork =
            scene.fixture.nono(&["fork", "enter", "other", "--", "cat", "text", "gone/file"]);
        assert_eq!(fork.stdout, "0\n1\n2\n3\ngone", "at point {point}: {}", fork.stderr);
        let verified = scene.fixture.nono(&["rollback", "verify", "--all"]);
        assert_eq!(verified.code, 0, "at point {point}: {}{}", verified.stdout, verified.stderr);
        assert_eq!(scene.tree(), scene.old, "at point {point}");
    }
    assert!(made > 0 && lost > 0, "{made} forks were there, {lost} operations were lost");
}

/// The test of the tests: a program that did not flush would be found out.
#[test]
fn a_flush_that_is_left_out_is_found_out() {
    let scene = Scene::new();
    let restore = scene.restore(0);
    for (flush, arguments) in [
        ("sync-all", &["snapshot"][..]),
        ("sync-file", &["snapshot"]),
        ("sync-all", &as_strs(&restore)),
    ] {
        let trouble = scene.go_through("mutant", arguments, Flushes::Without(flush), &RESUME, 4);
        let trouble = trouble.expect_err("a flush that is left out was not noticed");
        eprintln!("without {flush}: {}", trouble.lines().next().unwrap());
    }
    let (scene, other) = shared_pack();
    let cleanup = ["rollback", "cleanup", "--compact", "--yes", &other];
    let trouble = scene.go_through("mutant", &cleanup, Flushes::Without("sync-all"), &RESUME, 8);
    trouble.expect_err("packs went before the new ones were flushed, unnoticed");
    let (scene, archive) = session_in_an_archive(4);
    let import = ["archive", "import", &archive];
    let trouble = scene.go_through("mutant", &import, Flushes::Without("sync-all"), &RESUME, 4);
    trouble.expect_err("a session appeared before its manifests were flushed, unnoticed");
}
