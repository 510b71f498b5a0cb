//! Times as people say them: `12:00`, `yesterday`, `2h ago`, `monday 9:30`, `2026-11-20 18:30`.
//!
//! A time is a moment or a whole day, in the time zone of this machine, and never in the future.
//! With a day, "since" means its begin and "at" its end: the state of yesterday is the one in which
//! yesterday ended. A clock time without a day is the last one that was. A weekday is the last such
//! day before today. Days are days of the calendar, so a day in which the clocks change has 23 or
//! 25 hours. A local time that the clocks skipped is moved ahead by as much; one that they showed
//! twice means the first one. The exact time is printed before it is used.

use std::fmt;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{Span, Timestamp, ToSpan, Zoned};

use nono_engine::path_text::Shown;

/// The forms, for messages.
pub(super) const FORMS: &str =
    "12:00, yesterday, monday 9:30, \"2h ago\", 2026-11-20 or \"2026-11-20 18:30\"";

/// A time that is over, or is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct When {
    first: Timestamp,
    last: Timestamp,
    is_length: bool,
}

/// Why a text is no time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WhenError {
    /// It has no form of a time.
    #[error("{} is no time: a time is {FORMS}", Shown::bytes(.0.as_bytes()))]
    Unknown(String),
    /// It is not over yet.
    #[error("{} is in the future: {}", Shown::bytes(.text.as_bytes()), Exact(.at))]
    Future {
        /// As given.
        text: String,
        /// The time that it is.
        at: Zoned,
    },
    /// It is further back than times go.
    #[error("{} is too long ago", Shown::bytes(.0.as_bytes()))]
    TooLongAgo(String),
}

impl When {
    /// Reads a time, seen from now and in its time zone.
    ///
    /// # Errors
    /// As [`WhenError`] says.
    pub(super) fn parse(text: &str, now: &Zoned) -> Result<Self, WhenError> {
        let known = Named::read(text).ok_or_else(|| WhenError::Unknown(text.to_owned()))?;
        let (first, last) = known.span(now).map_err(|_| WhenError::TooLongAgo(text.to_owned()))?;
        if first > *now {
            return Err(WhenError::Future { text: text.to_owned(), at: first });
        }
        let (first, last) = (first.timestamp(), last.timestamp().min(now.timestamp()));
        Ok(Self { first, last, is_length: matches!(known, Named::Before(_)) })
    }

    /// The begin of it: what is since this time.
    pub(super) fn begin(&self) -> Timestamp {
        self.first
    }

    /// Whether it was given as a length of time before now.
    pub(super) fn is_length(&self) -> bool {
        self.is_length
    }

    /// The end of it: the state at this time.
    pub(super) fn end(&self) -> Timestamp {
        self.last
    }
}

/// For an argument of the command line.
///
/// # Errors
/// As [`WhenError`] says.
pub(super) fn when(text: &str) -> Result<When, WhenError> {
    When::parse(text, &Zoned::now())
}

/// A time to the second, with its offset: two moments of the hour in which the clocks are put back
/// differ in it alone.
pub(super) struct Exact<'a>(pub(super) &'a Zoned);

impl fmt::Display for Exact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%d %H:%M:%S %:z"))
    }
}

/// The meaning of a text.
enum Named {
    /// A moment of any place.
    Moment(Timestamp),
    /// A length of time before now.
    Before(Span),
    /// A number of days before today, all day or at a clock time.
    Day { days_ago: DaysAgo, at: Option<Time> },
    /// A day of the calendar.
    Date(Date),
    /// A clock time of a day of the calendar.
    Local(DateTime),
    /// The last time that the clock showed this.
    Clock(Time),
}

enum DaysAgo {
    Count(i32),
    Last(Weekday),
}

impl Named {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        let plain = text.as_str();
        if plain == "now" {
            return Some(Self::Before(Span::new()));
        }
        if let Some(at) = clock(plain) {
            return Some(Self::Clock(at));
        }
        if let Some(found) = Self::day(plain) {
            return Some(found);
        }
        if let Ok(moment) = plain.to_uppercase().parse::<Timestamp>() {
            return Some(Self::Moment(moment));
        }
        if let Ok(zoned) = text.parse::<Zoned>() {
            return Some(Self::Moment(zoned.timestamp()));
        }
        if let Ok(date) = Date::strptime("%Y-%m-%d", plain) {
            return Some(Self::Date(date));
        }
        if let Some((date, at)) = plain.split_once([' ', 't'])
            && let (Ok(date), Some(at)) = (Date::strptime("%Y-%m-%d", date), clock(at.trim()))
        {
            return Some(Self::Local(date.to_datetime(at)));
        }
        let span = plain.strip_suffix("ago").unwrap_or(plain).trim();
        let is_length = span.starts_with(|c: char| c.is_ascii_digit()) && !span.contains(':');
        let span = is_length.then(|| span.parse::<Span>().ok()).flatten()?;
        Some(Self::Before(span))
    }

    /// A named day, with a clock time or without.
    fn day(text: &str) -> Option<Self> {
        let text = text.strip_prefix("last ").unwrap_or(text);
        let (day, at) = text.split_once(' ').map_or((text, None), |(day, at)| (day, Some(at)));
        let days_ago = match day {
            "today" => DaysAgo::Count(0),
            "yesterday" => DaysAgo::Count(1),
            "mon" | "monday" => DaysAgo::Last(Weekday::Monday),
            "tue" | "tuesday" => DaysAgo::Last(Weekday::Tuesday),
            "wed" | "wednesday" => DaysAgo::Last(Weekday::Wednesday),
            "thu" | "thursday" => DaysAgo::Last(Weekday::Thursday),
            "fri" | "friday" => DaysAgo::Last(Weekday::Friday),
            "sat" | "saturday" => DaysAgo::Last(Weekday::Saturday),
            "sun" | "sunday" => DaysAgo::Last(Weekday::Sunday),
            _ => return None,
        };
        let at = match at {
            None => None,
            Some(at) => Some(clock(at.trim().strip_prefix("at ").unwrap_or(at).trim())?),
        };
        Some(Self::Day { days_ago, at })
    }

    /// The first and the last moment.
    fn span(&self, now: &Zoned) -> Result<(Zoned, Zoned), jiff::Error> {
        let zone = now.time_zone();
        let moment = |at: Zoned| (at.clone(), at);
        let whole = |date: Date| -> Result<_, jiff::Error> {
            let next = date.tomorrow()?.to_zoned(zone.clone())?;
            Ok((date.to_zoned(zone.clone())?, next.checked_sub(1.nanosecond())?))
        };
        let local = |at: DateTime| at.to_zoned(zone.clone());
        Ok(match self {
            Self::Moment(at) => moment(at.to_zoned(zone.clone())),
            Self::Before(span) => moment(now.checked_sub(*span)?),
            Self::Date(date) => whole(*date)?,
            Self::Local(at) => moment(local(*at)?),
            Self::Clock(at) => {
                let today = local(now.date().to_datetime(*at))?;
                let is_over = today <= *now;
                let of_day = if is_over { now.date() } else { now.date().yesterday()? };
                moment(local(of_day.to_datetime(*at))?)
            }
            Self::Day { days_ago, at } => {
                let days = match days_ago {
                    DaysAgo::Count(days) => *days,
                    // The weekday of today was last a week ago.
                    DaysAgo::Last(weekday) => {
                        let since = i32::from(now.date().weekday().since(*weekday));
                        if since == 0 { 7 } else { since }
                    }
                };
                let date = now.date().checked_sub(days.days())?;
                match at {
                    Some(at) => moment(local(date.to_datetime(*at))?),
                    None => whole(date)?,
                }
            }
        })
    }
}

/// A time of the clock: `18:30`, `18:30:05`, `6pm`, `6:30pm`, `noon`.
fn clock(text: &str) -> Option<Time> {
    match text {
        "noon" => return Time::midnight().checked_add(12.hours()).ok(),
        "midnight" => return Some(Time::midnight()),
        _ => {}
    }
    let forms = ["%H:%M", "%H:%M:%S", "%I%p", "%I:%M%p", "%I %p", "%I:%M %p"];
    forms.iter().find_map(|form| Time::strptime(form, text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone of central Europe, as a rule: clocks change on 2026-03-29 and 2026-10-25.
    const RULE: &str = "CET-1CEST,M3.5.0,M10.5.0/3";

    fn at(text: &str) -> Zoned {
        let zone = jiff::tz::TimeZone::posix(RULE).unwrap();
        text.parse::<DateTime>().unwrap().to_zoned(zone).unwrap()
    }

    fn span(text: &str, now: &str) -> (String, String) {
        let now = at(now);
        let when = When::parse(text, &now).unwrap();
        let shown =
            |moment: Timestamp| Exact(&moment.to_zoned(now.time_zone().clone())).to_string();
        (shown(when.begin()), shown(when.end()))
    }

    fn moment(text: &str, now: &str) -> String {
        let (begin, end) = span(text, now);
        assert_eq!(begin, end, "{text}");
        begin
    }

    #[test]
    fn times_are_read_as_people_say_them() {
        // A Friday.
        let now = "2026-11-20T18:30:15";
        for (text, meant) in [
            ("now", "2026-11-20 18:30:15 +01:00"),
            ("12:00", "2026-11-20 12:00:00 +01:00"),
            ("19:00", "2026-11-19 19:00:00 +01:00"),
            ("6pm", "2026-11-20 18:00:00 +01:00"),
            ("6:15 PM", "2026-11-20 18:15:00 +01:00"),
            ("noon", "2026-11-20 12:00:00 +01:00"),
            ("midnight", "2026-11-20 00:00:00 +01:00"),
            ("2h ago", "2026-11-20 16:30:15 +01:00"),
            ("36h", "2026-11-19 06:30:15 +01:00"),
            ("1h30m ago", "2026-11-20 17:00:15 +01:00"),
            ("10 minutes ago", "2026-11-20 18:20:15 +01:00"),
            ("3 days ago", "2026-11-17 18:30:15 +01:00"),
            ("2w", "2026-11-06 18:30:15 +01:00"),
            ("yesterday 9:05", "2026-11-19 09:05:00 +01:00"),
            ("Yesterday at 9:05", "2026-11-19 09:05:00 +01:00"),
            ("monday 17:00", "2026-11-16 17:00:00 +01:00"),
            ("2026-11-20 18:30", "2026-11-20 18:30:00 +01:00"),
            ("2026-11-20T18:30:10", "2026-11-20 18:30:10 +01:00"),
            ("2026-11-20T17:30:10Z", "2026-11-20 18:30:10 +01:00"),
            ("2026-11-20T12:30:10-05:00", "2026-11-20 18:30:10 +01:00"),
        ] {
            assert_eq!(moment(text, now), meant, "{text}");
        }
    }

    #[test]
    fn a_day_begins_at_midnight_and_ends_before_the_next_or_now() {
        let now = "2026-11-20T18:30:15";
        for (text, begin, end) in [
            ("yesterday", "2026-11-19 00:00:00 +01:00", "2026-11-19 23:59:59 +01:00"),
            ("2026-11-01", "2026-11-01 00:00:00 +01:00", "2026-11-01 23:59:59 +01:00"),
            ("today", "2026-11-20 00:00:00 +01:00", "2026-11-20 18:30:15 +01:00"),
            ("monday", "2026-11-16 00:00:00 +01:00", "2026-11-16 23:59:59 +01:00"),
            // Today is one: the last one before.
            ("last friday", "2026-11-13 00:00:00 +01:00", "2026-11-13 23:59:59 +01:00"),
            ("sat", "2026-11-14 00:00:00 +01:00", "2026-11-14 23:59:59 +01:00"),
        ] {
            assert_eq!(span(text, now), (begin.to_owned(), end.to_owned()), "{text}");
        }
    }

    #[test]
    fn days_in_which_the_clocks_change_are_shorter_and_longer() {
        // Put ahead at two in the night: a day of 23 hours.
        assert_eq!(moment("1 day ago", "2026-03-29T12:00:00"), "2026-03-28 12:00:00 +01:00");
        assert_eq!(moment("24h ago", "2026-03-29T12:00:00"), "2026-03-28 11:00:00 +01:00");
        assert_eq!(
            span("yesterday", "2026-03-30T12:00:00"),
            ("2026-03-29 00:00:00 +01:00".into(), "2026-03-29 23:59:59 +02:00".into())
        );
        // The clocks skipped it.
        assert_eq!(moment("2:30", "2026-03-29T12:00:00"), "2026-03-29 03:30:00 +02:00");
        // They showed it twice.
        assert_eq!(moment("2:30", "2026-10-25T12:00:00"), "2026-10-25 02:30:00 +02:00");
        assert_eq!(moment("24h ago", "2026-10-25T12:00:00"), "2026-10-24 13:00:00 +02:00");
        assert_eq!(
            moment("2026-10-25T02:30:00+01:00", "2026-10-25T12:00:00"),
            "2026-10-25 02:30:00 +01:00"
        );
    }

    #[test]
    fn what_is_no_time_or_in_the_future_is_refused() {
        let now = at("2026-11-20T18:30:15");
        for text in [
            "",
            "soon",
            "12",
            "25:00",
            "-2h",
            "12:00 yesterday",
            "2026-13-01",
            "h",
            "now ago",
            "ago",
        ] {
            let refused = When::parse(text, &now);
            assert!(matches!(refused, Err(WhenError::Unknown(_))), "{text}: {refused:?}");
        }
        for text in ["2026-11-21", "2026-11-20 18:31", "today 19:00", "2027-01-01T00:00:00Z"] {
            let refused = When::parse(text, &now);
            assert!(matches!(refused, Err(WhenError::Future { .. })), "{text}: {refused:?}");
        }
        let refused = When::parse("99999 years ago", &now);
        assert!(refused.is_err(), "{refused:?}");
        let message = When::parse("a\u{1b}[2J", &now).unwrap_err().to_string();
        assert!(!message.contains('\u{1b}') && message.contains("yesterday"), "{message}");
    }
}
