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
use crate::{ArchiveError, Identities};
use nono_engine::layout;
use nono_engine::object::ContentHash;
use nono_engine::progress::{Progress, wait_for};
use nono_engine::snapshot::SessionDir;
use nono_engine::store::{BadDisk, LocalStore};
use nono_engine::verify::{DamagedObject, SnapshotCheck, Verifier, VerifyOptions, VerifyReport};

/// Verifies the pulled sessions in the store in `root`, and mends them from the remote. Sessions of
/// which every byte came from archives are not read again.
///
/// # Errors
/// When the store cannot be used, or the caller asked to stop. Lasting damage is no error: it
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
        if inventory.archives.of_session(id).next().is_none() {
            continue;
        }
        let pulling = Pulling {
            place,
            held: inventory.archives.with_parents(id),
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
    loop {
        let Found { verified, damaged } = &found;
        report.is_verified = verified.ok;
        if verified.ok {
            return Ok(());
        }
        let is_damaged = |number: &u64| {
            let needs = |object: &DamagedObject| object.snapshots.contains(number);
            let is_lost = |it: &SnapshotCheck| it.number == *number && !it.ok;
            damaged.iter().any(needs) || verified.snapshots.iter().any(is_lost)
        };
        let numbers: BTreeSet<u64> =
            pulling.held.numbers(pulling.session).into_iter().filter(is_damaged).collect();
        let problem = verified.problems.first().map(ToString::to_string);
        // An object that cannot be read now may be whole.
        let lost = damaged.iter().filter(|object| !object.is_unreadable);
        let lost = lost.map(|object| object.hash);
        let mended = set_aside(root, lost, progress).and_then(|has_new_packs| {
            let came = match numbers.is_empty() {
                true => 0,
                false => {
                    let fetched = pulling.fetch(numbers)?;
                    report.archives_read += fetched.archives_read;
                    report.bytes_read += fetched.bytes_read;
                    fetched.received.objects_written
                }
            };
            Ok((came, has_new_packs))
        });
        let (came, has_new_packs) = match mended {
            Ok(mended) => mended,
            Err(error) => return unmended(error, report),
        };
        if came == 0 && !has_new_packs {
            report.damage = problem;
            return Ok(());
        }
        report.mended += came;
        // A list of a directory that is whole again shows what is damaged below it.
        let ids = [pulling.session.to_owned()];
        let Some(again) = look(root, &ids, progress)?.pop() else { return Ok(()) };
        found = again;
    }
}

/// An error of one session keeps no other one from being mended.
fn unmended(error: RemoteError, report: &mut PullReport) -> Result<(), RemoteError> {
    if error.is_cancelled() {
        return Err(error);
    }
    report.damage = Some(error.to_string());
    Ok(())
}

/// The findings of a verification.
struct Found {
    verified: VerifyReport,
    damaged: Vec<DamagedObject>,
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
/// copied, and these damaged objects. Returns whether packs were moved.
///
/// # Errors
/// When one cannot be moved, or the caller asked to stop.
pub(super) fn set_aside(
    root: &Path,
    damaged: impl IntoIterator<Item = ContentHash>,
    progress: &dyn Progress,
) -> Result<bool, RemoteError> {
    let moved = (|| {
        let store = LocalStore::open(&root.join(layout::OBJECTS))?;
        let lock = wait_for(progress, || store.try_lock_exclusive())?;
        let lock = lock.ok_or(ArchiveError::Cancelled)?;
        // No stat cache may vouch any more for what is damaged.
        store.outdate_generation()?;
        let salvaged = store.salvage_packs(BadDisk::TakeTheRest, progress, &lock)?;
        for hash in damaged {
            store.quarantine(&hash, &lock)?;
        }
        store.purge_packs(&lock)?;
        Ok::<_, ArchiveError>(!salvaged.set_aside.is_empty())
    })();
    Ok(moved?)
}
