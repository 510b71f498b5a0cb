//! A process that answers for a mount whose own process was killed and cannot end.
//!
//! `FUSE_NOTIFY_STORE` waits for a page that a READ has locked. A process that is killed while one
//! of its threads waits so can neither answer the READ nor close the connection: the thread ends
//! after the write, the write after the answer, and the last thread closes the descriptors. Reader
//! and server wait for one another, and not even SIGKILL helps.
//!
//! So another process, the *guard*, has the connection too. It sleeps until a thread of the server
//! has ended. If the server itself has not, the guard makes the kernel hand out again every request
//! without an answer (`FUSE_NOTIFY_RESEND`, since Linux 6.9), and answers that the connection is
//! broken. Then the server can end, the guard does, and the kernel breaks the connection.
//!
//! A guard is a program of its own, started with [`Mount::start_guard`](crate::Mount::start_guard):
//! a child that is made by `fork` alone would keep the server's memory.

use std::fmt;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::mpsc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};
use rustix::thread::gettid;

use crate::error::MountError;
use crate::kernel::notify::Notifications;
use crate::server::filesystem::MAX_WRITE_BYTES;

/// `PIDFD_THREAD` of `linux/pidfd.h`: one thread, not all of its process. Since Linux 6.9.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
/// From the end of the watched thread to that of its process, when nothing is wrong. Also the time
/// until the kernel is asked again, as a thread that was ending may have taken what it handed out.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Room that the kernel wants in each read: the largest WRITE, though none comes.
const BUFFER_BYTES: usize = MAX_WRITE_BYTES as usize + 4096;

/// The thread and the process that a guard watches. As text, an argument of the guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    process: Pid,
    thread: Pid,
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.process.as_raw_pid(), self.thread.as_raw_pid())
    }
}

impl FromStr for Watched {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id = |text: &str| text.parse().ok().filter(|id| *id > 0).and_then(Pid::from_raw);
        let ids = text.split_once(':').and_then(|(one, other)| Some((id(one)?, id(other)?)));
        let (process, thread) = ids.ok_or("not a process and a thread, as in 12:34")?;
        Ok(Self { process, thread })
    }
}

/// A guard that runs, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Guard(
    // The guard notices that no process can read any more.
    #[allow(dead_code, reason = "only to be dropped")] PipeReader,
);

impl Guard {
    /// Starts `command` with the connection as its standard input, a pipe as its standard output,
    /// and one more argument. It watches a thread that does nothing but wait for its end.
    pub(crate) fn start(
        mut command: Command,
        directory: &Path,
        connection: OwnedFd,
    ) -> Result<Self, MountError> {
        pidfd_open(gettid(), PIDFD_THREAD)
            .map_err(|_| MountError::io("guard", directory, io::ErrorKind::Unsupported))?;
        let program = command.get_program().to_owned();
        let failed = |error| MountError::io("start a guard with", program, error);
        let (until, closed) = match io::pipe() {
            Ok(pipe) => pipe,
            Err(error) => return Err(failed(error)),
        };
        command.stdin(connection).stdout(closed);
        let (started, has_started) = mpsc::sync_channel(1);
        let guard = move || {
            let watched = Watched { process: getpid(), thread: gettid() };
            let child = command.arg(watched.to_string()).spawn();
            // With it go the copies of what the guard got.
            drop(command);
            let (child, result) = match child {
                Ok(child) => (Some(child), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The receiver waits.
            let _ = started.send(result);
            if let Some(mut child) = child {
                let ended = child.wait();
                tracing::debug!(?ended, "the guard has ended");
            }
        };
        let spawned = std::thread::Builder::new().name("nono-guard".to_owned()).spawn(guard);
        let started = spawned.and_then(|_| has_started.recv().map_err(io::Error::other)?);
        started.map(|()| Self(until)).map_err(failed)
    }
}

/// The whole work of a guard, a child of the process that it watches. Returns when that has ended,
/// or the pipe `until` has no reader any more. The guard should end then, and with it the last
/// descriptor of the connection.
///
/// # Errors
/// The kernel is older than Linux 6.9, or broke the connection in another way than by ending it.
pub fn stand_guard(watched: Watched, connection: OwnedFd, until: impl AsFd) -> io::Result<()> {
    let Some(process) = open(watched.process, PidfdFlags::empty())? else { return Ok(()) };
    let thread = open(watched.thread, PIDFD_THREAD)?;
    if getppid() != Some(watched.process) {
        // It had ended before we looked, so the numbers may be another's by now.
        return Ok(());
    }
    let (process, until) = (process.as_fd(), until.as_fd());
    if let Some(thread) = thread {
        wait_for([process, until, thread.as_fd()], None)?;
    }
    let mut intervention = None;
    while !wait_for([process, until], Some(&POLL_INTERVAL))? {
        let (kernel, buffer) = match &mut intervention {
            Some(begun) => begun,
            none => none.insert(intervene(connection.try_clone()?)?),
        };
        match kernel.resend().and_then(|()| refuse_all(kernel, buffer)) {
            Ok(()) => {}
            // It has ended; kernels differ in what they say then.
            Err(Errno::NODEV | Errno::NOTCONN | Errno::INVAL) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// `None`: it has ended.
fn open(id: Pid, flags: PidfdFlags) -> io::Result<Option<OwnedFd>> {
    match pidfd_open(id, flags) {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Takes the connection over from threads that are ending.
fn intervene(connection: OwnedFd) -> io::Result<(Notifications, Vec<u8>)> {
    let flags = rustix::fs::fcntl_getfl(&connection)?;
    rustix::fs::fcntl_setfl(&connection, flags | OFlags::NONBLOCK)?;
    Ok((Notifications::new(connection), vec![0; BUFFER_BYTES]))
}

/// Waits for the end of any of some processes and pipes. `false` when the time is over.
fn wait_for<const N: usize>(
    ends: [BorrowedFd<'_>; N],
    timeout: Option<&Timespec>,
) -> io::Result<bool> {
    // A pipe without a reader tells of that without being asked.
    let mut ends = ends.map(|end| PollFd::from_borrowed_fd(end, PollFlags::IN));
    Ok(rustix::io::retry_on_intr(|| poll(&mut ends, timeout))? > 0)
}

/// Answers everything that the kernel asks for now with an error.
fn refuse_all(kernel: &Notifications, buffer: &mut [u8]) -> Result<(), Errno> {
    loop {
        match kernel.next_request(buffer) {
            // A request that was answered meanwhile is unknown to the kernel.
            Ok(Some(unique)) => drop(kernel.refuse(unique, Errno::CONNABORTED)),
            Ok(None) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test without a thread fails")]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_watched_is_an_argument() {
        let this = Watched { process: getpid(), thread: gettid() };
        assert_eq!(this.to_string().parse::<Watched>().unwrap(), this);
        for text in ["", "1", "1:", ":1", "0:1", "1:-1", "1:2:3", "a:b"] {
            assert!(text.parse::<Watched>().is_err(), "{text}");
        }
    }

    /// The parent of the tests, and a thread of it that has ended or never was.
    fn of_an_ended_thread() -> Watched {
        let thread = std::thread::spawn(gettid).join().unwrap();
        Watched { process: getppid().unwrap(), thread }
    }

    /// Whether a thread can be watched here; notes that the test does not run where not.
    fn threads_can_be_watched() -> bool {
        let watched = pidfd_open(gettid(), PIDFD_THREAD);
        if let Err(error) = &watched {
            assert_eq!(*error, Errno::INVAL);
            crate::not_run::not_run("guards need Linux 6.9");
        }
        watched.is_ok()
    }

    #[test]
    fn a_guard_whose_thread_ended_before_it_looked_intervenes_until_it_may_end() {
        if !threads_can_be_watched() {
            return;
        }
        let (until, closed) = io::pipe().unwrap();
        let (mut kernel, connection) = UnixStream::pair().unwrap();
        let guard = std::thread::spawn(move || {
            stand_guard(of_an_ended_thread(), connection.into(), closed)
        });
        let mut resend = [0; 16];
        kernel.read_exact(&mut resend).unwrap();
        assert_eq!(resend[4..8], 7_i32.to_ne_bytes());
        drop(until);
        guard.join().unwrap().unwrap();
    }

    #[test]
    fn a_guard_does_not_touch_the_connection_of_what_lives() {
        if !threads_can_be_watched() {
            return;
        }
        let (until, closed) = io::pipe().unwrap();
        let (mut kernel, connection) = UnixStream::pair().unwrap();
        let process = getppid().unwrap();
        // Its first thread.
        let watched = Watched { process, thread: process };
        let guard = std::thread::spawn(move || stand_guard(watched, connection.into(), closed));
        drop(until);
        guard.join().unwrap().unwrap();
        assert_eq!(kernel.read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn a_guard_of_what_is_not_its_parent_ends() {
        if !threads_can_be_watched() {
            return;
        }
        let (_until, closed) = io::pipe().unwrap();
        let (mut kernel, connection) = UnixStream::pair().unwrap();
        let watched = Watched { process: getpid(), thread: gettid() };
        stand_guard(watched, connection.into(), closed).unwrap();
        assert_eq!(kernel.read(&mut [0; 1]).unwrap(), 0);
    }
}
