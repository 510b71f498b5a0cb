//! Which sessions a store lets go: a policy, and what follows from it.
//!
//! Pure: from facts about sessions to a list of those that go, each with the reason. The order is
//! fixed: what is too old, then what is too many, then what takes too much space, the oldest first each
//! time. A running session never goes, and neither does the newest of a project, so whatever the
//! policy says, the last thing that was done somewhere can be undone, also under a wrong clock.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::{SessionStatus, SessionSummary};
use crate::gc::StorageUsage;
use crate::snapshot::Recency;

/// What a store may hold. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Greatest age of a session, counted from its start.
    pub max_age: Option<SignedDuration>,
    /// Most sessions, those that cannot go included.
    pub max_sessions: Option<u64>,
    /// Most bytes of objects that sessions need.
    pub max_storage_bytes: Option<u64>,
}

/// What a policy looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// The session.
    pub session_id: String,
    /// When it began.
    pub started: Timestamp,
    /// Whether its command is running.
    pub is_running: bool,
    /// Its tracked paths, as one text.
    pub project: String,
}

/// A session that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Expired {
    /// The session.
    pub session_id: String,
    /// Why.
    pub reason: Expiry,
}

/// Why a session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// It began too long ago.
    TooOld,
    /// There are too many.
    TooMany,
    /// The store holds too much.
    TooLarge,
}

impl From<&SessionSummary> for SessionFacts {
    fn from(summary: &SessionSummary) -> Self {
        Self {
            session_id: summary.session_id.clone(),
            started: summary.started,
            is_running: summary.status == SessionStatus::Running,
            project: summary.project(),
        }
    }
}

impl RetentionPolicy {
    /// The sessions that may go at all, the oldest first.
    pub fn removable(sessions: &[SessionFacts], now: Timestamp) -> Vec<&SessionFacts> {
        let age = |facts: &SessionFacts| Recency::new(facts.started, &*facts.session_id, now);
        let mut newest: HashMap<&str, &SessionFacts> = HashMap::new();
        for facts in sessions {
            let known = newest.entry(&facts.project).or_insert(facts);
            if age(known) < age(facts) {
                *known = facts;
            }
        }
        let is_newest = |facts: &SessionFacts| newest[&*facts.project] == facts;
        let mut removable: Vec<_> =
            sessions.iter().filter(|facts| !facts.is_running && !is_newest(facts)).collect();
        removable.sort_by_cached_key(|facts| age(facts));
        removable
    }

    /// The sessions that go, in order. `usage` is that of [`removable`](Self::removable); without it,
    /// space is not looked at.
    pub fn expired(
        &self,
        sessions: &[SessionFacts],
        now: Timestamp,
        usage: Option<&StorageUsage>,
    ) -> Vec<Expired> {
        let mut count = sessions.len() as u64;
        let mut bytes = usage.map_or(0, |usage| usage.total_bytes);
        let mut expired = Vec::new();
        let mut useful = 0;
        for facts in Self::removable(sessions, now) {
            let reason = if self.max_age.is_some_and(|max| now.duration_since(facts.started) > max)
            {
                Expiry::TooOld
            } else if self.max_sessions.is_some_and(|max| count > max) {
                Expiry::TooMany
            } else if self.max_storage_bytes.is_some_and(|max| bytes > max) {
                Expiry::TooLarge
            } else {
                break;
            };
            count -= 1;
            let freed = usage.and_then(|usage| usage.freed_bytes.get(&facts.session_id));
            let freed = freed.copied().unwrap_or(0);
            bytes = bytes.saturating_sub(freed);
            expired.push(Expired { session_id: facts.session_id.clone(), reason });
            if reason != Expiry::TooLarge || freed > 0 {
                useful = expired.len();
            }
        }
        // Nothing is given up for space that does not become free.
        expired.truncate(useful);
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session of a project that began so many days before the end of time as tests know it.
    fn session(id: &str, project: &str, days_ago: i64) -> SessionFacts {
        SessionFacts {
            session_id: id.into(),
            started: now() - SignedDuration::from_hours(24 * days_ago),
            is_running: false,
            project: project.into(),
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(2_000_000_000).unwrap()
    }

    fn expired(
        policy: RetentionPolicy,
        sessions: &[SessionFacts],
        usage: Option<&StorageUsage>,
    ) -> Vec<(String, Expiry)> {
        let expired = policy.expired(sessions, now(), usage);
        expired.into_iter().map(|expired| (expired.session_id, expired.reason)).collect()
    }

    fn policy(days: Option<i64>, count: Option<u64>, bytes: Option<u64>) -> RetentionPolicy {
        RetentionPolicy {
            max_age: days.map(|days| SignedDuration::from_hours(24 * days)),
            max_sessions: count,
            max_storage_bytes: bytes,
        }
    }

    fn usage(total_bytes: u64, freed: &[(&str, u64)]) -> StorageUsage {
        let freed = freed.iter().map(|(id, bytes)| ((*id).to_owned(), *bytes));
        StorageUsage { total_bytes, freed_bytes: freed.collect() }
    }

    #[test]
    fn no_limit_removes_nothing() {
        let sessions = [session("a", "p", 1000), session("b", "p", 1)];
        let much = usage(u64::MAX, &[("a", 1)]);
        assert_eq!(expired(policy(None, None, None), &sessions, Some(&much)), []);
    }

    #[test]
    fn the_too_old_go_first_then_the_too_many_then_the_too_large() {
        // Not in the order of their age.
        let sessions = [
            session("d", "p", 4),
            session("a", "p", 50),
            session("e", "p", 1),
            session("b", "p", 40),
            session("c", "p", 10),
        ];
        let held = usage(100, &[("a", 30), ("b", 0), ("c", 5), ("d", 10)]);
        assert_eq!(
            expired(policy(Some(45), Some(4), Some(60)), &sessions, Some(&held)),
            [
                ("a".to_owned(), Expiry::TooOld),
                // 4 are left, and 70 bytes.
                ("b".to_owned(), Expiry::TooLarge),
                ("c".to_owned(), Expiry::TooLarge),
                ("d".to_owned(), Expiry::TooLarge),
            ]
        );
        assert_eq!(
            expired(policy(Some(45), Some(2), Some(70)), &sessions, Some(&held)),
            [
                ("a".to_owned(), Expiry::TooOld),
                ("b".to_owned(), Expiry::TooMany),
                ("c".to_owned(), Expiry::TooMany),
            ]
        );
    }

    #[test]
    fn what_older_ones_free_counts_before_another_one_goes() {
        let sessions = [session("a", "p", 3), session("b", "p", 2), session("c", "p", 1)];
        let held = usage(100, &[("a", 50), ("b", 20)]);
        let of = |bytes| expired(policy(None, None, Some(bytes)), &sessions, Some(&held)).len();
        assert_eq!((of(100), of(99), of(50), of(49), of(0)), (0, 1, 1, 2, 2));
    }

    #[test]
    fn nothing_goes_for_space_that_does_not_become_free() {
        let sessions: Vec<_> = (0..5).map(|age| session(&age.to_string(), "p", 5 - age)).collect();
        let of = |freed: &[(&str, u64)]| {
            expired(policy(None, None, Some(1)), &sessions, Some(&usage(100, freed))).len()
        };
        assert_eq!(of(&[]), 0);
        // Those before the one that frees something have to go for it.
        assert_eq!(of(&[("2", 1)]), 3);
        assert_eq!(of(&[("0", 1)]), 1);
    }

    #[test]
    fn the_newest_of_a_project_and_running_ones_stay_and_are_counted() {
        let mut running = session("r", "p", 900);
        running.is_running = true;
        let sessions = [
            running,
            session("q1", "q", 800),
            session("p1", "p", 700),
            session("p2", "p", 600),
            session("q2", "q", 500),
        ];
        let all = policy(Some(1), Some(0), Some(0));
        let ids: Vec<_> = expired(all, &sessions, None).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["q1", "p1"]);
        assert_eq!(
            expired(policy(None, Some(4), None), &sessions, None),
            [("q1".to_owned(), Expiry::TooMany)]
        );
    }

    #[test]
    fn of_two_that_began_at_once_the_greater_id_is_the_newer() {
        let sessions = [session("b", "p", 1), session("a", "p", 1)];
        let ids = expired(policy(None, Some(1), None), &sessions, None);
        assert_eq!(ids, [("a".to_owned(), Expiry::TooMany)]);
    }

    #[test]
    fn what_was_recorded_under_a_wrong_clock_is_not_the_newest() {
        let sessions = [session("a", "p", -5), session("b", "p", 0), session("c", "p", -6)];
        assert_eq!(
            expired(policy(None, Some(1), None), &sessions, None),
            [("a".to_owned(), Expiry::TooMany), ("c".to_owned(), Expiry::TooMany)]
        );
    }

    #[test]
    fn a_session_from_the_future_is_not_old() {
        let sessions = [session("a", "p", -5), session("b", "p", -6)];
        assert_eq!(expired(policy(Some(1), None, None), &sessions, None), []);
    }
}
