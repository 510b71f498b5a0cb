//! The present meaning of a signal: decided here and nowhere else.
//!
//! A signal has its usual effect, except as long as a part of the program has taken it:
//!
//! | phase | what is taken, and by whom |
//! |---|---|
//! | work that can be stopped | SIGINT and SIGTERM, by [`Bar`](super::progress::Bar): the work ends in order |
//! | the command has the terminal | what is meant for it, by [`CommandSignals`](super::supervise::CommandSignals): passed on |
//! | its last state is recorded | the same: they do not undo the recording; a second Ctrl-C in it does, by its `Bar` |
//! | the timeline, or a review | what a terminal sends, by its screen |
//! | a mount is served | what ends it, by the mount |
//! | a project is watched | what ends it, by the watcher: it takes a last step |
//! | a mount is guarded | the same, by the guard, which does nothing then: it ends with the mount |
//! | always | SIGXFSZ, by [`survive_long_files`]: nothing happens |
//! | waiting for an answer, a lock, a collection | nothing: Ctrl-C ends the program (130), Ctrl-Z stops it |
//!
//! Phases overlap where one follows the other, so that a signal finds either of them. A signal that
//! was ignored when the program started stays ignored and is never taken (`nohup`, a job in the
//! background of a script), also for the command, which inherits it.
//!
//! Once a handler is installed, `signal-hook` leaves it there: without anything to do, the signal
//! would be swallowed. So each signal that is ever taken keeps one action for ever: the usual
//! effect, if no value takes it.

use std::collections::{BTreeMap, btree_map};
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use signal_hook::SigId;
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::unregister;

use super::error::CliError;
use nono_engine::sys;

/// Signals that have another effect than their usual one as long as this lives.
#[derive(Debug, Default)]
pub(super) struct Taken {
    signals: Vec<c_int>,
    actions: Vec<SigId>,
}

impl Taken {
    /// Takes signals. `act` registers what happens instead of their usual effect; an action that
    /// another value registered and keeps needs nothing more.
    ///
    /// # Errors
    /// When the system refuses; nothing is taken then.
    pub(super) fn with<const N: usize>(
        signals: &[c_int],
        mut act: impl FnMut(c_int) -> io::Result<[SigId; N]>,
    ) -> io::Result<Self> {
        let mut taken = Self::default();
        for &signal in signals.iter().filter(|signal| !is_ignored(**signal)) {
            // In this order, and in the opposite one when it ends: no signal finds nothing to do.
            taken.actions.extend(act(signal)?);
            take(signal)?;
            taken.signals.push(signal);
        }
        Ok(taken)
    }

    /// Takes signals; each raises a flag.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub(super) fn raising(signals: &[c_int], raised: &Arc<AtomicBool>) -> io::Result<Self> {
        Self::with(signals, |signal| Ok([flag::register(signal, Arc::clone(raised))?]))
    }

    /// Takes signals; each comes out of a queue that lives at least as long as this.
    ///
    /// # Errors
    /// As [`with`](Self::with).
    pub(super) fn queued(signals: &[c_int], queue: &Signals) -> io::Result<Self> {
        Self::with(signals, |signal| queue.add_signal(signal).map(|()| []))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        for signal in self.signals.drain(..) {
            give_back(signal);
        }
        for action in self.actions.drain(..) {
            unregister(action);
        }
    }
}

/// A queue of signals, with none in it.
///
/// # Errors
/// When the system refuses.
pub(super) fn queue() -> io::Result<Signals> {
    Signals::new([0; 0])
}

/// Why a command that cannot do without signals is not begun.
pub(super) fn refused(error: io::Error) -> CliError {
    CliError::failed(format!("cannot wait for signals: {error}"))
}

/// Keeps a write beyond the limit of a file's length (`ulimit -f`) from ending the program, as long
/// as this lives: the write fails, which is said and taken back like any other failure. The command
/// gets its usual effect back, because no handler outlives an `exec`.
pub(super) fn survive_long_files() -> Option<Taken> {
    Taken::raising(&[SIGXFSZ], &Arc::default()).ok()
}

/// How many have taken a signal, and whether that is none.
#[derive(Debug, Default)]
struct Takers {
    count: usize,
    is_free: Arc<AtomicBool>,
}

static TAKERS: Mutex<BTreeMap<c_int, Takers>> = Mutex::new(BTreeMap::new());

fn take(signal: c_int) -> io::Result<()> {
    let mut all = TAKERS.lock();
    if let btree_map::Entry::Vacant(vacant) = all.entry(signal) {
        let takers = Takers::default();
        flag::register_conditional_default(signal, Arc::clone(&takers.is_free))?;
        vacant.insert(takers);
    }
    if let Some(takers) = all.get_mut(&signal) {
        takers.count += 1;
        takers.is_free.store(false, SeqCst);
    }
    Ok(())
}

fn give_back(signal: c_int) {
    if let Some(takers) = TAKERS.lock().get_mut(&signal) {
        takers.count -= 1;
        takers.is_free.store(takers.count == 0, SeqCst);
    }
}

/// Whether whoever started this process had it ignore a signal.
fn is_ignored(signal: c_int) -> bool {
    // Before the first signal is taken: a taken signal is not ignored any more.
    static IGNORED: OnceLock<u64> = OnceLock::new();
    let ignored = IGNORED.get_or_init(sys::ignored_signals);
    ignored >> (signal - 1) & 1 == 1
}
