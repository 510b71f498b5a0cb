//! Which thread answers: one on the processor of the program that asks, or an ordinary one.
//!
//! A program that walks a tree sends one message after the other and waits for each answer. The
//! scheduler puts a thread that wakes up on an idle processor. So program and answering thread end
//! on two processors, each idle while the other works, and each message wakes both: 60 µs in a
//! virtual machine, where the work itself takes 4.
//!
//! To the scheduler, a processor that runs only threads of the class `SCHED_IDLE` is idle
//! (sched(7), `sched_idle_cpu` in the kernel). So one thread, the *companion*, is of that class and
//! goes to the processor of the program: the program stays there when the answer wakes it. But such
//! a thread gets next to nothing while others want its processor, and only root can take it out of
//! the class again. Hence:
//!
//! - Ordinary threads answer until one program has sent [`WORTH`] short messages in a row. Then
//!   they stand aside, and the companion answers.
//! - They look at every [tick](TICK) whether the companion gets on. If it answered few messages,
//!   they answer again: the program does something else, or the companion waits for its processor.
//!   It is not called again for [a while](PAUSE).
//! - When another program asks, or for so many bytes that copying them takes longer than waking up,
//!   the companion calls them itself.
//! - A thread that the companion starts would be of its class. It starts none.

mod thread;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::thread::{Affinity, Follow, make_companion};
use crate::counters::Counters;

/// Short messages of one program in a row, after which the companion answers the next. At least as
/// many in each tick are worth a companion.
const WORTH: u32 = 8;
/// How long ordinary threads leave the companion alone.
const TICK: Duration = Duration::from_millis(4);
/// How long they do not call it after it did not get on.
const PAUSE: Duration = Duration::from_millis(50);

/// The threads that answer one mount.
pub(crate) struct Company {
    tick: Duration,
    /// Threads that take an ordinary seat.
    ordinary_seats: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// The thread that the companion answers, 0 for none. Written with the state locked.
    asker: AtomicU32,
    /// Says how far the companion is.
    counters: Arc<Counters>,
}

struct State {
    /// Ordinary threads that have not ended.
    ordinary: usize,
    /// One of the ordinary threads.
    an_ordinary: u32,
    companion: Companion,
    /// When the companion may be called again.
    again: Option<Instant>,
}

enum Companion {
    /// It has not answered yet, so it has no class and no name.
    Expected,
    Seated(Affinity),
    /// There is none: not wanted, not possible, or ended.
    None,
}

/// One message that is being answered. The first thing in a request, so that it is dropped after
/// the answer, and with no lock held: the drop may wait.
pub(crate) struct Turn<'a> {
    company: &'a Arc<Company>,
    asker: u32,
}

thread_local! {
    /// A thread serves one mount for all its life.
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// The role of the calling thread; it leaves the company when the thread ends.
struct Seat {
    company: Arc<Company>,
    role: Role,
}

enum Role {
    Ordinary(Streak),
    Companion(Follow),
}

/// How many short messages one program has sent without another between.
#[derive(Default)]
struct Streak {
    asker: Option<NonZeroU32>,
    messages: u32,
}

impl Streak {
    /// Notes a message; `None` ends the row. Returns the program when the companion is worth it.
    fn note(&mut self, asker: Option<NonZeroU32>) -> Option<NonZeroU32> {
        if asker != self.asker {
            *self = Self { asker, messages: 0 };
        }
        self.messages = self.messages.saturating_add(1);
        asker.filter(|_| self.messages >= WORTH)
    }
}

impl Company {
    /// For `ordinary` threads, and one more where a companion is wanted.
    pub(crate) fn new(ordinary: usize, companion: bool, counters: Arc<Counters>) -> Arc<Self> {
        let companion = if companion { Companion::Expected } else { Companion::None };
        let state = State { ordinary: 0, an_ordinary: 0, companion, again: None };
        Arc::new(Self {
            tick: TICK,
            ordinary_seats: ordinary,
            state: Mutex::new(state),
            changed: Condvar::new(),
            asker: AtomicU32::new(0),
            counters,
        })
    }

    /// Begins to answer a short message of the thread `asker`. 0: it is in another namespace, or
    /// the message is long, so that it is better answered beside the program, on another processor.
    pub(crate) fn turn(self: &Arc<Self>, asker: u32) -> Turn<'_> {
        Turn { company: self, asker }
    }

    fn take_seat(self: &Arc<Self>) -> Seat {
        let mut state = self.state.lock();
        let is_expected = matches!(state.companion, Companion::Expected);
        let may_be = is_expected && state.ordinary >= self.ordinary_seats;
        let role =
            if let Some(affinity) = may_be.then(|| make_companion(state.an_ordinary)).flatten() {
                state.companion = Companion::Seated(affinity);
                Role::Companion(Follow::new(affinity))
            } else {
                if may_be {
                    tracing::debug!("no thread of the idle class: messages may cross processors");
                    state.companion = Companion::None;
                    self.recall(&state);
                }
                state.ordinary += 1;
                state.an_ordinary = thread::current();
                Role::Ordinary(Streak::default())
            };
        Seat { company: self.clone(), role }
    }

    /// Ordinary threads answer from now on. `_state` is locked.
    fn recall(&self, state: &State) {
        self.asker.store(0, Ordering::Release);
        self.changed.notify_all();
        if let Companion::Seated(affinity) = &state.companion {
            affinity.leave();
        }
    }

    fn is_called(&self) -> bool {
        self.asker.load(Ordering::Acquire) != 0
    }

    /// Waits in an ordinary thread, while the companion gets on.
    fn stand_aside(&self, state: &mut MutexGuard<'_, State>) {
        while self.is_called() {
            let before = self.counters.accompanied.get();
            let is_tick = self.changed.wait_for(state, self.tick).timed_out();
            if is_tick && self.counters.accompanied.get() - before < WORTH.into() {
                state.again = Some(Instant::now() + PAUSE);
                self.recall(state);
            }
        }
    }

    /// Waits in the companion, until it is called or alone.
    fn wait_for_call(&self) {
        let mut state = self.state.lock();
        while !self.is_called() && state.ordinary > 0 {
            self.changed.wait(&mut state);
        }
    }
}

impl Seat {
    /// After an answer. Returns when the thread may read the next message.
    fn after(&mut self, asker: u32) {
        let company = &*self.company;
        match &mut self.role {
            Role::Ordinary(streak) => {
                let worth = streak.note(NonZeroU32::new(asker));
                if worth.is_none() && !company.is_called() {
                    return;
                }
                *streak = Streak::default();
                let mut state = company.state.lock();
                if let Some(asker) = worth.filter(|_| !company.is_called()) {
                    let is_there = !matches!(state.companion, Companion::None);
                    let may_call = state.again.is_none_or(|again| again <= Instant::now());
                    if !is_there || !may_call {
                        return;
                    }
                    company.asker.store(asker.get(), Ordering::Release);
                    company.changed.notify_all();
                }
                company.stand_aside(&mut state);
            }
            Role::Companion(follow) => {
                company.counters.accompanied.one();
                let mut called = company.asker.load(Ordering::Acquire);
                if called != 0 && called == asker {
                    follow.note(called);
                } else {
                    // Before the lock: its holder must not have to wait for this processor.
                    follow.leave();
                    if called != 0 {
                        company.recall(&company.state.lock());
                    }
                    company.wait_for_call();
                    called = company.asker.load(Ordering::Acquire);
                    follow.note(called);
                }
                // A recall first says so and then releases the companion.
                if company.asker.load(Ordering::Acquire) != called {
                    follow.leave();
                }
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The answer is given when the request is dropped, after this.
        if std::thread::panicking() {
            return;
        }
        SEAT.with_borrow_mut(|seat| {
            let seat = seat.get_or_insert_with(|| self.company.take_seat());
            seat.after(self.asker);
        });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.company.state.lock();
        match self.role {
            Role::Ordinary(_) => state.ordinary -= 1,
            Role::Companion(_) => {
                state.companion = Companion::None;
                self.company.recall(&state);
            }
        }
        self.company.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test without a thread fails")]
mod tests;
