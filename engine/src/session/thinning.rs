//! Which steps and changes of watchers go out of their session.
//!
//! A pure function of what the session's manifest says. The baseline, the newest snapshot, what
//! the user named, and what a restore needs to be taken back stay. Of the rest:
//!
//! - A watcher's session is thinned by [`KeepRules`], by [`KeepRules::WATCH`] if there are none.
//! - Other sessions keep all steps of the last day. Of the older ones, rules decide. Without rules a
//!   store that is over its limit keeps the last step of each prompt, and another store all.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::keep::{KeepItem, KeepRules};
use super::steps::last_of_each_prompt;
use crate::snapshot::{SessionMetadata, SessionOrigin, StepEntry, StepKind};

/// Steps that are younger stay.
const ALL_FOR: SignedDuration = SignedDuration::from_hours(24);

/// How steps are thinned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Thinning {
    /// The rules; none is the usual thinning.
    pub rules: KeepRules,
    /// Whether the store is over its limit of space.
    pub is_full: bool,
}

/// Numbers of the snapshots that may go, ascending.
pub fn thinned_steps(
    metadata: &SessionMetadata,
    thinning: &Thinning,
    now: Timestamp,
    zone: &TimeZone,
) -> Vec<u64> {
    if metadata.pinned {
        return Vec::new();
    }
    let is_watch = metadata.origin == SessionOrigin::Watch;
    let rules = match (is_watch, thinning.rules.is_empty()) {
        (true, true) => KeepRules::WATCH,
        (true, false) => KeepRules { within: KeepRules::WATCH.within, ..thinning.rules },
        (false, false) => KeepRules { within: ALL_FOR, ..thinning.rules },
        (false, true) if thinning.is_full => KeepRules { within: ALL_FOR, ..thinning.rules },
        (false, true) => return Vec::new(),
    };
    let mut fixed: BTreeSet<u64> = BTreeSet::from([0]);
    if !is_watch && thinning.rules.is_empty() {
        fixed.extend(last_of_each_prompt(&metadata.steps));
    }
    fixed.extend(metadata.labels.iter().map(|label| label.number));
    fixed.extend(metadata.restores.iter().map(|restore| restore.snapshot));
    fixed.extend(metadata.snapshot_count.checked_sub(1));
    let is_held = |step: &&StepEntry| metadata.removal(step.number).is_none();
    let steps: Vec<_> = metadata.steps.iter().filter(is_held).collect();
    let items: Vec<_> = steps
        .iter()
        .map(|step| KeepItem {
            group: "",
            at: step.timestamp,
            is_fixed: step.kind == StepKind::Checkpoint || fixed.contains(&step.number),
        })
        .collect();
    let stays = rules.stays(&items, now, zone);
    steps.iter().zip(stays).filter(|(_, stays)| !stays).map(|(step, _)| step.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{SnapshotLabel, StepPrompt};

    /// A session with steps: number, prompt, age in hours.
    fn session(steps: &[(u64, u64, i64)], now: Timestamp) -> SessionMetadata {
        let mut session = SessionMetadata::new("s".to_owned(), Vec::new(), Vec::new());
        session.steps = steps
            .iter()
            .map(|(number, prompt, hours)| {
                let text = format!(
                    r#"{{"number":{number},"timestamp":"{}","agent":"codex","changes":null}}"#,
                    now - SignedDuration::from_hours(*hours)
                );
                let entry: StepEntry = serde_json::from_str(&text).unwrap();
                let prompt = StepPrompt { number: *prompt, text: String::new() };
                StepEntry { prompt: Some(prompt), ..entry }
            })
            .collect();
        session.snapshot_count = steps.len() as u64 + 1;
        session
    }

    const STEPS: [(u64, u64, i64); 7] =
        [(1, 1, 50), (2, 1, 49), (3, 1, 48), (4, 2, 40), (5, 2, 30), (6, 3, 2), (7, 3, 1)];

    #[test]
    fn of_old_steps_the_last_of_each_prompt_stays_and_of_young_ones_all() {
        let now = Timestamp::now();
        let thinned = |session: &SessionMetadata, is_full| {
            let thinning = Thinning { is_full, ..Thinning::default() };
            thinned_steps(session, &thinning, now, &TimeZone::UTC)
        };
        let mut session = session(&STEPS, now);
        assert!(thinned(&session, false).is_empty());
        assert_eq!(thinned(&session, true), [1, 2, 4]);
        session.labels = vec![SnapshotLabel { number: 2, label: "good".to_owned() }];
        assert_eq!(thinned(&session, true), [1, 4]);
        session.pinned = true;
        assert!(thinned(&session, true).is_empty());
    }

    #[test]
    fn rules_take_the_place_of_prompts_and_spare_the_last_day() {
        let now = Timestamp::now();
        let rules = KeepRules { last: 1, ..KeepRules::default() };
        let thinning = Thinning { rules, is_full: false };
        let session = session(&STEPS, now);
        assert_eq!(thinned_steps(&session, &thinning, now, &TimeZone::UTC), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_watcher_is_thinned_by_hours_and_days_without_need() {
        // Noon: no hour and no day ends in between.
        let now: Timestamp = "2026-11-20T12:59:59Z".parse().unwrap();
        let steps: Vec<_> =
            [800, 799, 70, 69, 40, 30, 3, 1].into_iter().zip(1..).map(|(h, n)| (n, n, h)).collect();
        let mut session = session(&steps, now);
        session.snapshot_count += 1;
        let thinned =
            |session: &_| thinned_steps(session, &Thinning::default(), now, &TimeZone::UTC);
        assert!(thinned(&session).is_empty(), "an agent's session is not a watcher's");
        session.origin = SessionOrigin::Watch;
        // Two that are too old, and the first one of a day after its hours.
        assert_eq!(thinned(&session), [1, 2, 3]);
    }
}
