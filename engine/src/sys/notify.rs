//! Changes in directories, as the kernel tells them (inotify).
//!
//! The kernel queues an event within the system call that causes it. So an empty queue says that
//! every change before this moment was read, and no cookie file has to prove it. A watch is set on
//! an open directory and not on a path, so no symlink leads it elsewhere.

use super::dir::Dir;
use super::error::Result;

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A name in the directory, its inode or its contents changed.
    Changed {
        /// The watch of the directory.
        watch: i32,
        /// The name; empty for the directory itself.
        name: Box<[u8]>,
        /// Whether it is a directory.
        is_dir: bool,
        /// Whether the name came or went.
        fate: Fate,
    },
    /// The directory itself was removed or moved.
    Moved {
        /// Its watch.
        watch: i32,
    },
    /// The file system of a directory was unmounted.
    Unmounted,
    /// The kernel ended the watch.
    Ended {
        /// The watch.
        watch: i32,
    },
    /// The queue of the kernel was full: events are lost.
    Overflow,
}

/// The fate of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It came.
    Came,
    /// It went.
    Went,
    /// It stays.
    Stays,
}

#[cfg(target_os = "linux")]
pub(crate) use linux::Notifier;
#[cfg(not(target_os = "linux"))]
pub(crate) use others::Notifier;

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
    use std::path::Path;

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use rustix::io::Errno;

    use super::super::error::IoContext;
    use super::{Dir, Fate, Notice, Result};

    /// Bytes of the buffer: several hundred events.
    const BUFFER_BYTES: usize = 64 << 10;
    /// All that can change an entry of a directory, or what is below it. `MASK_ADD`: else the
    /// kernel sets the mask of a directory that is watched again to nothing for a moment, and tells
    /// nothing of the changes then (`inotify_update_existing_watch`).
    const MASK: WatchFlags = WatchFlags::MODIFY
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::CLOSE_WRITE)
        .union(WatchFlags::CREATE)
        .union(WatchFlags::DELETE)
        .union(WatchFlags::DELETE_SELF)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::MOVE_SELF)
        .union(WatchFlags::ONLYDIR)
        .union(WatchFlags::MASK_ADD);

    /// A queue of events of the kernel.
    #[derive(Debug)]
    pub(crate) struct Notifier {
        fd: OwnedFd,
    }

    impl Notifier {
        /// Makes an empty queue.
        ///
        /// # Errors
        /// EMFILE: `fs.inotify.max_user_instances` are in use.
        pub(crate) fn new() -> Result<Self> {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
            Ok(Self { fd: fd.at("watch", Path::new("inotify"))? })
        }

        /// The descriptor, which can be read when there are events.
        pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }

        /// Watches a directory. One that is watched keeps its number.
        ///
        /// # Errors
        /// ENOSPC: `fs.inotify.max_user_watches` are in use.
        pub(crate) fn watch(&self, dir: &Dir) -> Result<i32> {
            let link = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
            inotify::add_watch(&self.fd, link.as_str(), MASK).at("watch", dir.path())
        }

        /// Ends a watch; one that has ended is no error.
        pub(crate) fn unwatch(&self, watch: i32) {
            let _ = inotify::remove_watch(&self.fd, watch);
        }

        /// Reads all events that are there, at most so many.
        ///
        /// # Errors
        /// Hardly any.
        pub(crate) fn read(&self, most: usize) -> Result<Vec<Notice>> {
            let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
            let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
            let mut notices = Vec::new();
            while notices.len() < most {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error).at("read events of", Path::new("inotify")),
                };
                let (watch, is) = (event.wd(), |flag| event.events().contains(flag));
                notices.push(if is(ReadFlags::QUEUE_OVERFLOW) {
                    Notice::Overflow
                } else if is(ReadFlags::IGNORED) {
                    Notice::Ended { watch }
                } else if is(ReadFlags::UNMOUNT) {
                    Notice::Unmounted
                } else if is(ReadFlags::DELETE_SELF) || is(ReadFlags::MOVE_SELF) {
                    Notice::Moved { watch }
                } else {
                    let fate = if is(ReadFlags::CREATE) || is(ReadFlags::MOVED_TO) {
                        Fate::Came
                    } else if is(ReadFlags::DELETE) || is(ReadFlags::MOVED_FROM) {
                        Fate::Went
                    } else {
                        Fate::Stays
                    };
                    let name = event.file_name().map(|name| name.to_bytes().into());
                    let is_dir = is(ReadFlags::ISDIR);
                    Notice::Changed { watch, name: name.unwrap_or_default(), is_dir, fate }
                });
            }
            Ok(notices)
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    use std::os::fd::BorrowedFd;
    use std::path::Path;

    use super::super::error::IoContext;
    use super::{Dir, Notice, Result};

    /// There is none: the calls are of Linux alone.
    #[derive(Debug)]
    pub(crate) enum Notifier {}

    impl Notifier {
        pub(crate) fn new() -> Result<Self> {
            Err(rustix::io::Errno::NOSYS).at("watch", Path::new("inotify"))
        }

        pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }

        pub(crate) fn watch(&self, _dir: &Dir) -> Result<i32> {
            match *self {}
        }

        pub(crate) fn unwatch(&self, _watch: i32) {
            match *self {}
        }

        pub(crate) fn read(&self, _most: usize) -> Result<Vec<Notice>> {
            match *self {}
        }
    }
}
