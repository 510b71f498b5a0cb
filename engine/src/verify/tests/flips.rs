//! Every byte of a small store, changed one after the other.

use std::ops::Range;

use super::*;
use crate::snapshot::SessionDir;

/// The change of a byte: its lowest bit makes another digit of it, the other one another case.
const DIGIT: u8 = 0x01;
const CASE: u8 = 0x20;

/// A session that has everything which a manifest can say, with all objects in one pack.
fn full(lab: &Lab) -> SnapshotManager {
    let manager = lab.manager("20200101-000000-1");
    manager.create_baseline().unwrap();
    fs::write(lab.work().join("sub/c"), "changed").unwrap();
    manager.checkpoint("before the tests").unwrap();
    fs::remove_file(lab.work().join("b")).unwrap();
    manager.create_incremental().unwrap();
    let mut metadata = manager.session().metadata().unwrap();
    metadata.command = vec!["make".to_owned(), "all".to_owned()];
    metadata.exit_code = Some(3);
    metadata.ended = Some(metadata.started);
    metadata.network_events = vec![json!({"to": "example.org:443", "at": 0.1})];
    metadata.extra.insert("noted_by".to_owned(), json!("another program"));
    manager.save_session_metadata(&metadata).unwrap();
    manager.restore(0).unwrap();
    manager.store().pack_all().unwrap();
    manager
}

/// The store is opened anew: nothing that was read before may answer.
fn is_sound(session: &SessionDir) -> bool {
    // The first of what a verification does, to spare the rest: there are thousands of changes.
    if !manifests::check(session).unwrap().problems.is_empty() {
        return false;
    }
    let store = LocalStore::open(&session.objects_path()).unwrap();
    if !store.changed_packs().unwrap().is_empty() {
        return false;
    }
    let options = VerifyOptions { threads: 1, ..VerifyOptions::default() };
    verify_session(session, &store, &options).unwrap().ok
}

/// The first bytes of a file whose change is not found, with the mask.
fn unnoticed(session: &SessionDir, path: &Path, masks: &[u8]) -> Vec<(usize, u8)> {
    let bytes = fs::read(path).unwrap();
    let mut unnoticed = Vec::new();
    for (at, mask) in (0..bytes.len()).flat_map(|at| masks.iter().map(move |mask| (at, *mask))) {
        let mut changed = bytes.clone();
        changed[at] ^= mask;
        overwrite(path, &changed);
        if is_sound(session) {
            unnoticed.push((at, mask));
        }
    }
    overwrite(path, &bytes);
    unnoticed.truncate(20);
    unnoticed
}

fn nothing() -> Vec<(usize, u8)> {
    Vec::new()
}

#[test]
fn every_changed_byte_of_a_pack_is_found() {
    let lab = Lab::new();
    let manager = lab.manager("s");
    manager.create_baseline().unwrap();
    manager.store().pack_all().unwrap();
    let session = manager.session();
    let packs = fs::read_dir(manager.store().path().join("packs")).unwrap();
    let packs: Vec<_> = packs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(packs.len(), 1);
    assert!(is_sound(session));
    assert_eq!(unnoticed(session, &packs[0], &[DIGIT]), nothing());
    assert!(is_sound(session));
}

#[test]
fn every_changed_byte_of_a_manifest_is_found() {
    let lab = Lab::new();
    let manager = full(&lab);
    let session = manager.session();
    assert!(is_sound(session));
    assert_eq!(
        unnoticed(session, &session.path().join("manifest.json"), &[DIGIT, CASE]),
        nothing()
    );
    for number in session.snapshot_numbers().unwrap() {
        assert_eq!(unnoticed(session, &session.manifest_path(number), &[CASE]), nothing());
    }
    assert!(is_sound(session));
}

#[test]
fn bytes_that_are_added_or_cut_off_are_found() {
    let lab = Lab::new();
    let manager = full(&lab);
    let session = manager.session();
    let packs = fs::read_dir(manager.store().path().join("packs")).unwrap();
    let mut files: Vec<_> = packs.map(|entry| entry.unwrap().path()).collect();
    files.push(session.path().join("manifest.json"));
    files.extend(session.snapshot_numbers().unwrap().iter().map(|n| session.manifest_path(*n)));
    for path in files {
        let bytes = fs::read(&path).unwrap();
        let longer: [&[u8]; 2] = [&[&bytes, &b"\n"[..]].concat(), &[&b" "[..], &bytes].concat()];
        let shorter: [Range<usize>; 3] = [0..bytes.len() - 1, 1..bytes.len(), 0..0];
        for changed in longer.into_iter().chain(shorter.into_iter().map(|range| &bytes[range])) {
            overwrite(&path, changed);
            assert!(!is_sound(session), "{} with {} bytes", path.display(), changed.len());
        }
        overwrite(&path, &bytes);
    }
    assert!(is_sound(session));
}
