//! A process that answers for a mount whose own process was killed and cannot end.
//!
//! `FUSE_NOTIFY_STORE` waits for a page that a READ has locked. A process that is killed while one of its
//! threads does so can neither answer the READ nor close the connection: the thread ends after the write,
//! the write after the answer, and the descriptors are closed by the last thread. Reader and server wait for
//! one another, and not even SIGKILL helps.
//!
//! So another process has the connection too. It sleeps until a thread of the server has ended. As long as the
//! server itself has not, it has the kernel hand out again what nobody answered (`FUSE_NOTIFY_RESEND`, since
//! Linux 6.9), and answers that the connection is broken, which is what users of a dead mount are told anyway.
//! Then the server can end, the guard does, and the kernel breaks the connection.
//!
//! It is a process started with [`Mount::start_guard`](crate::Mount::start_guard), because a child that is made
//! by `fork` alone would keep the server's memory.

use std::fmt;
use std::io;
use std::num::ParseIntError;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::str::FromStr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::filesystem::MAX_WRITE_BYTES;
use crate::notify::{HEADER_BYTES, Notifications, out_header};

/// `PIDFD_THREAD` of `linux/pidfd.h`: one thread, not all of its process. Since Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
/// Until the kernel is asked again: a thread that was ending may have taken what it handed out.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// What the kernel wants room for in each read: the largest WRITE, though none comes.
const BUFFER_BYTES: usize = MAX_WRITE_BYTES as usize + 4096;

/// The thread and the process that a guard watches. As text, an argument of the guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    process: Pid,
    thread: Pid,
}

impl Watched {
    /// The calling thread.
    pub(crate) fn this_thread() -> Self {
        Self { process: rustix::process::getpid(), thread: rustix::thread::gettid() }
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.process.as_raw_pid(), self.thread.as_raw_pid())
    }
}

/// A text that names no thread.
#[derive(Debug, thiserror::Error)]
#[error("no process and thread, as in 12:34")]
pub struct NotWatched;

impl From<ParseIntError> for NotWatched {
    fn from(_: ParseIntError) -> Self {
        Self
    }
}

impl FromStr for Watched {
    type Err = NotWatched;

    fn from_str(text: &str) -> Result<Self, NotWatched> {
        let (process, thread) = text.split_once(':').ok_or(NotWatched)?;
        let id = |text: &str| match text.parse()? {
            id @ 1.. => Pid::from_raw(id).ok_or(NotWatched),
            _ => Err(NotWatched),
        };
        Ok(Self { process: id(process)?, thread: id(thread)? })
    }
}

/// The whole work of a guard, a child of what it watches. Returns when that process has ended, or the mount; the
/// guard should end then, and with it the last descriptor of the connection.
///
/// # Errors
/// The kernel is older than Linux 6.9 ([`io::ErrorKind::InvalidInput`]), or broke the connection in another way than by
/// ending it.
pub fn stand_guard(watched: Watched, connection: OwnedFd) -> io::Result<()> {
    let opened = pidfd_open(watched.process, PidfdFlags::empty())
        .and_then(|process| Ok((process, pidfd_open(watched.thread, PIDFD_THREAD)?)));
    let (process, thread) = match opened {
        Ok(opened) => opened,
        Err(Errno::SRCH) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if rustix::process::getppid() != Some(watched.process) {
        // It had ended before we looked, so the numbers may be another's by now.
        return Ok(());
    }
    wait_for([process.as_fd(), thread.as_fd()], None)?;
    // No thread is left that would mind.
    let flags = rustix::fs::fcntl_getfl(&connection)?;
    rustix::fs::fcntl_setfl(&connection, flags | OFlags::NONBLOCK)?;
    let kernel = Notifications::new(connection);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match kernel.resend().and_then(|()| refuse_all(&kernel, &mut buffer)) {
            Ok(()) => {}
            // Unmounted.
            Err(Errno::NODEV | Errno::NOTCONN) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        if wait_for([process.as_fd()], Some(&PATIENCE))? {
            return Ok(());
        }
    }
}

/// Waits for the end of any of some processes. `false` when the time is over.
fn wait_for<const N: usize>(
    processes: [BorrowedFd<'_>; N],
    timeout: Option<&Timespec>,
) -> io::Result<bool> {
    let mut processes = processes.map(|process| PollFd::from_borrowed_fd(process, PollFlags::IN));
    Ok(rustix::io::retry_on_intr(|| poll(&mut processes, timeout))? > 0)
}

/// Answers all that the kernel asks for now with an error.
fn refuse_all(kernel: &Notifications, buffer: &mut [u8]) -> Result<(), Errno> {
    loop {
        let request = match rustix::io::read(kernel, &mut *buffer) {
            Ok(count) => &buffer[..count],
            Err(Errno::AGAIN) => return Ok(()),
            // NOENT: it was taken back meanwhile.
            Err(Errno::INTR | Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        // `fuse_in_header`: length, opcode, number of the request.
        let Some(unique) = request.get(8..16).and_then(|unique| unique.try_into().ok()) else {
            continue;
        };
        match u64::from_ne_bytes(unique) {
            // Wants no answer.
            0 => {}
            unique => {
                let answer: [u8; HEADER_BYTES] =
                    out_header(-Errno::CONNABORTED.raw_os_error(), unique, 0)?;
                // Those that want no answer are unknown to the kernel already.
                let _ = rustix::io::write(kernel, &answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_is_an_argument() {
        let this = Watched::this_thread();
        assert_eq!(this.to_string().parse::<Watched>().unwrap(), this);
        for text in ["", "1", "1:", ":1", "0:1", "1:-1", "1:2:3", "a:b"] {
            assert!(text.parse::<Watched>().is_err(), "{text}");
        }
    }
}
