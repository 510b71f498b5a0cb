//! Which programs write files, as the kernel tells an administrator (fanotify).
//!
//! An event names a process, and the name of its program is read at once: a process that has ended
//! has none. So the names are a help for people, and nothing depends on them. Each directory has a
//! mark of its own. A mark on the whole file system would wake the reader for every write
//! elsewhere.

#[cfg(target_os = "linux")]
pub(crate) use linux::Writers;
#[cfg(not(target_os = "linux"))]
pub(crate) use others::Writers;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use nix::errno::Errno;
    use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};

    use super::super::dir::Dir;
    use super::super::file::read_kernel_file;

    /// Events that are read at once; the names of those behind them are lost.
    const MAX_EVENTS: usize = 1 << 12;
    /// Longest name of a program in bytes, which the kernel cuts far below.
    const MAX_NAME_BYTES: u64 = 1 << 8;

    /// A queue of the processes that closed a file which they could write.
    #[derive(Debug)]
    pub(crate) struct Writers {
        group: Fanotify,
    }

    impl Writers {
        /// Makes an empty queue; none without the right to (`CAP_SYS_ADMIN`).
        pub(crate) fn new() -> Option<Self> {
            let init = InitFlags::FAN_CLASS_NOTIF
                | InitFlags::FAN_CLOEXEC
                | InitFlags::FAN_NONBLOCK
                | InitFlags::FAN_UNLIMITED_MARKS;
            let opened = EventFFlags::O_RDONLY
                | EventFFlags::O_LARGEFILE
                | EventFFlags::O_CLOEXEC
                | EventFFlags::O_NOATIME
                | EventFFlags::O_NONBLOCK;
            let group = Fanotify::init(init, opened);
            group
                .inspect_err(|error| tracing::debug!("no names of programs: {error}"))
                .ok()
                .map(|group| Self { group })
        }

        /// The descriptor, which can be read when there are events.
        pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
            self.group.as_fd()
        }

        /// Asks about the files right in a directory. Where that fails, they have no names.
        pub(crate) fn watch(&self, dir: &Dir) {
            let link = PathBuf::from(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()));
            let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_ONLYDIR;
            let mask = MaskFlags::FAN_CLOSE_WRITE | MaskFlags::FAN_EVENT_ON_CHILD;
            if let Err(error) = self.group.mark(flags, mask, dir, Some(&link)) {
                tracing::debug!("no names of programs in a directory: {error}");
            }
        }

        /// The written files since the last call, each with the name of the program.
        pub(crate) fn read(&self) -> Vec<(PathBuf, String)> {
            let mut written = Vec::new();
            let own = std::process::id().cast_signed();
            let mut count = 0;
            loop {
                let events = match self.group.read_events() {
                    Ok(events) => events,
                    Err(Errno::EINTR) => continue,
                    Err(_) => return written,
                };
                for event in &events {
                    count += 1;
                    let Some(fd) = event.fd().filter(|_| event.pid() != own) else { continue };
                    if count > MAX_EVENTS {
                        continue;
                    }
                    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
                    let name = PathBuf::from(format!("/proc/{}/comm", event.pid()));
                    let path = rustix::fs::readlink(link.as_str(), Vec::new());
                    let name = read_kernel_file(&name, MAX_NAME_BYTES);
                    if let (Ok(path), Ok(name)) = (path, name) {
                        let path = std::ffi::OsString::from_vec(path.into_bytes()).into();
                        let name = String::from_utf8_lossy(&name).trim_end().to_owned();
                        written.push((path, name));
                    }
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    use std::os::fd::BorrowedFd;
    use std::path::PathBuf;

    use super::super::dir::Dir;

    /// There is none: the calls are of Linux alone.
    #[derive(Debug)]
    pub(crate) enum Writers {}

    impl Writers {
        pub(crate) fn new() -> Option<Self> {
            None
        }

        pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }

        pub(crate) fn watch(&self, _dir: &Dir) {
            match *self {}
        }

        pub(crate) fn read(&self) -> Vec<(PathBuf, String)> {
            match *self {}
        }
    }
}
