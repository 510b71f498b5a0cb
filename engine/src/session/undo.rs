//! The meaning of `undo` and `redo` in a directory: which session, which snapshot.
//!
//! All of it follows from the sessions: which of them are here, and which restores of them
//! still [stand](crate::snapshot::standing). So nothing can contradict them, whoever
//! restored what by which command, and there is nothing to be lost.

use std::collections::HashSet;
use std::path::PathBuf;

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError};
use super::here::{Place, last_watched, newest, sessions_here};
use super::summary::SessionSummary;
use crate::snapshot::{
    ManifestError, RestoreCommand, RestoreRecord, SessionDir, SessionOrigin, SnapshotKind,
    StepKind, standing,
};

/// The sessions here, newest first, with what was restored of them.
#[derive(Debug)]
pub struct History {
    here: Vec<(SessionSummary, SessionDir)>,
    /// Sessions that archives brought, of which the user restored something here. An undo does not
    /// mean them; to take such a restore back is a matter of this machine alone.
    restored: Vec<(SessionSummary, SessionDir)>,
    /// All sessions, also those that are not here.
    all: Vec<SessionSummary>,
    /// Sessions here that an undo without a name passes over, see [`overtaken`].
    overtaken: HashSet<String>,
}

/// The last restore that was not taken back.
#[derive(Debug)]
pub struct Redo {
    /// Its session.
    pub session: SessionDir,
    /// The snapshot that holds the state before it.
    pub safety_snapshot: u64,
    /// Whether it was of a part.
    pub is_partial: bool,
    /// Whether it was an undo of a session, or of a part of one.
    pub is_undo: bool,
    /// How many restores of the session were known when this was decided.
    pub restore_count: u64,
}

/// Why nothing can be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRedo {
    /// Nothing is undone.
    NothingUndone,
    /// Nothing was kept of the state before the undo of this session.
    NothingKept {
        /// The session that was undone.
        session_id: String,
    },
    /// Something new was recorded since.
    Cleared {
        /// The session that has it.
        by: String,
        /// The session that was undone.
        session_id: String,
        /// The snapshot that holds the state before.
        safety_snapshot: u64,
    },
}

/// The sessions of snapshots by hand whose first state holds work of an older session that was
/// undone later, or done again: to bring that state back would turn the undo round.
fn overtaken(
    here: &[(SessionSummary, SessionDir)],
    all: &[SessionSummary],
    catalog: &Catalog,
) -> Result<HashSet<String>, CatalogError> {
    let mut overtaken = HashSet::new();
    let by_hand = |summary: &SessionSummary| summary.origin == SessionOrigin::Snapshot;
    for (summary, session) in here.iter().filter(|(it, _)| by_hand(it) && !it.undone) {
        let taken = session.manifest(session.first_number()?)?.manifest.timestamp;
        let is_older = |other: &&SessionSummary| {
            other.session_id != summary.session_id
                && other.started <= taken
                && other.overlaps(summary.tracked_paths.iter().map(PathBuf::as_path))
        };
        for other in all.iter().filter(is_older) {
            let restores = catalog.open(&other.session_id)?.metadata()?.restores;
            let before: Vec<_> = restores.iter().take_while(|it| it.at <= taken).copied().collect();
            if standing(&before) != standing(&restores) {
                overtaken.insert(summary.session_id.clone());
                break;
            }
        }
    }
    Ok(overtaken)
}

/// Whether an undo without a name may take back all that a session did.
fn is_undone_whole(summary: &SessionSummary) -> bool {
    summary.may_have_changed() && summary.origin != SessionOrigin::Watch
}

impl History {
    /// Reads the sessions here.
    ///
    /// # Errors
    /// [`CatalogError::NoneHere`], [`CatalogError::LatestUnknown`], [`CatalogError::Empty`],
    /// [`CatalogError::OnlyReceived`].
    pub fn read(catalog: &Catalog, place: &Place) -> Result<Self, CatalogError> {
        let now = Timestamp::now();
        let mut listed = catalog.listed()?;
        let here = sessions_here(&listed.sessions, place, now).unwrap_or_default();
        let here: Vec<SessionSummary> = here.into_iter().cloned().collect();
        // The newest session that is not undone counts: an unreadable session is not passed over.
        let next = here.iter().find(|session| session.may_have_changed() && !session.undone);
        let known = next.map(|session| session.recency(now));
        if let Some(refusal) = listed.refusal(known.as_ref(), Some(place)) {
            return Err(refusal);
        }
        let mut restored = Vec::new();
        let is_received = |session: &&SessionSummary| {
            let mut tracked = session.tracked_paths.iter();
            session.received && tracked.any(|tracked| place.is_below(tracked))
        };
        for summary in listed.sessions.iter().filter(is_received) {
            let session = catalog.open(&summary.session_id)?;
            if !session.metadata()?.restores.is_empty() {
                restored.push((summary.clone(), session));
            }
        }
        if here.is_empty() && restored.is_empty() {
            return Err(catalog.none_here(place, &listed.sessions, now));
        }
        let mut opened = Vec::with_capacity(here.len());
        for summary in here {
            let session = catalog.open(&summary.session_id)?;
            opened.push((summary, session));
        }
        let overtaken = overtaken(&opened, &listed.sessions, catalog)?;
        Ok(Self { here: opened, restored, all: listed.sessions, overtaken })
    }

    /// The sessions that may be undone next, in this order: the newest one that may have changed
    /// something and is not undone yet, and the ones before it. Snapshots by hand are passed over
    /// where an older session was undone after the first of them: its state would bring that one's
    /// changes back.
    pub fn to_undo(&self) -> impl Iterator<Item = &(SessionSummary, SessionDir)> {
        self.here.iter().filter(|(summary, _)| {
            is_undone_whole(summary)
                && !summary.undone
                && !self.overtaken.contains(&summary.session_id)
        })
    }

    /// The session of a watcher, where [it is meant](newest) and no other one. Its steps are taken
    /// back one by one: as a whole it holds up to a day of the user's own work.
    pub fn meant_watched(&self) -> Option<&SessionDir> {
        let here: Vec<_> = self.here.iter().map(|(summary, _)| summary).collect();
        let meant = newest(&here)
            .filter(|meant| meant.origin == SessionOrigin::Watch && meant.step_count > 0)?;
        let is_it =
            |(summary, _): &&(SessionSummary, SessionDir)| summary.session_id == meant.session_id;
        self.here.iter().find(is_it).map(|(_, session)| session)
    }

    /// The id of the newest session of a watcher here that has steps.
    pub fn last_watched(&self) -> Option<&str> {
        let here: Vec<_> = self.here.iter().map(|(summary, _)| summary).collect();
        last_watched(&here).map(|summary| summary.session_id.as_str())
    }

    /// The newest session here, if it is a run that changed nothing recorded.
    pub fn last_without_changes(&self) -> Option<&SessionSummary> {
        let (newest, _) = self.here.first()?;
        let is_it = newest.origin == SessionOrigin::Run && !newest.may_have_changed();
        is_it.then_some(newest)
    }

    /// Whether an undo without a name means this session, once it is not undone (any more).
    pub fn is_next(&self, id: &str) -> bool {
        let mut here = self.here.iter().map(|(summary, _)| summary);
        let next =
            here.find(|next| is_undone_whole(next) && (!next.undone || next.session_id == id));
        next.is_some_and(|next| next.session_id == id)
    }

    /// The last undo that can be taken back.
    ///
    /// # Errors
    /// Why there is none; or that a manifest cannot be read.
    pub fn redo(&self) -> Result<Result<Redo, NoRedo>, ManifestError> {
        // A restore of the future happened under a wrong clock, and comes before all others.
        let now = Timestamp::now();
        let recency = |record: &RestoreRecord| (record.at <= now, record.at);
        let mut last: Option<(RestoreRecord, &(SessionSummary, SessionDir))> = None;
        for of in self.here.iter().chain(&self.restored) {
            let Some(record) = standing(&of.1.metadata()?.restores).pop() else { continue };
            if last.as_ref().is_none_or(|(known, _)| recency(known) < recency(&record)) {
                last = Some((record, of));
            }
        }
        let Some((record, (summary, session))) = last else {
            return Ok(Err(NoRedo::NothingUndone));
        };
        let session_id = summary.session_id.clone();
        let restore_count = summary.restore_count;
        let Some(safety_snapshot) = record.safety_snapshot else {
            return Ok(Err(NoRedo::NothingKept { session_id }));
        };
        if let Some(by) = self.recorded_since(&record, summary, now)? {
            return Ok(Err(NoRedo::Cleared { by, session_id, safety_snapshot }));
        }
        let is_undo =
            record.command == RestoreCommand::Undo && record.snapshot == 0 && !record.undoes_steps;
        let (session, is_partial) = (session.clone(), record.is_partial);
        Ok(Ok(Redo { session, safety_snapshot, is_partial, is_undo, restore_count }))
    }

    /// The session that has something new of the same files since a restore, if there is one: a run
    /// that is at work or changed something, or a snapshot with changes. The future is not since.
    fn recorded_since(
        &self,
        record: &RestoreRecord,
        of: &SessionSummary,
        now: Timestamp,
    ) -> Result<Option<String>, ManifestError> {
        let is_run = |other: &&SessionSummary| {
            other.started > record.at
                && other.started <= now
                && !other.received
                && other.origin == SessionOrigin::Run
                && other.may_have_changed()
                && other.overlaps(of.tracked_paths.iter().map(PathBuf::as_path))
        };
        if let Some(run) = self.all.iter().find(is_run) {
            return Ok(Some(run.session_id.clone()));
        }
        // The states of a run that changed nothing may differ in times. A watcher records the undo
        // itself, and edits that came later are conflicts in any case.
        let is_new = |summary: &SessionSummary| match summary.origin {
            SessionOrigin::Run => summary.may_have_changed(),
            origin => origin != SessionOrigin::Watch,
        };
        for (summary, session) in self.here.iter().filter(|(summary, _)| is_new(summary)) {
            let numbers = session.recorded_numbers()?;
            for number in numbers.into_iter().rev().take_while(|number| *number > 0) {
                let manifest = session.manifest(number)?.manifest;
                if manifest.timestamp > now {
                    continue;
                }
                if manifest.timestamp <= record.at {
                    break;
                }
                // The state that the undo left is nothing new for the undone session.
                let before = if summary.session_id == of.session_id {
                    Some(record.snapshot)
                } else {
                    manifest.parent
                };
                // So is the state that a later undo of steps left, which was taken back before.
                if manifest.step.as_ref().is_some_and(|step| step.kind == StepKind::Undo) {
                    continue;
                }
                let before = before.map(|number| session.manifest(number)).transpose()?;
                let is_new = before.is_none_or(|b| b.manifest.merkle_root != manifest.merkle_root);
                if manifest.kind == SnapshotKind::Ordinary && is_new {
                    return Ok(Some(summary.session_id.clone()));
                }
            }
        }
        Ok(None)
    }
}
