//! Long files, each by a job of its own, while others are busy with lists and with other files.
//!
//! One that is very long is read in parts by all threads, when a tree names its midstates: each
//! piece has to lead from one state to the next and the last to the hash, so the midstates are
//! compared as well. Where a piece does not, the states may be what is wrong, and the file is read
//! once more, from its beginning.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use parking_lot::Mutex;
use rayon::Scope;

use super::VerifyError;
use super::contents::{BUFFER, Wanted, read_file, wanted};
use super::graph::{Finding, Graph, NodeId, Reading};
use crate::object::{ContentHash, Midstates};
use crate::progress::Amount;
use crate::store::{MAX_PACKED_BYTES, ObjectFile, ObjectSource};

/// Pieces that one thread reads one after the other.
const PART_PIECES: u64 = 16;
/// The number of pieces that are hashed at once.
const PIECES_AT_ONCE: usize = 2;
/// Files of more bytes are read in parts: at least two.
const MAX_WHOLE_BYTES: u64 = PART_PIECES * Midstates::PIECE_BYTES;

/// The findings of [`LongFiles`], and by contents the names of the midstates that they have.
type Found = (Vec<Finding>, Vec<(ContentHash, ContentHash)>);

/// Reads long files.
pub(super) struct LongFiles<'a> {
    reading: &'a Reading<'a>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The amount that is not read yet.
    left: Amount,
    findings: Vec<Finding>,
    /// Names of the midstates that intact contents have.
    midstates: Vec<(ContentHash, ContentHash)>,
    failed: Option<VerifyError>,
}

/// A file that several threads read.
struct InParts {
    file: Wanted,
    object: ObjectFile,
    midstates: Midstates,
    /// The name of these.
    name: ContentHash,
    parts: u64,
    parts_left: AtomicU64,
    /// Some piece is not what it should be.
    is_wrong: AtomicBool,
}

impl<'a> LongFiles<'a> {
    pub(super) fn new(reading: &'a Reading<'a>) -> Self {
        Self { reading, state: Mutex::default() }
    }

    pub(super) fn reading(&self) -> &'a Reading<'a> {
        self.reading
    }

    /// The amount that was taken and is not read yet.
    pub(super) fn left(&self) -> Amount {
        self.state.lock().left
    }

    /// Takes out of `files`, from the one at `start` on, those that are never packed and have at
    /// most so many bytes. The longest are begun first, so that no thread is left alone with one at
    /// the end.
    pub(super) fn take<'s>(
        &'s self,
        graph: &Graph,
        files: &mut Vec<NodeId>,
        start: usize,
        most_bytes: u64,
        scope: &Scope<'s>,
    ) {
        let meant = MAX_PACKED_BYTES + 1..=most_bytes;
        let is_meant = |id: &mut NodeId| meant.contains(&wanted(graph, *id).size);
        let mut long: Vec<_> =
            files.extract_if(start.., is_meant).map(|id| wanted(graph, id)).collect();
        long.sort_by_key(|file| Reverse(file.size));
        let sizes = long.iter().map(|file| file.size);
        let mut state = self.state.lock();
        state.left.entries += long.len() as u64;
        state.left.bytes = sizes.fold(state.left.bytes, u64::saturating_add);
        drop(state);
        for file in long {
            let is_read_whole = file.size <= MAX_WHOLE_BYTES;
            match graph.midstates_beside(file.id).filter(|_| !is_read_whole) {
                Some(name) => scope.spawn(move |scope| self.read_in_parts(file, name, scope)),
                None => scope.spawn(move |_| self.read(file)),
            }
        }
    }

    fn read(&self, file: Wanted) {
        let found = read_file(file, self.reading).map(|found| {
            found.map(|midstates| midstates.map(|found| ContentHash::of(&found.encode())))
        });
        let state = &mut *self.state.lock();
        state.is_read(1, file.size);
        match found {
            Ok(Ok(midstates)) => {
                state.midstates.extend(midstates.map(|midstates| (file.hash, midstates)));
            }
            Ok(Err(finding)) => state.findings.push(finding),
            Err(error) => state.failed = Some(error),
        }
    }

    fn read_in_parts<'s>(&'s self, file: Wanted, name: ContentHash, scope: &Scope<'s>) {
        let Some(opened) = self.open(file, name) else { return self.read(file) };
        let opened = Arc::new(opened);
        // A thread takes the last that it has put down, and should read forwards.
        for part in (0..opened.parts).rev() {
            let opened = Arc::clone(&opened);
            scope.spawn(move |_| self.read_part(&opened, part));
        }
    }

    /// `None`: it has to be read by one thread, which will say what is wrong, if something is.
    fn open(&self, file: Wanted, name: ContentHash) -> Option<InParts> {
        let store = self.reading.store;
        let object = store.open_object(&file.hash).ok()?;
        if object.size() != file.size || object.is_sparse() {
            return None;
        }
        let bytes = store.read(&name, Midstates::encoded_bytes(file.size)).ok()?;
        let midstates = Midstates::decode(&bytes, file.size).ok()?;
        let parts = midstates.pieces().div_ceil(PART_PIECES);
        let (parts_left, is_wrong) = (AtomicU64::new(parts), AtomicBool::new(false));
        Some(InParts { file, object, midstates, name, parts, parts_left, is_wrong })
    }

    fn read_part(&self, opened: &InParts, part: u64) {
        let end = opened.midstates.pieces().min((part + 1) * PART_PIECES);
        let mut bytes = 0;
        for first in (part * PART_PIECES..end).step_by(PIECES_AT_ONCE) {
            if opened.is_wrong.load(Relaxed) {
                break;
            }
            if let Err(error) = self.reading.check_cancelled() {
                // An unread part is not sound.
                opened.is_wrong.store(true, Relaxed);
                self.state.lock().failed = Some(error);
                break;
            }
            match opened.verified_bytes(first..end.min(first + PIECES_AT_ONCE as u64)) {
                Some(verified) => {
                    self.reading.progress.advance(0, verified);
                    bytes += verified;
                }
                None => opened.is_wrong.store(true, Relaxed),
            }
        }
        let mut state = self.state.lock();
        state.is_read(0, bytes);
        if opened.parts_left.fetch_sub(1, AcqRel) > 1 {
            return;
        }
        if opened.is_wrong.load(Relaxed) {
            drop(state);
            self.read(opened.file);
        } else {
            state.is_read(1, 0);
            state.midstates.push((opened.file.hash, opened.name));
            drop(state);
            self.reading.progress.advance(1, 0);
        }
    }

    /// All findings.
    ///
    /// # Errors
    /// Cancelled.
    pub(super) fn finish(self) -> Result<Found, VerifyError> {
        let State { findings, midstates, failed, .. } = self.state.into_inner();
        failed.map_or(Ok((findings, midstates)), Err)
    }
}

impl State {
    fn is_read(&mut self, files: u64, bytes: u64) {
        self.left.entries -= files;
        self.left.bytes = self.left.bytes.saturating_sub(bytes);
    }
}

impl InParts {
    /// How long one or two pieces are. `None`: they cannot be read, or are not what they should be.
    fn verified_bytes(&self, pieces: Range<u64>) -> Option<u64> {
        let offset = pieces.start * Midstates::PIECE_BYTES;
        let end = self.file.size.min(pieces.end * Midstates::PIECE_BYTES);
        let len = (end - offset) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(len, 0);
            let is_read = self.object.read_at(buffer, offset).is_ok_and(|count| count == len);
            let is_right = is_read && self.are_right(pieces, buffer);
            is_right.then_some(len as u64)
        })
    }

    fn are_right(&self, pieces: Range<u64>, bytes: &[u8]) -> bool {
        let Range { start: first, end } = pieces;
        let hash = &self.file.hash;
        match bytes.split_at_checked(Midstates::PIECE_BYTES as usize) {
            Some((one, other)) if first + 1 < end => {
                let two = [(first, one), (first + 1, other)];
                self.midstates.verifies_two(two, hash) == [true, true]
            }
            _ => self.midstates.verifies(first, bytes, hash),
        }
    }
}
