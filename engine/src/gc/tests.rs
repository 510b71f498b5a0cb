#![allow(clippy::disallowed_methods, reason = "tests make files and damage them")]

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::object::{ContentHash, Node};
use crate::progress::{Amount, Stage};
use crate::snapshot::{Budget, SessionDir, SnapshotManager};
use crate::store::{LocalStore, ObjectStore, read_root_tree};
use crate::verify::{VerifyOptions, verify_session};
use crate::walk::ExclusionConfig;

/// A tracked directory and the root directory of a store.
struct Lab {
    temp: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let lab = Self { temp: tempfile::tempdir().unwrap() };
        fs::create_dir_all(lab.work().join("sub")).unwrap();
        fs::create_dir_all(lab.root().join("objects")).unwrap();
        lab.write("shared", "in every session");
        lab.write("sub/also shared", "so is this");
        lab
    }

    fn work(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    fn root(&self) -> PathBuf {
        self.temp.path().join("root")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.work().join(name), text).unwrap();
    }

    fn store(&self) -> LocalStore {
        LocalStore::open(&self.root().join("objects")).unwrap()
    }

    fn manager_in(&self, session: &Path) -> SnapshotManager {
        let tracked = [self.work()];
        SnapshotManager::new(session, &tracked, ExclusionConfig::nothing(), Budget::default())
            .unwrap()
            .with_threads(1)
    }

    /// A session that keeps its objects to itself although it lies in a store.
    fn bare_manager(&self, id: &str) -> SnapshotManager {
        fs::create_dir_all(self.root().join(id).join("objects")).unwrap();
        self.manager_in(&self.root().join(id))
    }

    fn manager(&self, id: &str) -> SnapshotManager {
        self.manager_in(&self.root().join(id))
    }

    /// A session with a file of its own, and one more in its second snapshot.
    fn session(&self, id: &str) -> SnapshotManager {
        self.write("own", &format!("only in {id}"));
        let _ = fs::remove_file(self.work().join("later"));
        let manager = self.manager(id);
        manager.create_baseline().unwrap();
        self.write("later", &format!("later in {id}"));
        manager.create_incremental().unwrap();
        manager
    }

    fn open(&self, id: &str) -> SessionDir {
        SessionDir::open(&self.root().join(id)).unwrap()
    }

    fn has(&self, text: &str) -> bool {
        let hash = ContentHash::of(text.as_bytes());
        self.store().contains(&hash, text.len() as u64).unwrap()
    }

    /// All objects, as (count, bytes).
    fn stored(&self) -> (u64, u64) {
        stored(&self.store())
    }

    /// Every path below the root directory, with its length.
    fn everything(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        let mut pending = vec![self.root()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let metadata = fs::symlink_metadata(&path).unwrap();
                found.push((path.clone(), if metadata.is_dir() { 0 } else { metadata.len() }));
                if metadata.is_dir() {
                    pending.push(path);
                }
            }
        }
        found.sort();
        found
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn plan(&self, remove: &[&str]) -> CleanupPlan {
        let sessions: Vec<_> = remove.iter().map(|id| self.open(id)).collect();
        CleanupPlan::new(&self.root(), &sessions).unwrap()
    }

    fn foresee(&self, plan: &CleanupPlan, keep: &[&str]) -> Result<CleanupReport, CleanupError> {
        let keep: Vec<_> = keep.iter().map(|id| self.open(id)).collect();
        plan.foresee(&keep, &CleanupOptions::default())
    }

    /// Plans and applies, and checks that both say the same.
    fn cleanup(&self, remove: &[&str], keep: &[&str]) -> CleanupReport {
        let before = self.everything();
        let plan = self.plan(remove);
        let foreseen = self.foresee(&plan, keep).unwrap();
        assert_eq!(self.everything(), before, "planning changed something");
        assert!(foreseen.dry_run);
        let report = self.apply(&plan, keep).unwrap();
        assert_eq!(CleanupReport { dry_run: true, bytes_shrunk: 0, ..report.clone() }, foreseen);
        report
    }

    fn apply(&self, plan: &CleanupPlan, keep: &[&str]) -> Result<CleanupReport, CleanupError> {
        let list = || Ok::<_, Infallible>(keep.iter().map(|id| self.open(id)).collect());
        plan.apply(list, &CleanupOptions::default())
    }
}

fn stored(store: &LocalStore) -> (u64, u64) {
    let (mut count, mut bytes) = (0, 0);
    store
        .for_each_object(|found| {
            count += 1;
            bytes += found.size;
            Ok::<_, StoreError>(())
        })
        .unwrap();
    (count, bytes)
}

fn assert_sound(manager: &SnapshotManager) {
    let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
    let report = verify_session(manager.session(), manager.store(), &options).unwrap();
    assert_eq!(report.problems, []);
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut document);
    fs::write(path, serde_json::to_vec_pretty(&document).unwrap()).unwrap();
}

/// The tree of the tracked path in the last snapshot.
fn top_tree(manager: &SnapshotManager) -> PathBuf {
    let last = manager.load_manifest(manager.snapshot_count().unwrap() - 1).unwrap();
    let root = read_root_tree(manager.store(), &last.merkle_root).unwrap();
    match root.entries[0].node {
        Node::Directory { tree } => manager.store().object_path(&tree),
        _ => panic!("not a directory"),
    }
}

#[test]
fn what_other_sessions_share_stays_and_the_rest_of_a_removed_session_goes_at_once() {
    let lab = Lab::new();
    lab.session("first");
    let before = lab.stored();
    let second = lab.session("second");
    let both = lab.stored();
    let report = lab.cleanup(&["first"], &["second"]);
    assert_eq!(report.sessions_removed, ["first"]);
    assert!(!lab.has("only in first") && !lab.has("later in first"));
    assert!(lab.has("only in second") && lab.has("in every session"));
    assert_sound(&second);
    let after = lab.stored();
    assert_eq!((report.objects_removed, report.bytes_freed), (both.0 - after.0, both.1 - after.1));
    assert!(after.0 < both.0 && after.0 <= before.0 + 2);
    assert_eq!(report.objects_kept_young, 0);
    assert_eq!(lab.names(), ["index", "objects", "second"]);
}

#[test]
fn removing_all_sessions_leaves_no_object() {
    let lab = Lab::new();
    lab.session("first");
    lab.session("second");
    let (objects, bytes) = lab.stored();
    let report = lab.cleanup(&["first", "second"], &[]);
    assert_eq!((report.objects_removed, report.bytes_freed), (objects, bytes));
    assert_eq!(lab.stored(), (0, 0));
    assert_eq!(lab.names(), ["index", "objects"]);
}

#[test]
fn every_snapshot_of_a_remaining_session_is_kept() {
    let lab = Lab::new();
    let manager = lab.session("s");
    fs::remove_file(lab.work().join("own")).unwrap();
    manager.create_incremental().unwrap();
    let before = lab.stored();
    let report = lab.cleanup(&[], &["s"]);
    assert!(report.is_empty());
    assert_eq!(lab.stored(), before);
    assert_sound(&manager);
}

#[test]
fn orphans_go_only_when_they_are_older_than_the_grace_time() {
    let lab = Lab::new();
    let manager = lab.session("s");
    lab.store().write(b"left by an interrupted snapshot").unwrap();
    let report = lab.cleanup(&[], &["s"]);
    assert_eq!((report.objects_removed, report.objects_kept_young), (0, 1));
    assert_eq!(report.bytes_kept_young, 31);
    assert!(lab.has("left by an interrupted snapshot"));

    let options = CleanupOptions { grace: Duration::ZERO, ..CleanupOptions::default() };
    let plan = CleanupPlan::new(&lab.root(), &[]).unwrap();
    let report = plan.apply(|| Ok::<_, Infallible>(vec![lab.open("s")]), &options).unwrap();
    assert_eq!((report.objects_removed, report.bytes_freed), (1, 31));
    assert!(!lab.has("left by an interrupted snapshot"));
    assert_sound(&manager);
}

#[test]
fn what_a_list_of_names_is_cut_into_stays_as_long_as_the_list_is_needed() {
    let lab = Lab::new();
    // Long names, so that few make a list that is packed in chunks.
    for number in 0..700 {
        lab.write(&format!("sub/{number:03}{}", "x".repeat(240)), "a file");
    }
    let first = lab.session("first");
    let second = lab.session("second");
    lab.store().pack_all_long(&crate::progress::NoProgress).unwrap();
    assert_sound(&first);
    let options = CleanupOptions { grace: Duration::ZERO, ..CleanupOptions::default() };
    let plan = lab.plan(&["first"]);
    plan.apply(|| Ok::<_, Infallible>(vec![lab.open("second")]), &options).unwrap();
    assert_sound(&second);
    let plan = lab.plan(&["second"]);
    plan.apply(|| Ok::<_, Infallible>(vec![]), &options).unwrap();
    assert_eq!(lab.stored(), (0, 0));
}

#[test]
fn orphans_of_a_snapshot_that_was_never_published_survive_the_removal_of_a_session() {
    let lab = Lab::new();
    lab.session("first");
    lab.store().write(b"young orphan").unwrap();
    let report = lab.cleanup(&["first"], &[]);
    assert_eq!(report.objects_kept_young, 1);
    assert_eq!(lab.stored(), (1, 12));
}

#[test]
fn a_running_session_is_skipped_with_the_reason_and_keeps_everything() {
    let lab = Lab::new();
    let running = lab.session("running");
    lab.session("done");
    let lock = running.session().lock_running().unwrap();
    let report = lab.cleanup(&["running", "done"], &[]);
    assert_eq!(report.sessions_removed, ["done"]);
    let skipped = SkippedSession { session_id: "running".to_owned(), reason: SkipReason::Running };
    assert_eq!(report.sessions_skipped, [skipped]);
    assert_sound(&running);
    drop(lock);
    assert_eq!(lab.cleanup(&["running"], &[]).sessions_removed, ["running"]);
}

#[test]
fn a_session_that_began_to_run_after_the_plan_is_skipped() {
    let lab = Lab::new();
    let manager = lab.session("s");
    let plan = lab.plan(&["s"]);
    assert_eq!(lab.foresee(&plan, &[]).unwrap().sessions_removed, ["s"]);
    let _lock = manager.session().lock_running().unwrap();
    let report = lab.apply(&plan, &["s"]).unwrap();
    assert_eq!(report.sessions_removed, [""; 0]);
    assert_eq!(report.sessions_skipped[0].reason, SkipReason::Running);
    assert_eq!(report.objects_removed, 0);
    assert_sound(&manager);
}

#[test]
fn a_session_whose_lock_is_held_is_skipped_and_not_waited_for() {
    let lab = Lab::new();
    let manager = lab.session("s");
    let _lock = manager.session().lock().unwrap();
    let plan = lab.plan(&["s"]);
    let report = lab.apply(&plan, &[]).unwrap();
    assert_eq!(report.sessions_skipped[0].reason, SkipReason::Busy);
    assert_eq!(report.objects_removed, 0);
    assert_sound(&manager);
}

#[test]
fn a_session_made_after_the_plan_keeps_its_objects() {
    let lab = Lab::new();
    lab.session("first");
    let plan = lab.plan(&["first"]);
    let foreseen = lab.foresee(&plan, &[]).unwrap();
    // Same contents, so it shares nearly everything that the plan was about to free.
    let second = lab.manager("second");
    second.create_baseline().unwrap();
    let report = lab.apply(&plan, &["second"]).unwrap();
    assert!(report.objects_removed < foreseen.objects_removed);
    assert_sound(&second);
}

#[test]
fn a_session_that_the_list_forgets_keeps_its_objects_if_it_lies_in_the_root_directory() {
    let lab = Lab::new();
    lab.session("first");
    let second = lab.session("second");
    lab.cleanup(&["first"], &[]);
    assert_sound(&second);
}

#[test]
fn a_session_elsewhere_that_uses_the_store_keeps_its_objects_if_it_is_listed() {
    let lab = Lab::new();
    // It has the same name as the removed one.
    let elsewhere = lab.temp.path().join("elsewhere/first");
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(lab.root().join("objects"), elsewhere.join("objects")).unwrap();
    let other = lab.manager_in(&elsewhere);
    other.create_baseline().unwrap();
    lab.session("first");
    let open = || SessionDir::open(&elsewhere).unwrap();
    let options = CleanupOptions::default();
    let plan = CleanupPlan::new(&lab.root(), &[lab.open("first")]).unwrap();
    let report = plan.apply(|| Ok::<_, Infallible>(vec![open()]), &options).unwrap();
    assert_eq!(report.sessions_removed, ["first"]);
    assert!(report.objects_removed > 0);
    assert_sound(&other);
}

#[test]
fn a_session_that_was_removed_since_the_plan_is_left_out() {
    let lab = Lab::new();
    lab.session("first");
    let plan = lab.plan(&["first"]);
    lab.cleanup(&["first"], &[]);
    let report = lab.apply(&plan, &[]).unwrap();
    assert!(report.is_empty());
}

#[test]
fn leftovers_of_a_crash_are_collected_with_their_objects() {
    let lab = Lab::new();
    lab.session("first");
    let second = lab.session("second");
    fs::rename(lab.root().join("first"), lab.root().join(".removed-first")).unwrap();
    let report = lab.cleanup(&[], &["second"]);
    assert!(report.objects_removed > 0);
    assert!(!lab.has("only in first"));
    assert_eq!(lab.names(), ["index", "objects", "second"]);
    assert_sound(&second);
}

#[test]
fn a_leftover_of_the_same_name_is_no_obstacle() {
    let lab = Lab::new();
    lab.session("s");
    fs::rename(lab.root().join("s"), lab.root().join(".removed-s")).unwrap();
    lab.session("s");
    lab.cleanup(&["s"], &[]);
    assert_eq!(lab.names(), ["index", "objects"]);
    assert_eq!(lab.stored(), (0, 0));
}

#[test]
fn a_damaged_session_that_remains_blocks_everything_and_is_named() {
    type Damage = fn(&SnapshotManager);
    let damages: [(&str, Damage); 8] = [
        ("tree missing", |m| fs::remove_file(top_tree(m)).unwrap()),
        ("tree changed", |m| {
            let path = top_tree(m);
            let mut bytes = fs::read(&path).unwrap();
            bytes[20] ^= 1;
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        }),
        ("root missing", |m| {
            let root = m.load_manifest(0).unwrap().merkle_root;
            fs::remove_file(m.store().object_path(&root)).unwrap();
        }),
        ("manifest not JSON", |m| fs::write(m.session().manifest_path(1), b"{").unwrap()),
        ("manifest of the future", |m| {
            edit(&m.session().manifest_path(1), |manifest| manifest["format_version"] = json!(9));
        }),
        ("manifest with the root of another", |m| {
            let other = m.load_manifest(0).unwrap().merkle_root;
            edit(&m.session().manifest_path(1), |manifest| manifest["merkle_root"] = json!(other));
        }),
        ("snapshot removed", |m| fs::remove_file(m.session().manifest_path(0)).unwrap()),
        ("session manifest not JSON", |m| {
            fs::write(m.session().path().join("manifest.json"), b"").unwrap();
        }),
    ];
    for (what, damage) in damages {
        let lab = Lab::new();
        lab.session("first");
        let good_plan_for_later = lab.plan(&["first"]);
        let second = lab.session("second");
        damage(&second);
        let before = lab.everything();
        let error = lab.foresee(&lab.plan(&["first"]), &["second"]).unwrap_err();
        let CleanupError::DamagedSession { session_id, .. } = &error else {
            panic!("{what}: {error}")
        };
        assert_eq!(session_id, "second", "{what}");
        assert!(error.to_string().contains("verify that session"), "{what}: {error}");
        // Also when the damage is found only while the plan is applied.
        let error = lab.apply(&good_plan_for_later, &["second"]).unwrap_err();
        assert!(matches!(error, CleanupError::DamagedSession { .. }), "{what}: {error}");
        let mut after = lab.everything();
        // Locks are files.
        after.retain(|(path, _)| before.iter().any(|(known, _)| known == path));
        assert_eq!(after, before, "{what}");
        // The way out that the message names.
        lab.cleanup(&["first", "second"], &[]);
        assert_eq!(lab.names(), ["index", "objects"], "{what}");
    }
}

#[test]
fn a_missing_file_of_a_remaining_session_blocks_nothing() {
    let lab = Lab::new();
    lab.session("first");
    let second = lab.session("second");
    let object = second.store().object_path(&ContentHash::of(b"only in second"));
    fs::remove_file(object).unwrap();
    lab.cleanup(&["first"], &["second"]);
    assert!(!lab.has("only in first") && lab.has("later in second"));
}

#[test]
fn a_damaged_session_is_removed_as_far_as_it_can_be_understood() {
    let lab = Lab::new();
    let first = lab.session("first");
    let second = lab.session("second");
    fs::remove_file(top_tree(&first)).unwrap();
    fs::write(first.session().path().join("manifest.json"), b"").unwrap();
    let report = lab.cleanup(&["first"], &["second"]);
    assert_eq!(report.sessions_removed, ["first"]);
    // The first snapshot could still be read; the second one's own object is now an orphan.
    assert!(!lab.has("only in first"));
    assert!(lab.has("later in first"));
    assert_eq!(report.objects_kept_young, 1);
    assert_sound(&second);
}

#[test]
fn merkle_roots_of_the_session_manifest_are_released_where_a_snapshot_manifest_is_gone() {
    let lab = Lab::new();
    let manager = lab.session("s");
    fs::remove_dir_all(manager.session().path().join("snapshots")).unwrap();
    let report = lab.cleanup(&["s"], &[]);
    assert_eq!(report.objects_kept_young, 0);
    assert_eq!(lab.stored(), (0, 0));
}

#[test]
fn a_session_without_snapshots_is_removed_and_blocks_nothing() {
    let lab = Lab::new();
    lab.manager("empty");
    lab.session("full");
    lab.cleanup(&["full"], &["empty"]);
    assert_eq!(lab.stored(), (0, 0));
    lab.cleanup(&["empty"], &[]);
    assert_eq!(lab.names(), ["index", "objects"]);
}

#[test]
fn a_session_whose_manifest_was_not_written_yet_when_a_crash_came_keeps_its_objects() {
    let lab = Lab::new();
    let manager = lab.manager("s");
    manager.create_baseline().unwrap();
    fs::remove_file(manager.session().path().join("manifest.json")).unwrap();
    let before = lab.stored();
    assert!(lab.cleanup(&[], &["s"]).is_empty());
    assert_eq!(lab.stored(), before);
}

#[test]
fn a_freed_object_is_stored_again_because_no_stat_cache_vouches_for_it() {
    let lab = Lab::new();
    lab.session("first");
    let generation = lab.store().generation().unwrap();
    // The stat cache holds only files that are older than the walk.
    std::thread::sleep(Duration::from_millis(20));
    lab.manager("first").create_incremental().unwrap();
    let again = lab.manager("first").create_incremental().unwrap().0;
    assert_eq!(again.totals.files_read, 0, "the cache is in use");

    lab.cleanup(&["first"], &[]);
    assert_ne!(lab.store().generation().unwrap(), generation);
    let caches = fs::read_dir(lab.root().join("index")).unwrap();
    let is_cache = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".stat");
    assert_eq!(caches.map(|entry| entry.unwrap().file_name()).filter(is_cache).count(), 0);
    let second = lab.manager("second");
    let baseline = second.create_baseline().unwrap();
    assert_eq!(baseline.totals.files_read, baseline.totals.file_count);
    assert!(lab.has("only in first"));
    assert_sound(&second);
}

#[test]
fn a_manager_that_is_open_during_a_cleanup_stores_what_was_freed() {
    let lab = Lab::new();
    lab.session("first");
    let second = lab.manager("second");
    lab.cleanup(&["first"], &["second"]);
    assert_eq!(lab.stored(), (0, 0));
    second.create_baseline().unwrap();
    assert_sound(&second);
}

#[test]
fn the_generation_stays_when_nothing_is_removed() {
    let lab = Lab::new();
    lab.session("s");
    let generation = lab.store().generation().unwrap();
    lab.cleanup(&[], &["s"]);
    assert_eq!(lab.store().generation().unwrap(), generation);
}

#[test]
fn temporary_files_of_a_crash_go() {
    let lab = Lab::new();
    lab.session("s");
    let temp = lab.root().join("objects/.tmp-0123");
    fs::write(&temp, "half an object").unwrap();
    lab.cleanup(&[], &["s"]);
    assert!(fs::symlink_metadata(temp).is_err());
}

#[test]
fn a_session_with_its_own_objects_goes_with_them_and_leaves_the_shared_ones_alone() {
    let lab = Lab::new();
    let shared = lab.session("shared");
    let bare = lab.bare_manager("bare");
    bare.create_baseline().unwrap();
    let (objects, bytes) = stored(bare.store());
    let before = lab.stored();
    let report = lab.cleanup(&["bare"], &["shared"]);
    assert_eq!((report.objects_removed, report.bytes_freed), (objects, bytes));
    assert_eq!(lab.stored(), before);
    assert!(!lab.names().contains(&"bare".to_owned()));
    assert_sound(&shared);
}

#[test]
fn a_damaged_session_with_its_own_objects_blocks_nothing() {
    let lab = Lab::new();
    lab.session("shared");
    let bare = lab.bare_manager("bare");
    bare.create_baseline().unwrap();
    fs::remove_file(top_tree(&bare)).unwrap();
    lab.cleanup(&["shared"], &["bare"]);
    assert_eq!(lab.stored(), (0, 0));
    assert!(stored(bare.store()).0 > 0);
}

#[test]
fn a_root_directory_without_shared_objects_is_cleaned_too() {
    let lab = Lab::new();
    fs::remove_dir(lab.root().join("objects")).unwrap();
    lab.manager_in(&lab.root().join("bare")).create_baseline().unwrap();
    let report = lab.cleanup(&["bare"], &[]);
    assert!(report.objects_removed > 0);
    assert_eq!(fs::read_dir(lab.root()).unwrap().count(), 0);
}

#[test]
fn a_link_to_the_objects_of_another_store_is_removed_and_not_followed() {
    let lab = Lab::new();
    let elsewhere = lab.temp.path().join("other/objects");
    fs::create_dir_all(&elsewhere).unwrap();
    let session = lab.root().join("s");
    fs::create_dir(&session).unwrap();
    symlink(&elsewhere, session.join("objects")).unwrap();
    let manager = lab.manager_in(&session);
    manager.create_baseline().unwrap();
    let before = stored(manager.store());
    let report = lab.cleanup(&["s"], &[]);
    assert_eq!((report.sessions_removed.len(), report.objects_removed), (1, 0));
    assert_eq!(stored(&LocalStore::open(&elsewhere).unwrap()), before);
}

#[test]
fn only_sessions_right_in_the_root_directory_are_removed() {
    let lab = Lab::new();
    let outside = lab.temp.path().join("outside");
    lab.manager_in(&outside).create_baseline().unwrap();
    let moved = lab.root().join("moved");
    symlink(&outside, &moved).unwrap();
    for path in [outside.clone(), moved, lab.root().join("objects")] {
        let session = [SessionDir::open(&path).unwrap()];
        let plan = CleanupPlan::new(&lab.root(), &session);
        assert!(matches!(plan, Err(CleanupError::NotInRoot { .. })), "{path:?}: {plan:?}");
    }
}

#[test]
fn a_session_is_not_mistaken_for_a_root_directory() {
    let lab = Lab::new();
    let bare = lab.temp.path().join("bare");
    lab.manager_in(&bare).create_baseline().unwrap();
    let plan = CleanupPlan::new(&bare, &[]);
    assert!(matches!(plan, Err(CleanupError::RootIsSession { .. })));
}

#[test]
fn a_list_that_fails_changes_nothing() {
    let lab = Lab::new();
    let manager = lab.session("s");
    let plan = lab.plan(&["s"]);
    let error = plan.apply(|| Err("no such luck"), &CleanupOptions::default()).unwrap_err();
    assert!(matches!(error, CleanupError::List(_)));
    assert_sound(&manager);
}

#[test]
fn bytes_that_are_both_a_file_and_a_tree_are_kept_as_both() {
    let lab = Lab::new();
    let first = lab.session("first");
    // A tracked copy of a tree: its bytes are needed, and what it names is not.
    fs::copy(top_tree(&first), lab.work().join("copy")).unwrap();
    fs::remove_file(lab.work().join("own")).unwrap();
    let second = lab.manager("second");
    second.create_baseline().unwrap();
    let copied = fs::read(lab.work().join("copy")).unwrap();
    lab.cleanup(&["first"], &["second"]);
    assert!(lab.store().contains(&ContentHash::of(&copied), copied.len() as u64).unwrap());
    assert!(!lab.has("only in first"));
    assert_sound(&second);
}

/// Counts what is done in the last part of the work.
#[derive(Default)]
struct Counted {
    objects: AtomicU64,
    bytes: AtomicU64,
    stop: bool,
}

impl Progress for Counted {
    fn advance(&self, entries: u64, bytes: u64) {
        self.objects.fetch_add(entries, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn begin(&self, _: Stage, _: Option<Amount>) {
        self.objects.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.stop
    }
}

#[test]
fn progress_is_told_of_every_removed_object_and_can_stop_it_before() {
    let lab = Lab::new();
    let manager = lab.session("s");
    let plan = lab.plan(&["s"]);
    let list = || Ok::<_, Infallible>(Vec::new());
    let stopped = Counted { stop: true, ..Counted::default() };
    let options = CleanupOptions { progress: &stopped, ..CleanupOptions::default() };
    assert!(matches!(plan.apply(list, &options), Err(CleanupError::Cancelled)));
    assert_sound(&manager);

    let counted = Counted::default();
    let options = CleanupOptions { progress: &counted, ..CleanupOptions::default() };
    let report = plan.apply(list, &options).unwrap();
    let told = (counted.objects.load(Ordering::Relaxed), counted.bytes.load(Ordering::Relaxed));
    assert_eq!(told, (report.objects_removed, report.bytes_freed));
}

#[test]
fn a_report_has_the_documented_json() {
    let lab = Lab::new();
    let manager = lab.session("running");
    let _lock = manager.session().lock_running().unwrap();
    let report = lab.cleanup(&["running"], &[]);
    let expected = json!({
        "dry_run": false,
        "sessions_removed": [],
        "sessions_skipped": [{"session_id": "running", "reason": "running"}],
        "objects_removed": 0,
        "bytes_freed": 0,
        "bytes_shrunk": 0,
        "objects_kept_young": 0,
        "bytes_kept_young": 0,
        "objects_kept_packed": 0,
        "bytes_kept_packed": 0,
    });
    assert_eq!(serde_json::to_value(report).unwrap(), expected);
}

#[test]
fn snapshots_that_are_taken_during_cleanups_are_complete() {
    let lab = Lab::new();
    let ids: Vec<String> = (0..12).map(|number| format!("s{number}")).collect();
    let options = CleanupOptions { grace: Duration::ZERO, ..CleanupOptions::default() };
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in &ids {
                // All sessions have the same contents, so each relies on objects of the others.
                lab.manager(id).create_baseline().unwrap();
                lab.manager(id).create_incremental().unwrap();
            }
            is_done.store(true, Ordering::SeqCst);
        });
        while !is_done.load(Ordering::SeqCst) {
            // All but the last session that has two snapshots.
            let is_complete = |id: &&String| {
                SessionDir::open(&lab.root().join(id))
                    .and_then(|session| session.snapshot_numbers())
                    .is_ok_and(|numbers| numbers.len() == 2)
            };
            let mut complete: Vec<_> = ids.iter().filter(is_complete).collect();
            complete.pop();
            let remove: Vec<_> = complete.iter().map(|id| lab.open(id)).collect();
            let plan = CleanupPlan::new(&lab.root(), &remove);
            // Without a lock, a plan may see a session that is just being made.
            let Ok(plan) = plan else { continue };
            plan.apply(|| Ok::<_, Infallible>(Vec::new()), &options).unwrap();
        }
    });
    let remaining: Vec<_> = ids.iter().filter(|id| lab.root().join(id).is_dir()).collect();
    assert!(!remaining.is_empty());
    for id in remaining {
        assert_sound(&lab.manager(id));
    }
}

#[test]
fn what_a_crash_left_of_a_session_in_the_making_goes_when_it_is_old() {
    let lab = Lab::new();
    let unfinished = lab.root().join(".new-0123");
    fs::create_dir_all(unfinished.join("snapshots")).unwrap();
    let cache = lab.root().join("index/abc.stat.new-4567");
    fs::create_dir_all(cache.parent().unwrap()).unwrap();
    fs::write(&cache, "half").unwrap();
    lab.cleanup(&[], &[]);
    assert!(unfinished.exists() && cache.exists(), "another process may still be at work on it");
    let options = CleanupOptions { grace: Duration::ZERO, ..CleanupOptions::default() };
    lab.plan(&[]).apply(|| Ok::<_, Infallible>(Vec::new()), &options).unwrap();
    assert!(!unfinished.exists() && !cache.exists());
}

/// Bytes of all objects in the shared store.
fn stored_bytes(lab: &Lab) -> u64 {
    let mut bytes = 0;
    let add = |found: crate::store::FoundObject| {
        bytes += found.size;
        Ok::<_, crate::store::StoreError>(())
    };
    lab.store().for_each_object(add).unwrap();
    bytes
}

/// Four sessions; each has something of its own, and something that the next one has too.
fn four_sessions(lab: &Lab) -> [&'static str; 4] {
    let ids = ["s1", "s2", "s3", "s4"];
    for (index, id) in ids.iter().enumerate() {
        lab.write("own", &"x".repeat(1000 + index));
        lab.write("passed on", &"y".repeat(5000 + index / 2));
        lab.manager(id).create_baseline().unwrap();
    }
    ids
}

#[test]
fn what_a_session_frees_is_known_before_it_goes() {
    let lab = Lab::new();
    let ids = four_sessions(&lab);
    let removable: Vec<_> = ids[..3].iter().map(|id| lab.open(id)).collect();
    let options = CleanupOptions::default();
    let before = lab.everything();
    let usage = measure_usage(&lab.root(), &removable, &options).unwrap();
    assert_eq!(lab.everything(), before, "measuring changed something");
    assert_eq!(usage.total_bytes, stored_bytes(&lab));
    for id in &ids[..3] {
        let freed = lab.cleanup(&[id], &[]).bytes_freed;
        assert_eq!(usage.freed_bytes[*id], freed, "{id}");
        assert!(freed >= 1000);
    }
    // The second is the last that needs what the first two have in common.
    assert!(usage.freed_bytes["s1"] < 5000 && usage.freed_bytes["s2"] > 5000);
    assert!(usage.freed_bytes["s3"] < 5000, "the fourth needs what they have in common");
}

#[test]
fn the_guess_is_exact_after_a_collection_and_grows_with_what_sessions_write() {
    let lab = Lab::new();
    let ids = four_sessions(&lab);
    let guess = || guess_usage(&lab.root()).unwrap();
    assert_eq!(guess(), UsageGuess { bytes: stored_bytes(&lab), ..UsageGuess::default() });
    lab.cleanup(&ids[..2], &[]);
    assert_eq!(guess().bytes, stored_bytes(&lab));
    lab.write("new", &"z".repeat(700));
    lab.manager(ids[3]).create_incremental().unwrap();
    lab.manager("s5").create_baseline().unwrap();
    assert_eq!(guess().bytes, stored_bytes(&lab));
    // A removed session that waits still takes space.
    let withdrawn = withdraw(&lab.root(), &[lab.open("s3"), lab.open("s5")]).unwrap();
    assert_eq!(withdrawn.session_ids, ["s3", "s5"]);
    assert_eq!((guess().bytes, guess().withdrawn_sessions), (stored_bytes(&lab), 2));
    assert!(lab.cleanup(&[], &[]).bytes_freed > 0);
    assert_eq!(guess(), UsageGuess { bytes: stored_bytes(&lab), ..UsageGuess::default() });
    assert_sound(&lab.manager("s4"));
}

#[test]
fn a_session_that_somebody_works_on_is_not_withdrawn() {
    let lab = Lab::new();
    four_sessions(&lab);
    let (busy, running) = (lab.open("s1"), lab.open("s2"));
    let _locks = (busy.lock().unwrap(), running.lock_running().unwrap());
    let withdrawn = withdraw(&lab.root(), &[busy, running, lab.open("s3")]).unwrap();
    assert_eq!(withdrawn.session_ids, ["s3"]);
    let reasons: Vec<_> = withdrawn.skipped.iter().map(|skipped| skipped.reason).collect();
    assert_eq!(reasons, [SkipReason::Busy, SkipReason::Running]);
    assert!(lab.root().join("s1").exists() && !lab.root().join("s3").exists());
}

#[test]
fn a_stat_cache_that_names_nothing_that_went_stays_in_use() {
    let lab = Lab::new();
    lab.session("first");
    lab.write("own", "only in second");
    fs::remove_file(lab.work().join("later")).unwrap();
    // The stat cache holds only files that are older than the walk.
    std::thread::sleep(Duration::from_millis(20));
    lab.manager("second").create_baseline().unwrap();
    let generation = lab.store().generation().unwrap();
    assert!(lab.cleanup(&["first"], &[]).objects_removed > 0);
    assert_ne!(lab.store().generation().unwrap(), generation);
    let again = lab.manager("second").create_incremental().unwrap().0;
    assert_eq!(again.totals.files_read, 0, "the cache is in use");
    assert_sound(&lab.manager("second"));
    // A damaged one is not.
    lab.write("own", "only in third");
    lab.manager("third").create_baseline().unwrap();
    lab.write("own", "only in second");
    lab.manager("second").create_incremental().unwrap();
    let caches = fs::read_dir(lab.root().join("index")).unwrap().map(|entry| entry.unwrap().path());
    let is_cache = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "stat");
    let cache = caches.into_iter().find(is_cache).unwrap();
    let bytes = fs::read(&cache).unwrap();
    fs::write(&cache, &bytes[..bytes.len() - 1]).unwrap();
    assert!(lab.cleanup(&["third"], &[]).objects_removed > 0);
    assert!(!cache.exists());
}

/// Removed snapshots: what stays, what goes, and what everybody says of it.
mod removed_snapshots {
    use super::*;
    use crate::manifest::RemovalReason::{Asked, Retention};
    use crate::restore::RestoreError;
    use crate::session::{Catalog, CatalogError};
    use crate::snapshot::{ManifestError, SnapshotError};

    /// Three states: a file of its own in each.
    fn three(lab: &Lab, id: &str) -> SnapshotManager {
        let manager = lab.manager(id);
        lab.write("own", "first state");
        manager.create_baseline().unwrap();
        lab.write("own", "second state");
        manager.create_incremental().unwrap();
        lab.write("own", "third state");
        lab.write("later", "only in the third state");
        manager.create_incremental().unwrap();
        manager
    }

    fn verified(lab: &Lab, id: &str) -> crate::verify::VerifyReport {
        verify_session(&lab.open(id), &lab.store(), &VerifyOptions::default()).unwrap()
    }

    #[test]
    fn what_only_a_removed_snapshot_reached_goes_and_the_chain_verifies() {
        let lab = Lab::new();
        let manager = three(&lab, "a");
        let manifest = fs::read(lab.open("a").manifest_path(1)).unwrap();
        let root = lab.open("a").metadata().unwrap().session_root();
        let removed = remove_snapshots(&lab.open("a"), &[1], Retention).unwrap();
        assert_eq!(removed.iter().map(|it| it.number).collect::<Vec<_>>(), [1]);
        assert!(lab.has("second state"), "only a collection frees");
        let report = lab.cleanup(&[], &["a"]);
        assert!(report.objects_removed > 0 && report.sessions_removed.is_empty());
        assert!(!lab.has("second state"));
        assert!(lab.has("first state") && lab.has("third state") && lab.has("in every session"));
        assert_eq!(fs::read(lab.open("a").manifest_path(1)).unwrap(), manifest);
        let verified = verified(&lab, "a");
        assert!(verified.ok, "{:?}", verified.problems);
        assert_eq!(verified.session_root, Some(root), "a removal is no fact of the session");
        let removed: Vec<bool> = verified.snapshots.iter().map(|it| it.removed.is_some()).collect();
        assert_eq!(removed, [false, true, false]);
        // The next snapshot builds on the last one, with a number of its own.
        assert_eq!(manager.create_incremental().unwrap().0.number, 3);
        assert!(self::verified(&lab, "a").ok);
        assert_eq!(lab.open("a").snapshot_numbers().unwrap(), [0, 2, 3]);
        assert_eq!(lab.open("a").manifest_numbers().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn without_its_first_snapshot_a_session_counts_changes_from_the_next_one() {
        let lab = Lab::new();
        let manager = three(&lab, "a");
        let created = |it: &SessionDir| it.metadata().unwrap().changes.unwrap().created;
        assert_eq!(created(&lab.open("a")), 1);
        remove_snapshots(&lab.open("a"), &[1, 0], Asked).unwrap();
        assert_eq!(created(&lab.open("a")), 0);
        lab.cleanup(&[], &["a"]);
        assert!(!lab.has("first state") && !lab.has("second state"));
        assert!(verified(&lab, "a").ok);
        lab.write("more", "in the fourth state");
        manager.create_incremental().unwrap();
        assert_eq!(created(&lab.open("a")), 1);
        let verified = verified(&lab, "a");
        assert!(verified.ok, "{:?}", verified.problems);
    }

    #[test]
    fn the_newest_snapshot_is_never_removed() {
        let lab = Lab::new();
        three(&lab, "a");
        let session = lab.open("a");
        let refused = remove_snapshots(&session, &[1, 2], Asked);
        assert!(matches!(refused, Err(RemoveSnapshotError::Newest { number: 2, .. })));
        let refused = remove_snapshots(&session, &[1, 7], Asked);
        assert!(matches!(refused, Err(RemoveSnapshotError::NoSuchSnapshot { number: 7, .. })));
        assert_eq!(session.metadata().unwrap().removed, [], "all of them or none");
        assert_eq!(remove_snapshots(&session, &[1], Asked).unwrap().len(), 1);
        assert_eq!(remove_snapshots(&session, &[1], Asked).unwrap(), [], "it is removed once");
    }

    #[test]
    fn a_pin_keeps_snapshots_that_nobody_named() {
        let lab = Lab::new();
        three(&lab, "a");
        let session = lab.open("a");
        session.set_pinned(true).unwrap();
        let refused = remove_snapshots(&session, &[1], Retention);
        assert!(matches!(refused, Err(RemoveSnapshotError::Pinned { .. })));
        assert_eq!(remove_snapshots(&session, &[1], Asked).unwrap().len(), 1);
    }

    #[test]
    fn a_removed_snapshot_is_named_as_removed_and_not_as_missing() {
        let lab = Lab::new();
        let manager = three(&lab, "20260214-143022-1");
        let session = lab.open("20260214-143022-1");
        remove_snapshots(&session, &[1], Retention).unwrap();
        let by_name =
            Catalog::new(lab.root(), []).find_snapshot(&"20260214-143022-1/1".parse().unwrap());
        let message = by_name.unwrap_err().to_string();
        assert!(message.contains("was removed by retention on 2"), "{message}");
        assert!(matches!(
            manager.load_manifest(1),
            Err(SnapshotError::Manifest(ManifestError::Removed { .. }))
        ));
        for refused in [
            manager.restore_to(1).map(drop),
            manager.plan_restore(1, &Default::default()).map(drop),
        ] {
            let removed = matches!(
                refused,
                Err(RestoreError::Snapshot(SnapshotError::Manifest(ManifestError::Removed { .. })))
            );
            assert!(removed, "{refused:?}");
        }
        let by_name =
            Catalog::new(lab.root(), []).find_snapshot(&"20260214-143022-1/1".parse().unwrap());
        assert!(matches!(by_name, Err(CatalogError::SnapshotRemoved { .. })));
        assert_eq!(manager.restore_to(0).unwrap().len(), 2);
    }

    #[test]
    fn an_edited_manifest_removes_nothing() {
        let lab = Lab::new();
        three(&lab, "a");
        let manifest = lab.root().join("a/manifest.json");
        let mut edited: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
        edited["removed"] =
            json!([{"number": 1, "removed_at": "2026-02-14T14:30:22Z", "reason": "asked"}]);
        fs::write(&manifest, edited.to_string()).unwrap();
        lab.cleanup(&[], &["a"]);
        assert!(lab.has("second state"));
        let refused = remove_snapshots(&lab.open("a"), &[1], Asked);
        assert!(matches!(refused, Err(RemoveSnapshotError::Altered { .. })));
    }

    #[test]
    fn the_last_one_called_removed_is_a_problem() {
        let lab = Lab::new();
        three(&lab, "a");
        let session = lab.open("a");
        let mut metadata = session.metadata().unwrap();
        let removed_at = metadata.started;
        metadata.removed =
            vec![crate::manifest::RemovedSnapshot { number: 2, removed_at, reason: Asked }];
        session.save_metadata(&metadata).unwrap();
        assert!(!verified(&lab, "a").ok);
    }

    #[test]
    fn a_repair_that_makes_the_manifest_again_knows_what_was_removed() {
        let lab = Lab::new();
        three(&lab, "a");
        let removed = remove_snapshots(&lab.open("a"), &[1], Retention).unwrap();
        lab.cleanup(&[], &["a"]);
        fs::write(lab.root().join("a/manifest.json"), "damaged").unwrap();
        let repaired =
            crate::repair::repair_session(&lab.open("a"), &lab.store(), &Default::default())
                .unwrap();
        assert!(repaired.0.lost.is_empty(), "{repaired:?}");
        assert_eq!(lab.open("a").metadata().unwrap().removed, removed);
        assert!(verified(&lab, "a").ok);
        lab.cleanup(&[], &["a"]);
    }
}
