//! Objects on this machine's disk.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::account::Ledger;
use super::import;
use super::own::{MOST_OWN, OwnFiles, Patience};
use super::packs::Packs;
use super::{
    ImportError, Imported, ObjectFile, ObjectSource, ObjectStore, StoreError, StoreLock, Stored,
    Transfer, export,
};
use crate::object::ContentHash;
use crate::sys::{self, Dir, EarlyFlush, FileKind, IoContext, Stat, TempFile};

/// Mode of an object: nobody writes it, its owner reads it.
pub(super) const OBJECT_MODE: u16 = 0o400;

/// A directory of objects.
#[derive(Debug)]
pub struct LocalStore {
    dir: Dir,
    /// Fan-out directories that are known to exist.
    prefixes: Box<[AtomicBool; 256]>,
    packs: Packs,
    own: OwnFiles,
    ledger: Arc<Ledger>,
    reading: Patience,
}

impl LocalStore {
    /// Opens the objects below `path`, which must exist.
    ///
    /// # Errors
    /// When it is missing or not a directory.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let dir = Dir::open(path)?;
        let prefixes = Box::new([const { AtomicBool::new(false) }; 256]);
        Ok(Self {
            dir,
            prefixes,
            packs: Packs::default(),
            own: OwnFiles::default(),
            ledger: Arc::default(),
            reading: Patience::of_reading(),
        })
    }

    /// Opens the objects below `path`, making the directory when it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        sys::create_private_dir(path)?;
        Self::open(path)
    }

    /// Where the objects are.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn dir(&self) -> &Dir {
        &self.dir
    }

    pub(super) fn packs(&self) -> &Packs {
        &self.packs
    }

    /// Where an object is or would be: a file of its own, or a pack.
    pub fn object_path(&self, hash: &ContentHash) -> PathBuf {
        let name = relative_name(hash);
        let is_own = self.dir.try_stat(&name).is_ok_and(|stat| stat.is_some());
        let packed = if is_own { Ok(None) } else { self.packs.find(&self.dir, hash, false) };
        match packed {
            Ok(Some((pack, _))) => pack.path().to_owned(),
            _ => self.dir.path_of(&name),
        }
    }

    /// Makes everything stored so far durable, with one call.
    ///
    /// # Errors
    /// EIO when the kernel lost data.
    pub fn sync(&self) -> Result<(), StoreError> {
        Ok(self.dir.sync_file_system()?)
    }

    /// Does some work that writes to the store, flushing what is complete meanwhile.
    ///
    /// # Errors
    /// EIO when the kernel lost data.
    pub(crate) fn flush_during<T>(
        &self,
        work: impl FnOnce(&EarlyFlush) -> T,
    ) -> Result<T, StoreError> {
        Ok(EarlyFlush::during(&[&self.dir], work)?)
    }

    /// Opens an object. Its bytes are not checked yet: see [`ObjectFile::verify`].
    ///
    /// # Errors
    /// [`StoreError::Missing`], or [`StoreError::Corrupt`] for what is not a regular file.
    pub fn open_object(&self, hash: &ContentHash) -> Result<ObjectFile, StoreError> {
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

    /// Opens the file of its own that an object may have.
    fn open_own(&self, hash: &ContentHash) -> Result<Option<ObjectFile>, StoreError> {
        Self::open_file_of(hash, &self.dir, &relative_name(hash))
    }

    /// Opens a file that may be an object's.
    pub(super) fn open_file_of(
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

    /// Finds out where everything is, so that reading many objects costs one call for each that is
    /// packed. What others store meanwhile is found all the same, only later.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub(crate) fn expect_many_reads(&self) -> Result<(), StoreError> {
        if self.look_for_own(MOST_OWN)? {
            self.packs.index(&self.dir)?;
        }
        Ok(())
    }

    /// Finds out what has a file of its own; `false` when that is more than `most`.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub(crate) fn look_for_own(&self, most: usize) -> Result<bool, StoreError> {
        let mut own = HashSet::default();
        for prefix in 0..=u8::MAX {
            own.extend(self.own_with_prefix(prefix)?);
            if own.len() > most {
                return Ok(false);
            }
        }
        self.own.set(own);
        Ok(true)
    }

    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Somebody looks for an object: when that was often enough, finds out what has a file of its own.
    pub(super) fn note_look(&self, patience: &Patience) {
        if !self.own.are_known()
            && patience.is_over()
            && let Err(error) = self.look_for_own(patience.most_files)
        {
            tracing::debug!("each object is looked for: {error}");
        }
    }

    /// Forgets what has a file of its own: others may have stored some since, or some are about to go. Whether
    /// anything was known.
    pub(crate) fn forget_own(&self) -> bool {
        let was_known = self.own.forget();
        if was_known {
            self.reading.begin_again();
        }
        was_known
    }

    /// Whether it is known what has a file of its own.
    pub(super) fn knows_own(&self) -> bool {
        self.own.are_known()
    }

    /// Whether an object is known to have no file of its own.
    pub(crate) fn has_no_own(&self, hash: &ContentHash) -> bool {
        self.own.lacking()(hash)
    }

    /// As [`has_no_own`](Self::has_no_own), for many. While it lives, nobody can learn of others: it is not for
    /// long, nor while anything else is done with the store.
    pub(crate) fn having_no_own(&self) -> impl Fn(&ContentHash) -> bool + '_ {
        self.own.lacking()
    }

    fn open_packed(&self, hash: &ContentHash) -> Result<ObjectFile, StoreError> {
        let Some((pack, span)) = self.packs.find(&self.dir, hash, true)? else {
            let path = self.dir.path_of(&relative_name(hash));
            return Err(StoreError::Missing { hash: *hash, path });
        };
        Ok(ObjectFile::packed(pack, span, *hash))
    }

    /// Stores bytes in a file of their own. `false` when there was one.
    pub(super) fn write_own(&self, hash: &ContentHash, bytes: &[u8]) -> Result<bool, StoreError> {
        let temp = TempFile::new(&self.dir, OBJECT_MODE)?;
        io::Write::write_all(&mut temp.file(), bytes).at("write an object in", self.dir.path())?;
        self.adopt(&temp, hash, bytes.len() as u64)
    }

    /// As [`read`](ObjectSource::read), into a buffer that is used again and again.
    pub(crate) fn read_into(
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

    /// As [`read`](ObjectSource::read), but of several copies only the one that is found first: to prove that it
    /// is sound.
    ///
    /// # Errors
    /// As [`read`](ObjectSource::read).
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

    /// All copies of an object, in the order in which they are asked for it: it may have been stored anew, by a
    /// process that this one knows nothing of, or be in several packs.
    ///
    /// # Errors
    /// When the packs cannot be listed.
    fn copies(&self, hash: &ContentHash) -> Result<impl Iterator<Item = ObjectFile>, StoreError> {
        self.forget_own();
        let own = self.open_own(hash).ok().flatten();
        let (packed, hash) = (self.packs.find_all(&self.dir, hash)?, *hash);
        let packed =
            packed.into_iter().map(move |(pack, span)| ObjectFile::packed(pack, span, hash));
        Ok(own.into_iter().chain(packed))
    }

    /// Reads the first copy of an object that is intact.
    ///
    /// # Errors
    /// [`StoreError::Missing`] when none is or can be read, or when the packs cannot be listed.
    pub(super) fn read_any_intact(
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

    /// Opens an object after all its bytes were checked; where there are several copies, an intact one.
    ///
    /// # Errors
    /// What is wrong with the copy that is found first, if none is intact; [`StoreError::Cancelled`].
    pub(crate) fn open_intact(
        &self,
        hash: &ContentHash,
        transfer: &mut Transfer<'_>,
    ) -> Result<ObjectFile, StoreError> {
        let mut verified = |object: ObjectFile| {
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

    /// Fills the empty file `target` with an object of `size` bytes. Every byte is checked before this
    /// returns; holes stay holes, and blocks are shared where the file system can.
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
        let found = import::hash_object(file, stat.size, stat.is_sparse(), transfer)
            .map_err(|error| error.at("read again", self.path()))?;
        if !found.is(hash, stat.size) {
            return Ok(false);
        }
        let intact = self.open_object(hash).and_then(|object| match object.size() == stat.size {
            true => object.verify(transfer),
            // Not read, however long it claims to be.
            false => Err(object.corrupt()),
        });
        match intact {
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

    /// Gives a complete temporary file its name. `false` when the object was there already.
    pub(super) fn adopt(
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
            // Somebody took the directory away.
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
        // What has the name is not the object: it was cut short by a power failure, or worse. The
        // right bytes are at hand, so they take its place.
        tracing::warn!(object = %hash, "replaced an object of the wrong length");
        self.dir.remove_file(&name)?;
        Ok(temp.persist(&self.dir, &name)?)
    }

    pub(super) fn ensure_prefix(&self, hash: &ContentHash) -> Result<(), StoreError> {
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
    fn has_own(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        let stat = self.dir.try_stat(&relative_name(hash))?;
        Ok(stat.is_some_and(|stat| stat.kind == FileKind::File && stat.size == size))
    }

    /// Removes an object. Only the collector may, under the exclusive lock.
    ///
    /// # Errors
    /// When it cannot be removed; one that is gone is fine.
    pub fn remove(&self, hash: &ContentHash, _lock: &StoreLock) -> Result<(), StoreError> {
        match self.dir.remove_file(&relative_name(hash)) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes temporary files that a crash left behind. Only under the exclusive lock, when nobody writes.
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

impl ObjectSource for LocalStore {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        self.read_into(hash, max_bytes, &mut bytes)?;
        Ok(bytes)
    }
}

impl ObjectStore for LocalStore {
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError> {
        if !self.has_no_own(hash) && self.has_own(hash, size)? {
            self.note_found(hash);
            return Ok(true);
        }
        match self.packs.find(&self.dir, hash, false) {
            Ok(packed) => Ok(packed.is_some_and(|(_, span)| span.len() == size)),
            // What cannot be found cannot be counted on.
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError> {
        let hash = ContentHash::of(bytes);
        if self.contains(&hash, bytes.len() as u64)? {
            return Ok(Stored { hash, is_new: false });
        }
        let is_new = self.write_own(&hash, bytes)?;
        Ok(Stored { hash, is_new })
    }

    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError> {
        import::import(self, source, size, sparse, transfer)
    }
}

/// `ab/cd1234…`
pub(super) fn relative_name(hash: &ContentHash) -> [u8; 65] {
    let mut name = [b'/'; 65];
    let bytes = hash.as_bytes();
    // The slices have exactly twice the length of what is encoded, so this cannot fail.
    let _ = hex::encode_to_slice(&bytes[..1], &mut name[..2]);
    let _ = hex::encode_to_slice(&bytes[1..], &mut name[3..]);
    name
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk from outside")]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

    fn store() -> (tempfile::TempDir, LocalStore) {
        let temp = tempfile::tempdir().unwrap();
        let store = LocalStore::create(&temp.path().join("objects")).unwrap();
        (temp, store)
    }

    fn file_with(temp: &tempfile::TempDir, len: u64, writes: &[(u64, &[u8])]) -> File {
        let file = File::create_new(temp.path().join("source")).unwrap();
        file.set_len(len).unwrap();
        for (at, bytes) in writes {
            file.write_all_at(bytes, *at).unwrap();
        }
        File::open(temp.path().join("source")).unwrap()
    }

    /// Stops when it was asked so often.
    struct StopsWhenAsked {
        left: std::sync::atomic::AtomicU32,
    }

    impl StopsWhenAsked {
        fn after(times: u32) -> Self {
            Self { left: times.into() }
        }
    }

    impl crate::progress::Progress for StopsWhenAsked {
        fn advance(&self, _: u64, _: u64) {}

        fn is_cancelled(&self) -> bool {
            use std::sync::atomic::Ordering::Relaxed;
            self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
        }
    }

    #[test]
    fn a_cancel_while_a_damaged_object_is_looked_at_again_is_no_damage() {
        let (_temp, store) = store();
        let hash = store.write(&[7; 3 << 20]).unwrap().hash;
        let path = store.object_path(&hash);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        File::options().write(true).open(&path).unwrap().write_all_at(b"x", 5).unwrap();
        let watched = |times, look: &dyn Fn(&mut Transfer<'_>) -> Result<(), StoreError>| {
            look(&mut Transfer::new(&mut Vec::new(), &StopsWhenAsked::after(times)))
        };
        let look = |transfer: &mut Transfer<'_>| store.open_object(&hash)?.verify(transfer);
        let open = |transfer: &mut Transfer<'_>| store.open_intact(&hash, transfer).map(|_| ());
        let is_damage = |result| matches!(result, Err(StoreError::Corrupt { .. }));
        let once = (0..).find(|times| is_damage(watched(*times, &look))).unwrap();
        assert!(once > 0);
        for times in 0..2 * once {
            assert!(matches!(watched(times, &open), Err(StoreError::Cancelled)), "{times}");
        }
        assert!(is_damage(watched(2 * once, &open)));
    }

    #[test]
    fn an_object_is_stored_once_under_the_hash_of_its_bytes() {
        let (_temp, store) = store();
        let first = store.write(b"hello").unwrap();
        assert!(first.is_new);
        assert!(!store.write(b"hello").unwrap().is_new);
        let path = store.object_path(&first.hash);
        assert!(
            path.ends_with("2c/f24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
        );
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o400);
        assert_eq!(store.read(&first.hash, 5).unwrap(), b"hello");
    }

    #[test]
    fn a_changed_object_is_never_read() {
        let (_temp, store) = store();
        let hash = store.write(b"hello").unwrap().hash;
        let path = store.object_path(&hash);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"hellO").unwrap();
        assert!(matches!(store.read(&hash, 100), Err(StoreError::Corrupt { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(store.read(&hash, 100), Err(StoreError::Missing { .. })));
    }

    #[test]
    fn an_object_that_a_power_failure_cut_short_is_replaced() {
        let (_temp, store) = store();
        let hash = store.write(b"hello").unwrap().hash;
        let path = store.object_path(&hash);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"").unwrap();
        assert!(!store.contains(&hash, 5).unwrap());
        store.write(b"hello").unwrap();
        assert_eq!(store.read(&hash, 5).unwrap(), b"hello");
    }

    #[test]
    fn large_files_are_stored_with_their_holes() {
        let (temp, store) = store();
        let len = 64 << 20;
        let source = file_with(&temp, len, &[(5 << 20, b"middle"), (len - 3, b"end")]);
        let mut scratch = Vec::new();
        let imported =
            store.import(&source, len, true, &mut Transfer::unwatched(&mut scratch)).unwrap();
        assert_eq!(imported.size, len);
        let object = store.open_object(&imported.hash).unwrap();
        object.verify(&mut Transfer::unwatched(&mut scratch)).unwrap();
        let blocks = std::fs::metadata(object.path()).unwrap().blocks();
        assert!(blocks * 512 < 1 << 20, "{blocks} blocks are not sparse");
    }

    #[test]
    fn a_hole_at_the_end_counts() {
        let (temp, store) = store();
        let source = file_with(&temp, 3 << 20, &[(0, b"start")]);
        let imported = store
            .import(&source, 3 << 20, true, &mut Transfer::unwatched(&mut Vec::new()))
            .unwrap();
        assert_eq!(imported.size, 3 << 20);
        store
            .open_object(&imported.hash)
            .unwrap()
            .verify(&mut Transfer::unwatched(&mut Vec::new()))
            .unwrap();
    }

    #[test]
    fn a_file_that_shrank_is_stored_as_it_was_read() {
        let (temp, store) = store();
        let source = file_with(&temp, 1 << 20, &[(0, b"start")]);
        let imported = store
            .import(&source, 4 << 20, false, &mut Transfer::unwatched(&mut Vec::new()))
            .unwrap();
        assert_eq!(imported.size, 1 << 20);
        store
            .open_object(&imported.hash)
            .unwrap()
            .verify(&mut Transfer::unwatched(&mut Vec::new()))
            .unwrap();
    }

    #[test]
    fn a_sparse_file_that_shrank_is_stored_under_the_hash_of_what_is_stored() {
        let (temp, store) = store();
        let source = file_with(&temp, 1 << 20, &[(0, b"start")]);
        let imported = store
            .import(&source, 4 << 20, true, &mut Transfer::unwatched(&mut Vec::new()))
            .unwrap();
        let object = store.open_object(&imported.hash).unwrap();
        assert_eq!(object.size(), imported.size);
        object.verify(&mut Transfer::unwatched(&mut Vec::new())).unwrap();
    }
}
