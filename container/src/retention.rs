//! Which snapshots of containers go: a policy, and what follows from it.
//!
//! Pure: from facts about snapshots and a time to a list of those that go, each with the reason, in
//! order. Limits come in this order: age, safety snapshots, count, bytes. Always true:
//!
//! - The least [worth](SnapshotWorth) goes first; of equals the oldest.
//! - A snapshot that is worth keeping stays as long as its container holds one that nono made by
//!   itself. A limit of age takes both when all of the container are too old.
//! - The newest snapshot of a container goes by age or for space alone with all the others of its
//!   container. One that nono made by itself goes before others that are worth keeping.
//! - The newest of all goes by age alone, because a user may be about to need it. Where it, pinned
//!   sessions and what outlives it are over the limit of space by themselves, nothing goes for
//!   space: it would not help.
//! - Pinned sessions lose nothing.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use nono_engine::session::aging_until;
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

/// Most snapshots of one container that restores took for safety, where snapshots have a limit.
pub const MAX_SAFETY_SNAPSHOTS: u64 = 3;

/// The worth of a snapshot beside others of its container, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotWorth {
    /// A restore took it for safety.
    Safety,
    /// A run or an action of an agent took it, and gave it no name.
    Automatic,
    /// A user asked for it, and gave it no name.
    Unnamed,
    /// It has a name, or the last restore was made from it.
    Kept,
}

impl SnapshotWorth {
    /// Whether nono made the snapshot by itself, or a run or an action of an agent.
    pub fn is_own_made(self) -> bool {
        matches!(self, Self::Safety | Self::Automatic)
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
    /// Its worth.
    pub worth: SnapshotWorth,
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
    /// Its container has more than [`MAX_SAFETY_SNAPSHOTS`] that restores took for safety.
    TooManyForSafety,
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
            (a.worth, a.taken, &a.session_id, a.number).cmp(&(
                b.worth,
                b.taken,
                &b.session_id,
                b.number,
            ))
        });
        let mut left: BTreeMap<&str, Vec<&SnapshotFacts>> = BTreeMap::new();
        for facts in &order {
            left.entry(&facts.session_id).or_default().push(facts);
        }
        for held in left.values_mut() {
            held.sort_by_key(|facts| facts.number);
        }
        // One from the future is not newer than one of now: a clock was wrong.
        let by_time = |a: &&SnapshotFacts, b: &&SnapshotFacts| {
            let (a_is_past, b_is_past) = (a.taken <= now, b.taken <= now);
            (a_is_past, a.taken, &a.session_id, a.number).cmp(&(
                b_is_past,
                b.taken,
                &b.session_id,
                b.number,
            ))
        };
        let newest = order.iter().copied().max_by(by_time);
        let bytes = snapshots.iter().map(|facts| facts.bytes).sum();
        let mut going = Going { left, expired: Vec::new(), bytes };
        order.retain(|facts| !facts.is_pinned);
        // A clock that jumped ahead makes nothing older.
        let aged = aging_until(snapshots.iter().map(|facts| facts.taken), now);
        let is_old = |facts: &SnapshotFacts| {
            self.max_age.is_some_and(|max| aged.duration_since(facts.taken) > max)
        };
        going.remove_while(&order, SnapshotExpiry::TooOld, |going, facts| {
            let may_go = going.is_older(facts) && !going.is_outlived_by_own_made(facts);
            is_old(facts) && (may_go || going.of(&facts.session_id).iter().all(|it| is_old(it)))
        });
        let max_for_safety = self.max_per_container.map(|max| max.clamp(1, MAX_SAFETY_SNAPSHOTS));
        going.remove_while(&order, SnapshotExpiry::TooManyForSafety, |going, facts| {
            facts.worth == SnapshotWorth::Safety
                && going.is_older(facts)
                && max_for_safety.is_some_and(|max| going.count_for_safety(facts) > max)
        });
        going.remove_while(&order, SnapshotExpiry::TooManyOfContainer, |going, facts| {
            let count = going.count_of(&facts.session_id);
            self.max_per_container.is_some_and(|max| count > max.max(1))
                && going.is_older(facts)
                && !going.is_outlived_by_own_made(facts)
        });
        order.retain(|facts| newest != Some(facts));
        going.remove_while(&order, SnapshotExpiry::TooMany, |going, facts| {
            self.max_snapshots.is_some_and(|max| going.count() > max) && going.may_go_last(facts)
        });
        let least_bytes = going.least_bytes(|facts| facts.is_pinned || newest == Some(facts));
        let max_bytes = self.max_bytes.filter(|max| least_bytes <= *max);
        going.remove_while(&order, SnapshotExpiry::TooLarge, |going, facts| {
            max_bytes.is_some_and(|max| going.bytes > max) && going.may_go_last(facts)
        });
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

    fn count_for_safety(&self, facts: &SnapshotFacts) -> u64 {
        let held = self.of(&facts.session_id).iter();
        held.filter(|held| held.worth == SnapshotWorth::Safety).count() as u64
    }

    /// Whether its container holds a snapshot that has to go before it.
    fn is_outlived_by_own_made(&self, facts: &SnapshotFacts) -> bool {
        facts.worth == SnapshotWorth::Kept
            && self.of(&facts.session_id).iter().any(|held| held.worth.is_own_made())
    }

    /// Whether it is no newest one, or the only one left of its container, or has to go before the
    /// others.
    fn may_go_last(&self, facts: &SnapshotFacts) -> bool {
        let mut others = self.of(&facts.session_id).iter().filter(|held| **held != facts);
        let gives_way = facts.worth.is_own_made() || self.count_of(&facts.session_id) == 1;
        (self.is_older(facts) && !self.is_outlived_by_own_made(facts))
            || (gives_way && others.all(|held| held.worth == SnapshotWorth::Kept))
    }

    /// Bytes of the snapshots that stay whatever the limit of space, and of those that outlive
    /// them.
    fn least_bytes(&self, stays: impl Fn(&SnapshotFacts) -> bool) -> u64 {
        let of_container = |held: &Vec<&SnapshotFacts>| -> u64 {
            let keeps = held.iter().any(|facts| stays(facts) && facts.worth.is_own_made());
            let staying = held
                .iter()
                .filter(|facts| stays(facts) || (keeps && facts.worth == SnapshotWorth::Kept));
            staying.map(|facts| facts.bytes).sum()
        };
        self.left.values().map(of_container).sum()
    }

    /// Removes the first one that goes, and looks again.
    fn remove_while(
        &mut self,
        order: &[&'a SnapshotFacts],
        reason: SnapshotExpiry,
        goes: impl Fn(&Self, &SnapshotFacts) -> bool,
    ) {
        let next = |going: &Self| {
            order.iter().find(|facts| going.is_held(facts) && goes(going, facts)).copied()
        };
        while let Some(facts) = next(self) {
            self.remove(facts, reason);
        }
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
            worth: SnapshotWorth::Unnamed,
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
        // The choice does not depend on the order of the facts.
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

    use SnapshotWorth::{Automatic, Kept, Safety, Unnamed};

    /// Snapshots of one container, oldest first, the last one an hour old.
    fn of_worth(session: &str, worths: &[SnapshotWorth], now: Timestamp) -> Vec<SnapshotFacts> {
        let numbered = (0..).zip(worths);
        let facts = numbered.map(|(number, worth)| {
            let hours_ago = (worths.len() as u64 - number) as i64;
            SnapshotFacts { worth: *worth, ..at(session, number, hours_ago, now) }
        });
        facts.collect()
    }

    #[test]
    fn safety_snapshots_have_a_small_limit_and_the_least_worth_goes_first() {
        let now = Timestamp::now();
        let limits =
            |max_per_container| ContainerPolicy { max_per_container, ..ContainerPolicy::default() };
        let ten = [vec![Kept], vec![Safety; 10], vec![Unnamed]].concat();
        for (limit, worths, expected) in [
            (Some(10), &ten[..], &[1, 2, 3, 4, 5, 6, 7][..]),
            (None, &ten, &[]),
            (Some(3), &[Unnamed, Automatic, Kept, Safety, Unnamed], &[3, 1]),
            (Some(2), &[Kept, Unnamed, Kept, Unnamed], &[1, 0]),
            // One over the limit: the newest stays, and a name is no less than it.
            (Some(2), &[Kept, Kept, Automatic], &[]),
            (Some(2), &[Kept, Kept, Automatic, Automatic], &[2]),
            (Some(1), &[Kept, Safety], &[]),
            (Some(1), &[Kept, Safety, Safety, Safety, Kept], &[1, 2, 3, 0]),
        ] {
            let expired = limits(limit).expired(&of_worth("a", worths, now), now);
            let numbers: Vec<u64> = expired.iter().map(|gone| gone.number).collect();
            assert_eq!(numbers, expected, "{limit:?} {worths:?}");
        }
    }

    /// Every history of up to five snapshots, beside another one, under every limit.
    #[test]
    fn no_limit_takes_a_name_before_what_nono_made_by_itself() {
        let now = Timestamp::now();
        let none = ContainerPolicy {
            max_age: None,
            max_per_container: None,
            max_snapshots: None,
            max_bytes: None,
        };
        let policies = (1..5).flat_map(|limit| {
            let max_age = Some(SignedDuration::from_hours(limit));
            [
                ContainerPolicy { max_age, ..none },
                ContainerPolicy { max_per_container: Some(limit as u64), ..none },
                ContainerPolicy { max_snapshots: Some(limit as u64), ..none },
                ContainerPolicy { max_bytes: Some(10 * limit as u64), ..none },
            ]
        });
        let policies: Vec<_> = policies.collect();
        let worths = [Safety, Automatic, Unnamed, Kept];
        for (length, code) in (1..=5).flat_map(|n| (0..4_usize.pow(n)).map(move |code| (n, code))) {
            let chosen: Vec<_> = (0..length).map(|at| worths[code / 4_usize.pow(at) % 4]).collect();
            let mut all = of_worth("a", &chosen, now);
            all.extend(of_worth("b", &[Safety, Kept], now - SignedDuration::from_mins(90)));
            for policy in &policies {
                let expired = policy.expired(&all, now);
                let is_gone = |facts: &SnapshotFacts| {
                    let key = (&*facts.session_id, facts.number);
                    expired.iter().any(|gone| (&*gone.session_id, gone.number) == key)
                };
                for session in ["a", "b"] {
                    let of_session = || all.iter().filter(|facts| facts.session_id == session);
                    let name_goes = of_session().any(|it| is_gone(it) && it.worth == Kept);
                    let own_stays = of_session().any(|it| !is_gone(it) && it.worth.is_own_made());
                    assert!(!name_goes || !own_stays, "{policy:?} {chosen:?} {expired:?}");
                }
                let newest = all.iter().max_by_key(|facts| facts.taken);
                assert!(policy.max_age.is_some() || !newest.is_some_and(is_gone), "{chosen:?}");
                // No limit of all is missed by more than one, except by what outlives the newest.
                let left: Vec<_> = all.iter().filter(|facts| !is_gone(facts)).collect();
                let outlives = left.iter().filter(|facts| facts.worth == Kept).count() as u64;
                let max = policy.max_snapshots.unwrap_or(u64::MAX);
                assert!((left.len() as u64) <= max.max(outlives + 1), "{policy:?} {chosen:?}");
            }
        }
    }
}
