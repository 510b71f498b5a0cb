//! How much changed between two snapshots, without a list of it.

use super::{ChangeSummary, Told, differences, is_in_git, told_between};
use crate::manifest::{NotCapturedSet, SnapshotManifest};
use crate::store::{ObjectSource, StoreError};

/// Counts what a [`Comparison`](super::Comparison) tells. `None` once `goes_on`, which is asked
/// before each difference, says no: trees that were not captured can claim to hold more than there
/// are atoms.
///
/// # Errors
/// When a tree is missing or damaged.
pub fn count_changes(
    source: &dyn ObjectSource,
    old: &SnapshotManifest,
    new: &SnapshotManifest,
    mut goes_on: impl FnMut() -> bool,
) -> Result<Option<ChangeSummary>, StoreError> {
    let (old_set, new_set) = (NotCapturedSet::new(old), NotCapturedSet::new(new));
    let mut summary = ChangeSummary::default();
    for difference in differences(source, &old.merkle_root, &new.merkle_root)? {
        let difference = difference?;
        if !goes_on() {
            return Ok(None);
        }
        match told_between(&difference, &old_set, &new_set) {
            Some(Told::Change { change_type, is_directory, .. }) => {
                summary.add(&difference.path, change_type, is_directory);
            }
            Some(Told::Touched) => summary.touched += u64::from(!is_in_git(&difference.path)),
            None => {}
        }
    }
    Ok(Some(summary))
}
