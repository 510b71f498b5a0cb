//! Where a watcher of a tracked path is found: its lock and its socket.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::WatchError;
use super::protocol::Connection;
use crate::layout;
use crate::object::ContentHash;
use crate::sys::{self, Dir, FileLock, IoContext};

const LOCK: &str = "lock";
const SOCKET: &str = "socket";
const KEY: &str = "key";
/// Longer keys are none.
const MAX_KEY_BYTES: u64 = 1 << 8;
/// Hexadecimal digits of a hash in a name.
const NAME_DIGITS: usize = 32;

/// The place of the watcher of one tracked path.
#[derive(Debug)]
pub struct WatchPlace {
    path: PathBuf,
}

/// Keeps other watchers from the same tracked path, as long as it lives.
#[derive(Debug)]
pub struct WatchLock {
    _lock: FileLock,
}

/// All places of watchers in a store.
///
/// # Errors
/// When the store cannot be read.
pub fn watched_places(root: &Path) -> sys::Result<Vec<WatchPlace>> {
    let all = root.join(layout::WATCH);
    let names = match Dir::open(&all).and_then(|dir| dir.names()) {
        Err(error) if error.is_gone() => return Ok(Vec::new()),
        names => names?,
    };
    let path = |name: &[u8]| all.join(crate::path_text::to_path(name));
    let mut places: Vec<_> = names.iter().map(|it| WatchPlace { path: path(&it.name) }).collect();
    places.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(places)
}

impl WatchPlace {
    /// The place of the watcher of a tracked path, which may not be there.
    pub fn of(root: &Path, tracked_path: &Path) -> Self {
        let hash = ContentHash::of(tracked_path.as_os_str().as_bytes()).to_string();
        Self { path: root.join(layout::WATCH).join(&hash[..NAME_DIGITS]) }
    }

    /// Takes the lock, and makes the place if it is missing. `None`: a watcher is there.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub fn lock(&self) -> sys::Result<Option<WatchLock>> {
        sys::create_private_dir(&self.path)?;
        let lock = FileLock::try_exclusive(&self.path.join(LOCK))?;
        Ok(lock.map(|lock| WatchLock { _lock: lock }))
    }

    /// Whether a watcher is there.
    ///
    /// # Errors
    /// When the place cannot be looked at.
    pub fn is_watched(&self) -> sys::Result<bool> {
        let lock = self.path.join(LOCK);
        if sys::kind_of(&lock)?.is_none() {
            return Ok(false);
        }
        Ok(FileLock::try_shared(&lock)?.is_none())
    }

    /// Listens for questions, which have to know the returned key. A socket that a killed watcher left is replaced: the lock says that
    /// no one listens.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn listen(&self, _lock: &WatchLock) -> sys::Result<(UnixListener, String)> {
        let dir = Dir::open(&self.path)?;
        match dir.remove_file(SOCKET.as_bytes()) {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
        let key = hex::encode(sys::random_bytes()?);
        dir.replace_file(KEY.as_bytes(), key.as_bytes(), 0o600, false)?;
        let listener = UnixListener::bind(short(&dir)).at("listen at", &self.path.join(SOCKET))?;
        Ok((listener, key))
    }

    /// Reaches the watcher. `None`: none is there.
    ///
    /// # Errors
    /// When the place cannot be looked at.
    pub fn connect(&self) -> Result<Option<Connection>, WatchError> {
        let dir = match Dir::open(&self.path) {
            Err(error) if error.is_gone() => return Ok(None),
            dir => dir?,
        };
        // Nothing listens at the socket of a watcher that was killed.
        let Ok(stream) = UnixStream::connect(short(&dir)) else { return Ok(None) };
        let key = dir.read(KEY.as_bytes(), MAX_KEY_BYTES)?;
        Ok(Some(Connection { stream, key: String::from_utf8_lossy(&key).into_owned() }))
    }
}

/// A name of the socket that is short enough for an address, wherever the store is.
fn short(dir: &Dir) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", dir.as_fd().as_raw_fd()))
}
