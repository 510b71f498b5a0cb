//! Damaged archives of a remote go, so that the next push stores them again.
//!
//! A push counts an archive by its name, so a damaged one keeps a sound one out. A damaged archive
//! may still be the last that is left of a snapshot: `tar` reads what comes before its damage. So
//! it goes where nothing is lost with it:
//!
//! - Another archive at the remote gives the snapshot back, or the store here holds the snapshot,
//!   whole and of the same history, so that a push stores it again.
//! - It was found damaged twice: when the remote was verified, and again before it goes. So no
//!   archive goes for a fault of the network, or after another machine has mended the remote.
//!
//! An archive that no key here opens, or that says that it is another one, always stays.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use super::agreement::{Agreement, compare, compare_all};
use super::archives::Archives;
use super::check::{CheckReport, RemoteProblemKind, check};
use super::error::RemoteError;
use super::inventory::Inventory;
use super::place::Place;
use crate::{ArchiveError, ArchiveName, Identities};
use nono_engine::layout;
use nono_engine::progress::Progress;
use nono_engine::snapshot::SessionDir;
use nono_engine::store::LocalStore;
use nono_engine::verify::{Verifier, VerifyOptions};

/// A damaged archive that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StayingArchive {
    /// Its name.
    pub archive: String,
    /// Why it stays.
    pub reason: String,
}

/// The fate of the damaged archives of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamageReport {
    /// Archives that may go, deltas before what they depend on.
    pub going: Vec<ArchiveName>,
    /// Archives that stay.
    pub staying: Vec<StayingArchive>,
}

/// Sorts the damaged archives of a session by whether a push from the store in `root` can replace
/// them.
///
/// # Errors
/// When the place or the store cannot be read, or it is stopped.
pub fn replaceable(
    place: &Place,
    inventory: &Inventory,
    session: &str,
    checked: &CheckReport,
    root: &Path,
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<DamageReport, RemoteError> {
    let mut report = DamageReport::default();
    let held = &inventory.archives.with_parents(session);
    let damaged = damaged(held, session, &inventory.cut_off_of(session), checked);
    if damaged.is_empty() {
        return Ok(report);
    }
    let mut sound = held.clone();
    damaged.iter().for_each(|name| sound.forget(name));
    let mut here = None;
    for name in damaged.into_iter().rev() {
        let number = name.id.number();
        if checked.available.contains(&number) {
            report.going.push(name);
            continue;
        }
        let here = match &mut here {
            Some(here) => here,
            none => none.insert(Here::look(place, &sound, session, root, identities, progress)?),
        };
        match here.why_not(place, held, &name, identities, progress)? {
            None => report.going.push(name),
            Some(reason) => {
                report.staying.push(StayingArchive { archive: name.to_string(), reason });
            }
        }
    }
    Ok(report)
}

/// Removes archives of a session that are still damaged. `each` is told about each of them.
///
/// # Errors
/// When the place does not answer, or it is stopped. The archives before are removed.
pub fn remove_damaged(
    place: &Place,
    session: &str,
    going: &[ArchiveName],
    identities: &Identities,
    progress: &dyn Progress,
    each: &mut dyn FnMut(&ArchiveName),
) -> Result<(), RemoteError> {
    let sessions = BTreeSet::from([session.to_owned()]);
    let inventory = Inventory::of_sessions(place, &sessions, progress)?;
    let held = &inventory.archives;
    let checked = check(place, held, &sessions, identities, progress)?;
    let checked = checked.get(session).cloned().unwrap_or_default();
    let damaged = damaged(held, session, &inventory.cut_off_of(session), &checked);
    for name in going.iter().filter(|name| damaged.contains(name)) {
        place.remove(&name.to_string(), progress)?;
        each(name);
    }
    Ok(())
}

/// The archives that a check found damaged, and those that are too short.
fn damaged(
    held: &Archives,
    session: &str,
    cut_off: &[ArchiveName],
    checked: &CheckReport,
) -> BTreeSet<ArchiveName> {
    let problems = checked.problems.iter();
    let problems = problems.filter(|it| it.kind == RemoteProblemKind::DamagedArchive);
    let names: BTreeSet<&str> = problems.filter_map(|it| it.archive.as_deref()).collect();
    let read = held.of_session(session).map(|(name, _)| name);
    let read = read.filter(|name| names.contains(name.to_string().as_str()));
    read.chain(cut_off).cloned().collect()
}

/// The part of a session that the store here has.
enum Here {
    /// Its snapshots that are whole. The history at the remote is the one here, as far as sound
    /// archives tell.
    Snapshots { chain: Vec<nono_engine::object::ContentHash>, whole: BTreeSet<u64> },
    /// Nothing that could replace an archive, and why.
    Nothing(String),
}

impl Here {
    fn look(
        place: &Place,
        sound: &Archives,
        session: &str,
        root: &Path,
        identities: &Identities,
        progress: &dyn Progress,
    ) -> Result<Self, RemoteError> {
        let Ok(dir) = SessionDir::open(&root.join(session)) else {
            return Ok(Self::Nothing("its session is not in the store here".to_owned()));
        };
        let chain = match dir.chain() {
            Ok(chain) => chain.iter().map(|one| one.hash).collect::<Vec<_>>(),
            Err(error) => return Ok(Self::Nothing(error.to_string())),
        };
        if let Agreement::Other(number) =
            compare(place, sound, session, &chain, identities, progress)?
        {
            let reason = format!("snapshot {number} there is of another history than the one here");
            return Ok(Self::Nothing(reason));
        }
        let store = LocalStore::open(&root.join(layout::OBJECTS)).map_err(ArchiveError::from)?;
        let options = VerifyOptions { progress, ..VerifyOptions::default() };
        let verified = Verifier::new(&store, options)?.session(&dir)?;
        let whole = verified.snapshots.iter().filter(|it| it.ok && it.removed.is_none());
        Ok(Self::Snapshots { chain, whole: whole.map(|it| it.number).collect() })
    }

    /// Why a push from here cannot replace an archive; `None` if it can.
    fn why_not(
        &self,
        place: &Place,
        held: &Archives,
        name: &ArchiveName,
        identities: &Identities,
        progress: &dyn Progress,
    ) -> Result<Option<String>, RemoteError> {
        let (chain, whole) = match self {
            Self::Nothing(reason) => return Ok(Some(reason.clone())),
            Self::Snapshots { chain, whole } => (chain, whole),
        };
        let number = name.id.number();
        if !whole.contains(&number) {
            return Ok(Some(format!("the store here does not hold snapshot {number} whole")));
        }
        // Its beginning may be whole, and tell of which history it is.
        let found = compare_all(place, held.of_snapshot(&name.id), chain, identities, progress)?;
        Ok(match found {
            Some(Agreement::Other(_)) => {
                Some("it is of another history than the one here".to_owned())
            }
            _ => None,
        })
    }
}
