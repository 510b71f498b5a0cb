//! Long contents on their way into packs: read and hashed as a whole by one thread, cut by another,
//! and stored by a third. Cutting, and hashing chunks, take about as long as hashing the whole.

use std::collections::HashSet;
use std::fs::File;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

use super::cut::SHORTEST;
use super::cutter::{Cut, Cutter, ROOM};
use super::list::List;
use super::{MOST_PARTS, MOST_RUNS};
use crate::object::ContentHash;
use crate::store::import::{Hashed, OpenFile, RangeError, hash_steps};
use crate::store::packs::Packer;
use crate::store::transfer::STEP_BYTES;
use crate::store::{ImportError, StoreError, Transfer};
use crate::sys;

/// Longer contents may need more parts than a head has room for.
pub(in crate::store) const LONGEST_BYTES: u64 =
    MOST_PARTS as u64 * MOST_RUNS as u64 * SHORTEST as u64;

/// From this length on, threads share the work: to start one takes 0.1 ms.
const OVERLAP_BYTES: u64 = 4 << 20;
/// Buffers on their way between them.
const BUFFERS: usize = 4;

/// Contents of which all chunks are stored, and their list is not.
#[derive(Debug)]
pub(in crate::store) struct Chunked {
    pub(in crate::store) hashed: Hashed,
    /// Bytes of chunks, and of parts of the list, that were not stored before.
    pub(in crate::store) new_bytes: u64,
    /// The head of the list, as it is in a pack.
    pub(in crate::store) head: Vec<u8>,
}

/// Cuts the first `size` bytes of a file, and stores the chunks. Fewer where the file ends earlier.
///
/// # Errors
/// As those of [`ObjectStore::import`](crate::store::ObjectStore::import).
pub(in crate::store) fn import(
    packer: &Packer<'_>,
    source: &File,
    size: u64,
    sparse: bool,
    transfer: &mut Transfer<'_>,
) -> Result<Chunked, ImportError> {
    let source = OpenFile { file: source, sparse };
    let (mut cutter, mut list) = (Cutter::new(), List::new(packer));
    let hashed = if size < OVERLAP_BYTES {
        in_turn(&mut cutter, &mut list, &source, size, transfer)
    } else {
        overlapped(&mut cutter, &mut list, &source, size, transfer)
    };
    let hashed = hashed.map_err(failure)?;
    cutter.finish(hashed.size, &mut |cut| list.add(cut).map(drop))?;
    let (head, new_bytes) = list.finish(hashed.size, sparse)?;
    Ok(Chunked { hashed, new_bytes, head: head.encode() })
}

/// Cuts the first `size` bytes of a file, stores those of the chunks that are wanted, and takes
/// these out of the set.
///
/// # Errors
/// As [`import`].
pub(super) fn fill(
    packer: &Packer<'_>,
    wanted: &mut HashSet<ContentHash>,
    source: &File,
    size: u64,
    sparse: bool,
    transfer: &mut Transfer<'_>,
) -> Result<(), ImportError> {
    let source = OpenFile { file: source, sparse };
    let (mut cutter, mut list) = (Cutter::new(), List::of_wanted(packer, wanted));
    let hashed = in_turn(&mut cutter, &mut list, &source, size, transfer).map_err(failure)?;
    cutter.finish(hashed.size, &mut |cut| list.add(cut).map(drop))?;
    list.finish(hashed.size, sparse)?;
    Ok(())
}

fn failure(error: RangeError<StoreError>) -> ImportError {
    match error {
        RangeError::Read(error) => ImportError::Source(error),
        RangeError::Copy(error) => error.into(),
        RangeError::Stopped => StoreError::Cancelled.into(),
    }
}

/// One thread does all.
fn in_turn(
    cutter: &mut Cutter,
    list: &mut List<'_, '_>,
    source: &OpenFile<'_>,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, RangeError<StoreError>> {
    hash_steps(source, size, ROOM, transfer, |offset, buffer| {
        let taken = std::mem::take(buffer);
        cutter.add(offset, taken, &mut |cut| {
            *buffer = list.add(cut)?;
            Ok(())
        })
    })
}

fn overlapped(
    cutter: &mut Cutter,
    list: &mut List<'_, '_>,
    source: &OpenFile<'_>,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, RangeError<StoreError>> {
    let path = list.path().to_owned();
    let no_thread = |source| {
        let path = path.clone();
        RangeError::Copy(sys::Error { operation: "store chunks in", path, source }.into())
    };
    thread::scope(|scope| {
        let (filled, to_cut) = sync_channel::<(u64, Vec<u8>)>(BUFFERS);
        let (cut_off, to_store) = sync_channel::<Cut>(BUFFERS);
        let (emptied, to_fill) = sync_channel::<Vec<u8>>(BUFFERS);
        for _ in 0..BUFFERS {
            // Its receiver is here.
            let _ = emptied.send(Vec::with_capacity(ROOM + STEP_BYTES));
        }
        let storing = sys::spawn_scoped(scope, "nono-chunks", move || {
            for cut in to_store {
                let buffer = list.add(cut)?;
                if buffer.len() > ROOM {
                    // Nobody takes it when all is read.
                    let _ = emptied.try_send(buffer);
                }
            }
            Ok(())
        });
        let storing = storing.map_err(no_thread)?;
        // Each takes no more when the next one has failed, and that one says why at its end.
        let cutting = sys::spawn_scoped(scope, "nono-cuts", move || {
            let mut take = |cut| cut_off.send(cut).map_err(drop);
            to_cut
                .into_iter()
                .try_for_each(|(offset, buffer)| cutter.add(offset, buffer, &mut take))
        });
        let cutting = cutting.map_err(no_thread)?;
        let hashed = hash_steps(source, size, ROOM, transfer, |offset, buffer| {
            let next = to_fill.recv().map_err(drop)?;
            filled.send((offset, std::mem::replace(buffer, next))).map_err(drop)
        });
        drop(filled);
        let cut = cutting.join().unwrap_or_else(|panic| resume_unwind(panic));
        storing.join().unwrap_or_else(|panic| resume_unwind(panic)).map_err(RangeError::Copy)?;
        match hashed {
            // They ended without an error, so they took all.
            Err(RangeError::Copy(()) | RangeError::Stopped) => Err(RangeError::Stopped),
            Err(RangeError::Read(error)) => Err(RangeError::Read(error)),
            Ok(hashed) => cut.map(|()| hashed).map_err(|()| RangeError::Stopped),
        }
    })
}
