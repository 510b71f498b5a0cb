//! What the targets in `fuzz/` call: every reader of bytes that somebody else may have written.
//!
//! Each function panics when a promise is broken. Any bytes are a value or an error; what decodes
//! encodes to the same bytes again, where there is one encoding; a checksum in front of a reader is
//! put right first, because no fuzzer guesses one.

use std::path::Path;

use crate::object::{ContentHash, LinkGroups, RootTree, Tree};
use crate::restore::Journal;
use crate::snapshot::{NotCapturedSet, SessionMetadata, SnapshotManifest, parse_manifest};
use crate::stat_cache::StatCache;

/// The list of a directory.
pub fn tree(bytes: &[u8]) {
    if let Ok(tree) = Tree::decode(bytes) {
        assert_eq!(tree.encode(), bytes);
        assert!(tree.entries().iter().all(|entry| tree.get(&entry.name) == Some(entry)));
    }
}

/// The list of the tracked paths.
pub fn root_tree(bytes: &[u8]) {
    if let Ok(root) = RootTree::decode(bytes) {
        assert_eq!(root.encode(), bytes);
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
