//! The companion on the way to the program that asks.

use super::thread::{Affinity, Thread};

/// Where the companion runs, and when it looks where the program does.
pub(super) struct Follow {
    affinity: Affinity,
    program: Option<Thread>,
    messages: u32,
    look_at: u32,
}

impl Follow {
    /// Messages between two looks: fewer after the two were found apart, more after they were
    /// together.
    const LEAST: u32 = 8;
    const MOST: u32 = 64;

    pub(super) fn new(affinity: Affinity) -> Self {
        Self { affinity, program: None, messages: 0, look_at: 0 }
    }

    /// Goes to a program that is answered from now on.
    pub(super) fn begin(&mut self, asker: u32) {
        (self.program, self.messages, self.look_at) = (Thread::named(asker), 0, 0);
        self.look();
    }

    /// Notes a message of `asker`, and goes after it when it is time to look.
    pub(super) fn note(&mut self, asker: u32) {
        if self.program.as_ref().is_none_or(|program| program.id() != asker) {
            return self.begin(asker);
        }
        self.messages += 1;
        if self.messages >= self.look_at {
            self.look();
        }
    }

    /// Lets the companion run anywhere.
    pub(super) fn leave(&mut self) {
        self.program = None;
        self.affinity.leave();
    }

    fn look(&mut self) {
        self.messages = 0;
        let Some(there) = self.program.as_ref().and_then(Thread::last_processor) else { return };
        let moved = self.affinity.go_to(there);
        self.look_at = if moved { 0 } else { self.look_at * 2 }.clamp(Self::LEAST, Self::MOST);
    }
}
