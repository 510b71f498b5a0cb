use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::*;
use crate::object::LONGEST_CHAIN_BYTES;
use crate::progress::Progress;
use crate::store::{LocalStore, StopsAt};
use crate::sys;
use crate::walk::ExclusionConfig;

struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("work/sub")).unwrap();
        std::fs::write(temp.path().join("work/sub/file"), "first").unwrap();
        Self { temp }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.temp.path().join(relative)
    }

    fn manager(&self, session: &str) -> SnapshotManager {
        self.try_manager(session).unwrap()
    }

    fn try_manager(&self, session: &str) -> Result<SnapshotManager, SnapshotError> {
        let exclusion =
            ExclusionConfig { exclude_patterns: vec!["left-out".into()], ..Default::default() };
        let paths = [self.path("work")];
        SnapshotManager::new(&self.path(session), &paths, exclusion, Budget::default())
    }

    fn write(&self, relative: &str, text: &str) {
        std::fs::write(self.path("work").join(relative), text).unwrap();
    }
}

fn link_of(path: &Path) -> Option<PathBuf> {
    std::fs::read_link(path).ok()
}

/// Another process moved it there, or mounted it: no check of paths sees that.
#[test]
fn a_store_that_came_into_the_tracked_path_is_left_out() {
    let place = Place::new();
    LocalStore::create(&place.path("store/objects")).unwrap();
    let first = place.manager("store/a").create_baseline().unwrap();
    std::fs::rename(place.path("store"), place.path("work/store")).unwrap();
    for _ in 0..2 {
        let manager = SnapshotManager::open(&place.path("work/store/a")).unwrap();
        let (taken, _) = manager.create_incremental().unwrap();
        assert_eq!(taken.totals.file_count, first.totals.file_count);
        let left: Vec<_> = taken.not_captured.iter().map(|left| left.path.clone()).collect();
        assert_eq!(left, [sys::real_path(&place.path("work/store")).unwrap()]);
    }
}

#[test]
fn a_session_in_the_root_of_a_store_shares_its_objects() {
    let place = Place::new();
    LocalStore::create(&place.path("store/objects")).unwrap();
    for session in ["store/a", "store/b"] {
        place.manager(session).create_baseline().unwrap();
        let objects = place.path(session).join("objects");
        assert_eq!(link_of(&objects), Some("../objects".into()));
    }
    assert!(place.path("store/index").is_dir());
    let second = place.manager("store/b").load_manifest(0).unwrap();
    assert_eq!(second.totals.objects_written, 0);
}

#[test]
fn a_session_elsewhere_has_its_own_objects() {
    let place = Place::new();
    // A directory of objects of another program, and a session inside a session.
    std::fs::create_dir_all(place.path("git/objects/pack")).unwrap();
    place.manager("alone").create_baseline().unwrap();
    for session in ["alone", "alone/inner", "git/session"] {
        place
            .manager(session)
            .create_baseline()
            .unwrap_or_else(|_| place.manager(session).load_manifest(0).unwrap());
        let objects = place.path(session).join("objects");
        assert!(objects.is_dir() && link_of(&objects).is_none(), "{session}");
    }
}

#[test]
fn the_root_of_a_store_cannot_be_tracked_by_a_session_that_will_lie_in_it() {
    let place = Place::new();
    LocalStore::create(&place.path("work/objects")).unwrap();
    let refused = place.try_manager("work/session").unwrap_err();
    assert!(
        matches!(
            refused,
            SnapshotError::TrackedPath(
                TrackedPathError::InStore { .. } | TrackedPathError::ContainsStore { .. }
            )
        ),
        "{refused}"
    );
    assert!(!place.path("work/session").exists());
}

#[test]
fn a_step_is_listed_with_what_changed_and_none_is_taken_where_nothing_did() {
    let place = Place::new();
    let manager = place.manager("session");
    manager.create_baseline().unwrap();
    let step = |title: &str| SnapshotRequest {
        step: Some(Step {
            agent: "codex".to_owned(),
            agent_session: "abc".to_owned(),
            prompt: Some(StepPrompt { number: 1, text: "do the work".to_owned() }),
            tool: Some("Bash".to_owned()),
            title: title.to_owned(),
            ..Step::default()
        }),
        if_changed: true,
        ..SnapshotRequest::default()
    };
    assert!(!manager.record_state(step("true")).unwrap().is_new());
    for (number, title) in [(1, "one"), (2, "two")] {
        std::fs::write(place.path("work").join(title), title).unwrap();
        let taken = manager.record_state(step(title)).unwrap();
        assert!(taken.is_new());
        assert_eq!(taken.manifest().number, number);
        assert!(!manager.record_state(step("true")).unwrap().is_new());
    }
    let steps = crate::session::steps(manager.session()).unwrap();
    let told = |step: &StepEntry| {
        let prompt = step.prompt.clone().unwrap();
        (step.number, step.summary(), prompt.text, step.changes.unwrap().created)
    };
    assert_eq!(
        steps.iter().map(told).collect::<Vec<_>>(),
        [
            (1, "Bash · one".to_owned(), "do the work".to_owned(), 1),
            (2, "Bash · two".to_owned(), "do the work".to_owned(), 1)
        ]
    );
    assert_eq!(crate::session::last_of_each_prompt(&steps), [2]);
    let listed = manager.session().metadata().unwrap().steps;
    assert_eq!(listed[1].prompt.as_ref().unwrap().text, "");
}

#[test]
fn a_checkpoint_has_its_label_and_is_the_baseline_when_it_is_the_first() {
    let place = Place::new();
    let manager = place.manager("session");
    let (first, none) = manager.checkpoint("before").unwrap();
    assert_eq!((first.number, first.label.as_deref(), none.len()), (0, Some("before"), 0));
    place.write("new", "x");
    let (second, changes) = manager.checkpoint("after").unwrap();
    assert_eq!((second.number, changes.len()), (1, 1));
    assert_eq!(manager.load_manifest(1).unwrap().label.as_deref(), Some("after"));
    let (third, _) = manager.create_incremental().unwrap();
    assert_eq!(third.label, None);
    let text = std::fs::read_to_string(manager.session().manifest_path(2)).unwrap();
    assert!(!text.contains("label"), "what has no label is as it was before there were labels");
}

#[test]
fn a_file_is_read_as_it_was() {
    let place = Place::new();
    let manager = place.manager("session");
    manager.create_baseline().unwrap();
    std::fs::remove_dir_all(place.path("work/sub")).unwrap();
    // In the place of the directory, a link that leads elsewhere.
    symlink("/etc", place.path("work/sub")).unwrap();
    manager.create_incremental().unwrap();
    assert_eq!(manager.read(0, &place.path("work/sub/file")).unwrap(), b"first");
    // Through a link above the tracked path.
    symlink(place.path("work"), place.path("shortcut")).unwrap();
    assert_eq!(manager.read(0, &place.path("shortcut/sub/../sub/file")).unwrap(), b"first");
}

#[test]
fn what_cannot_be_read_is_said_with_what_is_there_instead() {
    let place = Place::new();
    place.write("left-out", "x");
    symlink("sub", place.path("work/link")).unwrap();
    let manager = place.manager("session");
    manager.create_baseline().unwrap();
    for (path, reason) in [
        ("work/sub", "it was a directory"),
        ("work/link/file", "work/link was a symlink"),
        ("work/sub/file/x", "work/sub/file was a file"),
        ("work/none", "nothing was there"),
        ("work/left-out", "it was not captured: excluded by pattern left-out"),
        ("other", "it is outside the tracked paths"),
    ] {
        let text = manager.read(0, &place.path(path)).unwrap_err().to_string();
        assert!(text.ends_with(reason), "{path}: {text}");
    }
    let error = manager.read(1, &place.path("work/sub/file")).unwrap_err();
    assert!(matches!(error, SnapshotError::NoSuchSnapshot { last: Some(0), .. }), "{error}");
}

#[test]
fn waiting_for_another_writer_can_be_cancelled() {
    #[derive(Default)]
    struct Stop(AtomicBool);
    impl Progress for Stop {
        fn advance(&self, _entries: u64, _bytes: u64) {}
        fn is_cancelled(&self) -> bool {
            self.0.load(SeqCst)
        }
    }
    let place = Place::new();
    let manager = place.manager("session");
    let writer = manager.session().lock().unwrap();
    let stop = Arc::new(Stop::default());
    let waiting = manager.clone().with_progress(stop.clone());
    let waiter = std::thread::spawn(move || waiting.create_baseline());
    std::thread::sleep(Duration::from_millis(30));
    assert!(!waiter.is_finished(), "it did not wait");
    stop.0.store(true, SeqCst);
    let stopped = waiter.join().unwrap().unwrap_err();
    assert!(matches!(stopped, SnapshotError::Capture(CaptureError::Cancelled)), "{stopped}");
    drop(writer);
    manager.create_baseline().unwrap();
}

#[test]
fn a_snapshot_stops_in_the_middle_of_a_file_and_nothing_is_recorded() {
    let place = Place::new();
    let file = std::fs::File::create(place.path("work/huge")).unwrap();
    // The longest hole that is hashed as zeros.
    file.set_len(LONGEST_CHAIN_BYTES).unwrap();
    let stops = Arc::new(StopsAt::new(4 << 20));
    let manager = SnapshotManager::new(
        &place.path("session"),
        &[place.path("work")],
        ExclusionConfig::default(),
        Budget::UNLIMITED,
    )
    .unwrap();
    let stopped = manager.clone().with_progress(stops.clone()).create_baseline().unwrap_err();
    assert!(matches!(stopped, SnapshotError::Capture(CaptureError::Cancelled)), "{stopped}");
    assert!(stops.bytes.load(SeqCst) < 5 << 20);
    assert_eq!(manager.snapshot_count().unwrap(), 0);
    file.set_len(0).unwrap();
    manager.create_baseline().unwrap();
}

#[test]
fn a_pack_that_goes_before_its_snapshot_is_durable_is_missed_by_the_next_one() {
    const FILES: u64 = 300;
    let place = Place::new();
    LocalStore::create(&place.path("store/objects")).unwrap();
    for n in 1..FILES {
        place.write(&format!("sub/file{n}"), &format!("contents {n}"));
    }
    // Until no file is too new for a cache, also where file systems keep a finer time than the
    // coarse clock.
    let newest = sys::Dir::open(&place.path("work/sub")).unwrap();
    let newest = newest.stat(format!("file{}", FILES - 1).as_bytes()).unwrap().ctime;
    while newest.is_racy(sys::coarse_now()) {
        std::thread::yield_now();
    }
    let packs = place.path("store/objects/packs");
    let pending = place.manager("store/a").begin_baseline().unwrap();
    std::fs::remove_dir_all(&packs).unwrap();
    pending.publish().unwrap();
    let files_read = |session| {
        place.manager(session).create_baseline().unwrap();
        place.manager(session).load_manifest(0).unwrap().totals.files_read
    };
    assert_eq!(files_read("store/b"), FILES);
    assert_eq!(std::fs::read_dir(&packs).unwrap().count(), 1);
    assert_eq!(files_read("store/c"), 0);
}

/// A directory that several threads look at, each at a part of its names.
#[test]
fn a_long_directory_is_captured_whole() {
    const EACH: usize = 1500;
    let place = Place::new();
    let long = |name: String| place.path("work/long").join(name);
    std::fs::create_dir(place.path("work/long")).unwrap();
    for i in 0..EACH {
        std::fs::write(long(format!("file{i}")), format!("contents of {i}")).unwrap();
        symlink("file0", long(format!("link{i}"))).unwrap();
        std::fs::create_dir_all(long(format!("dir{i}/left-out"))).unwrap();
    }
    // Looked at by the threads that look at the first and at the last names.
    std::fs::hard_link(long("file0".into()), long("zzz".into())).unwrap();
    std::fs::write(long("aaa".into()), "the first").unwrap();
    std::fs::create_dir(long("left-out".into())).unwrap();
    let manager = place.manager("session").with_threads(4);
    let baseline = manager.create_baseline().unwrap();
    // The tracked path, the directory "sub" with its file, the long one.
    assert_eq!(baseline.totals.entry_count as usize, 1 + 2 + 1 + 3 * EACH + 2);
    assert_eq!(baseline.totals.file_count as usize, 1 + EACH + 2);
    assert_eq!(baseline.not_captured.len(), EACH + 1);
    // A file as new as the cache is read once more.
    let (again, changes) = manager.create_incremental().unwrap();
    assert_eq!((changes, again.merkle_root), (Vec::new(), baseline.merkle_root));

    std::fs::write(long("file700".into()), "changed, and longer than before").unwrap();
    std::fs::remove_dir_all(long("dir1499".into())).unwrap();
    let (last, changes) = manager.create_incremental().unwrap();
    let changed: Vec<_> = changes.into_iter().map(|change| change.path).collect();
    assert_eq!(changed, [long("dir1499".into()), long("file700".into())]);
    assert_eq!(last.not_captured.len(), EACH);
}

/// Moves a directory away, and another one to its place, when a file of a certain length was
/// captured.
struct Meddler {
    directory: PathBuf,
    away: PathBuf,
    other: PathBuf,
    file_bytes: u64,
    is_done: AtomicBool,
}

impl Progress for Meddler {
    fn advance(&self, _: u64, bytes: u64) {
        if bytes == self.file_bytes && !self.is_done.swap(true, SeqCst) {
            std::fs::rename(&self.directory, &self.away).unwrap();
            std::fs::rename(&self.other, &self.directory).unwrap();
        }
    }
}

#[test]
fn a_directory_that_is_replaced_while_it_is_captured_is_captured_as_it_was() {
    const FILES: usize = 3000;
    for threads in [1, 4] {
        let place = Place::new();
        let make = |name: &str, text: &str| {
            let directory = place.path(name);
            std::fs::create_dir(&directory).unwrap();
            for i in 0..FILES {
                std::fs::write(directory.join(format!("file{i}")), text.repeat(7)).unwrap();
            }
            directory
        };
        let directory = make("work/long", "old contents of eleven words");
        let (away, other) = (place.path("away"), make("other", "new contents that are longer"));
        std::fs::write(other.join("and one more"), "x").unwrap();
        let meddled = || {
            let meddler = Meddler {
                directory: directory.clone(),
                away: away.clone(),
                other: other.clone(),
                file_bytes: 7 * 28,
                is_done: AtomicBool::new(false),
            };
            place.manager("session").with_threads(threads).with_progress(Arc::new(meddler))
        };
        let put_back = || {
            std::fs::rename(&directory, &other).unwrap();
            std::fs::rename(&away, &directory).unwrap();
        };
        // Its files are read, and then known to the cache.
        let first = meddled().create_baseline().unwrap();
        put_back();
        let (quiet, changes) =
            place.manager("session").with_threads(threads).create_incremental().unwrap();
        assert_eq!(changes, []);
        assert_eq!(first.totals.file_count, quiet.totals.file_count);
        let (_, changes) = meddled().create_incremental().unwrap();
        assert_eq!(changes, []);
        put_back();
    }
}

/// Writes to a file when one of a certain length was captured.
struct Writer {
    file: PathBuf,
    file_bytes: u64,
    is_done: AtomicBool,
}

impl Progress for Writer {
    fn advance(&self, _: u64, bytes: u64) {
        if bytes == self.file_bytes && !self.is_done.swap(true, SeqCst) {
            std::fs::write(&self.file, "written between its two names").unwrap();
        }
    }
}

#[test]
fn names_of_a_file_that_changes_between_them_are_recorded_as_two_files() {
    let place = Place::new();
    let linked = |directory: &str| place.path("work").join(directory).join("linked");
    for directory in ["a", "z"] {
        std::fs::create_dir(place.path("work").join(directory)).unwrap();
    }
    place.write("a/linked", "as it was");
    std::fs::hard_link(linked("a"), linked("z")).unwrap();
    let links = |snapshot: &SnapshotManifest| {
        let store = LocalStore::open(&place.path("session/objects")).unwrap();
        crate::diff::links_of(&store, &snapshot.merkle_root).unwrap().groups().len()
    };
    let writer = Writer { file: linked("a"), file_bytes: 9, is_done: AtomicBool::new(false) };
    let manager = place.manager("session").with_threads(1).with_progress(Arc::new(writer));
    let baseline = manager.create_baseline().unwrap();
    assert_eq!(links(&baseline), 0);
    let (quiet, changes) = place.manager("session").create_incremental().unwrap();
    assert_eq!(links(&quiet), 1);
    // One of the two names has other contents than were recorded, and both are linked again.
    let deltas: Vec<_> = changes.iter().map(|change| change.size_delta.unwrap().abs()).collect();
    assert_eq!((deltas.len(), deltas.iter().sum::<i64>()), (2, 20), "{changes:?}");
}
