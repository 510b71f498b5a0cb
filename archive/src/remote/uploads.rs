//! Notes of uploads in parts that go on, so that the next push clears up after a killed one.
//!
//! A provider keeps the parts of an unfinished upload and does not list them. The notes lie in
//! `$XDG_STATE_HOME/nono/uploads`, one file each. The pusher holds a lock on its note, so a note
//! without a lock is of a dead pusher.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use nono_engine::sys::{self, Dir, FileLock, IoContext, TempFile};

/// A longer note is none, in bytes.
const MAX_NOTE_BYTES: u64 = 1 << 16;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    place: String,
    key: String,
    upload: String,
}

/// An upload in parts, noted on the disk.
#[derive(Debug)]
pub(super) struct NotedUpload {
    note: Note,
    /// The directory and the name of the note; `None` where no state directory is known.
    file: Option<(PathBuf, String)>,
    _lock: Option<FileLock>,
}

impl NotedUpload {
    /// Notes an upload that begins.
    pub(super) fn note(place: &str, key: &str, upload: &str) -> Result<Self, RemoteError> {
        let note = Note { place: place.to_owned(), key: key.to_owned(), upload: upload.to_owned() };
        let Some(dir) = directory() else { return Ok(Self { note, file: None, _lock: None }) };
        let name = format!("{}.json", hex::encode(sys::random_bytes()?));
        sys::create_private_dir(&dir)?;
        let open = Dir::open(&dir)?;
        let text = serde_json::to_vec(&note).unwrap_or_default();
        // A search waits, so it finds no note of a living pusher without its lock.
        let _searches = FileLock::exclusive_of(&open)?;
        let file = TempFile::new(&open, 0o600)?;
        file.file().write_all_at(&text, 0).at("write a note of an upload in", &dir)?;
        file.persist(&open, name.as_bytes())?;
        let lock = FileLock::try_exclusive(&dir.join(&name))?;
        Ok(Self { note, file: Some((dir, name)), _lock: lock })
    }

    /// The provider's id of the upload.
    pub(super) fn upload(&self) -> &str {
        &self.note.upload
    }

    /// The name of the object in its bucket.
    pub(super) fn key(&self) -> &str {
        &self.note.key
    }

    /// Removes the note.
    pub(super) fn forget(self) {
        if let Some((dir, name)) = &self.file {
            let _ = Dir::open(dir).and_then(|dir| dir.remove_file(name.as_bytes()));
        }
    }
}

/// Uploads to a place whose pushers are dead.
pub(super) fn left_by_dead(place: &str) -> Result<Vec<NotedUpload>, RemoteError> {
    let Some(path) = directory() else { return Ok(Vec::new()) };
    let dir = match Dir::open(&path) {
        Ok(dir) => dir,
        Err(error) if error.is_gone() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut left = Vec::new();
    let _notes = FileLock::exclusive_of(&dir)?;
    for entry in dir.names()? {
        let Ok(name) = str::from_utf8(&entry.name) else { continue };
        if !name.ends_with(".json") {
            continue;
        }
        let Ok(text) = dir.read(name.as_bytes(), MAX_NOTE_BYTES) else { continue };
        let Ok(note) = serde_json::from_slice::<Note>(&text) else { continue };
        if note.place != place {
            continue;
        }
        let lock = match FileLock::try_exclusive(&path.join(name)) {
            Ok(Some(lock)) => lock,
            _ => continue,
        };
        let file = Some((path.clone(), name.to_owned()));
        left.push(NotedUpload { note, file, _lock: Some(lock) });
    }
    Ok(left)
}

fn directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = match state.filter(|path| path.is_absolute()) {
        Some(state) => state,
        None => std::env::home_dir()?.join(".local/state"),
    };
    Some(state.join("nono/uploads"))
}
