//! When the company changes who answers: what can be decided without looking at any thread.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// How many messages one program has sent without another between.
#[derive(Default)]
pub(super) struct Streak {
    asker: Option<NonZeroU32>,
    messages: u32,
}

impl Streak {
    /// Notes a message and returns how many there are now; `None` ends the row.
    pub(super) fn note(&mut self, asker: Option<NonZeroU32>) -> u32 {
        if asker.is_none() || asker != self.asker {
            *self = Self { asker, messages: 0 };
        }
        self.messages = match asker {
            Some(_) => self.messages.saturating_add(1),
            None => 0,
        };
        self.messages
    }

    /// The next message is the first one.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Between two looks at a companion that answers: often at first, then less often.
pub(super) struct Ticks(Duration);

impl Ticks {
    pub(super) const FIRST: Duration = Duration::from_millis(2);
    const LAST: Duration = Duration::from_millis(16);

    pub(super) fn next(&mut self) -> Duration {
        let tick = self.0;
        self.0 = (tick * 2).min(Self::LAST).max(tick);
        tick
    }
}

impl From<Duration> for Ticks {
    fn from(first: Duration) -> Self {
        Self(first)
    }
}

/// What happened between two looks.
#[derive(Clone, Copy)]
pub(super) struct Verdict {
    /// Messages that the companion answered.
    pub(super) answered: u64,
    /// How long it had to wait for its processor.
    pub(super) waited: Duration,
    /// How long it was on it, as far as the kernel counted: at each tick of its own.
    pub(super) ran: Duration,
    /// How long the two looks were apart.
    pub(super) tick: Duration,
    /// The program runs, or would: it does not wait for an answer.
    pub(super) asker_is_ready: bool,
    /// The companion runs, or would.
    pub(super) companion_is_ready: bool,
}

impl Verdict {
    /// More than that for each message is not only the program on its way to sleep.
    const WAIT: Duration = Duration::from_micros(250);
    /// Ticks from which on the kernel has counted what ran.
    const LONG: Duration = Duration::from_millis(8);

    /// The program waits for a companion that waits for a processor. One that works on a long list or hash
    /// does not wait.
    pub(super) fn is_starved(&self) -> bool {
        let slow = match u32::try_from(self.answered) {
            Ok(0) => self.tick >= Self::LONG && self.ran < self.tick / 2,
            answered => self.waited / answered.unwrap_or(u32::MAX) > Self::WAIT,
        };
        slow && self.companion_is_ready && !self.asker_is_ready
    }

    /// The program does something else. One that computes may ask again soon, but others that ask
    /// meanwhile would have to wait for the companion, which has to wait for the program.
    pub(super) fn is_over(&self) -> bool {
        let may_go_on =
            if self.asker_is_ready { self.tick < Self::LONG } else { self.companion_is_ready };
        self.answered == 0 && !may_go_on
    }
}

/// Whether the companion is worth calling, from how it fared before.
#[derive(Default)]
pub(super) struct Trust {
    /// How long it was not called after it had starved the last time.
    pause: Duration,
    again: Option<Instant>,
}

impl Trust {
    const FIRST_PAUSE: Duration = Duration::from_millis(50);
    const LAST_PAUSE: Duration = Duration::from_secs(5);

    pub(super) fn is_there(&self, now: Instant) -> bool {
        self.again.is_none_or(|again| now >= again)
    }

    /// It starved.
    pub(super) fn lose(&mut self, now: Instant) {
        self.pause = (self.pause * 2).clamp(Self::FIRST_PAUSE, Self::LAST_PAUSE);
        self.again = Some(now + self.pause);
    }

    /// It answered all through a tick.
    pub(super) fn gain(&mut self, tick: Duration) {
        if tick >= Ticks::LAST {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_ends_when_somebody_else_asks() {
        let [a, b] = [1, 2].map(|thread| Some(NonZeroU32::new(thread).unwrap()));
        let mut streak = Streak::default();
        assert_eq!([a, a, a].map(|asker| streak.note(asker)), [1, 2, 3]);
        assert_eq!([b, b, a].map(|asker| streak.note(asker)), [1, 2, 1]);
        assert_eq!([None, None, a].map(|asker| streak.note(asker)), [0, 0, 1]);
        streak.forget();
        assert_eq!(streak.note(a), 1);
    }

    #[test]
    fn a_companion_that_starves_is_called_less_and_less_often_until_it_gets_on() {
        let begin = Instant::now();
        let mut trust = Trust::default();
        assert!(trust.is_there(begin));
        let mut now = begin;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            trust.lose(now);
            assert!(!trust.is_there(now));
            let again = trust.again.unwrap();
            pauses.push(again - now);
            assert!(trust.is_there(again));
            now = again;
        }
        assert!(pauses.windows(2).all(|two| two[0] <= two[1]));
        assert_eq!((pauses[0], pauses[9]), (Trust::FIRST_PAUSE, Trust::LAST_PAUSE));
        trust.gain(Ticks::FIRST);
        trust.lose(now);
        assert!(!trust.is_there(now + Trust::FIRST_PAUSE), "a short while changes nothing");
        trust.gain(Ticks::LAST);
        trust.lose(now);
        assert!(trust.is_there(now + Trust::FIRST_PAUSE));
    }

    #[test]
    fn only_a_companion_that_somebody_waits_for_can_starve() {
        let ms = Duration::from_millis;
        let well = Verdict {
            answered: 100,
            waited: Duration::from_micros(300),
            ran: ms(4),
            tick: ms(8),
            asker_is_ready: false,
            companion_is_ready: true,
        };
        assert!(!well.is_starved() && !well.is_over());
        let slow = Verdict { waited: ms(30), ..well };
        assert!(slow.is_starved() && !slow.is_over());
        let stuck = Verdict { answered: 0, ran: ms(0), ..well };
        assert!(stuck.is_starved() && !stuck.is_over());
        let not_counted_yet = Verdict { tick: ms(4), ..stuck };
        assert!(!not_counted_yet.is_starved() && !not_counted_yet.is_over());
        let at_work = Verdict { ran: ms(7), ..stuck };
        assert!(!at_work.is_starved() && !at_work.is_over());
        for waiting in [slow, not_counted_yet] {
            let busy = Verdict { asker_is_ready: true, ..waiting };
            assert!(!busy.is_starved() && !busy.is_over());
        }
        let busy_for_long = Verdict { asker_is_ready: true, ..stuck };
        assert!(!busy_for_long.is_starved() && busy_for_long.is_over());
        let over = Verdict { companion_is_ready: false, ..stuck };
        assert!(!over.is_starved() && over.is_over());
    }

    #[test]
    fn ticks_become_longer_up_to_a_bound() {
        let mut ticks = Ticks::from(Ticks::FIRST);
        let first: Vec<_> = (0..6).map(|_| ticks.next().as_millis()).collect();
        assert_eq!(first, [2, 4, 8, 16, 16, 16]);
    }
}
