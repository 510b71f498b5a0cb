//! Which thread answers: one that shares the processor of the program that asks, or an ordinary one.
//!
//! A program that walks a tree sends one message after the other and waits for each answer. The
//! scheduler puts whoever wakes up on an idle processor, so that program and answering thread end on
//! two of them, each idle while the other works, and each message wakes both: 60 µs in a virtual
//! machine, where the work itself takes 4.
//!
//! To the scheduler, a processor that runs only threads of the class `SCHED_IDLE` is idle
//! (sched(7), `sched_idle_cpu` in the kernel). So one thread, the *companion*, is of that class and
//! goes to the processor of the program: the program stays there when the answer wakes it. But such
//! a thread gets next to nothing while others want its processor, and only root can take it out of
//! the class again. Hence:
//!
//! - Ordinary threads answer until one program has sent [`WORTH`] short messages in a row. Then they
//!   stand aside, and the companion answers.
//! - While they do, one looks at every [tick](Ticks) whether the companion gets on. When it does
//!   not, because nobody asks or because it has to wait for its processor, they answer again, and
//!   the companion may run anywhere. After waiting it is not called again for [a while](Trust).
//! - When somebody else asks, or for so many bytes that copying them takes longer than waking up,
//!   the companion calls them itself.
//! - A thread that the companion starts would be of its class. It starts none.
//! - It shares locks with ordinary threads (nodes, caches, memory). Preempted while it has one, or with a
//!   message that it has read, it keeps somebody waiting until it runs again: up to 14 ms were seen beside programs of
//!   real-time classes, and beside ordinary ones no longer than without a companion.

mod decisions;
mod follow;
mod thread;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use decisions::{Streak, Ticks, Trust, Verdict};
use follow::Follow;
use thread::{Fared, Thread};

use crate::counters::Counters;

/// Short messages of one program in a row, after which the companion answers the next.
const WORTH: u32 = 8;

/// The threads that answer one mount.
pub(crate) struct Company {
    first_tick: Duration,
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
    /// Whom the companion answers, as long as it does.
    asker: Option<Thread>,
    /// Ordinary threads that have not ended.
    ordinary: usize,
    /// One of the ordinary threads.
    an_ordinary: u32,
    companion: Companion,
    trust: Trust,
}

enum Companion {
    /// It has not answered yet, so it has no class and no name.
    Expected,
    /// It can be observed.
    Seated(Thread),
    /// There is none: not wanted, not possible, or ended.
    None,
}

/// What a message is to whoever answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// Answered faster than a processor wakes up.
    Short,
    /// Better answered beside the program, on another processor.
    Long,
}

/// One message that is being answered. The first thing in a request, so that it is dropped after the
/// answer, and with no lock held: the drop may wait.
pub(crate) struct Turn<'a> {
    company: &'a Arc<Company>,
    asker: u32,
    message: Message,
}

thread_local! {
    /// A thread serves one mount for all its life.
    static SEAT: RefCell<Option<Seat>> = const { RefCell::new(None) };
}

/// What the calling thread is; leaves the company when the thread ends.
struct Seat {
    company: Arc<Company>,
    role: Role,
}

enum Role {
    Ordinary(Streak),
    Companion(Box<Follow>),
    /// It was to be the companion and cannot.
    Spare,
}

impl Company {
    /// For `ordinary` threads, and one more where a companion is wanted.
    pub(crate) fn new(ordinary: usize, companion: bool, counters: Arc<Counters>) -> Arc<Self> {
        Self::with_first_tick(Ticks::FIRST, ordinary, companion, counters)
    }

    fn with_first_tick(
        first_tick: Duration,
        ordinary: usize,
        companion: bool,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        let companion = if companion { Companion::Expected } else { Companion::None };
        let state =
            State { asker: None, ordinary: 0, an_ordinary: 0, companion, trust: Trust::default() };
        Arc::new(Self {
            first_tick,
            ordinary_seats: ordinary,
            state: Mutex::new(state),
            changed: Condvar::new(),
            asker: AtomicU32::new(0),
            counters,
        })
    }

    /// Begins to answer a message of the thread `asker` (0 where it is in another namespace).
    pub(crate) fn turn(self: &Arc<Self>, asker: u32, message: Message) -> Turn<'_> {
        Turn { company: self, asker, message }
    }

    fn take_seat(self: &Arc<Self>) -> Seat {
        let mut state = self.state.lock();
        let role = if matches!(state.companion, Companion::None | Companion::Seated(_))
            || state.ordinary < self.ordinary_seats
        {
            state.ordinary += 1;
            state.an_ordinary = thread::current();
            Role::Ordinary(Streak::default())
        } else if let Some((thread, affinity)) = thread::make_companion(state.an_ordinary) {
            state.companion = Companion::Seated(thread);
            Role::Companion(Box::new(Follow::new(affinity)))
        } else {
            tracing::debug!("no thread of the idle class: messages may cross processors");
            state.companion = Companion::None;
            self.recall(&mut state);
            Role::Spare
        };
        Seat { company: self.clone(), role }
    }

    /// The companion answers `asker` from now on.
    fn call(&self, asker: NonZeroU32, state: &mut State) {
        state.asker = Thread::named(asker.get());
        self.asker.store(asker.get(), Ordering::Release);
        self.changed.notify_all();
    }

    /// Ordinary threads answer from now on.
    fn recall(&self, state: &mut State) {
        state.asker = None;
        self.asker.store(0, Ordering::Release);
        self.changed.notify_all();
        if let Companion::Seated(thread) = &state.companion {
            thread.release();
        }
    }

    fn is_called(&self) -> bool {
        self.asker.load(Ordering::Acquire) != 0
    }

    /// Waits in an ordinary thread, while the companion gets on.
    fn stand_aside(&self, state: &mut MutexGuard<'_, State>) {
        let mut ticks = Ticks::from(self.first_tick);
        while self.is_called() {
            let (answered, before) = (self.counters.accompanied.get(), state.companion.fared());
            let tick = ticks.next();
            if !self.changed.wait_for(state, tick).timed_out() {
                continue;
            }
            let now = state.companion.fared();
            let verdict = Verdict {
                answered: self.counters.accompanied.get() - answered,
                waited: now.waited.saturating_sub(before.waited),
                ran: now.ran.saturating_sub(before.ran),
                tick,
                asker_is_ready: state.asker.as_ref().is_some_and(Thread::is_ready),
                companion_is_ready: state.companion.is_ready(),
            };
            if verdict.is_starved() {
                state.trust.lose(Instant::now());
                self.recall(state);
            } else if verdict.is_over() {
                self.recall(state);
            } else if verdict.answered > 0 {
                state.trust.gain(tick);
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

impl Companion {
    fn seated(&self) -> Option<&Thread> {
        match self {
            Self::Seated(thread) => Some(thread),
            Self::Expected | Self::None => None,
        }
    }

    fn fared(&self) -> Fared {
        self.seated().and_then(Thread::fared).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        self.seated().is_some_and(Thread::is_ready)
    }
}

impl Seat {
    /// After an answer. Returns when the thread may read the next message.
    fn after(&mut self, asker: u32, message: Message) {
        let company = &*self.company;
        match &mut self.role {
            Role::Ordinary(streak) => {
                let asker = NonZeroU32::new(asker).filter(|_| message == Message::Short);
                let worth = streak.note(asker) >= WORTH;
                if !worth && !company.is_called() {
                    return;
                }
                let mut state = company.state.lock();
                if let Some(asker) = asker.filter(|_| worth && !company.is_called()) {
                    let able = !matches!(state.companion, Companion::None);
                    if !able || !state.trust.is_there(Instant::now()) {
                        streak.forget();
                        return;
                    }
                    company.call(asker, &mut state);
                }
                streak.forget();
                company.stand_aside(&mut state);
            }
            Role::Companion(follow) => {
                company.counters.accompanied.one();
                let mut called = company.asker.load(Ordering::Acquire);
                if called != 0 && called == asker && message == Message::Short {
                    follow.note(called);
                } else {
                    // Before the lock: who waits for it must not have to wait for this processor.
                    follow.leave();
                    if called != 0 {
                        company.recall(&mut company.state.lock());
                    }
                    company.wait_for_call();
                    called = company.asker.load(Ordering::Acquire);
                    follow.begin(called);
                }
                // Whoever recalls it says so first and releases it then.
                if company.asker.load(Ordering::Acquire) != called {
                    follow.leave();
                }
            }
            Role::Spare => company.wait_for_call(),
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
            seat.after(self.asker, self.message);
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
                self.company.recall(&mut state);
            }
            Role::Spare => {}
        }
        self.company.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test without a thread fails")]
mod tests;
