//! The entries that git's index stages, and whether two of them stage the same.
//!
//! git writes its index at a mere `git status`: times and inodes of files, and caches. Nothing of
//! the user's work is in these, so an index that stages the same is *touched* and not changed.

use super::is_in_git;
use crate::byte_path;
use crate::object::{ContentHash, Node};
use crate::path_text::to_path;
use crate::store::{ObjectSource, StoreError};
use crate::sys::Dir;
use crate::walk::{MAX_INDEX_BYTES, staged};

const INDEX: &[u8] = b"index";

/// The entries that an index stages, in one hash; `None` if that cannot be told.
///
/// # Errors
/// When its contents are missing or damaged.
pub(crate) fn staging(
    source: &dyn ObjectSource,
    index: Option<&Node>,
) -> Result<Option<ContentHash>, StoreError> {
    match index {
        Some(Node::File { size, hash, .. }) if *size <= MAX_INDEX_BYTES => {
            Ok(staged(&source.read(hash, MAX_INDEX_BYTES)?))
        }
        _ => Ok(None),
    }
}

/// The entries that the index at a path stages; `None` if they cannot be told, as where its
/// contents are damaged.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn staging_at(
    source: &dyn ObjectSource,
    path: &[u8],
    index: Option<&Node>,
) -> Result<Option<ContentHash>, StoreError> {
    match staging(source, index) {
        // A capture of the present state stores no contents.
        Err(StoreError::Missing { .. }) => Ok(staging_on_disk(path, index)),
        Err(error) if error.is_damage() => Ok(None),
        staged => staged,
    }
}

/// The entries that an index on the disk stages, if it still is the captured one.
fn staging_on_disk(path: &[u8], captured: Option<&Node>) -> Option<ContentHash> {
    let Some(Node::File { hash, .. }) = captured else { return None };
    let (above, name) = byte_path::split(path);
    let dir = Dir::open_no_symlinks(to_path(above)).ok()?;
    let bytes = dir.read(name, MAX_INDEX_BYTES).ok()?;
    staged(&bytes).filter(|_| ContentHash::of(&bytes) == *hash)
}

/// Whether a path is an index in a git directory that has other bytes and stages the same. An
/// index whose entries cannot be told is a change.
pub(crate) fn is_refreshed(
    source: &dyn ObjectSource,
    path: &[u8],
    old: Option<&Node>,
    new: Option<&Node>,
) -> bool {
    let (Some(Node::File { hash: before, .. }), Some(Node::File { hash: after, .. })) = (old, new)
    else {
        return false;
    };
    if before == after || byte_path::split(path).1 != INDEX || !is_in_git(path) {
        return false;
    }
    let staging = |index| staging_at(source, path, index).ok().flatten();
    staging(old).is_some_and(|old| staging(new) == Some(old))
}
