//! Whether a snapshot holds all that is about to go.

use super::RestoreError;
use crate::{ContainerHistory, VOLUMES_PATH};
use nono_engine::path_text::Shown;
use nono_engine::snapshot::VolumeSource;

/// Refuses a snapshot in which a part of these volumes is missing, or from different moments.
///
/// # Errors
/// [`RestoreError::Refused`] with the first such path.
pub(super) fn whole(
    history: &ContainerHistory<'_>,
    number: u64,
    trees: &[&str],
) -> Result<(), RestoreError> {
    let manifest = history.manifest(number)?;
    let refused = |path: &std::path::Path, why: &str| RestoreError::Refused {
        snapshot: format!("{}/{number}", history.id()),
        reason: format!(
            "the present state cannot be recorded whole, and stays: {}: {why}",
            Shown::path(path)
        ),
    };
    let is_meant = |path: &std::path::Path| {
        trees.iter().any(|tree| path.starts_with(format!("{VOLUMES_PATH}/{tree}")))
    };
    let mut left = manifest.not_captured.iter();
    if let Some(left) = left.find(|left| left.reason.is_problem() && is_meant(&left.path)) {
        return Err(refused(&left.path, &left.reason.to_string()));
    }
    match manifest.unstable.iter().find(|path| is_meant(path)) {
        Some(path) => Err(refused(path, "it changes while it is read")),
        None => Ok(()),
    }
}

/// The same, and refuses one of tar streams: a directory has more than they carry.
///
/// # Errors
/// As there.
pub(super) fn whole_from_directories(
    history: &ContainerHistory<'_>,
    number: u64,
    trees: &[&str],
) -> Result<(), RestoreError> {
    if history.record(number)?.volume_source != Some(VolumeSource::Directory) {
        return Err(RestoreError::Refused {
            snapshot: format!("{}/{number}", history.id()),
            reason: "the present state can be recorded through the engine alone, which leaves out \
                     extended attributes and more"
                .to_owned(),
        });
    }
    whole(history, number, trees)
}
