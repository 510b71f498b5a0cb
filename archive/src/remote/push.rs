//! Sending snapshots of a session to a remote.
//!
//! Each snapshot has one archive. A snapshot that can be had from the remote is not sent
//! again, so a push that was cut off goes on where it stopped. A delta depends on the newest older
//! snapshot that can be had there and is here too: its hashes come from this store, so a push needs
//! no key. Where its session has none, it depends on a snapshot of another session of the project
//! ([`relatives`](super::relatives)).
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
use super::inventory::{Inventory, MAX_LISTED, reference};
use super::place::Place;
use super::relatives::Histories;
use crate::{
    ArchiveError, ArchiveId, ArchiveName, ArchivePlan, ArchiveReport, Encryption, FullReason,
    Parent,
};
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
    let histories = Histories::new(request.session).map_err(ArchiveError::from)?;
    let mut pushing = Pushing {
        place,
        request,
        histories,
        inventory: Inventory::default(),
        listed: BTreeSet::new(),
        known: BTreeSet::new(),
        read: BTreeSet::new(),
        healed: Vec::new(),
        healing: BTreeSet::new(),
        progress,
    };
    let id = request.session.id();
    pushing.list_with_parents(&id)?;
    let held = pushing.inventory.archives.of_session(&id);
    pushing.known = held.map(|(name, _)| name.clone()).collect();
    if let Some(newest) = pushing.newest_common(&id) {
        // Its manifest names all before it.
        pushing.agree_on(&newest, None)?;
    }
    pushing.heal(&id)?;
    for number in request.numbers.iter().copied() {
        if progress.is_cancelled() {
            return Err(RemoteError::Cancelled);
        }
        let pushed = pushing.push(&ArchiveId::new(&id, number).map_err(ArchiveError::from)?);
        pushing.healed.drain(..).for_each(&mut *each);
        let archive = pushed?;
        let outcome = match &archive {
            Some(_) => PushOutcome::Stored,
            None => PushOutcome::AlreadyThere,
        };
        each(PushedSnapshot { session_id: id.clone(), snapshot: number, outcome, archive });
    }
    Ok(())
}

pub(super) struct Pushing<'a> {
    pub(super) place: &'a Place,
    pub(super) request: &'a PushRequest<'a>,
    /// The sessions of this store that were looked at.
    pub(super) histories: Histories,
    /// The sessions at the place that were looked at, as last listed.
    pub(super) inventory: Inventory,
    pub(super) listed: BTreeSet<String>,
    /// Archives that are of the histories here.
    pub(super) known: BTreeSet<ArchiveName>,
    /// Snapshots of which an archive was stored or read by this push.
    read: BTreeSet<ArchiveId>,
    /// Archives of other sessions that were stored again, and are not told yet.
    pub(super) healed: Vec<PushedSnapshot>,
    /// Archives that were found lost. Each is tried once.
    pub(super) healing: BTreeSet<ArchiveId>,
    pub(super) progress: &'a dyn Progress,
}

impl Pushing<'_> {
    /// Stores the archive of a snapshot, unless the place can give it back.
    pub(super) fn push(&mut self, id: &ArchiveId) -> Result<Option<ArchiveReport>, RemoteError> {
        let mut full = self.request.full;
        let mut stored = None;
        // Twice at most: a parent that goes meanwhile leaves a delta that cannot be used.
        for _ in 0..2 {
            if self.is_had(id, full) {
                break;
            }
            let new = self.store(id, full)?;
            self.list(id.session())?;
            self.settle(id, new.as_ref())?;
            stored = new.or(stored);
            full |= !self.is_had(id, full);
        }
        if !self.is_had(id, self.request.full) {
            let archive = format!("{id}-full…");
            let reason = "its length is not that of an archive".to_owned();
            return Err(self.unusable(archive, reason));
        }
        let is_known = |name| self.known.contains(name);
        if !self.inventory.archives.of_snapshot(id).all(is_known) {
            self.agree_on(id, None)?;
        }
        Ok(stored)
    }

    pub(super) fn newest_common(&mut self, session: &str) -> Option<ArchiveId> {
        let history = self.histories.get(session)?;
        newest_common(&self.inventory.archives, session, &history.chain)
    }

    /// Reads the beginnings of the archives of a snapshot at the place, but for the one of a name,
    /// and compares them with the history here. `None`: there is none.
    fn compare(
        &mut self,
        id: &ArchiveId,
        but: Option<&str>,
    ) -> Result<Option<Agreement>, RemoteError> {
        let Some(history) = self.histories.get(id.session()) else { return Ok(None) };
        let names = self.inventory.archives.of_snapshot(id);
        let names = names.filter(|name| but.is_none_or(|but| name.to_string() != but));
        let identities = self.request.encryption.identities();
        compare_all(self.place, names, &history.chain, &identities, self.progress)
    }

    /// Refuses to go on where a snapshot at the place is another one than here. Returns whether
    /// there was any but the archive of a name.
    fn agree_on(&mut self, id: &ArchiveId, but: Option<&str>) -> Result<bool, RemoteError> {
        match self.compare(id, but)? {
            None => return Ok(false),
            Some(Agreement::Same | Agreement::Unknown) => {}
            Some(Agreement::Unusable { archive, reason }) => {
                return Err(self.unusable(archive, reason));
            }
            Some(Agreement::Other(number)) => {
                let session = id.session();
                return Err(RemoteError::Diverged {
                    session: session.to_owned(),
                    number,
                    place: self.place.address().to_string(),
                    advice: format!(
                        "`nono push ADDRESS {session}` with the address of another folder keeps \
                         this one, too"
                    ),
                });
            }
        }
        self.note_as_known(id);
        Ok(true)
    }

    /// Whether the archives of a snapshot of another session are those of the snapshot here.
    pub(super) fn is_same(&mut self, id: &ArchiveId) -> Result<bool, RemoteError> {
        if self.read.contains(id) {
            return Ok(true);
        }
        let is_same = self.compare(id, None)? == Some(Agreement::Same);
        if is_same {
            self.note_as_known(id);
        }
        Ok(is_same)
    }

    fn note_as_known(&mut self, id: &ArchiveId) {
        self.known.extend(self.inventory.archives.of_snapshot(id).cloned());
        self.read.insert(id.clone());
    }

    /// Looks for what another pusher has stored meanwhile, after an archive of a snapshot was
    /// stored or its name was found taken. An archive that makes a mixture is taken back.
    fn settle(&mut self, id: &ArchiveId, new: Option<&ArchiveReport>) -> Result<(), RemoteError> {
        let own = new.map(|it| it.name.as_str());
        let parent = new.and_then(|it| it.parent.clone());
        let is_mine = |name: &ArchiveName| own.is_some_and(|own| name.to_string() == own);
        let is_new = |name: &&ArchiveName| !self.known.contains(*name) && !is_mine(name);
        let count = self.histories.get(id.session()).map_or(0, |it| it.chain.len() as u64);
        let appeared = self.inventory.archives.of_session(id.session()).map(|(name, _)| name);
        let appeared = appeared.filter(is_new).map(|name| name.id.clone());
        let appeared: BTreeSet<ArchiveId> = appeared.filter(|it| it.number() < count).collect();
        let agreed = (|| {
            self.agree_on(id, own)?;
            if let Some(parent) = &parent
                && !self.agree_on_parent(parent, id)?
            {
                self.inventory.archives.forget_all(parent);
            }
            for other in &appeared {
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
                let own_parent = parent.filter(|it| it.session() == id.session());
                let is_of_both =
                    *other != id.number() && Some(*other) != own_parent.map(|it| it.number());
                if !is_of_both && !self.is_needed(id)? {
                    self.place.remove(&new.name, self.progress)?;
                }
            }
            (Ok(()), Some(new)) => {
                self.known.extend(new.name.parse::<ArchiveName>());
                self.read.insert(id.clone());
            }
            _ => {}
        }
        agreed
    }

    /// Whether the parent of a new delta is still at the place, and is the snapshot here.
    fn agree_on_parent(
        &mut self,
        parent: &ArchiveId,
        child: &ArchiveId,
    ) -> Result<bool, RemoteError> {
        if parent.session() == child.session() {
            return self.agree_on(parent, None);
        }
        self.list(parent.session())?;
        self.read.remove(parent);
        // A cleanup may have taken it away, because it did not find the delta.
        let needed_by = self.inventory.needed_by.get(parent.session());
        if !needed_by.is_some_and(|children| children.contains(child.session())) {
            self.refer(parent, child)?;
        }
        let stays = !self.inventory.being_cleaned.contains(parent.session());
        Ok(stays && self.inventory.archives.chain(parent).is_ok() && self.is_same(parent)?)
    }

    /// Notes in the folder of a parent's session that another one depends on it.
    pub(super) fn refer(
        &mut self,
        parent: &ArchiveId,
        child: &ArchiveId,
    ) -> Result<(), RemoteError> {
        let (parent, child) = (parent.session(), child.session());
        let text = format!("archives of {child} depend on some of {parent}\n");
        let mut write = |out: &mut dyn io::Write| out.write_all(text.as_bytes());
        self.place.put_new(&reference(parent, child), &mut write, self.progress)?;
        let children = self.inventory.needed_by.entry(parent.to_owned()).or_default();
        children.insert(child.to_owned());
        Ok(())
    }

    /// Whether a pusher with the history here went on from an archive of a snapshot.
    fn is_needed(&mut self, id: &ArchiveId) -> Result<bool, RemoteError> {
        let Some(history) = self.histories.get(id.session()) else { return Ok(true) };
        let archives = &self.inventory.archives;
        let identities = self.request.encryption.identities();
        for above in archives.deltas_on(id) {
            // An archive beyond the history here may go on from it, or one of another session.
            let is_beyond = above.number() >= history.chain.len() as u64;
            if is_beyond || above.session() != id.session() {
                return Ok(true);
            }
            let names = archives.of_snapshot(above).filter(|name| name.kind.parent() == Some(id));
            let (place, chain, progress) = (self.place, &history.chain, self.progress);
            if compare_all(place, names, chain, &identities, progress)?
                .is_some_and(|it| it != Agreement::Other(above.number()))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The archive on which a delta of a snapshot is to depend, which is known to be of the history
    /// here: one of its session, else one of another session of its project.
    fn parent(&mut self, id: &ArchiveId) -> Result<Result<Parent, FullReason>, RemoteError> {
        loop {
            let here = self.histories.get(id.session()).map(|it| it.here.as_slice());
            match self.inventory.archives.parent_for(id, here.unwrap_or_default()) {
                Ok(found) if !self.read.contains(&found.id) => {
                    if !self.agree_on(&found.id, None)? {
                        self.inventory.archives.forget_all(&found.id);
                    }
                }
                Ok(parent) => return Ok(Ok(parent)),
                Err(reason) => return Ok(self.relative(id)?.ok_or(reason)),
            }
        }
    }

    fn unusable(&self, archive: String, reason: String) -> RemoteError {
        RemoteError::Unusable { archive, place: self.place.address().to_string(), reason }
    }

    /// Whether the place can give the snapshot back; with `full`, by one archive.
    fn is_had(&self, id: &ArchiveId, full: bool) -> bool {
        let chain = self.inventory.archives.chain(id);
        chain.is_ok_and(|chain| !full || chain.len() == 1)
    }

    /// Stores one archive; `None` if its name was taken meanwhile.
    fn store(&mut self, id: &ArchiveId, full: bool) -> Result<Option<ArchiveReport>, RemoteError> {
        let parent = match full {
            true => Err(FullReason::Asked),
            false => self.parent(id)?,
        };
        let Some(history) = self.histories.get(id.session()) else {
            return Err(ArchiveError::NoParent { parent: id.clone() }.into());
        };
        let plan = ArchivePlan::new(&history.session, id.number(), parent, self.progress)?;
        let name = plan.name(self.request.encryption.is_some());
        if let Some(parent) = name.kind.parent().filter(|it| it.session() != id.session()) {
            // First, so that no cleanup of that session misses the delta.
            self.refer(parent, id)?;
        }
        let Self { place, request, progress, .. } = *self;
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
        let put = place.put_new(&name.to_string(), &mut source, progress);
        match (put, failed) {
            (Err(RemoteError::Source(_)), Some(failed)) => Err(failed.into()),
            (put, _) => Ok(put?.and(report)),
        }
    }

    /// Lists a session. Where new archives are encrypted, others do not count.
    pub(super) fn list(&mut self, session: &str) -> Result<(), RemoteError> {
        let mut listed = Inventory::of(self.place.list(session, self.progress)?);
        if self.request.encryption.is_some() {
            listed = listed.encrypted_only();
        }
        let children = listed.needed_by.remove(session).unwrap_or_default();
        self.inventory.needed_by.insert(session.to_owned(), children);
        match listed.being_cleaned.contains(session) {
            true => self.inventory.being_cleaned.insert(session.to_owned()),
            false => self.inventory.being_cleaned.remove(session),
        };
        self.inventory.archives.replace(session, listed.archives);
        self.listed.insert(session.to_owned());
        Ok(())
    }

    /// Lists a session, and all on whose archives its archives depend.
    pub(super) fn list_with_parents(&mut self, session: &str) -> Result<(), RemoteError> {
        let mut open = vec![session.to_owned()];
        while let Some(session) = open.pop() {
            if self.listed.contains(&session) || self.listed.len() >= MAX_LISTED {
                continue;
            }
            self.list(&session)?;
            let parents = self.inventory.archives.parents_of(&session);
            open.extend(parents.into_iter().map(str::to_owned));
        }
        Ok(())
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
