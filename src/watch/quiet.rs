//! When a step is due: after a quiet moment, or when the activity lasts for long. A pure value, in
//! the time of a clock that cannot be set.

use std::time::{Duration, Instant};

/// Quiet time before a step.
const QUIET: Duration = Duration::from_secs(2);
/// Maximum time that a change waits.
const LONGEST: Duration = Duration::from_secs(30);

/// The changes that no step holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Quiet {
    /// The first and the last of them.
    span: Option<(Instant, Instant)>,
    /// Whether one of them was seen, and not only possible.
    is_seen: bool,
}

impl Quiet {
    /// Something changed.
    pub(super) fn note(&mut self, now: Instant) {
        let first = self.span.map_or(now, |(first, _)| first);
        self.span = Some((first, now));
        self.is_seen = true;
    }

    /// Something may have changed: only a look tells.
    pub(super) fn suspect(&mut self, now: Instant) {
        let is_seen = self.is_seen;
        self.note(now);
        self.is_seen = is_seen;
    }

    /// A step begins: it holds what changed so far.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a change since the last step was seen.
    pub(super) fn has_seen(self) -> bool {
        self.is_seen
    }

    /// Whether anything changed since the last step, or may have.
    pub(super) fn is_pending(self) -> bool {
        self.span.is_some()
    }

    /// When the next step is due; `None` while nothing changes.
    pub(super) fn due(self) -> Option<Instant> {
        self.span.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_due_two_seconds_after_the_last_change() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        assert_eq!(quiet.due(), None);
        quiet.note(start);
        quiet.note(start + Duration::from_secs(1));
        assert_eq!(quiet.due(), Some(start + Duration::from_secs(3)));
        quiet.clear();
        assert!(!quiet.is_pending() && quiet.due().is_none());
    }

    #[test]
    fn a_suspicion_makes_a_step_due_and_is_no_change() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        quiet.suspect(start);
        assert!(quiet.is_pending() && !quiet.has_seen());
        assert_eq!(quiet.due(), Some(start + Duration::from_secs(2)));
        quiet.note(start);
        quiet.suspect(start);
        assert!(quiet.has_seen());
        quiet.clear();
        assert!(!quiet.has_seen());
    }

    #[test]
    fn a_step_is_due_half_a_minute_after_the_first_change_at_the_latest() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        for second in 0..60 {
            quiet.note(start + Duration::from_secs(second));
        }
        assert_eq!(quiet.due(), Some(start + Duration::from_secs(30)));
    }
}
