//! Places of possible good copies: the quarantine, other stores, and the files themselves.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::objects::{Found, taken};
use super::{RepairError, Source};
use crate::diff::{EntryState, Lookup};
use crate::object::{ContentHash, Node};
use crate::path_text::to_path;
use crate::snapshot::{OpenPath, SessionDir, TrackedRoot};
use crate::store::{
    ImportError, LocalStore, ObjectFile, Quarantined, StoreError, StoreLock, Transfer,
    read_root_tree,
};
use crate::sys::{self, Dir, FileKind};
use crate::verify::{DamagedObject, UsedAs};
use crate::{byte_path, layout};

/// The files of earlier repairs: the disk may not have given the bytes then, and give them now.
pub(super) struct PutAside {
    found: HashMap<ContentHash, Vec<Quarantined>>,
}

impl PutAside {
    pub(super) fn of(store: &LocalStore) -> Result<Self, RepairError> {
        let mut found: HashMap<ContentHash, Vec<Quarantined>> = HashMap::new();
        for quarantined in store.quarantined()? {
            found.entry(quarantined.object.hash).or_default().push(quarantined);
        }
        Ok(Self { found })
    }

    pub(super) fn offer(
        &self,
        store: &LocalStore,
        damaged: &DamagedObject,
        transfer: &mut Transfer<'_>,
        lock: &StoreLock,
    ) -> Result<Option<Found>, RepairError> {
        for quarantined in self.found.get(&damaged.hash).into_iter().flatten() {
            let Ok(object) = store.open_quarantined(quarantined) else { continue };
            if let Some(found) = offer_object(store, &object, damaged, transfer, lock)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Offers what may be an object, and may claim lengths that cannot be read to the end.
fn offer_object(
    store: &LocalStore,
    object: &ObjectFile,
    damaged: &DamagedObject,
    transfer: &mut Transfer<'_>,
    lock: &StoreLock,
) -> Result<Option<Found>, RepairError> {
    if !damaged.used_as.may_have(object.size()) {
        return Ok(None);
    }
    match store.offer_object(object, transfer, lock) {
        Ok(offered) => Ok(taken(offered, Source::Store { path: object.path().to_owned() })),
        Err(ImportError::Source(error)) => {
            tracing::debug!("a copy: {error}");
            Ok(None)
        }
        Err(ImportError::Store(error)) => Err(error.into()),
    }
}

/// Directories of objects other than the one that is repaired.
pub(super) struct OtherStores {
    stores: Vec<LocalStore>,
}

impl OtherStores {
    /// Opens what there is at some places: each may be a root directory, a session, or objects.
    pub(super) fn open(own: &LocalStore, places: &[PathBuf]) -> Self {
        let identity = |path: &Path| {
            let stat = Dir::open(path).and_then(|dir| dir.stat_self()).ok()?;
            Some((stat.dev, stat.ino))
        };
        let mut known = vec![identity(own.path())];
        let mut stores = Vec::new();
        for place in places {
            let mut candidates = vec![place.join(layout::OBJECTS), place.clone()];
            if let Ok(names) = Dir::open(place).and_then(|dir| dir.names()) {
                let inside = names.iter().map(|listed| place.join(to_path(&listed.name)));
                candidates.extend(inside.map(|session| session.join(layout::OBJECTS)));
            }
            for candidate in candidates {
                let id = identity(&candidate);
                if id.is_some() && !known.contains(&id) {
                    known.push(id);
                    stores.extend(LocalStore::open(&candidate));
                }
            }
        }
        Self { stores }
    }

    pub(super) fn offer(
        &self,
        store: &LocalStore,
        damaged: &DamagedObject,
        transfer: &mut Transfer<'_>,
        lock: &StoreLock,
    ) -> Result<Option<Found>, RepairError> {
        for other in &self.stores {
            let Ok(object) = other.open_object(&damaged.hash) else { continue };
            if let Some(found) = offer_object(store, &object, damaged, transfer, lock)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Makes midstates anew from the contents that they are beside.
pub(super) fn offer_midstates(
    store: &LocalStore,
    session: &SessionDir,
    damaged: &DamagedObject,
    transfer: &mut Transfer<'_>,
    lock: &StoreLock,
) -> Result<Option<Found>, RepairError> {
    let UsedAs::Midstates { .. } = damaged.used_as else { return Ok(None) };
    let mut tried = HashSet::new();
    for number in &damaged.snapshots {
        // An unreadable tree is mended by itself.
        let Ok(loaded) = session.manifest(*number) else { continue };
        let Ok(root) = read_root_tree(store, &loaded.manifest.merkle_root) else { continue };
        let mut lookup = Lookup::new(store, &root);
        for path in &damaged.paths {
            let found = lookup.find(path.as_os_str().as_bytes());
            let Ok(Some(EntryState { node: Node::File { size, hash, midstates }, .. })) = found
            else {
                continue;
            };
            if midstates.name() != Some(damaged.hash) || !tried.insert(hash) {
                continue;
            }
            // It may claim to have more bytes than a processor can hash.
            let object = store.open_object(&hash).ok().filter(|object| object.size() == size);
            let Some(object) = object else { continue };
            let states = match object.verify_with_midstates(transfer) {
                Ok(states) => states,
                Err(StoreError::Cancelled) => return Err(StoreError::Cancelled.into()),
                Err(_) => continue,
            };
            let Some(bytes) = states.map(|states| states.encode()) else { continue };
            let offered = store.offer_bytes(&damaged.hash, &bytes, lock)?;
            let from = Source::Store { path: object.path().to_owned() };
            if let Some(found) = taken(offered, from) {
                return Ok(Some(found));
            }
        }
    }
    Ok(None)
}

/// The tracked paths as they are now.
pub(super) struct LivePaths {
    roots: Vec<TrackedRoot>,
}

impl LivePaths {
    /// The tracked paths of any readable snapshot of a session.
    pub(super) fn new(session: &SessionDir) -> Self {
        let numbers = session.manifest_numbers().unwrap_or_default();
        let mut roots: Vec<TrackedRoot> = Vec::new();
        for loaded in numbers.into_iter().filter_map(|number| session.manifest(number).ok()) {
            for root in loaded.manifest.roots {
                if !roots.iter().any(|known| known.path == root.path) {
                    roots.push(root);
                }
            }
        }
        Self { roots }
    }

    pub(super) fn offer(
        &self,
        store: &LocalStore,
        damaged: &DamagedObject,
        transfer: &mut Transfer<'_>,
        lock: &StoreLock,
    ) -> Result<Option<Found>, RepairError> {
        let UsedAs::Contents { .. } = damaged.used_as else { return Ok(None) };
        for path in &damaged.paths {
            // A missing or unreadable file is no copy.
            let Ok((file, stat)) = self.open(path) else { continue };
            if stat.kind != FileKind::File || !damaged.used_as.may_have(stat.size) {
                continue;
            }
            match store.offer_file(&damaged.hash, &file, &stat, transfer, lock) {
                Ok(offered) => {
                    if let Some(found) = taken(offered, Source::File { path: path.clone() }) {
                        return Ok(Some(found));
                    }
                }
                Err(ImportError::Source(error)) => tracing::debug!("a copy: {error}"),
                Err(ImportError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Stores the chunks that a long object lacks, as far as the files at its paths have them:
    /// these may be other versions. The path of the file that made the object whole.
    pub(super) fn fill(
        &self,
        store: &LocalStore,
        damaged: &DamagedObject,
        transfer: &mut Transfer<'_>,
        lock: &StoreLock,
    ) -> Result<Option<PathBuf>, RepairError> {
        let UsedAs::Contents { size } = damaged.used_as else { return Ok(None) };
        if !store.lacks_chunks(&damaged.hash, size)? {
            return Ok(None);
        }
        for path in &damaged.paths {
            let Ok((file, stat)) = self.open(path) else { continue };
            if stat.kind != FileKind::File {
                continue;
            }
            match store.fill_missing_chunks(&damaged.hash, size, &file, &stat, transfer, lock) {
                Ok(false) => {}
                Ok(true) => match store.open_intact(&damaged.hash, size, transfer) {
                    Ok(_) => return Ok(Some(path.clone())),
                    Err(error) if error.is_damage() || error.is_bad_disk() => {}
                    Err(error) => return Err(error.into()),
                },
                Err(ImportError::Source(error)) => tracing::debug!("another version: {error}"),
                Err(ImportError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Opens a file of a tracked path, through no symlink.
    fn open(&self, path: &Path) -> sys::Result<(std::fs::File, sys::Stat)> {
        let outside = || sys::Error {
            operation: "open",
            path: path.to_owned(),
            source: rustix::io::Errno::XDEV.into(),
        };
        let (root, inside) = self
            .roots
            .iter()
            .find_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)))
            .ok_or_else(outside)?;
        let place = OpenPath::new(&root.path)?;
        let inside = inside.as_os_str().as_bytes();
        let (dir, name) = if inside.is_empty() {
            (place.parent.open_beneath(b"")?, place.name().to_vec())
        } else {
            let top = place.parent.open_dir(place.name())?;
            let (parent, name) = byte_path::split(inside);
            (top.open_beneath(parent)?, name.to_vec())
        };
        let file = dir.open_file(&name, true)?;
        let stat = dir.stat_file(&file, &name)?;
        Ok((file, stat))
    }
}
