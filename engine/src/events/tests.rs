use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::snapshot::{Budget, PushNote, SessionDir, SnapshotManager};
use crate::walk::ExclusionConfig;

struct Store {
    temp: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("project")).unwrap();
        fs::create_dir_all(temp.path().join("store/objects")).unwrap();
        Self { temp }
    }

    fn root(&self) -> PathBuf {
        self.temp.path().join("store")
    }

    fn write(&self, text: &str) {
        fs::write(self.temp.path().join("project/file"), text).unwrap();
    }

    fn session(&self, id: &str) -> SnapshotManager {
        let tracked = [self.temp.path().join("project")];
        let exclusion = ExclusionConfig::nothing();
        let session = self.root().join(id);
        let manager = SnapshotManager::new(&session, &tracked, exclusion, Budget::default());
        let manager = manager.unwrap();
        manager.create_baseline().unwrap();
        manager
    }

    fn all(&self) -> Vec<Event> {
        EventStream::new(&self.root(), None).batch().unwrap()
    }

    fn log(&self) -> PathBuf {
        self.root().join("index/events.jsonl")
    }
}

fn kind(event: &Event) -> String {
    let json = serde_json::to_value(event).unwrap();
    json["event"].as_str().unwrap().to_owned()
}

fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(kind).collect()
}

#[test]
fn each_fact_is_given_once_and_any_cursor_gives_those_behind_it() {
    let store = Store::new();
    assert!(store.all().is_empty(), "an empty store has no facts");
    store.write("one");
    let manager = store.session("20260101-000000-1");
    store.write("two");
    manager.create_incremental().unwrap();
    let first = store.all();
    assert_eq!(kinds(&first), ["session_began", "snapshot", "snapshot"]);
    manager.restore_to(0).unwrap();
    manager.restore_to(2).unwrap();
    let note = PushNote {
        at: jiff::Timestamp::now(),
        snapshot: 1,
        remote: "nas".to_owned(),
        archive: "a.tar.zst".to_owned(),
    };
    SessionDir::open(&store.root().join("20260101-000000-1")).unwrap().note_push(&note).unwrap();
    let all = store.all();
    assert_eq!(all[..3], first[..], "the order stays");
    // Each restore has its safety snapshot, which begins before it.
    let mut later = kinds(&all[3..]);
    assert_eq!(later.pop().unwrap(), "push");
    assert_eq!(later, ["snapshot", "restore", "snapshot", "restore"]);
    for (at, event) in all.iter().enumerate() {
        let cursor = event.cursor.to_string().parse().unwrap();
        let behind = EventStream::new(&store.root(), Some(cursor)).batch().unwrap();
        assert_eq!(behind, all[at + 1..]);
    }
}

#[test]
fn a_file_of_facts_that_is_gone_or_damaged_begins_a_new_order() {
    let store = Store::new();
    store.session("20260101-000000-1");
    let mut stream = EventStream::new(&store.root(), None);
    let before = stream.batch().unwrap();
    for damage in [None, Some("nonsense\n"), Some("")] {
        match damage {
            None => fs::remove_file(store.log()).unwrap(),
            Some(text) => fs::write(store.log(), text).unwrap(),
        }
        let after = stream.batch().unwrap();
        assert_eq!(kinds(&after), kinds(&before));
        assert_ne!(after[0].cursor, before[0].cursor);
        assert_eq!(store.all(), after);
        assert!(stream.batch().unwrap().is_empty());
    }
}

#[test]
fn a_torn_line_is_cut_off_and_its_fact_is_noted_again() {
    let store = Store::new();
    let manager = store.session("20260101-000000-1");
    let all = store.all();
    let whole = fs::read(store.log()).unwrap();
    for cut in 1..20 {
        fs::write(store.log(), &whole[..whole.len() - cut]).unwrap();
        assert_eq!(store.all(), all);
        assert_eq!(fs::read(store.log()).unwrap(), whole);
    }
    store.write("more");
    manager.create_incremental().unwrap();
    assert_eq!(store.all().len(), all.len() + 1);
}

#[test]
fn a_session_that_goes_and_damage_are_facts() {
    let store = Store::new();
    store.session("20260101-000000-1");
    store.session("20260101-000000-2");
    let count = store.all().len();
    fs::remove_dir_all(store.root().join("20260101-000000-1")).unwrap();
    let manifest = store.root().join("20260101-000000-2/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"command\": []", "\"command\": [\"x\"]")).unwrap();
    fs::create_dir_all(store.root().join("objects/quarantine")).unwrap();
    fs::write(store.root().join("objects/quarantine/abcd-0"), "").unwrap();
    let mut later = kinds(&store.all()[count..]);
    later.sort();
    assert_eq!(later, ["damage", "damage", "session_removed"]);
    fs::write(&manifest, "no manifest").unwrap();
    let last = store.all().pop().unwrap();
    assert!(matches!(last.record.fact, Fact::Damage { what: Damage::Manifest, .. }), "{last:?}");
    assert_eq!(store.all().len(), count + 4, "each damage is told once");
}

#[test]
fn a_deleted_snapshot_is_damage_that_ends_a_wait_and_is_told_once() {
    let store = Store::new();
    let id = "20260101-000000-1";
    let manager = store.session(id);
    for text in ["two", "three"] {
        store.write(text);
        manager.create_incremental().unwrap();
    }
    let mut stream = EventStream::following(&store.root(), None).unwrap();
    assert_eq!(stream.batch().unwrap().len(), 4);
    let deleted = store.root().join(id).join("snapshots/1");
    fs::remove_dir_all(&deleted).unwrap();
    assert_eq!(stream.wait(Some(Duration::from_secs(60)), None).unwrap(), Waited::Changed);
    let found = stream.batch().unwrap();
    let [Event { record: Record { session, fact, .. }, .. }] = &found[..] else {
        panic!("{found:?}")
    };
    let damage = Fact::Damage { what: Damage::Manifest, path: deleted.join("manifest.json") };
    assert_eq!((session.as_deref(), fact), (Some(id), &damage));
    assert!(stream.batch().unwrap().is_empty() && store.all().len() == 5);
    // All of them go with their directory.
    fs::remove_dir_all(store.root().join(id).join("snapshots")).unwrap();
    assert_eq!(kinds(&stream.batch().unwrap()), ["damage", "damage"]);
}

#[test]
fn a_removed_snapshot_is_no_damage() {
    let store = Store::new();
    let id = "20260101-000000-1";
    let manager = store.session(id);
    for text in ["two", "three"] {
        store.write(text);
        manager.create_incremental().unwrap();
    }
    let session = SessionDir::open(&store.root().join(id)).unwrap();
    crate::gc::remove_snapshots(&session, &[1], crate::manifest::RemovalReason::Asked).unwrap();
    assert!(kinds(&store.all()).iter().all(|kind| kind != "damage"));
}

#[test]
fn a_session_that_is_seen_before_its_first_content_ends_a_wait() {
    let store = Store::new();
    let mut stream = EventStream::following(&store.root(), None).unwrap();
    let session = store.root().join("20260101-000000-1");
    fs::create_dir(&session).unwrap();
    assert!(stream.batch().unwrap().is_empty());
    // The note of its making, which came with the look or comes behind it.
    while stream.wait(Some(Duration::from_millis(1)), None).unwrap() == Waited::Changed {
        assert!(stream.batch().unwrap().is_empty());
    }
    fs::create_dir(session.join("snapshots")).unwrap();
    assert_eq!(stream.wait(Some(Duration::from_secs(60)), None).unwrap(), Waited::Changed);
}

#[test]
fn a_wait_ends_with_a_new_fact_a_closed_reader_or_its_limit() {
    const LONG: Duration = Duration::from_secs(60);
    let store = Store::new();
    let mut stream = EventStream::following(&store.root(), None).unwrap();
    assert!(stream.batch().unwrap().is_empty());
    let soon = Duration::from_millis(1);
    assert_eq!(stream.wait(Some(soon), None).unwrap(), Waited::TimedOut);
    // Sessions and snapshots that appear while nothing waits, and while something does.
    let facts = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for session in 1..4 {
                let manager = store.session(&format!("20260101-000000-{session}"));
                store.write(&format!("{session}"));
                manager.create_incremental().unwrap();
            }
        });
        let mut facts = Vec::new();
        while facts.len() < 9 {
            assert_eq!(stream.wait(Some(LONG), None).unwrap(), Waited::Changed);
            facts.extend(stream.batch().unwrap());
        }
        writer.join().unwrap();
        facts
    });
    assert_eq!(facts, store.all());
    // The rest of the kernel's notes.
    while stream.wait(Some(soon), None).unwrap() == Waited::Changed {
        assert!(stream.batch().unwrap().is_empty());
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(stream.wait(Some(LONG), Some(writer.as_fd())).unwrap(), Waited::Closed);
}

#[test]
fn readers_at_once_note_each_fact_once_in_one_order() {
    let store = Store::new();
    let managers: Vec<_> = (1..4).map(|n| store.session(&format!("20260101-000000-{n}"))).collect();
    let read = || {
        let mut stream = EventStream::new(&store.root(), None);
        let mut all = Vec::new();
        while all.len() < 12 {
            all.extend(stream.batch().unwrap());
        }
        all
    };
    let orders = thread::scope(|scope| {
        let readers: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        for (turn, manager) in managers.iter().chain(&managers).enumerate() {
            store.write(&format!("{turn}"));
            manager.create_incremental().unwrap();
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(orders.iter().all(|order| *order == orders[0]));
    assert_eq!(store.all(), orders[0]);
}

#[test]
fn a_later_state_that_is_brought_back_is_no_undo() {
    let store = Store::new();
    store.write("one");
    let manager = store.session("20260101-000000-1");
    store.write("two");
    manager.create_incremental().unwrap();
    store.write("three");
    manager.create_incremental().unwrap();
    manager.restore_to(1).unwrap();
    let last = store.all().pop().unwrap();
    let Fact::Restore(restored) = last.record.fact else { panic!("{last:?}") };
    assert_eq!((restored.restore, restored.snapshot, restored.partial), (0, 1, false));
}

proptest! {
    #[test]
    fn any_text_is_a_cursor_or_an_error(text in "\\PC{0,40}|[0-9a-f]{16}-[0-9]{1,24}") {
        match text.parse::<Cursor>() {
            Ok(cursor) => prop_assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor),
            Err(error) => prop_assert!(error.to_string().contains("is no cursor")),
        }
    }
}
