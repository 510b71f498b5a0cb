//! Where a mount must not be.

use std::path::{Path, PathBuf};

use super::BrowseError;
use crate::sys;

/// Refuses a mount inside a store, which would hide a part of it, and one around it, which would
/// hide all of it.
///
/// # Errors
/// [`BrowseError::OverlapsStore`].
pub fn check_place(directory: &Path, roots: &[PathBuf]) -> Result<(), BrowseError> {
    // The directory itself may be a link, or a dead mount that cannot be resolved.
    let places = [sys::canonical_parent(directory).ok(), sys::real_path(directory).ok()];
    for root in roots {
        let root = sys::real_path(root).unwrap_or_else(|_| absolute(root));
        for place in places.iter().flatten() {
            let why = if place.starts_with(&root) {
                "is inside the store"
            } else if root.starts_with(place) {
                "contains the store"
            } else {
                continue;
            };
            return Err(BrowseError::OverlapsStore { place: place.clone(), why, root });
        }
    }
    Ok(())
}

fn absolute(path: &Path) -> PathBuf {
    let current = sys::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    sys::plain_absolute(path, &current)
}
