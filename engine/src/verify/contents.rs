//! Reading the contents of files, each once.
//!
//! Packed objects are read in the order in which they lie, many files with one call: for small
//! files, the calls take nearly as long as the hashing. An object that is then wrong, or is not
//! found there, is read by itself, in the way in which a restore would read it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use rayon::Scope;
use rayon::prelude::*;

use super::VerifyError;
use super::graph::{Damage, Finding, Graph, Node, NodeId, Reading, Role};
use super::long_files::LongFiles;
use crate::object::{ContentHash, Midstates, hash_each};
use crate::progress::{Amount, Stage};
use crate::store::{Pack, PackEntry, StoreError, Transfer};

/// Files are given to threads in runs of so many.
const FILES_AT_ONCE: usize = 32;
/// Packs are read in order if one in so many of their objects is wanted: to look for the files, all
/// indexes are read.
const OBJECTS_PER_WANTED: usize = 10;
/// Packs that hold so many objects together are listed while those before them are read: the list
/// of their objects takes much more memory than a file that waits for its turn.
const ENTRIES_AT_ONCE: usize = 64 * 1024;
/// Number of entries that one thread looks up, one after the other.
const ENTRIES_LOOKED_UP_AT_ONCE: usize = 4096;

thread_local! {
    /// For whatever a thread reads.
    pub(super) static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Contents of a file that a tree says has `size` bytes.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) id: NodeId,
    pub(super) hash: ContentHash,
    pub(super) size: u64,
}

/// Reads the contents of files of the graph, while others are read beside. Sound ones are not
/// reported: there may be millions.
///
/// # Errors
/// Cancelled.
pub(super) fn read<'s>(
    graph: &Graph,
    mut files: Vec<NodeId>,
    long_files: &'s LongFiles<'_>,
    scope: &Scope<'s>,
) -> Result<Vec<Finding>, VerifyError> {
    let reading = long_files.reading();
    long_files.take(graph, &mut files, 0, u64::MAX, scope);
    let left = long_files.left();
    let sizes = files.iter().map(|id| wanted(graph, *id).size);
    let bytes = sizes.fold(left.bytes, u64::saturating_add);
    let expected = Amount { entries: left.entries + files.len() as u64, bytes };
    reading.progress.begin(Stage::ReadContents, Some(expected));

    let packs = packs_to_read_in_order(files.len(), reading);
    let mut packs = packs.iter();
    let mut unread = Unread::new(graph, &files);
    let mut findings = Vec::new();
    let mut taken = unread.take_from_some(&mut packs, graph, reading);
    while !taken.is_empty() {
        let runs: Vec<_> = taken.iter().flat_map(InOrder::runs).collect();
        // To look packs through is partly the work of one thread.
        let (found, next) = rayon::join(
            || read_all(&runs, |(pack, run)| read_run(graph, pack, run, reading)),
            || unread.take_from_some(&mut packs, graph, reading),
        );
        findings.extend(found?);
        taken = next;
    }
    files.retain(|id| unread.is_unread[*id as usize]);
    debug_assert_eq!(files.len(), unread.count);
    let chunks: Vec<_> = files.chunks(FILES_AT_ONCE).collect();
    findings.extend(read_all(&chunks, |files| read_files(graph, files, reading))?);
    Ok(findings)
}

/// Does jobs on all threads.
fn read_all<T: Sync>(
    jobs: &[T],
    read: impl Fn(&T) -> Result<Vec<Finding>, VerifyError> + Sync + Send,
) -> Result<Vec<Finding>, VerifyError> {
    let found = jobs.par_iter().with_max_len(1).map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().collect())
}

/// The packs to look for so many files in, newest first; none where that is not worth it.
fn packs_to_read_in_order(files: usize, reading: &Reading<'_>) -> Vec<Arc<Pack>> {
    let packs = match reading.store.packs_to_read_in_order() {
        Ok(packs) => packs,
        Err(error) => {
            tracing::debug!("reading one object after the other: {error}");
            return Vec::new();
        }
    };
    let entries: usize = packs.iter().map(|pack| pack.len()).sum();
    if files < entries / OBJECTS_PER_WANTED { Vec::new() } else { packs }
}

/// Objects of a pack in the order in which they lie, and which of them are read together.
struct InOrder<'a> {
    pack: &'a Pack,
    objects: Vec<(PackEntry, NodeId)>,
    runs: Vec<Range<usize>>,
}

impl InOrder<'_> {
    fn runs(&self) -> impl Iterator<Item = (&Pack, &[(PackEntry, NodeId)])> {
        self.runs.iter().map(|run| (self.pack, &self.objects[run.clone()]))
    }
}

/// Files that no thread took yet. Packs are looked through newest first, as for a restore.
struct Unread<'p> {
    /// For each node.
    is_unread: Vec<bool>,
    count: usize,
    /// Objects of the packs so far that were not taken, because they are none of the files, or not
    /// with that length, or elsewhere too: the beginnings of their names.
    strangers: HashSet<u64, RandomState>,
    /// Packs so far whose contents are unknown.
    unlisted: Vec<&'p Pack>,
}

impl<'p> Unread<'p> {
    fn new(graph: &Graph, files: &[NodeId]) -> Self {
        let mut is_unread = vec![false; graph.len()];
        for id in files {
            is_unread[*id as usize] = true;
        }
        let (strangers, unlisted) = (HashSet::default(), Vec::new());
        Self { is_unread, count: files.len(), strangers, unlisted }
    }

    /// Takes from as many of the next packs as are looked through at once. None when nothing is
    /// left to be taken.
    fn take_from_some(
        &mut self,
        packs: &mut impl Iterator<Item = &'p Arc<Pack>>,
        graph: &Graph,
        reading: &Reading<'_>,
    ) -> Vec<InOrder<'p>> {
        let (mut taken, mut entries) = (Vec::new(), 0);
        while self.count > 0
            && entries < ENTRIES_AT_ONCE
            && let Some(pack) = packs.next()
        {
            entries += pack.len();
            taken.push(self.take_packed(pack, graph, reading));
        }
        taken
    }

    /// Takes what a restore would read from the next pack: not what has a file of its own, or is in
    /// one of the packs before too. The index of a pack is held only while it is looked through.
    fn take_packed(&mut self, pack: &'p Pack, graph: &Graph, reading: &Reading<'_>) -> InOrder<'p> {
        let Ok(entries) = pack.entries_in_order() else {
            // A damaged index is reported elsewhere.
            self.unlisted.push(pack);
            return InOrder { pack, objects: Vec::new(), runs: Vec::new() };
        };
        let looked_through: Vec<_> = entries
            .par_chunks(ENTRIES_LOOKED_UP_AT_ONCE)
            .map(|entries| self.look_through(entries, graph, reading))
            .collect();
        let mut objects =
            Vec::with_capacity(looked_through.iter().map(|(here, _)| here.len()).sum());
        for (here, strangers) in looked_through {
            here.iter().for_each(|(_, id)| self.is_unread[*id as usize] = false);
            objects.extend(here);
            self.strangers.extend(strangers);
        }
        self.count -= objects.len();
        let runs = pack.runs(&objects);
        InOrder { pack, objects, runs }
    }

    /// The entries of a pack that are taken, and the strangers among them.
    fn look_through(
        &self,
        entries: &[PackEntry],
        graph: &Graph,
        reading: &Reading<'_>,
    ) -> (Vec<(PackEntry, NodeId)>, Vec<u64>) {
        let mut ids = IdLookup::default();
        let has_no_own = reading.store.having_no_own();
        let (mut here, mut strangers) = (Vec::with_capacity(entries.len()), Vec::new());
        for entry in entries {
            let role = Role::File { size: entry.size() };
            match ids.find(graph, Node { hash: entry.hash, role }) {
                Some(id) => {
                    let is_unread = self.is_unread[id as usize];
                    if is_unread && has_no_own(&entry.hash) && !self.may_be_before(&entry.hash) {
                        here.push((*entry, id));
                    } else if is_unread {
                        // No pack after this one may have it either: a restore would read this
                        // copy.
                        strangers.push(entry.hash.beginning());
                    }
                }
                None => strangers.push(entry.hash.beginning()),
            }
        }
        (here, strangers)
    }

    /// Whether a pack before may have an object that was not taken from it.
    fn may_be_before(&self, hash: &ContentHash) -> bool {
        self.strangers.contains(&hash.beginning())
            || self.unlisted.iter().any(|pack| !matches!(pack.find(hash), Ok(None)))
    }
}

/// Looks ids up. Files are stored in about the order in which lists name them, by a few threads at
/// once: the id that comes next is mostly the one after one of the last, and looking there finds it
/// in memory that is at hand.
#[derive(Default)]
struct IdLookup {
    after_last: [NodeId; 4],
    /// The copy that was right longest ago, or nearly so.
    oldest: usize,
}

impl IdLookup {
    fn find(&mut self, graph: &Graph, node: Node) -> Option<NodeId> {
        let guessed = self.after_last.iter().position(|id| graph.is(*id, &node));
        let (id, place) = match guessed {
            Some(place) => (self.after_last[place], place),
            None => (graph.id(node.hash, node.role)?, self.oldest),
        };
        if place == self.oldest {
            self.oldest = (place + 1) % self.after_last.len();
        }
        self.after_last[place] = id + 1;
        Some(id)
    }
}

pub(super) fn wanted(graph: &Graph, id: NodeId) -> Wanted {
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
) -> Result<Vec<Finding>, VerifyError> {
    reading.check_cancelled()?;
    let mut doubtful = Vec::new();
    let (mut objects, mut bytes) = (0, 0);
    let read = BUFFER.with_borrow_mut(|buffer| {
        hash_each(pack.read_run(run, buffer)?, |number, hash| {
            let (entry, id) = &run[number];
            if hash == entry.hash {
                (objects, bytes) = (objects + 1, bytes + entry.size());
            } else {
                doubtful.push(*id);
            }
        });
        Ok::<_, StoreError>(())
    });
    reading.progress.advance(objects, bytes);
    match read {
        Ok(()) => read_files(graph, &doubtful, reading),
        Err(error) => {
            tracing::debug!("reading one object after the other: {error}");
            let ids: Vec<_> = run.iter().map(|(_, id)| *id).collect();
            read_files(graph, &ids, reading)
        }
    }
}

pub(super) type FileOutcome = Result<Option<Midstates>, Finding>;

fn read_files(
    graph: &Graph,
    files: &[NodeId],
    reading: &Reading<'_>,
) -> Result<Vec<Finding>, VerifyError> {
    let mut findings = Vec::new();
    for id in files {
        findings.extend(read_file(wanted(graph, *id), reading)?.err());
    }
    Ok(findings)
}

/// Returns the midstates of a long file, or what is wrong with one.
pub(super) fn read_file(wanted: Wanted, reading: &Reading<'_>) -> Result<FileOutcome, VerifyError> {
    reading.check_cancelled()?;
    let Wanted { id, hash, size: expected } = wanted;
    let object = match reading.store.open_object(&hash) {
        Ok(object) => object,
        Err(error) => return Ok(Err(Finding { id, bytes: None, damage: Damage::of(error) })),
    };
    let size = object.size();
    // Not read: it could claim to have more bytes than a processor can hash.
    if size > expected {
        return Ok(Err(Finding { id, bytes: None, damage: Damage::of(object.corrupt()) }));
    }
    let verified = BUFFER.with_borrow_mut(|buffer| {
        let mut transfer = Transfer::new(buffer, reading.progress);
        let verified = object.verify_with_midstates(&mut transfer);
        transfer.finish(size);
        verified
    });
    let damage = match verified {
        Err(StoreError::Cancelled) => return Err(VerifyError::Cancelled),
        Err(error) => Damage::of(error),
        Ok(_) if size != expected => Damage::WrongSize { actual: size },
        Ok(midstates) => return Ok(Ok(midstates)),
    };
    Ok(Err(Finding { id, bytes: Some(size), damage }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_in_any_order() {
        let node = |number: u64| {
            let role = Role::File { size: number };
            Node { hash: ContentHash::of(&number.to_le_bytes()), role }
        };
        let (mut graph, mut ids) = (Graph::default(), Vec::new());
        for number in 0..500 {
            let Node { hash, role } = node(number);
            graph.intern(hash, role, &mut ids).unwrap();
        }
        let in_order = (0..500).collect::<Vec<_>>();
        let interleaved = (0..100).flat_map(|at| (0..5).map(move |of| of * 100 + at)).collect();
        let shuffled = (0..500).map(|at| at * 331 % 500).collect();
        let with_strangers = (0..1000).map(|at| at * 7 % 700).collect();
        for order in [in_order, interleaved, shuffled, with_strangers] {
            let mut lookup = IdLookup::default();
            for number in order {
                let Node { hash, role } = node(number);
                let found = lookup.find(&graph, node(number));
                assert_eq!(found, graph.id(hash, role));
                assert_eq!(found.is_some(), number < 500);
            }
        }
    }
}
