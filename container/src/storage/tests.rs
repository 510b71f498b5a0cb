//! The contract of every storage, and the parts that stand on it, without an engine.

#![allow(clippy::disallowed_methods, reason = "tests plant what they look at")]

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::volumes::Parts;
use crate::{
    ContainerHistory, ContainerPolicy, ContainerRecord, RemovalReport, Trigger, cleanup, compare,
    remove, top,
};
use nono_engine::object::{ContentHash, TreeEntry};
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::{Restoration, RestorationMode, SessionDir};
use nono_engine::store::{Transfer, read_root_tree};

/// A storage, and the way to pin a history of it.
pub(crate) struct Lab {
    pub(crate) storage: Box<dyn SnapshotStorage>,
    pin: Box<dyn Fn(&str)>,
    _root: Option<TempDir>,
}

/// One of each kind.
pub(crate) fn labs() -> [Lab; 2] {
    let memory = MemoryStorage::new("memory");
    let pinned = memory.clone();
    let root = TempDir::new().unwrap();
    let local = LocalStorage::new(root.path().join("store"));
    let sessions = local.root().to_owned();
    [
        Lab {
            storage: Box::new(memory),
            pin: Box::new(move |id| pinned.set_pinned(id, true).unwrap()),
            _root: None,
        },
        Lab {
            storage: Box::new(local),
            pin: Box::new(move |id| {
                SessionDir::open(&sessions.join(id)).unwrap().set_pinned(true).unwrap();
            }),
            _root: Some(root),
        },
    ]
}

pub(crate) const CONTAINER: &str = "0123456789abcdef0123";

fn container(id: &str, name: &str) -> ContainerSession {
    ContainerSession {
        container_id: id.to_owned(),
        former_ids: Vec::new(),
        name: name.to_owned(),
        endpoint: "unix:///nowhere".to_owned(),
        volume_source: None,
        restored_from: None,
        restorations: Vec::new(),
    }
}

fn effort() -> Effort {
    Effort { threads: 1, progress: Arc::new(NoProgress) }
}

fn record(colour: &str) -> ContainerRecord {
    serde_json::from_value(json!({
        "format_version": 1, "container_id": CONTAINER, "name": "web",
        "captured_at": Timestamp::now(), "trigger": "manual", "message": colour,
        "state": "exited", "is_consistent": true, "engine": "none",
        "image": {"reference": "image", "id": "sha256:0"},
        "config": {"Env": [format!("COLOUR={colour}")]}, "host_config": {},
        "mounts": [{
            "kind": "volume", "volume": "data", "destination": "/data", "read_only": false,
            "tree": "data",
        }],
    }))
    .unwrap()
}

/// Puts a directory into a draft as the volume `data`.
fn put(
    draft: &dyn SnapshotDraft,
    directory: &Path,
    colour: &str,
) -> Result<SnapshotState, ContainerError> {
    let captured = draft.capture(&[directory])?;
    let root = read_root_tree(draft.objects(), &captured.merkle_root)?;
    let mut volumes = Parts::default();
    volumes.add_totals(&captured.totals);
    for entry in root.entries {
        let (name, attributes, node) = (b"data".as_slice().into(), entry.attributes, entry.node);
        volumes.entries.push(TreeEntry { name, attributes, node });
    }
    top::build(draft.objects(), &record(colour), volumes, None)
}

impl Lab {
    /// A history of the container `web`.
    pub(crate) fn history(&self) -> String {
        self.storage.create(container(CONTAINER, "web")).unwrap()
    }

    /// Adds a snapshot of a directory; its number.
    pub(crate) fn add(&self, history: &str, directory: &Path, colour: &str) -> u64 {
        let work = &mut |draft: &dyn SnapshotDraft| put(draft, directory, colour);
        self.storage.add(history, &effort(), work).unwrap().number
    }

    /// A history with so many snapshots that differ.
    fn with_snapshots(&self, count: u64) -> String {
        let history = self.history();
        for number in 0..count {
            let volume = volume(&format!("state {number}"));
            assert_eq!(self.add(&history, volume.path(), &format!("{number}")), number);
        }
        history
    }
}

/// A directory with some of everything that any user can make.
pub(crate) fn volume(text: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("file"), text).unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    std::fs::write(dir.path().join("sub/long"), vec![7; 3 << 20]).unwrap();
    std::fs::hard_link(dir.path().join("file"), dir.path().join("sub/same")).unwrap();
    std::os::unix::fs::symlink("file", dir.path().join("link")).unwrap();
    dir
}

#[test]
fn a_snapshot_gives_back_what_was_put_into_it() {
    for lab in labs() {
        let id = lab.with_snapshots(2);
        let history = ContainerHistory::open(&*lab.storage, &id).unwrap();
        assert_eq!(history.numbers().unwrap(), [0, 1]);
        assert_eq!(history.container().name, "web");
        assert_eq!(history.manifest(1).unwrap().label.as_deref(), Some("1"));
        assert_eq!(history.manifest(1).unwrap().parent, Some(0));
        assert_eq!(history.record(0).unwrap().message.as_deref(), Some("0"));
        let (_, first) = history.volume(0, "data").unwrap();
        assert_ne!(first, history.volume(1, "data").unwrap().1);
        assert!(matches!(history.volume(0, "other"), Err(ContainerError::NoSuchPart { .. })));
    }
}

#[test]
fn one_directory_is_the_same_tree_in_every_storage() {
    let volume = volume("text");
    let trees = labs().map(|lab| {
        let id = lab.history();
        lab.add(&id, volume.path(), "blue");
        ContainerHistory::open(&*lab.storage, &id).unwrap().volume(0, "data").unwrap()
    });
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn objects_of_any_length_come_back_as_files_and_as_streams() {
    for lab in labs() {
        let id = lab.history();
        let long = vec![3; (2 << 20) + 1];
        let mut hash = None;
        let work = &mut |draft: &dyn SnapshotDraft| {
            hash = Some(draft.objects().write(&long)?.hash);
            put(draft, volume("text").path(), "blue")
        };
        lab.storage.add(&id, &effort(), work).unwrap();
        let (objects, size) = (lab.storage.objects(&id).unwrap(), long.len() as u64);
        let mut buffer = Vec::new();
        let transfer = &mut Transfer::new(&mut buffer, &NoProgress);
        let mut read = Vec::new();
        let mut stream = objects.open_checked(&hash.unwrap(), size, transfer).unwrap();
        stream.read_to_end(&mut read).unwrap();
        assert!(read == long);
        let place = TempDir::new().unwrap();
        let path = place.path().join("exported");
        objects.export(&hash.unwrap(), size, &File::create_new(&path).unwrap(), transfer).unwrap();
        assert!(std::fs::read(&path).unwrap() == long);
        let missing = objects.open_checked(&ContentHash::of(b"missing"), 7, transfer);
        assert!(missing.is_err_and(|error| error.is_damage()));
    }
}

#[test]
fn work_that_fails_leaves_no_snapshot_and_its_number_is_free() {
    for lab in labs() {
        let id = lab.history();
        let volume = volume("text");
        let work = &mut |draft: &dyn SnapshotDraft| {
            put(draft, volume.path(), "blue")?;
            Err(ContainerError::Cancelled)
        };
        let failed = lab.storage.add(&id, &effort(), work);
        assert!(matches!(failed, Err(ContainerError::Cancelled)));
        assert!(lab.storage.numbers(&id).unwrap().is_empty());
        assert_eq!(lab.add(&id, volume.path(), "blue"), 0);
    }
}

#[test]
fn a_removed_snapshot_keeps_its_number_and_is_told() {
    for lab in labs() {
        let id = lab.with_snapshots(3);
        lab.storage.remove_snapshots(&id, &[0, 2], RemovalReason::Asked).unwrap();
        assert_eq!(lab.storage.numbers(&id).unwrap(), [1]);
        assert!(lab.storage.manifest(&id, 2).unwrap_err().is_removal());
        let found = ContainerHistory::find(&*lab.storage, "web/0");
        assert!(found.unwrap_err().is_removal());
        assert_eq!(lab.add(&id, volume("new").path(), "blue"), 3);
        let all = lab.storage.remove_snapshots(&id, &[1, 3], RemovalReason::Asked);
        assert!(matches!(all, Err(ContainerError::NotRemoved { .. })));
    }
}

#[test]
fn the_removal_of_the_last_snapshot_removes_the_history() {
    for lab in labs() {
        let id = lab.with_snapshots(2);
        let history = ContainerHistory::open(&*lab.storage, &id).unwrap();
        let mut report = RemovalReport::default();
        remove(&history, &[(1, None)], None, &NoProgress, &mut report).unwrap();
        assert!(report.sessions_removed.is_empty());
        remove(&history, &[(0, None)], None, &NoProgress, &mut report).unwrap();
        assert_eq!(report.sessions_removed, [&*id]);
        assert!(lab.storage.histories().unwrap().is_empty());
        assert_eq!(lab.storage.remove(&id).unwrap(), None);
    }
}

#[test]
fn an_interrupted_restore_keeps_a_history_and_its_snapshots() {
    for lab in labs() {
        let id = lab.with_snapshots(2);
        lab.storage.write(Document::Restore(&id), Some(b"{}")).unwrap();
        assert!(lab.storage.remove(&id).unwrap().is_some());
        let refused = lab.storage.remove_snapshots(&id, &[0], RemovalReason::Asked);
        assert!(matches!(refused, Err(ContainerError::NotRemoved { .. })));
        lab.storage.write(Document::Restore(&id), None).unwrap();
        lab.storage.remove_snapshots(&id, &[0], RemovalReason::Asked).unwrap();
        assert_eq!(lab.storage.remove(&id).unwrap(), None);
    }
}

#[test]
fn two_who_work_on_one_container_take_turns() {
    for lab in labs() {
        let id = lab.history();
        for (what, other) in [
            (Guarded::Container("aa"), Guarded::Container("bb")),
            (Guarded::Restores(&id), Guarded::Container("aa")),
        ] {
            let first = lab.storage.try_lock(what).unwrap();
            assert!(first.is_some());
            assert!(lab.storage.try_lock(what).unwrap().is_none());
            assert!(lab.storage.try_lock(other).unwrap().is_some());
            drop(first);
            assert!(lab.storage.try_lock(what).unwrap().is_some());
        }
        drop(lab.storage.hold_objects(&id).unwrap());
    }
}

#[test]
fn a_document_is_replaced_and_removed() {
    for lab in labs() {
        let id = lab.history();
        for document in [Document::Pause("aa"), Document::Restore(&id), Document::Kept(&id)] {
            assert_eq!(lab.storage.read(document).unwrap(), None);
            lab.storage.write(document, None).unwrap();
            lab.storage.write(document, Some(b"one")).unwrap();
            lab.storage.write(document, Some(b"two")).unwrap();
            assert_eq!(lab.storage.read(document).unwrap().as_deref(), Some(b"two".as_slice()));
        }
        assert_eq!(lab.storage.paused().unwrap(), ["aa"]);
        lab.storage.write(Document::Pause("aa"), None).unwrap();
        assert!(lab.storage.paused().unwrap().is_empty());
        assert!(lab.storage.read(Document::Kept(&id)).unwrap().is_some());
    }
}

#[test]
fn a_document_that_is_set_aside_is_out_of_the_way_and_not_lost() {
    for lab in labs() {
        let id = lab.history();
        let document = Document::Restore(&id);
        assert_eq!(lab.storage.set_aside(document).unwrap(), None);
        let mut places = std::collections::HashSet::new();
        for bytes in [&b"one"[..], b"two"] {
            lab.storage.write(document, Some(bytes)).unwrap();
            let place = lab.storage.set_aside(document).unwrap().unwrap();
            assert_eq!(lab.storage.read(document).unwrap(), None);
            if lab.storage.directory().is_some() {
                assert_eq!(std::fs::read(&place).unwrap(), bytes);
            }
            assert!(places.insert(place));
        }
    }
}

#[test]
fn a_history_is_found_by_its_id_its_container_and_a_prefix() {
    for lab in labs() {
        let id = lab.with_snapshots(2);
        let other = lab.storage.create(container("ffffffffffffffff", "db")).unwrap();
        lab.add(&other, volume("other").path(), "red");
        let found = |text: &str| {
            let picked = ContainerHistory::find(&*lab.storage, text).unwrap();
            (picked.history.id(), picked.number, picked.is_named)
        };
        assert_eq!(found("web"), (id.clone(), 1, false));
        assert_eq!(found(&CONTAINER[..12]), (id.clone(), 1, false));
        assert_eq!(found(&format!("{id}/0")), (id, 0, true));
        assert_eq!(found("db/latest"), (other.clone(), 0, true));
        for unknown in ["web/9", "none", "db/x", ""] {
            let missing = ContainerHistory::find(&*lab.storage, unknown).unwrap_err();
            assert!(matches!(missing, ContainerError::NoSuchHistory { .. }), "{unknown}");
        }
        let of_container = ContainerHistory::of_container(&*lab.storage, "ffffffffffffffff");
        assert_eq!(of_container.unwrap().unwrap().id(), other);
    }
}

#[test]
fn a_name_alone_is_no_snapshot_that_a_restore_took_for_safety() {
    for lab in labs() {
        let id = lab.with_snapshots(2);
        let volume = volume("before the restore");
        let work = &mut |draft: &dyn SnapshotDraft| {
            let state = put(draft, volume.path(), "blue")?;
            let record = ContainerRecord { trigger: Trigger::BeforeRestore, ..record("blue") };
            let top = top::build(draft.objects(), &record, Parts::default(), None)?;
            Ok(SnapshotState { merkle_root: top.merkle_root, ..state })
        };
        assert_eq!(lab.storage.add(&id, &effort(), work).unwrap().number, 2);
        let found = |text| ContainerHistory::find(&*lab.storage, text).unwrap().number;
        assert_eq!((found("web"), found("web/latest"), found("web/2")), (1, 1, 2));
    }
}

#[test]
fn what_cannot_be_taken_back_needs_a_whole_id() {
    for lab in labs() {
        let id = lab.with_snapshots(2);
        let find = |text: &str| ContainerHistory::find_whole(&*lab.storage, text);
        for text in [&id[..4], &format!("{}/1", &id[..4]), "web/01", &CONTAINER[..12]] {
            assert!(find(text).is_err(), "{text}");
        }
        for text in ["web", "web/1", &id, CONTAINER, &format!("{id}/latest")] {
            assert_eq!(find(text).unwrap().number, 1, "{text}");
        }
    }
}

#[test]
fn a_cleanup_keeps_to_the_limits_and_spares_pins() {
    for lab in labs() {
        let id = lab.with_snapshots(3);
        let empty = lab.storage.create(container("eeeeeeeeeeee", "cut off")).unwrap();
        let policy = ContainerPolicy {
            max_age: None,
            max_per_container: Some(1),
            max_snapshots: None,
            max_bytes: None,
        };
        let clean = |dry_run| cleanup(&*lab.storage, &policy, None, dry_run, &NoProgress).unwrap();
        let numbers = |report: &RemovalReport| -> Vec<u64> {
            report.removed.iter().map(|state| state.snapshot).collect()
        };
        let planned = clean(true);
        assert_eq!(numbers(&planned), [0, 1]);
        assert_eq!(planned.sessions_removed, [&*empty]);
        assert_eq!(lab.storage.histories().unwrap().len(), 2);
        (lab.pin)(&id);
        assert!(numbers(&clean(false)).is_empty());
        let history = ContainerHistory::find(&*lab.storage, "web").unwrap().history;
        assert!(history.is_pinned());
        assert_eq!(history.numbers().unwrap(), [0, 1, 2]);
        assert_eq!(lab.storage.histories().unwrap().len(), 1);
    }
    for lab in labs() {
        let id = lab.with_snapshots(3);
        let policy = ContainerPolicy { max_snapshots: Some(2), ..ContainerPolicy::default() };
        let report = cleanup(&*lab.storage, &policy, None, false, &NoProgress).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        assert_eq!(lab.storage.numbers(&id).unwrap(), [1, 2]);
    }
}

#[test]
fn two_snapshots_are_compared_in_any_storage() {
    for lab in labs() {
        lab.with_snapshots(2);
        let [older, newer] =
            ["web/0", "web/1"].map(|id| ContainerHistory::find(&*lab.storage, id).unwrap());
        let diff = compare(&older, &newer).unwrap();
        let paths: Vec<_> = diff.changes.iter().map(|change| change.path.clone()).collect();
        let changed = ["/volumes/data/file", "/volumes/data/sub/same"];
        assert!(changed.iter().all(|path| paths.contains(&path.into())), "{paths:?}");
        assert!(!paths.contains(&"/volumes/data/sub/long".into()), "{paths:?}");
        let fields: Vec<_> = diff.configuration.iter().map(|change| &*change.field).collect();
        assert_eq!(fields, ["Env"]);
    }
}

#[test]
fn a_restoration_is_noted_beside_the_snapshots() {
    for lab in labs() {
        let id = lab.with_snapshots(1);
        let history = ContainerHistory::open(&*lab.storage, &id).unwrap();
        let (at, mode) = (Timestamp::now(), RestorationMode::New);
        let (container_id, name) = ("ab".to_owned(), "web-restored".to_owned());
        let done = Restoration { at, snapshot: 0, mode, container_id, name };
        history.note_restoration(done.clone()).unwrap();
        assert!(history.container().restorations.is_empty());
        assert_eq!(history.reopened().unwrap().container().restorations, [done]);
    }
}

#[test]
fn two_stores_have_names_of_their_own() {
    let places = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let ids = places.each_ref().map(|place| {
        let storage = LocalStorage::new(place.path().to_owned());
        assert_eq!(storage.id().unwrap(), storage.id().unwrap());
        storage.id().unwrap()
    });
    assert_ne!(ids[0], ids[1]);
    // Another store at the place of the first: an unmounted disk, another machine.
    std::fs::remove_dir_all(places[0].path()).unwrap();
    std::fs::create_dir(places[0].path()).unwrap();
    assert_ne!(LocalStorage::new(places[0].path().to_owned()).id().unwrap(), ids[0]);
}

#[test]
fn a_first_snapshot_that_failed_leaves_nothing_in_the_store() {
    let place = TempDir::new().unwrap();
    let storage = LocalStorage::new(place.path().to_owned());
    let id = storage.create(container(CONTAINER, "web")).unwrap();
    let names = || {
        let entries = std::fs::read_dir(place.path()).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains(&id)).count()
    };
    assert_eq!(names(), 1);
    assert_eq!(storage.remove(&id).unwrap(), None);
    assert_eq!(names(), 0);
}

#[test]
fn what_is_no_id_of_an_engine_names_no_file() {
    let place = TempDir::new().unwrap();
    let storage = LocalStorage::new(place.path().to_owned());
    for id in ["", "../etc", "a/b", ".", "a b"] {
        assert!(storage.try_lock(Guarded::Container(id)).is_err(), "{id:?}");
        assert!(storage.write(Document::Pause(id), Some(b"x")).is_err(), "{id:?}");
        assert!(storage.read(Document::Pause(id)).is_err(), "{id:?}");
    }
}
