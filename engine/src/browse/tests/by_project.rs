use std::sync::atomic::Ordering;

use super::*;
use crate::snapshot::SnapshotLabel;

impl World {
    /// Changes what the manifest of a session says.
    fn describe(&self, id: &str, change: impl FnOnce(&mut SessionMetadata)) {
        let session = SessionDir::open(&self.root.join(id)).unwrap();
        let mut metadata = session.metadata().unwrap();
        change(&mut metadata);
        session.save_metadata(&metadata).unwrap();
    }

    /// A session of some paths that has a manifest, began at a time, and has a name.
    fn begun(&self, id: &str, started: &str, label: &str, paths: &[PathBuf]) -> SnapshotManager {
        let manager = self.session_of(id, paths);
        manager.create_baseline().unwrap();
        self.describe(id, |metadata| {
            metadata.started = started.parse().unwrap();
            metadata.label = Some(label.to_owned());
        });
        manager
    }

    fn here(&self) -> Vec<PathBuf> {
        vec![self.project.clone()]
    }
}

/// The time of day in a name depends on where the test runs.
fn without_time(names: &[String]) -> Vec<&str> {
    let words = |name: &'_ String| -> usize {
        if name.starts_with("20") { "2026-11-26 11.49 ".len() } else { 0 }
    };
    names.iter().map(|name| &name[words(name)..]).collect()
}

#[test]
fn a_project_is_a_folder_of_sessions_with_the_states_directly_inside() {
    let world = World::new();
    let file = world.write("src/main", "one");
    world.write("same", "same");
    let session = world.begun("s", "2026-11-26T10:49:31Z", "the big refactor", &world.here());
    fs::write(&file, "two").unwrap();
    session.create_incremental().unwrap();
    let tree = world.tree();
    assert_eq!(names(&tree, "by-project"), ["project"]);
    let listed = names(&tree, "by-project/project");
    assert_eq!(without_time(&listed), ["the big refactor", "latest", "now"]);
    assert!(listed[0].starts_with("2026-11-2"), "{}", listed[0]);
    assert_eq!(target(&tree, "by-project/project/latest"), listed[0]);
    assert_eq!(target(&tree, "by-project/project/now"), world.project.to_str().unwrap());

    let past = Path::new("by-project/project").join(&listed[0]);
    assert_eq!(names(&tree, &past), ["after", "before"]);
    assert_eq!(read(&tree, past.join("before/src/main")).unwrap(), b"one");
    assert_eq!(read(&tree, past.join("after/src/main")).unwrap(), b"two");
    // The same inodes as below the id, the top included.
    for (state_folder, number) in [("before", "s/0"), ("after", "s/1")] {
        for path in ["", "src", "src/main", "same"] {
            let below = past.join(state_folder).join(path);
            assert_eq!(state(&tree, &below), state(&tree, world.inside(number, path)), "{path}");
            let by_id = world.inside(number, path);
            assert_eq!(key_or_none(&tree, below), key_or_none(&tree, by_id), "{path}");
        }
    }
    assert_eq!(state(&tree, past.join("before/same")), state(&tree, past.join("after/same")));
    for folder in ["by-project", "by-project/project", past.to_str().unwrap()] {
        let node = at(&tree, folder);
        assert_eq!(tree.stability(&key(&node)), Stability::Changing, "{folder}");
        assert!(node.state.is_none(), "{folder}");
        for missing in ["", "x", "0", "before ", "\u{202e}"] {
            let found = tree.find(&key(&node), missing.as_bytes()).unwrap();
            assert!(found.is_none(), "{folder}: {missing:?}");
        }
    }
    assert_eq!(tree.stability(&key(&at(&tree, past.join("before")))), Stability::Immutable);
}

#[test]
fn after_is_the_last_state_that_the_session_left_and_not_what_a_restore_took() {
    let world = World::new();
    let file = world.write("file", "0");
    let session = world.begun("s", "2026-11-26T10:49:31Z", "x", &world.here());
    for text in ["1", "2", "3", "4"] {
        fs::write(&file, text).unwrap();
        session.create_incremental().unwrap();
    }
    let read = |name: &str| {
        let tree = world.tree();
        let latest = target(&tree, "by-project/project/latest");
        let path = Path::new("by-project/project").join(latest).join(name).join("file");
        super::read(&tree, path).unwrap()
    };
    assert_eq!((read("before"), read("after")), (b"0".to_vec(), b"4".to_vec()));
    world.describe("s", |metadata| metadata.safety_snapshots = vec![3, 4]);
    assert_eq!(read("after"), b"2");
    world.describe("s", |metadata| metadata.received_snapshots = vec![2]);
    assert_eq!(read("after"), b"1");
}

#[test]
fn a_session_of_several_paths_is_in_the_folder_of_each() {
    let world = World::new();
    for path in ["shop/x", "work/shop/y", "notes.txt", "bank/.git/worktrees/w/HEAD"] {
        world.write(path, path);
    }
    let paths = ["shop", "work/shop", "notes.txt", "bank/.git/worktrees/w", "gone"];
    let paths: Vec<PathBuf> = paths.iter().map(|path| world.project.join(path)).collect();
    fs::create_dir(&paths[4]).unwrap();
    let session = world.begun("s", "2026-11-26T10:49:31Z", "all", &paths);
    fs::remove_dir(&paths[4]).unwrap();
    fs::remove_file(&paths[2]).unwrap();
    symlink("/etc", &paths[2]).unwrap();
    session.create_incremental().unwrap();
    let tree = world.tree();
    let all = ["gone", "notes.txt", "shop (project)", "shop (work)"];
    assert_eq!(names(&tree, "by-project"), all);
    let inside = |project: &str, path: &str| {
        let project = Path::new("by-project").join(project);
        let latest = target(&tree, project.join("latest").to_str().unwrap());
        project.join(latest).join(path)
    };
    assert_eq!(read(&tree, inside("shop (project)", "after/x")).unwrap(), b"shop/x");
    assert_eq!(read(&tree, inside("shop (work)", "before/y")).unwrap(), b"work/shop/y");
    // A file is in a folder, by its name; so is a link that took its place.
    assert_eq!(names(&tree, inside("notes.txt", "before")), ["notes.txt"]);
    let file = inside("notes.txt", "before/notes.txt");
    assert_eq!(read(&tree, &file).unwrap(), b"notes.txt");
    assert_eq!(state(&tree, &file), state(&tree, world.inside("s/0", "notes.txt")));
    assert_eq!(target(&tree, inside("notes.txt", "after/notes.txt").to_str().unwrap()), "/etc");
    assert_eq!(names(&tree, inside("gone", "before")), [""; 0]);
    assert_eq!(names(&tree, inside("gone", "after")), [""; 0]);
    assert!(at(&tree, inside("gone", "before")).state.is_some(), "the recorded directory");
    assert!(at(&tree, inside("gone", "after")).state.is_none(), "a folder of ours");
}

#[test]
fn any_bytes_are_names_of_projects_sessions_and_prompts() {
    let world = World::new();
    let hostile: [&[u8]; 6] =
        [b"a\xffb", b"-rf", b"...", b"con", b"x\n\x1b[2J", "\u{202e}gpj".as_bytes()];
    let mut paths = Vec::new();
    for name in hostile {
        let path = world.project.join(OsStr::from_bytes(name));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), name).unwrap();
        paths.push(path);
    }
    world.session_of("s", &paths).create_baseline().unwrap();
    world.describe("s", |metadata| {
        metadata.label = Some("../../etc: \u{1b}[31m\u{0}".repeat(50));
        let step = |number: u64, prompt: &str| {
            let prompt = serde_json::json!({ "number": number, "text": prompt });
            let step = serde_json::json!({
                "number": 0, "timestamp": "2026-01-01T00:00:00Z", "agent": "codex",
                "tool": "../x", "title": "\u{202e}\n".repeat(1000), "prompt": prompt,
                "changes": null,
            });
            serde_json::from_value(step).unwrap()
        };
        metadata.steps =
            vec![step(1, &format!("/{}", "\u{0}\u{200b}".repeat(1000))), step(2, "a/b: c\nd")];
    });
    let tree = world.tree();
    let projects = names(&tree, "by-project");
    assert_eq!(projects, ["_con", "a b", "gpj", "project", "rf", "x [2J"]);
    for project in &projects {
        let folder = Path::new("by-project").join(project);
        let listed = names(&tree, &folder);
        assert_eq!(without_time(&listed)[1..], ["latest", "now"]);
        assert!(listed[0].len() <= 143 && listed[0].ends_with(" ..-..-etc ["), "{}", listed[0]);
        let steps = folder.join(&listed[0]).join("steps");
        assert_eq!(names(&tree, &steps), ["prompt 01 -", "prompt 02 a-b c d"]);
        let step = names(&tree, steps.join("prompt 01 -"));
        assert_eq!(step, ["0000 ..-x ·"]);
        assert_eq!(names(&tree, steps.join("prompt 01 -").join(&step[0])), ["file"]);
    }
}

#[test]
fn steps_are_folders_by_prompt_and_named_states_are_there() {
    let world = World::new();
    let file = world.write("file", "0");
    let session = world.begun("s", "2026-11-26T10:49:31Z", "x", &world.here());
    for text in ["1", "2", "3", "4"] {
        fs::write(&file, text).unwrap();
        session.create_incremental().unwrap();
    }
    world.describe("s", |metadata| {
        let step = |number: u64, title: &str, prompt: Option<(u64, &str)>| {
            let prompt =
                prompt.map(|(number, text)| serde_json::json!({ "number": number, "text": text }));
            let step = serde_json::json!({
                "number": number, "timestamp": "2026-01-01T00:00:00Z", "agent": "codex",
                "tool": "Edit", "title": title, "prompt": prompt, "changes": null,
            });
            serde_json::from_value(step).unwrap()
        };
        metadata.steps = vec![
            step(1, "file", None),
            step(2, "src/file", Some((1, "add VAT"))),
            step(3, "file", Some((1, ""))),
        ];
        metadata.labels = vec![
            SnapshotLabel { number: 3, label: "it works".into() },
            SnapshotLabel { number: 4, label: "before lunch".into() },
        ];
    });
    let tree = world.tree();
    let past = Path::new("by-project/project").join(target(&tree, "by-project/project/latest"));
    assert_eq!(names(&tree, &past), ["after", "before", "steps"]);
    let steps = past.join("steps");
    assert_eq!(
        names(&tree, &steps),
        ["0001 Edit · file", "0004 before lunch", "prompt 01 add VAT"]
    );
    let prompt = steps.join("prompt 01 add VAT");
    assert_eq!(names(&tree, &prompt), ["0002 Edit · src-file", "0003 it works"]);
    assert_eq!(read(&tree, prompt.join("0002 Edit · src-file/file")).unwrap(), b"2");
    assert_eq!(read(&tree, steps.join("0004 before lunch/file")).unwrap(), b"4");
    assert_eq!(state(&tree, prompt.join("0003 it works")), state(&tree, world.inside("s/3", "")));
    for folder in [&steps, &prompt] {
        assert!(tree.find(&key(&at(&tree, folder)), b"0009 x").unwrap().is_none());
    }
}

#[test]
fn sessions_of_equal_names_are_numbered_and_a_received_one_takes_no_name() {
    let world = World::new();
    world.write("file", "x");
    for (id, started) in [("b", "00"), ("a", "20"), ("c", "40"), ("d", "00")] {
        let started = format!("2026-11-26T10:49:{started}Z");
        world.begun(id, &started, "the work", &world.here());
    }
    world.describe("d", |metadata| metadata.received = true);
    let tree = world.tree();
    let listed = names(&tree, "by-project/project");
    assert_eq!(
        without_time(&listed),
        ["the work", "the work (2)", "the work (3)", "the work (received)", "latest", "now"]
    );
    assert_eq!(target(&tree, "by-project/project/latest"), listed[2]);
    // Each name is of another session.
    let past = |name: &String| key(&at(&tree, Path::new("by-project/project").join(name)));
    let keys: Vec<_> = listed[..4].iter().map(past).collect();
    for (at, one) in keys.iter().enumerate() {
        assert!(keys[..at].iter().all(|other| other != one));
    }
    // A name that went to another session is not kept.
    world.describe("b", |metadata| metadata.label = Some("other".into()));
    assert_eq!(past(&listed[0]), keys[1], "the second is the first now");
    fs::remove_dir_all(world.root.join("a")).unwrap();
    assert_eq!(past(&listed[0]), keys[2]);
    // A project of which only received sessions are known is no place on this machine.
    for id in ["b", "c"] {
        fs::remove_dir_all(world.root.join(id)).unwrap();
    }
    let listed = names(&tree, "by-project/project");
    assert_eq!(without_time(&listed), ["the work (received)"]);
    for link in ["now", "latest"] {
        assert!(walk(&tree, Path::new("by-project/project").join(link)).unwrap().is_none());
    }
    fs::remove_dir_all(world.root.join("d")).unwrap();
    assert!(walk(&tree, "by-project").unwrap().is_none());
}

#[test]
fn latest_of_a_project_is_no_older_session_because_a_newer_one_cannot_be_read() {
    let world = World::new();
    world.write("file", "x");
    world.begun("a", "2026-11-26T10:49:00Z", "one", &world.here());
    world.begun("b", "2026-11-26T10:50:00Z", "two", &world.here());
    let tree = world.tree();
    assert!(target(&tree, "by-project/project/latest").ends_with(" two"));
    fs::write(world.root.join("b/manifest.json"), "{").unwrap();
    assert!(walk(&tree, "by-project/project/latest").unwrap().is_none());
    assert_eq!(without_time(&names(&tree, "by-project/project")), ["one", "now"]);
}

#[test]
fn a_damaged_state_is_an_error_of_its_folder_and_of_no_other() {
    let world = World::new();
    let file = world.write("file", "one");
    let session = world.begun("s", "2026-11-26T10:49:31Z", "x", &world.here());
    fs::write(&file, "two").unwrap();
    let root = session.create_incremental().unwrap().0.merkle_root;
    world.share_blocks();
    let tree = world.tree();
    let past = Path::new("by-project/project").join(target(&tree, "by-project/project/latest"));
    let object = world.root.join("objects").join(&root.hex()[..2]).join(&root.hex()[2..]);
    fs::set_permissions(&object, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&object, "other").unwrap();
    assert_eq!(names(&tree, &past), ["after", "before"]);
    let error = tree.list(&key(&at(&tree, past.join("after")))).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert_eq!(read(&tree, past.join("before/file")).unwrap(), b"one");
    // The same of a manifest.
    fs::write(world.root.join("s/snapshots/0/manifest.json"), "{").unwrap();
    let error = tree.list(&key(&at(&tree, past.join("before")))).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn a_thousand_sessions_are_read_once_and_a_name_costs_a_look_at_one() {
    let world = World::new();
    world.write("file", "x");
    world.begun("s0", "2026-11-26T10:49:31Z", "the work", &world.here());
    const SESSIONS: u64 = 1000;
    for number in 1..SESSIONS {
        let copy = world.root.join(format!("s{number}"));
        fs::create_dir(&copy).unwrap();
        fs::copy(world.root.join("s0/manifest.json"), copy.join("manifest.json")).unwrap();
    }
    let tree = world.tree();
    let counted = |work: &dyn Fn()| {
        let count = || {
            let sessions = &tree.sessions;
            (sessions.looks.load(Ordering::Relaxed), sessions.reads.load(Ordering::Relaxed))
        };
        let before = count();
        work();
        let after = count();
        (after.0 - before.0, after.1 - before.1)
    };
    let project = key(&at(&tree, "by-project/project"));
    let listed = names(&tree, "by-project/project");
    assert_eq!(listed.len() as u64, SESSIONS + 2);
    assert_eq!(counted(&|| drop(tree.list(&project).unwrap())), (SESSIONS, 0));
    let all_by_name = || {
        for name in &listed[..1000] {
            assert!(tree.find(&project, name.as_bytes()).unwrap().is_some());
        }
    };
    assert_eq!(counted(&all_by_name), (SESSIONS, 0));
    let fresh = world.tree();
    fresh.list(&key(&at(&fresh, "by-project"))).unwrap();
    assert_eq!(fresh.sessions.reads.load(Ordering::Relaxed), SESSIONS, "each manifest once");
}

#[test]
fn the_session_of_a_watcher_has_a_name_and_is_the_latest_where_it_is_alone() {
    let world = World::new();
    world.write("file", "one");
    world.begun("watched", "2026-11-26T12:00:00Z", "", &world.here());
    world.describe("watched", |metadata| {
        metadata.label = None;
        metadata.origin = SessionOrigin::Watch;
    });
    let tree = world.tree();
    let listed = names(&tree, "by-project/project");
    assert_eq!(without_time(&listed), ["you or another program", "latest", "now"]);
    assert_eq!(target(&tree, "by-project/project/latest"), listed[0]);
    world.begun("run", "2026-11-26T11:00:00Z", "older", &world.here());
    let tree = world.tree();
    let listed = names(&tree, "by-project/project");
    let older = listed.iter().find(|name| name.ends_with("older")).unwrap();
    assert_eq!(target(&tree, "by-project/project/latest"), *older);
    assert_eq!(target(&tree, "latest"), "run");
}
