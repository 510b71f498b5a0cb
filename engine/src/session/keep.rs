//! Which items of a history stay: rules over times, as people know them from backups.
//!
//! Pure: from items with a group and a time to those that stay. Sessions of a project, steps of an
//! agent and snapshots of a watcher are such items. Always true, of each group by itself:
//!
//! - A fixed item stays, and takes no place of another one.
//! - `last` keeps the newest items. `hourly` keeps the newest item of each of the last hours that
//!   have one, and so do days, weeks (from Monday) and months, by the clock of the user.
//! - An item that is younger than `within`, or from the future, stays. The newest item of each hour
//!   stays for `hourly_within`, that of each day for `daily_within`.
//! - Without a rule everything stays.

use std::collections::{BTreeMap, HashSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The rules. An item stays if one of them keeps it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepRules {
    /// The number of newest items; 0 keeps none by this rule, as in the next ones.
    pub last: u64,
    /// The number of hours.
    pub hourly: u64,
    /// The number of days.
    pub daily: u64,
    /// The number of weeks.
    pub weekly: u64,
    /// The number of months.
    pub monthly: u64,
    /// The age up to which every item stays.
    pub within: SignedDuration,
    /// The age up to which one item of each hour stays.
    pub hourly_within: SignedDuration,
    /// The age up to which one item of each day stays.
    pub daily_within: SignedDuration,
}

/// An item of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepItem<'a> {
    /// The items among which it counts.
    pub group: &'a str,
    /// Its time.
    pub at: Timestamp,
    /// Whether it stays by itself: it is pinned, has a name, or something needs it.
    pub is_fixed: bool,
}

impl KeepRules {
    /// All changes of the last two hours, one of each hour for two days, one of each day for a
    /// month.
    pub const WATCH: Self = Self {
        last: 0,
        hourly: 0,
        daily: 0,
        weekly: 0,
        monthly: 0,
        within: SignedDuration::from_hours(2),
        hourly_within: SignedDuration::from_hours(48),
        daily_within: SignedDuration::from_hours(31 * 24),
    };

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether each item stays, in the order of the items. Of two items of one time the later one is
    /// newer.
    pub fn stays(&self, items: &[KeepItem<'_>], now: Timestamp, zone: &TimeZone) -> Vec<bool> {
        let mut stays: Vec<_> = items.iter().map(|it| it.is_fixed || self.is_empty()).collect();
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            if !stays[index] {
                groups.entry(item.group).or_default().push(index);
            }
        }
        for mut group in groups.into_values() {
            group.sort_by_key(|index| (items[*index].at, *index));
            let mut buckets = [
                Bucket::new(self.last, SignedDuration::ZERO),
                Bucket::new(self.hourly, self.hourly_within),
                Bucket::new(self.daily, self.daily_within),
                Bucket::new(self.weekly, SignedDuration::ZERO),
                Bucket::new(self.monthly, SignedDuration::ZERO),
            ];
            for (place, index) in group.iter().rev().enumerate() {
                let at = items[*index].at;
                let age = now.duration_since(at);
                let keys = keys(at, place, zone);
                // Every rule sees every item: none of them ends early.
                let mut is_kept = age < self.within || at > now;
                for (bucket, key) in buckets.iter_mut().zip(keys) {
                    is_kept |= bucket.keeps(key, age);
                }
                stays[*index] = is_kept;
            }
        }
        stays
    }
}

/// The periods of an item: itself, its hour, its day, its week, its month. Of a time that no
/// calendar has, each is a period of its own.
fn keys(at: Timestamp, place: usize, zone: &TimeZone) -> [i64; 5] {
    let zoned = at.to_zoned(zone.clone());
    let place = i64::try_from(place).unwrap_or(i64::MAX);
    let offset = i64::from(zoned.offset().seconds());
    // Hours of the clock; one that comes twice in a night in autumn is two.
    let hour = (at.as_second() + offset.rem_euclid(3600)).div_euclid(3600);
    let date = zoned.date();
    let week = date.iso_week_date();
    let day = i64::from(date.year()) * 1000 + i64::from(date.day_of_year());
    let week = i64::from(week.year()) * 100 + i64::from(week.week());
    let month = i64::from(date.year()) * 100 + i64::from(date.month());
    [place, hour, day, week, month]
}

/// The periods that a rule has met.
struct Bucket {
    left: u64,
    within: SignedDuration,
    met: HashSet<i64>,
}

impl Bucket {
    fn new(count: u64, within: SignedDuration) -> Self {
        Self { left: count, within, met: HashSet::new() }
    }

    /// Whether the rule keeps the newest item of this period, which this one is if the period was
    /// not met before.
    fn keeps(&mut self, period: i64, age: SignedDuration) -> bool {
        if !self.met.insert(period) {
            return false;
        }
        let is_counted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_counted || age < self.within
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3600;

    fn at(second: i64) -> Timestamp {
        // A Monday, 00:00 UTC.
        Timestamp::from_second(1_800_230_400 + second).unwrap()
    }

    fn items(seconds: &[i64]) -> Vec<KeepItem<'static>> {
        let item = |second: &i64| KeepItem { group: "a", at: at(*second), is_fixed: false };
        seconds.iter().map(item).collect()
    }

    fn kept(rules: KeepRules, seconds: &[i64], now: i64) -> Vec<i64> {
        let stays = rules.stays(&items(seconds), at(now), &TimeZone::UTC);
        seconds.iter().zip(stays).filter(|(_, stays)| *stays).map(|(it, _)| *it).collect()
    }

    #[test]
    fn each_rule_keeps_the_newest_of_its_periods() {
        let day = 24 * HOUR;
        let times = [0, 10, HOUR, HOUR + 5, day, 2 * day, 9 * day, 40 * day, 40 * day + 1];
        let rules = KeepRules::default();
        let now = 41 * day;
        assert_eq!(kept(rules, &times, now), times);
        assert_eq!(kept(KeepRules { last: 2, ..rules }, &times, now), times[7..]);
        let hourly = KeepRules { hourly: 100, ..rules };
        let newest = [10, HOUR + 5, day, 2 * day, 9 * day, 40 * day + 1];
        assert_eq!(kept(hourly, &times, now), newest);
        let daily = KeepRules { daily: 2, ..rules };
        assert_eq!(kept(daily, &times, now), [9 * day, 40 * day + 1]);
        let weekly = KeepRules { weekly: 3, ..rules };
        assert_eq!(kept(weekly, &times, now), [2 * day, 9 * day, 40 * day + 1]);
        let monthly = KeepRules { monthly: 2, ..rules };
        assert_eq!(kept(monthly, &times, now).len(), 2);
        let both = KeepRules { last: 1, daily: 2, ..rules };
        assert_eq!(kept(both, &times, now), [9 * day, 40 * day + 1]);
    }

    #[test]
    fn a_watcher_keeps_two_hours_then_hours_then_days() {
        let day = 24 * HOUR;
        let now = 40 * day;
        let every_ten_minutes: Vec<_> = (0..40 * 144).map(|n| n * 600).collect();
        let kept = kept(KeepRules::WATCH, &every_ten_minutes, now);
        let count = |from: i64, to: i64| {
            kept.iter().filter(|it| **it > now - from && **it <= now - to).count()
        };
        assert_eq!(count(2 * HOUR, 0), 11);
        assert_eq!(count(2 * day, 2 * HOUR), 46);
        assert_eq!(count(31 * day, 2 * day), 29);
        assert_eq!(count(50 * day, 31 * day), 0);
    }

    #[test]
    fn groups_and_fixed_items_take_no_place_of_others() {
        let mut all = items(&[0, 1, 2, 3]);
        all[1].group = "b";
        all[3].is_fixed = true;
        let rules = KeepRules { last: 1, ..KeepRules::default() };
        assert_eq!(rules.stays(&all, at(9), &TimeZone::UTC), [false, true, true, true]);
    }

    /// The periods of a time by its text: slow, and with nothing in common with the above.
    fn period(rule: usize, at: Timestamp) -> String {
        let form = ["%s", "%Y-%m-%dT%H", "%Y-%m-%d", "%G-%V", "%Y-%m"][rule];
        at.to_zoned(TimeZone::UTC).strftime(form).to_string()
    }

    proptest! {
        #[test]
        fn what_stays_is_what_the_rules_say_one_by_one(
            // Distinct seconds, of one month mostly.
            seconds in prop::collection::btree_set(0..70 * 24 * HOUR, 0..60),
            counts in prop::array::uniform5(0..6u64),
            within in 0..30i64, hourly_within in 0..90i64, daily_within in 0..40i64,
            fixed in prop::collection::vec(any::<bool>(), 60),
            groups in prop::collection::vec(any::<bool>(), 60),
        ) {
            let now = at(69 * 24 * HOUR);
            let [last, hourly, daily, weekly, monthly] = counts;
            let rules = KeepRules {
                last, hourly, daily, weekly, monthly,
                within: SignedDuration::from_hours(within),
                hourly_within: SignedDuration::from_hours(hourly_within),
                daily_within: SignedDuration::from_hours(24 * daily_within),
            };
            prop_assume!(!rules.is_empty());
            let all: Vec<_> = seconds.iter().zip(fixed.iter().zip(&groups)).map(|(second, (f, g))| {
                KeepItem { group: if *g { "a" } else { "b" }, at: at(*second), is_fixed: *f && *g }
            }).collect();
            let stays = rules.stays(&all, now, &TimeZone::UTC);
            for (index, item) in all.iter().enumerate() {
                let mates = || all.iter().filter(|it| it.group == item.group && !it.is_fixed);
                let age = now.duration_since(item.at);
                let mut wanted = item.is_fixed || item.at > now || age < rules.within;
                for (rule, count) in counts.iter().enumerate() {
                    let own = period(rule, item.at);
                    let is_newest = !mates().any(|it| it.at > item.at && period(rule, it.at) == own);
                    let newer: HashSet<_> = mates()
                        .map(|it| (it.at, period(rule, it.at)))
                        .filter(|(at, period)| *at > item.at && *period != own)
                        .map(|(_, period)| period)
                        .collect();
                    let span = [None, Some(rules.hourly_within), Some(rules.daily_within), None, None];
                    let is_young = span[rule].is_some_and(|span| age < span);
                    wanted |= is_newest && ((newer.len() as u64) < *count || is_young);
                }
                prop_assert_eq!(stays[index], wanted, "{:?} of {:?} under {:?}", item, all, rules);
            }
        }
    }
}
