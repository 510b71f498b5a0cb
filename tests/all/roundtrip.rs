//! Snapshot, any change, restore: the first state is back, as a property over generated trees.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use nono_engine::path_text::decode;
use nono_engine::restore::{OnConflict, RestoreOptions, Selection};
use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::fixture::{Fixture, finished};
use crate::observe::{Observed, assert_same, observe};

/// One thing that can be done to a path of a small name space, so that steps hit each other.
#[derive(Debug, Clone)]
enum Step {
    File { path: Vec<u8>, content: Vec<u8> },
    SparseFile { path: Vec<u8>, megabytes: u64, at: u64 },
    Directory { path: Vec<u8> },
    Symlink { path: Vec<u8>, target: Vec<u8> },
    Fifo { path: Vec<u8> },
    HardLink { from: Vec<u8>, to: Vec<u8> },
    Rename { from: Vec<u8>, to: Vec<u8> },
    Remove { path: Vec<u8> },
    Mode { path: Vec<u8>, mode: u32 },
    Time { path: Vec<u8>, seconds: i64, nanoseconds: u32 },
    Owner { path: Vec<u8>, uid: u32, gid: u32 },
    Xattr { path: Vec<u8>, name: u8, value: Vec<u8> },
    Append { path: Vec<u8>, content: Vec<u8> },
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        4 => Just(b"a".to_vec()),
        4 => Just(b"b".to_vec()),
        2 => Just(b"c c".to_vec()),
        1 => Just(b"\xff\xfe".to_vec()),
        1 => Just(b"new\nline".to_vec()),
        1 => Just(b"back\\x41".to_vec()),
        1 => Just(vec![b'n'; 255]),
    ];
    proptest::collection::vec(name, 1..4).prop_map(|names| names.join(&b'/'))
}

fn step() -> impl Strategy<Value = Step> {
    let content = || proptest::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        5 => (path(), content()).prop_map(|(path, content)| Step::File { path, content }),
        1 => (path(), 1..6u64, 0..6_000_000u64)
            .prop_map(|(path, megabytes, at)| Step::SparseFile { path, megabytes, at }),
        3 => path().prop_map(|path| Step::Directory { path }),
        2 => (path(), proptest::collection::vec(1u8.., 1..40))
            .prop_map(|(path, target)| Step::Symlink { path, target }),
        1 => path().prop_map(|path| Step::Fifo { path }),
        2 => (path(), path()).prop_map(|(from, to)| Step::HardLink { from, to }),
        2 => (path(), path()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => path().prop_map(|path| Step::Remove { path }),
        2 => (path(), 0..=0o7777u32).prop_map(|(path, mode)| Step::Mode { path, mode }),
        1 => (path(), -1_000_000_000..4_000_000_000i64, 0..1_000_000_000u32)
            .prop_map(|(path, seconds, nanoseconds)| Step::Time { path, seconds, nanoseconds }),
        1 => (path(), 0..3u32, 0..3u32).prop_map(|(path, uid, gid)| Step::Owner { path, uid, gid }),
        1 => (path(), 0..3u8, content())
            .prop_map(|(path, name, value)| Step::Xattr { path, name, value }),
        2 => (path(), content()).prop_map(|(path, content)| Step::Append { path, content }),
    ]
}

/// Steps of which many make hard links and directories that their owner cannot write.
fn linking_step() -> impl Strategy<Value = Step> {
    let mode = proptest::sample::select(vec![0o755, 0o555, 0o500, 0o700, 0o640]);
    let directory = proptest::sample::select(vec![&b"a"[..], b"b", b"a/b", b"b/a"]);
    let of_directory = mode.clone().prop_filter("it is entered", |mode| mode & 0o100 != 0);
    prop_oneof![
        3 => step(),
        3 => (path(), path()).prop_map(|(from, to)| Step::HardLink { from, to }),
        1 => (path(), mode).prop_map(|(path, mode)| Step::Mode { path, mode }),
        2 => (directory, of_directory)
            .prop_map(|(path, mode)| Step::Mode { path: path.to_vec(), mode }),
    ]
}

/// Steps that an ordinary user can have made and can read.
fn ordinary_step() -> impl Strategy<Value = Step> {
    linking_step().prop_filter("it needs no rights", |step| match step {
        Step::Owner { .. } => false,
        Step::Mode { mode, .. } => mode & 0o7500 == 0o500,
        _ => true,
    })
}

fn at(root: &Path, path: &[u8]) -> PathBuf {
    root.join(OsStr::from_bytes(path))
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => drop(fs::remove_dir_all(path)),
        Ok(_) => drop(fs::remove_file(path)),
        Err(_) => {}
    }
}

/// Makes room for something at `path`, whatever is in the way.
fn clear(root: &Path, path: &[u8]) -> PathBuf {
    let mut current = root.to_owned();
    let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
    for name in &names[..names.len() - 1] {
        current.push(OsStr::from_bytes(name));
        if !fs::symlink_metadata(&current).is_ok_and(|metadata| metadata.is_dir()) {
            remove(&current);
            fs::create_dir(&current).unwrap();
        }
    }
    let path = at(root, path);
    remove(&path);
    path
}

/// Steps that do not fit the tree do nothing, as long as both states are made by the same code.
fn apply(root: &Path, step: &Step) {
    match step {
        Step::File { path, content } => fs::write(clear(root, path), content).unwrap(),
        Step::SparseFile { path, megabytes, at } => {
            let file = fs::File::create(clear(root, path)).unwrap();
            file.set_len(megabytes << 20).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"data", *at).unwrap();
        }
        Step::Directory { path } => {
            fs::DirBuilder::new().mode(0o755).create(clear(root, path)).unwrap();
        }
        Step::Symlink { path, target } => {
            symlink(OsStr::from_bytes(target), clear(root, path)).unwrap();
        }
        Step::Fifo { path } => {
            let path = clear(root, path);
            let mode = rustix::fs::Mode::from_raw_mode(0o640);
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        }
        Step::HardLink { from, to } => {
            let source = at(root, from);
            if from != to
                && !to.starts_with(from)
                && !from.starts_with(to)
                && fs::symlink_metadata(&source).is_ok_and(|metadata| !metadata.is_dir())
            {
                let target = clear(root, to);
                let _ = fs::hard_link(source, target);
            }
        }
        Step::Rename { from, to } => {
            if !to.starts_with(from) && !from.starts_with(to) && at(root, from).exists() {
                let target = clear(root, to);
                let _ = fs::rename(at(root, from), target);
            }
        }
        Step::Remove { path } => remove(&at(root, path)),
        Step::Mode { path, mode } => {
            let path = at(root, path);
            if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_symlink()) {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
        Step::Time { path, seconds, nanoseconds } => {
            let time = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
            let times = rustix::fs::Timestamps {
                last_access: time(0, rustix::fs::UTIME_OMIT),
                last_modification: time(*seconds, (*nanoseconds).into()),
            };
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let _ = rustix::fs::utimensat(rustix::fs::CWD, at(root, path), &times, flags);
        }
        Step::Owner { path, uid, gid } => {
            let _ = std::os::unix::fs::lchown(at(root, path), Some(*uid), Some(*gid));
        }
        Step::Xattr { path, name, value } => {
            let name = format!("user.x{name}");
            let flags = rustix::fs::XattrFlags::empty();
            let _ = rustix::fs::lsetxattr(at(root, path), name, value, flags);
        }
        Step::Append { path, content } => {
            let path = at(root, path);
            if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                let mut old = fs::read(&path).unwrap_or_default();
                old.extend_from_slice(content);
                let _ = fs::write(&path, old);
            }
        }
    }
}

fn manager(temp: &Path, tracked: &Path) -> SnapshotManager {
    SnapshotManager::new(
        &temp.join("session"),
        &[tracked.to_owned()],
        ExclusionConfig::nothing(),
        Budget::default(),
    )
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        max_shrink_iters: 400,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_change_is_undone_and_the_undo_as_well(
        first in proptest::collection::vec(step(), 0..25),
        second in proptest::collection::vec(step(), 0..25),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("tracked");
        fs::create_dir(&root).unwrap();
        first.iter().for_each(|step| apply(&root, step));
        let before = observe(&root);
        let manager = manager(temp.path(), &root);
        let baseline = manager.create_baseline().unwrap();

        second.iter().for_each(|step| apply(&root, step));
        let changed = observe(&root);
        let expected = manager.compute_restore_diff(0).unwrap();
        assert_same(&changed, &observe(&root));

        let report = manager.restore(0).unwrap();
        prop_assert!(report.is_complete(), "{:?}", report.skipped);
        prop_assert_eq!(&report.changes, &expected);
        assert_same(&before, &observe(&root));
        let again = manager.create_incremental().unwrap();
        prop_assert_eq!(again.0.merkle_root, baseline.merkle_root);
        prop_assert_eq!(manager.restore(0).unwrap().safety_snapshot, None);

        if let Some(safety) = report.safety_snapshot {
            let undone = manager.restore(safety).unwrap();
            prop_assert!(undone.is_complete(), "{:?}", undone.skipped);
            assert_same(&changed, &observe(&root));
        }
    }
}

type Tree = BTreeMap<PathBuf, Observed>;

/// The paths of the same inode.
fn names_of<'a>(tree: &'a Tree, path: &'a Path) -> BTreeSet<&'a Path> {
    let first = tree.get(path).and_then(|it| it.linked_to.as_ref());
    let Some(first) = first else { return BTreeSet::from([path]) };
    let same = tree.iter().filter(|(_, it)| it.linked_to.as_ref() == Some(first));
    same.map(|(path, _)| path.as_path()).collect()
}

/// A path without its other names.
fn alone(tree: &Tree, path: &Path) -> Option<Observed> {
    tree.get(path).map(|it| Observed { linked_to: None, ..it.clone() })
}

/// A selected path is as before or named, and all else is as it was after the change.
fn check_part(
    [before, changed, after]: [&Tree; 3],
    selected: &[PathBuf],
    named: &[PathBuf],
) -> Result<(), TestCaseError> {
    for path in before.keys().chain(changed.keys()).chain(after.keys()) {
        let is_in = |paths: &[PathBuf]| paths.iter().any(|it| path.starts_with(it));
        let is_above = selected.iter().any(|it| it.starts_with(path));
        if is_in(selected) {
            if !is_in(named) {
                prop_assert_eq!(alone(after, path), alone(before, path), "{:?}", path);
                prop_assert_eq!(names_of(after, path), names_of(before, path), "{:?}", path);
            }
        } else if !is_above || changed.contains_key(path) {
            prop_assert_eq!(alone(after, path), alone(changed, path), "{:?}", path);
            let (now, then) = (names_of(after, path), names_of(changed, path));
            let stays = |name: &&Path| !selected.iter().any(|it| name.starts_with(it));
            prop_assert!(now.is_subset(&then), "{:?}: {:?}, not {:?}", path, now, then);
            prop_assert!(then.iter().all(|name| !stays(name) || now.contains(name)));
        }
    }
    Ok(())
}

/// Where a redo was complete, the state is the one after the change; else what differs is named.
fn check_redo(changed: &Tree, after: &Tree, named: &[PathBuf]) -> Result<(), TestCaseError> {
    for path in changed.keys().chain(after.keys()) {
        if !named.iter().any(|it| path.starts_with(it)) {
            prop_assert_eq!(alone(after, path), alone(changed, path), "{:?}", path);
        }
        let names = (names_of(after, path), names_of(changed, path));
        let is_told = || names.0.union(&names.1).any(|it| named.iter().any(|n| n == it));
        prop_assert!(names.0 == names.1 || is_told(), "{:?}: {:?}", path, names);
    }
    Ok(())
}

/// Some of the paths of two states.
fn some_of(trees: [&Tree; 2], picks: &[Index]) -> Vec<PathBuf> {
    let all: BTreeSet<&PathBuf> = trees.into_iter().flat_map(BTreeMap::keys).collect();
    let all: Vec<_> = all.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    if all.is_empty() {
        return Vec::new();
    }
    picks.iter().map(|pick| pick.get(&all).to_path_buf()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96, max_shrink_iters: 300, ..ProptestConfig::default()
    })]

    #[test]
    fn a_part_is_undone_and_redone_and_every_difference_is_named(
        first in proptest::collection::vec(linking_step(), 0..25),
        second in proptest::collection::vec(linking_step(), 0..15),
        picks in proptest::collection::vec(any::<Index>(), 1..4),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("tracked");
        fs::create_dir(&root).unwrap();
        first.iter().for_each(|step| apply(&root, step));
        let before = observe(&root);
        let manager = manager(temp.path(), &root);
        manager.create_baseline().unwrap();
        second.iter().for_each(|step| apply(&root, step));
        let changed = observe(&root);
        let selected = some_of([&before, &changed], &picks);
        prop_assume!(!selected.is_empty());

        let inside = |path: &Path| path.strip_prefix(&root).unwrap().to_owned();
        let options = RestoreOptions {
            on_conflict: OnConflict::Overwrite,
            selection: Selection {
                paths: selected.iter().map(|path| root.join(path)).collect(),
                ..Selection::default()
            },
            ..RestoreOptions::default()
        };
        let report = manager.restore_with(0, &options).unwrap();
        let named: Vec<_> = report.skipped.iter().map(|it| inside(&it.path)).collect();
        prop_assert_eq!(named.is_empty(), report.is_complete());
        check_part([&before, &changed, &observe(&root)], &selected, &named)?;

        if let Some(safety) = report.safety_snapshot
            && let Some(selection) = manager.changed_by_restore(safety).unwrap()
        {
            let options = RestoreOptions { selection, takes_back: true, ..options };
            let report = manager.restore_with(safety, &options).unwrap();
            let named: Vec<_> = report.skipped.iter().map(|it| inside(&it.path)).collect();
            check_redo(&changed, &observe(&root), &named)?;
        }
    }
}

/// Gives all that is in a directory to its owner.
fn own_all(root: &Path) {
    let owner = fs::metadata(root).unwrap();
    for path in observe(root).into_keys() {
        // Without root's rights, the user of the test owns all of it.
        let _ = std::os::unix::fs::lchown(root.join(path), Some(owner.uid()), Some(owner.gid()));
    }
}

/// The paths that a report names as skipped.
fn skipped(report: &serde_json::Value, root: &Path) -> Vec<PathBuf> {
    let skipped = report["skipped"].as_array().unwrap().iter();
    let paths = skipped.map(|it| decode(it["path"].as_str().unwrap()));
    paths
        .map(|path| Path::new(OsStr::from_bytes(&path)).strip_prefix(root).unwrap().into())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12, max_shrink_iters: 60, ..ProptestConfig::default()
    })]

    #[test]
    fn modes_that_keep_their_owner_out_are_no_obstacle(
        first in proptest::collection::vec(ordinary_step(), 0..20),
        second in proptest::collection::vec(ordinary_step(), 0..12),
        picks in proptest::collection::vec(any::<Index>(), 0..3),
    ) {
        let fixture = Fixture::ordinary_user();
        let root = fixture.project();
        let work = |steps: &[Step]| {
            steps.iter().for_each(|step| apply(&root, step));
            own_all(&root);
            observe(&root)
        };
        let before = work(&first);
        let taken = fixture.nono(&["snapshot", "--json"]).success().json();
        let id = taken["session_id"].as_str().unwrap().to_owned();
        let changed = work(&second);
        fixture.nono(&["snapshot", "--session", &id]).success();

        let selected = some_of([&before, &changed], &picks);
        let mut undo = fixture.command(&["undo", "--yes", "--json", &id, "--"]);
        undo.args(selected.iter().map(|path| Path::new(".").join(path)));
        let undone = finished(undo.output().unwrap());
        if before == changed || undone.says("left to undo") {
            return Ok(());
        }
        prop_assert!(undone.code <= 1 && !undone.stdout.is_empty(), "{}", undone.stderr);
        let report = undone.json();
        let named = skipped(&report, &root);
        prop_assert_eq!(undone.code == 0, named.is_empty(), "{}", undone.stderr);
        if selected.is_empty() {
            prop_assert!(named.is_empty(), "{}", undone.stderr);
            assert_same(&before, &observe(&root));
        } else {
            check_part([&before, &changed, &observe(&root)], &selected, &named)?;
        }
        if observe(&root) == changed {
            return Ok(());
        }
        let redone = fixture.nono(&["redo", "--yes", "--json"]);
        prop_assert!(redone.code <= 1 && !redone.stdout.is_empty(), "{}", redone.stderr);
        check_redo(&changed, &observe(&root), &skipped(&redone.json(), &root))?;
    }
}
