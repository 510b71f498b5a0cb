//! How much a store holds: exactly, and as a guess that costs nothing.
//!
//! The exact answer looks at every object. The estimate adds the bytes that sessions claim to the
//! size after the last collection, which is noted in a file beside the stat caches. That file may
//! be deleted at any time; then the estimate is too low by the contents that removed sessions left
//! to others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::mark::Marks;
use super::store_root::{ObjectsPlace, StoreRoot};
use super::{CleanupError, CleanupOptions};
use crate::byte_path;
use crate::layout;
use crate::object::ContentHash;
use crate::progress::Stage;
use crate::snapshot::{SessionDir, SessionOrigin};
use crate::store::LocalStore;
use crate::sys::{self, Dir, FileKind};

const NOTE_NAME: &[u8] = b"usage.json";
/// The unit in which a file system counts space.
const BLOCK_BYTES: u64 = 512;
const MAX_NOTE_BYTES: u64 = 16 << 20;

/// How much a store holds, and what would be freed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageUsage {
    /// Bytes of the objects that sessions need.
    pub total_bytes: u64,
    /// For each session that was asked about: the bytes that go with it once all the sessions
    /// before it in that order have gone.
    pub freed_bytes: HashMap<String, u64>,
}

/// How much a store probably holds, and what waits to be freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageGuess {
    /// Bytes of objects.
    pub bytes: u64,
    /// Bytes that could not be freed when that was last found out; 0 before.
    pub floor_bytes: u64,
    /// Sessions that were withdrawn and whose objects are still there.
    pub withdrawn_sessions: usize,
}

/// The state after the last collection.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    /// Bytes of the shared objects.
    bytes: u64,
    /// The bytes that the sessions sharing them had written by then.
    sessions: BTreeMap<String, u64>,
    /// Bytes that could not be freed when that was last found out.
    #[serde(default)]
    floor_bytes: u64,
}

/// The bytes that a store takes on the disk: the blocks of everything below its root directory,
/// with indexes, caches and journals. A file with several names counts once. Directories that this
/// user cannot read are left out.
///
/// # Errors
/// When the root directory cannot be read.
pub fn disk_usage(root: &Path) -> Result<u64, CleanupError> {
    let root = Dir::open(root)?;
    let top = root.stat_self()?;
    let (mut blocks, mut linked) = (top.blocks, HashSet::new());
    let mut pending: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = pending.pop() {
        let dir = match root.open_beneath(&path) {
            Ok(dir) => dir,
            // Others may work in the store meanwhile.
            Err(error) if error.is_gone() => continue,
            Err(error) if error.is_denied() => {
                tracing::info!("not counted: {error}");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for listed in dir.names()? {
            let Some(stat) = dir.try_stat(&listed.name)? else { continue };
            // A file system that is mounted there is no part of the store.
            let is_other = stat.dev != top.dev;
            let is_directory = stat.kind == FileKind::Directory;
            let is_counted =
                !is_directory && stat.nlink > 1 && !linked.insert((stat.dev, stat.ino));
            if is_other || is_counted {
                continue;
            }
            blocks = blocks.saturating_add(stat.blocks);
            if is_directory {
                pending.push(byte_path::join(&path, &listed.name));
            }
        }
    }
    Ok(blocks.saturating_mul(BLOCK_BYTES))
}

/// Guesses how much a store holds, from the manifests of its sessions.
///
/// # Errors
/// When the root directory cannot be read. A session that cannot be is passed over.
pub fn guess_usage(root: &Path) -> Result<UsageGuess, CleanupError> {
    let root = StoreRoot::open(root)?;
    let note = load_note(&root.dir);
    let withdrawn = root.leftovers()?;
    let mut bytes = note.bytes;
    for session in root.sessions()?.iter().chain(&withdrawn) {
        let Ok(metadata) = session.metadata() else { continue };
        if metadata.origin == SessionOrigin::Container {
            continue;
        }
        let written = match metadata.manifest_hashes.is_empty() {
            true => baseline_bytes(session),
            false => metadata.bytes_written,
        };
        let known = note.sessions.get(&metadata.session_id).copied().unwrap_or(0);
        bytes = bytes.saturating_add(written.saturating_sub(known));
    }
    let floor_bytes = note.floor_bytes;
    Ok(UsageGuess { bytes, floor_bytes, withdrawn_sessions: withdrawn.len() })
}

/// The bytes of a baseline that its session does not list yet: announced, or just published.
fn baseline_bytes(session: &SessionDir) -> u64 {
    let announced = session.pending_baseline().ok().flatten();
    let baseline = announced.or_else(|| Some(session.manifest(0).ok()?.manifest));
    baseline.map_or(0, |baseline| baseline.totals.bytes_written)
}

/// Finds out how much a store holds, and what each of some of its sessions would free if they were
/// removed in this order. Changes nothing and needs no lock.
///
/// # Errors
/// [`CleanupError::DamagedSession`] when a session that stays cannot be read completely.
pub fn measure_usage(
    root: &Path,
    removable: &[SessionDir],
    options: &CleanupOptions<'_>,
) -> Result<StorageUsage, CleanupError> {
    let root = StoreRoot::open(root)?;
    options.pool()?.install(|| measure(&root, removable, options))
}

fn measure(
    root: &StoreRoot,
    removable: &[SessionDir],
    options: &CleanupOptions<'_>,
) -> Result<StorageUsage, CleanupError> {
    options.progress.begin(Stage::ReadLists, None);
    let ids: Vec<String> = removable.iter().map(SessionDir::id).collect();
    let mut usage = StorageUsage::default();
    let mut sharing = Vec::new();
    let mut of_containers = Vec::new();
    for session in root.sessions()? {
        let id = session.id();
        // Their bytes count apart, with limits of their own.
        let is_container =
            session.metadata().is_ok_and(|metadata| metadata.origin == SessionOrigin::Container);
        if is_container && !ids.contains(&id) {
            if root.place(&session)? == ObjectsPlace::Shared {
                of_containers.push(session);
            }
            continue;
        }
        match (root.place(&session)?, &root.store) {
            (ObjectsPlace::Own, _) => {
                let store = LocalStore::open(&session.objects_path())?;
                store.for_each_object(|found| {
                    usage.add(found.size, ids.contains(&id).then_some(&id));
                    Ok::<_, CleanupError>(())
                })?;
            }
            (ObjectsPlace::Shared, Some(_)) if !ids.contains(&id) => {
                sharing.push(session);
            }
            _ => {}
        }
    }
    let Some((store, _)) = &root.store else { return Ok(usage) };
    let mut needed = Marks::default();
    needed.keep(store, &sharing.iter().collect::<Vec<_>>(), options.progress)?;
    // Contents that several of them need go with the last one.
    let mut owners: HashMap<ContentHash, &String> = HashMap::new();
    for (session, id) in removable.iter().zip(&ids).rev() {
        if root.place(session)? == ObjectsPlace::Shared {
            let mut marks = Marks::default();
            marks.release(store, session, &needed, options.progress)?;
            owners.extend(marks.beyond(&needed).map(|hash| (hash, id)));
            needed.absorb(marks);
        }
    }
    // An object that containers need as well counts, and becomes free with no session.
    let mut theirs = Marks::default();
    theirs.keep(store, &of_containers.iter().collect::<Vec<_>>(), options.progress)?;
    owners.retain(|hash, _| !theirs.contains(hash));
    options.progress.begin(Stage::ListObjects, None);
    store.for_each_object(|found| {
        options.progress.advance(1, 0);
        if needed.contains(&found.hash) {
            usage.add(found.size, owners.get(&found.hash).copied());
        }
        Ok::<_, CleanupError>(())
    })?;
    Ok(usage)
}

impl StorageUsage {
    fn add(&mut self, bytes: u64, freed_with: Option<&String>) {
        self.total_bytes = self.total_bytes.saturating_add(bytes);
        if let Some(id) = freed_with {
            let freed = self.freed_bytes.entry(id.clone()).or_default();
            *freed = freed.saturating_add(bytes);
        }
    }
}

/// Notes what there is after a collection, under the store's exclusive lock. Without the note, only
/// the guess suffers.
pub(super) fn note(root: &StoreRoot, shared_bytes: u64) {
    let noted = (|| -> Result<(), CleanupError> {
        let floor_bytes = load_note(&root.dir).floor_bytes;
        let mut note = Note { bytes: shared_bytes, floor_bytes, ..Note::default() };
        for session in root.sessions()? {
            let Ok(metadata) = session.metadata() else { continue };
            if root.place(&session)? == ObjectsPlace::Shared {
                note.sessions.insert(metadata.session_id, metadata.bytes_written);
            }
        }
        save_note(&root.dir, &note)
    })();
    if let Err(error) = noted {
        tracing::info!("the size of the store is not noted: {error}");
    }
}

/// Notes what cannot be freed, so that a caller need not find it out again and again.
///
/// # Errors
/// When the note cannot be written.
pub fn note_floor(root: &Path, usage: &StorageUsage) -> Result<(), CleanupError> {
    let root = StoreRoot::open(root)?;
    let freed = usage.freed_bytes.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let floor_bytes = usage.total_bytes.saturating_sub(freed);
    save_note(&root.dir, &Note { floor_bytes, ..load_note(&root.dir) })
}

fn save_note(root: &Dir, note: &Note) -> Result<(), CleanupError> {
    let bytes = serde_json::to_vec(note).unwrap_or_default();
    let index = root.path().join(layout::INDEX);
    sys::create_private_dir(&index)?;
    Ok(Dir::open(&index)?.replace_file(NOTE_NAME, &bytes, 0o600, false)?)
}

fn load_note(root: &Dir) -> Note {
    let read = root
        .open_dir(layout::INDEX.as_bytes())
        .and_then(|index| index.read(NOTE_NAME, MAX_NOTE_BYTES));
    read.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
