//! After a pull, all that is here of a session is read, and what is lost is fetched.
//!
//! A pull takes from an archive what the store does not have. What the store has may be damaged.
//! So every object of the session is read, those of several sessions once. A damaged one goes into
//! quarantine, and then comes from the remote like any that is missing.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::RemoteError;
use super::inventory::Inventory;
use super::place::Place;
use super::pull::{PullReport, Pulling};
use crate::archive::{ArchiveError, Identities};
use crate::layout;
use crate::object::ContentHash;
use crate::progress::{Progress, wait_for};
use crate::snapshot::SessionDir;
use crate::store::{BadDisk, LocalStore};
use crate::verify::{DamagedObject, SnapshotCheck, Verifier, VerifyOptions, VerifyReport};

/// Verifies the pulled sessions in the store in `root`, and mends them from the remote. Sessions of
/// which every byte came from archives are not read again.
///
/// # Errors
/// When the store cannot be used, or somebody asked to stop. What cannot be mended is no error: it
/// is in the reports.
pub fn prove(
    place: &Place,
    inventory: &Inventory,
    reports: &mut [PullReport],
    root: &Path,
    identities: &Identities,
    progress: &dyn Progress,
) -> Result<(), RemoteError> {
    let unread = reports.iter_mut().filter(|report| !report.is_verified);
    let mut unread: Vec<&mut PullReport> = unread.collect();
    let ids: Vec<String> = unread.iter().map(|report| report.received.session_id.clone()).collect();
    let found = look(root, &ids, progress)?;
    for ((report, id), found) in unread.iter_mut().zip(&ids).zip(found) {
        let Some(held) = inventory.sessions.get(id) else { continue };
        let pulling = Pulling {
            place,
            held: held.clone(),
            cut_off: inventory.cut_off_of(id),
            session: id,
            root,
            identities,
            progress,
            takes_held: true,
        };
        mend(pulling, found, report)?;
    }
    Ok(())
}

/// Fetches what is lost of a session, until it is whole or nothing more comes.
fn mend(
    mut pulling: Pulling<'_>,
    mut found: Found,
    report: &mut PullReport,
) -> Result<(), RemoteError> {
    let (root, progress) = (pulling.root, pulling.progress);
    let mut are_packs_whole = false;
    loop {
        let Found { verified, damaged } = &found;
        report.is_verified = verified.ok;
        if verified.ok {
            return Ok(());
        }
        if !are_packs_whole {
            are_packs_whole = true;
            if let Err(error) = set_aside(root, [], progress) {
                return unmended(error, report);
            }
            let Some(again) = look_at(root, pulling.session, progress)? else { return Ok(()) };
            found = again;
            continue;
        }
        let is_damaged = |number: &u64| {
            let needs = |object: &DamagedObject| object.snapshots.contains(number);
            let is_lost = |it: &SnapshotCheck| it.number == *number && !it.ok;
            damaged.iter().any(needs) || verified.snapshots.iter().any(is_lost)
        };
        let numbers: BTreeSet<u64> =
            pulling.held.numbers().into_iter().filter(is_damaged).collect();
        let problem = verified.problems.first().map(ToString::to_string);
        if numbers.is_empty() {
            report.damage = problem;
            return Ok(());
        }
        // An object that cannot be read now may be whole.
        let lost = damaged.iter().filter(|object| !object.is_unreadable);
        let lost = lost.map(|object| object.hash);
        let fetched = set_aside(root, lost, progress).and_then(|()| pulling.fetch(numbers));
        let came = match fetched {
            Ok(fetched) => fetched.received.objects_written,
            Err(error) => return unmended(error, report),
        };
        if came == 0 {
            report.damage = problem;
            return Ok(());
        }
        report.mended += came;
        // A list of a directory that is whole again shows what is damaged below it.
        let Some(again) = look_at(root, pulling.session, progress)? else { return Ok(()) };
        found = again;
    }
}

/// What keeps one session from being mended keeps no other one.
fn unmended(error: RemoteError, report: &mut PullReport) -> Result<(), RemoteError> {
    if error.is_cancelled() {
        return Err(error);
    }
    report.damage = Some(error.to_string());
    Ok(())
}

/// What a verification found.
struct Found {
    verified: VerifyReport,
    damaged: Vec<DamagedObject>,
}

fn look_at(
    root: &Path,
    session: &str,
    progress: &dyn Progress,
) -> Result<Option<Found>, RemoteError> {
    Ok(look(root, &[session.to_owned()], progress)?.pop())
}

/// Verifies sessions, and lists their damaged objects.
fn look(root: &Path, ids: &[String], progress: &dyn Progress) -> Result<Vec<Found>, RemoteError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let store = LocalStore::open(&root.join(layout::OBJECTS)).map_err(ArchiveError::from)?;
    let options = VerifyOptions { progress, ..VerifyOptions::default() };
    let mut verifier = Verifier::new(&store, options)?;
    let mut found = Vec::new();
    for id in ids {
        let session = SessionDir::open(&root.join(id)).map_err(ArchiveError::from)?;
        let verified = verifier.session(&session)?;
        let damaged = match verified.ok {
            true => Vec::new(),
            false => verifier.damaged_objects(&session)?,
        };
        found.push(Found { verified, damaged });
    }
    Ok(found)
}

/// Moves damaged packs of the store in `root` into quarantine, after their whole objects were
/// copied, and these damaged objects.
///
/// # Errors
/// When one cannot be moved, or somebody asked to stop.
pub(super) fn set_aside(
    root: &Path,
    damaged: impl IntoIterator<Item = ContentHash>,
    progress: &dyn Progress,
) -> Result<(), RemoteError> {
    let moved = (|| {
        let store = LocalStore::open(&root.join(layout::OBJECTS))?;
        let lock = wait_for(progress, || store.try_lock_exclusive())?;
        let lock = lock.ok_or(ArchiveError::Cancelled)?;
        // No stat cache may vouch any more for what is damaged.
        store.outdate_generation()?;
        store.salvage_packs(BadDisk::TakeTheRest, progress, &lock)?;
        for hash in damaged {
            store.quarantine(&hash, &lock)?;
        }
        Ok::<_, ArchiveError>(store.purge_packs(&lock)?)
    })();
    Ok(moved?)
}
