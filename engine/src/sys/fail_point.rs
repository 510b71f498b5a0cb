//! Counted points at which a test lets the process die, fail or wait.
//!
//! Every call that changes names, contents of nono's own files or attributes, that flushes them, or
//! that starts a thread, passes one before and one after it. Without the cargo feature
//! `fail-points` this is nothing at all. With it the variable `NONO_FAIL_POINT` says what happens
//! at the Nth point:
//!
//! - `N` kills the process as a power button would: nothing is unwound, flushed or removed.
//! - `N:stop` stops it (SIGSTOP) until another process lets it go on.
//! - `N:EIO` (or another error) lets the call fail that would come next; `N+:EIO` that one and
//!   every later one. Points after a call count and do nothing.
//! - `N:hold@/fifo` holds the thread until a process has opened this named pipe for writing and
//!   closed it; `N:EIO@/fifo` does so and lets the call fail then.
//!
//! Where threads pass points in any order, a number means nothing. Instead of `N`, `flush` is the
//! first call that flushes everything, and `name=PREFIX` the first that is about a name that begins
//! so, which may be that of a thread.
//!
//! And with `NONO_OPERATION_LOG=DIR` every call that succeeded is written down; see
//! `operation_log.rs`.

use std::path::Path;

use super::dir::Dir;

/// A name in a directory.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "fail-points"), allow(dead_code, reason = "only tests look at it"))]
pub(super) struct Place<'a>(pub(super) &'a Dir, pub(super) &'a [u8]);

/// The effect of a call on the names on the disk, as far as a power failure can undo it.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "fail-points"), allow(dead_code, reason = "only tests look at it"))]
pub(super) enum Operation<'a> {
    /// No name changes.
    Attributes,
    /// A new inode gets a name; its contents are not flushed.
    Create(Place<'a>),
    MakeDir(Place<'a>),
    MakeDirAt(&'a Path),
    /// An inode gets one more name.
    Link(Place<'a>),
    Rename(Place<'a>, Place<'a>),
    Exchange(Place<'a>, Place<'a>),
    Remove(Place<'a>),
    RemoveDir(Place<'a>),
    /// The contents of a file are flushed.
    SyncFile(Place<'a>),
    /// The names in a directory are flushed.
    SyncDir(&'a Dir),
    /// Everything is flushed.
    SyncAll,
    /// A thread of this name begins.
    StartThread(&'a str),
    /// Another process does something for this one: a container engine.
    Request(&'a str),
}

#[cfg(feature = "fail-points")]
impl<'a> Operation<'a> {
    /// The name that it is about; of two, the one that is there before.
    fn name(&self) -> Option<&'a [u8]> {
        match self {
            Self::Create(Place(_, name))
            | Self::MakeDir(Place(_, name))
            | Self::Link(Place(_, name))
            | Self::Rename(Place(_, name), _)
            | Self::Exchange(Place(_, name), _)
            | Self::Remove(Place(_, name))
            | Self::RemoveDir(Place(_, name))
            | Self::SyncFile(Place(_, name)) => Some(name),
            Self::StartThread(name) | Self::Request(name) => Some(name.as_bytes()),
            Self::Attributes | Self::MakeDirAt(_) | Self::SyncDir(_) | Self::SyncAll => None,
        }
    }
}

/// Passes a point before a request to another process; `name` is that of the request.
///
/// # Errors
/// Only where a test asks for one.
pub fn before_request(name: &str) -> super::Result<()> {
    let passed: std::io::Result<()> = around(Operation::Request(name), || Ok(()));
    passed.map_err(|source| super::Error { operation: "ask for", path: name.into(), source })
}

/// Runs a call between two points.
///
/// # Errors
/// The error of the call.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub(super) fn around<T, E>(
    _operation: Operation<'_>,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    call()
}

#[cfg(feature = "fail-points")]
pub(super) use chosen::around;

#[cfg(feature = "fail-points")]
mod chosen {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::io::Errno;
    use rustix::process::{Signal, getpid, kill_process};

    use super::Operation;
    use crate::sys::operation_log;

    struct Chosen {
        moment: Moment,
        fifo: Option<PathBuf>,
        action: Action,
    }

    /// Where it happens.
    enum Moment {
        Point(u64),
        FirstFlush,
        FirstNamed(Vec<u8>),
    }

    impl Moment {
        /// Which of the points that count it is.
        fn number(&self) -> u64 {
            match self {
                Self::Point(point) => *point,
                Self::FirstFlush | Self::FirstNamed(_) => 1,
            }
        }

        /// Whether a point counts: that before an operation, or one after a call.
        fn counts(&self, before: Option<&Operation<'_>>) -> bool {
            match self {
                Self::Point(_) => true,
                Self::FirstFlush => matches!(before, Some(Operation::SyncAll)),
                Self::FirstNamed(prefix) => {
                    before.and_then(Operation::name).is_some_and(|name| name.starts_with(prefix))
                }
            }
        }
    }

    enum Action {
        Kill,
        Stop,
        Nothing,
        Fail { errno: Errno, from_then_on: bool },
    }

    /// Runs a call between two points.
    pub(in crate::sys) fn around<T, E: From<Errno>>(
        operation: Operation<'_>,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(errno) = pass(Some(&operation)) {
            return Err(errno.into());
        }
        let value = operation_log::record(operation, call);
        pass(None);
        value
    }

    /// Counts the point before an operation, or one after a call; an error is that of the
    /// operation.
    fn pass(before: Option<&Operation<'_>>) -> Option<Errno> {
        static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();
        static PASSED: AtomicU64 = AtomicU64::new(0);
        let chosen = CHOSEN.get_or_init(|| parse(&std::env::var("NONO_FAIL_POINT").ok()?));
        let Chosen { moment, fifo, action } = chosen.as_ref()?;
        if !moment.counts(before) {
            return None;
        }
        let point = moment.number();
        let passed = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(fifo) = fifo.as_ref().filter(|_| passed == point) {
            let _ = std::fs::read(fifo);
        }
        match action {
            Action::Fail { errno, from_then_on: true } if passed >= point => Some(*errno),
            _ if passed != point => None,
            Action::Fail { errno, .. } => Some(*errno),
            Action::Kill => {
                let _ = kill_process(getpid(), Signal::KILL);
                None
            }
            Action::Stop => {
                let _ = kill_process(getpid(), Signal::STOP);
                None
            }
            Action::Nothing => None,
        }
    }

    fn parse(text: &str) -> Option<Chosen> {
        let (place, action) = text.split_once(':').unwrap_or((text, "kill"));
        let (action, fifo) = action.split_once('@').unwrap_or((action, ""));
        let fifo = (!fifo.is_empty()).then(|| fifo.into());
        let from_then_on = place.ends_with('+');
        let moment = match place.trim_end_matches('+') {
            "flush" => Moment::FirstFlush,
            place => match place.strip_prefix("name=") {
                Some(prefix) => Moment::FirstNamed(prefix.into()),
                None => Moment::Point(place.parse().ok()?),
            },
        };
        let action = match action {
            "kill" => Action::Kill,
            "stop" => Action::Stop,
            "hold" => Action::Nothing,
            name => {
                let errno = match name {
                    "EIO" => Errno::IO,
                    "ENOSPC" => Errno::NOSPC,
                    "EDQUOT" => Errno::DQUOT,
                    "EMFILE" => Errno::MFILE,
                    "EACCES" => Errno::ACCESS,
                    "EROFS" => Errno::ROFS,
                    "EAGAIN" => Errno::AGAIN,
                    _ => return None,
                };
                Action::Fail { errno, from_then_on }
            }
        };
        Some(Chosen { moment, fifo, action })
    }
}
