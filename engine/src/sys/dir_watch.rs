//! Waiting until names in some directories change: inotify. Elsewhere than on Linux no watch begins.

use std::path::Path;
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::{collections::HashMap, mem::MaybeUninit, time::Instant};

use rustix::fd::BorrowedFd;
#[cfg(target_os = "linux")]
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use super::error::{IoContext, Result};

/// Space for the notes of one read: some hundreds.
#[cfg(target_os = "linux")]
const BUFFER_BYTES: usize = 16 * 1024;

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// A name that counts changed, or notes were lost.
    Changed,
    /// The limit passed.
    TimedOut,
    /// The other end of the given descriptor was closed.
    Closed,
}

/// Watched directories, by the numbers that the kernel gave them.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub struct DirWatch {
    fd: OwnedFd,
    names: HashMap<i32, &'static [&'static [u8]]>,
}

#[cfg(target_os = "linux")]
impl DirWatch {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When this user has too many of them (`fs.inotify.max_user_instances`).
    pub fn new() -> Result<Self> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let fd = inotify::init(flags).at("watch directories from", Path::new("/"))?;
        Ok(Self { fd, names: HashMap::new() })
    }

    /// Watches a directory. Of its names only `names` count; all do if there are none. A directory
    /// that is watched already stays so.
    ///
    /// # Errors
    /// ENOENT, EACCES, and ENOSPC where this user watches too many (`fs.inotify.max_user_watches`).
    pub fn add(&mut self, dir: &Path, names: &'static [&'static [u8]]) -> Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW
            // Without it, the kernel sets the mask of a known directory to nothing for a moment.
            // A change in that moment has no note (`inotify_update_existing_watch`).
            | WatchFlags::MASK_ADD;
        let watch = inotify::add_watch(&self.fd, dir, flags).at("watch", dir)?;
        self.names.insert(watch, names);
        Ok(())
    }

    /// Waits for a change of a name that counts, without a limit if none is given. `closed` ends the
    /// wait when its other end is closed: the reader of a pipe, the peer of a socket.
    ///
    /// # Errors
    /// Hardly any.
    pub fn wait(
        &mut self,
        limit: Option<Duration>,
        closed: Option<BorrowedFd<'_>>,
    ) -> Result<Waited> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            if self.has_change()? {
                return Ok(Waited::Changed);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Waited::TimedOut);
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let watches = PollFd::new(&self.fd, PollFlags::IN);
            // An empty mask asks for hang-ups and errors alone.
            let mut polled = vec![watches];
            polled.extend(closed.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty())));
            match poll(&mut polled, left.as_ref()) {
                Err(Errno::INTR) | Ok(_) => {}
                Err(errno) => return Err(errno).at("wait for changes of", Path::new("/")),
            }
            if polled.get(1).is_some_and(|closed| !closed.revents().is_empty()) {
                return Ok(Waited::Closed);
            }
        }
    }

    /// Reads all notes that are there: whether one of them is of a name that counts.
    fn has_change(&mut self) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut is_changed = false;
        loop {
            let note = match reader.next() {
                Ok(note) => note,
                Err(Errno::WOULDBLOCK) => return Ok(is_changed),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno).at("wait for changes of", Path::new("/")),
            };
            if note.events().contains(ReadFlags::IGNORED) {
                self.names.remove(&note.wd());
                is_changed = true;
                continue;
            }
            let counted = self.names.get(&note.wd()).copied().unwrap_or_default();
            let name = note.file_name().map(std::ffi::CStr::to_bytes);
            is_changed |= note.events().contains(ReadFlags::QUEUE_OVERFLOW)
                || counted.is_empty()
                || name.is_some_and(|name| counted.contains(&name));
        }
    }
}

/// Watched directories: none.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct DirWatch {
    none: std::convert::Infallible,
}

#[cfg(not(target_os = "linux"))]
impl DirWatch {
    /// Fails: only Linux has inotify.
    ///
    /// # Errors
    /// Always.
    pub fn new() -> Result<Self> {
        Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
            .at("watch directories from", Path::new("/"))
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn add(&mut self, _: &Path, _: &'static [&'static [u8]]) -> Result<()> {
        match self.none {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn wait(&mut self, _: Option<Duration>, _: Option<BorrowedFd<'_>>) -> Result<Waited> {
        match self.none {}
    }
}
