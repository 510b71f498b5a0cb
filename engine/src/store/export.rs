//! How an object becomes a file again: checked while it is copied, holes kept.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::import::{Hashed, RangeError, hash_object, hash_ranges};
use super::{LocalStore, ObjectFile};
use super::{StoreError, Transfer};
use crate::object::ContentHash;
use crate::sys;

/// Above this many bytes, sharing blocks is tried before copying.
const REFLINK_BYTES: u64 = 256 * 1024;

/// Fills the empty file `target` with an object. After a return without an error, the bytes in the
/// file have the object's hash. Any intact copy of the object will do.
pub(super) fn export(
    store: &LocalStore,
    hash: &ContentHash,
    size: u64,
    target: &File,
    transfer: &mut Transfer<'_>,
) -> Result<(), StoreError> {
    let first = store.open_object(hash);
    let damage = match first.and_then(|object| export_copy(&object, size, target, transfer)) {
        Err(error) if error.is_damage() || error.is_bad_disk() => error,
        exported => return exported,
    };
    for copy in store.copies(hash)?.filter(|copy| copy.size() == size) {
        target.set_len(0).map_err(|source| failed_write(store.path(), source))?;
        match export_copy(&copy, size, target, transfer) {
            Err(error) if error.is_damage() || error.is_bad_disk() => {}
            exported => return exported,
        }
    }
    Err(damage)
}

fn export_copy(
    object: &ObjectFile,
    size: u64,
    target: &File,
    transfer: &mut Transfer<'_>,
) -> Result<(), StoreError> {
    let hash = &object.hash();
    object.check_size(size)?;
    let is_intact = match object.file() {
        None if !object.is_chunked() => copy_small(object, target, transfer)? == (*hash, size),
        None => copy(object, target, transfer)?.is(hash, size),
        Some(file) if size > REFLINK_BYTES && sys::reflink(file, target, object.path())? => {
            // The clone is checked, so that what is restored is what was checked.
            hash_object(target, size, object.is_sparse(), transfer)
                .map_err(|error| error.at("read back", object.path()))?
                .is(hash, size)
        }
        Some(_) => copy(object, target, transfer)?.is(hash, size),
    };
    if is_intact { Ok(()) } else { Err(object.corrupt()) }
}

fn copy_small(
    object: &ObjectFile,
    target: &File,
    transfer: &mut Transfer<'_>,
) -> Result<(ContentHash, u64), StoreError> {
    object.read_whole(transfer.buffer)?;
    let found = (ContentHash::of(transfer.buffer), transfer.buffer.len() as u64);
    target.write_all_at(transfer.buffer, 0).map_err(|error| failed_write(object.path(), error))?;
    Ok(found)
}

fn failed_write(from: &Path, source: io::Error) -> sys::Error {
    sys::Error { operation: "write the contents of", path: from.to_owned(), source }
}

fn copy(
    object: &ObjectFile,
    target: &File,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, StoreError> {
    // Chunks know no holes that are shorter than they are.
    let keeps_holes = object.is_sparse() && object.is_chunked();
    let copied = hash_ranges(object, object.size(), transfer, |offset, bytes| match keeps_holes {
        true => write_data(target, bytes, offset),
        false => target.write_all_at(bytes, offset),
    });
    let copied = copied.map_err(|error| match error {
        RangeError::Read(source) => {
            sys::Error { operation: "read", path: object.path().to_owned(), source }.into()
        }
        RangeError::Copy(error) => failed_write(object.path(), error).into(),
        RangeError::Stopped => StoreError::Cancelled,
    })?;
    if object.is_sparse() {
        target.set_len(copied.size).map_err(|error| failed_write(object.path(), error))?;
    }
    Ok(copied)
}

/// Blocks of a file system, in bytes.
const BLOCK_BYTES: usize = 4096;

/// Writes what is no block of zeros.
fn write_data(target: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let is_data = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
    let blocks: Vec<_> = bytes.chunks(BLOCK_BYTES).collect();
    let mut at = 0;
    for same in blocks.chunk_by(|one, other| is_data(one) == is_data(other)) {
        let len: usize = same.iter().map(|block| block.len()).sum();
        if same.first().is_some_and(is_data) {
            target.write_all_at(&bytes[at..at + len], offset + at as u64)?;
        }
        at += len;
    }
    Ok(())
}
