//! Damaged objects out of the way, and good copies in their place.
//!
//! A damaged object is moved, never deleted: a user may still want to look at it, or at its disk.
//!
//! ```text
//! objects/quarantine/                 0700
//!   <hash>-<16 hexadecimal digits>    what was found under the name of the object <hash>
//!   pack-<name>-<16 digits>           a pack that lost its end or its index, after what is intact in it was
//!                                     copied; no cleanup removes it
//! ```
//!
//! Nothing reads these files as objects. Only a repair looks whether one is intact after all, or
//! has something in it that is: a disk that did not give its bytes may give them now. A copy that
//! takes the place of an object is hashed *while* it is copied into a file without a name, so that
//! neither its source nor the place that it came from has to be trusted; only then does it get the
//! name.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use super::import::{copy_object_to_temp, copy_to_temp};
use super::listing::FoundObject;
use super::local::{LocalStore, OBJECT_MODE, relative_name};
use super::packs::{Kind, Pack, Span};
use super::{ImportError, ObjectFile, StoreError, StoreLock, Transfer};
use crate::layout;
use crate::object::ContentHash;
use crate::path_text::to_path;
use crate::sys::{Dir, IoContext, Stat, TempFile, stat_open_file};

const HASH_DIGITS: usize = 64;

/// The outcome for an offered copy of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offered {
    /// It is the object, and has its name now. What was damaged of it before is at these paths.
    Taken(Vec<PathBuf>),
    /// It has other bytes.
    Refused,
}

/// A file in quarantine.
#[derive(Debug, Clone)]
pub struct Quarantined {
    /// The object whose name it had, its length, and since when it is in quarantine.
    pub object: FoundObject,
    name: Box<[u8]>,
}

impl LocalStore {
    /// Moves whatever has the name of an object into quarantine, and says where it is now. None:
    /// nothing has the name. Out of a pack it is copied, and hidden until `purge_packs` takes it
    /// away. Of a long object with damaged chunks, these go, and the list stays. A writer must not
    /// be at work, because it may count on the object: hold the store's lock exclusively, and begin
    /// a new generation before.
    ///
    /// # Errors
    /// When it cannot be moved; it is then where it was.
    pub fn quarantine(
        &self,
        hash: &ContentHash,
        _lock: &StoreLock,
    ) -> Result<Vec<PathBuf>, StoreError> {
        self.set_aside(hash)
    }

    pub(super) fn set_aside(&self, hash: &ContentHash) -> Result<Vec<PathBuf>, StoreError> {
        self.forget_own();
        if let Some(path) = self.move_aside(hash)? {
            return Ok(vec![path]);
        }
        let (pack, span) = match self.packs().find(self.dir(), hash, true) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Vec::new()),
            // Its place is unknown.
            Err(error) if error.is_damage() => {
                self.packs().drop_object(None, hash);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let mut aside = Vec::new();
        if span.kind() == Kind::ChunkList {
            if let Some(chunks) = self.set_chunks_aside(hash, &pack, span)? {
                return Ok(chunks);
            }
            aside = self.set_parts_aside(hash, &pack, span)?;
        }
        aside.push(self.copy_aside(hash, &pack, span)?);
        Ok(aside)
    }

    /// Moves the file of its own that an object may have.
    pub(super) fn move_aside(&self, hash: &ContentHash) -> Result<Option<PathBuf>, StoreError> {
        let name = relative_name(hash);
        if self.dir().try_stat(&name)?.is_none() {
            return Ok(None);
        }
        let (quarantine, aside) = (self.make_quarantine()?, name_aside(hash)?);
        self.dir().rename_new(&name, &quarantine, &aside)?;
        Ok(Some(quarantine.path_of(&aside)))
    }

    /// Copies an object out of a pack, where its neighbours stay, and hides it there.
    pub(super) fn copy_aside(
        &self,
        hash: &ContentHash,
        pack: &Pack,
        span: Span,
    ) -> Result<PathBuf, StoreError> {
        let mut bytes = Vec::new();
        match pack.read(span, &mut bytes) {
            Err(error) if error.is_bad_disk() => bytes.clear(),
            read => read?,
        }
        let (quarantine, aside) = (self.make_quarantine()?, name_aside(hash)?);
        let file = quarantine.create_file(&aside, OBJECT_MODE)?;
        let path = quarantine.path_of(&aside);
        (&file).write_all(&bytes).at("write", &path)?;
        self.packs().drop_object(Some(pack), hash);
        Ok(path)
    }

    pub(super) fn make_quarantine(&self) -> Result<Dir, StoreError> {
        match self.dir().make_dir(layout::QUARANTINE.as_bytes(), 0o700) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => {}
        }
        Ok(self.dir().open_dir(layout::QUARANTINE.as_bytes())?)
    }

    /// Offers an open file as a copy of an object. For the lock see
    /// [`quarantine`](Self::quarantine).
    ///
    /// # Errors
    /// Tells a source that cannot be read from a store that cannot be written;
    /// [`StoreError::Cancelled`] when it was stopped.
    pub fn offer_file(
        &self,
        hash: &ContentHash,
        source: &File,
        stat: &Stat,
        transfer: &mut Transfer<'_>,
        _lock: &StoreLock,
    ) -> Result<Offered, ImportError> {
        let (temp, found) = copy_to_temp(self, source, stat.size, stat.is_sparse(), transfer)?;
        if found.hash != *hash {
            return Ok(Offered::Refused);
        }
        Ok(self.put_in_place(hash, &temp)?)
    }

    /// Offers an object of another store. For the lock see [`quarantine`](Self::quarantine).
    ///
    /// # Errors
    /// As [`offer_file`](Self::offer_file).
    pub(crate) fn offer_object(
        &self,
        object: &ObjectFile,
        transfer: &mut Transfer<'_>,
        lock: &StoreLock,
    ) -> Result<Offered, ImportError> {
        if object.is_chunked() {
            let (temp, found) = copy_object_to_temp(self, object, transfer)?;
            return match found.is(&object.hash(), object.size()) {
                true => Ok(self.put_in_place(&object.hash(), &temp)?),
                false => Ok(Offered::Refused),
            };
        }
        match object.file() {
            Some(file) => {
                let stat = stat_open_file(file, object.path())?;
                self.offer_file(&object.hash(), file, &stat, transfer, lock)
            }
            None => {
                object.read_whole(transfer.buffer)?;
                Ok(self.offer_bytes(&object.hash(), transfer.buffer, lock)?)
            }
        }
    }

    /// Offers bytes as an object. For the lock see [`quarantine`](Self::quarantine).
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn offer_bytes(
        &self,
        hash: &ContentHash,
        bytes: &[u8],
        _lock: &StoreLock,
    ) -> Result<Offered, StoreError> {
        if ContentHash::of(bytes) != *hash {
            return Ok(Offered::Refused);
        }
        let temp = TempFile::new(self.dir(), OBJECT_MODE)?;
        temp.file().write_all(bytes).at("write an object in", self.path())?;
        self.put_in_place(hash, &temp)
    }

    fn put_in_place(&self, hash: &ContentHash, temp: &TempFile<'_>) -> Result<Offered, StoreError> {
        let aside = self.set_aside(hash)?;
        self.ensure_prefix(hash)?;
        self.forget_own();
        let name = relative_name(hash);
        if temp.persist(self.dir(), &name)? {
            return Ok(Offered::Taken(aside));
        }
        // Only a process without the lock can have taken the name in between.
        let path = self.object_path(hash);
        let reason = "another process put something in its place".to_owned();
        Err(StoreError::Corrupt { hash: *hash, path, reason })
    }

    /// Everything in quarantine. Files with another form of name are left out.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn quarantined(&self) -> Result<Vec<Quarantined>, StoreError> {
        let Some(dir) = self.quarantine_dir()? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for listed in dir.names()? {
            let digits = listed.name.get(..HASH_DIGITS).map(std::str::from_utf8);
            let Some(Ok(Ok(hash))) = digits.map(|text| text.map(str::parse::<ContentHash>)) else {
                continue;
            };
            let stat = dir.stat(&listed.name)?;
            let object = FoundObject {
                hash,
                size: stat.stored_bytes(),
                plain_bytes: stat.size,
                stored_at: stat.ctime,
            };
            found.push(Quarantined { object, name: listed.name });
        }
        Ok(found)
    }

    /// Opens a file in quarantine as what its name says that it was. Only its hash tells whether it
    /// is.
    ///
    /// # Errors
    /// As [`open_object`](Self::open_object).
    pub(crate) fn open_quarantined(
        &self,
        Quarantined { object, name }: &Quarantined,
    ) -> Result<ObjectFile, StoreError> {
        let found = match self.quarantine_dir()? {
            Some(dir) => Self::open_file_of(&object.hash, &dir, name)?,
            None => None,
        };
        let path = || self.quarantine_path().join(to_path(name));
        found.ok_or_else(|| StoreError::Missing { hash: object.hash, path: path() })
    }

    /// Removes a file from quarantine. Only the collector may, under the exclusive lock.
    ///
    /// # Errors
    /// When it cannot be removed; one that is gone is fine.
    pub fn remove_quarantined(
        &self,
        quarantined: &Quarantined,
        _lock: &StoreLock,
    ) -> Result<(), StoreError> {
        let Some(dir) = self.quarantine_dir()? else { return Ok(()) };
        let removed = match dir.stat(&quarantined.name).map(|stat| stat.kind) {
            Ok(crate::sys::FileKind::Directory) => dir.remove_dir_all(&quarantined.name),
            Ok(_) => dir.remove_file(&quarantined.name),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Where damaged objects are put.
    pub fn quarantine_path(&self) -> PathBuf {
        self.path().join(layout::QUARANTINE)
    }

    pub(super) fn quarantine_dir(&self) -> Result<Option<Dir>, StoreError> {
        match self.dir().open_dir(layout::QUARANTINE.as_bytes()) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A name in quarantine that nothing has.
fn name_aside(hash: &ContentHash) -> Result<Vec<u8>, StoreError> {
    let random = hex::encode(&crate::sys::random_bytes()?[..8]);
    Ok(format!("{hash}-{random}").into_bytes())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;
    use crate::store::{ObjectSource, ObjectStore};

    #[test]
    fn only_the_right_bytes_take_the_place_of_a_damaged_object_and_it_is_kept() {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        let lock = store.lock_exclusive().unwrap();
        let hash = store.write(b"good").unwrap().hash;
        let path = store.object_path(&hash);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"baad").unwrap();
        let offer = |bytes: &[u8]| {
            let from = temp.path().join("copy");
            std::fs::write(&from, bytes).unwrap();
            let file = File::open(&from).unwrap();
            let stat = stat_open_file(&file, &from).unwrap();
            store
                .offer_file(&hash, &file, &stat, &mut Transfer::unwatched(&mut Vec::new()), &lock)
                .unwrap()
        };
        assert_eq!(offer(b"evil"), Offered::Refused);
        assert_eq!(std::fs::read(&path).unwrap(), b"baad");
        assert_eq!(store.offer_bytes(&hash, b"evil", &lock).unwrap(), Offered::Refused);
        let Offered::Taken(aside) = offer(b"good") else { panic!() };
        let [aside] = &aside[..] else { panic!("{aside:?}") };
        assert_eq!(std::fs::read(aside).unwrap(), b"baad");
        assert_eq!(store.read(&hash, 4).unwrap(), b"good");
        let found = store.quarantined().unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].object.hash, hash);
        store.remove_quarantined(&found[0], &lock).unwrap();
        assert!(!aside.exists());
    }

    #[test]
    fn a_directory_in_the_place_of_an_object_is_set_aside_too() {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        let lock = store.lock_exclusive().unwrap();
        let hash = ContentHash::of(b"x");
        std::fs::create_dir_all(store.object_path(&hash).join("inside")).unwrap();
        let Offered::Taken(aside) = store.offer_bytes(&hash, b"x", &lock).unwrap() else {
            panic!()
        };
        assert_eq!(aside.len(), 1);
        assert_eq!(store.read(&hash, 1).unwrap(), b"x");
        store.remove_quarantined(&store.quarantined().unwrap()[0], &lock).unwrap();
        assert!(store.quarantined().unwrap().is_empty());
    }
}
