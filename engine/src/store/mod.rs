//! Where objects live.
//!
//! ```text
//! objects/            0700
//!   ab/cd1234…        0400, an object: SHA-256 of its bytes is ab cd1234…
//!   .lock             held shared while a snapshot is written, exclusively by the collector
//!   .format           the version of the store, written before the first generation
//!   .generation       16 random bytes, new whenever objects are removed
//!   packs/            0700
//!     89ab…           0400, a pack: many small objects in one file
//!   quarantine/       what was found damaged under the name of an object
//! ```
//!
//! An object appears complete or not at all and is never written again. A reader checks its hash
//! before using a byte of it. Small objects of a snapshot that has many share a pack,
//! where they are compressed together. Long ones are cut into such where blocks cannot be shared.
//! [`ObjectStore`] is the seam: on this disk ([`LocalStore`]), in memory ([`MemoryStore`], for
//! tests), elsewhere later.

mod account;
mod chunks;
mod compression;
mod either;
mod export;
mod guard;
mod import;
mod listing;
mod local;
mod memory;
mod object_file;
mod origin;
mod overlay;
mod own;
mod packs;
mod quarantine;
mod state;
mod transfer;

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::object::{Attributes, ContentHash, DecodeError, LinkGroups, Node, RootTree, Tree};
use crate::path_text::Shown;
use crate::sys;

pub(crate) use account::Account;
pub use compression::Compression;
pub use either::EitherSource;
pub use guard::{ReadLock, StoreLock};
pub(crate) use import::{HashError, Hashed, hash_file, hash_object};
pub use import::{ImportError, Imported};
pub use listing::FoundObject;
pub use local::LocalStore;
pub use memory::MemoryStore;
pub use object_file::ObjectFile;
#[cfg(feature = "mount")]
pub(crate) use origin::show_session;
pub use origin::{Origin, OriginError, set_origin};
pub use overlay::OverlayStore;
pub(crate) use own::MAX_OWN;
#[cfg(test)]
pub(crate) use own::READING_LOOKS;
pub use packs::{
    BadDisk, Entry as PackEntry, LongFiles, MAX_PACKED_BYTES, Pack, Packer, Rewrite as PackRewrite,
    SMALL_PACK_BYTES,
};
pub use quarantine::{Offered, Quarantined};
pub use state::{FanOut, FanOuts, PackState};
pub use transfer::Transfer;
#[cfg(test)]
pub(crate) use transfer::tests::StopsAt;

/// Largest tree, root or link object that is read into memory, in bytes.
pub const MAX_TREE_BYTES: u64 = 1 << 30;

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No such object.
    #[error("object {hash} is missing from the store (expected at {})", Shown::path(path))]
    Missing {
        /// Name of the object.
        hash: ContentHash,
        /// Where it should be.
        path: PathBuf,
    },
    /// The bytes of an object are not the ones it is named after.
    #[error("object {hash} is damaged: {reason} ({})", Shown::path(path))]
    Corrupt {
        /// Name of the object.
        hash: ContentHash,
        /// Where it is.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The bytes are intact but are not the kind of object they are used as.
    #[error("object {hash} is not a valid {kind}: {source}")]
    Undecodable {
        /// Name of the object.
        hash: ContentHash,
        /// The expected kind of object.
        kind: &'static str,
        /// The finding of the decoder.
        source: DecodeError,
    },
    /// A pack is not what it was.
    #[error("pack {} is damaged: {reason}", Shown::path(path))]
    CorruptPack {
        /// Where it is.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A pack has a format that this version does not know.
    #[error("pack {} was made by a newer version of nono", Shown::path(path))]
    NewerPack {
        /// Where it is.
        path: PathBuf,
    },
    /// A newer nono made the store.
    #[error(
        "the store {} has format {found}, and this nono knows format {known}: use a newer nono",
        Shown::path(path)
    )]
    NewerFormat {
        /// Where it is.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        known: u32,
    },
    /// The store does not say its format, or has one that was given up.
    #[error(
        "the store {} has a format that this nono does not read: use the nono that made it, \
         or move it away and begin a new one",
        Shown::path(path)
    )]
    OtherFormat {
        /// Where it is.
        path: PathBuf,
    },
    /// An object that is not here could not be had from the place that has it.
    #[error("object {hash} does not come from its remote: {reason}")]
    NotFetched {
        /// Name of the object.
        hash: ContentHash,
        /// The answer of the place.
        reason: String,
    },
    /// A file system call on the store failed.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The caller asked to stop, through the [`Progress`](crate::progress::Progress) of a
    /// [`Transfer`].
    #[error("stopped")]
    Cancelled,
}

impl StoreError {
    /// Whether an object is missing, damaged or of the wrong kind, in contrast to a disk that is
    /// full or not readable, and to work that was stopped.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Missing { .. }
            | Self::Corrupt { .. }
            | Self::CorruptPack { .. }
            | Self::Undecodable { .. } => true,
            Self::NewerPack { .. }
            | Self::NewerFormat { .. }
            | Self::OtherFormat { .. }
            | Self::NotFetched { .. }
            | Self::Io(_)
            | Self::Cancelled => false,
        }
    }
}

impl StoreError {
    /// Whether the disk under something is bad, in contrast to a right or a descriptor that is
    /// wanting.
    pub fn is_bad_disk(&self) -> bool {
        // EUCLEAN: the file system found its own checksum wrong.
        #[cfg(target_os = "linux")]
        let bad = [Errno::IO, Errno::UCLEAN, Errno::BADMSG];
        #[cfg(not(target_os = "linux"))]
        let bad = [Errno::IO, Errno::BADMSG];
        matches!(self, Self::Io(error) if error.errno().is_some_and(|errno| bad.contains(&errno)))
    }
}

/// The outcome of giving bytes to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The name of the object.
    pub hash: ContentHash,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// Gives objects back. Implementations are used from several threads at once.
pub trait ObjectSource: Send + Sync {
    /// The bytes of an object of at most `max_bytes`, checked against its name.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Corrupt`], or a failed read.
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError>;
}

/// Gives objects of any length back, without holding them in memory.
pub trait FileSource: ObjectSource {
    /// Fills the empty file `target` with an object of `size` bytes. Every byte is checked before
    /// this returns.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Corrupt`], a disk that is full, or
    /// [`StoreError::Cancelled`].
    fn export(
        &self,
        hash: &ContentHash,
        size: u64,
        target: &File,
        transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError>;

    /// Opens an object of `size` bytes, from its start, after all of them were checked.
    ///
    /// # Errors
    /// [`StoreError::Missing`], [`StoreError::Corrupt`], or [`StoreError::Cancelled`].
    fn open_checked(
        &self,
        hash: &ContentHash,
        size: u64,
        transfer: &mut Transfer<'_>,
    ) -> Result<Box<dyn Read>, StoreError>;
}

/// Keeps objects.
pub trait ObjectStore: ObjectSource {
    /// Whether an object of this name and length is there. Its bytes are not read; an object of
    /// another length (cut short by a power failure) counts as absent.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn contains(&self, hash: &ContentHash, size: u64) -> Result<bool, StoreError>;

    /// Stores bytes. They are not durable before [`LocalStore::sync`].
    ///
    /// # Errors
    /// When the store is not writable or the disk is full.
    fn write(&self, bytes: &[u8]) -> Result<Stored, StoreError>;

    /// Stores the first `size` bytes of an open file, reading each byte once. Fewer are stored
    /// when the file is shorter by now; the result says how many.
    ///
    /// # Errors
    /// Tells a source that cannot be read from a store that cannot be written;
    /// [`StoreError::Cancelled`] when it was stopped.
    fn import(
        &self,
        source: &File,
        size: u64,
        sparse: bool,
        transfer: &mut Transfer<'_>,
    ) -> Result<Imported, ImportError>;
}

/// Reads and decodes the list of a directory.
///
/// # Errors
/// As [`ObjectSource::read`], or [`StoreError::Undecodable`].
pub fn read_tree(store: &dyn ObjectSource, hash: &ContentHash) -> Result<Tree, StoreError> {
    decode(store, hash, "tree", Tree::decode)
}

/// Reads the list of a directory without keeping it: tells of its entries in order, and returns its
/// length in bytes. After an error, the entries told so far are void. The buffer is only lent.
///
/// # Errors
/// As [`read_tree`].
pub(crate) fn visit_tree(
    store: &LocalStore,
    hash: &ContentHash,
    buffer: &mut Vec<u8>,
    see: impl FnMut(&[u8], Attributes, Node),
) -> Result<u64, StoreError> {
    store.read_into(hash, MAX_TREE_BYTES, buffer)?;
    Tree::visit(buffer, see).map_err(|source| StoreError::Undecodable {
        hash: *hash,
        kind: "tree",
        source,
    })?;
    Ok(buffer.len() as u64)
}

/// As [`read_root_tree`], with the length in bytes.
pub(crate) fn measure_root_tree(
    store: &dyn ObjectSource,
    hash: &ContentHash,
) -> Result<(RootTree, u64), StoreError> {
    decode(store, hash, "root tree", |bytes| Ok((RootTree::decode(bytes)?, bytes.len() as u64)))
}

/// Reads and decodes the top of a snapshot.
///
/// # Errors
/// As [`ObjectSource::read`], or [`StoreError::Undecodable`].
pub fn read_root_tree(
    store: &dyn ObjectSource,
    hash: &ContentHash,
) -> Result<RootTree, StoreError> {
    decode(store, hash, "root tree", RootTree::decode)
}

/// Reads and decodes the hard-link groups of a snapshot; without an object there are none.
///
/// # Errors
/// As [`ObjectSource::read`], or [`StoreError::Undecodable`].
pub fn read_links(
    store: &dyn ObjectSource,
    hash: Option<&ContentHash>,
) -> Result<LinkGroups, StoreError> {
    match hash {
        None => Ok(LinkGroups::default()),
        Some(hash) => decode(store, hash, "list of hard links", LinkGroups::decode),
    }
}

fn decode<T>(
    store: &dyn ObjectSource,
    hash: &ContentHash,
    kind: &'static str,
    decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
) -> Result<T, StoreError> {
    let bytes = store.read(hash, MAX_TREE_BYTES)?;
    decode(&bytes).map_err(|source| StoreError::Undecodable { hash: *hash, kind, source })
}
