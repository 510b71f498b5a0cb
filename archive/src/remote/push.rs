//! Sending snapshots of a session to a remote.
//!
//! Each snapshot has one archive. A snapshot that can be had from the remote is not sent
//! again, so a push that was cut off goes on where it stopped. A delta depends on the newest older
//! snapshot that can be had there and is here too: its hashes come from this store, so a push needs
//! no key.
//!
//! A store with another history of the session may push at the same time. No push makes a mixture:
//!
//! - It begins when the newest snapshot that is here and there is the same one.
//! - A delta is stored when its parent there is known to be the one here.
//! - After each archive that it stores or finds, it lists the session again, and compares what is
//!   new in the list, other archives of the same snapshot, and the parent. Both pushers list after
//!   they store, so at least one of two finds the other. It takes its archive back.

use std::collections::BTreeSet;
use std::io;

use serde::Serialize;

use super::agreement::{Agreement, compare_all, newest_common};
use super::error::RemoteError;
use super::inventory::{Inventory, SessionArchives};
use super::place::Place;
use crate::{
    ArchiveError, ArchiveName, ArchivePlan, ArchiveReport, Encryption, FullReason, Parent,
};
use nono_engine::object::ContentHash;
use nono_engine::progress::{Amount, Progress, Stage};
use nono_engine::session::last_of_each_prompt;
use nono_engine::snapshot::{ManifestError, SessionDir, SessionMetadata, StepKind};

/// The outcome for one snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PushOutcome {
    /// Its archive is at the remote now.
    Stored,
    /// It could be had from the remote already, or another pusher was faster.
    AlreadyThere,
}

/// One snapshot of a push.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PushedSnapshot {
    /// The session.
    pub session_id: String,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// The outcome.
    pub outcome: PushOutcome,
    /// The archive, if one was stored.
    pub archive: Option<ArchiveReport>,
}

/// The request for a push.
#[derive(Debug)]
pub struct PushRequest<'a> {
    /// The session.
    pub session: &'a SessionDir,
    /// Numbers of its snapshots, ascending.
    pub numbers: Vec<u64>,
    /// The readers of the archives.
    pub encryption: &'a Encryption,
    /// Every archive is full.
    pub full: bool,
}

/// The snapshots of a session that a push sends: all, or of steps the last one of each prompt.
///
/// # Errors
/// When the session cannot be read.
pub fn snapshots_to_push(
    session: &SessionDir,
    metadata: &SessionMetadata,
    with_steps: bool,
) -> Result<Vec<u64>, ManifestError> {
    let mut numbers = session.snapshot_numbers()?;
    if !with_steps {
        let kept = last_of_each_prompt(&metadata.steps);
        let is_step = |number: &u64| {
            let step = metadata.steps.iter().find(|step| step.number == *number);
            step.is_some_and(|step| step.kind != StepKind::Checkpoint)
        };
        numbers.retain(|number| !is_step(number) || kept.contains(number));
    }
    Ok(numbers)
}

/// Pushes snapshots of one session, in order. `each` is told about each of them.
///
/// # Errors
/// The first failure. The archives before it are stored.
pub fn push(
    place: &Place,
    request: &PushRequest<'_>,
    progress: &dyn Progress,
    each: &mut dyn FnMut(PushedSnapshot),
) -> Result<(), RemoteError> {
    let id = request.session.id();
    let here = request.session.snapshot_numbers().map_err(ArchiveError::from)?;
    let held = held(place, &id, request.encryption, progress)?;
    let chain = request.session.chain().map_err(ArchiveError::from)?;
    let chain = chain.iter().map(|one| one.hash).collect();
    let known = held.all().map(|(name, _)| name.clone()).collect();
    let read = BTreeSet::new();
    let mut pushing = Pushing { place, request, id, here, chain, held, known, read, progress };
    if let Some(newest) = newest_common(&pushing.held, &pushing.chain) {
        // Its manifest names all before it.
        pushing.agree_on(newest, None)?;
    }
    for number in request.numbers.iter().copied() {
        if progress.is_cancelled() {
            return Err(RemoteError::Cancelled);
        }
        let archive = pushing.push(number)?;
        let outcome = match &archive {
            Some(_) => PushOutcome::Stored,
            None => PushOutcome::AlreadyThere,
        };
        each(PushedSnapshot { session_id: pushing.id.clone(), snapshot: number, outcome, archive });
    }
    Ok(())
}

struct Pushing<'a> {
    place: &'a Place,
    request: &'a PushRequest<'a>,
    id: String,
    /// The snapshots of the session in this store.
    here: Vec<u64>,
    /// The hashes of their manifests, and of those of removed ones.
    chain: Vec<ContentHash>,
    /// Its archives at the place, as last listed.
    held: SessionArchives,
    /// Archives that are of the history here.
    known: BTreeSet<ArchiveName>,
    /// Snapshots of which an archive was stored or read by this push.
    read: BTreeSet<u64>,
    progress: &'a dyn Progress,
}

impl Pushing<'_> {
    fn push(&mut self, number: u64) -> Result<Option<ArchiveReport>, RemoteError> {
        let mut full = self.request.full;
        let mut stored = None;
        // Twice at most: a parent that goes meanwhile leaves a delta that cannot be used.
        for _ in 0..2 {
            if self.is_had(number, full)? {
                break;
            }
            let new = self.store(number, full)?;
            self.held = held(self.place, &self.id, self.request.encryption, self.progress)?;
            self.settle(number, new.as_ref())?;
            stored = new.or(stored);
            full |= !self.is_had(number, full)?;
        }
        if !self.is_had(number, self.request.full)? {
            let archive = format!("{}/{number}-full…", self.id);
            let reason = "its length is not that of an archive".to_owned();
            return Err(self.unusable(archive, reason));
        }
        if self.held.all().any(|(name, _)| name.id.number() == number && !self.known.contains(name))
        {
            self.agree_on(number, None)?;
        }
        Ok(stored)
    }

    /// Reads the beginnings of the archives of a snapshot at the place, but for the one of a name.
    /// Refuses to go on where it is another one than here. Returns whether there was any.
    fn agree_on(&mut self, number: u64, but: Option<&str>) -> Result<bool, RemoteError> {
        let others = self.held.without(but);
        let identities = self.request.encryption.identities();
        match compare_all(self.place, &others, number, &self.chain, &identities, self.progress)? {
            None => return Ok(false),
            Some(Agreement::Same | Agreement::Unknown) => {}
            Some(Agreement::Unusable { archive, reason }) => {
                return Err(self.unusable(archive, reason));
            }
            Some(Agreement::Other(number)) => {
                return Err(RemoteError::Diverged {
                    session: self.id.clone(),
                    number,
                    place: self.place.address().to_string(),
                    advice: format!(
                        "`nono push ADDRESS {}` with the address of another folder keeps this \
                         one, too",
                        self.id
                    ),
                });
            }
        }
        let names = others.all().map(|(name, _)| name);
        self.known.extend(names.filter(|name| name.id.number() == number).cloned());
        self.read.insert(number);
        Ok(true)
    }

    /// Looks for what another pusher has stored meanwhile, after an archive of a snapshot was
    /// stored or its name was found taken. An archive that makes a mixture is taken back.
    fn settle(&mut self, number: u64, new: Option<&ArchiveReport>) -> Result<(), RemoteError> {
        let own = new.map(|it| it.name.as_str());
        let parent = new.and_then(|it| it.parent.as_ref()).map(|id| id.number());
        let is_mine = |name: &ArchiveName| own.is_some_and(|own| name.to_string() == own);
        let is_new = |name: &&ArchiveName| !self.known.contains(*name) && !is_mine(name);
        let appeared = self.held.all().map(|(name, _)| name).filter(is_new);
        let is_here = |it: &u64| *it < self.chain.len() as u64;
        let appeared: BTreeSet<u64> =
            appeared.map(|name| name.id.number()).filter(is_here).collect();
        let agreed = (|| {
            self.agree_on(number, own)?;
            if let Some(parent) = parent
                && !self.agree_on(parent, None)?
            {
                self.held.forget_all(parent);
            }
            for other in appeared {
                match self.agree_on(other, own) {
                    // It may not be whole yet. Nothing counts on it before it was read.
                    Err(RemoteError::Unusable { .. }) => {}
                    agreed => drop(agreed?),
                }
            }
            Ok(())
        })();
        match (&agreed, new) {
            (Err(RemoteError::Diverged { number: other, .. }), Some(new)) => {
                let is_of_both = *other != number && Some(*other) != parent;
                if !is_of_both && !self.is_needed(number)? {
                    self.place.remove(&new.name, self.progress)?;
                }
            }
            (Ok(()), Some(new)) => {
                self.known.extend(new.name.parse::<ArchiveName>());
                self.read.insert(number);
            }
            _ => {}
        }
        agreed
    }

    /// Whether a pusher with the history here went on from an archive of a snapshot.
    fn is_needed(&self, number: u64) -> Result<bool, RemoteError> {
        let deltas = self.held.deltas_on(number);
        let identities = self.request.encryption.identities();
        for above in deltas.numbers() {
            // An archive beyond the history here may go on from it.
            let other = Agreement::Other(above);
            let (place, chain, progress) = (self.place, &self.chain, self.progress);
            if above >= chain.len() as u64
                || compare_all(place, &deltas, above, chain, &identities, progress)?
                    .is_some_and(|it| it != other)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The archive on which a delta of a snapshot is to depend, which is known to be of the history
    /// here.
    fn parent(&mut self, number: u64) -> Result<Result<Parent, FullReason>, RemoteError> {
        loop {
            let parent = self.held.parent_for(number, &self.here);
            match parent {
                Ok(found) if !self.read.contains(&found.number) => {
                    if !self.agree_on(found.number, None)? {
                        self.held.forget_all(found.number);
                    }
                }
                parent => return Ok(parent),
            }
        }
    }

    fn unusable(&self, archive: String, reason: String) -> RemoteError {
        RemoteError::Unusable { archive, place: self.place.address().to_string(), reason }
    }

    /// Whether the place can give the snapshot back; with `full`, by one archive.
    fn is_had(&self, number: u64, full: bool) -> Result<bool, RemoteError> {
        let id = self.held.id(number).map_err(ArchiveError::from)?;
        Ok(self.held.chain(&id).is_ok_and(|chain| !full || chain.len() == 1))
    }

    /// Stores one archive; `None` if its name was taken meanwhile.
    fn store(&mut self, number: u64, full: bool) -> Result<Option<ArchiveReport>, RemoteError> {
        let parent = match full {
            true => Err(FullReason::Asked),
            false => self.parent(number)?,
        };
        let Self { place, request, progress, .. } = *self;
        let plan = ArchivePlan::new(request.session, number, parent, progress)?;
        let key = plan.name(request.encryption.is_some()).to_string();
        let (mut report, mut failed) = (None, None);
        let mut source =
            |out: &mut dyn io::Write| match plan.write(request.encryption, out, &Sending(progress))
            {
                Ok(written) => {
                    report = Some(written);
                    Ok(())
                }
                Err(error) => {
                    let text = error.to_string();
                    failed = Some(error);
                    Err(io::Error::other(text))
                }
            };
        let put = place.put_new(&key, &mut source, progress);
        match (put, failed) {
            (Err(RemoteError::Source(_)), Some(failed)) => Err(failed.into()),
            (put, _) => Ok(put?.and(report)),
        }
    }
}

/// Packed bytes are also sent.
struct Sending<'a>(&'a dyn Progress);

impl Progress for Sending<'_> {
    fn advance(&self, entries: u64, bytes: u64) {
        self.0.advance(entries, bytes);
    }

    fn begin(&self, _stage: Stage, expected: Option<Amount>) {
        self.0.begin(Stage::Upload, expected);
    }

    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// The archives of one session at a place. Where new ones are encrypted, others do not count.
fn held(
    place: &Place,
    id: &str,
    encryption: &Encryption,
    progress: &dyn Progress,
) -> Result<SessionArchives, RemoteError> {
    let mut inventory = Inventory::of(place.list(id, progress)?);
    if encryption.is_some() {
        inventory = inventory.encrypted_only();
    }
    let none = || SessionArchives::none(id.to_owned());
    Ok(inventory.sessions.remove(id).unwrap_or_else(none))
}
