#![allow(clippy::disallowed_methods, reason = "tests make files and damage them")]

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::object::{
    Attributes, Midstates, MidstatesLink, Node, PieceHasher, RootEntry, RootTree, Tree, TreeEntry,
};
use crate::repair::{RepairOptions, repair_session};
use crate::snapshot::{
    Budget, SessionMetadata, SnapshotManager, SnapshotManifest, SnapshotRequest, Step, StepPrompt,
};
use crate::store::{ObjectStore, StopsAt, read_root_tree, read_tree};
use crate::walk::ExclusionConfig;

mod flips;
mod long_files;
mod session_root;

/// A tracked directory and a store, in a directory of their own.
struct Lab {
    temp: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        let lab = Self { temp: tempfile::tempdir().unwrap() };
        fs::create_dir_all(lab.work().join("sub/deep")).unwrap();
        fs::create_dir(lab.work().join("empty")).unwrap();
        for (name, text) in [("a", "alpha"), ("b", "beta"), ("sub/c", "gamma"), ("sub/deep/d", "")]
        {
            fs::write(lab.work().join(name), text).unwrap();
        }
        symlink("nowhere", lab.work().join("link")).unwrap();
        fs::hard_link(lab.work().join("a"), lab.work().join("sub/same as a")).unwrap();
        lab
    }

    fn work(&self) -> PathBuf {
        self.temp.path().join("work")
    }

    fn manager(&self, id: &str) -> SnapshotManager {
        let session = self.temp.path().join("store").join(id);
        fs::create_dir_all(self.temp.path().join("store/objects")).unwrap();
        let tracked = [self.work()];
        SnapshotManager::new(&session, &tracked, ExclusionConfig::nothing(), Budget::default())
            .unwrap()
            .with_threads(2)
    }

    /// A session of three snapshots.
    fn session(&self, id: &str) -> (SnapshotManager, Vec<SnapshotManifest>) {
        let manager = self.manager(id);
        let mut manifests = vec![manager.create_baseline().unwrap()];
        fs::write(self.work().join("sub/c"), "changed").unwrap();
        manifests.push(manager.create_incremental().unwrap().0);
        fs::write(self.work().join("sub/new"), "a new file").unwrap();
        manifests.push(manager.create_incremental().unwrap().0);
        (manager, manifests)
    }

    fn path(&self, inside: &str) -> Option<PathBuf> {
        Some(self.work().join(inside))
    }
}

fn options() -> VerifyOptions<'static> {
    VerifyOptions { threads: 2, ..VerifyOptions::default() }
}

fn verify(manager: &SnapshotManager) -> VerifyReport {
    verify_session(manager.session(), manager.store(), &options()).unwrap()
}

fn object(manager: &SnapshotManager, text: &str) -> PathBuf {
    manager.store().object_path(&ContentHash::of(text.as_bytes()))
}

/// The tree of a directory of the tracked path in a snapshot.
fn tree_of(manager: &SnapshotManager, snapshot: &SnapshotManifest, names: &[&str]) -> ContentHash {
    let root = read_root_tree(manager.store(), &snapshot.merkle_root).unwrap();
    let mut node = root.entries[0].node.clone();
    for name in names {
        let Node::Directory { tree } = node else { panic!("{name} is in no directory") };
        let tree = read_tree(manager.store(), &tree).unwrap();
        node = tree.get(name.as_bytes()).unwrap().node.clone();
    }
    match node {
        Node::Directory { tree } => tree,
        _ => panic!("not a directory"),
    }
}

fn overwrite(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn flip_byte(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    overwrite(path, &bytes);
}

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut document);
    fs::write(path, serde_json::to_vec_pretty(&document).unwrap()).unwrap();
}

fn ok_by_snapshot(report: &VerifyReport) -> Vec<(u64, bool)> {
    report.snapshots.iter().map(|snapshot| (snapshot.number, snapshot.ok)).collect()
}

/// Problems with manifests, as snapshot and reason.
fn manifest_problems(report: &VerifyReport) -> Vec<(Option<u64>, &str)> {
    let manifest = |problem| match problem {
        &Problem::CorruptManifest { snapshot, ref reason, .. } => Some((snapshot, reason.as_str())),
        _ => None,
    };
    report.problems.iter().filter_map(manifest).collect()
}

/// The reason given for a session's manifest that was edited by hand.
const ALTERED: (Option<u64>, &str) = (
    None,
    "it was changed, and not by nono: nothing proves the command, the times and the exit code in \
     it",
);

#[test]
fn an_untouched_session_is_sound_and_every_byte_was_read() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let report = verify(&manager);
    assert_eq!(report.problems, []);
    assert!(report.ok);
    assert_eq!(report.session_id, "s");
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, true), (2, true)]);
    assert_eq!(report.snapshots[2].merkle_root, Some(manifests[2].merkle_root));
    let (mut objects, mut bytes) = (0, 0);
    manager
        .store()
        .for_each_object(|found| {
            objects += 1;
            bytes += found.size;
            Ok::<_, crate::store::StoreError>(())
        })
        .unwrap();
    assert_eq!((report.objects_checked, report.bytes_checked), (objects, bytes));
}

#[test]
fn a_session_with_its_own_objects_is_verified_too() {
    let lab = Lab::new();
    let session = lab.temp.path().join("bare");
    let tracked = [lab.work()];
    let manager =
        SnapshotManager::new(&session, &tracked, ExclusionConfig::nothing(), Budget::default())
            .unwrap();
    assert_eq!(verify(&manager).snapshots.len(), 0);
    manager.create_baseline().unwrap();
    assert!(verify(&manager).ok);
}

#[test]
fn a_flipped_byte_in_a_file_names_the_path_and_the_first_snapshot() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    flip_byte(&object(&manager, "changed"));
    let report = verify(&manager);
    let [Problem::CorruptObject { object: hash, on_disk, snapshot: 1, path, .. }] =
        &report.problems[..]
    else {
        panic!("{:?}", report.problems)
    };
    assert_eq!(*hash, ContentHash::of(b"changed"));
    assert_eq!(*on_disk, object(&manager, "changed"));
    assert_eq!(*path, lab.path("sub/c"));
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, false), (2, false)]);
}

#[test]
fn a_truncated_object_is_corrupt_and_a_removed_one_is_missing() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    overwrite(&object(&manager, "beta"), b"be");
    fs::remove_file(object(&manager, "gamma")).unwrap();
    let report = verify(&manager);
    assert!(
        matches!(
            &report.problems[..],
            [
                Problem::CorruptObject { snapshot: 0, path: first, .. },
                Problem::MissingObject { snapshot: 0, path: second, .. },
            ] if *first == lab.path("b") && *second == lab.path("sub/c")
        ),
        "{:?}",
        report.problems
    );
    assert_eq!(ok_by_snapshot(&report), [(0, false), (1, false), (2, false)]);
}

#[test]
fn only_snapshots_that_need_a_missing_object_are_not_ok() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    fs::remove_file(object(&manager, "gamma")).unwrap();
    assert_eq!(ok_by_snapshot(&verify(&manager)), [(0, false), (1, true), (2, true)]);
}

#[test]
fn a_symlink_or_directory_in_the_place_of_an_object_is_corrupt() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    let (beta, gamma) = (object(&manager, "beta"), object(&manager, "gamma"));
    fs::remove_file(&beta).unwrap();
    fs::remove_file(&gamma).unwrap();
    fs::write(lab.temp.path().join("beta"), "beta").unwrap();
    symlink(lab.temp.path().join("beta"), &beta).unwrap();
    fs::create_dir(&gamma).unwrap();
    let report = verify(&manager);
    let is_corrupt = |problem| matches!(problem, &Problem::CorruptObject { .. });
    assert!(report.problems.iter().all(is_corrupt), "{:?}", report.problems);
    assert_eq!(report.problems.len(), 2);
}

#[test]
fn a_damaged_tree_is_reported_with_its_directory_and_what_is_beside_it_is_still_checked() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let tree = tree_of(&manager, &manifests[0], &["sub"]);
    flip_byte(&manager.store().object_path(&tree));
    flip_byte(&object(&manager, "beta"));
    let report = verify(&manager);
    let [
        Problem::CorruptObject { path: file, .. },
        Problem::CorruptTree { object: found, snapshot: 0, path: directory, .. },
    ] = &report.problems[..]
    else {
        panic!("{:?}", report.problems)
    };
    assert_eq!((file, directory), (&lab.path("b"), &lab.path("sub")));
    assert_eq!(*found, tree);
}

#[test]
fn a_missing_tree_and_a_missing_root_are_missing_objects() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let empty = tree_of(&manager, &manifests[0], &["empty"]);
    fs::remove_file(manager.store().object_path(&empty)).unwrap();
    fs::remove_file(manager.store().object_path(&manifests[2].merkle_root)).unwrap();
    let report = verify(&manager);
    let [
        Problem::MissingObject { object: first, snapshot: 0, path: directory, .. },
        Problem::MissingObject { object: second, snapshot: 2, path: None, .. },
    ] = &report.problems[..]
    else {
        panic!("{:?}", report.problems)
    };
    assert_eq!((*first, *second), (empty, manifests[2].merkle_root));
    assert_eq!(*directory, lab.path("empty"));
}

#[test]
fn a_damaged_list_of_hard_links_is_found() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let root = read_root_tree(manager.store(), &manifests[0].merkle_root).unwrap();
    flip_byte(&manager.store().object_path(&root.links.unwrap()));
    let report = verify(&manager);
    assert!(matches!(&report.problems[..], [Problem::CorruptTree { snapshot: 0, path: None, .. }]));
}

#[test]
fn all_problems_are_collected() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    for text in ["alpha", "beta", "gamma", "changed", "a new file", ""] {
        fs::remove_file(object(&manager, text)).unwrap();
    }
    let report = verify(&manager);
    assert_eq!(report.problems.len(), 6);
    let numbers: Vec<_> = report.problems.iter().map(|problem| problem.snapshot()).collect();
    assert_eq!(numbers, [Some(0), Some(0), Some(0), Some(0), Some(1), Some(2)]);
    let a = &report.problems[0];
    assert!(matches!(a, Problem::MissingObject { path, .. } if *path == lab.path("a")), "{a:?}");
}

#[test]
fn an_edited_merkle_root_is_a_mismatch_of_that_snapshot_alone() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    edit(&manager.session().manifest_path(1), |manifest| {
        manifest["merkle_root"] = json!(manifests[0].merkle_root);
    });
    let report = verify(&manager);
    let expected = Problem::MerkleMismatch {
        snapshot: Some(1),
        expected: manifests[1].merkle_root,
        found: Some(manifests[0].merkle_root),
    };
    assert!(report.problems.contains(&expected), "{:?}", report.problems);
    let listed = (Some(1), "its hash is not the one that the session lists");
    assert_eq!(manifest_problems(&report)[0], listed);
    assert!(report.problems.iter().all(|problem| problem.snapshot() == Some(1)));
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, false), (2, true)]);
}

#[test]
fn totals_that_the_trees_do_not_hold_are_found_even_when_all_hashes_agree() {
    for field in ["file_count", "entry_count", "total_bytes"] {
        let lab = Lab::new();
        let manager = lab.manager("s");
        manager.create_baseline().unwrap();
        let path = manager.session().manifest_path(0);
        edit(&path, |manifest| manifest[field] = json!(manifest[field].as_u64().unwrap() + 1));
        let metadata = manager.session().metadata().unwrap();
        // A forger who also rewrites the session's manifest.
        vouch(&manager, metadata);
        let report = verify(&manager);
        let problems = manifest_problems(&report);
        assert!(matches!(problems[..], [(Some(0), reason)] if reason.contains("trees hold")));
        assert_eq!(ok_by_snapshot(&report), [(0, false)]);
    }
}

#[test]
fn totals_of_a_damaged_tree_are_not_a_second_problem() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let tree = tree_of(&manager, &manifests[2], &["sub"]);
    fs::remove_file(manager.store().object_path(&tree)).unwrap();
    let report = verify(&manager);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
}

#[test]
fn a_manifest_with_another_number_is_corrupt() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    edit(&manager.session().manifest_path(1), |manifest| manifest["number"] = json!(7));
    let report = verify(&manager);
    assert_eq!(manifest_problems(&report), [(Some(1), "it says it is snapshot 7, not 1")]);
    // The session's own notes are still shown.
    assert!(report.snapshots[1].merkle_root.is_some());
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, false), (2, true)]);
}

#[test]
fn tracked_paths_that_are_not_the_ones_in_the_root_tree_are_found() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    edit(&manager.session().manifest_path(2), |manifest| {
        manifest["roots"][0]["path"] = json!("/somewhere/else");
    });
    let report = verify(&manager);
    let problems = manifest_problems(&report);
    assert!(problems.iter().any(|(_, reason)| reason.contains("which it does not list")));
    assert!(report.problems.iter().all(|problem| problem.snapshot() == Some(2)));
}

#[test]
fn an_edited_parent_hash_breaks_the_chain_there() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    edit(&manager.session().manifest_path(2), |manifest| {
        manifest["parent_hash"] = json!(ContentHash::of(b"x"));
    });
    let report = verify(&manager);
    let reasons: Vec<_> = manifest_problems(&report);
    assert_eq!(reasons[0], (Some(2), "the hash of the manifest before it is not the one it names"));
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, true), (2, false)]);
}

#[test]
fn a_snapshot_that_skips_its_parent_is_found() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    edit(&manager.session().manifest_path(2), |manifest| manifest["parent"] = json!(0));
    let report = verify(&manager);
    let expected = (Some(2), "the parent it names is not the snapshot before it");
    assert_eq!(manifest_problems(&report)[0], expected);
}

#[test]
fn a_removed_middle_snapshot_is_missing_and_the_others_are_still_checked() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    fs::remove_dir_all(manager.session().manifest_path(1).parent().unwrap()).unwrap();
    let report = verify(&manager);
    assert_eq!(manifest_problems(&report), [(Some(1), "it is missing")]);
    assert_eq!(report.snapshots[1].merkle_root, Some(manifests[1].merkle_root));
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, false), (2, true)]);
}

#[test]
fn removed_last_snapshots_are_missed() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    fs::remove_file(manager.session().manifest_path(1)).unwrap();
    fs::remove_file(manager.session().manifest_path(2)).unwrap();
    let report = verify(&manager);
    let expected = "it is missing, and so are those of all snapshots up to 2";
    assert_eq!(manifest_problems(&report), [(Some(1), expected)]);
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, false), (2, false)]);
}

#[test]
fn a_snapshot_with_the_largest_number_takes_neither_time_nor_memory() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    let far = manager.session().manifest_path(u64::from(u32::MAX));
    fs::create_dir(far.parent().unwrap()).unwrap();
    fs::copy(manager.session().manifest_path(2), far).unwrap();
    let report = verify(&manager);
    assert_eq!(manifest_problems(&report).len(), 2, "{:?}", report.problems);
    assert_eq!(report.snapshots.len(), 4);
}

#[test]
fn a_manifest_from_the_future_says_that_a_newer_nono_is_needed() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    edit(&manager.session().manifest_path(1), |manifest| manifest["format_version"] = json!(9));
    let session_manifest = manager.session().path().join("manifest.json");
    edit(&session_manifest, |manifest| manifest["format_version"] = json!(8));
    let report = verify(&manager);
    let problems = manifest_problems(&report);
    assert_eq!(problems.len(), 2);
    assert!(problems.iter().all(|(_, reason)| reason.contains("use a newer nono")));
    assert_eq!((problems[0].0, problems[1].0), (None, Some(1)));
}

#[test]
fn manifests_that_are_not_json_or_cut_short_are_corrupt() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    let first = manager.session().manifest_path(0);
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() / 2]).unwrap();
    fs::write(manager.session().manifest_path(1), b"\xff\0 no").unwrap();
    let report = verify(&manager);
    let numbers: Vec<_> = manifest_problems(&report).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [Some(0), Some(1)]);
    assert_eq!(ok_by_snapshot(&report), [(0, false), (1, false), (2, true)]);
}

#[test]
fn a_session_manifest_that_miscounts_is_corrupt() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    let path = manager.session().path().join("manifest.json");
    edit(&path, |manifest| manifest["snapshot_count"] = json!(2));
    let report = verify(&manager);
    assert_eq!(
        manifest_problems(&report),
        [(None, "it counts 2 snapshots, and lists 3 Merkle roots and 3 manifests"), ALTERED]
    );
    assert_eq!(ok_by_snapshot(&report), [(0, true), (1, true), (2, true)]);
}

#[test]
fn a_removed_session_manifest_is_missing() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    fs::remove_file(manager.session().path().join("manifest.json")).unwrap();
    assert_eq!(manifest_problems(&verify(&manager)), [(None, "it is missing")]);
}

#[test]
fn a_crash_between_publishing_a_snapshot_and_naming_it_is_no_damage() {
    let lab = Lab::new();
    let manager = lab.manager("s");
    let path = manager.session().path().join("manifest.json");
    manager.create_baseline().unwrap();
    let before = fs::read(&path).unwrap();
    manager.create_incremental().unwrap();
    fs::write(&path, before).unwrap();
    assert!(verify(&manager).ok);
    // The very first one, in a session that a program made.
    fs::remove_file(&path).unwrap();
    fs::remove_dir_all(manager.session().manifest_path(1).parent().unwrap()).unwrap();
    let report = verify(&manager);
    assert!(report.ok, "{:?}", report.problems);
    assert_eq!(report.snapshots.len(), 1);
}

#[test]
fn a_root_noted_elsewhere_must_be_the_root_of_a_snapshot() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let with = |root| {
        let options = VerifyOptions { expected_root: Some(root), ..options() };
        verify_session(manager.session(), manager.store(), &options).unwrap()
    };
    assert!(with(manifests[1].merkle_root).ok);
    let other = ContentHash::of(b"other");
    let report = with(other);
    let expected = Problem::MerkleMismatch { snapshot: None, expected: other, found: None };
    assert_eq!(report.problems, [expected]);
    assert!(!report.ok);
}

/// Lists the manifests as they are on the disk, as the owner of the store would.
fn vouch(manager: &SnapshotManager, mut metadata: SessionMetadata) {
    let chain = manager.session().snapshot_numbers().unwrap().into_iter();
    let chain: Vec<_> = chain.map(|n| manager.session().manifest(n).unwrap()).collect();
    metadata.merkle_roots = chain.iter().map(|loaded| loaded.manifest.merkle_root).collect();
    metadata.manifest_hashes = chain.iter().map(|loaded| loaded.hash).collect();
    manager.session().save_metadata(&metadata).unwrap();
}

/// A session with one snapshot of a root tree that no capture made.
fn forged(lab: &Lab, root: &RootTree, write: impl FnOnce(&LocalStore)) -> SnapshotManager {
    let manager = lab.manager("forged");
    manager.create_baseline().unwrap();
    write(manager.store());
    let merkle_root = manager.store().write(&root.encode()).unwrap().hash;
    edit(&manager.session().manifest_path(0), |manifest| {
        manifest["merkle_root"] = json!(merkle_root);
    });
    let metadata = manager.session().metadata().unwrap();
    vouch(&manager, metadata);
    manager
}

fn directory(name: &[u8], tree: ContentHash) -> TreeEntry {
    let attributes = Attributes::default();
    TreeEntry { name: name.into(), attributes, node: Node::Directory { tree } }
}

fn root_with(lab: &Lab, node: Node) -> RootTree {
    let path = lab.work().as_os_str().as_bytes().into();
    let entries = vec![RootEntry { path, attributes: Attributes::default(), node }];
    RootTree { entries, links: None }
}

#[test]
fn a_bomb_of_shared_subtrees_costs_sixty_trees() {
    let lab = Lab::new();
    let mut trees = vec![Tree::default()];
    for _ in 0..60 {
        let below = ContentHash::of(&trees[trees.len() - 1].encode());
        trees.push(Tree::new(vec![directory(b"1", below), directory(b"2", below)]));
    }
    let top = ContentHash::of(&trees[60].encode());
    let manager = forged(&lab, &root_with(&lab, Node::Directory { tree: top }), |store| {
        for tree in &trees {
            store.write(&tree.encode()).unwrap();
        }
    });
    let report = verify(&manager);
    // 61 trees and the root.
    assert_eq!(report.objects_checked, 62);
    let problems = manifest_problems(&report);
    assert_eq!(problems.len(), 1);
    let entries = (1u64 << 61) - 1;
    assert!(problems[0].1.contains(&format!("{entries} and 0")), "{}", problems[0].1);
}

#[test]
fn sums_beyond_64_bits_are_a_problem_and_not_a_panic() {
    let lab = Lab::new();
    let mut hash = ContentHash::of(&Tree::default().encode());
    let mut encoded = vec![Tree::default().encode()];
    for _ in 0..70 {
        let tree = Tree::new(vec![directory(b"1", hash), directory(b"2", hash)]);
        hash = ContentHash::of(&tree.encode());
        encoded.push(tree.encode());
    }
    let manager = forged(&lab, &root_with(&lab, Node::Directory { tree: hash }), |store| {
        for bytes in &encoded {
            store.write(bytes).unwrap();
        }
    });
    let report = verify(&manager);
    assert!(manifest_problems(&report)[0].1.contains("2^64"), "{:?}", report.problems);
}

#[test]
fn directories_ten_thousand_levels_down_need_no_stack() {
    let lab = Lab::new();
    let mut hash = ContentHash::of(b"not there");
    let mut encoded = Vec::new();
    for _ in 0..10_000 {
        let tree = Tree::new(vec![directory(b"d", hash)]);
        hash = ContentHash::of(&tree.encode());
        encoded.push(tree.encode());
    }
    let manager = forged(&lab, &root_with(&lab, Node::Directory { tree: hash }), |store| {
        for bytes in &encoded {
            store.write(bytes).unwrap();
        }
    });
    let report = verify(&manager);
    let [Problem::MissingObject { path: Some(path), .. }] = &report.problems[..] else {
        panic!("{:?}", report.problems)
    };
    assert_eq!(path.components().count(), lab.work().components().count() + 10_000);
}

#[test]
fn a_tree_that_lies_about_the_size_of_a_file_is_a_corrupt_tree() {
    let lab = Lab::new();
    let hash = ContentHash::of(b"four");
    let file = |name: &[u8], size| TreeEntry {
        name: name.into(),
        attributes: Attributes::default(),
        node: Node::file(size, hash),
    };
    let tree = Tree::new(vec![file(b"honest", 4), file(b"liar", 5)]);
    let top = ContentHash::of(&tree.encode());
    let manager = forged(&lab, &root_with(&lab, Node::Directory { tree: top }), |store| {
        store.write(b"four").unwrap();
        store.write(&tree.encode()).unwrap();
    });
    let report = verify(&manager);
    let lie = report.problems.iter().find_map(|problem| match problem {
        Problem::CorruptTree { object, path, reason, .. } => Some((*object, path, reason)),
        _ => None,
    });
    let (found, path, reason) = lie.unwrap();
    assert_eq!((found, path), (top, &lab.path("liar")));
    assert!(reason.contains("says that a file has 5 bytes"), "{reason}");
}

#[test]
fn an_object_that_is_no_tree_is_a_corrupt_tree() {
    let lab = Lab::new();
    let top = ContentHash::of(b"plain text");
    let manager = forged(&lab, &root_with(&lab, Node::Directory { tree: top }), |store| {
        store.write(b"plain text").unwrap();
    });
    let report = verify(&manager);
    let [Problem::CorruptTree { reason, .. }] = &report.problems[..] else {
        panic!("{:?}", report.problems)
    };
    assert!(reason.contains("does not start like a tree"), "{reason}");
}

#[test]
fn a_tree_of_a_newer_format_says_that_a_newer_nono_is_needed() {
    let lab = Lab::new();
    let newer = b"nonotree\x02whatever";
    let node = Node::Directory { tree: ContentHash::of(newer) };
    let manager = forged(&lab, &root_with(&lab, node), |store| {
        store.write(newer).unwrap();
    });
    let report = verify(&manager);
    let [Problem::CorruptTree { reason, .. }] = &report.problems[..] else {
        panic!("{:?}", report.problems)
    };
    assert!(reason.contains("use a newer nono"), "{reason}");
}

#[test]
fn bytes_that_are_both_a_file_and_a_tree_are_checked_as_both() {
    let lab = Lab::new();
    // A tracked copy of a tree object, beside an empty directory that has the same tree.
    fs::write(lab.work().join("copy of a tree"), Tree::default().encode()).unwrap();
    let (manager, _) = lab.session("s");
    assert!(verify(&manager).ok);
}

#[derive(Default)]
struct Counted {
    objects: AtomicU64,
    limit: Option<u64>,
}

impl Progress for Counted {
    fn advance(&self, entries: u64, _bytes: u64) {
        self.objects.fetch_add(entries, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.limit.is_some_and(|limit| self.objects.load(Ordering::Relaxed) >= limit)
    }
}

#[test]
fn a_whole_store_is_verified_with_every_object_read_once() {
    let lab = Lab::new();
    let (first, _) = lab.session("first");
    let (second, _) = lab.session("second");
    let counted = Counted::default();
    let options = VerifyOptions { progress: &counted, ..options() };
    let mut verifier = Verifier::new(first.store(), options).unwrap();
    let one = verifier.session(first.session()).unwrap();
    assert_eq!(counted.objects.load(Ordering::Relaxed), one.objects_checked);
    let two = verifier.session(second.session()).unwrap();
    assert!(one.ok && two.ok);
    // The second session's report counts what it shares, though it was read for the first.
    assert_eq!(two, verify(&second));
    let mut stored = 0;
    first
        .store()
        .for_each_object(|_| {
            stored += 1;
            Ok::<_, crate::store::StoreError>(())
        })
        .unwrap();
    assert_eq!(counted.objects.load(Ordering::Relaxed), stored);
    assert_eq!(verifier.objects_checked(), stored);
}

#[test]
fn damage_that_sessions_share_is_reported_for_each_of_them() {
    let lab = Lab::new();
    let (first, _) = lab.session("first");
    let (second, _) = lab.session("second");
    flip_byte(&object(&first, "beta"));
    let mut verifier = Verifier::new(first.store(), options()).unwrap();
    for manager in [&first, &second, &first] {
        let report = verifier.session(manager.session()).unwrap();
        let alone = verify_session(manager.session(), first.store(), &options()).unwrap();
        assert_eq!(report, alone);
        assert_eq!(report.problems.len(), 1);
    }
}

#[test]
fn a_cancelled_verification_is_an_error_and_is_not_believed_later() {
    let lab = Lab::new();
    let (manager, _) = lab.session("s");
    flip_byte(&object(&manager, "beta"));
    let counted = Counted { limit: Some(2), ..Counted::default() };
    let options = VerifyOptions { progress: &counted, ..options() };
    let mut verifier = Verifier::new(manager.store(), options).unwrap();
    let stopped = verifier.session(manager.session());
    assert!(matches!(stopped, Err(VerifyError::Cancelled)));
    assert_eq!(verifier.objects_checked(), 0);
}

#[test]
fn a_verification_stops_in_the_middle_of_an_object_and_while_it_waits() {
    let lab = Lab::new();
    fs::write(lab.work().join("large"), vec![1; 8 << 20]).unwrap();
    let (manager, _) = lab.session("s");
    let stops = StopsAt::new(2 << 20);
    let options = VerifyOptions { progress: &stops, ..options() };
    let stopped = verify_session(manager.session(), manager.store(), &options);
    assert!(matches!(stopped, Err(VerifyError::Cancelled)));
    let collector = manager.store().lock_exclusive().unwrap();
    assert!(matches!(Verifier::new(manager.store(), options), Err(VerifyError::Cancelled)));
    drop(collector);
    assert!(verify(&manager).ok);
}

#[test]
fn a_report_has_the_documented_json() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    fs::remove_file(object(&manager, "gamma")).unwrap();
    let json = serde_json::to_value(verify(&manager)).unwrap();
    assert_eq!(json["session_id"], "s");
    assert_eq!(json["ok"], false);
    let first = json!({"number": 0, "merkle_root": manifests[0].merkle_root, "ok": false});
    assert_eq!(json["snapshots"][0], first);
    assert!(json["objects_checked"].is_u64() && json["bytes_checked"].is_u64());
    let expected = json!([{
        "kind": "missing_object",
            "used_as": "contents",
        "object": ContentHash::of(b"gamma"),
        "on_disk": object(&manager, "gamma"),
        "snapshot": 0,
        "path": lab.path("sub/c"),
    }]);
    assert_eq!(json["problems"], expected);
}

#[test]
fn hostile_names_in_problems_are_bytes_in_json_and_harmless_on_a_terminal() {
    let lab = Lab::new();
    let name = std::ffi::OsStr::from_bytes(b"\xff\x1b[2J");
    fs::write(lab.work().join(name), "hostile").unwrap();
    let (manager, _) = lab.session("s");
    fs::remove_file(object(&manager, "hostile")).unwrap();
    let report = verify(&manager);
    let json = serde_json::to_value(&report.problems[0]).unwrap();
    let path = crate::path_text::decode(json["path"].as_str().unwrap());
    assert!(path.ends_with(b"/\xff\x1b[2J"));
    assert!(!report.problems[0].to_string().contains('\x1b'));
}

/// Makes files of which each has other contents, and records them in a store of its own.
fn packed(temp: &Path, name: &str, files: std::ops::Range<u32>) -> SnapshotManager {
    let work = temp.join(name).join("work");
    fs::create_dir_all(&work).unwrap();
    for number in files {
        fs::write(work.join(number.to_string()), format!("the contents of {number}")).unwrap();
    }
    fs::create_dir_all(temp.join(name).join("store/objects")).unwrap();
    let session = temp.join(name).join("store/20200101-000000-1");
    let manager =
        SnapshotManager::new(&session, &[work], ExclusionConfig::nothing(), Budget::default());
    let manager = manager.unwrap().with_compression(crate::store::Compression::Off);
    manager.create_baseline().unwrap();
    manager
}

fn packs_of(temp: &Path, name: &str) -> PathBuf {
    temp.join(name).join("store/objects/packs")
}

/// A store with 300 files in a pack, and a newer pack with `objects` others and one of theirs, the
/// last, that was edited. Returns what is wrong with objects.
fn problems_behind(objects: u32, edit: impl Fn(&mut Vec<u8>)) -> Vec<ContentHash> {
    let temp = tempfile::tempdir().unwrap();
    let manager = packed(temp.path(), "few", 0..300);
    assert!(verify(&manager).ok);
    packed(temp.path(), "newer", 299..300 + objects);
    for pack in fs::read_dir(packs_of(temp.path(), "newer")).unwrap() {
        let pack = pack.unwrap();
        let mut bytes = fs::read(pack.path()).unwrap();
        edit(&mut bytes);
        fs::write(packs_of(temp.path(), "few").join(pack.file_name()), bytes).unwrap();
    }
    let problems = verify(&manager).problems.into_iter();
    let of_objects = problems.filter_map(|problem| match problem {
        Problem::CorruptObject { object, .. } => Some(object),
        _ => None,
    });
    of_objects.collect()
}

#[test]
fn of_two_packs_with_an_object_the_copy_is_verified_that_a_restore_reads() {
    const SHARED: &[u8] = b"the contents of 299";
    // The name of an object is in front of its bytes, and in the index.
    fn names(bytes: &[u8], contents: &[u8]) -> [usize; 2] {
        let name = ContentHash::of(contents);
        let is_name = |window: &[u8]| window == name.as_bytes();
        let mut windows = bytes.windows(32);
        [windows.position(is_name).unwrap(), bytes.windows(32).rposition(is_name).unwrap()]
    }
    let damage = |bytes: &mut Vec<u8>| {
        let [record, _] = names(bytes, SHARED);
        bytes[record + 36] ^= 1;
    };
    let lie = |bytes: &mut Vec<u8>| {
        let [_, entry] = names(bytes, SHARED);
        bytes[entry + 32 + 8] += 1;
        let end = bytes.len();
        let index_at = u64::from_le_bytes(bytes[end - 64..end - 56].try_into().unwrap());
        let sum = ContentHash::of(&bytes[index_at as usize..end - 32]);
        bytes[end - 32..].copy_from_slice(sum.as_bytes());
    };
    let damage_index_too = |bytes: &mut Vec<u8>| {
        damage(bytes);
        let [_, other] = names(bytes, b"the contents of 400");
        bytes[other + 31] ^= 1;
    };
    let shared = [ContentHash::of(SHARED)];
    assert_eq!(problems_behind(500, |_| {}), []);
    assert_eq!(problems_behind(500, damage), shared);
    assert_eq!(problems_behind(500, lie), shared);
    assert_eq!(problems_behind(500, damage_index_too), shared);
    // So little of these is wanted that it is read one by one.
    assert_eq!(problems_behind(4000, damage), shared);
}
