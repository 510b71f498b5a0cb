//! The functions behind the targets in `fuzz/`: every reader of bytes that another user may have
//! written.
//!
//! Each function panics when a promise is broken. Any bytes are a value or an error; a decoded
//! value encodes to the same bytes again, where there is one encoding; a checksum in front of a
//! reader is put right first, because no fuzzer guesses one.

use std::path::Path;

use crate::git::RefStack;
use crate::object::{ContentHash, LinkGroups, Midstates, RootTree, Tree};
use crate::progress::NoProgress;
use crate::restore::Journal;
use crate::snapshot::{
    NotCapturedSet, SessionMetadata, SnapshotManager, SnapshotManifest, parse_manifest,
};
use crate::stat_cache::StatCache;
use crate::store::{BadDisk, LocalStore, ObjectSource, ObjectStore, read_root_tree};
use crate::sys::Dir;

/// The list of a directory.
pub fn tree(bytes: &[u8]) {
    if let Ok(tree) = Tree::decode(bytes) {
        assert_eq!(tree.encode(), bytes);
        assert_eq!(Tree::decode(&tree.encode()).as_ref(), Ok(&tree));
        assert!(tree.entries().iter().all(|entry| tree.get(&entry.name) == Some(entry)));
    }
}

/// The list of the tracked paths.
pub fn root_tree(bytes: &[u8]) {
    if let Ok(root) = RootTree::decode(bytes) {
        assert_eq!(root.encode(), bytes);
    }
}

/// The midstates of a file: the first bytes say how long it is.
pub fn midstates(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first_chunk() else { return };
    let size = u64::from_le_bytes(*size);
    if let Ok(states) = Midstates::decode(bytes, size) {
        assert_eq!(states.encode(), bytes);
        assert!(!states.verifies(states.pieces(), b"", &ContentHash::of(b"")));
    }
}

/// The list of hard links.
pub fn link_groups(bytes: &[u8]) {
    if let Ok(links) = LinkGroups::decode(bytes) {
        assert_eq!(links.encode(), bytes);
    }
}

/// The manifest of a snapshot, and what is looked up in it.
pub fn snapshot_manifest(bytes: &[u8]) {
    let Ok(manifest) = parse_manifest::<SnapshotManifest>(bytes, Path::new("manifest")) else {
        return;
    };
    let again = serde_json::to_vec(&manifest).expect("a manifest can be written");
    let again: SnapshotManifest = serde_json::from_slice(&again).expect("and read again");
    assert_eq!(again, manifest);
    if manifest.validate(manifest.number).is_ok() {
        let left_out = NotCapturedSet::new(&manifest);
        let _ = (left_out.is_above(b"/a"), left_out.knows(b"/a/b"), left_out.reason(b"/a/b/c"));
    }
}

/// A snapshot of another program, before its import.
pub fn foreign_snapshot(bytes: &[u8]) {
    let _ = crate::import::can_read_snapshot(bytes);
}

/// The manifest of a session.
pub fn session_manifest(bytes: &[u8]) {
    if let Ok(metadata) = parse_manifest::<SessionMetadata>(bytes, Path::new("manifest")) {
        let again = serde_json::to_vec(&metadata).expect("a manifest can be written");
        serde_json::from_slice::<SessionMetadata>(&again).expect("and read again");
    }
}

/// The journal of a restore, given without its checksum.
pub fn journal(body: &[u8]) {
    let bytes = [body, ContentHash::of(body).as_bytes()].concat();
    if let Ok(journal) = Journal::decode(&bytes) {
        assert_eq!(journal.encode(), bytes);
    }
}

/// The records of a stat cache, given without header and checksum.
pub fn stat_cache(records: &[u8]) {
    let cache = StatCache::with_records(records);
    let known: Vec<_> = cache.directories().collect();
    for path in known {
        if let Some(directory) = cache.directory(path) {
            let _ = directory.files.first().map(|(name, _)| directory.file(name));
        }
    }
}

/// An index of git: every path in it is found.
pub fn git_index(bytes: &[u8]) {
    assert_ne!(crate::walk::finds_what_it_tracks(bytes), Some(false));
}

/// A stack of one reftable: a further table that sets each of its refs again changes none.
pub fn reftable(bytes: &[u8]) {
    let first = bytes.to_vec();
    let Some(stack) = RefStack::read(std::slice::from_ref(&first)) else { return };
    let again =
        stack.refs.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    if let Some((_, second)) = stack.further_table(&again) {
        let both = RefStack::read(&[first, second]).expect("what is written here can be read");
        assert_eq!(both.refs, stack.refs);
    }
}

/// A pack, with a checksum that is put right, in a store of its own.
pub fn pack(bytes: &[u8]) {
    const TRAILER_BYTES: usize = 64;
    let mut bytes = bytes.to_vec();
    if let Some(trailer_at) = bytes.len().checked_sub(TRAILER_BYTES) {
        let (index_at, end) = (&bytes[trailer_at..trailer_at + 8], bytes.len() - 32);
        let index_at = index_at.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if index_at <= end {
            let checksum = ContentHash::of(&bytes[index_at..end]);
            bytes[end..].copy_from_slice(checksum.as_bytes());
        }
    }
    let objects = std::env::temp_dir().join(format!("nono-fuzz-{}", std::process::id()));
    let store = LocalStore::create(&objects).expect("a directory can be made");
    let dir = Dir::open(&objects).expect("and opened");
    let _ = dir.make_dir(b"packs", 0o700);
    let packs = dir.open_dir(b"packs").expect("and one in it");
    packs.replace_file(&[b'0'; 32], &bytes, 0o400, false).expect("and written to");
    for pack in store.all_packs().unwrap_or_default() {
        for entry in pack.entries().unwrap_or_default() {
            if let Ok(object) = store.read(&entry.hash, 1 << 30) {
                assert_eq!(ContentHash::of(&object), entry.hash);
            }
        }
    }
    if let Ok(lock) = store.lock_exclusive() {
        let salvaged = store.salvage_packs(BadDisk::TakeTheRest, &NoProgress, &lock);
        for hash in salvaged.expect("what is whole can be taken out").objects {
            // The list alone may be whole of an object in chunks.
            let read = store.read(&hash, 1 << 30);
            assert!(read.is_ok() || store.has_list_of(&hash), "{read:?}");
        }
    }
    dir.remove_dir_all(b"packs").expect("and removed");
    let _ = dir.remove_dir_all(b"quarantine");
}

/// Gives the baseline another list of hard links than the one that was captured.
#[allow(clippy::disallowed_methods, reason = "a test changes its own store")]
pub fn forge_links(manager: &SnapshotManager, groups: Vec<Vec<Box<[u8]>>>) {
    let (session, store) = (manager.session(), manager.store());
    let mut metadata = session.metadata().expect("a session of a test");
    let mut root = read_root_tree(store, &metadata.merkle_roots[0]).expect("a session of a test");
    root.links =
        Some(store.write(&LinkGroups::new(groups).encode()).expect("a session of a test").hash);
    let merkle_root = store.write(&root.encode()).expect("a session of a test").hash;
    let path = session.manifest_path(0);
    let text = std::fs::read_to_string(&path).expect("a session of a test");
    let text = text.replace(&metadata.merkle_roots[0].to_string(), &merkle_root.to_string());
    std::fs::write(&path, text).expect("a session of a test");
    metadata.merkle_roots = vec![merkle_root];
    metadata.manifest_hashes = vec![session.manifest(0).expect("a session of a test").hash];
    session.save_metadata(&metadata).expect("a session of a test");
}
