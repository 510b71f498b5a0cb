//! A path whose time alone moved: no change, counted apart, and put back all the same.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nono_engine::diff::{ChangeSummary, ChangeType};
use nono_engine::restore::RestoreError;
use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;

use crate::fixture::Fixture;
use crate::observe::{assert_same, observe};

fn touch(path: &Path) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 7)).unwrap();
}

fn time(path: &Path) -> (i64, i64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.mtime(), metadata.mtime_nsec())
}

fn manager(fixture: &Fixture) -> SnapshotManager {
    let (session, project) = (fixture.path("session"), fixture.project());
    SnapshotManager::new(&session, &[project], ExclusionConfig::nothing(), Budget::default())
        .unwrap()
}

#[test]
fn a_moved_time_is_no_change_and_the_roots_differ() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.write("one", "1"), fixture.write("other", "1"));
    let manager = manager(&fixture);
    let baseline = manager.create_baseline().unwrap();
    touch(&one);
    fs::write(&other, "2").unwrap();
    let (second, comparison) = manager.create_incremental_compared().unwrap();
    assert_ne!(second.merkle_root, baseline.merkle_root);
    assert_eq!(comparison.touched, [one]);
    let [change] = comparison.changes.as_slice() else { panic!("{comparison:?}") };
    assert_eq!((&change.path, change.change_type), (&other, ChangeType::Modified));
    let summary = ChangeSummary { modified: 1, touched: 1, ..ChangeSummary::default() };
    assert_eq!(comparison.summary(), summary);
    assert_eq!(manager.session().metadata().unwrap().changes, Some(summary));
    assert_eq!(manager.changes_between(&baseline, &second).unwrap(), comparison.changes);
    assert_eq!(manager.compute_restore_diff(0).unwrap(), comparison.changes);
}

#[test]
fn other_permissions_are_a_change_whatever_the_time() {
    let fixture = Fixture::new();
    let path = fixture.write("one", "1");
    let manager = manager(&fixture);
    manager.create_baseline().unwrap();
    touch(&path);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (_, comparison) = manager.create_incremental_compared().unwrap();
    assert_eq!(comparison.touched, Vec::<std::path::PathBuf>::new());
    assert_eq!(comparison.changes[0].change_type, ChangeType::PermissionsChanged);
}

#[test]
fn other_links_are_a_change_with_and_without_another_time() {
    for is_touched in [false, true] {
        let fixture = Fixture::new();
        let (one, other) = (fixture.write("one", "1"), fixture.write("other", "1"));
        let whole = observe(&fixture.project());
        let manager = manager(&fixture);
        manager.create_baseline().unwrap();
        let mtime = fs::metadata(&other).unwrap().modified().unwrap();
        fs::remove_file(&other).unwrap();
        fs::hard_link(&one, &other).unwrap();
        if is_touched {
            touch(&one);
        } else {
            File::options().write(true).open(&one).unwrap().set_modified(mtime).unwrap();
        }
        let (_, comparison) = manager.create_incremental_compared().unwrap();
        let told = |changes: &[nono_engine::diff::Change]| -> Vec<_> {
            changes.iter().map(|change| (change.path.clone(), change.change_type)).collect()
        };
        let modified = [(one, ChangeType::Modified), (other, ChangeType::Modified)];
        assert_eq!(told(&comparison.changes), modified, "{is_touched}");
        let planned = manager.plan_restore(0, &Default::default()).unwrap();
        assert_eq!(told(&planned.changes), modified);
        let done = manager.restore(0).unwrap();
        assert_eq!((done.changes, done.touched), (planned.changes, planned.touched));
        assert_same(&whole, &observe(&fixture.project()));
    }
}

#[test]
fn a_restore_puts_times_back_and_counts_them_apart() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.write("one", "1"), fixture.write("other", "1"));
    let before = observe(&fixture.project());
    let recorded = fixture.record("touch -d @1 one; echo 2 > other").success();
    assert!(recorded.says(": ~1 modified, 1 touched"), "{}", recorded.stderr);

    let list = fixture.nono(&["rollback", "list"]).success();
    assert!(list.says("~1 modified, 1 touched"), "{}", list.stdout);
    let listed = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(
        (&listed[0]["changes"]["touched"], &listed[0]["changes"]["modified"]),
        (&1.into(), &1.into())
    );
    let show = fixture.nono(&["rollback", "show", "latest"]).success();
    assert!(
        show.says("  ~1 modified, 1 touched\n") && !show.says("~ modified    one"),
        "{}",
        show.stdout
    );
    let shown = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(shown["snapshots"][1]["touched"], serde_json::json!([one]));
    let diff = fixture.nono(&["rollback", "diff", "latest", "--json"]).success().json();
    assert_eq!(diff["touched"], serde_json::json!([one]));
    assert_eq!(diff["changes"].as_array().unwrap().len(), 1);

    let planned = fixture.nono(&["rollback", "restore", "latest", "--dry-run", "--json"]);
    let planned = planned.success().json();
    let done = fixture.nono(&["rollback", "restore", "latest", "--json"]).success().json();
    for report in [&planned, &done] {
        assert_eq!(report["touched"], serde_json::json!([one]));
        assert_eq!(report["changes"].as_array().unwrap().len(), 1);
        assert_eq!(report["changes"][0]["path"], serde_json::json!(other));
    }
    assert_same(&before, &observe(&fixture.project()));
    let again = fixture.nono(&["rollback", "restore", "latest"]).success();
    assert!(again.says("everything that is recorded is as in"), "{}", again.stderr);
    assert_eq!(fixture.nono(&["rollback", "verify", "latest"]).code, 0);
}

#[test]
fn what_was_merely_touched_changed_nothing_and_is_said() {
    let fixture = Fixture::new();
    let one = fixture.write("one", "1");
    let then = time(&one);
    let recorded = fixture.record("touch -d @1 one").success();
    assert!(recorded.says(": nothing changed, 1 touched"), "{}", recorded.stderr);
    assert!(!recorded.says("undo it:"), "{}", recorded.stderr);
    let listed = fixture.nono(&["rollback", "list", "--all", "--json"]).success().json();
    assert_eq!(listed[0]["changes"]["touched"], 1);
    let kinds = ["created", "created_directories", "deleted_directories", "deleted"];
    for kind in kinds.into_iter().chain(["modified", "permissions_changed"]) {
        assert_eq!(listed[0]["changes"][kind], 0, "{kind}");
    }

    let id = listed[0]["session_id"].as_str().unwrap();
    let planned = fixture.nono(&["rollback", "restore", id, "--dry-run"]).success();
    assert!(planned.says(": no changes, 1 touched"), "{}", planned.stderr);
    assert_ne!(time(&one), then);
    let done = fixture.nono(&["rollback", "restore", id]).success();
    assert!(done.says("no changes, 1 touched") && done.says("nono redo"), "{}", done.stderr);
    assert_eq!(time(&one), then);
}

#[test]
fn a_directory_with_another_time_is_no_change_and_gets_its_own_back() {
    let fixture = Fixture::new();
    fixture.write("dir/one", "1");
    let before = observe(&fixture.project());
    let recorded = fixture.record("touch dir/x; rm dir/x").success();
    assert!(recorded.says(": nothing changed\n"), "{}", recorded.stderr);
    let planned = fixture.nono(&["rollback", "restore", &fixture.latest(), "--dry-run"]).success();
    assert!(planned.says(": no changes, 1 directory touched"), "{}", planned.stderr);
    let done = fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
    assert!(done.says(": no changes, 1 directory touched\n"), "{}", done.stderr);
    assert_same(&before, &observe(&fixture.project()));
    let again = fixture.nono(&["rollback", "restore", &fixture.latest(), "--dry-run"]).success();
    assert!(again.says("everything that is recorded is as in"), "{}", again.stderr);
}

#[test]
fn only_what_was_modified_is_not_what_was_touched() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.write("one", "1"), fixture.write("other", "1"));
    fixture.record("touch -d @1 one; echo 2 > other").success();
    fixture.nono(&["rollback", "restore", "latest", "--only", "modified"]).success();
    assert_eq!(time(&one), (1, 0));
    assert_eq!(fs::read(other).unwrap(), b"1");
    // A path that is named is meant with its time.
    fixture.nono(&["rollback", "restore", "latest", "one"]).success();
    assert_ne!(time(&one), (1, 0));
}

#[test]
fn what_was_touched_since_the_run_is_no_conflict_and_what_was_edited_is_one() {
    let fixture = Fixture::new();
    let (one, other) = (fixture.write("one", "1"), fixture.write("other", "1"));
    let before = observe(&fixture.project());
    fixture.record("echo 2 > one; echo 2 > other").success();
    touch(&one);
    fs::write(&other, "3").unwrap();
    let refused = fixture.nono(&["rollback", "restore", "latest", "--json"]);
    assert_eq!(refused.code, 1);
    let conflicts = &refused.json()["conflicts"];
    assert_eq!(conflicts.as_array().unwrap().len(), 1);
    assert_eq!(conflicts[0]["path"], serde_json::json!(other));
    fs::write(&other, "2\n").unwrap();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_same(&before, &observe(&fixture.project()));
    // Its own time comes back, too.
    let id = fixture.latest();
    fixture.nono(&["rollback", "restore", &format!("{id}/2")]).success();
    assert_eq!((fs::read(&one).unwrap(), time(&one)), (b"2\n".to_vec(), (1_000_000_000, 7)));
}

#[test]
fn contents_that_somebody_put_back_by_hand_are_no_conflict() {
    let fixture = Fixture::new();
    let one = fixture.write("one", "1");
    let then = time(&one);
    fixture.record("echo 2 > one").success();
    fs::write(&one, "1").unwrap();
    let report = fixture.nono(&["rollback", "restore", "latest", "--json"]).success().json();
    assert_eq!(report["touched"], serde_json::json!([one]));
    assert_eq!(time(&one), then);
}

#[test]
fn directories_are_not_counted_as_files() {
    let fixture = Fixture::new();
    fixture.write("one", "1");
    let recorded = fixture.record("mkdir -p a/b; echo 1 > a/b/c").success();
    assert!(recorded.says(": +1 file +2 directories\n"), "{}", recorded.stderr);
    let recorded = fixture.record("mkdir d").success();
    assert!(recorded.says(": +1 directory\n"), "{}", recorded.stderr);
    let restored = fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
    assert!(restored.says(": -1 directory\n"), "{}", restored.stderr);
}

#[test]
fn a_diff_names_what_was_touched_and_what_was_linked() {
    let fixture = Fixture::new();
    for name in ["one", "two", "three"] {
        fixture.write(name, "1");
    }
    fixture.record("touch -d @1 one; ln -f two three").success();
    let diff = fixture.nono(&["rollback", "diff", "latest"]).success();
    assert!(diff.says("# modification time changed: one\n"), "{}", diff.stdout);
    assert!(!diff.says("modification time changed: t"), "{}", diff.stdout);
    assert!(diff.says("# linked to other names: two\n"), "{}", diff.stdout);
    assert!(diff.says("# linked to other names: three\n"), "{}", diff.stdout);
}

#[test]
fn restore_to_says_what_it_skipped_and_has_done_the_rest() {
    let fixture = Fixture::new();
    let one = fixture.write("one", "1");
    let socket = fixture.project().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let manager = manager(&fixture);
    manager.create_baseline().unwrap();
    drop(listener);
    fs::remove_file(&socket).unwrap();
    fs::write(&one, "2").unwrap();
    let RestoreError::Incomplete { report } = manager.restore_to(0).unwrap_err() else {
        panic!("not incomplete")
    };
    assert_eq!(fs::read(&one).unwrap(), b"1");
    assert_eq!((report.changes.len(), &report.changes[0].path), (1, &one));
    assert_eq!((report.skipped.len(), &report.skipped[0].path), (1, &socket));
    assert!(!report.is_complete() && report.safety_snapshot.is_some());
    let text = RestoreError::Incomplete { report }.to_string();
    let named = format!("1 path is not as it was in snapshot 0, {} for one: ", socket.display());
    assert!(text.starts_with(&named), "{text}");
    // A caller that asks for a report gets one.
    assert_eq!(manager.restore(0).unwrap().skipped.len(), 1);
}
