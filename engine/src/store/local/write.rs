//! Giving objects their names, and taking them away.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;

use super::{LocalStore, OBJECT_MODE, relative_name};
use crate::object::ContentHash;
use crate::store::{ImportError, ObjectStore, StoreError, StoreLock, Transfer, import};
use crate::sys::{self, FileKind, IoContext, Stat, TempFile};

impl LocalStore {
    /// Stores bytes in a file of their own. `false` when there was one.
    pub(in crate::store) fn write_own(
        &self,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<bool, StoreError> {
        let temp = TempFile::new(&self.dir, OBJECT_MODE)?;
        io::Write::write_all(&mut temp.file(), bytes).at("write an object in", self.dir.path())?;
        self.adopt(&temp, hash, bytes.len() as u64)
    }

    /// Makes sure that the object `hash` is stored intact, reading it, and storing it again from
    /// `file` when it is missing or damaged. `Ok(false)` when the file has other bytes.
    ///
    /// # Errors
    /// When the file cannot be read or the store cannot be written, or [`StoreError::Cancelled`].
    pub fn keep(
        &self,
        hash: &ContentHash,
        file: &File,
        stat: &Stat,
        transfer: &mut Transfer<'_>,
    ) -> Result<bool, StoreError> {
        if !self.has_bytes_of(hash, file, stat, transfer)? {
            return Ok(false);
        }
        match self.check_intact(hash, stat, transfer) {
            Ok(()) => return Ok(true),
            Err(StoreError::Missing { .. }) => {}
            Err(error) if error.is_damage() => {
                self.set_aside(hash)?;
            }
            Err(error) => return Err(error),
        }
        tracing::warn!(object = %hash, "stored again an object that was missing or damaged");
        match self.import(file, stat.size, stat.is_sparse(), transfer) {
            Ok(imported) => Ok(imported.hash == *hash),
            Err(ImportError::Store(error)) => Err(error),
            Err(ImportError::Source(source)) => {
                let path = self.path().to_owned();
                Err(sys::Error { operation: "read again", path, source }.into())
            }
        }
    }

    /// Whether the object `hash` is stored intact and `file` has its bytes. Reads both, writes
    /// nothing.
    ///
    /// # Errors
    /// When one of them cannot be read, or [`StoreError::Cancelled`].
    pub(crate) fn holds(
        &self,
        hash: &ContentHash,
        file: &File,
        stat: &Stat,
        transfer: &mut Transfer<'_>,
    ) -> Result<bool, StoreError> {
        if !self.has_bytes_of(hash, file, stat, transfer)? {
            return Ok(false);
        }
        match self.check_intact(hash, stat, transfer) {
            Ok(()) => Ok(true),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn has_bytes_of(
        &self,
        hash: &ContentHash,
        file: &File,
        stat: &Stat,
        transfer: &mut Transfer<'_>,
    ) -> Result<bool, StoreError> {
        let found = import::hash_object(file, stat.size, stat.is_sparse(), transfer)
            .map_err(|error| error.at("read again", self.path()))?;
        Ok(found.is(hash, stat.size))
    }

    fn check_intact(
        &self,
        hash: &ContentHash,
        stat: &Stat,
        transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError> {
        self.open_object(hash).and_then(|object| match object.size() == stat.size {
            true => object.verify(transfer),
            // Not read, however long it claims to be.
            false => Err(object.corrupt()),
        })
    }

    /// Gives a complete temporary file its name. `false` when the object was there already.
    pub(in crate::store) fn adopt(
        &self,
        temp: &TempFile<'_>,
        hash: &ContentHash,
        size: u64,
    ) -> Result<bool, StoreError> {
        let name = relative_name(hash);
        self.note_addition(hash);
        self.ensure_prefix(hash)?;
        self.own.add(hash);
        let is_new = match temp.persist(&self.dir, &name) {
            // Another process took the directory away.
            Err(error) if error.is_gone() => {
                self.prefixes[usize::from(hash.as_bytes()[0])].store(false, Ordering::Relaxed);
                self.ensure_prefix(hash)?;
                temp.persist(&self.dir, &name)?
            }
            persisted => persisted?,
        };
        if is_new {
            return Ok(true);
        }
        if self.has_own(hash, size)? {
            return Ok(false);
        }
        // The file with the name is not the object: a power failure cut it short, or worse. The
        // right bytes are at hand, so they take its place.
        tracing::warn!(object = %hash, "replaced an object of the wrong length");
        self.dir.remove_file(&name)?;
        Ok(temp.persist(&self.dir, &name)?)
    }

    pub(in crate::store) fn ensure_prefix(&self, hash: &ContentHash) -> Result<(), StoreError> {
        let known = &self.prefixes[usize::from(hash.as_bytes()[0])];
        if !known.load(Ordering::Relaxed) {
            let prefix = hex::encode(&hash.as_bytes()[..1]);
            match self.dir.make_dir(prefix.as_bytes(), 0o700) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(error.into());
                }
                _ => known.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Whether an object has a file of its own.
    pub(super) fn has_own(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        let stat = self.dir.try_stat(&relative_name(hash))?;
        Ok(stat.is_some_and(|stat| stat.kind == FileKind::File && stat.size == size))
    }

    /// Removes the file of its own that an object has. Only the collector may, under the exclusive
    /// lock, unless the object is in a pack too.
    ///
    /// # Errors
    /// When it cannot be removed; one that is gone is fine.
    pub fn remove(&self, hash: &ContentHash, _lock: &StoreLock) -> Result<(), StoreError> {
        match self.dir.remove_file(&relative_name(hash)) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes temporary files that a crash left behind. Only under the exclusive lock: no process
    /// writes.
    ///
    /// # Errors
    /// When one cannot be removed.
    pub fn remove_temporary_files(&self, _lock: &StoreLock) -> Result<u64, StoreError> {
        let mut bytes = 0;
        for listed in self.dir.open_beneath(b"")?.names()? {
            let is_new_generation = listed.name.starts_with(b"..generation.new-");
            if is_new_generation || listed.name.starts_with(b".tmp-") {
                bytes += self.dir.stat(&listed.name)?.size;
                self.dir.remove_file(&listed.name)?;
            }
        }
        Ok(bytes)
    }
}
