use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::*;
use crate::layout;
use crate::progress::{Amount, Progress, Stage};
use crate::restore::{DecidedBy, Recovery, RestoreOptions};
use crate::snapshot::{Budget, MergeRecord};
use crate::store::LocalStore;
use crate::walk::ExclusionConfig;

/// A file or a symlink; directories are where their contents are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File { content: String, mode: u32 },
    Symlink(String),
}

type State = BTreeMap<String, Entry>;

/// A project, a store, and a session that records what another side does.
struct Fixture {
    temp: tempfile::TempDir,
    side: SnapshotManager,
    base: SnapshotManifest,
}

impl Fixture {
    /// `make` makes the state that both sides begin with.
    fn new(make: impl FnOnce(&Path)) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let project = temp.path().join("project");
        fs::create_dir(&project).unwrap();
        make(&project);
        LocalStore::create(&temp.path().join("store").join(layout::OBJECTS)).unwrap();
        let side = session(temp.path(), "20260101-000000-1");
        let base = side.create_baseline().unwrap();
        Self { temp, side, base }
    }

    fn project(&self) -> std::path::PathBuf {
        self.temp.path().join("project")
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.project().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.project().join(name)).unwrap()
    }

    /// The work of the other side. The project is afterwards as both sides began.
    fn there(&self, work: impl FnOnce(&Path)) -> SnapshotManifest {
        work(&self.project());
        let (theirs, _) = self.side.create_incremental().unwrap();
        let force = RestoreOptions {
            on_conflict: crate::restore::OnConflict::Overwrite,
            ..RestoreOptions::default()
        };
        self.side.restore_with(0, &force).unwrap();
        theirs
    }

    /// A session for a merge, with the state before.
    fn merging(&self, id: &str) -> SnapshotManager {
        let manager = session(self.temp.path(), id);
        manager.create_baseline().unwrap();
        let mut metadata = manager.session().metadata().unwrap();
        metadata.merge = Some(MergeRecord::new("20260101-000000-1".to_owned(), 1));
        manager.save_session_metadata(&metadata).unwrap();
        manager
    }

    /// Merges after these merges, and returns the merge as one of them.
    fn merge_after(
        &self,
        id: &str,
        past: &[PastMerge],
        theirs: &SnapshotManifest,
    ) -> (PastMerge, MergeReport) {
        let merge = Merge::new(self.base.clone(), theirs.clone()).after(past.to_vec());
        let manager = self.merging(id);
        let state = manager.merged_state(&merge).unwrap();
        let report = manager.merge(&merge, &state, false).unwrap();
        let record = manager.session().metadata().unwrap().merge.unwrap();
        assert!(record.is_done);
        (PastMerge { theirs: theirs.clone(), taken: record.taken }, report)
    }

    /// As `nono undo` of a merge.
    fn undo(&self, manager: &SnapshotManager) -> RestoreReport {
        let options = RestoreOptions { is_undo: true, ..RestoreOptions::default() };
        manager.restore_with(0, &options).unwrap()
    }

    fn paths(&self, paths: &[PathBuf]) -> Vec<String> {
        let inside = |path: &PathBuf| path.strip_prefix(self.project()).unwrap().to_owned();
        paths.iter().map(|path| inside(path).to_str().unwrap().to_owned()).collect()
    }

    fn merge(&self, theirs: &SnapshotManifest) -> (SnapshotManager, MergeReport) {
        let manager = self.merging("20260101-000000-2");
        let merge = Merge::new(self.base.clone(), theirs.clone());
        let planned = self.side.plan_merge(&merge).unwrap();
        let state = manager.merged_state(&merge).unwrap();
        let done = manager.merge(&merge, &state, false).unwrap();
        assert_eq!(planned.merge_conflicts, done.merge_conflicts);
        assert_eq!(planned.restore.merged, done.restore.merged);
        assert_eq!(planned.restore.changes, done.restore.changes);
        (manager, done)
    }

    fn conflicts(&self, report: &MergeReport) -> Vec<String> {
        let inside =
            |path: &Path| path.strip_prefix(self.project()).unwrap().to_str().unwrap().to_owned();
        report.merge_conflicts.iter().map(|conflict| inside(&conflict.path)).collect()
    }

    fn look(&self) -> State {
        look(&self.project())
    }
}

fn session(temp: &Path, id: &str) -> SnapshotManager {
    SnapshotManager::new(
        &temp.join("store").join(id),
        &[temp.join("project")],
        ExclusionConfig::nothing(),
        Budget::default(),
    )
    .unwrap()
}

fn look(project: &Path) -> State {
    let mut state = State::new();
    let mut left = vec![project.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(project).unwrap().to_str().unwrap().to_owned();
            if metadata.is_dir() {
                left.push(path);
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                state.insert(name, Entry::Symlink(target.to_str().unwrap().to_owned()));
            } else {
                let content = fs::read_to_string(&path).unwrap();
                let mode = metadata.permissions().mode() & 0o7777;
                state.insert(name, Entry::File { content, mode });
            }
        }
    }
    state
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

const SECTIONS: usize = 4;

/// Values between lines that are there once.
fn text(name: &str, values: [&str; SECTIONS]) -> String {
    let section = |(at, value): (usize, &&str)| {
        format!("{name} {at} begins\n{name} {at} value\n{value}\n{name} {at} ends\n")
    };
    values.iter().enumerate().map(section).collect()
}

#[test]
fn both_sides_of_a_text_merge_and_the_undo_of_the_session_gives_the_state_before() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("text"), text("a", ["0"; 4])).unwrap();
        fs::write(project.join("gone"), "gone").unwrap();
        fs::write(project.join("mode"), "mode").unwrap();
        symlink("text", project.join("link")).unwrap();
    });
    let theirs = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["there", "0", "0", "0"])).unwrap();
        fs::remove_file(project.join("gone")).unwrap();
        fs::create_dir_all(project.join("new/deep")).unwrap();
        fs::write(project.join("new/deep/file"), "new").unwrap();
        set_mode(&project.join("mode"), 0o700);
        fs::remove_file(project.join("link")).unwrap();
        symlink("new", project.join("link")).unwrap();
    });
    fixture.write("text", &text("a", ["0", "0", "0", "here"]));
    fixture.write("mode", "changed here");
    fixture.write("own", "own");
    let before = fixture.look();
    let (manager, report) = fixture.merge(&theirs);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.restore.merged, [fixture.project().join("text")]);
    assert_eq!(fixture.read("text"), text("a", ["there", "0", "0", "here"]));
    assert_eq!(fixture.read("mode"), "changed here");
    let after = fixture.look();
    assert!(!after.contains_key("gone") && after.contains_key("own"));
    assert_eq!(after["link"], Entry::Symlink("new".to_owned()));
    let Entry::File { mode, .. } = after["mode"] else { panic!("{after:?}") };
    assert_eq!(mode, 0o700);
    assert_eq!(fixture.read("new/deep/file"), "new");
    assert_eq!(report.restore.safety_snapshot, Some(0), "the state before is there once");
    assert!(manager.session().metadata().unwrap().restores.is_empty(), "it restored nothing");
    manager.restore_to(0).unwrap();
    assert_eq!(fixture.look(), before);
}

#[test]
fn what_both_sides_changed_in_one_place_stays_and_is_named() {
    let fixture = Fixture::new(|project| {
        for name in ["both", "gone-here", "gone-there", "dir/inside"] {
            let path = project.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "0\n").unwrap();
        }
    });
    let theirs = fixture.there(|project| {
        fs::write(project.join("both"), "there\n").unwrap();
        fs::write(project.join("gone-here"), "there\n").unwrap();
        fs::remove_file(project.join("gone-there")).unwrap();
        fs::write(project.join("made"), "there\n").unwrap();
        fs::write(project.join("dir/more"), "there\n").unwrap();
        fs::write(project.join("free"), "there\n").unwrap();
    });
    fixture.write("both", "here\n");
    fixture.write("gone-there", "here\n");
    fixture.write("made", "here\n");
    fs::remove_file(fixture.project().join("gone-here")).unwrap();
    fs::remove_dir_all(fixture.project().join("dir")).unwrap();
    let mut expected = fixture.look();
    let (_, report) = fixture.merge(&theirs);
    assert_eq!(fixture.conflicts(&report), ["both", "dir/more", "gone-here", "gone-there", "made"]);
    assert!(!report.is_complete() && !report.is_nothing());
    let mode = 0o644;
    expected.insert("free".to_owned(), Entry::File { content: "there\n".to_owned(), mode });
    assert_eq!(fixture.look(), expected);
}

#[test]
fn a_second_merge_is_made_against_the_result_of_the_first() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("text"), text("a", ["0"; 4])).unwrap();
    });
    let first = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["first", "0", "0", "0"])).unwrap();
    });
    let second = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["0", "0", "second", "0"])).unwrap();
    });
    let third = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["third", "0", "0", "0"])).unwrap();
    });
    let merge = |id: &str, theirs: &SnapshotManifest| {
        let manager = fixture.merging(id);
        let merge = Merge::new(fixture.base.clone(), theirs.clone());
        manager.merge(&merge, &manager.merged_state(&merge).unwrap(), false).unwrap()
    };
    assert!(merge("20260101-000000-2", &first).is_complete());
    assert!(merge("20260101-000000-3", &second).is_complete());
    assert_eq!(fixture.read("text"), text("a", ["first", "0", "second", "0"]));
    assert_eq!(fixture.conflicts(&merge("20260101-000000-4", &third)), ["text"]);
    assert!(merge("20260101-000000-5", &first).is_nothing(), "it is there");
}

#[test]
fn a_file_that_one_side_renamed_gets_what_the_other_side_did_in_it() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("old-here"), text("a", ["0"; 4])).unwrap();
        fs::write(project.join("old-there"), text("b", ["0"; 4])).unwrap();
    });
    let theirs = fixture.there(|project| {
        fs::create_dir(project.join("dir")).unwrap();
        fs::rename(project.join("old-there"), project.join("dir/new-there")).unwrap();
        fs::write(project.join("old-here"), text("a", ["there", "0", "0", "0"])).unwrap();
    });
    let project = fixture.project();
    fs::rename(project.join("old-here"), project.join("new-here")).unwrap();
    fixture.write("old-there", &text("b", ["0", "here", "0", "0"]));
    let (_, report) = fixture.merge(&theirs);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(fixture.look().keys().collect::<Vec<_>>(), ["dir/new-there", "new-here"]);
    assert_eq!(fixture.read("dir/new-there"), text("b", ["0", "here", "0", "0"]));
    assert_eq!(fixture.read("new-here"), text("a", ["there", "0", "0", "0"]));
}

#[test]
fn git_directories_and_privileges_do_not_come_along() {
    let fixture = Fixture::new(|project| {
        fs::create_dir(project.join(".git")).unwrap();
        fs::write(project.join(".git/HEAD"), "0").unwrap();
    });
    let theirs = fixture.there(|project| {
        fs::write(project.join(".git/HEAD"), "there").unwrap();
        fs::write(project.join(".git/index.lock"), "").unwrap();
        fs::create_dir_all(project.join("sub/.git")).unwrap();
        fs::write(project.join("sub/.git/HEAD"), "sub").unwrap();
        fs::write(project.join("sub/file"), "sub").unwrap();
        fs::write(project.join("tool"), "tool").unwrap();
        set_mode(&project.join("tool"), 0o4755);
    });
    let (_, report) = fixture.merge(&theirs);
    assert_eq!(fixture.conflicts(&report), ["sub/.git", "tool"]);
    let after = fixture.look();
    assert_eq!(after.keys().collect::<Vec<_>>(), [".git/HEAD", "sub/file", "tool"]);
    assert_eq!(fixture.read(".git/HEAD"), "0");
    let Entry::File { mode, .. } = after["tool"] else { panic!("{after:?}") };
    assert_eq!(mode, 0o755);
}

#[test]
fn chosen_paths_merge_alone_with_the_directories_that_they_need() {
    let fixture = Fixture::new(|project| fs::write(project.join("a"), "0").unwrap());
    let theirs = fixture.there(|project| {
        fs::write(project.join("a"), "there").unwrap();
        fs::create_dir_all(project.join("d/e")).unwrap();
        fs::write(project.join("d/e/x"), "x").unwrap();
        fs::write(project.join("d/y"), "y").unwrap();
    });
    let paths = vec![fixture.project().join("d/e/x")];
    let selection = Selection { paths, ..Selection::default() };
    let merge = Merge::new(fixture.base.clone(), theirs).of(selection);
    let manager = fixture.merging("20260101-000000-2");
    let report = manager.merge(&merge, &manager.merged_state(&merge).unwrap(), false).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(fixture.look().keys().collect::<Vec<_>>(), ["a", "d/e/x"]);
    assert_eq!(fixture.read("a"), "0");
    let unknown = Selection { paths: vec!["nowhere".into()], ..Selection::default() };
    let manager = fixture.merging("20260101-000000-3");
    assert!(manager.merged_state(&merge.of(unknown)).is_err());
}

#[test]
fn a_merged_state_is_a_snapshot_and_lands_only_where_nothing_changed_since() {
    let fixture = Fixture::new(|project| fs::write(project.join("a"), "0").unwrap());
    let theirs = fixture.there(|project| {
        fs::write(project.join("a"), "there").unwrap();
        fs::write(project.join("new"), "new").unwrap();
    });
    let merge = Merge::new(fixture.base.clone(), theirs);
    let manager = fixture.merging("20260101-000000-2");
    let before = fixture.look();
    let checked = manager.merged_state(&merge).unwrap();
    assert_eq!(fixture.look(), before);
    let merged = manager.load_manifest(checked.number).unwrap();
    assert_eq!((merged.totals.file_count, merged.totals.total_bytes), (2, 8));
    fixture.write("later", "later");
    let refused = manager.merge(&merge, &checked, true);
    assert!(matches!(refused, Err(RestoreError::ChangedSinceCheck)), "{refused:?}");
    assert_eq!(fixture.read("a"), "0");
    let manager = fixture.merging("20260101-000000-3");
    let checked = manager.merged_state(&merge).unwrap();
    let done = manager.merge(&merge, &checked, true).unwrap();
    assert!(done.is_complete(), "{done:?}");
    assert_eq!(done.restore.changes, checked.report.restore.changes);
    let (_, since) = manager.create_incremental().unwrap();
    let state = manager.load_manifest(checked.number).unwrap();
    let last = manager.latest().unwrap().manifest;
    assert!(manager.changes_between(&state, &last).unwrap().is_empty(), "{since:?}");
    assert!(manager.recover_restore(Recovery::Finish).unwrap().is_none());
}

#[test]
fn what_a_merge_did_not_write_stays_when_it_is_undone() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("text"), text("a", ["0"; 4])).unwrap();
        fs::write(project.join("mine"), "0").unwrap();
        fs::write(project.join("whole"), "0").unwrap();
    });
    let theirs = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["there", "0", "0", "0"])).unwrap();
        fs::write(project.join("whole"), "there").unwrap();
        fs::write(project.join("new"), "there").unwrap();
    });
    let merge = Merge::new(fixture.base.clone(), theirs);
    let manager = fixture.merging("20260101-000000-2");
    let state = manager.merged_state(&merge).unwrap();
    // An edit after the look at the project, and before the merge lands.
    fixture.write("mine", "edited");
    assert!(manager.merge(&merge, &state, false).unwrap().is_complete());
    fixture.write("later", "later");
    let undone = fixture.undo(&manager);
    assert!(!undone.is_refused(), "{undone:?}");
    assert_eq!(fixture.paths(&undone.spared), ["later", "mine"]);
    assert_eq!(fixture.read("text"), text("a", ["0"; 4]));
    assert_eq!(fixture.read("whole"), "0");
    assert_eq!(fixture.read("mine"), "edited");
    assert_eq!(fixture.read("later"), "later");
    assert!(!fixture.project().join("new").exists());
}

#[test]
fn a_merge_that_never_landed_has_nothing_to_undo() {
    let fixture = Fixture::new(|project| fs::write(project.join("a"), "0").unwrap());
    let theirs = fixture.there(|project| fs::write(project.join("a"), "there").unwrap());
    let manager = fixture.merging("20260101-000000-2");
    manager.merged_state(&Merge::new(fixture.base.clone(), theirs)).unwrap();
    fixture.write("a", "edited");
    fixture.write("new", "new");
    let undone = fixture.undo(&manager);
    assert_eq!(fixture.paths(&undone.spared), ["a", "new"]);
    assert!(undone.changes.is_empty(), "{undone:?}");
    assert_eq!(fixture.read("a"), "edited");
}

#[test]
fn a_later_merge_of_the_same_side_begins_where_the_first_one_ended() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("text"), text("a", ["0"; 4])).unwrap();
        fs::write(project.join("both"), "0\n").unwrap();
        fs::create_dir(project.join("dir")).unwrap();
        fs::write(project.join("dir/kept"), "0\n").unwrap();
    });
    let first = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["1", "0", "0", "0"])).unwrap();
        fs::write(project.join("both"), "1\n").unwrap();
        fs::write(project.join("one"), "1\n").unwrap();
        fs::write(project.join("two"), "1\n").unwrap();
        fs::remove_dir_all(project.join("dir")).unwrap();
    });
    let second = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["2", "0", "0", "0"])).unwrap();
        fs::write(project.join("both"), "2\n").unwrap();
        fs::write(project.join("one"), "1\n").unwrap();
        fs::write(project.join("two"), "2\n").unwrap();
        fs::remove_dir_all(project.join("dir")).unwrap();
    });
    fixture.write("both", "here\n");
    fixture.write("dir/kept", "here\n");
    let (past, report) = fixture.merge_after("20260101-000000-2", &[], &first);
    assert_eq!(fixture.conflicts(&report), ["both", "dir/kept"]);
    // Work here on what came, and what came goes again.
    fixture.write("text", &text("a", ["1", "0", "0", "here"]));
    fs::remove_file(fixture.project().join("one")).unwrap();
    let (again, report) =
        fixture.merge_after("20260101-000000-3", std::slice::from_ref(&past), &second);
    // The changes that were left are named again; those that were taken are the common state.
    assert_eq!(fixture.conflicts(&report), ["both", "dir/kept"]);
    assert_eq!(fixture.read("text"), text("a", ["2", "0", "0", "here"]));
    assert_eq!(fixture.read("two"), "2\n");
    assert!(!fixture.project().join("one").exists(), "it was removed here since");
    let past = [past, again];
    let (_, report) = fixture.merge_after("20260101-000000-4", &past, &second);
    assert!(report.restore.changes.is_empty(), "{report:?}");
}

#[test]
fn paths_that_were_not_chosen_are_not_taken() {
    let fixture = Fixture::new(|_| {});
    let theirs = fixture.there(|project| {
        for name in ["a", "b", "c", "d"] {
            fs::write(project.join(name), "there").unwrap();
        }
    });
    let paths = vec![fixture.project().join("b")];
    let merge = Merge::new(fixture.base.clone(), theirs.clone())
        .of(Selection { paths, ..Selection::default() });
    let manager = fixture.merging("20260101-000000-2");
    let state = manager.merged_state(&merge).unwrap();
    assert!(manager.merge(&merge, &state, false).unwrap().is_complete());
    let taken = manager.session().metadata().unwrap().merge.unwrap().taken;
    assert_eq!(taken, TakenChanges::Only(vec![fixture.project().join("b")]));
    fs::remove_file(fixture.project().join("b")).unwrap();
    let (_, report) = fixture.merge_after(
        "20260101-000000-3",
        &[PastMerge { theirs: theirs.clone(), taken }],
        &theirs,
    );
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(fixture.look().keys().collect::<Vec<_>>(), ["a", "c", "d"]);
}

#[test]
fn what_both_sides_renamed_is_one_named_conflict_or_the_chosen_name() {
    let make = |project: &Path| {
        fs::write(project.join("file"), text("a", ["0"; 4])).unwrap();
        fs::create_dir(project.join("dir")).unwrap();
        for name in ["x", "y"] {
            fs::write(project.join("dir").join(name), text(name, ["0"; 4])).unwrap();
        }
        fs::write(project.join("dir/empty"), "").unwrap();
    };
    let rename = |project: &Path, side: &str| {
        fs::rename(project.join("file"), project.join(format!("file-{side}"))).unwrap();
        fs::rename(project.join("dir"), project.join(format!("dir-{side}"))).unwrap();
    };
    for side in [ConflictSide::Open, ConflictSide::Ours, ConflictSide::Theirs] {
        let fixture = Fixture::new(make);
        let theirs = fixture.there(|project| rename(project, "there"));
        rename(&fixture.project(), "here");
        let before = fixture.look();
        let merge = Merge::new(fixture.base.clone(), theirs).deciding(side, Vec::new());
        let manager = fixture.merging("20260101-000000-2");
        let state = manager.merged_state(&merge).unwrap();
        let report = manager.merge(&merge, &state, false).unwrap();
        let conflicts: &[&str] = match side {
            ConflictSide::Open => &["dir-there", "file-there"],
            _ => &[],
        };
        assert_eq!(fixture.conflicts(&report), conflicts, "{side:?}");
        let decided =
            fixture.paths(&report.decided.iter().map(|it| it.path.clone()).collect::<Vec<_>>());
        let named: &[&str] = match side {
            ConflictSide::Open => &[],
            ConflictSide::Ours => &["dir-there", "file-there"],
            ConflictSide::Theirs => &["dir-there", "file-there"],
        };
        assert_eq!(decided, named, "{side:?}");
        let names = fixture.look().into_keys().collect::<Vec<_>>();
        match side {
            // An empty file is like any other, so that of here is not known to be the renamed one.
            ConflictSide::Theirs => assert_eq!(
                names,
                ["dir-here/empty", "dir-there/empty", "dir-there/x", "dir-there/y", "file-there"]
            ),
            _ => assert_eq!(fixture.look(), before, "{side:?}"),
        }
    }
}

#[test]
fn what_a_side_leaves_out_of_a_directory_that_both_renamed_is_named() {
    let fixture = Fixture::new(|project| {
        fs::create_dir(project.join("dir")).unwrap();
        for name in ["x", "y"] {
            fs::write(project.join("dir").join(name), text(name, ["0"; 4])).unwrap();
        }
    });
    let theirs = fixture.there(|project| {
        fs::rename(project.join("dir"), project.join("there")).unwrap();
        fs::write(project.join("there/x"), "edited there").unwrap();
        fs::write(project.join("there/new"), "new there").unwrap();
    });
    fs::rename(fixture.project().join("dir"), fixture.project().join("here")).unwrap();
    let before = fixture.look();
    let merge = Merge::new(fixture.base.clone(), theirs).deciding(ConflictSide::Ours, Vec::new());
    let manager = fixture.merging("20260101-000000-2");
    let state = manager.merged_state(&merge).unwrap();
    let report = manager.merge(&merge, &state, false).unwrap();
    assert_eq!(fixture.look(), before);
    let named: Vec<PathBuf> = report.decided.iter().map(|it| it.path.clone()).collect();
    assert_eq!(fixture.paths(&named), ["there", "there/new", "there/x"], "{report:?}");
    assert!(report.decided.iter().all(|it| it.by == DecidedBy::Ours), "{report:?}");
}

#[test]
fn a_new_name_of_an_old_file_comes_as_a_copy_and_is_named() {
    let fixture = Fixture::new(|project| fs::write(project.join("old"), "0").unwrap());
    let theirs = fixture.there(|project| {
        fs::hard_link(project.join("old"), project.join("new")).unwrap();
    });
    let (_, report) = fixture.merge(&theirs);
    assert_eq!(fixture.conflicts(&report), ["new"]);
    assert!(report.merge_conflicts[0].reason.contains("one file with old"), "{report:?}");
    assert_eq!(fixture.read("new"), "0");
}

#[test]
fn a_side_decides_about_the_touching_hunks_and_no_other() {
    for (side, value) in [(ConflictSide::Ours, "here"), (ConflictSide::Theirs, "there")] {
        let fixture = Fixture::new(|project| {
            fs::write(project.join("text"), text("a", ["0"; 4])).unwrap();
            fs::write(project.join("gone"), "0").unwrap();
            fs::write(project.join("binary"), b"\0").unwrap();
        });
        let theirs = fixture.there(|project| {
            fs::write(project.join("text"), text("a", ["there", "there", "0", "0"])).unwrap();
            fs::write(project.join("binary"), b"\0there").unwrap();
            fs::remove_file(project.join("gone")).unwrap();
        });
        fixture.write("text", &text("a", ["here", "0", "0", "here"]));
        fixture.write("binary", "\0here");
        fixture.write("gone", "here");
        let merge = Merge::new(fixture.base.clone(), theirs).deciding(side, Vec::new());
        let manager = fixture.merging("20260101-000000-2");
        let state = manager.merged_state(&merge).unwrap();
        let report = manager.merge(&merge, &state, false).unwrap();
        assert!(report.is_complete(), "{report:?}");
        let decided: Vec<PathBuf> = report.decided.iter().map(|it| it.path.clone()).collect();
        assert_eq!(fixture.paths(&decided), ["binary", "gone", "text"]);
        assert_eq!(fixture.read("text"), text("a", [value, "there", "0", "here"]));
        assert_eq!(fixture.read("binary"), format!("\0{value}"));
        assert_eq!(fixture.project().join("gone").exists(), side == ConflictSide::Ours);
        let taken = manager.session().metadata().unwrap().merge.unwrap().taken;
        assert_eq!(taken, TakenChanges::AllBut(Vec::new()), "a decision is one");
    }
}

#[test]
fn a_choice_in_hunks_counts_as_long_as_the_text_is_the_shown_one() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("text"), text("a", ["0"; 4])).unwrap();
    });
    let theirs = fixture.there(|project| {
        fs::write(project.join("text"), text("a", ["there", "0", "0", "0"])).unwrap();
    });
    let here = text("a", ["here", "0", "0", "0"]);
    fixture.write("text", &here);
    let chosen = ChosenText {
        path: fixture.project().join("text"),
        now: ContentHash::of(here.as_bytes()),
        bytes: b"chosen".to_vec(),
    };
    let other = ChosenText { now: ContentHash::of(b"another"), ..chosen.clone() };
    for (chosen, id, conflicts) in
        [(other, "20260101-000000-2", &["text"][..]), (chosen, "20260101-000000-3", &[])]
    {
        let merge = Merge::new(fixture.base.clone(), theirs.clone());
        let merge = merge.deciding(ConflictSide::Open, vec![chosen]);
        let manager = fixture.merging(id);
        let state = manager.merged_state(&merge).unwrap();
        let report = manager.merge(&merge, &state, false).unwrap();
        assert_eq!(fixture.conflicts(&report), conflicts);
    }
    assert_eq!(fixture.read("text"), "chosen");
}

#[test]
fn hard_links_come_and_one_that_is_split_is_named() {
    let fixture = Fixture::new(|project| {
        fs::write(project.join("a"), "0").unwrap();
        fs::hard_link(project.join("a"), project.join("b")).unwrap();
    });
    let theirs = fixture.there(|project| {
        fs::remove_file(project.join("a")).unwrap();
        fs::write(project.join("a"), "there").unwrap();
        fs::write(project.join("new"), "new").unwrap();
        fs::hard_link(project.join("new"), project.join("new-too")).unwrap();
    });
    let (_, report) = fixture.merge(&theirs);
    assert_eq!(fixture.conflicts(&report), ["a"]);
    assert!(report.merge_conflicts[0].reason.contains("one file with b"), "{report:?}");
    let inode = |name: &str| fs::metadata(fixture.project().join(name)).unwrap().ino();
    assert_eq!(fixture.read("a"), "there");
    assert_eq!(fixture.read("b"), "0");
    assert_eq!(inode("new"), inode("new-too"));
}

#[test]
fn a_merge_looks_at_the_project_once() {
    let fixture = Fixture::new(|project| {
        for number in 0..40 {
            let dir = project.join(format!("d{number}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("file"), "0").unwrap();
        }
    });
    let theirs = fixture.there(|project| fs::write(project.join("d7/file"), "there").unwrap());
    let manager = session(fixture.temp.path(), "20260101-000000-2");
    let walks = Arc::new(Walks::default());
    let counted = manager.with_progress(Arc::clone(&walks) as Arc<dyn Progress + Send>);
    counted.create_baseline().unwrap();
    let merge = Merge::new(fixture.base.clone(), theirs);
    let state = counted.merged_state(&merge).unwrap();
    assert!(counted.merge(&merge, &state, false).unwrap().is_complete());
    assert_eq!(fixture.read("d7/file"), "there");
    assert_eq!(walks.0.load(Relaxed), 1, "the state before is the only look");
}

/// Counts the captures of a project.
#[derive(Default)]
struct Walks(AtomicU64);

impl Progress for Walks {
    fn begin(&self, stage: Stage, _expected: Option<Amount>) {
        self.0.fetch_add(u64::from(stage == Stage::Capture), Relaxed);
    }

    fn advance(&self, _entries: u64, _bytes: u64) {}
}

/// One edit of a side.
#[derive(Debug, Clone)]
enum Edit {
    Value { file: usize, section: usize, value: u8 },
    Mode { file: usize, mode: u32 },
    Remove { file: usize },
    Write { file: usize },
    Link { file: usize },
    RemoveDirectory { directory: usize },
}

const FILES: [&str; 5] = ["a", "b", "d/x", "d/e/y", "z/in"];
const DIRECTORIES: [&str; 3] = ["d", "d/e", "z"];

fn edit() -> impl Strategy<Value = Edit> {
    let file = 0..FILES.len();
    prop_oneof![
        6 => (file.clone(), 0..SECTIONS, 1..4u8)
            .prop_map(|(file, section, value)| Edit::Value { file, section, value }),
        2 => (file.clone(), prop::sample::select(vec![0o600, 0o644, 0o755]))
            .prop_map(|(file, mode)| Edit::Mode { file, mode }),
        1 => file.clone().prop_map(|file| Edit::Remove { file }),
        1 => file.clone().prop_map(|file| Edit::Write { file }),
        1 => file.prop_map(|file| Edit::Link { file }),
        1 => (0..DIRECTORIES.len()).prop_map(|directory| Edit::RemoveDirectory { directory }),
    ]
}

fn apply(project: &Path, side: &str, edits: &[Edit]) {
    for edit in edits {
        let path = |file: &usize| project.join(FILES[*file]);
        let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
        match edit {
            Edit::Value { file, section, value } if is_file(&path(file)) => {
                let old = fs::read_to_string(path(file)).unwrap();
                let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
                if let Some(line) = lines.get_mut(section * 4 + 2) {
                    *line = value.to_string();
                }
                fs::write(path(file), lines.join("\n") + "\n").unwrap();
            }
            Edit::Mode { file, mode } if is_file(&path(file)) => set_mode(&path(file), *mode),
            Edit::Remove { file } => drop(fs::remove_file(path(file))),
            Edit::Write { file } => {
                let _ = fs::remove_file(path(file));
                fs::create_dir_all(path(file).parent().unwrap()).unwrap();
                fs::write(path(file), format!("{side} {file}\n")).unwrap();
            }
            Edit::Link { file } => {
                let _ = fs::remove_file(path(file));
                fs::create_dir_all(path(file).parent().unwrap()).unwrap();
                symlink(side, path(file)).unwrap();
            }
            Edit::RemoveDirectory { directory } => {
                let _ = fs::remove_dir_all(project.join(DIRECTORIES[*directory]));
            }
            Edit::Value { .. } | Edit::Mode { .. } => {}
        }
    }
}

/// The value of three that results, or none.
fn one_of<T: PartialEq + Clone>(base: &T, theirs: &T, ours: &T) -> Option<T> {
    match () {
        () if theirs == base => Some(ours.clone()),
        () if ours == base || ours == theirs => Some(theirs.clone()),
        () => None,
    }
}

/// The entry that a merge makes of three; `None`: it is a conflict.
fn merged(
    base: Option<&Entry>,
    theirs: Option<&Entry>,
    ours: Option<&Entry>,
) -> Option<Option<Entry>> {
    if let Some(entry) = one_of(&base, &theirs, &ours) {
        return Some(entry.cloned());
    }
    let (
        Some(Entry::File { content: base, mode: base_mode }),
        Some(Entry::File { content: theirs, mode: their_mode }),
        Some(Entry::File { content: ours, mode: our_mode }),
    ) = (base, theirs, ours)
    else {
        return None;
    };
    let mode = one_of(base_mode, their_mode, our_mode)?;
    if let Some(content) = one_of(base, theirs, ours) {
        return Some(Some(Entry::File { content, mode }));
    }
    let [base, theirs, ours] = [base, theirs, ours].map(|it| it.lines().collect::<Vec<_>>());
    if base.len() != theirs.len() || base.len() != ours.len() {
        return None;
    }
    let lines = (0..base.len()).map(|at| one_of(&base[at], &theirs[at], &ours[at]));
    let content = lines.collect::<Option<Vec<_>>>()?.join("\n") + "\n";
    Some(Some(Entry::File { content, mode }))
}

/// A project with all files, as both sides begin.
fn with_all_files(project: &Path) {
    for name in FILES {
        let path = project.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text(name, ["0"; SECTIONS])).unwrap();
    }
}

/// The merge of three states for each file, or a named conflict. The paths that were named.
fn check_against_model(
    fixture: &Fixture,
    [base, theirs, ours]: [&State; 3],
    report: &MergeReport,
) -> Result<Vec<String>, TestCaseError> {
    let after = fixture.look();
    let conflicts = fixture.conflicts(report);
    let directories_here: Vec<bool> =
        DIRECTORIES.iter().map(|dir| ours.keys().any(|it| it.starts_with(dir))).collect();
    let mut named = Vec::new();
    for name in FILES {
        let [b, t, o, is] = [base, theirs, ours, &after].map(|state| state.get(name));
        let is_named = conflicts.iter().any(|conflict| Path::new(name).starts_with(conflict));
        named.extend(is_named.then(|| name.to_owned()));
        match merged(b, t, o) {
            Some(expected) if !is_named => prop_assert_eq!(
                is,
                expected.as_ref(),
                "{} of {:?}, {:?} and {:?}: {:?}",
                name,
                b,
                t,
                o,
                report
            ),
            None => {
                prop_assert!(is_named, "{} goes unnamed: {:?}", name, report);
                prop_assert_eq!(is, o);
            }
            // Only where its directory is not there any more.
            Some(_) => {
                let lacks_directory = DIRECTORIES
                    .iter()
                    .zip(&directories_here)
                    .any(|(dir, is_here)| Path::new(name).starts_with(dir) && !is_here);
                prop_assert!(lacks_directory, "{} is a conflict: {:?}", name, report);
                prop_assert_eq!(is, o);
            }
        }
    }
    Ok(named)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_merge_is_what_three_states_say_or_a_named_conflict(
        there in prop::collection::vec(edit(), 0..6),
        here in prop::collection::vec(edit(), 0..6),
    ) {
        let fixture = Fixture::new(with_all_files);
        let base = fixture.look();
        let mut their_state = State::new();
        let theirs = fixture.there(|project| {
            apply(project, "there", &there);
            their_state = look(project);
        });
        apply(&fixture.project(), "here", &here);
        let ours = fixture.look();
        let (manager, report) = fixture.merge(&theirs);
        check_against_model(&fixture, [&base, &their_state, &ours], &report)?;
        manager.restore_to(0).unwrap();
        prop_assert_eq!(fixture.look(), ours);
    }

    #[test]
    fn two_forks_merge_in_turn_with_edits_between_and_each_undo_gives_the_state_before(
        in_a in prop::collection::vec(edit(), 0..5),
        in_b in prop::collection::vec(edit(), 0..5),
        more_in_a in prop::collection::vec(edit(), 0..4),
        here in prop::collection::vec(edit(), 0..4),
        between in prop::collection::vec(edit(), 0..3),
    ) {
        let fixture = Fixture::new(with_all_files);
        let base = fixture.look();
        let [mut a_state, mut b_state, mut a2_state] = [const { State::new() }; 3];
        let a = fixture.there(|project| {
            apply(project, "a", &in_a);
            a_state = look(project);
        });
        let b = fixture.there(|project| {
            apply(project, "b", &in_b);
            b_state = look(project);
        });
        let a2 = fixture.there(|project| {
            apply(project, "a", &in_a);
            apply(project, "a2", &more_in_a);
            a2_state = look(project);
        });
        apply(&fixture.project(), "here", &here);
        let ours = fixture.look();
        let (first, report) = fixture.merge_after("20260101-000000-2", &[], &a);
        let left = check_against_model(&fixture, [&base, &a_state, &ours], &report)?;
        let after_a = fixture.look();
        let (_, report) = fixture.merge_after("20260101-000000-3", &[], &b);
        check_against_model(&fixture, [&base, &b_state, &after_a], &report)?;
        let after_b = fixture.look();
        // Work here, which no undo takes. A look at files does not see that an empty directory goes.
        let directories = || DIRECTORIES.map(|directory| fixture.project().join(directory).is_dir());
        let directories_before = directories();
        apply(&fixture.project(), "between", &between);
        let worked = fixture.look();
        let is_idle = worked == after_b && directories() == directories_before;
        // The common state has what was taken of A.
        let mut common = a_state.clone();
        for name in &left {
            common.remove(name);
            common.extend(base.get(name).map(|entry| (name.clone(), entry.clone())));
        }
        let (_, report) = fixture.merge_after("20260101-000000-4", &[first], &a2);
        check_against_model(&fixture, [&common, &a2_state, &worked], &report)?;
        for (id, before) in [("20260101-000000-4", &worked), ("20260101-000000-3", &after_a)] {
            let manager =
                SnapshotManager::open(&fixture.temp.path().join("store").join(id)).unwrap();
            let undone = fixture.undo(&manager);
            let touched: Vec<String> = undone.conflicts.iter().map(|it| it.path.clone())
                .chain(undone.spared.iter().cloned())
                .chain(undone.merged.iter().cloned())
                .map(|path| path.strip_prefix(fixture.project()).unwrap().to_str().unwrap().to_owned())
                .collect();
            // Only what came later stays.
            if id.ends_with('4') {
                prop_assert!(touched.is_empty(), "{:?}", undone);
                prop_assert_eq!(&fixture.look(), before);
            } else if worked == after_b {
                prop_assert!(touched.is_empty() || !is_idle, "{:?}", undone);
                let now = fixture.look();
                for name in FILES {
                    let is_back = now.get(name) == before.get(name);
                    let is_told = touched.iter().any(|path| Path::new(name).starts_with(path));
                    prop_assert!(is_back || is_told, "{} is not back: {:?}", name, undone);
                }
            } else {
                let now = fixture.look();
                for name in FILES.iter().filter(|name| worked.get(**name) != after_b.get(**name)) {
                    let is_kept = now.get(*name) == worked.get(*name);
                    let is_told = touched.iter().any(|path| Path::new(name).starts_with(path));
                    prop_assert!(is_kept || is_told, "{} was taken: {:?}", name, undone);
                }
            }
        }
    }
}
