//! Pushes that failed with nobody watching: after a run, in a process of their own.
//!
//! `$XDG_STATE_HOME/nono/pushes/NAME.json` says why the last one to a remote failed. The next push
//! there that succeeds removes the note, so a note is always a present problem.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use crate::sys::{self, Dir};

/// A longer note is none, in bytes.
const MAX_NOTE_BYTES: u64 = 1 << 16;

/// A push that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushFailure {
    /// Name of the remote.
    pub remote: String,
    /// The session that was to be pushed.
    pub session_id: String,
    /// When.
    pub at: Timestamp,
    /// Why, without credentials.
    pub reason: String,
}

/// Notes a failure, in place of an earlier one.
///
/// # Errors
/// When it cannot be written.
pub fn note_failure(failure: &PushFailure) -> Result<(), RemoteError> {
    let Some(path) = directory() else { return Ok(()) };
    sys::create_private_dir(&path)?;
    let text = serde_json::to_vec(failure).unwrap_or_default();
    Dir::open(&path)?.replace_file(file_name(&failure.remote).as_bytes(), &text, 0o600, false)?;
    Ok(())
}

/// Removes the note of a remote, after a push there that succeeded.
pub fn forget_failure(remote: &str) {
    let Some(path) = directory() else { return };
    // Mostly there is none.
    let _ = Dir::open(&path).and_then(|dir| dir.remove_file(file_name(remote).as_bytes()));
}

/// All failures, by remote. What cannot be read is none.
pub fn push_failures() -> Vec<PushFailure> {
    let Some(dir) = directory().and_then(|path| Dir::open(&path).ok()) else { return Vec::new() };
    let read = |name: &[u8]| {
        let text = dir.read(name, MAX_NOTE_BYTES).ok()?;
        serde_json::from_slice::<PushFailure>(&text).ok()
    };
    let names = dir.open_beneath(b"").and_then(|dir| dir.names()).unwrap_or_default();
    let mut failures: Vec<_> = names.iter().filter_map(|entry| read(&entry.name)).collect();
    failures.sort_by(|a, b| a.remote.cmp(&b.remote));
    failures
}

fn file_name(remote: &str) -> String {
    format!("{}.json", hex::encode(remote))
}

fn directory() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let state = match state.filter(|path| path.is_absolute()) {
        Some(state) => state,
        None => std::env::home_dir()?.join(".local/state"),
    };
    Some(state.join("nono/pushes"))
}
