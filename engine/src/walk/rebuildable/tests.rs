#![allow(clippy::disallowed_methods, reason = "tests make files")]

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::object::Node;
use crate::path_text::{Shown, to_path};
use crate::snapshot::{Budget, SnapshotManager, SnapshotManifest};
use crate::store::{LocalStore, read_root_tree, read_tree};
use crate::sys;
use crate::walk::{ExclusionConfig, Ignored};

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n";
const CARGO_TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
                         # This file is a cache directory tag created by cargo.\n";
const SITE: &str = "lib/python3.11/site-packages";

/// Makes files of lines `path` or `path=contents`; `path/` is a directory, `a->b` a link.
fn make(top: &Path, files: &[&str]) {
    for file in files {
        let (path, contents) = file.split_once('=').unwrap_or((file, "x"));
        let (path, target) = path.split_once("->").map_or((path, None), |(a, b)| (a, Some(b)));
        let path = path.replace("SITE", SITE);
        let at = top.join(&path);
        fs::create_dir_all(if path.ends_with('/') { &at } else { at.parent().unwrap() }).unwrap();
        match target {
            Some(target) => symlink(target, at).unwrap(),
            None if path.ends_with('/') => {}
            None => fs::write(at, contents).unwrap(),
        }
    }
}

/// A tracked directory and a store.
struct Ground {
    temp: tempfile::TempDir,
    sessions: Cell<u32>,
}

impl Ground {
    fn new(files: &[&str]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        LocalStore::create(&temp.path().join("store/objects")).unwrap();
        let ground = Self { temp, sessions: Cell::new(0) };
        make(&ground.top(), files);
        ground
    }

    fn top(&self) -> PathBuf {
        sys::real_path(self.temp.path()).unwrap().join("work")
    }

    /// A new session of the same store.
    fn session(&self) -> SnapshotManager {
        let exclusion = ExclusionConfig {
            rebuildable: true,
            ignored: Ignored::Small,
            ..ExclusionConfig::default()
        };
        let number = self.sessions.replace(self.sessions.get() + 1);
        let session = self.temp.path().join(format!("store/{number}"));
        SnapshotManager::new(&session, &[self.top()], exclusion, Budget::default()).unwrap()
    }

    /// The recorded paths that are no directories, and the left-out paths.
    fn read(&self, manager: &SnapshotManager, taken: &SnapshotManifest) -> [Vec<String>; 2] {
        let top = self.top();
        let inside = |path: &Path| path.strip_prefix(&top).unwrap().to_str().unwrap().to_owned();
        let left_out = taken.not_captured.iter().map(|left| inside(&left.path)).collect();
        let root = read_root_tree(manager.store(), &taken.merkle_root).unwrap();
        let Node::Directory { tree } = root.entries[0].node else { panic!("no directory") };
        let (mut recorded, mut pending) = (Vec::new(), vec![(Vec::new(), tree)]);
        while let Some((relative, tree)) = pending.pop() {
            for entry in read_tree(manager.store(), &tree).unwrap().entries() {
                let path = byte_path::join(&relative, &entry.name);
                match entry.node {
                    Node::Directory { tree } => pending.push((path, tree)),
                    _ => recorded.push(to_path(&path).to_str().unwrap().to_owned()),
                }
            }
        }
        recorded.sort();
        [recorded, left_out]
    }

    fn baseline(&self) -> [Vec<String>; 2] {
        let manager = self.session();
        let taken = manager.create_baseline().unwrap();
        self.read(&manager, &taken)
    }
}

/// A virtual environment with one package, as `venv` and `pip` make it.
const VENV: &[&str] = &[
    "p/pyvenv.cfg",
    "p/.gitignore=# Created by venv\n*\n",
    "p/bin/python->python3",
    "p/bin/python3->/usr/bin/python3",
    "p/bin/pip3.11",
    "p/bin/activate",
    "p/bin/six-tool",
    "p/include/",
    "p/lib64->lib",
    "p/share/man/man1/six.1",
    "p/SITE/six.py",
    "p/SITE/__pycache__/six.cpython-311.pyc",
    "p/SITE/_virtualenv.py",
    "p/SITE/six-1.dist-info/RECORD=six.py,sha256=1,2\n../../../bin/six-tool,,\n\
     ../../../share/man/man1/six.1,,\nsix-1.dist-info/RECORD,,\n",
];
const PACKAGES: &[&str] = &[
    "p/package.json={}",
    "p/node_modules/.package-lock.json={\"packages\":{\"node_modules/a\":{},\
     \"node_modules/@s/b\":{}}}",
    "p/node_modules/.bin/a->../a/cli.js",
    "p/node_modules/a/index.js",
    "p/node_modules/a/node_modules/nested/index.js",
    "p/node_modules/@s/b/index.js",
];
const TARGET: &[&str] = &[
    "p/target/.rustc_info.json",
    "p/target/debug/deps/x",
    "p/target/custom/.fingerprint/x",
    "p/target/x86_64-unknown-linux-musl/release/.cargo-lock",
];

#[test]
fn what_its_maker_makes_is_left_out_as_one() {
    let tag = format!("p/target/CACHEDIR.TAG={CARGO_TAG}");
    let hidden = format!("p/.pytest_cache/CACHEDIR.TAG={TAG}");
    let ignored = format!("p/uv-cache/CACHEDIR.TAG={TAG}");
    let yarn = "p/node_modules/.yarn-integrity={\"lockfileEntries\": {\"a@^1\": \"x\"}}";
    let berry =
        "p/node_modules/.yarn-state.yml=\"a@npm:1\":\n  locations:\n    - \"node_modules/a\"\n";
    let bun = "p/bun.lock=\"packages\": {\"a\": [\"a@1.0.0\"]}";
    let workspace = "node_modules/.package-lock.json=\"p/node_modules/a\": {}";
    for (files, left_out) in [
        (VENV.to_vec(), vec!["p"]),
        (PACKAGES.to_vec(), vec!["p/node_modules"]),
        ([TARGET, &[&tag]].concat(), vec!["p/target"]),
        (vec![&*hidden, "p/.pytest_cache/v/x"], vec!["p/.pytest_cache"]),
        (vec![&*ignored, ".gitignore=uv-cache", "p/uv-cache/x"], vec!["p/uv-cache"]),
        (vec!["p/__pycache__/x.cpython-311.pyc"], vec!["p/__pycache__"]),
        (vec![yarn, "p/node_modules/a/x"], vec!["p/node_modules"]),
        (vec![berry, "p/node_modules/a/x"], vec!["p/node_modules"]),
        (vec!["p/node_modules/.modules.yaml", "p/node_modules/a->.pnpm/a"], vec!["p/node_modules"]),
        (vec![bun, "p/node_modules/a/x"], vec!["p/node_modules"]),
        (vec![workspace, "p/node_modules/a/x"], vec!["node_modules", "p/node_modules"]),
    ] {
        assert_eq!(Ground::new(&files).baseline()[1], left_out, "{files:?}");
    }
}

#[test]
fn a_persons_file_in_a_marked_directory_is_recorded_and_the_rest_is_left_out() {
    let tag = format!("p/target/CACHEDIR.TAG={CARGO_TAG}");
    let target = [TARGET, &[&tag]].concat();
    // Whether git ignores the directory changes nothing.
    for rules in [".gitignore=/other", ".gitignore=/p/"] {
        for (made, mine) in [
            (VENV, "p/src/main.py"),
            (VENV, "p/main.py"),
            (VENV, "p/bin/mine"),
            (VENV, "p/bin/pipeline"),
            (VENV, "p/lib/mine/x.py"),
            (VENV, "p/lib/python3.11/mine.py"),
            (VENV, "p/SITE/mine.py"),
            (VENV, "p/SITE/mine/x.py"),
            (VENV, "p/share/mine/x"),
            (VENV, "p/include/mine.h"),
            (PACKAGES, "p/node_modules/mine/index.js"),
            (PACKAGES, "p/node_modules/@s/mine/index.js"),
            (PACKAGES, "p/node_modules/.mine/index.js"),
            (PACKAGES, "p/node_modules/mine.js"),
            (&target, "p/target/results/1.csv"),
            (&target, "p/target/results.csv"),
        ] {
            let [recorded, left_out] = Ground::new(&[made, &[mine, rules]].concat()).baseline();
            let mine = mine.replace("SITE", SITE);
            assert!(recorded.contains(&mine), "{mine}: {recorded:?} {left_out:?}");
            let others = recorded.iter().filter(|path| **path != mine);
            let others: Vec<_> = others.filter(|path| **path != ".gitignore").collect();
            let expected: &[&str] = if made == PACKAGES { &["p/package.json"] } else { &[] };
            assert_eq!(others, expected, "{mine}: {left_out:?}");
        }
    }
}

#[test]
fn a_persons_rules_in_an_environment_are_recorded() {
    let files = [VENV, &["p/.gitignore=*.log\n"]].concat();
    let [recorded, left_out] = Ground::new(&files).baseline();
    assert_eq!(recorded, ["p/.gitignore"], "{left_out:?}");
}

#[test]
fn a_mark_of_an_unknown_maker_proves_nothing() {
    let tagged = |dir: &str| format!("{dir}/CACHEDIR.TAG={TAG}");
    for dir in ["results", "src/cache", "cache", "data.d", ".mine"] {
        let (tag, mine) = (tagged(dir), format!("{dir}/mine"));
        assert_eq!(Ground::new(&[&tag, &mine]).baseline()[1], [""; 0], "{dir}");
    }
    for files in [
        // No lock lists it.
        &["p/package.json={}", "p/node_modules/mine/index.js"][..],
        &["p/node_modules/.package-lock.json/x", "p/node_modules/mine/index.js"],
        &["p/CACHEDIR.TAG=Signature: x", "p/mine"],
        &["p/pyvenv.cfg/x", "p/mine"],
        &["p/__pycache__/mine.py", "p/__pycache__/x.pyc"],
    ] {
        assert_eq!(Ground::new(files).baseline()[1], [""; 0], "{files:?}");
    }
}

#[test]
fn hostile_lists_cover_nothing_more() {
    let long = format!("p/SITE/x-1.dist-info/RECORD={}", "../".repeat(1 << 16));
    for lists in [
        &["p/SITE/x-1.dist-info/RECORD=\"\"\"\n,\n\"\n/\n../../../\n../../..//mine\n"][..],
        &["p/SITE/x-1.dist-info/RECORD/mine.py"],
        &["p/SITE/x-1.dist-info=mine.py"],
        &["p/SITE/x-1.dist-info->/dev/zero"],
        &["p/SITE/x-1.dist-info/RECORD->/dev/zero"],
        &[&long],
    ] {
        let shown: Vec<_> =
            lists.iter().map(|it| Shown::bytes(it.as_bytes()).to_string()).collect();
        let files = [&["p/pyvenv.cfg", "p/SITE/mine.py", "p/mine"], lists].concat();
        let recorded = &Ground::new(&files).baseline()[0];
        for mine in ["p/mine".to_owned(), format!("p/{SITE}/mine.py")] {
            assert!(recorded.contains(&mine), "{shown:?}: {recorded:?}");
        }
    }
}

#[test]
fn a_planted_mark_changes_nothing_for_what_is_recorded() {
    let listing_mine = "p/SITE/x-1.dist-info/RECORD=mine.py,,\n../../../bin/mine,,\n";
    let tag = |dir: &str| format!("{dir}/CACHEDIR.TAG={TAG}");
    let (hidden, target) = (tag("p/.mycache"), tag("p/target"));
    for (mine, mark) in [
        (
            &["p/src/main.py", "p/bin/mine", "p/SITE/mine.py"][..],
            &["p/pyvenv.cfg", listing_mine][..],
        ),
        (&["p/.mycache/mine"], &[&*hidden]),
        (&["p/target/debug/mine"], &[&*target]),
        (&["p/node_modules/a/mine.js"], &PACKAGES[1..2]),
        (&["p/__pycache__/mine.py", "p/__pycache__/x.pyc"], &[]),
    ] {
        // In a session with a last snapshot, and in one that was killed.
        for is_recorded in [true, false] {
            let ground = Ground::new(mine);
            let manager = ground.session();
            manager.create_baseline().unwrap();
            make(&ground.top(), mark);
            let _ = fs::remove_file(ground.top().join("p/__pycache__/mine.py"));
            let mine: Vec<_> = mine.iter().map(|path| path.replace("SITE", SITE)).collect();
            let check = |[recorded, left_out]: [Vec<String>; 2]| {
                let there = mine.iter().filter(|path| ground.top().join(path).exists());
                let missing: Vec<_> = there.filter(|path| !recorded.contains(path)).collect();
                assert!(missing.is_empty(), "{missing:?}, {is_recorded}: {left_out:?}");
            };
            if is_recorded {
                check(ground.read(&manager, &manager.create_incremental().unwrap().0));
            }
            check(ground.baseline());
            // The next session records what the user adds, too.
            make(&ground.top(), &["p/.mycache/new", "p/target/debug/new", "p/bin/new"]);
            let [recorded, left_out] = ground.baseline();
            for dir in ["p/.mycache", "p/target/debug", "p/bin"] {
                let is_recorded = recorded.contains(&format!("{dir}/new"));
                assert!(is_recorded, "{mine:?}: {dir}: {recorded:?} {left_out:?}");
            }
        }
    }
}

#[test]
fn a_recording_of_everything_does_not_make_everything_plain() {
    let ground = Ground::new(VENV);
    let all = SnapshotManager::new(
        &ground.temp.path().join("store/all"),
        &[ground.top()],
        ExclusionConfig::nothing(),
        Budget::default(),
    );
    let all = all.unwrap();
    let taken = all.create_baseline().unwrap();
    assert_eq!(ground.read(&all, &taken)[1], [""; 0]);
    assert_eq!(ground.baseline(), [vec![], vec!["p".to_owned()]]);
}

#[test]
fn what_is_left_out_of_a_directory_stays_out_when_the_persons_file_goes() {
    let ground = Ground::new(&[VENV, &["p/SITE/mine.py"]].concat());
    let manager = ground.session();
    let taken = manager.create_baseline().unwrap();
    let [recorded, left_out] = ground.read(&manager, &taken);
    assert_eq!(recorded, [format!("p/{SITE}/mine.py")]);
    fs::remove_file(ground.top().join(format!("p/{SITE}/mine.py"))).unwrap();
    let (taken, changes) = manager.create_incremental().unwrap();
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!(ground.read(&manager, &taken), [vec![], left_out]);
    // The next session has nothing to keep.
    assert_eq!(ground.baseline(), [vec![], vec!["p".to_owned()]]);
}
