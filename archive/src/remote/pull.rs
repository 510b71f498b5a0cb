//! Fetching snapshots of a session from a remote.
//!
//! The archives are read from the highest number down, and of each only what is still missing. The
//! archives of other sessions on which they depend come last. When one of them is damaged, the
//! snapshots that need it are named, and the others are fetched without it.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use super::agreement::{Agreement, compare};
use super::archives::Archives;
use super::error::RemoteError;
use super::inventory::Inventory;
use super::mend;
use super::place::Place;
use super::transfer::Arriving;
use super::watched::Failure;
use crate::{ArchiveError, ArchiveId, ArchiveName, Identities, ReceiveReport, Receiver, Role};
use nono_engine::progress::{Amount, Progress};
use nono_engine::snapshot::SessionDir;
use nono_engine::store::StoreError;

/// A snapshot that could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotPulled {
    /// Its number.
    pub snapshot: u64,
    /// The reason.
    pub reason: String,
}

/// The outcome for one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PullReport {
    /// The session here after the pull.
    #[serde(flatten)]
    pub received: ReceiveReport,
    /// Archives that were read.
    pub archives_read: u64,
    /// Bytes of these archives that came.
    pub bytes_read: u64,
    /// Snapshots that the remote cannot give back.
    pub not_pulled: Vec<NotPulled>,
    /// Objects that were missing or damaged here, and that the remote gave back.
    pub mended: u64,
    /// Whether everything that is here of the session was read and is whole.
    pub is_verified: bool,
    /// Damage here that was not mended.
    #[serde(skip)]
    pub damage: Option<String>,
}

/// Fetches snapshots of a session into the store in `root`: these, or all that the remote has.
/// Every byte that comes is verified before it appears; [`prove`](super::prove) reads what was
/// here.
///
/// # Errors
/// When none of the snapshots can be had, the session here is another one, or a call fails; nothing
/// appears then.
pub fn pull(
    place: &Place,
    inventory: &Inventory,
    session: &str,
    wanted: Option<&BTreeSet<u64>>,
    root: &Path,
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<PullReport, RemoteError> {
    let held = inventory.archives.with_parents(session);
    let cut_off = inventory.cut_off_of(session);
    let mut all = held.numbers(session);
    all.extend(cut_off.iter().map(|name| name.id.number()));
    let mut pulling =
        Pulling { place, held, cut_off, session, root, identities, progress, takes_held: false };
    pulling.agree()?;
    pulling.fetch(wanted.cloned().unwrap_or(all))
}

pub(super) struct Pulling<'a> {
    pub(super) place: &'a Place,
    /// Archives of the session and of those on which it depends.
    pub(super) held: Archives,
    /// Archives that count as missing, to be named.
    pub(super) cut_off: Vec<ArchiveName>,
    pub(super) session: &'a str,
    pub(super) root: &'a Path,
    pub(super) identities: &'a Identities,
    pub(super) progress: &'a dyn Progress,
    /// Whether snapshots that are here are fetched, too: what is missing of them.
    pub(super) takes_held: bool,
}

/// The outcome of reading archives.
struct Attempt {
    received: ReceiveReport,
    archives_read: u64,
    bytes_read: u64,
}

enum Failed {
    /// One archive is of no use.
    Archive { name: ArchiveName, error: Box<ArchiveError> },
    /// One archive is of another history than the one of snapshot `number`, or than what is here.
    History { name: ArchiveName, number: u64, error: Box<ArchiveError> },
    /// Nothing can be fetched.
    Whole(RemoteError),
}

impl From<RemoteError> for Failed {
    fn from(error: RemoteError) -> Self {
        Self::Whole(error)
    }
}

impl From<ArchiveError> for Failed {
    fn from(error: ArchiveError) -> Self {
        Self::Whole(error.into())
    }
}

impl Pulling<'_> {
    /// Fetches snapshots, and passes over archives that are of no use.
    pub(super) fn fetch(&mut self, mut open: BTreeSet<u64>) -> Result<PullReport, RemoteError> {
        let mut not_pulled = self.take_out_unavailable(&mut open)?;
        let mut set_aside = BTreeSet::new();
        let mut are_packs_whole = false;
        loop {
            if let (true, Some(first)) = (open.is_empty(), not_pulled.first()) {
                return Err(RemoteError::Unavailable {
                    snapshot: format!("{}/{}", self.session, first.snapshot),
                    place: self.place.address().to_string(),
                    reason: first.reason.clone(),
                });
            }
            match self.attempt(&open) {
                Ok(Attempt { received, archives_read, bytes_read }) => {
                    not_pulled.sort_by_key(|one| one.snapshot);
                    let is_verified = received.is_new_session && !received.uses_unread;
                    return Ok(PullReport {
                        received,
                        archives_read,
                        bytes_read,
                        not_pulled,
                        mended: set_aside.len() as u64,
                        is_verified,
                        damage: None,
                    });
                }
                Err(Failed::Archive { name, error }) => {
                    if self.has_other_than(&name) {
                        self.held.forget(&name);
                        continue;
                    }
                    let before = open.len();
                    let which = match name.id.session() == self.session {
                        true => name.id.number().to_string(),
                        false => name.id.to_string(),
                    };
                    let reason = format!("the archive of snapshot {which}: {error}");
                    open.retain(|target| {
                        let needs = self.needs(*target, &name.id);
                        if needs {
                            let reason = reason.clone();
                            not_pulled.push(NotPulled { snapshot: *target, reason });
                        }
                        !needs
                    });
                    if open.len() == before {
                        return Err((*error).into());
                    }
                }
                Err(Failed::History { name, number, error }) => {
                    // An archive beside another one may be of another history.
                    let id = self.id(number)?;
                    let other = self.held.chain(&id).ok().and_then(|chain| chain.first().copied());
                    let other = other.cloned();
                    let mut both = std::iter::once(name).chain(other);
                    if let Some(beside) = both.find(|name| self.has_other_than(name)) {
                        self.held.forget(&beside);
                        continue;
                    }
                    // Archives that go on from it are of its history.
                    let rest = open.split_off(&number);
                    if rest.is_empty() || open.is_empty() {
                        return Err((*error).into());
                    }
                    let reason = error.to_string();
                    let not_had = |snapshot| NotPulled { snapshot, reason: reason.clone() };
                    not_pulled.extend(rest.into_iter().map(not_had));
                }
                // The list of a directory that is damaged here: an archive has it.
                Err(Failed::Whole(RemoteError::Archive(ArchiveError::Store(
                    StoreError::Corrupt { hash, .. },
                )))) if set_aside.insert(hash) => {
                    mend::set_aside(self.root, [hash], self.progress)?;
                }
                // The pack in which it should be.
                Err(Failed::Whole(RemoteError::Archive(ArchiveError::Store(
                    StoreError::CorruptPack { .. },
                )))) if !are_packs_whole => {
                    are_packs_whole = true;
                    mend::set_aside(self.root, [], self.progress)?;
                }
                Err(Failed::Whole(error)) => return Err(error),
            }
        }
    }

    /// Takes the snapshots out whose chains have gaps.
    fn take_out_unavailable(
        &self,
        open: &mut BTreeSet<u64>,
    ) -> Result<Vec<NotPulled>, RemoteError> {
        let mut not_pulled = Vec::new();
        for number in open.iter().copied() {
            let id = self.id(number)?;
            if let Err(error) = self.held.chain(&id) {
                let mut cut_off = self.cut_off.iter();
                let reason = match cut_off.find(|name| name.id.number() == number) {
                    Some(name) => format!("{name} was cut off at its beginning, or is no file"),
                    None => error.to_string(),
                };
                not_pulled.push(NotPulled { snapshot: number, reason });
            }
        }
        open.retain(|number| not_pulled.iter().all(|one| one.snapshot != *number));
        Ok(not_pulled)
    }

    /// Refuses a session that is another one than the one here.
    fn agree(&self) -> Result<(), RemoteError> {
        let Ok(here) = SessionDir::open(&self.root.join(self.session)) else { return Ok(()) };
        // The receiver says what is wrong with it.
        let Ok(chain) = here.chain() else { return Ok(()) };
        let hashes: Vec<_> = chain.iter().map(|one| one.hash).collect();
        let (place, held, session) = (self.place, &self.held, self.session);
        match compare(place, held, session, &hashes, self.identities, self.progress)? {
            Agreement::Other(number) => Err(RemoteError::Diverged {
                session: self.session.to_owned(),
                number,
                place: self.place.address().to_string(),
                advice: "`nono --root DIR pull …` fetches that one into a store of its own"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Whether a snapshot can be had without one of its archives.
    fn has_other_than(&self, name: &ArchiveName) -> bool {
        let mut held = self.held.clone();
        held.forget(name);
        held.chain(&name.id).is_ok()
    }

    /// Whether the archive of `link` is in the chain of a target.
    fn needs(&self, target: u64, link: &ArchiveId) -> bool {
        let Ok(id) = self.id(target) else { return false };
        let chain = self.held.chain(&id).unwrap_or_default();
        chain.iter().any(|name| name.id == *link)
    }

    /// The id of a snapshot of the session.
    fn id(&self, number: u64) -> Result<ArchiveId, ArchiveError> {
        Ok(ArchiveId::new(self.session, number)?)
    }

    /// The advice for a session here that cannot be used.
    fn unusable(&self, error: ArchiveError) -> RemoteError {
        match error {
            ArchiveError::Snapshot(error) => RemoteError::UnusableHere {
                session: self.root.join(self.session),
                reason: error.to_string(),
            },
            error => error.into(),
        }
    }

    /// The archives that give `targets` back, down to snapshots that are here.
    fn expected(&self, targets: &BTreeSet<u64>, here: &BTreeSet<u64>) -> Amount {
        let is_read = |name: &&&ArchiveName| {
            let number = name.id.number();
            let is_own = name.id.session() == self.session;
            !is_own || targets.contains(&number) || !here.contains(&number)
        };
        let chains = targets.iter().filter_map(|number| {
            let id = self.id(*number).ok()?;
            self.held.chain(&id).ok()
        });
        let read: BTreeSet<&ArchiveName> = chains
            .flat_map(|chain| chain.iter().take_while(is_read).copied().collect::<Vec<_>>())
            .collect();
        let sizes = self.held.all().filter(|(name, _)| read.contains(name));
        Amount { entries: read.len() as u64, bytes: sizes.map(|(_, size_bytes)| size_bytes).sum() }
    }

    fn attempt(&self, open: &BTreeSet<u64>) -> Result<Attempt, Failed> {
        let arriving = Arriving::new(self.progress);
        let receiver = Receiver::new(self.root, self.session, &arriving);
        let mut receiver = receiver.map_err(|error| self.unusable(error))?;
        let here: BTreeSet<u64> = receiver.already_here().iter().copied().collect();
        let mut targets: BTreeSet<u64> = match self.takes_held {
            true => open.clone(),
            false => open.difference(&here).copied().collect(),
        };
        arriving.begin_archives(self.expected(&targets, &here));
        // Snapshots whose archives are needed besides: of the session, and of others.
        let (mut sources, mut others) = (BTreeSet::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        let mut count = 0;
        while let Some(number) = sources.last().max(targets.last()).copied() {
            sources.remove(&number);
            let role = if targets.remove(&number) { Role::Target } else { Role::Source };
            if role == Role::Source && receiver.is_whole()? {
                continue;
            }
            let next = self.read(&mut receiver, &arriving, &self.id(number)?, role)?;
            count += 1;
            match next {
                // Only ever downwards, whatever an archive says.
                Some(next) if next.session() == self.session => {
                    sources.extend(Some(next.number()).filter(|next| *next < number));
                }
                Some(next) => drop(others.insert(next)),
                None => {}
            }
        }
        while !receiver.is_whole()?
            && let Some(id) = others.pop_last()
        {
            if !seen.insert(id.clone()) {
                continue;
            }
            let next = self.read(&mut receiver, &arriving, &id, Role::Source)?;
            count += 1;
            others.extend(next.filter(|next| next.session() != self.session));
        }
        let mut received = receiver.finish()?;
        received.already_here = open.intersection(&here).copied().collect();
        Ok(Attempt { received, archives_read: count, bytes_read: arriving.bytes() })
    }

    /// Reads the archive of a snapshot. Returns the snapshot whose archive it needs.
    fn read(
        &self,
        receiver: &mut Receiver<'_>,
        arriving: &Arriving<'_>,
        id: &ArchiveId,
        role: Role,
    ) -> Result<Option<ArchiveId>, Failed> {
        let chain = self.held.chain(id).map_err(|error| RemoteError::Unavailable {
            snapshot: id.to_string(),
            place: self.place.address().to_string(),
            reason: error.to_string(),
        })?;
        let name = chain[0];
        let key = name.to_string();
        let failure = Failure::default();
        let source = self.place.open_object(&key, self.progress)?;
        let source = failure.watch(arriving.count(source));
        let read = receiver.read(source, self.identities, role);
        let read = read.and_then(|outcome| match outcome.head.name() == *name {
            true => Ok(outcome),
            false => Err(ArchiveError::NoChain {
                reason: format!("it says that it is {}", outcome.head.name()),
            }),
        });
        arriving.archive_done();
        match read {
            Ok(outcome) => Ok(outcome.needs),
            Err(_) if self.progress.is_cancelled() => Err(RemoteError::Cancelled.into()),
            Err(error) => {
                let broken = failure.error(&key, &self.place.address().to_string());
                Err(broken.map_or_else(|| failed(name.clone(), error), Failed::Whole))
            }
        }
    }
}

/// Whether an archive is of no use, or nothing can be fetched.
fn failed(name: ArchiveName, error: ArchiveError) -> Failed {
    match error {
        ArchiveError::Corrupt { .. }
        | ArchiveError::Read(_)
        | ArchiveError::NoChain { .. }
        | ArchiveError::TooLarge { .. }
        | ArchiveError::WrongKey
        | ArchiveError::Encrypted => Failed::Archive { name, error: Box::new(error) },
        ArchiveError::OtherHistory { number, .. } | ArchiveError::TwoHistories { number, .. } => {
            Failed::History { name, number, error: Box::new(error) }
        }
        other => Failed::Whole(other.into()),
    }
}
