//! Whether the clock that stamps files was put back while something was done.

use std::time::{Duration, Instant};

use super::stat::{FileTime, coarse_now};

/// A tick of the coarse clock, and what is done between two looks at two clocks.
const TOLERANCE: Duration = Duration::from_millis(100);

/// A moment, by the clock that stamps files and by one that always goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    stamps: FileTime,
    steady: Instant,
}

impl Moment {
    /// This one.
    pub(crate) fn now() -> Self {
        Self { stamps: coarse_now(), steady: Instant::now() }
    }

    /// Whether the clock that stamps files was put back since. Files that were changed before and
    /// after that may have the same time.
    pub(crate) fn is_clock_put_back(&self) -> bool {
        is_behind(self.stamps, self.steady.elapsed(), coarse_now())
    }
}

fn is_behind(before: FileTime, elapsed: Duration, now: FileTime) -> bool {
    let nanoseconds =
        |time: FileTime| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    // A clock that is only slowed down loses half a thousandth.
    let lost = (TOLERANCE + elapsed / 1000).as_nanos().cast_signed();
    nanoseconds(now) + lost < nanoseconds(before) + elapsed.as_nanos().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_put_back_is_told_from_one_that_goes_on_or_ahead() {
        let at = |milliseconds: i64| FileTime {
            seconds: milliseconds.div_euclid(1000),
            nanoseconds: (milliseconds.rem_euclid(1000) * 1_000_000) as u32,
        };
        let behind = |elapsed: u64, now: i64| {
            is_behind(at(5000), Duration::from_millis(elapsed), at(5000 + now))
        };
        for (elapsed, now) in [(0, 0), (4, 0), (1000, 996), (1_000_000, 999_500), (10, 1 << 40)] {
            assert!(!behind(elapsed, now), "{elapsed} {now}");
        }
        for (elapsed, now) in [(0, -200), (1000, 500), (10, -(1 << 40)), (1_000_000, 990_000)] {
            assert!(behind(elapsed, now), "{elapsed} {now}");
        }
        assert!(!Moment::now().is_clock_put_back());
    }
}
