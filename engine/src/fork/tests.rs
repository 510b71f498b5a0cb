use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::gc::{CleanupOptions, CleanupPlan, SkipReason};
use crate::object::Device;
use crate::progress::NoProgress;
use crate::session::{Catalog, RecordRequest};
use crate::snapshot::{Budget, SessionDir, SessionOrigin, SnapshotManager};
use crate::store::{Compression, LocalStore, ObjectSource};
use crate::sys::{Dir, FileKind};
use crate::verify::{VerifyOptions, verify_session};
use crate::walk::ExclusionConfig;

struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { temp: tempfile::tempdir().unwrap() };
        for dir in ["work/dir/inner", "work/other"] {
            std::fs::create_dir_all(place.path(dir)).unwrap();
        }
        for (name, text) in [
            ("work/kept", "kept"),
            ("work/edited", "old"),
            ("work/gone", "gone"),
            ("work/dir/file", "file"),
            ("work/dir/inner/deep", "deep"),
            ("work/other/a", "a"),
        ] {
            std::fs::write(place.path(name), text).unwrap();
        }
        std::fs::hard_link(place.path("work/other/a"), place.path("work/other/b")).unwrap();
        place
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.temp.path().join(relative)
    }

    fn forks(&self) -> Forks {
        Forks::new(&self.path("store"))
    }

    fn request(&self) -> RecordRequest {
        RecordRequest {
            root: self.path("store"),
            command: Vec::new(),
            tracked_paths: vec![self.path("work")],
            exclusion: ExclusionConfig { rebuildable: true, ..ExclusionConfig::default() },
            budget: Budget::default(),
            compression: Compression::default(),
            threads: 1,
            origin: SessionOrigin::Fork,
            label: None,
        }
    }

    fn fork(&self, name: &str) -> Fork {
        let session = begin_now(&self.request(), Arc::new(NoProgress)).unwrap();
        self.named(name, &session, "now").unwrap()
    }

    fn named(&self, name: &str, session: &SessionDir, from: &str) -> Result<Fork, ForkError> {
        let new = NewFork { name, session, from, throw_away: false, copied: false };
        Ok(self.forks().expect()?.make(new)?.0)
    }

    fn store(&self) -> LocalStore {
        LocalStore::open(&self.path("store/objects")).unwrap()
    }
}

/// The layer of a fork, as the kernel would write it.
struct Upper(Dir);

impl Upper {
    fn of(fork: &Fork) -> Self {
        Self(Dir::open(&fork.upper_path(0)).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `false` where this user may not make devices.
    fn device(&self, name: &str, device: Device) -> bool {
        let (parent, name) = name.rsplit_once('/').unwrap_or((".", name));
        let dir = self.0.open_beneath(parent.trim_start_matches('.').as_bytes()).unwrap();
        dir.make_node(name.as_bytes(), FileKind::CharDevice, device).is_ok()
    }

    fn mark(&self, name: &str, mark: &str, value: &str) {
        let inode = self.0.inode(name.as_bytes()).unwrap();
        inode.set_xattr(format!("user.overlay.{mark}").as_bytes(), value.as_bytes()).unwrap();
    }
}

const WHITEOUT: Device = Device { major: 0, minor: 0 };

/// The files of a state below `work`, with their contents.
fn files(place: &Place, state: &ForkState<'_>) -> Vec<(String, String)> {
    let files = state.manifest().files(state).unwrap();
    let text = |(path, file): (PathBuf, crate::snapshot::FileState)| {
        let name = path.strip_prefix(sys::real_path(&place.path("work")).unwrap()).unwrap();
        let bytes = state.read(&file.hash, 1 << 20).unwrap();
        (name.to_str().unwrap().to_owned(), String::from_utf8(bytes).unwrap())
    };
    files.into_iter().map(text).collect()
}

fn names(files: &[(String, String)]) -> Vec<&str> {
    files.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_layer_is_read_as_the_changes_that_it_is() {
    let place = Place::new();
    let fork = place.fork("one");
    let upper = Upper::of(&fork);
    std::fs::write(upper.path("edited"), "new").unwrap();
    std::fs::create_dir_all(upper.path("made/below")).unwrap();
    std::fs::write(upper.path("made/below/file"), "made").unwrap();
    symlink("kept", upper.path("link")).unwrap();
    // An opaque directory hides what was in it, and a file stands in place of a directory.
    std::fs::create_dir(upper.path("dir")).unwrap();
    std::fs::write(upper.path("dir/only"), "only").unwrap();
    upper.mark("dir", "opaque", "y");
    upper.mark("dir", "origin", "x");
    if !upper.device("gone", WHITEOUT) {
        return;
    }
    std::fs::write(upper.path("other"), "a file").unwrap();
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    assert_eq!(
        files(&place, &state),
        [
            ("dir/only", "only"),
            ("edited", "new"),
            ("kept", "kept"),
            ("made/below/file", "made"),
            ("other", "a file"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
    );
    assert!(state.not_taken().is_empty(), "{:?}", state.not_taken());
    // work, dir, edited, kept, made, made/below, the four files in them, link.
    assert_eq!((state.manifest().totals.file_count, state.manifest().totals.entry_count), (5, 10));
    assert_eq!(state.manifest().totals.total_bytes, 3 + 4 + 4 + 6 + 4);
    let changes = state.comparison().unwrap().changes;
    let changed: Vec<_> =
        changes.iter().map(|change| change.path.file_name().unwrap().to_str().unwrap()).collect();
    for name in ["edited", "below", "link", "only", "gone", "inner", "deep", "other"] {
        assert!(changed.contains(&name), "{name}: {changed:?}");
    }
    assert!(!changed.contains(&"kept") && !changed.contains(&"dir"), "{changed:?}");

    let taken = fork.snapshot(None, Arc::new(NoProgress), 1).unwrap();
    assert!(taken.is_new);
    assert_eq!(taken.manifest.number, 1);
    assert_eq!(taken.manifest.merkle_root, state.manifest().merkle_root);
    assert!(!fork.snapshot(None, Arc::new(NoProgress), 1).unwrap().is_new);
    let session = fork.session().unwrap();
    let report = verify_session(&session, &store, &VerifyOptions::default()).unwrap();
    assert!(report.ok, "{report:?}");
    // Nothing of the project itself has changed.
    assert_eq!(std::fs::read_to_string(place.path("work/edited")).unwrap(), "old");
}

#[test]
fn an_untouched_fork_is_the_state_from_which_it_began() {
    let place = Place::new();
    std::fs::set_permissions(place.path("work"), std::fs::Permissions::from_mode(0o750)).unwrap();
    let fork = place.fork("one");
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    let base = fork.base().unwrap();
    assert_eq!(state.manifest().merkle_root, base.merkle_root);
    assert_eq!(state.manifest().totals.entry_count, base.totals.entry_count);
    assert!(!fork.snapshot(None, Arc::new(NoProgress), 1).unwrap().is_new);
    assert_eq!(std::fs::metadata(fork.path()).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn what_no_layer_has_is_named_and_changes_nothing() {
    let place = Place::new();
    let fork = place.fork("one");
    let upper = Upper::of(&fork);
    std::fs::create_dir(upper.path("dir")).unwrap();
    upper.mark("dir", "redirect", "/etc");
    std::fs::write(upper.path("edited"), "").unwrap();
    upper.mark("edited", "metacopy", "");
    std::fs::write(upper.path("kept"), "planted").unwrap();
    upper.mark("kept", "overlay.opaque", "y");
    // A file is a whiteout only where its directory says that there are some.
    std::fs::write(upper.path("gone"), "").unwrap();
    upper.mark("gone", "whiteout", "y");
    let is_device = upper.device("null", Device { major: 1, minor: 3 });
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    let found = files(&place, &state);
    let text = |name: &str| found.iter().find(|(found, _)| found == name).map(|it| it.1.as_str());
    assert_eq!(text("dir/file"), Some("file"));
    assert_eq!(text("edited"), Some("old"));
    assert_eq!(text("kept"), Some("kept"));
    assert_eq!(text("gone"), Some(""));
    let named: Vec<_> =
        state.not_taken().iter().map(|it| it.path.file_name().unwrap().to_owned()).collect();
    let mut expected = vec!["dir", "edited", "kept"];
    expected.extend(is_device.then_some("null"));
    assert_eq!(named, expected);
}

#[test]
fn a_whiteout_may_be_a_file_where_the_directory_says_so() {
    let place = Place::new();
    let fork = place.fork("one");
    let upper = Upper::of(&fork);
    std::fs::create_dir(upper.path("dir")).unwrap();
    upper.mark("dir", "opaque", "x");
    std::fs::write(upper.path("dir/file"), "").unwrap();
    let inside = upper.0.open_dir(b"dir").unwrap();
    inside.inode(b"file").unwrap().set_xattr(b"user.overlay.whiteout", b"y").unwrap();
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    let found = files(&place, &state);
    assert!(names(&found).contains(&"dir/inner/deep"));
    assert!(!names(&found).contains(&"dir/file"), "{found:?}");
}

#[test]
fn hard_links_are_those_that_are_left() {
    let place = Place::new();
    let fork = place.fork("one");
    let upper = Upper::of(&fork);
    std::fs::write(upper.path("x"), "linked").unwrap();
    std::fs::hard_link(upper.path("x"), upper.path("y")).unwrap();
    let groups = |state: &ForkState<'_>| {
        let root = crate::store::read_root_tree(state, &state.manifest().merkle_root).unwrap();
        let groups = crate::store::read_links(state, root.links.as_ref()).unwrap();
        groups.groups().iter().map(Vec::len).collect::<Vec<_>>()
    };
    let store = place.store();
    assert_eq!(groups(&fork.state(&store, &NoProgress, 1).unwrap()), [2, 2]);
    // One of the two names below is another file now.
    std::fs::create_dir(upper.path("other")).unwrap();
    std::fs::write(upper.path("other/a"), "alone").unwrap();
    assert_eq!(groups(&fork.state(&store, &NoProgress, 1).unwrap()), [2]);
}

#[test]
fn what_a_snapshot_leaves_out_is_left_out_of_a_fork() {
    let place = Place::new();
    std::fs::write(place.path("work/.gitignore"), "*.log\n").unwrap();
    std::fs::create_dir(place.path("work/.git")).unwrap();
    let fork = place.fork("one");
    let upper = Upper::of(&fork);
    for name in [".pytest_cache", "sub/.mypy_cache"] {
        std::fs::create_dir_all(upper.path(name)).unwrap();
        let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
        std::fs::write(upper.path(name).join("CACHEDIR.TAG"), tag).unwrap();
        std::fs::write(upper.path(name).join("artifact"), "made").unwrap();
    }
    std::fs::write(upper.path("new"), "new").unwrap();
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    let found = files(&place, &state);
    assert!(names(&found).contains(&"new"));
    assert!(!names(&found).iter().any(|name| name.contains("artifact")), "{found:?}");
    let left: Vec<_> = state.manifest().not_captured.iter().map(|left| left.path.clone()).collect();
    let work = sys::real_path(&place.path("work")).unwrap();
    assert!(left.contains(&work.join(".pytest_cache")), "{left:?}");
}

#[test]
fn a_fork_keeps_its_base_and_gives_it_up() {
    let place = Place::new();
    let request = RecordRequest { origin: SessionOrigin::Snapshot, ..place.request() };
    let recording = crate::session::Recording::start(&request, Arc::new(NoProgress)).unwrap();
    let recorded = recording.manager().session().clone();
    let root = place.path("store");
    let session = begin_recorded(&root, recording.baseline(), &NoProgress).unwrap();
    drop(recording);
    let fork = place.named("one", &session, &recorded.id()).unwrap();
    let options = CleanupOptions { grace: std::time::Duration::ZERO, ..Default::default() };
    let remove = |session: &SessionDir| {
        let plan = CleanupPlan::new(&root, std::slice::from_ref(session)).unwrap();
        let list = || Catalog::new(root.clone(), []).sessions();
        plan.apply(list, &options).unwrap()
    };
    assert_eq!(remove(&recorded).sessions_removed, [recorded.id()]);
    let refused = remove(&session);
    assert_eq!(refused.sessions_skipped[0].reason, SkipReason::Forked);
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    assert!(names(&files(&place, &state)).contains(&"dir/inner/deep"));
    drop(state);
    fork.discard().unwrap();
    assert!(place.forks().list().unwrap().is_empty());
    assert!(Catalog::new(root.clone(), []).sessions().unwrap().is_empty());
    assert!(matches!(fork.enter(), Err(ForkError::NotFound { .. })));
}

#[test]
fn a_fork_with_snapshots_leaves_its_session() {
    let place = Place::new();
    let fork = place.fork("one");
    std::fs::write(Upper::of(&fork).path("new"), "new").unwrap();
    fork.snapshot(Some("better".to_owned()), Arc::new(NoProgress), 1).unwrap();
    let session = fork.session().unwrap();
    fork.discard().unwrap();
    assert!(!session.metadata().unwrap().pinned);
    let manager = SnapshotManager::open(session.path()).unwrap();
    assert_eq!(manager.load_manifest(1).unwrap().label.as_deref(), Some("better"));
}

#[test]
fn a_name_is_one_directory_and_taken_once() {
    let place = Place::new();
    let fork = place.fork("one");
    for name in ["", ".", "..", "a/b", ".new", "-x", "a b", "\u{e9}", &"x".repeat(65)] {
        assert!(
            matches!(place.forks().check_new_name(name, &[]), Err(ForkError::Name { .. })),
            "{name}"
        );
        assert!(matches!(fork.rename(name), Err(ForkError::Name { .. })), "{name}");
    }
    let paths: Vec<_> = fork.recorded_paths().cloned().collect();
    let taken = place.forks().check_new_name("one", &paths);
    assert!(matches!(taken, Err(ForkError::Exists { .. })));
    place.forks().check_new_name("one", &[place.path("elsewhere")]).unwrap();
    let other = place.fork("two");
    assert!(matches!(other.rename("one"), Err(ForkError::Exists { .. })));
    let renamed = other.rename("three").unwrap();
    assert_eq!(renamed.document().session, other.document().session);
    let listed = place.forks().list().unwrap();
    let names: Vec<_> = listed.iter().map(|fork| fork.as_ref().unwrap().name()).collect();
    assert_eq!(names, ["one", "three"]);
    assert!(matches!(other.enter(), Err(ForkError::NotFound { .. })));
}

#[test]
fn a_damaged_document_hides_no_other_fork() {
    let place = Place::new();
    let fork = place.fork("one");
    place.fork("two");
    let document = fork.path().join("fork.json");
    let text = std::fs::read_to_string(&document).unwrap();
    for (from, to) in [
        ("\"format_version\": 1", "\"format_version\": 9"),
        (&*format!("\"session\": \"{}\"", fork.document().session), "\"session\": \"../x\""),
        (&*format!("\"{}\"", sys::real_path(&place.path("work")).unwrap().display()), "\"../x\""),
        ("{", ""),
    ] {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text, "{from}");
        std::fs::write(&document, damaged).unwrap();
        let listed = place.forks().list().unwrap();
        assert!(matches!(listed[0], Err(ForkError::Document { .. })), "{from}: {listed:?}");
        assert_eq!(listed[1].as_ref().unwrap().name(), "two");
    }
}

#[test]
fn only_directories_are_forked() {
    let place = Place::new();
    let mut request = place.request();
    request.tracked_paths = vec![place.path("work/kept")];
    let session = begin_now(&request, Arc::new(NoProgress)).unwrap();
    let refused = place.named("one", &session, "now").unwrap_err();
    assert!(matches!(refused, ForkError::NotADirectory { .. }), "{refused}");
    assert!(place.forks().list().unwrap().is_empty());
    assert!(Dir::open(session.path()).is_err_and(|error| error.is_gone()));
    assert_eq!(std::fs::read_dir(place.path("store/forks")).unwrap().count(), 0);
}

#[test]
fn a_name_belongs_to_a_project() {
    let place = Place::new();
    let work = sys::real_path(&place.path("work")).unwrap();
    let of = |dir: &str, name: &str| {
        let tracked_paths = vec![place.path(dir)];
        let session =
            begin_now(&RecordRequest { tracked_paths, ..place.request() }, Arc::new(NoProgress));
        place.named(name, &session.unwrap(), "now")
    };
    let (outer, dir, other) = (of("work", "a"), of("work/dir", "a"), of("work/other", "b"));
    let [outer, dir, other] = [outer, dir, other].map(Result::unwrap);
    assert!(matches!(of("work", "a"), Err(ForkError::Exists { .. })));
    let at = |here: &str| place.forks().here(&work.join(here));
    let session = |fork: &Fork| fork.document().session.clone();
    // The nearest fork of the project here, whatever lies below.
    for (here, name, meant) in [
        ("", "a", &outer),
        ("dir", "a", &dir),
        ("dir/inner", "a", &dir),
        ("other", "b", &other),
        ("", "b", &other),
    ] {
        assert_eq!(session(&at(here).find(name).unwrap()), session(meant), "{here} {name}");
    }
    let parent = place.forks().here(work.parent().unwrap());
    assert!(matches!(parent.find("a"), Err(ForkError::Ambiguous { .. })));
    assert_eq!(session(&parent.find("b").unwrap()), session(&other));
    match at("dir").find("b") {
        Err(ForkError::Elsewhere { projects, .. }) => assert_eq!(projects, [work.join("other")]),
        other => panic!("{other:?}"),
    }
    // A directory with a fork is a project of its own, and so is a git work tree.
    assert!(matches!(at("other").find("a"), Err(ForkError::Elsewhere { .. })));
    std::fs::create_dir_all(work.join("repository/.git")).unwrap();
    assert!(matches!(at("repository").find("a"), Err(ForkError::Elsewhere { .. })));
    // A removal is no guess.
    assert_eq!(session(&at("").find_to_remove("a").unwrap()), session(&outer));
    assert!(matches!(at("dir/inner").find_to_remove("a"), Err(ForkError::Above { .. })));
    std::fs::create_dir(work.join("dir/.git")).unwrap();
    assert_eq!(session(&at("dir/inner").find_to_remove("a").unwrap()), session(&dir));
    assert!(matches!(at("dir").find("c"), Err(ForkError::NotFound { .. })));
    // A session is unique.
    assert_eq!(at("other").find(&session(&dir)).unwrap().name(), "a");
    assert!(matches!(other.rename("b"), Err(ForkError::Exists { .. })));
    assert_eq!(other.rename("a").unwrap().name(), "a");
    assert_eq!(session(&at("other").find("a").unwrap()), session(&other));
}

#[test]
fn what_a_killed_process_left_of_forks_is_cleared_up_and_the_work_of_a_living_one_stays() {
    let place = Place::new();
    let root = place.path("store");
    let sessions = || Catalog::new(root.clone(), []).sessions().unwrap().len();
    let born = |throw_away| {
        let birth = place.forks().expect().unwrap();
        let session = begin_now(&place.request(), Arc::new(NoProgress)).unwrap();
        let name = if throw_away { "trial" } else { "kept" };
        let (session, from) = (&session, "now");
        birth.make(NewFork { name, session, from, throw_away, copied: false }).unwrap()
    };
    let (kept, in_use) = born(false);
    drop(in_use);
    let (trial, in_use) = born(true);
    place.forks().clear_up().unwrap();
    assert_eq!((place.forks().list().unwrap().len(), sessions()), (2, 2), "it is in use");
    drop(in_use);
    place.forks().clear_up().unwrap();
    assert_eq!((place.forks().list().unwrap().len(), sessions()), (1, 1));
    assert!(matches!(trial.enter(), Err(ForkError::NotFound { .. })));
    // A fork that is being made: its hidden directory is locked until its process ends.
    let birth = place.forks().expect().unwrap();
    let session = begin_now(&place.request(), Arc::new(NoProgress)).unwrap();
    session.set_pinned(true).unwrap();
    let hidden = root.join("forks/.new-00");
    std::fs::create_dir(&hidden).unwrap();
    place.forks().clear_up().unwrap();
    assert!(hidden.exists() && sessions() == 2, "another process is at work");
    drop(birth);
    place.forks().clear_up().unwrap();
    assert_eq!(sessions(), 1);
    assert!(!hidden.exists());
    // A removal that was cut short. A session with states of the fork stays.
    std::fs::write(place.path("work/new"), "new").unwrap();
    let upper = Upper::of(&kept);
    std::fs::write(upper.path("made"), "made").unwrap();
    kept.snapshot(None, Arc::new(NoProgress), 1).unwrap();
    let removed = root.join("forks/.removed-00");
    std::fs::rename(kept.path(), &removed).unwrap();
    place.forks().clear_up().unwrap();
    assert!(!removed.exists());
    assert_eq!(sessions(), 1);
    assert!(!kept.session().unwrap().metadata().unwrap().pinned);
    assert_eq!(std::fs::read_dir(root.join("forks")).unwrap().count(), 0);
}

#[test]
fn a_fork_that_is_a_copy_has_the_state_of_its_layer() {
    let place = Place::new();
    let session = begin_now(&place.request(), Arc::new(NoProgress)).unwrap();
    let new =
        NewFork { name: "one", session: &session, from: "now", throw_away: false, copied: true };
    let (fork, in_use) = place.forks().expect().unwrap().make(new).unwrap();
    drop(in_use);
    let store = place.store();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    let comparison = state.comparison().unwrap();
    assert!(comparison.changes.is_empty(), "{:?}", comparison.changes);
    drop(state);
    let upper = Upper::of(&fork);
    assert_eq!(std::fs::read(upper.path("dir/inner/deep")).unwrap(), b"deep");
    std::fs::write(upper.path("edited"), "new").unwrap();
    std::fs::remove_file(upper.path("gone")).unwrap();
    std::fs::rename(upper.path("dir"), upper.path("moved")).unwrap();
    let state = fork.state(&store, &NoProgress, 1).unwrap();
    let found = files(&place, &state);
    assert!(names(&found).contains(&"moved/inner/deep"), "{found:?}");
    assert!(!names(&found).iter().any(|name| name.starts_with("dir/") || *name == "gone"));
    assert!(found.contains(&("edited".to_owned(), "new".to_owned())));
    let taken = fork.snapshot(None, Arc::new(NoProgress), 1).unwrap();
    assert_eq!(taken.manifest.merkle_root, state.manifest().merkle_root);
    let report =
        verify_session(&fork.session().unwrap(), &store, &VerifyOptions::default()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
