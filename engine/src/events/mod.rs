//! The facts of a store as they happen: sessions that begin and end, snapshots, steps, restores,
//! pushes, damage.
//!
//! No writer announces a fact. A reader compares the sessions with the facts that are noted already
//! (`look`), and adds the new ones to a file beside the stat caches (`log`). Always true:
//!
//! - A fact has one place in the order, whichever reader sees it first. A [`Cursor`] is such a place.
//! - A reader with a cursor gets each later fact once, also one with an older time: a slow snapshot,
//!   a session out of an archive, a clock that was put back.
//! - The file is only a cache. Without it a new order begins with all that the store holds, and a
//!   cursor of the old order means its beginning.
//! - A wait ends by a note of the kernel (inotify), never by the clock alone. Each directory is
//!   watched before it is read, so nothing falls between a look and a wait.
//!
//! A session that came and went between two looks is not seen.

mod fact;
mod log;
mod look;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make what they look at")]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fd::BorrowedFd;

use crate::snapshot::ManifestError;
use crate::sys::{self, DirWatch, Waited};

pub use fact::{Damage, Event, Fact, Record, Restored};
pub use log::Cursor;
use log::EventLog;
use look::Look;

/// Why the facts of a store are not known.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The store, or the file of facts, cannot be read or written.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// A session cannot be looked at.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The text is no cursor.
    #[error("{text:?} is no cursor: use the field `cursor` of an event")]
    Cursor {
        /// The text as given.
        text: String,
    },
}

/// The facts of one store behind a cursor, and those to come.
#[derive(Debug)]
pub struct EventStream {
    root: PathBuf,
    since: Option<Cursor>,
    log: EventLog,
    look: Look,
    watch: Option<DirWatch>,
}

impl EventStream {
    /// The facts behind `since`, or all of them. The store may not be there yet.
    pub fn new(root: &Path, since: Option<Cursor>) -> Self {
        Self {
            root: root.to_owned(),
            since,
            log: EventLog::new(root),
            look: Look::default(),
            watch: None,
        }
    }

    /// The same, of a stream that can [wait](Self::wait). Makes the store's directory.
    ///
    /// # Errors
    /// When the kernel gives no watch.
    pub fn following(root: &Path, since: Option<Cursor>) -> Result<Self, EventError> {
        sys::create_private_dir(root)?;
        Ok(Self { watch: Some(DirWatch::new()?), ..Self::new(root, since) })
    }

    /// The facts that were not given before, in order. Looks at the store first.
    ///
    /// # Errors
    /// When the store cannot be read, or its facts cannot be noted.
    pub fn batch(&mut self) -> Result<Vec<Event>, EventError> {
        if sys::kind_of(&self.root)?.is_none() {
            return Ok(Vec::new());
        }
        let root = &self.root;
        let (look, watch) = (&mut self.look, &mut self.watch);
        let added = self.log.read_and_add(|seen| look.new_facts(root, seen, watch.as_mut()));
        let mut events = added.inspect_err(|_| *look = Look::default())?;
        if let Some(since) = &self.since {
            events.retain(|event| event.cursor.is_behind(since));
        }
        if let Some(last) = events.last() {
            self.since = Some(last.cursor.clone());
        }
        Ok(events)
    }

    /// Waits until the store may hold a new fact: then [`batch`](Self::batch) may still have none.
    /// Ends after `limit`, and when the other end of `closed` was closed. Only after a batch.
    ///
    /// # Errors
    /// When the kernel ends the wait. A stream that does not follow ends at once.
    pub fn wait(
        &mut self,
        limit: Option<Duration>,
        closed: Option<BorrowedFd<'_>>,
    ) -> Result<Waited, EventError> {
        match &mut self.watch {
            Some(watch) => Ok(watch.wait(limit, closed)?),
            None => Ok(Waited::Closed),
        }
    }

    /// The place behind the last fact that was given, if there was one.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.since.as_ref()
    }
}
