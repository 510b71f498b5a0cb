//! Pushes that failed without a terminal: after a run, in a process of their own.
//!
//! `$XDG_STATE_HOME/nono/pushes/REMOTE/SESSION.json` says why the push of a session failed, with
//! the remote's name in hexadecimal digits. The next push there that sends the session removes the
//! note, so a note is always a present hole in what the remote has. The note of a session that was
//! removed goes when the notes are read.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use nono_engine::path_text::{serde_path, to_path};
use nono_engine::sys::{self, Dir, FileLock};

/// A longer note is none, in bytes.
const MAX_NOTE_BYTES: u64 = 1 << 16;
const SUFFIX: &str = ".json";

/// A push that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushFailure {
    /// Name of the remote.
    pub remote: String,
    /// The session that was to be pushed.
    pub session_id: String,
    /// The store of the session.
    #[serde(with = "serde_path")]
    pub root: PathBuf,
    /// When.
    pub at: Timestamp,
    /// Why, without credentials.
    pub reason: String,
}

/// Notes a failure, in place of an earlier one of the session.
///
/// # Errors
/// When it cannot be written.
pub fn note_failure(failure: &PushFailure) -> Result<(), RemoteError> {
    let Some(path) = directory() else { return Ok(()) };
    let path = path.join(hex::encode(&failure.remote));
    sys::create_private_dir(&path)?;
    let text = serde_json::to_vec(failure).unwrap_or_default();
    let name = format!("{}{SUFFIX}", failure.session_id);
    Dir::open(&path)?.replace_file(name.as_bytes(), &text, 0o600, false)?;
    Ok(())
}

/// Notes a push that begins as one that failed, so that a note is left when its process is killed.
/// As long as the lock is held, the note counts as none.
///
/// # Errors
/// When it cannot be written.
pub fn note_begin(push: &PushFailure) -> Result<Option<FileLock>, RemoteError> {
    note_failure(push)?;
    let Some(path) = directory() else { return Ok(None) };
    let path = path.join(hex::encode(&push.remote));
    Ok(Some(FileLock::exclusive(&path.join(format!("{}{SUFFIX}", push.session_id)))?))
}

/// Removes the note of a session, after a push of it that succeeded.
pub fn forget_failure(remote: &str, session_id: &str) {
    let Some(path) = directory() else { return };
    let path = path.join(hex::encode(remote));
    // Mostly there is none.
    let _ = Dir::open(&path)
        .and_then(|dir| dir.remove_file(format!("{session_id}{SUFFIX}").as_bytes()));
}

/// All failures, by remote and then by time. What cannot be read is none.
pub fn push_failures() -> Vec<PushFailure> {
    let Some(path) = directory() else { return Vec::new() };
    let remotes = names(&path).into_iter();
    let mut failures: Vec<_> =
        remotes.flat_map(|remote| notes(&path.join(to_path(&remote)))).collect();
    failures.sort_by(|a, b| (&a.remote, a.at).cmp(&(&b.remote, b.at)));
    failures
}

/// The sessions of a store whose push to a remote failed, in the order in which they failed.
pub fn unpushed(remote: &str, root: &Path) -> Vec<String> {
    let failures = push_failures().into_iter();
    let of_both = failures.filter(|failure| failure.remote == remote && failure.root == root);
    of_both.map(|failure| failure.session_id).collect()
}

fn notes(path: &Path) -> Vec<PushFailure> {
    let Ok(dir) = Dir::open(path) else { return Vec::new() };
    let read = |name: Box<[u8]>| {
        // Its push is under way.
        FileLock::try_shared(&path.join(to_path(&name))).ok()??;
        let text = dir.read(&name, MAX_NOTE_BYTES).ok()?;
        let failure: PushFailure = serde_json::from_slice(&text).ok()?;
        if !is_removed(&failure) {
            return Some(failure);
        }
        // The next one who reads it tries again.
        let _ = dir.remove_file(&name);
        None
    };
    names(path).into_iter().filter_map(read).collect()
}

/// Whether the store is there, and the session not in it. A store that is not there may be on a
/// disk that comes back.
fn is_removed(failure: &PushFailure) -> bool {
    let session =
        Dir::open(&failure.root).and_then(|root| root.try_stat(failure.session_id.as_bytes()));
    matches!(session, Ok(None))
}

fn names(path: &Path) -> Vec<Box<[u8]>> {
    let entries = Dir::open(path).and_then(|dir| dir.names()).unwrap_or_default();
    entries.into_iter().map(|entry| entry.name).collect()
}

fn directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = match state.filter(|path| path.is_absolute()) {
        Some(state) => state,
        None => std::env::home_dir()?.join(".local/state"),
    };
    Some(state.join("nono/pushes"))
}
