//! The operations at any remote: list, read, store under a new name, remove.

mod bucket;
mod client;
mod connection;
mod directory;
mod download;
mod limited;
mod masking;
mod refusals;
mod runtime;
mod shared_credentials;
mod upload;
mod web;

use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::ops::Range;

use bytes::Bytes;

use self::limited::Limited;
pub use self::web::fetch;
use super::address::Address;
use super::error::RemoteError;
use nono_engine::progress::Progress;

/// An object at a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its name, below the folder of the remote: `SESSION/FILE`.
    pub key: String,
    /// Its length in bytes.
    pub size_bytes: u64,
}

/// Writes the bytes of a new object. Called once.
pub type Source<'a> = dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a;

/// An open remote.
pub struct Place {
    address: Address,
    /// Most bytes that go up in a second.
    upload_limit: Option<NonZeroU64>,
    backend: Box<dyn Backend>,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.address)
    }
}

/// A directory, or an object store.
trait Backend: Send + Sync {
    fn list(&self, folder: &str, progress: &dyn Progress) -> Result<Vec<Stored>, RemoteError>;

    fn linked(&self) -> Result<Vec<String>, RemoteError> {
        Ok(Vec::new())
    }

    fn put_new(
        &self,
        key: &str,
        source: &mut Source<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<u64>, RemoteError>;

    fn open<'a>(
        &'a self,
        key: &str,
        progress: &'a dyn Progress,
    ) -> Result<Box<dyn Read + Send + 'a>, RemoteError>;

    fn read_range(
        &self,
        key: &str,
        range: Range<u64>,
        progress: &dyn Progress,
    ) -> Result<Bytes, RemoteError>;

    fn remove(&self, key: &str, progress: &dyn Progress) -> Result<(), RemoteError>;

    fn probe(&self, progress: &dyn Progress) -> Result<(), RemoteError>;

    fn clear_leftovers(&self, progress: &dyn Progress) -> Result<(), RemoteError>;
}

impl Place {
    /// Opens a remote. An object store is not asked anything yet. With `make`, a missing directory
    /// is made, if its parent exists.
    ///
    /// # Errors
    /// [`RemoteError::Setup`], [`RemoteError::NoDirectory`].
    pub fn open(address: &Address, make: bool) -> Result<Self, RemoteError> {
        let backend: Box<dyn Backend> = match address {
            Address::Directory(path) => Box::new(directory::Directory::open(path, make)?),
            Address::Bucket(bucket) => Box::new(bucket::Cloud::open(bucket, address.to_string())?),
        };
        Ok(Self { address: address.clone(), upload_limit: None, backend })
    }

    /// Limits the bytes of new objects that go up in a second.
    #[must_use]
    pub fn with_upload_limit(mut self, bytes_per_second: Option<NonZeroU64>) -> Self {
        self.upload_limit = bytes_per_second;
        self
    }

    /// Asks the place for the beginning of its list: whether it is there and lets this user read.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    pub fn probe(&self, progress: &dyn Progress) -> Result<(), RemoteError> {
        self.backend.probe(progress)
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether a list costs no requests, however long it is.
    pub(super) fn lists_without_requests(&self) -> bool {
        matches!(self.address, Address::Directory(_))
    }

    /// All objects in a folder, or all of the remote for the empty name, sorted by name. Objects
    /// that are being stored are not among them.
    ///
    /// # Errors
    /// When the place cannot be reached or read.
    pub fn list(&self, folder: &str, progress: &dyn Progress) -> Result<Vec<Stored>, RemoteError> {
        let mut stored = self.backend.list(folder, progress)?;
        stored.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(stored)
    }

    /// Folders of sessions that are symlinks, sorted. Nothing in them is part of the place.
    ///
    /// # Errors
    /// When the place cannot be read.
    pub fn linked(&self) -> Result<Vec<String>, RemoteError> {
        let mut linked = self.backend.linked()?;
        linked.sort();
        Ok(linked)
    }

    /// Stores what `source` writes under a name that is free, and returns the number of bytes. It
    /// appears complete or not at all. `None`: the name is taken, and its object stays as it is.
    ///
    /// # Errors
    /// [`RemoteError::Source`] when `source` fails; else as the place answers.
    pub fn put_new(
        &self,
        key: &str,
        source: &mut Source<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<u64>, RemoteError> {
        let Some(limit) = self.upload_limit else {
            return self.backend.put_new(key, source, progress);
        };
        let mut limited = |out: &mut dyn Write| source(&mut Limited::new(out, limit, progress));
        self.backend.put_new(key, &mut limited, progress)
    }

    /// Opens an object for reading, once from its beginning to its end.
    ///
    /// # Errors
    /// [`RemoteError::Missing`]; else as the place answers.
    pub fn open_object<'a>(
        &'a self,
        key: &str,
        progress: &'a dyn Progress,
    ) -> Result<Box<dyn Read + Send + 'a>, RemoteError> {
        self.backend.open(key, progress)
    }

    /// Reads a part of an object, with one request.
    ///
    /// # Errors
    /// [`RemoteError::Missing`]; else as the place answers, also for an object that is shorter.
    pub(super) fn read_range(
        &self,
        key: &str,
        range: Range<u64>,
        progress: &dyn Progress,
    ) -> Result<Bytes, RemoteError> {
        let (length, end) = (range.end - range.start, range.end);
        let bytes = self.backend.read_range(key, range, progress)?;
        match bytes.len() as u64 == length {
            true => Ok(bytes),
            false => Err(RemoteError::Failed {
                operation: "read",
                object: key.to_owned(),
                place: self.address.to_string(),
                reason: format!("it has no {end} bytes"),
            }),
        }
    }

    /// Removes an object. One that is gone is no error.
    ///
    /// # Errors
    /// As the place answers.
    pub fn remove(&self, key: &str, progress: &dyn Progress) -> Result<(), RemoteError> {
        self.backend.remove(key, progress)
    }

    /// Removes what killed pushes of this machine have left at the place.
    ///
    /// # Errors
    /// As the place answers.
    pub fn clear_leftovers(&self, progress: &dyn Progress) -> Result<(), RemoteError> {
        self.backend.clear_leftovers(progress)
    }
}
