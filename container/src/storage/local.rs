//! Histories in a store on this disk: a history is a session of it.
//!
//! ```text
//! <root directory>/.containers/id               the id of the storage
//! <root directory>/.containers/ID.lock          held while nono is at work on the container
//! <root directory>/.containers/ID.paused        Document::Pause
//! <session>/container-restore.journal           Document::Restore
//! <session>/container-restore.lock              held while a restore is at work
//! <session>/kept-containers.json                Document::Kept
//! …/<any of these documents>.damaged            one that was set aside
//! ```

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    CapturedDirectories, DamagedHistory, Document, DraftWork, Effort, Guarded, HistoryFacts,
    SnapshotDraft, SnapshotState, SnapshotStorage, StorageLock,
};
use crate::error::ContainerError;
use nono_engine::gc::{RemoveSnapshotError, remove_snapshots, withdraw};
use nono_engine::layout;
use nono_engine::manifest::Totals;
use nono_engine::path_text::to_path;
use nono_engine::session::{Catalog, RecordError, create_session};
use nono_engine::snapshot::{
    Built, CONTAINER_PATHS, ContainerSession, ManifestError, NewCaches, RemovalReason, SessionDir,
    SessionMetadata, SessionOrigin, SnapshotError, SnapshotManager, SnapshotManifest,
};
use nono_engine::store::{FileSource, LocalStore, ObjectStore, Packer, StoreLock};
use nono_engine::sys::{self, Dir, FileLock, FileTime};

const CONTAINERS: &str = ".containers";
const PAUSED: &str = ".paused";
const ID: &str = "id";
const KEPT: &[u8] = b"kept-containers.json";
const RESTORE_LOCK: &str = "container-restore.lock";
/// Longer documents are refused.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// The store in one root directory. Another process sees the same.
#[derive(Debug, Clone)]
pub struct LocalStorage {
    root: PathBuf,
}

impl LocalStorage {
    /// The store in a root directory, which need not be there yet.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Its root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn session(&self, history: &str) -> Result<SessionDir, ContainerError> {
        Ok(SessionDir::open(&self.root.join(history))?)
    }

    fn containers(&self) -> PathBuf {
        self.root.join(CONTAINERS)
    }

    /// The directory and the name of a document. `None`: there is no directory.
    fn place(&self, document: Document<'_>) -> Result<Option<(Dir, Vec<u8>)>, ContainerError> {
        let (dir, name) = match document {
            Document::Pause(container) => {
                refuse_other_than_id(container)?;
                let dir = match Dir::open(&self.containers()) {
                    Err(error) if error.is_gone() => return Ok(None),
                    dir => dir?,
                };
                (dir, format!("{container}{PAUSED}").into_bytes())
            }
            Document::Restore(history) => {
                let name = layout::CONTAINER_RESTORE_JOURNAL.as_bytes().to_vec();
                (self.session(history)?.dir()?, name)
            }
            Document::Kept(history) => (self.session(history)?.dir()?, KEPT.to_vec()),
        };
        Ok(Some((dir, name)))
    }
}

/// Whether the text is an id of an engine: then it is a plain file name.
fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn refuse_other_than_id(container: &str) -> Result<(), ContainerError> {
    match is_id(container) {
        true => Ok(()),
        false => Err(ContainerError::InvalidAnswer {
            operation: "look at the container".to_owned(),
            reason: format!("{container:?} is no id"),
        }),
    }
}

fn facts_of(id: String, metadata: SessionMetadata) -> Option<HistoryFacts> {
    let container = metadata.container.filter(|_| metadata.origin == SessionOrigin::Container)?;
    // An edited one must not name a file.
    let container = Some(container).filter(|container| is_id(&container.container_id))?;
    let SessionMetadata { started, pinned: is_pinned, received: is_received, .. } = metadata;
    Some(HistoryFacts { id, started, is_pinned, is_received, container })
}

impl SnapshotStorage for LocalStorage {
    /// Random, and in a file: at the same path may be another store, on this machine or another.
    fn id(&self) -> Result<String, ContainerError> {
        let path = self.containers().join(ID);
        let id = &hex::encode(sys::random_bytes()?)[..16];
        sys::create_private_file(&path, id.as_bytes())?;
        let bytes = Dir::open(&self.containers())?.read(ID.as_bytes(), 64)?;
        let is_id = bytes.len() == 16 && bytes.iter().all(u8::is_ascii_hexdigit);
        match String::from_utf8(bytes) {
            Ok(id) if is_id => Ok(id),
            _ => Err(ContainerError::BadStorageId { path }),
        }
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn is_there(&self) -> Result<bool, ContainerError> {
        match Dir::open(&self.containers()) {
            Err(error) if error.is_gone() => Ok(false),
            dir => Ok(dir.map(|_| true)?),
        }
    }

    fn histories(&self) -> Result<Vec<HistoryFacts>, ContainerError> {
        let sessions = Catalog::new(self.root.clone(), []).sessions()?;
        let readable = sessions
            .into_iter()
            .filter_map(|session| facts_of(session.id(), session.metadata().ok()?));
        Ok(readable.collect())
    }

    fn damaged(&self) -> Result<Vec<DamagedHistory>, ContainerError> {
        let sessions = Catalog::new(self.root.clone(), []).sessions()?;
        let damage = |session: SessionDir| {
            let reason = match session.metadata() {
                Err(_) if session.is_gone() => return None,
                Err(error) => error.to_string(),
                Ok(metadata) if metadata.origin != SessionOrigin::Container => return None,
                Ok(metadata) => match metadata.container {
                    Some(container) if is_id(&container.container_id) => return None,
                    Some(container) => {
                        format!("{:?} is no id of a container", container.container_id)
                    }
                    None => "it does not say of which container it is".to_owned(),
                },
            };
            Some(DamagedHistory { id: session.id(), reason })
        };
        Ok(sessions.into_iter().filter_map(damage).collect())
    }

    fn facts(&self, history: &str) -> Result<HistoryFacts, ContainerError> {
        let metadata = self.session(history)?.metadata()?;
        let other = || ContainerError::NotAContainer { id: history.to_owned() };
        facts_of(history.to_owned(), metadata).ok_or_else(other)
    }

    fn create(&self, container: ContainerSession) -> Result<String, ContainerError> {
        let paths = CONTAINER_PATHS.map(PathBuf::from).to_vec();
        let mut metadata = SessionMetadata::new(String::new(), Vec::new(), paths);
        metadata.origin = SessionOrigin::Container;
        metadata.container = Some(container);
        match create_session(&self.root, metadata) {
            Ok((session, _)) => Ok(session.id()),
            Err(RecordError::Snapshot(error)) => Err(error.into()),
            Err(RecordError::Io(error) | RecordError::NoSymlinks { source: error, .. }) => {
                Err(error.into())
            }
            Err(RecordError::BaselineNotDurable { source, .. }) => Err(source.into()),
        }
    }

    fn update(
        &self,
        history: &str,
        change: &mut dyn FnMut(&mut ContainerSession),
    ) -> Result<(), ContainerError> {
        let session = self.session(history)?;
        let _lock = session.lock()?;
        let mut metadata = session.metadata()?;
        let id = history.to_owned();
        let container = metadata.container.as_mut().ok_or(ContainerError::NotAContainer { id })?;
        let before = container.clone();
        change(container);
        if *container == before {
            return Ok(());
        }
        Ok(session.save_metadata(&metadata)?)
    }

    fn remove(&self, history: &str) -> Result<Option<String>, ContainerError> {
        let session = match SessionDir::open(&self.root.join(history)) {
            Err(ManifestError::Io(error)) if error.is_gone() => return Ok(None),
            session => session?,
        };
        let is_unused = session.manifest_numbers()?.is_empty();
        let withdrawn = withdraw(&self.root, &[session]);
        let withdrawn = withdrawn.map_err(|error| not_removed(history, &error))?;
        if is_unused && !withdrawn.session_ids.is_empty() {
            // Nothing waits for a collection in a history that never had a snapshot.
            let hidden = format!("{}{history}", layout::REMOVED_PREFIX);
            Dir::open(&self.root)?.remove_dir_all(hidden.as_bytes())?;
        }
        Ok(withdrawn.skipped.first().map(|skipped| skipped.reason.to_string()))
    }

    fn numbers(&self, history: &str) -> Result<Vec<u64>, ContainerError> {
        Ok(self.session(history)?.snapshot_numbers()?)
    }

    fn manifest(&self, history: &str, number: u64) -> Result<SnapshotManifest, ContainerError> {
        let session = self.session(history)?;
        session.refuse_removed(number)?;
        let listed = session.metadata()?.manifest_hashes;
        Ok(session.listed_manifest(number, &listed)?.manifest)
    }

    fn add(
        &self,
        history: &str,
        effort: &Effort,
        work: &mut DraftWork<'_>,
    ) -> Result<SnapshotManifest, ContainerError> {
        let paths = CONTAINER_PATHS.map(Path::new);
        let manager = SnapshotManager::of_virtual_paths(self.session(history)?, &paths)?
            .with_progress(Arc::clone(&effort.progress))
            .with_threads(effort.threads);
        let _session_lock = manager.lock_session()?;
        // Held until the manifest is published: the collector sees all of it or nothing.
        let store_lock = manager.lock_store()?;
        let parent = match manager.latest() {
            Ok(parent) => Some(parent),
            Err(SnapshotError::NoBaseline { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let draft = LocalDraft {
            number: parent.as_ref().map_or(0, |parent| parent.manifest.number + 1),
            manager: &manager,
            lock: &store_lock,
            packer: Packer::new(manager.store(), &store_lock),
            spool: Dir::open(manager.store().path())?,
            caches: RefCell::default(),
            filled_bytes: Cell::new(0),
        };
        let SnapshotState { timestamp, merkle_root, mut totals, not_captured, unstable, label } =
            work(&draft)?;
        let LocalDraft { packer, caches, filled_bytes, .. } = draft;
        // The work knows the plain length of objects in packs.
        totals.bytes_written = packer.finish()? + filled_bytes.get();
        let caches = caches.into_inner();
        let built = Built { timestamp, merkle_root, totals, not_captured, unstable, caches, label };
        Ok(manager.publish_built(built, parent.as_ref())?)
    }

    fn remove_snapshots(
        &self,
        history: &str,
        numbers: &[u64],
        reason: RemovalReason,
    ) -> Result<(), ContainerError> {
        let removed = remove_snapshots(&self.session(history)?, numbers, reason);
        removed.map(drop).map_err(|error| match error {
            RemoveSnapshotError::Manifest(error) => error.into(),
            error => not_removed(history, &error),
        })
    }

    fn objects(&self, history: &str) -> Result<Arc<dyn FileSource>, ContainerError> {
        Ok(Arc::new(LocalStore::open(&self.session(history)?.objects_path())?))
    }

    fn hold_objects(&self, history: &str) -> Result<StorageLock, ContainerError> {
        let store = LocalStore::open(&self.session(history)?.objects_path())?;
        Ok(StorageLock::new(store.lock_shared()?))
    }

    fn read(&self, document: Document<'_>) -> Result<Option<Vec<u8>>, ContainerError> {
        let Some((dir, name)) = self.place(document)? else { return Ok(None) };
        match dir.read(&name, MAX_DOCUMENT_BYTES) {
            Err(error) if error.is_gone() => Ok(None),
            bytes => Ok(Some(bytes?)),
        }
    }

    fn write(&self, document: Document<'_>, bytes: Option<&[u8]>) -> Result<(), ContainerError> {
        if let (Document::Pause(_), Some(_)) = (document, bytes) {
            sys::create_private_dir(&self.containers())?;
        }
        let Some((dir, name)) = self.place(document)? else { return Ok(()) };
        match bytes {
            Some(bytes) => dir.replace_file(&name, bytes, 0o600, true)?,
            None => match dir.remove_file(&name) {
                Err(error) if error.is_gone() => {}
                removed => {
                    removed?;
                    dir.sync()?;
                }
            },
        }
        Ok(())
    }

    fn set_aside(&self, document: Document<'_>) -> Result<Option<PathBuf>, ContainerError> {
        let Some((dir, name)) = self.place(document)? else { return Ok(None) };
        for attempt in 1u64.. {
            let mut aside = [&name[..], b".damaged"].concat();
            if attempt > 1 {
                aside.extend(format!("-{attempt}").bytes());
            }
            match dir.rename_new(&name, &dir, &aside) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) if error.is_gone() => break,
                renamed => {
                    renamed?;
                    dir.sync()?;
                    return Ok(Some(dir.path().join(to_path(&aside))));
                }
            }
        }
        Ok(None)
    }

    fn paused(&self) -> Result<Vec<String>, ContainerError> {
        let dir = match Dir::open(&self.containers()) {
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            dir => dir?,
        };
        let names = dir.names()?;
        let ids = names.iter().filter_map(|listed| {
            let name = std::str::from_utf8(&listed.name).ok()?;
            name.strip_suffix(PAUSED).filter(|id| is_id(id)).map(str::to_owned)
        });
        Ok(ids.collect())
    }

    fn try_lock(&self, what: Guarded<'_>) -> Result<Option<StorageLock>, ContainerError> {
        let path = match what {
            Guarded::Container(container) => {
                refuse_other_than_id(container)?;
                sys::create_private_dir(&self.containers())?;
                self.containers().join(format!("{container}.lock"))
            }
            Guarded::Restores(history) => self.session(history)?.path().join(RESTORE_LOCK),
        };
        Ok(FileLock::try_exclusive(&path)?.map(StorageLock::new))
    }
}

fn not_removed(history: &str, reason: &dyn std::fmt::Display) -> ContainerError {
    ContainerError::NotRemoved { session: history.to_owned(), reason: reason.to_string() }
}

/// A snapshot of a session, under the locks of the session and of the store.
struct LocalDraft<'a> {
    number: u64,
    manager: &'a SnapshotManager,
    lock: &'a StoreLock,
    packer: Packer<'a>,
    spool: Dir,
    /// Saved when the snapshot is durable.
    caches: RefCell<NewCaches>,
    /// Bytes that contents take on the disk which were stored ahead.
    filled_bytes: Cell<u64>,
}

impl SnapshotDraft for LocalDraft<'_> {
    fn number(&self) -> u64 {
        self.number
    }

    fn objects(&self) -> &dyn ObjectStore {
        &self.packer
    }

    fn spool(&self) -> &Dir {
        &self.spool
    }

    fn fill(
        &self,
        flushed_from: FileTime,
        directories: &[&Path],
    ) -> Result<Totals, ContainerError> {
        let totals = self.manager.fill_from_elsewhere(self.lock, flushed_from, directories)?;
        self.filled_bytes.set(self.filled_bytes.get() + totals.bytes_written);
        Ok(totals)
    }

    fn capture(&self, directories: &[&Path]) -> Result<CapturedDirectories, ContainerError> {
        let mut captured = self.manager.capture_elsewhere(&self.packer, directories)?;
        self.caches.replace(std::mem::take(&mut captured.caches));
        Ok(captured.into())
    }
}
