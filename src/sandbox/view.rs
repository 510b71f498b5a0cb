//! The file system as a command sees it behind its second wall.
//!
//! Landlock says which files may be opened; it has no say in changes of attributes (`chmod`,
//! `chown`, times, extended attributes). A mount that is read-only refuses those too. So the
//! command gets a mount namespace in which all is read-only but what it was granted for writing,
//! and in which `/tmp` and `/dev/shm` are rooms of its own.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use nono_engine::path_text::{Shown, serde_path, serde_paths};

/// Where pseudo-terminals have their names.
pub const TERMINALS: &str = "/dev/pts";

/// A mount namespace, described. All paths are absolute and have no symlink in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Private directories, each at its place.
    pub rooms: Vec<Room>,
    /// The writable directories and files, with all below.
    #[serde(with = "serde_paths")]
    pub writable: Vec<PathBuf>,
    /// The parts of the places of rooms that stay visible, read-only. A room has a directory or
    /// file of the same name to show it at.
    #[serde(with = "serde_paths")]
    pub visible: Vec<PathBuf>,
    /// Whether [`TERMINALS`] has no terminals but those that the command makes.
    pub own_terminals: bool,
    /// The directory in which the command starts.
    #[serde(with = "serde_path")]
    pub working_dir: PathBuf,
}

/// A private directory in the place of one that is shared by everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Where the command sees it: `/tmp`.
    #[serde(with = "serde_path")]
    pub at: PathBuf,
    /// The directory that it sees there.
    #[serde(with = "serde_path")]
    pub from: PathBuf,
    /// Whether the command may change what is in it.
    pub is_writable: bool,
}

impl View {
    /// The writable room in whose place a path lies, if it does.
    pub fn room_of(&self, path: &Path) -> Option<&Room> {
        let mut rooms = self.rooms.iter().filter(|room| room.is_writable);
        rooms.find(|room| path != room.at && path.starts_with(&room.at))
    }
}

/// The paths of which none lies in another one, in their order.
pub fn outermost<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Vec<&'a Path> {
    let mut sorted: Vec<&Path> = paths.into_iter().map(PathBuf::as_path).collect();
    sorted.sort();
    let mut outermost: Vec<&Path> = Vec::new();
    for path in sorted {
        if outermost.last().is_none_or(|last| !path.starts_with(last)) {
            outermost.push(path);
        }
    }
    outermost
}

/// Why there are no namespaces for a command. It can be kept within its grants by Landlock alone.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}{}: {source}", match path {
    Some(path) => format!(" {}", Shown::path(path)),
    None => String::new(),
})]
pub struct NamespaceError {
    /// The attempted operation.
    pub operation: &'static str,
    /// On what.
    pub path: Option<PathBuf>,
    /// Why it failed.
    pub source: io::Error,
}

impl NamespaceError {
    /// Something failed that has no path.
    pub(super) fn of(operation: &'static str, source: impl Into<io::Error>) -> Self {
        Self { operation, path: None, source: source.into() }
    }

    /// Something failed on a path.
    #[allow(dead_code, reason = "some systems have no walls")]
    pub(super) fn at(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self { operation, path: Some(path.to_owned()), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_within_another_one_is_no_mount_of_its_own() {
        let paths = ["/b/c/d", "/a", "/b", "/a.b", "/a/x"].map(PathBuf::from);
        assert_eq!(outermost(&paths), ["/a", "/a.b", "/b"].map(Path::new));
    }

    #[test]
    fn only_what_lies_below_a_room_is_in_its_place() {
        let room = Room { at: "/tmp".into(), from: "/tmp/nono-1/x/tmp".into(), is_writable: true };
        let view = View { rooms: vec![room], ..View::default() };
        assert!(view.room_of(Path::new("/tmp/a")).is_some());
        assert!(view.room_of(Path::new("/tmp")).is_none());
        assert!(view.room_of(Path::new("/tmpfs/a")).is_none());
    }
}
