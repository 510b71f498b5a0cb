//! The objects of several sessions as one source: a store may have sessions with objects of their
//! own.

use std::path::PathBuf;

use super::error::{Damaged, HistoryError};
use crate::object::ContentHash;
use crate::snapshot::SessionDir;
use crate::store::{LocalStore, ObjectSource, StoreError};
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

impl ObjectSource for Objects {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let mut missing = None;
        for (_, store) in &self.stores {
            match store.read(hash, max_bytes) {
                Err(error @ StoreError::Missing { .. }) => drop(missing.get_or_insert(error)),
                other => return other,
            }
        }
        let path = PathBuf::new();
        Err(missing.unwrap_or(StoreError::Missing { hash: *hash, path }))
    }
}
