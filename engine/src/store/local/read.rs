//! Opening and reading objects, which may be in several places.

use std::fs::File;
use std::sync::Arc;

use rustix::io::Errno;

use super::{LocalStore, relative_name};
use crate::object::ContentHash;
use crate::store::chunks::Choice;
use crate::store::packs::{Kind, MAX_PACKED_BYTES, Pack, Span as PackSpan};
use crate::store::{ObjectFile, StoreError, Transfer, export};
use crate::sys::{Dir, FileKind};

impl LocalStore {
    /// Opens an object, which is fetched first where the store has an origin. Its bytes are not
    /// checked yet: see [`ObjectFile::verify`].
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::NotFetched`], or [`StoreError::Corrupt`] for what is
    /// not a regular file.
    pub fn open_object(&self, hash: &ContentHash) -> Result<ObjectFile, StoreError> {
        match self.open_here(hash) {
            Err(StoreError::Missing { .. }) if self.fetch(hash)? => self.open_here(hash),
            opened => opened,
        }
    }

    /// Opens an object that is on this disk.
    fn open_here(&self, hash: &ContentHash) -> Result<ObjectFile, StoreError> {
        self.note_look(&self.reading);
        if self.has_no_own(hash)
            && let Ok(object) = self.open_packed(hash)
        {
            return Ok(object);
        }
        match self.open_own(hash)? {
            Some(object) => Ok(object),
            None => self.open_packed(hash),
        }
    }

    /// Reads an intact copy of a part of a list of chunks, which is no list itself: a store may
    /// have lists that name each other.
    ///
    /// # Errors
    /// [`StoreError::Missing`] when there is none, or when the packs cannot be listed.
    pub(in crate::store) fn read_unlisted(
        &self,
        hash: &ContentHash,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let own = if self.has_no_own(hash) { None } else { self.open_own(hash).ok().flatten() };
        let known = self.packs.find(&self.dir, hash, true)?;
        let is_read = |object: ObjectFile, bytes: &mut Vec<u8>| {
            object.read_checked(MAX_PACKED_BYTES, bytes).is_ok()
        };
        let packed = |(pack, span): (Arc<Pack>, PackSpan)| {
            let is_whole = span.kind() == Kind::Whole;
            is_whole.then(|| ObjectFile::packed(pack, span, *hash))
        };
        if own.into_iter().chain(known.and_then(packed)).any(|object| is_read(object, &mut bytes)) {
            return Ok(bytes);
        }
        let all = self.packs.find_all(&self.dir, hash)?;
        if all.into_iter().filter_map(packed).any(|object| is_read(object, &mut bytes)) {
            return Ok(bytes);
        }
        Err(StoreError::Missing { hash: *hash, path: self.dir.path_of(&relative_name(hash)) })
    }

    /// Opens the file of its own that a chunk of so many bytes may have.
    pub(in crate::store) fn open_own_file(
        &self,
        hash: &ContentHash,
        size: u64,
    ) -> Result<Option<File>, StoreError> {
        let own = self.open_own(hash)?.filter(|object| object.size() == size);
        Ok(own.and_then(ObjectFile::into_file))
    }

    /// Opens the file of its own that an object may have.
    pub(in crate::store) fn open_own(
        &self,
        hash: &ContentHash,
    ) -> Result<Option<ObjectFile>, StoreError> {
        Self::open_file_of(hash, &self.dir, &relative_name(hash))
    }

    /// Opens a file that may be an object's.
    pub(in crate::store) fn open_file_of(
        hash: &ContentHash,
        dir: &Dir,
        name: &[u8],
    ) -> Result<Option<ObjectFile>, StoreError> {
        let path = dir.path_of(name);
        let file = match dir.open_file(name, true) {
            Ok(file) => file,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) if error.is_symlink_in_path() => {
                let reason = "a symlink stands in its place".to_owned();
                return Err(StoreError::Corrupt { hash: *hash, path, reason });
            }
            // A socket, or a device that there is not.
            Err(error) if error.errno() == Some(Errno::NXIO) => {
                let reason = "it is not a regular file".to_owned();
                return Err(StoreError::Corrupt { hash: *hash, path, reason });
            }
            Err(error) => return Err(error.into()),
        };
        let stat = dir.stat_file(&file, name)?;
        if stat.kind != FileKind::File {
            let reason = "it is not a regular file".to_owned();
            return Err(StoreError::Corrupt { hash: *hash, path, reason });
        }
        Ok(Some(ObjectFile::own(file, &stat, *hash, path)))
    }

    /// Opens the copy in a pack that an object may have behind a file of its own.
    ///
    /// # Errors
    /// [`StoreError::Missing`] also when there is no such file in front of it.
    pub(crate) fn open_behind(&self, hash: &ContentHash) -> Result<ObjectFile, StoreError> {
        let name = relative_name(hash);
        if self.dir.try_stat(&name)?.is_none() {
            return Err(StoreError::Missing { hash: *hash, path: self.dir.path_of(&name) });
        }
        self.open_packed(hash)
    }

    /// Opens the copy of an object that is in a pack.
    ///
    /// # Errors
    /// [`StoreError::Missing`] when there is none.
    pub(in crate::store) fn open_packed(
        &self,
        hash: &ContentHash,
    ) -> Result<ObjectFile, StoreError> {
        let Some((pack, span)) = self.packs.find(&self.dir, hash, true)? else {
            let path = self.dir.path_of(&relative_name(hash));
            return Err(StoreError::Missing { hash: *hash, path });
        };
        match self.open_in_pack(hash, pack.clone(), span, Choice::First) {
            // A list of lost chunks is no copy. A repair leaves it where it stores the object anew.
            Err(error) if error.is_damage() && self.is_without_chunks(hash, &pack, span)? => {
                let others = self.packs.find_all(&self.dir, hash)?.into_iter();
                let open = |(pack, span)| self.open_in_pack(hash, pack, span, Choice::First).ok();
                others.filter_map(open).next().ok_or(error)
            }
            opened => opened,
        }
    }

    /// Whether an object is here as a list alone that names chunks that are lost.
    ///
    /// # Errors
    /// When the packs cannot be read.
    pub fn is_list_without_chunks(&self, hash: &ContentHash) -> Result<bool, StoreError> {
        match self.packs.find(&self.dir, hash, true)? {
            Some((pack, span)) => self.is_without_chunks(hash, &pack, span),
            None => Ok(false),
        }
    }

    /// Opens what a pack has under the name of an object.
    fn open_in_pack(
        &self,
        hash: &ContentHash,
        pack: Arc<Pack>,
        span: PackSpan,
        choice: Choice,
    ) -> Result<ObjectFile, StoreError> {
        match span.kind() {
            Kind::Whole => Ok(ObjectFile::packed(pack, span, *hash)),
            Kind::ChunkList => {
                let file = self.open_chunked(hash, &pack, span, choice)?;
                Ok(ObjectFile::chunked(file, *hash, pack.path().to_owned()))
            }
        }
    }

    /// As [`read`](crate::store::ObjectSource::read), into a buffer that is used again and again.
    pub fn read_into(
        &self,
        hash: &ContentHash,
        max_bytes: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        match self.open_object(hash).and_then(|object| object.read_checked(max_bytes, buffer)) {
            Err(error) if error.is_damage() || error.is_bad_disk() => {
                self.read_any_intact(hash, max_bytes, buffer).map_err(|_| error)
            }
            read => read,
        }
    }

    /// As [`read`](crate::store::ObjectSource::read), but of several copies only the one that is
    /// found first: to prove that it is sound.
    ///
    /// # Errors
    /// As [`read`](crate::store::ObjectSource::read).
    pub(crate) fn read_first_found(
        &self,
        hash: &ContentHash,
        max_bytes: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let mut read =
            || self.open_object(hash).and_then(|object| object.read_checked(max_bytes, &mut bytes));
        match read() {
            // It may have been stored anew, by a process that this one knows nothing of.
            Err(error) if error.is_damage() && self.forget_own() => read()?,
            first => first?,
        }
        Ok(bytes)
    }

    /// All copies of an object, in the order in which they are asked for it: it may have been
    /// stored anew, by a process that this one knows nothing of, or be in several packs. Lists are
    /// opened with intact chunks, each from wherever there is one.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    pub fn copies(
        &self,
        hash: &ContentHash,
    ) -> Result<impl Iterator<Item = ObjectFile> + '_, StoreError> {
        self.forget_own();
        let own = self.open_own(hash).ok().flatten();
        let (packed, hash) = (self.packs.find_all(&self.dir, hash)?, *hash);
        let packed = packed.into_iter();
        let packed = packed.filter_map(move |(pack, span)| {
            self.open_in_pack(&hash, pack, span, Choice::Intact).ok()
        });
        Ok(own.into_iter().chain(packed))
    }

    /// Reads the first copy of an object that is intact.
    ///
    /// # Errors
    /// [`StoreError::Missing`] when none is or can be read, or when the packs cannot be listed.
    pub(in crate::store) fn read_any_intact(
        &self,
        hash: &ContentHash,
        max_bytes: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let is_read = |copy: ObjectFile| copy.read_checked(max_bytes, buffer).is_ok();
        if self.copies(hash)?.any(is_read) {
            return Ok(());
        }
        Err(StoreError::Missing { hash: *hash, path: self.dir.path_of(&relative_name(hash)) })
    }

    /// Opens an object of `size` bytes after all of them were checked; where there are several
    /// copies, an intact one. A copy of another length is not read: it may claim one that cannot be
    /// read to the end.
    ///
    /// # Errors
    /// The defect of the copy that is found first, if none is intact;
    /// [`StoreError::Cancelled`].
    pub fn open_intact(
        &self,
        hash: &ContentHash,
        size: u64,
        transfer: &mut Transfer<'_>,
    ) -> Result<ObjectFile, StoreError> {
        let mut verified = |object: ObjectFile| {
            object.check_size(size)?;
            object.verify(transfer)?;
            Ok(object)
        };
        let damage = match self.open_object(hash).and_then(&mut verified) {
            Err(error) if error.is_damage() || error.is_bad_disk() => error,
            opened => return opened,
        };
        // Also the first again: it may have been stored anew meanwhile.
        for copy in self.copies(hash)? {
            match verified(copy) {
                Err(error) if error.is_damage() || error.is_bad_disk() => {}
                opened => return opened,
            }
        }
        Err(damage)
    }

    /// Fills the empty file `target` with an object of `size` bytes. Every byte is checked before
    /// this returns; holes stay holes, and blocks are shared where the file system can.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Corrupt`], a disk that is full, or
    /// [`StoreError::Cancelled`].
    pub fn export(
        &self,
        hash: &ContentHash,
        size: u64,
        target: &File,
        transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError> {
        export::export(self, hash, size, target, transfer)
    }
}
