//! The restores of a session, and which of them still stand.
//!
//! A safety snapshot alone does not tell: the restore after it may have failed or have been taken
//! back. So a restore adds a record to the session's manifest once it is done. `undo` and `redo`
//! follow from these records; there is no other state.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::manifest::is_false;
use crate::object::ContentHash;

/// The command by which a person asked for a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestoreCommand {
    /// A state was to come back.
    #[default]
    Restore,
    /// The work of a session, or of a part of it, was to go.
    Undo,
    /// An undo or a restore was to be taken back.
    Redo,
}

impl RestoreCommand {
    /// Whether it is the ordinary one, which a record does not name.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "for serde")]
    pub(crate) fn is_restore(&self) -> bool {
        *self == Self::Restore
    }
}

/// A restore that was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreRecord {
    /// When it was done.
    pub at: Timestamp,
    /// Number of the snapshot that was brought back.
    pub snapshot: u64,
    /// The command.
    #[serde(default, skip_serializing_if = "RestoreCommand::is_restore")]
    pub command: RestoreCommand,
    /// Number of the snapshot that holds the state before; `None` if none was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_snapshot: Option<u64>,
    /// Whether only a part was asked for.
    #[serde(default)]
    pub is_partial: bool,
    /// Whether what single steps did was taken back; `snapshot` is then the last of these steps.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undoes_steps: bool,
    /// Whether paths that were asked for stayed as they were: newer ones that were kept, or paths
    /// that could not be restored.
    #[serde(default, skip_serializing_if = "is_false")]
    pub left_some: bool,
    /// Whether files with later changes were merged: they got a state that no snapshot holds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_merged: bool,
    /// The contents that the undo of a part of one text left, which no snapshot holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_text: Option<ContentHash>,
}

impl RestoreRecord {
    /// Whether it took back one of the restores before it, as a whole.
    pub fn is_redo(&self, before: &[Self]) -> bool {
        let reverts = |earlier: &Self| earlier.safety_snapshot == Some(self.snapshot);
        !self.is_partial && !self.undoes_steps && standing(before).iter().any(reverts)
    }
}

/// How much of a session is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// Not all of it was asked for.
    No,
    /// Some paths or some steps of it were asked for.
    InPart,
    /// All of it was asked for, and some paths stayed.
    Partly,
    /// All of it.
    Wholly,
}

/// Restores that nothing has reverted, oldest first. A restore of the safety snapshot of one, as a
/// whole, reverts it, with all after it.
pub fn standing(records: &[RestoreRecord]) -> Vec<RestoreRecord> {
    let mut standing: Vec<RestoreRecord> = Vec::new();
    for record in records {
        let reverted = standing.iter().position(|s| s.safety_snapshot == Some(record.snapshot));
        match reverted {
            Some(at) if !record.is_partial && !record.undoes_steps => standing.truncate(at),
            _ => standing.push(*record),
        }
    }
    standing
}

/// How much of what the session did is undone: its baseline was brought back as a whole, that
/// stands, and nothing was recorded since. `last_recorded` is the session's last snapshot that no
/// restore took: the safety snapshot of a restore that failed has nothing new.
pub fn undone(records: &[RestoreRecord], last_recorded: Option<u64>) -> Undone {
    let standing = standing(records);
    // A restore of another snapshot as a whole is a new decision.
    let is_decision = |it: &RestoreRecord| !it.is_partial && it.snapshot != 0;
    let decided = standing.iter().rposition(is_decision).unwrap_or(0);
    let standing = &standing[decided..];
    let last_safety = records.iter().filter_map(|record| record.safety_snapshot).max();
    if last_safety.is_some_and(|safety| last_recorded.is_some_and(|last| last > safety)) {
        // The undo of steps records the state that it leaves.
        let has_steps = standing.iter().any(|record| record.undoes_steps);
        return if has_steps { Undone::InPart } else { Undone::No };
    }
    let mut whole = standing.iter().filter(|it| !it.is_partial && it.snapshot == 0).peekable();
    if whole.peek().is_some() {
        return if whole.all(|it| it.left_some) { Undone::Partly } else { Undone::Wholly };
    }
    let is_part = |it: &RestoreRecord| it.undoes_steps || it.is_partial && it.snapshot == 0;
    let goes_back = |it: &RestoreRecord| is_decision(it) && it.command == RestoreCommand::Undo;
    match standing.iter().any(|it| is_part(it) || goes_back(it)) {
        true => Undone::InPart,
        false => Undone::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last snapshot that is no safety snapshot: that of before all restores, or a later one.
    const LAST: u64 = 1;
    const LATER: u64 = 9;

    fn record(snapshot: u64, safety: impl Into<Option<u64>>) -> RestoreRecord {
        let safety_snapshot = safety.into();
        RestoreRecord {
            at: Timestamp::UNIX_EPOCH,
            snapshot,
            command: RestoreCommand::Restore,
            safety_snapshot,
            is_partial: false,
            undoes_steps: false,
            left_some: false,
            has_merged: false,
            left_text: None,
        }
    }

    fn is_undone(records: &[RestoreRecord], last_recorded: u64) -> bool {
        undone(records, Some(last_recorded)) == Undone::Wholly
    }

    fn part(record: RestoreRecord) -> RestoreRecord {
        RestoreRecord { is_partial: true, ..record }
    }

    #[test]
    fn a_session_is_undone_until_that_is_taken_back() {
        assert!(!is_undone(&[], LAST));
        assert!(is_undone(&[record(0, 2)], LAST));
        assert!(!is_undone(&[record(0, 2)], LATER), "more was recorded since");
        assert!(!is_undone(&[record(0, 2), record(2, 3)], LAST));
        assert!(is_undone(&[record(0, 2), record(2, 3), record(0, 4)], LAST));
        assert!(
            is_undone(&[record(0, None)], LAST),
            "also where nothing was kept of the state before"
        );
        assert!(
            !is_undone(&[record(0, 2), record(1, 3)], LAST),
            "the state after was brought back"
        );
    }

    #[test]
    fn a_part_stands_and_does_not_make_the_session_undone() {
        let records = [part(record(0, 2))];
        assert_eq!(standing(&records), records);
        assert!(!is_undone(&records, LAST));
        assert!(standing(&[records[0], record(2, 3)]).is_empty());
        let undone = [record(0, 2), part(record(2, 3))];
        assert!(is_undone(&undone, LAST), "a part of what was before took nothing back");
    }

    #[test]
    fn a_restore_that_left_something_undoes_a_session_partly_until_the_rest_is_undone() {
        let left = |record| RestoreRecord { left_some: true, ..record };
        assert_eq!(undone(&[left(record(0, 2))], Some(LAST)), Undone::Partly);
        assert_eq!(undone(&[left(record(0, 2)), left(record(0, 3))], Some(LAST)), Undone::Partly);
        assert_eq!(undone(&[left(record(0, 2)), record(0, 3)], Some(LAST)), Undone::Wholly);
        assert_eq!(undone(&[left(record(0, 2)), record(2, 3)], Some(LAST)), Undone::No);
        let later = undone(&[left(record(0, 2))], Some(LATER));
        assert_eq!(later, Undone::No, "more was recorded since");
        assert_eq!(undone(&[left(part(record(0, 2)))], Some(LAST)), Undone::InPart);
    }

    #[test]
    fn steps_that_were_taken_back_stand_and_are_a_part() {
        let steps = RestoreRecord { undoes_steps: true, ..part(record(7, 9)) };
        assert_eq!(standing(&[steps]), [steps]);
        assert!(!is_undone(&[steps], LAST));
        assert!(standing(&[steps, record(9, 10)]).is_empty());
    }

    #[test]
    fn a_restore_of_any_snapshot_stands_until_it_is_reverted() {
        let records = [record(0, 2), record(1, 3)];
        assert_eq!(standing(&records), records);
        assert!(!is_undone(&records, LAST));
        let reverted = [records[0], records[1], record(3, 4)];
        assert_eq!(standing(&reverted), records[..1]);
        assert!(is_undone(&reverted, LAST));
        let part_of_it = [records[0], part(record(2, 3))];
        assert_eq!(standing(&part_of_it), part_of_it);
    }

    #[test]
    fn who_takes_back_an_earlier_restore_takes_back_the_later_ones_too() {
        let records = [part(record(0, 2)), record(0, 3), record(2, 4)];
        assert!(standing(&records).is_empty());
        let records = [part(record(0, 2)), record(0, 3), record(3, 4)];
        assert_eq!(standing(&records), records[..1]);
    }

    #[test]
    fn undone_paths_and_steps_are_a_part() {
        let of = |records: &[RestoreRecord], last| undone(records, Some(last));
        let undo = |it: RestoreRecord| RestoreRecord { command: RestoreCommand::Undo, ..it };
        let steps = RestoreRecord { undoes_steps: true, ..part(record(4, 5)) };
        assert_eq!(of(&[part(record(0, 2))], LAST), Undone::InPart);
        assert_eq!(of(&[part(record(0, 2))], LATER), Undone::No, "more was recorded since");
        assert_eq!(of(&[part(record(1, 2))], LAST), Undone::No);
        assert_eq!(of(&[part(record(0, 2)), record(2, 3)], LAST), Undone::No);
        assert_eq!(of(&[part(record(0, 2)), record(0, 3)], LAST), Undone::Wholly);
        assert_eq!(of(&[part(record(0, 2)), record(1, 3)], LAST), Undone::No);
        assert_eq!(of(&[steps], 6), Undone::InPart, "the state that it left is recorded");
        assert_eq!(of(&[steps, record(5, 7)], 6), Undone::No);
        assert_eq!(of(&[undo(record(1, 2))], LAST), Undone::InPart, "all after a step");
        assert_eq!(of(&[record(0, 2), undo(record(1, 3))], LAST), Undone::InPart);
        assert_eq!(of(&[record(1, 2)], LAST), Undone::No);
    }
}
