//! Which snapshots of containers go: a policy, and what follows from it.
//!
//! Pure: from facts about snapshots and a time to a list of those that go, each with the reason, in
//! order. First age, then count, then bytes; of equals the oldest goes first. The newest snapshot
//! of a container goes by age or for space alone with all the others of its container. The newest
//! of all goes by age alone, because somebody may be about to need it. Where it and pinned sessions
//! are over the limit of space by themselves, nothing goes for space: it would not help. Pinned
//! sessions lose nothing.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

/// The limits. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// Greatest age of a snapshot.
    pub max_age: Option<SignedDuration>,
    /// Most snapshots of one container.
    pub max_per_container: Option<u64>,
    /// Most snapshots of all containers.
    pub max_snapshots: Option<u64>,
    /// Most bytes: of objects that only container sessions need, and of images of ours.
    pub max_bytes: Option<u64>,
}

impl Default for ContainerPolicy {
    /// Seven days, 10 snapshots of a container, 100 in all, 10 GiB.
    fn default() -> Self {
        Self {
            max_age: Some(SignedDuration::from_hours(7 * 24)),
            max_per_container: Some(10),
            max_snapshots: Some(100),
            max_bytes: Some(10 << 30),
        }
    }
}

/// The facts that the policy looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFacts {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub number: u64,
    /// When it was taken.
    pub taken: Timestamp,
    /// Bytes that it added to the store, and of its image.
    pub bytes: u64,
    /// Whether its session is pinned.
    pub is_pinned: bool,
}

/// A snapshot that goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExpiredSnapshot {
    /// The id of the session.
    pub session_id: String,
    /// The number of the snapshot.
    pub number: u64,
    /// Why.
    pub reason: SnapshotExpiry,
}

/// Why a snapshot goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotExpiry {
    /// It is too old.
    TooOld,
    /// Its container has too many.
    TooManyOfContainer,
    /// There are too many in all.
    TooMany,
    /// They take too much space.
    TooLarge,
}

impl ContainerPolicy {
    /// The snapshots that go.
    pub fn expired(&self, snapshots: &[SnapshotFacts], now: Timestamp) -> Vec<ExpiredSnapshot> {
        let mut order: Vec<&SnapshotFacts> = snapshots.iter().collect();
        order.sort_by(|a, b| {
            (a.taken, &a.session_id, a.number).cmp(&(b.taken, &b.session_id, b.number))
        });
        let mut left: BTreeMap<&str, Vec<&SnapshotFacts>> = BTreeMap::new();
        for facts in &order {
            left.entry(&facts.session_id).or_default().push(facts);
        }
        for held in left.values_mut() {
            held.sort_by_key(|facts| facts.number);
        }
        // One from the future is not newer than one of now: a clock was wrong.
        let newest = order.iter().max_by_key(|facts| (facts.taken <= now, facts.taken)).copied();
        let bytes = snapshots.iter().map(|facts| facts.bytes).sum();
        let mut going = Going { left, expired: Vec::new(), bytes };
        for facts in order.iter().filter(|facts| !facts.is_pinned) {
            if self.max_age.is_some_and(|max| now.duration_since(facts.taken) > max)
                && going.may_go(facts, |other| {
                    self.max_age.is_some_and(|max| now.duration_since(other.taken) > max)
                })
            {
                going.remove(facts, SnapshotExpiry::TooOld);
            }
        }
        for facts in order.iter().filter(|facts| !facts.is_pinned) {
            let count = going.count_of(&facts.session_id);
            if self.max_per_container.is_some_and(|max| count > max.max(1)) && going.is_older(facts)
            {
                going.remove(facts, SnapshotExpiry::TooManyOfContainer);
            }
        }
        let stays = |facts: &SnapshotFacts| facts.is_pinned || newest == Some(facts);
        for facts in order.iter().filter(|facts| !stays(facts)) {
            if self.max_snapshots.is_some_and(|max| going.count() > max) && going.may_go_last(facts)
            {
                going.remove(facts, SnapshotExpiry::TooMany);
            }
        }
        let staying = order.iter().filter(|facts| going.is_held(facts) && stays(facts));
        let least_bytes: u64 = staying.map(|facts| facts.bytes).sum();
        let max_bytes = self.max_bytes.filter(|max| least_bytes <= *max);
        for facts in order.iter().filter(|facts| !stays(facts)) {
            if max_bytes.is_some_and(|max| going.bytes > max) && going.may_go_last(facts) {
                going.remove(facts, SnapshotExpiry::TooLarge);
            }
        }
        going.expired
    }
}

struct Going<'a> {
    /// By session, by number.
    left: BTreeMap<&'a str, Vec<&'a SnapshotFacts>>,
    expired: Vec<ExpiredSnapshot>,
    bytes: u64,
}

impl<'a> Going<'a> {
    fn of(&self, session: &str) -> &[&'a SnapshotFacts] {
        self.left.get(session).map_or(&[], Vec::as_slice)
    }

    fn count_of(&self, session: &str) -> u64 {
        self.of(session).len() as u64
    }

    fn count(&self) -> u64 {
        self.left.values().map(|held| held.len() as u64).sum()
    }

    fn is_held(&self, facts: &SnapshotFacts) -> bool {
        self.of(&facts.session_id).iter().any(|held| held.number == facts.number)
    }

    /// Whether a younger one of its container stays.
    fn is_older(&self, facts: &SnapshotFacts) -> bool {
        let held = self.of(&facts.session_id);
        self.is_held(facts) && held.last().is_some_and(|last| last.number != facts.number)
    }

    /// Whether it is no newest one, or all of its container go for the same reason.
    fn may_go(&self, facts: &SnapshotFacts, goes: impl Fn(&SnapshotFacts) -> bool) -> bool {
        self.is_older(facts)
            || (self.is_held(facts) && self.of(&facts.session_id).iter().all(|held| goes(held)))
    }

    /// Whether it is no newest one, or the only one left of its container.
    fn may_go_last(&self, facts: &SnapshotFacts) -> bool {
        self.is_older(facts) || (self.is_held(facts) && self.count_of(&facts.session_id) == 1)
    }

    fn remove(&mut self, facts: &'a SnapshotFacts, reason: SnapshotExpiry) {
        if let Some(held) = self.left.get_mut(facts.session_id.as_str()) {
            held.retain(|held| held.number != facts.number);
        }
        self.bytes = self.bytes.saturating_sub(facts.bytes);
        let (session_id, number) = (facts.session_id.clone(), facts.number);
        self.expired.push(ExpiredSnapshot { session_id, number, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(session: &str, number: u64, hours_ago: i64, now: Timestamp) -> SnapshotFacts {
        SnapshotFacts {
            session_id: session.to_owned(),
            number,
            taken: now - SignedDuration::from_hours(hours_ago),
            bytes: 10,
            is_pinned: false,
        }
    }

    fn policy() -> ContainerPolicy {
        let (max_age, max_bytes) = (Some(SignedDuration::from_hours(24)), None);
        ContainerPolicy { max_age, max_per_container: Some(2), max_snapshots: Some(3), max_bytes }
    }

    fn gone(expired: &[ExpiredSnapshot]) -> Vec<(&str, u64, SnapshotExpiry)> {
        expired.iter().map(|e| (e.session_id.as_str(), e.number, e.reason)).collect()
    }

    #[test]
    fn age_comes_first_then_the_count_of_a_container_then_that_of_all() {
        use SnapshotExpiry::{TooMany, TooManyOfContainer, TooOld};
        let now = Timestamp::now();
        let mut all: Vec<_> = (0..5).map(|n| at("a", n, 30 - 5 * n as i64, now)).collect();
        all.extend([at("b", 0, 4, now), at("b", 1, 3, now)]);
        let expired = policy().expired(&all, now);
        assert_eq!(
            gone(&expired),
            [("a", 0, TooOld), ("a", 1, TooOld), ("a", 2, TooManyOfContainer), ("a", 3, TooMany),]
        );
        // What goes does not depend on the order of the facts.
        all.reverse();
        assert_eq!(policy().expired(&all, now), expired);
    }

    #[test]
    fn a_session_whose_snapshots_are_all_too_old_goes_whole_and_a_pinned_one_stays() {
        let now = Timestamp::now();
        let mut all = vec![at("a", 0, 50, now), at("a", 1, 40, now)];
        assert_eq!(policy().expired(&all, now).len(), 2);
        all.push(at("a", 2, 1, now));
        assert_eq!(policy().expired(&all, now).len(), 2);
        all.iter_mut().for_each(|facts| facts.is_pinned = true);
        assert!(policy().expired(&all, now).is_empty());
    }

    #[test]
    fn the_oldest_go_until_the_rest_fits() {
        let now = Timestamp::now();
        let all = [at("a", 0, 9, now), at("b", 0, 8, now), at("b", 1, 7, now)];
        let policy = ContainerPolicy { max_bytes: Some(15), ..ContainerPolicy::default() };
        let expired = policy.expired(&all, now);
        assert_eq!(
            gone(&expired),
            [("a", 0, SnapshotExpiry::TooLarge), ("b", 0, SnapshotExpiry::TooLarge)]
        );
    }

    #[test]
    fn a_newest_snapshot_that_alone_is_too_large_stays_and_nothing_goes_in_vain() {
        let now = Timestamp::now();
        let mut all = [at("a", 0, 9, now), at("b", 0, 8, now), at("c", 0, 1, now)];
        let policy = ContainerPolicy { max_bytes: Some(5), ..ContainerPolicy::default() };
        assert!(policy.expired(&all, now).is_empty());
        let policy = ContainerPolicy { max_snapshots: Some(0), max_bytes: Some(10), ..policy };
        assert_eq!(policy.expired(&all, now).len(), 2);
        // A clock that was ahead makes no snapshot newer than the one of now.
        all[0].taken = now + SignedDuration::from_hours(5);
        let expired = policy.expired(&all, now);
        assert!(expired.iter().all(|gone| gone.session_id != "c"), "{expired:?}");
    }
}
