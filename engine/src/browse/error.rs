//! The errors: one for choosing what to show, and `io::Error` for showing it.

use std::io;
use std::path::PathBuf;

use crate::path_text::Shown;
use crate::snapshot::ManifestError;
use crate::store::StoreError;
use crate::sys;

/// The selection cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowseError {
    /// No session has this id.
    #[error("there is no session {}", Shown::bytes(id.as_bytes()))]
    NoSuchSession {
        /// The id as given.
        id: String,
    },
    /// A store cannot be read.
    #[error("cannot list the sessions in {}: {source}", Shown::path(root))]
    Unreadable {
        /// The root directory of the store.
        root: PathBuf,
        /// The error of the system.
        source: sys::Error,
    },
    /// A mount there would hide the store, or a part of it.
    #[error("cannot mount at {}: it {why} {}", Shown::path(place), Shown::path(root))]
    OverlapsStore {
        /// Where the mount was to be.
        place: PathBuf,
        /// How the two lie.
        why: &'static str,
        /// The root directory of the store.
        root: PathBuf,
    },
}

/// A store's error as the mount understands it: gone, damaged, or as the system said. The text
/// names the object and where it is.
pub(super) fn from_store(error: StoreError) -> io::Error {
    match error {
        StoreError::Missing { .. } => io::Error::new(io::ErrorKind::NotFound, error),
        StoreError::Io(error) => from_sys(error),
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

pub(super) fn from_manifest(error: ManifestError) -> io::Error {
    match error {
        ManifestError::Missing { .. } => io::Error::new(io::ErrorKind::NotFound, error),
        ManifestError::Io(error) => from_sys(error),
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

pub(super) fn from_sys(error: sys::Error) -> io::Error {
    let kind = if error.is_gone() { io::ErrorKind::NotFound } else { error.kind() };
    io::Error::new(kind, error)
}
