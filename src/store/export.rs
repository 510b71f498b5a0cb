//! How an object becomes a file again: checked while it is copied, holes kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::import::{RangeError, hash_object, hash_ranges};
use super::local::{LocalStore, ObjectFile};
use super::{StoreError, Transfer};
use crate::object::ContentHash;
use crate::sys;

/// Above this many bytes, sharing blocks is tried before copying.
const REFLINK_BYTES: u64 = 256 * 1024;

/// Fills the empty file `target` with an object. When this returns without an error, the bytes in
/// the file are the ones that the hash names.
pub(super) fn export(
    store: &LocalStore,
    hash: &ContentHash,
    size: u64,
    target: &File,
    transfer: &mut Transfer<'_>,
) -> Result<(), StoreError> {
    let object = store.open_object(hash)?;
    if object.size() != size {
        let reason = format!("it has {} bytes instead of {size}", object.size());
        return Err(StoreError::Corrupt { hash: *hash, path: object.path().to_owned(), reason });
    }
    let cloned = size > REFLINK_BYTES && sys::reflink(object.file(), target, object.path())?;
    let found = if cloned {
        // The clone is checked, so that what is restored is what was checked.
        hash_object(target, size, object.is_sparse(), transfer)
            .map_err(|error| error.at("read back", object.path()))?
    } else {
        copy(&object, target, transfer)?
    };
    if found == (*hash, size) { Ok(()) } else { Err(object.corrupt()) }
}

fn copy(
    object: &ObjectFile,
    target: &File,
    transfer: &mut Transfer<'_>,
) -> Result<(ContentHash, u64), StoreError> {
    let copied =
        hash_ranges(object.file(), object.size(), object.is_sparse(), transfer, |offset, bytes| {
            target.write_all_at(bytes, offset)
        });
    let written = |error: io::Error| sys::Error {
        operation: "write the contents of",
        path: object.path().to_owned(),
        source: error,
    };
    let copied = copied.map_err(|error| match error {
        RangeError::Read(source) => {
            sys::Error { operation: "read", path: object.path().to_owned(), source }.into()
        }
        RangeError::Copy(error) => written(error).into(),
        RangeError::Stopped => StoreError::Cancelled,
    })?;
    if object.is_sparse() {
        target.set_len(copied.1).map_err(written)?;
    }
    Ok(copied)
}
