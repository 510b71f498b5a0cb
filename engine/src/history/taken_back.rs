//! The parts of a path's past that restores took back.
//!
//! An undo goes back over what a session did with a path, a restore over all that came after its
//! snapshot. The states in between are no earlier versions of what is there now: `redo` brings them
//! again. A restore that was itself taken back counts no more, and the states that stood between
//! the two are taken back with it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::error::HistoryError;
use super::snapshots::Place;
use super::versions::{Seen, is_same, look};
use crate::object::ContentHash;
use crate::snapshot::{RestoreCommand, RestoreRecord, SessionDir, SnapshotKind, SnapshotManifest};
use crate::store::ObjectSource;

/// A time in which all states of a path are taken back.
#[derive(Debug)]
pub(super) struct TakenBack {
    /// When the state was recorded to which a restore went back.
    after: Timestamp,
    /// When it did.
    pub(super) until: Timestamp,
    /// Whether it merged files with later changes.
    pub(super) has_merged: bool,
}

impl TakenBack {
    /// Whether a state is of this time.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.after < place.timestamp && place.timestamp < self.until
    }
}

/// The restores of one path that still say what is taken back. A restore of the state before an
/// earlier one makes those count that counted then, and itself.
fn in_force(records: Vec<&RestoreRecord>) -> Vec<&RestoreRecord> {
    let mut counting: Vec<&RestoreRecord> = Vec::new();
    // Restores that counted before each.
    let mut before: Vec<Vec<&RestoreRecord>> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        let is_before = |it: &&RestoreRecord| it.safety_snapshot == Some(record.snapshot);
        let reverted = records[..at].iter().rposition(is_before);
        before.push(counting.clone());
        if let Some(reverted) = reverted.filter(|_| !record.undoes_steps) {
            counting.clone_from(&before[reverted]);
        }
        counting.push(record);
    }
    counting
}

/// The restores of a session, asked about one path.
pub(super) struct Restores<'a> {
    pub(super) session: &'a SessionDir,
    pub(super) forms: &'a [PathBuf],
    pub(super) source: &'a dyn ObjectSource,
    pub(super) known: &'a mut HashMap<(ContentHash, PathBuf), Seen>,
}

impl Restores<'_> {
    /// The times that they took back, oldest restore first. A restore whose snapshots cannot be
    /// read is none of them.
    ///
    /// # Errors
    /// When the session cannot be read.
    pub(super) fn taken_back(mut self) -> Result<Vec<TakenBack>, HistoryError> {
        let metadata = self.session.metadata()?;
        let about = metadata.restores.iter().filter(|record| self.concerns(record)).collect();
        let of = |record: &RestoreRecord| self.of(record).ok().flatten();
        Ok(in_force(about).into_iter().filter_map(of).collect())
    }

    /// Whether a restore had to do with the path.
    fn concerns(&self, record: &RestoreRecord) -> bool {
        if !record.is_partial {
            return true;
        }
        let safety = record.safety_snapshot.and_then(|it| self.session.manifest(it).ok());
        safety.is_some_and(|safety| self.is_about(&safety.manifest.restores_only))
    }

    fn of(&mut self, record: &RestoreRecord) -> Result<Option<TakenBack>, HistoryError> {
        let load = |number| self.session.manifest(number).map(|loaded| loaded.manifest);
        let safety = record.safety_snapshot.map(load).transpose()?;
        let (base, is_changed) = if record.undoes_steps {
            let Some(base) = self.session.held_before(record.snapshot)? else { return Ok(None) };
            (load(base)?, self.is_changed_by_steps(record, safety.as_ref())?)
        } else {
            let target = load(record.snapshot)?;
            let is_changed = match self.left(record, safety)? {
                Some(left) => self.is_different(&left, &target)?,
                None => false,
            };
            (target, is_changed)
        };
        Ok(is_changed.then_some(TakenBack {
            after: base.timestamp,
            until: record.at,
            has_merged: record.has_merged,
        }))
    }

    /// Whether the chosen paths of a restore have to do with this one.
    fn is_about(&self, only: &[PathBuf]) -> bool {
        let is_near = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
        only.iter().any(|path| self.forms.iter().any(|form| is_near(path, form)))
    }

    /// The state over which a restore went back: the last of the session's work for an undo, the
    /// one before the restore for a restore.
    fn left(
        &self,
        record: &RestoreRecord,
        safety: Option<SnapshotManifest>,
    ) -> Result<Option<SnapshotManifest>, HistoryError> {
        if record.command != RestoreCommand::Undo && safety.is_some() {
            return Ok(safety);
        }
        let end = safety.map_or(u64::MAX, |safety| safety.number);
        for number in self.session.recorded_numbers()?.into_iter().rev() {
            if number < end {
                let manifest = self.session.manifest(number)?.manifest;
                if manifest.kind == SnapshotKind::Ordinary {
                    return Ok(Some(manifest));
                }
            }
        }
        Ok(None)
    }

    /// Whether the undo of steps changed the path. The next snapshot has the state that it left.
    /// The undo of a part of a text leaves none, and is about its path alone.
    fn is_changed_by_steps(
        &mut self,
        record: &RestoreRecord,
        safety: Option<&SnapshotManifest>,
    ) -> Result<bool, HistoryError> {
        let Some(safety) = safety else { return Ok(false) };
        if record.left_text.is_some() {
            return Ok(true);
        }
        let after = self.session.manifest(safety.number + 1)?.manifest;
        self.is_different(safety, &after)
    }

    fn is_different(
        &mut self,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Result<bool, HistoryError> {
        let mut state = |manifest| look(self.forms, manifest, self.source, self.known);
        let (Some((old, form)), Some((new, _))) = (state(old)?, state(new)?) else {
            return Ok(false);
        };
        Ok(!is_same(&old, &new, &form, self.source))
    }
}
