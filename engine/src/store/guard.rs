//! The right to rely on the contents of the store: its lock, and its generation.
//!
//! A writer holds the lock shared from the first object that it stores or finds until a manifest
//! names them. A remover of objects holds it exclusively, and begins a new generation first, so
//! that no cache vouches for removed objects.

use std::io;
use std::path::Path;

use super::{LocalStore, StoreError};
use crate::sys::{self, Dir, FileLock};

const LOCK_NAME: &str = ".lock";
const GENERATION_NAME: &[u8] = b".generation";
const FORMAT_NAME: &[u8] = b".format";
/// The version of everything in a store that another program would misread.
const FORMAT: u32 = 1;
/// A longer file is no number of a format.
const MAX_FORMAT_BYTES: u64 = 11;

/// The store's lock, released when dropped.
#[derive(Debug)]
pub struct StoreLock {
    _lock: FileLock,
}

/// The lock of a reader, if there could be one.
#[derive(Debug)]
pub struct ReadLock(Option<StoreLock>);

impl ReadLock {
    /// The lock.
    pub fn lock(self) -> Option<StoreLock> {
        self.0
    }
}

impl LocalStore {
    /// Locks the store against the collector, for as long as a snapshot is written.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock_shared(&self) -> Result<StoreLock, StoreError> {
        self.locked(FileLock::shared(&self.path().join(LOCK_NAME))?)
    }

    /// The packs are listed anew, because some may have been removed before the lock was taken.
    fn locked(&self, lock: FileLock) -> Result<StoreLock, StoreError> {
        self.packs().refresh(self.dir())?;
        Ok(StoreLock { _lock: lock })
    }

    /// As [`lock_shared`](Self::lock_shared), without waiting. `None`: the collector is at work.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn try_lock_shared(&self) -> Result<Option<StoreLock>, StoreError> {
        let lock = FileLock::try_shared(&self.path().join(LOCK_NAME))?;
        lock.map(|lock| self.locked(lock)).transpose()
    }

    /// As [`try_lock_shared`](Self::try_lock_shared), for whoever only reads. Where the store
    /// cannot be written, the lock that is there is taken, or none. Without a lock the collector
    /// may remove what is being read. Nothing wrong is read then: every byte is hashed, and what is
    /// gone is missing by name.
    ///
    /// # Errors
    /// When the lock cannot be looked at for another reason.
    pub fn try_lock_for_reading(&self) -> Result<Option<ReadLock>, StoreError> {
        match self.try_lock_shared() {
            Ok(lock) => Ok(lock.map(|lock| ReadLock(Some(lock)))),
            Err(StoreError::Io(error)) if error.is_not_writable() => {
                tracing::info!("reading without a lock: {error}");
                self.packs().refresh(self.dir())?;
                Ok(Some(ReadLock(None)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether `path` is a directory of objects, made by this program or for it: empty, or with the
    /// files that a store has. Other programs have directories named `objects` too.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn is_store(path: &Path) -> Result<bool, StoreError> {
        let dir = match Dir::open(path) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for mark in [GENERATION_NAME, LOCK_NAME.as_bytes()] {
            if dir.try_stat(mark)?.is_some() {
                return Ok(true);
            }
        }
        Ok(dir.names()?.is_empty())
    }

    /// Locks the store against everybody who writes, waiting for them to end.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock_exclusive(&self) -> Result<StoreLock, StoreError> {
        self.locked(FileLock::exclusive(&self.path().join(LOCK_NAME))?)
    }

    /// As [`lock_exclusive`](Self::lock_exclusive), without waiting. `None`: a process writes.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn try_lock_exclusive(&self) -> Result<Option<StoreLock>, StoreError> {
        let lock = FileLock::try_exclusive(&self.path().join(LOCK_NAME))?;
        lock.map(|lock| self.locked(lock)).transpose()
    }

    /// Changes whenever objects may have been removed. Objects that a cache knows from another
    /// generation have to be looked up again.
    ///
    /// `None` before the first writer came, and while a pack is damaged: it is unknown what was in
    /// it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn generation(&self) -> Result<Option<[u8; 16]>, StoreError> {
        if self.packs().has_unreadable(self.dir())? {
            return Ok(None);
        }
        match self.dir().read(GENERATION_NAME, 16) {
            Ok(bytes) => Ok(bytes.try_into().ok()),
            Err(error) if error.is_gone() => Ok(None),
            // Another kind of file there guards nothing: as if there were none.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The generation, begun if there is none yet. For writers.
    ///
    /// # Errors
    /// When it can be neither read nor made.
    pub fn ensure_generation(&self) -> Result<[u8; 16], StoreError> {
        match self.generation()? {
            Some(generation) => Ok(generation),
            None => self.renew_generation(),
        }
    }

    /// Starts a new generation. The collector does so before it removes the first object.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn renew_generation(&self) -> Result<[u8; 16], StoreError> {
        if self.dir().try_stat(FORMAT_NAME)?.is_none() {
            let text = format!("{FORMAT}\n");
            self.dir().replace_file(FORMAT_NAME, text.as_bytes(), 0o600, true)?;
        }
        let generation = sys::random_bytes()?;
        self.dir().replace_file(GENERATION_NAME, &generation, 0o600, true)?;
        Ok(generation)
    }
}

/// Refuses a store that another version of the program began: one with a generation and another
/// format than this, or none.
///
/// # Errors
/// [`StoreError::NewerFormat`], [`StoreError::OtherFormat`], or a failed read.
pub(super) fn check_format(objects: &Dir) -> Result<(), StoreError> {
    let other = || Err(StoreError::OtherFormat { path: objects.path().to_owned() });
    match objects.read(FORMAT_NAME, MAX_FORMAT_BYTES) {
        Ok(text) => match format_in(&text) {
            Some(FORMAT) => Ok(()),
            Some(found) if found > FORMAT => {
                let path = objects.path().to_owned();
                Err(StoreError::NewerFormat { path, found, known: FORMAT })
            }
            _ => other(),
        },
        Err(error) if error.is_gone() => match objects.try_stat(GENERATION_NAME)? {
            None => Ok(()),
            Some(_) => other(),
        },
        // Longer than any, or no file.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge
            ) =>
        {
            other()
        }
        Err(error) => Err(error.into()),
    }
}

/// The number in the file of the format: digits and a newline, and nothing else.
fn format_in(text: &[u8]) -> Option<u32> {
    let digits = text.strip_suffix(b"\n")?;
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

impl LocalStore {
    /// Makes every stat cache invalid before objects go: by a new generation or, on a full disk, by
    /// none, which needs no space. The next writer begins one then.
    ///
    /// # Errors
    /// When neither is possible.
    pub fn outdate_generation(&self) -> Result<Option<[u8; 16]>, StoreError> {
        match self.renew_generation() {
            Ok(new) => Ok(Some(new)),
            Err(StoreError::Io(error)) if error.is_disk_full() => {
                match self.dir().remove_file(GENERATION_NAME) {
                    Err(error) if !error.is_gone() => Err(error.into()),
                    _ => {
                        self.dir().sync()?;
                        Ok(None)
                    }
                }
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generation_changes_only_when_it_is_renewed() {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        assert_eq!(store.generation().unwrap(), None);
        let first = store.ensure_generation().unwrap();
        assert_eq!(store.generation().unwrap(), Some(first));
        assert_eq!(store.ensure_generation().unwrap(), first);
        assert_ne!(store.renew_generation().unwrap(), first);
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
    fn a_store_of_another_format_is_refused_and_nothing_in_it_is_touched() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("objects");
        LocalStore::create(&path).unwrap().ensure_generation().unwrap();
        assert_eq!(std::fs::read(path.join(".format")).unwrap(), b"1\n");
        LocalStore::open(&path).unwrap();
        for (newer, number) in [(&b"2\n"[..], 2), (b"4294967295\n", u32::MAX)] {
            std::fs::write(path.join(".format"), newer).unwrap();
            let error = LocalStore::open(&path).unwrap_err();
            let StoreError::NewerFormat { found, known, .. } = &error else { panic!("{error}") };
            assert_eq!((*found, *known), (number, FORMAT));
            assert!(!error.is_damage());
            assert_eq!(std::fs::read(path.join(".format")).unwrap(), newer);
        }
        let refused = || {
            let error = LocalStore::open(&path).unwrap_err();
            assert!(matches!(&error, StoreError::OtherFormat { .. }), "{error}");
            assert!(!error.is_damage());
        };
        for other in
            [&b""[..], b"0\n", b"1", b"+1\n", b"1\nmore", b"4294967296\n", b"99999999999\n"]
        {
            std::fs::write(path.join(".format"), other).unwrap();
            refused();
        }
        std::fs::remove_file(path.join(".format")).unwrap();
        refused();
        // No writer was there yet.
        std::fs::remove_file(path.join(".generation")).unwrap();
        LocalStore::open(&path).unwrap();
    }
}
