//! The objects of several sessions as one source: a store may have sessions with objects of their
//! own.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use super::error::{Damaged, HistoryError};
use crate::object::ContentHash;
use crate::snapshot::SessionDir;
use crate::store::{FileSource, LocalStore, ObjectSource, StoreError, Transfer};
use crate::sys;

/// The objects of some sessions. Each directory of objects is opened once.
#[derive(Debug)]
pub struct Objects {
    stores: Vec<(PathBuf, LocalStore)>,
}

impl Objects {
    /// Opens the objects of all these sessions. Stores that cannot be opened are named.
    pub fn of(sessions: &[SessionDir]) -> (Self, Vec<Damaged>) {
        let (mut stores, mut damaged) = (Vec::<(PathBuf, LocalStore)>::new(), Vec::new());
        for session in sessions {
            let opened = sys::real_path(&session.objects_path())
                .map_err(HistoryError::from)
                .and_then(|path| {
                    if stores.iter().any(|(known, _)| *known == path) {
                        return Ok(None);
                    }
                    let store = LocalStore::open(&path)?;
                    Ok(Some((path, store)))
                });
            match opened {
                Ok(store) => stores.extend(store),
                // Removed since it was listed.
                Err(_) if session.is_gone() => {}
                Err(error) => damaged.push(Damaged { session_id: session.id(), error }),
            }
        }
        (Self { stores }, damaged)
    }
}

impl Objects {
    /// Asks one store after the other until one has the object.
    fn first<T>(
        &self,
        hash: &ContentHash,
        mut ask: impl FnMut(&LocalStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut missing = None;
        for (_, store) in &self.stores {
            match ask(store) {
                Err(error @ StoreError::Missing { .. }) => drop(missing.get_or_insert(error)),
                other => return other,
            }
        }
        let path = PathBuf::new();
        Err(missing.unwrap_or(StoreError::Missing { hash: *hash, path }))
    }
}

impl ObjectSource for Objects {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        self.first(hash, |store| store.read(hash, max_bytes))
    }
}

impl FileSource for Objects {
    fn export(
        &self,
        hash: &ContentHash,
        size: u64,
        target: &File,
        transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError> {
        self.first(hash, |store| store.export(hash, size, target, transfer))
    }

    fn open_checked(
        &self,
        hash: &ContentHash,
        size: u64,
        transfer: &mut Transfer<'_>,
    ) -> Result<Box<dyn Read>, StoreError> {
        self.first(hash, |store| store.open_checked(hash, size, transfer))
    }
}
