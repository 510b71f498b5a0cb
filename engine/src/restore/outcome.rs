//! The state that a recovery left on the disk, and whether it is the requested one.
//!
//! Between the interruption and the recovery users may have worked on. Their work stays; but then
//! the state on the disk is neither of the two that a recovery can bring about, and the report says
//! so.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::commit::CHANGED_SINCE;
use super::journal::{Step, Work};
use super::plan::Skipped;
use super::recover::Recovery;
use super::steps::Disk;
use crate::diff::EntryState;
use crate::object::Node;
use crate::path_text::to_path;
use crate::store::StoreError;
use crate::sys::FileKind;

/// The paths of a restore that are not as they should be after going `way`, without those that are
/// `known` to be different.
pub(super) fn different(
    disk: &mut Disk<'_, '_>,
    work: &Work,
    way: Recovery,
    known: &[Skipped],
) -> Result<Vec<Skipped>, StoreError> {
    disk.places.forget();
    let mut wanted: BTreeMap<&[u8], Option<&EntryState>> = BTreeMap::new();
    for step in work.steps.iter().flat_map(Step::pieces) {
        let path = step.path();
        match (way, step) {
            (Recovery::Finish, Step::MakeDirectory { .. }) => {}
            (Recovery::Finish, _) => {
                wanted.insert(path, step.states().1.map(Arc::as_ref));
            }
            // The first step of a path knows what was there before.
            (Recovery::TakeBack, _) => {
                wanted.entry(path).or_insert(step.states().0.map(Arc::as_ref));
            }
        }
    }
    for skipped in known {
        wanted.remove(std::os::unix::ffi::OsStrExt::as_bytes(skipped.path.as_os_str()));
    }
    let mut found = Vec::new();
    for (path, state) in wanted {
        if !is_as_wanted(disk, path, state)? {
            let (path, reason) = (to_path(path).to_owned(), CHANGED_SINCE.to_owned());
            found.push(Skipped { path, reason });
        }
    }
    Ok(found)
}

fn is_as_wanted(
    disk: &mut Disk<'_, '_>,
    path: &[u8],
    state: Option<&EntryState>,
) -> Result<bool, StoreError> {
    let place = match disk.places.find(path) {
        Ok(place) => place,
        // Nothing is there.
        Err(error) if error.is_gone() || error.is_symlink_in_path() => return Ok(state.is_none()),
        Err(error) => return Err(error.into()),
    };
    let stat = place.dir.try_stat(&place.name)?;
    let (Some(state), Some(stat)) = (state, stat) else {
        return Ok(state.is_none() && stat.is_none());
    };
    let is_same = match &state.node {
        Node::Directory { .. } => stat.kind == FileKind::Directory,
        _ => disk.holds(&place, state)?.is_some(),
    };
    let wanted = &state.attributes;
    let is_mode_same = stat.kind == FileKind::Symlink || stat.mode == wanted.mode;
    Ok(is_same && is_mode_same && (stat.uid, stat.gid) == (wanted.uid, wanted.gid))
}
