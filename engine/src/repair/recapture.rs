//! Capturing the tracked paths once more, to find what is wanted in them.
//!
//! Nothing of it is kept but the objects that are wanted, and whether one is wanted its hash says:
//! so it does not matter whether anything has changed since.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::objects::{Found, taken};
use super::{RepairError, Source};
use crate::object::ContentHash;
use crate::snapshot::{
    Budget, CaptureRequest, KnownState, RootRules, SessionDir, SnapshotManifest, capture,
    own_places,
};
use crate::store::{
    Hashed, ImportError, Imported, LocalStore, ObjectSource, ObjectStore, Offered, StoreError,
    StoreLock, Stored, Transfer, hash_object,
};
use crate::sys;
use crate::verify::{DamagedObject, UsedAs, VerifyOptions};

/// Looks for what is wanted. Captures once for each set of tracked paths and filters that a
/// snapshot with something wanted in it was made with.
pub(super) fn offer_all(
    store: &LocalStore,
    session: &SessionDir,
    damaged: &[DamagedObject],
    wanted: &HashMap<ContentHash, UsedAs>,
    options: VerifyOptions<'_>,
    lock: &StoreLock,
) -> Result<Vec<(ContentHash, Found)>, RepairError> {
    let numbers = damaged.iter().filter(|damaged| wanted.contains_key(&damaged.hash));
    let mut numbers: Vec<u64> = numbers.flat_map(|damaged| &damaged.snapshots).copied().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let manifests = numbers.iter().filter_map(|number| session.manifest(*number).ok());
    let mut captures: Vec<(SnapshotManifest, Vec<ContentHash>)> = Vec::new();
    for manifest in manifests.map(|loaded| loaded.manifest) {
        let root = manifest.merkle_root;
        match captures.iter_mut().find(|(known, _)| known.roots == manifest.roots) {
            Some((_, known)) => known.push(root),
            None => captures.push((manifest, vec![root])),
        }
    }
    let sieve = Sieve { store, lock, wanted: Mutex::new(wanted.clone()), found: Mutex::default() };
    for (manifest, known) in &captures {
        if sieve.wanted.lock().is_empty() {
            break;
        }
        let not_captured = &manifest.not_captured;
        // The stat cache would spare reading what is wanted.
        capture(&CaptureRequest {
            store: &sieve,
            flushed: None,
            roots: &manifest.roots,
            own: &own_places(session.path()),
            budget: Budget::UNLIMITED,
            is_baseline: false,
            // The recorded ones may be wanted.
            rules: vec![RootRules::OnDisk; manifest.roots.len()],
            known: known
                .iter()
                .map(|root| KnownState { merkle_root: *root, not_captured })
                .collect(),
            cache: None,
            progress: options.progress,
            expected: Some(manifest.totals.expected()),
            racy_from: None,
            threads: options.threads,
        })?;
    }
    Ok(sieve.found.into_inner())
}

/// A store that everything falls through but what is wanted.
struct Sieve<'a> {
    store: &'a LocalStore,
    lock: &'a StoreLock,
    wanted: Mutex<HashMap<ContentHash, UsedAs>>,
    found: Mutex<Vec<(ContentHash, Found)>>,
}

impl Sieve<'_> {
    fn is_wanted(&self, hash: &ContentHash) -> bool {
        self.wanted.lock().contains_key(hash)
    }

    fn note(&self, hash: &ContentHash, offered: Offered) {
        if let Some(found) = taken(offered, Source::Recaptured)
            && self.wanted.lock().remove(hash).is_some()
        {
            self.found.lock().push((*hash, found));
        }
    }
}

impl ObjectSource for Sieve<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        self.store.read(hash, max_bytes)
    }
}

impl ObjectStore for Sieve<'_> {
    fn contains(&self, _hash: &ContentHash, _size: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        let hash = ContentHash::of(bytes);
        if self.is_wanted(&hash) {
            self.note(&hash, self.store.offer_bytes(&hash, bytes, self.lock)?);
        }
        Ok(Stored { hash, is_new: false })
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        let Hashed { hash, size, midstates, .. } = hash_object(source, size, sparse, transfer)?;
        if self.is_wanted(&hash) {
            let stat = sys::stat_open_file(source, &PathBuf::from("a file"))?;
            self.note(&hash, self.store.offer_file(&hash, source, &stat, transfer, self.lock)?);
        }
        Ok(Imported { hash, size, is_new: false, new_bytes: 0, midstates })
    }
}
