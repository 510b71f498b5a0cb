//! The program is killed before and after every call that changes a name or flushes one; then the
//! store verifies, the tree is in the old state or the new one or can be brought to both, and no
//! byte is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use crate::fixture::Fixture;
use crate::observe::{assert_same, observe};
use crate::scene::{Scene, Tree, as_strs};

impl Scene {
    /// Without a path half-way, the next command clears up, says so in one line, and goes on.
    fn check_that_it_is_cleared(&self, point: u64) {
        let told = self.fixture.nono(&["snapshot", "--session", &self.session]).success();
        let lines = told.stderr.lines().filter(|line| line.contains("no path half-way"));
        assert_eq!(lines.count(), 1, "at point {point}: {}", told.stderr);
        assert!(!self.has_journal());
        let is_staging = |path: &&PathBuf| path.to_string_lossy().contains(".nono-restore-");
        assert_eq!(self.tree().keys().find(is_staging), None, "at point {point}");
    }

    /// With a journal, every command says so, and nothing happens to the session.
    fn check_that_it_is_kept(&self) {
        let told = self.fixture.nono(&["rollback", "list"]).success();
        assert!(told.stderr.contains("was interrupted"), "{}", told.stderr);
        let before = self.tree();
        let refused = self.fixture.nono(&["snapshot", "--session", &self.session]);
        refused.fails(1, "has to be finished or taken back first");
        assert_same(&before, &self.tree());
        let kept = ["rollback", "cleanup", "--yes", &self.session];
        self.fixture.nono(&kept).fails(1, "was interrupted");
    }

    /// Nothing is damaged at any point, and the chosen way out leads to its state.
    fn check(&self, point: u64, abort: bool) {
        // Before any other command, because the next one clears up what needs no decision.
        if self.has_journal() && !self.has_work() {
            self.check_that_it_is_cleared(point);
        }
        self.verify(point);
        if self.has_journal() {
            // The same at every point, so that looking at some is enough.
            if point.is_multiple_of(10) {
                self.check_that_it_is_kept();
            }
            let mut arguments = vec!["rollback", "resume"];
            if abort {
                arguments.push("--abort");
            }
            self.fixture.nono(&arguments).success();
        }
        assert!(!self.has_journal());
        let now = self.tree();
        assert!(now == self.old || now == self.new, "at point {point}: neither state: {now:#?}");
        // `undo` and `redo` follow from what the session says of its restores.
        assert_eq!(self.noted_restores(), usize::from(now == self.new), "at point {point}");
        // Both states can be had from here. The store verified, so every third point tells enough.
        if point.is_multiple_of(3) {
            self.check_that_both_states_can_be_had();
        }
    }

    pub fn check_that_both_states_can_be_had(&self) {
        let session = self.fixture.store().join(&self.session);
        self.fixture.nono(&["snapshot", "--session", &self.session]).success();
        let names = fs::read_dir(&session).unwrap().map(|name| name.unwrap().file_name());
        let unfinished = names.filter(|name| name.to_string_lossy().contains(".new-"));
        assert_eq!(unfinished.count(), 0, "half-written files are left");
        for (number, state) in [(0, &self.new), (1, &self.old)] {
            // Without a safety snapshot there was no restore, and there is only one state.
            if session.join(format!("snapshots/{number}/manifest.json")).exists() {
                self.fixture.nono(&as_strs(&self.restore(number))).success();
                assert_same(state, &self.tree());
            }
        }
    }
}

/// Goes through the points of a restore; `check` looks at what each leaves.
fn at_each_point_of_a_restore(name: &str, abort: bool) {
    let scene = Scene::new();
    let arguments = scene.restore(0);
    let mut point = 1;
    let mut resumable = 0;
    while {
        scene.reset();
        scene.killed_at(point, &as_strs(&arguments))
    } {
        resumable += u64::from(scene.has_journal());
        scene.check(point, abort);
        point += 1;
    }
    assert_same(&scene.new, &scene.tree());
    assert!(resumable > 20, "{resumable} points are in the commit");
    eprintln!("{name}: killed at {} points, {resumable} of them resumable", point - 1);
}

#[test]
fn a_restore_killed_at_any_point_is_resumed_to_the_new_state() {
    at_each_point_of_a_restore("restore, then resume", false);
}

#[test]
fn a_restore_killed_at_any_point_is_taken_back_to_the_old_state() {
    at_each_point_of_a_restore("restore, then abort", true);
}

#[test]
fn a_restore_without_a_safety_snapshot_killed_at_any_point_is_resumed_or_taken_back() {
    let scene = Scene::new();
    let arguments = [&scene.restore(0)[..], &["--no-safety-snapshot".to_owned()]].concat();
    for (way, state) in [(&["--abort"][..], &scene.old), (&[], &scene.new)] {
        let (mut point, mut resumable) = (1, 0);
        while {
            scene.reset();
            scene.killed_at(point, &as_strs(&arguments))
        } {
            let is_half_way = scene.has_journal() && scene.has_work();
            // The next command clears up what needs no decision.
            scene.verify(point);
            if is_half_way {
                resumable += 1;
                let told = scene.fixture.nono(&[&["rollback", "resume"], way].concat()).success();
                assert!(!told.stderr.contains("undo this"), "at point {point}: {}", told.stderr);
                assert_same(state, &scene.tree());
            }
            let now = scene.tree();
            assert!(now == scene.old || now == scene.new, "at point {point}: {now:#?}");
            assert!(!scene.has_journal());
            point += 1;
        }
        assert!(resumable > 20, "{resumable} points are in the commit");
        assert_same(&scene.new, &scene.tree());
    }
}

#[test]
fn a_restore_killed_without_a_path_half_way_ends_as_asked_or_says_that_it_did_not() {
    let scene = Scene::new();
    let arguments = scene.restore(0);
    for (way, wanted) in [(&["--abort"][..], &scene.old), (&[], &scene.new)] {
        let (mut point, mut as_asked, mut otherwise) = (1, 0, 0);
        while {
            scene.reset();
            scene.killed_at(point, &as_strs(&arguments))
        } {
            if scene.has_journal() && !scene.has_work() {
                let ended = scene.fixture.nono(&[&["rollback", "resume"], way].concat());
                let is_wanted = scene.tree() == *wanted;
                let place = format!("{way:?} at point {point}: {}", ended.stderr);
                assert_eq!(ended.code, i32::from(!is_wanted), "{place}");
                if is_wanted {
                    as_asked += 1;
                } else {
                    otherwise += 1;
                    let said = if way.is_empty() { "is not done" } else { "is not taken back" };
                    assert!(ended.stderr.contains(said), "{place}");
                }
                let other = if way.is_empty() { &scene.old } else { &scene.new };
                assert!(is_wanted || scene.tree() == *other, "{place}");
                assert_eq!(scene.noted_restores(), usize::from(scene.tree() == scene.new));
                assert!(!scene.has_journal() && scene.staging().is_empty(), "{place}");
            }
            point += 1;
        }
        assert!(as_asked > 2 && otherwise > 2, "{way:?}: {as_asked}, {otherwise}");
    }
}

#[test]
fn an_undo_repeated_after_a_kill_takes_no_other_session() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "first\n");
    fixture.write("b", "first\n");
    fixture.record("echo second > a").success();
    fixture.record("echo second > b").success();
    fixture.copy_state("", "keep");
    let (mut point, mut refused, mut over) = (1, 0, 0);
    loop {
        fixture.copy_state("keep", "");
        let mut undo = fixture.command(&["undo", "--yes"]);
        let output = undo.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal().is_none() {
            assert!(output.status.success(), "{output:?}");
            break;
        }
        let read = |name| fs::read_to_string(fixture.project().join(name)).unwrap();
        if read("b") == "first\n" && journals(&fixture) == 0 {
            // The undo is over, but for its report.
            over += 1;
            point += 1;
            continue;
        }
        let again = fixture.nono(&["undo", "--yes"]);
        let place = format!("at point {point}: {}", again.stderr);
        assert_eq!(read("a"), "second\n", "{place}");
        if again.code != 0 {
            refused += 1;
            assert!(again.stderr.contains("interrupted"), "{place}");
            fixture.nono(&["rollback", "resume"]).success();
        }
        assert_eq!(read("b"), "first\n", "{place}");
        // Then it is the turn of the session before.
        fixture.nono(&["undo", "--yes"]).success();
        assert_eq!((read("a"), read("b")), ("first\n".into(), "first\n".into()), "{place}");
        point += 1;
    }
    assert!(point > 30 && refused > 10 && over < 9, "{point}: {refused} refused, {over} over");
}

/// Number of journals of restores in a store.
fn journals(fixture: &Fixture) -> usize {
    sessions(fixture).filter(|session| session.join("restore.journal").exists()).count()
}

#[test]
fn a_resume_names_the_lost_paths_that_the_restore_would_have_named() {
    let fixture = Fixture::in_memory();
    fixture.write(".gitignore", "big\n");
    fixture.write("big", vec![7; 2 << 20]);
    fixture.write("a", "first");
    let run = ["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", "rm big; rm a"];
    fixture.nono(&run);
    let lost = "not recorded and gone: ";
    fixture.nono(&["undo", "--dry-run"]).fails(1, lost);
    let session = fixture.session();
    let journal = session.join("restore.journal");
    let stage = || fs::read(&journal).ok()?.get(9).copied();
    let mut stages = [false; 3];
    for point in 1.. {
        let mut undo = fixture.command(&["undo", "--yes"]);
        let output = undo.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if output.status.signal().is_none() {
            break;
        }
        match stage() {
            Some(stage @ (1 | 2)) => {
                stages[usize::from(stage)] = true;
                fixture.nono(&["rollback", "resume"]).fails(1, lost);
            }
            _ => drop(fixture.nono(&["rollback", "resume", "--abort"])),
        }
        assert_eq!(stage(), None);
        // The state before, for the next point.
        if fixture.project().join("a").exists() {
            fixture.nono(&["redo", "--yes"]);
            let _ = fs::remove_file(fixture.project().join("a"));
        }
    }
    assert_eq!(stages, [false, true, true], "killed in each stage that can name lost paths");
}

/// Kills a restore in its middle, then the way out of it at each of its points; the last attempt
/// goes the other way every second time.
fn at_each_point_of_a_recovery(name: &str, abort: bool) {
    let scene = Scene::new();
    let arguments = scene.restore(0);
    let middle = middle_of_the_commit(&scene, &as_strs(&arguments));
    let way: &[&str] =
        if abort { &["rollback", "resume", "--abort"] } else { &["rollback", "resume"] };
    let mut point = 1;
    loop {
        scene.reset();
        assert!(scene.killed_at(middle, &as_strs(&arguments)));
        if !scene.killed_at(point, way) {
            break;
        }
        let goes_back = (point % 2 == 0) == abort;
        scene.check(point, goes_back);
        point += 1;
    }
    let expected = if abort { &scene.old } else { &scene.new };
    assert_same(expected, &scene.tree());
    eprintln!("{name}: killed at {} points", point - 1);
}

/// The point at which half of the points of the commit are passed.
fn middle_of_the_commit(scene: &Scene, arguments: &[&str]) -> u64 {
    let mut points = Vec::new();
    let mut point = 1;
    while {
        scene.reset();
        scene.killed_at(point, arguments)
    } {
        if scene.has_work() {
            points.push(point);
        }
        // An odd step, so that points before a call and after it are both met.
        point += 7;
    }
    points[points.len() / 2]
}

#[test]
fn a_resume_killed_at_any_point_is_resumed_or_taken_back() {
    at_each_point_of_a_recovery("resume", false);
}

#[test]
fn an_abort_killed_at_any_point_is_taken_back_or_resumed() {
    at_each_point_of_a_recovery("abort", true);
}

#[test]
fn a_capture_killed_at_any_point_leaves_a_sound_store_and_an_untouched_tree() {
    at_each_point_of_a_capture("single objects", &Scene::new());
}

#[test]
fn a_capture_that_packs_killed_at_any_point_leaves_a_sound_store_and_an_untouched_tree() {
    let scene = Scene::in_fixture(Fixture::in_memory().packed());
    at_each_point_of_a_capture("packs", &scene);
    assert!(!scene.fixture.packs().is_empty());
}

fn at_each_point_of_a_capture(objects: &str, scene: &Scene) {
    for (name, arguments) in [
        ("new session", &["snapshot"][..]),
        ("further snapshot", &["snapshot", "--session", &scene.session]),
    ] {
        let mut point = 1;
        while {
            scene.reset();
            scene.killed_at(point, arguments)
        } {
            assert_same(&scene.old, &scene.tree());
            scene.verify(point);
            let list = scene.fixture.nono(&["rollback", "list", "--json"]).success().json();
            for session in list.as_array().unwrap() {
                assert_eq!(session["status"], "open", "at point {point}");
            }
            // The next one is not hindered by what is left.
            scene.fixture.nono(arguments).success();
            scene.fixture.nono(&["rollback", "cleanup", "--yes"]).success();
            scene.verify(point);
            scene.check(point, false);
            point += 1;
        }
        eprintln!("capture, {objects}, {name}: killed at {} points", point - 1);
    }
}

/// A project to run commands in, and what a killed `nono run` left of it.
struct KilledRun {
    fixture: Fixture,
    before: Tree,
    is_announced: bool,
}

/// Kills `nono run` at a point; `None` when it ended before that.
fn killed_run(point: u64) -> Option<KilledRun> {
    let fixture = Fixture::in_memory();
    fixture.write("changed", "first");
    fixture.write("dir/file", "second");
    let before = observe(&fixture.project());
    let script = "echo changed > changed; rm -r dir; mkdir made";
    let mut command = fixture.command(&["run", "--rollback", "--", "sh", "-c", script]);
    // Leftover temporary files go with the test.
    fs::create_dir(fixture.path("tmp")).unwrap();
    command.env("TMPDIR", fixture.path("tmp")).env("NONO_FAIL_POINT", point.to_string());
    let output = command.output().unwrap();
    match output.status.signal() {
        Some(9) => {}
        None if output.status.success() => return None,
        _ => panic!("at point {point}: {output:?}"),
    }
    // The command outlives its supervisor.
    crate::terminal::eventually("the command goes on", || !is_worked_in(&fixture.project()));
    let announced = "snapshots/0/manifest.pending.json";
    let is_announced = sessions(&fixture).any(|session| session.join(announced).exists());
    Some(KilledRun { fixture, before, is_announced })
}

/// Whether a process has this directory as its current one.
fn is_worked_in(dir: &std::path::Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|current| current == dir)
    })
}

fn sessions(fixture: &Fixture) -> impl Iterator<Item = PathBuf> {
    let names = fs::read_dir(fixture.store()).into_iter().flatten();
    names.map(|entry| entry.unwrap().path()).filter(|path| path.join("manifest.json").exists())
}

#[test]
fn a_run_killed_at_any_point_can_be_undone_if_its_command_was_started() {
    let (mut point, mut announced) = (1, 0);
    while let Some(KilledRun { fixture, before, is_announced }) = killed_run(point) {
        announced += u64::from(is_announced);
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        let visible: Vec<_> = list.as_array().unwrap().iter().collect();
        // An announcement is a snapshot by now, for every reader.
        let published = sessions(&fixture).filter(|s| s.join("snapshots/0/manifest.json").exists());
        let published = published.count();
        assert!(published == 1 || !is_announced, "at point {point}: {list}");
        let listed: u64 = visible.iter().filter_map(|s| s["snapshot_count"].as_u64()).sum();
        assert!(listed >= published as u64, "at point {point}: {list}");
        let pending =
            sessions(&fixture).find(|s| s.join("snapshots/0/manifest.pending.json").exists());
        assert_eq!(pending, None, "at point {point}");
        fixture.nono(&["rollback", "verify", "--all"]).success();
        if published == 1 && visible.iter().all(|session| session["status"] == "interrupted") {
            let id = visible[0]["session_id"].as_str().unwrap();
            fixture.nono(&["rollback", "restore", &format!("{id}/0")]).success();
            assert_same(&before, &observe(&fixture.project()));
        } else if published == 0 {
            assert_same(&before, &observe(&fixture.project()));
        }
        fixture.nono(&["rollback", "cleanup", "--yes"]).success();
        fixture.nono(&["rollback", "verify", "--all"]).success();
        point += 1;
    }
    assert!(announced > 2, "announced at {announced} points");
    eprintln!("run: killed at {} points, announced at {announced} of them", point - 1);
}

/// The first point at which a baseline is announced.
fn announced_run() -> KilledRun {
    let runs = (1..).map_while(killed_run);
    runs.into_iter().find(|run| run.is_announced).expect("no baseline was ever announced")
}

#[test]
fn an_announced_baseline_whose_objects_are_lost_is_no_snapshot() {
    for loss in ["remove", "truncate", "announcement"] {
        let fixture = announced_run().fixture;
        let session = sessions(&fixture).next().unwrap();
        let pending = session.join("snapshots/0/manifest.pending.json");
        let object = objects(&fixture).into_iter().max().unwrap();
        match loss {
            "remove" => fs::remove_file(&object).unwrap(),
            "truncate" => {
                fs::set_permissions(&object, PermissionsExt::from_mode(0o600)).unwrap();
                fs::File::options().write(true).open(&object).unwrap().set_len(1).unwrap();
            }
            _ => fs::write(&pending, "{").unwrap(),
        }
        let list = fixture.nono(&["rollback", "list", "--json"]).success();
        assert!(list.stderr.contains("lost its baseline"), "{loss}: {}", list.stderr);
        assert_eq!(list.json()[0]["snapshot_count"], 0, "{loss}");
        assert!(!pending.exists() && session.join("snapshots/0/manifest.lost.json").exists());
        // It is told once, and hinders nothing.
        let again = fixture.nono(&["rollback", "list"]).success();
        assert!(!again.stderr.contains("lost"), "{loss}: {}", again.stderr);
        fixture.nono(&["rollback", "restore", "latest"]).fails(1, "has no snapshot");
        fixture.nono(&["rollback", "cleanup", "--yes"]).success();
        fixture.record("echo more > more").success();
        fixture.nono(&["rollback", "verify", "--all"]).success();
    }
}

#[test]
fn a_cleanup_keeps_what_an_announced_baseline_needs() {
    let fixture = announced_run().fixture;
    // The session is busy, so that no command settles it, and its objects look old.
    let session = sessions(&fixture).next().unwrap();
    let lock = fs::File::options().write(true).open(session.join(".lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = objects(&fixture);
    for object in &before {
        let times = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::File::open(object).unwrap().set_times(times).unwrap();
    }
    fixture.nono(&["rollback", "cleanup", "--yes"]).success();
    assert_eq!(objects(&fixture), before);
    drop(lock);
    fixture.nono(&["rollback", "verify", "latest"]).success();
    assert!(session.join("snapshots/0/manifest.json").exists());
}

fn objects(fixture: &Fixture) -> Vec<PathBuf> {
    let prefixes = fs::read_dir(fixture.store().join("objects")).unwrap();
    let prefixes = prefixes.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let names = prefixes.flat_map(|prefix| fs::read_dir(prefix).unwrap());
    let mut paths: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn a_cleanup_killed_at_any_point_leaves_the_other_sessions_whole() {
    let scene = Scene::new();
    let other = scene.fixture.nono(&["snapshot", "--json"]).success().json();
    let other = other["session_id"].as_str().unwrap().to_owned();
    scene.keep();
    let arguments = ["rollback", "cleanup", "--yes", &other];
    let mut point = 1;
    while {
        scene.reset();
        scene.killed_at(point, &arguments)
    } {
        assert_same(&scene.old, &scene.tree());
        scene.verify(point);
        // The next one does the rest.
        if scene.fixture.store().join(&other).exists() {
            scene.fixture.nono(&arguments).success();
        } else {
            scene.fixture.nono(&["rollback", "cleanup", "--yes"]).success();
        }
        let names = fs::read_dir(scene.fixture.store()).unwrap();
        let left = names.filter(|name| {
            name.as_ref().unwrap().file_name().to_string_lossy().starts_with(".removed")
        });
        assert_eq!(left.count(), 0, "at point {point}");
        scene.check(point, false);
        point += 1;
    }
    eprintln!("cleanup: killed at {} points", point - 1);
}
