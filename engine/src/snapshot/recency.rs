//! Which of some sessions is the newest, whatever the clock said when they began.
//!
//! A session that began in the future was recorded under a wrong clock, then or now. Its real time
//! is unknown, so it counts as older than all others. The session that was recorded just now is
//! then the newest, both after a correction of a clock that was ahead and while a clock is behind.

use jiff::{SignedDuration, Timestamp};

use crate::sys::FileTime;

/// Orders sessions from the oldest to the newest; of two that began at once the greater id is
/// newer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recency {
    is_past: bool,
    started: Option<Timestamp>,
    session_id: String,
}

impl Recency {
    /// The recency of a session with this id that began at `started`, if that is known, seen from
    /// `now`.
    pub fn new(
        started: impl Into<Option<Timestamp>>,
        session_id: impl Into<String>,
        now: Timestamp,
    ) -> Self {
        let started = started.into();
        let is_past = started.is_some_and(|started| started <= now);
        Self { is_past, started, session_id: session_id.into() }
    }

    /// Whether a session may be newer of which is only known that it began at this time of a file
    /// or earlier.
    pub fn may_be_before(&self, latest_begin: FileTime) -> bool {
        let latest_begin = latest_begin.timestamp();
        let latest_begin = latest_begin.and_then(|begin| begin.checked_add(TICK).ok());
        !self.is_past || latest_begin.is_none_or(|begin| self.started <= Some(begin))
    }
}

/// So much the clock of files is behind at the most: a tick of the kernel, with 100 a second.
const TICK: SignedDuration = SignedDuration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_in_the_future_is_older_than_all_else() {
        let at = |second: i64, id: &str| {
            let started = Timestamp::from_second(second).unwrap();
            Recency::new(started, id, Timestamp::from_second(100).unwrap())
        };
        let unknown = Recency::new(None, "u", Timestamp::from_second(100).unwrap());
        let sorted = [unknown, at(101, "f"), at(200, "e"), at(1, "d"), at(99, "b"), at(99, "c")];
        assert!(sorted.is_sorted());
        assert!(at(100, "a") > at(99, "z"), "now is not the future");
    }

    #[test]
    fn what_last_changed_before_another_one_began_is_not_newer() {
        let began = |second| {
            let started = Timestamp::from_second(second).unwrap();
            Recency::new(started, "a", Timestamp::from_second(100).unwrap())
        };
        let changed = |seconds| FileTime { seconds, nanoseconds: 0 };
        assert!(!began(50).may_be_before(changed(49)));
        assert!(began(50).may_be_before(changed(50)));
        assert!(
            began(50).may_be_before(changed(200)),
            "it may have begun before the clock was put back"
        );
        assert!(
            began(101).may_be_before(changed(49)),
            "one from the future is older than all others"
        );
    }

    #[test]
    fn the_clock_of_files_may_be_a_tick_behind() {
        let started: Timestamp = "2026-01-01T00:00:00.005Z".parse().unwrap();
        let newest = Recency::new(started, "a", "2027-01-01T00:00:00Z".parse().unwrap());
        let at = |nanoseconds| FileTime { seconds: started.as_second(), nanoseconds };
        assert!(newest.may_be_before(at(6_000_000)) && newest.may_be_before(at(1_000_000)));
        let before = FileTime { seconds: started.as_second() - 1, nanoseconds: 994_000_000 };
        assert!(!newest.may_be_before(before));
    }
}
