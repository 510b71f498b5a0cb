//! Making small what was stored plain, because a user waited.

use std::path::Path;

use super::CleanupError;
use super::store_root::StoreRoot;
use crate::progress::Progress;
use crate::store::Compression;

/// Packs the long files of the store in `root` that were stored as they are. Others may use the
/// store meanwhile. Says how many bytes they had. Ends early when it is cancelled.
///
/// # Errors
/// When the store cannot be read or written. Nothing is lost then.
pub fn pack_long_files(
    root: &Path,
    compression: Compression,
    progress: &dyn Progress,
) -> Result<u64, CleanupError> {
    let root = StoreRoot::open(root)?;
    let Some((store, _)) = &root.store else { return Ok(0) };
    store.set_compression(compression);
    let packed = store.pack_long_files(progress)?;
    if packed.files > 0 {
        tracing::info!("packed {} long files, {} bytes", packed.files, packed.bytes);
    }
    Ok(packed.bytes)
}
