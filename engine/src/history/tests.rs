use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::object::Node;
use crate::restore::{RestoreOptions, Selection};
use crate::snapshot::{Budget, SessionDir, SnapshotManager};
use crate::store::ObjectSource;
use crate::walk::ExclusionConfig;

struct Project {
    temp: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("project/d")).unwrap();
        Self { temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join("project").join(name)
    }

    fn session(&self, name: &str) -> SnapshotManager {
        let session = self.temp.path().join("store").join(name);
        let tracked = [self.path("")];
        SnapshotManager::new(&session, &tracked, ExclusionConfig::nothing(), Budget::default())
            .unwrap()
    }

    fn sessions(&self) -> Vec<SessionDir> {
        let mut names: Vec<_> = fs::read_dir(self.temp.path().join("store"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("snapshots").is_dir())
            .collect();
        names.sort();
        names.iter().map(|path| SessionDir::open(path).unwrap()).collect()
    }

    fn history(&self, name: &str) -> PathHistory {
        let sessions = self.sessions();
        let (objects, damaged) = Objects::of(&sessions);
        assert!(damaged.is_empty());
        history_of(&forms_of(&self.path(name)), &sessions, &objects)
    }

    fn found(&self, glob: &str) -> Vec<String> {
        let sessions = self.sessions();
        let (objects, _) = Objects::of(&sessions);
        let glob = PathGlob::new(glob, Path::new("/")).unwrap();
        let (found, damaged) = find(&glob, &sessions, &objects);
        assert!(damaged.is_empty());
        let name =
            |path: &[u8]| String::from_utf8_lossy(path).rsplit('/').next().unwrap().to_owned();
        let line = |found: &Found| {
            format!("{} {}..{} {}", name(&found.path), found.oldest, found.newest, found.count)
        };
        found.iter().map(line).collect()
    }
}

fn sizes(history: &PathHistory) -> Vec<Option<u64>> {
    let size = |version: &Version| match version.state.as_deref()?.node {
        Node::File { size, .. } => Some(size),
        _ => None,
    };
    history.versions.iter().map(size).collect()
}

#[test]
fn a_state_that_came_back_is_a_version_of_its_own_and_so_is_every_deletion() {
    let project = Project::new();
    let file = project.path("d/a");
    fs::write(&file, "1").unwrap();
    let manager = project.session("a");
    manager.create_baseline().unwrap();
    for content in ["22", "1", "", "1", ""] {
        match content {
            "" => fs::remove_file(&file).unwrap(),
            content => fs::write(&file, content).unwrap(),
        }
        manager.create_incremental().unwrap();
    }
    let history = project.history("d/a");
    assert_eq!(sizes(&history), [None, Some(1), None, Some(1), Some(2), Some(1)]);
    let numbers: Vec<Vec<u64>> = history
        .versions
        .iter()
        .map(|version| version.places.iter().map(|place| place.number).collect())
        .collect();
    assert_eq!(numbers, [vec![5], vec![4], vec![3], vec![2], vec![1], vec![0]]);
    let deltas: Vec<_> = history.versions.iter().map(Version::size_delta).collect();
    assert_eq!(deltas, [Some(-1), Some(1), Some(-1), Some(-1), Some(1), Some(1)]);
    assert_eq!(now_of(&history, &project.sessions()[0]).unwrap(), Now::Version(0));
    fs::write(&file, "1").unwrap();
    assert_eq!(now_of(&history, &project.sessions()[0]).unwrap(), Now::Version(1));
    fs::write(&file, "22").unwrap();
    assert_eq!(now_of(&history, &project.sessions()[0]).unwrap(), Now::Version(4));
    fs::write(&file, "23").unwrap();
    let unrecorded = Now::Unrecorded { size: Some(2) };
    assert_eq!(now_of(&history, &project.sessions()[0]).unwrap(), unrecorded);
}

#[test]
fn a_restore_makes_a_version_of_what_it_was_about() {
    let project = Project::new();
    let (file, other) = (project.path("d/a"), project.path("d/b"));
    fs::write(&file, "1").unwrap();
    fs::write(&other, "1").unwrap();
    let manager = project.session("a");
    manager.create_baseline().unwrap();
    fs::remove_file(&file).unwrap();
    fs::write(&other, "22").unwrap();
    manager.create_incremental().unwrap();
    let selection = Selection { paths: vec![file.clone()], ..Selection::default() };
    manager.restore_with(0, &RestoreOptions { selection, ..RestoreOptions::default() }).unwrap();
    let history = project.history("d/a");
    assert_eq!(sizes(&history), [Some(1), None, Some(1)]);
    assert_eq!(history.versions[0].origin, Origin::Restored);
    assert_eq!(history.versions[0].first().number, 0);
    assert_eq!(now_of(&history, &project.sessions()[0]).unwrap(), Now::Version(0));
    // The other file was not meant.
    assert_eq!(sizes(&project.history("d/b")), [Some(2), Some(1)]);
    manager.restore_with(2, &RestoreOptions::default()).unwrap();
    assert_eq!(sizes(&project.history("d/a")), [None, Some(1), None, Some(1)]);
}

#[test]
fn only_directories_on_the_way_are_read() {
    struct Counting<'a>(&'a Objects, std::sync::atomic::AtomicUsize);
    impl ObjectSource for Counting<'_> {
        fn read(
            &self,
            hash: &crate::object::ContentHash,
            max_bytes: u64,
        ) -> Result<Vec<u8>, crate::store::StoreError> {
            self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.0.read(hash, max_bytes)
        }
    }
    let project = Project::new();
    for n in 0..200 {
        fs::create_dir(project.path(&format!("dir{n}"))).unwrap();
        fs::write(project.path(&format!("dir{n}/file")), format!("{n}")).unwrap();
    }
    fs::write(project.path("d/a"), "1").unwrap();
    let manager = project.session("a");
    manager.create_baseline().unwrap();
    for n in 0..5 {
        fs::write(project.path("dir7/file"), format!("other {n}")).unwrap();
        manager.create_incremental().unwrap();
    }
    let sessions = project.sessions();
    let (objects, _) = Objects::of(&sessions);
    let count = |glob: Option<&str>| {
        let counting = Counting(&objects, std::sync::atomic::AtomicUsize::new(0));
        match glob {
            Some(glob) => {
                let glob = PathGlob::new(glob, Path::new("/")).unwrap();
                assert_eq!(find(&glob, &sessions, &counting).0.len(), 200);
            }
            None => {
                let history = history_of(&forms_of(&project.path("d/a")), &sessions, &counting);
                assert_eq!(history.versions.len(), 1);
            }
        }
        counting.1.into_inner()
    };
    // For each snapshot: its root tree, the project, the directory.
    assert!(count(None) <= 6 * 3, "{}", count(None));
    // Each different tree once: 201 directories, and five more times a root, the project and one.
    assert!(count(Some("file")) <= 203 + 5 * 3, "{}", count(Some("file")));
}

#[test]
fn a_glob_finds_the_newest_version_and_what_holds_it() {
    let project = Project::new();
    fs::write(project.path("d/a.rs"), "1").unwrap();
    fs::write(project.path("d/b.rs"), "1").unwrap();
    let first = project.session("a");
    first.create_baseline().unwrap();
    fs::write(project.path("d/a.rs"), "2").unwrap();
    first.create_incremental().unwrap();
    let second = project.session("b");
    second.create_baseline().unwrap();
    fs::remove_file(project.path("d/b.rs")).unwrap();
    second.create_incremental().unwrap();
    assert_eq!(project.found("*.rs"), ["a.rs a/1..b/1 3", "b.rs a/0..b/0 3"]);
    assert_eq!(project.found("d/a*"), ["a.rs a/1..b/1 3"]);
    assert_eq!(project.found("**/d"), ["d b/1..b/1 1"]);
    assert!(project.found("e").is_empty());
}

#[test]
fn a_deep_tree_is_looked_through_without_the_stack() {
    let project = Project::new();
    let mut deep = project.path("d");
    for _ in 0..300 {
        deep.push("e");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("here"), "1").unwrap();
    project.session("a").create_baseline().unwrap();
    assert_eq!(project.found("here"), ["here a/0..a/0 1"]);
    let relative = deep.strip_prefix(project.path("")).unwrap().join("here");
    assert_eq!(project.history(relative.to_str().unwrap()).versions.len(), 1);
}

#[test]
fn a_path_has_the_forms_that_its_parents_links_give_it() {
    let project = Project::new();
    std::os::unix::fs::symlink(project.path("d"), project.path("link")).unwrap();
    let forms = forms_of(&project.path("link/gone/deeper"));
    assert!(forms.contains(&project.path("link/gone/deeper")));
    assert!(forms.contains(&project.path("d/gone/deeper")));
    let outside = forms_of(&project.path("link"));
    assert_eq!(outside.len(), 1, "the last name is what it is: {outside:?}");
}
