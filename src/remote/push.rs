//! Sending snapshots of a session to a remote.
//!
//! Of each snapshot there is one archive. A snapshot that can be had from the remote is not sent
//! again, so a push that was cut off goes on where it stopped. A delta depends on the newest older
//! snapshot that can be had there and is here too: its hashes come from this store, so a push needs
//! no key. It reads the beginning of one archive, to see that the session there is the one here.

use std::io;

use serde::Serialize;

use super::agreement::{Agreement, compare};
use super::error::RemoteError;
use super::inventory::{Inventory, SessionArchives};
use super::place::Place;
use crate::archive::{ArchiveError, ArchivePlan, ArchiveReport, Encryption, FullReason};
use crate::object::ContentHash;
use crate::progress::{Amount, Progress, Stage};
use crate::session::last_of_each_prompt;
use crate::snapshot::{ManifestError, SessionDir, SessionMetadata, StepKind};

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

/// What is pushed, and how.
#[derive(Debug)]
pub struct PushRequest<'a> {
    /// The session.
    pub session: &'a SessionDir,
    /// Numbers of its snapshots, ascending.
    pub numbers: Vec<u64>,
    /// Who can read the archives.
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
    let mut pushing = Pushing { place, request, id, here, chain, held, progress };
    pushing.agree(&pushing.held)?;
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
    progress: &'a dyn Progress,
}

impl Pushing<'_> {
    fn push(&mut self, number: u64) -> Result<Option<ArchiveReport>, RemoteError> {
        let mut full = self.request.full;
        let mut stored = None;
        // Twice at most: a parent that goes meanwhile leaves a delta that nobody can use.
        for _ in 0..2 {
            if self.is_had(number, full)? {
                break;
            }
            let new = self.store(number, full)?;
            self.held = held(self.place, &self.id, self.request.encryption, self.progress)?;
            self.agree_on(number, new.as_ref())?;
            stored = new.or(stored);
            full |= !self.is_had(number, full)?;
        }
        if !self.is_had(number, self.request.full)? {
            let archive = format!("{}/{number}-full…", self.id);
            let reason = "its length is not that of an archive".to_owned();
            return Err(self.unusable(archive, reason));
        }
        Ok(stored)
    }

    /// Refuses to go on with a session that is another one there.
    fn agree(&self, held: &SessionArchives) -> Result<(), RemoteError> {
        let Self { place, chain, progress, .. } = self;
        let identities = self.request.encryption.identities();
        match compare(place, held, chain, &identities, *progress)? {
            Agreement::Same | Agreement::Unknown => Ok(()),
            Agreement::Unusable { archive, reason } => Err(self.unusable(archive, reason)),
            Agreement::Other(number) => Err(RemoteError::Diverged {
                session: self.id.clone(),
                number,
                place: place.address().to_string(),
                advice: format!(
                    "`nono push ADDRESS {}` with the address of another folder keeps this one, too",
                    self.id
                ),
            }),
        }
    }

    /// As [`agree`](Self::agree), about one snapshot of which another pusher may have stored an
    /// archive meanwhile. An archive that was stored just now is taken back then.
    fn agree_on(&self, number: u64, new: Option<&ArchiveReport>) -> Result<(), RemoteError> {
        let others = self.held.only(number, new.map(|it| it.name.as_str()));
        let agreed = self.agree(&others);
        if let (Err(RemoteError::Diverged { .. }), Some(new)) = (&agreed, new) {
            self.place.remove(&new.name, self.progress)?;
        }
        agreed
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
    fn store(&self, number: u64, full: bool) -> Result<Option<ArchiveReport>, RemoteError> {
        let Self { place, request, progress, .. } = *self;
        let parent = match full {
            true => Err(FullReason::Asked),
            false => self.held.parent_for(number, &self.here),
        };
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

/// What is packed is also sent.
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
