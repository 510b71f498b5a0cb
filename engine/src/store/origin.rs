//! Objects that a store lacks and a place elsewhere has.
//!
//! A store may be the cache of a place from which objects come one by one, as a partial clone of
//! git is. A program names that place with [`set_origin`] for a root directory. From then on this
//! process asks it for each object that a [`LocalStore`] below that root does not have, and for the
//! manifests of a session before it looks into it. Always true:
//!
//! - Bytes of an origin come into the store only with the hash that was asked for.
//! - A store without an origin does no more work than before.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;

use super::local::OBJECT_MODE;
use super::{LocalStore, StoreError};
use crate::object::{ContentHash, Hasher};
use crate::sys::{self, TempFile};

/// A place that has objects and sessions which a store lacks.
pub trait Origin: Send + Sync {
    /// Puts an object into the store, with [`LocalStore::take`]. `false`: the place does not have
    /// it.
    ///
    /// # Errors
    /// Why it does not come, in words.
    fn fetch(&self, store: &LocalStore, hash: &ContentHash) -> Result<bool, OriginError>;

    /// Puts the manifests of a session into its directory, if the place has it. Called often.
    ///
    /// # Errors
    /// Why they do not come, in words.
    fn show(&self, session_id: &str) -> Result<(), OriginError>;
}

/// Why a place did not give what it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OriginError(pub String);

impl From<StoreError> for OriginError {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

/// Origins by the root directories of their stores.
static ORIGINS: LazyLock<RwLock<HashMap<PathBuf, Arc<dyn Origin>>>> =
    LazyLock::new(RwLock::default);
/// Whether there is any.
static HAS_ORIGINS: AtomicBool = AtomicBool::new(false);

/// Names the origin of the store in a root directory, for as long as this process lives.
///
/// # Errors
/// When the directory is not there.
pub fn set_origin(root: &Path, origin: Arc<dyn Origin>) -> sys::Result<()> {
    ORIGINS.write().insert(sys::real_path(root)?, origin);
    HAS_ORIGINS.store(true, Ordering::Release);
    Ok(())
}

/// The origin of the store in a root directory.
fn origin_of(root: &Path) -> Option<Arc<dyn Origin>> {
    if !HAS_ORIGINS.load(Ordering::Acquire) {
        return None;
    }
    let root = sys::real_path(root).ok()?;
    ORIGINS.read().get(&root).cloned()
}

/// Lets the origin of a store, if it has one, put the manifests of a session into its directory.
#[cfg(feature = "mount")]
pub(crate) fn show_session(session: &Path) {
    if !HAS_ORIGINS.load(Ordering::Acquire) {
        return;
    }
    let (Some(root), Some(id)) = (session.parent(), session.file_name().and_then(|it| it.to_str()))
    else {
        return;
    };
    if let Some(origin) = origin_of(root)
        && let Err(error) = origin.show(id)
    {
        tracing::error!("session {id}: {error}");
    }
}

impl LocalStore {
    /// Asks the origin of the store for an object. `false`: there is no origin, or it lacks it.
    pub(super) fn fetch(&self, hash: &ContentHash) -> Result<bool, StoreError> {
        if !HAS_ORIGINS.load(Ordering::Acquire) {
            return Ok(false);
        }
        // A session names its store by a link.
        let path = sys::real_path(self.path())?;
        let Some(origin) = path.parent().and_then(origin_of) else { return Ok(false) };
        let failed = |OriginError(reason)| StoreError::NotFetched { hash: *hash, reason };
        origin.fetch(self, hash).map_err(failed)
    }

    /// Stores what `fill` writes as the object `hash`, in a file of its own.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the bytes have another hash; nothing is stored then.
    /// [`StoreError::NotFetched`] when `fill` fails, or the disk is full.
    pub fn take(
        &self,
        hash: &ContentHash,
        fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let temp = TempFile::new(self.dir(), OBJECT_MODE)?;
        let mut hashed = Hashing { out: temp.file(), hasher: Hasher::new(), size: 0 };
        let failed =
            |error: io::Error| StoreError::NotFetched { hash: *hash, reason: error.to_string() };
        fill(&mut hashed).map_err(failed)?;
        let Hashing { hasher, size, .. } = hashed;
        if hasher.finish() != *hash {
            let reason = "the bytes that came for it have another hash".to_owned();
            return Err(StoreError::Corrupt { hash: *hash, path: self.path().to_owned(), reason });
        }
        self.adopt(&temp, hash, size)?;
        Ok(())
    }
}

/// Hashes and counts what goes into a file.
struct Hashing<'a> {
    out: &'a File,
    hasher: Hasher,
    size: u64,
}

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;
    use crate::layout;
    use crate::store::ObjectSource;

    /// Has one object, and gives these bytes for it.
    struct One(ContentHash, &'static [u8]);

    impl Origin for One {
        fn fetch(&self, store: &LocalStore, hash: &ContentHash) -> Result<bool, OriginError> {
            if *hash != self.0 {
                return Ok(false);
            }
            Ok(store.take(hash, &mut |out| out.write_all(self.1)).map(|()| true)?)
        }

        fn show(&self, _session_id: &str) -> Result<(), OriginError> {
            Ok(())
        }
    }

    fn store_of(origin: One) -> (tempfile::TempDir, LocalStore) {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join(layout::OBJECTS)).unwrap();
        set_origin(temp.path(), Arc::new(origin)).unwrap();
        (temp, store)
    }

    #[test]
    fn an_object_that_is_missing_comes_from_the_origin_and_stays() {
        let hash = ContentHash::of(b"far away");
        let (_temp, store) = store_of(One(hash, b"far away"));
        assert_eq!(store.read(&hash, 100).unwrap(), b"far away");
        assert!(store.object_path(&hash).exists());
        let other = store.read(&ContentHash::of(b"nowhere"), 100).unwrap_err();
        assert!(matches!(other, StoreError::Missing { .. }), "{other}");
    }

    #[test]
    fn bytes_with_another_hash_are_refused_and_not_stored() {
        let hash = ContentHash::of(b"far away");
        let (_temp, store) = store_of(One(hash, b"evil"));
        let error = store.read(&hash, 100).unwrap_err();
        assert!(matches!(error, StoreError::NotFetched { .. }), "{error}");
        assert!(!store.object_path(&hash).exists());
    }
}
