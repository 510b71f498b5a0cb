//! Checking all archives of a remote: each decrypts, has the right hashes and holds what its trees
//! say, and each chain is whole.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::archives::Archives;
use super::error::RemoteError;
use super::place::Place;
use super::transfer::Arriving;
use super::watched::Failure;
use crate::{
    ArchiveError, ArchiveId, ArchiveName, ArchiveReader, ArchiveSummary, Identities, KnownStates,
};
use nono_engine::progress::{Amount, Progress};
use nono_engine::store::StoreError;

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteProblemKind {
    /// An archive is damaged, cut off, or none.
    DamagedArchive,
    /// None of the keys opens an archive.
    NotOpened,
    /// An archive holds something else than its name says.
    WrongName,
    /// A snapshot cannot be had: an archive of its chain is missing or of no use.
    BrokenChain,
}

/// Something wrong with a snapshot of a remote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RemoteProblem {
    /// Its kind.
    pub kind: RemoteProblemKind,
    /// The session.
    pub session_id: String,
    /// The number of the snapshot that cannot be had.
    pub snapshot: u64,
    /// The archive, of a problem with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive: Option<String>,
    /// The reason.
    pub reason: String,
}

impl RemoteProblem {
    /// The problem of an archive that is too short to be one.
    pub fn cut_off(archive: &ArchiveName) -> Self {
        Self {
            kind: RemoteProblemKind::DamagedArchive,
            session_id: archive.id.session().to_owned(),
            snapshot: archive.id.number(),
            archive: Some(archive.to_string()),
            reason: "it was cut off at its beginning, or is no file".to_owned(),
        }
    }
}

/// The check of one session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Archives that were read.
    pub archives_checked: u64,
    /// Bytes of the files in them.
    pub bytes_checked: u64,
    /// Numbers of the snapshots that can be had, ascending.
    pub available: Vec<u64>,
    /// The problems, by snapshot.
    pub problems: Vec<RemoteProblem>,
}

/// Reads every archive of sessions, and judges every chain. The archives of other sessions on which
/// theirs depend are read, too.
///
/// # Errors
/// When the place does not answer, or the caller asked to stop. Damage is no error: it is in the
/// reports.
pub fn check(
    place: &Place,
    held: &Archives,
    sessions: &BTreeSet<String>,
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<BTreeMap<String, CheckReport>, RemoteError> {
    let names = held.with_links(sessions);
    let is_read: BTreeSet<&ArchiveName> = names.iter().copied().collect();
    let sizes = held.all().filter(|(name, _)| is_read.contains(name));
    let bytes = sizes.map(|(_, size_bytes)| size_bytes).sum();
    let arriving = Arriving::new(progress);
    arriving.begin_archives(Amount { entries: names.len() as u64, bytes });
    let reports = sessions.iter().map(|session| (session.clone(), CheckReport::default()));
    let (sound, whole) = (BTreeSet::new(), BTreeSet::new());
    let reports = reports.collect();
    let mut checking = Checking { place, identities, progress, arriving, reports, sound, whole };
    for group in groups(&names) {
        // Sessions that share no archive share no state either.
        let mut known = KnownStates::default();
        for name in group {
            checking.read(name, &mut known)?;
        }
    }
    for session in sessions {
        checking.judge_chains(session, held)?;
    }
    Ok(checking.reports)
}

/// Archives by the sessions that depend on each other, in their order.
fn groups<'a>(names: &[&'a ArchiveName]) -> Vec<Vec<&'a ArchiveName>> {
    let mut beside: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in names {
        let session = name.id.session();
        let other = name.kind.parent().map_or(session, ArchiveId::session);
        beside.entry(session).or_default().insert(other);
        beside.entry(other).or_default().insert(session);
    }
    let mut group_of: BTreeMap<&str, usize> = BTreeMap::new();
    let mut count = 0;
    for first in beside.keys() {
        let mut open = vec![*first];
        let is_new = !group_of.contains_key(first);
        while let Some(session) = open.pop() {
            if let Entry::Vacant(entry) = group_of.entry(session) {
                entry.insert(count);
                open.extend(&beside[session]);
            }
        }
        count += usize::from(is_new);
    }
    let mut groups = vec![Vec::new(); count];
    for name in names {
        groups[group_of[name.id.session()]].push(*name);
    }
    groups
}

struct Checking<'a> {
    place: &'a Place,
    identities: &'a Identities,
    progress: &'a dyn Progress,
    arriving: Arriving<'a>,
    /// By session, of those that were asked for.
    reports: BTreeMap<String, CheckReport>,
    /// Archives that are what their names say.
    sound: BTreeSet<&'a ArchiveName>,
    /// Snapshots that were compared with their Merkle roots.
    whole: BTreeSet<&'a ArchiveId>,
}

impl<'a> Checking<'a> {
    /// Reads an archive. The archive of its parent was read before.
    fn read(&mut self, name: &'a ArchiveName, known: &mut KnownStates) -> Result<(), RemoteError> {
        if self.progress.is_cancelled() {
            return Err(RemoteError::Cancelled);
        }
        let report = self.reports.get_mut(name.id.session());
        if let Some(report) = report {
            report.archives_checked += 1;
        }
        let key = name.to_string();
        let failure = Failure::default();
        let source = match self.place.open_object(&key, self.progress) {
            // A cleanup was faster.
            Err(RemoteError::Missing { .. }) => {
                let reason = "it is gone meanwhile".to_owned();
                self.add(RemoteProblemKind::BrokenChain, &name.id, Some(name), reason);
                return Ok(());
            }
            opened => failure.watch(self.arriving.count(opened?)),
        };
        let read = ArchiveReader::open(source, self.identities)
            .and_then(|it| it.verify(known, &self.arriving));
        self.arriving.archive_done();
        match read {
            Ok(summary) => self.is_read(name, &summary),
            Err(_) if self.progress.is_cancelled() => return Err(RemoteError::Cancelled),
            Err(error) => {
                if let Some(broken) = failure.error(&key, &self.place.address().to_string()) {
                    return Err(broken);
                }
                let kind = match &error {
                    // No fault of the archive.
                    ArchiveError::Io(_) | ArchiveError::Store(StoreError::Io(_)) => {
                        return Err(error.into());
                    }
                    ArchiveError::Encrypted | ArchiveError::WrongKey => {
                        RemoteProblemKind::NotOpened
                    }
                    _ => RemoteProblemKind::DamagedArchive,
                };
                self.add(kind, &name.id, Some(name), error.to_string());
            }
        }
        Ok(())
    }

    /// Notes an archive whose bytes are sound.
    fn is_read(&mut self, name: &'a ArchiveName, summary: &ArchiveSummary) {
        if let Some(report) = self.reports.get_mut(name.id.session()) {
            report.bytes_checked += summary.content_bytes;
        }
        let told = summary.head.name();
        if told != *name {
            let reason = format!("it says that it is {told}");
            self.add(RemoteProblemKind::WrongName, &name.id, Some(name), reason);
            return;
        }
        self.sound.insert(name);
        if summary.is_whole {
            self.whole.insert(&name.id);
        }
    }

    /// Says which snapshots of a session can be had, and why others cannot.
    fn judge_chains(&mut self, session: &str, held: &Archives) -> Result<(), RemoteError> {
        for number in held.numbers(session) {
            let id = ArchiveId::new(session, number).map_err(ArchiveError::from)?;
            let reason = match held.chain(&id) {
                Ok(_) if self.whole.contains(&id) => {
                    if let Some(report) = self.reports.get_mut(session) {
                        report.available.push(number);
                    }
                    continue;
                }
                Ok(chain) => match chain.iter().find(|name| !self.sound.contains(*name)) {
                    Some(name) => format!("it needs {name}, which is of no use"),
                    None => "its archives do not follow each other".to_owned(),
                },
                Err(error) => error.to_string(),
            };
            self.add(RemoteProblemKind::BrokenChain, &id, None, reason);
        }
        if let Some(report) = self.reports.get_mut(session) {
            report.problems.sort_by_key(|problem| problem.snapshot);
        }
        Ok(())
    }

    /// Adds a problem to the report of its session, if there is to be one.
    fn add(
        &mut self,
        kind: RemoteProblemKind,
        id: &ArchiveId,
        archive: Option<&ArchiveName>,
        reason: String,
    ) {
        if let Some(report) = self.reports.get_mut(id.session()) {
            report.problems.push(RemoteProblem {
                kind,
                session_id: id.session().to_owned(),
                snapshot: id.number(),
                archive: archive.map(ToString::to_string),
                reason,
            });
        }
    }
}
