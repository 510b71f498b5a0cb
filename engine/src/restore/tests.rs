//! A commit that ends after any of its steps: both ways out, from everywhere.

#![allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::areas::Areas;
use super::commit::Commit;
use super::journal::Journal;
use super::places::Places;
use super::staging::{Layout, stage};
use super::steps::Disk;
use super::*;
use crate::diff;
use crate::fuzzing::forge_links;
use crate::progress::{NoProgress, Progress};
use crate::snapshot::Budget;
use crate::walk::ExclusionConfig;

type Seen = BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)>;

/// Kind and mode, time, and contents or target of everything.
fn look(path: &Path, seen: &mut Seen) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let content = if metadata.is_symlink() {
        std::fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
    } else if metadata.is_file() {
        std::fs::read(path).unwrap()
    } else {
        for entry in std::fs::read_dir(path).unwrap() {
            look(&entry.unwrap().path(), seen);
        }
        Vec::new()
    };
    let state = (metadata.mode(), metadata.mtime(), metadata.mtime_nsec(), content);
    seen.insert(path.to_owned(), state);
}

/// No fixture has so many.
const ALL_STEPS: usize = usize::MAX;

struct Fixture {
    temp: tempfile::TempDir,
    manager: SnapshotManager,
    before: Seen,
    after: Seen,
}

impl Fixture {
    /// A tracked directory in which a path of every kind was created, changed, removed, replaced.
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("tracked");
        let write = |name: &str, content: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("changed", "old");
        write("same", "same");
        write("gone/deep/file", "gone");
        write("mode", "mode");
        write("to-dir", "was a file");
        write("to-file/inside", "was in a directory");
        write("linked", "linked");
        std::fs::hard_link(root.join("linked"), root.join("second")).unwrap();
        symlink("same", root.join("link")).unwrap();
        let manager = SnapshotManager::new(
            &temp.path().join("session"),
            std::slice::from_ref(&root),
            ExclusionConfig::nothing(),
            Budget::default(),
        )
        .unwrap();
        manager.create_baseline().unwrap();
        let mut fixture = Self { temp, manager, before: Seen::new(), after: Seen::new() };
        fixture.before = fixture.look();
        write("changed", "newer");
        write("new/deep/file", "new");
        std::fs::remove_dir_all(root.join("gone")).unwrap();
        std::fs::set_permissions(root.join("mode"), PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::remove_file(root.join("to-dir")).unwrap();
        write("to-dir/inside", "x");
        std::fs::remove_dir_all(root.join("to-file")).unwrap();
        write("to-file", "y");
        std::fs::remove_file(root.join("second")).unwrap();
        write("second", "not linked");
        std::fs::remove_file(root.join("link")).unwrap();
        symlink("changed", root.join("link")).unwrap();
        fixture.after = fixture.look();
        fixture
    }

    fn look(&self) -> Seen {
        let mut seen = Seen::new();
        look(&self.temp.path().join("tracked"), &mut seen);
        seen
    }

    /// Begins a restore of the baseline and stops after so many steps. `None`: there are fewer.
    fn interrupt(&self, steps: usize) -> Option<()> {
        let manager = &self.manager;
        let States { target, latest, .. } = &manager.states(0).unwrap();
        let (target, store) = (&target.manifest, manager.store());
        let current =
            manager.capture_current(store, target, latest, CacheUse::ReadAndWrite).unwrap();
        let started = current.started;
        let links = diff::links_of(store, &current.merkle_root).unwrap();
        let mut plan =
            plan::plan(store, &current.merkle_root, &current.not_captured, target).unwrap();
        plan.link(&diff::links_of(store, &target.merkle_root).unwrap());
        let safety = manager.publish_safety(current, latest, target, Vec::new()).unwrap().number;
        let mut places = Places::new(&target.roots);
        let layout = Layout::new(&plan, &mut places).unwrap();
        let safety = Some(safety);
        let mut journal = Journal {
            snapshot: 0,
            safety,
            areas: layout.areas.clone(),
            work: None,
            end: None,
            facts: super::journal::Facts::default(),
        };
        journal.save(manager.session()).unwrap();
        let mut areas = Areas::open(&journal.areas, &target.roots).unwrap();
        areas.make().unwrap();
        let mut work = stage(store, plan, &layout, &areas, started, manager.progress(), 1).unwrap();
        journal.work = Some(work.clone());
        journal.save(manager.session()).unwrap();
        if steps != ALL_STEPS && steps > work.steps.len() {
            return None;
        }
        work.steps.truncate(steps);
        let mut disk = Disk::new(&mut places, &areas, started, &links, &NoProgress);
        Commit::new(&mut disk, false).run(&work, &NoProgress).unwrap();
        Some(())
    }

    fn recover(&self, way: Recovery) -> RecoveryReport {
        self.manager.recover_restore(way).unwrap().unwrap()
    }
}

#[test]
fn a_commit_that_ends_after_any_step_is_finished_or_taken_back() {
    for steps in 0.. {
        let fixture = Fixture::new();
        if fixture.interrupt(steps).is_none() {
            assert!(steps > 12, "only {steps} steps");
            break;
        }
        assert!(matches!(
            fixture.manager.create_incremental(),
            Err(SnapshotError::RestoreInterrupted { .. })
        ));
        assert!(fixture.manager.session().has_interrupted_restore().unwrap());
        let report = fixture.recover(Recovery::Finish);
        assert_eq!(report.outcome, RecoveryOutcome::Finished);
        assert_eq!(report.skipped, [], "after {steps} steps");
        assert_eq!(fixture.look(), fixture.before, "after {steps} steps");
        assert!(fixture.manager.recover_restore(Recovery::Finish).unwrap().is_none());

        let fixture = Fixture::new();
        fixture.interrupt(steps).unwrap();
        assert_eq!(fixture.recover(Recovery::TakeBack).outcome, RecoveryOutcome::TakenBack);
        assert_eq!(fixture.look(), fixture.after, "after {steps} steps");
        assert!(fixture.manager.recover_restore(Recovery::TakeBack).unwrap().is_none());
        assert_eq!(fixture.manager.restore(0).unwrap().skipped, []);
        assert_eq!(fixture.look(), fixture.before);
    }
}

#[test]
fn a_finished_restore_reports_the_same_changes_as_one_that_was_not_interrupted() {
    let fixture = Fixture::new();
    let expected = fixture.manager.compute_restore_diff(0).unwrap();
    fixture.interrupt(9).unwrap();
    let mut changes = fixture.recover(Recovery::Finish).changes;
    // A hard link that is made anew is a step, and no change of its path.
    changes.retain(|change| expected.iter().any(|e| e.path == change.path));
    let by_path = |mut changes: Vec<Change>| {
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        changes
    };
    assert_eq!(by_path(changes), by_path(expected));
}

#[test]
fn an_edit_made_after_the_crash_is_never_lost() {
    for way in [Recovery::Finish, Recovery::TakeBack] {
        for steps in [0, 5, 12, 16] {
            let fixture = Fixture::new();
            let file = fixture.temp.path().join("tracked/changed");
            if fixture.interrupt(steps).is_none() {
                fixture.recover(Recovery::Finish);
                continue;
            }
            std::fs::write(&file, "edited after the crash").unwrap();
            // Refused, or done around it: the edit is still there.
            let _ = fixture.manager.recover_restore(way);
            assert_eq!(std::fs::read(&file).unwrap(), b"edited after the crash");
            // Out of the way, everything goes on.
            let saved = fixture.temp.path().join("saved");
            std::fs::rename(&file, &saved).unwrap();
            let _ = fixture.manager.recover_restore(way);
            assert!(!fixture.manager.session().has_restore_journal().unwrap(), "{way:?} {steps}");
            fixture.manager.restore(0).unwrap();
            assert_eq!(fixture.look(), fixture.before);
        }
    }
}

#[test]
fn either_way_out_goes_on_where_the_other_was_stopped() {
    for (first, second) in
        [(Recovery::TakeBack, Recovery::Finish), (Recovery::Finish, Recovery::TakeBack)]
    {
        // Stopped after more and more questions, until it is not stopped any more.
        for limit in 1.. {
            let fixture = Fixture::new();
            fixture.interrupt(ALL_STEPS).unwrap();
            let asked = AtomicU64::new(0);
            let when = StopsWhen(move || asked.fetch_add(1, SeqCst) >= limit);
            let manager = fixture.manager.clone().with_progress(Arc::new(when));
            if manager.recover_restore(first).is_ok() {
                assert!(limit > 15, "only {limit} questions");
                break;
            }
            assert_eq!(fixture.recover(second).skipped, [], "{second:?} after {limit}");
            let expected =
                if second == Recovery::Finish { &fixture.before } else { &fixture.after };
            assert_eq!(&fixture.look(), expected, "{second:?} after {limit}");
            assert_eq!(journal_and_staging(&fixture), (false, 0));
        }
    }
}

#[test]
fn what_somebody_does_in_a_new_tree_after_the_crash_is_not_lost() {
    for way in [Recovery::TakeBack, Recovery::Finish] {
        let fixture = Fixture::new();
        fixture.interrupt(ALL_STEPS).unwrap();
        let deep = fixture.temp.path().join("tracked/gone/deep");
        assert_eq!(std::fs::read(deep.join("file")).unwrap(), b"gone");
        std::fs::write(deep.join("file"), "edited").unwrap();
        std::fs::write(deep.join("more"), "more").unwrap();
        let recovered = fixture.manager.recover_restore(way);
        assert_eq!(std::fs::read(deep.join("file")).unwrap(), b"edited");
        assert_eq!(std::fs::read(deep.join("more")).unwrap(), b"more");
        match way {
            Recovery::Finish => drop(recovered.unwrap().unwrap()),
            Recovery::TakeBack => {
                // All else is as before, and these are named.
                let Err(RestoreError::NotTakenBack { rollback, .. }) = recovered else {
                    panic!("{recovered:?}")
                };
                assert!(rollback.iter().any(|line| line.contains("deep/file")), "{rollback:?}");
                let changed = fixture.temp.path().join("tracked/changed");
                assert_eq!(std::fs::read(changed).unwrap(), b"newer");
                std::fs::rename(&deep, fixture.temp.path().join("saved")).unwrap();
                fixture.recover(Recovery::TakeBack);
                assert_eq!(fixture.look(), fixture.after);
            }
        }
    }
}

#[test]
fn what_somebody_put_where_a_new_tree_was_to_go_stays() {
    let fixture = Fixture::new();
    fixture.interrupt(0).unwrap();
    let gone = fixture.temp.path().join("tracked/gone");
    std::fs::create_dir_all(gone.join("deep")).unwrap();
    std::fs::write(gone.join("deep/file"), "mine").unwrap();
    assert!(fixture.manager.recover_restore(Recovery::Finish).is_err());
    fixture.recover(Recovery::TakeBack);
    assert_eq!(std::fs::read(gone.join("deep/file")).unwrap(), b"mine");
}

#[test]
fn a_journal_of_another_session_touches_nothing() {
    let fixture = Fixture::new();
    fixture.manager.create_incremental().unwrap();
    fixture.interrupt(3).unwrap();
    let halfway = fixture.look();
    let path = fixture.manager.session().path().join("restore.journal");
    let good = std::fs::read(&path).unwrap();
    let mut journal = Journal::decode(&good).unwrap();
    // One that is not there, one that is no safety snapshot, and without one a target that is not
    // there.
    for (safety, snapshot) in [(Some(99), 0), (Some(1), 0), (None, 99)] {
        (journal.safety, journal.snapshot) = (safety, snapshot);
        std::fs::write(&path, journal.encode()).unwrap();
        let refused = fixture.manager.recover_restore(Recovery::TakeBack);
        assert!(matches!(refused, Err(RestoreError::ForeignJournal { .. })), "{safety:?}");
    }
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    let refused = fixture.manager.recover_restore(Recovery::Finish);
    assert!(matches!(refused, Err(RestoreError::DamagedJournal { .. })));
    assert_eq!(fixture.look(), halfway);
}

#[test]
fn a_journal_that_names_other_places_touches_none_of_them() {
    let fixture = Fixture::new();
    let outside = fixture.temp.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "mine").unwrap();
    fixture.interrupt(0).unwrap();
    let path = fixture.manager.session().path().join("restore.journal");
    let good = Journal::decode(&std::fs::read(&path).unwrap()).unwrap();
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let mut elsewhere = good.clone();
    elsewhere.areas[0].parent = bytes(&outside);
    let mut steps = good.clone();
    if let Some(work) = &mut steps.work {
        work.steps.insert(0, journal::Step::MakeDirectory { path: bytes(&outside.join("dir")) });
    }
    for hostile in [elsewhere, steps] {
        std::fs::write(&path, hostile.encode()).unwrap();
        assert!(fixture.manager.recover_restore(Recovery::Finish).is_err());
        assert!(fixture.manager.recover_restore(Recovery::TakeBack).is_err());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"mine");
    }
}

/// Asks to stop as soon as something is so.
struct StopsWhen<F>(F);

impl<F: Fn() -> bool + Sync> Progress for StopsWhen<F> {
    fn advance(&self, _entries: u64, _bytes: u64) {}

    fn is_cancelled(&self) -> bool {
        self.0()
    }
}

fn journal_and_staging(fixture: &Fixture) -> (bool, usize) {
    let is_staging = |path: &&PathBuf| path.to_string_lossy().contains(".nono-restore-");
    let journal = fixture.manager.session().has_restore_journal().unwrap();
    (journal, fixture.look().keys().filter(is_staging).count())
}

#[test]
fn a_restore_that_is_asked_to_stop_anywhere_did_not_happen_or_is_complete() {
    // How often is asked says how far it is. A file is made sure of and made, step by step.
    let stops = |large: bool| {
        let fixture = Fixture::new();
        if large {
            let file = fixture.temp.path().join("tracked/changed");
            let old = fixture.look();
            std::fs::write(&file, vec![1; 4 << 20]).unwrap();
            fixture.manager.create_incremental().unwrap();
            std::fs::write(&file, vec![2; 4 << 20]).unwrap();
            assert_ne!(fixture.look(), old);
        }
        let number = u64::from(large);
        let before = fixture.look();
        for limit in 0.. {
            let asked = AtomicU64::new(0);
            let when = StopsWhen(move || asked.fetch_add(1, SeqCst) >= limit);
            let manager = fixture.manager.clone().with_progress(Arc::new(when)).with_threads(1);
            let Err(stopped) = manager.restore(number) else {
                assert_ne!(fixture.look(), before);
                return limit;
            };
            assert!(is_stopped(&stopped), "{stopped}");
            assert_eq!(fixture.look(), before, "after {limit} questions");
            assert_eq!(journal_and_staging(&fixture), (false, 0));
        }
        unreachable!()
    };
    let (small, large) = (stops(false), stops(true));
    assert!(small > 5, "{small}");
    // Read twice before it is replaced, and its successor written once: 3 questions
    // each.
    assert!(large > 12, "{large}");
}

fn is_stopped(error: &RestoreError) -> bool {
    let is_capture = |error: &SnapshotError| {
        matches!(error, SnapshotError::Capture(crate::snapshot::CaptureError::Cancelled))
    };
    match error {
        RestoreError::Cancelled => true,
        RestoreError::Snapshot(error) => is_capture(error),
        _ => false,
    }
}

#[test]
fn a_restore_that_has_changed_the_first_path_runs_to_its_end() {
    let fixture = Fixture::new();
    // The first step moves it away.
    let first = fixture.temp.path().join("tracked/new/deep/file");
    let manager = fixture.manager.clone();
    let manager = manager.with_progress(Arc::new(StopsWhen(move || !first.exists())));
    assert_eq!(manager.restore(0).unwrap().skipped, []);
    assert_eq!(fixture.look(), fixture.before);
    assert_eq!(journal_and_staging(&fixture), (false, 0));
}

#[test]
fn a_recovery_can_be_stopped_and_goes_on_later() {
    for way in [Recovery::Finish, Recovery::TakeBack] {
        let fixture = Fixture::new();
        fixture.interrupt(9).unwrap();
        // Some steps are done, then it is stopped.
        let asked = AtomicU64::new(0);
        let when = StopsWhen(move || asked.fetch_add(1, SeqCst) > 5);
        let stopped = fixture.manager.clone().with_progress(Arc::new(when)).recover_restore(way);
        assert!(matches!(stopped, Err(RestoreError::RecoveryStopped)), "{stopped:?}");
        assert!(fixture.manager.session().has_interrupted_restore().unwrap());
        fixture.recover(way);
        let expected = if way == Recovery::Finish { &fixture.before } else { &fixture.after };
        assert_eq!(&fixture.look(), expected);
    }
}

#[test]
fn a_copy_gives_names_that_are_called_linked_their_own_contents() {
    let fixture = Fixture::new();
    let tracked = fixture.temp.path().join("tracked");
    let path = |name: &str| Box::from(tracked.join(name).as_os_str().as_bytes());
    let groups = [["changed", "same"], ["linked", "second"], ["gone", "mode"]];
    let groups = groups.iter().map(|names| names.iter().map(|name| path(name)).collect());
    forge_links(&fixture.manager, groups.collect());
    let to = fixture.temp.path().join("copy");
    let report = fixture.manager.copy_out(0, &to, &CopyOptions::default()).unwrap();
    assert_eq!(report.skipped, []);
    let read = |name: &str| std::fs::read_to_string(to.join(name)).unwrap();
    assert_eq!([read("changed"), read("same"), read("mode")], ["old", "same", "mode"]);
    let inode = |name: &str| std::fs::metadata(to.join(name)).unwrap().ino();
    assert_eq!(inode("linked"), inode("second"));
    assert!(to.join("gone/deep/file").exists());
}
