//! The directory of one session: its manifest and its locks.
//!
//! ```text
//! <session>/           0700
//!   manifest.json      replaced at once whenever a snapshot is added or the session ends
//!   objects            a directory, or a link to the store that sessions share
//!   snapshots/0/manifest.json
//!   snapshots/0/removed.json    only of a removed snapshot
//!   restore.journal    only while a restore is at work, or after it was interrupted
//!   pushes.jsonl       a line for each archive of the session that a push stored
//!   .lock              held exclusively while a snapshot is written or restored
//!   .running           held exclusively by the supervisor of a command, as long as it lives
//! ```

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::documents::{read_session, write_session};
use super::manifests::ManifestError;
use super::metadata::SessionMetadata;
use crate::layout;
use crate::sys::{self, Dir, FileLock, FileTime, IoContext};

/// A session's directory. Holds no descriptor, so that a list of a thousand sessions is no problem.
#[derive(Debug, Clone)]
pub struct SessionDir {
    path: PathBuf,
}

/// An archive of a session that a push stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushNote {
    /// When.
    pub at: Timestamp,
    /// Number of the snapshot.
    pub snapshot: u64,
    /// The remote, as the user named it.
    pub remote: String,
    /// Name of the archive there.
    pub archive: String,
}

/// More notes of pushes than this begin anew.
const MAX_PUSH_NOTES_BYTES: u64 = 8 << 20;
const LOCK_NAME: &str = ".lock";
/// An empty file, there as long as a call of the agent is at work, as old as the newest one.
const CALL_NAME: &str = ".call";

impl SessionDir {
    /// Opens a session.
    ///
    /// # Errors
    /// When the directory is missing or cannot be read.
    pub fn open(path: &Path) -> Result<Self, ManifestError> {
        Dir::open(path)?;
        Ok(Self { path: path.to_owned() })
    }

    /// Opens a session that a list of its store has. One that this user may not look into stays in
    /// the list, and each look at it fails.
    ///
    /// # Errors
    /// When the directory is missing or cannot be read.
    pub(crate) fn open_listed(path: &Path) -> Result<Self, ManifestError> {
        match Self::open(path) {
            Err(ManifestError::Io(error)) if error.is_denied() => {
                Ok(Self { path: path.to_owned() })
            }
            opened => opened,
        }
    }

    /// The sessions below a directory, in no order. A directory that does not exist has none.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(crate) fn all_below(root: &Path) -> Result<Vec<Self>, ManifestError> {
        let dir = match Dir::open(root) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut sessions = Vec::new();
        for name in layout::session_names(&dir)? {
            match Self::open_listed(&dir.path_of(&name)) {
                Ok(session) => sessions.push(session),
                // Removed since the names were read.
                Err(ManifestError::Io(error)) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sessions)
    }

    /// The other sessions of its store, by id.
    ///
    /// # Errors
    /// When the store cannot be listed.
    pub(crate) fn siblings(&self) -> Result<Vec<Self>, ManifestError> {
        let Some(store) = self.path.parent() else { return Ok(Vec::new()) };
        let mut sessions = Self::all_below(store)?;
        sessions.retain(|other| other.path.file_name() != self.path.file_name());
        sessions.sort_by_key(Self::id);
        Ok(sessions)
    }

    /// Whether it was removed since it was opened.
    pub fn is_gone(&self) -> bool {
        self.dir().is_err_and(|error| error.is_gone())
    }

    /// A time not before it began, and mostly soon after: when its first snapshot was written, or
    /// else when its directory last changed.
    pub(crate) fn latest_begin(&self) -> sys::Result<FileTime> {
        let first = self.dir().and_then(|dir| {
            let first = dir.try_stat(layout::snapshot_manifest(0).as_bytes())?;
            Ok(first.map_or(dir.stat_self()?, |first| first).mtime)
        });
        match (first, self.path.parent(), self.path.file_name()) {
            // Its store tells of one that cannot be looked into.
            (Err(error), Some(store), Some(name)) if error.is_denied() => {
                Ok(Dir::open(store)?.stat(name.as_bytes())?.mtime)
            }
            (first, ..) => first,
        }
    }

    /// The directory, opened.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn dir(&self) -> sys::Result<Dir> {
        Dir::open(&self.path)
    }

    /// Opens a session, making its directory when it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<Self, ManifestError> {
        sys::create_private_dir(path)?;
        let session = Self::open(path)?;
        match session.dir()?.make_dir(layout::SNAPSHOTS.as_bytes(), 0o700) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error.into()),
            _ => Ok(session),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The session's id: the name of its directory.
    pub fn id(&self) -> String {
        let name = self.path().file_name().unwrap_or_default();
        crate::path_text::encode(name.as_bytes()).into_owned()
    }

    /// Where the session's objects are.
    pub fn objects_path(&self) -> PathBuf {
        self.path().join(layout::OBJECTS)
    }

    /// Whether there is a journal of a restore: one is at work, or was interrupted.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub fn has_restore_journal(&self) -> Result<bool, ManifestError> {
        Ok(self.dir()?.try_stat(layout::RESTORE_JOURNAL.as_bytes())?.is_some())
    }

    /// Whether a restore needs the session with all of its snapshots: one of files or of a
    /// container is at work, or was interrupted.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub fn is_needed_by_restore(&self) -> Result<bool, ManifestError> {
        let journal = layout::CONTAINER_RESTORE_JOURNAL.as_bytes();
        Ok(self.has_restore_journal()? || self.dir()?.try_stat(journal)?.is_some())
    }

    /// Whether a fork begins from the session's first snapshot.
    ///
    /// # Errors
    /// When the forks of its store cannot be read.
    pub fn is_needed_by_fork(&self) -> Result<bool, ManifestError> {
        Ok(self.fork_document()?.is_some())
    }

    /// The name of the fork that begins from its first snapshot. One with a damaged document has
    /// none.
    ///
    /// # Errors
    /// When the forks of its store cannot be read.
    pub fn fork_name(&self) -> Result<Option<String>, ManifestError> {
        let facts = self.fork_document()?.map(|bytes| serde_json::from_slice(&bytes));
        let facts: Option<serde_json::Value> = facts.and_then(Result::ok);
        Ok(facts.and_then(|facts| Some(facts["name"].as_str()?.to_owned())))
    }

    /// The document of its fork, whatever is in it.
    fn fork_document(&self) -> Result<Option<Vec<u8>>, ManifestError> {
        let Some(root) = self.path.parent() else { return Ok(None) };
        let fork = match Dir::open(&root.join(layout::FORKS).join(self.id())) {
            Err(error) if error.is_gone() => return Ok(None),
            fork => fork?,
        };
        let document = layout::FORK_DOCUMENT.as_bytes();
        match fork.read(document, layout::MAX_FORK_DOCUMENT_BYTES) {
            Err(error) if error.is_gone() => Ok(None),
            bytes => Ok(Some(bytes?)),
        }
    }

    /// Whether a restore was interrupted, so that it has to be finished or taken back.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub fn has_interrupted_restore(&self) -> Result<bool, ManifestError> {
        // A process at work holds the lock, and may have ended before it could be tried.
        Ok(self.has_restore_journal()?
            && self.try_lock()?.is_some()
            && self.has_restore_journal()?)
    }

    /// Refuses root to write a session of another user, who could not read the files.
    ///
    /// # Errors
    /// It is one.
    pub(crate) fn refuse_to_write_as_root(&self) -> Result<(), ManifestError> {
        Ok(sys::refuse_to_write_as_root(self.path())?)
    }

    /// Waits until no other process writes this session, and keeps others from it.
    ///
    /// # Errors
    /// When the lock file cannot be made, or as root in a session of another user.
    pub fn lock(&self) -> Result<FileLock, ManifestError> {
        self.refuse_to_write_as_root()?;
        Ok(FileLock::exclusive(&self.path().join(LOCK_NAME))?)
    }

    /// Keeps others from writing this session, without waiting. `None`: another process writes it.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn try_lock(&self) -> Result<Option<FileLock>, ManifestError> {
        Ok(FileLock::try_exclusive(&self.path().join(LOCK_NAME))?)
    }

    /// Marks the session as running, for as long as the value lives. Waits for those who are just
    /// looking whether it runs.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub fn lock_running(&self) -> Result<FileLock, ManifestError> {
        Ok(FileLock::exclusive(&self.path().join(layout::RUNNING))?)
    }

    /// Whether a supervisor of this session is alive.
    ///
    /// # Errors
    /// When the lock file cannot be looked at.
    pub fn is_running(&self) -> Result<bool, ManifestError> {
        self.dir()?;
        Ok(FileLock::is_held(&self.path().join(layout::RUNNING))?)
    }

    /// Notes for the undo of other sessions that a call of the agent begins now. Nothing is
    /// flushed: after a crash of the machine no call is at work.
    ///
    /// # Errors
    /// When the note cannot be written.
    pub fn note_call(&self) -> Result<(), ManifestError> {
        // Its time is that of the newest call.
        self.note_no_call()?;
        self.dir()?.create_file(CALL_NAME.as_bytes(), 0o600)?;
        Ok(())
    }

    /// Notes that no call of the agent is at work.
    ///
    /// # Errors
    /// When the note cannot be removed.
    pub fn note_no_call(&self) -> Result<(), ManifestError> {
        match self.dir()?.remove_file(CALL_NAME.as_bytes()) {
            Err(error) if !error.is_gone() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// When the newest call of the agent began, if one is at work. An agent that was killed in a
    /// call leaves its note until it is heard of again.
    ///
    /// # Errors
    /// When the session cannot be looked at.
    pub(crate) fn call_began(&self) -> Result<Option<FileTime>, ManifestError> {
        Ok(self.dir()?.try_stat(CALL_NAME.as_bytes())?.map(|stat| stat.mtime))
    }

    /// Whether the session holds a snapshot or an announced one, or lost the latter; also where it
    /// cannot be looked at. One that was killed before that holds no state to go back to, and its
    /// command did not begin.
    pub fn may_hold_snapshot(&self) -> bool {
        self.manifest_numbers().map_or(true, |numbers| !numbers.is_empty())
            || self.has_announcement().unwrap_or(true)
            || self.has_lost_baseline().unwrap_or(true)
    }

    /// Whether its first snapshot may be at work: the maker of the session, whose number is the end
    /// of its id, is alive or holds the lock.
    ///
    /// # Errors
    /// When the lock file cannot be looked at.
    pub fn is_being_made(&self) -> Result<bool, ManifestError> {
        let maker = self.path.to_str().and_then(|path| path.rsplit_once('-')?.1.parse().ok());
        // To look makes no lock file.
        let may_be_locked = || self.dir()?.try_stat(LOCK_NAME.as_bytes());
        Ok(maker.is_some_and(sys::process_is_alive)
            || may_be_locked()?.is_some() && self.try_lock()?.is_none())
    }

    /// Whether it was killed before its first snapshot: it holds none, and its making is over.
    ///
    /// # Errors
    /// When its locks cannot be looked at.
    pub fn is_unbegun(&self) -> Result<bool, ManifestError> {
        Ok(!self.may_hold_snapshot() && !self.is_running()? && !self.is_being_made()?)
    }

    /// The session's manifest. One that something else than this program changed is
    /// [marked](SessionMetadata::altered), and can be used as far as it can be read: it must not
    /// keep the user from a restore.
    ///
    /// # Errors
    /// As [`ManifestError`] says.
    pub fn metadata(&self) -> Result<SessionMetadata, ManifestError> {
        read_session(&self.dir()?)
    }

    /// Replaces the session's manifest, durably, and removes what a crash left of earlier attempts.
    /// Under the session's lock.
    ///
    /// # Errors
    /// When it cannot be written; the old one is then still there.
    pub fn save_metadata(&self, metadata: &SessionMetadata) -> Result<(), ManifestError> {
        let dir = self.dir()?;
        write_session(&dir, metadata)?;
        dir.remove_unfinished(layout::MANIFEST.as_bytes());
        dir.remove_unfinished(layout::RESTORE_JOURNAL.as_bytes());
        Ok(())
    }

    /// Adds a line to the notes of pushes. Not flushed: a note that a power failure takes is no
    /// loss of an archive.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note_push(&self, note: &PushNote) -> Result<(), ManifestError> {
        let path = self.path.join(layout::PUSHES);
        let mut line = serde_json::to_vec(note).unwrap_or_default();
        line.push(b'\n');
        // One write at the end of the file: lines of two pushers do not mix.
        let file = sys::open_log(&path, MAX_PUSH_NOTES_BYTES)?;
        Ok((&file).write_all(&line).at("write", &path)?)
    }

    /// The notes of pushes, in order. A line that is no note is passed over.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn push_notes(&self) -> Result<Vec<PushNote>, ManifestError> {
        let name = layout::PUSHES.as_bytes();
        let bytes = match self.dir()?.read(name, MAX_PUSH_NOTES_BYTES * 2) {
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            bytes => bytes?,
        };
        let lines = bytes.split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Pins the session, so that retention never removes it, or takes the pin away. Says whether
    /// that changed anything. Waits until no other process writes the session.
    ///
    /// # Errors
    /// When its manifest cannot be used or written; it is then as it was.
    pub fn set_pinned(&self, pinned: bool) -> Result<bool, ManifestError> {
        let _lock = self.lock()?;
        let metadata = self.metadata()?;
        if metadata.pinned == pinned {
            return Ok(false);
        }
        write_session(&self.dir()?, &SessionMetadata { pinned, ..metadata })?;
        Ok(true)
    }

    /// When something was last recorded in the session: the time of its newest snapshot's manifest.
    ///
    /// # Errors
    /// When the session cannot be looked at.
    pub(crate) fn last_written(&self) -> Result<Option<FileTime>, ManifestError> {
        let Some(number) = self.manifest_numbers()?.pop() else { return Ok(None) };
        let found = self.dir()?.try_stat(layout::snapshot_manifest(number).as_bytes())?;
        Ok(found.map(|stat| stat.mtime))
    }

    /// Where a snapshot's manifest is.
    pub fn manifest_path(&self, number: u64) -> PathBuf {
        self.path().join(layout::snapshot_manifest(number))
    }
}
