//! Taking a restore back: the steps of the journal, backward.
//!
//! The same for a step that failed and for a crash: which steps were taken is read from the disk.
//! A file that the restore put in place is only moved away if it is unchanged since; a user's
//! later edit stays, and the rest is reverted around it.

use std::io::ErrorKind;

use super::attributes;
use super::journal::{Staged, Step, Work};
use super::places::Place;
use super::plan::Skipped;
use super::staging::skipped;
use super::steps::{Changeable, Disk};
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::Node;
use crate::path_text::Shown;
use crate::store::StoreError;
use crate::sys::{self, FileKind};

/// Why a step could not be taken back, as a sentence.
type Failure = String;

/// Why not everything was taken back.
pub(super) enum Incomplete {
    /// These steps were not, the others were.
    Failed(Vec<Failure>),
    /// The caller asked to stop; to be called again.
    Stopped,
}

/// Undoes all steps, the last one first. Goes on after a failure, to bring back what it can.
/// Returns the attributes that an ordinary user may not set.
pub(super) fn take_back(disk: &mut Disk<'_, '_>, work: &Work) -> Result<Vec<Skipped>, Incomplete> {
    let (mut failures, mut denied) = (Vec::new(), Vec::new());
    disk.places.forget();
    undo_all(disk, &work.steps, &mut failures, &mut denied)?;
    disk.places.forget();
    // Modes that forbid writing, and times, last and deepest first: the contents are back now.
    let mut directories: Vec<(&[u8], &EntryState)> =
        work.steps.iter().filter_map(state_of_directory).collect();
    directories.sort_by_key(|(path, _)| std::cmp::Reverse(byte_path::depth(path)));
    for (path, current) in directories {
        let restored = disk.changeable(path, &[current]).and_then(|found| match found {
            Changeable::Yes(inode) => {
                Ok(attributes::apply(&inode, &current.attributes, &current.node)?)
            }
            Changeable::No => Ok(Vec::new()),
        });
        match restored {
            Ok(reasons) => denied.extend(skipped(path, reasons)),
            Err(error) => failures.push(error.to_string()),
        }
    }
    if failures.is_empty() { Ok(denied) } else { Err(Incomplete::Failed(failures)) }
}

/// The state before of a directory that the restore removes or changes.
fn state_of_directory(step: &Step) -> Option<(&[u8], &EntryState)> {
    let (path, current) = match step {
        Step::RemoveDirectory { path, current }
        | Step::Attributes { path, current: Some(current), .. } => (path, current),
        _ => return None,
    };
    matches!(current.node, Node::Directory { .. }).then_some((path, current))
}

fn undo_all(
    disk: &mut Disk<'_, '_>,
    steps: &[Step],
    failures: &mut Vec<Failure>,
    denied: &mut Vec<Skipped>,
) -> Result<(), Incomplete> {
    for step in steps.iter().rev() {
        let undone = match (disk.check_stopped(), step) {
            (Ok(()), Step::PlaceTree { path, staged, steps }) => match is_staged(disk, *staged) {
                // It was never in place: what is at its path is not the restore's.
                Ok(true) => undo_half_placed(disk, path, *staged).map(|()| None),
                Ok(false) => {
                    undo_all(disk, steps, failures, denied)?;
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            },
            (Ok(()), step) => undo(disk, step, denied),
            (Err(error), _) => Err(error),
        };
        match undone {
            Ok(None) => {}
            Ok(Some(failure)) => failures.push(failure),
            Err(StoreError::Cancelled) => return Err(Incomplete::Stopped),
            Err(error) => failures.push(error.to_string()),
        }
    }
    Ok(())
}

/// Takes back what a move of a staged name to its path left there when it was interrupted.
fn undo_half_placed(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    staged: Staged,
) -> Result<(), StoreError> {
    let (staging, name) = disk.staging(staged)?;
    let Some(place) = disk.try_place(path)? else { return Ok(()) };
    Ok(staging.undo_half_move(&name, &place.dir, &place.name)?)
}

fn is_staged(disk: &Disk<'_, '_>, staged: Staged) -> sys::Result<bool> {
    let (staging, name) = disk.staging(staged)?;
    Ok(staging.try_stat(&name)?.is_some())
}

fn undo(
    disk: &mut Disk<'_, '_>,
    step: &Step,
    denied: &mut Vec<Skipped>,
) -> Result<Option<Failure>, StoreError> {
    match step {
        Step::Remove { path, staged, .. } => undo_remove(disk, path, *staged),
        Step::RemoveDirectory { path, current } => undo_remove_directory(disk, path, current),
        Step::MakeDirectory { path } => undo_make_directory(disk, path),
        // Piece by piece.
        Step::PlaceTree { .. } => Ok(None),
        Step::Place { path, target, staged, ino } => undo_place(disk, path, target, *staged, *ino),
        Step::Exchange { path, target, staged, ino, .. } => {
            undo_exchange(disk, path, target, *staged, *ino)
        }
        Step::Attributes { path, current, target } => {
            undo_attributes(disk, path, current.as_deref(), target, denied)
        }
    }
}

fn undo_remove(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    staged: Staged,
) -> Result<Option<Failure>, StoreError> {
    let (staging, name) = disk.staging(staged)?;
    if staging.try_stat(&name)?.is_none() {
        return Ok(None);
    }
    let place = disk.writable_place(path)?;
    match staging.rename_new(&name, &place.dir, &place.name) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Some(in_the_way(path))),
        moved => Ok(moved.map(|()| None)?),
    }
}

fn undo_remove_directory(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    current: &EntryState,
) -> Result<Option<Failure>, StoreError> {
    let place = disk.writable_place(path)?;
    match place.dir.try_stat(&place.name)? {
        Some(stat) if stat.kind == FileKind::Directory => Ok(None),
        Some(_) => Ok(Some(in_the_way(path))),
        None => {
            // Its contents come back next, so it has to be writable for now.
            place.dir.make_dir(&place.name, current.attributes.mode | 0o700)?;
            Ok(None)
        }
    }
}

fn undo_make_directory(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
) -> Result<Option<Failure>, StoreError> {
    let Some(place) = disk.try_place(path)? else { return Ok(None) };
    match place.dir.try_stat(&place.name)? {
        Some(stat) if stat.kind == FileKind::Directory => {
            let removed = place.dir.remove_dir(&place.name);
            disk.places.forget();
            Ok(removed.map(|()| None)?)
        }
        _ => Ok(None),
    }
}

fn undo_place(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    target: &EntryState,
    staged: Staged,
    ino: u64,
) -> Result<Option<Failure>, StoreError> {
    let (staging, name) = disk.staging(staged)?;
    if staging.try_stat(&name)?.is_some() {
        return undo_half_placed(disk, path, staged).map(|()| None);
    }
    let Some(place) = disk.try_place(path)? else { return Ok(None) };
    if place.dir.try_stat(&place.name)?.is_none() {
        return Ok(None);
    }
    if !is_as_placed(disk, &place, target, ino)? {
        return Ok(Some(changed_since(path)));
    }
    place.dir.rename_to_own(&place.name, &staging, &name)?;
    Ok(None)
}

fn undo_exchange(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    target: &EntryState,
    staged: Staged,
    ino: u64,
) -> Result<Option<Failure>, StoreError> {
    let (staging, name) = disk.staging(staged)?;
    if let Some(place) = disk.try_place(path)? {
        if !staging.settle_exchange(&name, &place.dir, &place.name, ino)? {
            return Ok(Some(in_the_way(path)));
        }
        if staging.has_second_name(&name, &place.dir, &place.name)? {
            // The state before went back to the path, and its staged name stayed.
            staging.remove_file(&name)?;
            return Ok(None);
        }
    }
    match staging.try_stat(&name)? {
        Some(stat) if stat.ino == ino => return Ok(None),
        Some(_) => {}
        // Its state before went back to the path already, in a taking back that was interrupted.
        None => return Ok(None),
    }
    let place = disk.writable_place(path)?;
    if place.dir.try_stat(&place.name)?.is_none() {
        // Another process removed what the restore put there.
        staging.rename_new(&name, &place.dir, &place.name)?;
        return Ok(None);
    }
    if !is_as_placed(disk, &place, target, ino)? {
        return Ok(Some(changed_since(path)));
    }
    staging.exchange(&name, &place.dir, &place.name)?;
    Ok(None)
}

/// Whether what the restore put at a place is still there, in the state in which it was put.
fn is_as_placed(
    disk: &Disk<'_, '_>,
    place: &Place,
    target: &EntryState,
    ino: u64,
) -> Result<bool, StoreError> {
    Ok(disk.holds(place, target)?.is_some_and(|stat| stat.ino == ino))
}

fn undo_attributes(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    current: Option<&EntryState>,
    target: &EntryState,
    denied: &mut Vec<Skipped>,
) -> Result<Option<Failure>, StoreError> {
    let Some(current) = current else { return Ok(None) };
    if matches!(current.node, Node::Directory { .. }) {
        // At the very end.
        return Ok(None);
    }
    if let Changeable::Yes(inode) = disk.changeable(path, &[current, target])? {
        let reasons = attributes::apply(&inode, &current.attributes, &current.node)?;
        denied.extend(skipped(path, reasons));
        return Ok(None);
    }
    let Some(place) = disk.try_place(path)? else { return Ok(None) };
    let key = |mode, uid, gid| (mode, uid, gid);
    let Some(stat) = place.dir.try_stat(&place.name)? else { return Ok(None) };
    let (is, was) = (key(stat.mode, stat.uid, stat.gid), &current.attributes);
    // Edited since. The restore's attributes have to go, if it still has some of them.
    let is_ours = is != key(was.mode, was.uid, was.gid);
    Ok(is_ours.then(|| changed_since(path)))
}

fn in_the_way(path: &[u8]) -> Failure {
    format!("something new is at {}", Shown::bytes(path))
}

fn changed_since(path: &[u8]) -> Failure {
    format!("{} was changed since", Shown::bytes(path))
}
