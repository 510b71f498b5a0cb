//! The parts of a restore that need no engine, on every storage.

#![allow(clippy::disallowed_methods, reason = "tests plant what they look at")]

use jiff::Timestamp;
use tempfile::TempDir;

use super::contents::Contents;
use super::journal::{self, Journal, Step};
use super::kept::{self, KeptContainer};
use super::*;
use crate::storage::tests::{labs, volume};
use crate::{ContainerHistory, Document};
use nono_engine::progress::NoProgress;
use nono_engine::sys::Dir;

#[test]
fn a_volume_is_filled_from_any_storage_and_a_change_is_found() {
    for lab in labs() {
        let id = lab.history();
        lab.add(&id, volume("text").path(), "blue");
        let history = ContainerHistory::open(&*lab.storage, &id).unwrap();
        let contents = Contents::read(&history, 0, "data").unwrap();
        let place = TempDir::new().unwrap();
        let dir = Dir::open(place.path()).unwrap();
        let not_made = fill_directory::fill(&contents, &dir, &NoProgress).unwrap();
        assert!(not_made.is_empty());
        compare::directory(&contents, "data", &dir, &NoProgress).unwrap();
        assert_eq!(std::fs::read_to_string(place.path().join("sub/same")).unwrap(), "text");
        std::fs::write(place.path().join("sub/long"), "short").unwrap();
        let found = compare::directory(&contents, "data", &dir, &NoProgress).unwrap_err();
        assert!(matches!(found, RestoreError::Different { .. }), "{found}");
        fill_directory::clear(&dir).unwrap();
        fill_directory::fill(&contents, &dir, &NoProgress).unwrap();
        compare::directory(&contents, "data", &dir, &NoProgress).unwrap();
    }
}

fn journal() -> Journal {
    Journal {
        version: 0,
        snapshot: 0,
        mode: RestorationMode::New,
        step: Step::Making,
        name: "web-restored".to_owned(),
        working_name: "web-restored".to_owned(),
        new_id: None,
        volumes: Vec::new(),
        start: true,
        share_mounts: false,
        original: None,
        in_place: None,
    }
}

#[test]
fn an_interrupted_restore_is_named_until_it_is_ended_and_not_while_it_is_at_work() {
    for lab in labs() {
        let id = lab.history();
        let history = ContainerHistory::open(&*lab.storage, &id).unwrap();
        let waiting = || {
            let found = unfinished(&*lab.storage).unwrap();
            found.into_iter().map(|found| found.map(|it| it.name)).collect::<Vec<_>>()
        };
        assert!(waiting().is_empty());
        let at_work = journal::lock(&history).unwrap();
        journal::write(&history, &journal()).unwrap();
        assert!(waiting().is_empty());
        assert!(matches!(journal::lock(&history), Err(RestoreError::Busy { .. })));
        drop(at_work);
        assert_eq!(waiting().into_iter().flatten().collect::<Vec<_>>(), ["web-restored"]);
        let refused = journal::refuse_interrupted(&history);
        assert!(matches!(refused, Err(RestoreError::Interrupted { .. })));
        lab.storage.write(Document::Restore(&id), Some(b"not a journal")).unwrap();
        assert!(matches!(waiting()[..], [Err(RestoreError::BadJournal { .. })]));
        journal::remove(&history).unwrap();
        assert!(waiting().is_empty());
    }
}

#[test]
fn a_kept_original_is_listed_once() {
    for lab in labs() {
        let id = lab.history();
        let history = ContainerHistory::open(&*lab.storage, &id).unwrap();
        assert!(kept_containers(&history).unwrap().is_empty());
        let original = |name: &str| KeptContainer {
            id: "aa".to_owned(),
            name: name.to_owned(),
            replaced_by: "bb".to_owned(),
            at: Timestamp::now(),
            started_at: String::new(),
        };
        kept::add(&history, original("before")).unwrap();
        kept::add(&history, original("after")).unwrap();
        let names: Vec<_> = kept_containers(&history).unwrap();
        assert_eq!(names.iter().map(|kept| &*kept.name).collect::<Vec<_>>(), ["after"]);
    }
}
