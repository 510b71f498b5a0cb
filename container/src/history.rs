//! The history of a container: found, and read.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::docker::Docker;
use super::error::ContainerError;
use super::record::{ContainerRecord, MAX_RECORD_BYTES, Trigger};
use super::storage::{HistoryFacts, SnapshotStorage};
use super::{CHANGES_PATH, RECORD_PATH, VOLUMES_PATH};
use nono_engine::object::{Attributes, ContentHash, Node};
use nono_engine::session::{CatalogError, SnapshotId};
use nono_engine::snapshot::{
    ContainerSession, Recency, Restoration, RestorationMode, SnapshotManifest,
};
use nono_engine::store::{FileSource, read_root_tree, read_tree};

/// The history of one container in a storage.
pub struct ContainerHistory<'s> {
    storage: &'s dyn SnapshotStorage,
    objects: Arc<dyn FileSource>,
    facts: HistoryFacts,
}

impl fmt::Debug for ContainerHistory<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerHistory").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// The history of a container, and the number of one of its snapshots.
#[derive(Debug)]
pub struct Picked<'s> {
    /// The history.
    pub history: ContainerHistory<'s>,
    /// The snapshot that was named; without one, the latest.
    pub number: u64,
    /// Whether a snapshot was named.
    pub is_named: bool,
}

impl<'s> ContainerHistory<'s> {
    /// Opens a history.
    ///
    /// # Errors
    /// [`ContainerError::NotAContainer`], or a history that cannot be read.
    pub fn open(storage: &'s dyn SnapshotStorage, id: &str) -> Result<Self, ContainerError> {
        Self::of_facts(storage, storage.facts(id)?)
    }

    fn of_facts(
        storage: &'s dyn SnapshotStorage,
        facts: HistoryFacts,
    ) -> Result<Self, ContainerError> {
        Ok(Self { storage, objects: storage.objects(&facts.id)?, facts })
    }

    /// The same with the facts of now.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn reopened(&self) -> Result<Self, ContainerError> {
        Self::open(self.storage, &self.facts.id)
    }

    /// All histories of a storage, oldest first.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn all(storage: &'s dyn SnapshotStorage) -> Result<Vec<Self>, ContainerError> {
        let mut facts = storage.histories()?;
        let now = Timestamp::now();
        facts.sort_by_cached_key(|facts| Recency::new(facts.started, &*facts.id, now));
        facts.into_iter().map(|facts| Self::of_facts(storage, facts)).collect()
    }

    /// The history of the container with this id of the engine, if there is one.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn of_container(
        storage: &'s dyn SnapshotStorage,
        container_id: &str,
    ) -> Result<Option<Self>, ContainerError> {
        let is_its = |history: &Self| {
            let container = history.container();
            container.container_id == container_id
                || container.former_ids.iter().any(|former| former == container_id)
        };
        Ok(Self::all(storage)?.into_iter().rev().find(is_its))
    }

    /// The history that goes on with a container of which there is none: that of a container whose
    /// place it has. A restore replaced that one, or it is gone and had the same name at the last
    /// snapshot, as after `docker compose up`.
    ///
    /// # Errors
    /// As [`all`](Self::all), or the engine does not answer.
    pub fn before(
        storage: &'s dyn SnapshotStorage,
        docker: &Docker,
        container_id: &str,
        name: &str,
    ) -> Result<Option<Self>, ContainerError> {
        let all = Self::all(storage)?.into_iter().rev();
        for history in all.filter(|history| !history.facts.is_received) {
            let container = history.container();
            let is_successor = container.restorations.iter().any(|done| {
                done.mode == RestorationMode::Replace && done.container_id == container_id
            });
            if is_successor {
                return Ok(Some(history));
            }
            if container.name != name || container.endpoint != docker.endpoint().url {
                continue;
            }
            match docker.inspect(&container.container_id) {
                Err(ContainerError::NoSuchContainer { .. }) => return Ok(Some(history)),
                found => drop(found?),
            }
        }
        Ok(None)
    }

    /// Goes on with another container, durably.
    ///
    /// # Errors
    /// When the facts cannot be written; they are then as they were.
    pub fn go_on_with(&self, container_id: &str, name: &str) -> Result<(), ContainerError> {
        self.storage.update(&self.facts.id, &mut |container: &mut ContainerSession| {
            let former = std::mem::replace(&mut container.container_id, container_id.to_owned());
            container.former_ids.retain(|id| id != container_id);
            container.former_ids.push(former);
            name.clone_into(&mut container.name);
        })
    }

    /// As [`find`](Self::find), of whole ids and names alone, for what cannot be taken back. A name
    /// that several histories have means none of them.
    ///
    /// # Errors
    /// As there, or [`ContainerError::AmbiguousName`].
    pub fn find_whole(
        storage: &'s dyn SnapshotStorage,
        text: &str,
    ) -> Result<Picked<'s>, ContainerError> {
        let picked = Self::find_among(storage, text, false)?;
        let id: SnapshotId = text.parse().unwrap_or_else(|never| match never {});
        let history = &picked.history;
        let container = history.container();
        let names = [&history.facts.id, &container.name, &container.container_id];
        let number = id.snapshot.filter(|number| number != "latest");
        let is_whole = names.contains(&&id.session)
            && number.is_none_or(|number| number == picked.number.to_string());
        match is_whole {
            true => Ok(picked),
            false => Err(ContainerError::NoSuchHistory { id: text.to_owned() }),
        }
    }

    /// Finds what a user names: `ID`, `ID/N`, or the name or id of a container in the place of
    /// `ID`. Without a number it is the latest snapshot. A name that several histories have means
    /// the one with the newest snapshot.
    ///
    /// # Errors
    /// [`ContainerError::NoSuchHistory`], or a history that cannot be read.
    pub fn find(
        storage: &'s dyn SnapshotStorage,
        text: &str,
    ) -> Result<Picked<'s>, ContainerError> {
        Self::find_among(storage, text, true)
    }

    fn find_among(
        storage: &'s dyn SnapshotStorage,
        text: &str,
        takes_newest: bool,
    ) -> Result<Picked<'s>, ContainerError> {
        let unknown = || ContainerError::NoSuchHistory { id: text.to_owned() };
        let id: SnapshotId = text.parse().unwrap_or_else(|never| match never {});
        let mut all = Self::all(storage)?;
        let wanted = id.session.as_str();
        let is_id = |history: &Self| history.id() == wanted;
        let is_of_container = |history: &Self| {
            let container = history.container();
            container.name == wanted
                || (wanted.len() >= 12 && container.container_id.starts_with(wanted))
        };
        let begins = |history: &Self| !wanted.is_empty() && history.id().starts_with(wanted);
        let having = |is: &dyn Fn(&Self) -> bool| -> Vec<usize> {
            (0..all.len()).filter(|at| is(&all[*at])).collect()
        };
        let at = match (&having(&is_id)[..], &having(&is_of_container)[..], &having(&begins)[..]) {
            ([at], ..) | ([], [at], _) | ([], [], [at]) => *at,
            ([], several @ [_, _, ..], _) if takes_newest => {
                let mut newest = (None, several[0]);
                for at in several {
                    let taken = match all[*at].numbers()?.last() {
                        Some(number) => Some(all[*at].manifest(*number)?.timestamp),
                        None => None,
                    };
                    // A snapshot from the future was taken under a wrong clock.
                    let taken = taken.filter(|taken| *taken <= Timestamp::now());
                    if taken >= newest.0 {
                        newest = (taken, *at);
                    }
                }
                newest.1
            }
            ([], several @ [_, _, ..], _) => {
                let ids = several.iter().map(|at| all[*at].id()).collect();
                return Err(ContainerError::AmbiguousName { name: wanted.to_owned(), ids });
            }
            _ => return Err(unknown()),
        };
        let history = all.swap_remove(at);
        let number = match id.snapshot.as_deref() {
            None | Some("latest") => history.latest()?,
            Some(number) => {
                let number: u64 = number.parse().map_err(|_| unknown())?;
                if !history.numbers()?.contains(&number) {
                    return Err(match history.manifest(number) {
                        Err(removed) if removed.is_removal() => removed,
                        _ => unknown(),
                    });
                }
                number
            }
        };
        Ok(Picked { history, number, is_named: id.snapshot.is_some() })
    }

    /// Its id.
    pub fn id(&self) -> String {
        self.facts.id.clone()
    }

    /// Where it lies.
    pub fn storage(&self) -> &'s dyn SnapshotStorage {
        self.storage
    }

    /// Its objects.
    pub fn objects(&self) -> &dyn FileSource {
        &*self.objects
    }

    /// Whether the user keeps it from every limit.
    pub fn is_pinned(&self) -> bool {
        self.facts.is_pinned
    }

    /// Its container, when the history was opened.
    pub fn container(&self) -> &ContainerSession {
        &self.facts.container
    }

    /// Numbers of the snapshots that it holds, ascending.
    ///
    /// # Errors
    /// When the history cannot be read.
    pub fn numbers(&self) -> Result<Vec<u64>, ContainerError> {
        self.storage.numbers(&self.facts.id)
    }

    /// The newest snapshot that the user asked for; without one, the newest.
    ///
    /// # Errors
    /// When the history cannot be read, or holds none.
    pub fn latest(&self) -> Result<u64, ContainerError> {
        let numbers = self.numbers()?;
        let is_asked_for = |number: &&u64| {
            let record = self.record(**number);
            record.map_or(true, |record| record.trigger != Trigger::BeforeRestore)
        };
        let last = numbers.iter().rev().find(is_asked_for).or(numbers.last());
        last.copied().ok_or_else(|| ContainerError::NoSuchHistory { id: self.id() })
    }

    /// The manifest of a snapshot.
    ///
    /// # Errors
    /// When it is damaged or was removed.
    pub fn manifest(&self, number: u64) -> Result<SnapshotManifest, ContainerError> {
        self.storage.manifest(&self.facts.id, number)
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
        let bytes = self.objects.read(&hash, size)?;
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
        let tree = read_tree(self.objects(), &tree)?;
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
    /// [`ContainerError::NoSuchPart`] where the caller did not ask for them, or a damaged object.
    pub fn changes(&self, number: u64) -> Result<ContentHash, ContainerError> {
        match self.root_entry(number, CHANGES_PATH)? {
            (_, Node::Directory { tree }) => Ok(tree),
            _ => Err(self.no_part(number, "changed files".to_owned())),
        }
    }

    fn root_entry(&self, number: u64, path: &str) -> Result<(Attributes, Node), ContainerError> {
        let manifest = self.manifest(number)?;
        let root = read_root_tree(self.objects(), &manifest.merkle_root)?;
        let entry = root.entries.into_iter().find(|entry| *entry.path == *path.as_bytes());
        match entry {
            Some(entry) => Ok((entry.attributes, entry.node)),
            None => Err(self.no_part(number, path.to_owned())),
        }
    }

    fn no_part(&self, number: u64, part: String) -> ContainerError {
        ContainerError::NoSuchPart { session: self.id(), number, part }
    }

    /// Notes a restoration in the facts of the container, durably.
    ///
    /// # Errors
    /// When they cannot be written; they are then as they were.
    pub fn note_restoration(&self, done: Restoration) -> Result<(), ContainerError> {
        let note =
            &mut |container: &mut ContainerSession| container.restorations.push(done.clone());
        self.storage.update(&self.facts.id, note)
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
