//! How an object becomes a file again: checked while it is copied, holes kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::StoreError;
use super::import::{RangeError, hash_object, hash_ranges};
use super::local::{LocalStore, ObjectFile};
use crate::object::ContentHash;
use crate::sys::{self, IoContext};

/// Above this many bytes, sharing blocks is tried before copying.
const REFLINK_BYTES: u64 = 256 * 1024;
const CHUNK_BYTES: usize = 1 << 20;

/// Fills the empty file `target` with an object. When this returns without an error, the bytes in
/// the file are the ones that the hash names.
pub(super) fn export(
    store: &LocalStore,
    hash: &ContentHash,
    size: u64,
    target: &File,
    scratch: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let object = store.open_object(hash)?;
    if object.size() != size {
        let reason = format!("it has {} bytes instead of {size}", object.size());
        return Err(StoreError::Corrupt { hash: *hash, path: object.path().to_owned(), reason });
    }
    let cloned = size > REFLINK_BYTES && sys::reflink(object.file(), target, object.path())?;
    let found = if cloned {
        // The clone is checked, so that what is restored is what was checked.
        hash_object(target, size, object.is_sparse(), scratch).at("read back", object.path())?
    } else {
        copy(&object, target, scratch)?
    };
    if found == (*hash, size) { Ok(()) } else { Err(object.corrupt()) }
}

fn copy(
    object: &ObjectFile,
    target: &File,
    scratch: &mut Vec<u8>,
) -> Result<(ContentHash, u64), StoreError> {
    scratch.resize(CHUNK_BYTES, 0);
    let copied =
        hash_ranges(object.file(), object.size(), object.is_sparse(), scratch, |offset, bytes| {
            target.write_all_at(bytes, offset)
        });
    let written = |error: io::Error| sys::Error {
        operation: "write the contents of",
        path: object.path().to_owned(),
        source: error,
    };
    let copied = copied.map_err(|error| match error {
        RangeError::Read(source) => {
            sys::Error { operation: "read", path: object.path().to_owned(), source }
        }
        RangeError::Copy(error) => written(error),
    })?;
    if object.is_sparse() {
        target.set_len(copied.1).map_err(written)?;
    }
    Ok(copied)
}
