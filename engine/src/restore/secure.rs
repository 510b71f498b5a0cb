//! Before anything is overwritten: is what is on the disk really in the store?
//!
//! A capture trusts the stat cache, and the store trusts names. Both can be wrong: a page that was
//! written through a mapping moves no time, and an object can be damaged or removed behind the
//! store's back. So each file that a restore is about to replace or remove is read once more, and
//! its object is checked. A missing or damaged object is stored again from the file that still has
//! the bytes. That costs the size of the changes, not of the tree.

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;

use super::RestoreError;
use super::places::Places;
use super::plan::RestorePlan;
use crate::diff::EntryState;
use crate::object::Node;
use crate::progress::{Amount, Progress, Stage, Uncounted};
use crate::store::{LocalStore, Transfer};
use crate::sys::{FileKind, Stat};

/// Whether every file that the plan replaces or removes is in the store, byte for byte. `false`:
/// one of them is not as it was captured, so the capture has to be made again without the cache.
pub(super) fn is_everything_stored(
    store: &LocalStore,
    plan: &RestorePlan,
    places: &mut Places<'_>,
    progress: &dyn Progress,
) -> Result<bool, RestoreError> {
    let replacing = replacing(plan);
    let bytes = replacing.clone().map(|(_, current)| current.bytes());
    let bytes = bytes.fold(0, u64::saturating_add);
    let expected = Amount { entries: replacing.clone().count() as u64, bytes };
    progress.begin(Stage::Compare, Some(expected));
    let mut buffer = Vec::new();
    let uncounted = Uncounted(progress);
    for (path, current) in replacing {
        if progress.is_cancelled() {
            return Err(RestoreError::Cancelled);
        }
        let mut transfer = Transfer::new(&mut buffer, &uncounted);
        if !is_stored(store, path, current, places, &mut transfer)? {
            return Ok(false);
        }
        progress.advance(1, current.bytes());
    }
    Ok(true)
}

/// Files that the plan replaces or removes and that are not in the store, byte for byte. Writes
/// nothing.
pub(super) fn not_stored(
    store: &LocalStore,
    plan: &RestorePlan,
    places: &mut Places<'_>,
    progress: &dyn Progress,
) -> Result<HashSet<Vec<u8>>, RestoreError> {
    let mut found = HashSet::new();
    let mut buffer = Vec::new();
    let uncounted = Uncounted(progress);
    for (path, current) in replacing(plan) {
        if progress.is_cancelled() {
            return Err(RestoreError::Cancelled);
        }
        let Node::File { hash, .. } = &current.node else { continue };
        let mut transfer = Transfer::new(&mut buffer, &uncounted);
        let is_stored = match open(path, places)? {
            Some((file, stat)) => store.holds(hash, &file, &stat, &mut transfer)?,
            None => false,
        };
        if !is_stored {
            found.insert(path.clone());
        }
    }
    Ok(found)
}

/// The paths that the plan replaces or removes.
fn replacing(plan: &RestorePlan) -> impl Iterator<Item = (&Vec<u8>, &Arc<EntryState>)> + Clone {
    let removed = plan.actions.removals.iter().map(|removal| (&removal.path, &removal.current));
    let replaced =
        plan.actions.puts.iter().filter_map(|put| Some((&put.path, put.current.as_ref()?)));
    removed.chain(replaced)
}

fn is_stored(
    store: &LocalStore,
    path: &[u8],
    current: &EntryState,
    places: &mut Places<'_>,
    transfer: &mut Transfer<'_>,
) -> Result<bool, RestoreError> {
    let Node::File { hash, .. } = &current.node else { return Ok(true) };
    Ok(match open(path, places)? {
        Some((file, stat)) => store.keep(hash, &file, &stat, transfer)?,
        None => false,
    })
}

/// The file at a path, if one is there.
fn open(path: &[u8], places: &mut Places<'_>) -> Result<Option<(File, Stat)>, RestoreError> {
    let place = places.find(path)?;
    let file = match place.dir.open_file(&place.name, true) {
        Ok(file) => file,
        Err(error) if error.is_gone() || error.is_symlink_in_path() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = place.dir.stat_file(&file, &place.name)?;
    Ok((stat.kind == FileKind::File).then_some((file, stat)))
}
