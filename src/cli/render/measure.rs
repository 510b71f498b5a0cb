//! Sizes and times for people.

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
        // What would be rounded to 1024 is one of the next unit.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 99.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
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

/// `just now`, `3 minutes ago`, `yesterday`, `2 weeks ago`. From one day on, days are those of the
/// calendar in the time zone of `now`.
pub fn relative_time(then: Timestamp, now: &Zoned) -> String {
    let seconds = now.timestamp().as_second() - then.as_second();
    let ago = |count: i64, unit: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {unit}{plural} ago")
    };
    match seconds {
        // Clocks of two machines are never quite the same.
        ..-60 => return "in the future".to_owned(),
        -60..5 => return "just now".to_owned(),
        5..60 => return ago(seconds, "second"),
        60..3600 => return ago(seconds / 60, "minute"),
        _ => {}
    }
    let date = then.to_zoned(now.time_zone().clone()).date();
    let days = now.date().since(date).map_or(seconds / 86_400, |span| i64::from(span.get_days()));
    match days {
        ..1 => ago(seconds / 3600, "hour"),
        1 if seconds < 86_400 / 2 => ago(seconds / 3600, "hour"),
        1 => "yesterday".to_owned(),
        2..7 => ago(days, "day"),
        7..30 => ago(days / 7, "week"),
        30..365 => ago(days / 30, "month"),
        _ => ago(days / 365, "year"),
    }
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

    #[test]
    fn times_are_relative_to_now() {
        let now: Timestamp = "2026-03-15T10:00:00Z".parse().unwrap();
        let now = now.to_zoned(jiff::tz::TimeZone::UTC);
        for (then, text) in [
            ("2026-03-15T10:02:00Z", "in the future"),
            ("2026-03-15T10:00:30Z", "just now"),
            ("2026-03-15T09:59:58Z", "just now"),
            ("2026-03-15T09:59:30Z", "30 seconds ago"),
            ("2026-03-15T09:58:30Z", "1 minute ago"),
            ("2026-03-15T09:57:00Z", "3 minutes ago"),
            ("2026-03-15T09:00:00Z", "1 hour ago"),
            ("2026-03-15T00:30:00Z", "9 hours ago"),
            ("2026-03-14T23:00:00Z", "11 hours ago"),
            ("2026-03-14T21:00:00Z", "yesterday"),
            ("2026-03-14T00:00:00Z", "yesterday"),
            ("2026-03-13T23:59:00Z", "2 days ago"),
            ("2026-03-08T12:00:00Z", "1 week ago"),
            ("2026-03-01T12:00:00Z", "2 weeks ago"),
            ("2026-02-01T12:00:00Z", "1 month ago"),
            ("2025-04-01T12:00:00Z", "11 months ago"),
            ("2024-01-01T12:00:00Z", "2 years ago"),
        ] {
            assert_eq!(relative_time(then.parse().unwrap(), &now), text, "{then}");
        }
    }

    #[test]
    fn yesterday_is_that_of_the_time_zone() {
        let now: Timestamp = "2026-03-15T10:00:00Z".parse().unwrap();
        let east = jiff::tz::TimeZone::fixed(jiff::tz::offset(9));
        let then = "2026-03-13T20:00:00Z".parse().unwrap();
        assert_eq!(relative_time(then, &now.to_zoned(jiff::tz::TimeZone::UTC)), "2 days ago");
        assert_eq!(relative_time(then, &now.to_zoned(east)), "yesterday");
    }
}
