//! Reading the contents of files, each once.
//!
//! What lies in a pack is read in the order in which it lies, many files with one call: for small files,
//! the calls take nearly as long as the hashing. Whatever is not what it should be then, or is not
//! found so, is read by itself, in the way in which a restore would read it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use parking_lot::Mutex;
use rayon::prelude::*;

use super::VerifyError;
use super::graph::{Damage, Graph, Node, NodeId, Reading, Role};
use crate::object::ContentHash;
use crate::progress::{Amount, Stage};
use crate::store::{MAX_PACKED_BYTES, Pack, PackEntry, StoreError, Transfer};

/// Files are given to threads in runs of so many.
const FILES_AT_ONCE: usize = 32;
/// From this length on, a file is worth a thought about when it is read.
const LONG_BYTES: u64 = 1 << 20;
/// Packs are read in order for one file in so many of what they hold: to look for the files, all indexes
/// are read.
const FEWEST: usize = 10;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Contents of a file that a tree says has `size` bytes.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    id: NodeId,
    hash: ContentHash,
    size: u64,
}

/// What was found of one file.
pub(super) struct Found {
    pub(super) id: NodeId,
    /// Its length; `None` when there was nothing to read.
    pub(super) bytes: Option<u64>,
    pub(super) damage: Option<Damage>,
}

/// Files that are read while lists are read.
#[derive(Default)]
pub(super) struct Beside(Mutex<BesideState>);

#[derive(Default)]
struct BesideState {
    /// What is not read yet.
    left: Amount,
    found: Vec<Found>,
    failed: Option<VerifyError>,
}

impl Beside {
    /// A file will be [`read`](Self::read).
    pub(super) fn expect(&self, file: Wanted) {
        let left = &mut self.0.lock().left;
        (left.entries, left.bytes) = (left.entries + 1, left.bytes.saturating_add(file.size));
    }

    pub(super) fn read(&self, file: Wanted, reading: &Reading<'_>) {
        let found = read_file(file, reading);
        let state = &mut *self.0.lock();
        let left = &mut state.left;
        (left.entries, left.bytes) = (left.entries - 1, left.bytes.saturating_sub(file.size));
        match found {
            Ok(found) => state.found.push(found),
            Err(error) => state.failed = Some(error),
        }
    }

    fn left(&self) -> Amount {
        self.0.lock().left
    }

    /// What was found of all.
    ///
    /// # Errors
    /// Cancelled.
    pub(super) fn finish(self) -> Result<Vec<Found>, VerifyError> {
        let BesideState { found, failed, .. } = self.0.into_inner();
        failed.map_or(Ok(found), Err)
    }
}

/// Takes out of `files`, from the one at `start` on, those that are never packed, and are not so long that the
/// thread which works on the lists could be kept from them for long by one.
pub(super) fn take_long(graph: &Graph, files: &mut Vec<NodeId>, start: usize) -> Vec<Wanted> {
    const LONG: RangeInclusive<u64> = MAX_PACKED_BYTES + 1..=64 << 20;
    let new = files.split_off(start).into_iter().map(|id| wanted(graph, id));
    let (long, others): (Vec<_>, Vec<_>) = new.partition(|file| LONG.contains(&file.size));
    files.extend(others.iter().map(|file| file.id));
    long
}

/// What one thread does at a time.
enum Job<'a> {
    Files(&'a [NodeId]),
    Run(&'a Pack, &'a [(PackEntry, NodeId)]),
}

/// Reads the contents of files of the graph, while others may still be read beside.
///
/// # Errors
/// Cancelled.
pub(super) fn read(
    graph: &Graph,
    mut files: Vec<NodeId>,
    beside: &Beside,
    reading: &Reading<'_>,
) -> Result<Vec<Found>, VerifyError> {
    let left = beside.left();
    let sizes = files.iter().map(|id| wanted(graph, *id).size);
    let bytes = sizes.fold(left.bytes, u64::saturating_add);
    let expected = Amount { entries: left.entries + files.len() as u64, bytes };
    reading.progress.begin(Stage::ReadContents, Some(expected));
    reading.pool.install(|| {
        let packed = take_packed(graph, &mut files, reading);
        let long = long_ones_first(graph, &mut files);
        let (long, others) = files.split_at(long);
        let jobs: Vec<_> = long
            .chunks(1)
            .map(Job::Files)
            .chain(packed.iter().flat_map(|(pack, wanted, runs)| {
                runs.iter().map(|run| Job::Run(pack, &wanted[run.clone()]))
            }))
            .chain(others.chunks(FILES_AT_ONCE).map(Job::Files))
            .collect();
        let found: Vec<_> = jobs
            .par_iter()
            .with_max_len(1)
            .map(|job| match job {
                Job::Files(files) => read_files(graph, files, reading),
                Job::Run(pack, run) => read_run(graph, pack, run, reading),
            })
            .collect::<Result<_, _>>()?;
        Ok(found.into_iter().flatten().collect())
    })
}

/// Objects of a pack, and which of them are read together.
type InOrder = (Arc<Pack>, Vec<(PackEntry, NodeId)>, Vec<Range<usize>>);

/// Takes out of `files` what is best read in the order of its pack. Only what a restore would read there: not
/// what has a file of its own, or is in a newer pack too. The index of a pack is held only while it is
/// looked through.
fn take_packed(graph: &Graph, files: &mut Vec<NodeId>, reading: &Reading<'_>) -> Vec<InOrder> {
    let packs = match reading.store.packs_to_read_in_order() {
        Ok(packs) => packs,
        Err(error) => {
            tracing::debug!("reading one object after the other: {error}");
            return Vec::new();
        }
    };
    if files.len() < packs.iter().map(|pack| pack.len()).sum::<usize>() / FEWEST {
        return Vec::new();
    }
    let mut is_wanted = vec![false; graph.len()];
    for id in &*files {
        is_wanted[*id as usize] = true;
    }
    let mut left = files.len();
    let mut taken = Vec::new();
    for (number, pack) in packs.iter().enumerate() {
        if left == 0 {
            break;
        }
        // What is wrong with an index is reported elsewhere.
        let Ok(entries) = pack.entries() else { continue };
        let in_newer = |hash: &ContentHash| {
            packs[..number].iter().any(|pack| !matches!(pack.find(hash), Ok(None)))
        };
        let mut wanted: Vec<_> = entries
            .into_par_iter()
            .filter_map(|entry| {
                let id = graph.id(entry.hash, Role::File { size: entry.size() })?;
                let is_here = is_wanted[id as usize]
                    && reading.store.has_no_own(&entry.hash)
                    && !in_newer(&entry.hash);
                is_here.then_some((entry, id))
            })
            .collect();
        for (_, id) in &wanted {
            is_wanted[*id as usize] = false;
        }
        left -= wanted.len();
        let runs = Pack::runs(&mut wanted);
        taken.push((pack.clone(), wanted, runs));
    }
    files.retain(|id| is_wanted[*id as usize]);
    taken
}

/// So that no thread begins with the longest file when the others have nothing left to do. All others
/// stay in the order of the lists, which is about the order in which they lie on the disk. Tells how
/// many are long.
fn long_ones_first(graph: &Graph, files: &mut [NodeId]) -> usize {
    let long_bytes = |id: &NodeId| match wanted(graph, *id).size {
        size if size >= LONG_BYTES => size,
        _ => 0,
    };
    files.sort_by_key(|id| Reverse(long_bytes(id)));
    files.partition_point(|id| long_bytes(id) > 0)
}

fn wanted(graph: &Graph, id: NodeId) -> Wanted {
    let Node { hash, role } = graph.node(id);
    let size = match role {
        Role::File { size } => size,
        _ => 0,
    };
    Wanted { id, hash, size }
}

fn read_run(
    graph: &Graph,
    pack: &Pack,
    run: &[(PackEntry, NodeId)],
    reading: &Reading<'_>,
) -> Result<Vec<Found>, VerifyError> {
    reading.check_cancelled()?;
    let mut found = Vec::with_capacity(run.len());
    let mut doubtful = Vec::new();
    let (mut objects, mut bytes) = (0, 0);
    let read = BUFFER.with_borrow_mut(|buffer| {
        pack.read_run(run, buffer, |entry, id, contents| {
            if ContentHash::of(contents) == entry.hash {
                (objects, bytes) = (objects + 1, bytes + entry.size());
                found.push(Found { id: *id, bytes: Some(entry.size()), damage: None });
            } else {
                doubtful.push(*id);
            }
        })
    });
    reading.progress.advance(objects, bytes);
    match read {
        Ok(()) => found.extend(read_files(graph, &doubtful, reading)?),
        Err(error) => {
            tracing::debug!("reading one object after the other: {error}");
            let ids: Vec<_> = run.iter().map(|(_, id)| *id).collect();
            found.extend(read_files(graph, &ids, reading)?);
        }
    }
    Ok(found)
}

fn read_files(
    graph: &Graph,
    files: &[NodeId],
    reading: &Reading<'_>,
) -> Result<Vec<Found>, VerifyError> {
    files.iter().map(|id| read_file(wanted(graph, *id), reading)).collect()
}

fn read_file(wanted: Wanted, reading: &Reading<'_>) -> Result<Found, VerifyError> {
    reading.check_cancelled()?;
    let Wanted { id, hash, size: expected } = wanted;
    let object = match reading.store.open_object(&hash) {
        Ok(object) => object,
        Err(error) => return Ok(Found { id, bytes: None, damage: Some(Damage::of(error)) }),
    };
    let size = object.size();
    // Not read: it could claim to have more bytes than anybody can hash.
    if size > expected {
        return Ok(Found { id, bytes: None, damage: Some(Damage::of(object.corrupt())) });
    }
    let verified = BUFFER.with_borrow_mut(|buffer| {
        let mut transfer = Transfer::new(buffer, reading.progress);
        let verified = object.verify(&mut transfer);
        transfer.finish(size);
        verified
    });
    let damage = match verified {
        Err(StoreError::Cancelled) => return Err(VerifyError::Cancelled),
        Err(error) => Some(Damage::of(error)),
        Ok(()) if size != expected => Some(Damage::WrongSize { actual: size }),
        Ok(()) => None,
    };
    Ok(Found { id, bytes: Some(size), damage })
}
