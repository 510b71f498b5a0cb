//! The time up to which ages count, while the clock may have jumped.
//!
//! A clock that jumps years ahead makes everything too old at once. Seen from the sessions, that is
//! a gap of months before the newest times. So after such a gap nothing gets older, until sessions
//! have begun under the new time for some days. A store that was out of use for so long is treated
//! in the same way: ages count again some days after its next session.

use jiff::{SignedDuration, Timestamp};

/// The shortest time without any session that may be a jump of the clock.
const GAP: SignedDuration = SignedDuration::from_hours(90 * 24);
/// The time for which sessions must have begun after a gap, so that it was none.
const PROOF: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The time at which the ages of sessions are measured: `now`, or the last of the `times` before a
/// gap that may be a jump of the clock. Times in the future say nothing.
pub fn aging_until(times: impl IntoIterator<Item = Timestamp>, now: Timestamp) -> Timestamp {
    let mut times: Vec<_> = times.into_iter().filter(|time| *time <= now).collect();
    times.sort_unstable();
    let mut after = now;
    for before in times.into_iter().rev() {
        if after.duration_since(before) > GAP {
            return before;
        }
        if now.duration_since(before) >= PROOF {
            return now;
        }
        after = before;
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(24 * days)
    }

    #[test]
    fn after_a_jump_of_the_clock_nothing_gets_older_until_it_is_proved() {
        const YEARS: i64 = 12 * 365;
        let aged = |days: &[i64], now: i64| aging_until(days.iter().map(|day| at(*day)), at(now));
        // The clock goes on as it did.
        assert_eq!(aged(&[], 0), at(0));
        assert_eq!(aged(&[0, 1, 2], 3), at(3));
        assert_eq!(aged(&[0, 80, 160], 240), at(240));
        // It jumps, without a session, with one, and with some of the same week.
        assert_eq!(aged(&[0, 5], YEARS), at(5));
        assert_eq!(aged(&[5, 0, YEARS], YEARS), at(5));
        assert_eq!(aged(&[0, 5, YEARS, YEARS + 3, YEARS + 6], YEARS + 6), at(5));
        // It goes on so for a week.
        assert_eq!(aged(&[0, 5, YEARS, YEARS + 8], YEARS + 8), at(YEARS + 8));
        // It is put back: what is in the future says nothing.
        assert_eq!(aged(&[0, 5, YEARS], 6), at(6));
        assert_eq!(aged(&[YEARS], 6), at(6));
    }
}
