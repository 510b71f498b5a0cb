//! Checking all archives of a remote: each decrypts, has the right hashes and holds what its trees
//! say, and each chain is whole.

use std::collections::BTreeSet;

use serde::Serialize;

use super::error::RemoteError;
use super::inventory::SessionArchives;
use super::place::Place;
use super::transfer::Arriving;
use super::watched::Failure;
use crate::{ArchiveError, ArchiveName, ArchiveReader, ArchiveSummary, Identities, KnownStates};
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

/// Reads every archive of a session, and judges every chain.
///
/// # Errors
/// When the place does not answer, or the caller asked to stop. Damage is no error: it is in the
/// report.
pub fn check(
    place: &Place,
    session: &str,
    held: &SessionArchives,
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<CheckReport, RemoteError> {
    let mut report = CheckReport::default();
    // Parents come before their deltas.
    let mut known = KnownStates::default();
    let (mut sound, mut whole) = (BTreeSet::new(), BTreeSet::new());
    let problem = |kind, snapshot, archive: Option<&ArchiveName>, reason| RemoteProblem {
        kind,
        session_id: session.to_owned(),
        snapshot,
        archive: archive.map(ToString::to_string),
        reason,
    };
    let arriving = Arriving(progress);
    let entries = held.all().count() as u64;
    arriving.begin_archives(Amount { entries, bytes: held.size_bytes() });
    for (name, _) in held.all() {
        if progress.is_cancelled() {
            return Err(RemoteError::Cancelled);
        }
        let number = name.id.number();
        report.archives_checked += 1;
        let key = name.to_string();
        let failure = Failure::default();
        let source = match place.open_object(&key, progress) {
            // A cleanup was faster.
            Err(RemoteError::Missing { .. }) => {
                let reason = "it is gone meanwhile".to_owned();
                let kind = RemoteProblemKind::BrokenChain;
                report.problems.push(problem(kind, number, Some(name), reason));
                continue;
            }
            opened => failure.watch(arriving.count(opened?)),
        };
        let read =
            ArchiveReader::open(source, identities).and_then(|it| it.verify(&mut known, &arriving));
        arriving.archive_done();
        match read {
            Ok(ArchiveSummary { head, content_bytes, is_whole, .. }) => {
                report.bytes_checked += content_bytes;
                match head.name() == *name {
                    true => {
                        sound.insert(name);
                        whole.extend(is_whole.then_some(number));
                    }
                    false => {
                        let reason = format!("it says that it is {}", head.name());
                        let kind = RemoteProblemKind::WrongName;
                        report.problems.push(problem(kind, number, Some(name), reason));
                    }
                }
            }
            Err(_) if progress.is_cancelled() => return Err(RemoteError::Cancelled),
            Err(error) => {
                if let Some(broken) = failure.error(&key, &place.address().to_string()) {
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
                report.problems.push(problem(kind, number, Some(name), error.to_string()));
            }
        }
    }
    for number in held.numbers() {
        let id = held.id(number).map_err(ArchiveError::from)?;
        let reason = match held.chain(&id) {
            Ok(_) if whole.contains(&number) => {
                report.available.push(number);
                continue;
            }
            Ok(chain) => match chain.iter().find(|name| !sound.contains(*name)) {
                Some(name) => format!("it needs {name}, which is of no use"),
                None => "its archives do not follow each other".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        report.problems.push(problem(RemoteProblemKind::BrokenChain, number, None, reason));
    }
    report.problems.sort_by_key(|problem| problem.snapshot);
    Ok(report)
}
