//! The session of a container: found, and read.

use std::path::Path;

use super::error::ContainerError;
use super::record::{ContainerRecord, MAX_RECORD_BYTES};
use super::{CHANGES_PATH, RECORD_PATH, VOLUMES_PATH};
use crate::object::{Attributes, ContentHash, Node};
use crate::session::{Catalog, CatalogError, SnapshotId};
use crate::snapshot::{
    ContainerSession, Recency, Restoration, SessionDir, SessionMetadata, SessionOrigin,
    SnapshotManifest,
};
use crate::store::{LocalStore, ObjectSource, read_root_tree, read_tree};

/// The session of one container.
#[derive(Debug)]
pub struct ContainerHistory {
    session: SessionDir,
    store: LocalStore,
    metadata: SessionMetadata,
    container: ContainerSession,
}

/// A session of a container, and the number of one of its snapshots.
#[derive(Debug)]
pub struct Picked {
    /// The session.
    pub history: ContainerHistory,
    /// The snapshot that was named; without one, the latest.
    pub number: u64,
    /// Whether a snapshot was named.
    pub is_named: bool,
}

impl ContainerHistory {
    /// Opens a session.
    ///
    /// # Errors
    /// [`ContainerError::NotAContainer`], or a session that cannot be read.
    pub fn open(session: SessionDir) -> Result<Self, ContainerError> {
        let metadata = session.metadata()?;
        let container = match (metadata.origin, &metadata.container) {
            (SessionOrigin::Container, Some(container)) => container.clone(),
            _ => return Err(ContainerError::NotAContainer { id: session.id() }),
        };
        let store = LocalStore::open(&session.objects_path())?;
        Ok(Self { session, store, metadata, container })
    }

    /// All sessions of containers below the root directory of a store, oldest first.
    ///
    /// # Errors
    /// When a session cannot be read.
    pub fn all(root: &Path) -> Result<Vec<Self>, ContainerError> {
        let mut found = Vec::new();
        for session in Catalog::new(root.to_owned(), []).sessions()? {
            match session.metadata() {
                Ok(metadata)
                    if metadata.origin == SessionOrigin::Container
                        && metadata.container.is_some() =>
                {
                    found.push(Self::open(session)?);
                }
                // Damage of other sessions is `verify`'s to report.
                _ => {}
            }
        }
        let now = jiff::Timestamp::now();
        found.sort_by_cached_key(|history| {
            Recency::new(history.metadata.started, history.id(), now)
        });
        Ok(found)
    }

    /// The session of the container with this id of the engine, if there is one.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn of_container(root: &Path, container_id: &str) -> Result<Option<Self>, ContainerError> {
        let all = Self::all(root)?;
        Ok(all.into_iter().rev().find(|history| history.container.container_id == container_id))
    }

    /// Finds what a user names: `ID`, `ID/N`, or the name or id of a container in the place of
    /// `ID`, which means its newest session. Without a number it is the latest snapshot.
    ///
    /// # Errors
    /// [`ContainerError::NoSuchHistory`], or a session that cannot be read.
    pub fn find(root: &Path, text: &str) -> Result<Picked, ContainerError> {
        let unknown = || ContainerError::NoSuchHistory { id: text.to_owned() };
        let id: SnapshotId = text.parse().unwrap_or_else(|never| match never {});
        let mut all = Self::all(root)?;
        let wanted = id.session.as_str();
        let is_id = |history: &Self| history.id() == wanted;
        let is_of_container = |history: &Self| {
            let container = &history.container;
            container.name == wanted
                || (wanted.len() >= 12 && container.container_id.starts_with(wanted))
        };
        let begins = |history: &Self| !wanted.is_empty() && history.id().starts_with(wanted);
        let at = match all.iter().position(is_id) {
            Some(at) => at,
            None => match all.iter().rposition(is_of_container) {
                Some(at) => at,
                None => {
                    let mut matching = (0..all.len()).filter(|at| begins(&all[*at]));
                    match (matching.next(), matching.next()) {
                        (Some(at), None) => at,
                        _ => return Err(unknown()),
                    }
                }
            },
        };
        let history = all.swap_remove(at);
        let number = match id.snapshot.as_deref() {
            None | Some("latest") => history.latest()?,
            Some(number) => {
                let number: u64 = number.parse().map_err(|_| unknown())?;
                history.session.refuse_removed(number)?;
                if !history.numbers()?.contains(&number) {
                    return Err(unknown());
                }
                number
            }
        };
        Ok(Picked { history, number, is_named: id.snapshot.is_some() })
    }

    /// The session's id.
    pub fn id(&self) -> String {
        self.session.id()
    }

    /// The session.
    pub fn session(&self) -> &SessionDir {
        &self.session
    }

    /// The objects of the session.
    pub fn store(&self) -> &LocalStore {
        &self.store
    }

    /// The session's manifest when the history was opened.
    pub fn metadata(&self) -> &SessionMetadata {
        &self.metadata
    }

    /// The container of the session.
    pub fn container(&self) -> &ContainerSession {
        &self.container
    }

    /// Numbers of the snapshots that the session holds, ascending.
    ///
    /// # Errors
    /// When the session cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, ContainerError> {
        Ok(self.session.snapshot_numbers()?)
    }

    /// The newest snapshot.
    ///
    /// # Errors
    /// When the session cannot be read, or holds none.
    pub fn latest(&self) -> Result<u64, ContainerError> {
        let last = self.numbers()?.last().copied();
        last.ok_or_else(|| ContainerError::NoSuchHistory { id: self.id() })
    }

    /// The manifest of a snapshot, checked against the session's list.
    ///
    /// # Errors
    /// When it is damaged or was removed.
    pub fn manifest(&self, number: u64) -> Result<SnapshotManifest, ContainerError> {
        self.session.refuse_removed(number)?;
        let listed = &self.metadata.manifest_hashes;
        Ok(self.session.listed_manifest(number, listed)?.manifest)
    }

    /// The record of a snapshot, its bytes checked against their hash.
    ///
    /// # Errors
    /// [`ContainerError::BadRecord`], or a damaged object.
    pub fn record(&self, number: u64) -> Result<ContainerRecord, ContainerError> {
        let bad = |reason: String| ContainerError::BadRecord { session: self.id(), number, reason };
        let (_, node) = self.root_entry(number, RECORD_PATH)?;
        let Node::File { size, hash, .. } = node else {
            return Err(bad(format!("it is a {}", node.kind_name())));
        };
        if size > MAX_RECORD_BYTES {
            return Err(bad(format!("it has {size} bytes")));
        }
        let bytes = self.store.read(&hash, size)?;
        ContainerRecord::decode(&bytes).map_err(bad)
    }

    /// The root directory of a volume in a snapshot: its attributes and its tree. `name` is that of
    /// [`MountRecord::tree`](super::MountRecord::tree).
    ///
    /// # Errors
    /// [`ContainerError::NoSuchPart`], or a damaged object.
    pub fn volume(
        &self,
        number: u64,
        name: &str,
    ) -> Result<(Attributes, ContentHash), ContainerError> {
        let part = || format!("volume {name}");
        let (_, node) = self.root_entry(number, VOLUMES_PATH)?;
        let Node::Directory { tree } = node else { return Err(self.no_part(number, part())) };
        let tree = read_tree(&self.store, &tree)?;
        match tree.get(name.as_bytes()) {
            Some(entry) => match entry.node {
                Node::Directory { tree } => Ok((entry.attributes.clone(), tree)),
                _ => Err(self.no_part(number, part())),
            },
            None => Err(self.no_part(number, part())),
        }
    }

    /// The tree of the files that differ from the image: the container's root directory, with the
    /// changed paths alone.
    ///
    /// # Errors
    /// [`ContainerError::NoSuchPart`] where nobody asked for them, or a damaged object.
    pub fn changes(&self, number: u64) -> Result<ContentHash, ContainerError> {
        match self.root_entry(number, CHANGES_PATH)? {
            (_, Node::Directory { tree }) => Ok(tree),
            _ => Err(self.no_part(number, "changed files".to_owned())),
        }
    }

    fn root_entry(&self, number: u64, path: &str) -> Result<(Attributes, Node), ContainerError> {
        let manifest = self.manifest(number)?;
        let root = read_root_tree(&self.store, &manifest.merkle_root)?;
        let entry = root.entries.into_iter().find(|entry| *entry.path == *path.as_bytes());
        match entry {
            Some(entry) => Ok((entry.attributes, entry.node)),
            None => Err(self.no_part(number, path.to_owned())),
        }
    }

    fn no_part(&self, number: u64, part: String) -> ContainerError {
        ContainerError::NoSuchPart { session: self.id(), number, part }
    }

    /// Notes a restoration in the session's manifest, durably.
    ///
    /// # Errors
    /// When the session cannot be written; its manifest is then as it was.
    pub fn note_restoration(&self, done: Restoration) -> Result<(), ContainerError> {
        let _lock = self.session.lock()?;
        let mut metadata = self.session.metadata()?;
        let id = self.id();
        let container = metadata.container.as_mut().ok_or(ContainerError::NotAContainer { id })?;
        container.restorations.push(done);
        Ok(self.session.save_metadata(&metadata)?)
    }
}

impl From<CatalogError> for ContainerError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Manifest(error) => error.into(),
            CatalogError::Store(error) => error.into(),
            CatalogError::Io(error) => error.into(),
            // The others are about a name that was asked for.
            error => ContainerError::NoSuchHistory { id: error.to_string() },
        }
    }
}
