//! Which sessions a store lets go: a policy, and what follows from it.
//!
//! Pure: from facts about sessions and a time to a list of those that go, each with the reason.
//! Always true:
//!
//! - A running session, a pinned one, the newest of a project and the newest that changed something
//!   there stay, whatever the policy says. So the last thing that was done somewhere can be undone.
//! - `max_sessions` counts for each project, and of the sessions that [hold
//!   something](SessionContent) only. Idle ones go before them: as soon as there are more than
//!   `max_sessions` of both.
//! - The merges of a fork that lives stay: they say which of its changes are in the project.
//! - A session with a name is of use, and goes after those without.
//! - With [`KeepRules`] the sessions that a rule keeps stay, and so do those with a name; the others
//!   go. Age and number say nothing then. Only space takes more.
//! - Received sessions are counted apart: their writers chose their paths and times, so none of
//!   them is the newest of a project that is recorded here.
//! - A session that was killed before its first snapshot goes at once, and stands for nothing.
//! - Nothing else goes within a day after something was recorded in it, unless space demands it.
//! - A clock that jumped ahead makes nothing [older](super::clock).

use std::collections::{HashMap, HashSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::clock::aging_until;
use super::keep::{KeepItem, KeepRules};
use super::{SessionStatus, SessionSummary};
use crate::gc::StorageUsage;
use crate::object::ContentHash;
use crate::snapshot::{ManifestError, Recency, SessionDir, SessionMetadata, SessionOrigin};
use crate::sys::FileTime;

/// So long nothing goes but for space.
const UNTOUCHED: SignedDuration = SignedDuration::from_hours(24);

/// The limits of a store. `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Greatest age of a session, counted from its start.
    pub max_age: Option<SignedDuration>,
    /// Most sessions of one project, pinned and running ones left out.
    pub max_sessions: Option<u64>,
    /// Most bytes of objects that sessions need.
    pub max_storage_bytes: Option<u64>,
    /// The sessions of each project that stay, in place of age and number; none: these count.
    pub keep: KeepRules,
}

/// The facts that a policy looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionFacts {
    /// The session.
    pub session_id: String,
    /// When it began.
    pub started: Timestamp,
    /// When something was last recorded in it.
    pub last_used: Timestamp,
    /// Whether its command is running.
    pub is_running: bool,
    /// Whether the user pinned it.
    pub is_pinned: bool,
    /// Whether it or a snapshot of it has a name.
    pub is_named: bool,
    /// The kind of its contents.
    pub content: SessionContent,
    /// Its tracked paths, as one text.
    pub project: String,
    /// Whether an archive brought it: it takes no place of those that were recorded here.
    pub is_received: bool,
}

/// The worth of a session's contents beside other sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionContent {
    /// Changes, or an unknown content.
    Changes,
    /// One state, which the user asked for: it is of no use where a younger session holds it as
    /// well.
    State(ContentHash),
    /// A command that changed nothing.
    Nothing,
    /// No state at all: the session was killed before its first snapshot.
    Unbegun,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// It was killed before its first snapshot.
    Unbegun,
    /// It began too long ago.
    TooOld,
    /// Its project has too many.
    TooMany,
    /// No rule keeps it.
    NotKept,
    /// The store holds too much.
    TooLarge,
}

impl SessionContent {
    /// Whether a session with these contents is of use beside the younger ones of its project, of
    /// which `held` are the states. Takes its own in.
    pub fn is_of_use(&self, held: &mut HashSet<ContentHash>) -> bool {
        match self {
            Self::Changes => true,
            Self::Nothing | Self::Unbegun => false,
            Self::State(root) => held.insert(*root),
        }
    }

    /// The kind of a session's contents, by its manifest.
    pub fn of(metadata: &SessionMetadata, status: SessionStatus) -> Self {
        let Some(first) = metadata.merkle_roots.first() else {
            // A session that is just beginning, or was killed while it recorded its first state.
            return Self::Nothing;
        };
        let is_one_state = metadata.merkle_roots.iter().all(|root| root == first);
        let is_unchanged = metadata.changes.is_some_and(|changes| changes.total() == 0);
        match (metadata.origin, status) {
            (_, SessionStatus::Interrupted | SessionStatus::Completed)
                if metadata.merge.as_ref().is_some_and(|merge| !merge.is_done) =>
            {
                Self::Nothing
            }
            // An interrupted command may have changed anything.
            (_, SessionStatus::Interrupted | SessionStatus::Running) => Self::Changes,
            // A third state may be one that a restore replaced, or one in between.
            (SessionOrigin::Run, _)
            | (SessionOrigin::Agent | SessionOrigin::Watch, SessionStatus::Completed)
                if is_unchanged && (is_one_state || metadata.merkle_roots.len() <= 2) =>
            {
                Self::Nothing
            }
            (
                SessionOrigin::Snapshot
                | SessionOrigin::Agent
                | SessionOrigin::AgentState
                | SessionOrigin::Watch,
                _,
            ) if is_one_state => Self::State(*first),
            _ => Self::Changes,
        }
    }
}

impl SessionFacts {
    /// Finds out what a policy looks at, of one session.
    ///
    /// # Errors
    /// When its manifest cannot be used.
    pub fn of(session: &SessionDir) -> Result<Self, ManifestError> {
        let metadata = match session.metadata() {
            Err(ManifestError::Missing { .. }) if !session.may_hold_snapshot() => {
                return Self::unbegun(session);
            }
            metadata => metadata?,
        };
        let status = SessionStatus::of(session, &metadata)?;
        let written = session.last_written()?.and_then(FileTime::timestamp);
        let times = [Some(metadata.started), metadata.ended, written];
        let is_unbegun = metadata.merkle_roots.is_empty() && status != SessionStatus::Running;
        let content = match SessionContent::of(&metadata, status) {
            // A snapshot that the manifest does not name yet.
            SessionContent::Nothing if is_unbegun && session.may_hold_snapshot() => {
                SessionContent::Changes
            }
            SessionContent::Nothing if is_unbegun => SessionContent::Unbegun,
            content => content,
        };
        let is_named = metadata.is_named();
        let is_known_to_fork = match (&metadata.merge, session.path().parent()) {
            (Some(merge), Some(root)) => SessionDir::open(&root.join(&merge.fork))
                .is_ok_and(|fork| fork.is_needed_by_fork().unwrap_or(true)),
            _ => false,
        };
        let summary = SessionSummary::from_parts(session, metadata, status);
        Ok(Self {
            session_id: summary.session_id.clone(),
            started: summary.started,
            last_used: times.into_iter().flatten().max().unwrap_or(summary.started),
            is_running: status == SessionStatus::Running
                || content == SessionContent::Unbegun && session.is_being_made()?,
            is_pinned: summary.pinned || is_known_to_fork,
            is_named,
            content,
            project: summary.project(),
            is_received: summary.received,
        })
    }

    /// The facts of a session whose manifest was never written.
    fn unbegun(session: &SessionDir) -> Result<Self, ManifestError> {
        let begin = session.latest_begin()?;
        let begin = begin.timestamp().unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Self {
            session_id: session.id(),
            started: begin,
            last_used: begin,
            is_running: session.is_being_made()?,
            is_pinned: false,
            is_named: false,
            content: SessionContent::Unbegun,
            project: String::new(),
            is_received: false,
        })
    }

    /// The sessions among which it counts.
    fn group(&self) -> Group<'_> {
        (self.is_received, &self.project)
    }

    /// `aged`: the time up to which ages count.
    fn is_young(&self, now: Timestamp, aged: Timestamp) -> bool {
        if self.content == SessionContent::Unbegun {
            return false;
        }
        // A session from the future was recorded just now, or under a wrong clock.
        let was_young = self.last_used <= aged && aged.duration_since(self.last_used) < UNTOUCHED;
        was_young || now.duration_since(self.last_used) < UNTOUCHED
    }
}

/// Received or not, and the project.
type Group<'a> = (bool, &'a str);

/// Sessions in the order in which they go, with what the rules need to know of them.
struct Ranked<'a> {
    /// Oldest first.
    sessions: Vec<&'a SessionFacts>,
    idle: HashSet<&'a str>,
    staying: HashSet<&'a str>,
    now: Timestamp,
    /// The time up to which ages count.
    aged: Timestamp,
}

impl<'a> Ranked<'a> {
    fn new(sessions: &'a [SessionFacts], now: Timestamp) -> Self {
        let mut sorted: Vec<_> = sessions.iter().collect();
        sorted.sort_by_cached_key(|facts| {
            Recency::new(facts.started, facts.session_id.as_str(), now)
        });
        let (mut idle, mut staying) = (HashSet::new(), HashSet::new());
        let mut newest: HashSet<Group<'_>> = HashSet::new();
        let mut newest_of_use: HashSet<Group<'_>> = HashSet::new();
        let mut newest_with_changes: HashSet<Group<'_>> = HashSet::new();
        let mut held: HashMap<Group<'_>, HashSet<ContentHash>> = HashMap::new();
        for facts in sorted.iter().rev() {
            let (id, group) = (facts.session_id.as_str(), facts.group());
            if facts.content == SessionContent::Unbegun && !facts.is_running && !facts.is_pinned {
                idle.insert(id);
                continue;
            }
            let is_of_use = facts.content.is_of_use(held.entry(group).or_default());
            let is_idle = !is_of_use && !facts.is_named;
            let has_changes = facts.content == SessionContent::Changes;
            // In this order: one session may be the newest in several ways. A snapshot by hand
            // is of use, and does not expose the last session that can be undone.
            let is_last = newest.insert(group)
                | (!is_idle && newest_of_use.insert(group))
                | (has_changes && newest_with_changes.insert(group));
            if is_last || facts.is_running || facts.is_pinned {
                staying.insert(id);
            }
            if is_idle {
                idle.insert(id);
            }
        }
        let times = sessions.iter().flat_map(|facts| [facts.started, facts.last_used]);
        Self { sessions: sorted, idle, staying, now, aged: aging_until(times, now) }
    }

    fn is_idle(&self, facts: &SessionFacts) -> bool {
        self.idle.contains(facts.session_id.as_str())
    }

    /// The sessions that may go at all: idle ones first, named ones late, and the young ones last.
    fn removable(&self) -> Vec<&'a SessionFacts> {
        let may_go = |facts: &&SessionFacts| !self.staying.contains(facts.session_id.as_str());
        let mut removable: Vec<_> = self.sessions.iter().copied().filter(may_go).collect();
        removable.sort_by_key(|facts| {
            (facts.is_young(self.now, self.aged), facts.is_named, !self.is_idle(facts))
        });
        removable
    }

    /// The sessions that a rule keeps. Idle ones take no place.
    fn kept_by(&self, rules: &KeepRules) -> HashSet<&'a str> {
        let counted: Vec<_> =
            self.sessions.iter().copied().filter(|facts| !self.is_idle(facts)).collect();
        let groups: Vec<_> = counted
            .iter()
            .map(|facts| format!("{} {}", u8::from(facts.is_received), facts.project))
            .collect();
        let items: Vec<_> = counted
            .iter()
            .zip(&groups)
            .map(|(facts, group)| KeepItem {
                group,
                at: facts.started,
                is_fixed: facts.is_running || facts.is_pinned || facts.is_named,
            })
            .collect();
        let stays = rules.stays(&items, self.aged, &TimeZone::system());
        let kept = counted.into_iter().zip(stays).filter(|(_, stays)| *stays);
        kept.map(|(facts, _)| facts.session_id.as_str()).collect()
    }

    /// The sessions that are too old or too many, or that no rule keeps, in the order in which they go.
    /// `spares_young`: whether the last day stays.
    fn expired(
        &self,
        policy: &RetentionPolicy,
        spares_young: bool,
    ) -> Vec<(&'a SessionFacts, Expiry)> {
        // A session that is not counted takes no place.
        let mut left: HashMap<Group<'_>, (u64, u64)> = HashMap::new();
        for facts in self.sessions.iter().filter(|facts| !facts.is_running && !facts.is_pinned) {
            let (of_use, all) = left.entry(facts.group()).or_default();
            *of_use += u64::from(!self.is_idle(facts));
            *all += 1;
        }
        let mut expired = Vec::new();
        let kept = self.kept_by(&policy.keep);
        let may_go = |facts: &&SessionFacts| !spares_young || !facts.is_young(self.now, self.aged);
        for facts in self.removable().into_iter().filter(may_go) {
            let (of_use, all) = left.entry(facts.group()).or_default();
            let is_idle = self.is_idle(facts);
            let count = if is_idle { *all } else { *of_use };
            let age = self.aged.duration_since(facts.started);
            let reason = if facts.content == SessionContent::Unbegun {
                Expiry::Unbegun
            } else if !policy.keep.is_empty() {
                if kept.contains(facts.session_id.as_str()) {
                    continue;
                }
                Expiry::NotKept
            } else if policy.max_age.is_some_and(|max| age > max) {
                Expiry::TooOld
            } else if policy.max_sessions.is_some_and(|max| count > max) {
                Expiry::TooMany
            } else {
                continue;
            };
            *all -= 1;
            *of_use -= u64::from(!is_idle);
            expired.push((facts, reason));
        }
        expired
    }
}

impl RetentionPolicy {
    /// The sessions that may go at all, in the order in which they do: first what is too old or too
    /// many, then what goes if space demands it.
    pub fn removable<'a>(
        &self,
        sessions: &'a [SessionFacts],
        now: Timestamp,
    ) -> Vec<&'a SessionFacts> {
        let ranked = Ranked::new(sessions, now);
        let mut order: Vec<_> =
            ranked.expired(self, true).into_iter().map(|(facts, _)| facts).collect();
        let known: HashSet<_> = order.iter().map(|facts| facts.session_id.as_str()).collect();
        let rest = ranked.removable().into_iter();
        let rest: Vec<_> = rest.filter(|it| !known.contains(it.session_id.as_str())).collect();
        order.extend(rest);
        order
    }

    /// How many sessions are over a limit and stay, because something was recorded in them within a
    /// day.
    pub fn young(&self, sessions: &[SessionFacts], now: Timestamp) -> usize {
        let ranked = Ranked::new(sessions, now);
        ranked.expired(self, false).len() - ranked.expired(self, true).len()
    }

    /// The sessions that go, in order. `usage` is that of [`removable`](Self::removable); without
    /// it, space is not looked at.
    pub fn expired(
        &self,
        sessions: &[SessionFacts],
        now: Timestamp,
        usage: Option<&StorageUsage>,
    ) -> Vec<Expired> {
        let expired = Ranked::new(sessions, now).expired(self, true);
        let count = expired.len();
        let mut expired: Vec<_> = expired
            .into_iter()
            .map(|(facts, reason)| Expired { session_id: facts.session_id.clone(), reason })
            .collect();
        let (Some(usage), Some(max)) = (usage, self.max_storage_bytes) else { return expired };
        let freed = |id: &String| usage.freed_bytes.get(id).copied().unwrap_or(0);
        let gone = expired.iter().map(|expired| freed(&expired.session_id));
        let mut bytes = gone.fold(usage.total_bytes, u64::saturating_sub);
        let mut useful = count;
        for facts in self.removable(sessions, now).into_iter().skip(count) {
            if bytes <= max {
                break;
            }
            let freed = freed(&facts.session_id);
            bytes = bytes.saturating_sub(freed);
            let session_id = facts.session_id.clone();
            expired.push(Expired { session_id, reason: Expiry::TooLarge });
            if freed > 0 {
                useful = expired.len();
            }
        }
        // Nothing is given up for space that does not become free.
        expired.truncate(useful);
        expired
    }
}

#[cfg(test)]
mod tests;
