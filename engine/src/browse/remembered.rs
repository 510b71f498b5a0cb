//! A value that was made of a session's manifest, for the session that was looked at last.
//!
//! A program that lists a folder asks for each of its names. Each must not read the session's
//! manifest again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::{from_manifest, from_sys};
use crate::layout::MANIFEST;
use crate::snapshot::{SessionDir, SessionMetadata};
use crate::sys::{Dir, Stat};

/// Made of the manifest of the session that was looked at last.
#[derive(Debug)]
pub(super) struct Remembered<T> {
    last: Mutex<Option<Known<T>>>,
}

#[derive(Debug)]
struct Known<T> {
    session: PathBuf,
    /// The session's manifest, which is replaced at each change.
    manifest: Stat,
    made: Arc<T>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { last: Mutex::new(None) }
    }
}

impl<T> Remembered<T> {
    /// The value that `make` makes of the manifest of the session in this directory.
    ///
    /// # Errors
    /// When the session's manifest cannot be used.
    pub(super) fn of(
        &self,
        session: &Path,
        make: impl FnOnce(&SessionMetadata) -> T,
    ) -> io::Result<Arc<T>> {
        let looked_at = Dir::open(session).and_then(|dir| dir.stat(MANIFEST.as_bytes()));
        let manifest = looked_at.map_err(from_sys)?;
        if let Some(known) = &*self.last.lock()
            && known.session == session
            && known.manifest == manifest
        {
            return Ok(known.made.clone());
        }
        let made = Arc::new(make(&metadata(session)?));
        let session = session.to_owned();
        *self.last.lock() = Some(Known { session, manifest, made: made.clone() });
        Ok(made)
    }
}

/// The manifest of the session in this directory.
pub(super) fn metadata(session: &Path) -> io::Result<SessionMetadata> {
    SessionDir::open(session).and_then(|session| session.metadata()).map_err(from_manifest)
}
