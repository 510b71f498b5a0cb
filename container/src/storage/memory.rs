//! Histories in maps, for tests of everything above the storage.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::{
    CapturedDirectories, DamagedHistory, Document, DraftWork, Effort, Guarded, HistoryFacts,
    SnapshotDraft, SnapshotStorage, StorageLock,
};
use crate::error::ContainerError;
use nono_engine::manifest::Totals;
use nono_engine::snapshot::{
    CONTAINER_PATHS, ContainerSession, MANIFEST_VERSION, ManifestError, RemovalReason,
    RemovedSnapshot, SnapshotKind, SnapshotManifest, capture_whole, whole_roots,
};
use nono_engine::store::{FileSource, MemoryStore, ObjectStore};
use nono_engine::sys::{self, Dir, FileTime};

/// Histories in memory. A clone is the same storage.
#[derive(Debug, Clone)]
pub struct MemoryStorage {
    id: String,
    objects: Arc<MemoryStore>,
    state: Arc<Mutex<State>>,
    /// Held while a snapshot is written.
    writing: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    made: u64,
    histories: BTreeMap<String, History>,
    documents: HashMap<String, Vec<u8>>,
    locked: HashSet<String>,
}

#[derive(Debug)]
struct History {
    facts: HistoryFacts,
    manifests: Vec<SnapshotManifest>,
    removed: BTreeMap<u64, RemovedSnapshot>,
}

impl History {
    fn numbers(&self) -> Vec<u64> {
        let numbers = 0..self.manifests.len() as u64;
        numbers.filter(|number| !self.removed.contains_key(number)).collect()
    }
}

impl MemoryStorage {
    /// An empty storage with a name of its own.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            objects: Arc::default(),
            state: Arc::default(),
            writing: Arc::default(),
        }
    }

    /// Pins a history, or takes the pin away.
    ///
    /// # Errors
    /// [`ContainerError::NoSuchHistory`].
    pub fn set_pinned(&self, history: &str, is_pinned: bool) -> Result<(), ContainerError> {
        self.with(history, |history| history.facts.is_pinned = is_pinned)
    }

    fn with<T>(&self, id: &str, look: impl FnOnce(&mut History) -> T) -> Result<T, ContainerError> {
        let unknown = || ContainerError::NoSuchHistory { id: id.to_owned() };
        self.state.lock().histories.get_mut(id).map(look).ok_or_else(unknown)
    }

    fn has(&self, document: Document<'_>) -> bool {
        self.state.lock().documents.contains_key(&key(document))
    }
}

fn key(document: Document<'_>) -> String {
    match document {
        Document::Pause(container) => format!("pause {container}"),
        Document::Restore(history) => format!("restore {history}"),
        Document::Kept(history) => format!("kept {history}"),
    }
}

/// Where something would be, for a message.
fn place(history: &str) -> PathBuf {
    Path::new("memory").join(history)
}

impl SnapshotStorage for MemoryStorage {
    fn id(&self) -> Result<String, ContainerError> {
        Ok(self.id.clone())
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn is_there(&self) -> Result<bool, ContainerError> {
        Ok(true)
    }

    fn histories(&self) -> Result<Vec<HistoryFacts>, ContainerError> {
        Ok(self.state.lock().histories.values().map(|history| history.facts.clone()).collect())
    }

    fn damaged(&self) -> Result<Vec<DamagedHistory>, ContainerError> {
        Ok(Vec::new())
    }

    fn facts(&self, history: &str) -> Result<HistoryFacts, ContainerError> {
        self.with(history, |history| history.facts.clone())
    }

    fn create(&self, container: ContainerSession) -> Result<String, ContainerError> {
        let mut state = self.state.lock();
        state.made += 1;
        let id = format!("{}-{}", self.id, state.made);
        let (started, is_pinned) = (Timestamp::now(), false);
        let is_received = false;
        let facts = HistoryFacts { id: id.clone(), started, is_pinned, is_received, container };
        let history = History { facts, manifests: Vec::new(), removed: BTreeMap::new() };
        state.histories.insert(id.clone(), history);
        Ok(id)
    }

    fn update(
        &self,
        history: &str,
        change: &mut dyn FnMut(&mut ContainerSession),
    ) -> Result<(), ContainerError> {
        self.with(history, |history| change(&mut history.facts.container))
    }

    fn remove(&self, history: &str) -> Result<Option<String>, ContainerError> {
        if self.has(Document::Restore(history)) {
            return Ok(Some("a restore of it was interrupted".to_owned()));
        }
        let mut state = self.state.lock();
        match state.histories.get(history) {
            Some(found) if found.facts.is_pinned => Ok(Some("it is pinned".to_owned())),
            _ => {
                state.histories.remove(history);
                Ok(None)
            }
        }
    }

    fn numbers(&self, history: &str) -> Result<Vec<u64>, ContainerError> {
        self.with(history, |history| history.numbers())
    }

    fn manifest(&self, history: &str, number: u64) -> Result<SnapshotManifest, ContainerError> {
        let found = self.with(history, |history| match history.removed.get(&number) {
            Some(removed) => Err(Some(removed.clone())),
            None => history.manifests.get(number as usize).cloned().ok_or(None),
        })?;
        Ok(found.map_err(|removed| match removed {
            Some(removed) => ManifestError::Removed { session: place(history), removed },
            None => ManifestError::Missing { path: place(history).join(number.to_string()) },
        })?)
    }

    fn add(
        &self,
        history: &str,
        effort: &Effort,
        work: &mut DraftWork<'_>,
    ) -> Result<SnapshotManifest, ContainerError> {
        let _writing = self.writing.lock();
        let number = self.with(history, |history| history.manifests.len() as u64)?;
        let spool = sys::open_temporary_dir()?;
        let state = work(&MemoryDraft { number, objects: &self.objects, spool, effort })?;
        let manifest = SnapshotManifest {
            format_version: MANIFEST_VERSION,
            number,
            timestamp: state.timestamp,
            parent: number.checked_sub(1),
            parent_hash: None,
            merkle_root: state.merkle_root,
            ignore_files: None,
            kind: SnapshotKind::Ordinary,
            label: state.label,
            step: None,
            restores: None,
            restores_only: Vec::new(),
            roots: whole_roots(&CONTAINER_PATHS.map(Path::new)),
            totals: state.totals,
            not_captured: state.not_captured,
            known_absent: Vec::new(),
            unstable: state.unstable,
        };
        self.with(history, |history| history.manifests.push(manifest.clone()))?;
        Ok(manifest)
    }

    fn remove_snapshots(
        &self,
        history: &str,
        numbers: &[u64],
        reason: RemovalReason,
    ) -> Result<(), ContainerError> {
        let refused = |reason: &str| ContainerError::NotRemoved {
            session: history.to_owned(),
            reason: reason.to_owned(),
        };
        if self.has(Document::Restore(history)) {
            return Err(refused("a restore of it was interrupted"));
        }
        self.with(history, |history| {
            if reason.spares_pinned() && history.facts.is_pinned {
                return Err(refused("it is pinned"));
            }
            let held = history.numbers();
            if numbers.iter().any(|number| !held.contains(number)) {
                return Err(refused("it has no such snapshot"));
            }
            if held.iter().all(|number| numbers.contains(number)) {
                return Err(refused("it holds no other snapshot"));
            }
            let removed_at = Timestamp::now();
            history.removed.extend(
                numbers
                    .iter()
                    .map(|&number| (number, RemovedSnapshot { number, removed_at, reason })),
            );
            Ok(())
        })?
    }

    fn objects(&self, _history: &str) -> Result<Arc<dyn FileSource>, ContainerError> {
        Ok(Arc::clone(&self.objects) as Arc<dyn FileSource>)
    }

    /// Nothing ever goes.
    fn hold_objects(&self, _history: &str) -> Result<StorageLock, ContainerError> {
        Ok(StorageLock::new(()))
    }

    fn read(&self, document: Document<'_>) -> Result<Option<Vec<u8>>, ContainerError> {
        Ok(self.state.lock().documents.get(&key(document)).cloned())
    }

    fn write(&self, document: Document<'_>, bytes: Option<&[u8]>) -> Result<(), ContainerError> {
        let documents = &mut self.state.lock().documents;
        match bytes {
            Some(bytes) => documents.insert(key(document), bytes.to_vec()),
            None => documents.remove(&key(document)),
        };
        Ok(())
    }

    fn set_aside(&self, document: Document<'_>) -> Result<Option<PathBuf>, ContainerError> {
        let documents = &mut self.state.lock().documents;
        let Some(bytes) = documents.remove(&key(document)) else { return Ok(None) };
        let count = documents.keys().filter(|key| key.starts_with("damaged ")).count();
        let aside = format!("damaged {} {}", count + 1, key(document));
        documents.insert(aside.clone(), bytes);
        Ok(Some(aside.into()))
    }

    fn paused(&self) -> Result<Vec<String>, ContainerError> {
        let state = self.state.lock();
        let ids = state.documents.keys().filter_map(|key| key.strip_prefix("pause "));
        Ok(ids.map(str::to_owned).collect())
    }

    fn try_lock(&self, what: Guarded<'_>) -> Result<Option<StorageLock>, ContainerError> {
        let name = match what {
            Guarded::Container(container) => format!("container {container}"),
            Guarded::Restores(history) => format!("restores {history}"),
        };
        let is_free = self.state.lock().locked.insert(name.clone());
        let state = Arc::clone(&self.state);
        Ok(is_free.then(|| StorageLock::new(Locked { state, name })))
    }
}

struct Locked {
    state: Arc<Mutex<State>>,
    name: String,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.name);
    }
}

struct MemoryDraft<'a> {
    number: u64,
    objects: &'a MemoryStore,
    spool: Dir,
    effort: &'a Effort,
}

impl SnapshotDraft for MemoryDraft<'_> {
    fn number(&self) -> u64 {
        self.number
    }

    fn objects(&self) -> &dyn ObjectStore {
        self.objects
    }

    fn spool(&self) -> &Dir {
        &self.spool
    }

    /// Every capture reads all: nothing is remembered of files.
    fn fill(&self, _: FileTime, _: &[&Path]) -> Result<Totals, ContainerError> {
        Ok(Totals::default())
    }

    fn capture(&self, directories: &[&Path]) -> Result<CapturedDirectories, ContainerError> {
        let Effort { threads, progress } = self.effort;
        let captured = capture_whole(self.objects, directories, &[], None, &**progress, *threads)?;
        Ok(captured.into())
    }
}
