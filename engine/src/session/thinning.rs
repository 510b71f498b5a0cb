//! Which steps of a session go when a store is over its limit.
//!
//! A pure function of what the session's manifest says. All steps of the last day stay, and of the
//! older ones the last one of each prompt. The baseline, the newest snapshot, what the user named,
//! and what a restore needs to be taken back stay as well.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::steps::last_of_each_prompt;
use crate::snapshot::{SessionMetadata, StepKind};

/// Steps that are younger stay.
const ALL_FOR: SignedDuration = SignedDuration::from_hours(24);

/// Numbers of the snapshots that may go, ascending.
pub fn thinned_steps(metadata: &SessionMetadata, now: Timestamp) -> Vec<u64> {
    if metadata.pinned {
        return Vec::new();
    }
    let mut kept: BTreeSet<u64> = last_of_each_prompt(&metadata.steps).into_iter().collect();
    kept.extend(metadata.labels.iter().map(|label| label.number));
    kept.extend(metadata.restores.iter().map(|restore| restore.snapshot));
    kept.extend(metadata.snapshot_count.checked_sub(1));
    kept.insert(0);
    let goes = |step: &&crate::snapshot::StepEntry| {
        step.kind != StepKind::Checkpoint
            && step.timestamp < now - ALL_FOR
            && !kept.contains(&step.number)
            && metadata.removal(step.number).is_none()
    };
    metadata.steps.iter().filter(goes).map(|step| step.number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{SnapshotLabel, StepEntry, StepPrompt};

    #[test]
    fn of_old_steps_the_last_of_each_prompt_stays_and_of_young_ones_all() {
        let now = Timestamp::now();
        let mut session = SessionMetadata::new("s".to_owned(), Vec::new(), Vec::new());
        let steps =
            [(1, 1, 50), (2, 1, 49), (3, 1, 48), (4, 2, 40), (5, 2, 30), (6, 3, 2), (7, 3, 1)];
        session.steps = steps
            .into_iter()
            .map(|(number, prompt, hours)| {
                let text = format!(
                    r#"{{"number":{number},"timestamp":"{}","agent":"codex","changes":null}}"#,
                    now - SignedDuration::from_hours(hours)
                );
                let entry: StepEntry = serde_json::from_str(&text).unwrap();
                let prompt = StepPrompt { number: prompt, text: String::new() };
                StepEntry { prompt: Some(prompt), ..entry }
            })
            .collect();
        session.snapshot_count = 8;
        assert_eq!(thinned_steps(&session, now), [1, 2, 4]);
        session.labels = vec![SnapshotLabel { number: 2, label: "good".to_owned() }];
        assert_eq!(thinned_steps(&session, now), [1, 4]);
        session.pinned = true;
        assert!(thinned_steps(&session, now).is_empty());
    }
}
