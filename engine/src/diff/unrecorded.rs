//! New paths of a state that were not captured: no comparison of trees shows them.

use super::Lookup;
use crate::manifest::{
    LeftOutState, NotCaptured, NotCapturedReason, NotCapturedSet, SnapshotManifest,
};
use crate::path_text::to_path;
use crate::store::{ObjectSource, StoreError, read_root_tree};
use crate::walk::{LOCK_BESIDE, Marks, mark_in};
use std::os::unix::ffi::OsStrExt;

/// Left-out paths of a later state that did not exist in an earlier snapshot, by its own record:
/// they stay if that snapshot is restored.
///
/// # Errors
/// When a tree of the earlier snapshot is missing or damaged.
pub fn unrecorded<'a>(
    store: &dyn ObjectSource,
    earlier: &SnapshotManifest,
    left_out: &'a [NotCaptured],
) -> Result<Vec<&'a NotCaptured>, StoreError> {
    let root = read_root_tree(store, &earlier.merkle_root)?;
    new_among(left_out, &NotCapturedSet::new(earlier), &mut Lookup::new(store, &root))
}

/// As [`unrecorded`], for whoever has looked at the earlier snapshot already.
pub fn new_among<'a>(
    left_out: &'a [NotCaptured],
    earlier: &NotCapturedSet<'_>,
    before: &mut Lookup<'_>,
) -> Result<Vec<&'a NotCaptured>, StoreError> {
    let mut new = Vec::new();
    for left in left_out {
        let path = left.path.as_os_str().as_bytes();
        // The entry of a socket or a device is in the trees.
        if left.reason != NotCapturedReason::Special
            && earlier.knows(path)
            && before.find(path)?.is_none()
        {
            new.push(left);
        }
    }
    Ok(new)
}

/// Whether something that was left out is made again by a program, as its maker's mark says at this
/// moment or as git's rules proved when it was left out.
///
/// # Errors
/// When a tree of the earlier snapshot is missing or damaged.
pub fn can_be_made_again(
    left: &NotCaptured,
    before: &mut Lookup<'_>,
    marks: &mut Marks,
) -> Result<bool, StoreError> {
    let NotCapturedReason::Excluded { rule } = &left.reason else { return Ok(false) };
    if matches!(left.state, Some(LeftOutState::Rebuildable { mark: None, .. })) {
        return Ok(true);
    }
    let is_by_mark = mark_in(rule).is_some();
    let is_proved = is_by_mark || left.is_rebuildable();
    let Some((mark, dir)) = marks.covering(&left.path, is_proved, is_by_mark) else {
        return Ok(false);
    };
    // A mark that lies beside the directory has to be there after its surroundings are as before.
    if mark != LOCK_BESIDE {
        return Ok(true);
    }
    let beside = dir.with_file_name(to_path(LOCK_BESIDE.as_bytes()));
    Ok(before.find(beside.as_os_str().as_bytes())?.is_some())
}
