//! The work of the thread that pushes, and how far the readers are.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::predictor::{Action, Event, Predictor, Push};

/// Maximum number of waiting pushes. One that comes later is dropped.
const MAX_WAITING: usize = 32;

/// A push that waits or runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) push: Push,
    /// Just before the answer that names its files was sent.
    pub(super) made: Instant,
    /// Position before which a reader has asked for every file, 0 for none.
    reached: u64,
}

/// The predictor, and what it wants to have done.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    predictor: Predictor,
    waiting: VecDeque<Job>,
    /// `None` also when the push that runs is of no use any more.
    running: Option<Job>,
    is_closed: bool,
}

impl Queue {
    /// Tells the predictor what happened.
    pub(super) fn note(&self, event: Event) {
        let mut state = self.state.lock();
        if state.note(event) {
            self.changed.notify_one();
        }
    }

    /// Waits for a push, which then runs. `None` when the queue is closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        state.running = state.waiting.pop_front().filter(|_| !state.is_closed);
        state.running
    }

    /// How far a reader is in the directory of the push that runs; 0: no reader was seen. `None`:
    /// the push is of no use any more.
    pub(super) fn reached(&self) -> Option<u64> {
        self.state.lock().running.map(|job| job.reached)
    }

    /// The push that runs has ended.
    pub(super) fn finish(&self, event: Event) {
        self.state.lock().running = None;
        self.note(event);
    }

    /// Ends the push that runs and takes no more.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.running = None;
        self.changed.notify_all();
    }
}

impl State {
    /// Returns whether a push was added.
    fn note(&mut self, event: Event) -> bool {
        let action = self.predictor.on(&event);
        tracing::trace!(target: "nono_mount::trace", "{event}");
        let Some(action) = action else { return false };
        tracing::trace!(target: "nono_mount::trace", "-> {action}");
        match action {
            Action::Push(push) => self.add(push),
            Action::Reached { directory, before } => {
                let jobs = self.waiting.iter_mut().chain(&mut self.running);
                for job in jobs.filter(|job| job.push.directory == directory) {
                    job.reached = job.reached.max(before);
                }
                false
            }
        }
    }

    /// A directory has one push: the last one knows best what is read.
    fn add(&mut self, push: Push) -> bool {
        let is_elsewhere = |job: &Job| job.push.directory != push.directory;
        self.waiting.retain(is_elsewhere);
        self.running = self.running.filter(is_elsewhere);
        if self.is_closed || self.waiting.len() == MAX_WAITING {
            let before = Some(push.stretch.start);
            self.predictor.on(&Event::PushEnded { push, before });
            return false;
        }
        self.waiting.push_back(Job { push, made: Instant::now(), reached: 0 });
        true
    }
}
