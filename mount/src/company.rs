//! Keeping the answering thread on the processor of the program that asks.
//!
//! A program that waits for an answer leaves its processor idle, and the thread that answers can use
//! it at once. When the two run on different processors, each message wakes the other processor twice,
//! which in a virtual machine can take twenty times as long as the work itself (measured: 90 µs against 4 µs).
//! The scheduler mostly keeps them together, but once something has separated them they stay
//! separated. So the thread looks now and then where the asking thread ran last and goes there. It
//! stays free to be moved away again, by a scheduler that knows better.

use std::cell::RefCell;
use std::fs::File;

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

use crate::sys;

/// Messages between two looks: fewer after the two were found apart, more after they were together.
const LEAST_MESSAGES: u32 = 8;
const MOST_MESSAGES: u32 = 128;

thread_local! {
    static COMPANY: RefCell<Company> = const { RefCell::new(Company::NONE) };
}

/// Notes a message of `thread` to the calling thread, and follows it when it is time to look.
pub(crate) fn keep(thread: u32) {
    COMPANY.with_borrow_mut(|company| company.keep(thread));
}

/// Whom the thread answers now.
struct Company {
    thread: u32,
    messages: u32,
    look_at: u32,
    stat: Option<File>,
}

impl Company {
    const NONE: Self = Self { thread: 0, messages: 0, look_at: LEAST_MESSAGES, stat: None };

    fn keep(&mut self, thread: u32) {
        if thread != self.thread {
            *self = Self { thread, ..Self::NONE };
        }
        self.messages += 1;
        if self.messages < self.look_at || thread == 0 {
            return;
        }
        self.messages = 0;
        if self.stat.is_none() {
            self.stat = sys::open_thread_stat(thread);
        }
        let Some(there) = self.stat.as_ref().and_then(sys::last_processor) else {
            self.stat = None;
            return;
        };
        if there == sched_getcpu() {
            self.look_at = (self.look_at * 2).min(MOST_MESSAGES);
        } else {
            self.look_at = LEAST_MESSAGES;
            go_to(there);
        }
    }
}

/// Moves the calling thread, if it may run there.
fn go_to(processor: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if processor >= CpuSet::MAX_CPU || !allowed.is_set(processor) {
        return;
    }
    let mut only = CpuSet::new();
    only.set(processor);
    if sched_setaffinity(None, &only).is_ok()
        && let Err(error) = sched_setaffinity(None, &allowed)
    {
        tracing::warn!(%error, "the answering thread stays on one processor");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_goes_where_it_is_asked_from_and_stays_free_to_leave() {
        let allowed = sched_getaffinity(None).unwrap();
        for processor in (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)) {
            go_to(processor);
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        }
        go_to(CpuSet::MAX_CPU);
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
    }

    #[test]
    fn the_processor_of_a_thread_is_found() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let stat = sys::open_thread_stat(thread.cast_unsigned()).unwrap();
        let allowed = sched_getaffinity(None).unwrap();
        assert!(allowed.is_set(sys::last_processor(&stat).unwrap()));
        assert!(sys::open_thread_stat(u32::MAX).is_none());
    }
}
