//! The missing objects of a state: found from the Merkle root down, so that nothing is taken that
//! no tree names. Trees are few and held in memory; files are many and are not.

use std::collections::{HashMap, HashSet};

use super::missing::MissingFiles;
use crate::graph::{Kind, named_by};
use crate::{ArchiveError, Short};
use nono_engine::object::{ContentHash, Midstates};
use nono_engine::progress::Progress;
use nono_engine::store::{
    LocalStore, MAX_TREE_BYTES, ObjectSource, ObjectStore, StoreError, Transfer,
};

/// Objects that are missing, and all that were looked for.
#[derive(Debug, Default)]
pub(super) struct Needs {
    missing: HashMap<ContentHash, Kind>,
    files: MissingFiles,
    /// All objects but files.
    seen: HashSet<Short>,
    /// Midstates that a tree names → the file, and its length.
    midstates: HashMap<ContentHash, (ContentHash, u64)>,
    /// Files that the store has, and that nothing read.
    here: u64,
}

impl Needs {
    /// Looks for everything below a root, and notes what the store does not have.
    pub(super) fn need(
        &mut self,
        store: &LocalStore,
        root: ContentHash,
    ) -> Result<(), ArchiveError> {
        self.look(store, vec![(root, Kind::Root)])
    }

    fn look(
        &mut self,
        store: &LocalStore,
        mut pending: Vec<(ContentHash, Kind)>,
    ) -> Result<(), ArchiveError> {
        while let Some((hash, kind)) = pending.pop() {
            if let Kind::File(size) = kind {
                match store.contains(&hash, size)? {
                    true => self.here += 1,
                    false => self.files.insert(hash, size)?,
                }
                continue;
            }
            if !self.seen.insert(Short::of(&hash)) {
                continue;
            }
            match store.read(&hash, MAX_TREE_BYTES) {
                Ok(bytes) => pending.extend(self.below(kind, &hash, &bytes)?),
                Err(StoreError::Missing { .. }) => {
                    self.missing.insert(hash, kind);
                }
                Err(error) if error.is_damage() && store.is_list_without_chunks(&hash)? => {
                    self.missing.insert(hash, kind);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The objects that one names.
    fn below(
        &mut self,
        kind: Kind,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<Vec<(ContentHash, Kind)>, StoreError> {
        let mut found = Vec::new();
        for named in named_by(kind, hash, bytes)? {
            if let (Some(name), Kind::File(size)) = (named.midstates, named.kind) {
                self.midstates.insert(name, (named.hash, size));
            }
            found.push((named.hash, named.kind));
        }
        Ok(found)
    }

    /// How many files the store had, the same one as often as it was looked for.
    pub(super) fn here(&self) -> u64 {
        self.here
    }

    /// Whether an object is missing.
    pub(super) fn has(&self, hash: &ContentHash) -> Result<bool, ArchiveError> {
        Ok(self.missing.contains_key(hash) || self.files.get(hash)?.is_some())
    }

    /// Whether a file is missing. Refuses one of another length than its tree says.
    pub(super) fn has_file(&self, hash: &ContentHash, size: u64) -> Result<bool, ArchiveError> {
        match self.files.get(hash)? {
            None => Ok(false),
            Some(wanted) if wanted == size => Ok(true),
            Some(_) => {
                Err(ArchiveError::corrupt(format!("{hash} has another length than its tree says")))
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.files.is_empty()
    }

    pub(super) fn first(&self) -> Result<Option<ContentHash>, ArchiveError> {
        match self.missing.keys().next() {
            Some(hash) => Ok(Some(*hash)),
            None => self.files.first(),
        }
    }

    /// All objects of an archive but its files have come, and files will be looked for.
    pub(super) fn files_begin(&mut self) -> Result<(), ArchiveError> {
        self.files.merge()
    }

    /// A missing object has come, and its bytes have its hash.
    pub(super) fn came(
        &mut self,
        store: &LocalStore,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<(), ArchiveError> {
        if let Some(kind) = self.missing.get(hash).copied() {
            let below = self.below(kind, hash, bytes);
            let below = below.map_err(|error| ArchiveError::corrupt(error.to_string()))?;
            self.missing.remove(hash);
            self.look(store, below)?;
        }
        match self.has_file(hash, bytes.len() as u64)? {
            true => self.came_file(hash),
            false => Ok(()),
        }
    }

    pub(super) fn came_file(&mut self, hash: &ContentHash) -> Result<(), ArchiveError> {
        self.files.remove(hash)
    }

    /// Makes the midstates of long files that no archive brings: they follow from the contents.
    pub(super) fn make_midstates(
        &self,
        store: &LocalStore,
        progress: &dyn Progress,
    ) -> Result<(), ArchiveError> {
        let mut buffer = Vec::new();
        for (name, (hash, size)) in &self.midstates {
            if store.contains(name, Midstates::encoded_bytes(*size))? {
                continue;
            }
            let object = store.open_object(hash)?;
            object.check_size(*size)?;
            let mut transfer = Transfer::new(&mut buffer, progress);
            let made = object.verify_with_midstates(&mut transfer)?.map(|it| it.encode());
            let stored = made.map(|bytes| store.write(&bytes)).transpose()?;
            if stored.is_none_or(|stored| stored.hash != *name) {
                return Err(ArchiveError::corrupt(format!("the midstates of {hash} are others")));
            }
        }
        Ok(())
    }
}
