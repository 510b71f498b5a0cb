//! A little space that a store keeps for the day on which its disk is full.
//!
//! A restore overwrites nothing before its journal is written. On a disk without a free byte that
//! would keep everybody from going back, also to states that are all in the store. So a file beside
//! the stat caches occupies what a journal of some hundred steps takes, and goes when a restore
//! finds no space; the caches follow if that is not enough. The next snapshot that finds space
//! makes it again.

use crate::layout;
use crate::object::ContentHash;
use crate::stat_cache::is_cache_name;
use crate::sys::Dir;

/// Twice a journal, because one is written beside the other.
const BYTES: usize = 1 << 16;
const NAME: &[u8] = layout::RESERVE.as_bytes();

/// Makes the reserve, unless it is there. Without space there is none, and that is no failure.
pub(super) fn keep(index: &Dir) {
    if !matches!(index.try_stat(NAME), Ok(None)) {
        return;
    }
    // Bytes that no file system can compress or find twice.
    let seed = index.path().as_os_str().as_encoded_bytes();
    let mut next = ContentHash::of(seed);
    let mut bytes = Vec::with_capacity(BYTES);
    while bytes.len() < BYTES {
        bytes.extend_from_slice(next.as_bytes());
        next = ContentHash::of(next.as_bytes());
    }
    if let Err(error) = index.replace_file(NAME, &bytes, 0o600, false) {
        tracing::debug!("no space is kept in reserve: {error}");
    }
}

/// Gives back the reserve or, when that is gone, a stat cache, which saves nothing but time.
/// `false`: there is nothing more to give.
pub(super) fn give_back(index: &Dir) -> bool {
    if index.remove_file(NAME).is_ok() {
        return true;
    }
    let names = index.names().unwrap_or_default();
    let mut caches = names.iter().filter(|listed| is_cache_name(&listed.name));
    // One after the other, as long as that is not enough.
    caches.any(|listed| index.remove_file(&listed.name).is_ok())
}
