//! New paths of a state that were not captured: no comparison of trees shows them.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Lookup;
use crate::manifest::{
    LeftOutState, NotCaptured, NotCapturedReason, NotCapturedSet, SnapshotManifest,
};
use crate::path_text::to_path;
use crate::store::{ObjectSource, StoreError, read_root_tree};
use crate::walk::{PACKAGE_BESIDE, makers_mark};

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

/// Whether something that was left out is a directory that a program makes again, as
/// `is_rebuildable` says or as git's rules proved when it was left out.
pub fn can_be_made_again(left: &NotCaptured, before: &mut Lookup<'_>) -> Result<bool, StoreError> {
    let by_rules = matches!(left.state, Some(LeftOutState::Rebuildable { mark: None, .. }));
    let is_excluded = matches!(left.reason, NotCapturedReason::Excluded { .. });
    Ok(is_excluded && (by_rules || is_rebuildable(&left.path, before)?))
}

/// Whether a directory that is there now can be made again after its surroundings are as they were
/// `before`: a mark that lies beside it has to be there then.
fn is_rebuildable(path: &Path, before: &mut Lookup<'_>) -> Result<bool, StoreError> {
    match (makers_mark(path), path.parent()) {
        (Some(PACKAGE_BESIDE), Some(parent)) => {
            let beside = parent.join(to_path(PACKAGE_BESIDE.as_bytes()));
            Ok(before.find(beside.as_os_str().as_bytes())?.is_some())
        }
        (mark, _) => Ok(mark.is_some()),
    }
}
