//! Long contents on their way into packs: hashed as a whole by one thread, cut and stored by
//! another. Long lists of names, which are in memory, are cut as they are.

use std::collections::HashSet;
use std::fs::File;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use super::cut::{Lengths, OF_CONTENTS, OF_LISTS, first_of_zeros};
use super::{Head, MAX_PARTS, MAX_RUNS, Part, Run};
use crate::object::{ContentHash, LONGEST_CHAIN_BYTES, hash_each};
use crate::store::import::{Hashed, OpenFile, RangeError, hash_ranges};
use crate::store::packs::Packer;
use crate::store::transfer::STEP_BYTES;
use crate::store::{ImportError, StoreError, Transfer};
use crate::sys;

/// Longer contents have no midstates, so no piece of them could be verified by itself.
pub(in crate::store) const LONGEST_BYTES: u64 = LONGEST_CHAIN_BYTES;
// A head has room for so many parts.
const _: () =
    assert!(LONGEST_BYTES <= MAX_PARTS as u64 * MAX_RUNS as u64 * OF_CONTENTS.shortest as u64);
/// Longer lists may, in bytes.
pub(in crate::store) const LONGEST_LIST_BYTES: u64 =
    MAX_PARTS as u64 * MAX_RUNS as u64 * OF_LISTS.shortest as u64;

/// From this length on, the contents are hashed by one thread and cut by another: to start one
/// takes 0.1 ms.
const OVERLAP_BYTES: u64 = 1 << 20;
/// Buffers on their way between the two.
const BUFFERS: usize = 3;

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
    let mut cutter = Cutter::new(packer, OF_CONTENTS);
    let hashed = if size < OVERLAP_BYTES {
        hash_ranges(&source, size, transfer, |offset, bytes| cutter.add(offset, bytes))
    } else {
        overlapped(&mut cutter, &source, size, transfer)
    };
    let hashed = hashed.map_err(failure)?;
    let (head, new_bytes) = cutter.finish(hashed.size, sparse)?;
    Ok(Chunked { hashed, new_bytes, head: head.encode() })
}

/// Cuts a list of names and stores the chunks. Returns the head of the list of these.
///
/// # Errors
/// When the store cannot be written.
pub(in crate::store) fn import_list(
    packer: &Packer<'_>,
    bytes: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let mut cutter = Cutter::new(packer, OF_LISTS);
    cutter.add(0, bytes)?;
    let (head, _) = cutter.finish(bytes.len() as u64, false)?;
    Ok(head.encode())
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
    let mut cutter = Cutter { wanted: Some(wanted), ..Cutter::new(packer, OF_CONTENTS) };
    let hashed = hash_ranges(&source, size, transfer, |offset, bytes| cutter.add(offset, bytes));
    let hashed = hashed.map_err(failure)?;
    cutter.finish(hashed.size, sparse)?;
    Ok(())
}

fn failure(error: RangeError<StoreError>) -> ImportError {
    match error {
        RangeError::Read(error) => ImportError::Source(error),
        RangeError::Copy(error) => error.into(),
        RangeError::Stopped => StoreError::Cancelled.into(),
    }
}

fn overlapped(
    cutter: &mut Cutter<'_, '_>,
    source: &OpenFile<'_>,
    size: u64,
    transfer: &mut Transfer<'_>,
) -> Result<Hashed, RangeError<StoreError>> {
    let path = cutter.packer.path().to_owned();
    thread::scope(|scope| {
        let (filled, to_cut) = mpsc::sync_channel::<(u64, Vec<u8>)>(BUFFERS);
        let (emptied, to_fill) = mpsc::channel::<Vec<u8>>();
        for _ in 0..BUFFERS {
            // Its receiver is here.
            let _ = emptied.send(Vec::with_capacity(STEP_BYTES));
        }
        let cutting = sys::spawn_scoped(scope, "nono-chunks", move || {
            for (offset, bytes) in to_cut {
                cutter.add(offset, &bytes)?;
                // The reader does not take it when all is read.
                let _ = emptied.send(bytes);
            }
            Ok(())
        });
        let cutting = cutting.map_err(|source| {
            RangeError::Copy(sys::Error { operation: "store chunks in", path, source }.into())
        })?;
        // The other thread takes no more when it has failed, and says why at its end.
        let hashed = hash_ranges(source, size, transfer, |offset, bytes| {
            let mut buffer = to_fill.recv().map_err(drop)?;
            buffer.clear();
            buffer.extend_from_slice(bytes);
            filled.send((offset, buffer)).map_err(drop)
        });
        drop(filled);
        cutting.join().unwrap_or_else(|panic| resume_unwind(panic)).map_err(RangeError::Copy)?;
        hashed.map_err(|error| match error {
            RangeError::Read(error) => RangeError::Read(error),
            // It ended without an error, so it took all.
            RangeError::Copy(()) | RangeError::Stopped => RangeError::Stopped,
        })
    })
}

/// Contents that come in order, with gaps where there are holes.
struct Cutter<'p, 's> {
    packer: &'p Packer<'s>,
    lengths: Lengths,
    /// The bytes that came and were not cut yet.
    rest: Vec<u8>,
    /// Where the next bytes come.
    at: u64,
    runs: Vec<Run>,
    parts: Vec<Part>,
    new_bytes: u64,
    /// If not all chunks are to be stored: those that are, and are not yet.
    wanted: Option<&'p mut HashSet<ContentHash>>,
}

impl<'p, 's> Cutter<'p, 's> {
    fn new(packer: &'p Packer<'s>, lengths: Lengths) -> Self {
        let (rest, runs, parts) = (Vec::new(), Vec::new(), Vec::new());
        Self { packer, lengths, rest, at: 0, runs, parts, new_bytes: 0, wanted: None }
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_zeros(offset.saturating_sub(self.at))?;
        self.rest.extend_from_slice(bytes);
        self.at += bytes.len() as u64;
        self.cut(self.lengths.longest)
    }

    fn add_zeros(&mut self, mut count: u64) -> Result<(), StoreError> {
        self.at += count;
        // The rest of the bytes before is cut as if the zeros were bytes as well.
        let mut zeros = 0;
        while count > 0 && zeros < self.rest.len() {
            let step = count.min(self.lengths.longest as u64);
            self.rest.resize(self.rest.len() + step as usize, 0);
            (count, zeros) = (count - step, zeros + step as usize);
            self.cut(self.lengths.longest)?;
        }
        if count > 0 { self.cut_zeros(count) } else { Ok(()) }
    }

    /// Adds zeros behind nothing but zeros, of contents: all chunks are the same.
    fn cut_zeros(&mut self, count: u64) -> Result<(), StoreError> {
        let (len, all) = (first_of_zeros() as u64, self.rest.len() as u64 + count);
        let times =
            all.checked_sub(self.lengths.longest as u64).map_or(0, |beyond| beyond / len + 1);
        if times > 0 {
            let zeros = vec![0; len as usize];
            let hash = ContentHash::of(&zeros);
            self.store(hash, &zeros)?;
            let mut left = times;
            while left > 0 {
                let step = left.min(u32::MAX.into());
                self.push(Run { hash, len: len as u32, times: step as u32 })?;
                left -= step;
            }
        }
        self.rest.clear();
        self.rest.resize((all - times * len) as usize, 0);
        Ok(())
    }

    /// Cuts off chunks as long as so many bytes are left.
    fn cut(&mut self, least: usize) -> Result<(), StoreError> {
        let rest = std::mem::take(&mut self.rest);
        let (mut chunks, mut left) = (Vec::new(), &*rest);
        while left.len() >= least.max(1) {
            let (chunk, behind) = left.split_at(self.lengths.first(left));
            chunks.push(chunk);
            left = behind;
        }
        let mut hashes = vec![None; chunks.len()];
        hash_each(chunks.iter().copied(), |number, hash| hashes[number] = Some(hash));
        for (chunk, hash) in chunks.iter().zip(hashes) {
            let hash = hash.unwrap_or_else(|| ContentHash::of(chunk));
            self.store(hash, chunk)?;
            self.push(Run { hash, len: chunk.len() as u32, times: 1 })?;
        }
        let done = rest.len() - left.len();
        self.rest = rest;
        self.rest.drain(..done);
        Ok(())
    }

    fn store(&mut self, hash: ContentHash, chunk: &[u8]) -> Result<(), StoreError> {
        if self.wanted.as_mut().is_some_and(|wanted| !wanted.remove(&hash)) {
            return Ok(());
        }
        if self.packer.write_hashed(&hash, chunk)? {
            self.new_bytes += chunk.len() as u64;
        }
        Ok(())
    }

    fn push(&mut self, run: Run) -> Result<(), StoreError> {
        if let Some(last) = self.runs.last_mut()
            && (last.hash, last.len) == (run.hash, run.len)
            && let Some(times) = last.times.checked_add(run.times)
        {
            last.times = times;
            return Ok(());
        }
        if self.runs.len() == MAX_RUNS {
            self.end_part()?;
        }
        self.runs.push(run);
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), StoreError> {
        let mut bytes = Vec::with_capacity(self.runs.len() * super::RUN_BYTES);
        self.runs.iter().for_each(|run| run.encode(&mut bytes));
        let hash = ContentHash::of(&bytes);
        self.store(hash, &bytes)?;
        self.parts.push(Part { hash, size: self.runs.drain(..).map(|run| run.size()).sum() });
        Ok(())
    }

    /// The list of contents of `size` bytes, and how many bytes were new.
    fn finish(mut self, size: u64, sparse: bool) -> Result<(Head, u64), StoreError> {
        self.add_zeros(size.saturating_sub(self.at))?;
        self.cut(1)?;
        if !self.runs.is_empty() {
            self.end_part()?;
        }
        Ok((Head { size, sparse, parts: self.parts }, self.new_bytes))
    }
}
