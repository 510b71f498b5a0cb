//! Sizes and times for people.

#[cfg(feature = "archive")]
use std::time::Duration;

use jiff::{Timestamp, Zoned};

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `17 B`, `1.5 KiB`, `152 MiB`: binary units, one decimal below a hundred.
pub fn byte_size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        // A value that would round to 1024 is one of the next unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 99.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// A size, and what came of it in each second: `1.5 MiB (12 MiB/s)`. A time that is too short to
/// tell gives no rate.
#[cfg(feature = "archive")]
pub fn size_and_rate(bytes: u64, time: Duration) -> String {
    let size = byte_size(bytes);
    match u64::try_from(time.as_millis()) {
        Ok(millis @ 1..) if bytes > 0 => {
            let rate = u128::from(bytes) * 1000 / u128::from(millis);
            format!("{size} ({}/s)", byte_size(u64::try_from(rate).unwrap_or(u64::MAX)))
        }
        _ => size,
    }
}

/// A change of size, with its sign: `+1.5 KiB`, `-3 B`, `±0 B`.
pub fn size_delta(delta: i64) -> String {
    let sign = match delta {
        0 => "±",
        ..0 => "-",
        _ => "+",
    };
    format!("{sign}{}", byte_size(delta.unsigned_abs()))
}

/// `just now`, `7m ago`, `19h ago`, `1d ago`, `3w ago`.
pub fn relative_time(then: Timestamp, now: &Zoned) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let seconds = now.timestamp().as_second() - then.as_second();
    match seconds {
        // Clocks of two machines are never quite the same.
        ..-60 => "in the future".to_owned(),
        -60..MINUTE => "just now".to_owned(),
        MINUTE..HOUR => format!("{}m ago", seconds / MINUTE),
        HOUR..DAY => format!("{}h ago", seconds / HOUR),
        _ => match seconds / DAY {
            days @ ..7 => format!("{days}d ago"),
            days @ 7..70 => format!("{}w ago", days / 7),
            days @ 70..365 => format!("{}mo ago", days / 30),
            days => format!("{}y ago", days / 365),
        },
    }
}

/// `2026-03-15 10:00:00`, in the time zone of `now`.
pub fn absolute_time(then: Timestamp, now: &Zoned) -> String {
    then.to_zoned(now.time_zone().clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (102_348, "99.9 KiB"),
            (102_400, "100 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(byte_size(bytes), text);
        }
        assert_eq!(size_delta(i64::MIN), "-8.0 EiB");
        assert_eq!(size_delta(2048), "+2.0 KiB");
        assert_eq!(size_delta(0), "±0 B");
    }

    #[cfg(feature = "archive")]
    #[test]
    fn rates_are_bytes_in_a_second() {
        assert_eq!(size_and_rate(3 << 20, Duration::from_secs(2)), "3.0 MiB (1.5 MiB/s)");
        assert_eq!(size_and_rate(1024, Duration::ZERO), "1.0 KiB");
        assert_eq!(size_and_rate(0, Duration::from_secs(1)), "0 B");
    }

    #[test]
    fn times_are_relative_to_now() {
        let now: Timestamp = "2026-03-15T10:00:00Z".parse().unwrap();
        let now = now.to_zoned(jiff::tz::TimeZone::UTC);
        for (then, text) in [
            ("2026-03-15T10:02:00Z", "in the future"),
            ("2026-03-15T10:00:30Z", "just now"),
            ("2026-03-15T09:59:58Z", "just now"),
            ("2026-03-15T09:59:01Z", "just now"),
            ("2026-03-15T09:59:00Z", "1m ago"),
            ("2026-03-15T09:53:00Z", "7m ago"),
            ("2026-03-15T09:00:00Z", "1h ago"),
            ("2026-03-14T15:00:00Z", "19h ago"),
            ("2026-03-14T10:00:00Z", "1d ago"),
            ("2026-03-09T09:00:00Z", "6d ago"),
            ("2026-03-08T09:00:00Z", "1w ago"),
            ("2026-01-15T12:00:00Z", "8w ago"),
            ("2025-12-15T12:00:00Z", "2mo ago"),
            ("2025-04-01T12:00:00Z", "11mo ago"),
            ("2024-01-01T12:00:00Z", "2y ago"),
        ] {
            assert_eq!(relative_time(then.parse().unwrap(), &now), text, "{then}");
        }
    }

    #[test]
    fn absolute_times_are_those_of_the_time_zone() {
        let now: Timestamp = "2026-03-15T10:00:00Z".parse().unwrap();
        let east = jiff::tz::TimeZone::fixed(jiff::tz::offset(9));
        let then = "2026-03-13T20:00:07.5Z".parse().unwrap();
        let utc = now.to_zoned(jiff::tz::TimeZone::UTC);
        assert_eq!(absolute_time(then, &utc), "2026-03-13 20:00:07");
        assert_eq!(absolute_time(then, &now.to_zoned(east)), "2026-03-14 05:00:07");
    }
}
