//! How the bytes of a file come into the store: each is read once.
//!
//! Small files are read into memory, hashed, and written only if the store does not have them.
//! Large ones are cloned first where the file system can share blocks, and the *clone* is hashed,
//! so that what is stored is what was hashed; elsewhere they are hashed while they are copied.
//! Holes stay holes.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::local::{LocalStore, OBJECT_MODE};
use super::transfer::{STEP_BYTES, Stopped};
use super::{ObjectFile, StoreError, Stored, Transfer};
use crate::object::{ContentHash, Midstates, PieceHasher};
use crate::sys::{self, IoContext, TempFile};

/// Files up to this many bytes are read whole. Above it, cloning blocks is cheaper than copying.
const SMALL_BYTES: u64 = 256 * 1024;

/// The stored contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Name of the object.
    pub hash: ContentHash,
    /// Length in bytes.
    pub size: u64,
    /// Whether the store did not have it.
    pub is_new: bool,
    /// Bytes of contents that the store did not have: of long ones, some may be new and some not.
    pub new_bytes: u64,
    /// The midstates of a long file. The store does not keep them: the caller that names them does.
    pub midstates: Option<Midstates>,
}

/// The hash of some bytes.
#[derive(Debug)]
pub(crate) struct Hashed {
    pub(crate) hash: ContentHash,
    /// How many there were.
    pub(crate) size: u64,
    /// How many of them are in no hole.
    pub(crate) data_bytes: u64,
    /// The midstates of contents of more than one piece.
    pub(crate) midstates: Option<Midstates>,
}

impl Hashed {
    /// Whether these were the bytes of an object.
    pub(crate) fn is(&self, hash: &ContentHash, size: u64) -> bool {
        self.hash == *hash && self.size == size
    }

    /// As what an import says of bytes that are stored.
    pub(super) fn imported(self, is_new: bool) -> Imported {
        let Self { hash, size, data_bytes, midstates } = self;
        let new_bytes = if is_new { data_bytes } else { 0 };
        Imported { hash, size, is_new, new_bytes, midstates }
    }
}

impl Imported {
    /// The import of a file that was stored at once.
    pub(super) fn small(stored: Stored, size: u64) -> Self {
        let Stored { hash, is_new } = stored;
        Hashed { hash, size, data_bytes: size, midstates: None }.imported(is_new)
    }
}

/// Why a file is not in the store.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file could not be read: a problem of this one file.
    #[error("{0}")]
    Source(#[source] io::Error),
    /// The store could not be written: a problem of the whole snapshot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sys::Error> for ImportError {
    fn from(error: sys::Error) -> Self {
        Self::Store(error.into())
    }
}

pub(super) fn import(
    store: &LocalStore,
    source: &File,
    size: u64,
    sparse: bool,
    transfer: &mut Transfer<'_>,
) -> Result<Imported, ImportError> {
    if size <= SMALL_BYTES {
        import_small(store, source, size, transfer)
    } else {
        import_large(store, source, size, sparse, transfer)
    }
}

fn import_small(
    store: &LocalStore,
    source: &File,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Imported, ImportError> {
    let bytes = transfer.read_small(source, size).map_err(ImportError::Source)?;
    let stored = super::ObjectStore::write(store, bytes)?;
    Ok(Imported::small(stored, bytes.len() as u64))
}

/// Stores a long file whose blocks the store can share. `None`: it cannot, or the file is short.
pub(super) fn import_cloned(
    store: &LocalStore,
    source: &File,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Option<Imported>, ImportError> {
    if size <= SMALL_BYTES {
        return Ok(None);
    }
    let mut temp = TempFile::new(store.dir(), OBJECT_MODE)?;
    let Some(hashed) = clone_to(&mut temp, store, source, transfer)? else { return Ok(None) };
    let is_new = store.adopt(&temp, &hashed.hash, hashed.size)?;
    Ok(Some(hashed.imported(is_new)))
}

fn import_large(
    store: &LocalStore,
    source: &File,
    size: u64,
    sparse: bool,
    transfer: &mut Transfer<'_>,
) -> Result<Imported, ImportError> {
    let (temp, copied) = copy_to_temp(store, source, size, sparse, transfer)?;
    let is_new = store.adopt(&temp, &copied.hash, copied.size)?;
    Ok(copied.imported(is_new))
}

/// Copies at most `size` bytes of a file into one without a name, and says what arrived there.
pub(super) fn copy_to_temp<'s>(
    store: &'s LocalStore,
    source: &File,
    size: u64,
    sparse: bool,
    transfer: &mut Transfer<'_>,
) -> Result<(TempFile<'s>, Hashed), ImportError> {
    let mut temp = TempFile::new(store.dir(), OBJECT_MODE)?;
    let copied = match clone_to(&mut temp, store, source, transfer)? {
        Some(cloned) => cloned,
        None => write_to(&temp, store, &OpenFile { file: source, sparse }, size, transfer)?,
    };
    Ok((temp, copied))
}

/// Copies an object of another store into a file without a name, and says what arrived there.
pub(super) fn copy_object_to_temp<'s>(
    store: &'s LocalStore,
    object: &ObjectFile,
    transfer: &mut Transfer<'_>,
) -> Result<(TempFile<'s>, Hashed), ImportError> {
    let temp = TempFile::new(store.dir(), OBJECT_MODE)?;
    let copied = write_to(&temp, store, object, object.size(), transfer)?;
    Ok((temp, copied))
}

/// `None`: blocks cannot be shared.
fn clone_to(
    temp: &mut TempFile<'_>,
    store: &LocalStore,
    source: &File,
    transfer: &mut Transfer<'_>,
) -> Result<Option<Hashed>, ImportError> {
    if !temp.clone_from_file(source)? {
        return Ok(None);
    }
    let len = temp.file().metadata().at("look at", store.dir().path())?.len();
    // Our own clone is read back: a failure is the store's, not the source's.
    let hashed = hash_object(temp.file(), len, true, transfer);
    Ok(Some(hashed.map_err(|error| error.at("read back from", store.dir().path()))?))
}

fn write_to(
    temp: &TempFile<'_>,
    store: &LocalStore,
    source: &impl Source,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, ImportError> {
    let path = store.dir().path();
    let failed = |source: io::Error| match source.kind() {
        // The file system of the project holds longer files than that of the store.
        io::ErrorKind::FileTooLarge => ImportError::Source(source),
        _ => sys::Error { operation: "write an object in", path: path.to_owned(), source }.into(),
    };
    let copied = hash_ranges(source, size, transfer, |offset, bytes| {
        temp.file().write_all_at(bytes, offset)
    });
    let copied = copied.map_err(|error| match error {
        RangeError::Read(error) => ImportError::Source(error),
        RangeError::Copy(error) => failed(error),
        RangeError::Stopped => StoreError::Cancelled.into(),
    })?;
    // A hole at the end is made by the length alone.
    temp.file().set_len(copied.size).map_err(failed)?;
    Ok(copied)
}

/// Contents that are read at any place.
pub(super) trait Source {
    /// Reads until the buffer is full or the contents end.
    ///
    /// # Errors
    /// As `pread`.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// As [`sys::allocated_ranges`].
    ///
    /// # Errors
    /// As those of `visit`.
    fn ranges<E: From<io::Error>>(
        &self,
        len: u64,
        visit: impl FnMut(u64, u64, bool) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// A file that may have holes.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFile<'a> {
    pub(super) file: &'a File,
    /// Whether holes are looked for.
    pub(super) sparse: bool,
}

impl Source for OpenFile<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        sys::read_full_at(self.file, buffer, offset)
    }

    fn ranges<E: From<io::Error>>(
        &self,
        len: u64,
        mut visit: impl FnMut(u64, u64, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.sparse {
            true => sys::allocated_ranges(self.file, len, visit),
            false => visit(0, len, true),
        }
    }
}

/// Which side of a copy failed: to take the one for the other would blame the wrong file.
pub(super) enum RangeError<C> {
    /// The file could not be read.
    Read(io::Error),
    /// The bytes were read and could not be handed on.
    Copy(C),
    /// The caller asked to stop.
    Stopped,
}

impl<C> From<io::Error> for RangeError<C> {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl<C> From<Stopped> for RangeError<C> {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

/// Why a file has no hash.
#[derive(Debug)]
pub(crate) enum HashError {
    /// It could not be read.
    Read(io::Error),
    /// The caller asked to stop.
    Stopped,
}

impl HashError {
    /// The error of a file that belongs to the store.
    pub(crate) fn at(self, operation: &'static str, path: &Path) -> StoreError {
        match self {
            Self::Read(source) => sys::Error { operation, path: path.to_owned(), source }.into(),
            Self::Stopped => StoreError::Cancelled,
        }
    }
}

impl From<HashError> for ImportError {
    fn from(error: HashError) -> Self {
        match error {
            HashError::Read(error) => Self::Source(error),
            HashError::Stopped => StoreError::Cancelled.into(),
        }
    }
}

/// Hashes at most `len` bytes, giving those that are data to `copy`, and says how many were hashed:
/// fewer when the file ends earlier. Holes count as the zeros that they read as.
///
/// # Errors
/// Also where the contents are so much shorter than `len` that they have another kind of name.
pub(super) fn hash_ranges<C>(
    source: &impl Source,
    len: u64,
    transfer: &mut Transfer<'_>,
    mut copy: impl FnMut(u64, &[u8]) -> Result<(), C>,
) -> Result<Hashed, RangeError<C>> {
    transfer.buffer.resize(STEP_BYTES, 0);
    let mut hasher = PieceHasher::new(len);
    let counts_holes = PieceHasher::counts_holes(len);
    let (mut hashed, mut data_bytes) = (0, 0);
    source.ranges(len, |offset, length, is_data| -> Result<(), RangeError<C>> {
        if offset != hashed {
            // The file ended early in the range before.
            return Ok(());
        }
        let end = offset + length;
        while hashed < end {
            if hashed > 0 {
                transfer.reached(hashed)?;
            }
            if !is_data && counts_holes {
                hasher.update_zeros(end - hashed);
                hashed = end;
                continue;
            }
            let step = (end - hashed).min(STEP_BYTES as u64) as usize;
            if !is_data {
                hasher.update_zeros(step as u64);
                hashed += step as u64;
                continue;
            }
            let bytes = &mut transfer.buffer[..step];
            let count = source.read_at(bytes, hashed)?;
            hasher.update(&bytes[..count]);
            copy(hashed, &bytes[..count]).map_err(RangeError::Copy)?;
            hashed += count as u64;
            data_bytes += count as u64;
            if count < step {
                break;
            }
        }
        Ok(())
    })?;
    if counts_holes != PieceHasher::counts_holes(hashed) {
        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "it was cut short meanwhile");
        return Err(RangeError::Read(error));
    }
    let (hash, midstates) = hasher.finish();
    Ok(Hashed { hash, size: hashed, data_bytes, midstates })
}

/// Hashes `len` bytes of a file, writing nothing.
pub(crate) fn hash_object(
    file: &File,
    len: u64,
    sparse: bool,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, HashError> {
    hash_source(&OpenFile { file, sparse }, len, transfer)
}

/// As [`hash_object`], of any contents.
pub(super) fn hash_source(
    source: &impl Source,
    len: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, HashError> {
    match hash_ranges(source, len, transfer, |_, _| Ok::<_, Infallible>(())) {
        Ok(hashed) => Ok(hashed),
        Err(RangeError::Read(error)) => Err(HashError::Read(error)),
        Err(RangeError::Stopped) => Err(HashError::Stopped),
    }
}

/// Hash of the contents of a file that may change meanwhile; `None` for what is no regular file.
///
/// # Errors
/// When it cannot be read, or [`StoreError::Cancelled`].
pub(crate) fn hash_file(
    dir: &sys::Dir,
    name: &[u8],
    transfer: &mut Transfer<'_>,
) -> Result<Option<ContentHash>, StoreError> {
    let file = dir.open_file(name, true)?;
    let stat = dir.stat_file(&file, name)?;
    if stat.kind != sys::FileKind::File {
        return Ok(None);
    }
    let hashed = hash_object(&file, stat.size, stat.is_sparse(), transfer);
    Ok(Some(hashed.map_err(|error| error.at("read", &dir.path_of(name)))?.hash))
}
